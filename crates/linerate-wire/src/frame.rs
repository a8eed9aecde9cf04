//! [`Frame`]: a captured frame with its metadata, whichever ring or file lends it.

use alloc::vec::Vec;
use core::fmt;

use crate::virtio;

/// Nanoseconds since the Unix epoch (UTC), as the kernel or the network card stamped the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Whole seconds since the epoch.
    pub const fn seconds(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// The nanoseconds past [`Timestamp::seconds`], `0..1_000_000_000`.
    pub const fn subsecond_nanos(self) -> u32 {
        (self.0 % 1_000_000_000) as u32
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.seconds(), self.subsecond_nanos())
    }
}

/// Which way a frame was going when it was captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The source cannot tell.
    #[default]
    Unknown,
    /// Received by the interface.
    Inbound,
    /// Sent by this host.
    Outbound,
}

/// What a tracing source knows of a frame beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// An XDP program started with the frame, which is as it came.
    XdpEntry {
        /// A number that the frame's exit has, too.
        packet: u64,
    },
    /// An XDP program returned, and the frame is as it left.
    XdpExit {
        /// A number that the frame's entry has, too.
        packet: u64,
        /// `XDP_*` of `linux/bpf.h`, or what else the program returned.
        verdict: u32,
    },
    /// The kernel dropped the packet.
    Drop {
        /// The kernel's number (`enum skb_drop_reason`).
        reason: u32,
        /// The address of the code that dropped it.
        location: u64,
        /// Index of the interface that it was on; 0 where the kernel does not know.
        interface: u32,
    },
}

/// A captured frame, lent by a ring for as long as its batch lives, or by the reader of a file.
///
/// The bytes start at the link-layer header, with the VLAN tag in its place even where the kernel
/// had moved it to metadata. Almost every frame is one contiguous piece ([`Frame::head`]); a
/// multi-buffer AF_XDP frame goes on in [`Frame::tail`].
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    head: &'a [u8],
    tail: &'a [&'a [u8]],
    /// Length on the wire in bytes; larger than [`Frame::len`] when the frame was cut.
    pub wire_len: u32,
    /// When it arrived; `None` where nobody asked the kernel for a stamp.
    pub timestamp: Option<Timestamp>,
    /// Inbound or outbound.
    pub direction: Direction,
    /// Index of the interface that it was on, where a packet socket says so; else 0.
    pub interface: u32,
    /// Index of the receive queue it came from, 0 where the source does not say.
    pub queue: u16,
    /// Whether the kernel kept the outer VLAN tag beside the frame, where a packet socket says so.
    pub tag_beside: Option<bool>,
    /// The transport checksum is not filled in yet (a local sender left it to hardware).
    pub checksum_partial: bool,
    /// How the frame is to be segmented and its checksum filled in, offsets from its first byte;
    /// `None` where nobody asked the kernel for it.
    pub virtio: Option<virtio::Header>,
    /// What happened to it, where the source traces that.
    pub trace: Option<TraceEvent>,
}

impl<'a> Frame<'a> {
    /// A frame in one piece; `wire_len` is its length, everything else unknown.
    pub fn new(head: &'a [u8]) -> Self {
        Self {
            head,
            tail: &[],
            wire_len: head.len() as u32,
            timestamp: None,
            direction: Direction::Unknown,
            interface: 0,
            queue: 0,
            tag_beside: None,
            checksum_partial: false,
            virtio: None,
            trace: None,
        }
    }

    /// The same frame with the pieces that follow the first one.
    pub fn with_tail(mut self, tail: &'a [&'a [u8]]) -> Self {
        self.tail = tail;
        self.wire_len = self.len() as u32;
        self
    }

    /// The first contiguous piece: the whole frame unless [`Frame::tail`] has more.
    pub fn head(&self) -> &'a [u8] {
        self.head
    }

    /// The pieces after the first, in order; empty for all but multi-buffer frames.
    pub fn tail(&self) -> &'a [&'a [u8]] {
        self.tail
    }

    /// Captured length in bytes, over all pieces.
    pub fn len(&self) -> usize {
        self.head.len() + self.tail.iter().map(|piece| piece.len()).sum::<usize>()
    }

    /// Whether no byte was captured.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All bytes in one slice: borrowed where the frame is one piece, else gathered in `scratch`.
    pub fn contiguous<'s>(&self, scratch: &'s mut Vec<u8>) -> &'s [u8]
    where
        'a: 's,
    {
        if self.tail.is_empty() {
            return self.head;
        }
        scratch.clear();
        scratch.extend_from_slice(self.head);
        self.tail.iter().for_each(|piece| scratch.extend_from_slice(piece));
        scratch
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn contiguous_borrows_one_piece_and_gathers_several() {
        let mut scratch = Vec::new();
        let one = Frame::new(b"abc");
        assert_eq!(one.contiguous(&mut scratch), b"abc");
        let tail: [&[u8]; 2] = [b"de", b"f"];
        let many = Frame::new(b"abc").with_tail(&tail);
        assert_eq!((many.len(), many.wire_len), (6, 6));
        assert_eq!(many.contiguous(&mut scratch), b"abcdef");
    }

    #[test]
    fn timestamp_prints_all_nine_digits() {
        assert_eq!(Timestamp(1_000_000_005).to_string(), "1.000000005");
    }
}
