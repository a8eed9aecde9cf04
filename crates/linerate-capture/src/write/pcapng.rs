//! pcapng in little-endian byte order, with nanosecond time stamps.

use linerate_ring::{Direction, Frame, Timestamp};

use super::PacketOptions;
use crate::read::Record;

pub(super) const ENHANCED_PACKET: u32 = 6;
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;

/// Bytes of an enhanced packet block before the packet.
const PACKET_HEADER: usize = 28;

/// More than any packet block has beside its packet and its comment: header, padding, flags, queue,
/// end of options, trailing length.
pub(super) const OVERHEAD: usize = PACKET_HEADER + 3 + 8 + 8 + 4 + 4;

/// What the section header says about where the file comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// `shb_hardware`: the processor.
    pub hardware: Option<String>,
    /// `shb_os`: kernel and release.
    pub os: Option<String>,
    /// `shb_userappl`: the program.
    pub application: Option<String>,
}

impl Section {
    /// This machine, with the application's name and version.
    pub fn here(application: &str) -> Self {
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let hardware = cpu
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
            .map(|(_, model)| model.trim().to_owned());
        let os = nix::sys::utsname::uname().ok().map(|name| {
            let (system, release) = (name.sysname(), name.release());
            format!("{} {}", system.to_string_lossy(), release.to_string_lossy())
        });
        Self { hardware, os, application: Some(application.to_owned()) }
    }
}

/// An interface as the file is to describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceDescription {
    /// `if_name`.
    pub name: Option<String>,
    /// `if_description`.
    pub description: Option<String>,
    /// `if_filter`: the capture filter's text.
    pub filter: Option<String>,
    /// Link type as in the LINKTYPE registry; 1 is Ethernet.
    pub linktype: u16,
    /// Longest record in bytes.
    pub snaplen: u32,
}

/// What an interface statistics block is to say, counted since the start of the capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceTotals {
    /// When the capture began.
    pub start: Timestamp,
    /// When these counts were taken.
    pub end: Timestamp,
    /// `isb_ifrecv`; `None` where nobody counted.
    pub received: Option<u64>,
    /// `isb_ifdrop`.
    pub interface_dropped: Option<u64>,
    /// `isb_filteraccept`.
    pub filter_accepted: Option<u64>,
    /// `isb_osdrop`.
    pub system_dropped: Option<u64>,
    /// `isb_usrdeliv`; the writer puts in what it wrote.
    pub delivered: Option<u64>,
    /// The counts by cause, as text.
    pub comment: Option<String>,
}

/// The section header block.
pub(crate) fn section(out: &mut Vec<u8>, section: &Section) {
    block(out, SECTION_HEADER, |out| {
        out.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
        out.extend_from_slice(&1_u16.to_le_bytes());
        out.extend_from_slice(&0_u16.to_le_bytes());
        // The section's length is not known before its end.
        out.extend_from_slice(&u64::MAX.to_le_bytes());
        let texts = [(2, &section.hardware), (3, &section.os), (4, &section.application)];
        for (code, text) in texts {
            if let Some(text) = text {
                option(out, code, text.as_bytes());
            }
        }
        option(out, 0, &[]);
    });
}

/// An interface description block.
pub(crate) fn interface(out: &mut Vec<u8>, interface: &InterfaceDescription) {
    block(out, INTERFACE_DESCRIPTION, |out| {
        out.extend_from_slice(&interface.linktype.to_le_bytes());
        out.extend_from_slice(&0_u16.to_le_bytes());
        out.extend_from_slice(&interface.snaplen.to_le_bytes());
        if let Some(name) = &interface.name {
            option(out, 2, name.as_bytes());
        }
        if let Some(description) = &interface.description {
            option(out, 3, description.as_bytes());
        }
        option(out, 9, &[9]);
        if let Some(filter) = &interface.filter {
            let mut value = vec![0];
            value.extend_from_slice(filter.as_bytes());
            option(out, 11, &value);
        }
        option(out, 0, &[]);
    });
}

/// An interface statistics block.
pub(super) fn statistics(out: &mut Vec<u8>, interface: u32, totals: &InterfaceTotals) {
    block(out, INTERFACE_STATISTICS, |out| {
        out.extend_from_slice(&interface.to_le_bytes());
        out.extend_from_slice(&high_low(totals.end));
        if let Some(comment) = &totals.comment {
            option(out, 1, comment.as_bytes());
        }
        option(out, 2, &high_low(totals.start));
        option(out, 3, &high_low(totals.end));
        let counts = [
            (4, totals.received),
            (5, totals.interface_dropped),
            (6, totals.filter_accepted),
            (7, totals.system_dropped),
            (8, totals.delivered),
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
    // What follows the data, but for comments: in one piece of a known size that is cut behind, as
    // copying pieces of any size costs a call each.
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
    let commented = record.comment.map_or(0, comment_len);
    if at + commented != 0 {
        // The end of options is four zeros.
        at += 4;
    }
    let length = PACKET_HEADER + captured + padding + at + commented + 4;
    let mut header = [0; PACKET_HEADER];
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

/// A time stamp as the format wants it: the upper 32 bits before the lower ones.
#[inline]
fn high_low(stamp: Timestamp) -> [u8; 8] {
    stamp.0.rotate_left(32).to_le_bytes()
}

fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    close(out, start);
}

/// Ends a block that starts at `start`: its length goes before and behind the body.
fn close(out: &mut Vec<u8>, start: usize) {
    let length = ((out.len() - start + 4) as u32).to_le_bytes();
    out[start + 4..start + 8].copy_from_slice(&length);
    out.extend_from_slice(&length);
}

/// An option; a value longer than the 16 bits of its length field is cut.
fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    out.extend_from_slice(&[0; 3][..value.len().wrapping_neg() & 3]);
}
