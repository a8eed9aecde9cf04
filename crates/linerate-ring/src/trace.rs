//! [`Trace`]: frames that tracing programs copy to a ring buffer, with what happened to them
//! ([`Frame::trace`](crate::Frame::trace)).
//!
//! [`Builder::xdp`] traces the XDP program that an interface has: frames as they came, as they left, and the
//! verdict. [`Builder::drops`] traces what the kernel drops, with the reason and the code that dropped it. Neither
//! changes what happens to a frame. Any number of traces can run beside each other.
//!
//! ```no_run
//! # fn main() -> linerate_ring::Result<()> {
//! use std::time::Duration;
//! use linerate_ring::trace::{Builder, Points};
//!
//! let mut trace = Builder::default().xdp("eth0", Points::Both)?;
//! while trace.wait(Duration::from_secs(1))? {
//!     while let Some(mut batch) = trace.next_batch() {
//!         while let Some(frame) = batch.next() {
//!             println!("{} bytes: {:?}", frame.wire_len, frame.trace);
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use linerate_bpf::trace::{Points, Statistics, StatisticsReader, TargetChange, drop_reasons};

use linerate_bpf::filter::MemoryFilter;
use linerate_bpf::trace::{DropOptions, Options, Program};
use linerate_bpf::xdp::AttachedProgram;
use linerate_net::Interface;

use crate::tee::{Batch, DEFAULT_BUFFER, GroupOptions, MAX_SNAPLEN, ReaderState, RingGroup};
use crate::xdp::WaitStrategy;
use crate::{Error, Result};

/// How often to look whether the traced program is still attached.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// Tracing programs and the frames that they copied.
///
/// Nothing is left attached when it is dropped, nor when the process dies.
#[derive(Debug)]
pub struct Trace {
    group: RingGroup,
    program: Program,
    /// `None` where all interfaces of the network namespace are traced.
    interface: Option<Interface>,
    was_up: bool,
    followed_at: Instant,
    change: Option<TargetChange>,
    stopped: bool,
}

impl Trace {
    /// Waits until a frame can be read: true. False when `timeout` is over or a signal came, and at once when
    /// nothing is left after [`Trace::stop`].
    ///
    /// # Errors
    /// [`Error::InterfaceDown`], once each time that it goes down. [`Error::InterfaceGone`]. [`Error::Invalid`] when
    /// another XDP program that cannot be traced took the place of the traced one. [`Error::System`].
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        if self.stopped {
            return Ok(self.group.ready());
        }
        if self.change.is_none() && self.followed_at.elapsed() >= FOLLOW_INTERVAL {
            self.followed_at = Instant::now();
            self.change =
                Some(self.program.follow()?).filter(|found| *found != TargetChange::Unchanged);
        }
        let from = self.interface.as_ref().map_or("all interfaces", Interface::name);
        if self.group.wait(from, timeout)? {
            return Ok(true);
        }
        self.check_up()?;
        Ok(self.group.ready())
    }

    /// What became of the traced XDP program since the last call, where that changed.
    pub fn take_change(&mut self) -> Option<TargetChange> {
        self.change.take()
    }

    /// Whether a frame can be read.
    #[inline]
    pub fn ready(&mut self) -> bool {
        self.group.has_frame()
    }

    /// Gives the space of everything lent back to the kernel; see [`Batch::suspend`].
    #[inline]
    pub fn release(&mut self) {
        self.group.release();
    }

    /// As [`Tee::announce_sleep`](crate::tee::Tee::announce_sleep).
    pub fn announce_sleep(&self) {
        self.group.announce_sleep();
    }

    /// As [`Tee::cancel_sleep`](crate::tee::Tee::cancel_sleep).
    pub fn cancel_sleep(&self) {
        self.group.cancel_sleep();
    }

    /// As [`Tee::next_batch`](crate::tee::Tee::next_batch).
    #[inline]
    pub fn next_batch(&mut self) -> Option<Batch<'_>> {
        self.group.next_batch()
    }

    /// Lets no further frame in. When it returns, all that was copied is in the ring buffer for [`Trace::next_batch`] to
    /// give, and the counts but for [`Statistics::late`] are final. Takes some tens of milliseconds.
    ///
    /// # Errors
    /// [`Error::Privilege`], [`Error::System`]: the last frames may then still be on their way.
    pub fn stop(&mut self) -> Result<()> {
        if self.stopped {
            return Ok(());
        }
        self.group.stop();
        self.program.synchronize()?;
        self.stopped = true;
        Ok(())
    }

    /// What the programs have counted, over all CPUs.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn statistics(&self) -> Result<Statistics> {
        Ok(self.program.statistics_reader().read()?)
    }

    /// A handle that reads the counts while frames are lent, and from other threads. It does not follow to another
    /// XDP program.
    ///
    /// # Errors
    /// [`Error::System`] when there is no descriptor left.
    pub fn statistics_reader(&self) -> Result<StatisticsReader> {
        Ok(self.program.statistics_reader().try_clone()?)
    }

    /// The XDP program that is traced: now, or until it was detached. `None` for drops.
    pub fn target(&self) -> Option<&AttachedProgram> {
        self.program.target()
    }

    /// The share of the ring buffer that waits to be read, 0 to 1.
    pub fn fill_level(&self) -> f32 {
        self.group.fill_level()
    }

    /// The descriptors of the ring buffers: readable while records are in them that were not given back.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.program.ring_buffers()
    }

    fn check_up(&mut self) -> Result<()> {
        let Some(interface) = &self.interface else { return Ok(()) };
        let up = interface.is_up()?;
        let went_down = self.was_up && !up;
        self.was_up = up;
        if went_down { Err(Error::InterfaceDown(interface.name().to_owned())) } else { Ok(()) }
    }
}

/// How to trace.
#[derive(Clone, Copy, Debug)]
#[must_use = "a builder does nothing until one of its traces is opened"]
pub struct Builder<'a> {
    options: Options<'a>,
    rate_limit: Option<u32>,
    wait_strategy: WaitStrategy,
    batch: u32,
}

impl Default for Builder<'_> {
    fn default() -> Self {
        Self {
            options: Options {
                buffer: DEFAULT_BUFFER,
                snaplen: MAX_SNAPLEN,
                filter: None,
                timestamps: true,
            },
            rate_limit: None,
            wait_strategy: WaitStrategy::default(),
            batch: 256,
        }
    }
}

impl<'a> Builder<'a> {
    /// Bytes of the ring buffer, rounded up to a power of two (default: [`DEFAULT_BUFFER`]).
    pub fn buffer_size(mut self, bytes: usize) -> Self {
        self.options.buffer = bytes;
        self
    }

    /// Bytes to copy of each frame at most (default: all, up to [`MAX_SNAPLEN`]).
    pub fn snaplen(mut self, bytes: u32) -> Self {
        self.options.snaplen = bytes;
        self
    }

    /// Frames that this filter rejects are not copied; `None` copies all. At the exit of an XDP program it sees the
    /// frame as it leaves.
    pub fn filter(mut self, filter: Option<&'a MemoryFilter>) -> Self {
        self.options.filter = filter;
        self
    }

    /// Whether the kernel stamps each frame (default: it does).
    pub fn timestamps(mut self, on: bool) -> Self {
        self.options.timestamps = on;
        self
    }

    /// Drops a second that are copied at most; the others are counted. Default: no limit.
    pub fn rate_limit(mut self, packets: Option<u32>) -> Self {
        self.rate_limit = packets;
        self
    }

    /// How [`Trace::wait`] waits.
    pub fn wait_strategy(mut self, strategy: WaitStrategy) -> Self {
        self.wait_strategy = strategy;
        self
    }

    /// Traces the XDP program of an interface, at these points.
    ///
    /// # Errors
    /// [`Error::NoInterface`]; [`Error::Invalid`] when the interface has no XDP program, or one without BTF;
    /// [`Error::Privilege`]; [`Error::Bpf`] when the kernel rejects the filter; [`Error::System`].
    pub fn xdp(self, interface: &str, points: Points) -> Result<Trace> {
        let interface = Interface::open(interface)?;
        let program = Program::xdp(&interface, points, &self.options)?;
        self.open(program, Some(interface))
    }

    /// Traces what the kernel drops: of an interface, or of all in this network namespace.
    ///
    /// # Errors
    /// As [`Builder::xdp`]; [`Error::Invalid`] on a kernel without the tracepoint.
    pub fn drops(self, interface: Option<&str>) -> Result<Trace> {
        let interface = interface.map(Interface::open).transpose()?;
        let drops = DropOptions { interface: interface.as_ref(), rate_limit: self.rate_limit };
        let program = Program::drops(drops, &self.options)?;
        self.open(program, interface)
    }

    fn open(self, program: Program, interface: Option<Interface>) -> Result<Trace> {
        let state = Arc::new(ReaderState::map(program.consumer_state_map())?);
        let options = GroupOptions {
            wait_strategy: self.wait_strategy,
            batch: self.batch,
            in_order: self.options.timestamps,
        };
        let group = RingGroup::map(program.ring_buffers(), 0, program.ring_size(), state, options)?;
        Ok(Trace {
            group,
            program,
            was_up: interface.as_ref().is_some_and(|one| one.is_up().unwrap_or(false)),
            interface,
            followed_at: Instant::now(),
            change: None,
            stopped: false,
        })
    }
}
