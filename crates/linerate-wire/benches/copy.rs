//! Copying a super-packet into segments with the sum of each: in one pass, and beside it what is known:
//! the bare copy, and the copy with a separate pass of the best loop.
//!
//! A table first, of the sizes that segmentation meets: the rivals take turns, so that none has the
//! quieter machine, and the medians are compared. Then criterion, for one piece at a time.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use linerate_wire::checksum::{Engine, Sum};

/// What is split, headers included, and where the payload starts (Ethernet, IPv4, TCP with timestamps).
const PACKET: usize = 65_535;
const HEADERS: usize = 66;
/// Destinations follow each other as the frames of a UMEM do.
const CHUNK: usize = 2048;
const HEADROOM: usize = 256;

/// Bytes that start a page, so that every run has them at the same places of lines and of pages.
struct Pages {
    bytes: Vec<u8>,
    start: usize,
}

impl Pages {
    fn new(len: usize) -> Self {
        let bytes = vec![0; len + 4096];
        let start = bytes.as_ptr().align_offset(4096);
        Self { bytes, start }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
}

struct Packet {
    source: Pages,
    ring: Pages,
    /// Payload bytes of a segment.
    size: usize,
    count: usize,
}

impl Packet {
    fn new(size: usize) -> Self {
        let count = ((PACKET - HEADERS) / size).min(45);
        let chunk = Self::chunk(size);
        let mut source = Pages::new(PACKET);
        for (i, byte) in source.bytes_mut().iter_mut().enumerate() {
            *byte = (i as u32).wrapping_mul(0x9e37_79b9).to_be_bytes()[0];
        }
        Self { source, ring: Pages::new(count * chunk), size, count }
    }

    fn chunk(size: usize) -> usize {
        (HEADROOM + HEADERS + size).next_multiple_of(CHUNK)
    }

    /// Calls `each` with every segment's payload and its place.
    #[inline(always)]
    fn split(&mut self, mut each: impl FnMut(&[u8], &mut [u8])) {
        let from = self.source.bytes()[HEADERS..].chunks_exact(self.size);
        let to = self.ring.bytes_mut().chunks_exact_mut(Self::chunk(self.size));
        for (from, to) in from.zip(to).take(self.count) {
            each(from, &mut to[HEADROOM + HEADERS..][..self.size]);
        }
    }
}

/// One way to do it to a whole packet.
struct Rival {
    name: String,
    run: Box<dyn Fn(&mut Packet)>,
    /// Nanoseconds a segment, one of each turn.
    times: Vec<f64>,
}

impl Rival {
    fn new(name: impl Into<String>, run: impl Fn(&mut Packet) + 'static) -> Self {
        Self { name: name.into(), run: Box::new(run), times: Vec::new() }
    }

    fn turn(&mut self, packet: &mut Packet, repeats: usize) {
        (self.run)(packet);
        let start = Instant::now();
        for _ in 0..repeats {
            (self.run)(packet);
        }
        let segments = (repeats * packet.count) as f64;
        self.times.push(start.elapsed().as_nanos() as f64 / segments);
    }

    fn quantile(&self, of_ten: usize) -> f64 {
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        times[(times.len() - 1) * of_ten / 10]
    }
}

fn one_pass(engine: Engine) -> impl Fn(&mut Packet) {
    move |packet| {
        packet.split(|from, to| {
            black_box(engine.copy(from, to));
        });
    }
}

const COPY: &str = "memcpy";
const TWO_PASSES: [&str; 3] = [
    "memcpy, then a pass over the source",
    "memcpy, then a pass over the segment",
    "memcpy of all, then passes over all segments",
];

fn rivals() -> Vec<Rival> {
    let best = Engine::detect();
    let mut rivals = vec![
        Rival::new(COPY, |packet| packet.split(|from, to| black_box(to).copy_from_slice(from))),
        Rival::new(TWO_PASSES[0], move |packet| {
            packet.split(|from, to| {
                black_box(&mut *to).copy_from_slice(from);
                black_box(best.sum(from));
            });
        }),
        Rival::new(TWO_PASSES[1], move |packet| {
            packet.split(|from, to| {
                black_box(&mut *to).copy_from_slice(from);
                black_box(best.sum(to));
            });
        }),
        Rival::new(TWO_PASSES[2], move |packet| {
            packet.split(|from, to| black_box(to).copy_from_slice(from));
            packet.split(|_, to| {
                black_box(best.sum(to));
            });
        }),
    ];
    rivals
        .extend(Engine::available().map(|engine| Rival::new(engine.to_string(), one_pass(engine))));
    rivals.push(Rival::new("best, detected for each segment", |packet| {
        packet.split(|from, to| {
            black_box(Engine::detect().copy(from, to));
        });
    }));
    rivals.push(Rival::new("best, behind a function pointer", |packet| {
        let copy = black_box(Engine::copy as fn(Engine, &[u8], &mut [u8]) -> Sum);
        let best = Engine::detect();
        packet.split(|from, to| {
            black_box(copy(best, from, to));
        });
    }));
    rivals.extend(Engine::available().map(|engine| {
        Rival::new(format!("sum only, {engine}"), move |packet| {
            packet.split(|from, _| {
                black_box(engine.sum(from));
            });
        })
    }));
    rivals
}

fn table(size: usize, turns: usize) {
    let mut packet = Packet::new(size);
    let mut rivals = rivals();
    for _ in 0..turns {
        for rival in &mut rivals {
            rival.turn(&mut packet, 20);
        }
    }
    let median = |name: &str| {
        let rival = rivals.iter().find(|rival| rival.name == name);
        rival.expect("one of the rivals").quantile(5)
    };
    let two_passes = TWO_PASSES.map(median).into_iter().reduce(f64::min).expect("some");
    println!("{} segments of {size} bytes, {turns} turns", packet.count);
    println!("{:46} {:>8} {:>17} {:>8} {:>10}", "", "ns", "(10% to 90%)", "/memcpy", "/two passes");
    for rival in &rivals {
        let spread = format!("({:.1} to {:.1})", rival.quantile(1), rival.quantile(9));
        let middle = rival.quantile(5);
        println!(
            "{:46} {middle:8.1} {spread:>17} {:8.2} {:10.2}",
            rival.name,
            middle / median(COPY),
            middle / two_passes
        );
    }
    println!();
}

fn one_piece(criterion: &mut Criterion) {
    for size in [20, 64, 128, 536, 1448, 9000] {
        let from = vec![0x5a; size];
        let mut to = vec![0; size];
        let mut group = criterion.benchmark_group(format!("copy and sum {size} bytes"));
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(COPY, |bench| {
            bench.iter(|| black_box(&mut to).copy_from_slice(black_box(&from)));
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

fn main() {
    // Without `--bench` this is a test that the benchmark runs.
    let turns = if std::env::args().any(|argument| argument == "--bench") { 101 } else { 1 };
    for size in [20, 128, 536, 1220, 1448, 8960] {
        table(size, turns);
    }
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args();
    one_piece(&mut criterion);
    criterion.final_summary();
}
