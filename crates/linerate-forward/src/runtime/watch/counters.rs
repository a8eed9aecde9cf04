//! [`Counters`]: what the threads of the watch count; other threads read it.

use std::sync::{Mutex, PoisonError};

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

/// They change only while there are messages.
#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<Counts>);

impl Counters {
    fn change(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn message(&self, changed: bool) {
        self.change(|counts| {
            counts.messages += 1;
            counts.ignored += u64::from(!changed);
        });
    }

    pub(super) fn overrun(&self) {
        self.change(|counts| counts.overruns += 1);
    }

    pub(super) fn bumped(&self, causes: Causes) {
        self.change(|counts| {
            counts.bumps += 1;
            causes.iter().for_each(|cause| counts.causes[cause as usize] += 1);
        });
    }

    pub(super) fn read(&self) -> Counts {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
