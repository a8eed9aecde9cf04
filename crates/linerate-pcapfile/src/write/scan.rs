//! Finding record boundaries in encoded bytes.

use linerate_wire::frame::Timestamp;

use crate::Format;
use crate::format::pcap::RECORD_HEADER_LEN;

/// A record in encoded bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodedRecord {
    /// Offset of its end.
    pub end: usize,
    /// When its packet arrived.
    pub timestamp: Timestamp,
    /// Length of its packet on the wire, in bytes.
    pub wire_len: u32,
}

/// The whole records in `bytes`, which must come from [`Encoder::encode`](super::Encoder::encode):
/// nothing is checked.
pub fn records(format: Format, bytes: &[u8]) -> impl Iterator<Item = EncodedRecord> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &bytes[at..];
        let (length, timestamp, wire_len) = match format {
            Format::Pcapng => {
                let ticks = u64::from(word(rest, 12)?) << 32 | u64::from(word(rest, 16)?);
                (word(rest, 4)? as usize, Timestamp(ticks), word(rest, 24)?)
            }
            Format::Pcap { nanoseconds } => {
                let unit = if nanoseconds { 1 } else { 1000 };
                let ticks =
                    u64::from(word(rest, 0)?) * 1_000_000_000 + u64::from(word(rest, 4)?) * unit;
                let length = word(rest, 8)? as usize + RECORD_HEADER_LEN;
                (length, Timestamp(ticks), word(rest, 12)?)
            }
        };
        at += length;
        (at <= bytes.len()).then_some(EncodedRecord { end: at, timestamp, wire_len })
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}
