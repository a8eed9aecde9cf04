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
mod tests {
    use super::*;

    /// A UDP datagram over IPv4 with this checksum.
    fn datagram(checksum: u16) -> [u8; 46] {
        let mut frame = [0; 46];
        frame[12] = 8;
        frame[14..34].copy_from_slice(&[
            0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        frame[34..40].copy_from_slice(&[0, 7, 0, 9, 0, 12]);
        frame[40..42].copy_from_slice(&checksum.to_be_bytes());
        frame[42..].copy_from_slice(b"what");
        frame
    }

    // 0a00 + 0001 + 0a00 + 0002 + 17 + 12
    const PSEUDO: u16 = 0x1400 + 3 + 17 + 12;

    #[test]
    fn a_partial_checksum_is_the_sum_of_the_pseudo_header() {
        let partial = PartialChecksum::detect(&datagram(PSEUDO));
        assert_eq!(partial, Some(PartialChecksum { start: 34, offset: 6 }));
        assert_eq!(PartialChecksum::detect(&datagram(PSEUDO + 1)), None);
        assert_eq!(PartialChecksum::detect(&datagram(PSEUDO)[..30]), None);
    }

    #[test]
    fn a_partial_checksum_is_found_in_tunnels() {
        let inner = datagram(PSEUDO);
        let ipv4 = |protocol: u8, payload: &[u8]| {
            let total = (20 + payload.len()) as u16;
            let mut header =
                [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0, 9, 0, 0, 1, 9, 0, 0, 2];
            header[2..4].copy_from_slice(&total.to_be_bytes());
            [&inner[..14], &header, payload].concat()
        };
        // A complete checksum, or none: the port is of no tunnel that is known.
        let udp = |payload: &[u8]| {
            let len = (8 + payload.len()) as u16;
            ipv4(17, &[&[0, 7, 0, 9], &len.to_be_bytes()[..], &[0, 0], payload].concat())
        };
        let cases = [
            (ipv4(4, &inner[14..]), 20),
            (ipv4(47, &[&[0, 0, 8, 0], &inner[14..]].concat()), 24),
            (ipv4(47, &[&[0x20, 0, 0x65, 0x58, 0, 0, 0, 1], &inner[..]].concat()), 42),
            (udp(&[&[8, 0, 0, 0, 0, 0, 1, 0], &inner[..]].concat()), 50),
            (udp(&[&[1, 0, 0x65, 0x58, 0, 0, 1, 0, 1, 2, 3, 0], &inner[..]].concat()), 54),
            (udp(&[&[0x30, 255, 0, 32, 0, 0, 1, 0], &inner[14..]].concat()), 36),
            (udp(&[&[0, 4, 0, 0], &inner[14..]].concat()), 32),
            (udp(&inner[14..]), 28),
        ];
        for (number, (frame, deeper)) in cases.iter().enumerate() {
            let partial = PartialChecksum { start: 34 + deeper, offset: 6 };
            assert_eq!(PartialChecksum::detect(frame), Some(partial), "{number}");
            // In a tunnel in a tunnel.
            let nested = ipv4(4, &frame[14..]);
            let partial = PartialChecksum { start: 54 + deeper, offset: 6 };
            assert_eq!(PartialChecksum::detect(&nested), Some(partial), "{number}");
            for len in 0..frame.len() {
                assert_eq!(PartialChecksum::detect(&frame[..len]), None, "{number}, {len}");
            }
        }
    }

    #[test]
    fn a_finished_checksum_is_right() {
        let frame = datagram(PSEUDO);
        let partial = PartialChecksum { start: 34, offset: 6 };
        assert!(partial.fits(42) && !partial.fits(41));
        let mut out = [0; 46];
        partial.copy(Engine::detect(), &frame, &mut out);
        let checksum = partial.compute(Engine::PORTABLE, &frame);
        assert_eq!(out, datagram(checksum));
        assert!(Sum::ZERO.word(PSEUDO).bytes(&out[34..]).is_valid());
    }
}
