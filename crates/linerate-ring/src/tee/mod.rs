//! [`Tee`]: capture while the traffic still reaches the stack.
//!
//! An XDP program copies the frames that a filter accepts into a BPF ring buffer and lets every
//! frame go on. Up to eight captures, of any processes, share an interface, each with its own
//! filter and buffer: a root program is attached once, whoever came first, and calls the programs of
//! all captures in turn.
//!
//! With [`Builder::take`] the accepted frames end there, and the interface is not shared. Where a
//! driver has no zero-copy AF_XDP this is the fastest way to capture what nothing else uses: records
//! lie one behind the other and are as long as their frames, so the kernel writes memory in order,
//! while the chunks of a UMEM of the same depth miss the cache one by one.
//!
//! ```no_run
//! # fn main() -> linerate_ring::Result<()> {
//! use std::time::Duration;
//!
//! let mut tee = linerate_ring::tee::Tee::builder("eth0").snap(128).build()?;
//! while tee.wait(Duration::from_secs(1))? {
//!     while let Some(mut batch) = tee.batch() {
//!         while let Some(frame) = batch.next() {
//!             println!("{} of {} bytes", frame.len(), frame.wire_len);
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod batch;
mod probe;
mod records;
mod root;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use linerate_net::Interface;

pub use batch::Batch;
pub use probe::{Probe, probe};

use crate::filter::Instruction;
use crate::region::base_page_size;
use crate::steer::attach::Link;
use crate::steer::grace::Grace;
use crate::steer::program::{self, Load, Template};
use crate::steer::{Attach, sum_of_cpus};
use crate::xdp::{Pace, sys};
use crate::{Error, Result};
use records::{Records, Shared};
use root::{Root, Slot};

include!(concat!(env!("OUT_DIR"), "/tee.rs"));

/// Bytes of the ring buffer unless said: 600,000 frames of 64 bytes.
pub const DEFAULT_BUFFER: usize = 64 << 20;
/// The most that one frame can give; longer ones are cut.
pub const SNAP_MAX: u32 = 65_535;

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
    attachment: Attachment,
    template: Template,
    records: Records,
    shared: Shared,
    grace: Grace,
    interface: Interface,
    pace: Pace,
    batch: u32,
    received: u64,
    /// TAI less UTC, in nanoseconds, and the look at the ring ([`Records::looks`]) that it is of.
    tai_ahead: u64,
    offset_of: u64,
    was_up: bool,
    stopped: bool,
}

/// What keeps the program on the interface.
#[derive(Debug)]
enum Attachment {
    // Dropped in this order: out of the slot, then out of the root's link.
    Slot(Slot, Root),
    Interface(Link),
}

impl Tee {
    /// A tee on what `interface` receives.
    pub fn builder(interface: &str) -> Builder<'static> {
        Builder {
            interface: interface.to_owned(),
            buffer: DEFAULT_BUFFER,
            snap: SNAP_MAX,
            filter: None,
            stamps: true,
            pace: Pace::default(),
            batch: 256,
            attach: None,
            take: false,
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
            return Ok(self.records.ready());
        }
        let records = &mut self.records;
        let Some(left) = self.pace.nap(timeout, || records.ready()) else { return Ok(true) };
        self.shared.announce_sleep();
        if !self.records.ready() {
            let mut fds = [libc::pollfd {
                fd: self.template.map("records").as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            }];
            let woken = sys::poll(&mut fds, left);
            self.shared.awake();
            woken.map_err(|error| {
                Error::system(format!("wait for frames of {}", self.interface.name()), error)
            })?;
        }
        self.shared.awake();
        if !self.records.ready() {
            self.check()?;
        }
        Ok(self.records.ready())
    }

    /// Whether the interface is still there and up: for a reader that waits by means of its own, and in vain.
    ///
    /// # Errors
    /// [`Error::InterfaceDown`], once each time that it goes down, and [`Error::InterfaceGone`]; but not while
    /// there are frames to read, which came before the trouble. [`Error::System`].
    pub fn check(&mut self) -> Result<()> {
        let Err(error) = self.check_up() else { return Ok(()) };
        if !self.records.ready() {
            return Err(error);
        }
        // The next call finds the trouble again.
        self.was_up = true;
        Ok(())
    }

    /// Whether a frame can be read.
    #[inline]
    pub fn ready(&mut self) -> bool {
        self.records.has_frame()
    }

    /// Gives the space of everything lent back to the kernel; see [`Batch::keep`].
    #[inline]
    pub fn release(&mut self) {
        self.records.release();
    }

    /// To be called before the reader sleeps on the descriptor of [`Tee::as_fd`](AsFd::as_fd) by means of
    /// its own, and before the last look with [`Tee::ready`]: the next frame makes it readable. Without
    /// that the program wakes nobody.
    pub fn announce_sleep(&self) {
        self.shared.announce_sleep();
    }

    /// Takes [`Tee::announce_sleep`] back, which saves the program the wake-up.
    pub fn awake(&self) {
        self.shared.awake();
    }

    /// A handle that reads the counts while frames are lent, and from other threads.
    ///
    /// # Errors
    /// [`Error::System`] when there is no descriptor left.
    pub fn counters(&self) -> Result<Counters> {
        let map = self.template.map("counters").try_clone_to_owned();
        map.map(Counters).map_err(|error| Error::system("duplicate a BPF descriptor", error))
    }

    /// The frames that have come, up to the size of a batch; `None` when there are none. The space
    /// of those that were read goes back to the kernel when the batch is dropped; those that were
    /// not are in the next batch.
    #[inline]
    pub fn batch(&mut self) -> Option<Batch<'_>> {
        // Batches that were kept gave nothing back, and a reader that takes frame by frame and never
        // catches up keeps them all.
        self.records.release_much();
        if !self.records.ready() {
            return None;
        }
        // The offset changes when somebody tells the kernel of leap seconds, which a time daemon does
        // once, long after boot. Two clock readings without a system call, each time that the reader has
        // caught up with what it knew of.
        if self.offset_of != self.records.looks() {
            self.offset_of = self.records.looks();
            self.tai_ahead = sys::tai_ahead();
        }
        Some(Batch::new(&mut self.records, self.batch, self.tai_ahead, &mut self.received))
    }

    /// Lets no further frame in. When it returns, all that was copied is in the ring buffer for
    /// [`Tee::batch`] to give, and the counts but for [`Statistics::late`] are final. Frames that
    /// come from now on go on to the stack, also with [`Builder::take`]. Takes some tens of
    /// milliseconds.
    ///
    /// # Errors
    /// [`Error::Privilege`], [`Error::System`]: the last frames may then still be on their way.
    pub fn stop(&mut self) -> Result<()> {
        if self.stopped {
            return Ok(());
        }
        self.shared.stop();
        self.grace.wait()?;
        self.stopped = true;
        Ok(())
    }

    /// Puts another filter in place while the capture runs, between two frames: no frame is judged by
    /// a mixture. `None` accepts all. When it returns, what the old filter accepted is in the ring
    /// buffer, and nothing that it accepts comes any more; that takes some tens of milliseconds.
    ///
    /// # Errors
    /// [`Error::Verifier`] and the like; the old filter then stays in force.
    pub fn set_filter(&mut self, filter: Option<&[Instruction]>) -> Result<()> {
        let program = self.template.load(Load { filter, device: None })?;
        match &self.attachment {
            Attachment::Slot(slot, _) => slot.fill(program.as_fd(), &self.interface)?,
            Attachment::Interface(link) => link.replace(program.as_fd(), self.interface.name())?,
        }
        self.grace.wait()
    }

    /// Counts of the program, over all CPUs, and of this reader.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn statistics(&self) -> Result<Statistics> {
        Ok(Statistics { received: self.received, ..counted(self.template.map("counters"))? })
    }

    /// Where the program runs that is on the interface.
    pub fn attached(&self) -> Attach {
        match &self.attachment {
            Attachment::Slot(_, root) => root.attach(),
            Attachment::Interface(link) => link.attach,
        }
    }

    /// Why it runs in the stack and not in the driver, where it does and this process attached it.
    pub fn why_generic(&self) -> Option<&str> {
        match &self.attachment {
            Attachment::Slot(_, root) => root.why_generic(),
            Attachment::Interface(link) => link.why.as_deref(),
        }
    }

    /// Which of the places for captures on the interface this one has; `None` when it takes the
    /// frames and so has the interface for itself.
    pub fn slot(&self) -> Option<u32> {
        match &self.attachment {
            Attachment::Slot(slot, _) => Some(slot.number()),
            Attachment::Interface(_) => None,
        }
    }

    /// Bytes of the ring buffer.
    pub fn capacity(&self) -> usize {
        self.records.capacity()
    }

    /// Bytes of the ring buffer that wait to be read.
    pub fn pending(&self) -> usize {
        self.records.pending()
    }

    fn check_up(&mut self) -> Result<()> {
        let up = self.interface.is_up()?;
        let went_down = self.was_up && !up;
        self.was_up = up;
        if went_down { Err(Error::InterfaceDown(self.interface.name().to_owned())) } else { Ok(()) }
    }
}

impl AsFd for Tee {
    /// Readable while records are in the ring buffer that were not given back.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.template.map("records")
    }
}

/// Reads the counts of a tee's program; made by [`Tee::counters`].
#[derive(Debug)]
pub struct Counters(OwnedFd);

impl Counters {
    /// The counts, over all CPUs; [`Statistics::received`] is the reader's own and 0 here.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn read(&self) -> Result<Statistics> {
        counted(self.0.as_fd())
    }
}

fn counted(counters: BorrowedFd<'_>) -> Result<Statistics> {
    let [captured, unmatched, full, faults, late] = sum_of_cpus(counters)?;
    Ok(Statistics { received: 0, captured, unmatched, full, faults, late })
}

/// What to ask for; made by [`Tee::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder<'a> {
    interface: String,
    buffer: usize,
    snap: u32,
    filter: Option<&'a [Instruction]>,
    stamps: bool,
    pace: Pace,
    batch: u32,
    attach: Option<Attach>,
    take: bool,
}

impl<'a> Builder<'a> {
    /// Bytes of the ring buffer, rounded up to a power of two; [`DEFAULT_BUFFER`] unless said. It is
    /// memory of the kernel, in small pages.
    pub fn buffer(mut self, bytes: usize) -> Self {
        self.buffer = bytes;
        self
    }

    /// Bytes to copy of each frame at most; all, up to [`SNAP_MAX`], unless said.
    pub fn snap(mut self, bytes: u32) -> Self {
        self.snap = bytes;
        self
    }

    /// Frames refused by this subprogram are not copied; `None` copies all.
    pub fn filter<'b>(self, filter: Option<&'b [Instruction]>) -> Builder<'b>
    where
        'a: 'b,
    {
        Builder { filter, ..self }
    }

    /// Whether the kernel stamps each frame; it does unless said.
    pub fn stamps(mut self, on: bool) -> Self {
        self.stamps = on;
        self
    }

    /// How [`Tee::wait`] waits.
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// Frames in a batch at most; 256 unless said.
    pub fn batch(mut self, frames: u32) -> Self {
        self.batch = frames.max(1);
        self
    }

    /// Native or generic only, for the first capture on the interface; the others join it.
    pub fn attach(mut self, attach: Option<Attach>) -> Self {
        self.attach = attach;
        self
    }

    /// Whether the frames that the filter accepts end here, also those that the full buffer had no
    /// room for. The stack then sees only the others, and no other capture shares the interface.
    /// Off unless said.
    pub fn take(mut self, take: bool) -> Self {
        self.take = take;
        self
    }

    /// Makes the ring buffer, joins or attaches the root program and takes a slot in it, or with
    /// [`Builder::take`] attaches to the interface itself.
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::Privilege`], [`Error::ForeignProgram`] when another XDP
    /// program is on the interface, [`Error::NoSlot`] when eight captures are, [`Error::Verifier`]
    /// for a filter that the kernel refuses, [`Error::System`].
    pub fn build(self) -> Result<Tee> {
        program::quiet_libbpf();
        let interface = Interface::open(&self.interface)?;
        let size = ring_size(self.buffer)?;
        let was_up = interface.is_up()?;
        let load = Load { filter: self.filter, device: None };
        let map = |template: &Template| -> Result<_> {
            Ok((Records::map(template.map("records"), size)?, Shared::map(template.map("shared"))?))
        };
        let (template, (records, shared), attachment) = if self.take {
            let take = template(&self, size, Role::Take)?;
            let program = take.load(load)?;
            let mapped = map(&take)?;
            let name = interface.name();
            let link = Link::attach(program.as_fd(), name, interface.index(), self.attach)?;
            (take, mapped, Attachment::Interface(link))
        } else {
            let root = Root::join(&interface, &template(&self, size, Role::Root)?, self.attach)?;
            let slot = root.take(&interface)?;
            let capture = template(&self, size, Role::Capture(&root, &slot))?;
            let program = capture.load(load)?;
            let mapped = map(&capture)?;
            slot.fill(program.as_fd(), &interface)?;
            (capture, mapped, Attachment::Slot(slot, root))
        };
        Ok(Tee {
            attachment,
            grace: Grace::new(template.map("counters"))?,
            template,
            records,
            shared,
            interface,
            pace: self.pace,
            batch: self.batch,
            received: 0,
            tai_ahead: 0,
            offset_of: 0,
            was_up,
            stopped: false,
        })
    }
}

/// The size of a ring buffer that holds `bytes`: a power of two of whole pages, below 2 GiB.
fn ring_size(bytes: usize) -> Result<u32> {
    match bytes.max(base_page_size()).checked_next_power_of_two() {
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

fn template(wanted: &Builder<'_>, size: u32, role: Role<'_>) -> Result<Template> {
    let mut storage = MaybeUninit::uninit();
    let invalid = |what: &str, error| Error::Invalid(format!("{what}: {error}"));
    let mut open = skeleton::TeeSkelBuilder::default()
        .open(&mut storage)
        .map_err(|error| invalid("cannot read the tee's programs", error))?;
    // The root needs no ring buffer, only the smallest that can be made.
    let size = if matches!(role, Role::Root) { base_page_size() as u32 } else { size };
    open.maps
        .records
        .set_max_entries(size)
        .map_err(|error| invalid("cannot size the tee's ring buffer", error))?;
    if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
        constants.stamps = u32::from(wanted.stamps);
        constants.snap_len = wanted.snap.clamp(1, SNAP_MAX);
        if let Role::Capture(_, slot) = role {
            constants.slot = slot.number();
        }
    }
    let name = match role {
        Role::Root => root::NAME,
        Role::Take => "take",
        Role::Capture(root, _) => {
            for (name, map) in root.maps() {
                let own =
                    if name == "alive" { &mut open.maps.alive } else { &mut open.maps.captures };
                own.reuse_fd(map).map_err(|error| invalid("cannot share the tee's maps", error))?;
            }
            "capture"
        }
    };
    Template::prepare(open.open_object(), name)
}
