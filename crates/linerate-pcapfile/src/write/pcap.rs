//! Classic pcap in little-endian byte order.

use linerate_wire::frame::Frame;

use super::pcapng::append_data;
use crate::format::pcap::RECORD_HEADER_LEN;

/// The file header; `network` is the link type and what stands above it.
pub(super) fn file_header(out: &mut Vec<u8>, nanoseconds: bool, snaplen: u32, network: u32) {
    let magic: u32 = if nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
    out.extend_from_slice(&magic.to_le_bytes());
    out.extend_from_slice(&2_u16.to_le_bytes());
    out.extend_from_slice(&4_u16.to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&snaplen.to_le_bytes());
    out.extend_from_slice(&network.to_le_bytes());
}

/// One packet. Its seconds wrap in 2106, as the format's do.
#[inline]
pub(super) fn packet(out: &mut Vec<u8>, snaplen: u32, nanoseconds: bool, frame: &Frame<'_>) {
    let captured = frame.len().min(snaplen as usize);
    let stamp = frame.timestamp.unwrap_or_default();
    let fraction = stamp.subsecond_nanos() / if nanoseconds { 1 } else { 1000 };
    let mut header = [0; RECORD_HEADER_LEN];
    header[0..4].copy_from_slice(&(stamp.seconds() as u32).to_le_bytes());
    header[4..8].copy_from_slice(&fraction.to_le_bytes());
    header[8..12].copy_from_slice(&(captured as u32).to_le_bytes());
    header[12..16].copy_from_slice(&frame.wire_len.to_le_bytes());
    out.extend_from_slice(&header);
    append_data(out, frame, captured);
}
