//! [`Live`]: a handle that reads from a source of ours.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32};
use std::sync::{Mutex, PoisonError};

use linerate_capture::source::{Counter, Source};

use crate::filter::Judge;
use crate::reader::Reader;

/// `pcap_breakloop` was called.
const BREAK: u32 = 1;
/// A callback has set a filter.
const FILTER: u32 = 2;

/// What the functions of an activated handle work on.
///
/// libpcap lets one thread at a time read a handle, while others, and signal handlers, may break its loop.
/// So the reader is behind a flag that only tells a callback that reads its own handle from the rest, and
/// all else is atomic.
pub(crate) struct Live {
    // Dropped first: the source is closed before what counts it.
    reader: UnsafeCell<Reader>,
    reading: AtomicBool,
    signals: AtomicU32,
    /// Ends a sleep.
    wake: OwnedFd,
    filter: Mutex<Option<Judge>>,
    pub(crate) counter: Counter,
    pub(crate) nonblock: AtomicBool,
    /// The program has asked for the descriptor, and may sleep on it.
    pub(crate) watched: AtomicBool,
    /// `PCAP_D_INOUT` (0), `PCAP_D_IN` or `PCAP_D_OUT`.
    pub(crate) direction: AtomicI32,
    /// The system's own socket.
    pub(crate) shadow: RawFd,
    pub(crate) index: u32,
    pub(crate) device: String,
    /// Readable when any of the source's descriptors is, where the source has no socket of its own.
    joined: Option<OwnedFd>,
    parts: Vec<RawFd>,
    pub(crate) fd: RawFd,
}

// SAFETY: the reader is entered by one thread at a time, which is libpcap's rule for its callers; every
// other field may be shared.
unsafe impl Sync for Live {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Live {}

impl Live {
    pub(crate) fn new(
        reader: Reader,
        shadow: RawFd,
        index: u32,
        device: String,
    ) -> io::Result<Self> {
        let counter = reader.source.counter().map_err(io::Error::other)?;
        // SAFETY: no memory involved.
        let wake = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        let wake = owned(wake)?;
        let parts: Vec<_> = reader.source.descriptors().iter().map(AsRawFd::as_raw_fd).collect();
        let (joined, fd) = match &reader.source {
            Source::Packet(_) => (None, parts[0]),
            _ => {
                // SAFETY: no memory involved.
                let joined = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
                let fd = joined.as_raw_fd();
                for &part in &parts {
                    control(fd, libc::EPOLL_CTL_ADD, part, libc::EPOLLIN)?;
                }
                // Errors alone, of which it is told whatever is asked for.
                control(fd, libc::EPOLL_CTL_ADD, shadow, 0)?;
                (Some(joined), fd)
            }
        };
        Ok(Self {
            reader: UnsafeCell::new(reader),
            reading: AtomicBool::new(false),
            signals: AtomicU32::new(0),
            wake,
            filter: Mutex::new(None),
            counter,
            nonblock: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            direction: AtomicI32::new(0),
            shadow,
            index,
            device,
            joined,
            parts,
            fd,
        })
    }

    /// Whether frames come from a packet socket, which also sends.
    pub(crate) fn is_packet(&self) -> bool {
        self.joined.is_none()
    }

    /// Lends the reader; `None` to a callback that is called by it.
    #[inline]
    pub(crate) fn reading<T>(&self, work: impl FnOnce(&mut Reader) -> T) -> Option<T> {
        if self.reading.load(Relaxed) {
            return None;
        }
        self.reading.store(true, Relaxed);
        // SAFETY: one thread at a time, which libpcap demands, and no callback of it, by the flag.
        let done = work(unsafe { &mut *self.reader.get() });
        self.reading.store(false, Relaxed);
        Some(done)
    }

    /// The descriptor to wait on; from now on it tells of packets.
    pub(crate) fn watch(&self) -> RawFd {
        self.watched.store(true, Relaxed);
        // A callback's own read settles at its end.
        self.reading(|reader| reader.settle(self));
        self.fd
    }

    /// Has the joined descriptor look whether there is something to read. It is told of what comes by
    /// wake-ups alone, and of packets that came while nobody slept there was none.
    pub(crate) fn tell(&self) {
        if let Some(joined) = &self.joined {
            for &part in &self.parts {
                // The descriptors are there as long as this is; there is nothing else to fail.
                let _ = control(joined.as_raw_fd(), libc::EPOLL_CTL_MOD, part, libc::EPOLLIN);
            }
        }
    }

    /// Puts a filter in force: at once, or where a callback asks for it before the next packet.
    pub(crate) fn set_filter(&self, judge: Judge) -> Result<(), String> {
        let mut judge = Some(judge);
        if let Some(done) =
            self.reading(|reader| judge.take().map_or(Ok(()), |judge| reader.set_filter(judge)))
        {
            return done;
        }
        *self.filter.lock().unwrap_or_else(PoisonError::into_inner) = judge;
        self.signals.fetch_or(FILTER, Relaxed);
        Ok(())
    }

    /// Ends the loop; async-signal-safe.
    pub(crate) fn break_loop(&self) {
        self.signals.fetch_or(BREAK, Relaxed);
        let one = 1_u64;
        // SAFETY: eight readable bytes. A full counter is a wake-up all the same.
        unsafe { libc::write(self.wake.as_raw_fd(), (&raw const one).cast(), size_of_val(&one)) };
    }

    #[inline]
    pub(crate) fn is_signalled(&self) -> bool {
        self.signals.load(Relaxed) != 0
    }

    /// Whether the loop is to end; asked once for each time.
    pub(crate) fn take_break(&self) -> bool {
        if self.signals.load(Relaxed) & BREAK == 0 {
            return false;
        }
        self.drain_wake();
        self.signals.fetch_and(!BREAK, Relaxed);
        true
    }

    pub(crate) fn take_filter(&self) -> Option<Judge> {
        if self.signals.load(Relaxed) & FILTER == 0 {
            return None;
        }
        self.signals.fetch_and(!FILTER, Relaxed);
        self.filter.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn wake_fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }

    pub(crate) fn drain_wake(&self) {
        let mut count = 0_u64;
        let bytes = size_of_val(&count);
        // SAFETY: eight writable bytes; there may be nothing to read.
        unsafe { libc::read(self.wake.as_raw_fd(), (&raw mut count).cast(), bytes) };
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
