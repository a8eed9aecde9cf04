//! `capture-soak`: does memory grow?

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::experiments::capture::measurement::measure_with;
use crate::experiments::context::{Context, Experiment};
use crate::interrupt;
use crate::measure::process::Running;
use crate::peers::capture::Peer;
use crate::report::distribution::Distribution;
use crate::report::summary::{Axis, Chart, Claim, Line, Point};
use crate::traffic::generated::Traffic;

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "capture-soak",
    title: "Memory over a long capture at full rate",
    about: "64-byte frames at full speed, for ten minutes (20 seconds when quick), to a capture \
            that throws them away. Its resident memory is read every second. One run a source: a \
            curve over time is what is asked for, not a point.",
    run,
};

/// Growth that is no leak: a stack that is touched for the first time, a buffer of the C
/// library.
const SLACK_MIB: f64 = 1.0;

fn run(context: &mut Context) -> Result<()> {
    let peers = context.select_peers(vec![Peer::capture("xdp"), Peer::capture("packet")], 64.0)?;
    let length = Duration::from_secs(context.quick_or_full(20, 600));
    let mut lines = Vec::new();
    for peer in &peers {
        let mut samples: Vec<(f64, f64)> = Vec::new();
        // More than can be sent in this time; the sender is stopped when it is over.
        let traffic = Traffic::smallest(1 << 40, None);
        let expected = length.as_secs_f64() + peer.expected_seconds(&Traffic::smallest(0, None));
        let kept = context.keep(&peer.name, 64.0, 1, expected, |pair| {
            measure_with(pair, peer, &traffic, |receiver, sender| {
                samples = sample(receiver, length)?;
                sender.signal(nix::sys::signal::Signal::SIGINT)
            })
        })?;
        for (seconds, mib) in &samples {
            let (seconds, mib) = (format!("{seconds:.1}"), format!("{mib:.3}"));
            let cells = [("line", peer.name.clone()), ("seconds", seconds), ("resident_mib", mib)];
            context.row("memory", &cells)?;
        }
        // Memory that is flat while nothing is captured says nothing.
        let captured = kept.map_or(0, |kept| kept.peer_report.captured);
        context.claims.push(claim(&peer.name, captured, &samples));
        let point = |&(x, mib): &(f64, f64)| Point {
            x: x.round(),
            spread: Distribution::of([mib]),
            void: 0,
            remark: None,
        };
        // Sixty points are a curve; six hundred would be a smear.
        let every = samples.len().div_ceil(60).max(1);
        let points = samples.iter().step_by(every).map(point).collect();
        lines.push(Line { name: peer.name.clone(), role: peer.role, points });
    }
    context.charts.push(Chart::lines(
        "memory",
        "Resident memory of the capture",
        "Level is good. Huge pages of the buffer are not in it: the kernel counts them \
                  apart.",
        Axis::linear("time", "s"),
        Axis::linear("resident memory", "MiB"),
        lines,
    ));
    Ok(())
}

fn sample(receiver: &mut Running, length: Duration) -> Result<Vec<(f64, f64)>> {
    let start = Instant::now();
    let mut samples = Vec::new();
    while start.elapsed() < length {
        receiver.check()?;
        samples.push((start.elapsed().as_secs_f64(), resident(receiver.pid())?));
        interrupt::sleep(Duration::from_secs(1))?;
    }
    Ok(samples)
}

/// MiB of memory that the process has in place, from `/proc/PID/status`.
fn resident(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let kib: Option<f64> = text
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    Ok(kib.with_context(|| format!("{path} has no VmRSS"))? / 1024.0)
}

/// Flat: the last quarter is no higher than the second, which leaves the start out.
fn claim(name: &str, captured: u64, samples: &[(f64, f64)]) -> Claim {
    let claim = format!("memory while capturing at full rate is flat: {name}");
    let bound = format!("growth at most {SLACK_MIB} MiB");
    if captured == 0 {
        return Claim::open(&claim, "nothing was captured", &bound);
    }
    let part = |from: usize, to: usize| {
        let length = samples.len();
        Distribution::of(samples[length * from / 4..length * to / 4].iter().map(|(_, mib)| *mib))
    };
    match (part(1, 2), part(3, 4)) {
        (Some(early), Some(late)) => {
            let growth = late.median - early.median;
            let seconds = samples.last().map_or(0.0, |(seconds, _)| *seconds);
            let figure = format!(
                "{:.2} MiB, then {:.2} MiB: {growth:+.2} MiB over {seconds:.0} s and {captured} frames",
                early.median, late.median
            );
            Claim::new(&claim, figure, &bound, growth <= SLACK_MIB)
        }
        _ => Claim::open(&claim, "too few samples", &bound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_told_from_a_level() {
        let level: Vec<_> = (0..40).map(|at| (f64::from(at), 50.0)).collect();
        assert_eq!(claim("x", 1, &level).holds, Some(true));
        let rising: Vec<_> = (0..40).map(|at| (f64::from(at), 50.0 + f64::from(at))).collect();
        assert_eq!(claim("x", 1, &rising).holds, Some(false));
        let warming: Vec<_> =
            (0..40).map(|at| (f64::from(at), if at < 5 { 10.0 } else { 50.0 })).collect();
        assert_eq!(claim("x", 1, &warming).holds, Some(true));
        assert_eq!(claim("x", 1, &[]).holds, None);
        assert_eq!(claim("x", 0, &level).holds, None);
    }

    #[test]
    fn this_process_is_somewhere() {
        assert!(resident(std::process::id()).unwrap() > 0.5);
    }
}
