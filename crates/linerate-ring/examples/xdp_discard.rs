//! Receives everything on an interface over AF_XDP and throws it away: what the library costs.
//!
//! `xdp_discard INTERFACE [--seconds N] [--pages small|thp|hugetlb|auto] [--buffer MIB]
//! [--batch N] [--pause MICROSECONDS] [--patience MICROSECONDS] [--prefetch N]
//! [--stamps none|reader|kernel|hardware] [--touch] [--queues N,N] [--stall MILLISECONDS]`; prints
//! one JSON object at the end or at SIGINT. `--touch` reads the first byte of every frame. `--stall`
//! sleeps once, a second after the first frame.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linerate_ring::xdp::{Source, TimestampSource, WaitStrategy};

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: i32) {
    STOP.store(true, Ordering::Relaxed);
}

fn main() {
    if let Err(error) = run() {
        eprintln!("xdp_discard: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let interface = arguments.next().ok_or("usage: xdp_discard INTERFACE [options]")?;
    let mut builder = Source::builder(&interface).timestamps(TimestampSource::None);
    let (mut pace, mut seconds, mut touch) = (WaitStrategy::default(), 1 << 30, false);
    let mut stall = None;
    while let Some(option) = arguments.next() {
        if option == "--touch" {
            touch = true;
            continue;
        }
        if option == "--single" {
            builder = builder.multi_buffer(false);
            continue;
        }
        let value = arguments.next().ok_or("an option without a value")?;
        match option.as_str() {
            "--seconds" => seconds = value.parse()?,
            "--pages" => builder = builder.pages(value.parse()?),
            "--buffer" => builder = builder.buffer(value.parse::<usize>()? << 20),
            "--batch" => builder = builder.batch(value.parse()?),
            "--pause" => pace.sleep = Duration::from_micros(value.parse()?),
            "--patience" => pace.poll_after = Duration::from_micros(value.parse()?),
            "--prefetch" => builder = builder.prefetch(value.parse()?),
            "--stall" => stall = Some(Duration::from_millis(value.parse()?)),
            "--queues" => {
                let queues: Result<Vec<u32>, _> = value.split(',').map(str::parse).collect();
                builder = builder.queues(&queues?);
            }
            "--stamps" => {
                builder = builder.timestamps(match value.as_str() {
                    "none" => TimestampSource::None,
                    "reader" => TimestampSource::Reader,
                    "kernel" => TimestampSource::Kernel,
                    "hardware" => TimestampSource::Hardware,
                    _ => return Err("stamps are none, reader, kernel or hardware".into()),
                });
            }
            _ => return Err(format!("unknown option {option}").into()),
        }
    }
    // SAFETY: the handler only stores to an atomic.
    unsafe {
        libc::signal(libc::SIGINT, stop as extern "C" fn(i32) as usize);
        libc::signal(libc::SIGTERM, stop as extern "C" fn(i32) as usize);
    }
    let mut source = builder.wait_strategy(pace).build()?;
    eprintln!("{} {:?} {:?}", source.attach_mode(), source.mode(), source.region().actual_pages());
    let start = Instant::now();
    let (mut first, mut last) = (None, start);
    let (mut received, mut sum) = (0u64, 0u64);
    while !STOP.load(Ordering::Relaxed) && start.elapsed().as_secs() < seconds {
        if !source.wait(Duration::from_millis(100))? {
            continue;
        }
        let began = *first.get_or_insert_with(Instant::now);
        while let Some(mut batch) = source.batch() {
            while let Some(frame) = batch.next() {
                received += 1;
                if touch {
                    sum += u64::from(frame.head()[0]);
                }
            }
        }
        last = Instant::now();
        if stall.is_some() && last - began > Duration::from_secs(1) {
            std::thread::sleep(stall.take().expect("checked"));
        }
    }
    let counts = source.statistics()?;
    let busy = first.map_or(0.0, |first| (last - first).as_secs_f64());
    println!(
        "{{\"received\":{received},\"dropped\":{},\"fill_empty\":{},\"ring_full\":{},\
         \"matched\":{},\"seconds\":{:.6},\"busy_seconds\":{busy:.6},\"sum\":{sum}}}",
        counts.lost(),
        counts.fill_empty,
        counts.ring_full,
        counts.matched,
        start.elapsed().as_secs_f64(),
    );
    Ok(())
}
