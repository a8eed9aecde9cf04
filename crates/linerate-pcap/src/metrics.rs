//! The counts of handles for `linerate run --metrics`, in memory that this process shares with the metrics server.
//!
//! There is no thread for them, because the program may fork, or drop privileges in its own threads only. The counts
//! are written while the program reads, once a second, and when it waits for packets.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use linerate_capture::source::SourceStatistics;
use linerate_capture::statistics::handles::{COUNTERS_FD_VARIABLE, HandleStatistics};
use linerate_capture::statistics::{DropCause, Drops};
use linerate_ring::counters::{COLUMNS, SharedCounters};

use crate::environment::variable;
use crate::shared::Shared;
use crate::warn::warn;

/// How often the counts of a program are written that polls without blocking and finds nothing.
const WRITE_INTERVAL: Duration = Duration::from_millis(10);

/// The shared memory, under `linerate run --metrics`.
static COUNTERS: OnceLock<Option<SharedCounters>> = OnceLock::new();

/// The shared memory. It is mapped once, so that the program may close the descriptor later, and reuse its number.
fn counters() -> Option<&'static SharedCounters> {
    let open = || {
        let number: RawFd =
            variable(COUNTERS_FD_VARIABLE)?.to_str()?.parse().ok().filter(|fd| *fd >= 0)?;
        // SAFETY: borrowed for this call only. A descriptor that is closed, or of another file, is an error.
        let opened = SharedCounters::open(unsafe { BorrowedFd::borrow_raw(number) });
        opened.map_err(|error| warn(format_args!("no metrics of this program: {error}"))).ok()
    };
    COUNTERS.get_or_init(open).as_ref()
}

/// Counts a handle, and returns the counters of its interface and source.
fn add_handle(interface: &str, source: &str) -> Option<&'static [AtomicU64; COLUMNS]> {
    let row = HandleStatistics::counters(counters()?, interface, source)?;
    HandleStatistics { handles: 1, ..HandleStatistics::default() }.add_to(row);
    Some(row)
}

/// Counts a handle that libpcap serves alone. Its packets are not counted.
pub(crate) fn add_system_handle(interface: &str) {
    add_handle(interface, "libpcap");
}

/// The counts of a handle, and those already written.
pub(crate) struct HandleMetrics {
    row: &'static [AtomicU64; COLUMNS],
    /// Packets that were delivered since the last write.
    packets: u64,
    /// Their bytes.
    bytes: u64,
    /// The kernel's counts that are already written.
    received: u64,
    drops: Drops,
    /// The second of the last write.
    second: libc::time_t,
    written: Instant,
    /// The process that writes. A child that closes its copy writes nothing: the counts are the parent's.
    pid: u32,
}

impl HandleMetrics {
    /// For a handle on this interface; `None` without `linerate run --metrics`.
    pub(crate) fn new(interface: &str, source: &str) -> Option<Self> {
        Some(Self {
            row: add_handle(interface, source)?,
            packets: 0,
            bytes: 0,
            received: 0,
            drops: Drops::default(),
            second: 0,
            written: Instant::now(),
            pid: std::process::id(),
        })
    }

    /// Adds the packets of one read, the last of which arrived in this second.
    #[inline]
    pub(crate) fn add(&mut self, packets: u64, bytes: u64, second: libc::time_t, shared: &Shared) {
        self.packets += packets;
        self.bytes += bytes;
        if self.second != second {
            self.second = second;
            self.write(shared);
        }
    }

    /// Must be called before the program waits for packets; `spins` if it polls without blocking.
    pub(crate) fn idle(&mut self, spins: bool, shared: &Shared) {
        if !spins || self.written.elapsed() >= WRITE_INTERVAL {
            self.write(shared);
        }
    }

    /// Must be called when the handle is closed.
    pub(crate) fn close(&mut self, shared: &Shared) {
        if self.pid == std::process::id() {
            self.write(shared);
        }
    }

    fn write(&mut self, shared: &Shared) {
        self.pid = std::process::id();
        self.written = Instant::now();
        let Ok(SourceStatistics { received, drops }) = shared.statistics.read() else {
            return;
        };
        let received = received.saturating_sub(shared.rejected.load(Relaxed));
        let mut new = Drops::default();
        for cause in DropCause::ALL {
            new[*cause] = drops[*cause].saturating_sub(self.drops[*cause]);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let statistics = HandleStatistics {
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
