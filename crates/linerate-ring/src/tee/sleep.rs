//! [`SleepProtocol`]: how a reader says that it sleeps, so that the programs wake it then and only then.
//!
//! A reader sets a word (`waiting` of `struct tee_reader`), and looks at the rings once more. A program commits a frame,
//! and looks at the word. There is a full barrier between the two steps of each: one of the two sees the other. The
//! program that sees the word clears it, and commits an empty record that carries the wake-up (`bpf/records.h`). So a
//! wake-up ends the announcement, also where the reader had other reasons to awake.
//!
//! The protocol is generic over the rings, so that loom can run it over its own atomics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How often a reader polls for a frame that is withheld, before it sleeps: for some 100 µs. Longer, a clock that was set
/// back would keep it here.
const MAX_POLLS: u32 = 1000;

/// What a reader has announced. It alone writes these.
#[derive(Debug, Default)]
pub(super) struct SleepState {
    /// The reader has announced that it sleeps.
    announced: AtomicBool,
    /// [`SleepProtocol::wakeups`] at the announcement.
    wakeups_passed: AtomicU64,
}

/// A reader of rings that sleeps.
pub(super) trait SleepProtocol {
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

    /// To be called before the last look.
    fn announce_sleep(&self) {
        let state = self.sleep_state();
        state.announced.store(true, Ordering::Relaxed);
        state.wakeups_passed.store(self.wakeups(), Ordering::Relaxed);
        self.set_waiting();
    }

    /// The reader is awake. Writes nothing if it did not announce otherwise: the programs read the words for each frame.
    #[inline]
    fn cancel_sleep(&self) {
        let announced = &self.sleep_state().announced;
        if announced.load(Ordering::Relaxed) {
            announced.store(false, Ordering::Relaxed);
            self.clear_waiting();
        }
    }

    /// Whether a frame can be read. If not, and the reader has announced that it sleeps, the next frame wakes it.
    #[inline]
    fn has_frame(&mut self) -> bool {
        for _ in 0..MAX_POLLS {
            let found = self.is_readable();
            let SleepState { announced, wakeups_passed } = self.sleep_state();
            if found || !announced.load(Ordering::Relaxed) {
                return found;
            }
            if wakeups_passed.load(Ordering::Relaxed) != self.wakeups() {
                // The program clears the announcement before it commits a wake-up record. If one that is newer than the
                // announcement was passed over, nothing would wake the reader: it announces its sleep again.
                self.announce_sleep();
            } else if !self.is_withholding() {
                return false;
            }
        }
        // The last turn may have announced.
        self.is_readable()
    }

    /// Whether a frame can be read. If not, the reader has announced that it sleeps, and the next frame wakes it. A
    /// reader that sleeps only after this returned false is not woken while it is awake: a wake-up costs the core that
    /// sends it more than a frame does.
    #[inline]
    fn poll_or_announce_sleep(&mut self) -> bool {
        self.cancel_sleep();
        if self.has_frame() {
            return true;
        }
        self.announce_sleep();
        // A frame that came before the announcement wakes nobody.
        let found = self.has_frame();
        if found {
            self.cancel_sleep();
        }
        found
    }
}

#[cfg(test)]
mod loom_tests;
