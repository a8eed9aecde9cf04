//! Checksum offload: the checksums that a sender leaves to its network card.

use core::ops::Range;

use crate::checksum::{Engine, Sum};
use crate::layers::{self, Layers, Transport};
use crate::{tcp, udp};

/// Packets in packets that [`PartialChecksum::detect`] looks into: Linux nests as many tunnels, and a crafted frame more.
const MAX_LAYERS: usize = 8;

/// A checksum that the sender left to hardware (the kernel's `CHECKSUM_PARTIAL`). The field holds the sum of
/// the pseudo header. The checksum covers the bytes from `start` to the end of the packet. These are the
/// numbers of `virtio_net_hdr` and of `xsk_tx_metadata`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartialChecksum {
    /// Where the transport header starts, in bytes from the start of the packet (`csum_start`).
    pub start: u16,
    /// Where the checksum field is, in bytes from `start` (`csum_offset`).
    pub offset: u16,
}

impl PartialChecksum {
    /// Recognises an Ethernet frame whose TCP or UDP checksum is partial, also inside tunnels: the field holds exactly the
    /// sum of the pseudo header. A sender behind a veth leaves it so, and XDP does not tell. A right checksum that has the
    /// same value stays right when it is finished again.
    pub fn detect(frame: &[u8]) -> Option<Self> {
        let outermost = layers::parse(frame).ok()?;
        core::iter::successors(Some(outermost), |layers| layers.inside(frame))
            .take(MAX_LAYERS)
            .find_map(|layers| Self::of(&layers, frame))
    }

    /// The same, of TCP or UDP in one of the packets.
    fn of(layers: &Layers, frame: &[u8]) -> Option<Self> {
        let offset = match layers.transport {
            Transport::Tcp => tcp::CHECKSUM_OFFSET,
            Transport::Udp => udp::CHECKSUM_OFFSET,
            _ => return None,
        };
        let (source, destination) = layers.addresses(frame)?;
        let start = layers.transport_offset;
        let len = u16::try_from(layers.end.checked_sub(start)?).ok()?;
        let pseudo = Sum::pseudo(source, destination, layers.protocol?, len)?.folded();
        let partial = Self { start: u16::try_from(start).ok()?, offset: offset as u16 };
        (*frame.get(partial.field())? == pseudo.to_be_bytes()).then_some(partial)
    }

    /// Where the checksum field is, in bytes from the start of the packet.
    pub const fn field(self) -> Range<usize> {
        let at = self.start as usize + self.offset as usize;
        at..at + 2
    }

    /// Whether the field is within a packet of `len` bytes.
    pub const fn fits(self, len: usize) -> bool {
        self.field().end <= len
    }

    /// The finished checksum of a packet that [`fits`](Self::fits). A sum of 0 becomes 0xffff for every
    /// protocol, as in the kernel (`skb_checksum_help`): 0 means "none" to UDP.
    ///
    /// # Panics
    /// If the packet is shorter than `start`.
    #[inline]
    pub fn compute(self, engine: Engine, packet: &[u8]) -> u16 {
        engine.sum(&packet[usize::from(self.start)..]).udp_checksum()
    }

    /// Copies a packet that [`fits`](Self::fits) to `out`, with its checksum finished in the same pass.
    ///
    /// # Panics
    /// If the packet does not fit, or `out` has another length than `packet`.
    #[inline]
    pub fn copy(self, engine: Engine, packet: &[u8], out: &mut [u8]) {
        let start = usize::from(self.start);
        out[..start].copy_from_slice(&packet[..start]);
        let sum = engine.copy(&packet[start..], &mut out[start..]);
        out[self.field()].copy_from_slice(&sum.udp_checksum().to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
