//! TCP and UDP as tcpdump prints them with `-q`, and the flags of TCP as it prints them without.

use std::fmt::{self, Write};
use std::net::IpAddr;

use super::context::PacketContext;

/// A segment of `length` bytes on the wire, of which `segment` was captured.
pub(super) fn tcp(
    line: &mut String,
    segment: &[u8],
    length: usize,
    context: PacketContext,
) -> fmt::Result {
    if segment.len() < 4 {
        let PacketContext { source, destination, .. } = context;
        return write!(line, "{source} > {destination}: [|tcp]");
    }
    ports(line, segment, context)?;
    let Some(fixed) = segment.first_chunk::<20>() else {
        return line.write_str(" [|tcp]");
    };
    let header = usize::from(fixed[12] >> 4) * 4;
    if header < 20 {
        let rest = length.wrapping_sub(header) as u32;
        return write!(line, " tcp {rest} [bad hdr length {header} - too short, < 20]");
    }
    write!(line, "tcp {}", length.wrapping_sub(header) as u32)?;
    if header > length {
        return write!(line, " [bad hdr length {header} - too long, > {length}]");
    }
    let flags = fixed[13];
    line.push_str(" [");
    line.extend((0..8).filter(|bit| flags >> bit & 1 == 1).map(|bit| char::from(FLAGS[bit])));
    line.push_str(if flags == 0 { "none]" } else { "]" });
    Ok(())
}

/// Letters of the flags, from the lowest bit on: FIN, SYN, RST, PSH, ACK, URG, ECE, CWR.
const FLAGS: [u8; 8] = *b"FSRP.UEW";

/// A datagram of `length` bytes on the wire, of which `datagram` was captured.
pub(super) fn udp(
    line: &mut String,
    datagram: &[u8],
    length: usize,
    context: PacketContext,
) -> fmt::Result {
    if datagram.len() < 4 {
        if !context.named {
            write!(line, "{} > {}: ", context.source, context.destination)?;
        }
        return line.write_str(" [|udp]");
    }
    ports(line, datagram, context)?;
    let Some(&[_, _, _, _, high, low, _, _]) = datagram.first_chunk::<8>() else {
        return line.write_str(" [|udp]");
    };
    let claimed = usize::from(u16::from_be_bytes([high, low]));
    if claimed < 8 {
        return write!(line, "truncated-udplength {claimed}");
    }
    if claimed > length && !context.fragment {
        return write!(line, "UDP, bad length {} > {}", claimed - 8, length.saturating_sub(8));
    }
    write!(line, "UDP, length {}", claimed - 8)
}

/// `source.port > destination.port: `, or the ports alone where the addresses are there already.
fn ports(line: &mut String, header: &[u8], context: PacketContext) -> fmt::Result {
    let source = u16::from_be_bytes([header[0], header[1]]);
    let destination = u16::from_be_bytes([header[2], header[3]]);
    if context.named {
        return write!(line, "{source} > {destination}: ");
    }
    end(line, context.source, source)?;
    line.write_str(" > ")?;
    end(line, context.destination, destination)?;
    line.write_str(": ")
}

fn end(line: &mut String, address: IpAddr, port: u16) -> fmt::Result {
    write!(line, "{address}.{port}")
}
