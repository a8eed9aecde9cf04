//! [`SendMmsg`]: the `mmsghdr` array of `sendmmsg`, prepared once.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use super::check;
use super::sockaddr::SockAddr;
use crate::transmit::Transmit;
use crate::uring::UringSend;
use crate::{Error, Result};

/// `UDP_SEGMENT` of `linux/udp.h`.
const UDP_SEGMENT: i32 = 103;
/// `SCM_TXTIME` of `asm-generic/socket.h`.
const SCM_TXTIME: i32 = 61;
/// The most datagrams of one call (`UIO_MAXIOV`).
const MAX_PER_CALL: usize = 1024;

/// Bytes of `struct cmsghdr`.
const HEADER: usize = size_of::<libc::cmsghdr>();

/// Control messages of one datagram: the size of its segments, the traffic class, the packet information of IPv6, the
/// longer one, and the transmit time.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
struct Control {
    bytes: [u8; 24 + 24 + 40 + 24],
    len: usize,
}

impl Control {
    const EMPTY: Self = Self { bytes: [0; 112], len: 0 };

    /// Control messages of a datagram; empty in most cases.
    #[inline]
    fn write(&mut self, transmit: &Transmit<'_>) {
        self.len = 0;
        if let Some(size) = transmit.split_size() {
            self.add(libc::SOL_UDP, UDP_SEGMENT, &(size as u16).to_ne_bytes());
        }
        if let Some(time) = transmit.time {
            self.add(libc::SOL_SOCKET, SCM_TXTIME, &time.to_ne_bytes());
        }
        if transmit.traffic_class.is_some()
            || transmit.source.is_some()
            || transmit.interface_index.is_some()
        {
            self.write_path(transmit);
        }
    }

    fn write_path(&mut self, transmit: &Transmit<'_>) {
        let Transmit { destination, source, interface_index, traffic_class, .. } = *transmit;
        // The family of the packet counts, also on an IPv6 socket: `udpv6_sendmsg` calls `udp_sendmsg` for IPv4.
        let v4 = destination.ip().to_canonical().is_ipv4();
        if let Some(class) = traffic_class {
            let class = i32::from(class).to_ne_bytes();
            match v4 {
                true => self.add(libc::IPPROTO_IP, libc::IP_TOS, &class),
                false => self.add(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &class),
            }
        }
        if source.is_none() && interface_index.is_none() {
            return;
        }
        let index = interface_index.unwrap_or(0).to_ne_bytes();
        if v4 {
            // `struct in_pktinfo`: the interface, the source, and what only the receiver gets.
            let mut information = [0; 12];
            information[..4].copy_from_slice(&index);
            if let Some(IpAddr::V4(source)) = source.map(|source| source.to_canonical()) {
                information[4..8].copy_from_slice(&source.octets());
            }
            self.add(libc::IPPROTO_IP, libc::IP_PKTINFO, &information);
        } else {
            // `struct in6_pktinfo`.
            let mut information = [0; 20];
            if let Some(IpAddr::V6(source)) = source {
                information[..16].copy_from_slice(&source.octets());
            }
            information[16..].copy_from_slice(&index);
            self.add(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &information);
        }
    }

    #[inline]
    fn add(&mut self, level: i32, kind: i32, data: &[u8]) {
        let to = &mut self.bytes[self.len..];
        to[..8].copy_from_slice(&(HEADER + data.len()).to_ne_bytes());
        to[8..12].copy_from_slice(&level.to_ne_bytes());
        to[12..16].copy_from_slice(&kind.to_ne_bytes());
        to[HEADER..HEADER + data.len()].copy_from_slice(data);
        self.len += HEADER + data.len().next_multiple_of(8);
    }
}

/// Headers for as many datagrams as are sent in one call.
#[derive(Debug)]
pub(crate) struct SendMmsg {
    headers: Vec<libc::mmsghdr>,
    iovecs: Vec<libc::iovec>,
    controls: Vec<Control>,
    /// Empty for a connected socket.
    addresses: Vec<SockAddr>,
    /// The socket is an IPv6 socket, and takes IPv4 addresses as IPv4-mapped ones.
    v6: bool,
    /// Takes the place of `sendmmsg`.
    uring: Option<UringSend>,
}

// SAFETY: the pointers in `headers` lead to memory that this value owns and that does not move with it,
// or to payloads that are borrowed whenever they are used.
unsafe impl Send for SendMmsg {}

/// Why the kernel did not take a transmit; those before it were sent.
#[derive(Debug)]
pub(crate) struct SendError {
    pub(crate) sent: usize,
    pub(crate) error: io::Error,
}

impl SendMmsg {
    /// For `transmits` datagrams a call; with their destinations for a socket that is bound to `unconnected`.
    pub(crate) fn new(transmits: usize, unconnected: Option<SocketAddr>) -> Self {
        let transmits = transmits.min(MAX_PER_CALL);
        let iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Self {
            // SAFETY: all zeroes is a valid `mmsghdr`.
            headers: vec![unsafe { std::mem::zeroed() }; transmits],
            iovecs: vec![iovec; transmits],
            controls: vec![Control::EMPTY; transmits],
            addresses: vec![SockAddr::default(); unconnected.map_or(0, |_| transmits)],
            v6: unconnected.is_some_and(|bound| bound.is_ipv6()),
            uring: None,
        }
    }

    /// Sends by io_uring from now on.
    pub(crate) fn set_uring(&mut self) -> Result<()> {
        self.uring = Some(UringSend::new(self.headers.len())?);
        Ok(())
    }

    /// Sends transmits, each segmented by the kernel where it has a segment size. Returns how many were sent, at most
    /// as many as there are headers.
    pub(crate) fn send<'t>(
        &mut self,
        fd: BorrowedFd<'_>,
        transmits: impl Iterator<Item = Transmit<'t>>,
    ) -> std::result::Result<usize, SendError> {
        let mut count = 0;
        for (at, transmit) in transmits.take(self.headers.len()).enumerate() {
            let bytes = transmit.contents;
            self.iovecs[at] =
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            let header = &mut self.headers[at].msg_hdr;
            header.msg_iov = &mut self.iovecs[at];
            header.msg_iovlen = 1;
            if let Some(address) = self.addresses.get_mut(at) {
                *address = SockAddr::of_family(transmit.destination, self.v6);
                header.msg_namelen = address.len();
                header.msg_name = ptr::from_mut(address).cast();
            }
            let control = &mut self.controls[at];
            control.write(&transmit);
            header.msg_controllen = control.len as _;
            header.msg_control = match control.len {
                0 => ptr::null_mut(),
                _ => control.bytes.as_mut_ptr().cast(),
            };
            count = at + 1;
        }
        if let Some(uring) = &mut self.uring {
            // SAFETY: headers that point to the arrays of `self` and to payloads of the transmits, which are borrowed
            // for longer than the call (`'t`).
            return unsafe { uring.send(fd, &self.headers[..count]) };
        }
        let mut sent = 0;
        while sent < count {
            // SAFETY: headers that point to the arrays of `self` and to payloads of the transmits, which the kernel
            // only reads and which are borrowed for longer than the call (`'t`).
            match unsafe { send(fd, &mut self.headers[sent..count]) } {
                Ok(more) => sent += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(SendError { sent, error }),
            }
        }
        Ok(sent)
    }
}

/// `sendmmsg` without waiting; a single `sendmsg` where there is none (ENOSYS: some sandboxes).
///
/// # Safety
/// The headers point to memory of the lengths that they say, to which nothing writes during the call.
unsafe fn send(fd: BorrowedFd<'_>, headers: &mut [libc::mmsghdr]) -> io::Result<usize> {
    let (fd, count, flags) = (fd.as_raw_fd(), headers.len() as u32, libc::MSG_DONTWAIT);
    // SAFETY: the caller's.
    let answer = unsafe { libc::sendmmsg(fd, headers.as_mut_ptr(), count, flags as _) };
    match check(answer as isize) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            // SAFETY: the caller's.
            check(unsafe { libc::sendmsg(fd, &headers[0].msg_hdr, flags) }).map(|_| 1)
        }
        other => other,
    }
}

/// A socket that sends to `to`, from `from` if that is given.
pub(crate) fn connect(
    to: SocketAddr,
    from: Option<SocketAddr>,
    send_buffer_size: usize,
) -> Result<OwnedFd> {
    let socket = super::open::datagram(to.is_ipv6())
        .map_err(|error| Error::system("open a UDP socket", error))?;
    let fd = socket.as_fd();
    if let Some(from) = from {
        super::open::bind(fd, from)?;
    }
    let bytes = i32::try_from(send_buffer_size).unwrap_or(i32::MAX / 2);
    // Where neither is allowed the default stands, and a full buffer is waited for.
    let _ = super::set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
        .or_else(|_| super::set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes));
    if to.ip().is_unspecified() || to.port() == 0 {
        return Err(Error::Invalid(format!("{to} is not an address and port that can be sent to")));
    }
    rustix::net::connect(fd, &to).map_err(io::Error::from).map_err(|error| match error.raw_os_error() {
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
