//! [`Step`]: one side of a session makes a frame.

use super::packet::{ACK, Network, PSH, SYN, Segment, fix_length, frame, packet};
use super::session::{Session, Side};
use crate::common::host::{Tag, router_mac};
use crate::common::router::MTU;
use linerate_testkit::Random;

pub(crate) struct Step<'a> {
    pub(crate) session: &'a mut Session,
    /// The client or the server.
    pub(crate) side: usize,
    pub(crate) random: &'a mut Random,
}

impl Step<'_> {
    pub(crate) fn side(&self) -> &Side {
        &self.session.sides[self.side]
    }

    pub(crate) fn peer(&self) -> &Side {
        &self.session.sides[1 - self.side]
    }

    pub(crate) fn is_v6(&self) -> bool {
        self.session.is_v6()
    }

    /// Bytes of network and transport headers.
    pub(crate) fn headers(&self) -> usize {
        (if self.is_v6() { 40 } else { 20 }) + if self.session.tcp { 20 } else { 8 }
    }

    /// The longest packet that gets through.
    pub(crate) fn fitting(&self) -> usize {
        MTU[self.side().host.port].min(MTU[self.peer().host.port]) as usize
    }

    /// An ordinary network header.
    pub(crate) fn network(&mut self) -> Network {
        let random = &mut *self.random;
        // A session keeps to an ECN codepoint most of the time.
        let ecn = if random.one_in(4) { random.within(0..=3) as u8 } else { 2 };
        Network {
            tos: self.session.dscp << 2 | ecn,
            ttl: random.pick(&[64, 64, 63, 128, 255, 3, 2]),
            id: random.next() as u16,
            dont_fragment: !random.one_in(3),
            label: random.next() as u32 & 0xf_ffff,
        }
    }

    /// Bytes that say where they come from.
    pub(crate) fn payload(&mut self, len: usize) -> Vec<u8> {
        self.session.count += 1;
        let mut bytes = b"LNRT".to_vec();
        bytes.extend(self.session.id.to_be_bytes());
        bytes.extend(self.session.count.to_be_bytes());
        bytes.extend(self.random.bytes(len.saturating_sub(bytes.len())));
        bytes.truncate(len);
        bytes
    }

    /// What the TCP header says: data within an open connection.
    pub(crate) fn segment(&mut self, len: usize) -> Option<Segment> {
        if !self.session.tcp {
            return None;
        }
        let flags = if self.random.one_in(2) { ACK | PSH } else { ACK };
        let (seq, ack) = (self.side().seq, self.peer().seq);
        self.session.sides[self.side].seq = seq.wrapping_add(len as u32);
        Some(Segment { seq, ack, flags, options: Vec::new() })
    }

    /// A packet of this many bytes of payload, and as this network header says.
    pub(crate) fn packet(&mut self, network: Network, len: usize) -> Vec<u8> {
        let segment = self.segment(len);
        self.packet_with(network, segment.as_ref(), len)
    }

    pub(crate) fn packet_with(
        &mut self,
        network: Network,
        segment: Option<&Segment>,
        len: usize,
    ) -> Vec<u8> {
        let payload = self.payload(len);
        let (from, to) = (self.side().from, self.side().to);
        packet(network, from, to, segment, &payload)
    }

    /// An ordinary packet with a short payload.
    pub(crate) fn short(&mut self) -> Vec<u8> {
        let (network, len) = (self.network(), self.random.within(12..=120));
        self.packet(network, len)
    }

    /// A packet of TCP with these flags and no payload.
    pub(crate) fn flags(&mut self, flags: u16) -> Vec<u8> {
        let network = self.network();
        let (seq, ack) = (self.side().seq, self.peer().seq);
        let ack = if flags & ACK != 0 { ack } else { 0 };
        let options = if flags & SYN != 0 { vec![2, 4, 5, 0xb4] } else { Vec::new() };
        let segment = Segment { seq, ack, flags, options };
        if flags & (SYN | super::packet::FIN) != 0 {
            self.session.sides[self.side].seq = seq.wrapping_add(1);
        }
        self.packet_with(network, Some(&segment), 0)
    }

    /// The frame of a packet, addressed to the router.
    pub(crate) fn frame(&self, packet: &[u8]) -> Vec<u8> {
        self.tagged(&self.side().tags, packet)
    }

    pub(crate) fn tagged(&self, tags: &[Tag], packet: &[u8]) -> Vec<u8> {
        let host = self.side().host;
        let kind = if self.is_v6() { 0x86dd } else { 0x0800 };
        frame(router_mac(host.port), host.mac(), tags, kind, packet)
    }

    /// Puts another source or destination address into a packet and makes its checksums right.
    pub(crate) fn readdress(&self, packet: &mut [u8], source: bool, address: &[u8]) {
        let at = match (self.is_v6(), source) {
            (true, true) => 8,
            (true, false) => 24,
            (false, true) => 12,
            (false, false) => 16,
        };
        self.rewrite(packet, at, address);
        fix_length(packet);
    }

    /// Replaces these bytes of addresses or ports, and corrects the transport checksum as the kernel does.
    pub(crate) fn rewrite(&self, packet: &mut [u8], at: usize, bytes: &[u8]) {
        let transport = super::packet::transport_at(packet);
        let field = transport + if self.session.tcp { 16 } else { 6 };
        let sum = |bytes: &[u8]| {
            let words =
                bytes.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
            words.sum::<u32>()
        };
        let old = u32::from(u16::from_be_bytes([packet[field], packet[field + 1]]));
        // RFC 1624: the complement of the sum of complements, with the old bytes' taken out.
        let len = bytes.len() as u32 / 2;
        let mut new =
            (!old & 0xffff) + len * 0xffff - sum(&packet[at..at + bytes.len()]) + sum(bytes);
        while new > 0xffff {
            new = (new & 0xffff) + (new >> 16);
        }
        let new = match !(new as u16) {
            0 if !self.session.tcp => 0xffff,
            sum => sum,
        };
        packet[field..field + 2].copy_from_slice(&new.to_be_bytes());
        packet[at..at + bytes.len()].copy_from_slice(bytes);
    }
}
