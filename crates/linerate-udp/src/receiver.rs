//! [`Receiver`]: a socket, a backend, and the batches that it lends.

mod batch;
mod calibration;
mod engine;
mod rate;

pub use batch::Batch;
pub use calibration::CalibrationRun;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{Backend, SendBackend};
use crate::group::Group;
use crate::message::Drops;
use crate::options::Options;
use crate::socket::icmp::{Entry, TransmitTimestamp};
use crate::socket::{self, EventSource, Membership, Readiness, SocketDrops, WaitOutcome};
use crate::transmitter::Transmitter;
use crate::watch::Watch;
use crate::{Error, IcmpError, Result};
use batch::Counters;
pub(crate) use engine::Found;
use engine::{Engine, Unarmed};
use rate::RateEstimator;

/// Polls without a message after which a spinning reader checks the watch: some milliseconds.
const SPINS_PER_CHECK: u64 = 1 << 16;
/// Batches after which a reader that always has messages checks the watch.
const BATCHES_PER_CHECK: u32 = 256;
/// Batches after which a reader that always has messages reads the error queue. Its entries take the memory of
/// messages.
const BATCHES_PER_ERROR_READ: u32 = 16;
/// ICMP errors that are kept, and transmit timestamps.
const MAX_QUEUE_ENTRIES: usize = 1024;
/// The shortest sleep of a coalescing wait, where the timer slack alone is longer than the wait is to be.
const MIN_COALESCE_SLEEP: Duration = Duration::from_micros(1);

const READ_DROPS: &str = "read the drop counters of a socket";

/// Receives UDP messages, a batch at a time.
///
/// Readable ([`AsFd`]) when there are messages; a signal ends a wait early. It may move to another thread.
/// Several threads use one socket through [`Receiver::try_clone`], and several receivers one port through
/// [`Options::reuseport`].
#[derive(Debug)]
pub struct Receiver {
    // Before the socket, which its request uses.
    engine: Engine,
    socket: Arc<OwnedFd>,
    /// An epoll instance, where messages wait elsewhere than in the socket: readable when any of the descriptors is.
    epoll: Option<OwnedFd>,
    /// Follows the interface, where the receiver is bound to one.
    watch: Option<Watch>,
    /// Batches since the last check of it.
    unwatched: u32,
    /// Batches since the error queue was read.
    unread: u32,
    options: Options,
    bound: SocketAddr,
    backend: Backend,
    reasons: Vec<String>,
    calibration_runs: Vec<CalibrationRun>,
    socket_drops: SocketDrops,
    counters: Counters,
    /// System calls that waited.
    waits: u64,
    rate: RateEstimator,
    /// How long to sleep for a coalescing wait; unknown before the first one, as it depends on the thread's
    /// timer slack.
    coalesce: Option<Duration>,
    icmp_errors: VecDeque<IcmpError>,
    transmit_timestamps: VecDeque<TransmitTimestamp>,
    missed_times: u64,
}

impl Receiver {
    pub(crate) fn open_backend(options: &Options, backend: Backend) -> Result<Self> {
        let socket = socket::open(options, backend)?;
        let drops = SocketDrops::start(socket.as_fd(), options.versions())
            .map_err(|error| Error::system(READ_DROPS, error))?;
        Self::on_socket(Arc::new(socket), drops, options.clone(), backend)
    }

    /// The receiver, with the reasons of its selection.
    pub(crate) fn selected(
        self,
        reasons: Vec<String>,
        calibration_runs: Vec<CalibrationRun>,
    ) -> Self {
        Self { reasons, calibration_runs, ..self }
    }

    /// A receiver with its own arrays or rings on a socket.
    fn on_socket(
        socket: Arc<OwnedFd>,
        socket_drops: SocketDrops,
        options: Options,
        backend: Backend,
    ) -> Result<Self> {
        let bound = socket::local_address(socket.as_fd())
            .map_err(|error| Error::system("read the address of a socket", error))?;
        let mut engine = Engine::open(backend, &options, &socket, bound)?;
        let interface = match engine.xdp_mode() {
            Some((interface, _)) => Some(interface),
            None => options.interface.as_deref(),
        };
        let watch =
            interface.map(|name| Watch::start(name, backend == Backend::Xdp)).transpose()?;
        if let Some(watch) = &watch {
            // Changes from before the watch was opened.
            engine.follow(watch);
        }
        let rings = engine.descriptors().into_iter().map(|fd| (fd, EventSource::Ring));
        let mut others: Vec<_> = rings.collect();
        others.extend(watch.as_ref().map(|watch| (watch.changes.as_fd(), EventSource::Interface)));
        let epoll = (!others.is_empty()).then(|| {
            others.push((socket.as_fd(), EventSource::Socket));
            socket::epoll_of(others.into_iter())
        });
        let room = |on| if on { MAX_QUEUE_ENTRIES } else { 0 };
        Ok(Self {
            engine,
            epoll: epoll
                .transpose()
                .map_err(|error| Error::system("wait for several sockets", error))?,
            socket,
            watch,
            unwatched: 0,
            unread: 0,
            bound,
            backend,
            reasons: Vec::new(),
            calibration_runs: Vec::new(),
            socket_drops,
            counters: Counters::default(),
            waits: 0,
            rate: RateEstimator::default(),
            coalesce: options.coalesce,
            icmp_errors: VecDeque::with_capacity(room(options.icmp_errors)),
            transmit_timestamps: VecDeque::with_capacity(room(options.send.timestamps)),
            missed_times: 0,
            options,
        })
    }

    /// Another receiver on the same socket, for another thread, with its own memory: each message goes to one
    /// of them. [`Receiver::drops`] of the socket are then the same for all.
    ///
    /// # Errors
    /// [`Error::Invalid`] for `xdp`, whose rings have one reader.
    pub fn try_clone(&self) -> Result<Self> {
        if self.backend == Backend::Xdp {
            return Err(Error::Invalid(
                "the rings of xdp have one reader; threads can share the other backends".to_owned(),
            ));
        }
        let drops = self.socket_drops.for_socket(self.socket.as_fd());
        let drops = drops.map_err(|error| Error::system(READ_DROPS, error))?;
        let socket = Arc::clone(&self.socket);
        let other = Self::on_socket(socket, drops, self.options.clone(), self.backend)?;
        Ok(other.selected(self.reasons.clone(), Vec::new()))
    }

    /// The messages that have arrived; waits where there are none. The batch is empty when the deadline has
    /// passed, a signal arrived, the interface of the receiver went down ([`Receiver::times_down`]), or the socket was
    /// shut down (`shutdown(2)`, also from another thread). `None` waits for ever. Messages that a dropped batch did
    /// not lend are in the next one.
    ///
    /// # Errors
    /// [`Error::System`]. [`Error::InterfaceGone`], on every backend, if the receiver is bound to an interface: on every
    /// call after it was removed or moved to another network namespace. Messages that arrived before are lent first.
    pub fn receive(&mut self, deadline: Option<Instant>) -> Result<Batch<'_>> {
        let fill = self.options.spin || self.engine.may_have_messages();
        let found = if fill { self.fill()? } else { None };
        let found = match found {
            Some(found) => found,
            None => self.wait(deadline)?,
        };
        Ok(self.batch(found))
    }

    /// The messages that have arrived; an empty batch if there are none. Never waits. The descriptor of a receiver that
    /// is bound to an interface is also readable when an interface changes; the batch is then empty.
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    pub fn try_receive(&mut self) -> Result<Batch<'_>> {
        let found = self.try_fill()?.unwrap_or(Found::NOTHING);
        Ok(self.batch(found))
    }

    /// Lets no more messages into the rings of `xdp`: what arrives from now on goes to the stack. What is in
    /// the ring can still be received. Without effect on other backends. Takes tens of milliseconds, and no
    /// privilege.
    ///
    /// # Errors
    /// [`Error::Ring`].
    pub fn stop(&mut self) -> Result<()> {
        self.engine.stop()
    }

    /// A transmitter on this receiver's socket, for this or another thread, with the receiver's batch size and message
    /// size. There is one transmit ring ([`crate::SendBackend::Xdp`]): the first transmitter has it.
    pub fn transmitter(&mut self) -> Transmitter {
        let ring = (self.options.send.backend == SendBackend::Xdp)
            .then(|| self.engine.transmit_ring(&self.options, self.bound, self.socket.as_fd()));
        Transmitter::new(Arc::clone(&self.socket), self.bound, &self.options, ring)
    }

    /// The next ICMP error that answers a message of this socket; with
    /// [`Options::icmp_errors`]. Calls that receive collect them, and
    /// return an empty batch if there are new ones. At most 1024 are kept; the oldest are dropped.
    pub fn next_error(&mut self) -> Option<IcmpError> {
        self.icmp_errors.pop_front()
    }

    /// The next transmit timestamp; with [`SendOptions::timestamps`](crate::SendOptions::timestamps). Collected and
    /// kept like ICMP errors. Messages that bypass the stack have none.
    pub fn next_transmit_timestamp(&mut self) -> Option<TransmitTimestamp> {
        self.transmit_timestamps.pop_front()
    }

    /// Datagrams that the qdisc dropped because their [`Transmit::time`](crate::Transmit::time) was past or invalid.
    pub fn missed_transmit_times(&self) -> u64 {
        self.missed_times
    }

    /// Joins a group. `xdp` replaces its program for it, which takes CAP_BPF; where that fails, the group's
    /// messages arrive through the companion socket.
    ///
    /// # Errors
    /// [`Error::Group`], [`Error::NoInterface`].
    pub fn join(&mut self, group: &Group) -> Result<()> {
        Error::check_group(group, self.bound, self.options.versions())?;
        socket::set_membership(self.socket.as_fd(), Membership::Join, group)?;
        self.engine.follow_membership(self.socket.as_fd(), group);
        Ok(())
    }

    /// Leaves a group.
    ///
    /// # Errors
    /// [`Error::Group`], [`Error::NoInterface`].
    pub fn leave(&mut self, group: &Group) -> Result<()> {
        socket::set_membership(self.socket.as_fd(), Membership::Leave, group)?;
        self.engine.follow_membership(self.socket.as_fd(), group);
        Ok(())
    }

    /// The address that it is bound to.
    pub fn address(&self) -> SocketAddr {
        self.bound
    }

    /// The backend in use.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Why not a better backend, one sentence each; the measurement first where the receiver was calibrated. For `xdp`,
    /// what exists on this host that its messages bypass.
    pub fn selection_reasons(&self) -> &[String] {
        &self.reasons
    }

    /// What each backend did in the calibration; see
    /// [`Options::calibrate`].
    pub fn calibration_runs(&self) -> &[CalibrationRun] {
        &self.calibration_runs
    }

    /// For `xdp`: the interface, and how it delivers frames.
    pub fn xdp_mode(&self) -> Option<(&str, String)> {
        self.engine.xdp_mode()
    }

    /// The socket's receive buffer in bytes, the kernel's overhead included.
    pub fn recv_buffer_size(&self) -> Result<u32> {
        socket::recv_buffer_size(self.socket.as_fd())
            .map_err(|error| Error::system("read the buffer size of a socket", error))
    }

    /// The socket, or the companion of `xdp`, on which a plain `recvmsg` works as usual.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Messages lent so far.
    pub fn messages(&self) -> u64 {
        self.counters.messages
    }

    /// Of the messages lent so far, those that bypassed the stack (`xdp`). The others came through its companion
    /// socket. 0 with other backends.
    pub fn ring_messages(&self) -> u64 {
        self.counters.ring
    }

    /// Bytes of payload lent so far.
    pub fn bytes(&self) -> u64 {
        self.counters.bytes
    }

    /// System calls made to receive and to wait.
    pub fn syscalls(&self) -> u64 {
        self.waits + self.engine.syscalls()
    }

    /// How often the interface went down, if the receiver is bound to one, on every backend. Messages arrive again when
    /// it is up.
    pub fn times_down(&self) -> u64 {
        self.watch.as_ref().map_or(0, |watch| watch.times_down)
    }

    /// Messages dropped, by cause.
    pub fn drops(&mut self) -> Result<Drops> {
        let of_socket = self.socket_drops.read(self.socket.as_fd());
        let mut drops = of_socket.map_err(|error| Error::system(READ_DROPS, error))?;
        drops.truncated = self.counters.truncated;
        drops += self.engine.drops()?;
        Ok(drops)
    }

    /// Takes what has arrived, without waiting.
    #[inline]
    fn fill(&mut self) -> Result<Option<Found>> {
        self.unwatched += 1;
        if self.unwatched >= BATCHES_PER_CHECK && self.watch.is_some() {
            self.follow()?;
        }
        let found = self
            .engine
            .fill(self.socket.as_fd())
            .map_err(|error| Error::system(format!("receive on {}", self.bound), error))?;
        if found.is_some() {
            self.unread += 1;
            if self.unread >= BATCHES_PER_ERROR_READ {
                self.collect_errors()?;
            }
        }
        Ok(found)
    }

    /// The same, and checks what else may have made the descriptor readable: an empty batch is found if there are only
    /// ICMP errors.
    #[inline]
    pub(crate) fn try_fill(&mut self) -> Result<Option<Found>> {
        match self.engine.look() {
            Some(Ok(found)) => return Ok(Some(found)),
            Some(Err(unarmed)) => return self.fill_and_arm(unarmed),
            None => {}
        }
        if let Some(found) = self.fill()? {
            return Ok(Some(found));
        }
        let has_errors = self.collect_errors()?;
        let went_down = self.follow()?;
        Ok((has_errors || went_down).then_some(Found::NOTHING))
    }

    /// Whether nothing can be received without a system call. Does not arm: an edge-triggered reader of `xdp` calls
    /// [`Receiver::try_fill`] before it sleeps. Always false with other backends.
    #[inline]
    #[cfg(feature = "quinn")]
    pub(crate) fn is_drained(&mut self) -> bool {
        self.engine.is_drained()
    }

    /// The rest of [`Receiver::try_fill`] for an edge-triggered reader of `xdp`, which sleeps only after `None`: only then
    /// the program may wake it. One system call says whether there is anything but frames in the rings. The rings come
    /// last, so that frames that arrive meanwhile wake nobody.
    fn fill_and_arm(&mut self, unarmed: Unarmed) -> Result<Option<Found>> {
        self.waits += 1;
        let ready = match &self.epoll {
            Some(epoll) => socket::epoll_ready(epoll.as_fd())
                .map_err(|error| Error::system("look at several sockets", error))?,
            None => Readiness::ALL,
        };
        // First: a socket that always has messages must not hide what may move them to the rings.
        let is_due = ready.contains(EventSource::Interface)
            || self.watch.as_ref().is_some_and(|watch| watch.gone);
        if is_due && self.follow()? {
            return Ok(Some(Found::NOTHING));
        }
        if ready.contains(EventSource::Socket) {
            let found = self.engine.fill_companion(&unarmed, self.socket.as_fd());
            let found = found
                .map_err(|error| Error::system(format!("receive on {}", self.bound), error))?;
            if found.is_some() {
                self.unread += 1;
                if self.unread >= BATCHES_PER_ERROR_READ {
                    self.collect_errors()?;
                }
                return Ok(found);
            }
            if self.collect_errors()? {
                return Ok(Some(Found::NOTHING));
            }
        }
        Ok(self.engine.arm(unarmed))
    }

    /// What an edge-triggered reader sleeps on after [`Receiver::try_fill`] returned `None`, and only then. It spares the
    /// core that receives the wake-ups that [`AsFd`] causes.
    #[cfg(feature = "tokio")]
    pub(crate) fn edge_triggered_fd(&mut self) -> BorrowedFd<'_> {
        let readable = readable(&self.epoll, &self.socket);
        self.engine.enable_edge_triggered(readable);
        readable
    }

    /// Checks the watch: the engine follows the interface. True if it went down.
    #[cold]
    fn follow(&mut self) -> Result<bool> {
        self.unwatched = 0;
        let Some(watch) = &mut self.watch else { return Ok(false) };
        self.waits += 1;
        let before = watch.times_down;
        let changed = watch.has_changed()?;
        if changed {
            self.engine.follow(watch);
        }
        if changed || watch.gone {
            watch.check()?;
        }
        Ok(watch.times_down > before)
    }

    /// Takes what is in the error queue of the socket; true if there was anything.
    fn collect_errors(&mut self) -> Result<bool> {
        self.unread = 0;
        let Options { icmp_errors, send, .. } = &self.options;
        if !icmp_errors && !send.timestamps && send.transmit_clock.is_none() {
            return Ok(false);
        }
        self.waits += 1;
        let mut found = false;
        let Self { icmp_errors, transmit_timestamps, missed_times, .. } = self;
        socket::icmp::drain(self.socket.as_fd(), |entry| {
            found = true;
            match entry {
                Entry::Icmp(error) => keep(icmp_errors, error),
                Entry::Timestamp(timestamp) => keep(transmit_timestamps, timestamp),
                Entry::MissedTime => *missed_times += 1,
            }
        })
        .map_err(|error| Error::system("read the error queue of a socket", error))?;
        Ok(found)
    }

    /// The messages that were found.
    #[inline]
    pub(crate) fn batch(&mut self, found: Found) -> Batch<'_> {
        Batch::new(self.engine.next_batch(found), &mut self.counters)
    }

    /// Waits, and takes what arrives.
    #[cold]
    fn wait(&mut self, deadline: Option<Instant>) -> Result<Found> {
        let spin = self.options.spin;
        let interval = match self.coalesce {
            Some(Duration::ZERO) => None,
            _ => self.engine.coalesce(self.backend),
        };
        let mut coalesce = interval.filter(|_| !spin && self.rate.is_fast(self.counters.messages));
        if self.watch.as_ref().is_some_and(|watch| watch.gone) {
            self.follow()?;
        }
        for turn in 1_u64.. {
            let outcome = if spin {
                std::hint::spin_loop();
                WaitOutcome::Ready
            } else if let Some(interval) = coalesce {
                self.sleep(interval, deadline)
            } else {
                self.poll(deadline)?
            };
            if let Some(found) = self.fill()? {
                return Ok(found);
            }
            if outcome == WaitOutcome::Interrupted
                || self.collect_errors()?
                || deadline.is_some_and(|deadline| Instant::now() >= deadline)
            {
                return Ok(Found::NOTHING);
            }
            // Readable for nothing, for ever.
            let check = if spin { turn % SPINS_PER_CHECK == 0 } else { coalesce.is_none() };
            if check && outcome == WaitOutcome::Ready && self.is_shut_down()? {
                return Ok(Found::NOTHING);
            }
            // System calls: a reader that spins has to receive messages rather than make them.
            let is_due = outcome == WaitOutcome::Changed || spin && turn % SPINS_PER_CHECK == 0;
            if is_due && self.follow()? {
                return Ok(Found::NOTHING);
            }
            coalesce = None;
        }
        unreachable!("as many turns take centuries")
    }

    /// Whether `shutdown(2)` ended receiving.
    #[cold]
    fn is_shut_down(&mut self) -> Result<bool> {
        self.waits += 1;
        socket::is_shut_down(self.socket.as_fd())
            .map_err(|error| Error::system(format!("wait for messages to {}", self.bound), error))
    }

    /// A coalescing wait of `interval`, timer slack included, whatever arrives.
    fn sleep(&mut self, interval: Duration, deadline: Option<Instant>) -> WaitOutcome {
        let sleep = *self.coalesce.get_or_insert_with(|| without_timer_slack(interval));
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        self.waits += 1;
        if socket::sleep(left.map_or(sleep, |left| left.min(sleep))) {
            WaitOutcome::Ready
        } else {
            WaitOutcome::Interrupted
        }
    }

    fn poll(&mut self, deadline: Option<Instant>) -> Result<WaitOutcome> {
        self.waits += u64::from(!self.engine.counts_waits());
        let watch = self.watch.as_ref().map(|watch| watch.changes.as_fd());
        // The watch itself is asked, too: a recvmmsg needs no epoll instance between it and the socket.
        let readable = match &self.engine {
            Engine::Recvmmsg(_) => self.socket.as_fd(),
            _ => readable(&self.epoll, &self.socket),
        };
        self.engine
            .wait(self.socket.as_fd(), readable, watch, deadline)
            .map_err(|error| Error::system(format!("wait for messages to {}", self.bound), error))
    }
}

/// Keeps an entry in place of the oldest, where there is no room.
fn keep<T>(all: &mut VecDeque<T>, one: T) {
    if all.len() == MAX_QUEUE_ENTRIES {
        all.pop_front();
    }
    all.push_back(one);
}

/// How long this thread has to sleep to wait for `interval`: its timers add their slack.
#[cold]
fn without_timer_slack(interval: Duration) -> Duration {
    let slack = rustix::thread::current_timer_slack().map_or(Duration::ZERO, Duration::from_nanos);
    interval.saturating_sub(slack).max(MIN_COALESCE_SLEEP)
}

/// What is readable when there are messages.
fn readable<'s>(epoll: &'s Option<OwnedFd>, socket: &'s OwnedFd) -> BorrowedFd<'s> {
    epoll.as_ref().unwrap_or(socket).as_fd()
}

impl AsFd for Receiver {
    /// What to poll: readable whenever messages wait, before the first call too, also on another thread than that
    /// which built the receiver. A level-triggered reader (`poll`, `epoll`) may take one batch each time. An
    /// edge-triggered one (`EPOLLET`, mio, tokio) calls [`Receiver::try_receive`] until a batch is empty. Now and
    /// then it is readable for nothing. With `uring`, a wait for it may end with EINTR when a message arrives.
    fn as_fd(&self) -> BorrowedFd<'_> {
        let readable = readable(&self.epoll, &self.socket);
        self.engine.keep_armed(readable);
        readable
    }
}
