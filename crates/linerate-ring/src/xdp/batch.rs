//! [`Batch`]: frames of one receive ring, lent until it is dropped.

use std::os::fd::{AsFd, BorrowedFd};

use super::metadata::Metadata;
use super::queue::{Consumer, Producer};
use super::ring::Mapped;
use super::socket::{FrameMarks, Socket};
use crate::{Direction, Frame, Options, Timestamp, sys};

/// Pieces after the first that one frame can have: the largest `CONFIG_MAX_SKB_FRAGS`.
const PIECES: usize = 45;

/// Frames of one queue, taken in order with [`next`](crate::Batch::next). Dropping it gives the chunks of the
/// frames that were taken back to the kernel, all at once.
#[derive(Debug)]
pub struct Batch<'s> {
    receive: &'s mut Consumer<Mapped<libc::xdp_desc>>,
    fill: &'s mut Producer<Mapped<u64>>,
    fd: BorrowedFd<'s>,
    base: *mut u8,
    marking: FrameMarks,
    /// How far ahead to fetch frames into the cache.
    prefetch: u32,
    queue: u16,
    left: u32,
    stamp: Option<Timestamp>,
    /// The batch ends before a frame that the kernel stamped later, in its own clock.
    until: u64,
    /// Where frames of several sockets are put in order.
    order: Option<&'s mut Order>,
    received: &'s mut u64,
    pieces: [&'s [u8]; PIECES],
}

/// The order of the frames of several sockets.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The latest stamp of a frame that was lent, UTC.
    latest: u64,
    /// Frames with an earlier one, lent later.
    pub(super) disordered: u64,
}

impl Socket {
    /// The frames that have come, up to the size of a batch; `None` when there are none. The frames
    /// that were read go back to the kernel when the batch is dropped; those that were not are in
    /// the next batch.
    #[inline]
    pub fn next_batch(&mut self) -> Option<Batch<'_>> {
        if self.receive.as_mut()?.ready() == 0 {
            return None;
        }
        Some(Batch::new(self, u64::MAX, None))
    }

    /// Gives back what a suspended batch has lent.
    #[inline]
    pub(super) fn release(&mut self) {
        if let Some(receive) = self.receive.as_mut()
            && self.fill.has_unpublished()
        {
            give_back(receive, &mut self.fill, self.fd.as_fd());
        }
    }
}

// SAFETY: `base` leads to the UMEM of the socket, which is `Send` and borrowed for as long as the batch lives; the chunks
// of its frames are the batch's alone. All else is `Send` without this.
unsafe impl Send for Batch<'_> {}

impl<'s> Batch<'s> {
    #[inline]
    pub(super) fn new(socket: &'s mut Socket, until: u64, order: Option<&'s mut Order>) -> Self {
        let (marking, &Options { prefetch, batch, .. }) = (socket.marking, &socket.options);
        Self {
            receive: socket.receive.as_mut().expect("checked by Socket::next_batch"),
            fill: &mut socket.fill,
            fd: socket.fd.as_fd(),
            base: socket.umem.region().as_ptr(),
            marking,
            prefetch,
            queue: socket.queue as u16,
            left: batch.max(1),
            stamp: marking.stamp.then(sys::now),
            until,
            order,
            received: &mut socket.received,
            pieces: [&[]; PIECES],
        }
    }

    /// Frames that are there to be taken, at most; a multi-buffer frame counts once a piece.
    pub fn len(&self) -> usize {
        self.receive.cached_available().min(self.left) as usize
    }

    /// Whether every frame has been taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first piece of the frame that [`next`](crate::Batch::next) would give, which stays where it is. A tag that the
    /// card took out of it is not in it.
    #[inline]
    pub fn peek(&self) -> Option<&[u8]> {
        if self.left == 0 {
            return None;
        }
        let next = self.receive.peek(0)?;
        if self.until != u64::MAX && self.is_later(&next) {
            return None;
        }
        // SAFETY: the chunk is ours until the batch is dropped, and nobody writes to it while the slice
        // borrows the batch.
        Some(unsafe { std::slice::from_raw_parts(self.at(&next), next.len as usize) })
    }

    /// The next frames, as many as `into` has places for, all lent at once, for a reader that joins them.
    /// Returns how many. Ends in front of a frame in several pieces, which [`next`](crate::Batch::next) gives, and
    /// says nothing of stamps: it gives none at all where metadata stand in front of frames.
    pub fn lend<'b>(&'b mut self, into: &mut [&'b [u8]]) -> usize {
        let mut count = 0;
        while count < into.len() && self.left != 0 && !self.marking.metadata {
            let Some(next) = self.receive.peek(0) else { break };
            if next.options & libc::XDP_PKT_CONTD != 0 {
                break;
            }
            self.take(1);
            *self.received += 1;
            let (at, len) = (self.at(&next), next.len as usize);
            // SAFETY: the chunk is ours until the batch is dropped, which the borrow forbids while the
            // slice lives; nobody writes to it.
            into[count] = unsafe { std::slice::from_raw_parts(at, len) };
            count += 1;
        }
        count
    }

    /// Collects the pieces that follow the first; `None`, and nothing taken, when the last of them
    /// has not been published yet. Looks at the kernel's index again for it: the copy says that there
    /// is something to read, so that nobody else would.
    #[cold]
    fn gather(&mut self) -> Option<usize> {
        let mut count = 0;
        loop {
            let ahead = 1 + count as u32;
            if ahead >= self.receive.cached_available() {
                self.receive.refresh();
            }
            let piece = self.receive.peek(ahead)?;
            if let Some(place) = self.pieces.get_mut(count) {
                // SAFETY: the chunk is ours until the batch is dropped.
                let at = unsafe { self.base.add(piece.addr as usize) };
                // SAFETY: as above; `place` does not outlive the batch in any frame.
                *place = unsafe { std::slice::from_raw_parts(at, piece.len as usize) };
            }
            count += 1;
            if piece.options & libc::XDP_PKT_CONTD == 0 {
                return Some(count);
            }
        }
    }

    /// Whether the frame was stamped after the last one of this batch; one without a stamp was not.
    #[inline]
    fn is_later(&self, descriptor: &libc::xdp_desc) -> bool {
        // SAFETY: a received frame in a chunk that is ours, with the kernel's headroom.
        unsafe { Metadata::stamp(self.at(descriptor)) }.is_some_and(|stamp| stamp > self.until)
    }

    /// Moves descriptors from the receive ring to the fill ring; neither is published yet.
    #[inline]
    fn take(&mut self, count: u32) {
        for _ in 0..count {
            let Some(descriptor) = self.receive.pop() else { return };
            let pushed = self.fill.push(descriptor.addr);
            debug_assert!(pushed, "the fill ring has two slots for every chunk");
        }
        self.left = self.left.saturating_sub(count);
    }

    #[inline]
    fn at(&self, descriptor: &libc::xdp_desc) -> *mut u8 {
        // SAFETY: the kernel's addresses lie within the UMEM.
        unsafe { self.base.add(descriptor.addr as usize) }
    }

    #[inline]
    fn prefetch(&self) {
        if self.prefetch != 0
            && let Some(ahead) = self.receive.peek(self.prefetch)
        {
            sys::prefetch(self.at(&ahead));
        }
    }
}

impl crate::Batch for Batch<'_> {
    #[inline]
    fn next(&mut self) -> Option<Frame<'_>> {
        if self.left == 0 {
            return None;
        }
        let first = self.receive.peek(0)?;
        if self.until != u64::MAX && self.is_later(&first) {
            self.left = 0;
            return None;
        }
        let pieces = match first.options & libc::XDP_PKT_CONTD {
            0 => 0,
            _ => self.gather()?,
        };
        self.take(1 + pieces as u32);
        self.prefetch();
        *self.received += 1;
        let mut at = self.at(&first);
        let mut len = first.len as usize;
        let mut about = About { stamp: self.stamp };
        if self.marking.metadata {
            // SAFETY: the chunk is ours, and the kernel keeps headroom for metadata in front.
            (at, len) = unsafe { about.restore(at, len, self.marking.tai_offset_ns) };
        }
        // SAFETY: the chunk is ours until the batch is dropped, and the frame borrows the batch.
        let mut frame = Frame::new(unsafe { std::slice::from_raw_parts(at, len) });
        if pieces != 0 {
            frame = frame.with_tail(&self.pieces[..pieces.min(PIECES)]);
        }
        if let (Some(order), Some(Timestamp(stamp))) = (&mut self.order, about.stamp) {
            order.disordered += u64::from(stamp < order.latest);
            order.latest = order.latest.max(stamp);
        }
        frame.timestamp = about.stamp;
        frame.queue = self.queue;
        frame.direction = Direction::Inbound;
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
        give_back(self.receive, self.fill, self.fd);
    }
}

/// Publishes what was taken from the receive ring and put into the fill ring: the slots first, so that the
/// kernel has one for whatever it receives into the chunks.
#[inline]
fn give_back(
    receive: &mut Consumer<Mapped<libc::xdp_desc>>,
    fill: &mut Producer<Mapped<u64>>,
    fd: BorrowedFd<'_>,
) {
    receive.release();
    fill.publish();
    if fill.need_wakeup() {
        sys::kick_receive(fd);
    }
}

/// What metadata says of a frame.
struct About {
    stamp: Option<Timestamp>,
}

impl About {
    /// Reads the metadata in front of the frame at `at`, and puts a VLAN tag that the card took out
    /// back in. Returns where the frame begins then and how long it is.
    ///
    /// # Safety
    /// `at` must be the first byte of a received frame of `len` bytes that nobody else touches.
    #[inline]
    unsafe fn restore(&mut self, at: *mut u8, len: usize, tai_offset_ns: u64) -> (*mut u8, usize) {
        // SAFETY: the caller's.
        let Some(metadata) = (unsafe { Metadata::take(at) }) else { return (at, len) };
        self.stamp = metadata.timestamp(tai_offset_ns).or(self.stamp);
        match metadata.vlan() {
            // SAFETY: the caller's; the metadata has been read, so its place is free.
            Some(tag) => unsafe { tag.insert(at, len) },
            None => (at, len),
        }
    }
}
