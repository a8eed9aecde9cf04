//! [`Reception`]: what the builders of one socket and of a source of several can ask for alike.

use super::{BusyPoll, Copying, Pace};

/// How frames are to be received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reception {
    pub(super) copying: Copying,
    pub(super) multi_buffer: bool,
    pub(super) busy_poll: Option<BusyPoll>,
    pub(super) pace: Pace,
    /// Descriptors in a batch at most, 1 or more.
    pub(super) batch: u32,
    /// How far ahead to fetch frames into the cache; 0 not at all.
    pub(super) prefetch: u32,
}

impl Default for Reception {
    fn default() -> Self {
        Self {
            copying: Copying::Auto,
            multi_buffer: true,
            busy_poll: None,
            pace: Pace::default(),
            batch: 256,
            prefetch: 0,
        }
    }
}

/// The setters of a builder that keeps them in its field `reception`.
macro_rules! reception_setters {
    () => {
        /// Whether a copy in the kernel is acceptable.
        pub fn copying(mut self, copying: Copying) -> Self {
            self.reception.copying = copying;
            self
        }

        /// Whether to ask for frames longer than a chunk (default: on), where the kernel has it.
        pub fn multi_buffer(mut self, on: bool) -> Self {
            self.reception.multi_buffer = on;
            self
        }

        /// Busy polling (default: off).
        pub fn busy_poll(mut self, busy_poll: Option<BusyPoll>) -> Self {
            self.reception.busy_poll = busy_poll;
            self
        }

        /// How `wait` waits.
        pub fn pace(mut self, pace: Pace) -> Self {
            self.reception.pace = pace;
            self
        }

        /// Descriptors in a batch at most, one for each frame that fits in a chunk (default: 256).
        /// 64 to 512 make sense.
        pub fn batch(mut self, descriptors: u32) -> Self {
            self.reception.batch = descriptors.max(1);
            self
        }

        /// How many frames ahead to fetch into the cache while frames are read (default: 0). Of use to a reader that looks into frames.
        pub fn prefetch(mut self, frames: u32) -> Self {
            self.reception.prefetch = frames;
            self
        }
    };
}
pub(super) use reception_setters;
