//! [`WaitStrategy`]: how a reader waits.

use std::time::{Duration, Instant};

use super::sys;

/// How a reader waits for frames.
///
/// A reader asleep in `poll` costs the *sender's* core: the softirq that fills the ring has to wake
/// it, once per NAPI flush. A reader that spins costs its own core, and takes the ring's index away
/// from the kernel's cache with every look. A reader that naps costs neither: while frames come, it
/// takes what has gathered, sleeps for `sleep`, and takes again. Only when nothing came for `poll_after`
/// does it go to sleep in `poll`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitStrategy {
    /// Time of one sleep; zero spins.
    pub sleep: Duration,
    /// How long to nap (or spin) in vain before sleeping in `poll`; zero sleeps there at once, and
    /// gives the lowest latency that leaves the core idle.
    pub poll_after: Duration,
}

impl Default for WaitStrategy {
    /// Naps of 200 µs for 20 ms. A million frames a second gather 200 in a nap; the default buffer
    /// holds 65 ms of them.
    fn default() -> Self {
        Self { sleep: Duration::from_micros(200), poll_after: Duration::from_millis(20) }
    }
}

impl WaitStrategy {
    /// Sleeps in `poll` whenever there is nothing to read.
    pub const BLOCKING: Self = Self { sleep: Duration::ZERO, poll_after: Duration::ZERO };

    /// Never sleeps.
    pub const SPINNING: Self = Self { sleep: Duration::ZERO, poll_after: Duration::MAX };

    /// Polls until `ready`, for at most `timeout` or `poll_after`, whichever is shorter. Gives what
    /// is left of `timeout`, or `None` when ready. A signal ends the wait: nothing is left then.
    pub(crate) fn wait_until(
        &self,
        timeout: Duration,
        mut ready: impl FnMut() -> bool,
    ) -> Option<Duration> {
        if ready() {
            return None;
        }
        let start = Instant::now();
        let limit = timeout.min(self.poll_after);
        loop {
            let spent = start.elapsed();
            if spent >= limit {
                return Some(timeout.saturating_sub(spent));
            }
            let interrupted = if self.sleep.is_zero() {
                std::hint::spin_loop();
                false
            } else {
                !sys::sleep(self.sleep.min(limit - spent))
            };
            if ready() {
                return None;
            }
            if interrupted {
                return Some(Duration::ZERO);
            }
        }
    }
}
