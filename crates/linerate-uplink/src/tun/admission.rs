//! [`Admission`]: which received frames are for a TUN device, and answers to who asks for its hardware
//! address, which is the interface's.
//!
//! The kernel would answer only for addresses that it knows: with `proxy_arp` for IPv4, where it forwards
//! and has a route, and for IPv6 one entry (`ip neigh add proxy`) for each. That is setting up the host as
//! a router, and would outlive the uplink.

use std::net::IpAddr;
use std::sync::Arc;

use linerate_wire::arp::{self, Operation};
use linerate_wire::ethernet::{self, Address, EtherType};
use linerate_wire::ip;
use linerate_wire::ndp::{Advertisement, Solicitation};

use super::{LINK, Ways};

/// Questions of one batch that are answered; who is not asks again.
const ANSWERS: usize = 64;

/// The hardware address of all nodes of the link.
const ALL_NODES: Address = Address([0x33, 0x33, 0, 0, 0, 1]);

/// One thread's way from frames to packets.
pub(crate) struct Admission {
    ways: Arc<Ways>,
    /// The interface's address.
    mac: Address,
    changes: Option<u64>,
    own: Vec<IpAddr>,
    answers: Vec<Vec<u8>>,
}

impl Admission {
    pub(crate) fn new(ways: Arc<Ways>) -> Self {
        let mac = ways.lock().mac;
        Self { ways, mac, changes: None, own: Vec::new(), answers: Vec::new() }
    }

    /// Takes note of the device's addresses and the interface's; to be called once a batch.
    pub(crate) fn refresh(&mut self) {
        let changes = Some(self.ways.changes());
        if self.changes != changes {
            self.changes = changes;
            let state = self.ways.lock();
            self.own.clone_from(&state.own);
            self.mac = state.mac;
        }
    }

    /// Whether what follows the Ethernet header of `frame` is a packet for the device. A question for its
    /// hardware address is not, and is answered.
    #[inline]
    pub(crate) fn admits(&mut self, frame: &[u8]) -> bool {
        let Ok(ethernet) = ethernet::Frame::new_checked(frame) else { return false };
        let packet = ethernet.payload();
        match ethernet.ether_type() {
            EtherType::IPV6 if Solicitation::is(packet) => {
                self.answer_solicitation(ethernet.source(), packet);
                false
            }
            EtherType::IPV4 | EtherType::IPV6 => {
                ethernet.destination() == self.mac
                    && ip::destination(packet).is_some_and(|to| self.has(to))
            }
            EtherType::ARP => {
                self.answer_arp(packet);
                false
            }
            _ => false,
        }
    }

    /// Frames that answer what was asked since the last call.
    pub(crate) fn answers(&mut self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.answers.drain(..)
    }

    fn has(&self, address: IpAddr) -> bool {
        self.own.binary_search(&address).is_ok()
    }

    #[cold]
    fn answer_arp(&mut self, packet: &[u8]) {
        let Ok(packet) = arp::Packet::new_checked(packet) else { return };
        let asked = arp::Repr::parse(&packet);
        if asked.operation != Operation::Request || !self.has(asked.target_ip.into()) {
            return;
        }
        let answer = arp::Repr {
            operation: Operation::Reply,
            sender_mac: self.mac,
            sender_ip: asked.target_ip,
            target_mac: asked.sender_mac,
            target_ip: asked.sender_ip,
        };
        self.push(asked.sender_mac, EtherType::ARP, arp::PACKET_LEN, |bytes| answer.emit(bytes));
    }

    #[cold]
    fn answer_solicitation(&mut self, from: Address, packet: &[u8]) {
        let Some(asked) = Solicitation::parse(packet) else { return };
        if !self.has(asked.target.into()) {
            return;
        }
        let answer = asked.answer(self.mac);
        // A node that asks whether the address is free has no address yet: all nodes hear the answer.
        let mac = Address::of_group(answer.destination.into()).unwrap_or(from);
        self.push(mac, EtherType::IPV6, Advertisement::PACKET_LEN, |bytes| answer.emit(bytes));
    }

    fn push(
        &mut self,
        to: Address,
        kind: EtherType,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> linerate_wire::Result<()>,
    ) {
        // Nobody is to be made to send to a group by a question in its name.
        if self.answers.len() == ANSWERS || (to.is_multicast() && to != ALL_NODES) {
            return;
        }
        // An allocation, for a frame that is sent once in a neighbour's minute.
        let mut frame = vec![0; LINK + len];
        let ethernet = ethernet::Repr { destination: to, source: self.mac, ether_type: kind };
        let written = ethernet.emit(&mut frame).and_then(|()| fill(&mut frame[LINK..]));
        if written.is_ok() {
            self.answers.push(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use linerate_wire::checksum::Sum;
    use linerate_wire::icmpv6::{self, Type};
    use linerate_wire::ip::Protocol;
    use linerate_wire::ipv6;

    use super::*;

    const MAC: Address = Address([2, 0, 0, 0, 0, 1]);
    const PEER: Address = Address([2, 0, 0, 0, 0, 2]);

    fn admission() -> Admission {
        let ways = Arc::new(Ways::new(MAC).unwrap());
        let mut own: Vec<IpAddr> =
            ["192.0.2.1", "2001:db8::1"].map(|address| address.parse().unwrap()).into();
        own.sort();
        ways.lock().own = own;
        let mut admission = Admission::new(ways);
        admission.refresh();
        admission
    }

    fn frame(to: Address, kind: EtherType, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; LINK];
        ethernet::Repr { destination: to, source: PEER, ether_type: kind }
            .emit(&mut frame)
            .unwrap();
        frame.extend(payload);
        frame
    }

    fn question(target: &str) -> Vec<u8> {
        let mut packet = vec![0; arp::PACKET_LEN];
        arp::Repr {
            operation: Operation::Request,
            sender_mac: PEER,
            sender_ip: [192, 0, 2, 2].into(),
            target_mac: Address([0; 6]),
            target_ip: target.parse().unwrap(),
        }
        .emit(&mut packet)
        .unwrap();
        frame(Address::BROADCAST, EtherType::ARP, &packet)
    }

    fn solicit(source: &str, target: &str, hop_limit: u8) -> Vec<u8> {
        let target: Ipv6Addr = target.parse().unwrap();
        let destination = ipv6::solicited_node(target);
        let mut packet = vec![0; Solicitation::PACKET_LEN];
        Solicitation { source: source.parse().unwrap(), destination, target }
            .emit(&mut packet)
            .unwrap();
        packet[7] = hop_limit;
        let mac = Address::of_group(destination.into()).unwrap();
        frame(mac, EtherType::IPV6, &packet)
    }

    #[test]
    fn only_packets_to_the_device_are_admitted() {
        let mut admission = admission();
        let packet = |to: [u8; 4]| [&[0x45; 16][..], &to, &[0; 8]].concat();
        let own = frame(MAC, EtherType::IPV4, &packet([192, 0, 2, 1]));
        assert!(admission.admits(&own));
        for other in [
            frame(MAC, EtherType::IPV4, &packet([192, 0, 2, 9])),
            frame(PEER, EtherType::IPV4, &packet([192, 0, 2, 1])),
            frame(MAC, EtherType::VLAN, &packet([192, 0, 2, 1])),
            own[..30].to_vec(),
            own[..5].to_vec(),
        ] {
            assert!(!admission.admits(&other), "{other:02x?}");
        }
        let mut six = vec![0x60; 48];
        six[24..40].copy_from_slice(&"2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        assert!(admission.admits(&frame(MAC, EtherType::IPV6, &six)));
        assert_eq!(admission.answers().count(), 0);
        // As a card that gets another address.
        admission.ways.set_mac(PEER);
        admission.refresh();
        assert!(!admission.admits(&own));
        assert!(admission.admits(&frame(PEER, EtherType::IPV4, &packet([192, 0, 2, 1]))));
    }

    #[test]
    fn arp_is_answered_for_the_device_alone() {
        let mut admission = admission();
        assert!(!admission.admits(&question("192.0.2.1")));
        assert!(!admission.admits(&question("192.0.2.7")));
        let answers: Vec<_> = admission.answers().collect();
        let [answer] = &answers[..] else { panic!("{} answers", answers.len()) };
        assert_eq!(answer[..6], PEER.0);
        let said = arp::Packet::new_checked(&answer[LINK..]).unwrap();
        assert_eq!(said.to_string(), "ARP 192.0.2.1 is-at 02:00:00:00:00:01");
        for _ in 0..1000 {
            admission.admits(&question("192.0.2.1"));
        }
        assert_eq!(admission.answers().count(), ANSWERS, "a flood is answered in part");
    }

    #[test]
    fn a_valid_solicitation_is_answered_with_a_valid_advertisement() {
        let mut admission = admission();
        for refused in [
            solicit("fe80::2", "2001:db8::1", 64),
            solicit("fe80::2", "2001:db8::7", 255),
            solicit("fe80::2", "ff02::1", 255),
        ] {
            assert!(!admission.admits(&refused));
        }
        let mut damaged = solicit("fe80::2", "2001:db8::1", 255);
        damaged[LINK + 20] ^= 1;
        assert!(!admission.admits(&damaged) && !admission.admits(&damaged[..60]));
        assert_eq!(admission.answers().count(), 0);
        for (source, mac, to, flags) in
            [("fe80::2", PEER, "fe80::2", 0x60), ("::", ALL_NODES, "ff02::1", 0x20)]
        {
            assert!(!admission.admits(&solicit(source, "2001:db8::1", 255)));
            let answer = admission.answers().next().unwrap();
            assert_eq!(answer[..6], mac.0);
            let ip = ipv6::Packet::new_checked(&answer[LINK..]).unwrap();
            assert_eq!((ip.destination(), ip.hop_limit()), (to.parse().unwrap(), 255));
            let message = icmpv6::Message::new_checked(ip.payload()).unwrap();
            let len = ip.payload().len() as u32;
            let pseudo = Sum::pseudo_v6(ip.source(), ip.destination(), Protocol::ICMPV6, len);
            assert!(message.verify_checksum(pseudo));
            assert_eq!(
                (message.message_type(), ip.payload()[4]),
                (Type::NEIGHBOUR_ADVERTISEMENT, flags)
            );
            assert_eq!(ip.payload()[26..], MAC.0);
        }
    }
}
