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
mod tests {
    use super::*;

    fn v4(protocol: Protocol, dont_fragment: bool, payload: &[u8]) -> alloc::vec::Vec<u8> {
        let mut bytes = alloc::vec![0; 20];
        let ip = ipv4::Repr {
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            protocol,
            payload_len: payload.len(),
            traffic_class: 0,
            identification: 1,
            dont_fragment,
            ttl: 64,
        };
        ip.emit(&mut bytes).unwrap();
        bytes.extend(payload);
        bytes
    }

    fn v6(next_header: Protocol, payload: &[u8]) -> alloc::vec::Vec<u8> {
        let mut bytes = alloc::vec![0; 40];
        let ip = ipv6::Repr {
            source: [1; 16].into(),
            destination: [2; 16].into(),
            next_header,
            payload_len: payload.len(),
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
        };
        ip.emit(&mut bytes).unwrap();
        bytes.extend(payload);
        bytes
    }

    #[test]
    fn errors_go_back_and_quote_the_packet() {
        let mut out = [0xff; MAX_ERROR_LEN];
        let packet = v4(Protocol::UDP, true, &[7; 2000]);
        let len = emit_error(&packet, Reason::TooBig(1400), &mut out).unwrap();
        assert_eq!(len, 576);
        let ip = ipv4::Packet::new_checked(&out[..len]).unwrap();
        assert_eq!((ip.source(), ip.destination()), ([10, 0, 0, 2].into(), [10, 0, 0, 1].into()));
        assert!(Sum::ZERO.bytes(&out[..20]).is_valid() && Sum::ZERO.bytes(ip.payload()).is_valid());
        assert_eq!(ip.payload()[..2], [3, 4]);
        assert_eq!(ip.payload()[4..8], [0, 0, 5, 120]);
        assert_eq!(ip.payload()[8..], packet[..548]);

        let packet = v6(Protocol::TCP, &[7; 60]);
        let len = emit_error(&packet, Reason::AddressUnreachable, &mut out).unwrap();
        assert_eq!(len, 40 + 8 + 100);
        let ip = ipv6::Packet::new_checked(&out[..len]).unwrap();
        assert_eq!((ip.source(), ip.destination()), ([2; 16].into(), [1; 16].into()));
        let pseudo = Sum::pseudo_v6(ip.source(), ip.destination(), Protocol::ICMPV6, 108);
        assert!(pseudo.bytes(ip.payload()).is_valid());
        assert_eq!(ip.payload()[..8], [1, 3, ip.payload()[2], ip.payload()[3], 0, 0, 0, 0]);
        assert_eq!(ip.payload()[8..], packet);
    }

    #[test]
    fn there_is_none_for_what_must_not_have_one() {
        let mut out = [0; MAX_ERROR_LEN];
        let mut none = |packet: &[u8], reason| {
            assert!(emit_error(packet, reason, &mut out).is_none(), "{packet:?} {reason:?}");
        };
        let lost = Reason::AddressUnreachable;
        none(&[], lost);
        none(&[0x45; 19], lost);
        none(&v4(Protocol::ICMP, true, &[3, 1, 0, 0, 0, 0, 0, 0]), lost);
        none(&v4(Protocol::UDP, false, &[0; 8]), Reason::TooBig(1400));
        none(&v6(Protocol::ICMPV6, &[1, 3, 0, 0, 0, 0, 0, 0]), lost);
        let (mut later, mut group, mut nobody) = (
            v4(Protocol::UDP, false, &[0; 8]),
            v6(Protocol::UDP, &[0; 8]),
            v6(Protocol::UDP, &[0; 8]),
        );
        later[7] = 1;
        group[24] = 0xff;
        nobody[8..24].fill(0);
        [later, group, nobody].iter().for_each(|packet| none(packet, lost));
        // A ping has one.
        assert!(
            emit_error(&v4(Protocol::ICMP, true, &[8, 0, 0, 0, 0, 0, 0, 0]), lost, &mut out)
                .is_some()
        );
        assert!(
            emit_error(&v6(Protocol::ICMPV6, &[128, 0, 0, 0, 0, 0, 0, 0]), lost, &mut out)
                .is_some()
        );
    }
}
