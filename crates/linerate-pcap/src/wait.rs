//! The calls in which a thread may sleep and be cancelled (`pthread_cancel`). Cancellation unwinds the
//! callers; Rust allows that for `extern "C-unwind"` functions.

use std::ffi::{c_int, c_void};
use std::time::Duration;

/// glibc's, under their own names.
mod system {
    use super::{c_int, c_void};

    unsafe extern "C-unwind" {
        pub(super) fn poll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int;
        pub(super) fn nanosleep(time: *const libc::timespec, rest: *mut libc::timespec) -> c_int;
        pub(super) fn sendto(
            socket: c_int,
            bytes: *const c_void,
            len: usize,
            flags: c_int,
            address: *const libc::sockaddr,
            address_len: libc::socklen_t,
        ) -> isize;
    }
}

/// `poll(2)`; a negative `timeout` is none.
pub(crate) fn poll(entries: &mut [libc::pollfd], timeout: c_int) -> c_int {
    // SAFETY: a list of entries of this length.
    unsafe { system::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, timeout) }
}

/// Sleeps for less than a second, or until a signal comes.
pub(crate) fn sleep(time: Duration) {
    let time =
        libc::timespec { tv_sec: 0, tv_nsec: libc::c_long::from(time.subsec_nanos() as i32) };
    // SAFETY: the time is read during the call; where the rest would go is null.
    unsafe { system::nanosleep(&time, std::ptr::null_mut()) };
}

/// `sendto(2)` without flags.
///
/// # Safety
/// `bytes` must be readable for `len` bytes.
pub(crate) unsafe fn send(
    socket: c_int,
    bytes: *const c_void,
    len: usize,
    address: &libc::sockaddr_ll,
) -> isize {
    let size = size_of_val(address) as libc::socklen_t;
    // SAFETY: the caller's bytes, and an address of the family's type and its size.
    unsafe { system::sendto(socket, bytes, len, 0, (&raw const *address).cast(), size) }
}

/// Adds one to an eventfd. Neither this nor [`drain`] is where a thread ends that was cancelled.
pub(crate) fn signal_eventfd(eventfd: c_int) {
    let one = 1_u64;
    // SAFETY: eight readable bytes. A full counter is a wake-up, too.
    unsafe { libc::syscall(libc::SYS_write, eventfd, &raw const one, size_of_val(&one)) };
}

/// Takes an eventfd back to 0; it does not block.
pub(crate) fn drain(eventfd: c_int) {
    let mut count = 0_u64;
    // SAFETY: eight writable bytes; there may be nothing to read.
    unsafe { libc::syscall(libc::SYS_read, eventfd, &raw mut count, size_of_val(&count)) };
}
