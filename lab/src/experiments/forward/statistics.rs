//! `forward-statistics`: what counting costs, as in figure 5.4 of Giraudo 2022.

use anyhow::Result;

use super::cost::{Costs, Forwarder, by_size, charts};
use crate::experiments::context::{Context, Experiment};
use crate::report::summary::{Axis, Role};
use crate::topology::routed::Datapath;

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "forward-statistics",
    title: "What counting packets and bytes of a session costs",
    about: "The same accelerator with both designs of statistics. none: nothing is counted. slot: in the \
            session, by the CPU that owns it.",
    run,
};

const fn linerate(name: &'static str, role: Role) -> Forwarder {
    Forwarder::new(name, role, Datapath::Linerate(name))
}

const NONE: Forwarder = linerate("none", Role::Limit);
const SLOT: Forwarder = linerate("slot", Role::Ours);

fn run(context: &mut Context) -> Result<()> {
    let sizes: &[u32] = context.quick_or_full(&[64], &[64, 256, 512, 1024, 1500]);
    let frames = context.quick_or_full(2_000_000, 5_000_000);
    let costs = Costs::measure(context, &[NONE, SLOT], &by_size(sizes, frames), false)?;
    let x = Axis::logarithmic("frame size", "bytes");
    let of = "a frame, by design of the statistics";
    context.charts.extend(charts(&costs, &x, of, "Higher is better."));
    let repeats = context.options.repeats;
    let claim = costs.claim(
        "cost of a 64-byte packet: slot over none",
        (SLOT.name, 64.0),
        (NONE.name, 64.0),
        1.08,
        repeats,
    );
    context.claims.push(claim);
    Ok(())
}
