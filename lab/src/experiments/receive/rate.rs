//! `receive-rate`: messages received a second, and what each costs.

use anyhow::Result;

use super::messages::ReceiveOutcome;
use super::readers::{BACKENDS, Candidate, candidates, counted, lines, once};
use super::testbed::{Load, Testbed};
use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::Samples;
use crate::report::distribution::Distribution;
use crate::report::summary::{Axis, Chart, Claim, Line};

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

/// What one reader reached.
struct Rates {
    /// Messages a second at full speed.
    flood: f64,
    /// CPU nanoseconds of each of them.
    cpu: f64,
    /// System calls of each of them.
    calls: f64,
    /// Messages a second without loss.
    loss_free: f64,
}

fn run(context: &mut Context) -> Result<()> {
    let all = candidates(context, true);
    let places = context.quick_or_full(&PLACES[..1], &PLACES[..]);
    let messages = context.quick_or_full(1_000_000, 4_000_000);
    let xs: Vec<f64> = places.iter().map(|(x, ..)| *x).collect();
    let samples = Samples::collect(context, lines(&all), &xs, |context, at, place, repeat| {
        let ((x, flows, sizes), one) = (places[place], &all[at]);
        let load = Load { sizes, messages, rate: None, flows, stamp: "sequence" };
        let flood = once(context, one, x, repeat, &load, &[])?;
        let loss_free = without_loss(context, one, x, repeat, &load)?;
        let of = |value: fn(&ReceiveOutcome) -> f64| {
            flood.as_ref().map_or(f64::NAN, |flood| counted(flood, value))
        };
        Ok(Some(Rates {
            flood: of(ReceiveOutcome::rate),
            cpu: of(ReceiveOutcome::cpu_per_message),
            calls: of(|flood| flood.calls_per_message().unwrap_or(f64::NAN)),
            loss_free: loss_free.unwrap_or(f64::NAN),
        }))
    })?;
    for &(x, ..) in places {
        let (id, title) = match x {
            1.0 => ("one", "64-byte messages of one flow"),
            64.0 => ("flows", "64-byte messages of 64 flows"),
            _ => ("mixed", "messages of mixed sizes"),
        };
        context.charts.extend([
            Chart::bars(
                format!("free-{id}"),
                format!("Messages a second without loss: {title}"),
                "Longer is better.",
                Axis::linear("received without loss", "million a second"),
                measured(&samples, x, |one| one.loss_free / 1e6),
            ),
            Chart::bars(
                format!("rate-{id}"),
                format!("Messages received a second at full speed: {title}"),
                "Longer is better. What was lost is not in it.",
                Axis::linear("received", "million a second"),
                measured(&samples, x, |one| one.flood / 1e6),
            ),
            Chart::bars(
                format!("cpu-{id}"),
                format!("CPU of the reader for each message: {title}"),
                "Shorter is better. The plain loop spins, and has none.",
                Axis::linear("CPU", "ns"),
                measured(&samples, x, |one| one.cpu),
            ),
        ]);
    }
    claims(context, &samples);
    Ok(())
}

/// The bars of those that have the value at all.
fn measured(samples: &Samples<Rates>, x: f64, value: fn(&Rates) -> f64) -> Vec<Line> {
    let mut lines = samples.bars(x, value);
    lines.retain(|line| line.points.iter().any(|point| point.spread.is_some()));
    lines
}

fn without_loss(
    context: &mut Context,
    candidate: &Candidate,
    x: f64,
    repeat: usize,
    load: &Load,
) -> Result<Option<f64>> {
    let steps = context.quick_or_full(5, 7);
    let seconds = f64::from(steps) * (2.0 + load.messages as f64 / 1e6);
    let find = |_: &_| Testbed::build()?.without_loss(&candidate.reader, load, steps);
    let name = candidate.name;
    let found = context.try_measure(name, x, repeat, seconds, find)?;
    if let Some(found) = found {
        let cells = [("messages_per_second", format!("{found:.0}"))];
        context.row("without_loss", (name, x, repeat), &cells)?;
    }
    Ok(found)
}

fn claims(context: &mut Context, samples: &Samples<Rates>) {
    let repeats = context.options.repeats;
    let best_of = |names: &[&'static str]| {
        let rate = |name| Some(samples.median((name, 1.0), |one| one.loss_free));
        let known =
            names.iter().filter_map(|name| Some((*name, rate(name).filter(|r| r.is_finite())?)));
        known.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| name)
    };
    let kept = best_of(&["recvmmsg", "gro"]).unwrap_or("gro");
    let stock = best_of(&["gro", "uring"]).unwrap_or("gro");
    let calls = BACKENDS.into_iter().chain(["auto"]);
    let most_calls =
        Distribution::of(calls.flat_map(|name| samples.values((name, 1.0), |one| one.calls)));
    let ratio =
        |ours, theirs, value: fn(&Rates) -> f64| samples.ratio((ours, 1.0), (theirs, 1.0), value);
    context.claims.extend([
        Claim::at_most(
            "CPU of the reader for a 64-byte message: xdp over recvmmsg",
            ratio("xdp", "recvmmsg", |one| one.cpu),
            1.0 / 12.0,
            repeats,
        ),
        Claim::at_least(
            "64-byte messages a second without loss: xdp over recvmmsg",
            ratio("xdp", "recvmmsg", |one| one.loss_free),
            4.5,
            repeats,
        ),
        Claim::at_least(
            &format!("the same, best backend of the stock socket ({stock}) over recvmmsg"),
            ratio(stock, "recvmmsg", |one| one.loss_free),
            2.0,
            repeats,
        ),
        Claim::all_at_least(
            "the same, gro over recvmmsg, the least of the pairs",
            ratio("gro", "recvmmsg", |one| one.loss_free),
            1.9,
            repeats,
        ),
        Claim::at_least(
            &format!("the same, auto over the best that leaves packets to the host ({kept})"),
            ratio("auto", kept, |one| one.loss_free),
            0.95,
            repeats,
        ),
        Claim::at_most(
            "own cost: time a message at full speed, xdp over a plain AF_XDP loop that parses UDP",
            ratio("plain AF_XDP loop", "xdp", |one| one.flood),
            1.05,
            repeats,
        ),
        Claim::most_is_few(
            "system calls a message at full speed, all backends, the most",
            most_calls,
        ),
    ]);
}
