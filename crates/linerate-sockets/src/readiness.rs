//! poll(2) and select(2): a socket with messages that were read ahead is readable.

use std::ffi::c_int;
use std::mem;
use std::slice;

use libc::{c_short, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use crate::next::{self, checked};
use crate::table::{self, Entry, Socket};
use crate::waiting::Waiting;

const READABLE: c_short = libc::POLLIN | libc::POLLRDNORM;
static NOW: timespec = timespec { tv_sec: 0, tv_nsec: 0 };
/// Words of the largest set of descriptors.
const WORDS: usize = 1024;

/// Begins to wait for a descriptor, which may be an epoll. Returns whether it is readable already.
#[inline]
fn wait_for(waiting: &mut Waiting, fd: c_int) -> bool {
    waiting.add(fd) > 0 || table::entry(fd).and_then(Entry::epoll).is_some_and(|epoll| epoll.nest())
}

/// Whether a descriptor has messages.
fn is_readable(fd: c_int) -> bool {
    table::enter(fd).is_some_and(Socket::has_messages)
        || table::entry(fd).and_then(Entry::epoll).is_some_and(|epoll| epoll.nest())
}

/// Polls with `call`, which has whether it may not wait.
///
/// # Safety
///
/// `fds` are `count` descriptors, or what the kernel refuses.
unsafe fn poll_with(fds: *mut pollfd, count: nfds_t, call: impl Fn(bool) -> c_int) -> c_int {
    if fds.is_null() || count > WORDS as nfds_t * 64 {
        return call(false);
    }
    loop {
        let mut waiting = Waiting::new();
        // SAFETY: the caller's; the kernel writes only while this is not used.
        let descriptors = unsafe { slice::from_raw_parts_mut(fds, count as usize) };
        let mut found = false;
        for one in descriptors.iter().filter(|one| one.events & READABLE != 0) {
            found |= wait_for(&mut waiting, one.fd);
        }
        if let ([one], true) = (&mut *descriptors, found)
            && one.events & !READABLE == 0
        {
            // Nothing else can be ready. An error comes after the messages here, too.
            waiting.end();
            one.revents = one.events;
            return 1;
        }
        let mut result = call(found);
        waiting.end();
        if !found || result < 0 {
            return result;
        }
        for one in descriptors.iter_mut().filter(|one| one.events & READABLE != 0) {
            if is_readable(one.fd) {
                result += c_int::from(one.revents == 0);
                one.revents |= one.events & READABLE;
            }
        }
        if result > 0 {
            return result;
        }
        // Another thread has taken them.
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { poll_with(fds, count, |now| next::poll(fds, count, if now { 0 } else { timeout })) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        poll_with(fds, count, |now| {
            next::ppoll(fds, count, if now { &raw const NOW } else { timeout }, mask)
        })
    }
}

checked! {
    __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, size: size_t) -> c_int,
        size / mem::size_of::<pollfd>() < count as usize, poll(fds, count, timeout);
    __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t,
        size: size_t) -> c_int,
        size / mem::size_of::<pollfd>() < count as usize, ppoll(fds, count, timeout, mask);
}

/// Selects with `call`, which has whether it may not wait.
///
/// # Safety
///
/// `read` is null or a set with room for `count` descriptors.
unsafe fn select_with(count: c_int, read: *mut fd_set, call: impl Fn(bool) -> c_int) -> c_int {
    let words = usize::try_from(count).unwrap_or(0).div_ceil(64);
    if read.is_null() || words > WORDS {
        return call(false);
    }
    // SAFETY: the caller's set.
    let set = unsafe { slice::from_raw_parts_mut(read.cast::<u64>(), words) };
    // Most sets have the size of the C library's type.
    if words <= 16 {
        select_words::<16>(count, set, call)
    } else {
        select_words::<WORDS>(count, set, call)
    }
}

fn select_words<const N: usize>(
    count: c_int,
    set: &mut [u64],
    call: impl Fn(bool) -> c_int,
) -> c_int {
    let mut waiting = Waiting::new();
    let mut held = [0_u64; N];
    let mut found = false;
    for fd in members(set, count) {
        if wait_for(&mut waiting, fd) {
            found = true;
            held[fd as usize / 64] |= 1 << (fd % 64);
        }
    }
    let mut result = call(found);
    waiting.end();
    if !found || result < 0 {
        return result;
    }
    for fd in members(&held, count).filter(|fd| is_readable(*fd)) {
        let (word, bit) = (&mut set[fd as usize / 64], 1 << (fd % 64));
        result += c_int::from(*word & bit == 0);
        *word |= bit;
    }
    if result == 0 {
        // Another thread has taken the messages, and the kernel has emptied all sets.
        next::set_errno(libc::EINTR);
        return -1;
    }
    result
}

fn members(set: &[u64], count: c_int) -> impl Iterator<Item = c_int> {
    set.iter().enumerate().flat_map(move |(index, word)| {
        let mut word = *word;
        std::iter::from_fn(move || {
            let bit = word.trailing_zeros();
            word &= word.wrapping_sub(1);
            let fd = index as c_int * 64 + bit as c_int;
            (bit < 64 && fd < count).then_some(fd)
        })
    })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        select_with(count, read, |now| {
            let mut none = timeval { tv_sec: 0, tv_usec: 0 };
            let timeout = if now { &raw mut none } else { timeout };
            next::select(count, read, write, except, timeout)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        select_with(count, read, |now| {
            let timeout = if now { &raw const NOW } else { timeout };
            next::pselect(count, read, write, except, timeout, mask)
        })
    }
}
