//! [`RingBuffer`]: the reading end of a ring buffer that BPF programs write frames to.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::batch::Batch;
use super::records::{Reader, Records};
use crate::xdp::{WaitStrategy, sys};
use crate::{Error, Result};

/// The frames of a ring buffer, with the state that tells the programs when to wake the reader.
#[derive(Debug)]
pub(crate) struct RingBuffer {
    records: Records,
    reader: Reader,
    wait_strategy: WaitStrategy,
    batch: u32,
    received: u64,
    /// TAI less UTC, in nanoseconds, and the look at the ring ([`Records::looks`]) that it is of.
    tai_offset_ns: u64,
    offset_of: u64,
}

impl RingBuffer {
    /// Maps the ring buffer `map` of `size` bytes, and the array with the reader's state. A batch has `batch`
    /// frames at most.
    pub(crate) fn map(
        map: BorrowedFd<'_>,
        size: u32,
        consumer_state_map: BorrowedFd<'_>,
        wait_strategy: WaitStrategy,
        batch: u32,
    ) -> Result<Self> {
        Ok(Self {
            records: Records::map(map, size)?,
            reader: Reader::map(consumer_state_map)?,
            wait_strategy,
            batch,
            received: 0,
            tai_offset_ns: 0,
            offset_of: 0,
        })
    }

    /// Waits until a frame of `from` can be read: true. False when `timeout` is over or a signal came. `map` is
    /// the ring buffer.
    pub(crate) fn wait(
        &mut self,
        map: BorrowedFd<'_>,
        from: &str,
        timeout: Duration,
    ) -> Result<bool> {
        let records = &mut self.records;
        let Some(left) = self.wait_strategy.wait_until(timeout, || records.ready()) else {
            return Ok(true);
        };
        self.reader.announce_sleep();
        if !self.records.ready() {
            let mut fds = [PollFd::from_borrowed_fd(map, PollFlags::IN)];
            let woken = sys::poll(&mut fds, left);
            self.reader.cancel_sleep();
            woken.map_err(|error| Error::system(format!("wait for frames of {from}"), error))?;
        }
        self.reader.cancel_sleep();
        Ok(self.records.ready())
    }

    /// Whether there is a record that was not read yet.
    #[inline]
    pub(crate) fn ready(&mut self) -> bool {
        self.records.ready()
    }

    /// Whether a frame can be read.
    #[inline]
    pub(crate) fn has_frame(&mut self) -> bool {
        self.records.has_frame()
    }

    /// Gives the space of everything lent back to the kernel.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.records.release();
    }

    pub(crate) fn announce_sleep(&self) {
        self.reader.announce_sleep();
    }

    pub(crate) fn cancel_sleep(&self) {
        self.reader.cancel_sleep();
    }

    /// Programs that start from now on copy nothing.
    pub(crate) fn stop(&self) {
        self.reader.stop();
    }

    /// See [`super::Tee::set_passing`].
    pub(crate) fn set_passing(&self, passing: bool) {
        self.reader.set_passing(passing);
    }

    /// The frames that have come, up to the size of a batch; `None` when there are none.
    #[inline]
    pub(crate) fn next_batch(&mut self) -> Option<Batch<'_>> {
        // Suspended batches gave nothing back, and a reader that takes frame by frame and never
        // catches up keeps them all.
        self.records.release_much();
        if !self.records.ready() {
            return None;
        }
        // The offset changes when somebody tells the kernel of leap seconds, which a time daemon does
        // once, long after boot. Two clock readings without a system call, each time that the reader has
        // caught up with what it knew of.
        if self.offset_of != self.records.looks() {
            self.offset_of = self.records.looks();
            self.tai_offset_ns = sys::tai_offset_ns();
        }
        Some(Batch::new(&mut self.records, self.batch, self.tai_offset_ns, &mut self.received))
    }

    /// Frames lent so far.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Bytes of data.
    pub(crate) fn capacity(&self) -> usize {
        self.records.capacity()
    }

    /// Bytes that wait to be read.
    pub(crate) fn pending(&self) -> usize {
        self.records.pending()
    }
}
