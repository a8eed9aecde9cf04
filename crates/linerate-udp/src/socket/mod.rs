//! Sockets: options, groups, and the `mmsghdr` arrays of `recvmmsg` and `sendmmsg`. The only `unsafe` code of
//! this crate besides that of io_uring.

mod caller_socket;
mod cmsg;
mod drops;
pub(crate) mod icmp;
mod membership;
mod open;
mod recvmmsg;
mod sendmmsg;
mod sockaddr;

pub(crate) use caller_socket::{bound_interface, has_filter, unapplied_option};
pub(crate) use cmsg::{CMSG_SPACE, ControlMessages};
pub(crate) use drops::SocketDrops;
pub(crate) use membership::{Membership, accepted_senders, set_membership};
#[cfg(feature = "quinn")]
pub(crate) use open::disable_ipv4_info;
pub(crate) use open::{
    bound, ip_defaults, local_address, open, probe_gro, recv_buffer_size, send_buffer_size,
};
pub(crate) use recvmmsg::RecvMmsg;
pub(crate) use sendmmsg::{SendError, SendMmsg, connect};
pub(crate) use sockaddr::{SockAddr, scoped, unmapped};

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{self, PollFd, PollFlags, Timespec, epoll};
use rustix::io::Errno;
use rustix::thread::{NanosleepRelativeResult, nanosleep};

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

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitOutcome {
    /// The descriptor is ready.
    Ready,
    /// The deadline has passed.
    TimedOut,
    /// A signal arrived.
    Interrupted,
    /// Something about the interface may have changed.
    Changed,
}

/// Waits until `fd` is ready for `events`, `watch` is readable, or the deadline has passed; `None` waits for ever.
pub(crate) fn poll(
    fd: BorrowedFd<'_>,
    events: PollFlags,
    watch: Option<BorrowedFd<'_>>,
    deadline: Option<Instant>,
) -> io::Result<WaitOutcome> {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let timeout = left.map(timespec);
    let mut entries = [(fd, events), (watch.unwrap_or(fd), PollFlags::IN)]
        .map(|(fd, events)| PollFd::from_borrowed_fd(fd, events));
    let count = 1 + usize::from(watch.is_some());
    match event::poll(&mut entries[..count], timeout.as_ref()) {
        Ok(0) => Ok(WaitOutcome::TimedOut),
        Ok(_) if watch.is_some() && !entries[1].revents().is_empty() => Ok(WaitOutcome::Changed),
        Ok(_) => Ok(WaitOutcome::Ready),
        Err(Errno::INTR) => Ok(WaitOutcome::Interrupted),
        Err(error) => Err(error.into()),
    }
}

/// Whether `shutdown(2)` ended receiving.
pub(crate) fn is_shut_down(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut entries = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
    match event::poll(&mut entries, Some(&timespec(Duration::ZERO))) {
        Ok(_) => Ok(entries[0].revents().contains(PollFlags::RDHUP)),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec::try_from(time).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
}

/// Sleeps; false when a signal ended it.
pub(crate) fn sleep(time: Duration) -> bool {
    matches!(nanosleep(&timespec(time)), NanosleepRelativeResult::Ok)
}

/// What an epoll instance of a receiver watches; the values are bits of [`epoll_ready`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum EventSource {
    /// A ring of the backend.
    Ring = 1,
    Socket = 2,
    /// Notifications about the interface.
    Interface = 4,
}

/// What may be ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness(u64);

impl Readiness {
    pub(crate) const ALL: Self = Self(u64::MAX);

    pub(crate) fn contains(self, what: EventSource) -> bool {
        self.0 & what as u64 != 0
    }
}

/// An epoll instance that is readable when any of `fds` is.
pub(crate) fn epoll_of<'a>(
    fds: impl Iterator<Item = (BorrowedFd<'a>, EventSource)>,
) -> io::Result<OwnedFd> {
    let instance = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (fd, what) in fds {
        epoll::add(&instance, fd, epoll::EventData::new_u64(what as u64), epoll::EventFlags::IN)?;
    }
    Ok(instance)
}

/// Has an epoll instance check again whether a ring, which it watches, is readable.
pub(crate) fn epoll_rearm(instance: BorrowedFd<'_>, ring: BorrowedFd<'_>) {
    let data = epoll::EventData::new_u64(EventSource::Ring as u64);
    // It is watched, so this cannot fail.
    let _ = epoll::modify(instance, ring, data, epoll::EventFlags::IN);
}

/// What is ready of an epoll instance of [`epoll_of`], errors included. Never waits.
pub(crate) fn epoll_ready(instance: BorrowedFd<'_>) -> io::Result<Readiness> {
    const NONE: epoll::Event =
        epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
    // Room for the socket, the interface, and some rings.
    let mut events = [NONE; 8];
    match epoll::wait(instance, &mut events[..], Some(&timespec(Duration::ZERO))) {
        // There may be more.
        Ok(count) if count == events.len() => Ok(Readiness::ALL),
        Ok(count) => {
            let bits = events[..count].iter().map(|event| event.data.u64());
            Ok(Readiness(bits.fold(0, |all, one| all | one)))
        }
        Err(Errno::INTR) => Ok(Readiness::ALL),
        Err(error) => Err(error.into()),
    }
}
