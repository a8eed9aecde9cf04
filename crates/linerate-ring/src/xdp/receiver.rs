//! [`Receiver`]: takes the frames of an interface by XDP, through AF_XDP sockets or a BPF ring buffer.

use std::fmt::{self, Display};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use linerate_bpf::LoadedProgram;
use linerate_bpf::filter::Instruction;
use linerate_bpf::steer::TimestampSource;
use linerate_bpf::xdp::AttachMode;
use linerate_net::link;
use linerate_net::text::plural;

use super::sockets::DEFAULT_CHUNK_SIZE;
use super::{
    Batch, BusyPoll, Delivery, Sockets, Statistics, StatisticsReader, TxSocket, Umem, WaitStrategy,
    probe,
};
use crate::packet::Promiscuous;
use crate::region::Pages;
use crate::tee::{self, Action, MAX_SNAPLEN, Tee};
use crate::{Error, Frame, Result, Timestamp};

/// Bytes of an Ethernet header and one VLAN tag.
const ETHERNET_HEADERS: u32 = 18;
/// Bytes of the largest chunk of a UMEM in small pages.
const LARGEST_CHUNK: u32 = 4096;
/// Frames that busy polling takes in one call.
const BUSY_POLL_BUDGET: u32 = 64;
/// The buffer of sockets is whole huge pages of this size.
const HUGE_PAGE: usize = 2 << 20;

/// What to ask of a receiver.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the program delivers frames.
    pub delivery: Delivery,
    /// What happens to the frames that the filter accepts. [`Action::Copy`] makes a tee, which other captures share,
    /// and which always has a ring buffer. Sockets redirect from the start: with [`Action::CopyThenRedirect`] only a
    /// request for [`Delivery::AfXdp`] opens them.
    pub action: Action,
    /// Frames whose VLAN tag the driver took out are left to the stack, where the driver tells. Not with
    /// [`Action::Copy`] or [`TimestampSource::Hardware`].
    pub untagged: bool,
    /// Native or generic only; `None` takes native where the driver has it.
    pub mode: Option<AttachMode>,
    /// Bytes of memory for frames; `None` takes the default of the delivery.
    pub buffer: Option<usize>,
    /// Pages of a UMEM.
    pub pages: Pages,
    /// Bytes to keep of each frame in a ring buffer, at most.
    pub snaplen: u32,
    /// Every frame comes in one piece: chunks are as large as the MTU needs, up to 4096 bytes.
    pub contiguous: bool,
    /// Frames in a batch, at most.
    pub batch: u32,
    /// Frames to fetch into the cache ahead of the reader, from a UMEM.
    pub prefetch: u32,
    /// Who stamps frames. A ring buffer has the kernel's stamps or none.
    pub timestamps: TimestampSource,
    /// Busy-poll the driver this long.
    pub busy_poll: Option<Duration>,
    /// Frames of [`Receiver::take_tx`]; 0 for a receiver that only receives.
    pub transmit: u32,
    /// How [`Receiver::wait`] waits.
    pub wait_strategy: WaitStrategy,
    /// Also receive what is addressed to others.
    pub promiscuous: bool,
    /// Receivers of [`Receiver::open_group`]; where the interface has fewer queues, one for each.
    pub readers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            delivery: Delivery::Auto,
            action: Action::Redirect,
            untagged: false,
            mode: None,
            buffer: None,
            pages: Pages::Auto,
            snaplen: MAX_SNAPLEN,
            contiguous: false,
            batch: 256,
            prefetch: 0,
            timestamps: TimestampSource::Software,
            busy_poll: None,
            transmit: 0,
            wait_strategy: WaitStrategy::default(),
            promiscuous: false,
            readers: 1,
        }
    }
}

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
            return Ok((u32::MAX, DEFAULT_CHUNK_SIZE));
        }
        let mtu = link::by_name(interface)?.mtu;
        let chunk = Umem::chunk_for(mtu + ETHERNET_HEADERS).unwrap_or(LARGEST_CHUNK);
        Ok(match delivery {
            Delivery::RingBuffer => (longest_of(mtu), chunk),
            _ => (chunk - super::HEADROOM, chunk),
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

/// Calls what both kinds of rings have in common.
macro_rules! either {
    ($receiver:expr, $rings:ident => $call:expr) => {
        match &mut $receiver.rings {
            Rings::Sockets($rings) => $call,
            Rings::RingBuffer($rings) => $call,
        }
    };
}

impl Receiver {
    /// Attaches a program to `interface`. Where [`Delivery::Auto`] prefers a ring buffer and that does not open,
    /// sockets take its place: its program needs a newer kernel. With [`Action::CopyThenRedirect`] they do not.
    ///
    /// `filter` makes the subprogram that accepts frames; `None` accepts all. It gets the length of the longest
    /// frame that comes whole ([`Options::contiguous`]), which depends on the delivery.
    ///
    /// # Errors
    /// Those of `filter`, [`super::SocketsBuilder::build`], [`tee::Builder::build`] and [`Promiscuous::enable`].
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
    /// buffer, beside which a [`TxSocket`](super::TxSocket) can be opened.
    pub fn take_tx(&mut self) -> Option<TxSocket> {
        match &mut self.rings {
            Rings::Sockets(sockets) => sockets.take_tx(),
            Rings::RingBuffer(_) => None,
        }
    }

    /// Waits until a frame can be read: true. False when `timeout` is over or a signal came, and at once when
    /// nothing is left after [`Receiver::stop`].
    ///
    /// # Errors
    /// [`Error::InterfaceDown`], once each time that it goes down: the receiver goes on when it comes up.
    /// [`Error::InterfaceGone`], [`Error::System`].
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        either!(self, rings => rings.wait(timeout))
    }

    /// Whether the interface is still there and up: for a reader that waits by means of its own, and in vain.
    ///
    /// # Errors
    /// As [`Receiver::wait`].
    pub fn check(&mut self) -> Result<()> {
        match &mut self.rings {
            Rings::Sockets(sockets) => sockets.wait(Duration::ZERO).map(drop),
            Rings::RingBuffer(tee) => tee.check(),
        }
    }

    /// Whether a frame can be read.
    #[inline]
    pub fn ready(&mut self) -> bool {
        either!(self, rings => rings.ready())
    }

    /// Whether a frame can be read. If not, the reader has announced its sleep ([`Receiver::announce_sleep`]). For one
    /// that sleeps on the descriptors only after this returned false: while it reads, nothing wakes it.
    #[inline]
    pub fn ready_or_announce_sleep(&mut self) -> bool {
        match &mut self.rings {
            Rings::Sockets(sockets) => sockets.ready(),
            Rings::RingBuffer(tee) => tee.ready_or_announce_sleep(),
        }
    }

    /// The frames that have come, up to the size of a batch; `None` when there are none.
    #[inline]
    pub fn next_batch(&mut self) -> Option<Frames<'_>> {
        match &mut self.rings {
            Rings::Sockets(sockets) => sockets.next_batch().map(Frames::Sockets),
            Rings::RingBuffer(tee) => tee.next_batch().map(Frames::RingBuffer),
        }
    }

    /// Gives back what suspended batches have lent, so that descriptors are readable for new frames only.
    #[inline]
    pub fn release(&mut self) {
        either!(self, rings => rings.release());
    }

    /// What to sleep on: readable when there is a frame, if [`Receiver::announce_sleep`] was called before the
    /// last look with [`Receiver::ready`].
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match &self.rings {
            Rings::Sockets(sockets) => sockets.descriptors().collect(),
            Rings::RingBuffer(tee) => tee.descriptors().collect(),
        }
    }

    /// To be called before the last look of a reader that then sleeps on the descriptors: the program of a ring
    /// buffer wakes nobody else.
    #[inline]
    pub fn announce_sleep(&self) {
        if let Rings::RingBuffer(tee) = &self.rings {
            tee.announce_sleep();
        }
    }

    /// As [`Receiver::announce_sleep`], and again whenever a batch has been dropped: for a reader that may sleep on
    /// the descriptors after each.
    pub fn announce_polling(&self) {
        if let Rings::RingBuffer(tee) = &self.rings {
            tee.announce_polling();
        }
    }

    /// Cancels [`Receiver::announce_sleep`].
    #[inline]
    pub fn cancel_sleep(&self) {
        if let Rings::RingBuffer(tee) = &self.rings {
            tee.cancel_sleep();
        }
    }

    /// Replaces the filter between two frames; what the old one accepted is in the rings when it returns.
    ///
    /// # Errors
    /// [`Error::Bpf`] when the kernel refuses it; the old filter then stays.
    pub fn set_filter(&mut self, filter: Option<&[Instruction]>) -> Result<()> {
        either!(self, rings => rings.set_filter(filter))
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

    /// As [`Receiver::set_filter`], without a privilege.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn replace_filter(&mut self, loaded: &LoadedProgram) -> Result<()> {
        either!(self, rings => rings.replace_filter(loaded))
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

    /// Lets no further frame in: when it returns, all that was accepted is in the rings. Takes some tens of
    /// milliseconds.
    ///
    /// # Errors
    /// As [`Sockets::stop`] and [`Tee::stop`].
    pub fn stop(&mut self) -> Result<()> {
        either!(self, rings => rings.stop())
    }

    /// The counts since it was opened.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn statistics(&self) -> Result<Statistics> {
        match &self.rings {
            Rings::Sockets(sockets) => sockets.statistics(),
            Rings::RingBuffer(tee) => tee.statistics().map(Into::into),
        }
    }

    /// The counts for each receive queue that had frames, without [`Statistics::received`]. The number of queues
    /// at the start stands for all that came later.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn queue_statistics(&self) -> Result<Vec<(u32, Statistics)>> {
        match &self.rings {
            Rings::Sockets(sockets) => sockets.queue_statistics(),
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
            Rings::RingBuffer(tee) if tee.layout().by_cpu => {
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

    /// A handle that reads the counts while frames are lent, and from other threads.
    ///
    /// # Errors
    /// [`Error::System`] when there is no descriptor left.
    pub fn statistics_reader(&self) -> Result<ReceiverStatisticsReader> {
        Ok(match &self.rings {
            Rings::Sockets(sockets) => {
                ReceiverStatisticsReader::Sockets(sockets.statistics_reader()?)
            }
            Rings::RingBuffer(tee) => {
                ReceiverStatisticsReader::RingBuffer(tee.statistics_reader()?)
            }
        })
    }

    /// How full the buffer is, 0 to 1.
    pub fn fill_level(&mut self) -> f32 {
        match &mut self.rings {
            Rings::Sockets(sockets) => {
                sockets.pending() as f32 / sockets.frame_capacity().max(1) as f32
            }
            Rings::RingBuffer(tee) => tee.fill_level(),
        }
    }
}

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
    let mut builder = Sockets::builder(interface)
        .chunk_size(chunk)
        .transmit(options.transmit)
        .pages(options.pages)
        .multi_buffer(!options.contiguous)
        .batch(options.batch)
        .prefetch(options.prefetch)
        .busy_poll(options.busy_poll.map(|time| BusyPoll {
            microseconds: u32::try_from(time.as_micros()).unwrap_or(u32::MAX),
            budget: BUSY_POLL_BUDGET,
        }))
        .wait_strategy(options.wait_strategy)
        .timestamps(options.timestamps)
        .filter(filter)
        .untagged(options.untagged)
        .mode(options.mode);
    if let Some(bytes) = options.buffer {
        builder = builder.buffer_size(bytes.next_multiple_of(HUGE_PAGE));
    }
    let group = builder.build_group(options.readers)?;
    let sockets = &group[0];
    let (mode, pages) = (sockets.mode(), sockets.region().actual_pages());
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
    let stamps = options.timestamps;
    let mut builder = Tee::builder(interface)
        .snaplen(options.snaplen.min(MAX_SNAPLEN))
        .batch(options.batch)
        .wait_strategy(options.wait_strategy)
        .timestamps(matches!(stamps, TimestampSource::Software | TimestampSource::Hardware))
        .filter(filter)
        .mode(options.mode)
        .action(options.action)
        .untagged(options.untagged);
    if let Some(bytes) = options.buffer {
        builder = builder.buffer_size(bytes);
    }
    let group = builder.build_group(options.readers)?;
    let tee = &group[0];
    let config = Config {
        delivery: Delivery::RingBuffer,
        reason: String::new(),
        action: options.action,
        mode: tee.mode(),
        zero_copy: false,
        sockets: 0,
        rings: tee.layout().rings as usize,
        longest: 0,
        pages: Pages::Small,
        has_stripped_tags: false,
        notes: tee.generic_reason().map(str::to_owned).into_iter().collect(),
    };
    Ok((group.into_iter().map(|tee| Rings::RingBuffer(Box::new(tee))).collect(), config))
}

/// A batch of a [`Receiver`]. A fast reader matches it once, outside of its loop.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "made once a batch, on the stack")]
pub enum Frames<'r> {
    /// Frames of one queue.
    Sockets(Batch<'r>),
    /// Frames of the ring buffer.
    RingBuffer(tee::Batch<'r>),
}

impl Frames<'_> {
    /// The first piece of the frame that [`Frames::next`] would give, which stays where it is.
    #[inline]
    pub fn peek(&mut self) -> Option<&[u8]> {
        match self {
            Self::Sockets(batch) => batch.peek(),
            Self::RingBuffer(batch) => batch.peek(),
        }
    }

    /// The next frame, or `None` at the end of the batch.
    #[allow(clippy::should_implement_trait, reason = "lends, as Iterator cannot")]
    #[inline]
    pub fn next(&mut self) -> Option<Frame<'_>> {
        match self {
            Self::Sockets(batch) => batch.next(),
            Self::RingBuffer(batch) => batch.next(),
        }
    }
}

/// Reads the counts of a receiver; made by [`Receiver::statistics_reader`].
#[derive(Debug)]
pub enum ReceiverStatisticsReader {
    /// Of AF_XDP sockets.
    Sockets(StatisticsReader),
    /// Of a BPF ring buffer.
    RingBuffer(tee::StatisticsReader),
}

impl ReceiverStatisticsReader {
    /// The counts; [`Statistics::received`] is the reader's own and 0 here.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn read(&self) -> Result<Statistics> {
        match self {
            Self::Sockets(counters) => counters.read(),
            Self::RingBuffer(counters) => counters.read().map(Into::into),
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
