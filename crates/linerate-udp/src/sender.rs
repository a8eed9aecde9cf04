//! [`Sender`]: messages to one address, a batch at a time.

mod xdp;

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use linerate_wire::ethernet;

use crate::options::{MAX_BATCH_SIZE, MAX_MESSAGE_SIZE};
use crate::outgoing::{Outgoing, SendStatistics};
use crate::queue::Queue;
use crate::socket;
use crate::transmit::Transmit;
use crate::{Error, Result};
use xdp::XdpSender;

/// The span of a rate whose messages may go out at once.
const BURST: Duration = Duration::from_micros(100);
/// How much of a stall's delay is made up for.
const MAX_CATCH_UP: Duration = Duration::from_millis(20);
/// Shorter waits spin: a sleep would take several times as long.
const MIN_SLEEP: Duration = Duration::from_micros(10);
/// Sends UDP messages to one address. Messages are written where they are sent from, and go out when the
/// batch is full or is flushed: as super-datagrams that the kernel segments (UDP_SEGMENT), or as frames
/// that this library segments, through an AF_XDP socket. Where the kernel refuses to segment, the
/// messages are sent one by one, and none is lost.
#[derive(Debug)]
pub struct Sender {
    backend: SendBackend,
    queue: Queue,
    outgoing: Outgoing,
    pacer: Option<Pacer>,
    to: SocketAddr,
}

#[derive(Debug)]
enum SendBackend {
    Socket(OwnedFd),
    Xdp {
        xdp: Box<XdpSender>,
        /// Keeps the port from everybody else.
        _socket: OwnedFd,
    },
}

/// When the next message is due, at a constant rate.
#[derive(Debug)]
struct Pacer {
    start: Option<Instant>,
    nanoseconds: f64,
    sent: u64,
}

/// The options of a sender ([`Sender::open`]).
#[derive(Clone, Debug)]
pub struct SenderOptions {
    /// The address that messages go to.
    pub to: SocketAddr,
    /// The address and port that they come from; default: the kernel's choice.
    pub from: Option<SocketAddr>,
    /// The most messages that are collected before they are sent; default: 256.
    pub batch: usize,
    /// Bytes of the longest message, up to 65,507; default: 2048.
    pub message_size: usize,
    /// Whether messages of one size go out as super-datagrams (GSO); default: on.
    pub gso: bool,
    /// The most messages a second; default: unlimited. They are paced evenly: a batch holds what is due in
    /// 100 µs, and of a longer stall at most 20 ms are made up for.
    pub rate: Option<f64>,
    /// Sends through an AF_XDP socket of this interface, past the stack; default: by the socket.
    pub interface: Option<String>,
    /// The hardware address that frames of an AF_XDP socket go to; default: the one in the neighbour table.
    pub next_hop: Option<ethernet::Address>,
}

impl SenderOptions {
    /// The defaults for messages to `address`.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            to: address,
            from: None,
            batch: 256,
            message_size: 2048,
            gso: true,
            rate: None,
            interface: None,
            next_hop: None,
        }
    }
}

impl Sender {
    /// Room for the next message, `len` bytes that hold anything: write all of them. A full batch is sent
    /// first. With a rate the first message of the next one waits until its time has come, whatever signals
    /// come meanwhile ([`Sender::wait_until_due`] ends at one): what is written then, such as a timestamp, is fresh.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a message longer than the sender was built for; as [`Sender::flush`].
    #[inline]
    pub fn message(&mut self, len: usize) -> Result<&mut [u8]> {
        if !self.queue.has_room(len) {
            if !self.queue.fits(len) {
                return Err(Error::Invalid(format!(
                    "a message of {len} bytes: the sender was built for shorter ones"
                )));
            }
            self.flush()?;
        }
        if self.queue.messages == 0 && self.pacer.is_some() {
            while !self.wait_until_due(None)? {}
        }
        let head = Transmit::new(self.to, &[]);
        Ok(self.queue.push(&head, true, len, self.outgoing.limits))
    }

    /// Sends what is pending.
    ///
    /// # Errors
    /// [`Error::System`] where the kernel takes nothing any more; the messages that are still pending
    /// are then counted as refused.
    pub fn flush(&mut self) -> Result<()> {
        let pending = self.queue.messages as u64;
        if pending == 0 {
            return Ok(());
        }
        if let Some(pacer) = &mut self.pacer {
            pacer.sent += pending;
        }
        let handled = |statistics: &SendStatistics| statistics.messages + statistics.refused;
        let before = handled(&self.outgoing.statistics);
        let answer = match &mut self.backend {
            SendBackend::Socket(socket) => {
                let Queue { buffer, runs, .. } = &self.queue;
                let transmit = |at: usize| runs[at].transmit(buffer);
                let sent = self.outgoing.send(socket.as_fd(), runs.len(), transmit, true);
                sent.map(drop).map_err(|error| Error::system(format!("send to {}", self.to), error))
            }
            SendBackend::Xdp { xdp, .. } => xdp.send(&self.queue, &mut self.outgoing.statistics),
        };
        let statistics = &mut self.outgoing.statistics;
        statistics.refused += pending.saturating_sub(handled(statistics) - before);
        self.queue.clear();
        answer
    }

    /// Sends a full batch, and waits until the next may begin; true when it may, as always where no rate was
    /// asked for. False when the deadline passed before, or a signal came. For those who do not want
    /// [`Sender::message`] to wait for as long as it takes.
    ///
    /// # Errors
    /// As [`Sender::flush`].
    pub fn wait_until_due(&mut self, deadline: Option<Instant>) -> Result<bool> {
        if self.queue.messages == self.queue.batch {
            self.flush()?;
        }
        Ok(match &mut self.pacer {
            Some(pacer) if self.queue.messages == 0 => pacer.wait(deadline),
            _ => true,
        })
    }

    /// The most messages that are collected before they are sent.
    pub fn batch(&self) -> usize {
        self.queue.batch
    }

    /// What was sent so far.
    pub fn statistics(&self) -> SendStatistics {
        self.outgoing.statistics
    }

    /// Why messages are sent one by one although GSO was asked for.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.outgoing.fallback_reason.as_deref()
    }

    /// Waits until everything has left an AF_XDP socket; true when it has. Nothing to wait for on others.
    ///
    /// # Errors
    /// As [`Sender::flush`].
    pub fn drain(&mut self, time: Duration) -> Result<bool> {
        self.flush()?;
        match &mut self.backend {
            SendBackend::Xdp { xdp, .. } => Ok(xdp.ring.tx.drain(time)?),
            SendBackend::Socket(_) => Ok(true),
        }
    }
}

impl Pacer {
    /// Waits until the next message is due; false when the deadline passed before or a signal came.
    fn wait(&mut self, deadline: Option<Instant>) -> bool {
        let mut start = *self.start.get_or_insert_with(Instant::now);
        let due = Duration::from_nanos((self.sent as f64 * self.nanoseconds) as u64);
        loop {
            let now = Instant::now();
            let late = (now - start).saturating_sub(due);
            if late > MAX_CATCH_UP {
                start += late - MAX_CATCH_UP;
                self.start = Some(start);
            }
            let left = due.saturating_sub(now - start);
            let allowed = deadline.map_or(left, |deadline| deadline.saturating_duration_since(now));
            if left.is_zero() || allowed.is_zero() {
                return left.is_zero();
            }
            // A sleep ends some 60 µs late, and the next one is that much shorter: no core is spent on pending.
            let sleep = left.min(allowed);
            if sleep < MIN_SLEEP {
                std::hint::spin_loop();
            } else if !socket::sleep(sleep.min(Duration::from_millis(100))) {
                return false;
            }
        }
    }
}

impl Sender {
    /// Opens a socket and prepares all memory.
    ///
    /// # Errors
    /// [`Error::Invalid`] for sizes that make no sense or an unknown neighbour, [`Error::AddressNotAvailable`],
    /// [`Error::Ring`], [`Error::System`].
    pub fn open(options: SenderOptions) -> Result<Self> {
        let SenderOptions { mut batch, message_size, rate, gso, ref interface, next_hop, .. } =
            options;
        let (to, from) = (socket::unmapped(options.to), options.from.map(socket::unmapped));
        if !(1..=MAX_BATCH_SIZE).contains(&batch) {
            return Err(Error::Invalid(format!(
                "a batch of {batch} messages: it must be 1 to {MAX_BATCH_SIZE}"
            )));
        }
        if message_size > MAX_MESSAGE_SIZE {
            return Err(Error::Invalid(format!(
                "messages of {message_size} bytes: a UDP datagram has at most {MAX_MESSAGE_SIZE}"
            )));
        }
        if let Some(rate) = rate
            && !(rate.is_finite() && rate > 0.0)
        {
            return Err(Error::Invalid(format!(
                "{rate} messages a second: the rate must be positive and finite"
            )));
        }
        if let Some(rate) = rate {
            batch = batch.min((rate * BURST.as_secs_f64()) as usize).max(1);
        }
        if let Some(from) = from
            && from.is_ipv4() != to.is_ipv4()
        {
            return Err(Error::Invalid(format!(
                "{from} cannot send to {to}: they are of two versions of IP"
            )));
        }
        let socket = socket::connect(to, from, 4 << 20)?;
        let from = socket::local_address(socket.as_fd())
            .map_err(|error| Error::system("ask a socket for its address", error))?;
        let backend = match interface {
            None => SendBackend::Socket(socket),
            Some(interface) => {
                let xdp = XdpSender::open(interface, &socket, from, to, next_hop, message_size)?;
                SendBackend::Xdp { xdp: Box::new(xdp), _socket: socket }
            }
        };
        let pacer = rate.map(|rate| Pacer { start: None, nanoseconds: 1e9 / rate, sent: 0 });
        Ok(Self {
            backend,
            queue: Queue::new(batch, message_size),
            outgoing: Outgoing::new(batch, None, gso),
            pacer,
            to,
        })
    }
}
