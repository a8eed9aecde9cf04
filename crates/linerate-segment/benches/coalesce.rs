//! What joining costs: segments of 1448 bytes from one flow and from 64 that take turns, as an uplink
//! sees them in batches, beside the least that it could be (a sum of the same payload). Read it as
//! time over the number of segments: criterion prints it as "elements per second", an element being a
//! segment.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use linerate_segment::coalesce::{Coalescer, Flow, Options, Output};
use linerate_segment::segment::Checksums;
use linerate_wire::checksum::{Engine, Sum};

#[path = "../tests/it/coalesce/build.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod build;
#[path = "../tests/it/segment/build.rs"]
#[allow(dead_code, reason = "shared with the tests, which use more of it")]
mod packets;

mod segment {
    pub(crate) use crate::packets as build;
}

use build::Spec;

/// Any: who sends cannot choose flows that meet in one place of the table, as in the uplink.
const KEY: u64 = 0x9e37_79b9_7f4a_7c15;

const MSS: usize = 1448;
const HEADERS: usize = 14 + 20 + 32;

/// A batch of segments, of each flow in turn, as far from each other as UMEM frames are.
struct Frames {
    memory: Vec<u8>,
}

impl Frames {
    const CHUNK: usize = 2048;
    const COUNT: usize = 512;

    fn new(flows: usize) -> Self {
        let each = Self::COUNT / flows;
        let streams: Vec<_> = (0..flows)
            .map(|flow| {
                let spec = Spec { ports: [flow as u16, 443], ..Spec::default() };
                spec.stream(&build::bytes(each * MSS), MSS, 1)
            })
            .collect();
        let mut memory = vec![0; Self::COUNT * Self::CHUNK];
        for (index, chunk) in memory.chunks_mut(Self::CHUNK).enumerate() {
            let frame = &streams[index % flows][index / flows];
            chunk[..frame.len()].copy_from_slice(frame);
        }
        Self { memory }
    }

    fn get(&self, token: u64) -> &[u8] {
        &self.memory[token as usize * Self::CHUNK..][..HEADERS + MSS]
    }
}

fn coalesce(criterion: &mut Criterion) {
    for flows in [1, 64] {
        let frames = Frames::new(flows);
        let mut group = criterion.benchmark_group(format!("1448-byte segments of {flows} flows"));
        group.throughput(Throughput::Elements(Frames::COUNT as u64));
        let options = Options { checksums: Checksums::Partial, ..Options::default() };
        let mut coalescer = Coalescer::with_key(vec![Flow::default(); 64], &options, KEY);
        group.bench_function("coalesce", |bench| {
            bench.iter(|| {
                let mut segments = 0;
                let mut sink = |output: Output<'_>| match output {
                    Output::Frame { .. } => unreachable!("all can be joined"),
                    Output::Super(packet) => {
                        black_box((packet.header(), packet.virtio()));
                        segments += packet.tokens().len();
                    }
                };
                for token in 0..Frames::COUNT as u64 {
                    coalescer.push(black_box(frames.get(token)), token, 0, &mut sink);
                }
                coalescer.flush_all(&mut sink);
                assert_eq!(segments, Frames::COUNT);
            });
        });
        let full = Options::default();
        let mut coalescer = Coalescer::new(vec![Flow::default(); 64], &full);
        let mut whole = vec![0; 65_549];
        group.bench_function("coalesce and write in one piece", |bench| {
            bench.iter(|| {
                let mut bytes = 0;
                let mut sink = |output: Output<'_>| match output {
                    Output::Frame { .. } => unreachable!("all can be joined"),
                    Output::Super(packet) => {
                        bytes += packet.write(&mut whole, |token| frames.get(token)).unwrap();
                        black_box(&whole);
                    }
                };
                for token in 0..Frames::COUNT as u64 {
                    coalescer.push(black_box(frames.get(token)), token, 0, &mut sink);
                }
                coalescer.flush_all(&mut sink);
                bytes
            });
        });
        let engine = Engine::detect();
        group.bench_function("sum alone", |bench| {
            bench.iter(|| {
                (0..Frames::COUNT as u64).fold(Sum::ZERO, |sum, token| {
                    sum.word(engine.sum(&black_box(frames.get(token))[HEADERS..]).folded())
                })
            });
        });
        group.finish();
    }
}

criterion_group!(benches, coalesce);
criterion_main!(benches);
