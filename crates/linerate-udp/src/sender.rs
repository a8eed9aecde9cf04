//! [`Sender`]: messages to one address, a batch at a time.

mod xdp;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use linerate_wire::ethernet;
use rustix::event::PollFlags;

use crate::options::{MAX_BATCH_SIZE, MAX_MESSAGE_SIZE};
use crate::socket::{self, SendError, SendMmsg};
use crate::transmit::Transmit;
use crate::{Error, Result};
use xdp::XdpSender;

/// Messages of one super-datagram, at most (`UDP_MAX_SEGMENTS` of older kernels; newer take 128).
const MAX_SEGMENTS: usize = 64;
/// The span of a rate whose messages may go out at once.
const BURST: Duration = Duration::from_micros(100);
/// How much of a stall's delay is made up for.
const MAX_CATCH_UP: Duration = Duration::from_millis(20);
/// Shorter waits spin: a sleep would take several times as long.
const MIN_SLEEP: Duration = Duration::from_micros(10);
/// Room for headers in front of every transmit of messages, which is where `xdp` writes them.
const HEADROOM: usize = 64;

/// What was sent since a sender was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendStatistics {
    /// Messages that the kernel took.
    pub messages: u64,
    /// Bytes of their payload.
    pub bytes: u64,
    /// Messages sent one by one after the kernel refused to segment them.
    pub unsegmented: u64,
    /// Messages that the kernel did not take.
    pub refused: u64,
    /// ICMP errors that the destination is unreachable; the messages that they answer were sent.
    pub unreachable: u64,
    /// System calls that sent.
    pub syscalls: u64,
}

/// Sends UDP messages to one address. Messages are written where they are sent from, and go out when the
/// batch is full or is flushed: as super-datagrams that the kernel segments (UDP_SEGMENT), or as frames
/// that this library segments, through an AF_XDP socket. Where the kernel refuses to segment, the
/// messages are sent one by one, and none is lost.
#[derive(Debug)]
pub struct Sender {
    backend: SendBackend,
    buffer: Vec<u8>,
    transmits: Vec<Transmit>,
    batch: usize,
    pending: usize,
    max_segments: usize,
    /// Messages of at least this size are not segmented: the kernel refused it.
    unsegmented_from: usize,
    statistics: SendStatistics,
    pacer: Option<Pacer>,
    fallback_reason: Option<String>,
    to: SocketAddr,
    from: SocketAddr,
}

#[derive(Debug)]
enum SendBackend {
    Socket(OwnedFd, SendMmsg),
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

/// The options of a sender; made by [`Sender::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct SenderBuilder {
    to: SocketAddr,
    from: Option<SocketAddr>,
    batch: usize,
    message_size: usize,
    gso: bool,
    rate: Option<f64>,
    interface: Option<String>,
    next_hop: Option<ethernet::Address>,
}

impl Sender {
    /// A sender of messages to `address`.
    pub fn builder(address: SocketAddr) -> SenderBuilder {
        SenderBuilder {
            to: socket::unmapped(address),
            from: None,
            batch: 256,
            message_size: 2048,
            gso: true,
            rate: None,
            interface: None,
            next_hop: None,
        }
    }

    /// Room for the next message, `len` bytes that hold anything: write all of them. A full batch is sent
    /// first. With a rate the first message of the next one waits until its time has come, whatever signals
    /// come meanwhile ([`Sender::wait_until_due`] ends at one): what is written then, such as a time stamp, is fresh.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a message longer than the sender was built for; as [`Sender::flush`].
    #[inline]
    pub fn message(&mut self, len: usize) -> Result<&mut [u8]> {
        let end = self.transmits.last().map_or(0, |transmit| transmit.end);
        // A new transmit may have to begin, with its headroom.
        if self.pending == self.batch || end + HEADROOM + len > self.buffer.len() {
            if HEADROOM + len > self.buffer.len() {
                return Err(Error::Invalid(format!(
                    "a message of {len} bytes: the sender was built for shorter ones"
                )));
            }
            self.flush()?;
        }
        if self.pending == 0 && self.pacer.is_some() {
            while !self.wait_until_due(None)? {}
        }
        self.pending += 1;
        let max_segments = self.max_segments;
        let start = match self.transmits.last_mut() {
            // A shorter message ends a transmit: only the last segment may be shorter.
            Some(transmit)
                if len <= transmit.segment_size
                    && len != 0
                    && transmit.segment_size < self.unsegmented_from
                    && transmit.len() == transmit.segment_size * transmit.segments
                    && transmit.segments < max_segments
                    && transmit.len() + len <= MAX_MESSAGE_SIZE - 1000 =>
            {
                let start = transmit.end;
                transmit.end += len;
                transmit.segments += 1;
                start
            }
            last => {
                let start = last.map_or(0, |transmit| transmit.end) + HEADROOM;
                self.transmits.push(Transmit {
                    start,
                    end: start + len,
                    segment_size: len,
                    segments: 1,
                });
                start
            }
        };
        Ok(&mut self.buffer[start..start + len])
    }

    /// Sends what is pending.
    ///
    /// # Errors
    /// [`Error::System`] where the kernel takes nothing any more; the messages that are still pending
    /// are then counted as refused.
    pub fn flush(&mut self) -> Result<()> {
        if self.pending == 0 {
            return Ok(());
        }
        if let Some(pacer) = &mut self.pacer {
            pacer.sent += self.pending as u64;
        }
        let before = self.statistics.messages + self.statistics.refused;
        let answer = match &self.backend {
            SendBackend::Socket(..) => self.flush_socket(),
            SendBackend::Xdp { .. } => self.flush_xdp(),
        };
        let done = self.statistics.messages + self.statistics.refused - before;
        self.statistics.refused += (self.pending as u64).saturating_sub(done);
        self.transmits.clear();
        self.pending = 0;
        answer
    }

    /// Sends a full batch, and waits until the next may begin; true when it may, as always where no rate was
    /// asked for. False when the deadline passed before, or a signal came. For those who do not want
    /// [`Sender::message`] to wait for as long as it takes.
    ///
    /// # Errors
    /// As [`Sender::flush`].
    pub fn wait_until_due(&mut self, deadline: Option<Instant>) -> Result<bool> {
        if self.pending == self.batch {
            self.flush()?;
        }
        Ok(match &mut self.pacer {
            Some(pacer) if self.pending == 0 => pacer.wait(deadline),
            _ => true,
        })
    }

    /// The most messages that are collected before they are sent.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// What was sent so far.
    pub fn statistics(&self) -> SendStatistics {
        self.statistics
    }

    /// Why messages are sent one by one although GSO was asked for.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback_reason.as_deref()
    }

    /// The address that messages come from.
    pub fn address(&self) -> SocketAddr {
        self.from
    }

    /// Waits until everything has left an AF_XDP socket; true when it has. Nothing to wait for on others.
    ///
    /// # Errors
    /// As [`Sender::flush`].
    pub fn drain(&mut self, time: Duration) -> Result<bool> {
        self.flush()?;
        match &mut self.backend {
            SendBackend::Xdp { xdp, .. } => xdp.drain(time),
            SendBackend::Socket(..) => Ok(true),
        }
    }

    fn flush_xdp(&mut self) -> Result<()> {
        let SendBackend::Xdp { xdp, .. } = &mut self.backend else { return Ok(()) };
        for transmit in &self.transmits {
            xdp.send(&mut self.buffer, transmit)?;
            self.statistics.messages += transmit.segments as u64;
            self.statistics.bytes += transmit.len() as u64;
        }
        self.statistics.syscalls += xdp.flush()?;
        Ok(())
    }

    fn flush_socket(&mut self) -> Result<()> {
        let SendBackend::Socket(socket, outgoing) = &mut self.backend else { return Ok(()) };
        let mut at = 0;
        while at < self.transmits.len() {
            self.statistics.syscalls += 1;
            let (sent, error) =
                match outgoing.send(socket.as_fd(), &self.buffer, &self.transmits[at..]) {
                    Ok(sent) => (sent, None),
                    Err(SendError { sent, error }) => (sent, Some(error)),
                };
            for transmit in &self.transmits[at..at + sent] {
                self.statistics.messages += transmit.segments as u64;
                self.statistics.bytes += transmit.len() as u64;
            }
            at += sent;
            let Some(error) = error else { continue };
            let transmit = self.transmits[at];
            match error.raw_os_error() {
                Some(libc::EAGAIN) => {
                    socket::poll(socket.as_fd(), PollFlags::OUT, None, None)
                        .map_err(|error| Error::system("wait for a socket to send", error))?;
                }
                // An answer to an earlier message, reported in place of sending this one; or no memory
                // for the moment.
                Some(libc::ECONNREFUSED) => self.statistics.unreachable += 1,
                Some(libc::ENOBUFS) => {
                    socket::sleep(Duration::from_micros(50));
                }
                // The kernel or its driver cannot segment this: the messages are whole, so they go
                // alone, and so do later ones; where they are too long for it, only those as long.
                _ if transmit.segments > 1 => {
                    let split =
                        Self::send_unsegmented(socket.as_fd(), outgoing, &self.buffer, transmit)?;
                    self.statistics.syscalls += split.messages + split.refused;
                    self.statistics.messages += split.messages;
                    self.statistics.bytes += split.bytes;
                    self.statistics.unsegmented += split.messages;
                    self.statistics.refused += split.refused;
                    self.statistics.unreachable += split.unreachable;
                    if split.messages > 0 {
                        self.fallback_reason = Some(match error.raw_os_error() {
                            Some(libc::EINVAL | libc::EMSGSIZE) => {
                                self.unsegmented_from = transmit.segment_size;
                                let size = transmit.segment_size;
                                format!(
                                    "messages of {size} bytes are longer than the MTU of the path, and go one \
                                     by one, as fragments: {error}"
                                )
                            }
                            _ => {
                                self.max_segments = 1;
                                format!(
                                    "the kernel does not segment, messages go one by one: {error}"
                                )
                            }
                        });
                    }
                    at += 1;
                }
                Some(libc::EMSGSIZE | libc::EPERM) => {
                    self.statistics.refused += 1;
                    at += 1;
                }
                _ => return Err(Error::system(format!("send to {}", self.to), error)),
            }
        }
        Ok(())
    }

    /// Sends the messages of a transmit one by one.
    fn send_unsegmented(
        socket: BorrowedFd<'_>,
        outgoing: &mut SendMmsg,
        buffer: &[u8],
        transmit: Transmit,
    ) -> Result<SendStatistics> {
        let mut done = SendStatistics::default();
        let mut start = transmit.start;
        while start < transmit.end {
            let end = (start + transmit.segment_size).min(transmit.end);
            let one = Transmit { start, end, segment_size: end - start, segments: 1 };
            match outgoing.send(socket, buffer, &[one]) {
                Ok(_) => {
                    done.messages += 1;
                    done.bytes += (end - start) as u64;
                    start = end;
                }
                Err(SendError { error, .. }) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => {
                        socket::poll(socket, PollFlags::OUT, None, None)
                            .map_err(|error| Error::system("wait for a socket to send", error))?;
                    }
                    Some(libc::ECONNREFUSED) => done.unreachable += 1,
                    Some(libc::ENOBUFS) => {
                        socket::sleep(Duration::from_micros(50));
                    }
                    _ => {
                        done.refused += 1;
                        start = end;
                    }
                },
            }
        }
        Ok(done)
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

impl SenderBuilder {
    /// Sends from this address and port; default: the kernel's choice.
    pub fn from(mut self, address: SocketAddr) -> Self {
        self.from = Some(socket::unmapped(address));
        self
    }

    /// The most messages that are collected before they are sent; default: 256.
    pub fn batch(mut self, messages: usize) -> Self {
        self.batch = messages;
        self
    }

    /// Bytes of the longest message, up to 65,507; default: 2048.
    pub fn message_size(mut self, bytes: usize) -> Self {
        self.message_size = bytes;
        self
    }

    /// Whether messages of one size go out as super-datagrams (GSO); default: on.
    pub fn gso(mut self, on: bool) -> Self {
        self.gso = on;
        self
    }

    /// The most messages a second; default: unlimited. They are paced evenly: a batch holds what is due in
    /// 100 µs, and of a longer stall at most 20 ms are made up for.
    pub fn rate(mut self, messages: Option<f64>) -> Self {
        self.rate = messages;
        self
    }

    /// Sends through an AF_XDP socket of this interface, past the stack.
    pub fn xdp(mut self, interface: &str) -> Self {
        self.interface = Some(interface.to_owned());
        self
    }

    /// The hardware address that frames of [`SenderBuilder::xdp`] go to; default: the one in the neighbour
    /// table.
    pub fn next_hop(mut self, address: Option<ethernet::Address>) -> Self {
        self.next_hop = address;
        self
    }

    /// Opens a socket and prepares all memory.
    ///
    /// # Errors
    /// [`Error::Invalid`] for sizes that make no sense or an unknown neighbour, [`Error::AddressNotAvailable`],
    /// [`Error::Ring`], [`Error::System`].
    pub fn build(self) -> Result<Sender> {
        let Self { mut batch, message_size, .. } = self;
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
        if let Some(rate) = self.rate
            && !(rate.is_finite() && rate > 0.0)
        {
            return Err(Error::Invalid(format!(
                "{rate} messages a second: the rate must be positive and finite"
            )));
        }
        if let Some(rate) = self.rate {
            batch = batch.min((rate * BURST.as_secs_f64()) as usize).max(1);
        }
        if let Some(from) = self.from
            && from.is_ipv4() != self.to.is_ipv4()
        {
            let to = self.to;
            return Err(Error::Invalid(format!(
                "{from} cannot send to {to}: they are of two versions of IP"
            )));
        }
        let socket = socket::connect(self.to, self.from, 4 << 20)?;
        let from = socket::local_address(socket.as_fd())
            .map_err(|error| Error::system("ask a socket for its address", error))?;
        let backend = match &self.interface {
            None => SendBackend::Socket(socket, SendMmsg::new(batch)),
            Some(interface) => {
                let xdp = XdpSender::open(interface, from, self.to, self.next_hop, message_size)?;
                SendBackend::Xdp { xdp: Box::new(xdp), _socket: socket }
            }
        };
        let buffer = vec![0; batch * message_size + HEADROOM * batch];
        let pacer = self.rate.map(|rate| Pacer { start: None, nanoseconds: 1e9 / rate, sent: 0 });
        Ok(Sender {
            backend,
            buffer,
            transmits: Vec::with_capacity(batch),
            batch,
            pending: 0,
            max_segments: if self.gso { MAX_SEGMENTS } else { 1 },
            unsegmented_from: usize::MAX,
            statistics: SendStatistics::default(),
            pacer,
            fallback_reason: None,
            to: self.to,
            from,
        })
    }
}
