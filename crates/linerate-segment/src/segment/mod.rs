//! Splitting: one super-packet in, the segments or fragments that go on the wire out.
//!
//! [`Segments::new`] reads the headers once and prepares what all segments share; after that a segment
//! costs a copy of the prepared header, a few additions, and the payload. There are three ways to take
//! them, which may be mixed: [`Segments::write_next`] into a buffer of the caller (a UMEM frame), with
//! the payload copied and summed in one pass, or [`Segments::write_all`] into many;
//! [`Segments::next_view`], a header and the slice of
//! payload that belongs to it, for scatter-gather; and [`Iterator`], the same with an owned header.
//!
//! The rules are those of Linux (`tcp_gso_segment`, `__udp_gso_segment`, `inet_gso_segment`,
//! `ipv6_gso_segment`, `skb_udp_tunnel_segment`, `gre_gso_segment`, `ip_fragment`):
//!
//! - TCP: sequence numbers continue modulo 2³²; PSH and FIN are set on the last segment, CWR on the first (on
//!   all with Accurate ECN); everything else, URG and options included, is repeated. A SYN is refused where
//!   there would be two.
//! - UDP into datagrams: each has its own length and checksum. A checksum of 0, which means none, stays.
//! - IPv4 identifications count up or stay, per header; lengths and header checksums are computed. IPv6
//!   extension headers are repeated.
//! - One level of tunnel is supported: VXLAN, Geneve, GTP-U and GRE without sequence numbers, GUE, IP in IP. An outer UDP
//!   checksum of 0 stays 0; every other, and that of GRE, is recomputed.
//! - Fragments share one identification. The checksum of the whole UDP datagram or TCP segment is
//!   completed first. IPv4 options without the copied flag become no-operations after the first
//!   fragment. Every fragment but the last carries a multiple of 8 bytes.
//! - Bytes after the IP packet in an Ethernet frame (padding) are dropped.
//! - A packet whose header has no length, or that of a jumbo payload option, is split into segments that have one (BIG
//!   TCP, and senders that leave it to the card).
//! - A packet that fits comes out as one piece, with complete checksums.

mod fragment;
pub(crate) mod layout;
mod options;
mod transport;

pub use options::{Checksums, IpId, LinkType, MAX_HEADER_LEN, Options, Split};

use linerate_wire::checksum::{Engine, Sum};
use linerate_wire::ip::Protocol;
use linerate_wire::offload::PartialChecksum;

use crate::{Error, Result};
use fragment::Fragmenter;
use layout::{Ip, Layout, Length};
use transport::Transport;

/// The segments of one super-packet that are still to come.
#[derive(Clone, Debug)]
pub struct Segments<'p> {
    /// The template, and how much of it the next segment takes.
    header: [u8; MAX_HEADER_LEN],
    header_len: usize,
    kind: Kind,
    engine: Engine,
    /// Payload that is still to go out.
    rest: &'p [u8],
    /// Payload of every segment but the last, a first fragment's lead included.
    size: usize,
    left: usize,
    first: bool,
    max_len: usize,
}

#[derive(Clone, Debug)]
enum Kind {
    Transport(Transport),
    Fragments(Fragmenter),
}

/// A segment in two pieces; on the wire they follow each other.
#[derive(Clone, Copy, Debug)]
pub struct SegmentView<'s, 'p> {
    /// All headers, link header included, and what of the payload had to be changed (the checksum of a
    /// fragmented datagram).
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

impl<'p> Segments<'p> {
    /// Prepares the segments of `packet`.
    ///
    /// # Errors
    /// Any of [`Error`] but `BufferTooSmall`; then the packet cannot be split as asked.
    pub fn new(packet: &'p [u8], options: &Options) -> Result<Self> {
        let outer = layout::outermost(packet, options.link)?;
        let len = outer.end - outer.at;
        if len > options.max_burst as usize {
            return Err(Error::BurstTooLong { len, max: options.max_burst });
        }
        match options.split {
            Split::Tcp { mss } => Self::split_as(packet, outer, Protocol::TCP, mss, options),
            Split::Udp { size } => Self::split_as(packet, outer, Protocol::UDP, size, options),
            Split::Fragments { mtu } => Self::split_network(packet, &outer, mtu, options),
            Split::Mtu(mtu) => match layout::transport(packet, outer, options) {
                Ok(layout) if layout.innermost().protocol == Protocol::TCP => {
                    let jumbo =
                        if outer.length == Length::JumboOption { layout::JUMBO_LEN } else { 0 };
                    let headers = layout.payload - outer.at - jumbo;
                    let room = usize::from(mtu).saturating_sub(headers);
                    let payload = layout.innermost().end - layout.payload;
                    if room == 0 && payload + headers > usize::from(mtu) {
                        return Err(Error::MtuTooSmall { mtu, need: headers + 1 });
                    }
                    Self::split_transport(packet, layout, room.max(1), options)
                }
                _ => Self::split_network(packet, &outer, mtu, options),
            },
        }
    }

    fn split_as(
        packet: &'p [u8],
        outer: Ip,
        wanted: Protocol,
        size: u16,
        options: &Options,
    ) -> Result<Self> {
        if size == 0 {
            return Err(Error::ZeroSize);
        }
        let layout = layout::transport(packet, outer, options)?;
        let found = layout.innermost().protocol;
        if found != wanted {
            return Err(Error::OtherProtocol { wanted, found });
        }
        Self::split_transport(packet, layout, size.into(), options)
    }

    fn split_transport(
        packet: &'p [u8],
        layout: Layout,
        size: usize,
        options: &Options,
    ) -> Result<Self> {
        let rest = &packet[layout.payload..layout.innermost().end];
        if layout.payload > MAX_HEADER_LEN {
            return Err(Error::HeadersTooLong { len: layout.payload });
        }
        let mut header = [0; MAX_HEADER_LEN];
        let layout = layout.copy_headers(packet, &mut header);
        let header_len = layout.payload;
        // No segment is longer than its IP header can say.
        let size = size.min(usize::from(u16::MAX) - (header_len - layout.outer.at));
        let count = rest.len().div_ceil(size).max(1);
        limit(count, options)?;
        let kind = Kind::Transport(Transport::new(&layout, &mut header, count, options)?);
        let max_len = header_len + size.min(rest.len());
        let engine = Engine::detect();
        Ok(Self { header, header_len, kind, engine, rest, size, left: count, first: true, max_len })
    }

    fn split_network(packet: &'p [u8], outer: &Ip, mtu: u16, options: &Options) -> Result<Self> {
        if outer.length == Length::JumboOption || outer.end - outer.at > usize::from(u16::MAX) {
            return Err(Error::Jumbo);
        }
        let mut header = [0; MAX_HEADER_LEN];
        let plan = Fragmenter::plan(packet, outer, mtu, &mut header, options)?;
        limit(plan.count, options)?;
        let fragment::Fragmentation { fragmenter, header_len, payload: rest, size, count } = plan;
        let lead = fragmenter.lead();
        let last = lead + rest.len() - (count - 1) * size;
        let max_len = header_len - lead + if count > 1 { size.max(last) } else { last };
        let (kind, engine) = (Kind::Fragments(fragmenter), Engine::detect());
        Ok(Self { header, header_len, kind, engine, rest, size, left: count, first: true, max_len })
    }

    /// With another engine than the fastest of this CPU, for comparison.
    #[must_use]
    pub fn with_engine(self, engine: Engine) -> Self {
        Self { engine, ..self }
    }

    /// Length in bytes of the longest segment, link header included.
    pub fn max_len(&self) -> usize {
        self.max_len
    }

    /// The checksum that hardware has to finish in every segment; `None` where nothing is, as always without
    /// [`Checksums::Partial`], for fragments, and for datagrams without a checksum.
    pub fn partial_checksum(&self) -> Option<PartialChecksum> {
        match &self.kind {
            Kind::Transport(transport) => transport.partial_checksum(),
            Kind::Fragments(fragmenter) => fragmenter.partial_checksum(),
        }
    }

    /// Writes the next segment to the start of `out` and returns its length in bytes; `None` after the last.
    /// Bytes of `out` after the segment may be written as well.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`], after which the same segment can be asked for again.
    #[inline]
    pub fn write_next(&mut self, out: &mut [u8]) -> Result<Option<usize>> {
        self.write(out, None)
    }

    /// Writes one segment after another, each to the start of its own buffer, until there are no more
    /// segments or no more buffers, and hands each buffer to `written` with the length of its segment.
    /// Takes no more buffers than there are segments.
    ///
    /// This is [`write_next`](Self::write_next) for whom the buffers are known beforehand: while a segment
    /// is copied, the place of the next one is fetched into the first-level cache. What that gains depends
    /// on the size of the segments.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`]. The segments before were written, and the one that did not fit can be asked
    /// for again; its buffer and the next one have been taken.
    #[inline]
    pub fn write_all<'b>(
        &mut self,
        buffers: impl IntoIterator<Item = &'b mut [u8]>,
        mut written: impl FnMut(&'b mut [u8], usize),
    ) -> Result<()> {
        let mut buffers = buffers.into_iter();
        let mut next = if self.left > 0 { buffers.next() } else { None };
        while let Some(out) = next {
            next = if self.left > 1 { buffers.next() } else { None };
            if let Some(len) = self.write(out, next.as_deref())? {
                written(out, len);
            }
        }
        Ok(())
    }

    /// Writes the next segment to `out`, and the one after that will go to `next`.
    #[inline]
    fn write(&mut self, out: &mut [u8], next: Option<&[u8]>) -> Result<Option<usize>> {
        if self.left == 0 {
            return Ok(None);
        }
        let payload_len = self.prepare();
        let need = self.header_len + payload_len;
        if out.len() < need || self.header_len > MAX_HEADER_LEN {
            return Err(Error::BufferTooSmall { need, have: out.len() });
        }
        copy_header(&self.header, self.header_len, out);
        let (header, body) = out[..need].split_at_mut(self.header_len);
        let (payload, rest) = self.rest.split_at(payload_len);
        let last = self.left == 1;
        match &mut self.kind {
            Kind::Transport(transport) => {
                let sum = if !transport.sums() {
                    body.copy_from_slice(payload);
                    Sum::ZERO
                } else if let Some(next) = next.and_then(|next| next.get(self.header_len..)) {
                    self.engine.copy_prefetching(payload, body, next)
                } else {
                    self.engine.copy(payload, body)
                };
                transport.fill(header, sum, self.first, last);
            }
            Kind::Fragments(fragmenter) => {
                body.copy_from_slice(payload);
                fragmenter.fill(header, payload_len, last);
            }
        }
        self.advance(rest);
        Ok(Some(need))
    }

    /// The next segment as header and payload; `None` after the last. With [`Checksums::Full`] the
    /// payload is read once for its sum.
    #[inline]
    pub fn next_view(&mut self) -> Option<SegmentView<'_, 'p>> {
        if self.left == 0 {
            return None;
        }
        let payload_len = self.prepare();
        let (payload, rest) = self.rest.split_at(payload_len);
        let header_len = self.header_len;
        let last = self.left == 1;
        let header = &mut self.header[..header_len];
        match &mut self.kind {
            Kind::Transport(transport) => {
                let sum = if transport.sums() { self.engine.sum(payload) } else { Sum::ZERO };
                transport.fill(header, sum, self.first, last);
            }
            Kind::Fragments(fragmenter) => fragmenter.fill(header, payload_len, last),
        }
        self.advance(rest);
        Some(SegmentView { header: &self.header[..header_len], payload })
    }

    /// Makes the template the one for the next segment; returns the length of its payload.
    #[inline]
    fn prepare(&mut self) -> usize {
        let mut len = if self.left == 1 { self.rest.len() } else { self.size };
        match &mut self.kind {
            Kind::Transport(transport) => {
                transport.set_len(&mut self.header, self.header_len, len);
            }
            Kind::Fragments(fragmenter) => {
                fragmenter.prepare(&mut self.header);
                self.header_len = fragmenter.header_len();
                if self.left > 1 {
                    len -= fragmenter.lead();
                }
            }
        }
        len.min(self.rest.len())
    }

    #[inline]
    fn advance(&mut self, rest: &'p [u8]) {
        self.rest = rest;
        self.left -= 1;
        self.first = false;
    }
}

fn limit(count: usize, options: &Options) -> Result<()> {
    match count > options.max_segments as usize {
        true => Err(Error::TooManySegments { count, max: options.max_segments }),
        false => Ok(()),
    }
}

/// Copies the first `len` bytes of the template to `out`, which holds them. Whole blocks are copied
/// where there is room, because a copy of known length is a few moves and no call; what is too much is
/// overwritten by the payload.
#[inline]
fn copy_header(header: &[u8; MAX_HEADER_LEN], len: usize, out: &mut [u8]) {
    const BLOCK: usize = 64;
    let blocks = len.div_ceil(BLOCK);
    let (from, _) = header.as_chunks::<BLOCK>();
    let (to, _) = out.as_chunks_mut::<BLOCK>();
    if to.len() >= blocks {
        for (to, from) in to.iter_mut().zip(from).take(blocks) {
            *to = *from;
        }
    } else {
        out[..len].copy_from_slice(&header[..len]);
    }
}

impl<'p> Iterator for Segments<'p> {
    type Item = Segment<'p>;

    fn next(&mut self) -> Option<Segment<'p>> {
        let view = self.next_view()?;
        let mut header = [0; MAX_HEADER_LEN];
        let header_len = view.header.len();
        header[..header_len].copy_from_slice(view.header);
        Some(Segment { header, header_len, payload: view.payload })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Segments<'_> {}
impl core::iter::FusedIterator for Segments<'_> {}

impl<'p> Segment<'p> {
    /// All headers, link header included, as [`SegmentView::header`].
    pub fn header(&self) -> &[u8] {
        &self.header[..self.header_len]
    }

    /// The payload, in the super-packet.
    pub fn payload(&self) -> &'p [u8] {
        self.payload
    }
}
