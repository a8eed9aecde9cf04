//! What comes out of a coalescer.

use core::ops::Range;

use linerate_wire::ip::Protocol;
use linerate_wire::{tcp, udp, virtio};

use super::Options;
use crate::segment::layout::{Layout, Version};
use crate::segment::{self, Checksums, IpId, Split};

/// What a coalescer hands over: each frame that went in comes out exactly once, on its own or as a
/// part of a super-packet, and the frames of a flow come out in the order in which they went in.
#[derive(Clone, Copy, Debug)]
pub enum Output<'c> {
    /// A frame as it came, not a byte changed.
    Frame {
        /// The caller's name for it.
        token: u64,
        /// Why it comes out alone.
        reason: FlushReason,
    },
    /// Two or more frames as one.
    Super(SuperPacket<'c>),
}

/// Why a frame or a super-packet came out when it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FlushReason {
    /// It is not a packet that can be joined at all: neither TCP nor UDP, a fragment, with IPv4
    /// options, cut short, with bytes behind the packet, or with headers over 512 bytes.
    Protocol = 0,
    /// No payload: a pure acknowledgement, or an empty datagram.
    NoPayload = 1,
    /// A checksum is wrong, missing (UDP's 0), or written in a way that nobody computes.
    Checksum = 2,
    /// SYN, RST, URG or CWR.
    Flags = 3,
    /// PSH, FIN or a segment shorter than the first: nothing can follow it.
    LastSegment = 4,
    /// The next packet of the flow could not be joined: it came alone behind this.
    Unmergeable = 5,
    /// The next packet of the flow differs in a header field that all segments share: type of
    /// service, hop limit, DF, acknowledgement, window, flags, TCP options.
    Header = 6,
    /// The next packet's sequence number, or IPv4 identification, is not the one that follows.
    Sequence = 7,
    /// The next packet of the flow is longer than the first.
    LargerSegment = 8,
    /// The next packet did not fit into the configured length or number of segments.
    Full = 9,
    /// A new flow needed its place.
    Evicted = 10,
    /// Its time was up, or everything was flushed.
    Flushed = 11,
}

/// Frames of one flow as one: a finished header, and the places of the payload.
#[derive(Clone, Copy, Debug)]
pub struct SuperPacket<'c> {
    pub(super) header: &'c [u8],
    pub(super) tokens: &'c [u64],
    pub(super) layout: &'c Layout,
    pub(super) options: &'c Options,
    pub(super) size: u16,
    pub(super) last: u16,
    pub(super) ids: [IpId; 2],
    pub(super) first_timestamp: u64,
    pub(super) reason: FlushReason,
}

impl<'c> SuperPacket<'c> {
    /// All headers, link header included, with the lengths and checksums of the super-packet.
    pub fn header(&self) -> &'c [u8] {
        self.header
    }

    /// The frames that it was made of, in order; at least two.
    pub fn tokens(&self) -> &'c [u64] {
        self.tokens
    }

    /// The payload: for each frame its name, and which of its bytes come next.
    pub fn payload(&self) -> Payload<'c> {
        Payload { tokens: self.tokens, start: self.header.len(), size: self.size, last: self.last }
    }

    /// Length in bytes, with all headers.
    #[allow(clippy::len_without_is_empty, reason = "it has at least two segments")]
    pub fn len(&self) -> usize {
        let whole = (self.tokens.len() - 1) * usize::from(self.size);
        self.header.len() + whole + usize::from(self.last)
    }

    /// Payload of every segment but the last, in bytes (`gso_size`).
    pub fn segment_size(&self) -> u16 {
        self.size
    }

    /// The time that the first frame came with.
    pub fn first_timestamp(&self) -> u64 {
        self.first_timestamp
    }

    /// Why nothing more was joined.
    pub fn reason(&self) -> FlushReason {
        self.reason
    }

    /// With these, [`Segments`](segment::Segments) makes the frames again, byte for byte,
    /// where the checksums are full.
    pub fn split(&self) -> segment::Options {
        let split = match self.layout.innermost().protocol {
            Protocol::TCP => Split::Tcp { mss: self.size },
            _ => Split::Udp { size: self.size },
        };
        let [outer_id, inner_id] = self.ids;
        segment::Options { split, outer_id, inner_id, ..self.options.parse() }
    }

    /// What a TUN device, a packet socket or a virtual machine has to know; `None` for a packet inside
    /// of a tunnel, for which the basic header has no words. It asks for the checksum where
    /// [`Checksums::Partial`] was chosen, and says that it is right otherwise.
    ///
    /// It cannot tell that identifications were [fixed](IpId::Fixed): they will count up if the kernel
    /// splits the packet again.
    pub fn virtio(&self) -> Option<virtio::Header> {
        if self.layout.tunnel.is_some() {
            return None;
        }
        let ip = &self.layout.outer;
        let (kind, offset) = match (ip.protocol, ip.version) {
            (Protocol::TCP, Version::V4) => (virtio::GsoType::TCPV4, tcp::CHECKSUM_OFFSET),
            (Protocol::TCP, Version::V6) => (virtio::GsoType::TCPV6, tcp::CHECKSUM_OFFSET),
            _ => (virtio::GsoType::UDP_L4, udp::CHECKSUM_OFFSET),
        };
        let header = virtio::Header {
            flags: virtio::Flags::DATA_VALID,
            gso_type: kind,
            hdr_len: self.header.len() as u16,
            gso_size: self.size,
            ..virtio::Header::default()
        };
        Some(match self.options.checksums {
            Checksums::Partial => virtio::Header {
                flags: virtio::Flags::NEEDS_CSUM,
                csum_start: ip.upper as u16,
                csum_offset: offset as u16,
                ..header
            },
            _ => header,
        })
    }

    /// Writes the whole packet to the start of `out`, where it is needed in one piece, and returns its
    /// length; `None` where `out` or a frame is too short. `frame` finds the bytes of a token.
    pub fn write<'f>(
        &self,
        out: &mut [u8],
        mut frame: impl FnMut(u64) -> &'f [u8],
    ) -> Option<usize> {
        let (header, mut rest) = out.split_at_mut_checked(self.header.len())?;
        header.copy_from_slice(self.header);
        for (token, range) in self.payload() {
            let (place, after) = rest.split_at_mut_checked(range.len())?;
            place.copy_from_slice(frame(token).get(range)?);
            rest = after;
        }
        Some(self.len())
    }
}

/// The places of a super-packet's payload: a frame's name, and the bytes of that frame.
#[derive(Clone, Debug)]
pub struct Payload<'c> {
    tokens: &'c [u64],
    start: usize,
    size: u16,
    last: u16,
}

impl Iterator for Payload<'_> {
    type Item = (u64, Range<usize>);

    fn next(&mut self) -> Option<(u64, Range<usize>)> {
        let (&token, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        let len = if rest.is_empty() { self.last } else { self.size };
        Some((token, self.start..self.start + usize::from(len)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.tokens.len(), Some(self.tokens.len()))
    }
}

impl ExactSizeIterator for Payload<'_> {}
impl core::iter::FusedIterator for Payload<'_> {}
