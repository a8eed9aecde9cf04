//! The situations, and how many of four datagrams plain Linux delivers and answers in each.

use std::net::{IpAddr, UdpSocket};

use linerate_testkit::Namespace;
use nix::sys::socket::{setsockopt, sockopt};

use super::programs::attach;
use super::{Consent, Other, REUSE, Situation, command, join, option, plain};
use crate::support::{Cable, HERE};

const BASE: Situation = Situation {
    name: "",
    here: &[],
    there: &[],
    prepare: |_| Ok(Vec::new()),
    others: |_| Ok(Vec::new()),
    bind: "10.77.0.2:7000",
    interface: false,
    group: None,
    given: None,
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

const OTHER_INTERFACE: &[&str] = &[
    "ip link add other type veth peer name end",
    "ip address add 10.66.0.1/24 dev other",
    "ip link set other up",
    "ip link set end up",
];

/// Options of a caller's socket.
const GIVEN: &[Situation] = &[
    Situation { name: "a given socket", given: Some(|_| Ok(())), consent: Consent::Holds, ..BASE },
    Situation {
        name: "a given socket is bound to another interface",
        here: OTHER_INTERFACE,
        bind: "0.0.0.0:7000",
        given: Some(|socket| {
            let name = std::ffi::OsString::from("other");
            setsockopt(socket, sockopt::BindToDevice, &name).map_err(|error| error.to_string())
        }),
        delivered: 0,
        answered: 0,
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "a given socket has a filter",
        given: Some(super::filter),
        delivered: 3,
        answered: 3,
        consent: Consent::Refused("SO_ATTACH_FILTER"),
        ..BASE
    },
    Situation {
        name: "a given socket is encapsulated",
        // `UDP_ENCAP_ESPINUDP`: what is no ESP is handled by the kernel.
        given: Some(|socket| option(socket, libc::SOL_UDP, 100, 2)),
        delivered: 0,
        answered: 0,
        consent: Consent::Refused("UDP_ENCAP"),
        ..BASE
    },
    Situation {
        name: "a given socket takes IPv6 without checksums",
        bind: "[fd77::2]:7000",
        given: Some(|socket| option(socket, libc::SOL_UDP, 102, 1)),
        from: "[fd77::1]:5000",
        to: "[fd77::2]:7000",
        consent: Consent::Refused("UDP_NO_CHECK6_RX"),
        ..BASE
    },
    Situation {
        name: "a given socket has a least TTL",
        given: Some(|socket| option(socket, libc::IPPROTO_IP, libc::IP_MINTTL, 200)),
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "a given socket has an IPsec policy",
        given: Some(super::block),
        delivered: 0,
        answered: 0,
        consent: Consent::Refused("IPsec"),
        ..BASE
    },
    Situation {
        name: "a given socket shares its port",
        given: Some(|socket| option(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)),
        consent: Consent::Refused("SO_REUSEPORT"),
        ..BASE
    },
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
    HOST.iter().chain(SOCKET).chain(GROUPS).chain(GIVEN).collect()
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
