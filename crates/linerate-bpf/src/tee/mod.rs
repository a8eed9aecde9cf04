//! The tee's [`Program`]: copies the frames that a filter accepts into BPF ring buffers.
//!
//! As a tee it passes every frame on, and up to eight captures, in any processes, share an interface: the first
//! attaches a root program, which calls the programs of all captures in turn. With [`Action::Redirect`] the accepted
//! frames are dropped after the copy, and the interface is not shared.

mod root;

use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use linerate_net::Interface;

use crate::filter::Instruction;
use crate::map::{MappedArray, counters_of_cpus};
use crate::program::{Device, LoadOptions, LoadableProgram, LoadedProgram, log_to_tracing};
use crate::rcu::RcuSynchronizer;
use crate::rings::{RingArray, RingLayout, ring_size};
use crate::steer::tells_tags;
use crate::sys::duplicate;
use crate::xdp::attach::XdpLink;
use crate::xdp::mode::AttachMode;
use crate::xdp::query::{TEE, attached_to};
use crate::{Error, Result};
use root::{Root, Slot};

include!(concat!(env!("OUT_DIR"), "/tee.rs"));

/// The longest frame that is copied whole; longer ones are cut.
pub const MAX_SNAPLEN: u32 = 65_535;

/// Where `pass` is in `struct tee_reader`.
pub const PASS: usize = 8;

/// Options of a tee's program.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Bytes of each ring buffer, rounded up to a power of two.
    pub buffer: usize,
    /// The ring buffers.
    pub rings: RingLayout,
    /// Bytes to copy of each frame at most.
    pub snaplen: u32,
    /// Frames that this subprogram rejects are not copied; `None` accepts all.
    pub filter: Option<&'a [Instruction]>,
    /// Whether each frame gets a timestamp of the kernel's clock.
    pub timestamps: bool,
    /// Native or generic only, for the first capture on the interface; the others join it.
    pub mode: Option<AttachMode>,
    /// What happens to the accepted frames, also to those that the full buffer has no room for.
    pub action: Action,
    /// With another action than [`Action::Copy`]: frames whose VLAN tag the driver took out are rejected, where the
    /// driver tells.
    pub untagged: bool,
}

/// What happens to a frame that the filter accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// The reader gets a copy, and the frame goes on to the stack. Captures share the interface.
    #[default]
    Copy,
    /// The reader gets it, and the stack does not. The interface is not shared.
    Redirect,
    /// As [`Action::Copy`] until the reader says [`Action::Redirect`] (`pass` in `bpf/tee.h`). The interface is not
    /// shared.
    CopyThenRedirect,
}

/// Frames that the program has seen, all CPUs together. A frame is in exactly one of the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Copied to a ring buffer.
    pub captured: u64,
    /// Rejected by the filter.
    pub unmatched: u64,
    /// Accepted, but the ring buffer was full.
    pub full: u64,
    /// Accepted, but the copy failed.
    pub faults: u64,
    /// Came after the reader's stop.
    pub late: u64,
}

linerate_net::sums! { Statistics { captured, unmatched, full, faults, late } }

/// The map that a tee's program counts in; made by [`Program::statistics_reader`].
#[derive(Debug)]
pub struct StatisticsReader {
    counters: OwnedFd,
    layout: RingLayout,
}

impl StatisticsReader {
    /// The current counts of the frames for `rings`, for each receive queue that had some: the frames of a
    /// queue are in several rings where CPUs select them. The number of queues at the start stands for those
    /// that came later.
    pub fn read_queues(&self, rings: &Range<u32>) -> Result<Vec<(u32, Statistics)>> {
        let mut queues = Vec::new();
        for queue in 0..=self.layout.queues {
            if !self.layout.by_cpu && !rings.contains(&self.layout.ring(queue, 0)) {
                continue;
            }
            let mut sum = Statistics::default();
            for (cpu, counts) in (0..).zip(counters_of_cpus(self.counters.as_fd(), queue)?) {
                if rings.contains(&self.layout.ring(queue, cpu)) {
                    let [captured, unmatched, full, faults, late] = counts;
                    sum += Statistics { captured, unmatched, full, faults, late };
                }
            }
            if sum != Statistics::default() {
                queues.push((queue, sum));
            }
        }
        Ok(queues)
    }

    /// The sum over the queues.
    pub fn read(&self, rings: &Range<u32>) -> Result<Statistics> {
        let mut sum = Statistics::default();
        self.read_queues(rings)?.into_iter().for_each(|(_, counts)| sum += counts);
        Ok(sum)
    }
}

/// An attached program; detached on drop, and by the kernel when the process dies.
#[derive(Debug)]
pub struct Program {
    attachment: Attachment,
    loadable: LoadableProgram,
    /// The interface that the program is bound to, for the metadata of its frames.
    device: Option<Device>,
    rcu: RcuSynchronizer,
    rings: RingArray,
    layout: RingLayout,
}

/// What keeps the program attached.
#[derive(Debug)]
enum Attachment {
    // Dropped in this order: out of the slot, then out of the root's link.
    Slot(Slot, Root),
    Interface(XdpLink),
}

impl Program {
    /// Loads the program, joins or attaches the root program and takes a slot in it; else than with [`Action::Copy`]
    /// attaches to the interface itself. Frames are copied from then on.
    ///
    /// # Errors
    /// [`Error::Privilege`], [`Error::ForeignProgram`] when the interface has another XDP program,
    /// [`Error::NoSlot`] when it carries eight captures, [`Error::Verifier`] for a filter that the kernel rejects,
    /// [`Error::Invalid`], [`Error::System`].
    pub fn attach(interface: &Interface, options: &Options<'_>) -> Result<Self> {
        log_to_tracing();
        let rings = RingArray::new(&options.rings, ring_size(options.buffer)?, Some(interface))?;
        let copies = options.action == Action::Copy;
        let device = if copies { None } else { tells_tags(options.untagged, interface)? };
        let load = LoadOptions { filter: options.filter, device: device.as_ref(), trace: None };
        let (loadable, attachment) = if !copies {
            let role = Role::Redirect { rings: &rings, untagged: device.is_some() };
            let loadable = open(options, role)?;
            let program = loadable.load(load)?;
            let readers = MappedArray::new(loadable.map("readers"))?;
            for ring in 0..readers.max_entries() {
                let pass = readers.atomic::<AtomicU32>(ring, PASS);
                pass.store((options.action != Action::Redirect).into(), Ordering::Relaxed);
            }
            let (name, index) = (interface.name(), interface.index());
            let link = XdpLink::attach(program.as_fd(), name, index, options.mode)?;
            (loadable, Attachment::Interface(link))
        } else {
            let root = open(options, Role::Root)?;
            let root = Root::join(interface, &root, options.mode)?;
            let slot = root.take_slot(interface)?;
            let loadable = open(options, Role::Capture(&rings, &root, &slot))?;
            slot.set(loadable.load(load)?.as_fd(), interface)?;
            (loadable, Attachment::Slot(slot, root))
        };
        let rcu = RcuSynchronizer::new(loadable.map("counters"))?;
        Ok(Self { attachment, loadable, device, rcu, rings, layout: options.rings })
    }

    /// The ring buffers (`BPF_MAP_TYPE_RINGBUF`): records of `struct tee_record` in `bpf/tee.h`.
    pub fn ring_buffers(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.fds()
    }

    /// Bytes of each ring buffer, a power of two.
    pub fn ring_size(&self) -> u32 {
        self.rings.size()
    }

    /// Which frames are in which ring buffer.
    pub fn layout(&self) -> RingLayout {
        self.layout
    }

    /// The array of `struct tee_reader` of `bpf/tee.h`, one for each ring buffer, to be mapped.
    pub fn consumer_state_map(&self) -> BorrowedFd<'_> {
        self.loadable.map("readers")
    }

    /// Loads the program with another filter, for [`Program::replace_filter`]; `None` accepts all.
    ///
    /// # Errors
    /// [`Error::Verifier`] and the like.
    pub fn load_filter(&self, filter: Option<&[Instruction]>) -> Result<LoadedProgram> {
        let load = LoadOptions { filter, device: self.device.as_ref(), trace: None };
        self.loadable.load(load).map(LoadedProgram)
    }

    /// Replaces the filter between two frames, without a privilege: no frame meets a mixture. When it returns, frames
    /// that the old filter accepted are in the ring buffer, and no more of them come.
    pub fn replace_filter(&self, interface: &Interface, loaded: &LoadedProgram) -> Result<()> {
        match &self.attachment {
            Attachment::Slot(slot, _) => slot.set(loaded.0.as_fd(), interface)?,
            Attachment::Interface(link) => link.replace(loaded.0.as_fd())?,
        }
        self.synchronize()
    }

    /// Waits until every run of the program that was in progress at the call has ended.
    ///
    /// # Errors
    /// [`Error::System`]: they may go on.
    pub fn synchronize(&self) -> Result<()> {
        self.rcu.wait()
    }

    /// A handle that reads what the program has counted, from any thread.
    ///
    /// # Errors
    /// [`Error::System`] when the process has no descriptor left.
    pub fn statistics_reader(&self) -> Result<StatisticsReader> {
        let counters = duplicate(self.loadable.map("counters"))?;
        Ok(StatisticsReader { counters, layout: self.layout })
    }

    /// Where the attached program runs.
    pub fn mode(&self) -> AttachMode {
        self.link().mode
    }

    /// Why it runs in the stack and not in the driver, if so and this process attached it.
    pub fn generic_reason(&self) -> Option<&str> {
        self.link().generic_reason.as_deref()
    }

    /// The slot of this capture; `None` where it has the interface for itself.
    pub fn slot(&self) -> Option<u32> {
        match &self.attachment {
            Attachment::Slot(slot, _) => Some(slot.number()),
            Attachment::Interface(_) => None,
        }
    }

    fn link(&self) -> &XdpLink {
        match &self.attachment {
            Attachment::Slot(_, root) => root.link(),
            Attachment::Interface(link) => link,
        }
    }
}

/// Probes without attaching: creates the maps and loads the root program. True where another capture has a
/// tee already, which a new one would join.
///
/// # Errors
/// Why a tee does not work: a missing privilege (with how to grant it), a foreign XDP program, no such interface,
/// a kernel without what it needs.
pub fn probe(interface: &str) -> Result<bool> {
    log_to_tracing();
    let found = attached_to(Interface::open(interface)?.index())?;
    if let Some(found) = found.as_ref().filter(|found| found.name != TEE) {
        return Err(found.busy_error(interface));
    }
    let options = Options {
        buffer: 0,
        rings: RingLayout::ONE,
        snaplen: MAX_SNAPLEN,
        filter: None,
        timestamps: true,
        mode: None,
        action: Action::Copy,
        untagged: false,
    };
    open(&options, Role::Root)?.load(LoadOptions::default())?;
    Ok(found.is_some())
}

/// Which of the programs of `bpf/tee.bpf.c`.
enum Role<'r> {
    Root,
    /// A capture for this slot of this root.
    Capture(&'r RingArray, &'r Root, &'r Slot),
    Redirect {
        rings: &'r RingArray,
        untagged: bool,
    },
}

fn open(options: &Options<'_>, role: Role<'_>) -> Result<LoadableProgram> {
    let mut storage = MaybeUninit::uninit();
    let invalid = |what: &str, error| Error::Invalid(format!("{what}: {error}"));
    let mut object = skeleton::TeeSkelBuilder::default()
        .open(&mut storage)
        .map_err(|error| invalid("cannot read the tee's programs", error))?;
    let layout = options.rings;
    let (maps, sized) = (&mut object.maps, |error| invalid("cannot size the tee's maps", error));
    let (name, rings) = match role {
        // It copies nothing.
        Role::Root => {
            maps.rings.set_autocreate(false).map_err(sized)?;
            maps.readers.set_autocreate(false).map_err(sized)?;
            (TEE, None)
        }
        Role::Redirect { rings, untagged: false } => ("take", Some(rings)),
        Role::Redirect { rings, untagged: true } => ("take_untagged", Some(rings)),
        Role::Capture(rings, root, _) => {
            let shared = |error| invalid("cannot share the tee's maps", error);
            maps.owners.reuse_fd(root.owners()).map_err(shared)?;
            maps.captures.reuse_fd(root.captures()).map_err(shared)?;
            ("capture", Some(rings))
        }
    };
    if let Some(rings) = rings {
        maps.rings.set_inner_map_fd(rings.template()).map_err(sized)?;
        maps.rings.set_max_entries(layout.rings).map_err(sized)?;
        maps.readers.set_max_entries(layout.rings).map_err(sized)?;
        maps.counters.set_max_entries(layout.queues + 1).map_err(sized)?;
    }
    if let Some(constants) = maps.rodata_data.as_deref_mut() {
        constants.timestamps = u32::from(options.timestamps);
        constants.snaplen = options.snaplen.clamp(1, MAX_SNAPLEN);
        constants.ring_count = layout.rings;
        constants.by_cpu = u32::from(layout.by_cpu);
        constants.queue_count = layout.queues;
        if let Role::Capture(_, _, slot) = role {
            constants.slot = slot.number();
        }
    }
    let loadable = LoadableProgram::prepare(object.open_object(), name)?;
    if let Some(rings) = rings {
        rings.insert(loadable.map("rings"))?;
    }
    Ok(loadable)
}
