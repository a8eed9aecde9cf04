//! `capture-queues`: what a frame costs, and how many come through, when two CPUs receive on two queues.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::measurement::settle;
use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::Samples;
use crate::measure::process::{Running, count};
use crate::peers::capture::Peer;
use crate::programs::{self, words};
use crate::report::distribution::paired_ratio;
use crate::report::summary::{Axis, Chart, Claim, Role};
use crate::topology::pair::{Pair, RECEIVER};
use crate::traffic::generated::Traffic;

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "capture-queues",
    title: "Two CPUs that receive on two queues",
    about: "A veth pair with two queues. A generator on each CPU sends 64-byte frames to the queue of \
            that CPU as fast as it can, and a reader of the capture runs on the same CPU. So a CPU does \
            the same with one as with two: generator, program and reader. An XDP program that only \
            drops shows what the generator alone costs, and what the machine gives to two CPUs.",
    run,
};

/// The line that captures nothing.
const DROP: &str = "nothing (XDP drop)";
/// The captures.
const SOURCES: [&str; 2] = ["xdp", "tee"];

/// CPUs that receive.
const CPUS: [f64; 2] = [1.0, 2.0];

/// What came through.
struct Received {
    cpus: f64,
    captured: u64,
    /// From the first frame sent until the last was read.
    seconds: f64,
}

impl Received {
    fn rate(&self) -> f64 {
        self.captured as f64 / self.seconds.max(1e-9)
    }

    /// Nanoseconds of a CPU for each frame.
    fn cost(&self) -> f64 {
        self.seconds * self.cpus * 1e9 / self.captured.max(1) as f64
    }
}

fn run(context: &mut Context) -> Result<()> {
    if context.cores().is_some_and(|cores| cores.generator == cores.consumer) {
        context.notes.push("skipped: this takes two CPUs, and there is one".into());
        return Ok(());
    }
    let (frames, seconds) = context.quick_or_full((1_500_000, 4.0), (5_000_000, 8.0));
    let lines: Vec<_> = std::iter::once((DROP.to_owned(), Role::Limit))
        .chain(SOURCES.map(|source| (source.to_owned(), Role::Ours)))
        .collect();
    let names: Vec<_> = lines.iter().map(|(name, _)| name.clone()).collect();
    let samples = Samples::collect(context, lines, &CPUS, |context, line, place, repeat| {
        let (name, cpus) = (names[line].as_str(), CPUS[place]);
        let received = context
            .try_measure(name, cpus, repeat, seconds, |_| measure(name, cpus as usize, frames))?;
        if let Some(received) = &received {
            let cells = [
                ("captured", received.captured.to_string()),
                ("seconds", format!("{:.6}", received.seconds)),
                ("captured_per_second", format!("{:.0}", received.rate())),
                ("cpu_ns_a_frame", format!("{:.1}", received.cost())),
            ];
            context.row("queues", (name, cpus, repeat), &cells)?;
        }
        Ok(received)
    })?;
    context.charts.push(Chart::lines(
        "rate",
        "Frames captured a second",
        "Higher is better.",
        Axis::linear("CPUs that receive", ""),
        Axis::linear("captured", "frames a second"),
        samples.lines(|received| received.rate()),
    ));
    let repeats = context.options.repeats;
    let rates = |name, cpus| samples.values((name, cpus), Received::rate);
    let gain = paired_ratio(&rates(DROP, CPUS[1]), &rates(DROP, CPUS[0]));
    let gain = gain.map_or_else(String::new, |gain| format!("; drop only: {:.2}", gain.median));
    for source in SOURCES {
        // What the generator costs is no part of it.
        let own = |cpus| {
            let (all, drop) = (
                samples.values((source, cpus), Received::cost),
                samples.values((DROP, cpus), Received::cost),
            );
            all.iter().zip(drop).map(|(all, drop)| all - drop).collect::<Vec<_>>()
        };
        context.claims.push(Claim::at_most(
            &format!("{source}: CPU time of program and reader a frame, two CPUs over one"),
            paired_ratio(&own(CPUS[1]), &own(CPUS[0])),
            1.15,
            repeats,
        ));
        let rate = Claim::at_least(
            &format!("{source}: frames captured a second, two CPUs over one"),
            paired_ratio(&rates(source, CPUS[1]), &rates(source, CPUS[0])),
            1.7,
            repeats,
        );
        context.claims.push(rate.adding(&gain));
    }
    Ok(())
}

/// Sends `frames` from each of the first `cpus` CPUs to the capture `name`.
fn measure(name: &str, cpus: usize, frames: u64) -> Result<Received> {
    let mut pair = Pair::with_queues(2)?;
    let cores = [pair.cores.generator, pair.cores.consumer];
    let peer = match name {
        DROP => Peer::sink(),
        _ => Peer::capture("xdp"),
    };
    let mut command = if name == DROP {
        peer.command(&pair)?
    } else {
        let list = cores[..cpus].iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let arguments = words(&format!(
            "capture -i {RECEIVER} --source {name} --threads {cpus} --cpu {list} --discard \
             --json --quiet"
        ));
        let mut command = programs::linerate(&pair.receiver, cores[0], arguments)?;
        command.cpus(cores[..cpus].iter().copied());
        command
    };
    let mut receiver = Running::start(name, &mut command)?;
    pair.wait_until_listening(&mut receiver)?;
    let traffic = Traffic::smallest(frames, None);
    let mut senders = Vec::new();
    for core in &cores[..cpus] {
        pair.cores.generator = *core;
        senders.push(traffic.start(&pair)?);
    }
    let (mut sent, mut refused, mut seconds) = (0, 0, 0.0_f64);
    for sender in senders {
        let report = traffic.finish(sender)?;
        (sent, refused) = (sent + report.frames, refused + report.refused);
        seconds = seconds.max(report.seconds);
    }
    let before = receiver.clock()?.read()?;
    let behind = settle(&pair, &peer, &receiver)?.saturating_sub(before);
    let report = receiver.stop(Duration::from_secs(60))?;
    let (captured, lost) = if name == DROP {
        (peer.peer_report(report)?.captured, 0)
    } else {
        let json = report.success()?.json()?;
        (count(&json, "captured")?, count(&json["dropped"], "total")?)
    };
    pair.wait_until_free()?;
    ensure!(
        captured + lost + refused == sent,
        "{captured} captured, {lost} lost and {refused} refused are not the {sent} sent"
    );
    let seconds = seconds + behind.as_secs_f64() / cpus as f64;
    Ok(Received { cpus: cpus as f64, captured, seconds })
}
