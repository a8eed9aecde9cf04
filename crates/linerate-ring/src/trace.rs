//! [`Trace`]: frames that tracing programs copy to a ring buffer, with what happened to them
//! ([`Frame::trace`](crate::Frame::trace)).
//!
//! [`Options::xdp`] traces the XDP program that an interface has: frames as they came, as they left, and the
//! verdict. [`Options::drops`] traces what the kernel drops, with the reason and the code that dropped it. Neither
//! changes what happens to a frame. Any number of traces can run beside each other.
//!
//! ```no_run
//! # fn main() -> linerate_ring::Result<()> {
//! use std::time::Duration;
//! use linerate_ring::trace::{Options, Points};
//! use linerate_ring::{Batch, Ring};
//!
//! let mut trace = Options::default().xdp("eth0", Points::Both)?;
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
use linerate_bpf::trace::{self, DropOptions, Program};
use linerate_bpf::xdp::AttachedProgram;
use linerate_net::Interface;

use crate::ringbuf::{self, DEFAULT_BUFFER, Mapped, Programs, Reader, ReaderState};
use crate::tee::MAX_SNAPLEN;
use crate::wait::WaitStrategy;
use crate::{Result, StatisticsReader};

/// Frames in a batch at most.
const BATCH: u32 = 256;
/// How often to look whether the traced program is still attached.
const TARGET_INTERVAL: Duration = Duration::from_millis(200);

/// Tracing programs and the frames that they copied.
pub type Trace = Reader<TracePrograms>;

/// The programs of a [`Trace`].
#[derive(Debug)]
pub struct TracePrograms {
    program: Program,
    checked_at: Instant,
    change: Option<TargetChange>,
}

impl Programs for TracePrograms {
    type Statistics = Statistics;

    fn prepare_wait(&mut self) -> Result<()> {
        if self.change.is_none() && self.checked_at.elapsed() >= TARGET_INTERVAL {
            self.checked_at = Instant::now();
            self.change = self.program.update_target()?;
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        Ok(self.program.synchronize()?)
    }

    fn statistics(&self, _received: u64, _disordered: u64) -> Result<Statistics> {
        Ok(self.program.statistics_reader().read()?)
    }

    /// It reads those of the XDP program that is traced now.
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
pub struct Options<'a> {
    /// Bytes of the ring buffer, rounded up to a power of two.
    pub buffer: usize,
    /// Bytes to copy of each frame at most, up to [`MAX_SNAPLEN`].
    pub snaplen: u32,
    /// Frames that this filter rejects are not copied; `None` copies all. At the exit of an XDP program it sees the
    /// frame as it leaves.
    pub filter: Option<&'a MemoryFilter>,
    /// Whether the kernel stamps each frame.
    pub timestamps: bool,
    /// Drops a second that are copied at most; the others are counted. `None` is no limit.
    pub rate_limit: Option<u32>,
    /// How the trace waits.
    pub wait_strategy: WaitStrategy,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            buffer: DEFAULT_BUFFER,
            snaplen: MAX_SNAPLEN,
            filter: None,
            timestamps: true,
            rate_limit: None,
            wait_strategy: WaitStrategy::default(),
        }
    }
}

impl Options<'_> {
    /// Traces the XDP program of an interface, at these points.
    ///
    /// # Errors
    /// [`Error::NoInterface`](crate::Error::NoInterface); [`Error::Invalid`](crate::Error::Invalid) when the interface
    /// has no XDP program, or one without BTF; [`Error::Privilege`](crate::Error::Privilege);
    /// [`Error::Bpf`](crate::Error::Bpf) when the kernel rejects the filter; [`Error::System`](crate::Error::System).
    pub fn xdp(self, interface: &str, points: Points) -> Result<Trace> {
        let interface = Interface::open(interface)?;
        let program = Program::xdp(&interface, points, &self.program())?;
        self.open(program, Some(interface))
    }

    /// Traces what the kernel drops: of an interface, or of all in this network namespace.
    ///
    /// # Errors
    /// As [`Options::xdp`]; [`Error::Invalid`](crate::Error::Invalid) on a kernel without the tracepoint.
    pub fn drops(self, interface: Option<&str>) -> Result<Trace> {
        let interface = interface.map(Interface::open).transpose()?;
        let drops = DropOptions { interface: interface.as_ref(), rate_limit: self.rate_limit };
        let program = Program::drops(drops, &self.program())?;
        self.open(program, interface)
    }

    fn program(&self) -> trace::Options<'_> {
        let &Self { buffer, snaplen, filter, timestamps, .. } = self;
        trace::Options { buffer, snaplen, filter, timestamps }
    }

    fn open(self, program: Program, interface: Option<Interface>) -> Result<Trace> {
        let state = Arc::new(ReaderState::map(program.consumer_state_map())?);
        let options = ringbuf::Options {
            wait_strategy: self.wait_strategy,
            batch: BATCH,
            in_order: self.timestamps,
        };
        let mapped = Mapped::new(program.ring_buffers(), 0, program.ring_size())?;
        let was_up = interface.as_ref().is_some_and(|one| one.is_up().unwrap_or(false));
        let programs = TracePrograms { program, checked_at: Instant::now(), change: None };
        Ok(Trace::new(mapped, state, options, (interface, was_up), programs))
    }
}
