//! `receive-latency`: from sending to the reader, by rate.

use anyhow::Result;

use super::messages::Load;
use super::readers::{Cells, candidates, once};
use crate::experiments::context::{Context, Experiment};
use crate::report::summary::{Axis, Chart};

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "receive-latency",
    title: "From sending to the reader",
    about: "64-byte messages of one flow at a paced rate, each with the time at which its frame was written. \
            The reader looks at the clock once a batch, so that the figure is the time until a message's \
            batch was handed over. Readers sleep until a message wakes them, and rest where 640,000 a second \
            come, which is more than here; with --spin they never sleep.",
    run,
};

fn run(context: &mut Context) -> Result<()> {
    let all = candidates(context, false);
    let rates: &[u64] =
        context.pick(&[10_000, 200_000], &[1_000, 10_000, 50_000, 200_000, 400_000]);
    let xs: Vec<f64> = rates.iter().map(|&rate| rate as f64).collect();
    let kinds = ["p50", "p99", "p999"];
    for (id, title, more) in [
        ("sleeping", "sleeping readers", &["--check", "time"][..]),
        ("spinning", "spinning readers", &["--check", "time", "--spin"][..]),
    ] {
        let mut found = [Cells::default(), Cells::default(), Cells::default()];
        for repeat in 1..=context.options.repeats {
            for &rate in rates {
                let x = rate as f64;
                let messages = rate * context.pick(1, 3);
                let load =
                    Load { sizes: &[64], messages, rate: Some(rate), flows: 1, stamp: "time" };
                for candidate in &all {
                    if !context.wants(candidate.name, x) {
                        continue;
                    }
                    let seen = once(context, candidate, x, repeat, &load, more)?;
                    let Some(seen) = seen.filter(|seen| seen.void.is_none()) else { continue };
                    for (cells, kind) in found.iter_mut().zip(kinds) {
                        let ns = seen.report["latency_ns"][kind].as_f64().unwrap_or(f64::NAN);
                        cells.add(candidate.name, x, ns / 1e3);
                    }
                }
            }
        }
        for (cells, kind) in found.iter().zip(kinds) {
            context.charts.push(Chart {
                id: format!("{id}-{kind}"),
                title: format!("Latency, {kind}: {title}"),
                caption: "Lower is better.".into(),
                x: Some(Axis::logarithmic("rate", "messages a second")),
                y: Axis::logarithmic("latency", "µs"),
                lines: cells.lines(&all, &xs),
            });
        }
    }
    Ok(())
}
