//! [`Tee`]: capture while the traffic still reaches the stack.
//!
//! An XDP program copies the frames that a filter accepts into BPF ring buffers and lets every frame go on. There is
//! one for each receive queue, or for each CPU where there are more queues, so that CPUs do not wait for each
//! other ([`RingLayout`]). One reader gets the frames of all rings in the order of time, or each of several
//! readers has rings of its own ([`Tee::open_group`]).
//!
//! Up to eight captures, of any processes, share an interface, each with its own filter and buffers: the first
//! attaches a root program, which calls the programs of all captures in turn.
//!
//! With [`Action::Redirect`] the accepted frames end there, and the interface is not shared. Where a driver has
//! no zero-copy AF_XDP this is the fastest way to capture traffic that the host need not get: records are
//! consecutive and as long as their frames, so the kernel writes memory in order, while the chunks of a UMEM
//! of the same depth miss the cache one by one.
//!
//! ```no_run
//! # fn main() -> linerate_ring::Result<()> {
//! use std::time::Duration;
//!
//! use linerate_ring::tee::{Action, Tee};
//! use linerate_ring::{Batch, Options, Ring};
//!
//! let options = Options { action: Action::Copy, snaplen: 128, ..Options::default() };
//! let mut tee = Tee::open("eth0", &options, None)?;
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

use std::ops::Range;
use std::sync::Arc;

pub use linerate_bpf::RingLayout;
pub use linerate_bpf::tee::{Action, MAX_SNAPLEN};

use linerate_bpf::LoadedProgram;
use linerate_bpf::filter::Instruction;
use linerate_bpf::steer::TimestampSource;
use linerate_bpf::tee::{self, Program};
use linerate_net::Interface;

pub use crate::ringbuf::{Batch, DEFAULT_BUFFER};

use crate::options::Options;
use crate::ringbuf::{self, Mapped, Programs, Reader, ReaderState};
use crate::{Result, StatisticsReader};

/// The least bytes of each of several ring buffers, unless the caller gives a size.
const MIN_RING_BUFFER: usize = 4 << 20;

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
    /// Frames that came after [`Ring::stop`](crate::Ring::stop) and went on without being looked at.
    pub late: u64,
    /// Frames that were lent after frames of other rings with later stamps, because the CPU that copied them
    /// stood still for too long.
    pub disordered: u64,
}

impl Statistics {
    fn new(received: u64, program: tee::Statistics) -> Self {
        let tee::Statistics { captured, unmatched, full, faults, late } = program;
        Self { received, captured, unmatched, full, faults, late, disordered: 0 }
    }

    /// Frames that were accepted and did not reach the ring buffer.
    pub fn lost(&self) -> u64 {
        self.full + self.faults
    }
}

/// A capture beside the stack, on all receive queues of an interface or, as one of a group, on some.
pub type Tee = Reader<TeeProgram>;

/// The program that copies frames for a [`Tee`], shared by the readers of a group.
#[derive(Debug)]
pub struct TeeProgram {
    program: Arc<Program>,
    interface: Interface,
    /// The rings of the reader.
    rings: Range<u32>,
    counters: tee::StatisticsReader,
}

impl Programs for TeeProgram {
    type Statistics = Statistics;

    fn synchronize(&self) -> Result<()> {
        Ok(self.program.synchronize()?)
    }

    fn statistics(&self, received: u64, disordered: u64) -> Result<Statistics> {
        let counts = Statistics::new(received, self.counters.read(&self.rings)?);
        Ok(Statistics { disordered, ..counts })
    }

    fn statistics_reader(&self) -> Result<StatisticsReader<Statistics>> {
        let (counters, rings) = (self.program.statistics_reader()?, self.rings.clone());
        Ok(StatisticsReader::new(move || Ok(Statistics::new(0, counters.read(&rings)?))))
    }
}

impl Tee {
    /// A tee on what `interface` receives: makes the ring buffers, joins or attaches the root program and takes a slot in
    /// it, or attaches to the interface itself if it is not for [`Action::Copy`]. The options of sockets have no effect.
    /// The stamps are the kernel's or none. Frames refused by the subprogram `filter` are not copied.
    ///
    /// # Errors
    /// [`Error::NoInterface`](crate::Error::NoInterface), [`Error::Privilege`](crate::Error::Privilege),
    /// [`Error::System`](crate::Error::System); [`Error::Bpf`](crate::Error::Bpf) when another XDP program or eight
    /// captures are on the interface, or the kernel refuses the filter.
    pub fn open(
        interface: &str,
        options: &Options,
        filter: Option<&[Instruction]>,
    ) -> Result<Self> {
        let one = Options { readers: 1, ..options.clone() };
        Self::open_group(interface, &one, filter).map(|mut all| all.remove(0))
    }

    /// As [`Tee::open`] for several readers ([`Options::readers`]), which share the program. Each has consecutive ring
    /// buffers of its own.
    ///
    /// # Errors
    /// As [`Tee::open`].
    pub fn open_group(
        interface: &str,
        options: &Options,
        filter: Option<&[Instruction]>,
    ) -> Result<Vec<Self>> {
        let interface = Interface::open(interface)?;
        let was_up = interface.is_up()?;
        let &Options { action, untagged, mode, snaplen, wait_strategy, batch, readers, .. } =
            options;
        let stamps = options.timestamps;
        let timestamps = matches!(stamps, TimestampSource::Software | TimestampSource::Hardware);
        let layout = RingLayout::new(&interface, options.rings, timestamps)?;
        let rings = layout.rings as usize;
        let buffer = match options.buffer {
            Some(bytes) => bytes.div_ceil(rings),
            None => (DEFAULT_BUFFER / rings).max(MIN_RING_BUFFER),
        };
        let program = tee::Options {
            buffer,
            rings: layout,
            snaplen,
            filter,
            timestamps,
            mode,
            action,
            untagged,
        };
        let program = Arc::new(Program::attach(&interface, &program)?);
        let state = Arc::new(ReaderState::map(program.consumer_state_map())?);
        let group = ringbuf::Options { wait_strategy, batch: batch.max(1), in_order: timestamps };
        let readers = readers.clamp(1, rings);
        let build = |reader: usize| {
            let own = reader * rings / readers..(reader + 1) * rings / readers;
            let maps = program.ring_buffers().skip(own.start).take(own.len());
            let mapped = Mapped::new(maps, own.start, program.ring_size())?;
            let programs = TeeProgram {
                rings: own.start as u32..own.end as u32,
                program: Arc::clone(&program),
                interface: interface.clone(),
                counters: program.statistics_reader()?,
            };
            let interface = (Some(interface.clone()), was_up);
            Ok(Tee::new(mapped, Arc::clone(&state), group, interface, programs))
        };
        (0..readers).map(build).collect()
    }

    /// Loads the program with another filter, for [`Tee::replace_filter`].
    ///
    /// # Errors
    /// [`Error::Bpf`](crate::Error::Bpf) when the kernel refuses the filter.
    pub fn load_filter(&self, filter: Option<&[Instruction]>) -> Result<LoadedProgram> {
        Ok(self.programs.program.load_filter(filter)?)
    }

    /// Replaces the filter of all readers between two frames, without a privilege: no frame meets a mixture. When it
    /// returns, what the old filter accepted is in the ring buffer, and nothing that it accepts comes any more; that
    /// takes some tens of milliseconds.
    pub fn replace_filter(&mut self, loaded: &LoadedProgram) -> Result<()> {
        Ok(self.programs.program.replace_filter(&self.programs.interface, loaded)?)
    }

    /// Of a tee that was not built for [`Action::Copy`]: what happens to the frames that the filter accepts.
    pub fn set_action(&self, action: Action) {
        self.state.set_action(action);
    }

    /// The counts for each receive queue that had frames, without [`Statistics::received`]. The number of
    /// queues at the start stands for all that came later.
    pub fn queue_statistics(&self) -> Result<Vec<(u32, Statistics)>> {
        let queues = self.programs.counters.read_queues(&self.programs.rings)?.into_iter();
        Ok(queues.map(|(queue, counts)| (queue, Statistics::new(0, counts))).collect())
    }

    /// The program, shared by all readers: where it runs, and its ring buffers.
    pub fn program(&self) -> &Program {
        &self.programs.program
    }

    /// The ring buffers of this reader.
    pub fn rings(&self) -> Range<u32> {
        self.programs.rings.clone()
    }
}
