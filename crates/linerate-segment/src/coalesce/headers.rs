//! What the headers of a frame say about joining it: which flow it is of, whether it can be joined to
//! anything, and which of its bytes may differ from those of its neighbours.

use core::ops::Range;

use linerate_wire::checksum::Engine;
use linerate_wire::ip::Protocol;
use linerate_wire::{gre, ipv4, ipv6, layers, tcp, udp};

use super::FlushReason;
use crate::Error;
use crate::segment::layout::{self, Ip, Layout, Length, Tunnel, Version};
use crate::segment::{LinkType, MAX_HEADER_LEN, Options};

/// Flags that some segments of a flow have and others not.
const VARYING: u16 = tcp::Flags::FIN.0 | tcp::Flags::PSH.0;

/// Offset of the low byte of the TCP flags in the header.
const FLAGS_AT: usize = 13;

/// A frame that can be joined, as far as it can be said without knowing its neighbours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// Bytes of payload, at least one.
    pub(super) len: u16,
    /// The folded sum of the payload.
    pub(super) sum: u16,
    /// TCP's flags; none for UDP.
    pub(super) flags: tcp::Flags,
}

impl Segment {
    /// Whether nothing can follow, regardless of what precedes.
    pub(super) fn is_last(&self) -> bool {
        self.flags.0 & (tcp::Flags::FIN.0 | tcp::Flags::PSH.0) != 0
    }
}

/// Finds the headers. Where that fails and the frame could be of a flow whose packets are joined, the
/// outermost addresses are the error.
pub(super) fn parse<'f>(frame: &'f [u8], options: &Options) -> Result<Layout, Option<&'f [u8]>> {
    let found = layout::outermost(frame, options.link)
        .and_then(|outer| layout::transport(frame, outer, options));
    // Lengths of headers between Ethernet and IP would have to change.
    if let Ok(layout) = &found
        && (layout.outer.behind.is_some() || layout.innermost().behind.is_some())
    {
        return Err(None);
    }
    found.map_err(|error| match error {
        // Nothing that is held can be of the same flow.
        Error::NotIp(_) | Error::Protocol(_) | Error::TooManyTags => None,
        _ => outermost_addresses(frame, options.link),
    })
}

fn outermost_addresses(frame: &[u8], link: LinkType) -> Option<&[u8]> {
    let at = match link {
        LinkType::Ethernet => layers::parse(frame).ok()?.network_offset,
        LinkType::Ip => 0,
    };
    let version = match frame.get(at)? >> 4 {
        4 => Version::V4,
        6 => Version::V6,
        _ => return None,
    };
    frame.get(addresses(version, at))
}

/// Range of source and destination.
pub(super) fn addresses(version: Version, at: usize) -> Range<usize> {
    match version {
        Version::V4 => at + 12..at + 20,
        Version::V6 => at + 8..at + 40,
    }
}

/// Range of the ports of TCP or UDP.
pub(super) fn ports(layout: &Layout) -> Range<usize> {
    let at = layout.innermost().upper;
    at..at + 4
}

/// Whether two packets are of one flow: the same link header, addresses, tunnel, protocol and ports.
pub(super) fn same_flow(a: &[u8], a_layout: &Layout, b: &[u8], b_layout: &Layout) -> bool {
    let (inner_a, inner_b) = (a_layout.innermost(), b_layout.innermost());
    inner_a.protocol == inner_b.protocol
        && a[ports(a_layout)] == b[ports(b_layout)]
        && a[..a_layout.outer.at] == b[..b_layout.outer.at]
        && same_addresses(a, &a_layout.outer, b, &b_layout.outer)
        && match (&a_layout.tunnel, &b_layout.tunnel) {
            (None, None) => true,
            (Some((_, inner_a)), Some((_, inner_b))) => {
                same_addresses(a, inner_a, b, inner_b)
                    && a[identity(a_layout)] == b[identity(b_layout)]
            }
            _ => false,
        }
}

fn same_addresses(a: &[u8], a_ip: &Ip, b: &[u8], b_ip: &Ip) -> bool {
    a[addresses(a_ip.version, a_ip.at)] == b[addresses(b_ip.version, b_ip.at)]
}

/// The bytes of a tunnel header that distinguish tunnels: all after the UDP header, or after GRE's checksum,
/// with the inner link header.
fn identity(layout: &Layout) -> Range<usize> {
    let Some((tunnel, inner)) = &layout.tunnel else { return 0..0 };
    let from = match tunnel {
        Tunnel::Udp { .. } => udp::HEADER_LEN,
        Tunnel::Gre { checksum: true } => gre::CHECKSUM_OFFSET + 4,
        Tunnel::Gre { checksum: false } => gre::HEADER_LEN,
        Tunnel::Ip => 0,
    };
    layout.outer.upper + from..inner.at
}

/// Whether the frame can be joined to its neighbours, as far as it alone can tell. All checksums have
/// been checked where the answer is yes.
pub(super) fn examine(
    frame: &[u8],
    layout: &Layout,
    engine: Engine,
) -> core::result::Result<Segment, FlushReason> {
    let inner = layout.innermost();
    let has_length = |ip: &Ip| ip.length == Length::InHeader;
    // Bytes after the packet would be lost, and a long header does not fit.
    if inner.end != frame.len()
        || layout.payload > MAX_HEADER_LEN
        || !has_length(inner)
        || !has_length(&layout.outer)
    {
        return Err(FlushReason::Protocol);
    }
    let payload = &frame[layout.payload..];
    if payload.is_empty() {
        return Err(FlushReason::NoPayload);
    }
    check_ip(frame, &layout.outer)?;
    if layout.tunnel.is_some() {
        check_ip(frame, inner)?;
    }
    let header = &frame[inner.upper..layout.payload];
    let flags = match inner.protocol {
        Protocol::TCP => {
            tcp::Segment::new_checked(header).map_err(|_| FlushReason::Protocol)?.flags()
        }
        _ => tcp::Flags::default(),
    };
    // Accurate ECN (RFC 9768) counts with CWR, and no virtio header says that all segments have it.
    let alone = [tcp::Flags::SYN, tcp::Flags::RST, tcp::Flags::URG, tcp::Flags::CWR];
    if alone.into_iter().any(|flag| flags.contains(flag)) {
        return Err(FlushReason::Flags);
    }
    // All headers from here on have an even length, so that sums can be added up.
    let sum = engine.sum(payload);
    let pseudo = inner.pseudo().map_err(|_| FlushReason::Protocol)?;
    let total = pseudo.word((inner.end - inner.upper) as u16).bytes(header).plus(sum);
    let written = match inner.protocol {
        Protocol::TCP => word(header, tcp::CHECKSUM_OFFSET) != 0xffff,
        _ => word(header, udp::CHECKSUM_OFFSET) != 0,
    };
    if !total.is_valid() || !written {
        return Err(FlushReason::Checksum);
    }
    if let Some((tunnel, _)) = &layout.tunnel {
        let outer = &layout.outer;
        let covered = || engine.sum(&frame[outer.upper..layout.payload]).plus(sum);
        let len = (outer.end - outer.upper) as u16;
        let right = match tunnel {
            Tunnel::Udp { checksum: true, .. } => {
                let pseudo = outer.pseudo().map_err(|_| FlushReason::Protocol)?;
                pseudo.word(len).plus(covered()).is_valid()
            }
            Tunnel::Gre { checksum: true } => {
                let written = word(frame, outer.upper + gre::CHECKSUM_OFFSET);
                written != 0xffff && covered().is_valid()
            }
            _ => true,
        };
        if !right {
            return Err(FlushReason::Checksum);
        }
    }
    Ok(Segment { len: payload.len() as u16, sum: sum.folded(), flags })
}

fn check_ip(frame: &[u8], ip: &Ip) -> core::result::Result<(), FlushReason> {
    if ip.version == Version::V6 {
        return Ok(());
    }
    let header = ipv4::Packet::new_checked(&frame[ip.at..ip.upper]);
    let header = header.map_err(|_| FlushReason::Protocol)?;
    // The parser refused fragments; what is left of the word but DF is the reserved flag.
    let reserved = word(frame, ip.at + 6) & 0x8000 != 0;
    if header.header_len() != ipv4::HEADER_LEN || reserved {
        return Err(FlushReason::Protocol);
    }
    if !header.verify_checksum() || header.checksum() == 0xffff {
        return Err(FlushReason::Checksum);
    }
    Ok(())
}

/// Writes over `mask`, as long as the headers, which bits all segments of a super-packet share.
pub(super) fn mask(layout: &Layout, mask: &mut [u8]) {
    mask.fill(0xff);
    let mut varies = |at: usize, len: usize| mask[at..at + len].fill(0);
    let ips = [Some(&layout.outer), layout.tunnel.as_ref().map(|(_, inner)| inner)];
    for ip in ips.into_iter().flatten() {
        match ip.version {
            // Total length and identification, checksum.
            Version::V4 => {
                varies(ip.at + 2, 4);
                varies(ip.at + 10, 2);
            }
            // Payload length.
            Version::V6 => varies(ip.at + 4, 2),
        }
    }
    match &layout.tunnel {
        Some((Tunnel::Udp { .. }, _)) => varies(layout.outer.upper + 4, 4),
        Some((Tunnel::Gre { checksum: true }, _)) => {
            varies(layout.outer.upper + gre::CHECKSUM_OFFSET, 2);
        }
        _ => {}
    }
    let at = layout.innermost().upper;
    if layout.innermost().protocol == Protocol::TCP {
        varies(at + 4, 4);
        varies(at + tcp::CHECKSUM_OFFSET, 2);
        mask[at + FLAGS_AT] = !(VARYING as u8);
    } else {
        varies(at + 4, 4);
    }
}

/// Whether the headers `a` and `b` differ where `mask` has ones. The three have one length, at least
/// that of an IPv4 and a UDP header.
pub(super) fn differ(a: &[u8], b: &[u8], mask: &[u8]) -> bool {
    const { assert!(ipv4::HEADER_LEN + udp::HEADER_LEN >= 8 && ipv6::HEADER_LEN >= 8) };
    let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
    let last = |bytes: &[u8]| bytes.last_chunk::<8>().map_or(0, word);
    let words = a.as_chunks().0.iter().zip(b.as_chunks().0).zip(mask.as_chunks().0);
    // The rest after the last whole word is compared together with the bytes before it.
    let mut difference = (last(a) ^ last(b)) & last(mask);
    for ((a, b), mask) in words {
        difference |= (word(a) ^ word(b)) & word(mask);
    }
    difference != 0
}

/// Whether the tunnel header has a checksum. A datagram may have none although its neighbours do.
pub(super) fn summed(layout: &Layout) -> bool {
    matches!(layout.tunnel, Some((Tunnel::Udp { checksum: true, .. }, _)))
}

/// The 16-bit number at `at`, which is inside.
pub(super) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
