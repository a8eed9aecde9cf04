//! `capture-stage`: what capturing a frame costs, without the way to it.

use anyhow::Result;

use super::rate::XDP;
use super::{Cell, Context, Experiment, Sweep};
use crate::model::{Axis, Chart, Claim, Line, Point};
use crate::peer::Peer;
use crate::statistics::{Spread, paired_ratio};
use crate::traffic::Traffic;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "capture-stage",
    title: "The cost of the capture stage, a frame",
    about: "64-byte frames at full speed, once to an XDP program that drops them at the far end and \
            once to each capture, in turns. One over the rate with a capture, less one over the \
            rate without, is what that capture adds to each frame on the core that sends and \
            receives.",
    run,
};

fn run(context: &mut Context) -> Result<()> {
    let sink = Peer::sink();
    let mut peers = vec![
        sink.clone(),
        Peer::capture("xdp"),
        Peer::sockets("hugetlb"),
        Peer::capture("packet"),
        Peer::capture("tee"),
        Peer::tcpdump(),
        Peer::bare(true),
    ];
    peers.retain(|peer| {
        let here = peer.is_installed();
        if !here {
            context.notes.push(format!("skipped: {}: it is not installed", peer.name));
        }
        here
    });
    let frames = context.pick(3_000_000, 5_000_000);
    let sweep = Sweep::run(context, peers, &[(64.0, Traffic::smallest(frames, None))])?;
    let without = sweep.cells(64.0, &sink.name);
    let cost = |name: &str| costs(sweep.cells(64.0, name), without);
    let lines = sweep.peers.iter().filter(|peer| peer.name != sink.name).map(|peer| {
        let costs = cost(&peer.name);
        Line {
            name: peer.name.clone(),
            role: peer.role,
            points: vec![Point {
                x: 0.0,
                spread: Spread::of(costs.iter().copied()),
                void: costs.iter().filter(|cost| cost.is_nan()).count(),
                remark: None,
            }],
        }
    });
    context.charts.push(Chart {
        id: "stage".into(),
        title: "Cost of the capture stage for a 64-byte frame".into(),
        caption: "Shorter is better. The consumer's own core is not in it.".into(),
        x: None,
        y: Axis::linear("added to each frame", "ns"),
        lines: lines.collect(),
    });
    context.claims.push(Claim::at_most(
        "cost of the capture stage a frame: xdp over tcpdump",
        paired_ratio(&cost(XDP), &cost("tcpdump")),
        1.0 / 4.5,
    ));
    Ok(())
}

/// Nanoseconds a frame with less nanoseconds a frame without, pair by pair; NaN where one of the
/// two does not count, or lost frames: what was thrown away did not cost what capturing costs.
fn costs(with: &[Cell], without: &[Cell]) -> Vec<f64> {
    let nanoseconds = |cell: &Cell| {
        cell.as_ref()
            .filter(|cell| cell.counts() && cell.loss() == 0.0)
            .map_or(f64::NAN, |cell| 1e9 / cell.sent.rate())
    };
    with.iter().zip(without).map(|(with, base)| nanoseconds(with) - nanoseconds(base)).collect()
}
