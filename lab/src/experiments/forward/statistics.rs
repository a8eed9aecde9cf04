//! `forward-statistics`: what counting costs, as in figure 5.4 of Giraudo 2022.

use anyhow::Result;

use super::cost::{Costs, Forwarder, by_size, charts};
use crate::baseline::forward::Baseline;
use crate::experiments::context::{Context, Experiment};
use crate::report::summary::{Axis, Role};
use crate::topology::routed::Datapath;

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "forward-statistics",
    title: "What counting packets and bytes of a session costs",
    about: "The same accelerator with five designs of statistics. none: nothing is counted. slot: in the \
            session, by the CPU that owns it. shared, per-cpu and split are those of Giraudo 2022, and only the lab has \
            them: one hash map with atomic counters; one per-CPU hash map; a hash map for sessions and \
            another for counters.",
    run,
};

const fn linerate(name: &'static str, role: Role) -> Forwarder {
    Forwarder::new(name, role, Datapath::Linerate(name))
}

const fn hashed(name: &'static str, baseline: Baseline) -> Forwarder {
    Forwarder::new(name, Role::Peer, Datapath::Baseline(baseline))
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
    let sizes: &[u32] = context.quick_or_full(&[64], &[64, 256, 512, 1024, 1500]);
    let frames = context.quick_or_full(2_000_000, 5_000_000);
    let designs = [NONE, SLOT, shared, per_cpu, split];
    let costs = Costs::measure(context, &designs, &by_size(sizes, frames), false)?;
    let x = Axis::logarithmic("frame size", "bytes");
    let of = "a frame, by design of the statistics";
    context.charts.extend(charts(&costs, &x, of, "Higher is better."));
    let repeats = context.options.repeats;
    let ours = (SLOT.name, 64.0);
    let claim = costs.claim(
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
        let claim = costs.claim(&words, ours, (rival.name, 64.0), 0.999, repeats);
        context.claims.push(claim);
    }
    Ok(())
}
