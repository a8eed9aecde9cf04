//! ICMP and ICMPv6 errors (RFC 792, RFC 1191, RFC 4443), each as a whole IP packet.

use crate::checksum::Sum;
use crate::ip::Protocol;
use crate::{checksum, ipv4, ipv6, read};

/// Bytes of the ICMP header.
const HEADER_LEN: usize = 8;

/// Most bytes of an error for IPv4 (RFC 1812 §4.3.2.3), and for IPv6 (RFC 4443 §2.4 c).
const MAX_V4_LEN: usize = 576;
const MAX_V6_LEN: usize = 1280;

/// Bytes that [`emit_error`] writes at most.
pub const MAX_ERROR_LEN: usize = MAX_V6_LEN;

/// What nodes send by themselves.
const HOP_LIMIT: u8 = 64;

/// Why a packet cannot be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The link-layer address of its destination, or of the next hop, cannot be resolved.
    AddressUnreachable,
    /// It is longer than this MTU in bytes and must not be fragmented.
    TooBig(u32),
}

/// Writes the ICMP error for `packet` to the start of `bytes`; returns its length in bytes. Its source address is the
/// destination of the packet, so the caller needs no address of its own.
///
/// `None` where an ICMP error is not allowed: for an ICMP error, a fragment that is not the first, an address that is
/// not unicast, a packet that may be fragmented (RFC 1122 §3.2.2, RFC 4443 §2.4 e), and for anything but an IP packet.
pub fn emit_error(packet: &[u8], reason: Reason, bytes: &mut [u8; MAX_ERROR_LEN]) -> Option<usize> {
    match packet.first()? >> 4 {
        4 => emit_v4(packet, reason, bytes),
        6 => emit_v6(packet, reason, bytes),
        _ => None,
    }
}

fn emit_v4(packet: &[u8], reason: Reason, bytes: &mut [u8; MAX_ERROR_LEN]) -> Option<usize> {
    let header = ipv4::Packet::new_checked(packet).ok()?;
    let (to, from) = (header.source(), header.destination());
    let nobodys = to.is_unspecified() || to.is_multicast() || to.is_broadcast();
    let first = header.payload().first();
    let is_error = header.protocol() == Protocol::ICMP
        && first.is_none_or(|kind| matches!(kind, 3 | 4 | 5 | 11 | 12));
    let later_fragment = header.fragment_offset() > 0;
    if nobodys || from.is_multicast() || from.is_broadcast() || is_error || later_fragment {
        return None;
    }
    let (code, rest) = match reason {
        Reason::AddressUnreachable => (1, 0),
        Reason::TooBig(_) if !header.dont_fragment() => return None,
        Reason::TooBig(mtu) => (4, mtu.min(u16::MAX.into())),
    };
    let quote = &packet[..packet.len().min(MAX_V4_LEN - ipv4::HEADER_LEN - HEADER_LEN)];
    let ip = ipv4::Repr {
        source: from,
        destination: to,
        protocol: Protocol::ICMP,
        payload_len: HEADER_LEN + quote.len(),
        traffic_class: 0xc0,
        identification: 0,
        dont_fragment: false,
        ttl: HOP_LIMIT,
    };
    let len = ipv4::HEADER_LEN + ip.payload_len;
    ip.emit(bytes).ok()?;
    let message = &mut bytes[ipv4::HEADER_LEN..len];
    fill(message, 3, code, rest, quote);
    let sum = checksum::of(message);
    read::put(message, 2, &sum.to_be_bytes());
    Some(len)
}

fn emit_v6(packet: &[u8], reason: Reason, bytes: &mut [u8; MAX_ERROR_LEN]) -> Option<usize> {
    let header = ipv6::Packet::new_checked(packet).ok()?;
    let (to, from) = (header.source(), header.destination());
    let upper = header.upper_layer().ok()?;
    let first = packet.get(upper.offset);
    let is_error = upper.protocol == Protocol::ICMPV6 && first.is_none_or(|kind| kind & 0x80 == 0);
    let nobodys = to.is_unspecified() || to.is_multicast();
    if nobodys || from.is_multicast() || is_error || upper.is_later_fragment() {
        return None;
    }
    let (kind, code, rest) = match reason {
        Reason::AddressUnreachable => (1, 3, 0),
        Reason::TooBig(mtu) => (2, 0, mtu),
    };
    let quote = &packet[..packet.len().min(MAX_V6_LEN - ipv6::HEADER_LEN - HEADER_LEN)];
    let ip = ipv6::Repr {
        source: from,
        destination: to,
        next_header: Protocol::ICMPV6,
        payload_len: HEADER_LEN + quote.len(),
        traffic_class: 0,
        flow_label: 0,
        hop_limit: HOP_LIMIT,
    };
    let len = ipv6::HEADER_LEN + ip.payload_len;
    ip.emit(bytes).ok()?;
    let message = &mut bytes[ipv6::HEADER_LEN..len];
    fill(message, kind, code, rest, quote);
    let pseudo = Sum::pseudo_v6(from, to, Protocol::ICMPV6, ip.payload_len as u32);
    let sum = pseudo.bytes(message).checksum();
    read::put(message, 2, &sum.to_be_bytes());
    Some(len)
}

fn fill(message: &mut [u8], kind: u8, code: u8, rest: u32, quote: &[u8]) {
    read::put(message, 0, &[kind, code, 0, 0]);
    read::put(message, 4, &rest.to_be_bytes());
    read::put(message, HEADER_LEN, quote);
}

#[cfg(test)]
mod tests;
