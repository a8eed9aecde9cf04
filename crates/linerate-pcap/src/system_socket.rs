//! The socket of the system's libpcap, for a handle whose frames come from one of Linerate's sources.
//!
//! It stays open: libpcap's answers about the handle depend on it, it keeps the interface promiscuous, it
//! sends, and the kernel reports on it when the interface goes down. But it is bound to an EtherType that
//! no frame has, so that no frame is copied to it.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;

use crate::wait;

/// Reserved by IANA: no frame has it.
const RESERVED_ETHERTYPE: u16 = 0xffff;

/// Binds the socket so that it receives no frame.
pub(crate) fn detach(socket: RawFd, index: u32) -> std::io::Result<()> {
    let mut refuse = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: refuse.as_mut_ptr() };
    // SAFETY: the kernel reads the program and its one instruction during the call.
    let answer = unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    if answer < 0 {
        return Err(std::io::Error::last_os_error());
    }
    let address = address(index, RESERVED_ETHERTYPE);
    // SAFETY: an address of the family's type and its size.
    let answer = unsafe {
        libc::bind(socket, (&raw const address).cast(), size_of_val(&address) as libc::socklen_t)
    };
    if answer < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes the error that the kernel reported on the socket; 0 for none.
pub(crate) fn take_error(socket: RawFd) -> c_int {
    let mut errno: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes an integer.
    unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut errno).cast(),
            &mut len,
        );
    }
    errno
}

/// Sends a frame as libpcap's own socket would: with the protocol that its header names.
///
/// # Safety
/// `bytes` must be readable for `len` bytes.
pub(crate) unsafe fn send(socket: RawFd, index: u32, bytes: *const c_void, len: usize) -> isize {
    // SAFETY: the caller's.
    unsafe { wait::send(socket, bytes, len, &address(index, libc::ETH_P_ALL as u16)) }
}

fn address(index: u32, protocol: u16) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: index as c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}
