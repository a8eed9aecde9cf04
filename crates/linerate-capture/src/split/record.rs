//! Records of packets as bytes of a file: what is to change in them changes, the rest is copied.

use std::ops::Range;

use crate::read::Shape;

/// A packet's record as it would be without any change, from which others are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Template<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) shape: Shape,
    pub(super) big_endian: bool,
    /// Bytes of the packet that are in it.
    pub(super) captured: usize,
}

impl<'a> Template<'a> {
    /// Bytes before the packet.
    fn header(&self) -> usize {
        match self.shape {
            Shape::Pcap => 16,
            Shape::Simple => 12,
            _ => 28,
        }
    }

    /// Where the packet is.
    pub(super) fn data(&self) -> Range<usize> {
        self.header()..self.header() + self.captured
    }

    /// The packet.
    pub(super) fn packet(&self) -> &'a [u8] {
        &self.bytes[self.data()]
    }

    /// The options behind it, with their end.
    pub(super) fn options(&self) -> &'a [u8] {
        match self.shape {
            Shape::Enhanced | Shape::Obsolete => {
                let start = self.header() + self.captured.next_multiple_of(4);
                self.bytes.get(start..self.bytes.len() - 4).unwrap_or_default()
            }
            _ => &[],
        }
    }

    /// Appends a record like this one, but of the packet in `parts`, which had no more bytes on the
    /// wire; `options` writes what goes behind it, where the format has room.
    pub(super) fn put(
        &self,
        out: &mut Vec<u8>,
        parts: &[&[u8]],
        options: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = out.len();
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let word = |value: usize| match self.big_endian {
            true => (value as u32).to_be_bytes(),
            false => (value as u32).to_le_bytes(),
        };
        out.extend_from_slice(&self.bytes[..self.header()]);
        let (captured, wire) = match self.shape {
            Shape::Pcap => (Some(8), 12),
            Shape::Simple => (None, 8),
            _ => (Some(20), 24),
        };
        for at in captured.into_iter().chain([wire]) {
            out[start + at..start + at + 4].copy_from_slice(&word(len));
        }
        parts.iter().for_each(|part| out.extend_from_slice(part));
        if self.shape == Shape::Pcap {
            return;
        }
        out.extend_from_slice(&[0; 3][..len.wrapping_neg() & 3]);
        if self.shape != Shape::Simple {
            options(out);
        }
        let block = word(out.len() - start + 4);
        out[start + 4..start + 8].copy_from_slice(&block);
        out.extend_from_slice(&block);
    }

    /// Removes from a record that [`Template::put`] wrote at `start` what was lost before the packet,
    /// where that stands in its header.
    pub(super) fn without_losses(&self, out: &mut [u8], start: usize) {
        if self.shape == Shape::Obsolete {
            out[start + 10..start + 12].fill(0);
        }
    }
}
