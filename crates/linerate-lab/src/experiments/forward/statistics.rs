//! `forward-statistics`: what counting costs (seed 003, Fig. 5.4).

use anyhow::Result;

use super::cost::{Crossing, Forwarder, Place};
use crate::baseline::forward::Baseline;
use crate::experiments::context::{Context, Experiment};
use crate::report::summary::{Axis, Chart, Role};
use crate::topology::routed::{Traffic, Way};

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "forward-statistics",
    title: "What counting packets and bytes of a session costs",
    about: "The same accelerator with five designs of statistics. none: nothing is counted. slot: in the \
            session, by the CPU that owns it. shared, per-cpu and split are baselines that only the lab has: \
            one hash map with atomic counters; one per-CPU hash map; a hash map for sessions and \
            another for counters.",
    run,
};

const fn linerate(name: &'static str, role: Role) -> Forwarder {
    Forwarder { name, role, way: Way::Linerate(name) }
}

const fn hashed(name: &'static str, baseline: Baseline) -> Forwarder {
    Forwarder { name, role: Role::Peer, way: Way::Baseline(baseline) }
}

const NONE: Forwarder = linerate("none", Role::Limit);
const SLOT: Forwarder = linerate("slot", Role::Ours);
const HASHED: [Forwarder; 3] = [
    hashed("shared", Baseline::Shared),
    hashed("per-cpu", Baseline::PerCpu),
    hashed("split", Baseline::Split),
];

fn run(context: &mut Context) -> Result<()> {
    let [shared, per_cpu, split] = HASHED;
    let sizes: &[u32] = context.pick(&[64], &[64, 256, 512, 1024, 1500]);
    let frames = context.pick(2_000_000, 5_000_000);
    let place = |&size: &u32| Place {
        x: f64::from(size),
        traffic: Traffic { size, frames, sessions: 1, rate: None },
    };
    let places: Vec<_> = sizes.iter().map(place).collect();
    let crossing = Crossing::run(context, &[NONE, SLOT, shared, per_cpu, split], &places, false)?;
    let x = || Some(Axis::logarithmic("frame size", "bytes"));
    context.charts.extend([
        Chart {
            id: "cost".into(),
            title: "Cost of forwarding a frame, by design of the statistics".into(),
            caption: "Lower is better.".into(),
            x: x(),
            y: Axis::linear("added to each frame", "ns"),
            lines: crossing.costs(),
        },
        Chart {
            id: "rate".into(),
            title: "Frames forwarded a second".into(),
            caption: "Higher is better.".into(),
            x: x(),
            y: Axis::linear("rate", "million frames a second"),
            lines: crossing.rates(),
        },
    ]);
    let repeats = context.options.repeats;
    let ours = (SLOT.name, 64.0);
    let claim = crossing.claim(
        "cost of a 64-byte packet: slot over none",
        ours,
        (NONE.name, 64.0),
        1.08,
        repeats,
    );
    context.claims.push(claim);
    for rival in HASHED {
        let words = format!("slot is faster than {}: cost over its", rival.name);
        // Less than one: as fast is not faster.
        let claim = crossing.claim(&words, ours, (rival.name, 64.0), 0.999, repeats);
        context.claims.push(claim);
    }
    Ok(())
}
