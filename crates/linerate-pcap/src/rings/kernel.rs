//! The system calls themselves: what the C library's functions are, without a way to have them taken over
//! again. As there, a failure is in `errno`.

use std::ffi::{CStr, c_int, c_void};
use std::io;

/// # Safety
/// As for `setsockopt`.
pub(super) unsafe fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: libc::socklen_t,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, name, value, len) as c_int }
}

/// # Safety
/// As for `mmap`.
pub(super) unsafe fn mmap(
    address: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    // SAFETY: the caller's.
    let answer =
        unsafe { libc::syscall(libc::SYS_mmap, address, len, protection, flags, fd, offset) };
    std::ptr::with_exposed_provenance_mut(answer as usize)
}

/// # Safety
/// As for `munmap`.
pub(super) unsafe fn munmap(address: *mut c_void, len: usize) -> c_int {
    // SAFETY: the caller's.
    unsafe { libc::syscall(libc::SYS_munmap, address, len) as c_int }
}

/// # Safety
/// As for `close`: the descriptor must not be used any more.
pub(super) unsafe fn close(fd: c_int) -> c_int {
    // SAFETY: the caller's.
    unsafe { libc::syscall(libc::SYS_close, fd) as c_int }
}

/// Sets an option of a packet socket.
pub(super) fn set(fd: c_int, option: c_int, request: &[u8]) -> io::Result<()> {
    let len = request.len() as libc::socklen_t;
    // SAFETY: the request is readable for its length.
    let answer = unsafe { setsockopt(fd, libc::SOL_PACKET, option, request.as_ptr().cast(), len) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A number that the kernel gives to one socket only, however many descriptors it has; none for what is no
/// socket. `errno` is as it was.
pub(super) fn cookie(fd: c_int) -> Option<u64> {
    let (mut cookie, mut len) = (0u64, size_of::<u64>() as libc::socklen_t);
    let errno = errno();
    // SAFETY: room for the answer.
    let answer = unsafe {
        let value = (&raw mut cookie).cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_COOKIE, value, &mut len)
    };
    set_errno(errno);
    (answer == 0).then_some(cookie)
}

/// Opens a directory to be read.
pub(super) fn open_folder(path: &CStr) -> io::Result<c_int> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the path ends with a zero.
    let answer =
        unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer as c_int) }
}

/// Fills `room` with the next entries of a directory, each a `struct linux_dirent64`; how many bytes.
pub(super) fn entries(folder: c_int, room: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the kernel writes no more than there is room for.
    let answer =
        unsafe { libc::syscall(libc::SYS_getdents64, folder, room.as_mut_ptr(), room.len()) };
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}

/// The number of this process; in a child of `vfork` another than its parent's.
pub(super) fn process() -> i32 {
    // SAFETY: getpid has no precondition.
    unsafe { libc::getpid() }
}

pub(super) fn errno() -> c_int {
    // SAFETY: a place of this thread's.
    unsafe { *libc::__errno_location() }
}

/// Sets `errno`.
pub(super) fn set_errno(errno: c_int) {
    // SAFETY: a place of this thread's.
    unsafe { *libc::__errno_location() = errno };
}
