//! Records of packets as bytes of a file: other records are made from them, and all that does not change
//! is copied.

pub mod options;

use std::ops::Range;

use crate::BlockType;
use crate::format::{pcap, pcapng};

/// A packet's record as it is in a file.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    /// All its bytes.
    pub bytes: &'a [u8],
    /// The type of its block.
    pub block_type: BlockType,
    /// The byte order of its fields.
    pub big_endian: bool,
    /// Bytes of the packet that are in it.
    pub captured: usize,
}

impl<'a> RawRecord<'a> {
    /// Bytes before the packet.
    fn header(&self) -> usize {
        match self.block_type {
            BlockType::PcapRecord => pcap::RECORD_HEADER_LEN,
            BlockType::SimplePacket => 12,
            _ => pcapng::PACKET_HEADER_LEN,
        }
    }

    /// The range of the packet's bytes.
    pub fn data(&self) -> Range<usize> {
        self.header()..self.header() + self.captured
    }

    /// The packet.
    pub fn packet(&self) -> &'a [u8] {
        &self.bytes[self.data()]
    }

    /// The options behind the packet, with their end marker.
    pub fn options(&self) -> &'a [u8] {
        match self.block_type {
            BlockType::EnhancedPacket | BlockType::ObsoletePacket => {
                let start = self.header() + self.captured.next_multiple_of(4);
                self.bytes.get(start..self.bytes.len() - 4).unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// Appends a record like this one for the packet in `parts`, which had `wire_len` bytes; `options` appends its
    /// options, where the format has room for them. A simple packet block has that length only.
    pub fn put(
        &self,
        out: &mut Vec<u8>,
        parts: &[&[u8]],
        wire_len: usize,
        options: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = out.len();
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let word = |value: usize| match self.big_endian {
            true => (value as u32).to_be_bytes(),
            false => (value as u32).to_le_bytes(),
        };
        out.extend_from_slice(&self.bytes[..self.header()]);
        let (captured, wire) = match self.block_type {
            BlockType::PcapRecord => (Some(8), 12),
            BlockType::SimplePacket => (None, 8),
            _ => (Some(20), 24),
        };
        for (at, len) in captured.map(|at| (at, len)).into_iter().chain([(wire, wire_len)]) {
            out[start + at..start + at + 4].copy_from_slice(&word(len));
        }
        parts.iter().for_each(|part| out.extend_from_slice(part));
        if self.block_type == BlockType::PcapRecord {
            return;
        }
        out.extend_from_slice(&[0; 3][..len.wrapping_neg() & 3]);
        if self.block_type != BlockType::SimplePacket {
            options(out);
        }
        let block = word(out.len() - start + 4);
        out[start + 4..start + 8].copy_from_slice(&block);
        out.extend_from_slice(&block);
    }

    /// Appends this record with at most the first `keep` bytes of its packet. Its length on the wire and its
    /// options stay. A simple packet block has no field for that and stays whole.
    pub fn put_cut(&self, out: &mut Vec<u8>, keep: usize) {
        let at = match self.block_type {
            BlockType::PcapRecord => 8,
            BlockType::EnhancedPacket | BlockType::ObsoletePacket => 20,
            _ => return out.extend_from_slice(self.bytes),
        };
        if keep >= self.captured {
            return out.extend_from_slice(self.bytes);
        }
        let start = out.len();
        let word = |value: usize| match self.big_endian {
            true => (value as u32).to_be_bytes(),
            false => (value as u32).to_le_bytes(),
        };
        out.extend_from_slice(&self.bytes[..self.header()]);
        out[start + at..start + at + 4].copy_from_slice(&word(keep));
        out.extend_from_slice(&self.packet()[..keep]);
        if self.block_type == BlockType::PcapRecord {
            return;
        }
        out.extend_from_slice(&[0; 3][..keep.wrapping_neg() & 3]);
        out.extend_from_slice(self.options());
        let block = word(out.len() - start + 4);
        out[start + 4..start + 8].copy_from_slice(&block);
        out.extend_from_slice(&block);
    }

    /// Zeroes the count of packets lost before this one in a record that [`RawRecord::put`] wrote at
    /// `start`, where that count is in the header.
    pub fn clear_drop_count(&self, out: &mut [u8], start: usize) {
        if self.block_type == BlockType::ObsoletePacket {
            out[start + 10..start + 12].fill(0);
        }
    }
}
