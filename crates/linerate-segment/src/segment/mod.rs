//! Splitting: one super-packet in, the segments or fragments that go on the wire out.
//!
//! [`Segments::new`] reads the headers once and prepares what all segments share; after that a segment
//! costs a copy of the prepared header, a few additions, and the payload. There are three ways to take
//! them, which may be mixed: [`Segments::write_next`] into a buffer of the caller (a UMEM frame), with
//! the payload copied and summed in one pass; [`Segments::next_parts`], a header and the slice of
//! payload that belongs to it, for scatter-gather; and [`Iterator`], the same with an owned header.
//!
//! The rules are those of Linux (`tcp_gso_segment`, `__udp_gso_segment`, `inet_gso_segment`,
//! `ipv6_gso_segment`, `skb_udp_tunnel_segment`, `gre_gso_segment`, `ip_fragment`):
//!
//! - TCP: sequence numbers go on modulo 2³²; PSH and FIN stand on the last segment, CWR on the first
//!   (on all with Accurate ECN); everything else, URG and options included, is repeated. A SYN is
//!   refused where there would be two.
//! - UDP into datagrams: each has its own length and checksum. A checksum of 0, which means none, stays.
//! - IPv4 identifications go on or stay, per header; lengths and header checksums follow. IPv6
//!   extension headers are repeated.
//! - One tunnel may be around: VXLAN, Geneve, GRE without sequence numbers, IP in IP. An outer UDP
//!   checksum of 0 stays 0; every other, and that of GRE, is made anew.
//! - Fragments share one identification. The checksum of the whole UDP datagram or TCP segment is
//!   completed first. IPv4 options without the copied flag become no-operations after the first
//!   fragment. Every fragment but the last carries a multiple of 8 bytes.
//! - Bytes behind the IP packet in an Ethernet frame (padding) are dropped.
//! - A packet that fits comes out as one piece, its checksums done.

mod options;

pub use options::{Checksums, GENEVE_PORT, IpId, Link, Options, Split, VXLAN_PORT};

use crate::Result;

/// Most bytes of headers, link header included, in front of the payload of a segment: two VLAN tags,
/// IPv6, Geneve with all options, another Ethernet and IPv6 header and TCP with all options fit.
pub const MAX_HEADER_LEN: usize = 512;

/// The segments of one super-packet that are still to come.
#[derive(Clone, Debug)]
pub struct Segments<'p> {
    rest: &'p [u8],
    left: usize,
}

/// A segment in two pieces; on the wire they follow each other.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'s, 'p> {
    /// All headers, link header included. Valid until the next segment is asked for.
    pub header: &'s [u8],
    /// The payload, in the super-packet.
    pub payload: &'p [u8],
}

/// A segment that owns its header.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'p> {
    header: [u8; MAX_HEADER_LEN],
    header_len: usize,
    payload: &'p [u8],
}

/// What hardware has to finish: the ones' complement sum of the bytes from `start` to the end of the
/// segment, its complement written at `start + offset`. The numbers of `virtio_net_hdr` and `xsk_tx_metadata`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Partial {
    /// Where the transport header starts, in bytes from the start of the segment.
    pub start: u16,
    /// Where its checksum stands, in bytes from there.
    pub offset: u16,
}

impl<'p> Segments<'p> {
    /// Prepares the segments of `packet`.
    ///
    /// # Errors
    /// Any of [`Error`](crate::Error) but `BufferTooSmall`; then the packet cannot be split as asked.
    pub fn new(packet: &'p [u8], options: &Options) -> Result<Self> {
        let _ = (packet, options);
        unimplemented!()
    }

    /// Length in bytes of the longest segment to come, link header included.
    pub fn max_len(&self) -> usize {
        unimplemented!()
    }

    /// What is left to finish in every segment; `None` but with [`Checksums::Partial`].
    pub fn partial(&self) -> Option<Partial> {
        unimplemented!()
    }

    /// Writes the next segment to the start of `out` and returns its length in bytes; `None` after the
    /// last. Bytes of `out` behind the segment may be written as well.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`](crate::Error::BufferTooSmall), after which the same segment can be
    /// asked for again.
    pub fn write_next(&mut self, out: &mut [u8]) -> Result<Option<usize>> {
        let _ = out;
        unimplemented!()
    }

    /// The next segment as header and payload; `None` after the last. With [`Checksums::Full`] the
    /// payload is read once for its sum.
    pub fn next_parts(&mut self) -> Option<Parts<'_, 'p>> {
        unimplemented!()
    }
}

impl<'p> Iterator for Segments<'p> {
    type Item = Segment<'p>;

    fn next(&mut self) -> Option<Segment<'p>> {
        unimplemented!()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Segments<'_> {}
impl core::iter::FusedIterator for Segments<'_> {}

impl<'p> Segment<'p> {
    /// All headers, link header included.
    pub fn header(&self) -> &[u8] {
        &self.header[..self.header_len]
    }

    /// The payload, in the super-packet.
    pub fn payload(&self) -> &'p [u8] {
        self.payload
    }
}
