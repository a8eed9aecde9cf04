//! [`Shared`]: the state of a handle that its reader, other threads and signal handlers use.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};
use std::sync::{Mutex, PoisonError};

use linerate_capture::source::{Source, SourceStatistics};
use linerate_net::Interface;
use linerate_ring::{Ring as _, StatisticsReader};

use crate::filter::ProgramFilter;
use crate::wait;

/// `pcap_breakloop` was called.
const BREAK: u32 = 1;
/// A filter was set while the handle was read.
const FILTER: u32 = 2;

/// The state of an activated handle, apart from its reader. Every field may be used at any time.
pub(crate) struct Shared {
    signals: AtomicU32,
    /// An eventfd that ends a sleep.
    wake: OwnedFd,
    /// The filter that the reader is to apply.
    filter: Mutex<Option<ProgramFilter>>,
    pub(crate) nonblock: AtomicBool,
    /// The program has asked for the descriptor, and may sleep on it.
    pub(crate) watched: AtomicBool,
    /// `PCAP_D_INOUT` (0), `PCAP_D_IN` or `PCAP_D_OUT`.
    pub(crate) direction: AtomicI32,
    /// Frames that an XDP program accepted and the program's filter, run here, did not.
    pub(crate) rejected: AtomicU64,
    pub(crate) statistics: StatisticsReader<SourceStatistics>,
    /// The socket of the system's libpcap.
    pub(crate) system_socket: RawFd,
    pub(crate) interface: Interface,
    /// Readable when any of the source's descriptors is, where the source has no socket of its own.
    epoll: Option<OwnedFd>,
    descriptors: Vec<RawFd>,
    pub(crate) fd: RawFd,
}

impl Shared {
    pub(crate) fn new(
        source: &Source,
        system_socket: RawFd,
        interface: Interface,
    ) -> io::Result<Self> {
        let statistics = source.statistics_reader().map_err(io::Error::other)?;
        // SAFETY: no memory involved.
        let wake = owned(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
        let descriptors: Vec<_> = source.descriptors().iter().map(AsRawFd::as_raw_fd).collect();
        let (epoll, fd) = match source {
            Source::Packet(_) => (None, descriptors[0]),
            _ => {
                // SAFETY: no memory involved.
                let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
                let fd = epoll.as_raw_fd();
                for &one in &descriptors {
                    control(fd, libc::EPOLL_CTL_ADD, one, libc::EPOLLIN)?;
                }
                // Errors only, which are reported in any case.
                control(fd, libc::EPOLL_CTL_ADD, system_socket, 0)?;
                (Some(epoll), fd)
            }
        };
        Ok(Self {
            signals: AtomicU32::new(0),
            wake,
            filter: Mutex::new(None),
            nonblock: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            direction: AtomicI32::new(0),
            rejected: AtomicU64::new(0),
            statistics,
            system_socket,
            interface,
            epoll,
            descriptors,
            fd,
        })
    }

    /// Whether frames come from a packet socket, which also sends.
    pub(crate) fn is_packet(&self) -> bool {
        self.epoll.is_none()
    }

    /// Makes epoll check its descriptors again. It learns of frames only by wake-ups, and frames that came
    /// while no thread slept caused none.
    pub(crate) fn rearm(&self) {
        if let Some(epoll) = &self.epoll {
            for &one in &self.descriptors {
                // The descriptors live as long as this; nothing else can fail.
                let _ = control(epoll.as_raw_fd(), libc::EPOLL_CTL_MOD, one, libc::EPOLLIN);
            }
        }
    }

    /// Ends the loop; async-signal-safe.
    pub(crate) fn break_loop(&self) {
        self.signal(BREAK);
    }

    /// Asks the reader to apply a filter.
    pub(crate) fn request_filter(&self, filter: ProgramFilter) {
        let mut requested = self.filter.lock().unwrap_or_else(PoisonError::into_inner);
        *requested = Some(filter);
        self.signal(FILTER);
    }

    /// Whether a requested filter is not applied yet.
    pub(crate) fn has_requested_filter(&self) -> bool {
        self.signals.load(Acquire) & FILTER != 0
    }

    /// Signals the reader, also where it sleeps.
    fn signal(&self, what: u32) {
        self.signals.fetch_or(what, Relaxed);
        wait::signal_eventfd(self.wake.as_raw_fd());
    }

    #[inline]
    pub(crate) fn is_signalled(&self) -> bool {
        self.signals.load(Relaxed) != 0
    }

    /// Whether the loop is to end; true once for each request.
    pub(crate) fn take_break(&self) -> bool {
        if self.signals.load(Relaxed) & BREAK == 0 {
            return false;
        }
        self.drain_wake();
        self.signals.fetch_and(!BREAK, Relaxed);
        true
    }

    /// Passes the requested filter, if there is one, to `apply`.
    pub(crate) fn apply_requested_filter(
        &self,
        apply: impl FnOnce(ProgramFilter) -> Result<(), String>,
    ) -> Result<(), String> {
        if self.signals.load(Relaxed) & FILTER == 0 {
            return Ok(());
        }
        // Held throughout: a filter that is set meanwhile comes after this one, with a new signal.
        let mut filter = self.filter.lock().unwrap_or_else(PoisonError::into_inner);
        let done = filter.take().map_or(Ok(()), apply);
        // Release: a thread that sees the cleared signal knows that the filter is applied.
        self.signals.fetch_and(!FILTER, Release);
        done
    }

    pub(crate) fn wake_fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    pub(crate) fn drain_wake(&self) {
        wait::drain(self.wake.as_raw_fd());
    }
}

fn owned(fd: c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn control(epoll: RawFd, what: c_int, fd: RawFd, events: c_int) -> io::Result<()> {
    let mut event = libc::epoll_event { events: events as u32, u64: fd as u64 };
    // SAFETY: the kernel reads the event during the call.
    let answer = unsafe { libc::epoll_ctl(epoll, what, fd, &mut event) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
