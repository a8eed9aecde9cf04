//! [`Slots`]: the arrays of `recvmmsg`, prepared once.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use linerate_ring::Region;

use super::address::Name;
use super::control::{Control, ROOM};
use super::remember::Remembered;
use crate::message::Message;
use crate::{Error, Result};

/// Messages that one call takes at most (`UIO_MAXIOV`): the kernel cuts a longer array without a word.
const MOST_IN_A_CALL: usize = 1024;
/// A super-datagram is at most as long as a datagram can be.
const SUPER: usize = 65_535;
const LINE: usize = 64;

/// Headers, addresses, ancillary data and payloads of a number of datagrams.
#[derive(Debug)]
pub(crate) struct Slots {
    // Before the headers, which it has the kernel forget.
    remembered: Option<Remembered>,
    headers: Vec<libc::mmsghdr>,
    // What the headers point to. None of it is touched through these while the kernel may write.
    _iovecs: Vec<libc::iovec>,
    names: Vec<Name>,
    controls: Vec<[u8; ROOM]>,
    /// Bytes that a message may have.
    message_size: usize,
    /// Datagrams of the last call, and how many of them have been lent.
    filled: usize,
    lent: usize,
    /// What is left of the super-datagram that is being split.
    rest: Rest,
    /// The address that stands for the destination where the kernel says none.
    bound: SocketAddr,
    payloads: Region,
    /// System calls made.
    pub(crate) calls: u64,
}

// SAFETY: the pointers in `headers` lead to memory that this value owns and that does not move with it.
unsafe impl Send for Slots {}

/// The part of a super-datagram that has not been lent yet, within its slot.
#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    slot: usize,
    from: usize,
    to: usize,
    segment: usize,
    /// The kernel cut the datagram.
    cut: bool,
    control: Control,
}

impl Slots {
    /// Room for `count` datagrams of `message_size` bytes, or for `count` super-datagrams.
    /// `control` says that ancillary data is wanted.
    pub(crate) fn new(
        count: usize,
        message_size: usize,
        joined: bool,
        control: bool,
        bound: SocketAddr,
    ) -> Result<Self> {
        let room = if joined { SUPER } else { message_size };
        // An odd number of cache lines, so that the beginnings of the slots do not all fall into the
        // same few sets of the cache.
        let stride = room.div_ceil(LINE).max(1) | 1;
        let len = count.checked_mul(stride * LINE).ok_or_else(|| {
            Error::Invalid(format!(
                "{count} messages of {message_size} bytes: more than memory has"
            ))
        })?;
        let payloads = Region::builder(len).build()?;
        let mut names = vec![Name::default(); count];
        let mut controls = vec![[0u8; ROOM]; if control || joined { count } else { 0 }];
        let mut iovecs: Vec<_> = (0..count)
            .map(|slot| libc::iovec {
                // SAFETY: within the region, which has `count` strides.
                iov_base: unsafe { payloads.as_ptr().add(slot * stride * LINE) }.cast(),
                iov_len: room,
            })
            .collect();
        let headers = (0..count)
            .map(|slot| {
                // SAFETY: all zeroes is a valid `mmsghdr`.
                let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                let to = &mut header.msg_hdr;
                to.msg_name = ptr::from_mut(&mut names[slot]).cast();
                to.msg_namelen = Name::ROOM;
                to.msg_iov = &mut iovecs[slot];
                to.msg_iovlen = 1;
                if let Some(control) = controls.get_mut(slot) {
                    to.msg_control = control.as_mut_ptr().cast();
                    to.msg_controllen = ROOM;
                }
                header
            })
            .collect();
        Ok(Self {
            remembered: None,
            headers,
            _iovecs: iovecs,
            names,
            controls,
            message_size,
            filled: 0,
            lent: 0,
            rest: Rest::default(),
            bound,
            payloads,
            calls: 0,
        })
    }

    /// Has the kernel read the headers now, for good, where it can: `socket` is the one to receive from.
    pub(crate) fn remember(&mut self, socket: Arc<OwnedFd>) -> io::Result<()> {
        // SAFETY: what the headers point to is theirs alone, is freed after `remembered`, and is only
        // looked at between two calls.
        self.remembered = Some(unsafe { Remembered::new(socket, &mut self.headers) }?);
        Ok(())
    }

    /// Takes what has come, without waiting: false when nothing has. Only to be called when everything
    /// has been lent.
    pub(crate) fn fill(&mut self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        self.prepare();
        while self.filled < self.headers.len() {
            let room = (self.headers.len() - self.filled).min(MOST_IN_A_CALL);
            let headers = &mut self.headers[self.filled..self.filled + room];
            self.calls += 1;
            // SAFETY: `room` headers, each of which points to memory of `self` of the length that it
            // says; nothing else refers to it during the call.
            let answer = unsafe {
                libc::recvmmsg(
                    fd.as_raw_fd(),
                    headers.as_mut_ptr(),
                    room as u32,
                    libc::MSG_DONTWAIT as _,
                    ptr::null_mut(),
                )
            };
            match super::check(answer as isize) {
                Ok(count) => {
                    self.filled += count;
                    if count < room {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What is there is worth more than the error, which the socket does not forget for
                // long: the next call meets it or not.
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

    /// The kernel wrote lengths over the room that it had; the rest of a header stays as it is. One that
    /// remembers the headers knows the room.
    fn prepare(&mut self) {
        let written = if self.remembered.is_some() { 0 } else { self.filled };
        for header in &mut self.headers[..written] {
            let header = &mut header.msg_hdr;
            header.msg_namelen = Name::ROOM;
            header.msg_flags = 0;
            if !header.msg_control.is_null() {
                header.msg_controllen = ROOM;
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
        let to = (from + self.rest.segment).min(self.rest.to);
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
            Some(bytes) => Control::parse(&bytes[..header.msg_hdr.msg_controllen.min(ROOM)]),
            None => Control::default(),
        };
        let segment = control.segment.filter(|segment| *segment > 0).unwrap_or(len);
        let cut = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        let first = segment.min(len);
        self.rest = Rest { slot, from: first, to: len, segment, cut, control };
        Some(self.message(0, first))
    }

    #[inline]
    fn message(&self, from: usize, to: usize) -> Message<'_> {
        let Rest { slot, cut, control, .. } = &self.rest;
        let whole = to - from;
        let len = whole.min(self.message_size);
        // SAFETY: the kernel wrote `to` bytes into this slot, and writes no more until the next `fill`,
        // which needs `self` for itself.
        let payload = unsafe {
            let at = (*self.headers[*slot].msg_hdr.msg_iov).iov_base.cast::<u8>().add(from);
            debug_assert!(at >= self.payloads.as_ptr());
            std::slice::from_raw_parts(at, len)
        };
        control.message(payload, self.names[*slot].address(), self.bound, *cut || len < whole)
    }
}
