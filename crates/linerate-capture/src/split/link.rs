//! Where the packet starts behind the headers of the link types that captures have.

use linerate_segment::segment::LinkType;
use linerate_wire::ethernet::EtherType;
use linerate_wire::layers;

/// LINKTYPE_ETHERNET.
pub(super) const ETHERNET: u16 = 1;

/// How much stands before what the segmenter reads, and what that is; `None` for a link type, or a
/// protocol, that is not known. The numbers are those of the LINKTYPE registry.
pub(super) fn packet(linktype: u16, frame: &[u8]) -> Option<(usize, LinkType)> {
    if linktype == ETHERNET {
        return Some((0, LinkType::Ethernet));
    }
    let (ether_type, offset) = layers::link_payload(frame, linktype)?.ok()?;
    matches!(ether_type, EtherType::IPV4 | EtherType::IPV6).then_some((offset, LinkType::Ip))
}

/// Where the network layer starts.
fn network(packet: &[u8], link: LinkType) -> Option<usize> {
    if link == LinkType::Ip {
        return Some(0);
    }
    let layers = layers::parse(packet).ok()?;
    let mut at = (layers.ether_type, layers.network_offset);
    while let Some(next) = layers::next_header(packet, at.0, at.1) {
        at = next;
    }
    Some(at.1)
}

/// Length of the IP packet, where there is one that says so.
pub(super) fn ip_len(packet: &[u8], link: LinkType) -> Option<usize> {
    let header = packet.get(network(packet, link)?..)?;
    let word =
        |at: usize| Some(usize::from(u16::from_be_bytes([*header.get(at)?, *header.get(at + 1)?])));
    // BIG TCP, and senders that leave the length to the card, have 0 there.
    let claimed = match header.first()? >> 4 {
        4 => word(2)?,
        6 => word(4).filter(|len| *len > 0)? + 40,
        _ => return None,
    };
    (claimed > 0).then_some(claimed)
}

/// The same where the packet does not say: all that is behind the link header.
pub(super) fn rest(packet: &[u8], link: LinkType, wire_len: usize) -> usize {
    wire_len.saturating_sub(network(packet, link).unwrap_or(0))
}
