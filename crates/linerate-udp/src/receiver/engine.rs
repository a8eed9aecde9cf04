//! [`Engine`]: the backend of a receiver. A new backend adds a variant here, and its name to [`Backend`].

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linerate_ring::Ring as _;
use rustix::event::PollFlags;

use crate::backend::Backend;
use crate::caller_socket::interface_of;
use crate::group::Group;
use crate::message::{Drops, Message};
use crate::options::Options;
use crate::socket::{self, RecvMmsg, WaitOutcome};
use crate::uring::Uring;
use crate::watch::Watch;
use crate::xdp::{self, TransmitRing, XdpBatch, XdpReceiver};
use crate::{Error, Result};

/// The most super-datagrams of one call: 4 MiB of them.
const MAX_SUPER_DATAGRAMS: usize = 64;
/// Batches of the rings of `xdp` between two reads of the companion socket, each of which is a system call.
const XDP_BATCHES_PER_SOCKET_READ: u32 = 16;
/// How long a coalescing wait takes in all by default, timer slack included; see [`linerate_ring::WaitStrategy`].
/// Messages that wait in a socket occupy memory that the sender's core then lacks, the more so the faster they
/// arrive: super-datagrams gather enough in 20 µs, and longer waits cost rate.
const COALESCE_XDP: Duration = Duration::from_micros(250);
const COALESCE_RECVMMSG: Duration = Duration::from_micros(100);
const COALESCE_GRO: Duration = Duration::from_micros(20);

#[derive(Debug)]
pub(super) enum Engine {
    /// `recvmmsg`, also with GRO.
    Recvmmsg(RecvMmsg),
    Uring(Box<Uring>),
    Xdp {
        xdp: Box<XdpReceiver>,
        /// Receives from the socket what the program leaves to the stack.
        companion: RecvMmsg,
        /// The caller has the receiver's descriptor, and may sleep on it whenever a call has returned.
        polled: AtomicBool,
        /// The reader sleeps on the descriptor only after [`Engine::arm`].
        edge: bool,
        /// Batches of the rings since the socket was read.
        batches: u32,
    },
}

/// What was found: messages, or nothing that is worth another look. Only the engine makes it, and
/// [`Engine::next_batch`] takes it.
#[derive(Debug)]
#[must_use = "messages wait"]
pub(crate) struct Found {
    has_messages: bool,
}

impl Found {
    const MESSAGES: Self = Self { has_messages: true };
    /// For an empty batch.
    pub(super) const NOTHING: Self = Self { has_messages: false };

    fn messages(are_there: bool) -> Option<Self> {
        are_there.then_some(Self::MESSAGES)
    }
}

/// An edge-triggered reader has found nothing in the rings. It looks at the socket, and arms the rings before it sleeps
/// ([`Engine::arm`]).
#[derive(Debug)]
pub(super) struct Unarmed(());

/// Where the messages of a batch are.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "made once a batch, on the stack")]
pub(super) enum Source<'r> {
    Empty,
    Recvmmsg(&'r mut RecvMmsg),
    Uring(&'r mut Uring),
    Xdp(XdpBatch<'r>),
}

impl Source<'_> {
    #[inline]
    pub(super) fn next(&mut self) -> Option<Message<'_>> {
        match self {
            Self::Empty => None,
            Self::Recvmmsg(array) => array.next(),
            Self::Uring(uring) => uring.next(),
            Self::Xdp(batch) => batch.next(),
        }
    }
}

impl Engine {
    /// Prepares memory, and for `xdp` attaches the program. `socket` is bound to `bound`.
    pub(super) fn open(
        backend: Backend,
        options: &Options,
        socket: &Arc<OwnedFd>,
        bound: SocketAddr,
    ) -> Result<Self> {
        let Options { batch, message_size, .. } = *options;
        let metadata = options.metadata.any();
        let array = |count, gro| RecvMmsg::new(count, message_size, gro, metadata, bound);
        Ok(match backend {
            Backend::Recvmmsg => Self::Recvmmsg(array(batch, false)?),
            Backend::Gro => Self::Recvmmsg(array(batch.min(MAX_SUPER_DATAGRAMS), true)?),
            Backend::Uring => {
                Self::Uring(Box::new(Uring::new(batch, message_size, metadata, bound)?))
            }
            Backend::Xdp => {
                let interface = interface_of(options).ok_or_else(|| Error::BackendUnavailable {
                    backend,
                    reason: xdp::NO_INTERFACE.to_owned(),
                })?;
                let companion = array(batch.min(256), false)?;
                let xdp =
                    Box::new(XdpReceiver::open(options, &interface, bound.port(), socket.as_fd())?);
                let polled = AtomicBool::new(false);
                Self::Xdp { xdp, companion, polled, edge: false, batches: 0 }
            }
        })
    }

    /// How long a coalescing wait takes by default; `None` where the engine's own wait lets messages gather.
    pub(super) fn coalesce(&self, backend: Backend) -> Option<Duration> {
        match self {
            Self::Uring(_) => None,
            Self::Xdp { .. } => Some(COALESCE_XDP),
            Self::Recvmmsg(_) if backend == Backend::Gro => Some(COALESCE_GRO),
            Self::Recvmmsg(_) => Some(COALESCE_RECVMMSG),
        }
    }

    /// Whether there may be messages: what the last call emptied is not read again before a wait.
    #[inline]
    pub(super) fn may_have_messages(&mut self) -> bool {
        match self {
            Self::Recvmmsg(array) => !array.is_drained(),
            Self::Uring(uring) => uring.ready(),
            Self::Xdp { .. } => true,
        }
    }

    /// Takes what has arrived, without waiting.
    #[inline]
    pub(super) fn fill(&mut self, socket: BorrowedFd<'_>) -> io::Result<Option<Found>> {
        let found = match self {
            Self::Recvmmsg(array) => array.has_more() || array.fill(socket)?,
            Self::Uring(uring) => uring.has_more() || uring.fill(socket)?,
            Self::Xdp { companion, .. } if companion.has_more() => true,
            Self::Xdp { xdp, companion, batches, .. } => {
                if xdp.receiver.ready() && *batches < XDP_BATCHES_PER_SOCKET_READ {
                    return Ok(Some(Found::MESSAGES));
                }
                *batches = 0;
                match companion.fill(socket) {
                    Ok(false) if xdp.receiver.ready() => true,
                    other => {
                        xdp.receiver.release();
                        other?
                    }
                }
            }
        };
        Ok(Found::messages(found))
    }

    /// The first look of an edge-triggered reader, without a system call; `None` for other readers. It finds nothing as
    /// well when the budget for the rings is spent, and the socket is due.
    #[inline]
    pub(super) fn look(&mut self) -> Option<std::result::Result<Found, Unarmed>> {
        match self {
            Self::Xdp { xdp, companion, polled, edge: true, batches }
                if !polled.load(Ordering::Relaxed) =>
            {
                if companion.has_more() {
                    return Some(Ok(Found::MESSAGES));
                }
                xdp.receiver.disarm();
                if *batches < XDP_BATCHES_PER_SOCKET_READ && xdp.receiver.ready() {
                    return Some(Ok(Found::MESSAGES));
                }
                *batches = 0;
                Some(Err(Unarmed(())))
            }
            _ => None,
        }
    }

    /// The second look: reads the companion socket.
    pub(super) fn fill_companion(
        &mut self,
        _: &Unarmed,
        socket: BorrowedFd<'_>,
    ) -> io::Result<Option<Found>> {
        match self {
            Self::Xdp { companion, .. } => companion.fill(socket).map(Found::messages),
            _ => Ok(None),
        }
    }

    /// The last look, at the rings. If it finds nothing, the next frame makes the descriptor readable.
    pub(super) fn arm(&mut self, _: Unarmed) -> Option<Found> {
        let Self::Xdp { xdp, .. } = self else { return None };
        let found = Found::messages(xdp.receiver.arm());
        if found.is_none() {
            // Empty records, which only carried wake-ups.
            xdp.receiver.release();
        }
        found
    }

    /// Whether an edge-triggered reader can receive nothing without a system call. Always false for other readers.
    #[inline]
    #[cfg(feature = "quinn")]
    pub(super) fn is_drained(&mut self) -> bool {
        match self {
            Self::Xdp { xdp, companion, polled, edge: true, .. }
                if !polled.load(Ordering::Relaxed) =>
            {
                xdp.receiver.disarm();
                !companion.has_more() && !xdp.receiver.ready()
            }
            _ => false,
        }
    }

    /// The messages that were found.
    #[inline]
    pub(super) fn next_batch(&mut self, found: Found) -> Source<'_> {
        match self {
            _ if !found.has_messages => Source::Empty,
            Self::Recvmmsg(array) => Source::Recvmmsg(array),
            Self::Uring(uring) => Source::Uring(uring),
            // The socket's messages first: there are none while the rings are read.
            Self::Xdp { companion, .. } if companion.has_more() => Source::Recvmmsg(companion),
            Self::Xdp { xdp, batches, .. } => {
                *batches += 1;
                xdp.next_batch().map_or(Source::Empty, Source::Xdp)
            }
        }
    }

    /// Sleeps until messages arrive, `watch` is readable, or the deadline has passed. `readable` is readable when
    /// there are messages.
    pub(super) fn wait(
        &mut self,
        socket: BorrowedFd<'_>,
        readable: BorrowedFd<'_>,
        watch: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> io::Result<WaitOutcome> {
        match self {
            Self::Recvmmsg(_) => socket::poll(readable, PollFlags::IN, watch, deadline),
            Self::Uring(uring) => uring.wait(socket, watch, deadline),
            Self::Xdp { xdp, .. } => {
                let outcome = match xdp.receiver.arm() {
                    true => Ok(WaitOutcome::Ready),
                    false => socket::poll(readable, PollFlags::IN, watch, deadline),
                };
                xdp.receiver.disarm();
                outcome
            }
        }
    }

    /// What is readable when there are messages, besides the socket.
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Recvmmsg(_) => Vec::new(),
            Self::Uring(uring) => vec![uring.as_fd()],
            Self::Xdp { xdp, .. } => xdp.receiver.descriptors(),
        }
    }

    /// From now on the caller may sleep on `readable`, which watches the descriptors, whenever a call has returned.
    pub(super) fn keep_armed(&self, readable: BorrowedFd<'_>) {
        if let Self::Xdp { xdp, polled, .. } = self
            && !polled.swap(true, Ordering::Relaxed)
        {
            xdp.receiver.keep_armed();
            rearm(xdp, readable);
        }
    }

    /// From now on the reader sleeps on `readable` only after [`Engine::arm`]. While it reads, the program need not wake
    /// it.
    #[cfg(feature = "tokio")]
    pub(super) fn enable_edge_triggered(&mut self, readable: BorrowedFd<'_>) {
        if let Self::Xdp { xdp, edge, .. } = self {
            *edge = true;
            xdp.receiver.arm();
            rearm(xdp, readable);
        }
    }

    /// Updates what `xdp` takes to what the stack would deliver now.
    pub(super) fn follow(&mut self, watch: &Watch) {
        if let Some(xdp) = self.xdp_mut()
            && let Err(error) = xdp.follow(&watch.connection)
        {
            tracing::warn!("messages may arrive through the network stack: {error}");
        }
    }

    /// Lets no more frames into the rings of `xdp`.
    pub(super) fn stop(&mut self) -> Result<()> {
        Ok(self.xdp_mut().map_or(Ok(()), |xdp| xdp.receiver.stop())?)
    }

    /// Has the program of `xdp` follow the socket, which has joined or left a group.
    pub(super) fn follow_membership(&mut self, socket: BorrowedFd<'_>, group: &Group) {
        if let Some(xdp) = self.xdp_mut()
            && let Err(error) = xdp.follow_membership(socket, group.address)
        {
            tracing::warn!("the XDP program stays unchanged: {error}");
        }
    }

    /// The transmit ring of `xdp`; the error is the reason why there is none.
    pub(super) fn transmit_ring(
        &mut self,
        options: &Options,
        bound: SocketAddr,
        socket: BorrowedFd<'_>,
    ) -> std::result::Result<TransmitRing, String> {
        let xdp = self.xdp_mut().ok_or("the receiver has another backend than xdp")?;
        xdp.transmit_ring(options, bound, socket).map_err(|error| error.to_string())
    }

    /// The interface of `xdp`, and how it delivers frames.
    pub(super) fn xdp_mode(&self) -> Option<(&str, String)> {
        match self {
            Self::Xdp { xdp, .. } => Some((&xdp.interface, xdp.receiver.config().to_string())),
            _ => None,
        }
    }

    /// Messages dropped in the rings of `xdp`.
    pub(super) fn drops(&self) -> Result<Drops> {
        match self {
            Self::Xdp { xdp, .. } => xdp.drops(),
            _ => Ok(Drops::default()),
        }
    }

    /// System calls that received.
    pub(super) fn syscalls(&self) -> u64 {
        match self {
            Self::Recvmmsg(array) => array.syscalls,
            Self::Uring(uring) => uring.syscalls,
            Self::Xdp { companion, .. } => companion.syscalls,
        }
    }

    /// Whether [`Engine::wait`] counts its own system calls.
    pub(super) fn counts_waits(&self) -> bool {
        matches!(self, Self::Uring(_))
    }

    fn xdp_mut(&mut self) -> Option<&mut XdpReceiver> {
        match self {
            Self::Xdp { xdp, .. } => Some(xdp),
            _ => None,
        }
    }
}

/// Has `readable` look at the rings again: the program woke nobody for what arrived before.
fn rearm(xdp: &XdpReceiver, readable: BorrowedFd<'_>) {
    for fd in xdp.receiver.descriptors() {
        socket::epoll_rearm(readable, fd);
    }
}
