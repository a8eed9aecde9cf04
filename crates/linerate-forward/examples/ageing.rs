//! What ageing costs: a table with so many sessions, all of them in use, and the ticks of its ageing.
//!
//! ```sh
//! cargo run --release -p linerate-forward --example ageing -- 1000000 30
//! ```
//!
//! Takes the number of sessions and the seconds to run, as root. A second thread plays the fast path: it sets
//! the reference bit of every session once in two seconds, so that every pass finds every bit set, which is
//! the most that it can have to write. A tenth of the sessions end each minute, and are learned again.

use std::mem::offset_of;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};
use std::time::{Duration, Instant};

use linerate_bpf::map::MappedArray;
use linerate_forward::runtime::memory::Memory;
use linerate_forward::runtime::program::{Options, Programs};
use linerate_forward::table::Table;
use linerate_forward::table::ageing::{Ageing, Limits, TICK_INTERVAL};
use linerate_forward::table::clock::Clock;
use linerate_forward::table::layout::{GENERATION_ENDED, REFERENCED, Session, WAYS, kind};
use rustix::time::{ClockId, clock_gettime};

#[allow(dead_code, reason = "the tests have more of it")]
#[path = "../tests/it/common/writer.rs"]
mod writer;

use writer::{NewSession, Writer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let mut number = |otherwise| words.next().map_or(Ok(otherwise), |word| word.parse());
    let (sessions, seconds) = (number(1_000_000u64)?, number(30u64)?);

    let options = Options { max_sessions: sessions, ..Options::default() };
    let memory = Memory::of(&options)?;
    let programs = Programs::load(&options)?;
    let table = Arc::new(Table::open(&programs.maps)?);
    let writer = Writer::open(&programs.maps);
    let slots = table.slots();
    println!("{slots} slots; {memory}");
    let mut held = 0u64;
    for number in 0..sessions {
        // Spread as a good hash spreads.
        let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        held += u64::from(writer.insert(hash ^ hash >> 29, &record(number, 1)).is_some());
    }
    println!("{held} found a slot");

    let clock = Clock::read(programs.heartbeat()?);
    let mut ageing = Ageing::new(Arc::clone(&table), &programs.maps, Limits::default(), clock)?;
    for what in ["every bit set", "no bit set"] {
        let began = cpu();
        ageing.pass()?;
        let each = (cpu() - began).as_nanos() as f64 / slots as f64;
        println!("a pass, {what}: {:?}, {each:.1} ns a slot", cpu() - began);
    }

    let stop = AtomicBool::new(false);
    let bits = MappedArray::new(programs.maps.get("table")?.as_fd())?;
    let before = ageing.statistics();
    let (began, used) = (Instant::now(), cpu());
    std::thread::scope(|scope| -> linerate_forward::Result<()> {
        scope.spawn(|| play_fast_path(&bits, (&table, &writer), held, &stop));
        let mut result = Ok(());
        while began.elapsed() < Duration::from_secs(seconds) && result.is_ok() {
            std::thread::sleep(TICK_INTERVAL);
            result = ageing.tick();
        }
        stop.store(true, Relaxed);
        result
    })?;
    let (used, passed) = (cpu() - used, began.elapsed());
    let aged = ageing.statistics();
    println!(
        "{:.2}% of one core over {:.0} s: {} passes of {:.1} s, {} slots freed, {} sessions held",
        100.0 * used.as_secs_f64() / passed.as_secs_f64(),
        passed.as_secs_f64(),
        aged.passes - before.passes,
        aged.pass_time.as_secs_f64(),
        aged.freed - before.freed,
        aged.active
    );
    Ok(())
}

fn record(number: u64, generation: u32) -> NewSession {
    let mut record = NewSession::default();
    let session = &mut record.session;
    session.in_source = (number as u32).to_be_bytes();
    session.kind = if number.is_multiple_of(2) { kind::IPV4 } else { kind::IPV4 | kind::TCP };
    session.generation = generation;
    session.owner = REFERENCED;
    record
}

/// Every slot that is taken is used once in two seconds; some sessions end.
fn play_fast_path(
    bits: &MappedArray,
    (table, writer): (&Table, &Writer),
    held: u64,
    stop: &AtomicBool,
) {
    let mut number = held;
    while !stop.load(Relaxed) {
        let began = Instant::now();
        for slot in 0..table.slots() {
            let offset = slot % WAYS * size_of::<Session>();
            let kind = bits.atomic::<AtomicU8>(slot / WAYS, offset + offset_of!(Session, kind));
            if kind.load(Relaxed) != 0 {
                let owner = offset + offset_of!(Session, owner);
                let owner = bits.atomic::<AtomicU32>(slot / WAYS, owner);
                if owner.load(Relaxed) & u32::from(REFERENCED) == 0 {
                    owner.fetch_or(REFERENCED.into(), Relaxed);
                }
            }
        }
        // A tenth in a minute: that many come that have ended already.
        for _ in 0..held / 300 {
            number += 1;
            let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            writer.insert(hash ^ hash >> 29, &record(number, GENERATION_ENDED | 2));
        }
        std::thread::sleep(Duration::from_secs(2).saturating_sub(began.elapsed()));
    }
}

/// Processor time of this thread.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
