//! `select(2)`, for programs that ask before each packet whether there is one (dumpcap does: `select`, then
//! `pcap_dispatch` of one). If the last read left packets, and the program asks for this handle alone, the
//! answer is known, and no system call is needed; it would cost more than everything else. All other calls go
//! to the C library.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use crate::system::InterposedSymbol;

/// The descriptor of the handle that was read last, if packets are left; -1 if none are, while a handle is
/// read, and when one was closed.
static READABLE: AtomicI32 = AtomicI32::new(-1);

/// The handle of `fd` was read, and packets are left.
#[inline]
pub(crate) fn remember_readable(fd: c_int) {
    READABLE.store(fd, Ordering::Relaxed);
}

/// Nothing is known of any handle.
#[inline]
pub(crate) fn forget_readable() {
    READABLE.store(-1, Ordering::Relaxed);
}

type Select = unsafe extern "C-unwind" fn(
    c_int,
    *mut libc::fd_set,
    *mut libc::fd_set,
    *mut libc::fd_set,
    *mut libc::timeval,
) -> c_int;

/// The C library's. To be called first where no signal handler runs.
pub(crate) fn system() -> Option<Select> {
    static SYSTEM: InterposedSymbol = InterposedSymbol::new(c"select");
    // SAFETY: null, or the function of this name, with the type that POSIX gives it.
    unsafe { std::mem::transmute::<*mut c_void, Option<Select>>(SYSTEM.resolve()) }
}

/// Whether `set` has `fd` and no other below `fd + 1`.
///
/// # Safety
/// `set` must be readable for as many words as hold `fd`.
unsafe fn has_only(set: *const libc::fd_set, fd: c_int) -> bool {
    const BITS: usize = libc::c_ulong::BITS as usize;
    let (word, bit) = (fd as usize / BITS, fd as usize % BITS);
    let words = set.cast::<libc::c_ulong>();
    // SAFETY: the caller's; a set is an array of such words.
    let word_of = |at| unsafe { words.add(at).read() };
    let up_to = libc::c_ulong::MAX >> (BITS - 1 - bit);
    word_of(word) & up_to == 1 << bit && (0..word).all(|at| word_of(at) == 0)
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    let fd = READABLE.load(Ordering::Relaxed);
    if fd >= 0
        && fd == count - 1
        && !read.is_null()
        && write.is_null()
        && except.is_null()
        // SAFETY: the caller's set, which holds `count` descriptors.
        && unsafe { has_only(read, fd) }
    {
        // The set already is the answer; no time has passed.
        return 1;
    }
    match system() {
        // SAFETY: the caller's arguments.
        Some(system) => unsafe { system(count, read, write, except, timeout) },
        None => {
            // SAFETY: the calling thread's own.
            unsafe { *libc::__errno_location() = libc::ENOSYS };
            -1
        }
    }
}

#[cfg(test)]
mod tests;
