//! System calls of AF_XDP sockets and their readers: rustix, and what it lacks.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{self, PollFd};
use rustix::io::Errno;
use rustix::net::sockopt::{socket_error, xdp_options};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XdpOptionsFlags,
};
use rustix::thread::{NanosleepRelativeResult, nanosleep};
use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};

use crate::Timestamp;

/// `setsockopt` with a plain value, for options that rustix does not have.
pub(crate) fn setsockopt<T: Copy>(
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

/// Whether the driver and the socket share the frames' memory.
pub(crate) fn is_zero_copy(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(xdp_options(fd)?.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
}

/// The pending error of the socket, taken.
pub(crate) fn take_error(fd: BorrowedFd<'_>) -> io::Result<Option<io::Error>> {
    Ok(socket_error(fd)?.err().map(io::Error::from))
}

/// Binds the socket to a queue; `shared` is the socket whose UMEM it uses.
pub(crate) fn bind(
    fd: BorrowedFd<'_>,
    ifindex: u32,
    queue: u32,
    flags: u16,
    shared: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let addr = SocketAddrXdp::new(SocketAddrXdpFlags::from_bits_retain(flags), ifindex, queue);
    match shared {
        Some(shared_umem_fd) => {
            rustix::net::bind(fd, &SocketAddrXdpWithSharedUmem { addr, shared_umem_fd })?;
        }
        None => rustix::net::bind(fd, &addr)?,
    }
    Ok(())
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
///
/// # Errors
/// Those of `poll(2)`.
pub fn poll(fds: &mut [PollFd<'_>], timeout: Duration) -> io::Result<bool> {
    match event::poll(fds, Some(&timespec(timeout))) {
        Ok(ready) => Ok(ready != 0),
        Err(Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Sleeps for `time`, or less if a signal comes: false then.
pub(crate) fn sleep(time: Duration) -> bool {
    matches!(nanosleep(&timespec(time)), NanosleepRelativeResult::Ok)
}

pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs().min(i32::MAX as u64) as i64,
        tv_nsec: time.subsec_nanos().into(),
    }
}

fn nanoseconds(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Now, UTC.
pub(crate) fn now() -> Timestamp {
    Timestamp(nanoseconds(clock_gettime(ClockId::Realtime)))
}

/// Now, TAI: the clock of XDP programs.
pub(crate) fn tai_ns() -> u64 {
    clock_gettime_dynamic(DynamicClockId::Tai).map_or(0, nanoseconds)
}

/// Nanoseconds by which the kernel's TAI clock runs ahead of UTC: whole seconds, 0 where nobody
/// told the kernel about leap seconds. XDP programs can read TAI but not UTC.
pub(crate) fn tai_offset_ns() -> u64 {
    let utc = nanoseconds(clock_gettime(ClockId::Realtime));
    // The readings are apart by less than half a second, so rounding gives the whole offset.
    (tai_ns().saturating_sub(utc) + 500_000_000) / 1_000_000_000 * 1_000_000_000
}

/// Fetches the line of this address into the first-level cache.
#[inline]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect that a program can see.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
