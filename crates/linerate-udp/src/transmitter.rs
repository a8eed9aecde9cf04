//! [`Transmitter`]: sends to any address from the port of a receiver, a batch at a time.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use linerate_net::Connection;

use crate::backend::SendBackend;
use crate::caller_socket::interface_of;
use crate::options::Options;
use crate::outgoing::{Outgoing, SendStatistics};
use crate::queue::Queue;
use crate::socket;
use crate::transmit::Transmit;
use crate::xdp::TransmitRing;
use crate::{Error, Result, interface};

/// Sends UDP messages from the socket of a receiver ([`Receiver::transmitter`](crate::Receiver::transmitter)), to
/// addresses that differ from message to message, with few system calls.
///
/// [`Transmitter::send`] sends payloads without a copy. [`Transmitter::message`] and [`Transmitter::push`] collect
/// messages, and join consecutive messages of one size to one destination into super-datagrams (GSO). So replies can be
/// collected while the batch that they answer is lent. A message that the kernel refuses is counted, and the others are
/// sent. Writable ([`AsFd`]) when the socket has room.
#[derive(Debug)]
pub struct Transmitter {
    socket: Arc<OwnedFd>,
    bound: SocketAddr,
    queue: Queue,
    /// Runs of the queue that have been sent.
    sent: usize,
    outgoing: Outgoing,
    /// For what has a known next hop.
    ring: Option<TransmitRing>,
    /// Why not the backend that was asked for.
    reason: Option<String>,
}

impl Transmitter {
    /// `ring` is the transmit ring, or the reason why there is none, where the options ask for one.
    pub(crate) fn new(
        socket: Arc<OwnedFd>,
        bound: SocketAddr,
        options: &Options,
        ring: Option<std::result::Result<TransmitRing, String>>,
    ) -> Self {
        let mut outgoing =
            Outgoing::new(options.batch, Some(bound), options.send.gso.unwrap_or(true));
        let (ring, reason) = match ring {
            Some(Ok(ring)) => (Some(ring), None),
            Some(Err(why)) => (None, Some(format!("no transmit ring: {why}"))),
            None if options.send.backend == SendBackend::Uring => {
                let refused = outgoing.headers.set_uring().err();
                (None, refused.map(|why| format!("messages are sent without io_uring: {why}")))
            }
            None => (None, None),
        };
        let reason = reason.or_else(|| why_not_paced(options));
        Self {
            socket,
            bound,
            queue: Queue::new(options.batch, options.message_size),
            sent: 0,
            outgoing,
            ring,
            reason,
        }
    }

    /// Sends all, without a copy of their payloads, after the collected messages. Waits while the socket has no room.
    ///
    /// # Errors
    /// [`Error::System`] if the socket fails. A refused destination is counted instead ([`Transmitter::statistics`]).
    pub fn send(&mut self, transmits: &[Transmit<'_>]) -> Result<()> {
        self.flush()?;
        self.transfer(transmits.len(), |at| transmits[at], true).map(drop)
    }

    /// The same without waiting. Returns how many, from the first on, were sent or refused; 0 if there is no room.
    ///
    /// # Errors
    /// As [`Transmitter::send`].
    pub fn try_send(&mut self, transmits: &[Transmit<'_>]) -> Result<usize> {
        self.try_send_by(transmits.len(), |at| transmits[at])
    }

    /// The same for `count` transmits that `transmit` makes of their numbers, for those who keep them in another form.
    /// It is called more than once for each.
    ///
    /// # Errors
    /// As [`Transmitter::send`].
    pub fn try_send_by<'t>(
        &mut self,
        count: usize,
        transmit: impl Fn(usize) -> Transmit<'t>,
    ) -> Result<usize> {
        if self.try_flush()? { self.transfer(count, transmit, false) } else { Ok(0) }
    }

    /// Memory for a message of `len` bytes with the destination, source and options of `to`; the payload and segment
    /// size of `to` are ignored. The content is unspecified: write all of it. It is sent by [`Transmitter::flush`], or
    /// when the batch is full.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a message longer than the receiver was built for; as [`Transmitter::send`].
    #[inline]
    pub fn message(&mut self, to: &Transmit<'_>, len: usize) -> Result<&mut [u8]> {
        if !self.queue.has_room(len) {
            self.make_room(len)?;
        }
        let head = self.path(to).with(&[]);
        let head = Transmit { segment_size: None, ..head };
        let same = self.queue.goes_with_last(&head) && self.sent < self.queue.runs.len();
        Ok(self.queue.push(&head, same, len, self.outgoing.limits))
    }

    /// Collects messages. This copies the payload once, so consecutive messages can be joined and the payload can be
    /// dropped.
    ///
    /// # Errors
    /// As [`Transmitter::message`].
    #[inline]
    pub fn push(&mut self, transmit: &Transmit<'_>) -> Result<()> {
        let Some(size) = transmit.split_size() else {
            let contents = transmit.contents;
            self.message(transmit, contents.len())?.copy_from_slice(contents);
            return Ok(());
        };
        for contents in transmit.contents.chunks(size) {
            self.message(transmit, contents.len())?.copy_from_slice(contents);
        }
        Ok(())
    }

    /// Sends the collected messages; waits while the socket has no room.
    ///
    /// # Errors
    /// As [`Transmitter::send`].
    pub fn flush(&mut self) -> Result<()> {
        self.flush_queue(true).map(drop)
    }

    /// The same without waiting: true when everything was sent.
    ///
    /// # Errors
    /// As [`Transmitter::send`].
    pub fn try_flush(&mut self) -> Result<bool> {
        self.flush_queue(false)
    }

    /// The socket's send buffer in bytes, the kernel's overhead included.
    pub fn send_buffer_size(&self) -> Result<u32> {
        socket::send_buffer_size(self.socket.as_fd())
            .map_err(|error| Error::system("read the buffer size of a socket", error))
    }

    /// The address that the socket is bound to.
    pub fn address(&self) -> SocketAddr {
        self.bound
    }

    /// Counts of what was sent so far.
    pub fn statistics(&self) -> SendStatistics {
        self.outgoing.statistics
    }

    /// The last destination that the kernel refused a message to, and why.
    pub fn last_refusal(&self) -> Option<(SocketAddr, io::Error)> {
        self.outgoing.refusal.map(|(to, errno)| (to, io::Error::from_raw_os_error(errno)))
    }

    /// Why messages were sent one by one that could have been segmented, all through the stack although
    /// [`SendOptions::backend`](crate::SendOptions::backend) says otherwise, or without the pacing that was asked for.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.reason.as_deref().or(self.outgoing.fallback_reason.as_deref())
    }

    /// Whether messages can be collected without sending others first, or are too long anyway.
    #[cfg(feature = "tokio")]
    pub(crate) fn has_room(&self, transmit: &Transmit<'_>) -> bool {
        let (len, segments) = (transmit.contents.len(), transmit.segments());
        self.queue.has_room_for(segments, len) || !self.queue.fits(len)
    }

    #[cold]
    fn make_room(&mut self, len: usize) -> Result<()> {
        if !self.queue.fits(len) {
            return Err(Error::Invalid(format!(
                "a message of {len} bytes is longer than the message size of the socket"
            )));
        }
        self.flush()
    }

    fn flush_queue(&mut self, wait: bool) -> Result<bool> {
        if self.queue.messages == 0 {
            return Ok(true);
        }
        let Self { queue: Queue { buffer, runs, .. }, outgoing, ring, socket, .. } = self;
        let left = &runs[self.sent..];
        let transmit = |at: usize| left[at].transmit(buffer);
        let sent = send(outgoing, ring.as_mut(), socket.as_fd(), left.len(), transmit, wait);
        let is_done = sent.as_ref().map_or(true, |sent| *sent == left.len());
        match &sent {
            // After an error the socket is unusable, and the rest is lost.
            _ if is_done => {
                self.queue.clear();
                self.sent = 0;
            }
            Ok(sent) => self.sent += sent,
            Err(_) => {}
        }
        sent.map(|_| is_done).map_err(|error| self.failed(error))
    }

    fn transfer<'t>(
        &mut self,
        count: usize,
        transmit: impl Fn(usize) -> Transmit<'t>,
        wait: bool,
    ) -> Result<usize> {
        let bound = self.bound;
        let transmit = |at: usize| path_from(bound, &transmit(at));
        let Self { outgoing, ring, socket, .. } = self;
        let sent = send(outgoing, ring.as_mut(), socket.as_fd(), count, transmit, wait);
        sent.map_err(|error| self.failed(error))
    }

    #[inline]
    fn path<'t>(&self, transmit: &Transmit<'t>) -> Transmit<'t> {
        path_from(self.bound, transmit)
    }

    #[cold]
    fn failed(&self, error: io::Error) -> Error {
        Error::system(format!("send from {}", self.bound), error)
    }
}

/// Sends `count` transmits in order, each by the ring if that accepts it, else by the socket. Returns how many were
/// sent or refused: all, or with `wait` false those that there was room for.
fn send<'t>(
    outgoing: &mut Outgoing,
    ring: Option<&mut TransmitRing>,
    socket: BorrowedFd<'_>,
    count: usize,
    transmit: impl Fn(usize) -> Transmit<'t>,
    wait: bool,
) -> io::Result<usize> {
    let Some(ring) = ring else { return outgoing.send(socket, count, transmit, wait) };
    ring.start(count, &transmit);
    let mut at = 0;
    while at < count {
        // Neighbours that go the same way, so that the order stays.
        let by_ring = ring.accepts(&transmit(at));
        let goes_along = |next: &usize| ring.accepts(&transmit(*next)) == by_ring;
        let span = 1 + (at + 1..count).take_while(goes_along).count();
        let these = |next: usize| transmit(at + next);
        if by_ring {
            // What it has no room for takes the socket.
            let sent = ring.send(span, these, wait, &mut outgoing.statistics);
            ring.follow_failure();
            at += sent?;
            continue;
        }
        let sent = outgoing.send(socket, span, these, wait)?;
        at += sent;
        if sent < span {
            break;
        }
    }
    Ok(at)
}

/// Why the qdisc of the socket's interface, if that is known, heeds no transmit times and no pacing rate.
fn why_not_paced(options: &Options) -> Option<String> {
    options.send.transmit_clock.map(drop).or(options.send.max_pacing_rate.map(drop))?;
    let name = interface_of(options)?;
    let qdiscs = Connection::open().ok()?.qdiscs(interface::index(&name).ok()?).ok()?;
    let paces = |kind: &str| kind == "fq" || kind == "etf" && options.send.transmit_clock.is_some();
    if qdiscs.iter().any(|qdisc| paces(&qdisc.kind)) {
        return None;
    }
    let kind = qdiscs.iter().find(|qdisc| !qdisc.is_ingress()).map_or("noqueue", |one| &one.kind);
    Some(format!(
        "the qdisc of {name} is {kind}, which sends at once: pacing needs fq, transmit times need fq or etf"
    ))
}

/// The transmit without a source that the socket has anyway: the kernel need not be told.
#[inline]
fn path_from<'t>(bound: SocketAddr, transmit: &Transmit<'t>) -> Transmit<'t> {
    Transmit { source: transmit.source.filter(|source| *source != bound.ip()), ..*transmit }
}

impl AsFd for Transmitter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
