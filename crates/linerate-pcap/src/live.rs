//! [`Live`]: a handle that reads from a source of ours.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use linerate_capture::source::{Counter, Source};
use linerate_net::Interface;

use crate::filter::Judge;
use crate::reader::Reader;
use crate::select;
use crate::share::Share;
use crate::wait;

/// `pcap_breakloop` was called.
const BREAK: u32 = 1;
/// A filter was set while the handle was read.
const FILTER: u32 = 2;
/// How long to wait for another thread that has the reader.
const MOMENT: Duration = Duration::from_micros(50);
/// How long to wait for it to put a filter in force.
const LONG: Duration = Duration::from_secs(1);

/// What the functions of an activated handle work on.
///
/// libpcap lets one thread at a time read a handle, while others, and signal handlers, may break its loop.
/// So the reader is behind a word that refuses a callback that reads its own handle and has other threads
/// wait, and all else is atomic.
pub(crate) struct Live {
    // Dropped first: nobody joins a group that this is about to leave.
    _share: Option<Arc<Share>>,
    // Dropped next: the source is closed before what counts it.
    reader: UnsafeCell<Reader>,
    /// The thread that has the reader, or 0.
    reading: AtomicUsize,
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
    pub(crate) interface: Interface,
    pub(crate) index: u32,
    /// Readable when any of the source's descriptors is, where the source has no socket of its own.
    joined: Option<OwnedFd>,
    parts: Vec<RawFd>,
    pub(crate) fd: RawFd,
}

// SAFETY: the reader is entered by one at a time, whoever sets the word; every other field may be shared.
unsafe impl Sync for Live {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Live {}

impl Live {
    pub(crate) fn new(
        reader: Reader,
        share: Option<Arc<Share>>,
        shadow: RawFd,
        index: u32,
        device: &str,
    ) -> io::Result<Self> {
        let counter = reader.source.counter().map_err(io::Error::other)?;
        let interface = Interface::open(device).map_err(io::Error::other)?;
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
            _share: share,
            reader: UnsafeCell::new(reader),
            reading: AtomicUsize::new(0),
            signals: AtomicU32::new(0),
            wake,
            filter: Mutex::new(None),
            counter,
            nonblock: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            direction: AtomicI32::new(0),
            shadow,
            interface,
            index,
            joined,
            parts,
            fd,
        })
    }

    /// Whether frames come from a packet socket, which also sends.
    pub(crate) fn is_packet(&self) -> bool {
        self.joined.is_none()
    }

    /// Lends the reader; `None` to a callback that is called by it. Other threads wait: one may set a filter
    /// while another reads.
    #[inline]
    pub(crate) fn reading<T>(&self, work: impl FnOnce(&mut Reader) -> T) -> Option<T> {
        while !self.enter() {
            if self.reading.load(Relaxed) == own_thread() {
                return None;
            }
            wait::nap(MOMENT);
        }
        Some(self.lend(work))
    }

    /// The same; `None` also while another thread reads.
    pub(crate) fn reading_now<T>(&self, work: impl FnOnce(&mut Reader) -> T) -> Option<T> {
        self.enter().then(|| self.lend(work))
    }

    #[inline]
    fn enter(&self) -> bool {
        // Acquire, with Release below: a thread sees what the one before it did with the reader.
        self.reading.compare_exchange(0, own_thread(), Acquire, Relaxed).is_ok()
    }

    /// Only after [`Live::enter`].
    #[inline]
    fn lend<T>(&self, work: impl FnOnce(&mut Reader) -> T) -> T {
        // Also where a callback leaves by an exception, or the thread is cancelled.
        let _leave = Leave(&self.reading);
        // SAFETY: lent to nobody else before the word is 0 again.
        work(unsafe { &mut *self.reader.get() })
    }

    /// The descriptor to wait on; from now on it tells of packets.
    pub(crate) fn watch(&self) -> RawFd {
        // A signal handler of the program may be the first to call it.
        select::system();
        self.watched.store(true, Relaxed);
        // A read that is under way settles at its end.
        self.reading_now(|reader| reader.settle(self));
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

    /// Puts a filter in force: at once, or where a callback asks for it before the next packet is handed over.
    /// Another thread that reads is waited for, but not for ever: its callback may wait for this thread.
    pub(crate) fn set_filter(&self, judge: Judge) -> Result<(), String> {
        let mut judge = Some(judge);
        if let Some(done) =
            self.reading_now(|reader| judge.take().map_or(Ok(()), |judge| reader.set_filter(judge)))
        {
            return done;
        }
        {
            let mut filter = self.filter.lock().unwrap_or_else(PoisonError::into_inner);
            *filter = judge;
            self.signal(FILTER);
        }
        let end = Instant::now() + LONG;
        while self.reading.load(Relaxed) != own_thread() && Instant::now() < end {
            if let Some(done) =
                self.reading_now(|reader| self.obey_filter(|judge| reader.set_filter(judge)))
            {
                return done;
            }
            // The reader takes it out when it has put it in force, not before.
            if self.signals.load(Acquire) & FILTER == 0 {
                return Ok(());
            }
            wait::nap(MOMENT);
        }
        Ok(())
    }

    /// Ends the loop; async-signal-safe.
    pub(crate) fn break_loop(&self) {
        self.signal(BREAK);
    }

    /// Has the reader look, also where it sleeps.
    fn signal(&self, what: u32) {
        self.signals.fetch_or(what, Relaxed);
        wait::raise(self.wake.as_raw_fd());
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

    /// Hands the filter that was set to `put`, which puts it in force.
    pub(crate) fn obey_filter(
        &self,
        put: impl FnOnce(Judge) -> Result<(), String>,
    ) -> Result<(), String> {
        if self.signals.load(Relaxed) & FILTER == 0 {
            return Ok(());
        }
        // Held throughout: a filter that is set meanwhile comes after this one, with a signal of its own.
        let mut filter = self.filter.lock().unwrap_or_else(PoisonError::into_inner);
        let done = filter.take().map_or(Ok(()), put);
        // Release: whoever sees that it is gone knows that it is in force.
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

/// Takes [`Live::enter`] back.
struct Leave<'a>(&'a AtomicUsize);

impl Drop for Leave<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

/// A number that no other thread has, and never 0.
#[inline]
fn own_thread() -> usize {
    // SAFETY: no arguments.
    unsafe { libc::pthread_self() as usize }
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
