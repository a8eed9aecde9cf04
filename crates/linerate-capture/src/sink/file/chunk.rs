//! [`Chunk`]: encoded records on their way from a reader to the file.

use std::time::Instant;

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
    pub(super) frames: u64,
    /// The latest timestamp of the records.
    pub(super) last: Timestamp,
    /// The interfaces of the records, in their order.
    pub(super) runs: Vec<InterfaceRun>,
}

/// Consecutive records that count for one interface.
#[derive(Clone, Copy)]
pub(super) struct InterfaceRun {
    pub(super) interface: u32,
    pub(super) frames: u64,
}

impl Chunk {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::with_capacity(CAPACITY), ..Self::default() }
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.runs.clear();
        (self.frames, self.last) = (0, Timestamp(0));
    }
}
