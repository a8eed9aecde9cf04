//! [`Reader`]: BPF ring buffers that programs write frames to, behind one reader. Tee and trace differ in their
//! programs ([`Programs`]).

mod batch;
mod order;
mod records;

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_net::Interface;
use rustix::event::{PollFd, PollFlags};

pub use batch::Batch;

use crate::wait::{SleepState, Sleeper, WaitStrategy};
use crate::{Error, Result, Ring, StatisticsReader, Timestamp, sys};
use batch::Counts;
pub(crate) use records::ReaderState;
use records::{Head, Records};

/// Default size of all ring buffers together in bytes: 600,000 frames of 64 bytes.
pub const DEFAULT_BUFFER: usize = 64 << 20;

/// By how much the clocks of two CPUs may differ.
const CLOCK_SKEW_NS: u64 = 1_000;

/// The programs that write to the ring buffers of a [`Reader`].
pub trait Programs: fmt::Debug {
    /// What they count, with what the reader counts.
    type Statistics;

    /// Does what has to be done before a wait.
    ///
    /// # Errors
    /// Those of [`Ring::wait`].
    fn prepare_wait(&mut self) -> Result<()> {
        Ok(())
    }

    /// Waits until every run that was in progress at the call has ended.
    ///
    /// # Errors
    /// Those of [`Ring::stop`].
    fn synchronize(&self) -> Result<()>;

    /// The counts. The reader has lent `received` frames, `disordered` of them after others with a later stamp.
    ///
    /// # Errors
    /// Those of [`Ring::statistics`].
    fn statistics(&self, received: u64, disordered: u64) -> Result<Self::Statistics>;

    /// A handle that reads the counts of the programs.
    ///
    /// # Errors
    /// Those of [`Ring::statistics_reader`].
    fn statistics_reader(&self) -> Result<StatisticsReader<Self::Statistics>>;
}

/// Ring buffers of one reader, with the state that tells the programs when to wake it.
///
/// The reader gets the frames of all rings in the order of their timestamps, without a delay. A program stamps a
/// frame after it has reserved room for it. So what it reserves after a look at the ring has a stamp later than
/// that look. Frames with earlier stamps are all there, and wait only for those that are being copied.
///
/// Nothing is left attached when it is dropped, nor when the process dies.
#[derive(Debug)]
pub struct Reader<P> {
    rings: Vec<RingBuffer>,
    polls: Vec<PollFd<'static>>,
    pub(crate) state: Arc<ReaderState>,
    options: Options,
    /// The ring of the last batch.
    turn: usize,
    /// Every frame stamped until then that is not copied yet is at the head of its ring.
    horizon: u64,
    /// When a frame at the head was found that is being copied.
    copying_since: Option<Instant>,
    counts: Counts,
    sleep: SleepState,
    /// TAI less UTC, in nanoseconds.
    tai_offset_ns: u64,
    /// `None` where all interfaces of the network namespace are read.
    interface: Option<Interface>,
    was_up: bool,
    stopped: bool,
    pub(crate) programs: P,
}

#[derive(Debug)]
struct RingBuffer {
    records: Records,
    /// Its number among those of the program.
    index: usize,
    /// The latest stamp that was lent of it.
    last: u64,
    /// [`Records::looks`] when the TAI offset was read last.
    offset_of: u64,
}

/// How to read ring buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) wait_strategy: WaitStrategy,
    /// Frames in a batch at most.
    pub(crate) batch: u32,
    /// Frames are stamped, and wanted in that order.
    pub(crate) in_order: bool,
}

/// Ring buffers in memory, and what to poll of each.
pub(crate) struct Mapped(Vec<RingBuffer>, Vec<PollFd<'static>>);

impl Mapped {
    /// Maps ring buffers of `size` bytes; `first` is the number of the first among those of the program. Their
    /// descriptors have to stay open as long as this lives.
    pub(crate) fn new<'f>(
        maps: impl Iterator<Item = BorrowedFd<'f>>,
        first: usize,
        size: u32,
    ) -> Result<Self> {
        let (mut rings, mut polls) = (Vec::new(), Vec::new());
        for (index, map) in (first..).zip(maps) {
            let records = Records::map(map, size)?;
            rings.push(RingBuffer { records, index, last: 0, offset_of: 0 });
            // SAFETY: the program's descriptor, which the caller keeps open.
            let fd = unsafe { BorrowedFd::borrow_raw(map.as_raw_fd()) };
            polls.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        Ok(Self(rings, polls))
    }
}

impl<P: Programs> Reader<P> {
    /// `programs` have the ring buffers and keep them open. `state` is that of all their rings. `was_up` says whether
    /// the interface is up.
    pub(crate) fn new(
        Mapped(rings, polls): Mapped,
        state: Arc<ReaderState>,
        options: Options,
        (interface, was_up): (Option<Interface>, bool),
        programs: P,
    ) -> Self {
        Self {
            options: Options { in_order: options.in_order && rings.len() > 1, ..options },
            rings,
            polls,
            state,
            turn: 0,
            horizon: 0,
            copying_since: None,
            counts: Counts::default(),
            sleep: SleepState::default(),
            tai_offset_ns: 0,
            interface,
            was_up,
            stopped: false,
            programs,
        }
    }

    /// Wake-ups that the reader has got.
    pub fn wakeups(&self) -> u64 {
        Sleeper::wakeups(self)
    }

    /// A time before which every frame that will come was not stamped; `None` if one waits to be read. UTC.
    pub fn empty_since(&mut self) -> Option<Timestamp> {
        // Before the look.
        let now = sys::now().0.saturating_sub(CLOCK_SKEW_NS);
        (!self.has_record()).then_some(Timestamp(now))
    }

    /// Whether there is a record that was not read yet.
    #[inline]
    fn has_record(&mut self) -> bool {
        self.rings.iter_mut().any(|ring| ring.records.ready())
    }

    /// Whether the interface still exists and is up. No error while there are frames to read, which came before the
    /// trouble.
    fn check(&mut self) -> Result<()> {
        let Some(interface) = &self.interface else { return Ok(()) };
        let result = match interface.is_up() {
            Ok(up) if std::mem::replace(&mut self.was_up, up) && !up => {
                Err(Error::InterfaceDown(interface.name().to_owned()))
            }
            up => up.map(drop).map_err(Error::from),
        };
        if result.is_err() && self.has_record() {
            // The next call finds the trouble again.
            self.was_up = true;
            return Ok(());
        }
        result
    }
}

impl<P: Programs> Ring for Reader<P> {
    type Batch<'r>
        = Batch<'r>
    where
        P: 'r;
    type Statistics = P::Statistics;

    fn wait(&mut self, timeout: Duration) -> Result<bool> {
        if self.stopped {
            return Ok(self.has_record());
        }
        self.programs.prepare_wait()?;
        let rings = &mut self.rings;
        let mut ready = || rings.iter_mut().any(|ring| ring.records.ready());
        let Some(left) = self.options.wait_strategy.wait_until(timeout, &mut ready) else {
            return Ok(true);
        };
        let woken = if Sleeper::arm(self) { Ok(true) } else { sys::poll(&mut self.polls, left) };
        Sleeper::disarm(self);
        woken.map_err(|error| {
            let from = self.interface.as_ref().map_or("all interfaces", Interface::name);
            Error::system(format!("wait for frames of {from}"), error)
        })?;
        if !self.has_record() {
            self.check()?;
        }
        Ok(self.has_record())
    }

    #[inline]
    fn ready(&mut self) -> bool {
        self.has_frame()
    }

    #[inline]
    fn next_batch(&mut self) -> Option<Batch<'_>> {
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
        let RingBuffer { records, last, index, .. } = ring;
        let kept = self.sleep.is_kept_armed().then_some((&*self.state, *index));
        let bounds = (self.options.batch, until);
        Some(Batch::new(records, bounds, self.tai_offset_ns, last, &mut self.counts, kept))
    }

    #[inline]
    fn release(&mut self) {
        self.rings.iter_mut().for_each(|ring| ring.records.release());
    }

    #[inline]
    fn arm(&mut self) -> bool {
        Sleeper::arm(self)
    }

    #[inline]
    fn disarm(&mut self) {
        Sleeper::disarm(self);
    }

    fn keep_armed(&self) {
        Sleeper::keep_armed(self);
    }

    /// Readable while records are in the ring buffers that were not given back.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.polls.iter().map(AsFd::as_fd).collect()
    }

    fn stop(&mut self) -> Result<()> {
        if !self.stopped {
            // Programs that start from now on copy nothing into these rings.
            self.rings.iter().for_each(|ring| self.state.stop(ring.index));
            self.programs.synchronize()?;
            self.stopped = true;
        }
        Ok(())
    }

    fn statistics(&self) -> Result<P::Statistics> {
        self.programs.statistics(self.counts.received, self.counts.disordered)
    }

    fn statistics_reader(&self) -> Result<StatisticsReader<P::Statistics>> {
        self.programs.statistics_reader()
    }

    /// That of the fullest ring buffer.
    fn fill_level(&mut self) -> f32 {
        let fill = |ring: &RingBuffer| {
            ring.records.pending() as f32 / ring.records.capacity().max(1) as f32
        };
        self.rings.iter().map(fill).fold(0.0, f32::max)
    }
}

impl<P: Programs> Sleeper for Reader<P> {
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
        self.state.set_waiting(self.rings.iter().map(|ring| ring.index));
    }

    fn clear_waiting(&self) {
        self.rings.iter().for_each(|ring| self.state.clear_waiting(ring.index));
    }
}
