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
use crate::given::interface_of;
use crate::group::Group;
use crate::message::{Drops, Message};
use crate::options::Options;
use crate::socket::{self, RecvMmsg, WaitOutcome};
use crate::transmitter::TransmitRing;
use crate::uring::Uring;
use crate::watch::Watch;
use crate::xdp::{self, XdpBatch, XdpReceiver};
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
    /// `recvmmsg`, also with GRO and with remembered headers.
    Recvmmsg(RecvMmsg),
    Uring(Box<Uring>),
    Xdp {
        xdp: Box<XdpReceiver>,
        /// Receives from the socket what the program leaves to the stack.
        companion: RecvMmsg,
        /// The caller has the receiver's descriptor, and may sleep on it whenever a call has returned.
        polled: AtomicBool,
        /// The reader sleeps on the descriptor only after [`Engine::ready_or_announce_sleep`].
        edge: bool,
        /// Batches of the rings since the socket was read.
        batches: u32,
    },
}

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
            Backend::Remember => {
                let mut array = array(batch, false)?;
                array.remember(Arc::clone(socket)).map_err(|error| {
                    Error::system("have the kernel remember the headers of messages", error)
                })?;
                Self::Recvmmsg(array)
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

    /// Takes what has arrived, without waiting; true where there are messages for [`Engine::next_batch`].
    #[inline]
    pub(super) fn fill(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        match self {
            Self::Recvmmsg(array) => Ok(array.has_more() || array.fill(socket)?),
            Self::Uring(uring) => Ok(uring.has_more() || uring.fill(socket)?),
            Self::Xdp { companion, .. } if companion.has_more() => Ok(true),
            Self::Xdp { xdp, companion, batches, .. } => {
                if xdp.receiver.ready() && *batches < XDP_BATCHES_PER_SOCKET_READ {
                    return Ok(true);
                }
                *batches = 0;
                match companion.fill(socket) {
                    Ok(false) if xdp.receiver.ready() => Ok(true),
                    other => {
                        xdp.receiver.release();
                        other
                    }
                }
            }
        }
    }

    /// Whether messages are there for [`Engine::next_batch`], without a system call. False as well when the budget for the
    /// rings is spent, and the socket is due. For an edge-triggered reader of `xdp`.
    #[inline]
    pub(super) fn has_batch(&mut self) -> bool {
        let Self::Xdp { xdp, companion, batches, .. } = self else { return false };
        if companion.has_more() {
            return true;
        }
        xdp.receiver.disarm();
        *batches < XDP_BATCHES_PER_SOCKET_READ && xdp.receiver.ready()
    }

    /// The reader looks at the socket now: [`Engine::has_batch`] has a new budget for the rings.
    #[inline]
    pub(super) fn reset_budget(&mut self) {
        if let Self::Xdp { batches, .. } = self {
            *batches = 0;
        }
    }

    /// Reads the companion socket; true where there are messages for [`Engine::next_batch`].
    pub(super) fn fill_companion(&mut self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        match self {
            Self::Xdp { companion, .. } => companion.fill(socket),
            _ => Ok(false),
        }
    }

    /// Whether nothing can be received without a system call. For an edge-triggered reader of `xdp`.
    #[inline]
    #[cfg(feature = "quinn")]
    pub(super) fn is_drained(&mut self) -> bool {
        let Self::Xdp { xdp, companion, .. } = self else { return false };
        if companion.has_more() {
            return false;
        }
        xdp.receiver.disarm();
        !xdp.receiver.ready()
    }

    /// Whether a frame is in the rings. If not, the next one makes the descriptor readable: call this last.
    pub(super) fn ready_or_announce_sleep(&mut self) -> bool {
        let Self::Xdp { xdp, .. } = self else { return false };
        let is_ready = xdp.receiver.arm();
        if !is_ready {
            // Empty records, which only carried wake-ups.
            xdp.receiver.release();
        }
        is_ready
    }

    /// The messages that [`Engine::fill`] found.
    #[inline]
    pub(super) fn next_batch(&mut self) -> Source<'_> {
        match self {
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
    pub(super) fn announce_polling(&self, readable: BorrowedFd<'_>) {
        if let Self::Xdp { xdp, polled, .. } = self
            && !polled.swap(true, Ordering::Relaxed)
        {
            xdp.receiver.keep_armed();
            rearm(xdp, readable);
        }
    }

    /// From now on the reader sleeps on `readable` only after [`Engine::ready_or_announce_sleep`]. While it reads, the program
    /// need not wake it.
    #[cfg(feature = "tokio")]
    pub(super) fn enable_edge_triggered(&mut self, readable: BorrowedFd<'_>) {
        if let Self::Xdp { xdp, edge, .. } = self {
            *edge = true;
            xdp.receiver.arm();
            rearm(xdp, readable);
        }
    }

    /// Whether the reader has said so, and nobody else sleeps on the descriptor.
    #[inline]
    pub(super) fn is_edge_triggered(&mut self) -> bool {
        match self {
            Self::Xdp { edge, polled, .. } => *edge && !*polled.get_mut(),
            _ => false,
        }
    }

    /// Updates what `xdp` takes to what the stack would deliver now.
    pub(super) fn follow(&mut self, watch: &Watch) {
        if let Some(xdp) = self.xdp_mut()
            && let Err(error) = xdp.follow(watch.connection())
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
            Self::Xdp { xdp, .. } => Some((xdp.interface(), xdp.mode())),
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
