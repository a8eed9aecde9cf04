//! [`Counters`]: what the threads of the watch count; other threads read it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::causes::{Cause, Causes};

/// What the watch has counted since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages received from the kernel.
    pub messages: u64,
    /// Messages that were no change.
    pub ignored: u64,
    /// Bumps.
    pub bumps: u64,
    /// Times that messages were lost and everything was read again.
    pub overruns: u64,
    /// Bumps by cause, in the order of [`Cause::ALL`]; a bump may have several.
    pub causes: [u64; Cause::ALL.len()],
}

/// Only the threads of the watch write them.
#[derive(Debug, Default)]
pub(super) struct Counters {
    messages: AtomicU64,
    ignored: AtomicU64,
    bumps: AtomicU64,
    overruns: AtomicU64,
    causes: [AtomicU64; Cause::ALL.len()],
}

impl Counters {
    pub(super) fn message(&self, changed: bool) {
        add(&self.messages, 1);
        add(&self.ignored, u64::from(!changed));
    }

    pub(super) fn overrun(&self) {
        add(&self.overruns, 1);
    }

    pub(super) fn bumped(&self, causes: Causes) {
        add(&self.bumps, 1);
        causes.iter().for_each(|cause| add(&self.causes[cause as usize], 1));
    }

    pub(super) fn read(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            messages: load(&self.messages),
            ignored: load(&self.ignored),
            bumps: load(&self.bumps),
            overruns: load(&self.overruns),
            causes: self.causes.each_ref().map(load),
        }
    }
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}
