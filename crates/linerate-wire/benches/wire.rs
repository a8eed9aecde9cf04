//! What parsing and summing cost, beside etherparse on the same frames; and what copying with the sum of it
//! costs in one pass, beside the bare copy and the copy with a separate pass.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use etherparse::PacketBuilder;
use linerate_wire::checksum::{self, Engine};
use linerate_wire::{flow, layers};

fn frame(payload: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(1024, 9)
        .write(&mut frame, &vec![0x5a; payload])
        .expect("writing to memory");
    frame
}

fn parse(criterion: &mut Criterion) {
    let frame = frame(22);
    let mut group = criterion.benchmark_group("parse 64-byte UDP frame");
    group.throughput(Throughput::Elements(1));
    group.bench_function("layers", |bench| bench.iter(|| layers::parse(black_box(&frame))));
    group.bench_function("flow key", |bench| bench.iter(|| flow::Key::of(black_box(&frame))));
    group.bench_function("etherparse", |bench| {
        bench.iter(|| etherparse::SlicedPacket::from_ethernet(black_box(&frame)));
    });
    group.finish();
}

fn sum(criterion: &mut Criterion) {
    for len in [20, 1460, 65_000] {
        let bytes = vec![0x5a; len];
        let mut group = criterion.benchmark_group(format!("checksum of {len} bytes"));
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function("linerate", |bench| bench.iter(|| checksum::of(black_box(&bytes))));
        group.bench_function("etherparse", |bench| {
            bench.iter(|| {
                etherparse::checksum::Sum16BitWords::new()
                    .add_slice(black_box(&bytes))
                    .ones_complement()
            });
        });
        group.finish();
    }
}

fn copy(criterion: &mut Criterion) {
    for size in [20, 64, 128, 536, 1448, 9000] {
        let from = vec![0x5a; size];
        let mut to = vec![0; size];
        let mut group = criterion.benchmark_group(format!("copy and sum {size} bytes"));
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function("memcpy", |bench| {
            bench.iter(|| black_box(&mut to).copy_from_slice(black_box(&from)));
        });
        group.bench_function("memcpy, then a pass", |bench| {
            bench.iter(|| {
                black_box(&mut to).copy_from_slice(black_box(&from));
                Engine::detect().sum(black_box(&to))
            });
        });
        for engine in Engine::available() {
            group.bench_function(engine.to_string(), |bench| {
                bench.iter(|| engine.copy(black_box(&from), black_box(&mut to)));
            });
            group.bench_function(format!("{engine}, sum only"), |bench| {
                bench.iter(|| engine.sum(black_box(&from)));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, parse, sum, copy);
criterion_main!(benches);
