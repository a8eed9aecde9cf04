//! Translated sessions: each kind of NAT, both families, both directions.

use std::net::SocketAddr;

use linerate_forward::reason::Reason;

use crate::common::accelerator::Accelerator;
use linerate_testkit::lab::{BOTH, LEFT, Lab, RIGHT, WAN, at, deliver};
use linerate_testkit::tools::ip;

/// Packets of each direction.
const PACKETS: u64 = 12;

/// A conversation: the client sends to what it takes for the server, and the other way round.
struct Talk {
    client: SocketAddr,
    /// Whom the client sends to.
    asked: SocketAddr,
    server: SocketAddr,
    /// Whom the server answers; port 0 where the router may choose.
    answered: SocketAddr,
    /// The client is the host on the right.
    inwards: bool,
}

impl Talk {
    /// From this port of the host on the left to port 5000 of the one on the right.
    fn outwards(family: usize, port: u16, answered: SocketAddr) -> Self {
        let (client, server) = (at(LEFT[family], port), at(RIGHT[family], 5000));
        Self { client, asked: server, server, answered, inwards: false }
    }

    /// Has it, twelve packets a side, and holds what was learned against what arrived.
    fn check(&self, lab: &Lab, fast: &Accelerator) {
        let Self { client: here, asked, server: there, answered, inwards } = *self;
        let hosts = if inwards { (&lab.right, &lab.left) } else { (&lab.left, &lab.right) };
        let text = |address: SocketAddr| address.ip().to_string();
        let client = Lab::udp(hosts.0, &text(here), here.port());
        let server = Lab::udp(hosts.1, &text(there), there.port());
        let before = fast.left(Reason::Unknown);
        let mut from = answered;
        for _ in 0..PACKETS {
            let seen = deliver(&client, asked, &server, "question");
            if answered.port() == 0 {
                from.set_port(seen.port());
            }
            assert_eq!(seen, from);
            assert_eq!(deliver(&server, seen, &client, "an answer"), asked);
        }
        // Two, and one: an answer makes the connection established.
        assert!(fast.left(Reason::Unknown) - before <= 4, "{}", fast.describe());
        let headers = if here.is_ipv4() { 28 } else { 48 };
        for (session, leaves, length) in [
            (fast.learned(here, asked), (from, there), 8 + headers),
            (fast.learned(there, from), (asked, here), 9 + headers),
        ] {
            assert_eq!(session.out(), leaves);
            assert!(session.nat.is_some() && session.tracked, "{session:?}");
            assert_eq!(
                (session.packets, session.bytes),
                (PACKETS, PACKETS * length),
                "{session:?}"
            );
        }
    }
}

#[test]
fn masquerade() {
    learner_or_skip!();
    let lab = Lab::new("nma");
    lab.masquerade();
    let fast = Accelerator::attach(&lab);
    for family in BOTH {
        Talk::outwards(family, 4000, at(WAN[family], 0)).check(&lab, &fast);
    }
    assert_eq!(lab.invalid(), 0);
}

#[test]
fn source_nat_to_an_address_and_ports() {
    learner_or_skip!();
    let lab = Lab::new("nsn");
    let pool = ["10.2.0.7", "fd02::7"];
    for address in pool {
        let mac = lab.wan.a.mac();
        ip(&lab.right, &format!("neigh add {address} dev eth lladdr {mac}"));
    }
    lab.nft(
        "table inet t {
        chain post { type nat hook postrouting priority srcnat
            oifname \"wan\" meta nfproto ipv4 udp sport 4000-4999 snat ip to 10.2.0.7:6000-6999
            oifname \"wan\" meta nfproto ipv6 udp sport 4000-4999 snat ip6 to [fd02::7]:6000-6999
        }
        }",
    );
    let fast = Accelerator::attach(&lab);
    for family in BOTH {
        Talk::outwards(family, 4001, at(pool[family], 0)).check(&lab, &fast);
    }
}

#[test]
fn destination_nat_and_both_at_once() {
    learner_or_skip!();
    let lab = Lab::new("ndn");
    lab.nft(
        "table inet t {
            chain pre { type nat hook prerouting priority dstnat
                ip daddr 10.8.0.1 dnat ip to 10.2.0.2
                ip6 daddr fd08::1 dnat ip6 to fd02::2
            }
            chain post { type nat hook postrouting priority srcnat
                oifname \"wan\" udp sport 4001 masquerade
            }
        }",
    );
    let fast = Accelerator::attach(&lab);
    let asked = ["10.8.0.1", "fd08::1"];
    for family in BOTH {
        for (port, answered) in [(4000, at(LEFT[family], 4000)), (4001, at(WAN[family], 0))] {
            let asked = at(asked[family], 5000);
            Talk { asked, ..Talk::outwards(family, port, answered) }.check(&lab, &fast);
        }
    }
}

#[test]
fn port_forwarding_from_outside() {
    learner_or_skip!();
    let lab = Lab::new("npf");
    lab.masquerade();
    lab.nft(
        "table inet u {
        chain pre { type nat hook prerouting priority dstnat
            iifname \"wan\" meta nfproto ipv4 udp dport 8080 dnat ip to 10.1.0.2:80
            iifname \"wan\" meta nfproto ipv6 udp dport 8080 dnat ip6 to [fd01::2]:80
        }
        }",
    );
    let fast = Accelerator::attach(&lab);
    for family in BOTH {
        Talk {
            client: at(RIGHT[family], 4000),
            asked: at(WAN[family], 8080),
            server: at(LEFT[family], 80),
            answered: at(RIGHT[family], 4000),
            inwards: true,
        }
        .check(&lab, &fast);
    }
}
