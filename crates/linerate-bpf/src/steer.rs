//! The steering [`Program`]: redirects frames to AF_XDP sockets, one socket per receive queue.
//!
//! A frame that the filter accepts goes to the socket of its queue. Any other frame, and any frame of a
//! queue without a socket, goes to the stack as if nothing were attached.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use linerate_net::Interface;

use crate::addresses::Addresses;
use crate::filter::Instruction;
use crate::map::{counters_of_cpus, update_fd};
use crate::program::{
    Device, LoadOptions, LoadableProgram, LoadedProgram, REJECT_ALL, log_to_tracing,
};
use crate::rcu::RcuSynchronizer;
use crate::sys::duplicate;
use crate::xdp::attach::XdpLink;
use crate::xdp::mode::AttachMode;
use crate::{Error, Result};

include!(concat!(env!("OUT_DIR"), "/steer.rs"));

/// Where the timestamps of frames come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TimestampSource {
    /// No timestamps.
    None,
    /// The reader's clock, once a batch: every frame of a batch has the time at which the batch was read.
    /// Costs nothing on the receiving core.
    #[default]
    Reader,
    /// The kernel's clock, read by the XDP program for each frame. Cost 70 to 90 ns a frame on a
    /// virtual machine over veth, including the metadata that carries the timestamp.
    Software,
    /// The network card's clock if its driver provides it, otherwise as [`TimestampSource::Software`]. The
    /// card's clock is not converted. Also provides the VLAN tag that the card stripped. Cost up to 30 ns
    /// more than [`TimestampSource::Software`] where the driver provided none.
    Hardware,
}

/// Options of a steering program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// Frames that this subprogram rejects do not go to a socket; `None` accepts all.
    /// [`crate::filter::translate`] makes the subprogram.
    pub filter: Option<&'a [Instruction]>,
    /// Only frames for [`Program::addresses`] go to a socket: IP packets to one of them, and questions for
    /// the hardware address of one (ARP requests, neighbour solicitations). All others go to the stack.
    pub by_address: bool,
    /// Where timestamps come from.
    pub timestamps: TimestampSource,
    /// Native or generic only; `None` takes native where the driver has it.
    pub mode: Option<AttachMode>,
    /// Frames whose VLAN tag the driver took out are rejected, where the driver tells; not with
    /// [`TimestampSource::Hardware`].
    pub untagged: bool,
}

/// The interface to bind a program to, so that it can reject frames whose VLAN tag the driver took out; `None` where
/// that was not asked for or the driver does not tell.
pub(crate) fn tells_tags(untagged: bool, interface: &Interface) -> Result<Option<Device>> {
    let index = interface.index();
    let tells = || linerate_net::ethtool::reports_vlan_tags(index);
    Ok((untagged && tells()?).then(|| Device::new(index)))
}

/// Frames that the program has seen, all CPUs together. A frame is in exactly one of the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Given to a socket. Those that the socket could not take are in the socket's statistics.
    pub matched: u64,
    /// Rejected by the filter.
    pub unmatched: u64,
    /// Accepted, but the frame's queue has no socket; passed to the stack.
    pub no_socket: u64,
}

/// The map that a steering program counts in; made by [`Program::statistics_reader`].
#[derive(Debug)]
pub struct StatisticsReader(OwnedFd);

impl StatisticsReader {
    /// The current counts of a receive queue. The number of queues at the start stands for all queues that came
    /// later.
    pub fn read(&self, queue: u32) -> Result<Statistics> {
        let mut sum = Statistics::default();
        for [matched, unmatched, no_socket] in counters_of_cpus(self.0.as_fd(), queue)? {
            sum.matched += matched;
            sum.unmatched += unmatched;
            sum.no_socket += no_socket;
        }
        Ok(sum)
    }
}

/// A steering program on an interface; detached on drop, and by the kernel when the process dies.
#[derive(Debug)]
pub struct Program {
    interface: Interface,
    loadable: LoadableProgram,
    device: Option<Device>,
    timestamps: TimestampSource,
    why_timestamps: Option<String>,
    rcu: RcuSynchronizer,
    program: OwnedFd,
    /// Rejects everything. Loaded at the start: later the process may have dropped the privilege to load a
    /// program, while attaching it needs none.
    rejecting: OwnedFd,
    link: Option<XdpLink>,
    only: Option<AttachMode>,
    queues: u32,
}

impl Program {
    /// Loads the program for `interface` without attaching it: sockets can be inserted first, so
    /// that no frame finds the program without them.
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::Privilege`], [`Error::Verifier`] (with the filter removed it
    /// may work), [`Error::System`].
    pub fn load(interface: &str, options: &Options<'_>) -> Result<Self> {
        let interface = Interface::open(interface)?;
        let mut why_timestamps = None;
        if options.timestamps == TimestampSource::Hardware {
            match Self::load_with(interface.clone(), options, TimestampSource::Hardware) {
                Ok(program) => return Ok(program),
                Err(error @ Error::Privilege { .. }) => return Err(error),
                Err(error) => why_timestamps = Some(format!("no hardware timestamps: {error}")),
            }
        }
        let timestamps = match options.timestamps {
            TimestampSource::Hardware => TimestampSource::Software,
            other => other,
        };
        let mut program = Self::load_with(interface, options, timestamps)?;
        program.why_timestamps = why_timestamps;
        Ok(program)
    }

    fn load_with(
        interface: Interface,
        options: &Options<'_>,
        timestamps: TimestampSource,
    ) -> Result<Self> {
        log_to_tracing();
        let hardware = timestamps == TimestampSource::Hardware;
        let queues = interface.rx_queues()?;
        let device = match hardware {
            true => Some(Device::new(interface.index())),
            false => tells_tags(options.untagged, &interface)?,
        };
        let name = match (hardware, &device) {
            (true, _) => "steer_hardware",
            (false, Some(_)) => "steer_untagged",
            (false, None) => "steer",
        };
        let loadable = open(name, options, timestamps, queues)?;
        let load =
            |filter| loadable.load(LoadOptions { filter, device: device.as_ref(), trace: None });
        let (program, rejecting) = (load(options.filter)?, load(Some(&REJECT_ALL))?);
        let rcu = RcuSynchronizer::new(loadable.map("counters"))?;
        Ok(Self {
            interface,
            loadable,
            device,
            timestamps,
            why_timestamps: None,
            rcu,
            program,
            rejecting,
            link: None,
            only: options.mode,
            queues,
        })
    }

    /// Redirects the frames of receive queue `queue` to `socket`, an AF_XDP socket bound to that queue.
    ///
    /// # Errors
    /// [`Error::System`], for instance for a queue above 255.
    pub fn add_socket(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<()> {
        let name = self.interface.name();
        update_fd(self.loadable.map("sockets"), queue, socket, libbpf_sys::BPF_ANY).map_err(
            |errno| {
                Error::bpf(format!("steer queue {queue} of interface {name} to a socket"), errno)
            },
        )
    }

    /// Attaches the program: from now on frames go to the sockets.
    ///
    /// # Errors
    /// [`Error::ForeignProgram`] when another XDP program is there; it stays. [`Error::Privilege`],
    /// [`Error::System`].
    pub fn attach(&mut self) -> Result<AttachMode> {
        let only = match self.device {
            // A program bound to a device cannot be generic.
            Some(_) => Some(AttachMode::Native),
            None => self.only,
        };
        let (name, index) = (self.interface.name(), self.interface.index());
        let link = XdpLink::attach(self.program.as_fd(), name, index, only)?;
        let mode = link.mode;
        self.link = Some(link);
        Ok(mode)
    }

    /// Loads the program with another filter, for [`Program::replace_filter`]. `None` accepts all.
    ///
    /// # Errors
    /// [`Error::Verifier`] and the like.
    pub fn load_filter(&self, filter: Option<&[Instruction]>) -> Result<LoadedProgram> {
        let load = LoadOptions { filter, device: self.device.as_ref(), trace: None };
        self.loadable.load(load).map(LoadedProgram)
    }

    /// Replaces the filter, at once for all queues and between two frames: no frame meets a mixture. Needs no privilege.
    /// When it returns, frames that the old filter accepted are in the rings of the sockets, and no more of them come;
    /// that takes some tens of milliseconds while attached.
    pub fn replace_filter(&mut self, loaded: &LoadedProgram) -> Result<()> {
        self.replace(duplicate(loaded.0.as_fd())?)
    }

    /// As [`Program::replace_filter`], by one that rejects everything.
    ///
    /// # Errors
    /// [`Error::System`], for instance when the interface has gone.
    pub fn reject_all(&mut self) -> Result<()> {
        self.replace(duplicate(self.rejecting.as_fd())?)
    }

    fn replace(&mut self, program: OwnedFd) -> Result<()> {
        if let Some(link) = &self.link {
            link.replace(program.as_fd())?;
            self.rcu.wait()?;
        }
        self.program = program;
        Ok(())
    }

    /// Receive queues of the interface when the program was loaded.
    pub fn queues(&self) -> u32 {
        self.queues
    }

    /// A handle that reads what the program has counted since it was loaded, over all its filters.
    ///
    /// # Errors
    /// [`Error::System`] when the process has no descriptor left.
    pub fn statistics_reader(&self) -> Result<StatisticsReader> {
        duplicate(self.loadable.map("counters")).map(StatisticsReader)
    }

    /// The addresses that [`Options::by_address`] matches; none at first.
    ///
    /// # Errors
    /// [`Error::System`] when the process has no descriptor left.
    pub fn addresses(&self) -> Result<Addresses> {
        Addresses::from_map(self.loadable.map("addresses"))
    }

    /// Where timestamps come from, and why not from where the options say.
    pub fn timestamps(&self) -> (TimestampSource, Option<&str>) {
        (self.timestamps, self.why_timestamps.as_deref())
    }

    /// Why it runs in the stack and not in the driver, if so.
    pub fn generic_reason(&self) -> Option<&str> {
        self.link.as_ref().and_then(|link| link.generic_reason.as_deref())
    }
}

fn open(
    name: &str,
    options: &Options<'_>,
    timestamps: TimestampSource,
    queues: u32,
) -> Result<LoadableProgram> {
    let mut storage = MaybeUninit::uninit();
    let mut object = skeleton::SteerSkelBuilder::default()
        .open(&mut storage)
        .map_err(|error| Error::Invalid(format!("cannot read the steering programs: {error}")))?;
    let sized = object.maps.counters.set_max_entries(queues + 1);
    sized.map_err(|error| Error::Invalid(format!("cannot size the counters: {error}")))?;
    if let Some(constants) = object.maps.rodata_data.as_deref_mut() {
        constants.queue_count = queues;
        constants.timestamps = u32::from(timestamps == TimestampSource::Software);
        constants.by_address = u32::from(options.by_address);
    }
    LoadableProgram::prepare(object.open_object(), name)
}

#[cfg(test)]
mod tests {
    use linerate_testkit::root_or_skip;

    use super::*;
    use crate::xdp::query::program_info;

    /// Functions of a program as the kernel runs it.
    fn functions(program: BorrowedFd<'_>) -> u32 {
        program_info(program, Default::default()).expect("a loaded program").nr_func_info
    }

    #[test]
    fn without_a_filter_none_is_called() {
        root_or_skip!();
        for timestamps in [TimestampSource::Reader, TimestampSource::Software] {
            let options = Options { timestamps, ..Options::default() };
            let mut steer = Program::load("lo", &options).unwrap();
            assert_eq!(functions(steer.program.as_fd()), 1, "{timestamps:?}");
            steer.reject_all().unwrap();
            assert_eq!(functions(steer.program.as_fd()), 2, "{timestamps:?}");
            steer.replace_filter(&steer.load_filter(None).unwrap()).unwrap();
            assert_eq!(functions(steer.program.as_fd()), 1, "{timestamps:?}");
        }
    }
}
