//! IPv4 and IPv6 as tcpdump prints them.

use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_wire::ip::Protocol;

use super::context::PacketContext;
use super::{icmp, transport};

/// A packet whose version only its first byte tells.
pub(super) fn either(line: &mut String, packet: &[u8], length: usize) -> fmt::Result {
    match packet.first() {
        Some(first) if first >> 4 == 6 => v6(line, packet, length),
        _ => v4(line, packet, length),
    }
}

/// `packet` is what was captured, `length` what was on the wire, from the IP header on.
pub(super) fn v4(line: &mut String, packet: &[u8], length: usize) -> fmt::Result {
    match packet.first().map(|first| first >> 4) {
        Some(4) => line.write_str("IP ")?,
        None => return line.write_str(" [|ip]"),
        Some(6) => return line.write_str("IP6, wrong link-layer encapsulation (invalid)"),
        Some(other) => return write!(line, "IP{other} (invalid)"),
    }
    let Some(header) = packet.first_chunk::<20>() else {
        return line.write_str(" [|ip]");
    };
    let header_len = usize::from(header[0] & 0x0f) * 4;
    if header_len < 20 {
        return write!(line, "bad-hlen {header_len}");
    }
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let total = usize::from(half(2));
    if total > length {
        write!(line, "truncated-ip - {} bytes missing! ", total - length)?;
    }
    if total < header_len {
        return write!(line, "bad-len {total}");
    }
    let address = |at: usize| Ipv4Addr::from(std::array::from_fn(|n| header[at + n])).into();
    let (source, destination): (IpAddr, IpAddr) = (address(12), address(16));
    let (offset, more) = (half(6) & 0x1fff, half(6) & 0x2000 != 0);
    let protocol = Protocol(header[9]);
    if offset != 0 {
        return write!(line, "{source} > {destination}: ip-proto-{}", protocol.0);
    }
    let body = packet.get(header_len..packet.len().min(total)).unwrap_or(&[]);
    let context = PacketContext { source, destination, named: false, fragment: more };
    upper(line, protocol, body, total - header_len, context)
}

/// As [`v4`].
pub(super) fn v6(line: &mut String, packet: &[u8], length: usize) -> fmt::Result {
    const HEADER: usize = 40;
    match packet.first().map(|first| first >> 4) {
        Some(6) | None => {}
        Some(4) => return line.write_str("IP, wrong link-layer encapsulation (invalid)"),
        Some(other) => return write!(line, "IP{other}, wrong link-layer encapsulation (invalid)"),
    }
    let Some(header) = packet.first_chunk::<HEADER>() else {
        return line.write_str(" [|ip6]");
    };
    line.write_str("IP6 ")?;
    let total = HEADER + usize::from(u16::from_be_bytes([header[4], header[5]]));
    if total > length {
        write!(line, "truncated-ip6 - {} bytes missing!", total - length)?;
    }
    let address = |at: usize| Ipv6Addr::from(std::array::from_fn(|n| header[at + n])).into();
    let (source, destination): (IpAddr, IpAddr) = (address(8), address(24));
    let packet = &packet[..packet.len().min(total)];
    let mut context = PacketContext { source, destination, named: false, fragment: false };
    let (mut protocol, mut at) = (Protocol(header[6]), HEADER);
    if !matches!(protocol, Protocol::TCP | Protocol::UDP) {
        write!(line, "{source} > {destination}: ")?;
        context.named = true;
    }
    loop {
        let rest = packet.get(at..).unwrap_or(&[]);
        let left = total.saturating_sub(at);
        let (name, short) = match protocol {
            Protocol::HOP_BY_HOP => ("HBH ", " [|hbhopt]"),
            Protocol::DESTINATION_OPTIONS => ("DSTOPT ", " [|dstopt]"),
            Protocol::FRAGMENT => ("frag ", " [|frag6]"),
            _ => return upper(line, protocol, rest, left, context),
        };
        let Some(extension) = rest.first_chunk::<8>() else {
            return line.write_str(short);
        };
        line.write_str(name)?;
        if protocol == Protocol::FRAGMENT {
            let word = u16::from_be_bytes([extension[2], extension[3]]);
            write!(line, "({}|{})", word & 0xfff8, left - 8)?;
            if word & 0xfff8 != 0 {
                return Ok(());
            }
            line.write_str(" ")?;
            context.fragment = true;
            at += 8;
        } else {
            at += (usize::from(extension[1]) + 1) * 8;
            if at > packet.len() {
                return line.write_str(short);
            }
        }
        protocol = Protocol(extension[0]);
    }
}

/// What an IP packet carries; `length` bytes on the wire, of which `body` was captured.
fn upper(
    line: &mut String,
    protocol: Protocol,
    body: &[u8],
    length: usize,
    context: PacketContext,
) -> fmt::Result {
    let v6 = context.source.is_ipv6();
    match protocol {
        Protocol::TCP => return transport::tcp(line, body, length, context),
        Protocol::UDP => return transport::udp(line, body, length, context),
        _ => {}
    }
    if !context.named {
        write!(line, "{} > {}: ", context.source, context.destination)?;
    }
    match protocol {
        Protocol::ICMP if !v6 => icmp::v4(line, body, length),
        Protocol::ICMPV6 if v6 => icmp::v6(line, body, length),
        Protocol::IGMP if !v6 => line.write_str("igmp"),
        Protocol::NO_NEXT_HEADER if v6 => line.write_str("no next header"),
        Protocol::ESP if body.len() <= 8 => line.write_str(" [|esp]"),
        Protocol::ESP => {
            let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|n| body[at + n]));
            write!(line, "ESP(spi={:#010x},seq={:#x}), length {length}", word(0), word(4))
        }
        other => write!(line, " ip-proto-{} {length}", other.0),
    }
}
