//! A 64 KiB super-packet into a ring of transmit buffers, against the limits on the same bytes: a bare
//! copy, and a copy followed by a checksum pass. Read it as time over the number of segments: criterion
//! prints it as "elements per second", an element being a segment.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use linerate_segment::segment::{Checksums, LinkType, Options, Segments, Split};
use linerate_wire::checksum::{Engine, Sum};
use linerate_wire::{ip, ipv4, tcp};

const MSS: usize = 1448;
const SEGMENTS: usize = 45;
const CHUNK: usize = 2048;
/// A few chunks that stay in the first-level cache, and those of a super-packet and more, as a
/// transmit ring that is kept up with walks over them.
const RINGS: [usize; 2] = [8, 64];
const HEADERS: usize = 14 + 20 + 32;

/// Ethernet, IPv4, TCP with the timestamps option, 45 times 1448 bytes.
fn super_packet() -> Vec<u8> {
    let mut packet = vec![0; HEADERS + MSS * SEGMENTS];
    packet[12] = 0x08;
    for (at, byte) in packet[HEADERS..].iter_mut().enumerate() {
        *byte = (at * 31 % 251) as u8;
    }
    let network = ipv4::Repr {
        source: [192, 0, 2, 1].into(),
        destination: [192, 0, 2, 2].into(),
        protocol: ip::Protocol::TCP,
        payload_len: 32 + MSS * SEGMENTS,
        ttl: 64,
        traffic_class: 0,
        identification: 7,
        dont_fragment: true,
    };
    network.emit(&mut packet[14..]).unwrap();
    packet[34 + 12] = 0x80;
    packet[34 + 13] = (tcp::Flags::ACK.0 | tcp::Flags::PSH.0) as u8;
    packet[54..66].copy_from_slice(&[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
    packet
}

/// Calls `write` with one chunk after another.
struct Ring {
    memory: Vec<u8>,
    next: usize,
}

impl Ring {
    fn new(chunks: usize) -> Self {
        Self { memory: vec![1; CHUNK * chunks], next: 0 }
    }

    #[inline]
    fn chunk(&mut self) -> &mut [u8] {
        let at = self.next;
        self.next = if at + CHUNK == self.memory.len() { 0 } else { at + CHUNK };
        &mut self.memory[at..at + CHUNK]
    }
}

fn tcp(c: &mut Criterion) {
    for chunks in RINGS {
        written(c, chunks);
    }
    read(c);
}

/// What writes into chunks.
fn written(c: &mut Criterion, chunks: usize) {
    let packet = super_packet();
    let payload = &packet[HEADERS..];
    let mut group = c.benchmark_group(format!("tcp 45 x 1448 into {chunks} chunks"));
    group.throughput(Throughput::Elements(SEGMENTS as u64));

    for (name, checksums) in [
        ("write_next, full checksums", Checksums::Full),
        ("write_next, partial checksums", Checksums::Partial),
    ] {
        let split = Split::Tcp { mss: MSS as u16 };
        let options = Options { link: LinkType::Ethernet, checksums, ..Options::new(split) };
        let mut ring = Ring::new(chunks);
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut segments = Segments::new(black_box(&packet), &options).unwrap();
                while let Some(len) = segments.write_next(ring.chunk()).unwrap() {
                    black_box(len);
                }
            });
        });
    }

    let mut ring = Ring::new(chunks);
    group.bench_function("limit: memcpy", |b| {
        b.iter(|| {
            for piece in black_box(payload).chunks_exact(MSS) {
                ring.chunk()[HEADERS..HEADERS + MSS].copy_from_slice(piece);
            }
        });
    });
    let mut ring = Ring::new(chunks);
    group.bench_function("limit: memcpy, then checksum", |b| {
        b.iter(|| {
            for piece in black_box(payload).chunks_exact(MSS) {
                let out = &mut ring.chunk()[HEADERS..HEADERS + MSS];
                out.copy_from_slice(piece);
                black_box(Sum::ZERO.bytes(out).checksum());
            }
        });
    });
    let mut ring = Ring::new(chunks);
    group.bench_function("limit: copy and checksum in one pass", |b| {
        b.iter(|| {
            for piece in black_box(payload).chunks_exact(MSS) {
                let out = &mut ring.chunk()[HEADERS..HEADERS + MSS];
                black_box(Engine::detect().copy(piece, out).checksum());
            }
        });
    });
    group.finish();
}

/// What leaves the payload where it is.
fn read(c: &mut Criterion) {
    let packet = super_packet();
    let mut group = c.benchmark_group("tcp 45 x 1448");
    group.throughput(Throughput::Elements(SEGMENTS as u64));
    let options = Options::new(Split::Tcp { mss: MSS as u16 });
    group.bench_function("next_view, full checksums", |b| {
        b.iter(|| {
            let mut segments = Segments::new(black_box(&packet), &options).unwrap();
            while let Some(parts) = segments.next_view() {
                black_box(parts);
            }
        });
    });
    group.bench_function("iterator, full checksums", |b| {
        b.iter(|| {
            for segment in Segments::new(black_box(&packet), &options).unwrap() {
                black_box(&segment);
            }
        });
    });
    group.bench_function("new", |b| {
        b.iter(|| black_box(Segments::new(black_box(&packet), &options).unwrap().max_len()));
    });
    group.finish();
}

criterion_group!(benches, tcp);
criterion_main!(benches);
