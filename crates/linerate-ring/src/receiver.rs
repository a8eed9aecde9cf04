//! [`Receiver`]: takes the frames of an interface by XDP, through AF_XDP sockets or a BPF ring buffer.

use std::fmt::{self, Display};
use std::sync::Arc;

use linerate_bpf::LoadedProgram;
use linerate_bpf::filter::Instruction;
use linerate_bpf::steer::TimestampSource;
use linerate_bpf::xdp::AttachMode;
use linerate_net::link;
use linerate_net::text::plural;

use crate::options::{Delivery, Options};
use crate::packet::Promiscuous;
use crate::region::Pages;
use crate::tee::{self, Action, MAX_SNAPLEN, Tee};
use crate::xdp::{self, HEADROOM, Sockets, Statistics, TxSocket, Umem, probe};
use crate::{Error, Result, Timestamp, ring_of_variants};

/// Bytes of an Ethernet header and one VLAN tag.
const ETHERNET_HEADERS: u32 = 18;
/// Bytes of the largest chunk of a UMEM in small pages.
const LARGEST_CHUNK: u32 = 4096;
/// The buffer of sockets is whole huge pages of this size.
const HUGE_PAGE: usize = 2 << 20;

impl Options {
    /// The delivery on `interface`, and why. Asks the driver where nothing else decides.
    fn decide(&self, interface: &str) -> (Delivery, &'static str) {
        match self.delivery {
            _ if self.action == Action::Copy => (Delivery::RingBuffer, "a tee"),
            Delivery::Auto if self.action == Action::CopyThenRedirect => {
                (Delivery::RingBuffer, "sockets would redirect at once")
            }
            Delivery::Auto if self.pages != Pages::Auto => {
                (Delivery::AfXdp, "only a UMEM has a choice of pages")
            }
            Delivery::Auto if self.busy_poll.is_some() => {
                (Delivery::AfXdp, "only sockets poll the driver")
            }
            Delivery::Auto if self.timestamps == TimestampSource::Hardware => {
                (Delivery::AfXdp, "only their program asks the card for its stamps")
            }
            Delivery::Auto if probe(interface).zero_copy => {
                (Delivery::AfXdp, "the driver shares frames without a copy")
            }
            Delivery::Auto => (Delivery::RingBuffer, "the driver has no zero-copy AF_XDP"),
            asked => (asked, "requested"),
        }
    }

    /// Bytes of the longest frame that comes whole, and of a chunk of a UMEM.
    fn sizes(&self, interface: &str, delivery: Delivery) -> Result<(u32, u32)> {
        if !self.contiguous {
            return Ok((u32::MAX, self.chunk_size));
        }
        let mtu = link::by_name(interface)?.mtu;
        let chunk = Umem::chunk_for(mtu + ETHERNET_HEADERS).unwrap_or(LARGEST_CHUNK);
        Ok(match delivery {
            Delivery::RingBuffer => (longest_of(mtu), chunk),
            _ => (chunk - HEADROOM, chunk),
        })
    }
}

/// Bytes of the longest frame that a ring buffer takes whole.
fn longest_of(mtu: u32) -> u32 {
    (mtu + ETHERNET_HEADERS).min(MAX_SNAPLEN)
}

/// The configuration that a receiver got.
#[derive(Clone, Debug)]
pub struct Config {
    /// [`Delivery::AfXdp`] or [`Delivery::RingBuffer`].
    pub delivery: Delivery,
    /// Why that one.
    pub reason: String,
    /// What was asked for; with [`Action::Copy`] it is a tee.
    pub action: Action,
    /// Where the program runs.
    pub mode: AttachMode,
    /// The driver writes frames into the UMEM.
    pub zero_copy: bool,
    /// Sockets, one for each queue; 0 for ring buffers.
    pub sockets: usize,
    /// Ring buffers, one for each queue or CPU; 0 for sockets.
    pub rings: usize,
    /// Bytes of the longest frame that comes in one piece, as far as that was asked for.
    pub longest: u32,
    /// Pages of the buffer. A ring buffer is the kernel's own memory, in small pages.
    pub pages: Pages,
    /// VLAN tags that the card took out of frames are in them again.
    pub has_stripped_tags: bool,
    /// What the buffer of sockets is made of, and why something better was not got, a clause each.
    pub notes: Vec<String>,
}

impl Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, mode, sockets, rings, .. } = self;
        let is_tee = self.action == Action::Copy;
        match self.delivery {
            _ if is_tee && *rings == 1 => write!(f, "{mode} XDP"),
            _ if is_tee => write!(f, "{mode} XDP, {rings} ring buffers"),
            Delivery::RingBuffer if *rings == 1 => {
                write!(f, "{mode} XDP, a ring buffer ({reason})")
            }
            Delivery::RingBuffer => write!(f, "{mode} XDP, {rings} ring buffers ({reason})"),
            _ => {
                let copy = if self.zero_copy { "zero-copy" } else { "one copy by the kernel" };
                let queues = plural(*sockets as u64, "queue");
                write!(f, "{mode} XDP, AF_XDP sockets ({reason}), {copy}, {queues}")
            }
        }
    }
}

/// An XDP program on an interface and the frames that it delivers.
///
/// Nothing is left attached when it is dropped, nor when the process dies.
#[derive(Debug)]
pub struct Receiver {
    rings: Rings,
    config: Config,
    _promiscuous: Option<Arc<Promiscuous>>,
}

#[derive(Debug)]
enum Rings {
    Sockets(Box<Sockets>),
    RingBuffer(Box<Tee>),
}

impl Receiver {
    /// Attaches a program to `interface`. Where [`Delivery::Auto`] prefers a ring buffer and that does not open,
    /// sockets take its place: its program needs a newer kernel. With [`Action::CopyThenRedirect`] they do not.
    ///
    /// `filter` makes the subprogram that accepts frames; `None` accepts all. It gets the length of the longest
    /// frame that comes whole ([`Options::contiguous`]), which depends on the delivery.
    ///
    /// # Errors
    /// Those of `filter`, [`Sockets::open`], [`Tee::open`] and [`Promiscuous::enable`].
    pub fn open<E: From<Error> + Display>(
        interface: &str,
        options: &Options,
        filter: impl Fn(u32) -> std::result::Result<Option<Vec<Instruction>>, E>,
    ) -> std::result::Result<Self, E> {
        let one = Options { readers: 1, ..options.clone() };
        Self::open_group(interface, &one, filter).map(|mut all| all.remove(0))
    }

    /// As [`Receiver::open`] for several readers ([`Options::readers`]), which share the program. Each has queues
    /// of its own, or CPUs where the ring buffers are theirs.
    ///
    /// # Errors
    /// As [`Receiver::open`].
    pub fn open_group<E: From<Error> + Display>(
        interface: &str,
        options: &Options,
        filter: impl Fn(u32) -> std::result::Result<Option<Vec<Instruction>>, E>,
    ) -> std::result::Result<Vec<Self>, E> {
        let open = |delivery, reason: &str| {
            let (longest, chunk) = options.sizes(interface, delivery)?;
            let filter = filter(longest)?;
            let opened = match delivery {
                Delivery::RingBuffer => ring_buffer(interface, options, filter.as_deref()),
                _ => sockets(interface, options, filter.as_deref(), chunk),
            };
            let (group, config) = opened?;
            let promiscuous = options.promiscuous.then(|| Promiscuous::enable(interface));
            let promiscuous = promiscuous.transpose()?.map(Arc::new);
            let config = Config { delivery, reason: reason.to_owned(), longest, ..config };
            let receiver =
                |rings| Self { rings, config: config.clone(), _promiscuous: promiscuous.clone() };
            Ok(group.into_iter().map(receiver).collect())
        };
        let (delivery, reason) = options.decide(interface);
        let free = options.action == Action::Redirect && options.delivery == Delivery::Auto;
        match open(delivery, reason) {
            Err(error) if free && delivery == Delivery::RingBuffer => {
                let error: E = error;
                open(Delivery::AfXdp, &format!("a ring buffer does not open here: {error}"))
            }
            result => result,
        }
    }

    /// Bytes of the longest frame that comes in one piece with another MTU: a chunk stays as large as it is.
    pub fn longest(&self, mtu: u32) -> u32 {
        match &self.rings {
            Rings::Sockets(_) => self.config.longest,
            Rings::RingBuffer(_) => longest_of(mtu),
        }
    }

    /// What it got.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The transmit half of the first queue's socket, once, if [`Options::transmit`] asked for it. `None` with a ring
    /// buffer, beside which a [`TxSocket`] can be opened.
    pub fn take_tx(&mut self) -> Option<TxSocket> {
        match &mut self.rings {
            Rings::Sockets(sockets) => sockets.take_tx(),
            Rings::RingBuffer(_) => None,
        }
    }

    /// Loads the program with another filter, for [`Receiver::replace_filter`].
    ///
    /// # Errors
    /// [`Error::Bpf`] when the kernel refuses the filter.
    pub fn load_filter(&self, filter: Option<&[Instruction]>) -> Result<LoadedProgram> {
        match &self.rings {
            Rings::Sockets(sockets) => sockets.load_filter(filter),
            Rings::RingBuffer(tee) => tee.load_filter(filter),
        }
    }

    /// Replaces the filter between two frames, without a privilege. What the old one accepted is in the rings when it
    /// returns.
    pub fn replace_filter(&mut self, loaded: &LoadedProgram) -> Result<()> {
        match &mut self.rings {
            Rings::Sockets(sockets) => sockets.replace_filter(loaded),
            Rings::RingBuffer(tee) => tee.replace_filter(loaded),
        }
    }

    /// What happens to the frames that the filter accepts, where it is not a tee. False where it cannot: sockets only
    /// redirect.
    pub fn set_action(&self, action: Action) -> bool {
        match &self.rings {
            Rings::Sockets(_) => action == Action::Redirect,
            Rings::RingBuffer(tee) => {
                tee.set_action(action);
                true
            }
        }
    }

    /// The counts for each receive queue that had frames, without [`Statistics::received`]. The number of queues
    /// at the start stands for all that came later.
    pub fn queue_statistics(&self) -> Result<Vec<(u32, Statistics)>> {
        match &self.rings {
            Rings::Sockets(sockets) => sockets.counters.read_queues(),
            Rings::RingBuffer(tee) => {
                let queues = tee.queue_statistics()?.into_iter();
                Ok(queues.map(|(queue, counts)| (queue, counts.into())).collect())
            }
        }
    }

    /// The receive queues of this receiver, or the CPUs whose frames it gets.
    pub fn share(&self) -> Share {
        match &self.rings {
            Rings::Sockets(sockets) => Share::Queues(sockets.queues().collect()),
            Rings::RingBuffer(tee) if tee.program().layout().by_cpu => {
                Share::Cpus(tee.rings().map(|cpu| cpu as usize).collect())
            }
            Rings::RingBuffer(tee) => Share::Queues(tee.rings().collect()),
        }
    }

    /// A time before which every frame that will come was not stamped; `None` if one waits to be read, or if
    /// nothing tells: sockets get frames some time after their stamps.
    pub fn empty_since(&mut self) -> Option<Timestamp> {
        match &mut self.rings {
            Rings::Sockets(_) => None,
            Rings::RingBuffer(tee) => tee.empty_since(),
        }
    }
}

ring_of_variants!(Receiver, Rings in rings, Frames, Statistics, Sockets, RingBuffer);

/// What a receiver of a group reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Share {
    /// These receive queues.
    Queues(Vec<u32>),
    /// What these CPUs receive, from any queue.
    Cpus(Vec<usize>),
}

/// AF_XDP sockets on all queues.
fn sockets(
    interface: &str,
    options: &Options,
    filter: Option<&[Instruction]>,
    chunk: u32,
) -> Result<(Vec<Rings>, Config)> {
    let buffer = options.buffer.map(|bytes| bytes.next_multiple_of(HUGE_PAGE));
    let options = Options { buffer, chunk_size: chunk, ..options.clone() };
    let group = Sockets::open_group(interface, &options, filter)?;
    let sockets = &group[0];
    let (mode, pages) = (sockets.mode(), sockets.umem.region().actual_pages());
    let config = Config {
        delivery: Delivery::AfXdp,
        reason: String::new(),
        action: Action::Redirect,
        mode: sockets.attach_mode(),
        zero_copy: mode.zero_copy,
        sockets: group.iter().map(|sockets| sockets.queues().count()).sum(),
        rings: 0,
        longest: 0,
        pages: pages.pages,
        has_stripped_tags: sockets.timestamps() == TimestampSource::Hardware,
        notes: std::iter::once(format!("buffer: {pages}")).chain(mode.why).collect(),
    };
    Ok((group.into_iter().map(|sockets| Rings::Sockets(Box::new(sockets))).collect(), config))
}

/// Ring buffers that the program copies to.
fn ring_buffer(
    interface: &str,
    options: &Options,
    filter: Option<&[Instruction]>,
) -> Result<(Vec<Rings>, Config)> {
    let group = Tee::open_group(interface, options, filter)?;
    let tee = &group[0];
    let config = Config {
        delivery: Delivery::RingBuffer,
        reason: String::new(),
        action: options.action,
        mode: tee.program().mode(),
        zero_copy: false,
        sockets: 0,
        rings: tee.program().layout().rings as usize,
        longest: 0,
        pages: Pages::Small,
        has_stripped_tags: false,
        notes: tee.program().generic_reason().map(str::to_owned).into_iter().collect(),
    };
    Ok((group.into_iter().map(|tee| Rings::RingBuffer(Box::new(tee))).collect(), config))
}

/// A batch of a [`Receiver`].
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "made once a batch, on the stack")]
pub enum Frames<'r> {
    /// Frames of one queue.
    Sockets(xdp::Batch<'r>),
    /// Frames of the ring buffer.
    RingBuffer(tee::Batch<'r>),
}

impl Frames<'_> {
    /// The first piece of the frame that [`next`](crate::Batch::next) would give, which stays where it is.
    #[inline]
    pub fn peek(&mut self) -> Option<&[u8]> {
        match self {
            Self::Sockets(batch) => batch.peek(),
            Self::RingBuffer(batch) => batch.peek(),
        }
    }
}

impl From<tee::Statistics> for Statistics {
    fn from(counts: tee::Statistics) -> Self {
        Self {
            received: counts.received,
            matched: counts.captured + counts.lost(),
            unmatched: counts.unmatched,
            ring_buffer_full: counts.lost(),
            disordered: counts.disordered,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_a_request_opens_sockets_where_frames_are_copied_first() {
        let copy_first = |delivery| Options {
            delivery,
            action: Action::CopyThenRedirect,
            busy_poll: Some(Duration::from_micros(1)),
            ..Options::default()
        };
        for (asked, got) in
            [(Delivery::Auto, Delivery::RingBuffer), (Delivery::AfXdp, Delivery::AfXdp)]
        {
            assert_eq!(copy_first(asked).decide("none").0, got);
        }
    }
}
