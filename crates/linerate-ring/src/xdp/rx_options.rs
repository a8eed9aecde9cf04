//! [`RxOptions`]: what the builders of one socket and of a source of several can ask for alike.

use super::{BusyPoll, CopyMode};
use crate::wait::WaitStrategy;

/// How frames are to be received.
#[derive(Clone, Copy, Debug)]
pub(super) struct RxOptions {
    pub(super) copy_mode: CopyMode,
    pub(super) multi_buffer: bool,
    pub(super) busy_poll: Option<BusyPoll>,
    pub(super) wait_strategy: WaitStrategy,
    /// Descriptors in a batch at most, 1 or more.
    pub(super) batch: u32,
    /// How far ahead to fetch frames into the cache; 0 not at all.
    pub(super) prefetch: u32,
}

impl Default for RxOptions {
    fn default() -> Self {
        Self {
            copy_mode: CopyMode::Auto,
            multi_buffer: true,
            busy_poll: None,
            wait_strategy: WaitStrategy::default(),
            batch: 256,
            prefetch: 0,
        }
    }
}

/// The setters of a builder that keeps them in its field `rx_options`.
macro_rules! rx_setters {
    () => {
        /// Whether a copy in the kernel is acceptable.
        pub fn copy_mode(mut self, copy_mode: CopyMode) -> Self {
            self.rx_options.copy_mode = copy_mode;
            self
        }

        /// Whether to ask for frames longer than a chunk (default: on), where the kernel has it.
        pub fn multi_buffer(mut self, on: bool) -> Self {
            self.rx_options.multi_buffer = on;
            self
        }

        /// Busy polling (default: off).
        pub fn busy_poll(mut self, busy_poll: Option<BusyPoll>) -> Self {
            self.rx_options.busy_poll = busy_poll;
            self
        }

        /// How `wait` waits.
        pub fn wait_strategy(mut self, strategy: WaitStrategy) -> Self {
            self.rx_options.wait_strategy = strategy;
            self
        }

        /// Descriptors in a batch at most, one for each frame that fits in a chunk (default: 256).
        /// 64 to 512 make sense.
        pub fn batch(mut self, descriptors: u32) -> Self {
            self.rx_options.batch = descriptors.max(1);
            self
        }

        /// How many frames ahead to fetch into the cache while frames are read (default: 0). Of use to a reader that looks into frames.
        pub fn prefetch(mut self, frames: u32) -> Self {
            self.rx_options.prefetch = frames;
            self
        }
    };
}
pub(super) use rx_setters;
