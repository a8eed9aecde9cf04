//! [`BlockFrames`]: from frame to frame through the bytes of one block.
//!
//! The kernel writes a block and then retires it, so it does not change during the walk. Still its offsets
//! are checked against its end: no byte outside is read, for any content. The walk is a pure function of
//! bytes, which a fuzzer can run without a kernel.

use linerate_bpf::filter::CookedHeader;
use linerate_wire::virtio;
use zerocopy::FromBytes;

use super::layout::{
    ADDRESSES, BlockHeader, FrameHeader, STATUS_CHECKSUM_NOT_READY, STATUS_HARDWARE_STAMP,
    STATUS_VLAN, STATUS_VLAN_PROTOCOL, VLAN_TAG,
};
use crate::{Direction, Frame, Timestamp, sys};

/// How far ahead of the lent frame memory is prefetched. The kernel wrote it on another core, and the
/// hardware prefetcher stops at each page.
const AHEAD: usize = 2048;

/// What to make of the frames of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameOptions {
    /// Longest piece of a frame to lend, in bytes.
    pub snaplen: u32,
    /// Whether the kernel was asked to put a virtio header before each frame.
    pub virtio: bool,
    /// Frames come without a link-layer header, and get this one.
    pub cooked: Option<CookedHeader>,
}

/// The position within one block.
#[derive(Clone, Debug)]
pub struct BlockFrames {
    lend: FrameOptions,
    /// Where the next frame's header is.
    offset: usize,
    /// Frames still to come.
    remaining: u32,
    lent: u32,
    cut: u32,
    damaged: bool,
    hardware_stamp: bool,
}

impl BlockFrames {
    /// Starts at the head of a block. Bytes too few for a head hold no frame.
    pub fn new(block: &[u8], lend: FrameOptions) -> Self {
        let (offset, remaining, damaged) = match BlockHeader::read_from_prefix(block) {
            Ok((header, _)) => (header.first_offset as usize, header.frames, false),
            Err(_) => (0, 0, true),
        };
        Self { lend, offset, remaining, lent: 0, cut: 0, damaged, hardware_stamp: false }
    }

    /// The next frame of the block that the walk was started on, its VLAN tag put back in place.
    #[inline(always)]
    pub fn next<'b>(&mut self, block: &'b mut [u8]) -> Option<Frame<'b>> {
        if self.remaining == 0 {
            return None;
        }
        let Some((header, data)) = self.header(block) else {
            self.remaining = 0;
            self.damaged = true;
            return None;
        };
        let next = header.next_offset as usize;
        self.remaining -= 1;
        self.lent += 1;
        if self.remaining > 0 && next < size_of::<FrameHeader>() {
            // Frames would overlap, and a walk through zeros would take for ever.
            self.remaining = 0;
            self.damaged = true;
        }
        prefetch(block, self.offset + AHEAD, next);
        self.offset += next;
        self.hardware_stamp = header.status & STATUS_HARDWARE_STAMP != 0;

        // Read before the tag is put back, which takes the place of a part of it.
        let mut virtio = self.virtio(block, data);
        let mut start = data;
        let mut captured = header.captured as usize;
        let mut wire_len = header.wire_len;
        let tagged =
            header.status & STATUS_VLAN != 0 && captured >= ADDRESSES && self.lend.cooked.is_none();
        if let Some(kind) = self.lend.cooked {
            start -= kind.bytes() as usize;
            header.put_cooked(kind, &mut block[start..data]);
            // As libpcap, which puts tags into the older header only: before the EtherType.
            if kind == CookedHeader::V1 && header.status & STATUS_VLAN != 0 {
                start -= VLAN_TAG;
                restore_tag(&mut block[start..data - 2], &header);
            }
            captured += data - start;
            wire_len = wire_len.saturating_add((data - start) as u32);
        } else if tagged {
            start -= VLAN_TAG;
            restore_tag(&mut block[start..data + ADDRESSES], &header);
            captured += VLAN_TAG;
            wire_len = wire_len.saturating_add(VLAN_TAG as u32);
            // The kernel did not count the tag.
            virtio = virtio.map(|header| header.push(VLAN_TAG as u16));
        }
        let snaplen = self.lend.snaplen as usize;
        self.cut += u32::from(captured < snaplen.min(wire_len as usize));
        let captured = captured.min(snaplen);
        let mut frame = Frame::new(&block[start..start + captured]);
        frame.wire_len = wire_len;
        frame.timestamp =
            Some(Timestamp(u64::from(header.seconds) * 1_000_000_000 + u64::from(header.nanos)));
        frame.direction = match header.packet_type {
            libc::PACKET_OUTGOING => Direction::Outbound,
            _ => Direction::Inbound,
        };
        frame.interface = header.interface.cast_unsigned();
        frame.tag_beside = Some(tagged);
        frame.checksum_partial = header.status & STATUS_CHECKSUM_NOT_READY != 0;
        frame.virtio = virtio;
        Some(frame)
    }

    /// Frames that the block holds and [`BlockFrames::next`] has not given yet.
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// Frames that [`BlockFrames::next`] gave.
    pub fn frames_returned(&self) -> u32 {
        self.lent
    }

    /// Those that the kernel cut below the snap length, as no block holds them.
    pub fn frames_cut(&self) -> u32 {
        self.cut
    }

    /// Whether an offset pointed outside, which ended the walk early.
    pub fn is_corrupt(&self) -> bool {
        self.damaged
    }

    /// Whether the last frame's timestamp was the network card's.
    pub fn has_hardware_stamp(&self) -> bool {
        self.hardware_stamp
    }

    /// The header at the current offset, and where its frame's bytes start; `None` when header or
    /// bytes are not inside the block, or the bytes would overlap the header.
    #[inline]
    fn header(&self, block: &[u8]) -> Option<(FrameHeader, usize)> {
        let (header, _) = FrameHeader::read_from_prefix(block.get(self.offset..)?).ok()?;
        let mac = usize::from(header.mac_offset);
        let tag = if header.status & STATUS_VLAN != 0 { VLAN_TAG } else { 0 };
        let virtio = if self.lend.virtio { virtio::HEADER_LEN } else { 0 };
        let cooked = self.lend.cooked.map_or(0, |kind| kind.bytes() as usize);
        if mac < size_of::<FrameHeader>() + (tag + cooked).max(virtio) {
            return None;
        }
        // Each term is below 2^33, and `offset` is inside the block: no overflow.
        let data = self.offset + mac;
        let end = data as u64 + u64::from(header.captured);
        (end <= block.len() as u64).then_some((header, data))
    }

    /// The virtio header that ends where the frame at `data` starts.
    #[inline]
    fn virtio(&self, block: &[u8], data: usize) -> Option<virtio::Header> {
        let bytes = self.lend.virtio.then(|| &block[data - virtio::HEADER_LEN..data])?;
        virtio::Header::parse(bytes).ok()
    }
}

/// Asks for the bytes from `offset` on, as many as the present frame has, so that nothing is asked for twice;
/// of a long one for the first 256, after which the hardware prefetcher continues.
#[inline]
fn prefetch(block: &[u8], offset: usize, len: usize) {
    for line in (offset..block.len().min(offset + len.min(256))).step_by(64) {
        sys::prefetch(block.as_ptr().wrapping_add(line));
    }
}

/// Moves the addresses forward by the length of a tag, and puts the tag after them.
#[inline]
fn restore_tag(head: &mut [u8], header: &FrameHeader) {
    const ETHERTYPE_VLAN: u16 = 0x8100;
    let protocol = match header.status & STATUS_VLAN_PROTOCOL {
        0 => ETHERTYPE_VLAN,
        _ => header.vlan_protocol,
    };
    let at = head.len() - VLAN_TAG;
    head.copy_within(VLAN_TAG.., 0);
    head[at..at + 2].copy_from_slice(&protocol.to_be_bytes());
    head[at + 2..].copy_from_slice(&(header.vlan_tci as u16).to_be_bytes());
}

#[cfg(test)]
mod tests;
