//! [`Outgoing`]: sends transmits through a socket. What the kernel does not segment is sent message by message.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use rustix::event::PollFlags;
use serde::Serialize;

use crate::socket::{self, SendError, SendMmsg};
use crate::transmit::Transmit;

/// Messages of one super-datagram, at most (`UDP_MAX_SEGMENTS` of older kernels; newer take 128).
pub(crate) const MAX_SEGMENTS: usize = 64;

/// Counters of what was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SendStatistics {
    /// Messages that the kernel took, also by the transmit ring.
    pub messages: u64,
    /// Of these, messages that bypassed the stack, through the transmit ring of `xdp`.
    pub ring: u64,
    /// Bytes of their payload.
    pub bytes: u64,
    /// Datagrams and super-datagrams that the stack took. This is the number of the next one's transmit timestamp, as
    /// long as none was refused and nobody else sends from the socket.
    pub datagrams: u64,
    /// Messages sent one by one after the kernel refused to segment them.
    pub unsegmented: u64,
    /// Messages that the kernel did not take.
    pub refused: u64,
    /// ICMP errors that report an unreachable destination; the messages that caused them were sent.
    pub unreachable: u64,
    /// System calls that send.
    pub syscalls: u64,
}

/// What may become one super-datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_segments: usize,
    /// Messages of at least this size are not segmented: the kernel refused it.
    pub(crate) unsegmented_from: usize,
}

/// Headers for `sendmmsg`, and what the kernel said.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) headers: SendMmsg,
    /// The socket is connected: what the kernel refuses is an error of the socket, and not of one destination.
    connected: bool,
    pub(crate) limits: Limits,
    pub(crate) statistics: SendStatistics,
    pub(crate) fallback_reason: Option<String>,
    /// The last destination that the kernel refused, and its error number.
    pub(crate) refusal: Option<(SocketAddr, i32)>,
}

impl Outgoing {
    /// For `transmits` at a time through a socket that is connected, or through one that is bound to `unconnected`.
    pub(crate) fn new(transmits: usize, unconnected: Option<SocketAddr>, gso: bool) -> Self {
        let max_segments = if gso { MAX_SEGMENTS } else { 1 };
        Self {
            headers: SendMmsg::new(transmits, unconnected),
            connected: unconnected.is_none(),
            limits: Limits { max_segments, unsegmented_from: usize::MAX },
            statistics: SendStatistics::default(),
            fallback_reason: None,
            refusal: None,
        }
    }

    /// Sends `count` transmits in order, which `transmit` gives by their numbers. Returns how many the kernel took or
    /// refused: all, or with `wait` false those that its buffer had room for.
    pub(crate) fn send<'t>(
        &mut self,
        fd: BorrowedFd<'_>,
        count: usize,
        transmit: impl Fn(usize) -> Transmit<'t>,
        wait: bool,
    ) -> io::Result<usize> {
        let mut at = 0;
        let mut failed_at = None;
        while at < count {
            self.statistics.syscalls += 1;
            let (sent, error) = match self.headers.send(fd, (at..count).map(&transmit)) {
                Ok(sent) => (sent, None),
                Err(SendError { sent, error }) => (sent, Some(error)),
            };
            for done in (at..at + sent).map(&transmit) {
                self.statistics.messages += done.segments() as u64;
                self.statistics.bytes += done.contents.len() as u64;
            }
            self.statistics.datagrams += sent as u64;
            at += sent;
            let Some(error) = error else { continue };
            if !wait && error.kind() == io::ErrorKind::WouldBlock {
                break;
            }
            let is_first = failed_at.replace(at) != Some(at);
            if self.is_transient(fd, &error, is_first)? {
                continue;
            }
            let refused = transmit(at);
            at += 1;
            if refused.segments() > 1 && error.raw_os_error() != Some(libc::ENOBUFS) {
                self.send_unsegmented(fd, &refused, &error)?;
            } else if self.is_of_destination(&error) {
                self.refuse(&refused, &error);
            } else {
                return Err(error);
            }
        }
        Ok(at)
    }

    /// Whether the same message, which has failed for the first time or again, is to be sent once more. Waits where
    /// that helps.
    fn is_transient(
        &mut self,
        fd: BorrowedFd<'_>,
        error: &io::Error,
        is_first: bool,
    ) -> io::Result<bool> {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => drop(socket::poll(fd, PollFlags::OUT, None, None)?),
            // An answer to an earlier message, reported in place of sending this one.
            Some(libc::ECONNREFUSED) => self.statistics.unreachable += 1,
            // The qdisc dropped it (`IP_RECVERR`), and may drop the next ones as well.
            Some(libc::ENOBUFS) => return Ok(false),
            // The kernel reports an ICMP error about an earlier message (`IP_RECVERR`) in place of sending this one,
            // and takes it at the second trial.
            _ => return Ok(is_first && !self.connected),
        }
        Ok(true)
    }

    /// Whether an error concerns one message, and not the socket.
    fn is_of_destination(&self, error: &io::Error) -> bool {
        match error.raw_os_error() {
            Some(libc::EMSGSIZE | libc::EPERM | libc::ENOBUFS) => true,
            Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT | libc::ENOMEM) | None => false,
            _ => !self.connected,
        }
    }

    fn refuse(&mut self, transmit: &Transmit<'_>, error: &io::Error) {
        self.statistics.refused += transmit.segments() as u64;
        self.refusal = error.raw_os_error().map(|errno| (transmit.destination, errno));
    }

    /// The kernel or the driver cannot segment this: these messages and later ones are sent one by one. If they are
    /// only too long to be segmented, this applies to messages of at least this size, and only on a socket with one
    /// destination.
    fn send_unsegmented(
        &mut self,
        fd: BorrowedFd<'_>,
        transmit: &Transmit<'_>,
        why: &io::Error,
    ) -> io::Result<()> {
        let before = self.statistics.messages;
        let size = transmit.split_size().unwrap_or(usize::MAX);
        for contents in transmit.contents.chunks(size) {
            let one = Transmit { segment_size: None, ..transmit.with(contents) };
            let mut is_first = true;
            loop {
                self.statistics.syscalls += 1;
                let Err(SendError { error, .. }) = self.headers.send(fd, std::iter::once(one))
                else {
                    self.statistics.messages += 1;
                    self.statistics.datagrams += 1;
                    self.statistics.bytes += contents.len() as u64;
                    self.statistics.unsegmented += 1;
                    break;
                };
                if !self.is_transient(fd, &error, std::mem::take(&mut is_first))? {
                    self.refuse(&one, &error);
                    break;
                }
            }
        }
        if self.statistics.messages == before || self.fallback_reason.is_some() && !self.connected {
            return Ok(());
        }
        self.fallback_reason = Some(match why.raw_os_error() {
            Some(libc::EINVAL | libc::EMSGSIZE) if self.connected => {
                self.limits.unsegmented_from = size;
                format!(
                    "messages of {size} bytes are longer than the MTU of the path, and are sent one by one, as \
                     fragments: {why}"
                )
            }
            Some(libc::EINVAL | libc::EMSGSIZE) => format!(
                "some messages are longer than the MTU of their path, or too many for one call, and are sent one by one: {why}"
            ),
            _ => {
                self.limits.max_segments = 1;
                format!("the kernel does not segment; messages are sent one by one: {why}")
            }
        });
        Ok(())
    }
}
