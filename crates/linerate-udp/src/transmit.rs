//! [`Transmit`]: what a sender hands to the kernel at once.

/// Messages of one size, one after the other in the sender's buffer; the last may be shorter. More than one
/// go out as a super-datagram (GSO).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transmit {
    /// Where the first message starts, in bytes.
    pub(crate) start: usize,
    /// Where the last message ends.
    pub(crate) end: usize,
    /// Bytes of each message but the last.
    pub(crate) segment_size: usize,
    /// The number of messages.
    pub(crate) segments: usize,
}

impl Transmit {
    /// Bytes of all messages.
    pub(crate) const fn len(&self) -> usize {
        self.end - self.start
    }
}
