//! `capture-tlb`: what the pages of the ring do to address translation, as in Laura Trivelloni, "Huge Pages
//! Impact Analysis on High-Speed Network Packet Capture in the Linux Kernel" (2018), figures 6.11 and 6.12.

use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::signal::Signal;

use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::Samples;
use crate::interrupt;
use crate::measure::process::{Running, count};
use crate::measure::tlb::TlbCounts;
use crate::peers::capture::Peer;
use crate::programs;
use crate::report::summary::{Axis, Chart, Line, Role};
use crate::topology::pair::{Pair, RECEIVER};
use crate::traffic::generated::Traffic;

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "capture-tlb",
    title: "Pages and address translation",
    about: "The ring is filled with 60,000 synthetic frames (700 to 1500 bytes) before it is read, \
            then walked once, every byte hashed. Counted are the data TLB's loads, stores and \
            misses (perf_event_open), page faults, and the time of the walk, for each kind of \
            pages.",
    run,
};

/// Fewer than the default buffer has chunks (65,536).
const FRAMES: u64 = 60_000;
/// Their mean size, by which the measurements are named.
const SIZES: f64 = 1100.0;

struct Walk {
    frames: u64,
    nanoseconds: u64,
    page_faults: u64,
    translation: Option<TlbCounts>,
    got: String,
    mode: String,
}

fn run(context: &mut Context) -> Result<()> {
    let kinds =
        [("hugetlb", "huge pages"), ("thp", "transparent huge pages"), ("small", "small pages")];
    if !context.can_run(&Peer::consumer("xdp", "small", 0, 1))? {
        return Ok(());
    }
    let repeats = context.options.repeats * context.quick_or_full(1, 2);
    context.options.repeats = repeats;
    let lines = kinds.map(|(_, name)| (name.to_owned(), Role::Ours)).into();
    let samples = Samples::collect(context, lines, &[SIZES], |context, kind, _, repeat| {
        let (pages, name) = kinds[kind];
        let walk = context.try_measure(name, SIZES, repeat, 2.0, |pair| walk(pair, pages))?;
        if let Some(walk) = &walk {
            context.row("walks", &cells(pages, repeat, walk))?;
            context.attached(name, &walk.mode);
        }
        Ok(walk)
    })?;
    let bars = |value: &dyn Fn(&Walk) -> Option<f64>| -> Vec<Line> {
        samples.bars(SIZES, |walk| value(walk).unwrap_or(f64::NAN))
    };
    let walks =
        kinds.map(|(_, name)| samples.at((name, SIZES)).iter().flatten().collect::<Vec<&Walk>>());
    let each = |count: u64, walk: &Walk| count as f64 / walk.frames.max(1) as f64;
    let counted = walks.iter().flatten().any(|walk| walk.translation.is_some());
    if counted {
        let rate = |misses: u64, all: u64| (all > 0).then(|| misses as f64 / all as f64 * 100.0);
        context.charts.push(Chart::bars(
            "loads",
            "Data-TLB load miss rate",
            "Shorter is better.",
            Axis::linear("misses", "% of loads"),
            bars(&|walk| walk.translation.and_then(|t| rate(t.load_misses, t.loads))),
        ));
        context.charts.push(Chart::bars(
            "stores",
            "Data-TLB store miss rate",
            "Shorter is better.",
            Axis::linear("misses", "% of stores"),
            bars(&|walk| walk.translation.and_then(|t| rate(t.store_misses, t.stores))),
        ));
        context.charts.push(Chart::bars(
            "misses",
            "Data-TLB load misses for a frame",
            "Shorter is better.",
            Axis::linear("misses", "a frame"),
            bars(&|walk| walk.translation.map(|t| each(t.load_misses, walk))),
        ));
    } else {
        context.notes.push(
            "This machine has no event counters that a program may read (no PMU), so there are no \
             TLB figures. In their place stands the time of the same ring walk: a stand-in, which \
             holds the cost of translation but also everything else that a walk costs."
                .into(),
        );
    }
    let stand_in = if counted { "" } else { " (stand-in for TLB misses)" };
    let title = format!("Time of the ring walk for a frame{stand_in}");
    let time = bars(&|walk| Some(each(walk.nanoseconds, walk)));
    let spread = |name: &str| time.iter().find(|line| line.name == name)?.points[0].spread;
    let (huge, small) = (spread(kinds[0].1), spread(kinds[2].1));
    context.charts.push(Chart::bars(
        "time",
        title,
        "Shorter is better.",
        Axis::linear("time", "ns a frame"),
        time,
    ));
    context.charts.push(Chart::bars(
        "faults",
        "Page faults during the walk",
        "Shorter is better.",
        Axis::linear("page faults", "a walk"),
        bars(&|walk| Some(walk.page_faults as f64)),
    ));
    for ((_, name), walks) in kinds.iter().zip(&walks) {
        let mut got: Vec<&str> = walks.iter().map(|walk| walk.got.as_str()).collect();
        got.sort_unstable();
        got.dedup();
        if !got.is_empty() {
            context.notes.push(format!("asked for {name}, got: {}", got.join("; or ")));
        }
    }
    let subject = format!("time of the ring walk, huge pages against small pages{stand_in}");
    context.notes.push(match (huge, small) {
        (Some(huge), Some(small)) => format!(
            "{subject}: {:.0} ns ({:.0} to {:.0}) against {:.0} ns ({:.0} to {:.0}) a frame",
            huge.median, huge.min, huge.max, small.median, small.min, small.max
        ),
        _ => format!("{subject}: one of the two has no run that counts"),
    });
    Ok(())
}

fn walk(pair: &Pair, pages: &str) -> Result<Walk> {
    let words = ["consumer", "-i", RECEIVER, "--source", "xdp", "--hold", "--pages", pages];
    let mut command = programs::helper(&pair.receiver, pair.cores.consumer, words)?;
    let mut consumer = Running::start("the consumer", &mut command)?;
    pair.wait_until_listening(&mut consumer)?;
    let sent = Traffic::synthetic(FRAMES, Some(200_000)).send(pair)?;
    interrupt::sleep(Duration::from_millis(50))?;
    consumer.signal(Signal::SIGUSR1)?;
    interrupt::sleep(Duration::from_millis(300))?;
    let report = consumer.stop(Duration::from_secs(20))?.success()?.json()?;
    pair.wait_until_free()?;
    let frames = count(&report, "captured")?;
    anyhow::ensure!(frames == sent.frames, "{frames} of {} frames were walked", sent.frames);
    Ok(Walk {
        frames,
        nanoseconds: count(&report, "busy_nanoseconds")?,
        page_faults: count(&report, "page_faults")?,
        translation: serde_json::from_value(report["translation"].clone())
            .context("the consumer's TLB counts cannot be read")?,
        mode: report["mode"].as_str().unwrap_or_default().to_owned(),
        got: report["pages"].as_str().unwrap_or_default().to_owned(),
    })
}

fn cells(pages: &str, repeat: usize, walk: &Walk) -> [(&'static str, String); 10] {
    let cell = |value: fn(&TlbCounts) -> u64| {
        walk.translation.as_ref().map(value).map(|count| count.to_string()).unwrap_or_default()
    };
    [
        ("pages", pages.to_owned()),
        ("got", walk.got.clone()),
        ("repeat", repeat.to_string()),
        ("frames", walk.frames.to_string()),
        ("nanoseconds", walk.nanoseconds.to_string()),
        ("page_faults", walk.page_faults.to_string()),
        ("dtlb_loads", cell(|t| t.loads)),
        ("dtlb_load_misses", cell(|t| t.load_misses)),
        ("dtlb_stores", cell(|t| t.stores)),
        ("dtlb_store_misses", cell(|t| t.store_misses)),
    ]
}
