//! The system calls of an AF_XDP socket.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::Timestamp;

/// `setsockopt` with a plain value.
pub(crate) fn set<T: Copy>(
    fd: BorrowedFd<'_>,
    level: i32,
    option: i32,
    value: &T,
) -> io::Result<()> {
    // SAFETY: `value` is readable for its size.
    let answer = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `getsockopt` of a structure of plain integers; what the kernel does not know stays zero.
///
/// # Safety
/// All bit patterns must be valid for `T`.
unsafe fn ask<T>(fd: BorrowedFd<'_>, level: i32, option: i32) -> io::Result<T> {
    // SAFETY: the caller vouches for zeroes.
    let mut value: T = unsafe { mem::zeroed() };
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is writable for `len` bytes.
    let answer = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, option, (&raw mut value).cast(), &mut len)
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

pub(crate) fn offsets(fd: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: a structure of integers.
    unsafe { ask(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS) }
}

pub(crate) fn statistics(fd: BorrowedFd<'_>) -> io::Result<libc::xdp_statistics> {
    // SAFETY: a structure of integers.
    unsafe { ask(fd, libc::SOL_XDP, libc::XDP_STATISTICS) }
}

/// Whether the driver and the socket share the frames' memory.
pub(crate) fn is_zero_copy(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: a structure of integers.
    let options: libc::xdp_options = unsafe { ask(fd, libc::SOL_XDP, libc::XDP_OPTIONS) }?;
    Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// The pending error of the socket, taken.
pub(crate) fn take_error(fd: BorrowedFd<'_>) -> io::Result<Option<io::Error>> {
    // SAFETY: an integer.
    let errno: i32 = unsafe { ask(fd, libc::SOL_SOCKET, libc::SO_ERROR) }?;
    Ok((errno != 0).then(|| io::Error::from_raw_os_error(errno)))
}

pub(crate) fn bind(
    fd: BorrowedFd<'_>,
    ifindex: u32,
    queue: u32,
    flags: u16,
    shared: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: ifindex,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: shared.map_or(0, |fd| fd.as_raw_fd() as u32),
    };
    // SAFETY: an address of the family's type and its size.
    let answer = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Wakes the kernel's receive side, or lets it poll the card when busy polling is on.
pub(crate) fn kick_receive(fd: BorrowedFd<'_>) {
    // SAFETY: no buffer is given. The answer says nothing that the ring does not say.
    unsafe {
        libc::recvfrom(
            fd.as_raw_fd(),
            std::ptr::null_mut(),
            0,
            libc::MSG_DONTWAIT,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    };
}

/// Makes the kernel send what is in the transmit ring.
pub(crate) fn kick_transmit(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no buffer is given.
    let answer = unsafe {
        libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
    };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sleeps until a descriptor is ready for its events or the time is over. An interrupted sleep
/// counts as over, so that the caller can look at what its signal handler left.
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout: Duration) -> io::Result<bool> {
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs().min(i32::MAX as u64) as libc::time_t,
        tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
    };
    // SAFETY: a slice of `pollfd`, a timeout, no signal mask.
    let answer = unsafe {
        libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, &timeout, std::ptr::null())
    };
    match answer {
        0 => Ok(false),
        1.. => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            error => Err(error),
        },
    }
}

/// Sleeps for `time`, or less if a signal comes: false then.
pub(crate) fn pause(time: Duration) -> bool {
    let time = libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(time.subsec_nanos()),
    };
    // SAFETY: a valid time, no remainder wanted.
    unsafe { libc::nanosleep(&time, std::ptr::null_mut()) == 0 }
}

/// The time of a clock in nanoseconds.
pub(crate) fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable, and the clocks asked for exist on every kernel.
    unsafe { libc::clock_gettime(id, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Now, UTC.
pub(crate) fn now() -> Timestamp {
    Timestamp(clock(libc::CLOCK_REALTIME))
}

/// Nanoseconds by which the kernel's TAI clock runs ahead of UTC: whole seconds, 0 where nobody
/// told the kernel about leap seconds. XDP programs can read TAI but not UTC.
pub(crate) fn tai_ahead() -> u64 {
    let utc = clock(libc::CLOCK_REALTIME);
    let tai = clock(libc::CLOCK_TAI);
    // The readings are apart by less than half a second, so rounding gives the whole offset.
    (tai.saturating_sub(utc) + 500_000_000) / 1_000_000_000 * 1_000_000_000
}
