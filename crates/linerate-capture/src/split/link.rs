//! Where the packet starts behind the headers of the link types that captures have.

use linerate_segment::segment::LinkType;
use linerate_wire::layers;

/// LINKTYPE_ETHERNET.
pub(super) const ETHERNET: u16 = 1;

/// How much stands before what the segmenter reads, and what that is; `None` for a link type, or a
/// protocol, that is not known. The numbers are those of the LINKTYPE registry.
pub(super) fn packet(linktype: u16, frame: &[u8]) -> Option<(usize, LinkType)> {
    let ip = |at: usize| matches!(frame.get(at)? >> 4, 4 | 6).then_some((at, LinkType::Ip));
    let word = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    match linktype {
        ETHERNET => Some((0, LinkType::Ethernet)),
        // RAW, IPV4, IPV6, and what BSD wrote for them.
        101 | 228 | 229 | 12 | 14 => ip(0),
        // NULL and LOOP: an address family in some byte order.
        0 | 108 => ip(4),
        // LINUX_SLL and LINUX_SLL2.
        113 if matches!(word(14)?, 0x0800 | 0x86dd) => ip(16),
        276 if matches!(word(0)?, 0x0800 | 0x86dd) => ip(20),
        _ => None,
    }
}

/// Length of the IP packet, where there is one that says so.
pub(super) fn ip_len(packet: &[u8], link: LinkType) -> Option<usize> {
    let at = match link {
        LinkType::Ethernet => layers::parse(packet).ok()?.network_offset,
        LinkType::Ip => 0,
    };
    let header = packet.get(at..)?;
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
    let header = match link {
        LinkType::Ethernet => layers::parse(packet).map_or(0, |layers| layers.network_offset),
        LinkType::Ip => 0,
    };
    wire_len.saturating_sub(header)
}
