//! Frames written byte by byte, independently of the library, and what a coalescer makes of them.

use linerate_segment::coalesce::{Coalescer, Flow, FlushReason, Options, Output};
use linerate_segment::segment;
use linerate_wire::virtio;

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const PSH: u8 = 8;
pub(crate) const ACK: u8 = 16;
pub(crate) const URG: u8 = 32;
pub(crate) const ECE: u8 = 64;
pub(crate) const CWR: u8 = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tunnel {
    Vxlan { checksum: bool },
    Geneve,
    Gre { checksum: bool, ethernet: bool },
    Ip,
}

/// A packet without its payload.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) ethernet: bool,
    pub(crate) tags: Vec<u16>,
    pub(crate) tunnel: Option<Tunnel>,
    pub(crate) outer_v6: bool,
    pub(crate) outer_id: u16,
    pub(crate) v6: bool,
    pub(crate) id: u16,
    pub(crate) df: bool,
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    pub(crate) host: u8,
    pub(crate) udp: bool,
    pub(crate) ports: [u16; 2],
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) options: Vec<u8>,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            ethernet: true,
            tags: Vec::new(),
            tunnel: None,
            outer_v6: false,
            outer_id: 65_534,
            v6: false,
            id: 65_533,
            df: true,
            tos: 0,
            ttl: 64,
            host: 1,
            udp: false,
            ports: [40_000, 443],
            sequence: u32::MAX - 1500,
            acknowledgement: 77,
            flags: ACK,
            window: 512,
            options: vec![1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, 7],
        }
    }
}

/// The ones' complement sum of 16-bit words, the plain way.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

impl Spec {
    pub(crate) fn udp() -> Self {
        Self { udp: true, ..Self::default() }
    }

    pub(crate) fn v6() -> Self {
        Self { v6: true, ..Self::default() }
    }

    pub(crate) fn build(&self, payload: &[u8]) -> Vec<u8> {
        let transport = self.transport(payload);
        let protocol = if self.udp { 17 } else { 6 };
        let mut packet = self.ip(self.v6, self.host, self.id, protocol, transport, self.df);
        let mut v6 = self.v6;
        if let Some(tunnel) = self.tunnel {
            let (protocol, bytes) = self.wrap(tunnel, packet);
            v6 = self.outer_v6;
            packet = self.ip(v6, 99, self.outer_id, protocol, bytes, self.df);
        }
        if !self.ethernet {
            return packet;
        }
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for (index, tag) in self.tags.iter().enumerate() {
            let outer = index + 1 < self.tags.len();
            frame.extend(if outer { [0x88, 0xa8] } else { [0x81, 0x00] });
            frame.extend(tag.to_be_bytes());
        }
        frame.extend(if v6 { [0x86, 0xdd] } else { [0x08, 0x00] });
        frame.extend(packet);
        frame
    }

    /// Length of all headers.
    pub(crate) fn header_len(&self) -> usize {
        self.build(&[]).len()
    }

    fn transport(&self, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.ports[0].to_be_bytes());
        bytes.extend(self.ports[1].to_be_bytes());
        let at = if self.udp {
            bytes.extend((8 + payload.len() as u16).to_be_bytes());
            bytes.extend([0, 0]);
            6
        } else {
            bytes.extend(self.sequence.to_be_bytes());
            bytes.extend(self.acknowledgement.to_be_bytes());
            bytes.extend([((20 + self.options.len()) << 2) as u8, self.flags]);
            bytes.extend(self.window.to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(&self.options);
            16
        };
        bytes.extend(payload);
        let protocol = if self.udp { 17 } else { 6 };
        let checksum = self.checksum(self.v6, self.host, protocol, &bytes);
        put(&mut bytes, at, if self.udp && checksum == 0 { 0xffff } else { checksum });
        bytes
    }

    fn addresses(v6: bool, host: u8) -> Vec<u8> {
        if v6 {
            let address = |last| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
            [address(host), address(200)].concat()
        } else {
            vec![10, 0, 0, host, 10, 0, 0, 200]
        }
    }

    fn checksum(&self, v6: bool, host: u8, protocol: u8, bytes: &[u8]) -> u16 {
        let mut pseudo = Self::addresses(v6, host);
        pseudo.extend([0, protocol]);
        pseudo.extend((bytes.len() as u16).to_be_bytes());
        pseudo.extend(bytes);
        !sum(&pseudo)
    }

    fn ip(&self, v6: bool, host: u8, id: u16, protocol: u8, inside: Vec<u8>, df: bool) -> Vec<u8> {
        let mut packet = Vec::new();
        if v6 {
            packet.extend([0x60 | self.tos >> 4, self.tos << 4, 0, 0]);
            packet.extend((inside.len() as u16).to_be_bytes());
            packet.extend([protocol, self.ttl]);
            packet.extend(Self::addresses(true, host));
        } else {
            packet.extend([0x45, self.tos]);
            packet.extend((20 + inside.len() as u16).to_be_bytes());
            packet.extend(id.to_be_bytes());
            packet.extend([if df { 0x40 } else { 0 }, 0, self.ttl, protocol, 0, 0]);
            packet.extend(Self::addresses(false, host));
            let checksum = !sum(&packet);
            put(&mut packet, 10, checksum);
        }
        packet.extend(inside);
        packet
    }

    /// The tunnel header and what is inside, and its IP protocol.
    fn wrap(&self, tunnel: Tunnel, packet: Vec<u8>) -> (u8, Vec<u8>) {
        let ether_type = if self.v6 { [0x86, 0xdd] } else { [0x08, 0x00] };
        let inner_link = [&[6; 6][..], &[7; 6], &ether_type].concat();
        let datagram = |port: u16, header: &[u8], inside: Vec<u8>, checksum: bool| {
            let mut bytes = vec![0xc0, 1];
            bytes.extend(port.to_be_bytes());
            bytes.extend((8 + (header.len() + inside.len()) as u16).to_be_bytes());
            bytes.extend([0, 0]);
            bytes.extend(header);
            bytes.extend(inside);
            if checksum {
                let value = self.checksum(self.outer_v6, 99, 17, &bytes);
                put(&mut bytes, 6, if value == 0 { 0xffff } else { value });
            }
            (17, bytes)
        };
        match tunnel {
            Tunnel::Vxlan { checksum } => {
                let header = [8, 0, 0, 0, 0, 0, 42, 0];
                datagram(4789, &header, [inner_link, packet].concat(), checksum)
            }
            Tunnel::Geneve => {
                let header = [0x02, 0, 0x65, 0x58, 0, 0, 42, 0, 1, 2, 3, 1, 9, 9, 9, 9];
                datagram(6081, &header, [inner_link, packet].concat(), false)
            }
            Tunnel::Gre { checksum, ethernet } => {
                let carries = if ethernet { [0x65, 0x58] } else { ether_type };
                let mut bytes = vec![if checksum { 0xa0 } else { 0x20 }, 0];
                bytes.extend(carries);
                if checksum {
                    bytes.extend([0; 4]);
                }
                bytes.extend([0, 0, 0, 5]);
                if ethernet {
                    bytes.extend(inner_link);
                }
                bytes.extend(packet);
                if checksum {
                    let value = !sum(&bytes);
                    put(&mut bytes, 4, value);
                }
                (47, bytes)
            }
            Tunnel::Ip => (if self.v6 { 41 } else { 4 }, packet),
        }
    }

    /// Cuts `payload` into pieces of `size` and builds a frame of each, as a sender does. PSH and FIN
    /// are only on the last, CWR only on the first. `step` is what an identification grows by.
    pub(crate) fn stream(&self, payload: &[u8], size: usize, step: u16) -> Vec<Vec<u8>> {
        let count = payload.len().div_ceil(size);
        let piece = |(index, piece): (usize, &[u8])| {
            let mut spec = self.after(index * size, index as u16 * step);
            if index + 1 < count {
                spec.flags &= !(PSH | FIN);
            }
            if index > 0 {
                spec.flags &= !CWR;
            }
            spec.build(piece)
        };
        payload.chunks(size).enumerate().map(piece).collect()
    }

    /// The same packet, so many bytes and identifications later.
    pub(crate) fn after(&self, bytes: usize, ids: u16) -> Self {
        Self {
            sequence: self.sequence.wrapping_add(bytes as u32),
            id: self.id.wrapping_add(ids),
            outer_id: self.outer_id.wrapping_add(ids),
            ..self.clone()
        }
    }
}

/// Bytes that differ from place to place.
pub(crate) fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Out {
    pub(crate) bytes: Vec<u8>,
    pub(crate) tokens: Vec<u64>,
    pub(crate) reason: FlushReason,
    /// How to split it again, and its virtio header.
    pub(crate) split: Option<(segment::Options, Option<virtio::Header>)>,
}

pub(crate) fn record(out: &mut Vec<Out>, frames: &[Vec<u8>], output: Output<'_>) {
    out.push(match output {
        Output::Frame { token, reason } => {
            let bytes = frames[token as usize].clone();
            Out { bytes, tokens: vec![token], reason, split: None }
        }
        Output::Super(packet) => {
            let mut bytes = vec![0; packet.len()];
            let written = packet.write(&mut bytes, |token| &frames[token as usize]);
            assert_eq!(written, Some(bytes.len()));
            let (tokens, reason) = (packet.tokens().to_vec(), packet.reason());
            let split = Some((packet.split(), packet.virtio()));
            Out { bytes, tokens, reason, split }
        }
    });
}

/// Pushes all frames, one microsecond apart, and flushes at the end.
pub(crate) fn coalesce(frames: &[Vec<u8>], options: &Options, flows: usize) -> Vec<Out> {
    let mut coalescer = Coalescer::new(vec![Flow::default(); flows], options);
    let mut out = Vec::new();
    let mut sink = |output: Output<'_>| record(&mut out, frames, output);
    for (token, frame) in frames.iter().enumerate() {
        coalescer.push(frame, token as u64, token as u64, &mut sink);
    }
    coalescer.flush_all(&mut sink);
    assert_eq!(coalescer.oldest(), None);
    out
}

/// The tokens and reasons of what comes out of `frames`.
pub(crate) fn outline(frames: &[Vec<u8>]) -> Vec<(Vec<u64>, FlushReason)> {
    let out = coalesce(frames, &Options::default(), 8);
    out.into_iter().map(|out| (out.tokens, out.reason)).collect()
}
