//! Waiting for a moment.

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// The least time in nanoseconds that a sleep ends before it is due: the default timer slack of a thread is 50
/// microseconds (`PR_SET_TIMERSLACK`), and a wake-up takes a few more.
pub(crate) const SPIN_TIME_NS: u64 = 70_000;

/// The longest sleep in nanoseconds: so soon `stop` is noticed.
const MAX_SLEEP_NS: u64 = 20_000_000;

const NS_PER_S: u64 = 1_000_000_000;

/// CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * NS_PER_S + now.tv_nsec as u64
}

/// Waits until CLOCK_MONOTONIC shows `deadline`, in a loop for the last `spin` nanoseconds; false if `stop`
/// returned true first.
pub(crate) fn wait_until(deadline: u64, spin: u64, stop: impl Fn() -> bool) -> bool {
    loop {
        let now = now();
        if now >= deadline {
            return true;
        }
        if stop() {
            return false;
        }
        if deadline - now <= spin {
            std::hint::spin_loop();
            continue;
        }
        let wake = (deadline - spin).min(now + MAX_SLEEP_NS);
        // An interrupted sleep is treated like any other.
        let wake = Timespec { tv_sec: (wake / NS_PER_S) as i64, tv_nsec: (wake % NS_PER_S) as i64 };
        let _ = clock_nanosleep_absolute(ClockId::Monotonic, &wake);
    }
}
