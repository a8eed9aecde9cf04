//! [`Trace`]: recorded frames in memory.

use super::{FrameSource, RecordedFrame};
use crate::Error;

/// Recorded frames in memory, one after the other in a single allocation.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    bytes: Vec<u8>,
    records: Vec<Record>,
    next: usize,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    end: usize,
    linktype: u16,
    gap: u64,
    cut: bool,
}

impl Trace {
    /// Appends a frame.
    pub fn push(&mut self, recorded: RecordedFrame<'_>) {
        self.bytes.extend_from_slice(recorded.bytes);
        let RecordedFrame { linktype, gap, cut, .. } = recorded;
        self.records.push(Record { end: self.bytes.len(), linktype, gap, cut });
    }

    /// Reads all frames of another source.
    ///
    /// # Errors
    /// What that source fails with.
    pub fn preload<F: FrameSource>(frames: &mut F) -> Result<Self, F::Error> {
        let mut trace = Self::default();
        while let Some(recorded) = frames.next()? {
            trace.push(recorded);
        }
        Ok(trace)
    }

    /// Frames in the trace.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

/// Nothing can go wrong while reading memory; the error is the one of sending.
impl FrameSource for Trace {
    type Error = Error;

    fn next(&mut self) -> Result<Option<RecordedFrame<'_>>, Error> {
        let Some(&record) = self.records.get(self.next) else { return Ok(None) };
        let start = match self.next {
            0 => 0,
            next => self.records[next - 1].end,
        };
        self.next += 1;
        let bytes = &self.bytes[start..record.end];
        let Record { linktype, gap, cut, .. } = record;
        Ok(Some(RecordedFrame { bytes, linktype, gap, cut }))
    }

    fn rewind(&mut self) -> Result<(), Error> {
        self.next = 0;
        Ok(())
    }
}
