//! `capture-stall`: the consumer stands still for 50 ms, several times.

use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;

use super::rate::XDP;
use crate::experiments::capture::measurement::{Measurement, measure_with};
use crate::experiments::context::{Context, Experiment};
use crate::interrupt;
use crate::measure::process::Running;
use crate::peers::capture::Peer;
use crate::report::distribution::Distribution;
use crate::report::summary::{Axis, Chart, Claim, Line, Point};
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

fn run(context: &mut Context) -> Result<()> {
    let bare = Peer::xdp_loop();
    let mut peers = vec![
        Peer::capture(XDP),
        Peer::sockets("hugetlb"),
        Peer::capture("packet"),
        Peer::capture("tee"),
        Peer::tcpdump(),
        Peer::tcpdump_buffered(),
        bare.clone(),
    ];
    peers.retain(Peer::is_installed);
    let peers = context.wanted(peers, 64.0)?;
    let stalls = context.pick(3, 8);
    let frames = stalls * 500_000 + 500_000;
    let traffic = Traffic::smallest(frames, Some(1_000_000));
    let repeats = context.options.repeats;
    let mut lost: Vec<Vec<f64>> = vec![Vec::new(); peers.len()];
    for repeat in 1..=repeats {
        for (peer, lost) in peers.iter().zip(&mut lost) {
            let seconds = peer.expected_seconds(&traffic);
            let kept = context.keep(&peer.name, 64.0, repeat, seconds, |pair| {
                let measured = measure_with(pair, peer, &traffic, |receiver, _| {
                    (0..stalls).try_for_each(|_| stall(receiver))
                })?;
                Ok(measured.held_to(traffic.rate()))
            })?;
            lost.extend(kept.filter(Measurement::counts).map(|kept| kept.lost() as f64));
        }
    }
    let lines = peers.iter().zip(&lost).map(|(peer, lost)| {
        let spread = Distribution::of(lost.iter().copied());
        let points = vec![Point { x: 0.0, spread, void: repeats - lost.len(), remark: None }];
        Line { name: peer.name.clone(), role: peer.role, points }
    });
    context.charts.push(Chart {
        id: "stall".into(),
        title: format!("Frames lost of {frames} while the consumer stalls {stalls} times"),
        caption: "Shorter is better; nothing is best.".into(),
        x: None,
        y: Axis::linear("lost", "frames"),
        lines: lines.collect(),
    });
    let of = |name: &str| {
        let at = peers.iter().position(|peer| peer.name == name)?;
        Distribution::of(lost[at].iter().copied())
    };
    context.claims.push(judge(of(XDP), of(&bare.name), stalls, repeats));
    Ok(())
}

/// Lets the receiver run for a while, and then stand still.
fn stall(receiver: &Running) -> Result<()> {
    interrupt::sleep(PAUSE)?;
    receiver.signal(Signal::SIGSTOP)?;
    // Woken whatever happens meanwhile: a stopped process would not end.
    let slept = interrupt::sleep(STALL);
    receiver.signal(Signal::SIGCONT)?;
    slept
}

/// Nothing lost holds only where the stalls were felt: the bare loop, which has room for 8 ms, must
/// have lost frames in the same run.
fn judge(
    ours: Option<Distribution>,
    control: Option<Distribution>,
    stalls: u64,
    repeats: usize,
) -> Claim {
    let claim = "a consumer that stalls for 50 ms at 1 Mpps: frames lost by xdp, default buffer";
    let Some(ours) = ours.filter(|ours| ours.speaks_for(repeats)) else {
        return Claim::open(claim, "too few runs counted", "0");
    };
    let figure = format!("at most {:.0} in {} runs of {stalls} stalls", ours.max, ours.count);
    match control {
        Some(control) if control.min > 0.0 => Claim::new(
            claim,
            format!("{figure}; the bare loop lost {:.0} a run", control.median),
            "0",
            ours.max == 0.0,
        ),
        _ if ours.max > 0.0 => Claim::new(claim, figure, "0", false),
        Some(_) => {
            Claim::open(claim, &format!("{figure}, but the bare loop lost none either"), "0")
        }
        None => Claim::open(
            claim,
            &format!("{figure}, but no run of the bare loop shows that the stalls were felt"),
            "0",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_lost_counts_only_where_the_bare_loop_lost_something() {
        let (none, some) =
            (Distribution::of([0.0; 5]), Distribution::of([0.0, 0.0, 0.0, 0.0, 7.0]));
        let felt = Distribution::of([100_000.0; 4]);
        assert_eq!(judge(none, felt, 3, 5).holds, Some(true));
        assert_eq!(judge(some, felt, 3, 5).holds, Some(false));
        assert_eq!(judge(none, none, 3, 5).holds, None);
        assert_eq!(judge(none, None, 3, 5).holds, None);
        assert_eq!(judge(some, None, 3, 5).holds, Some(false));
        assert_eq!(judge(Distribution::of([0.0; 2]), felt, 3, 5).holds, None);
    }
}
