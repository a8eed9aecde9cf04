//! [`Tee`]: capture while the traffic still reaches the stack.
//!
//! An XDP program copies the frames that a filter accepts into a BPF ring buffer and lets every frame go on.
//! Up to eight captures, of any processes, share an interface, each with its own filter and buffer: the first
//! attaches a root program, which calls the programs of all captures in turn.
//!
//! With [`Builder::take`] the accepted frames end there, and the interface is not shared. Where a driver has
//! no zero-copy AF_XDP this is the fastest way to capture traffic that nothing else uses: records are
//! consecutive and as long as their frames, so the kernel writes memory in order, while the chunks of a UMEM
//! of the same depth miss the cache one by one.
//!
//! ```no_run
//! # fn main() -> linerate_ring::Result<()> {
//! use std::time::Duration;
//!
//! let mut tee = linerate_ring::tee::Tee::builder("eth0").snaplen(128).build()?;
//! while tee.wait(Duration::from_secs(1))? {
//!     while let Some(mut batch) = tee.next_batch() {
//!         while let Some(frame) = batch.next() {
//!             println!("{} of {} bytes", frame.len(), frame.wire_len);
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod batch;
mod buffer;
mod records;

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

pub use batch::Batch;
pub use linerate_bpf::tee::MAX_SNAPLEN;

use linerate_bpf::LoadedProgram;
use linerate_bpf::filter::Instruction;
use linerate_bpf::tee::{self, Options, Program};
use linerate_bpf::xdp::AttachMode;
use linerate_net::Interface;

use crate::xdp::WaitStrategy;
use crate::{Error, Result};
pub(crate) use buffer::RingBuffer;
use records::Reader;

/// Default size of the ring buffer in bytes: 600,000 frames of 64 bytes.
pub const DEFAULT_BUFFER: usize = 64 << 20;

/// Counts since the tee was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Frames lent by batches.
    pub received: u64,
    /// Frames copied to the ring buffer.
    pub captured: u64,
    /// Frames that the filter refused.
    pub unmatched: u64,
    /// Frames that the filter accepted but the full ring buffer had no room for: the reader was too
    /// slow for it.
    pub full: u64,
    /// Frames whose bytes could not be copied; a defect when not 0.
    pub faults: u64,
    /// Frames that came after [`Tee::stop`] and went on without being looked at.
    pub late: u64,
}

impl Statistics {
    fn new(received: u64, program: tee::Statistics) -> Self {
        let tee::Statistics { captured, unmatched, full, faults, late } = program;
        Self { received, captured, unmatched, full, faults, late }
    }

    /// Frames that were accepted and did not reach the ring buffer.
    pub fn lost(&self) -> u64 {
        self.full + self.faults
    }
}

/// A capture beside the stack, on all receive queues of an interface.
///
/// Nothing is left attached when it is dropped, nor when the process dies.
#[derive(Debug)]
pub struct Tee {
    program: Program,
    buffer: RingBuffer,
    interface: Interface,
    was_up: bool,
    stopped: bool,
}

impl Tee {
    /// A tee on what `interface` receives.
    pub fn builder(interface: &str) -> Builder<'static> {
        Builder {
            interface: interface.to_owned(),
            options: Options {
                buffer: DEFAULT_BUFFER,
                snaplen: MAX_SNAPLEN,
                filter: None,
                timestamps: true,
                mode: None,
                take: false,
                passing: false,
            },
            wait_strategy: WaitStrategy::default(),
            batch: 256,
        }
    }

    /// Waits until a frame can be read: true. False when `timeout` is over or a signal came, and at
    /// once when nothing is left after [`Tee::stop`].
    ///
    /// # Errors
    /// [`Error::InterfaceDown`], once each time that it goes down. [`Error::InterfaceGone`],
    /// [`Error::System`].
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        if self.stopped {
            return Ok(self.buffer.ready());
        }
        if self.buffer.wait(self.program.ring_buffer(), self.interface.name(), timeout)? {
            return Ok(true);
        }
        self.check()?;
        Ok(self.buffer.ready())
    }

    /// Whether the interface still exists and is up: for a reader that waits by itself and gets nothing.
    ///
    /// # Errors
    /// [`Error::InterfaceDown`], once each time that it goes down, and [`Error::InterfaceGone`]; but not while
    /// there are frames to read, which came before the trouble. [`Error::System`].
    pub fn check(&mut self) -> Result<()> {
        let Err(error) = self.check_up() else { return Ok(()) };
        if !self.buffer.ready() {
            return Err(error);
        }
        // The next call finds the trouble again.
        self.was_up = true;
        Ok(())
    }

    /// Whether a frame can be read.
    #[inline]
    pub fn ready(&mut self) -> bool {
        self.buffer.has_frame()
    }

    /// Returns the space of everything lent to the kernel; see [`Batch::suspend`].
    #[inline]
    pub fn release(&mut self) {
        self.buffer.release();
    }

    /// To be called before the reader sleeps on the descriptor of [`Tee::as_fd`](AsFd::as_fd) by means of
    /// its own, and before the last look with [`Tee::ready`]: the next frame makes it readable. Without
    /// that the program wakes nobody.
    pub fn announce_sleep(&self) {
        self.buffer.announce_sleep();
    }

    /// Cancels [`Tee::announce_sleep`], which saves the program the wake-up.
    pub fn cancel_sleep(&self) {
        self.buffer.cancel_sleep();
    }

    /// A handle that reads the counts while frames are lent, and from other threads.
    ///
    /// # Errors
    /// [`Error::System`] when there is no descriptor left.
    pub fn statistics_reader(&self) -> Result<StatisticsReader> {
        Ok(StatisticsReader(self.program.statistics_reader()?))
    }

    /// The frames that have come, up to the size of a batch; `None` when there are none. The space
    /// of those that were read goes back to the kernel when the batch is dropped; those that were
    /// not are in the next batch.
    #[inline]
    pub fn next_batch(&mut self) -> Option<Batch<'_>> {
        self.buffer.next_batch()
    }

    /// Lets no further frame in. When it returns, all that was copied is in the ring buffer for
    /// [`Tee::next_batch`] to give, and the counts but for [`Statistics::late`] are final. Frames that
    /// come from now on go on to the stack, also with [`Builder::take`]. Takes some tens of
    /// milliseconds.
    ///
    /// # Errors
    /// [`Error::Privilege`], [`Error::System`]: the last frames may then still be on their way.
    pub fn stop(&mut self) -> Result<()> {
        if self.stopped {
            return Ok(());
        }
        self.buffer.stop();
        self.program.synchronize()?;
        self.stopped = true;
        Ok(())
    }

    /// Replaces the filter while the capture runs, between two frames: no frame meets a mixture. `None`
    /// accepts all. When it returns, what the old filter accepted is in the ring buffer, and nothing that it
    /// accepts comes any more; that takes some tens of milliseconds.
    ///
    /// # Errors
    /// [`Error::Bpf`] when the kernel refuses the filter; the old filter then stays in force.
    pub fn set_filter(&mut self, filter: Option<&[Instruction]>) -> Result<()> {
        Ok(self.program.set_filter(&self.interface, filter)?)
    }

    /// Loads the program with another filter, for [`Tee::replace_filter`].
    ///
    /// # Errors
    /// [`Error::Bpf`] when the kernel refuses the filter.
    pub fn load_filter(&self, filter: Option<&[Instruction]>) -> Result<LoadedProgram> {
        Ok(self.program.load_filter(filter)?)
    }

    /// As [`Tee::set_filter`], without a privilege.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn replace_filter(&mut self, loaded: &LoadedProgram) -> Result<()> {
        Ok(self.program.replace_filter(&self.interface, loaded)?)
    }

    /// With [`Builder::take`]: whether the frames that the filter accepts reach the stack, too.
    pub fn set_passing(&self, passing: bool) {
        self.buffer.set_passing(passing);
    }

    /// Counts of the program, over all CPUs, and of this reader.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn statistics(&self) -> Result<Statistics> {
        Ok(Statistics::new(self.buffer.received(), self.program.statistics()?))
    }

    /// Where the program runs that is attached to the interface.
    pub fn mode(&self) -> AttachMode {
        self.program.mode()
    }

    /// Why it runs in the stack and not in the driver, where it does and this process attached it.
    pub fn generic_reason(&self) -> Option<&str> {
        self.program.generic_reason()
    }

    /// What lets the program pass frames on that it takes.
    ///
    /// # Errors
    /// [`Error::System`] when there is no memory for a mapping.
    pub fn passer(&self) -> Result<Passer> {
        Ok(Passer(Reader::map(self.program.consumer_state_map())?))
    }

    /// The slot of this capture on the interface; `None` when it takes the frames and so has the interface
    /// for itself.
    pub fn slot(&self) -> Option<u32> {
        self.program.slot()
    }

    /// Bytes of the ring buffer.
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Bytes of the ring buffer that wait to be read.
    pub fn pending(&self) -> usize {
        self.buffer.pending()
    }

    fn check_up(&mut self) -> Result<()> {
        let up = self.interface.is_up()?;
        let went_down = self.was_up && !up;
        self.was_up = up;
        if went_down { Err(Error::InterfaceDown(self.interface.name().to_owned())) } else { Ok(()) }
    }
}

/// Lets a tee that takes frames pass them on, from any thread; made by [`Tee::passer`].
#[derive(Debug)]
pub struct Passer(Reader);

impl Passer {
    /// From now on the frames that the filter accepts reach the stack, too. They are still copied: the capture
    /// loses none. It cannot be taken back.
    pub fn pass(&self) {
        self.0.set_passing(true);
    }
}

impl AsFd for Tee {
    /// Readable while records are in the ring buffer that were not given back.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.program.ring_buffer()
    }
}

/// Reads the counts of a tee's program; made by [`Tee::statistics_reader`].
#[derive(Debug)]
pub struct StatisticsReader(tee::StatisticsReader);

impl StatisticsReader {
    /// The counts, over all CPUs; [`Statistics::received`] is the reader's own and 0 here.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn read(&self) -> Result<Statistics> {
        Ok(Statistics::new(0, self.0.read()?))
    }
}

/// The options of a tee; made by [`Tee::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder<'a> {
    interface: String,
    options: Options<'a>,
    wait_strategy: WaitStrategy,
    batch: u32,
}

impl<'a> Builder<'a> {
    /// Bytes of the ring buffer, rounded up to a power of two (default: [`DEFAULT_BUFFER`]). It is
    /// memory of the kernel, in small pages.
    pub fn buffer_size(mut self, bytes: usize) -> Self {
        self.options.buffer = bytes;
        self
    }

    /// Bytes to copy of each frame at most (default: all, up to [`MAX_SNAPLEN`]).
    pub fn snaplen(mut self, bytes: u32) -> Self {
        self.options.snaplen = bytes;
        self
    }

    /// Frames refused by this subprogram are not copied; `None` copies all.
    pub fn filter<'b>(self, filter: Option<&'b [Instruction]>) -> Builder<'b>
    where
        'a: 'b,
    {
        Builder { options: Options { filter, ..self.options }, ..self }
    }

    /// Whether the kernel stamps each frame (default: it does).
    pub fn timestamps(mut self, on: bool) -> Self {
        self.options.timestamps = on;
        self
    }

    /// How [`Tee::wait`] waits.
    pub fn wait_strategy(mut self, strategy: WaitStrategy) -> Self {
        self.wait_strategy = strategy;
        self
    }

    /// Frames in a batch at most (default: 256).
    pub fn batch(mut self, frames: u32) -> Self {
        self.batch = frames.max(1);
        self
    }

    /// Native or generic only, for the first capture on the interface; the others join it.
    pub fn mode(mut self, mode: Option<AttachMode>) -> Self {
        self.options.mode = mode;
        self
    }

    /// Whether the frames that the filter accepts end here, also those that the full buffer had no
    /// room for. The stack then sees only the others, and no other capture shares the interface.
    /// Default: off.
    pub fn take(mut self, take: bool) -> Self {
        self.options.take = take;
        self
    }

    /// Whether the frames that [`Builder::take`] is about reach the stack until [`Tee::set_passing`] (default:
    /// they do not).
    pub fn passing(mut self, passing: bool) -> Self {
        self.options.passing = passing;
        self
    }

    /// Makes the ring buffer, joins or attaches the root program and takes a slot in it, or with
    /// [`Builder::take`] attaches to the interface itself.
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::Privilege`], [`Error::System`]; [`Error::Bpf`] when another XDP
    /// program or eight captures are on the interface, or the kernel refuses the filter.
    pub fn build(self) -> Result<Tee> {
        let interface = Interface::open(&self.interface)?;
        let was_up = interface.is_up()?;
        let program = Program::attach(&interface, &self.options)?;
        let buffer = RingBuffer::map(
            program.ring_buffer(),
            program.ring_size(),
            program.consumer_state_map(),
            self.wait_strategy,
            self.batch,
        )?;
        Ok(Tee { program, buffer, interface, was_up, stopped: false })
    }
}
