//! What metering a packet costs, by the number of flows in the table.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use etherparse::PacketBuilder;
use linerate_flow::meter::{Flow, Meter, MeterOptions, MeteredPacket};
use linerate_flow::schema::{Group, Groups};

/// LINKTYPE_ETHERNET.
const ETHERNET: u16 = 1;

/// Frames between two readings of the clock. They fit into a cache, like those that a ring lends.
const FRAMES: usize = 1024;

/// Bytes of a frame.
const SIZE: usize = 64;

/// Between two packets, in nanoseconds.
const GAP: u64 = 400;

/// Ports of one address.
const PORTS: u32 = 50_000;

/// Writes the addresses and ports of this flow into a frame.
fn set_flow(frame: &mut [u8; SIZE], flow: u32) {
    frame[26..30].copy_from_slice(&(0xc612_0001 + flow / PORTS).to_be_bytes());
    frame[34..36].copy_from_slice(&(1024 + (flow % PORTS) as u16).to_be_bytes());
}

/// A meter that has this many flows, and frames for it.
struct Bench {
    meter: Meter,
    frames: Vec<[u8; SIZE]>,
    flows: u32,
    random: u64,
    time: u64,
}

impl Bench {
    fn new(flows: u32, groups: Groups) -> Self {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4([198, 18, 0, 1], [198, 19, 0, 1], 64)
            .udp(1024, 9)
            .write(&mut frame, &[0; SIZE - 42])
            .expect("writing to memory");
        let frame: [u8; SIZE] = frame.try_into().expect("the frame has this size");
        let options = MeterOptions { max_flows: 1 << 20, groups, ..MeterOptions::default() };
        let meter = Meter::new(&options);
        let (random, time) = (1, 1_700_000_000_000_000_000);
        let mut bench = Self { meter, frames: vec![frame; FRAMES], flows, random, time };
        for first in (0..flows).step_by(FRAMES) {
            for (frame, flow) in bench.frames.iter_mut().zip(first..) {
                set_flow(frame, flow % flows);
            }
            bench.meter(true);
        }
        assert_eq!(bench.meter.statistics().active, u64::from(flows));
        bench
    }

    /// Makes the next frames those of random flows.
    fn shuffle(&mut self) {
        for frame in &mut self.frames {
            // The generator of Numerical Recipes; any other would do.
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005);
            self.random = self.random.wrapping_add(1_442_695_040_888_963_407);
            set_flow(frame, (((self.random >> 32) * u64::from(self.flows)) >> 32) as u32);
        }
    }

    /// Meters the frames, in batches or one by one.
    fn meter(&mut self, batches: bool) {
        for frame in &self.frames {
            self.time += GAP;
            let packet = MeteredPacket {
                frame,
                wire_len: SIZE as u32,
                linktype: ETHERNET,
                interface: 0,
                time: self.time,
                byte_range: None,
                processes: None,
            };
            let export = |flow: &Flow| {
                black_box(flow);
            };
            match batches {
                true => self.meter.push(&packet, export),
                false => {
                    black_box(self.meter.packet(&packet, export));
                }
            }
        }
        self.meter.flush(|flow| {
            black_box(flow);
        });
    }
}

fn packets(criterion: &mut Criterion) {
    for flows in [1, 1000, 100_000, 1_000_000] {
        let mut group = criterion.benchmark_group(format!("meter a packet of {flows} flows"));
        group.throughput(Throughput::Elements(FRAMES as u64));
        let mut default = Bench::new(flows, Groups::default());
        let mut all_fields = Bench::new(flows, Group::ALL.iter().copied().collect());
        for (name, batches, has_all) in [
            ("in batches", true, false),
            ("one by one", false, false),
            ("in batches, with all fields", true, true),
        ] {
            let bench = if has_all { &mut all_fields } else { &mut default };
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|rounds| {
                    let mut all = Duration::ZERO;
                    for _ in 0..rounds {
                        bench.shuffle();
                        let start = Instant::now();
                        bench.meter(batches);
                        all += start.elapsed();
                    }
                    all
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, packets);
criterion_main!(benches);
