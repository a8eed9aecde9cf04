//! Finding record boundaries in encoded bytes.

use linerate_ring::Timestamp;

use super::pcap;
use crate::Format;

/// Where one record ends, and when its packet arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Offset behind the record.
    pub(super) end: usize,
    pub(super) timestamp: Timestamp,
}

/// Goes over the whole records in `bytes`, which [`super::Encoder`] made: the walk trusts them.
pub(super) fn records(format: Format, bytes: &[u8]) -> impl Iterator<Item = Mark> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &bytes[at..];
        let (length, timestamp) = match format {
            Format::Pcapng => {
                let stamp = u64::from(word(rest, 12)?) << 32 | u64::from(word(rest, 16)?);
                (word(rest, 4)? as usize, Timestamp(stamp))
            }
            Format::Pcap { nanoseconds } => {
                let unit = if nanoseconds { 1 } else { 1000 };
                let stamp =
                    u64::from(word(rest, 0)?) * 1_000_000_000 + u64::from(word(rest, 4)?) * unit;
                (word(rest, 8)? as usize + pcap::RECORD_HEADER, Timestamp(stamp))
            }
        };
        at += length;
        (at <= bytes.len()).then_some(Mark { end: at, timestamp })
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}
