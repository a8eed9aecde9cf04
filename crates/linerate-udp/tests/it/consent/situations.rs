//! The situations, and how many of four datagrams plain Linux delivers and answers in each.

use std::net::{IpAddr, UdpSocket};
use std::time::Instant;

use linerate_testkit::Namespace;

use super::programs::attach;
use super::{Consent, Kept, Other, REUSE, Situation, command, join, plain};
use crate::support::{Cable, HERE, TIMEOUT};

pub(super) const BASE: Situation = Situation {
    name: "",
    here: &[],
    there: &[],
    prepare: |_| Ok(Vec::new()),
    others: |_| Ok(Vec::new()),
    bind: "10.77.0.2:7000",
    interface: false,
    group: None,
    given: None,
    options: &[],
    from: "10.77.0.1:5000",
    to: "10.77.0.2:7000",
    delivered: 4,
    answered: 4,
    to_others: 0,
    consent: Consent::Bypasses,
};

/// Rules, policies and filters of the host: XDP bypasses them.
const HOST: &[Situation] = &[
    Situation { name: "nothing", consent: Consent::Holds, ..BASE },
    Situation {
        name: "nftables drops the port",
        here: &[
            "nft add table inet t { chain i { type filter hook input priority 0 ; udp dport 7000 drop ; } ; }",
        ],
        delivered: 0,
        answered: 0,
        ..BASE
    },
    Situation {
        name: "nftables drops by payload",
        here: &[
            "nft add table inet t { chain i { type filter hook input priority 0 ; @th,64,8 0x42 drop ; } ; }",
        ],
        delivered: 3,
        answered: 3,
        ..BASE
    },
    Situation {
        name: "nftables drops by length",
        here: &[
            "nft add table inet t { chain i { type filter hook input priority 0 ; udp length 73 drop ; } ; }",
        ],
        delivered: 3,
        answered: 3,
        ..BASE
    },
    Situation {
        name: "nftables drops at the ingress of the interface",
        here: &[
            "nft add table netdev t { chain i { type filter hook ingress device rx priority 0 ; udp dport 7000 drop ; } ; }",
        ],
        delivered: 0,
        answered: 0,
        ..BASE
    },
    Situation {
        name: "nftables counts a quota",
        here: &[
            "nft add table inet t { chain i { type filter hook input priority 0 ; udp dport 7000 quota over 200 bytes drop ; } ; }",
        ],
        delivered: 2,
        answered: 2,
        ..BASE
    },
    Situation {
        name: "iptables drops before routing",
        here: &["iptables-legacy -t raw -A PREROUTING -p udp --dport 7000 -j DROP"],
        delivered: 0,
        answered: 0,
        ..BASE
    },
    Situation {
        name: "iptables drops by policy",
        here: &["iptables-legacy -P INPUT DROP"],
        delivered: 0,
        answered: 0,
        ..BASE
    },
    Situation {
        name: "only answers of tracked connections leave",
        here: &[
            "nft add table inet t { chain o { type filter hook output priority 0 ; policy drop ; ct state established accept ; } ; }",
        ],
        ..BASE
    },
    Situation {
        name: "what leaves is masqueraded",
        here: &[
            "ip address add 10.77.0.9/32 dev rx",
            "nft add table ip t { chain p { type nat hook postrouting priority 100 ; snat to 10.77.0.9 ; } ; }",
        ],
        ..BASE
    },
    Situation {
        name: "another port is redirected",
        here: &[
            "nft add table ip t { chain p { type nat hook prerouting priority -100 ; udp dport 7777 redirect to :7000 ; } ; }",
        ],
        to: "10.77.0.2:7777",
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "an IPsec policy asks for ESP",
        here: &[
            "ip xfrm policy add src 10.77.0.0/24 dst 10.77.0.2/32 dir in tmpl proto esp mode transport",
        ],
        delivered: 0,
        answered: 0,
        ..BASE
    },
    Situation {
        name: "an IPsec policy blocks answers",
        here: &["ip xfrm policy add src 10.77.0.2/32 dst 10.77.0.1/32 dir out action block"],
        answered: 0,
        ..BASE
    },
    Situation {
        name: "an sk_lookup program drops",
        prepare: |cable| Ok(vec![attach(cable, "drop_at_lookup")?]),
        delivered: 0,
        answered: 0,
        ..BASE
    },
    Situation {
        name: "a BPF netfilter link drops",
        prepare: |cable| Ok(vec![attach(cable, "drop_at_hook")?]),
        delivered: 0,
        answered: 0,
        ..BASE
    },
    Situation {
        name: "a tcx program drops",
        prepare: |cable| Ok(vec![attach(cable, "drop_at_ingress")?]),
        delivered: 0,
        answered: 0,
        ..BASE
    },
    Situation {
        name: "a rule prohibits the sender",
        here: &[
            "ip rule add pref 10 lookup local",
            "ip rule add pref 5 from 10.77.0.1 prohibit",
            "ip rule del pref 0",
        ],
        delivered: 0,
        answered: 0,
        ..BASE
    },
    Situation {
        name: "a blackhole route swallows answers",
        here: &["ip route add blackhole 10.77.0.1/32"],
        answered: 0,
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "the reverse path filter drops",
        here: &["sysctl -qw net.ipv4.conf.rx.rp_filter=1"],
        there: &["ip address add 10.88.0.1/32 dev tx"],
        from: "10.88.0.1:5000",
        delivered: 0,
        answered: 0,
        ..BASE
    },
];

/// What the wire, the addresses and the socket say holds with consent, too.
const SOCKET: &[Situation] = &[
    Situation {
        name: "the sender is not reachable",
        there: &["ip address add 10.88.0.1/32 dev tx"],
        from: "10.88.0.1:5000",
        answered: 0,
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "an address on lo",
        here: &["ip link set lo up", "ip address add 10.99.0.1/32 dev lo"],
        bind: "0.0.0.0:7000",
        interface: true,
        to: "10.99.0.1:7000",
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "a local prefix",
        here: &["ip link set lo up", "ip route add local 10.99.0.0/24 dev lo"],
        bind: "0.0.0.0:7000",
        interface: true,
        to: "10.99.0.7:7000",
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "an address whose local route is gone",
        here: &[
            "ip address add 10.99.0.1/32 dev rx",
            "ip route del local 10.99.0.1 dev rx table local",
        ],
        bind: "0.0.0.0:7000",
        interface: true,
        to: "10.99.0.1:7000",
        delivered: 0,
        answered: 0,
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "a tentative address",
        here: &[
            "sysctl -qw net.ipv6.conf.rx.accept_dad=1",
            "sysctl -qw net.ipv6.conf.rx.dad_transmits=1000",
            "ip address add fd77::7/64 dev rx",
        ],
        prepare: |cable| {
            cable.veth.a.add_neighbour(ip("fd77::7"), cable.veth.b.mac()).expect("a neighbour");
            Ok(Vec::new())
        },
        bind: "[::]:7000",
        interface: true,
        from: "[fd77::1]:5000",
        to: "[fd77::7]:7000",
        delivered: 0,
        answered: 0,
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "an address of IPv6",
        bind: "[fd77::2]:7000",
        from: "[fd77::1]:5000",
        to: "[fd77::2]:7000",
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "a broadcast",
        bind: "0.0.0.0:7000",
        interface: true,
        to: "10.77.0.255:7000",
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "a frame with a VLAN tag",
        prepare: |cable| Ok(vec![attach(cable, "push_tag")?]),
        delivered: 0,
        answered: 0,
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "a frame with a priority tag",
        prepare: |cable| Ok(vec![attach(cable, "push_priority")?]),
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "a frame with a tag of 802.1ad",
        prepare: |cable| Ok(vec![attach(cable, "push_service_tag")?]),
        delivered: 0,
        answered: 0,
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "a deprecated address",
        here: &["ip address add fd77::7/64 dev rx preferred_lft 0"],
        prepare: |cable| {
            cable.veth.a.add_neighbour(ip("fd77::7"), cable.veth.b.mac()).expect("a neighbour");
            wait_until_local(cable, "fd77::7")
        },
        bind: "[::]:7000",
        interface: true,
        from: "[fd77::1]:5000",
        to: "[fd77::7]:7000",
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "an interface on which IPv6 is disabled",
        here: &[
            "ip link add other type veth peer name end",
            "ip link set other up",
            "ip link set end up",
            "sysctl -qw net.ipv6.conf.other.disable_ipv6=0",
            "ip address add fd66::2/64 dev other",
            "sysctl -qw net.ipv6.conf.rx.disable_ipv6=1",
        ],
        there: &["ip route add fd66::/64 via fd77::2"],
        prepare: |cable| wait_until_local(cable, "fd66::2"),
        bind: "[::]:7000",
        interface: true,
        from: "[fd77::1]:5000",
        to: "[fd66::2]:7000",
        delivered: 0,
        answered: 0,
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "an address of another interface",
        here: OTHER_INTERFACE,
        there: &["ip route add 10.66.0.0/24 via 10.77.0.2"],
        bind: "0.0.0.0:7000",
        interface: true,
        to: "10.66.0.1:7000",
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "the sender has an address of the host",
        here: &["ip address add 10.88.0.1/32 dev rx"],
        there: &["ip address add 10.88.0.1/32 dev tx"],
        from: "10.88.0.1:5000",
        delivered: 0,
        answered: 0,
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "the sender has an address of a local prefix",
        here: &["ip link set lo up", "ip route add local 10.88.0.0/24 dev lo"],
        there: &["ip address add 10.88.0.1/32 dev tx"],
        from: "10.88.0.1:5000",
        delivered: 0,
        answered: 0,
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "the sender has a broadcast address",
        here: &["ip address add 10.88.0.2/24 dev rx"],
        there: &["ip address add 10.88.0.255/32 dev tx"],
        from: "10.88.0.255:5000",
        answered: 0,
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "the sender has a broadcast address, and there is a local prefix",
        here: &[
            "ip address add 10.88.0.2/24 dev rx",
            "ip link set lo up",
            "ip route add local 10.99.0.0/24 dev lo",
        ],
        there: &["ip address add 10.88.0.255/32 dev tx"],
        from: "10.88.0.255:5000",
        delivered: 0,
        answered: 0,
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "a port of a VRF",
        here: &[
            "ip link add domain type vrf table 10",
            "ip link set domain up",
            "ip link set rx master domain",
        ],
        bind: "0.0.0.0:7000",
        interface: true,
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "a port of a bridge",
        here: &[
            "ip link add br0 type bridge",
            "ip link set br0 up",
            "ip link set rx master br0",
            "ip address del 10.77.0.2/24 dev rx",
            "ip address add 10.77.0.2/24 dev br0",
        ],
        bind: "0.0.0.0:7000",
        interface: true,
        delivered: 0,
        answered: 0,
        consent: Consent::Refused("br0"),
        ..BASE
    },
    Situation {
        name: "another socket has the address",
        others: |cable| Ok(vec![Other::here(plain(cable, "10.77.0.2:7000", REUSE)?)]),
        bind: "0.0.0.0:7000",
        given: Some(|_| Ok(())),
        delivered: 0,
        answered: 0,
        to_others: 4,
        ..BASE
    },
    Situation {
        name: "another socket has all addresses",
        others: |cable| Ok(vec![Other::here(plain(cable, "0.0.0.0:7000", REUSE)?)]),
        given: Some(|_| Ok(())),
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "another socket is connected to the sender",
        others: |cable| {
            let other = plain(cable, "10.77.0.2:7000", REUSE)?;
            other.connect("10.77.0.1:5000").map_err(|error| error.to_string())?;
            Ok(vec![Other::here(other)])
        },
        given: Some(|_| Ok(())),
        delivered: 0,
        answered: 0,
        to_others: 4,
        ..BASE
    },
];

/// Groups.
const GROUPS: &[Situation] = &[
    Situation { name: "a group", group: Some("rx"), ..GROUP },
    Situation {
        name: "a group, and a container in it on a macvlan",
        others: in_container,
        group: Some("rx"),
        to_others: 4,
        consent: Consent::Bypasses,
        ..GROUP
    },
    Situation {
        name: "a group that was joined on another interface",
        others: |cable| {
            // The host takes the group's frames from the interface for somebody else.
            let other = plain(cable, "239.7.7.7:7001", &[])?;
            join(&other, HERE);
            Ok(vec![Other::here(other)])
        },
        here: OTHER_INTERFACE,
        group: Some("other"),
        delivered: 0,
        answered: 0,
        ..GROUP
    },
    Situation {
        name: "a group that the routes lead to another interface",
        others: |cable| {
            let other = plain(cable, "239.7.7.7:7001", &[])?;
            join(&other, HERE);
            Ok(vec![Other::here(other)])
        },
        here: &[
            "ip link add other type veth peer name end",
            "ip address add 10.66.0.1/24 dev other",
            "ip link set other up",
            "ip link set end up",
            "ip route add 239.7.7.7/32 dev other",
        ],
        group: Some(""),
        delivered: 0,
        answered: 0,
        ..GROUP
    },
    Situation {
        name: "another program in the group",
        others: |cable| {
            let other = plain(cable, "239.7.7.7:7000", REUSE)?;
            join(&other, HERE);
            Ok(vec![Other::here(other)])
        },
        bind: "239.7.7.7:7000",
        group: Some("rx"),
        to_others: 4,
        consent: Consent::Bypasses,
        ..GROUP
    },
];

const GROUP: Situation = Situation {
    bind: "0.0.0.0:7000",
    interface: false,
    to: "239.7.7.7:7000",
    consent: Consent::HoldsOn("rx"),
    ..BASE
};

pub(super) const OTHER_INTERFACE: &[&str] = &[
    "ip link add other type veth peer name end",
    "ip address add 10.66.0.1/24 dev other",
    "ip link set other up",
    "ip link set end up",
];

/// Filters of the control group of this process, in which other tests run.
pub(super) const CONTROL_GROUP: &[Situation] = &[
    Situation {
        name: "the control group filters what comes in",
        prepare: |cable| Ok(vec![attach(cable, "ingress_of_group")?]),
        bind: "10.77.0.2:17099",
        to: "10.77.0.2:17099",
        delivered: 0,
        answered: 0,
        ..BASE
    },
    Situation {
        name: "the control group filters what leaves",
        prepare: |cable| Ok(vec![attach(cable, "egress_of_group")?]),
        bind: "10.77.0.2:17099",
        to: "10.77.0.2:17099",
        answered: 0,
        ..BASE
    },
    Situation {
        name: "the control group of a given socket has a filter",
        prepare: |cable| Ok(vec![attach(cable, "ingress_of_group")?]),
        bind: "10.77.0.2:17099",
        given: Some(|_| Ok(())),
        to: "10.77.0.2:17099",
        delivered: 0,
        answered: 0,
        consent: Consent::Refused("control group"),
        ..BASE
    },
];

/// All the others.
pub(super) fn all() -> Vec<&'static Situation> {
    HOST.iter().chain(SOCKET).chain(GROUPS).chain(super::given::GIVEN).collect()
}

/// Until the kernel has the local route of an IPv6 address, which it makes a moment later than the address.
fn wait_until_local(cable: &Cable, address: &str) -> Result<Vec<Kept>, String> {
    let end = Instant::now() + TIMEOUT;
    while Instant::now() < end {
        let mut ip = cable.here.command("ip");
        let routes = ip.args(["-6", "route", "show", "table", "local"]).output();
        let routes = routes.map_err(|error| error.to_string())?.stdout;
        if String::from_utf8_lossy(&routes).contains(&format!("local {address} ")) {
            return Ok(Vec::new());
        }
    }
    Err(format!("{address} has no local route"))
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A container on a macvlan above the interface, with a program in the group.
fn in_container(cable: &Cable) -> Result<Vec<Other>, String> {
    let container = Namespace::create("lucont").expect("a namespace");
    command(&cable.here, "ip link add link rx name mv type macvlan mode bridge")?;
    command(&cable.here, &format!("ip link set mv netns {}", container.name()))?;
    command(&container, "ip address add 10.77.0.3/24 dev mv")?;
    command(&container, "ip link set mv up")?;
    let socket = container.run(|| UdpSocket::bind("0.0.0.0:7000")).expect("the namespace");
    let socket = socket.map_err(|error| error.to_string())?;
    container.run(|| join(&socket, "10.77.0.3")).expect("the namespace");
    Ok(vec![Other { socket, _container: Some(container) }])
}
