//! `capture-stall`: the consumer stands still for 50 ms, several times.

use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;

use super::{Context, Experiment};
use crate::interrupt;
use crate::measure::{Measured, measure_with};
use crate::model::{Axis, Chart, Claim, Line, Point};
use crate::peer::Peer;
use crate::statistics::Spread;
use crate::traffic::Traffic;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "capture-stall",
    title: "A consumer that stalls for 50 ms",
    about: "64-byte frames at one million a second. The capturing process is stopped (SIGSTOP) for \
            50 ms once every half second, as a busy machine or a slow disk would stop it, then \
            goes on. Everything is at its default size.",
    run,
};

const STALL: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_millis(450);

fn run(context: &mut Context) -> Result<()> {
    let mut peers = vec![
        Peer::capture("xdp"),
        Peer::sockets("hugetlb"),
        Peer::capture("packet"),
        Peer::capture("tee"),
        Peer::tcpdump(),
        Peer::bare(true),
    ];
    peers.retain(Peer::is_installed);
    let stalls = context.pick(3, 8);
    let frames = stalls * 500_000 + 500_000;
    let repeats = context.options.repeats;
    context.expect(peers.len() * repeats);
    let mut lost: Vec<Vec<Option<Measured>>> = vec![Vec::new(); peers.len()];
    for repeat in 1..=repeats {
        for (peer, lost) in peers.iter().zip(&mut lost) {
            let traffic = Traffic::smallest(frames, Some(1_000_000));
            let measured = measure_with(&context.bench, peer, &traffic, |receiver, _| {
                for _ in 0..stalls {
                    interrupt::sleep(PAUSE)?;
                    receiver.signal(Signal::SIGSTOP)?;
                    // Woken whatever happens meanwhile: a stopped process would not end.
                    let slept = interrupt::sleep(STALL);
                    receiver.signal(Signal::SIGCONT)?;
                    slept?;
                }
                Ok(())
            });
            lost.push(context.keep(&peer.name, 64.0, repeat, measured)?);
        }
    }
    let counted = |cells: &[Option<Measured>]| -> Vec<f64> {
        let counted = cells.iter().flatten().filter(|cell| cell.counts());
        counted.map(|cell| cell.lost() as f64).collect()
    };
    let lines = peers.iter().zip(&lost).map(|(peer, cells)| Line {
        name: peer.name.clone(),
        role: peer.role,
        points: vec![Point {
            x: 0.0,
            spread: Spread::of(counted(cells)),
            void: repeats - counted(cells).len(),
            remark: None,
        }],
    });
    context.charts.push(Chart {
        id: "stall".into(),
        title: format!("Frames lost of {frames} while the consumer stalls {stalls} times"),
        caption: "Shorter is better; nothing is best.".into(),
        x: None,
        y: Axis::linear("lost", "frames"),
        lines: lines.collect(),
    });
    let claim = "a consumer that stalls for 50 ms at 1 Mpps: frames lost by xdp, default buffer";
    let ours = counted(&lost[0]);
    context.claims.push(match Spread::of(ours.iter().copied()) {
        Some(spread) => Claim::new(
            claim,
            format!("at most {:.0} in {} runs of {stalls} stalls", spread.max, spread.count),
            "0",
            spread.max == 0.0,
        ),
        None => Claim::open(claim, "no run counted", "0"),
    });
    Ok(())
}
