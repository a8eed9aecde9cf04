//! How a reader waits: [`WaitStrategy`], and the protocol by which it is woken ([`Sleeper`]).
//!
//! A reader sets a word (`waiting` of `struct tee_reader`), and looks at the rings once more. A program commits a frame,
//! and looks at the word. There is a full barrier between the two steps of each: one of the two sees the other. The
//! program that sees the word clears it, and commits an empty record that carries the wake-up (`bpf/records.h`). So a
//! wake-up disarms the reader, also where it had other reasons to awake.
//!
//! The protocol is generic over the rings, so that loom can run it over its own atomics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::sys;

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

/// How often a reader polls for a frame that is withheld, before it sleeps: for some 100 µs. Longer, a clock that was set
/// back would keep it here.
const MAX_POLLS: u32 = 1000;

/// What a reader has announced. It alone writes these.
#[derive(Debug, Default)]
pub(crate) struct SleepState {
    /// The words are set, as far as the reader knows.
    armed: AtomicBool,
    /// [`Sleeper::wakeups`] at that time.
    wakeups_passed: AtomicU64,
    /// The reader may sleep at any time.
    kept: AtomicBool,
}

impl SleepState {
    /// Whether the words are to be set whenever no batch is lent.
    #[inline]
    pub(crate) fn is_kept_armed(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }
}

/// A reader of rings that sleeps.
pub(crate) trait Sleeper {
    fn sleep_state(&self) -> &SleepState;

    /// Whether a frame can be read now.
    fn is_readable(&mut self) -> bool;

    /// Whether a frame is there that is withheld for a moment. The wake-up for it may be spent.
    fn is_withholding(&mut self) -> bool;

    /// Wake-up records that the reader has passed.
    fn wakeups(&self) -> u64;

    /// Sets the word of each ring, and orders that before later looks at the rings: a full barrier.
    fn set_waiting(&self);

    /// Clears the word of each ring.
    fn clear_waiting(&self);

    /// Sets the words. To be called before the last look.
    fn announce(&self) {
        let state = self.sleep_state();
        state.armed.store(true, Ordering::Relaxed);
        state.wakeups_passed.store(self.wakeups(), Ordering::Relaxed);
        self.set_waiting();
    }

    /// [`Ring::keep_armed`](crate::Ring::keep_armed).
    fn keep_armed(&self) {
        self.sleep_state().kept.store(true, Ordering::Relaxed);
        self.announce();
    }

    /// [`Ring::disarm`](crate::Ring::disarm). Writes nothing if the reader is not armed: the programs read the words for
    /// each frame.
    #[inline]
    fn disarm(&self) {
        let SleepState { armed, kept, .. } = self.sleep_state();
        if armed.load(Ordering::Relaxed) && !kept.load(Ordering::Relaxed) {
            armed.store(false, Ordering::Relaxed);
            self.clear_waiting();
        }
    }

    /// Whether a frame can be read. If not, and the reader is armed, the next frame wakes it.
    #[inline]
    fn has_frame(&mut self) -> bool {
        for _ in 0..MAX_POLLS {
            let found = self.is_readable();
            let SleepState { armed, wakeups_passed, .. } = self.sleep_state();
            if found || !armed.load(Ordering::Relaxed) {
                return found;
            }
            if wakeups_passed.load(Ordering::Relaxed) != self.wakeups() {
                // The program clears the word before it commits a wake-up record. If one that is newer than the
                // announcement was passed over, nothing would wake the reader: it announces its sleep again.
                self.announce();
            } else if !self.is_withholding() {
                return false;
            }
        }
        // The last turn may have announced.
        self.is_readable()
    }

    /// [`Ring::arm`](crate::Ring::arm).
    #[inline]
    fn arm(&mut self) -> bool {
        self.disarm();
        if self.has_frame() {
            return true;
        }
        self.announce();
        // A frame that came before the announcement wakes nobody.
        let found = self.has_frame();
        if found {
            self.disarm();
        }
        found
    }
}

#[cfg(test)]
mod loom_tests;
