//! Super-packets in UDP tunnels: VXLAN and Geneve, over IPv4 and IPv6.

use linerate_wire::checksum::{self, Sum};
use linerate_wire::ip::Protocol;
use linerate_wire::virtio::{Flags, GsoType, Header};

use super::packet::{Shape, TO, UDP, from};
use linerate_testkit::Random;

/// What is around the frame of a shape. It follows from the case's number, so that the virtio header
/// can be made from the shape alone: the number is not needed for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tunnel {
    pub(crate) v4: bool,
    /// Bytes of Geneve options; `None` for VXLAN.
    pub(crate) geneve: Option<usize>,
    pub(crate) checksum: bool,
}

impl Tunnel {
    /// Bytes in front of the inner frame.
    pub(crate) fn len(self) -> usize {
        14 + if self.v4 { 20 } else { 40 } + 8 + 8 + self.geneve.unwrap_or(0)
    }

    fn transport(self) -> usize {
        14 + if self.v4 { 20 } else { 40 }
    }

    pub(crate) fn header(self, shape: &Shape) -> Header {
        let inner = shape.header();
        let len = self.len() as u16;
        let tunnel = if self.v4 { GsoType::UDP_TUNNEL_IPV4 } else { GsoType::UDP_TUNNEL_IPV6 };
        let checksum = if self.checksum { Flags::UDP_TUNNEL_CSUM } else { Flags::default() };
        Header {
            flags: inner.flags.union(checksum),
            gso_type: inner.gso_type.union(tunnel),
            hdr_len: len + shape.headers_len() as u16,
            csum_start: inner.csum_start + len,
            outer_th_offset: self.transport() as u16,
            inner_nh_offset: len + shape.link_len() as u16,
            ..inner
        }
    }

    /// The frame of a shape, inside a tunnel.
    pub(crate) fn frame(self, shape: &Shape, number: u32, random: &mut Random) -> Vec<u8> {
        let inner = shape.frame(number, random);
        let geneve = self.geneve.unwrap_or(0);
        let datagram = (16 + geneve + inner.len()) as u16;
        let mut frame = [&TO[..], &from(number)].concat();
        frame.extend(if self.v4 { [0x08, 0x00] } else { [0x86, 0xdd] });
        let pseudo = if self.v4 {
            let (source, to) = ([172, 16, 0, 1], [172, 16, 0, 2]);
            let mut header = vec![0x45, 0x02];
            header.extend((20 + datagram).to_be_bytes());
            header.extend((random.next() as u16).to_be_bytes());
            header.extend([0, 0, 64, UDP, 0, 0]);
            header.extend(source.iter().chain(&to));
            let sum = checksum::of(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            frame.extend(header);
            Sum::pseudo_v4(source.into(), to.into(), Protocol::UDP, datagram)
        } else {
            let (source, to) = ([0xfc; 16], [0xfd; 16]);
            frame.extend([0x60, 0x20, 0, 9]);
            frame.extend(datagram.to_be_bytes());
            frame.extend([UDP, 64]);
            frame.extend(source.iter().chain(&to));
            Sum::pseudo_v6(source.into(), to.into(), Protocol::UDP, datagram.into())
        };
        frame.extend((0xc000 | number as u16 & 0x3fff).to_be_bytes());
        frame.extend(if self.geneve.is_some() { 6081_u16 } else { 4789 }.to_be_bytes());
        frame.extend(datagram.to_be_bytes());
        // A checksum to be made for each segment starts as the sum of the pseudo header.
        let checksum = if self.checksum { pseudo.folded() } else { 0 };
        frame.extend(checksum.to_be_bytes());
        match self.geneve {
            None => frame.extend([0x08, 0, 0, 0]),
            Some(len) => frame.extend([(len / 4) as u8, 0, 0x65, 0x58]),
        }
        frame.extend([0, 0, 5, 0]);
        let options: Vec<u8> = (0..geneve / 4).flat_map(|at| [0xff, 1, at as u8, 0]).collect();
        frame.extend(options);
        frame.extend(inner);
        frame
    }
}
