//! What the processes of a packet cost, by the number of flows: those of a cache that knows them all.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use linerate_process::{Attribution, Selection};
use linerate_wire::flow::Key;
use linerate_wire::ip::Protocol;

/// A time of which all events are known.
const TIME: u64 = 1;

fn key(flow: u32) -> Key {
    Key {
        source: IpAddr::V4(Ipv4Addr::from(0xc612_0001 + flow / 50_000)),
        destination: IpAddr::V4(Ipv4Addr::new(198, 19, 0, 1)),
        source_port: 1024 + (flow % 50_000) as u16,
        destination_port: 443,
        protocol: Protocol::TCP,
    }
}

fn attribute(criterion: &mut Criterion) {
    let attribution = match Attribution::attach().and_then(|attached| attached.start()) {
        Ok(attribution) => attribution,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let mut group = criterion.benchmark_group("attribute");
    for flows in [1, 100_000] {
        let mut cache = attribution.cache(0, Selection::default(), flows as usize);
        (0..flows).for_each(|flow| _ = cache.attribute(&key(flow), TIME));
        let mut random = 1_u32;
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("{flows} flows"), |bencher| {
            bencher.iter(|| {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // Made, not read from a table: that of a packet is in its headers, which have just been read.
                let key = key(((u64::from(random) * u64::from(flows)) >> 32) as u32);
                black_box(cache.attribute(&key, TIME).is_known())
            });
        });
    }
}

criterion_group!(benches, attribute);
criterion_main!(benches);
