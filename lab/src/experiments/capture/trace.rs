//! `capture-trace`: frames lost while an XDP program is traced, by packet rate.

use anyhow::Result;

use super::measurement::Measurement;
use super::sweep::Sweep;
use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::bars;
use crate::peers::capture::{Peer, TRACE, XDPDUMP};
use crate::report::distribution::Distribution;
use crate::report::summary::{Axis, Chart, Claim};
use crate::traffic::generated::Traffic;

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "capture-trace",
    title: "Frames lost while an XDP program is traced",
    about: "64-byte frames at a fixed rate, and as fast as they can be sent, to an XDP program that drops them. A \
            capture traces the program at its entry and writes each frame to a file that discards it. Everything \
            is at its default size. The kernel has to allow programs to trace programs.",
    run,
};

/// Stands for full speed. No measurement there is void for a low rate, so slow machines are measured, too.
const FULL_SPEED: f64 = f64::INFINITY;

fn run(context: &mut Context) -> Result<()> {
    let peers = vec![Peer::trace(), Peer::xdpdump()];
    let thousands: &[u32] = context
        .quick_or_full(&[20, 50, 250, 1000], &[20, 50, 100, 125, 250, 500, 1000, 1500, 2000]);
    let seconds = context.quick_or_full(3.0, 6.0);
    let at = |&thousands: &u32| {
        let rate = f64::from(thousands) * 1e3;
        (rate, Traffic::smallest((rate * seconds) as u64, Some(rate as u64)))
    };
    let flood = Traffic::smallest(context.quick_or_full(500_000, 2_000_000), None);
    let places: Vec<_> = thousands.iter().map(at).chain([(FULL_SPEED, flood)]).collect();
    let sweep = Sweep::run(context, peers, &places)?;
    let lost = |measured: &Measurement| Some(measured.loss() * 100.0);
    let mut lines = sweep.lines(lost);
    lines.iter_mut().for_each(|line| line.points.retain(|point| point.x != FULL_SPEED));
    context.charts.push(Chart::lines(
        "loss",
        "Frames lost",
        "Lower is better.",
        Axis::linear("packet rate", "frames a second"),
        Axis::linear("lost", "%"),
        lines,
    ));
    context.charts.push(Chart::bars(
        "loss-full".to_owned(),
        "Frames lost at full speed".to_owned(),
        "Shorter is better.",
        Axis::linear("lost", "%"),
        bars(sweep.lines(lost), FULL_SPEED),
    ));
    let loss = |rate, name| {
        Distribution::of(sweep.counted(rate, name).into_iter().map(|one| one.loss() * 100.0))
    };
    let sent = |name| {
        let rates = sweep.counted(FULL_SPEED, name).into_iter().map(|one| one.sent.rate());
        Distribution::of(rates).map(|rates| rates.median)
    };
    let repeats = context.options.repeats;
    let claims = places.iter().map(|&(rate, _)| {
        let speed = match rate {
            FULL_SPEED => "full speed".to_owned(),
            rate => format!("{rate} a second"),
        };
        let claim = format!("frames lost at {speed}: trace and xdpdump");
        let claim = claim_of(&claim, loss(rate, TRACE), loss(rate, XDPDUMP), repeats);
        match (rate, sent(TRACE), sent(XDPDUMP)) {
            // A program that is traced more slowly gets fewer frames: its CPU is that of the sender.
            (FULL_SPEED, Some(ours), Some(theirs)) => {
                claim.adding(&format!("; of {ours:.0} and {theirs:.0} frames a second"))
            }
            _ => claim,
        }
    });
    let claims: Vec<_> = claims.collect();
    context.claims.extend(claims);
    Ok(())
}

/// Ours has to lose less, or nothing as the other.
fn claim_of(
    claim: &str,
    ours: Option<Distribution>,
    theirs: Option<Distribution>,
    repeats: usize,
) -> Claim {
    const BOUND: &str = "below xdpdump's, or none";
    match (ours, theirs) {
        (Some(ours), Some(theirs))
            if ours.is_majority_of(repeats) && theirs.is_majority_of(repeats) =>
        {
            let figure = format!("{:.3}% and {:.3}%", ours.median, theirs.median);
            let holds = ours.max == 0.0 || ours.max < theirs.min;
            let straddles = !holds && ours.min < theirs.max;
            Claim { straddles, ..Claim::new(claim, figure, BOUND, holds) }
        }
        _ => Claim::open(claim, "too few runs counted", BOUND),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_the_other_in_every_run_or_nothing_at_all() {
        let of = |values: [f64; 5]| Distribution::of(values);
        let (none, some, more) = (of([0.0; 5]), of([1.0, 1.0, 1.0, 1.0, 2.0]), of([3.0; 5]));
        assert_eq!(claim_of("a", none, none, 5).holds, Some(true));
        assert_eq!(claim_of("a", some, more, 5).holds, Some(true));
        assert_eq!(claim_of("a", more, some, 5).holds, Some(false));
        assert_eq!(claim_of("a", some, None, 5).holds, None);
    }
}
