//! `capture-stall`: the consumer is stopped for 50 ms, several times.

use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;

use super::rate::XDP;
use crate::experiments::capture::measurement::{Measurement, measure_with};
use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::Samples;
use crate::interrupt;
use crate::measure::process::Running;
use crate::peers::capture::{Peer, XDP_LOOP};
use crate::report::distribution::Distribution;
use crate::report::summary::{Axis, Chart, Claim};
use crate::traffic::generated::Traffic;

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "capture-stall",
    title: "A consumer that stalls for 50 ms",
    about: "64-byte frames at one million a second. The capturing process is stopped (SIGSTOP) for \
            50 ms once every half second, as a busy machine or a slow disk would stop it, then \
            goes on. Everything is at its default size, but for one tcpdump with a buffer as large as \
            Linerate's.",
    run,
};

const STALL: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_millis(450);

/// Bytes of a frame.
const X: f64 = 64.0;

fn run(context: &mut Context) -> Result<()> {
    let peers = context.select_peers(Peer::sources_and_rivals(), X)?;
    let stalls = context.quick_or_full(3, 8);
    let frames = stalls * 500_000 + 500_000;
    let traffic = Traffic::smallest(frames, Some(1_000_000));
    let repeats = context.options.repeats;
    let lines = peers.iter().map(Peer::line).collect();
    let samples = Samples::collect(context, lines, &[X], |context, peer, _, repeat| {
        let peer = &peers[peer];
        let seconds = peer.expected_seconds(&traffic);
        context.keep(&peer.name, X, repeat, seconds, |pair| {
            let measured = measure_with(pair, peer, &traffic, |receiver, _| {
                (0..stalls).try_for_each(|_| stall(receiver))
            })?;
            Ok(measured.void_below_rate(traffic.rate()))
        })
    })?;
    let lost = |one: &Measurement| if one.counts() { one.lost() as f64 } else { f64::NAN };
    context.charts.push(Chart::bars(
        "stall",
        format!("Frames lost of {frames} while the consumer stalls {stalls} times"),
        "Shorter is better; nothing is best.",
        Axis::linear("lost", "frames"),
        samples.bars(X, lost),
    ));
    let of = |name| samples.distribution((name, X), lost);
    context.claims.push(claim(of(XDP), of(XDP_LOOP), stalls, repeats));
    Ok(())
}

/// Lets the receiver run for a while, then stops it.
fn stall(receiver: &Running) -> Result<()> {
    interrupt::sleep(PAUSE)?;
    receiver.signal(Signal::SIGSTOP)?;
    // Continued in any case: a stopped process would not end.
    let slept = interrupt::sleep(STALL);
    receiver.signal(Signal::SIGCONT)?;
    slept
}

/// Nothing lost holds only where the stalls were felt: the plain loop, which has room for 8 ms, must
/// have lost frames in the same run.
fn claim(
    ours: Option<Distribution>,
    control: Option<Distribution>,
    stalls: u64,
    repeats: usize,
) -> Claim {
    let claim = "a consumer that stalls for 50 ms at 1 Mpps: frames lost by xdp, default buffer";
    let Some(ours) = ours.filter(|ours| ours.is_majority_of(repeats)) else {
        return Claim::open(claim, "too few runs counted", "0");
    };
    let figure = format!("at most {:.0} in {} runs of {stalls} stalls", ours.max, ours.count);
    match control {
        Some(control) if control.min > 0.0 => Claim::new(
            claim,
            format!("{figure}; the plain loop lost {:.0} a run", control.median),
            "0",
            ours.max == 0.0,
        ),
        _ if ours.max > 0.0 => Claim::new(claim, figure, "0", false),
        Some(_) => {
            Claim::open(claim, &format!("{figure}, but the plain loop lost none either"), "0")
        }
        None => Claim::open(
            claim,
            &format!("{figure}, but no run of the plain loop shows that the stalls were felt"),
            "0",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_lost_counts_only_where_the_plain_loop_lost_something() {
        let (none, some) =
            (Distribution::of([0.0; 5]), Distribution::of([0.0, 0.0, 0.0, 0.0, 7.0]));
        let felt = Distribution::of([100_000.0; 4]);
        assert_eq!(claim(none, felt, 3, 5).holds, Some(true));
        assert_eq!(claim(some, felt, 3, 5).holds, Some(false));
        assert_eq!(claim(none, none, 3, 5).holds, None);
        assert_eq!(claim(none, None, 3, 5).holds, None);
        assert_eq!(claim(some, None, 3, 5).holds, Some(false));
        assert_eq!(claim(Distribution::of([0.0; 2]), felt, 3, 5).holds, None);
    }
}
