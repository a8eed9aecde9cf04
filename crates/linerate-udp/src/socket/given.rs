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

/// Why `xdp` does not receive for a caller's socket: the kernel applies an option of it to each message, and the
/// program cannot.
pub(crate) fn xdp_refusal(fd: BorrowedFd<'_>) -> Option<String> {
    let is_set = |level, option| get::<1>(fd, level, option).is_ok_and(|[value]| value != 0);
    let option = if has_filter(fd) {
        "a filter (SO_ATTACH_FILTER, SO_ATTACH_BPF)"
    } else if is_set(libc::SOL_UDP, UDP_NO_CHECK6_RX) {
        "UDP_NO_CHECK6_RX"
    } else if is_set(libc::SOL_UDP, UDP_ENCAP) {
        "UDP_ENCAP"
    } else if is_set(libc::SOL_SOCKET, libc::SO_REUSEPORT) {
        "SO_REUSEPORT"
    } else {
        return None;
    };
    Some(format!("the socket has {option}, which xdp cannot apply"))
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
