//! [`RecvMmsg`]: the `mmsghdr` array of `recvmmsg`, prepared once.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use linerate_ring::region::{Pages, Region};

use super::cmsg::{CMSG_SPACE, ControlMessages};
use super::sockaddr::SockAddr;
use crate::message::Message;
use crate::{Error, Result};

/// The most messages of one call (`UIO_MAXIOV`): the kernel silently cuts a longer array.
const MAX_PER_CALL: usize = 1024;
/// Length in bytes of the longest datagram, and so of the longest super-datagram.
const MAX_DATAGRAM: usize = 65_535;
const CACHE_LINE: usize = 64;

/// Headers, addresses, ancillary data and payloads of a number of datagrams.
#[derive(Debug)]
pub(crate) struct RecvMmsg {
    headers: Vec<libc::mmsghdr>,
    // What the headers point to. None of it is touched through these while the kernel may write.
    _iovecs: Vec<libc::iovec>,
    addresses: Vec<SockAddr>,
    controls: Vec<[u8; CMSG_SPACE]>,
    /// Bytes that a message may have.
    message_size: usize,
    /// Datagrams of the last call, and how many of them have been lent.
    filled: usize,
    lent: usize,
    /// What is left of the super-datagram that is being split.
    rest: Rest,
    /// The destination address if the kernel reports none.
    bound: SocketAddr,
    payloads: Region,
    /// System calls made.
    pub(crate) syscalls: u64,
}

// SAFETY: the pointers in `headers` lead to memory that this value owns and that does not move with it.
unsafe impl Send for RecvMmsg {}

/// `recvmmsg` without waiting; a single `recvmsg` where there is none (ENOSYS: some sandboxes).
///
/// # Safety
/// The headers point to memory of the lengths that they say, to which nothing else refers during the call.
unsafe fn receive(fd: BorrowedFd<'_>, headers: &mut [libc::mmsghdr]) -> io::Result<usize> {
    let (fd, count, flags) = (fd.as_raw_fd(), headers.len() as u32, libc::MSG_DONTWAIT);
    // SAFETY: the caller's.
    let answer =
        unsafe { libc::recvmmsg(fd, headers.as_mut_ptr(), count, flags as _, ptr::null_mut()) };
    match super::check(answer as isize) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            // SAFETY: the caller's.
            let len = unsafe { libc::recvmsg(fd, &mut headers[0].msg_hdr, flags) };
            headers[0].msg_len = super::check(len)? as u32;
            Ok(1)
        }
        other => other,
    }
}

/// The part of a super-datagram that has not been lent yet, within its slot.
#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    slot: usize,
    from: usize,
    to: usize,
    segment_size: usize,
    /// The kernel truncated the datagram.
    truncated: bool,
    control: ControlMessages,
}

impl RecvMmsg {
    /// Room for `count` datagrams of `message_size` bytes; with `gro` for `count` super-datagrams. `metadata`
    /// asks for ancillary data.
    pub(crate) fn new(
        count: usize,
        message_size: usize,
        gro: bool,
        metadata: bool,
        bound: SocketAddr,
    ) -> Result<Self> {
        let room = if gro { MAX_DATAGRAM } else { message_size };
        // An odd number of cache lines, so that the beginnings of the slots do not all fall into the
        // same few sets of the cache.
        let stride = room.div_ceil(CACHE_LINE).max(1) | 1;
        let len = count.checked_mul(stride * CACHE_LINE).ok_or_else(|| {
            Error::Invalid(format!(
                "{count} messages of {message_size} bytes: more than memory has"
            ))
        })?;
        let payloads = Region::new(len, Pages::Auto, None)?;
        let mut addresses = vec![SockAddr::default(); count];
        let mut controls = vec![[0u8; CMSG_SPACE]; if metadata || gro { count } else { 0 }];
        let mut iovecs: Vec<_> = (0..count)
            .map(|slot| libc::iovec {
                // SAFETY: within the region, which has `count` strides.
                iov_base: unsafe { payloads.as_ptr().add(slot * stride * CACHE_LINE) }.cast(),
                iov_len: room,
            })
            .collect();
        let headers = (0..count)
            .map(|slot| {
                // SAFETY: all zeroes is a valid `mmsghdr`.
                let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                let to = &mut header.msg_hdr;
                to.msg_name = ptr::from_mut(&mut addresses[slot]).cast();
                to.msg_namelen = SockAddr::MAX_LEN;
                to.msg_iov = &mut iovecs[slot];
                to.msg_iovlen = 1;
                if let Some(control) = controls.get_mut(slot) {
                    to.msg_control = control.as_mut_ptr().cast();
                    to.msg_controllen = CMSG_SPACE;
                }
                header
            })
            .collect();
        Ok(Self {
            headers,
            _iovecs: iovecs,
            addresses,
            controls,
            message_size,
            filled: 0,
            lent: 0,
            rest: Rest::default(),
            bound,
            payloads,
            syscalls: 0,
        })
    }

    /// Takes what has arrived, without waiting: false if nothing has. Call it only when everything has been
    /// lent.
    pub(crate) fn fill(&mut self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        self.prepare();
        while self.filled < self.headers.len() {
            let room = (self.headers.len() - self.filled).min(MAX_PER_CALL);
            let headers = &mut self.headers[self.filled..self.filled + room];
            self.syscalls += 1;
            // SAFETY: `room` headers, each of which points to memory of `self` of the length that it
            // says; nothing else refers to it during the call.
            match unsafe { receive(fd, headers) } {
                Ok(count) => {
                    self.filled += count;
                    if count < room {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It is in the error queue, too.
                Err(error) if super::icmp::is_reported(&error) => {}
                // The messages matter more than the error; the next call may or may not report it again.
                Err(_) if self.filled > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(self.filled > 0)
    }

    /// Whether something was taken that has not been lent.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.lent < self.filled || self.rest.from < self.rest.to
    }

    /// Whether everything was lent, and the last call left nothing in the socket.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        !self.has_more() && self.filled < self.headers.len()
    }

    /// The kernel wrote lengths over the room that it had; the rest of a header stays as it is.
    fn prepare(&mut self) {
        for header in &mut self.headers[..self.filled] {
            let header = &mut header.msg_hdr;
            header.msg_namelen = SockAddr::MAX_LEN;
            header.msg_flags = 0;
            if !header.msg_control.is_null() {
                header.msg_controllen = CMSG_SPACE;
            }
        }
        (self.filled, self.lent) = (0, 0);
    }

    /// The next message.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Message<'_>> {
        if self.rest.from >= self.rest.to {
            return self.next_datagram();
        }
        let from = self.rest.from;
        let to = (from + self.rest.segment_size).min(self.rest.to);
        self.rest.from = to;
        Some(self.message(from, to))
    }

    #[inline]
    fn next_datagram(&mut self) -> Option<Message<'_>> {
        if self.lent >= self.filled {
            return None;
        }
        let slot = self.lent;
        self.lent += 1;
        let header = &self.headers[slot];
        let len = header.msg_len as usize;
        let control = match self.controls.get(slot) {
            Some(bytes) => {
                ControlMessages::parse(&bytes[..header.msg_hdr.msg_controllen.min(CMSG_SPACE)])
            }
            None => ControlMessages::default(),
        };
        let segment_size = control.segment_size.filter(|size| *size > 0).unwrap_or(len);
        let truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        let first = segment_size.min(len);
        self.rest = Rest { slot, from: first, to: len, segment_size, truncated, control };
        Some(self.message(0, first))
    }

    #[inline]
    fn message(&self, from: usize, to: usize) -> Message<'_> {
        let Rest { slot, truncated, control, .. } = &self.rest;
        let whole = to - from;
        let len = whole.min(self.message_size);
        // SAFETY: the kernel wrote `to` bytes into this slot, and writes no more until the next `fill`,
        // which needs `self` for itself.
        let payload = unsafe {
            let at = (*self.headers[*slot].msg_hdr.msg_iov).iov_base.cast::<u8>().add(from);
            debug_assert!(at >= self.payloads.as_ptr());
            std::slice::from_raw_parts(at, len)
        };
        control.message(
            payload,
            self.addresses[*slot].address(),
            self.bound,
            *truncated || len < whole,
        )
    }
}
