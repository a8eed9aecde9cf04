//! The tee's [`Program`]: copies the frames that a filter accepts into a BPF ring buffer.
//!
//! As a tee it passes every frame on, and up to eight captures, in any processes, share an interface: the first
//! attaches a root program, which calls the programs of all captures in turn. With [`Options::take`] the accepted
//! frames are dropped after the copy, and the interface is not shared.

mod root;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use linerate_net::Interface;

use crate::filter::Instruction;
use crate::map::{MappedArray, sum_over_cpus};
use crate::program::{LoadOptions, LoadableProgram, LoadedProgram, log_to_tracing};
use crate::rcu::RcuSynchronizer;
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
    /// Bytes of the ring buffer, rounded up to a power of two.
    pub buffer: usize,
    /// Bytes to copy of each frame at most.
    pub snaplen: u32,
    /// Frames that this subprogram rejects are not copied; `None` accepts all.
    pub filter: Option<&'a [Instruction]>,
    /// Whether each frame gets a timestamp of the kernel's clock.
    pub timestamps: bool,
    /// Native or generic only, for the first capture on the interface; the others join it.
    pub mode: Option<AttachMode>,
    /// Whether the accepted frames are dropped after the copy, also those that the full buffer has no room for.
    pub take: bool,
    /// With `take`: the accepted frames are not dropped before the reader says so (`pass` in `bpf/tee.h`).
    pub passing: bool,
}

/// Frames that the program has seen, all CPUs together. A frame is in exactly one of the counts.
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
}

impl Statistics {
    fn read(map: BorrowedFd<'_>) -> Result<Self> {
        let [captured, unmatched, full, faults, late] = sum_over_cpus(map)?;
        Ok(Self { captured, unmatched, full, faults, late })
    }
}

/// The map that a tee's program counts in; made by [`Program::statistics_reader`].
#[derive(Debug)]
pub struct StatisticsReader(OwnedFd);

impl StatisticsReader {
    /// The current counts.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn read(&self) -> Result<Statistics> {
        Statistics::read(self.0.as_fd())
    }
}

/// An attached program; detached on drop, and by the kernel when the process dies.
#[derive(Debug)]
pub struct Program {
    attachment: Attachment,
    loadable: LoadableProgram,
    rcu: RcuSynchronizer,
    ring_size: u32,
}

/// What keeps the program attached.
#[derive(Debug)]
enum Attachment {
    // Dropped in this order: out of the slot, then out of the root's link.
    Slot(Slot, Root),
    Interface(XdpLink),
}

impl Program {
    /// Loads the program, joins or attaches the root program and takes a slot in it; with [`Options::take`]
    /// attaches to the interface itself. Frames are copied from then on.
    ///
    /// # Errors
    /// [`Error::Privilege`], [`Error::ForeignProgram`] when the interface has another XDP program,
    /// [`Error::NoSlot`] when it carries eight captures, [`Error::Verifier`] for a filter that the kernel rejects,
    /// [`Error::Invalid`], [`Error::System`].
    pub fn attach(interface: &Interface, options: &Options<'_>) -> Result<Self> {
        log_to_tracing();
        let ring_size = ring_size(options.buffer)?;
        let load = LoadOptions { filter: options.filter, ..LoadOptions::default() };
        let (loadable, attachment) = if options.take {
            let loadable = open(options, ring_size, Role::Take)?;
            let program = loadable.load(load)?;
            let reader = MappedArray::new(loadable.map("reader"))?;
            reader.atomic::<AtomicU32>(0, PASS).store(options.passing.into(), Ordering::Relaxed);
            let (name, index) = (interface.name(), interface.index());
            let link = XdpLink::attach(program.as_fd(), name, index, options.mode)?;
            (loadable, Attachment::Interface(link))
        } else {
            let root = open(options, ring_size, Role::Root)?;
            let root = Root::join(interface, &root, options.mode)?;
            let slot = root.take_slot(interface)?;
            let loadable = open(options, ring_size, Role::Capture(&root, &slot))?;
            slot.set(loadable.load(load)?.as_fd(), interface)?;
            (loadable, Attachment::Slot(slot, root))
        };
        let rcu = RcuSynchronizer::new(loadable.map("counters"))?;
        Ok(Self { attachment, loadable, rcu, ring_size })
    }

    /// The ring buffer (`BPF_MAP_TYPE_RINGBUF`): records of `struct tee_record` in `bpf/tee.h`.
    pub fn ring_buffer(&self) -> BorrowedFd<'_> {
        self.loadable.map("records")
    }

    /// Bytes of the ring buffer, a power of two.
    pub fn ring_size(&self) -> u32 {
        self.ring_size
    }

    /// The array whose one entry is `struct tee_reader` of `bpf/tee.h`, to be mapped.
    pub fn consumer_state_map(&self) -> BorrowedFd<'_> {
        self.loadable.map("reader")
    }

    /// Replaces the filter between two frames: no frame meets a mixture. `None` accepts all. When it returns,
    /// frames that the old filter accepted are in the ring buffer, and no more of them come.
    ///
    /// # Errors
    /// [`Error::Verifier`] and the like; the old filter then stays.
    pub fn set_filter(&self, interface: &Interface, filter: Option<&[Instruction]>) -> Result<()> {
        self.replace_filter(interface, &self.load_filter(filter)?)
    }

    /// Loads the program with another filter, for [`Program::replace_filter`].
    ///
    /// # Errors
    /// [`Error::Verifier`] and the like.
    pub fn load_filter(&self, filter: Option<&[Instruction]>) -> Result<LoadedProgram> {
        self.loadable.load(LoadOptions { filter, ..LoadOptions::default() }).map(LoadedProgram)
    }

    /// As [`Program::set_filter`], without a privilege.
    ///
    /// # Errors
    /// [`Error::System`].
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

    /// What the program has counted.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn statistics(&self) -> Result<Statistics> {
        Statistics::read(self.loadable.map("counters"))
    }

    /// A handle that reads the same from other threads.
    ///
    /// # Errors
    /// [`Error::System`] when the process has no descriptor left.
    pub fn statistics_reader(&self) -> Result<StatisticsReader> {
        let map = self.loadable.map("counters").try_clone_to_owned();
        map.map(StatisticsReader)
            .map_err(|error| Error::system("duplicate a BPF descriptor", error))
    }

    /// Where the attached program runs.
    pub fn mode(&self) -> AttachMode {
        self.link().mode
    }

    /// Why it runs in the stack and not in the driver, if so and this process attached it.
    pub fn generic_reason(&self) -> Option<&str> {
        self.link().generic_reason.as_deref()
    }

    /// The slot of this capture; `None` with [`Options::take`].
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
        snaplen: MAX_SNAPLEN,
        filter: None,
        timestamps: true,
        mode: None,
        take: false,
        passing: false,
    };
    open(&options, 0, Role::Root)?.load(LoadOptions::default())?;
    Ok(found.is_some())
}

/// The size of a ring buffer that holds `bytes`: a power of two of whole pages, at most 1 GiB.
pub(crate) fn ring_size(bytes: usize) -> Result<u32> {
    match bytes.max(rustix::param::page_size()).checked_next_power_of_two() {
        Some(size) if size <= 1 << 30 => Ok(size as u32),
        _ => Err(Error::Invalid(format!("a tee buffer of {bytes} bytes: 1 GiB is the most"))),
    }
}

/// Which of the programs of `bpf/tee.bpf.c`.
enum Role<'r> {
    Root,
    /// A capture for this slot of this root.
    Capture(&'r Root, &'r Slot),
    Take,
}

fn open(options: &Options<'_>, ring_size: u32, role: Role<'_>) -> Result<LoadableProgram> {
    let mut storage = MaybeUninit::uninit();
    let invalid = |what: &str, error| Error::Invalid(format!("{what}: {error}"));
    let mut object = skeleton::TeeSkelBuilder::default()
        .open(&mut storage)
        .map_err(|error| invalid("cannot read the tee's programs", error))?;
    // The root needs no ring buffer: it gets the smallest possible.
    let size =
        if matches!(role, Role::Root) { rustix::param::page_size() as u32 } else { ring_size };
    object
        .maps
        .records
        .set_max_entries(size)
        .map_err(|error| invalid("cannot size the tee's ring buffer", error))?;
    if let Some(constants) = object.maps.rodata_data.as_deref_mut() {
        constants.timestamps = u32::from(options.timestamps);
        constants.snaplen = options.snaplen.clamp(1, MAX_SNAPLEN);
        if let Role::Capture(_, slot) = role {
            constants.slot = slot.number();
        }
    }
    let name = match role {
        Role::Root => TEE,
        Role::Take => "take",
        Role::Capture(root, _) => {
            let shared = |error| invalid("cannot share the tee's maps", error);
            object.maps.owners.reuse_fd(root.owners()).map_err(shared)?;
            object.maps.captures.reuse_fd(root.captures()).map_err(shared)?;
            "capture"
        }
    };
    LoadableProgram::prepare(object.open_object(), name)
}
