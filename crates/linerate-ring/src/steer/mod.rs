//! [`Steer`]: the XDP program that hands frames to AF_XDP sockets, one socket per receive queue.
//!
//! A frame that the filter accepts goes to the socket of its queue. Any other, and any frame of a
//! queue without a socket, goes to the stack as if nothing were attached (or is dropped, where
//! [`Unmatched::Drop`] says so).

pub(crate) mod attach;
pub mod grace;
pub(crate) mod holder;
pub(crate) mod program;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use linerate_net::Interface;

pub use attach::{Attach, Attached, has_ingress_program};
pub use holder::Holder;
pub use program::quiet_libbpf;

use crate::addresses::Addresses;
use crate::filter::Instruction;
use crate::{Error, Result};
use attach::Link;
use grace::Grace;
use program::{Load, Template};

include!(concat!(env!("OUT_DIR"), "/steer.rs"));

/// What becomes of a frame that the filter refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unmatched {
    /// It goes to the stack.
    #[default]
    Pass,
    /// It is dropped.
    Drop,
}

/// Who stamps a frame with its time of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stamps {
    /// Nobody.
    None,
    /// The reader, once a batch: every frame of a batch has the time at which the batch was taken.
    /// Costs nothing on the receiving core.
    #[default]
    Reader,
    /// The XDP program, frame by frame, from the kernel's clock. Cost 70 to 90 ns a frame on a
    /// virtual machine over veth, the metadata that carries the stamp included.
    Kernel,
    /// The network card where its driver answers, else as [`Stamps::Kernel`]. The card's clock is
    /// taken as it is. Brings the card's hash and stripped VLAN tag too. Cost up to 30 ns more than
    /// [`Stamps::Kernel`] where the driver had nothing to say.
    Hardware,
}

/// What a steering program is to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// Frames that this refuses do not go to a socket; `None` accepts all. The subprogram is what
    /// [`crate::filter::translate`] makes.
    pub filter: Option<&'a [Instruction]>,
    /// Only frames for [`Steer::addresses`] go to a socket: IP packets to one of them, and questions for
    /// the hardware address of one (ARP requests, neighbour solicitations). All others go to the stack.
    pub by_address: bool,
    /// What becomes of the others.
    pub unmatched: Unmatched,
    /// Who stamps.
    pub stamps: Stamps,
    /// Native or generic only; `None` takes native where the driver has it.
    pub attach: Option<Attach>,
}

/// Frames judged by the program, all CPUs together. A frame is in exactly one of the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Given to a socket. Those that the socket could not take are in the socket's statistics.
    pub matched: u64,
    /// Refused by the filter.
    pub unmatched: u64,
    /// Accepted, but the frame's queue has no socket; passed to the stack.
    pub no_socket: u64,
}

impl Counters {
    pub(crate) fn of([matched, unmatched, no_socket]: [u64; 3]) -> Self {
        Self { matched, unmatched, no_socket }
    }
}

/// The XDP program on an interface, if there is one. Needs no privilege.
///
/// # Errors
/// [`Error::NoInterface`], [`Error::System`].
pub fn attached(interface: &str) -> Result<Option<Attached>> {
    attach::attached(Interface::open(interface)?.index())
}

/// Whether an XDP program can be attached to the interface, as far as others are concerned.
///
/// # Errors
/// [`Error::ForeignProgram`] where there is one; as [`attached`].
pub fn require_free(interface: &str) -> Result<()> {
    attached(interface)?.map_or(Ok(()), |found| Err(attach::foreign(interface, &found)))
}

/// A steering program on an interface; detached on drop, and by the kernel when the process dies.
#[derive(Debug)]
pub struct Steer {
    interface: Interface,
    template: Template,
    device: Option<u32>,
    stamps: Stamps,
    why_stamps: Option<String>,
    grace: Grace,
    program: OwnedFd,
    /// Refuses everything. Loaded from the start: by the end the process may have lost the privilege
    /// to load one, while putting it in place takes none.
    refusing: OwnedFd,
    link: Option<Link>,
    only: Option<Attach>,
}

impl Steer {
    /// Loads the program for `interface` without attaching it: sockets can be inserted first, so
    /// that no frame finds the program without them.
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::Privilege`], [`Error::Verifier`] (with the filter removed it
    /// may work), [`Error::System`].
    pub fn load(interface: &str, options: &Options<'_>) -> Result<Self> {
        let interface = Interface::open(interface)?;
        let mut why_stamps = None;
        if options.stamps == Stamps::Hardware {
            match Self::load_with(interface.clone(), options, Stamps::Hardware) {
                Ok(steer) => return Ok(steer),
                Err(error @ Error::Privilege { .. }) => return Err(error),
                Err(error) => why_stamps = Some(format!("no stamps of the card: {error}")),
            }
        }
        let stamps = match options.stamps {
            Stamps::Hardware => Stamps::Kernel,
            stamps => stamps,
        };
        let mut steer = Self::load_with(interface, options, stamps)?;
        steer.why_stamps = why_stamps;
        Ok(steer)
    }

    fn load_with(interface: Interface, options: &Options<'_>, stamps: Stamps) -> Result<Self> {
        quiet_libbpf();
        let hardware = stamps == Stamps::Hardware;
        let template = template(hardware, options, stamps)?;
        let device = hardware.then_some(interface.index());
        let program = template.load(Load { filter: options.filter, device })?;
        let refusing = template.load(Load { filter: Some(&program::REFUSE), device })?;
        let grace = Grace::new(template.map("counters"))?;
        Ok(Self {
            interface,
            template,
            device,
            stamps,
            why_stamps: None,
            grace,
            program,
            refusing,
            link: None,
            only: options.attach,
        })
    }

    /// Sends the frames of receive queue `queue` to `socket`, an AF_XDP socket bound to that queue.
    ///
    /// # Errors
    /// [`Error::System`], for instance for a queue above 255.
    pub fn insert(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<()> {
        match put(self.template.map("sockets"), queue, socket, libbpf_sys::BPF_ANY) {
            0 => Ok(()),
            errno => Err(program::refusal(
                format!("steer queue {queue} of interface {} to a socket", self.interface.name()),
                errno,
            )),
        }
    }

    /// Attaches the program: from now on frames go to the sockets.
    ///
    /// # Errors
    /// [`Error::ForeignProgram`] when another XDP program is there; it stays. [`Error::Privilege`],
    /// [`Error::System`].
    pub fn attach(&mut self) -> Result<Attach> {
        let only = match self.device {
            // A program bound to a device cannot be generic.
            Some(_) => Some(Attach::Native),
            None => self.only,
        };
        let (name, index) = (self.interface.name(), self.interface.index());
        let link = Link::attach(self.program.as_fd(), name, index, only)?;
        let attach = link.attach;
        self.link = Some(link);
        Ok(attach)
    }

    /// Puts another filter in place, at once for all queues and between two frames: no frame is
    /// judged by a mixture. `None` accepts all. When it returns, what the old filter accepted is in
    /// the rings of the sockets, and nothing that it accepts comes any more; that takes some tens of
    /// milliseconds while attached.
    ///
    /// # Errors
    /// [`Error::Verifier`] and the like; the old filter then stays in force.
    pub fn set_filter(&mut self, filter: Option<&[Instruction]>) -> Result<()> {
        let load = Load { filter, device: self.device };
        self.put_in_place(self.template.load(load)?)
    }

    /// Puts a filter in place that refuses everything, as [`Steer::set_filter`] does, but needs no
    /// privilege.
    ///
    /// # Errors
    /// [`Error::System`], for instance when the interface has gone.
    pub fn refuse_all(&mut self) -> Result<()> {
        let refusing = self
            .refusing
            .try_clone()
            .map_err(|error| Error::system("duplicate a BPF descriptor", error))?;
        self.put_in_place(refusing)
    }

    fn put_in_place(&mut self, program: OwnedFd) -> Result<()> {
        if let Some(link) = &self.link {
            link.replace(program.as_fd(), self.interface.name())?;
            self.grace.wait()?;
        }
        self.program = program;
        Ok(())
    }

    /// What the program has counted since it was loaded, over all its filters.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn counters(&self) -> Result<Counters> {
        sum_of_cpus(self.counting()).map(Counters::of)
    }

    /// The map that the program counts in.
    pub(crate) fn counting(&self) -> BorrowedFd<'_> {
        self.template.map("counters")
    }

    /// The addresses that [`Options::by_address`] goes by; none at first.
    ///
    /// # Errors
    /// [`Error::System`] when the process has no descriptor left.
    pub fn addresses(&self) -> Result<Addresses> {
        Addresses::of(self.template.map("addresses"))
    }

    /// Where it runs; `None` before [`Steer::attach`].
    pub fn attached(&self) -> Option<Attach> {
        self.link.as_ref().map(|link| link.attach)
    }

    /// Who stamps in fact, and why it is not who was asked to.
    pub fn stamps(&self) -> (Stamps, Option<&str>) {
        (self.stamps, self.why_stamps.as_deref())
    }

    /// Why it runs in the stack and not in the driver, where it does.
    pub fn why_generic(&self) -> Option<&str> {
        self.link.as_ref().and_then(|link| link.why.as_deref())
    }
}

fn template(hardware: bool, options: &Options<'_>, stamps: Stamps) -> Result<Template> {
    let mut storage = MaybeUninit::uninit();
    let mut open = skeleton::SteerSkelBuilder::default()
        .open(&mut storage)
        .map_err(|error| Error::Invalid(format!("cannot read the steering programs: {error}")))?;
    if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
        constants.stamps = u32::from(stamps == Stamps::Kernel);
        constants.by_address = u32::from(options.by_address);
        constants.drop_unmatched = u32::from(options.unmatched == Unmatched::Drop);
    }
    let name = if hardware { "steer_hardware" } else { "steer" };
    Template::prepare(open.open_object(), name)
}

/// Element 0 of a per-CPU array of `N` counters each, summed over all CPUs.
pub(crate) fn sum_of_cpus<const N: usize>(map: BorrowedFd<'_>) -> Result<[u64; N]> {
    let cpus = libbpf_rs::num_possible_cpus()
        .map_err(|error| Error::Invalid(format!("cannot count the CPUs: {error}")))?;
    let mut values = vec![[0u64; N]; cpus];
    let key = 0u32;
    // SAFETY: the kernel writes one value of `8 * N` bytes per possible CPU.
    let answer = unsafe {
        libbpf_sys::bpf_map_lookup_elem(
            map.as_raw_fd(),
            (&raw const key).cast(),
            values.as_mut_ptr().cast(),
        )
    };
    if answer < 0 {
        return Err(program::refusal("read the counters of an XDP program", -answer));
    }
    let mut sum = [0; N];
    for value in values {
        sum.iter_mut().zip(value).for_each(|(sum, value)| *sum += value);
    }
    Ok(sum)
}

/// Puts a descriptor in a map of descriptors; 0 or an `errno`.
pub(crate) fn put(map: BorrowedFd<'_>, key: u32, value: BorrowedFd<'_>, flags: u32) -> i32 {
    let value = value.as_raw_fd();
    // SAFETY: a map with keys and values of four bytes, both ours.
    -unsafe {
        libbpf_sys::bpf_map_update_elem(
            map.as_raw_fd(),
            (&raw const key).cast(),
            (&raw const value).cast(),
            u64::from(flags),
        )
    }
}

#[cfg(test)]
mod tests {
    use linerate_testkit::root_or_skip;

    use super::*;

    /// Functions of a program as the kernel runs it.
    fn functions(program: BorrowedFd<'_>) -> u32 {
        let mut info = libbpf_sys::bpf_prog_info::default();
        let mut len = size_of_val(&info) as u32;
        let fd = program.as_raw_fd();
        // SAFETY: `info` is writable and `len` its size.
        let answer = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd, &mut info, &mut len) };
        assert_eq!(answer, 0);
        info.nr_func_info
    }

    #[test]
    fn without_a_filter_none_is_called() {
        root_or_skip!();
        for stamps in [Stamps::Reader, Stamps::Kernel] {
            let options = Options { stamps, ..Options::default() };
            let mut steer = Steer::load("lo", &options).unwrap();
            assert_eq!(functions(steer.program.as_fd()), 1, "{stamps:?}");
            steer.refuse_all().unwrap();
            assert_eq!(functions(steer.program.as_fd()), 2, "{stamps:?}");
            steer.set_filter(None).unwrap();
            assert_eq!(functions(steer.program.as_fd()), 1, "{stamps:?}");
        }
    }
}
