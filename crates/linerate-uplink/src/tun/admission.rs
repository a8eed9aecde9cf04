//! [`Admission`]: which received frames are for a TUN device, and answers to who asks for its hardware
//! address, which is the interface's.
//!
//! The kernel would answer only for addresses that it knows: with `proxy_arp` for IPv4, where it forwards
//! and has a route, and for IPv6 one entry (`ip neigh add proxy`) for each. That is setting up the host as
//! a router, and would outlive the uplink.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use linerate_wire::arp::{self, Operation};
use linerate_wire::checksum::Sum;
use linerate_wire::ethernet::{self, Address, EtherType};
use linerate_wire::icmpv6::{self, Kind};
use linerate_wire::ip::Protocol;
use linerate_wire::ipv6;

use super::{LINK, Ways};

/// Questions of one batch that are answered; who is not asks again.
const ANSWERS: usize = 64;

/// Bytes of a neighbour solicitation or advertisement without options (RFC 4861 §4.3, §4.4).
const SOLICITATION: usize = icmpv6::HEADER_LEN + 16;

/// Bytes of the option with a hardware address (RFC 4861 §4.6.1).
const HARDWARE: usize = 8;

/// All nodes of the link (RFC 4291 §2.7.1), and their hardware address.
const ALL_NODES: (Ipv6Addr, Address) =
    (Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), Address([0x33, 0x33, 0, 0, 0, 1]));

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
            EtherType::IPV4 => {
                ethernet.destination() == self.mac
                    && octets(packet, 16).is_some_and(|to: [u8; 4]| self.has(to.into()))
            }
            EtherType::IPV6 if is_solicitation(packet) => {
                self.answer_solicitation(ethernet.source(), packet);
                false
            }
            EtherType::IPV6 => {
                ethernet.destination() == self.mac
                    && octets(packet, 24).is_some_and(|to: [u8; 16]| self.has(to.into()))
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
        if asked.operation != Operation::Request || !self.has(asked.target.into()) {
            return;
        }
        let answer = arp::Repr {
            operation: Operation::Reply,
            sender_mac: self.mac,
            sender: asked.target,
            target_mac: asked.sender_mac,
            target: asked.sender,
        };
        self.push(asked.sender_mac, EtherType::ARP, arp::PACKET_LEN, |bytes| answer.emit(bytes));
    }

    #[cold]
    fn answer_solicitation(&mut self, from: Address, packet: &[u8]) {
        let Some((source, target)) = solicitation(packet) else { return };
        if !self.has(target.into()) {
            return;
        }
        // Somebody who looks whether the address is free has none to be answered at (RFC 4861 §7.2.4).
        let (to, mac, solicited) = match source.is_unspecified() {
            true => (ALL_NODES.0, ALL_NODES.1, 0),
            false => (source, from, 0x40),
        };
        let len = SOLICITATION + HARDWARE;
        let header = ipv6::Repr {
            source: target,
            destination: to,
            next_header: Protocol::ICMPV6,
            payload_len: len,
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 255,
        };
        let own = self.mac;
        self.push(mac, EtherType::IPV6, ipv6::HEADER_LEN + len, |bytes| {
            header.emit(bytes)?;
            let message = &mut bytes[ipv6::HEADER_LEN..];
            message[0] = Kind::NEIGHBOUR_ADVERTISEMENT.0;
            // "Override": this is where the address is now.
            message[4] = solicited | 0x20;
            message[8..SOLICITATION].copy_from_slice(&target.octets());
            // Target link-layer address, in units of eight bytes.
            message[SOLICITATION..SOLICITATION + 2].copy_from_slice(&[2, 1]);
            message[SOLICITATION + 2..].copy_from_slice(&own.0);
            let pseudo = Sum::pseudo_v6(target, to, Protocol::ICMPV6, len as u32);
            icmpv6::Message::new_checked(message)?.fill_checksum(pseudo);
            Ok(())
        });
    }

    fn push(
        &mut self,
        to: Address,
        kind: EtherType,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> linerate_wire::Result<()>,
    ) {
        // Nobody is to be made to send to a group by a question in its name.
        if self.answers.len() == ANSWERS || (to.is_multicast() && to != ALL_NODES.1) {
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

fn octets<const N: usize>(packet: &[u8], at: usize) -> Option<[u8; N]> {
    packet.get(at..at + N)?.try_into().ok()
}

/// Whether this looks like a neighbour solicitation; they have no extension headers.
fn is_solicitation(packet: &[u8]) -> bool {
    packet.get(6) == Some(&Protocol::ICMPV6.0)
        && packet.get(ipv6::HEADER_LEN) == Some(&Kind::NEIGHBOUR_SOLICITATION.0)
}

/// The source and the target of a neighbour solicitation that is valid (RFC 4861 §7.1.1).
fn solicitation(packet: &[u8]) -> Option<(Ipv6Addr, Ipv6Addr)> {
    let ip = ipv6::Packet::new_checked(packet).ok()?;
    let payload = ip.payload();
    let message = icmpv6::Message::new_checked(payload).ok()?;
    let target = Ipv6Addr::from(octets::<16>(payload, icmpv6::HEADER_LEN)?);
    let pseudo = Sum::pseudo_v6(
        ip.source(),
        ip.destination(),
        Protocol::ICMPV6,
        u32::try_from(payload.len()).ok()?,
    );
    let valid = ip.hop_limit() == 255
        && message.code() == 0
        && !target.is_multicast()
        && !ip.source().is_multicast()
        && message.verify_checksum(pseudo);
    valid.then(|| (ip.source(), target))
}

#[cfg(test)]
mod tests {
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
            sender: [192, 0, 2, 2].into(),
            target_mac: Address([0; 6]),
            target: target.parse().unwrap(),
        }
        .emit(&mut packet)
        .unwrap();
        frame(Address::BROADCAST, EtherType::ARP, &packet)
    }

    fn solicit(source: &str, target: &str, hop_limit: u8) -> Vec<u8> {
        let (source, target): (Ipv6Addr, Ipv6Addr) =
            (source.parse().unwrap(), target.parse().unwrap());
        let to: Ipv6Addr = "ff02::1:ff00:1".parse().unwrap();
        let mut packet = vec![0; ipv6::HEADER_LEN + SOLICITATION];
        ipv6::Repr {
            source,
            destination: to,
            next_header: Protocol::ICMPV6,
            payload_len: SOLICITATION,
            traffic_class: 0,
            flow_label: 0,
            hop_limit,
        }
        .emit(&mut packet)
        .unwrap();
        let message = &mut packet[ipv6::HEADER_LEN..];
        message[0] = Kind::NEIGHBOUR_SOLICITATION.0;
        message[8..].copy_from_slice(&target.octets());
        let pseudo = Sum::pseudo_v6(source, to, Protocol::ICMPV6, SOLICITATION as u32);
        icmpv6::Message::new_checked(message).unwrap().fill_checksum(pseudo);
        frame(Address([0x33, 0x33, 0xff, 0, 0, 1]), EtherType::IPV6, &packet)
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
            [("fe80::2", PEER, "fe80::2", 0x60), ("::", ALL_NODES.1, "ff02::1", 0x20)]
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
            assert_eq!((message.kind(), ip.payload()[4]), (Kind::NEIGHBOUR_ADVERTISEMENT, flags));
            assert_eq!(ip.payload()[26..], MAC.0);
        }
    }
}
