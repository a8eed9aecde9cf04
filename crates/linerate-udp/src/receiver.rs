//! [`Receiver`]: a socket, a back end, and the batches that it lends.

mod batch;
mod choose;
mod measure;
mod tempo;

pub use batch::Batch;
pub use measure::Trial;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::builder::{Builder, Settings};
use crate::socket::{self, Drops, Membership, Slots, Woken};
use crate::uring::Uring;
use crate::xdp::Port;
use crate::{Backend, Error, Group, Losses, Result, xdp};
use batch::{Counts, From};
use tempo::Tempo;

/// Super-datagrams taken in one call, at most: 4 MiB of them.
const MOST_JOINED: usize = 64;
/// Batches of the rings of `xdp` between two looks at the companion socket, each of which is a system call.
const COMPANION_TURN: u32 = 16;
/// Looks in vain between two checks of the interface, of a reader that spins: some milliseconds.
const SPIN_TURN: u64 = 1 << 16;
/// How long a rest takes in all, the slack of the thread's timers included, unless somebody says; see
/// [`linerate_ring::xdp::Pace`]. Of a ring the kernel's memory is all there is. What waits in a socket is memory
/// that the sender's core has to do without, the more so the faster it comes: joined datagrams gather enough in
/// 20 µs, and longer rests cost rate.
const REST_ON_RING: Duration = Duration::from_micros(250);
const REST_ON_SOCKET: Duration = Duration::from_micros(100);
const REST_ON_JOINED: Duration = Duration::from_micros(20);
/// What is left of it where the slack alone is longer.
const SHORTEST_REST: Duration = Duration::from_micros(1);

const ASK_LOSSES: &str = "ask a socket for its losses";

/// Receives UDP messages, a batch at a time.
///
/// Readable ([`AsFd`]) when there are messages; a signal ends a wait early. It may move to another
/// thread. Several threads use one socket through [`Receiver::share`], and several receivers one port
/// through [`Builder::steering`].
#[derive(Debug)]
pub struct Receiver {
    // Before the socket, which its request uses.
    engine: Engine,
    socket: Arc<OwnedFd>,
    settings: Settings,
    bound: SocketAddr,
    backend: Backend,
    why: Vec<String>,
    trials: Vec<Trial>,
    drops: Drops,
    counts: Counts,
    tempo: Tempo,
    /// How long to sleep for a rest; not known before the first one, since the thread's timers are part of it.
    nap: Option<Duration>,
}

#[derive(Debug)]
enum Engine {
    Slots(Slots),
    Uring(Box<Uring>),
    Port {
        port: Box<Port>,
        companion: Slots,
        /// Readable when any of the descriptors is.
        any: OwnedFd,
        /// Somebody has `any`, and may sleep on it whenever a call has returned.
        polled: AtomicBool,
        turn: u32,
    },
}

/// Where a batch comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Socket,
    Ring,
}

impl Receiver {
    /// A receiver bound to `address`; port 0 lets the kernel choose one. An IPv6 address hears IPv6
    /// only.
    pub fn builder(address: SocketAddr) -> Builder {
        Builder::new(address)
    }

    pub(crate) fn open(settings: Settings) -> Result<Self> {
        let measured = match settings.measure {
            Some(time) if settings.backend.is_none() => measure::run(&settings, time),
            _ => measure::Measured::default(),
        };
        let (backend, mut why) = match measured.best {
            Some(backend) => (backend, measured.why),
            None => {
                let (backend, mut why) = choose::choose(&settings)?;
                if settings.backend.is_none() && settings.measure.is_some() {
                    why.push("nothing came to measure by".to_owned());
                }
                (backend, why)
            }
        };
        let trials = measured.trials;
        match Self::open_with(&settings, backend) {
            Err(error) if settings.backend.is_none() && backend == Backend::Xdp => {
                why.push(format!("not xdp: {error}"));
                let next = choose::socket_backend(&mut why);
                Self::open_with(&settings, next).map(|receiver| Self { why, trials, ..receiver })
            }
            other => other.map(|receiver| Self { why, trials, ..receiver }),
        }
    }

    fn open_with(settings: &Settings, backend: Backend) -> Result<Self> {
        let socket = socket::open(settings, backend)?;
        let drops = Drops::start(socket.as_fd(), settings.bind.is_ipv6())
            .map_err(|error| Error::system(ASK_LOSSES, error))?;
        Self::over(Arc::new(socket), drops, settings.clone(), backend)
    }

    /// A receiver with arrays or rings of its own over a socket.
    fn over(
        socket: Arc<OwnedFd>,
        drops: Drops,
        settings: Settings,
        backend: Backend,
    ) -> Result<Self> {
        let fd = socket.as_fd();
        let bound = socket::local_address(fd)
            .map_err(|error| Error::system("ask a socket for its address", error))?;
        let Settings { batch, message_size, details, .. } = settings;
        let control = details.any();
        let engine = match backend {
            Backend::Recvmmsg => {
                Engine::Slots(Slots::new(batch, message_size, false, control, bound)?)
            }
            Backend::Gro => {
                let count = batch.min(MOST_JOINED);
                Engine::Slots(Slots::new(count, message_size, true, true, bound)?)
            }
            Backend::Uring => {
                Engine::Uring(Box::new(Uring::new(batch, message_size, control, bound)?))
            }
            Backend::Xdp => {
                let interface = xdp::interface_of(&settings)
                    .ok_or_else(|| Error::Backend { backend, why: xdp::NO_INTERFACE.to_owned() })?;
                let companion = Slots::new(batch.min(256), message_size, false, control, bound)?;
                let port = Port::open(&settings, &interface, bound.port())?;
                let any = socket::gather(port.descriptors().into_iter().chain([fd]))
                    .map_err(|error| Error::system("wait for several sockets", error))?;
                let polled = AtomicBool::new(false);
                Engine::Port { port: Box::new(port), companion, any, polled, turn: 0 }
            }
            Backend::Remember => {
                let mut slots = Slots::new(batch, message_size, false, control, bound)?;
                slots.remember(Arc::clone(&socket)).map_err(|error| {
                    Error::system("have the kernel remember the headers of messages", error)
                })?;
                Engine::Slots(slots)
            }
        };
        let counts = Counts::default();
        let nap = settings.nap;
        Ok(Self {
            engine,
            socket,
            settings,
            bound,
            backend,
            why: Vec::new(),
            trials: Vec::new(),
            drops,
            counts,
            tempo: Tempo::default(),
            nap,
        })
    }

    /// Another receiver on the same socket, for another thread: each message goes to one of them. It has
    /// memory of its own. [`Receiver::losses`] of the socket are then the same for all.
    ///
    /// # Errors
    /// [`Error::Invalid`] for `xdp`, whose rings have one reader.
    pub fn share(&self) -> Result<Self> {
        if self.backend == Backend::Xdp {
            return Err(Error::Invalid(
                "the rings of xdp have one reader; threads can share the other back ends"
                    .to_owned(),
            ));
        }
        let drops = self.drops.again(self.socket.as_fd());
        let drops = drops.map_err(|error| Error::system(ASK_LOSSES, error))?;
        let socket = Arc::clone(&self.socket);
        let mut other = Self::over(socket, drops, self.settings.clone(), self.backend)?;
        other.why.clone_from(&self.why);
        Ok(other)
    }

    /// The messages that have come, at once if there are any, else when there are. The batch is empty when
    /// the deadline has passed, or a signal came. `None` waits for ever. What a batch that is dropped has
    /// not lent is in the next one.
    ///
    /// # Errors
    /// [`Error::System`]; [`Error::Ring`] when the interface of `xdp` goes down (once each time; messages
    /// come again when it is up) or is removed.
    pub fn receive(&mut self, deadline: Option<Instant>) -> Result<Batch<'_>> {
        // What the last call emptied is not asked again before the wait.
        let worth_a_look = match &mut self.engine {
            Engine::Slots(slots) => !slots.is_drained(),
            Engine::Uring(uring) => uring.ready(),
            Engine::Port { .. } => true,
        };
        let mut found = Found::Nothing;
        if worth_a_look || self.settings.spin {
            found = self.look()?;
        }
        if found == Found::Nothing {
            found = self.wait(deadline)?;
        }
        Ok(self.lend(found))
    }

    /// The messages that have come; an empty batch when none has. Never waits.
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    pub fn receive_now(&mut self) -> Result<Batch<'_>> {
        let found = self.look()?;
        Ok(self.lend(found))
    }

    /// Lets no more messages into the rings of `xdp`: what comes from now on goes to the stack. What is in
    /// the ring can still be received. Without effect on other back ends. Takes tens of milliseconds, and
    /// no privilege.
    ///
    /// # Errors
    /// [`Error::Ring`].
    pub fn stop(&mut self) -> Result<()> {
        match &mut self.engine {
            Engine::Port { port, .. } => port.stop(),
            _ => Ok(()),
        }
    }

    /// Joins a group. `xdp` puts another program in place for it, which takes CAP_BPF; where that fails,
    /// the group's messages come through the companion socket.
    ///
    /// # Errors
    /// [`Error::Group`], [`Error::NoInterface`].
    pub fn join(&mut self, group: &Group) -> Result<()> {
        group.suits(self.bound)?;
        socket::membership(self.socket.as_fd(), Membership::Join, group)?;
        self.regroup(group, true);
        Ok(())
    }

    /// Leaves a group.
    ///
    /// # Errors
    /// [`Error::Group`], [`Error::NoInterface`]; [`Error::Ring`] where `xdp` goes on taking the group's
    /// messages.
    pub fn leave(&mut self, group: &Group) -> Result<()> {
        socket::membership(self.socket.as_fd(), Membership::Leave, group)?;
        self.regroup(group, false);
        Ok(())
    }

    fn regroup(&mut self, group: &Group, join: bool) {
        let bind = self.bound.ip();
        if let Engine::Port { port, .. } = &mut self.engine
            && let Err(error) = port.regroup(group, join, bind)
        {
            tracing::warn!("the program of xdp stays as it is: {error}");
        }
    }

    /// The address that it is bound to.
    pub fn address(&self) -> SocketAddr {
        self.bound
    }

    /// The back end in use.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Why not a better one, one sentence each; the figure first where the choice was measured.
    pub fn why(&self) -> &[String] {
        &self.why
    }

    /// What each back end did while it was measured; see [`Builder::measure`].
    pub fn trials(&self) -> &[Trial] {
        &self.trials
    }

    /// For `xdp`: the interface, and how frames get here from it.
    pub fn ring(&self) -> Option<(&str, String)> {
        match &self.engine {
            Engine::Port { port, .. } => Some((port.interface(), port.mode())),
            _ => None,
        }
    }

    /// Bytes that the kernel lets the socket queue, its overhead included.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn buffer_size(&self) -> Result<u32> {
        socket::buffer_size(self.socket.as_fd())
            .map_err(|error| Error::system("ask a socket for its buffer", error))
    }

    /// The socket, or the companion of `xdp`, on which a plain `recvmsg` works as ever.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Messages lent so far.
    pub fn messages(&self) -> u64 {
        self.counts.messages
    }

    /// Bytes of payload lent so far.
    pub fn bytes(&self) -> u64 {
        self.counts.bytes
    }

    /// System calls made to receive and to wait.
    pub fn calls(&self) -> u64 {
        self.counts.waits
            + match &self.engine {
                Engine::Slots(slots) => slots.calls,
                Engine::Uring(uring) => uring.calls,
                Engine::Port { companion, .. } => companion.calls,
            }
    }

    /// What was lost, by cause.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn losses(&mut self) -> Result<Losses> {
        let (socket_buffer, checksum) = self
            .drops
            .read(self.socket.as_fd())
            .map_err(|error| Error::system(ASK_LOSSES, error))?;
        let truncated = self.counts.truncated;
        let mut losses = Losses { socket_buffer, checksum, truncated, ..Losses::default() };
        if let Engine::Port { port, .. } = &self.engine {
            losses += port.losses()?;
        }
        Ok(losses)
    }

    /// Takes what has come, without waiting.
    #[inline]
    fn look(&mut self) -> Result<Found> {
        let fd = self.socket.as_fd();
        let socket = |any| if any { Found::Socket } else { Found::Nothing };
        let answer = match &mut self.engine {
            Engine::Slots(slots) if slots.has_more() => Ok(Found::Socket),
            Engine::Slots(slots) => slots.fill(fd).map(socket),
            Engine::Uring(uring) if uring.has_more() => Ok(Found::Socket),
            Engine::Uring(uring) => uring.fill(fd).map(socket),
            Engine::Port { companion, .. } if companion.has_more() => Ok(Found::Socket),
            Engine::Port { port, companion, polled, turn, .. } => {
                // Before the look: what comes after it makes the descriptor readable.
                if *polled.get_mut() {
                    port.announce_sleep();
                }
                if port.ready() && *turn < COMPANION_TURN {
                    *turn += 1;
                    return Ok(Found::Ring);
                }
                *turn = 0;
                match companion.fill(fd) {
                    Ok(false) if port.ready() => Ok(Found::Ring),
                    other => {
                        port.release();
                        other.map(socket)
                    }
                }
            }
        };
        answer.map_err(|error| Error::system(format!("receive on {}", self.bound), error))
    }

    /// Waits, and takes what comes.
    #[cold]
    fn wait(&mut self, deadline: Option<Instant>) -> Result<Found> {
        // io_uring's own wait lets messages gather.
        let rests = self.nap != Some(Duration::ZERO) && !matches!(self.engine, Engine::Uring(_));
        let mut resting = rests && !self.settings.spin && self.tempo.is_fast(self.counts.messages);
        for turn in 1_u64.. {
            let woken = if self.settings.spin {
                std::hint::spin_loop();
                Woken::Ready
            } else if resting {
                self.rest(deadline)
            } else {
                self.sleep(deadline)?
            };
            let found = self.look()?;
            if found != Found::Nothing || woken == Woken::Signal {
                return Ok(found);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(Found::Nothing);
            }
            // System calls: a reader that spins is to find messages, and not itself in one of them.
            let worth_a_check = if self.settings.spin { turn % SPIN_TURN == 0 } else { !resting };
            if worth_a_check && let Engine::Port { port, .. } = &mut self.engine {
                port.check()?;
            }
            resting = false;
        }
        unreachable!("as many turns as that take centuries")
    }

    /// Rests, whatever comes.
    fn rest(&mut self, deadline: Option<Instant>) -> Woken {
        let backend = self.backend;
        let nap = *self.nap.get_or_insert_with(|| nap_for(backend));
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        self.counts.waits += 1;
        if socket::pause(left.map_or(nap, |left| left.min(nap))) {
            Woken::Ready
        } else {
            Woken::Signal
        }
    }

    fn sleep(&mut self, deadline: Option<Instant>) -> Result<Woken> {
        let fd = self.socket.as_fd();
        if !matches!(self.engine, Engine::Uring(_)) {
            self.counts.waits += 1;
        }
        let answer = match &mut self.engine {
            Engine::Slots(_) => socket::wait(fd, libc::POLLIN, deadline),
            Engine::Uring(uring) => uring.wait(fd, deadline),
            Engine::Port { port, any, .. } => {
                port.announce_sleep();
                let woken = match port.ready() {
                    true => Ok(Woken::Ready),
                    false => socket::wait(any.as_fd(), libc::POLLIN, deadline),
                };
                port.awake();
                woken
            }
        };
        answer.map_err(|error| Error::system(format!("wait for messages to {}", self.bound), error))
    }

    #[inline]
    fn lend(&mut self, found: Found) -> Batch<'_> {
        let from = match (found, &mut self.engine) {
            (Found::Nothing, _) => From::Nothing,
            (_, Engine::Slots(slots)) => From::Slots(slots),
            (_, Engine::Uring(uring)) => From::Uring(uring),
            (Found::Socket, Engine::Port { companion, .. }) => From::Slots(companion),
            (Found::Ring, Engine::Port { port, .. }) => {
                port.batch().map_or(From::Nothing, From::Port)
            }
        };
        Batch::new(from, &mut self.counts)
    }
}

/// How long this thread has to sleep for the rest that a back end wants.
#[cold]
fn nap_for(backend: Backend) -> Duration {
    let rest = match backend {
        Backend::Xdp => REST_ON_RING,
        Backend::Gro => REST_ON_JOINED,
        _ => REST_ON_SOCKET,
    };
    let slack = nix::sys::prctl::get_timerslack().map_or(Duration::ZERO, |nanoseconds| {
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or_default())
    });
    rest.saturating_sub(slack).max(SHORTEST_REST)
}

impl AsFd for Receiver {
    /// What to poll: readable when there are messages. With `uring`, a wait for it may end with EINTR
    /// when a message comes.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.engine {
            Engine::Slots(_) => self.socket.as_fd(),
            Engine::Uring(uring) => uring.as_fd(),
            Engine::Port { port, any, polled, .. } => {
                if !polled.swap(true, Ordering::Relaxed) {
                    port.announce_sleep();
                    // The program woke nobody for what has come before.
                    port.descriptors()
                        .into_iter()
                        .for_each(|fd| socket::look_again(any.as_fd(), fd));
                }
                any.as_fd()
            }
        }
    }
}
