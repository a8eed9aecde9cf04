//! [`Live`]: a handle that reads from one of Linerate's sources.

use std::cell::UnsafeCell;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use linerate_net::Interface;

use crate::fanout::FanoutGroup;
use crate::filter::ProgramFilter;
use crate::reader::Reader;
use crate::select;
use crate::shared::Shared;
use crate::wait;

/// How long to wait for another thread that has the reader.
const READER_WAIT: Duration = Duration::from_micros(50);
/// How long to wait for it to apply a filter.
const MAX_FILTER_WAIT: Duration = Duration::from_secs(1);

/// What the functions of an activated handle work on.
///
/// libpcap lets one thread at a time read a handle, while others, and signal handlers, may break its loop. So
/// a word guards the reader: it refuses a callback that reads its own handle, and makes other threads wait.
/// Everything else is in [`Shared`].
pub(crate) struct Live {
    // Dropped first: no handle joins a group that this one is about to leave.
    _group: Option<Arc<FanoutGroup>>,
    // Dropped next: the source is closed before its counters.
    reader: UnsafeCell<Reader>,
    /// The thread that has the reader, or 0.
    reading: AtomicUsize,
    pub(crate) shared: Shared,
}

// SAFETY: only the thread that set the word enters the reader; every other field may be shared.
unsafe impl Sync for Live {}
// SAFETY: nothing in it belongs to a thread.
unsafe impl Send for Live {}

impl Live {
    pub(crate) fn new(
        reader: Reader,
        group: Option<Arc<FanoutGroup>>,
        system_socket: RawFd,
        interface: Interface,
    ) -> io::Result<Self> {
        let shared = Shared::new(&reader.source, system_socket, interface)?;
        let (reader, reading) = (UnsafeCell::new(reader), AtomicUsize::new(0));
        Ok(Self { _group: group, reader, reading, shared })
    }

    /// Lends the reader; `None` to a callback that is called by it. Other threads wait: one may set a filter
    /// while another reads.
    #[inline]
    pub(crate) fn with_reader<T>(&self, work: impl FnOnce(&mut Reader) -> T) -> Option<T> {
        while !self.enter() {
            if self.reading.load(Relaxed) == own_thread() {
                return None;
            }
            wait::sleep(READER_WAIT);
        }
        Some(self.lend(work))
    }

    /// The same; `None` also while another thread reads.
    pub(crate) fn try_with_reader<T>(&self, work: impl FnOnce(&mut Reader) -> T) -> Option<T> {
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

    /// The descriptor to wait on; from now on it is readable when there are packets.
    pub(crate) fn selectable_fd(&self) -> RawFd {
        // A signal handler of the program may be the first to call it.
        select::system();
        self.shared.watched.store(true, Relaxed);
        // A read in progress does this at its end.
        self.try_with_reader(|reader| reader.update_readiness(&self.shared));
        self.shared.fd
    }

    /// Loads a filter that the program has compiled, as it may give up its privileges before it sets it. Not
    /// while the handle is read: such a program has given them up already, or keeps them.
    pub(crate) fn prepare_filter(&self, filter: ProgramFilter) {
        self.try_with_reader(|reader| reader.prepare_filter(filter));
    }

    /// Applies a filter: at once, or, where a callback asks for it, before the next packet. This waits for
    /// another thread that reads, but not forever: its callback may wait for this thread.
    pub(crate) fn set_filter(&self, filter: ProgramFilter) -> Result<(), String> {
        let mut filter = Some(filter);
        let now = |reader: &mut Reader| filter.take().map_or(Ok(()), |one| reader.set_filter(one));
        if let Some(done) = self.try_with_reader(now) {
            return done;
        }
        if let Some(filter) = filter {
            self.shared.request_filter(filter);
        }
        let end = Instant::now() + MAX_FILTER_WAIT;
        while self.reading.load(Relaxed) != own_thread() && Instant::now() < end {
            let apply = |reader: &mut Reader| {
                self.shared.apply_requested_filter(|filter| reader.set_filter(filter))
            };
            if let Some(done) = self.try_with_reader(apply) {
                return done;
            }
            // The reader removes the request after it has applied the filter.
            if !self.shared.has_requested_filter() {
                return Ok(());
            }
            wait::sleep(READER_WAIT);
        }
        Ok(())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.reader.get_mut().close(&self.shared);
    }
}

/// Undoes [`Live::enter`].
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
