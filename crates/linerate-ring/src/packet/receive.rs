//! [`Ring`]: a `TPACKET_V3` receive ring, and [`Batch`], one block of it.
//!
//! Who owns a block is said by one word in it (`owner`): the kernel publishes blocks in turn, and
//! dropping a batch gives its block back. While blocks are ready, nothing here is a system call.

use std::hint;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use linerate_bpf::map::SharedMapping;
use rustix::event::{self, PollFd, PollFlags};
use rustix::io::Errno;
use zerocopy::FromBytes;

use super::layout::{BLOCK_STATUS, BlockHeader};
use super::owner;
use super::program::SocketFilter;
use super::rules::RingConfig;
use super::socket::Socket;
use super::statistics::{Statistics, StatisticsReader};
use super::timestamps::TimestampClock;
use super::walk::{BlockFrames, FrameOptions};
use crate::{Error, Frame, Result, sys};
use linerate_bpf::filter::{ClassicProgram, CookedHeader};

/// Seconds between two reads of the kernel's 32-bit counters, so that none can wrap unseen: that
/// takes 2^32 frames, 29 seconds at a rate that no wire has.
const READ_COUNTERS_EVERY: u32 = 20;

/// How often [`Ring::wait`](crate::Ring::wait) looks whether an interface that is down was removed: that is no error of
/// the socket.
const REMOVAL_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A receive ring, shared with the kernel.
///
/// ```no_run
/// use std::time::Duration;
/// use linerate_ring::packet::{Options, Ring};
/// use linerate_ring::{Batch as _, Ring as _};
///
/// # fn main() -> linerate_ring::Result<()> {
/// let mut ring = Ring::open(Options { promiscuous: true, ..Options::new("eth0") })?;
/// while ring.wait(Duration::from_secs(1))? {
///     while let Some(mut batch) = ring.next_batch() {
///         while let Some(frame) = batch.next() {
///             println!("{} bytes", frame.wire_len);
///         }
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Ring {
    // Unmapped before the socket is closed.
    map: SharedMapping,
    socket: Arc<Socket>,
    request: RingConfig,
    config: Config,
    /// The block that the kernel hands over next.
    current: u32,
    given_back: u64,
    counters: StatisticsReader,
    /// When the kernel's counters were last read, in seconds of its clock.
    counters_read: u32,
    clock: Option<TimestampClock>,
    ending: Option<Ending>,
    /// The interface went down, and no frame has come since.
    is_down: bool,
    /// Where [`Batch::suspend`](crate::Batch::suspend) left off in the current block.
    suspended: Option<BlockFrames>,
}

/// What a ring remembers of how it was built.
#[derive(Debug)]
pub(super) struct Config {
    pub(super) name: String,
    pub(super) retire: Duration,
    pub(super) busy_poll: Duration,
    pub(super) virtio: bool,
    pub(super) cooked: Option<CookedHeader>,
    pub(super) gate: SocketFilter,
    pub(super) group: Option<u16>,
}

/// Why no more frames come. The caller gets it after the frames that came before.
#[derive(Clone, Copy, Debug)]
struct Ending {
    cause: Cause,
    /// When the kernel has handed over the last block for certain.
    drained_at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Stopped,
    Down,
    Gone,
}

impl Ring {
    pub(super) fn new(
        socket: Arc<Socket>,
        map: SharedMapping,
        request: RingConfig,
        config: Config,
    ) -> Self {
        let counters = StatisticsReader::new(&socket);
        Self {
            map,
            socket,
            request,
            config,
            current: 0,
            given_back: 0,
            counters,
            counters_read: 0,
            clock: None,
            ending: None,
            is_down: false,
            suspended: None,
        }
    }

    fn resume(&mut self, walk: BlockFrames) -> Batch<'_> {
        let (block, len) = (self.block(), self.request.block_size as usize);
        Batch { ring: self, block, len, walk }
    }

    /// Exchanges the filter; the kernel does so between two frames. Frames that are already in the ring have passed
    /// the old one and are still delivered.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a filter that is too long, [`Error::System`] for one that the kernel
    /// refuses. The old one then stays.
    pub fn set_filter(&mut self, filter: Option<ClassicProgram>) -> Result<()> {
        let gate = SocketFilter { filter, ..self.config.gate.clone() };
        if self.ending.is_none_or(|ending| ending.cause != Cause::Stopped) {
            gate.open(&self.socket)?;
        }
        self.config.gate = gate;
        Ok(())
    }

    /// The number of the fanout group, for other rings to join.
    pub fn fanout_group(&self) -> Option<u16> {
        self.config.group
    }

    /// The interface's name when the ring was built.
    pub fn interface(&self) -> &str {
        &self.config.name
    }

    /// Blocks of the ring.
    pub fn blocks(&self) -> u32 {
        self.request.blocks
    }

    /// Blocks given back to the kernel since the ring was built.
    pub fn blocks_released(&self) -> u64 {
        self.given_back
    }

    /// The clock that stamped the last frame lent; `None` before the first.
    pub fn clock(&self) -> Option<TimestampClock> {
        self.clock
    }

    pub(super) fn open_gate(&self) -> Result<()> {
        self.config.gate.open(&self.socket)
    }

    #[inline]
    fn block(&self) -> NonNull<u8> {
        self.block_at(self.current)
    }

    #[inline]
    fn block_at(&self, number: u32) -> NonNull<u8> {
        self.map.at(number as usize * self.request.block_size as usize)
    }

    /// The word that says whose the current block is.
    #[inline]
    fn status(&self) -> &AtomicU32 {
        self.status_of(self.current)
    }

    #[inline]
    fn status_of(&self, number: u32) -> &AtomicU32 {
        // SAFETY: the word is inside the mapping and aligned, as blocks are whole pages; it is
        // accessed as an atomic only.
        unsafe { AtomicU32::from_ptr(self.block_at(number).add(BLOCK_STATUS).as_ptr().cast()) }
    }

    #[inline]
    fn is_ready(&self) -> bool {
        owner::is_filled(self.status())
    }

    /// Gives the current block back to the kernel and moves on to the next.
    #[inline]
    fn give_back(&mut self) {
        owner::give_back(self.status());
        self.given_back += 1;
        self.current += 1;
        if self.current == self.request.blocks {
            self.current = 0;
        }
    }

    /// Watches the current block for as long as was asked for, and no longer than `timeout`.
    fn spin(&self, timeout: Duration) -> bool {
        if self.config.busy_poll.is_zero() {
            return false;
        }
        let start = Instant::now();
        let time = self.config.busy_poll.min(timeout);
        while start.elapsed() < time {
            for _ in 0..64 {
                if self.is_ready() {
                    return true;
                }
                hint::spin_loop();
            }
        }
        false
    }

    /// Sleeps until the kernel has something to say.
    fn poll(&self, timeout: Option<Duration>) -> Result<Polled> {
        let mut fds = [PollFd::new(&*self.socket, PollFlags::IN)];
        let timeout = timeout.map(sys::timespec);
        match event::poll(&mut fds, timeout.as_ref()) {
            Ok(0) => Ok(Polled::Nothing),
            Ok(_) if fds[0].revents().contains(PollFlags::ERR) => Ok(Polled::Error),
            Ok(_) => Ok(Polled::Readable),
            Err(Errno::INTR) => Ok(Polled::Interrupted),
            Err(errno) => {
                let action = format!("wait for frames of interface {}", self.config.name);
                Err(Error::system(action, errno.into()))
            }
        }
    }

    /// Finds out what the socket's error is about.
    fn note_error(&mut self) -> Result<()> {
        let Some(error) = self.socket.take_error() else { return Ok(()) };
        if error.raw_os_error() != Some(libc::ENETDOWN) {
            let action = format!("receive from interface {}", self.config.name);
            return Err(Error::system(action, error));
        }
        let cause = if self.socket.lost_interface() { Cause::Gone } else { Cause::Down };
        // After a stop only the removal of the interface is reported.
        if cause == Cause::Gone || self.ending.is_none() {
            self.ending = Some(self.ending_now(cause));
        }
        Ok(())
    }

    /// Says that no more frames come.
    fn end(&mut self, cause: Cause) -> Result<bool> {
        let name = self.config.name.clone();
        match cause {
            Cause::Stopped => Ok(false),
            Cause::Gone => Err(Error::InterfaceGone(name)),
            Cause::Down => {
                self.ending = None;
                // Both end with ENETDOWN, and a removal goes through a going down.
                if self.socket.lost_interface() {
                    self.ending = Some(Ending { cause: Cause::Gone, drained_at: Instant::now() });
                    return Err(Error::InterfaceGone(name));
                }
                self.is_down = true;
                Err(Error::InterfaceDown(name))
            }
        }
    }

    /// An ending whose last block comes when the retire timer has fired on it. The timer looks
    /// twice before it closes a block, and may be late.
    fn ending_now(&self, cause: Cause) -> Ending {
        let late = Duration::from_millis(20) + self.config.retire / 4;
        Ending { cause, drained_at: Instant::now() + 2 * self.config.retire + late }
    }
}

impl crate::Ring for Ring {
    type Batch<'r> = Batch<'r>;
    type Statistics = Statistics;

    fn wait(&mut self, timeout: Duration) -> Result<bool> {
        if self.ready() {
            self.is_down = false;
            return Ok(true);
        }
        let deadline = Instant::now().checked_add(timeout);
        if self.spin(timeout) {
            return Ok(true);
        }
        loop {
            let now = Instant::now();
            if let Some(ending) = self.ending.filter(|ending| ending.drained_at <= now) {
                // The last block may have come since it was looked for.
                return if self.is_ready() { Ok(true) } else { self.end(ending.cause) };
            }
            if self.is_down && self.ending.is_none() && self.socket.lost_interface() {
                self.ending = Some(Ending { cause: Cause::Gone, drained_at: now });
                continue;
            }
            let removal = self.is_down.then(|| now + REMOVAL_POLL_INTERVAL);
            let until = [deadline, self.ending.map(|ending| ending.drained_at), removal];
            let until = until.into_iter().flatten().min();
            match self.poll(until.map(|until| until.saturating_duration_since(now)))? {
                Polled::Interrupted => return Ok(self.is_ready()),
                Polled::Readable if self.is_ready() => return Ok(true),
                // A block of ours, not given back yet, can look ready to the kernel.
                Polled::Readable | Polled::Nothing => {}
                Polled::Error => self.note_error()?,
            }
            if self.is_ready() {
                return Ok(true);
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Ok(false);
            }
        }
    }

    #[inline]
    fn ready(&mut self) -> bool {
        self.release();
        self.is_ready()
    }

    #[inline]
    fn is_empty(&mut self) -> bool {
        match &self.suspended {
            Some(walk) if walk.remaining() > 0 => false,
            Some(_) => {
                let next =
                    if self.current + 1 == self.request.blocks { 0 } else { self.current + 1 };
                !owner::is_filled(self.status_of(next))
            }
            None => !self.is_ready(),
        }
    }

    #[inline]
    fn next_batch(&mut self) -> Option<Batch<'_>> {
        if !self.ready() {
            return None;
        }
        if let Some(walk) = self.suspended.take() {
            return Some(self.resume(walk));
        }
        let block = self.block();
        let len = self.request.block_size as usize;
        // SAFETY: the block is `len` bytes inside the mapping, and ours until its status word says
        // otherwise, which only dropping the batch does.
        let bytes = unsafe { slice::from_raw_parts(block.as_ptr(), len) };
        let Config { virtio, cooked, .. } = self.config;
        let lend = FrameOptions { snaplen: self.config.gate.snaplen, virtio, cooked };
        let walk = BlockFrames::new(bytes, lend);
        let seconds = BlockHeader::read_from_prefix(bytes).map_or(0, |(head, _)| head.last_seconds);
        if seconds.wrapping_sub(self.counters_read) >= READ_COUNTERS_EVERY {
            self.counters.read();
            self.counters_read = seconds;
        }
        Some(Batch { ring: self, block, len, walk })
    }

    /// Gives the block of a suspended batch back if all its frames have been lent.
    #[inline]
    fn release(&mut self) {
        if let Some(walk) = self.suspended.take_if(|walk| walk.remaining() == 0) {
            drop(self.resume(walk));
        }
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.as_fd()]
    }

    /// [`Ring::wait`](crate::Ring::wait) goes on to hand over what came before, and then returns `false` at once.
    fn stop(&mut self) -> Result<()> {
        SocketFilter::shut(&self.socket)?;
        if self.ending.is_none_or(|ending| ending.cause == Cause::Down) {
            self.ending = Some(self.ending_now(Cause::Stopped));
        }
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics> {
        Ok(self.counters.read())
    }

    /// It reads on after the ring is gone.
    fn statistics_reader(&self) -> Result<crate::StatisticsReader<Statistics>> {
        let counters = self.counters.clone();
        Ok(crate::StatisticsReader::new(move || Ok(counters.read())))
    }

    /// The share of the blocks that the kernel has filled and the reader has not given back.
    fn fill_level(&mut self) -> f32 {
        let blocks = self.request.blocks;
        let is_filled = |ahead: u32| {
            let number = (u64::from(self.current) + u64::from(ahead)) % u64::from(blocks);
            owner::is_filled(self.status_of(number as u32))
        };
        // The kernel fills blocks in turn, so those that it has filled follow the current one without a gap.
        let (mut filled, mut end) = (0, blocks);
        while filled < end {
            let middle = filled + (end - filled) / 2;
            if is_filled(middle) { filled = middle + 1 } else { end = middle }
        }
        filled as f32 / blocks as f32
    }
}

impl AsFd for Ring {
    /// For `poll` and `epoll`: readable when a batch is ready. Only [`Ring::wait`](crate::Ring::wait) tells what an
    /// error on it means.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Readers of the statistics get the final counts.
        self.counters.read();
    }
}

enum Polled {
    Readable,
    Nothing,
    Interrupted,
    Error,
}

/// One block of frames. The kernel gets it back when the batch is dropped.
#[derive(Debug)]
pub struct Batch<'r> {
    ring: &'r mut Ring,
    block: NonNull<u8>,
    len: usize,
    walk: BlockFrames,
}

impl crate::Batch for Batch<'_> {
    #[inline]
    fn next(&mut self) -> Option<Frame<'_>> {
        // SAFETY: the block is ours until the batch is dropped, and `&mut self` lets one frame of
        // it be borrowed at a time.
        let block = unsafe { slice::from_raw_parts_mut(self.block.as_ptr(), self.len) };
        self.walk.next(block)
    }

    #[inline]
    fn suspend(self) {
        // Not dropped: the block is not given back.
        let mut batch = ManuallyDrop::new(self);
        let walk = batch.walk.clone();
        batch.ring.suspended = Some(walk);
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.ring.counters.add(&self.walk);
        if self.walk.frames_returned() > 0 {
            let hardware = self.walk.has_hardware_stamp();
            self.ring.clock =
                Some(if hardware { TimestampClock::Hardware } else { TimestampClock::Software });
        }
        self.ring.give_back();
    }
}
