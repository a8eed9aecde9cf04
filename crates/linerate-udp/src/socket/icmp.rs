//! The error queue of a socket (`IP_RECVERR`, ip(7)): [`IcmpError`] and [`TransmitTimestamp`].

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::cmsg;
use super::sockaddr::{SockAddr, unmapped};

/// `SO_EE_ORIGIN_ICMP` and the others of `linux/errqueue.h`.
const ORIGIN_ICMP: u8 = 2;
const ORIGIN_ICMP6: u8 = 3;
const ORIGIN_TIMESTAMPING: u8 = 4;
const ORIGIN_TXTIME: u8 = 6;
/// Bytes of `struct sock_extended_err`, which the address of the reporter follows.
const EXTENDED_ERROR: usize = 16;

/// An ICMP error caused by a message of this socket, with the peer's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// The destination of the message.
    pub destination: SocketAddr,
    /// The host that sent the error: the destination itself, or a router.
    pub reporter: Option<IpAddr>,
    /// Type and code of the ICMP message.
    pub icmp: (u8, u8),
    /// The path MTU in bytes, if the message was longer.
    pub mtu: Option<u32>,
    errno: i32,
}

impl IcmpError {
    /// The error number that the kernel maps it to: `ECONNREFUSED`, `EHOSTUNREACH`, `EMSGSIZE` and the like.
    pub fn error(&self) -> io::Error {
        io::Error::from_raw_os_error(self.errno)
    }
}

/// When a datagram left for the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmitTimestamp {
    /// Its number, modulo 2^32: the datagrams and super-datagrams that were sent before it. See
    /// [`SendStatistics::datagrams`](crate::SendStatistics::datagrams).
    pub id: u32,
    /// Nanoseconds since the Unix epoch.
    pub time: u64,
}

/// What the kernel puts into the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Icmp(IcmpError),
    Timestamp(TransmitTimestamp),
    /// A datagram that was dropped because its transmit time was past or invalid.
    MissedTime,
}

impl Entry {
    /// An entry about a datagram to `destination`.
    fn parse(destination: SocketAddr, control: &[u8]) -> Option<Self> {
        let (mut found, mut time) = (None, None);
        let word = |data: &[u8], at: usize| {
            u32::from_ne_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]])
        };
        cmsg::each(control, |kind, data| {
            if kind == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) {
                time = cmsg::timespec(data);
                return;
            }
            let is_error = matches!(
                kind,
                (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
            );
            found = found.or(data.split_at_checked(EXTENDED_ERROR).filter(|_| is_error));
        });
        let (error, reporter) = found?;
        match error[4] {
            ORIGIN_TIMESTAMPING => {
                Some(Self::Timestamp(TransmitTimestamp { id: word(error, 12), time: time? }))
            }
            ORIGIN_TXTIME => Some(Self::MissedTime),
            ORIGIN_ICMP | ORIGIN_ICMP6 => {
                let errno = word(error, 0) as i32;
                let reporter = unmapped(SockAddr::read(reporter)).ip();
                Some(Self::Icmp(IcmpError {
                    destination: unmapped(destination),
                    reporter: Some(reporter).filter(|ip| !ip.is_unspecified()),
                    icmp: (error[5], error[6]),
                    mtu: (errno == libc::EMSGSIZE).then(|| word(error, 8)),
                    errno,
                }))
            }
            _ => None,
        }
    }
}

/// Takes entries from the queue until it is empty.
pub(crate) fn drain(fd: BorrowedFd<'_>, mut take: impl FnMut(Entry)) -> io::Result<()> {
    loop {
        let mut name = SockAddr::default();
        let mut control = [0u64; 32];
        // SAFETY: all zeroes is a valid `msghdr`.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_name = std::ptr::from_mut(&mut name).cast();
        header.msg_namelen = SockAddr::MAX_LEN;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control) as _;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: a name and control messages of the lengths that the header says, which nothing else refers to.
        let answer = unsafe { libc::recvmsg(fd.as_raw_fd(), &mut header, flags) };
        match super::check(answer) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        let len = (header.msg_controllen as usize).min(size_of_val(&control));
        // SAFETY: `control` is that long, and any bytes are good.
        let control = unsafe { std::slice::from_raw_parts(control.as_ptr().cast(), len) };
        if let Some(entry) = Entry::parse(name.address(), control) {
            take(entry);
        }
    }
}

/// Whether a call that receives or sends reports an ICMP error about an earlier message.
pub(crate) fn is_reported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EMSGSIZE
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::ENOPROTOOPT
                | libc::EOPNOTSUPP
                | libc::EPROTO
                | libc::EACCES
        )
    )
}
