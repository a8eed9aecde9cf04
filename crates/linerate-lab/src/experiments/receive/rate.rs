//! `receive-rate`: messages received a second, and what each costs.

use anyhow::Result;

use super::messages::{Load, Testbed};
use super::readers::{Candidate, Cells, candidates, once};
use crate::experiments::context::{Context, Experiment};
use crate::report::distribution::Distribution;
use crate::report::summary::{Axis, Chart, Claim};

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "receive-rate",
    title: "Messages received a second, and the CPU of each",
    about: "UDP messages with checksums over a veth, generator and receiving softirq on one core, the reader \
            on the other: 64-byte messages of one flow (1), of 64 flows (64), and of one flow with sizes of \
            64, 64, 300 and 1000 bytes in turn (0). First as fast as the generator goes, then at the highest \
            rate without loss, which is searched for by halving. recvmmsg is the careful program of today, \
            with headers and buffers prepared once. CPU is that of the reading thread, its system calls \
            included, the softirq's not.",
    run,
};

/// Where lines are, with flows and sizes.
const PLACES: [(f64, u64, &[u32]); 3] =
    [(1.0, 1, &[64]), (64.0, 64, &[64]), (0.0, 1, &[64, 64, 300, 1000])];

fn run(context: &mut Context) -> Result<()> {
    let all = candidates(context, true);
    let places = context.pick(&PLACES[..1], &PLACES[..]);
    let messages = context.pick(1_000_000, 4_000_000);
    let (mut rate, mut cpu, mut calls) = (Cells::default(), Cells::default(), Cells::default());
    let mut free = Cells::default();
    for repeat in 1..=context.options.repeats {
        for &(x, flows, sizes) in places {
            let load = Load { sizes, messages, rate: None, flows, stamp: "sequence" };
            for candidate in &all {
                if !context.wants(candidate.name, x) {
                    continue;
                }
                let seen = once(context, candidate, x, repeat, &load, &[])?;
                if let Some(seen) = seen {
                    let value = |value: f64| if seen.void.is_none() { value } else { f64::NAN };
                    rate.add(candidate.name, x, value(seen.rate()));
                    cpu.add(candidate.name, x, value(seen.cpu_per_message()));
                    if let Some(per_message) = seen.calls_per_message() {
                        calls.add(candidate.name, x, value(per_message));
                    }
                }
                let found = without_loss(context, candidate, x, repeat, &load)?;
                if let Some(found) = found {
                    free.add(candidate.name, x, found);
                }
            }
        }
    }
    for &(x, ..) in places {
        let (id, title) = match x {
            1.0 => ("one", "64-byte messages of one flow"),
            64.0 => ("flows", "64-byte messages of 64 flows"),
            _ => ("mixed", "messages of mixed sizes"),
        };
        context.charts.extend([
            bars(
                format!("free-{id}"),
                format!("Messages a second without loss: {title}"),
                "Longer is better.",
                "received without loss",
                "million a second",
                scaled(&free, &all, x, 1e-6),
            ),
            bars(
                format!("rate-{id}"),
                format!("Messages received a second at full speed: {title}"),
                "Longer is better. What was lost is not in it.",
                "received",
                "million a second",
                scaled(&rate, &all, x, 1e-6),
            ),
            bars(
                format!("cpu-{id}"),
                format!("CPU of the reader for each message: {title}"),
                "Shorter is better. The bare loop spins, and has none.",
                "CPU",
                "ns",
                scaled(&cpu, &all, x, 1.0),
            ),
        ]);
    }
    claims(context, &rate, &cpu, &calls, &free);
    Ok(())
}

fn scaled(
    cells: &Cells,
    all: &[Candidate],
    x: f64,
    factor: f64,
) -> Vec<crate::report::summary::Line> {
    let mut lines = cells.bars(all, x);
    for point in lines.iter_mut().flat_map(|line| &mut line.points) {
        point.spread = point.spread.map(|spread| spread.scaled(factor));
    }
    lines.retain(|line| line.points.iter().any(|point| point.spread.is_some()));
    lines
}

fn bars(
    id: String,
    title: String,
    caption: &str,
    label: &str,
    unit: &str,
    lines: Vec<crate::report::summary::Line>,
) -> Chart {
    Chart { id, title, caption: caption.into(), x: None, y: Axis::linear(label, unit), lines }
}

fn without_loss(
    context: &mut Context,
    candidate: &Candidate,
    x: f64,
    repeat: usize,
    load: &Load,
) -> Result<Option<f64>> {
    let steps = context.pick(5, 7);
    let seconds = f64::from(steps) * (2.0 + load.messages as f64 / 1e6);
    let find = |_: &_| Testbed::build()?.without_loss(&candidate.reader, load, steps);
    let name = candidate.name;
    let found = context.attempt(name, x, repeat, seconds, find)?;
    if let Some(found) = found {
        let cells = [name.into(), x.to_string(), repeat.to_string(), format!("{found:.0}")];
        context.row("without_loss", &["line", "x", "repeat", "messages_per_second"], cells)?;
    }
    Ok(found)
}

fn claims(context: &mut Context, rate: &Cells, cpu: &Cells, calls: &Cells, free: &Cells) {
    let repeats = context.options.repeats;
    let best = ["recvmmsg", "gro", "uring", "xdp"]
        .into_iter()
        .filter_map(|name| free.median(name, 1.0).map(|median| (name, median)))
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map_or("xdp", |(name, _)| name);
    let stock = ["gro", "uring"]
        .into_iter()
        .max_by(|a, b| {
            let of = |name| free.median(name, 1.0).unwrap_or(0.0);
            of(a).total_cmp(&of(b))
        })
        .unwrap_or("gro");
    let most_calls = Distribution::of(
        ["recvmmsg", "gro", "uring", "xdp", "auto"]
            .iter()
            .flat_map(|name| calls.of(name, 1.0).iter().copied()),
    );
    let few = "system calls a message at full speed, all back ends, the most";
    context.claims.extend([
        Claim::at_most(
            "CPU of the reader for a 64-byte message: xdp over recvmmsg",
            cpu.ratio(1.0, "xdp", "recvmmsg"),
            0.2,
            repeats,
        ),
        Claim::at_least(
            "64-byte messages a second without loss: xdp over recvmmsg",
            free.ratio(1.0, "xdp", "recvmmsg"),
            3.5,
            repeats,
        ),
        Claim::at_least(
            &format!("the same, best back end of the stock socket ({stock}) over recvmmsg"),
            free.ratio(1.0, stock, "recvmmsg"),
            2.0,
            repeats,
        ),
        Claim::at_least(
            &format!("the same, auto over the best by hand ({best})"),
            free.ratio(1.0, "auto", best),
            0.95,
            repeats,
        ),
        Claim::at_most(
            "own cost: time a message at full speed, xdp over a bare AF_XDP loop that parses UDP",
            rate.ratio(1.0, "plain AF_XDP loop", "xdp"),
            1.1,
            repeats,
        ),
        match most_calls {
            Some(spread) => Claim::new(
                few,
                format!("{:.4} (median {:.4}, {} runs)", spread.max, spread.median, spread.count),
                "under 0.02",
                spread.max < 0.02,
            ),
            None => Claim::open(few, "no run counted", "under 0.02"),
        },
    ]);
}
