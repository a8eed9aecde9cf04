//! [`Queue`]: collected messages, in the memory that they are sent from.

use crate::options::MAX_MESSAGE_SIZE;
use crate::outgoing::Limits;
use crate::transmit::Transmit;

/// The most bytes of a buffer: a batch of more is sent in parts.
const MAX_BUFFER: usize = 64 << 20;

/// Consecutive messages of one size to one destination in the buffer; the last may be shorter. Several are sent as one
/// super-datagram (GSO).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Where the first message starts, in bytes.
    pub(crate) start: usize,
    /// Where the last message ends.
    pub(crate) end: usize,
    /// Bytes of each message but the last.
    pub(crate) segment_size: usize,
    /// The number of messages.
    pub(crate) segments: usize,
    /// Their destination.
    head: Transmit<'static>,
}

impl Run {
    /// Bytes of all messages.
    pub(crate) const fn len(&self) -> usize {
        self.end - self.start
    }

    /// The messages, which are in `buffer`.
    #[inline]
    pub(crate) fn transmit<'b>(&self, buffer: &'b [u8]) -> Transmit<'b> {
        let segment_size = (self.segments > 1).then_some(self.segment_size);
        Transmit { segment_size, ..self.head.with(&buffer[self.start..self.end]) }
    }
}

/// A buffer, and the runs in it.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) buffer: Vec<u8>,
    pub(crate) runs: Vec<Run>,
    /// Messages in the runs.
    pub(crate) messages: usize,
    pub(crate) batch: usize,
}

impl Queue {
    /// Room for `batch` messages of `message_size` bytes, as far as the limit of the buffer allows.
    pub(crate) fn new(batch: usize, message_size: usize) -> Self {
        let buffer = vec![0; (batch * message_size).min(MAX_BUFFER)];
        Self { buffer, runs: Vec::with_capacity(batch), messages: 0, batch }
    }

    /// Whether an empty queue has room for a message of `len` bytes.
    #[inline]
    pub(crate) fn fits(&self, len: usize) -> bool {
        len <= self.buffer.len()
    }

    /// Whether there is room for one more.
    #[inline]
    pub(crate) fn has_room(&self, len: usize) -> bool {
        let end = self.runs.last().map_or(0, |run| run.end);
        self.messages < self.batch && end + len <= self.buffer.len()
    }

    /// Whether there is room for several messages of `len` bytes together.
    #[cfg(feature = "tokio")]
    pub(crate) fn has_room_for(&self, messages: usize, len: usize) -> bool {
        let end = self.runs.last().map_or(0, |run| run.end);
        self.messages + messages <= self.batch && end + len <= self.buffer.len()
    }

    /// Whether the last run goes the way of `head`.
    #[inline]
    pub(crate) fn goes_with_last(&self, head: &Transmit<'static>) -> bool {
        self.runs.last().is_some_and(|run| run.head.goes_with(head))
    }

    /// The memory for a message of `len` bytes; the caller checked that there is room. `same`: it may join the last
    /// run.
    #[inline]
    pub(crate) fn push(
        &mut self,
        head: &Transmit<'static>,
        same: bool,
        len: usize,
        limits: Limits,
    ) -> &mut [u8] {
        self.messages += 1;
        let start = match self.runs.last_mut() {
            // A shorter message ends a run: only the last segment may be shorter.
            Some(run)
                if same
                    && len <= run.segment_size
                    && len != 0
                    && run.segment_size < limits.unsegmented_from
                    && run.len() == run.segment_size * run.segments
                    && run.segments < limits.max_segments
                    && run.len() + len <= MAX_MESSAGE_SIZE - 1000 =>
            {
                let start = run.end;
                run.end += len;
                run.segments += 1;
                start
            }
            last => {
                let start = last.map_or(0, |run| run.end);
                let (end, segment_size) = (start + len, len);
                self.runs.push(Run { start, end, segment_size, segments: 1, head: *head });
                start
            }
        };
        &mut self.buffer[start..start + len]
    }

    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.messages = 0;
    }
}
