//! [`Chunk`]: encoded records on their way from a reader to the file.

use std::time::Instant;

use linerate_pcapfile::write::{EncodedRecord, records};
use linerate_pcapfile::{ByteRange, Format};
use linerate_ring::Timestamp;

/// Bytes in a buffer. Large enough that one system call writes some 2,500 small packets; small enough that
/// the few buffers which a fast writer has in use stay in a core's own cache, beside the ring.
pub(super) const CAPACITY: usize = 256 << 10;

/// Encoded records on their way to the file.
#[derive(Default)]
pub(super) struct Chunk {
    /// The number of the reader.
    pub(super) reader: usize,
    /// When the reader sent it.
    pub(super) sent: Option<Instant>,
    pub(super) bytes: Vec<u8>,
    /// The records, where they are copied from a file: the bytes do not say their byte order and unit of time.
    pub(super) copied: Vec<EncodedRecord>,
    pub(super) frames: u64,
    /// The latest timestamp of the records.
    pub(super) last: Timestamp,
    /// The runs of records, in their order.
    pub(super) runs: Vec<ReaderRun>,
}

/// Consecutive records of one reader, which count for one interface.
#[derive(Clone, Copy)]
pub(super) struct ReaderRun {
    pub(super) reader: usize,
    pub(super) interface: u32,
    pub(super) frames: u64,
    /// The range of their bytes in all bytes of the reader.
    pub(super) byte_range: ByteRange,
}

impl ReaderRun {
    /// Its length in bytes.
    pub(super) fn len(&self) -> usize {
        (self.byte_range.end - self.byte_range.begin) as usize
    }
}

impl Chunk {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::with_capacity(CAPACITY), ..Self::default() }
    }

    /// The records behind the first `from` bytes.
    pub(super) fn records(
        &self,
        format: Format,
        from: usize,
    ) -> impl Iterator<Item = EncodedRecord> + '_ {
        let before = self.copied.partition_point(|record| record.end <= from);
        let encoded = if self.copied.is_empty() { &self.bytes[from..] } else { &[] };
        let encoded = records(format, encoded);
        let encoded = encoded.map(move |one| EncodedRecord { end: from + one.end, ..one });
        self.copied[before..].iter().copied().chain(encoded)
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.copied.clear();
        self.runs.clear();
        (self.frames, self.last) = (0, Timestamp(0));
    }
}
