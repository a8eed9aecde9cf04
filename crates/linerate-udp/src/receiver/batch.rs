//! [`Batch`]: messages lent until it is dropped.

use crate::message::Message;
use crate::socket::Slots;
use crate::uring::Uring;
use crate::xdp::PortBatch;

/// Counted while messages are lent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) truncated: u64,
    pub(super) waits: u64,
}

/// Messages lent by a [`Receiver`](crate::Receiver), taken in order with [`Batch::next`].
#[derive(Debug)]
pub struct Batch<'r> {
    from: From<'r>,
    counts: &'r mut Counts,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "made once a batch, on the stack")]
pub(super) enum From<'r> {
    Nothing,
    Slots(&'r mut Slots),
    Uring(&'r mut Uring),
    Port(PortBatch<'r>),
}

impl<'r> Batch<'r> {
    #[inline]
    pub(super) fn new(from: From<'r>, counts: &'r mut Counts) -> Self {
        Self { from, counts }
    }

    /// The next message, or `None` at the end of the batch.
    #[allow(clippy::should_implement_trait, reason = "lends, as Iterator cannot")]
    #[inline]
    pub fn next(&mut self) -> Option<Message<'_>> {
        let message = match &mut self.from {
            From::Nothing => None,
            From::Slots(slots) => slots.next(),
            From::Uring(uring) => uring.next(),
            From::Port(port) => port.next(),
        }?;
        self.counts.messages += 1;
        self.counts.bytes += message.payload.len() as u64;
        self.counts.truncated += u64::from(message.truncated);
        Some(message)
    }

    /// Whether nothing came. A batch of `xdp` may have no message though it is not empty, where all that
    /// came had wrong checksums.
    pub fn is_empty(&self) -> bool {
        matches!(self.from, From::Nothing)
    }
}
