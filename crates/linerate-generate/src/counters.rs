//! What a run has done so far, wherever that is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::libc::{ENODEV, ENXIO, EOPNOTSUPP};

use crate::live::Window;

/// The counters of a run, readable from any thread.
#[derive(Debug)]
pub(crate) enum Counters {
    /// In a BPF map.
    Live(Window),
    /// In this process.
    Own(Arc<Tally>),
}

impl Counters {
    pub(crate) fn read(&self) -> Option<Counts> {
        match self {
            Self::Live(window) => window.read(),
            Self::Own(tally) => Some(tally.read()),
        }
    }
}

/// The values of all counters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Frames given to the interface.
    pub(crate) emitted: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Frames that the driver took.
    pub(crate) accepted: u64,
    /// Frames that it did not take.
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

impl Counts {
    /// The interface was removed.
    pub(crate) fn gone(&self) -> bool {
        self.redirect_error == -ENODEV
    }

    /// The interface takes no XDP frames, now or ever: its driver has no way to send them, or (a veth
    /// before Linux 6.3) its peer does not receive them.
    pub(crate) fn nobody_takes_them(&self) -> bool {
        [-EOPNOTSUPP, -ENXIO]
            .iter()
            .any(|error| [self.driver_error, self.redirect_error].contains(error))
    }
}

/// Counters that a sending thread publishes once a batch.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) emitted: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) first: AtomicU64,
    pub(crate) last: AtomicU64,
}

impl Tally {
    fn read(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let refused = load(&self.refused);
        let emitted = load(&self.emitted).max(refused);
        Counts {
            emitted,
            refused,
            accepted: emitted - refused,
            bytes: load(&self.bytes),
            first: load(&self.first),
            last: load(&self.last),
            ..Counts::default()
        }
    }
}
