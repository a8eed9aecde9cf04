//! What comes out of a coalescer.

use core::ops::Range;

/// What a coalescer hands over: each frame that went in comes out exactly once, on its own or as a
/// part of a super-packet, and the frames of a flow come out in the order in which they went in.
#[derive(Clone, Copy, Debug)]
pub enum Output<'c> {
    /// A frame as it came, not a byte changed.
    Frame {
        /// The caller's name for it.
        token: u64,
        /// Why it comes out alone.
        reason: Reason,
    },
    /// Two or more frames as one.
    Super(SuperPacket<'c>),
}

/// Why a frame or a super-packet came out when it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It is not a packet that can be joined at all: neither TCP nor UDP, a fragment, with IPv4
    /// options, cut short, with bytes behind the packet, or with headers over
    /// [`MAX_HEADER`](crate::coalesce::MAX_HEADER) bytes.
    Protocol,
    /// No payload: a pure acknowledgement, or an empty datagram.
    Empty,
    /// A checksum is wrong, missing (UDP's 0), or written in a way that nobody computes.
    Checksum,
    /// SYN, RST or URG, or CWR behind another segment.
    Flags,
    /// PSH, FIN or a segment shorter than the first: nothing can follow it.
    End,
    /// The next packet of the flow could not be joined: it came alone behind this.
    Followed,
    /// The next packet of the flow differs in a header field that all segments share: type of
    /// service, hop limit, DF, acknowledgement, window, flags, TCP options.
    Header,
    /// The next packet's sequence number, or IPv4 identification, is not the one that follows.
    Sequence,
    /// The next packet of the flow is longer than the first.
    Longer,
    /// The next packet did not fit into the configured length or number of segments.
    Full,
    /// A new flow needed its place.
    Room,
    /// Its time was up: [`flush_before`](crate::coalesce::Coalescer::flush_before) or
    /// [`flush_all`](crate::coalesce::Coalescer::flush_all).
    Time,
}
