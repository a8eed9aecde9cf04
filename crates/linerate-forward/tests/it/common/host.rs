//! [`Host`]: a host beside one of the router's ports. It is only an address: frames are made in its
//! name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_testkit::Mac;

/// The router's ports, by name.
pub(crate) const PORTS: [&str; 3] = ["lan", "wan", "dmz"];
pub(crate) const LAN: usize = 0;
pub(crate) const WAN: usize = 1;
pub(crate) const DMZ: usize = 2;

/// Hosts without a tag.
pub(crate) const PLAIN: [u8; 10] = [10, 11, 12, 13, 14, 15, 16, 17, 18, 19];
/// Hosts behind one tag: 802.1Q with a priority in some.
pub(crate) const TAGGED: [u8; 6] = [20, 21, 22, 23, 24, 25];
/// Hosts behind a service tag and one within.
pub(crate) const DOUBLE: [u8; 4] = [30, 31, 32, 33];
/// Hosts that the rules of a router treat in a way of their own.
pub(crate) const SPECIAL: [u8; 10] = [40, 41, 42, 43, 44, 50, 60, 61, 70, 71];
/// The next hops to the networks behind a port.
pub(crate) const GATEWAYS: [u8; 3] = [252, 253, 254];

/// 802.1Q and 802.1ad.
pub(crate) const CUSTOMER: u16 = 0x8100;
pub(crate) const SERVICE: u16 = 0x88a8;

/// A tag of a frame: its EtherType and control field.
pub(crate) type Tag = (u16, u16);

/// The host of this number beside this port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) port: usize,
    pub(crate) number: u8,
}

impl Host {
    pub(crate) fn all(port: usize) -> impl Iterator<Item = Self> {
        let numbers = PLAIN.iter().chain(&TAGGED).chain(&DOUBLE).chain(&SPECIAL).chain(&GATEWAYS);
        numbers.map(move |number| Self { port, number: *number })
    }

    pub(crate) fn v4(self) -> IpAddr {
        Ipv4Addr::new(10, self.port as u8 + 1, 0, self.number).into()
    }

    pub(crate) fn v6(self) -> IpAddr {
        let [port, number] = [self.port as u16 + 1, self.number.into()];
        Ipv6Addr::new(0xfd00, port, 0, 0, 0, 0, 0, number).into()
    }

    pub(crate) fn address(self, v6: bool) -> IpAddr {
        if v6 { self.v6() } else { self.v4() }
    }

    /// The tags of its frames, the outer one first.
    pub(crate) fn tags(self) -> Vec<Tag> {
        let number = u16::from(self.number);
        match self.number {
            20..=22 => vec![(CUSTOMER, 80 + number)],
            // With a priority of 5, and another VLAN.
            23..=29 => vec![(CUSTOMER, 5 << 13 | (180 + number))],
            30..=39 => vec![(SERVICE, 170 + number), (CUSTOMER, 10 + number)],
            _ => Vec::new(),
        }
    }

    /// Says which tags the router has to put on what it sends there (`vlan.bpf.c`).
    pub(crate) fn mac(self) -> Mac {
        let last = (self.port as u8) << 6 | self.number & 63;
        let [number, port] = [self.number, 0x10 + self.port as u8];
        match *self.tags() {
            [] => Mac([2, 0, 0, 0, port, number]),
            [(_, control)] => Mac([2, 0x56, 1, (control >> 8) as u8, control as u8, last]),
            [(_, outer), (_, inner), ..] => Mac([2, 0x56, 2, inner as u8, outer as u8, last]),
        }
    }
}

/// The router's own address on a port.
pub(crate) fn router_v4(port: usize) -> IpAddr {
    Host { port, number: 1 }.v4()
}

pub(crate) fn router_v6(port: usize) -> IpAddr {
    Host { port, number: 1 }.v6()
}

/// The router's own hardware address on a port.
pub(crate) fn router_mac(port: usize) -> Mac {
    Mac([2, 0, 0, 0, 1, port as u8 + 1])
}
