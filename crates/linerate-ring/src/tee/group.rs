//! [`RingGroup`]: ring buffers that BPF programs write frames to, behind one reader.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::batch::{Batch, Counts};
use super::records::{Head, ReaderState, Records};
use super::sleep::{SleepProtocol, SleepState};
use crate::xdp::{WaitStrategy, sys};
use crate::{Error, Result, Timestamp};

/// How long frames wait for one that a CPU is copying, which may be earlier. A copy takes less than a microsecond,
/// unless a hypervisor stops the CPU in the middle of it.
const MAX_COPY_TIME: Duration = Duration::from_millis(100);

/// By how much the clocks of two CPUs may differ.
const CLOCK_SKEW_NS: u64 = 1_000;

/// Ring buffers of one reader, with the state that tells the programs when to wake it.
///
/// The reader gets the frames of all rings in the order of their timestamps, without a delay. A program stamps a
/// frame after it has reserved room for it. So what it reserves after a look at the ring has a stamp later than
/// that look. Frames with earlier stamps are all there, and wait only for those that are being copied.
#[derive(Debug)]
pub(crate) struct RingGroup {
    rings: Vec<Ring>,
    state: Arc<ReaderState>,
    wait_strategy: WaitStrategy,
    batch: u32,
    /// Whether frames of several rings are put in order.
    in_order: bool,
    /// The ring of the last batch.
    turn: usize,
    /// Every frame stamped until then that is not copied yet is at the head of its ring.
    horizon: u64,
    /// When a frame at the head was found that is being copied.
    copying_since: Option<Instant>,
    counts: Counts,
    /// The reader may sleep on the descriptors whenever it has no batch.
    polled: AtomicBool,
    sleep: SleepState,
    /// TAI less UTC, in nanoseconds.
    tai_offset_ns: u64,
    polls: Vec<PollFd<'static>>,
}

#[derive(Debug)]
struct Ring {
    records: Records,
    /// Its number among those of the program.
    index: usize,
    /// The latest stamp that was lent of it.
    last: u64,
    /// [`Records::looks`] when the TAI offset was read last.
    offset_of: u64,
}

/// How to read a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupOptions {
    pub(crate) wait_strategy: WaitStrategy,
    /// Frames in a batch at most.
    pub(crate) batch: u32,
    /// Frames are stamped, and wanted in that order.
    pub(crate) in_order: bool,
}

impl RingGroup {
    /// Maps ring buffers of `size` bytes; `first` is the number of the first among those of the program. Their
    /// descriptors have to stay open as long as the group lives. `state` is that of all rings.
    pub(crate) fn map<'f>(
        maps: impl Iterator<Item = BorrowedFd<'f>>,
        first: usize,
        size: u32,
        state: Arc<ReaderState>,
        options: GroupOptions,
    ) -> Result<Self> {
        let (mut rings, mut polls) = (Vec::new(), Vec::new());
        for (index, map) in (first..).zip(maps) {
            let records = Records::map(map, size)?;
            rings.push(Ring { records, index, last: 0, offset_of: 0 });
            // SAFETY: the program's descriptor, which the caller keeps open.
            let fd = unsafe { BorrowedFd::borrow_raw(map.as_raw_fd()) };
            polls.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        let GroupOptions { wait_strategy, batch, in_order } = options;
        Ok(Self {
            in_order: in_order && rings.len() > 1,
            rings,
            state,
            wait_strategy,
            batch,
            turn: 0,
            horizon: 0,
            copying_since: None,
            counts: Counts::default(),
            polled: AtomicBool::new(false),
            sleep: SleepState::default(),
            tai_offset_ns: 0,
            polls,
        })
    }

    /// Waits until a frame of `from` can be read: true. False when `timeout` is over or a signal came.
    pub(crate) fn wait(&mut self, from: &str, timeout: Duration) -> Result<bool> {
        let rings = &mut self.rings;
        let mut ready = || rings.iter_mut().any(|ring| ring.records.ready());
        let Some(left) = self.wait_strategy.wait_until(timeout, &mut ready) else {
            return Ok(true);
        };
        self.announce_sleep();
        // A frame that came before the announcement wakes nobody.
        let woken = if self.ready() { Ok(()) } else { sys::poll(&mut self.polls, left).map(drop) };
        self.cancel_sleep();
        woken.map_err(|error| Error::system(format!("wait for frames of {from}"), error))?;
        Ok(self.ready())
    }

    /// Whether there is a record that was not read yet.
    #[inline]
    pub(crate) fn ready(&mut self) -> bool {
        self.rings.iter_mut().any(|ring| ring.records.ready())
    }

    /// Wake-up records that the reader has passed.
    pub(crate) fn wakeups(&self) -> u64 {
        SleepProtocol::wakeups(self)
    }

    /// Gives the space of everything lent back to the kernel.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.rings.iter_mut().for_each(|ring| ring.records.release());
    }

    /// Whether a frame can be read. If not, and the reader has announced that it sleeps, the next frame wakes it.
    #[inline]
    pub(crate) fn has_frame(&mut self) -> bool {
        SleepProtocol::has_frame(self)
    }

    /// The same for a reader that sleeps only after this returned false, which then has announced its sleep.
    #[inline]
    pub(crate) fn poll_or_announce_sleep(&mut self) -> bool {
        SleepProtocol::poll_or_announce_sleep(self)
    }

    pub(crate) fn announce_sleep(&self) {
        SleepProtocol::announce_sleep(self);
    }

    pub(crate) fn announce_polling(&self) {
        self.polled.store(true, Ordering::Relaxed);
        self.announce_sleep();
    }

    pub(crate) fn cancel_sleep(&self) {
        SleepProtocol::cancel_sleep(self);
    }

    /// Programs that start from now on copy nothing into these rings.
    pub(crate) fn stop(&self) {
        self.rings.iter().for_each(|ring| self.state.stop(ring.index));
    }

    /// The frames that come next, up to the size of a batch; `None` when there are none.
    #[inline]
    pub(crate) fn next_batch(&mut self) -> Option<Batch<'_>> {
        // Suspended batches gave nothing back, and a reader that takes frame by frame and never
        // catches up keeps them all.
        self.rings[self.turn].records.release_much();
        let (turn, until) = self.next_ring()?;
        self.turn = turn;
        let ring = &mut self.rings[turn];
        // The offset changes when somebody tells the kernel of leap seconds, which a time daemon does
        // once, long after boot. Two clock readings without a system call, each time that the reader has
        // caught up with what it knew of.
        if ring.offset_of != ring.records.looks() {
            ring.offset_of = ring.records.looks();
            self.tai_offset_ns = sys::tai_offset_ns();
        }
        let Ring { records, last, index, .. } = ring;
        let polled = self.polled.get_mut().then_some((&*self.state, *index));
        let bounds = (self.batch, until);
        Some(Batch::new(records, bounds, self.tai_offset_ns, last, &mut self.counts, polled))
    }

    /// The ring of the next batch, and the latest stamp of its frames.
    #[inline]
    fn next_ring(&mut self) -> Option<(usize, u64)> {
        if let [only] = &mut self.rings[..] {
            return only.records.ready().then_some((0, u64::MAX));
        }
        if self.in_order { self.oldest().or_else(|| self.look()) } else { self.next_in_turn() }
    }

    fn next_in_turn(&mut self) -> Option<(usize, u64)> {
        let count = self.rings.len();
        let mut turns = (1..=count).map(|more| (self.turn + more) % count);
        turns.find(|turn| self.rings[*turn].records.has_frame()).map(|turn| (turn, u64::MAX))
    }

    /// Looks at all rings anew.
    fn look(&mut self) -> Option<(usize, u64)> {
        // Before the look at the first ring.
        let now = sys::tai_ns().saturating_sub(CLOCK_SKEW_NS);
        self.rings.iter_mut().for_each(|ring| ring.records.look());
        // Somebody may set the clock back. What was stamped before that is earlier, whatever its stamp says.
        self.horizon = if now < self.horizon { u64::MAX } else { now };
        let found = self.oldest();
        self.horizon = now;
        found
    }

    /// The ring whose next frame is the oldest, and the stamp up to which no other ring has an older one.
    fn oldest(&mut self) -> Option<(usize, u64)> {
        let (mut found, mut until) = (None::<(usize, u64)>, self.horizon);
        let mut copying = false;
        for (index, ring) in self.rings.iter_mut().enumerate() {
            match ring.records.head() {
                Head::Empty => {}
                // It may be the oldest, but is no older than the frame before it.
                Head::Busy => (copying, until) = (true, until.min(ring.last)),
                Head::Stamp(stamp) => match found {
                    Some((_, oldest)) if stamp >= oldest => until = until.min(stamp),
                    _ => {
                        until = found.map_or(until, |(_, oldest)| until.min(oldest));
                        found = Some((index, stamp));
                    }
                },
            }
        }
        if !copying {
            self.copying_since = None;
        }
        let (ring, stamp) = found?;
        if copying && stamp > until {
            let since = *self.copying_since.get_or_insert_with(Instant::now);
            if since.elapsed() < MAX_COPY_TIME {
                return None;
            }
            return Some((ring, stamp));
        }
        (stamp <= until).then_some((ring, until))
    }

    /// Frames lent so far.
    pub(crate) fn received(&self) -> u64 {
        self.counts.received
    }

    /// Frames lent after others with a later stamp.
    pub(crate) fn disordered(&self) -> u64 {
        self.counts.disordered
    }

    /// A time before which no frame was stamped that will come; `None` if one waits to be read. UTC.
    pub(crate) fn empty_since(&mut self) -> Option<Timestamp> {
        // Before the look.
        let now = sys::now().0.saturating_sub(CLOCK_SKEW_NS);
        (!self.ready()).then_some(Timestamp(now))
    }

    /// Bytes of data that the rings hold.
    pub(crate) fn capacity(&self) -> usize {
        self.rings.iter().map(|ring| ring.records.capacity()).sum()
    }

    /// The share of the fullest ring that waits to be read, 0 to 1.
    pub(crate) fn fill_level(&self) -> f32 {
        let fill =
            |ring: &Ring| ring.records.pending() as f32 / ring.records.capacity().max(1) as f32;
        self.rings.iter().map(fill).fold(0.0, f32::max)
    }
}

impl SleepProtocol for RingGroup {
    fn sleep_state(&self) -> &SleepState {
        &self.sleep
    }

    #[inline]
    fn is_readable(&mut self) -> bool {
        match &mut self.rings[..] {
            [only] => only.records.has_frame(),
            _ => self.next_ring().is_some(),
        }
    }

    /// Whether a frame is withheld for the [`CLOCK_SKEW_NS`] in which another ring may get an earlier one. If an earlier
    /// one is being copied, its own wake-up follows.
    #[inline]
    fn is_withholding(&mut self) -> bool {
        if self.rings.len() == 1 {
            return false;
        }
        let mut is_complete = false;
        for ring in &mut self.rings {
            match ring.records.head() {
                Head::Empty => {}
                Head::Busy => return false,
                Head::Stamp(_) => is_complete = true,
            }
        }
        is_complete
    }

    #[inline]
    fn wakeups(&self) -> u64 {
        self.rings.iter().map(|ring| ring.records.wakeups()).sum()
    }

    fn set_waiting(&self) {
        self.state.announce_sleep(self.rings.iter().map(|ring| ring.index));
    }

    fn clear_waiting(&self) {
        self.rings.iter().for_each(|ring| self.state.cancel_sleep(ring.index));
    }
}
