//! Packets from an independent builder, and surgery on their bytes.

use std::net::IpAddr;

use etherparse::{
    IpFragOffset, IpHeaders, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header, PacketBuilder,
    TcpHeader,
};
use linerate_testkit::Mac;
use linerate_wire::checksum;

use crate::common::host::Tag;

/// What stands in the network header besides the addresses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    /// DSCP and ECN.
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    pub(crate) id: u16,
    pub(crate) dont_fragment: bool,
    pub(crate) label: u32,
}

/// An address and a port.
pub(crate) type Socket = (IpAddr, u16);

pub(crate) const FIN: u16 = 1;
pub(crate) const SYN: u16 = 2;
pub(crate) const RST: u16 = 4;
pub(crate) const PSH: u16 = 8;
pub(crate) const ACK: u16 = 16;
pub(crate) const URG: u16 = 32;

/// What a TCP header says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segment {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    /// FIN is 1, SYN is 2, up to the nonce's 0x100.
    pub(crate) flags: u16,
    /// Of a multiple of 4 bytes.
    pub(crate) options: Vec<u8>,
}

/// A packet without a link header; UDP where there is no segment.
pub(crate) fn packet(
    network: Network,
    from: Socket,
    to: Socket,
    segment: Option<&Segment>,
    payload: &[u8],
) -> Vec<u8> {
    let ip = PacketBuilder::ip(headers(network, from.0, to.0));
    let mut bytes = Vec::new();
    let written = match segment {
        None => ip.udp(from.1, to.1).write(&mut bytes, payload),
        Some(segment) => {
            let flag = |bit: u16| segment.flags & bit != 0;
            let mut header = TcpHeader::new(from.1, to.1, segment.seq, 29_200);
            header.acknowledgment_number = segment.ack;
            header.set_options_raw(&segment.options).expect("short options");
            (header.fin, header.syn, header.rst, header.psh) =
                (flag(FIN), flag(SYN), flag(RST), flag(PSH));
            (header.ack, header.urg) = (flag(ACK), flag(URG));
            (header.ece, header.cwr, header.ns) = (flag(0x40), flag(0x80), flag(0x100));
            ip.tcp_header(header).write(&mut bytes, payload)
        }
    };
    written.expect("a packet");
    bytes
}

/// A packet of another protocol, its checksum (if it has one) left to the caller.
pub(crate) fn other(
    network: Network,
    from: IpAddr,
    to: IpAddr,
    protocol: u8,
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = Vec::new();
    match headers(network, from, to) {
        IpHeaders::Ipv4(mut header, _) => {
            header.protocol = IpNumber(protocol);
            header.set_payload_len(payload.len()).expect("a short payload");
            header.header_checksum = header.calc_header_checksum();
            header.write(&mut bytes).expect("written");
        }
        IpHeaders::Ipv6(mut header, _) => {
            header.next_header = IpNumber(protocol);
            header.set_payload_length(payload.len()).expect("a short payload");
            header.write(&mut bytes).expect("written");
        }
    }
    bytes.extend(payload);
    bytes
}

fn headers(network: Network, from: IpAddr, to: IpAddr) -> IpHeaders {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let header = Ipv4Header {
                dscp: (network.tos >> 2).try_into().expect("six bits"),
                ecn: (network.tos & 3).try_into().expect("two bits"),
                identification: network.id,
                dont_fragment: network.dont_fragment,
                fragment_offset: IpFragOffset::ZERO,
                time_to_live: network.ttl,
                source: from.octets(),
                destination: to.octets(),
                ..Ipv4Header::default()
            };
            IpHeaders::Ipv4(header, Default::default())
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let header = Ipv6Header {
                traffic_class: network.tos,
                flow_label: Ipv6FlowLabel::try_new(network.label).expect("twenty bits"),
                hop_limit: network.ttl,
                source: from.octets(),
                destination: to.octets(),
                ..Ipv6Header::default()
            };
            IpHeaders::Ipv6(header, Default::default())
        }
        _ => panic!("a packet from {from} to {to}"),
    }
}

/// Puts a link header and tags before a packet.
pub(crate) fn frame(to: Mac, from: Mac, tags: &[Tag], ether_type: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = [to.0, from.0].concat();
    for (kind, control) in tags {
        frame.extend(kind.to_be_bytes());
        frame.extend(control.to_be_bytes());
    }
    frame.extend(ether_type.to_be_bytes());
    frame.extend(packet);
    frame
}

/// Whether a packet is IPv6 by its first bits.
pub(crate) fn is_v6(packet: &[u8]) -> bool {
    packet[0] >> 4 == 6
}

/// Where the network header ends.
pub(crate) fn transport_at(packet: &[u8]) -> usize {
    if is_v6(packet) { 40 } else { usize::from(packet[0] & 15) * 4 }
}

/// Makes the IPv4 header checksum right.
pub(crate) fn fix_header(packet: &mut [u8]) {
    let end = (usize::from(packet[0] & 15) * 4).clamp(20, packet.len().max(20));
    if packet.len() < end || is_v6(packet) {
        return;
    }
    packet[10..12].fill(0);
    let sum = checksum::of(&packet[..end]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Makes the length in the network header that of the packet.
pub(crate) fn fix_length(packet: &mut [u8]) {
    let len = packet.len();
    if is_v6(packet) {
        packet[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
    } else {
        packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        fix_header(packet);
    }
}

/// Puts options (a multiple of 4 bytes) into an IPv4 header, or extension headers that begin with one of
/// type `kind` and whose last names what follows at byte 0 into an IPv6 packet.
pub(crate) fn insert(packet: &[u8], kind: u8, bytes: &[u8]) -> Vec<u8> {
    let at = if is_v6(packet) { 40 } else { 20 };
    let mut longer = [&packet[..at], bytes, &packet[at..]].concat();
    if is_v6(packet) {
        longer[40] = packet[6];
        longer[6] = kind;
    } else {
        longer[0] = 0x40 | (5 + bytes.len() / 4) as u8;
    }
    fix_length(&mut longer);
    longer
}

/// Cuts a packet into fragments of at most `size` bytes of payload, a multiple of 8.
pub(crate) fn fragments(packet: &[u8], size: usize, id: u16) -> Vec<Vec<u8>> {
    let at = transport_at(packet);
    let pieces: Vec<_> = packet[at..].chunks(size).collect();
    let count = pieces.len();
    let cut = |(index, piece): (usize, &&[u8])| {
        let more = u16::from(index + 1 < count);
        let offset = (index * size / 8) as u16;
        let mut fragment = [&packet[..at], piece].concat();
        if is_v6(packet) {
            let word = (offset << 3 | more).to_be_bytes();
            let header = [0, 0, word[0], word[1], 0, 7, (id >> 8) as u8, id as u8];
            return insert(&fragment, 44, &header);
        }
        fragment[4..6].copy_from_slice(&id.to_be_bytes());
        fragment[6..8].copy_from_slice(&(more << 13 | offset).to_be_bytes());
        fix_length(&mut fragment);
        fragment
    };
    pieces.iter().enumerate().map(cut).collect()
}
