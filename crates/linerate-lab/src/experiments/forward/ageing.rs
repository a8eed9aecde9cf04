//! `forward-ageing`: what looking after the sessions costs (seed 003, Fig. 5.7).

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::baseline::forward::Baseline;
use crate::experiments::context::{Context, Experiment};
use crate::interrupt;
use crate::measure::cores::Cores;
use crate::measure::process::count;
use crate::report::distribution::Distribution;
use crate::report::summary::{Axis, Chart, Claim, Line, Point, Role};
use crate::topology::routed::{RoutedPair, Traffic, Way};

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "forward-ageing",
    title: "What looking after the sessions costs",
    about: "CPU time of the daemon by the number of sessions that it holds and ages, over ten seconds in \
            which none of them ends. With one session there is nothing to age: that is the daemon without \
            ageing (heartbeat, watching the kernel). shared, per-cpu and split are baselines that keep sessions \
            in the kernel's hash maps, which take system calls to walk, and watch nothing.",
    run,
};

const MILLION: f64 = 1e6;
const LINES: [(&str, Role, Way); 4] = [
    ("slot", Role::Ours, Way::Linerate("slot")),
    ("shared", Role::Peer, Way::Baseline(Baseline::Shared)),
    ("per-cpu", Role::Peer, Way::Baseline(Baseline::PerCpu)),
    ("split", Role::Peer, Way::Baseline(Baseline::Split)),
];

fn run(context: &mut Context) -> Result<()> {
    let all: &[u64] = context.pick(&[1, 1_000_000], &[1, 21_000, 100_000, 300_000, 1_000_000]);
    let time = Duration::from_secs(context.pick(5, 10));
    let mut lines = Vec::new();
    let mut at_a_million = None;
    for (name, role, way) in LINES {
        let mut points = Vec::new();
        for &sessions in all {
            let x = sessions as f64;
            let mut shares = Vec::new();
            for repeat in 1..=context.options.repeats {
                if !context.wants(name, x) {
                    continue;
                }
                let about = time.as_secs_f64() + 4.0 + 4.0 * x / 1e6;
                let work = |cores| age(cores, way, sessions, time);
                let done = context.attempt(name, x, repeat, about, |pair| work(pair.cores))?;
                let Some(share) = done else { continue };
                let cells = [name.into(), x.to_string(), repeat.to_string(), format!("{share:.4}")];
                context.row("raw", &["line", "sessions", "repeat", "percent_of_a_core"], cells)?;
                shares.push(share);
            }
            if shares.is_empty() {
                continue;
            }
            let void = context.options.repeats - shares.len();
            let spread = Distribution::of(shares);
            if (name, x) == ("slot", MILLION) {
                at_a_million = spread;
            }
            points.push(Point { x, spread, void, remark: None });
        }
        if !points.is_empty() {
            lines.push(Line { name: name.into(), role, points });
        }
    }
    context.charts.push(Chart {
        id: "cpu".into(),
        title: "CPU time of the daemon".into(),
        caption: "Lower is better. The seed's cleaner took 2% for 21,000 sessions.".into(),
        x: Some(Axis::logarithmic("sessions", "")),
        y: Axis::linear("CPU", "% of a core"),
        lines,
    });
    let (claim, bound) = ("ageing of 1,000,000 sessions", "under 2% of a core");
    let repeats = context.options.repeats;
    context.claims.push(match at_a_million {
        Some(share) if share.speaks_for(repeats) => Claim::new(
            claim,
            format!(
                "{:.2}% (min {:.2}, max {:.2}, {} runs), the rest of the daemon in it",
                share.median, share.min, share.max, share.count
            ),
            bound,
            share.median < 2.0,
        )
        .straddling(share.min < 2.0 && share.max >= 2.0),
        _ => Claim::open(claim, "too few runs counted", bound),
    });
    Ok(())
}

/// Percent of a core that the daemon takes with so many sessions.
fn age(cores: Cores, way: Way, sessions: u64, time: Duration) -> Result<f64> {
    let routed = RoutedPair::build(cores)?;
    let Some(daemon) = routed.begin(way, sessions)? else { anyhow::bail!("nobody to measure") };
    let sink = routed.sink_east()?;
    routed.warm_up(&Traffic { size: 64, frames: 0, sessions, rate: None })?;
    // What learning left to do is done.
    interrupt::sleep(Duration::from_secs(2))?;
    let clock = daemon.clock()?;
    let (began, before) = (Instant::now(), clock.read()?);
    interrupt::sleep(time)?;
    let used = clock.read()?.saturating_sub(before);
    let share = used.as_secs_f64() / began.elapsed().as_secs_f64() * 100.0;
    let held = count(&routed.status_of(way)?["sessions"], "active")?;
    sink.stop(Duration::from_secs(20))?;
    daemon.stop(Duration::from_secs(30))?.success()?;
    anyhow::ensure!(held >= sessions - sessions / 100, "only {held} of {sessions} were held");
    Ok(share)
}
