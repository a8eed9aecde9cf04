//! `capture-stage`: what capturing a frame costs, without sending and delivering it.

use anyhow::Result;

use super::measurement::Measurement;
use super::rate::XDP;
use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::Samples;
use crate::peers::capture::{BUFFERED, Peer};
use crate::report::distribution::paired_ratio;
use crate::report::summary::{Axis, Chart, Claim, Role};
use crate::traffic::generated::Traffic;

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "capture-stage",
    title: "The cost of the capture stage, a frame",
    about: "64-byte frames at full speed, to an XDP program that drops them at the veth peer and to a \
            capture, in turns (A B A B …), for each capture. One over the rate with a capture, less \
            one over the rate without right before it, is what that capture adds to each frame on \
            the core that sends and receives.",
    run,
};

/// Bytes of a frame.
const X: f64 = 64.0;

fn run(context: &mut Context) -> Result<()> {
    let peers = context.select_peers(Peer::sources_and_rivals(), X)?;
    let traffic = Traffic::smallest(context.quick_or_full(3_000_000, 10_000_000), None);
    let sink = Peer::sink();
    let repeats = context.options.repeats;
    let lines = peers.iter().map(Peer::line).collect();
    let costs = Samples::collect(context, lines, &[X], |context, peer, _, repeat| {
        let peer = &peers[peer];
        let without = context.point(&sink, &traffic, X, repeat)?;
        let with = context.point(peer, &traffic, X, repeat)?;
        let may_lose = if peer.role == Role::Peer { TOLERATED_LOSS } else { 0.0 };
        Ok(Some(cost(with.as_ref(), without.as_ref(), may_lose)))
    })?;
    context.charts.push(Chart::bars("stage", "Cost of the capture stage for a 64-byte frame", "Shorter is better. The consumer's own core is not in it. A pair in which frames \
                  were lost is void: what was thrown away did not cost what capturing costs. Of the \
                  other programs a loss of up to 1% is passed over, to their favour.", Axis::linear("added to each frame", "ns"), costs.bars(X, |cost| *cost)));
    for (rival, claim) in [
        ("tcpdump", "cost of the capture stage a frame: xdp over tcpdump"),
        (BUFFERED, "cost of the capture stage a frame: xdp over tcpdump with a buffer of 128 MiB"),
    ] {
        // Against a rival that seems to cost nothing there is no ratio.
        let theirs: Vec<f64> =
            costs.values((rival, X), |&cost| if cost > 0.0 { cost } else { f64::NAN });
        let ratio = paired_ratio(&costs.values((XDP, X), |cost| *cost), &theirs);
        context.claims.push(Claim::at_most(claim, ratio, 1.0 / 4.5, repeats));
    }
    Ok(())
}

/// Share of its frames that a rival may lose and still count. A lost frame costs less than a captured
/// one, so that its cost is then reported too low, never too high. tcpdump at full speed loses a little on
/// a fast machine in every run, and would never be compared.
const TOLERATED_LOSS: f64 = 0.01;

/// Nanoseconds a frame with less nanoseconds a frame without; NaN where one of the two does not
/// count, or lost more frames than it may (what the sink counts and drops is not lost).
fn cost(with: Option<&Measurement>, without: Option<&Measurement>, may_lose: f64) -> f64 {
    let nanoseconds = |one: Option<&Measurement>, may_lose: f64| {
        one.filter(|one| one.counts() && one.loss() <= may_lose)
            .map_or(f64::NAN, |one| 1e9 / one.sent.rate())
    };
    nanoseconds(with, may_lose) - nanoseconds(without, 0.0)
}
