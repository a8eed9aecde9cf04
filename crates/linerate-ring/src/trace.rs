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
//! use linerate_ring::{Batch, Ring};
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

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use linerate_bpf::trace::{Points, Statistics, TargetChange, drop_reasons};

use linerate_bpf::filter::MemoryFilter;
use linerate_bpf::trace::{DropOptions, Options, Program};
use linerate_bpf::xdp::AttachedProgram;
use linerate_net::Interface;

use crate::ringbuf::{self, DEFAULT_BUFFER, Mapped, Programs, Reader, ReaderState};
use crate::tee::MAX_SNAPLEN;
use crate::wait::WaitStrategy;
use crate::{Result, StatisticsReader};

/// How often to look whether the traced program is still attached.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// Tracing programs and the frames that they copied.
pub type Trace = Reader<TracePrograms>;

/// The programs of a [`Trace`].
#[derive(Debug)]
pub struct TracePrograms {
    program: Program,
    followed_at: Instant,
    change: Option<TargetChange>,
}

impl Programs for TracePrograms {
    type Statistics = Statistics;

    fn follow(&mut self) -> Result<()> {
        if self.change.is_none() && self.followed_at.elapsed() >= FOLLOW_INTERVAL {
            self.followed_at = Instant::now();
            self.change =
                Some(self.program.follow()?).filter(|found| *found != TargetChange::Unchanged);
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        Ok(self.program.synchronize()?)
    }

    fn statistics(&self, _received: u64, _disordered: u64) -> Result<Statistics> {
        Ok(self.program.statistics_reader().read()?)
    }

    /// It does not follow to another XDP program.
    fn statistics_reader(&self) -> Result<StatisticsReader<Statistics>> {
        let counters = self.program.statistics_reader().try_clone()?;
        Ok(StatisticsReader::new(move || Ok(counters.read()?)))
    }
}

impl Trace {
    /// What became of the traced XDP program since the last call, where that changed.
    pub fn take_change(&mut self) -> Option<TargetChange> {
        self.programs.change.take()
    }

    /// The XDP program that is traced: now, or until it was detached. `None` for drops.
    pub fn target(&self) -> Option<&AttachedProgram> {
        self.programs.program.target()
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

    /// How the trace waits.
    pub fn wait_strategy(mut self, strategy: WaitStrategy) -> Self {
        self.wait_strategy = strategy;
        self
    }

    /// Traces the XDP program of an interface, at these points.
    ///
    /// # Errors
    /// [`Error::NoInterface`](crate::Error::NoInterface); [`Error::Invalid`](crate::Error::Invalid) when the interface
    /// has no XDP program, or one without BTF; [`Error::Privilege`](crate::Error::Privilege);
    /// [`Error::Bpf`](crate::Error::Bpf) when the kernel rejects the filter; [`Error::System`](crate::Error::System).
    pub fn xdp(self, interface: &str, points: Points) -> Result<Trace> {
        let interface = Interface::open(interface)?;
        let program = Program::xdp(&interface, points, &self.options)?;
        self.open(program, Some(interface))
    }

    /// Traces what the kernel drops: of an interface, or of all in this network namespace.
    ///
    /// # Errors
    /// As [`Builder::xdp`]; [`Error::Invalid`](crate::Error::Invalid) on a kernel without the tracepoint.
    pub fn drops(self, interface: Option<&str>) -> Result<Trace> {
        let interface = interface.map(Interface::open).transpose()?;
        let drops = DropOptions { interface: interface.as_ref(), rate_limit: self.rate_limit };
        let program = Program::drops(drops, &self.options)?;
        self.open(program, interface)
    }

    fn open(self, program: Program, interface: Option<Interface>) -> Result<Trace> {
        let state = Arc::new(ReaderState::map(program.consumer_state_map())?);
        let options = ringbuf::Options {
            wait_strategy: self.wait_strategy,
            batch: self.batch,
            in_order: self.options.timestamps,
        };
        let mapped = Mapped::new(program.ring_buffers(), 0, program.ring_size())?;
        let was_up = interface.as_ref().is_some_and(|one| one.is_up().unwrap_or(false));
        let programs = TracePrograms { program, followed_at: Instant::now(), change: None };
        Ok(Trace::new(mapped, state, options, (interface, was_up), programs))
    }
}
