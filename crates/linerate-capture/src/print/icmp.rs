//! ICMP and ICMPv6 as tcpdump prints them.

use std::fmt::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr};

/// A message of `length` bytes on the wire, of which `message` was captured.
pub(super) fn v4(line: &mut String, message: &[u8], length: usize) -> fmt::Result {
    let Some(header) = message.first_chunk::<8>() else {
        return line.write_str(" [|icmp]");
    };
    let (kind, code) = (header[0], header[1]);
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let quoted = Quoted::new(&message[8..]);
    if matches!(kind, 3 | 5 | 11) && quoted.is_none() {
        return line.write_str(" [|icmp]");
    }
    line.write_str("ICMP ")?;
    match (kind, quoted) {
        (0, _) => write!(line, "echo reply, id {}, seq {}", half(4), half(6))?,
        (8, _) => write!(line, "echo request, id {}, seq {}", half(4), half(6))?,
        (3, Some(quoted)) => unreachable(line, code, half(6), quoted)?,
        (4, _) => line.write_str("source quench")?,
        (5, Some(quoted)) => {
            let gateway = Ipv4Addr::new(header[4], header[5], header[6], header[7]);
            let (name, to) = match code {
                0 => ("redirect", "net "),
                1 => ("redirect", "host "),
                2 => ("redirect-tos", "net "),
                3 => ("redirect-tos", "host "),
                _ => ("redirect", ""),
            };
            line.write_str(name)?;
            if code > 3 {
                write!(line, "-#{code}")?;
            }
            write!(line, " {} to {to}{gateway}", quoted.destination)?;
        }
        (10, _) => line.write_str("router solicitation")?,
        (11, _) => match code {
            0 => line.write_str("time exceeded in-transit")?,
            1 => line.write_str("ip reassembly time exceeded")?,
            _ => write!(line, "time exceeded-#{code}")?,
        },
        (17, _) => line.write_str("address mask request")?,
        _ => write!(line, "type-#{kind}")?,
    }
    write!(line, ", length {length}")
}

/// The packet that an ICMP error quotes.
struct Quoted<'a> {
    destination: Ipv4Addr,
    protocol: u8,
    /// After the IP header.
    rest: &'a [u8],
}

impl<'a> Quoted<'a> {
    fn new(packet: &'a [u8]) -> Option<Self> {
        let header = packet.first_chunk::<20>()?;
        let destination = Ipv4Addr::new(header[16], header[17], header[18], header[19]);
        let rest = packet.get(usize::from(header[0] & 0x0f) * 4..).unwrap_or(&[]);
        Some(Self { destination, protocol: header[9], rest })
    }
}

fn unreachable(line: &mut String, code: u8, mtu: u16, quoted: Quoted<'_>) -> fmt::Result {
    let Quoted { destination, protocol, rest } = quoted;
    let (what, why) = match code {
        0 => ("net ", ""),
        1 => ("host ", ""),
        2 => return write!(line, "{destination} protocol {protocol} unreachable"),
        3 => {
            let Some(&[_, _, high, low]) = rest.first_chunk::<4>() else {
                return write!(line, "{destination} port unreachable");
            };
            let port = u16::from_be_bytes([high, low]);
            return match protocol {
                6 => write!(line, "{destination} tcp port {port} unreachable"),
                17 => write!(line, "{destination} udp port {port} unreachable"),
                _ => write!(line, "{destination} protocol {protocol} port {port} unreachable"),
            };
        }
        4 if mtu != 0 => {
            return write!(line, "{destination} unreachable - need to frag (mtu {mtu})");
        }
        4 => ("", " - need to frag"),
        5 => ("", " - source route failed"),
        6 => ("net ", " - unknown"),
        7 => ("host ", " - unknown"),
        8 => ("", " - source host isolated"),
        9 => ("net ", " - admin prohibited"),
        10 => ("host ", " - admin prohibited"),
        11 => ("net ", " - tos prohibited"),
        12 => ("host ", " - tos prohibited"),
        13 => ("host ", " - admin prohibited filter"),
        14 => ("host ", " - host precedence violation"),
        15 => ("host ", " - precedence cutoff"),
        _ => return write!(line, "{destination} unreachable - #{code}"),
    };
    write!(line, "{what}{destination} unreachable{why}")
}

/// As [`v4`].
pub(super) fn v6(line: &mut String, message: &[u8], length: usize) -> fmt::Result {
    let Some(header) = message.first_chunk::<8>() else {
        return line.write_str(" [|icmp6]");
    };
    line.write_str("ICMP6, ")?;
    let (kind, code) = (header[0], header[1]);
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let word = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let address = |at: usize| {
        let bytes = message.get(at..)?.first_chunk::<16>()?;
        Some(Ipv6Addr::from(*bytes))
    };
    let cut = |line: &mut String| line.write_str(" [|icmp6]");
    match kind {
        // An error quotes an IPv6 packet from byte 8 on: its source is at 16, its destination at 32.
        1 => {
            line.write_str("destination unreachable, ")?;
            let (name, between) = match code {
                0 => ("unreachable route", " "),
                1 => (" unreachable prohibited", " "),
                2 => ("beyond scope", " "),
                3 => ("unreachable address", " "),
                4 => ("unreachable port", ", "),
                _ => return write!(line, "unknown unreach code ({code}), length {length}"),
            };
            line.write_str(name)?;
            let (Some(source), Some(destination)) = (address(16), address(32)) else {
                return cut(line);
            };
            match code {
                2 => write!(line, "{between}{destination}, source address {source}")?,
                4 => {
                    let port = message.get(50..52).map(|p| u16::from_be_bytes([p[0], p[1]]));
                    match (message[14], port) {
                        (6, Some(port)) => write!(line, "{between}{destination} tcp port {port}")?,
                        (17, Some(port)) => write!(line, "{between}{destination} udp port {port}")?,
                        _ => return cut(line),
                    }
                }
                _ => write!(line, "{between}{destination}")?,
            }
        }
        2 => write!(line, "packet too big, mtu {word}")?,
        3 => {
            line.write_str("time exceeded in-transit")?;
            match (code, address(32)) {
                (0, Some(destination)) => write!(line, " for {destination}")?,
                (0, None) => return cut(line),
                (1, _) => line.write_str(" (reassembly)")?,
                _ => write!(line, ", unknown code ({code})")?,
            }
        }
        4 => {
            line.write_str("parameter problem, ")?;
            match code {
                0 => write!(line, "erroneous - octet {word}")?,
                1 => write!(line, "next header - octet {word}")?,
                2 => write!(line, "option - octet {word}")?,
                _ => write!(line, "code-#{code}")?,
            }
        }
        128 => write!(line, "echo request, id {}, seq {}", half(4), half(6))?,
        129 => write!(line, "echo reply, id {}, seq {}", half(4), half(6))?,
        133 => line.write_str("router solicitation")?,
        134 => line.write_str("router advertisement")?,
        135 => {
            line.write_str("neighbor solicitation")?;
            let Some(target) = address(8) else { return cut(line) };
            write!(line, ", who has {target}")?;
        }
        136 => {
            line.write_str("neighbor advertisement")?;
            let Some(target) = address(8) else { return cut(line) };
            write!(line, ", tgt is {target}")?;
        }
        143 => write!(line, "multicast listener report v2, {} group record(s)", half(6))?,
        _ => write!(line, "type-#{kind}")?,
    }
    write!(line, ", length {length}")
}
