//! [`Batch`]: frames of a tee, lent until it is dropped.

use super::records::Records;
use crate::{Direction, Frame, Timestamp};

/// Frames in the order of their arrival, taken with [`Batch::next`]. Dropping it gives the space of
/// those that were taken back to the kernel.
#[derive(Debug)]
pub struct Batch<'t> {
    records: &'t mut Records,
    left: u32,
    tai_ahead: u64,
    received: &'t mut u64,
}

impl<'t> Batch<'t> {
    #[inline]
    pub(super) fn new(
        records: &'t mut Records,
        left: u32,
        tai_ahead: u64,
        received: &'t mut u64,
    ) -> Self {
        Self { records, left, tai_ahead, received }
    }

    /// The bytes of the frame that [`Batch::next`] would give, which stays where it is.
    #[inline]
    pub fn peek(&mut self) -> Option<&[u8]> {
        if self.left == 0 {
            return None;
        }
        let record = self.records.peek()?;
        let (header, bytes) = record.split_at(size_of::<Header>());
        // SAFETY: as in `next`.
        let header = unsafe { header.as_ptr().cast::<Header>().read_unaligned() };
        Some(&bytes[..header.len as usize])
    }

    /// The next frame, or `None` at the end of the batch.
    #[allow(clippy::should_implement_trait, reason = "lends, as Iterator cannot")]
    #[inline]
    pub fn next(&mut self) -> Option<Frame<'_>> {
        if self.left == 0 {
            return None;
        }
        // SAFETY: the frame borrows the batch, and only dropping the batch releases.
        let record = unsafe { self.records.next() }?;
        self.left -= 1;
        let (header, bytes) = record.split_at(size_of::<Header>());
        // SAFETY: the program writes a whole header, of plain integers, at the start of a record.
        let header = unsafe { header.as_ptr().cast::<Header>().read_unaligned() };
        *self.received += 1;
        let mut frame = Frame::new(&bytes[..header.len as usize]);
        frame.wire_len = header.wire_len;
        if header.timestamp != 0 {
            frame.timestamp =
                Some(Timestamp(header.timestamp - self.tai_ahead.min(header.timestamp)));
        }
        frame.queue = header.queue;
        frame.direction = Direction::Inbound;
        Some(frame)
    }

    /// Stops here: the space of the lent frames goes back to the kernel with that of the next batch, or with
    /// [`Tee::release`](super::Tee::release), and not before.
    #[inline]
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Batch<'_> {
    #[inline]
    fn drop(&mut self) {
        self.records.release();
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
    flags: u16,
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
        assert_eq!(offset_of!(Header, flags), 22);
    }
}
