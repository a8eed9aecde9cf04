//! pcapng in little-endian byte order, with nanosecond timestamps.

use linerate_wire::frame::{Direction, Frame, Timestamp, TraceEvent};

use super::PacketOptions;
use crate::format::pcapng::{
    BYTE_ORDER_MAGIC, ENHANCED_PACKET, INTERFACE_DESCRIPTION, INTERFACE_STATISTICS,
    PACKET_HEADER_LEN, SECTION_HEADER,
};
use crate::{InterfaceDescription, InterfaceStatistics, Record, SectionHeader};

/// The most bytes that a packet block has beside its packet and its comment: header, padding, flags,
/// queue, trace, end of options, trailing length.
pub(super) const MAX_OVERHEAD: usize = PACKET_HEADER_LEN + 3 + 8 + 8 + MAX_TRACE + 4 + 4;

/// The most bytes of the options that say what happened to a packet: `epb_packetid`, `epb_verdict`.
const MAX_TRACE: usize = (4 + 8) + (4 + 12);
/// `Linux_eBPF_XDP`, a type of `epb_verdict`.
const VERDICT_XDP: u8 = 2;

/// The section header block.
pub(super) fn section_header(out: &mut Vec<u8>, section: &SectionHeader) {
    block(out, SECTION_HEADER, |out| {
        out.extend_from_slice(&BYTE_ORDER_MAGIC.to_le_bytes());
        out.extend_from_slice(&1_u16.to_le_bytes());
        out.extend_from_slice(&0_u16.to_le_bytes());
        // The section's length is not known before its end.
        out.extend_from_slice(&u64::MAX.to_le_bytes());
        options(out, [(2, &section.hardware), (3, &section.os), (4, &section.application)]);
        option(out, 0, &[]);
    });
}

/// An interface description block.
pub(super) fn interface_description(out: &mut Vec<u8>, interface: &InterfaceDescription) {
    block(out, INTERFACE_DESCRIPTION, |out| {
        out.extend_from_slice(&interface.linktype.to_le_bytes());
        out.extend_from_slice(&0_u16.to_le_bytes());
        out.extend_from_slice(&interface.snaplen.to_le_bytes());
        let texts = [(1, &interface.comment), (2, &interface.name), (3, &interface.description)];
        options(out, texts);
        // Timestamps count 10^-9 seconds.
        option(out, 9, &[9]);
        if let Some(filter) = &interface.filter {
            let mut value = vec![0];
            value.extend_from_slice(filter.as_bytes());
            option(out, 11, &value);
        }
        options(out, [(12, &interface.os)]);
        option(out, 0, &[]);
    });
}

/// An interface statistics block.
pub(super) fn interface_statistics(
    out: &mut Vec<u8>,
    interface: u32,
    statistics: &InterfaceStatistics,
) {
    block(out, INTERFACE_STATISTICS, |out| {
        out.extend_from_slice(&interface.to_le_bytes());
        out.extend_from_slice(&high_low(statistics.end.unwrap_or_default()));
        options(out, [(1, &statistics.comment)]);
        for (code, time) in [(2, statistics.start), (3, statistics.end)] {
            if let Some(time) = time {
                option(out, code, &high_low(time));
            }
        }
        let counts = [
            (4, statistics.received),
            (5, statistics.interface_dropped),
            (6, statistics.filter_accepted),
            (7, statistics.system_dropped),
            (8, statistics.delivered),
        ];
        for (code, count) in counts {
            if let Some(count) = count {
                option(out, code, &count.to_le_bytes());
            }
        }
        option(out, 0, &[]);
    });
}

/// An enhanced packet block.
#[inline(always)]
pub(super) fn packet(out: &mut Vec<u8>, snaplen: u32, options: PacketOptions, record: &Record<'_>) {
    let frame = &record.frame;
    let captured = frame.len().min(snaplen as usize);
    let padding = captured.wrapping_neg() & 3;
    // What follows the data, except comments. It is copied whole, with a size known at compile time, and
    // then cut: copying pieces of any size costs a call each.
    let mut behind = [0; 8 + 8 + 4 + 4];
    let mut at = 0;
    let direction = match frame.direction {
        Direction::Inbound if options.direction => 1_u32,
        Direction::Outbound if options.direction => 2,
        _ => 0,
    };
    if direction != 0 {
        behind[..8].copy_from_slice(&short_option(2, direction));
        at = 8;
    }
    if options.queue {
        behind[at..at + 8].copy_from_slice(&short_option(6, u32::from(frame.queue)));
        at += 8;
    }
    let commented =
        record.comment.map_or(0, comment_len) + frame.trace.as_ref().map_or(0, trace_len);
    if at + commented != 0 {
        // The end of options is four zeros.
        at += 4;
    }
    let length = PACKET_HEADER_LEN + captured + padding + at + commented + 4;
    let mut header = [0; PACKET_HEADER_LEN];
    header[0..4].copy_from_slice(&ENHANCED_PACKET.to_le_bytes());
    header[4..8].copy_from_slice(&(length as u32).to_le_bytes());
    header[8..12].copy_from_slice(&record.interface.to_le_bytes());
    header[12..20].copy_from_slice(&high_low(frame.timestamp.unwrap_or_default()));
    header[20..24].copy_from_slice(&(captured as u32).to_le_bytes());
    header[24..28].copy_from_slice(&frame.wire_len.to_le_bytes());
    let end = out.len() + length;
    out.extend_from_slice(&header);
    append_data(out, frame, captured);
    append_cut(out, &[0; 4], padding);
    if let Some(comment) = record.comment {
        option(out, 1, comment.as_bytes());
    }
    if let Some(event) = &frame.trace {
        trace(out, event);
    }
    behind[at..at + 4].copy_from_slice(&(length as u32).to_le_bytes());
    append_cut(out, &behind, at + 4);
    debug_assert_eq!(out.len(), end, "the block is as long as it says");
}

/// The first `len` bytes of `bytes`, by a copy whose length is known when this is compiled.
#[inline(always)]
fn append_cut<const N: usize>(out: &mut Vec<u8>, bytes: &[u8; N], len: usize) {
    let end = out.len() + len;
    out.extend_from_slice(bytes);
    out.truncate(end);
}

/// An option with a value of four bytes.
#[inline(always)]
fn short_option(code: u16, value: u32) -> [u8; 8] {
    (u64::from(code) | 4 << 16 | u64::from(value) << 32).to_le_bytes()
}

/// Bytes of a comment as an option.
#[cold]
fn comment_len(comment: &str) -> usize {
    4 + comment.len().min(usize::from(u16::MAX)).next_multiple_of(4)
}

/// Bytes of the options of [`trace`].
#[cold]
fn trace_len(event: &TraceEvent) -> usize {
    match event {
        TraceEvent::XdpEntry { .. } => 12,
        TraceEvent::XdpExit { .. } => MAX_TRACE,
        TraceEvent::Drop { .. } => 0,
    }
}

/// What happened to a packet: `epb_packetid`, which both records of a traced frame share, and `epb_verdict`. A
/// verdict is a byte for its type and 64 bits for what the program returned.
#[cold]
fn trace(out: &mut Vec<u8>, event: &TraceEvent) {
    if let TraceEvent::XdpEntry { packet } | TraceEvent::XdpExit { packet, .. } = event {
        option(out, 5, &packet.to_le_bytes());
    }
    if let TraceEvent::XdpExit { verdict, .. } = event {
        let mut value = [VERDICT_XDP; 9];
        value[1..].copy_from_slice(&u64::from(*verdict).to_le_bytes());
        option(out, 7, &value);
    }
}

/// The first `captured` bytes of a frame, over all its pieces.
#[inline(always)]
pub(super) fn append_data(out: &mut Vec<u8>, frame: &Frame<'_>, captured: usize) {
    let head = frame.head();
    if captured <= head.len() {
        out.extend_from_slice(&head[..captured]);
        return;
    }
    out.extend_from_slice(head);
    let mut left = captured - head.len();
    for piece in frame.tail() {
        let take = piece.len().min(left);
        out.extend_from_slice(&piece[..take]);
        left -= take;
    }
}

/// A timestamp as the format has it: the upper 32 bits before the lower ones.
#[inline]
fn high_low(time: Timestamp) -> [u8; 8] {
    time.0.rotate_left(32).to_le_bytes()
}

fn block(out: &mut Vec<u8>, block_type: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&block_type.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    close(out, start);
}

/// Ends a block that starts at `start`: writes its length before and behind the body.
fn close(out: &mut Vec<u8>, start: usize) {
    let length = ((out.len() - start + 4) as u32).to_le_bytes();
    out[start + 4..start + 8].copy_from_slice(&length);
    out.extend_from_slice(&length);
}

/// The options with a text that are there.
fn options<const N: usize>(out: &mut Vec<u8>, texts: [(u16, &Option<String>); N]) {
    for (code, text) in texts {
        if let Some(text) = text {
            option(out, code, text.as_bytes());
        }
    }
}

/// An option; a value longer than the 16 bits of its length field is cut.
fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    out.extend_from_slice(&[0; 3][..value.len().wrapping_neg() & 3]);
}
