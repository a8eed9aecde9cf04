//! The counters of a run, in the kernel or in this process.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::libc::{ENODEV, ENXIO, EOPNOTSUPP};

/// The counters of a run, wherever they are; readable from any thread.
pub(crate) trait Counters: fmt::Debug + Send + Sync {
    /// All counts now; `None` where they cannot be read any more.
    fn read(&self) -> Option<Statistics>;
}

/// The values of all counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Statistics {
    /// Frames given to the interface.
    pub(crate) emitted: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Frames that the driver accepted.
    pub(crate) accepted: u64,
    /// Frames that it refused.
    pub(crate) refused: u64,
    /// CLOCK_MONOTONIC nanoseconds of the first frame, 0 before it.
    pub(crate) first: u64,
    /// The same of the last.
    pub(crate) last: u64,
    /// Negative errno of the last refusal by the driver; 0 where it gave none.
    pub(crate) driver_error: i32,
    /// Negative errno of the last redirect that did not get to the driver.
    pub(crate) redirect_error: i32,
}

impl Statistics {
    /// The interface was removed.
    pub(crate) fn interface_is_gone(&self) -> bool {
        self.redirect_error == -ENODEV
    }

    /// The interface sends no XDP frames at all: its driver cannot, or (a veth before Linux 6.3) its peer
    /// does not receive them.
    pub(crate) fn cannot_send(&self) -> bool {
        [-EOPNOTSUPP, -ENXIO]
            .iter()
            .any(|error| [self.driver_error, self.redirect_error].contains(error))
    }
}

/// Counters that a sending thread publishes once a batch.
#[derive(Debug, Default)]
pub(crate) struct SharedCounters {
    pub(crate) emitted: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) first: AtomicU64,
    pub(crate) last: AtomicU64,
}

impl Counters for SharedCounters {
    fn read(&self) -> Option<Statistics> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let refused = load(&self.refused);
        let emitted = load(&self.emitted).max(refused);
        Some(Statistics {
            emitted,
            refused,
            accepted: emitted - refused,
            bytes: load(&self.bytes),
            first: load(&self.first),
            last: load(&self.last),
            ..Statistics::default()
        })
    }
}
