//! Tracing programs that copy frames into a BPF ring buffer, and change nothing for anybody: [`Program::xdp`] at
//! the entry and the exit of the XDP program that an interface has, [`Program::drops`] where the kernel drops
//! packets.

mod drops;
mod probe;
mod target;
mod xdp;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

pub use drops::{DropOptions, drop_reasons};
pub use probe::probe;
pub use target::TargetChange;
pub use xdp::Points;

use linerate_net::Interface;
use linerate_net::namespace::Namespace;

use crate::filter::MemoryFilter;
use crate::map::sum_over_cpus;
use crate::program::{LoadOptions, LoadableProgram, TracePoint, log_to_tracing};
use crate::rcu::RcuSynchronizer;
use crate::rings::{RingArray, RingLayout, ring_size};
use crate::sys::{duplicate, owned};
use crate::tee::MAX_SNAPLEN;
use crate::xdp::query::{AttachedProgram, program_info};
use crate::{Error, Result};
use target::Target;

/// Options of a tracing program.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Bytes of the ring buffer, rounded up to a power of two.
    pub buffer: usize,
    /// Bytes to copy of each frame at most.
    pub snaplen: u32,
    /// Frames that this subprogram rejects are not copied; `None` accepts all.
    pub filter: Option<&'a MemoryFilter>,
    /// Whether each frame gets a timestamp of the kernel's clock.
    pub timestamps: bool,
}

/// Frames that the programs have seen, all CPUs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Copied to the ring buffer.
    pub captured: u64,
    /// Rejected by the filter.
    pub unmatched: u64,
    /// Accepted, but the ring buffer was full.
    pub full: u64,
    /// Accepted, but the copy failed.
    pub faults: u64,
    /// Came after the reader's stop.
    pub late: u64,
    /// Accepted, but over the rate limit.
    pub limited: u64,
    /// Of those captured: only the first buffer could be read.
    pub cut: u64,
    /// Of another interface or network namespace.
    pub elsewhere: u64,
    /// Dropped by the kernel, and nothing told in which network namespace.
    pub unknown: u64,
    /// Times that the kernel did not run the program because it ran already on that CPU, interrupted by the
    /// frame. Nobody looked at these frames.
    pub missed: u64,
}

impl Statistics {
    /// Frames that were accepted and did not reach the ring buffer for want of room.
    pub fn lost(&self) -> u64 {
        self.full + self.faults
    }
}

/// The maps and programs that statistics are read from.
#[derive(Debug)]
pub struct StatisticsReader {
    map: OwnedFd,
    programs: Vec<OwnedFd>,
    /// What programs have missed that are detached.
    missed_before: u64,
}

impl StatisticsReader {
    /// What they say now.
    pub fn read(&self) -> Result<Statistics> {
        let counts = sum_over_cpus(self.map.as_fd())?;
        let [captured, unmatched, full, faults, late, limited, cut, elsewhere, unknown] = counts;
        let missed = self.missed_before + self.programs.iter().map(missed).sum::<u64>();
        Ok(Statistics {
            captured,
            unmatched,
            full,
            faults,
            late,
            limited,
            cut,
            elsewhere,
            unknown,
            missed,
        })
    }

    /// A copy that another thread can keep.
    ///
    /// # Errors
    /// [`Error::System`] when the process has no descriptor left.
    pub fn try_clone(&self) -> Result<Self> {
        let programs =
            self.programs.iter().map(|one| duplicate(one.as_fd())).collect::<Result<_>>()?;
        Ok(Self { map: duplicate(self.map.as_fd())?, programs, missed_before: self.missed_before })
    }
}

/// Tracing programs at work. They are detached on drop, and by the kernel when the process dies.
#[derive(Debug)]
pub struct Program {
    /// The links of the programs in `counters.programs`.
    links: Vec<OwnedFd>,
    loadables: Vec<LoadableProgram>,
    counters: StatisticsReader,
    /// What is traced; `None` for drops.
    target: Option<Target>,
    filter: Option<MemoryFilter>,
    rcu: RcuSynchronizer,
    rings: RingArray,
}

impl Program {
    /// The programs of one object, which are not attached yet.
    fn new(
        loadables: Vec<LoadableProgram>,
        options: &Options<'_>,
        rings: RingArray,
        target: Option<Target>,
    ) -> Result<Self> {
        rings.insert(loadables[0].map("rings"))?;
        let map = loadables[0].map("counters");
        let rcu = RcuSynchronizer::new(map)?;
        let map = duplicate(map)?;
        Ok(Self {
            links: Vec::new(),
            loadables,
            counters: StatisticsReader { map, programs: Vec::new(), missed_before: 0 },
            target,
            filter: options.filter.cloned(),
            rcu,
            rings,
        })
    }

    /// Loads the programs for these points, one for each, and attaches them.
    fn attach(&mut self, points: &[TracePoint<'_>]) -> Result<()> {
        let filter = self.filter.as_ref().map(|filter| filter.instructions.as_slice());
        let (mut programs, mut links) = (Vec::new(), Vec::new());
        for (loadable, &point) in self.loadables.iter().zip(points) {
            let load = LoadOptions { filter, trace: Some(point), ..LoadOptions::default() };
            programs.push(loadable.load(load)?);
        }
        for program in &programs {
            links.push(attach(program.as_fd())?);
        }
        self.detach();
        (self.counters.programs, self.links) = (programs, links);
        Ok(())
    }

    fn detach(&mut self) {
        self.links.clear();
        self.counters.missed_before +=
            self.counters.programs.drain(..).map(|one| missed(&one)).sum::<u64>();
    }

    /// The ring buffer (`BPF_MAP_TYPE_RINGBUF`): records of `struct trace_record` in `bpf/tee.h`.
    pub fn ring_buffers(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.fds()
    }

    /// Bytes of the ring buffer, a power of two.
    pub fn ring_size(&self) -> u32 {
        self.rings.size()
    }

    /// The array whose one entry is `struct tee_reader` of `bpf/tee.h`, to be mapped.
    pub fn consumer_state_map(&self) -> BorrowedFd<'_> {
        self.loadables[0].map("readers")
    }

    /// Returns when every run of the programs has ended that was under way at the call.
    ///
    /// # Errors
    /// [`Error::System`]: they may go on.
    pub fn synchronize(&self) -> Result<()> {
        self.rcu.wait()
    }

    /// What the programs have counted.
    pub fn statistics_reader(&self) -> &StatisticsReader {
        &self.counters
    }

    /// The XDP program that is traced: now, or until it was detached. `None` for drops.
    pub fn target(&self) -> Option<&AttachedProgram> {
        self.target.as_ref().map(Target::program)
    }

    /// Traces the XDP program that the interface has now, if that is another one. `None` if nothing has changed, and for
    /// drops.
    ///
    /// # Errors
    /// [`Error::Privilege`], [`Error::System`], [`Error::Invalid`] for a successor that cannot be traced.
    pub fn update_target(&mut self) -> Result<Option<TargetChange>> {
        let Some(mut target) = self.target.take() else { return Ok(None) };
        let change = target.update(self);
        self.target = Some(target);
        change
    }
}

/// How the programs of an object are to be opened: what all have in common.
struct Setup {
    rings: RingArray,
    snaplen: u32,
    timestamps: u32,
    netns: u32,
    /// The bytes that the filter can reach.
    reach: u32,
    cpus: u32,
}

impl Setup {
    fn new(options: &Options<'_>) -> Result<Self> {
        log_to_tracing();
        let cpus = libbpf_rs::num_possible_cpus()
            .map_err(|error| Error::Invalid(format!("cannot count the CPUs: {error}")))?;
        let netns = Namespace::current()?.inode() as u32;
        Ok(Self {
            rings: RingArray::new(&RingLayout::ONE, ring_size(options.buffer)?, None)?,
            snaplen: options.snaplen.clamp(1, MAX_SNAPLEN),
            timestamps: u32::from(options.timestamps),
            netns,
            reach: options.filter.map_or(0, |filter| filter.reach),
            cpus: cpus as u32,
        })
    }
}

/// Attaches a loaded tracing program to what it was loaded for.
fn attach(program: BorrowedFd<'_>) -> Result<OwnedFd> {
    // SAFETY: a live program; no name, since the program was loaded for its place. The descriptor is new.
    unsafe {
        let fd = libbpf_sys::bpf_raw_tracepoint_open(std::ptr::null(), program.as_raw_fd());
        owned(fd, "attach a tracing program")
    }
}

/// How often the kernel did not run this program; 0 where it does not tell.
fn missed(program: &OwnedFd) -> u64 {
    program_info(program.as_fd(), Default::default()).map_or(0, |info| info.recursion_misses)
}
