//! [`SendMmsg`]: the `mmsghdr` array of `sendmmsg`, prepared once.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use super::check;
use super::sockaddr::SockAddr;
use crate::transmit::Transmit;
use crate::{Error, Result};

/// `UDP_SEGMENT` of `linux/udp.h`.
const UDP_SEGMENT: i32 = 103;
/// The most datagrams of one call (`UIO_MAXIOV`).
const MAX_PER_CALL: usize = 1024;

/// A control message with the size of the segments, laid out as `struct cmsghdr`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
struct SegmentSize {
    len: usize,
    level: i32,
    kind: i32,
    size: u16,
    rest: [u16; 3],
}

/// Headers for as many datagrams as are sent in one call.
#[derive(Debug)]
pub(crate) struct SendMmsg {
    headers: Vec<libc::mmsghdr>,
    iovecs: Vec<libc::iovec>,
    segments: Vec<SegmentSize>,
}

// SAFETY: the pointers in `headers` lead to memory that this value owns and that does not move with it,
// or to a buffer that is borrowed whenever they are used.
unsafe impl Send for SendMmsg {}

/// Why the kernel did not take a transmit; those before it were sent.
#[derive(Debug)]
pub(crate) struct SendError {
    pub(crate) sent: usize,
    pub(crate) error: io::Error,
}

impl SendMmsg {
    pub(crate) fn new(transmits: usize) -> Self {
        let transmits = transmits.min(MAX_PER_CALL);
        let iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        // 16 bytes of header, two of size.
        let segment =
            SegmentSize { len: 18, level: libc::SOL_UDP, kind: UDP_SEGMENT, size: 0, rest: [0; 3] };
        Self {
            // SAFETY: all zeroes is a valid `mmsghdr`.
            headers: vec![unsafe { std::mem::zeroed() }; transmits],
            iovecs: vec![iovec; transmits],
            segments: vec![segment; transmits],
        }
    }

    /// Sends transmits in `buffer`, each segmented by the kernel where it has more than one message. Returns
    /// how many were sent, at most as many as there are headers.
    pub(crate) fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        buffer: &[u8],
        transmits: &[Transmit],
    ) -> std::result::Result<usize, SendError> {
        let count = transmits.len().min(self.headers.len());
        for (at, transmit) in transmits[..count].iter().enumerate() {
            let bytes = &buffer[transmit.start..transmit.end];
            self.iovecs[at] =
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            self.segments[at].size = transmit.segment_size as u16;
            let header = &mut self.headers[at].msg_hdr;
            header.msg_iov = &mut self.iovecs[at];
            header.msg_iovlen = 1;
            (header.msg_control, header.msg_controllen) = if transmit.segments > 1 {
                (ptr::from_mut(&mut self.segments[at]).cast(), size_of::<SegmentSize>() as _)
            } else {
                (ptr::null_mut(), 0)
            };
        }
        let mut sent = 0;
        while sent < count {
            // SAFETY: headers that point to the arrays of `self` and to `buffer`, which the kernel only
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
                Err(error) => return Err(SendError { sent, error }),
            }
        }
        Ok(sent)
    }
}

/// A socket that sends to `to`, from `from` if that is given.
pub(crate) fn connect(
    to: SocketAddr,
    from: Option<SocketAddr>,
    send_buffer_size: usize,
) -> Result<OwnedFd> {
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
    let bytes = i32::try_from(send_buffer_size).unwrap_or(i32::MAX / 2);
    // Where neither is allowed the default stands, and a full buffer is waited for.
    let _ = super::set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
        .or_else(|_| super::set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes));
    if to.ip().is_unspecified() || to.port() == 0 {
        return Err(Error::Invalid(format!("{to} is no address and port that can be sent to")));
    }
    let name = SockAddr::of(to);
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
