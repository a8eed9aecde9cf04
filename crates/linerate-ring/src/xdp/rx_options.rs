//! [`RxOptions`]: what a socket needs to know of [`Options`], frame by frame.

use std::time::Duration;

use super::CopyMode;
use crate::options::Options;
use crate::wait::WaitStrategy;

/// How frames are to be received.
#[derive(Clone, Copy, Debug)]
pub(super) struct RxOptions {
    pub(super) copy_mode: CopyMode,
    pub(super) multi_buffer: bool,
    pub(super) busy_poll: Option<Duration>,
    pub(super) wait_strategy: WaitStrategy,
    /// Descriptors in a batch at most, 1 or more.
    pub(super) batch: u32,
    /// How far ahead to fetch frames into the cache; 0 not at all.
    pub(super) prefetch: u32,
}

impl RxOptions {
    pub(super) fn new(options: &Options, copy_mode: CopyMode) -> Self {
        let &Options { contiguous, busy_poll, wait_strategy, batch, prefetch, .. } = options;
        let (multi_buffer, batch) = (!contiguous, batch.max(1));
        Self { copy_mode, multi_buffer, busy_poll, wait_strategy, batch, prefetch }
    }
}
