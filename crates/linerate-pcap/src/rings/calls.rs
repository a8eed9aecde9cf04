//! The functions of the C library that this library replaces. Without a configured memory each is the system
//! call and one comparison.

use std::ffi::{c_int, c_void};

use super::request::{self, Outcome};
use super::{kernel, memory, sockets};

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: libc::socklen_t,
) -> c_int {
    let ring =
        level == libc::SOL_PACKET && [libc::PACKET_RX_RING, libc::PACKET_TX_RING].contains(&name);
    // Both requests start with the fields of the shorter one.
    if ring
        && request::is_from_program()
        && (size_of::<libc::tpacket_req>()..=c_int::MAX as usize).contains(&(len as usize))
        && !value.is_null()
    {
        // The kernel reads no more either.
        let len = (len as usize).min(size_of::<libc::tpacket_req3>());
        // SAFETY: the caller says that so many bytes are readable.
        let request = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), len) };
        match sockets::with(|sockets| request::ring(sockets, fd, name, request)) {
            Some(Outcome::Done) => return 0,
            Some(Outcome::Fail(errno)) => {
                kernel::set_errno(errno);
                return -1;
            }
            Some(Outcome::Pass) | None => {}
        }
    }
    // SAFETY: the caller's arguments.
    unsafe { kernel::setsockopt(fd, level, name, value, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn mmap(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    if fd >= 0
        && flags & libc::MAP_ANONYMOUS == 0
        && sockets::any()
        && let Some(cookie) = kernel::cookie(fd)
        && let Some(Some(answer)) =
            sockets::with(|sockets| sockets::map(sockets, cookie, len, flags, offset))
    {
        return answer.unwrap_or_else(|error| {
            kernel::set_errno(error.raw_os_error().unwrap_or(libc::EINVAL));
            libc::MAP_FAILED
        });
    }
    // SAFETY: the caller's arguments.
    unsafe { kernel::mmap(address, len, protection, flags, fd, offset) }
}

/// The same under the name that programs with large files know it by.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn mmap64(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    // SAFETY: the caller's arguments.
    unsafe { mmap(address, len, protection, flags, fd, offset) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn munmap(address: *mut c_void, len: usize) -> c_int {
    if memory::may_be_lent(address.addr(), len)
        && sockets::any()
        && sockets::with(|sockets| sockets::unmap(sockets, address, len)) == Some(true)
    {
        return 0;
    }
    // SAFETY: the caller's arguments.
    unsafe { kernel::munmap(address, len) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    let cookie = if sockets::any() { kernel::cookie(fd) } else { None };
    // SAFETY: the caller's argument.
    let answer = unsafe { kernel::close(fd) };
    if let Some(cookie) = cookie {
        sockets::try_with(|sockets| sockets::closed(sockets, cookie, fd));
    }
    answer
}
