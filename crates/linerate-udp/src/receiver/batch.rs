//! [`Batch`]: messages lent until it is dropped.

use super::engine::Source;
use crate::message::Message;

/// Counted while messages are lent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counters {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) truncated: u64,
    /// Of the messages, those that bypassed the stack (`xdp`).
    pub(super) ring: u64,
}

/// Messages lent by a [`Receiver`](crate::Receiver), taken in order with [`Batch::next`].
#[derive(Debug)]
pub struct Batch<'r> {
    source: Source<'r>,
    is_ring: bool,
    counters: &'r mut Counters,
}

impl<'r> Batch<'r> {
    #[inline]
    pub(super) fn new(source: Source<'r>, counters: &'r mut Counters) -> Self {
        Self { is_ring: matches!(source, Source::Xdp(_)), source, counters }
    }

    /// The next message, or `None` at the end of the batch.
    #[allow(clippy::should_implement_trait, reason = "lends, as Iterator cannot")]
    #[inline]
    pub fn next(&mut self) -> Option<Message<'_>> {
        let message = self.source.next()?;
        self.counters.messages += 1;
        self.counters.bytes += message.payload.len() as u64;
        self.counters.ring += u64::from(self.is_ring);
        self.counters.truncated += u64::from(message.truncated);
        Some(message)
    }

    /// Whether nothing arrived. A batch of `xdp` may have no message although it is not empty: all frames may
    /// have had wrong checksums.
    pub fn is_empty(&self) -> bool {
        matches!(self.source, Source::Empty)
    }
}
