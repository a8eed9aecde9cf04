//! How the routers are configured.

use crate::common::router::{Device, Router};
use linerate_testkit::tools::{ip, nft};

/// Rules that need no connection tracking: marks and refusals. Hosts 40 to 71 are special. Not among them is
/// a rule that goes by what differs from packet to packet of a session (length, ECN, flags): like every
/// flow table the accelerator asks once for all of them.
const RULES: &str = "\
table inet rules {
    chain before { type filter hook prerouting priority mangle;
        iifname dmz ip dscp cs1 ip dscp set af11
    }
    chain between { type filter hook forward priority filter;
        ip daddr { 10.1.0.40, 10.2.0.40, 10.3.0.40 } ip dscp set ef
        ip6 daddr { fd00:1::28, fd00:2::28, fd00:3::28 } ip6 dscp set ef
        ip daddr { 10.1.0.41, 10.2.0.41, 10.3.0.41 } ip dscp cs1 ip dscp set cs0
        ip daddr { 10.1.0.60, 10.2.0.60, 10.3.0.60 } drop
        ip6 daddr { fd00:1::3c, fd00:2::3c, fd00:3::3c } drop
        ip daddr { 10.1.0.61, 10.2.0.61, 10.3.0.61 } reject
        ip6 daddr { fd00:1::3d, fd00:2::3d, fd00:3::3d } reject
        ip daddr { 10.1.0.70, 10.2.0.70, 10.3.0.70 } ip ttl set 33
        ip6 daddr { fd00:1::46, fd00:2::46, fd00:3::46 } ip6 hoplimit set 33
    }
    chain after { type filter hook postrouting priority mangle;
        ip daddr { 10.1.0.43, 10.2.0.43, 10.3.0.43 } ip dscp set af41
        ip6 daddr { fd00:1::2b, fd00:2::2b, fd00:3::2b } ip6 dscp set af41
        oifname wan ip daddr 10.2.0.71 meta l4proto udp ip saddr set 10.3.0.99
    }
}
";

/// Translation of each kind, with both families alike.
const TRANSLATION: &str = "\
table ip nat {
    chain before { type nat hook prerouting priority dstnat;
        ip daddr 10.2.0.1 tcp dport 8000 dnat to 10.1.0.14:80
        ip daddr 10.2.0.1 udp dport 8000 dnat to 10.1.0.14:80
        ip daddr 10.2.0.1 tcp dport 8001-8063 dnat to 10.1.0.20
        ip daddr 10.2.0.1 udp dport 8001-8063 dnat to 10.1.0.20
        ip daddr 10.2.0.1 tcp dport 9000 dnat to 10.3.0.30:90
        ip daddr 10.2.0.1 udp dport 9000 dnat to 10.3.0.30:90
        ip daddr 10.2.0.210 dnat to 10.1.0.16
    }
    chain after { type nat hook postrouting priority srcnat;
        ip saddr 10.1.0.12 oifname dmz snat to 10.3.0.200
        ip saddr 10.1.0.13 oifname dmz meta l4proto { tcp, udp } snat to 10.3.0.201:20000
        ip saddr 10.1.0.0/24 oifname wan masquerade
        oifname dmz ct status dnat masquerade
    }
}
table ip6 nat {
    chain before { type nat hook prerouting priority dstnat;
        ip6 daddr fd00:2::1 tcp dport 8000 dnat to [fd00:1::e]:80
        ip6 daddr fd00:2::1 udp dport 8000 dnat to [fd00:1::e]:80
        ip6 daddr fd00:2::1 tcp dport 8001-8063 dnat to fd00:1::14
        ip6 daddr fd00:2::1 udp dport 8001-8063 dnat to fd00:1::14
        ip6 daddr fd00:2::1 tcp dport 9000 dnat to [fd00:3::1e]:90
        ip6 daddr fd00:2::1 udp dport 9000 dnat to [fd00:3::1e]:90
        ip6 daddr fd00:2::d2 dnat to fd00:1::10
    }
    chain after { type nat hook postrouting priority srcnat;
        ip6 saddr fd00:1::c oifname dmz snat to fd00:3::c8
        ip6 saddr fd00:1::d oifname dmz meta l4proto { tcp, udp } snat to [fd00:3::c9]:20000
        ip6 saddr fd00:1::/64 oifname wan masquerade
        oifname dmz ct status dnat masquerade
    }
}
";

/// A router that marks and refuses, and knows no connections.
pub(crate) fn routing(name: &str) -> Router {
    routing_by(name, [Device::Veth; 3])
}

/// The same with ports of these kinds.
pub(crate) fn routing_by(name: &str, devices: [Device; 3]) -> Router {
    let router = Router::of(name, devices).with_vlans();
    nft(&router.inside, RULES);
    router
}

/// A router that translates.
pub(crate) fn translating(name: &str) -> Router {
    translating_by(name, [Device::Veth; 3])
}

/// The same with ports of these kinds.
pub(crate) fn translating_by(name: &str, devices: [Device; 3]) -> Router {
    translator(Router::of(name, devices), false)
}

/// A router that translates what has a right checksum, and nothing else.
pub(crate) fn judging(name: &str) -> Router {
    translator(Router::new(name), true)
}

fn translator(router: Router, judges_checksums: bool) -> Router {
    let router = router.with_vlans();
    nft(&router.inside, TRANSLATION);
    // Packets that are not translated go out to them: an address without a host would bring a message of
    // ICMP at a time of the kernel's choosing.
    for address in ["10.2.0.210", "fd00:2::d2"] {
        ip(&router.inside, &format!("neigh replace {address} dev wan lladdr 02:00:00:00:11:d2"));
    }
    let value = if judges_checksums { "1" } else { "0" };
    let set = router.inside.sysctl("net.netfilter.nf_conntrack_checksum", value);
    set.unwrap_or_else(|error| panic!("{error}"));
    router
}
