//! Splitting while a capture runs: the kernel says how it would segment each super-packet.

use linerate_ring::Frame;
use linerate_segment::segment::{Options, Segments};
use linerate_wire::checksum::Engine;
use linerate_wire::offload::PartialChecksum;
use linerate_wire::virtio::Header;

use super::link;
use super::statistics::{SplitStatistics, UnsplitReason};

/// Splits the frames of one reader. Frames have to come with virtio headers
/// ([`Options::vnet_hdr`](linerate_ring::packet::Options::vnet_hdr)).
#[derive(Clone, Debug)]
pub struct LiveSplitter {
    linktype: u16,
    engine: Engine,
    statistics: SplitStatistics,
    /// The identification of the next IPv6 packet that becomes fragments.
    fragment_id: u32,
}

impl LiveSplitter {
    /// For an interface of this link type (LINKTYPE registry).
    pub fn new(linktype: u16) -> Self {
        let (engine, statistics) = (Engine::detect(), SplitStatistics::default());
        Self { linktype, engine, statistics, fragment_id: 0 }
    }

    /// The counts since the last call.
    pub fn take_statistics(&mut self) -> SplitStatistics {
        std::mem::take(&mut self.statistics)
    }

    /// Hands over what the wire carries of `frame`, with all checksums, until `take` answers false; then
    /// answers false, too. Nothing is allocated, and payload is not copied: frames come in two segments.
    #[inline]
    pub fn split(&mut self, frame: &Frame<'_>, mut take: impl FnMut(&Frame<'_>) -> bool) -> bool {
        let header = frame.virtio.unwrap_or_default();
        if header.is_gso() {
            return self.split_super_packet(frame, &header, take);
        }
        match header.partial_checksum() {
            Some(partial) => self.complete(frame, partial, take),
            None => take(frame),
        }
    }

    fn split_super_packet(
        &mut self,
        frame: &Frame<'_>,
        header: &Header,
        mut take: impl FnMut(&Frame<'_>) -> bool,
    ) -> bool {
        let mut segments = match self.segments(frame, header) {
            Ok(segments) => segments,
            Err(reason) => {
                self.statistics.refused.add(reason);
                return take(frame);
            }
        };
        self.statistics.super_packets += 1;
        while let Some(parts) = segments.next_view() {
            let tail = [parts.payload];
            let segment = like(frame, Frame::new(parts.header).with_tail(&tail));
            self.statistics.segments += 1;
            if !take(&segment) {
                return false;
            }
        }
        true
    }

    fn segments<'f>(
        &mut self,
        frame: &Frame<'f>,
        header: &Header,
    ) -> Result<Segments<'f>, UnsplitReason> {
        // Packet rings lend whole segments; of anything else only the first could be borrowed.
        if (frame.head().len() as u64) < u64::from(frame.wire_len) {
            return Err(UnsplitReason::Truncated);
        }
        let Some((0, link)) = link::packet(self.linktype, frame.head()) else {
            return Err(UnsplitReason::LinkType);
        };
        let options = Options::from_virtio(header, frame.head(), link);
        let mut options = options.ok_or(UnsplitReason::Protocol)?;
        self.fragment_id = self.fragment_id.wrapping_add(1);
        options.fragment_id = self.fragment_id;
        Ok(Segments::new(frame.head(), &options)?)
    }

    /// A frame of this host's whose checksum the network card would have filled in.
    fn complete(
        &mut self,
        frame: &Frame<'_>,
        partial: PartialChecksum,
        mut take: impl FnMut(&Frame<'_>) -> bool,
    ) -> bool {
        let bytes = frame.head();
        let whole = bytes.len() as u64 == u64::from(frame.wire_len);
        if !whole || !partial.fits(bytes.len()) {
            return take(frame);
        }
        let value = partial.compute(self.engine, bytes);
        self.statistics.checksums += 1;
        let (field, value) = (partial.field(), value.to_be_bytes());
        let tail = [&value[..], &bytes[field.end..]];
        take(&like(frame, Frame::new(&bytes[..field.start]).with_tail(&tail)))
    }
}

/// `piece` with what is known of `frame`.
fn like<'a>(frame: &Frame<'_>, mut piece: Frame<'a>) -> Frame<'a> {
    piece.timestamp = frame.timestamp;
    piece.direction = frame.direction;
    piece.queue = frame.queue;
    piece
}
