//! [`Batch`]: frames of ring buffers, lent until it is dropped.

use super::records::{Head, ReaderState, Records};
use crate::{Direction, Frame, Timestamp, TraceEvent};

/// What a reader counts of the frames that it lends.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) received: u64,
    /// The latest stamp of several rings.
    pub(super) latest: u64,
    /// Frames with an earlier one, lent later.
    pub(super) disordered: u64,
}

/// Frames in the order of their arrival, taken with [`next`](crate::Batch::next). Dropping it gives the space of
/// those that were taken back to the kernel.
#[derive(Debug)]
pub struct Batch<'t> {
    records: &'t mut Records,
    left: u32,
    /// The batch ends before a frame with a later stamp: another ring may have an earlier one.
    until: u64,
    tai_offset_ns: u64,
    /// The latest stamp of the ring, where a batch ends at one.
    last: &'t mut u64,
    counts: &'t mut Counts,
    /// For a reader that is armed whenever it has no batch: what wakes it, and the ring's number.
    kept: Option<(&'t ReaderState, usize)>,
}

impl<'t> Batch<'t> {
    #[inline]
    pub(super) fn new(
        records: &'t mut Records,
        (left, until): (u32, u64),
        tai_offset_ns: u64,
        last: &'t mut u64,
        counts: &'t mut Counts,
        kept: Option<(&'t ReaderState, usize)>,
    ) -> Self {
        Self { records, left, until, tai_offset_ns, last, counts, kept }
    }

    /// Whether the batch ends here.
    #[inline]
    fn is_over(&mut self) -> bool {
        let ends = self.until != u64::MAX;
        self.left == 0
            || ends && !matches!(self.records.head(), Head::Stamp(stamp) if stamp <= self.until)
    }

    /// The bytes of the frame that [`next`](crate::Batch::next) would give, which stays where it is.
    #[inline]
    pub fn peek(&mut self) -> Option<&[u8]> {
        if self.is_over() {
            return None;
        }
        let record = self.records.peek()?;
        // SAFETY: as in `next`.
        let (_, _, bytes) = unsafe { parts(record) };
        Some(bytes)
    }
}

impl crate::Batch for Batch<'_> {
    #[inline]
    fn next(&mut self) -> Option<Frame<'_>> {
        if self.is_over() {
            return None;
        }
        // SAFETY: the frame borrows the batch, and only dropping the batch releases.
        let record = unsafe { self.records.next() }?;
        self.left -= 1;
        // SAFETY: a record of these programs.
        let (header, trace, bytes) = unsafe { parts(record) };
        self.counts.received += 1;
        if self.until != u64::MAX {
            *self.last = header.timestamp;
            self.counts.disordered += u64::from(header.timestamp < self.counts.latest);
            self.counts.latest = self.counts.latest.max(header.timestamp);
        }
        let mut frame = Frame::new(bytes);
        frame.trace = trace;
        frame.wire_len = header.wire_len;
        if header.timestamp != 0 {
            frame.timestamp =
                Some(Timestamp(header.timestamp - self.tai_offset_ns.min(header.timestamp)));
        }
        frame.queue = header.queue;
        frame.direction = match trace {
            Some(TraceEvent::Drop { .. }) => Direction::Unknown,
            _ => Direction::Inbound,
        };
        Some(frame)
    }

    #[inline]
    fn suspend(self) {
        std::mem::forget(self);
    }
}

impl Drop for Batch<'_> {
    #[inline]
    fn drop(&mut self) {
        self.records.release();
        // A wake-up for a frame that was in the batch is spent.
        if let Some((state, ring)) = self.kept {
            state.set_waiting(std::iter::once(ring));
        }
    }
}

/// The header of a record, what was traced, and the frame's bytes.
///
/// # Safety
/// `record` has to be one that a program of `bpf/records.h` wrote: it begins with a whole header of plain
/// integers, which tells what follows.
#[inline]
unsafe fn parts(record: &[u8]) -> (Header, Option<TraceEvent>, &[u8]) {
    let (header, rest) = record.split_at(size_of::<Header>());
    // SAFETY: the bytes of a header, by the contract and the line above.
    let header = unsafe { header.as_ptr().cast::<Header>().read_unaligned() };
    let len = header.len as usize;
    if header.traced == TRACED_NOT {
        return (header, None, &rest[..len]);
    }
    let (trace, rest) = rest.split_at(size_of::<Trace>());
    // SAFETY: as above; the header says that this part is there.
    let trace = unsafe { trace.as_ptr().cast::<Trace>().read_unaligned() };
    (header, Some(trace.event(&header)), &rest[..len])
}

/// Values of [`Header::traced`].
const TRACED_NOT: u16 = 0;
const TRACED_ENTRY: u16 = 1;
const TRACED_EXIT: u16 = 2;

/// The rest of `struct trace_record` in `bpf/tee.h`, behind its [`Header`].
#[repr(C)]
#[derive(Clone, Copy)]
struct Trace {
    place: u64,
    code: u32,
    reserved: u32,
}

impl Trace {
    #[inline]
    fn event(&self, header: &Header) -> TraceEvent {
        let Self { place, code, .. } = *self;
        match header.traced {
            TRACED_ENTRY => TraceEvent::XdpEntry { packet: place },
            TRACED_EXIT => TraceEvent::XdpExit { packet: place, verdict: code },
            _ => TraceEvent::Drop { reason: code, location: place, interface: header.ifindex },
        }
    }
}

/// The layout of `struct tee_record` in `bpf/tee.h`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    timestamp: u64,
    wire_len: u32,
    len: u32,
    ifindex: u32,
    queue: u16,
    traced: u16,
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn layout_is_that_of_the_header() {
        assert_eq!(size_of::<Header>(), 24);
        assert_eq!(offset_of!(Header, timestamp), 0);
        assert_eq!(offset_of!(Header, wire_len), 8);
        assert_eq!(offset_of!(Header, len), 12);
        assert_eq!(offset_of!(Header, ifindex), 16);
        assert_eq!(offset_of!(Header, queue), 20);
        assert_eq!(offset_of!(Header, traced), 22);
        assert_eq!((size_of::<Trace>(), offset_of!(Trace, code)), (16, 8));
    }
}
