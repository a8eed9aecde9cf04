//! [`Outgoing`]: the arrays of `sendmmsg`, prepared once.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use super::address::Name;
use super::check;
use crate::sender::Run;
use crate::{Error, Result};

/// `UDP_SEGMENT` of `linux/udp.h`.
const UDP_SEGMENT: i32 = 103;
/// Datagrams that one call takes at most (`UIO_MAXIOV`).
const MOST_IN_A_CALL: usize = 1024;

/// A control message with the size of the segments, laid out as `struct cmsghdr`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
struct Segment {
    len: usize,
    level: i32,
    kind: i32,
    size: u16,
    rest: [u16; 3],
}

/// Headers for as many datagrams as are sent in one call.
#[derive(Debug)]
pub(crate) struct Outgoing {
    headers: Vec<libc::mmsghdr>,
    iovecs: Vec<libc::iovec>,
    segments: Vec<Segment>,
}

// SAFETY: the pointers in `headers` lead to memory that this value owns and that does not move with it,
// or to an arena that is borrowed whenever they are used.
unsafe impl Send for Outgoing {}

/// What the kernel did not take, of which the runs before were sent.
#[derive(Debug)]
pub(crate) struct Rejected {
    pub(crate) sent: usize,
    pub(crate) error: io::Error,
}

impl Outgoing {
    pub(crate) fn new(runs: usize) -> Self {
        let runs = runs.min(MOST_IN_A_CALL);
        let iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        // 16 bytes of header, two of size.
        let segment =
            Segment { len: 18, level: libc::SOL_UDP, kind: UDP_SEGMENT, size: 0, rest: [0; 3] };
        Self {
            // SAFETY: all zeroes is a valid `mmsghdr`.
            headers: vec![unsafe { std::mem::zeroed() }; runs],
            iovecs: vec![iovec; runs],
            segments: vec![segment; runs],
        }
    }

    /// Sends runs of messages that lie in `arena`, each with the segmentation of the kernel where it has
    /// more than one. Returns how many runs were sent, at most as many as there are headers.
    pub(crate) fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        arena: &[u8],
        runs: &[Run],
    ) -> std::result::Result<usize, Rejected> {
        let count = runs.len().min(self.headers.len());
        for (at, run) in runs[..count].iter().enumerate() {
            let bytes = &arena[run.from..run.to];
            self.iovecs[at] =
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            self.segments[at].size = run.size as u16;
            let header = &mut self.headers[at].msg_hdr;
            header.msg_iov = &mut self.iovecs[at];
            header.msg_iovlen = 1;
            (header.msg_control, header.msg_controllen) = if run.messages > 1 {
                (ptr::from_mut(&mut self.segments[at]).cast(), size_of::<Segment>() as _)
            } else {
                (ptr::null_mut(), 0)
            };
        }
        let mut sent = 0;
        while sent < count {
            // SAFETY: headers that point to the arrays of `self` and to `arena`, which the kernel only
            // reads and which are ours for the length of the call.
            let answer = unsafe {
                libc::sendmmsg(
                    fd.as_raw_fd(),
                    self.headers.as_mut_ptr().add(sent),
                    (count - sent) as u32,
                    libc::MSG_DONTWAIT as _,
                )
            };
            match check(answer as isize) {
                Ok(more) => sent += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Rejected { sent, error }),
            }
        }
        Ok(sent)
    }
}

/// A socket that sends to `to`, from `from` if that is said.
pub(crate) fn connect(to: SocketAddr, from: Option<SocketAddr>, buffer: usize) -> Result<OwnedFd> {
    let family = if to.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
    // SAFETY: no memory involved; the descriptor is nobody else's.
    let socket = unsafe {
        let fd = check(libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) as isize)
            .map_err(|error| Error::system("open a UDP socket", error))?;
        OwnedFd::from_raw_fd(fd as i32)
    };
    let fd = socket.as_fd();
    if let Some(from) = from {
        super::open::bind(fd, from)?;
    }
    let bytes = i32::try_from(buffer).unwrap_or(i32::MAX / 2);
    // Where neither is allowed the default stands, and a full buffer is waited for.
    let _ = super::set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
        .or_else(|_| super::set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes));
    if to.ip().is_unspecified() || to.port() == 0 {
        return Err(Error::Invalid(format!("{to} is no address and port that one can send to")));
    }
    let name = Name::of(to);
    // SAFETY: a name of the length that it says.
    let answer = unsafe { libc::connect(fd.as_raw_fd(), name.as_ptr().cast(), name.len()) };
    check(answer as isize).map_err(|error| match error.raw_os_error() {
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH) if to.is_ipv4() && to.ip().is_multicast() && from.is_none() => {
            Error::Invalid(format!(
                "cannot send to {to}: no route leads there; sending from the address of an interface, as \
                 --from 10.0.0.1:0 has it, says by which one ({error})"
            ))
        }
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => {
            Error::System { action: format!("send to {to}: no route leads there"), source: error }
        }
        Some(libc::EACCES) => Error::Invalid(format!(
            "cannot send to {to}: it is a broadcast address, or a rule forbids it; messages go to one host or \
             to a group ({error})"
        )),
        Some(libc::EINVAL) if super::open::lacks_scope(to) => {
            Error::Invalid(format!("cannot send to {to}: {}", super::open::NEEDS_SCOPE))
        }
        _ => Error::system(format!("send to {to}"), error),
    })?;
    Ok(socket)
}
