//! What the options of a caller's socket mean to `xdp`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{check, get};

/// `SO_GET_FILTER` of `asm-generic/socket.h`: the number of `SO_ATTACH_FILTER`.
const SO_GET_FILTER: i32 = libc::SO_ATTACH_FILTER;
/// `SO_BINDTOIFINDEX` of `asm-generic/socket.h`.
const SO_BINDTOIFINDEX: i32 = 62;
/// `UDP_ENCAP` and `UDP_NO_CHECK6_RX` of `linux/udp.h`.
const UDP_ENCAP: i32 = 100;
const UDP_NO_CHECK6_RX: i32 = 102;

/// The option of a socket that the kernel applies to each message, and `xdp` cannot.
pub(crate) fn unapplied_option(fd: BorrowedFd<'_>) -> Option<&'static str> {
    let is_set = |level, option| get::<1>(fd, level, option).is_ok_and(|[value]| value != 0);
    if has_filter(fd) {
        return Some("a filter (SO_ATTACH_FILTER, SO_ATTACH_BPF)");
    }
    let options = [
        (libc::SOL_UDP, UDP_NO_CHECK6_RX, "UDP_NO_CHECK6_RX"),
        (libc::SOL_UDP, UDP_ENCAP, "UDP_ENCAP"),
        (libc::SOL_SOCKET, libc::SO_REUSEPORT, "SO_REUSEPORT"),
    ];
    options.into_iter().find(|(level, option, _)| is_set(*level, *option)).map(|(.., name)| name)
}

/// Whether a filter is attached to a socket. The kernel does not show those of eBPF (EACCES).
pub(crate) fn has_filter(fd: BorrowedFd<'_>) -> bool {
    let mut len: libc::socklen_t = 0;
    // SAFETY: no room for an answer, whose length is asked for.
    let answer = unsafe {
        let none = std::ptr::null_mut();
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, SO_GET_FILTER, none, &mut len)
    };
    match check(answer as isize) {
        Ok(_) => len > 0,
        Err(error) => error.raw_os_error() == Some(libc::EACCES),
    }
}

/// Index of the interface that a socket is bound to; 0 for any.
pub(crate) fn bound_interface(fd: BorrowedFd<'_>) -> io::Result<u32> {
    get::<1>(fd, libc::SOL_SOCKET, SO_BINDTOIFINDEX).map(|[index]| index)
}
