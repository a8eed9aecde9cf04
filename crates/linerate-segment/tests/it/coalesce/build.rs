//! Frames built independently of the library, and what a coalescer makes of them.

use linerate_segment::coalesce::{Coalescer, Flow, FlushReason, Options, Output};
use linerate_segment::segment;
use linerate_wire::virtio;

use crate::segment::build::{self, Network, Packet, Transport};

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

impl Tunnel {
    fn with_what_it_carries(self) -> build::Tunnel {
        match self {
            Self::Vxlan { checksum } => build::Tunnel::Vxlan { checksum, group: false },
            Self::Geneve => {
                let options = vec![1, 2, 3, 1, 9, 9, 9, 9];
                build::Tunnel::Geneve { checksum: false, options, bridged: true }
            }
            Self::Gre { checksum, ethernet } => {
                build::Tunnel::Gre { checksum, key: Some(5), bridged: ethernet }
            }
            Self::Ip => build::Tunnel::Ip,
        }
    }
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
        let network = |v6, host, id| Network {
            v6,
            host,
            id,
            dont_fragment: self.df,
            class: self.tos,
            ttl: self.ttl,
            ..Network::default()
        };
        let (sequence, flags) = (self.sequence, self.flags.into());
        let mut frame = Packet {
            ethernet: self.ethernet.then_some(self.tags.len()),
            outer: self.tunnel.map(|tunnel| {
                (network(self.outer_v6, 99, self.outer_id), tunnel.with_what_it_carries())
            }),
            inner_tags: 0,
            network: network(self.v6, self.host, self.id),
            transport: match self.udp {
                true => Transport::Udp { checksum: true },
                false => {
                    Transport::Tcp { sequence, flags, urgent: 0, options: self.options.clone() }
                }
            },
            ports: self.ports.into(),
            acknowledgement: self.acknowledgement,
            window: self.window,
            payload: payload.to_vec(),
        }
        .build();
        for (index, tag) in self.tags.iter().enumerate() {
            put(&mut frame, 14 + 4 * index, *tag);
        }
        frame
    }

    /// Length of all headers.
    pub(crate) fn header_len(&self) -> usize {
        self.build(&[]).len()
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
