//! [`IcmpError`]: the error queue of a socket (`IP_RECVERR`, ip(7)).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::cmsg;
use super::sockaddr::{SockAddr, unmapped};

/// `SO_EE_ORIGIN_ICMP` and `SO_EE_ORIGIN_ICMP6` of `linux/errqueue.h`.
const ORIGIN_ICMP: u8 = 2;
const ORIGIN_ICMP6: u8 = 3;
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

    fn parse(destination: SocketAddr, control: &[u8]) -> Option<Self> {
        let mut found = None;
        cmsg::each(control, |kind, data| {
            let is_error = matches!(
                kind,
                (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
            );
            let (Some(error), true) = (data.split_at_checked(EXTENDED_ERROR), is_error) else {
                return;
            };
            let (error, reporter) = error;
            let word = |at: usize| {
                u32::from_ne_bytes([error[at], error[at + 1], error[at + 2], error[at + 3]])
            };
            if !matches!(error[4], ORIGIN_ICMP | ORIGIN_ICMP6) {
                return;
            }
            let errno = word(0) as i32;
            let reporter = unmapped(SockAddr::read(reporter)).ip();
            found = Some(Self {
                destination: unmapped(destination),
                reporter: Some(reporter).filter(|ip| !ip.is_unspecified()),
                icmp: (error[5], error[6]),
                mtu: (errno == libc::EMSGSIZE).then(|| word(8)),
                errno,
            });
        });
        found
    }
}

/// Takes errors from the queue until it is empty.
pub(crate) fn drain(fd: BorrowedFd<'_>, mut take: impl FnMut(IcmpError)) -> io::Result<()> {
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
        if let Some(error) = IcmpError::parse(name.address(), control) {
            take(error);
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
