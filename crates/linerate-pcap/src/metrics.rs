//! The counts of handles for `linerate run --metrics`. They are in memory that the process which serves them reads.
//!
//! There is no thread for them: the program may give up privileges for its own threads alone, or fork. They are written
//! while the program reads, once a second, and when it waits for packets.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use linerate_capture::source::SourceStatistics;
use linerate_capture::statistics::program::{ProgramStatistics, VARIABLE};
use linerate_capture::statistics::{DropCause, Drops};
use linerate_ring::counters::{COLUMNS, SharedCounters};

use crate::shared::Shared;
use crate::warn::warn;

/// How long counts may wait, of a program that reads again and again and finds nothing.
const INTERVAL: Duration = Duration::from_millis(10);

/// The memory, if somebody serves it.
static COUNTERS: OnceLock<Option<SharedCounters>> = OnceLock::new();

/// The memory. It is mapped once, so that the program may close the descriptor later, or leave its number to another file.
fn counters() -> Option<&'static SharedCounters> {
    let open = || {
        let number: RawFd = std::env::var(VARIABLE).ok()?.parse().ok().filter(|fd| *fd >= 0)?;
        // SAFETY: borrowed for this call only. If it is not open, or another file, the kernel says so.
        let opened = SharedCounters::open(unsafe { BorrowedFd::borrow_raw(number) });
        opened
            .map_err(|error| warn(format_args!("metrics do not count this program: {error}")))
            .ok()
    };
    COUNTERS.get_or_init(open).as_ref()
}

/// The counters of an interface and a source, with a handle more.
fn add_handle(interface: &str, source: &str) -> Option<&'static [AtomicU64; COLUMNS]> {
    let row = ProgramStatistics::counters(counters()?, interface, source)?;
    ProgramStatistics { handles: 1, ..ProgramStatistics::default() }.add_to(row);
    Some(row)
}

/// Counts a handle that is libpcap's alone. Nobody counts its packets.
pub(crate) fn add_system_handle(interface: &str) {
    add_handle(interface, "libpcap");
}

/// The counts of a handle, and what of them is written.
pub(crate) struct HandleMetrics {
    row: &'static [AtomicU64; COLUMNS],
    packets: u64,
    bytes: u64,
    /// Of the kernel's counts: what is written.
    received: u64,
    drops: Drops,
    second: libc::time_t,
    written: Instant,
    /// The process that writes. A copy that a child closes has nothing to write: its counts are the parent's.
    process: u32,
}

impl HandleMetrics {
    /// For a handle on this interface; `None` if nobody serves its counts.
    pub(crate) fn new(interface: &str, source: &str) -> Option<Self> {
        Some(Self {
            row: add_handle(interface, source)?,
            packets: 0,
            bytes: 0,
            received: 0,
            drops: Drops::default(),
            second: 0,
            written: Instant::now(),
            process: std::process::id(),
        })
    }

    /// Adds the packets of one read, the last of them in this second.
    #[inline]
    pub(crate) fn add(&mut self, packets: u64, bytes: u64, second: libc::time_t, shared: &Shared) {
        self.packets += packets;
        self.bytes += bytes;
        if self.second != second {
            self.second = second;
            self.write(shared);
        }
    }

    /// Before the program waits for packets; `spins` if it may ask again at once.
    pub(crate) fn idle(&mut self, spins: bool, shared: &Shared) {
        if !spins || self.written.elapsed() >= INTERVAL {
            self.write(shared);
        }
    }

    /// When a handle is closed.
    pub(crate) fn close(&mut self, shared: &Shared) {
        if self.process == std::process::id() {
            self.write(shared);
        }
    }

    fn write(&mut self, shared: &Shared) {
        self.process = std::process::id();
        self.written = Instant::now();
        let Ok(SourceStatistics { received, drops }) = shared.statistics.statistics() else {
            return;
        };
        let received = received.saturating_sub(shared.rejected.load(Relaxed));
        let mut new = Drops::default();
        for cause in DropCause::ALL {
            new[*cause] = drops[*cause].saturating_sub(self.drops[*cause]);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let statistics = ProgramStatistics {
            handles: 0,
            received: received.saturating_sub(self.received),
            delivered: std::mem::take(&mut self.packets),
            bytes: std::mem::take(&mut self.bytes),
            read_at: now.as_secs(),
            drops: new,
        };
        statistics.add_to(self.row);
        (self.received, self.drops) = (received.max(self.received), drops);
    }
}
