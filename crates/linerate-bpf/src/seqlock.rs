//! A sequence lock in memory that BPF programs share: one counter, odd while somebody writes.
//!
//! A writer takes the lock by compare-and-swap from an even number to the next odd one, and releases it with
//! the even number after that. A writer that does not get the lock does not wait. Readers never write: they
//! copy, and check that the counter has not changed. A writer that dies leaves the counter odd; call
//! [`WriteGuard::take_over`] only if the writer is known to be dead.
//!
//! The protected data is read and written as atomics; [`Relaxed`] is enough: a reader may see half of a
//! change, but never keeps it. Generic over the counter, so loom tests the same code.

use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, fence};

/// The counter of a lock.
pub trait SeqCount {
    /// An atomic load.
    fn load(&self, ordering: Ordering) -> u32;
    /// An atomic store.
    fn store(&self, value: u32, ordering: Ordering);
    /// Compare-and-swap: whether it was `current` and is now `new`.
    fn exchange(&self, current: u32, new: u32) -> bool;
    /// Orders accesses to the data of all locks.
    fn fence(ordering: Ordering);
}

impl SeqCount for AtomicU32 {
    #[inline]
    fn load(&self, ordering: Ordering) -> u32 {
        Self::load(self, ordering)
    }

    #[inline]
    fn store(&self, value: u32, ordering: Ordering) {
        Self::store(self, value, ordering);
    }

    #[inline]
    fn exchange(&self, current: u32, new: u32) -> bool {
        self.compare_exchange(current, new, AcqRel, Relaxed).is_ok()
    }

    #[inline]
    fn fence(ordering: Ordering) {
        fence(ordering);
    }
}

/// A consistent result of `copy`, with its version number; `None` if a writer interfered in each of `tries`
/// attempts.
#[inline]
pub fn read<W: SeqCount, T>(
    count: &W,
    tries: u32,
    mut copy: impl FnMut() -> Option<T>,
) -> Option<(u32, T)> {
    for _ in 0..tries {
        // Acquire: nothing of the copy is read before this.
        let version = count.load(Acquire);
        if version % 2 == 1 {
            std::hint::spin_loop();
            continue;
        }
        let copied = copy();
        // Acquire: nothing of the copy is read after the load that follows. With a writer's fence or full
        // barrier before its first write, whoever saw one of its writes sees its odd number here.
        W::fence(Acquire);
        if count.load(Relaxed) == version {
            return copied.map(|copied| (version, copied));
        }
    }
    None
}

/// The right to write; dropping it releases the lock.
#[derive(Debug)]
pub struct WriteGuard<'w, W: SeqCount> {
    count: &'w W,
    odd: u32,
}

impl<'w, W: SeqCount> WriteGuard<'w, W> {
    /// Takes the lock if nobody has it and it was last released with the number `version`.
    #[inline]
    pub fn try_lock_at_version(count: &'w W, version: u32) -> Option<Self> {
        if version % 2 == 1 {
            return None;
        }
        Self::exchange(count, version, version.wrapping_add(1))
    }

    /// Takes the lock over from a writer that died and left `odd`.
    pub fn take_over(count: &'w W, odd: u32) -> Option<Self> {
        if odd.is_multiple_of(2) {
            return None;
        }
        Self::exchange(count, odd, odd.wrapping_add(2))
    }

    #[inline]
    fn exchange(count: &'w W, from: u32, odd: u32) -> Option<Self> {
        if !count.exchange(from, odd) {
            return None;
        }
        // Release: no write behind the lock is seen before the odd number is.
        W::fence(Release);
        Some(Self { count, odd })
    }
}

impl<W: SeqCount> Drop for WriteGuard<'_, W> {
    #[inline]
    fn drop(&mut self) {
        self.count.store(self.odd.wrapping_add(1), Release);
    }
}

#[cfg(test)]
mod loom_tests;

#[cfg(test)]
mod tests;
