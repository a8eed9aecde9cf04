//! Finding record boundaries in encoded bytes.

use linerate_ring::Timestamp;

use super::pcap;
use crate::Format;

/// Where one record ends, when its packet arrived, and how long it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Offset behind the record.
    pub(super) end: usize,
    pub(super) timestamp: Timestamp,
    /// Bytes that it had on the wire.
    pub(super) wire_len: u32,
}

/// Goes over the whole records in `bytes`, which [`super::Encoder`] made: the walk trusts them.
pub(super) fn records(format: Format, bytes: &[u8]) -> impl Iterator<Item = Mark> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &bytes[at..];
        let (length, timestamp, wire_len) = match format {
            Format::Pcapng => {
                let stamp = u64::from(word(rest, 12)?) << 32 | u64::from(word(rest, 16)?);
                (word(rest, 4)? as usize, Timestamp(stamp), word(rest, 24)?)
            }
            Format::Pcap { nanoseconds } => {
                let unit = if nanoseconds { 1 } else { 1000 };
                let stamp =
                    u64::from(word(rest, 0)?) * 1_000_000_000 + u64::from(word(rest, 4)?) * unit;
                let length = word(rest, 8)? as usize + pcap::RECORD_HEADER;
                (length, Timestamp(stamp), word(rest, 12)?)
            }
        };
        at += length;
        (at <= bytes.len()).then_some(Mark { end: at, timestamp, wire_len })
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}
