//! [`Sender`]: messages to one address, a batch at a time.

mod frames;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use linerate_wire::ethernet;

use crate::builder::{LARGEST_BATCH, LONGEST_MESSAGE};
use crate::socket::{self, Outgoing, Rejected};
use crate::{Error, Result};
use frames::Frames;

/// Messages of one super-datagram, at most (`UDP_MAX_SEGMENTS` of older kernels; newer take 128).
const MOST_JOINED: usize = 64;
/// The span of a pace whose messages may go at once.
const BURST: Duration = Duration::from_micros(100);
/// How much of what a stall held up is made up for.
const CAUGHT_UP: Duration = Duration::from_millis(20);
/// Below this the clock is watched: a nap would take several times as long.
const SHORTEST_NAP: Duration = Duration::from_micros(10);
/// Room for headers in front of every run of messages, which is where `xdp` writes them.
const HEADROOM: usize = 64;

/// Messages of one size, one behind the other; the last may be shorter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) size: usize,
    pub(crate) messages: usize,
}

/// What was sent since a sender was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sent {
    /// Messages that the kernel took.
    pub messages: u64,
    /// Bytes of their payload.
    pub bytes: u64,
    /// Messages that went out one by one after the kernel had refused to segment them.
    pub resent: u64,
    /// Messages that the kernel did not take.
    pub refused: u64,
    /// Answers that nobody listens there, or lives; the messages that they answer were sent.
    pub unreachable: u64,
    /// System calls that sent.
    pub calls: u64,
}

/// Sends UDP messages to one address. Messages are written where they are sent from, and go out when the
/// batch is full or is flushed: as super-datagrams that the kernel segments (UDP_SEGMENT), or as frames
/// that this library segments, through an AF_XDP socket. Where the kernel refuses to segment, the
/// messages are sent one by one, and none is lost.
#[derive(Debug)]
pub struct Sender {
    way: Way,
    arena: Vec<u8>,
    runs: Vec<Run>,
    batch: usize,
    waiting: usize,
    joined: usize,
    /// Messages as long as this go alone: the kernel refused to segment such.
    alone_from: usize,
    sent: Sent,
    pace: Option<Pace>,
    why: Option<String>,
    to: SocketAddr,
    from: SocketAddr,
}

#[derive(Debug)]
enum Way {
    Socket(OwnedFd, Outgoing),
    Frames {
        frames: Box<Frames>,
        /// Keeps the port from everybody else.
        _socket: OwnedFd,
    },
}

/// When the next message is due.
#[derive(Debug)]
struct Pace {
    start: Option<Instant>,
    nanoseconds: f64,
    sent: u64,
}

/// What to ask for; made by [`Sender::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct SenderBuilder {
    to: SocketAddr,
    from: Option<SocketAddr>,
    batch: usize,
    message_size: usize,
    offload: bool,
    rate: Option<f64>,
    interface: Option<String>,
    next_hop: Option<ethernet::Address>,
}

impl Sender {
    /// A sender of messages to `address`.
    pub fn builder(address: SocketAddr) -> SenderBuilder {
        SenderBuilder {
            to: address,
            from: None,
            batch: 256,
            message_size: 2048,
            offload: true,
            rate: None,
            interface: None,
            next_hop: None,
        }
    }

    /// Room for the next message, `len` bytes that hold anything: write all of them. A full batch is sent
    /// first. With a pace the first message of the next one waits until its time has come, whatever signals
    /// come meanwhile ([`Sender::turn`] ends at one): what is written then, such as a time stamp, is fresh.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a message longer than the sender was built for; as [`Sender::flush`].
    #[inline]
    pub fn message(&mut self, len: usize) -> Result<&mut [u8]> {
        let end = self.runs.last().map_or(0, |run| run.to);
        // A new run may have to begin, with its headroom.
        if self.waiting == self.batch || end + HEADROOM + len > self.arena.len() {
            if HEADROOM + len > self.arena.len() {
                return Err(Error::Invalid(format!(
                    "a message of {len} bytes: the sender was built for shorter ones"
                )));
            }
            self.flush()?;
        }
        if self.waiting == 0 && self.pace.is_some() {
            while !self.turn(None)? {}
        }
        self.waiting += 1;
        let joined = self.joined;
        let from = match self.runs.last_mut() {
            // A shorter message ends a run: only the last segment may be shorter.
            Some(run)
                if len <= run.size
                    && len != 0
                    && run.size < self.alone_from
                    && run.to - run.from == run.size * run.messages
                    && run.messages < joined
                    && run.to - run.from + len <= LONGEST_MESSAGE - 1000 =>
            {
                let from = run.to;
                run.to += len;
                run.messages += 1;
                from
            }
            last => {
                let from = last.map_or(0, |run| run.to) + HEADROOM;
                self.runs.push(Run { from, to: from + len, size: len, messages: 1 });
                from
            }
        };
        Ok(&mut self.arena[from..from + len])
    }

    /// Sends what is waiting.
    ///
    /// # Errors
    /// [`Error::System`] where the kernel takes nothing any more; the messages that are still waiting
    /// are then counted as refused.
    pub fn flush(&mut self) -> Result<()> {
        if self.waiting == 0 {
            return Ok(());
        }
        if let Some(pace) = &mut self.pace {
            pace.sent += self.waiting as u64;
        }
        let before = self.sent.messages + self.sent.refused;
        let answer = match &self.way {
            Way::Socket(..) => self.flush_socket(),
            Way::Frames { .. } => self.flush_frames(),
        };
        let done = self.sent.messages + self.sent.refused - before;
        self.sent.refused += (self.waiting as u64).saturating_sub(done);
        self.runs.clear();
        self.waiting = 0;
        answer
    }

    /// Sends a full batch, and waits until the next may begin; true when it may, as always where no pace was
    /// asked for. False when the deadline passed before, or a signal came. For those who do not want
    /// [`Sender::message`] to wait for as long as it takes.
    ///
    /// # Errors
    /// As [`Sender::flush`].
    pub fn turn(&mut self, deadline: Option<Instant>) -> Result<bool> {
        if self.waiting == self.batch {
            self.flush()?;
        }
        Ok(match &mut self.pace {
            Some(pace) if self.waiting == 0 => pace.wait(deadline),
            _ => true,
        })
    }

    /// Messages that wait for each other at most.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// What was sent so far.
    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// Why messages go out one by one, where they do though nobody asked for that.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
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
        match &mut self.way {
            Way::Frames { frames, .. } => frames.drain(time),
            Way::Socket(..) => Ok(true),
        }
    }

    fn flush_frames(&mut self) -> Result<()> {
        let Way::Frames { frames, .. } = &mut self.way else { return Ok(()) };
        for run in &self.runs {
            frames.send(&mut self.arena, run)?;
            self.sent.messages += run.messages as u64;
            self.sent.bytes += (run.to - run.from) as u64;
        }
        self.sent.calls += frames.flush()?;
        Ok(())
    }

    fn flush_socket(&mut self) -> Result<()> {
        let Way::Socket(socket, outgoing) = &mut self.way else { return Ok(()) };
        let mut at = 0;
        while at < self.runs.len() {
            self.sent.calls += 1;
            let (sent, error) = match outgoing.send(socket.as_fd(), &self.arena, &self.runs[at..]) {
                Ok(sent) => (sent, None),
                Err(Rejected { sent, error }) => (sent, Some(error)),
            };
            for run in &self.runs[at..at + sent] {
                self.sent.messages += run.messages as u64;
                self.sent.bytes += (run.to - run.from) as u64;
            }
            at += sent;
            let Some(error) = error else { continue };
            let run = self.runs[at];
            match error.raw_os_error() {
                Some(libc::EAGAIN) => {
                    socket::wait(socket.as_fd(), libc::POLLOUT, None)
                        .map_err(|error| Error::system("wait for a socket to send", error))?;
                }
                // An answer to an earlier message, reported in place of sending this one; or no memory
                // for the moment.
                Some(libc::ECONNREFUSED) => self.sent.unreachable += 1,
                Some(libc::ENOBUFS) => {
                    socket::pause(Duration::from_micros(50));
                }
                // The kernel or its driver cannot segment this: the messages are whole, so they go
                // alone, and so do later ones; where they are too long for it, only those as long.
                _ if run.messages > 1 => {
                    let split = Self::alone(socket.as_fd(), outgoing, &self.arena, run)?;
                    self.sent.calls += split.messages + split.refused;
                    self.sent.messages += split.messages;
                    self.sent.bytes += split.bytes;
                    self.sent.resent += split.messages;
                    self.sent.refused += split.refused;
                    self.sent.unreachable += split.unreachable;
                    if split.messages > 0 {
                        self.why = Some(match error.raw_os_error() {
                            Some(libc::EINVAL | libc::EMSGSIZE) => {
                                self.alone_from = run.size;
                                let size = run.size;
                                format!(
                                    "messages of {size} bytes are longer than the MTU of the way, and go one \
                                     by one, as fragments: {error}"
                                )
                            }
                            _ => {
                                self.joined = 1;
                                format!(
                                    "the kernel does not segment, messages go one by one: {error}"
                                )
                            }
                        });
                    }
                    at += 1;
                }
                Some(libc::EMSGSIZE | libc::EPERM) => {
                    self.sent.refused += 1;
                    at += 1;
                }
                _ => return Err(Error::system(format!("send to {}", self.to), error)),
            }
        }
        Ok(())
    }

    /// The messages of a run one by one.
    fn alone(
        socket: BorrowedFd<'_>,
        outgoing: &mut Outgoing,
        arena: &[u8],
        run: Run,
    ) -> Result<Sent> {
        let mut done = Sent::default();
        let mut from = run.from;
        while from < run.to {
            let to = (from + run.size).min(run.to);
            let one = Run { from, to, size: to - from, messages: 1 };
            match outgoing.send(socket, arena, &[one]) {
                Ok(_) => {
                    done.messages += 1;
                    done.bytes += (to - from) as u64;
                    from = to;
                }
                Err(Rejected { error, .. }) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => {
                        socket::wait(socket, libc::POLLOUT, None)
                            .map_err(|error| Error::system("wait for a socket to send", error))?;
                    }
                    Some(libc::ECONNREFUSED) => done.unreachable += 1,
                    Some(libc::ENOBUFS) => {
                        socket::pause(Duration::from_micros(50));
                    }
                    _ => {
                        done.refused += 1;
                        from = to;
                    }
                },
            }
        }
        Ok(done)
    }
}

impl Pace {
    /// Waits until the next message is due; false when the deadline passed before or a signal came.
    fn wait(&mut self, deadline: Option<Instant>) -> bool {
        let mut start = *self.start.get_or_insert_with(Instant::now);
        let due = Duration::from_nanos((self.sent as f64 * self.nanoseconds) as u64);
        loop {
            let now = Instant::now();
            let late = (now - start).saturating_sub(due);
            if late > CAUGHT_UP {
                start += late - CAUGHT_UP;
                self.start = Some(start);
            }
            let left = due.saturating_sub(now - start);
            let allowed = deadline.map_or(left, |deadline| deadline.saturating_duration_since(now));
            if left.is_zero() || allowed.is_zero() {
                return left.is_zero();
            }
            // A nap ends some 60 µs late, and the next one is then as much shorter: no core is spent on waiting.
            let nap = left.min(allowed);
            if nap < SHORTEST_NAP {
                std::hint::spin_loop();
            } else if !socket::pause(nap.min(Duration::from_millis(100))) {
                return false;
            }
        }
    }
}

impl SenderBuilder {
    /// Sends from this address and port; the kernel chooses unless said.
    pub fn from(mut self, address: SocketAddr) -> Self {
        self.from = Some(address);
        self
    }

    /// Messages that wait for each other at most; 256 unless said.
    pub fn batch(mut self, messages: usize) -> Self {
        self.batch = messages;
        self
    }

    /// Bytes of the longest message, up to 65,507; 2048 unless said.
    pub fn message_size(mut self, bytes: usize) -> Self {
        self.message_size = bytes;
        self
    }

    /// Whether messages of one size are handed over together and segmented later; on unless said.
    pub fn offload(mut self, on: bool) -> Self {
        self.offload = on;
        self
    }

    /// Messages a second, at most; as fast as it goes unless said. They then go evenly: a batch is no more
    /// than what is due in 100 µs, and of what was held up for longer than 20 ms only those are made up for.
    pub fn rate(mut self, messages: Option<f64>) -> Self {
        self.rate = messages;
        self
    }

    /// Sends frames through an AF_XDP socket of this interface, past the stack.
    pub fn frames(mut self, interface: &str) -> Self {
        self.interface = Some(interface.to_owned());
        self
    }

    /// The hardware address that frames go to; what the neighbour table says of the destination unless
    /// said.
    pub fn next_hop(mut self, address: Option<ethernet::Address>) -> Self {
        self.next_hop = address;
        self
    }

    /// Opens a socket and prepares all memory.
    ///
    /// # Errors
    /// [`Error::Invalid`] for sizes that make no sense or an unknown neighbour, [`Error::NotLocal`],
    /// [`Error::Ring`], [`Error::System`].
    pub fn build(self) -> Result<Sender> {
        let Self { mut batch, message_size, .. } = self;
        if !(1..=LARGEST_BATCH).contains(&batch) {
            return Err(Error::Invalid(format!(
                "a batch of {batch} messages: 1 to {LARGEST_BATCH} make sense"
            )));
        }
        if message_size > LONGEST_MESSAGE {
            return Err(Error::Invalid(format!(
                "messages of {message_size} bytes: a UDP datagram has at most {LONGEST_MESSAGE}"
            )));
        }
        if let Some(rate) = self.rate
            && !(rate.is_finite() && rate > 0.0)
        {
            return Err(Error::Invalid(format!("{rate} messages a second make no sense")));
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
        let way = match &self.interface {
            None => Way::Socket(socket, Outgoing::new(batch)),
            Some(interface) => {
                let frames = Frames::open(interface, from, self.to, self.next_hop, message_size)?;
                Way::Frames { frames: Box::new(frames), _socket: socket }
            }
        };
        let arena = vec![0; batch * message_size + HEADROOM * batch];
        let pace = self.rate.map(|rate| Pace { start: None, nanoseconds: 1e9 / rate, sent: 0 });
        Ok(Sender {
            way,
            arena,
            runs: Vec::with_capacity(batch),
            batch,
            waiting: 0,
            joined: if self.offload { MOST_JOINED } else { 1 },
            alone_from: usize::MAX,
            sent: Sent::default(),
            pace,
            why: None,
            to: self.to,
            from,
        })
    }
}
