//! The layer of sockets: options, groups, and the arrays of `recvmmsg` and `sendmmsg`. The only
//! `unsafe` code of this crate besides that of io_uring.

mod address;
mod control;
mod drops;
mod open;
pub(crate) mod remember;
mod slots;
mod transmit;

pub(crate) use address::Name;
pub(crate) use control::{Control, ROOM as CONTROL_ROOM};
pub(crate) use drops::Drops;
pub(crate) use open::{Membership, buffer_size, local_address, membership, open, probe_gro};
pub(crate) use slots::Slots;
pub(crate) use transmit::{Outgoing, Rejected, connect};

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// `setsockopt` with a plain value.
fn set<T: Copy>(fd: BorrowedFd<'_>, level: i32, option: i32, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is readable for its size.
    let answer = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), len)
    };
    check(answer as isize).map(drop)
}

/// `getsockopt` into an array of plain integers; what the kernel does not know stays 0.
fn get<const N: usize>(fd: BorrowedFd<'_>, level: i32, option: i32) -> io::Result<[u32; N]> {
    let mut value = [0u32; N];
    let mut len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` is writable for `len` bytes.
    let answer = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, option, value.as_mut_ptr().cast(), &mut len)
    };
    check(answer as isize).map(|_| value)
}

/// The count that a system call returned, or its error.
fn check(answer: isize) -> io::Result<usize> {
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}

/// What came of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The descriptor is ready.
    Ready,
    /// Time is over.
    Late,
    /// A signal came.
    Signal,
}

/// Waits until `fd` is ready for `events` or the deadline has passed; `None` waits for ever.
pub(crate) fn wait(
    fd: BorrowedFd<'_>,
    events: i16,
    deadline: Option<Instant>,
) -> io::Result<Woken> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let timeout = left.map(timespec);
    let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: one entry and a timeout or none, all ours for the length of the call.
    match check(unsafe { libc::ppoll(&mut entry, 1, timeout, std::ptr::null()) } as isize) {
        Ok(0) => Ok(Woken::Late),
        Ok(_) => Ok(Woken::Ready),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Woken::Signal),
        Err(error) => Err(error),
    }
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: time.as_secs().min(i64::MAX as u64) as libc::time_t,
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// Sleeps; false when a signal ended it.
pub(crate) fn pause(time: Duration) -> bool {
    let time = timespec(time);
    // SAFETY: a whole `timespec`, and nowhere to write what is left.
    unsafe { libc::nanosleep(&time, std::ptr::null_mut()) == 0 }
}

/// An epoll instance that is readable when any of `fds` is.
pub(crate) fn gather<'a>(
    fds: impl Iterator<Item = BorrowedFd<'a>>,
) -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: no memory involved; the descriptor is nobody else's.
    let epoll = unsafe {
        let fd = check(libc::epoll_create1(libc::EPOLL_CLOEXEC) as isize)?;
        std::os::fd::OwnedFd::from_raw_fd(fd as i32)
    };
    for fd in fds {
        watch(epoll.as_fd(), fd, libc::EPOLL_CTL_ADD)?;
    }
    Ok(epoll)
}

/// Has an epoll instance ask `fd`, one of its own, whether it is readable: it only knows what it was told.
pub(crate) fn look_again(epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>) {
    // It is there, so that nothing can fail.
    let _ = watch(epoll, fd, libc::EPOLL_CTL_MOD);
}

fn watch(epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>, what: i32) -> io::Result<()> {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: two live descriptors and an event that is copied.
    let answer = unsafe { libc::epoll_ctl(epoll.as_raw_fd(), what, fd.as_raw_fd(), &mut event) };
    check(answer as isize).map(drop)
}
