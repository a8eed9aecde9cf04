//! `receive-latency`: from sending to the reader, by rate.

use anyhow::Result;

use super::messages::ReceiveOutcome;
use super::readers::{candidates, counted, lines, once};
use super::testbed::Load;
use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::Samples;
use crate::report::summary::{Axis, Chart, Claim};

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "receive-latency",
    title: "From sending to the reader",
    about: "64-byte messages of one flow at a paced rate, each with the time at which its frame was written. \
            The reader reads the clock once a batch, so that the figure is the time until a message's \
            batch was handed over. A message wakes a sleeping reader: these rates are too low for coalescing; \
            with --spin readers never sleep.",
    run,
};

/// Messages a second.
const CLAIM_RATE: f64 = 10_000.0;

fn run(context: &mut Context) -> Result<()> {
    let all = candidates(context, false);
    let rates: &[u64] =
        context.quick_or_full(&[10_000, 200_000], &[1_000, 10_000, 50_000, 200_000, 400_000]);
    let xs: Vec<f64> = rates.iter().map(|&rate| rate as f64).collect();
    let kinds = ["p50", "p99", "p999"];
    for (id, title, more) in [
        ("sleeping", "sleeping readers", &["--check", "time"][..]),
        ("spinning", "spinning readers", &["--check", "time", "--spin"][..]),
    ] {
        let samples = Samples::collect(context, lines(&all), &xs, |context, at, place, repeat| {
            let rate = rates[place];
            let messages = rate * context.quick_or_full(1, 3);
            let load = Load { sizes: &[64], messages, rate: Some(rate), flows: 1, stamp: "time" };
            once(context, &all[at], xs[place], repeat, &load, more)
        })?;
        for kind in kinds {
            let latency = |one: &ReceiveOutcome| {
                one.report["latency_ns"][kind].as_f64().map_or(f64::NAN, |ns| ns / 1e3)
            };
            context.charts.push(Chart::lines(
                format!("{id}-{kind}"),
                format!("Latency, {kind}: {title}"),
                "Lower is better.",
                Axis::logarithmic("rate", "messages a second"),
                Axis::logarithmic("latency", "µs"),
                samples.lines(|one| counted(one, latency)),
            ));
            if id == "spinning" && kind != "p999" {
                let ratio = samples.ratio(("xdp", CLAIM_RATE), ("recvmmsg", CLAIM_RATE), |one| {
                    counted(one, latency)
                });
                let text = format!(
                    "latency at 10,000 messages a second, {kind}: xdp spinning over recvmmsg spinning"
                );
                context.claims.push(Claim::at_most(&text, ratio, 0.6, context.options.repeats));
            }
        }
    }
    Ok(())
}
