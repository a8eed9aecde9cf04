//! [`Session`]: two hosts that talk through a router, each with the addresses that it sees.

use std::net::IpAddr;

use super::packet::Socket;
use crate::common::host::{
    DMZ, DOUBLE, Host, LAN, PLAIN, SPECIAL, TAGGED, Tag, WAN, router_v4, router_v6,
};
use linerate_testkit::Random;

/// One end: where its frames come from, and what it writes into them.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) host: Host,
    pub(crate) tags: Vec<Tag>,
    pub(crate) from: Socket,
    pub(crate) to: Socket,
    /// The next TCP sequence number.
    pub(crate) seq: u32,
}

impl Side {
    fn new(host: Host, from: Socket, to: Socket) -> Self {
        let seq = u32::from(from.1) << 12 | u32::from(host.number);
        Self { host, tags: host.tags(), from, to, seq }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) id: u32,
    pub(crate) tcp: bool,
    pub(crate) dscp: u8,
    /// The client, and the server.
    pub(crate) sides: [Side; 2],
    /// Packets made so far.
    pub(crate) count: u32,
}

impl Session {
    pub(crate) fn is_v6(&self) -> bool {
        self.sides[0].from.0.is_ipv6()
    }
}

fn host(random: &mut Random, port: usize) -> Host {
    let number = match random.within(0..=9) {
        0..=3 => random.pick(&PLAIN),
        4..=5 => random.pick(&TAGGED),
        6..=7 => random.pick(&DOUBLE),
        _ => random.pick(&SPECIAL),
    };
    Host { port, number }
}

/// An address behind the gateway of this port.
fn behind(random: &mut Random, port: usize, v6: bool) -> IpAddr {
    let (net, host) = (101 + port as u8, random.within(1..=254) as u8);
    let middle = random.pick(&[0, 7, 7, 40]);
    match v6 {
        false => [10, net, middle, host].into(),
        true => {
            [0xfd00, [0x101, 0x102, 0x103][port], middle.into(), 0, 0, 0, 0, host.into()].into()
        }
    }
}

/// A session without translation. Some are like the one before but for one part of the key.
pub(crate) fn routed(random: &mut Random, id: u32, before: Option<&Session>) -> Session {
    if let Some(before) = before.filter(|_| random.one_in(3)) {
        let mut session = Session { id, ..before.clone() };
        match random.within(0..=4) {
            0 => session.dscp = random.pick(&[0, 4, 8, 46]),
            1 => session.tcp = !session.tcp,
            2 => {
                // The same addresses, from another port.
                let port = (session.sides[0].host.port + 1) % 3;
                session.sides[0].host = Host { port, number: 11 };
                session.sides[0].tags.clear();
            }
            3 => session.sides[0].tags = vec![(0x8100, random.pick(&[100, 203, 7]))],
            _ => session.sides[0].tags = vec![(0x88a8, 203), (0x8100, random.pick(&[40, 41]))],
        }
        return session;
    }
    let from = random.within(0..=2);
    let v6 = random.one_in(3);
    // Back out of the port that it came in by: IPv6 answers some of these with a redirect, at times.
    let hairpin = !v6 && random.one_in(12);
    let to = if hairpin { from } else { (from + random.within(1..=2)) % 3 };
    let (client, server) = (host(random, from), host(random, to));
    let (near, far) = (1024 + id as u16, random.within(1..=65_535) as u16);
    let gateway = random.one_in(3);
    let far = (if gateway { behind(random, to, v6) } else { server.address(v6) }, far);
    let near = (client.address(v6), near);
    Session {
        id,
        tcp: random.one_in(2),
        dscp: random.pick(&[0, 0, 4, 4, 8, 10, 46]),
        sides: [Side::new(client, near, far), Side::new(server, far, near)],
        count: 0,
    }
}

/// Ways of translation; the rules are [`super::setup::TRANSLATION`].
const TRANSLATIONS: u32 = 9;

/// A session that conntrack knows, translated or not, as the rules have it.
pub(crate) fn translated(random: &mut Random, id: u32, before: Option<&Session>) -> Session {
    if let Some(before) = before.filter(|_| random.one_in(6)) {
        let dscp = random.pick(&[0, 8, 46]);
        return Session { id, dscp, count: 0, ..before.clone() };
    }
    let v6 = random.one_in(3);
    let own = |port| if v6 { router_v6(port) } else { router_v4(port) };
    let at = |port, number| Host { port, number };
    let near_port = 20_000 + id as u16;
    let far_port = random.pick(&[53, 80, 443, 5000, 9999]);
    let special = |port, number| at(port, number).address(v6);
    // Who asks whom, for which address and port, what it looks like to the server, and which port that has.
    let (client, server, asked, seen, port) = match id % TRANSLATIONS {
        // Masqueraded.
        0 | 1 => {
            let server = host(random, WAN);
            let client = host(random, LAN);
            (client, server, (server.address(v6), far_port), (own(WAN), near_port), far_port)
        }
        // To an address of a pool, and to one port of it.
        2 => {
            let server = host(random, DMZ);
            let asked = (server.address(v6), far_port);
            (at(LAN, 12), server, asked, (special(DMZ, 200), near_port), far_port)
        }
        3 => {
            let (server, port) = (host(random, DMZ), 1024 + id as u16);
            let asked = (server.address(v6), port);
            (at(LAN, 13), server, asked, (special(DMZ, 201), 20_000), port)
        }
        // Ports forwarded to a host, one with another number.
        4 => {
            let client = host(random, WAN);
            let asked = (own(WAN), 8000);
            (client, at(LAN, 14), asked, (client.address(v6), near_port), 80)
        }
        5 => {
            let (client, port) = (host(random, WAN), 8001 + random.within(0..=60) as u16);
            (client, at(LAN, 20), (own(WAN), port), (client.address(v6), near_port), port)
        }
        // All of an address.
        6 => {
            let client = host(random, WAN);
            let asked = (special(WAN, 210), far_port);
            (client, at(LAN, 16), asked, (client.address(v6), near_port), far_port)
        }
        // Both ends.
        7 => {
            let client = host(random, WAN);
            (client, at(DMZ, 30), (own(WAN), 9000), (own(DMZ), near_port), 90)
        }
        // Tracked and left as it is.
        _ => {
            let (client, server) = (host(random, DMZ), host(random, WAN));
            let seen = (client.address(v6), near_port);
            (client, server, (server.address(v6), far_port), seen, far_port)
        }
    };
    Session {
        id,
        tcp: random.one_in(2),
        dscp: random.pick(&[0, 0, 8, 46]),
        sides: [
            Side::new(client, (client.address(v6), near_port), asked),
            Side::new(server, (server.address(v6), port), seen),
        ],
        count: 0,
    }
}
