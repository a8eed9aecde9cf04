//! [`HandleStatistics`]: the counts of the libpcap handles of a program under `linerate run`, in memory that another
//! process reads.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use linerate_ring::counters::{COLUMNS, SharedCounters};

use super::{DropCause, Drops};

/// The environment variable with the number of the counters' file descriptor.
pub const COUNTERS_FD_VARIABLE: &str = "LINERATE_METRICS_FD";

const HANDLES: usize = 0;
const RECEIVED: usize = 1;
const DELIVERED: usize = 2;
const BYTES: usize = 3;
const READ_AT: usize = 4;
/// The column of the first drop cause.
const DROPS: usize = 5;

const _: () = assert!(DROPS + DropCause::ALL.len() <= COLUMNS);

/// What the libpcap handles of a program counted on one interface, with one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandleStatistics {
    /// Handles that were activated.
    pub handles: u64,
    /// Packets that the filter accepted, lost ones included.
    pub received: u64,
    /// Packets delivered to the program.
    pub delivered: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// When it last read packets or began to wait for them, in seconds since the Unix epoch.
    pub read_at: u64,
    /// Packets that were lost.
    pub drops: Drops,
}

impl HandleStatistics {
    /// The counters of an interface and a source; `None` if all rows are taken.
    pub fn counters<'a>(
        shared: &'a SharedCounters,
        interface: &str,
        source: &str,
    ) -> Option<&'a [AtomicU64; COLUMNS]> {
        shared.row(&format!("{source} {interface}"))
    }

    /// Adds these counts, and takes the later of the times.
    pub fn add_to(&self, counters: &[AtomicU64; COLUMNS]) {
        let drops = self.drops.iter().map(|(cause, count)| (DROPS + cause as usize, count));
        let counts = [
            (HANDLES, self.handles),
            (RECEIVED, self.received),
            (DELIVERED, self.delivered),
            (BYTES, self.bytes),
        ];
        for (column, count) in counts.into_iter().chain(drops).filter(|(_, count)| *count > 0) {
            counters[column].fetch_add(count, Relaxed);
        }
        counters[READ_AT].fetch_max(self.read_at, Relaxed);
    }

    /// The sums so far, by interface and source.
    pub fn read(shared: &SharedCounters) -> BTreeMap<[String; 2], Self> {
        let mut sums = BTreeMap::<_, Self>::new();
        for (label, columns) in shared.read() {
            let Some((source, interface)) = label.split_once(' ') else { continue };
            let sum = sums.entry([interface.to_owned(), source.to_owned()]).or_default();
            // The program can write any value.
            let add = |sum: &mut u64, column: usize| *sum = sum.saturating_add(columns[column]);
            add(&mut sum.handles, HANDLES);
            add(&mut sum.received, RECEIVED);
            add(&mut sum.delivered, DELIVERED);
            add(&mut sum.bytes, BYTES);
            sum.read_at = sum.read_at.max(columns[READ_AT]);
            for cause in DropCause::ALL {
                add(&mut sum.drops[*cause], DROPS + *cause as usize);
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests;
