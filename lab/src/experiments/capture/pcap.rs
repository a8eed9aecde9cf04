//! `capture-pcap`: programs that use libpcap, alone and under `linerate run`.

use anyhow::Result;

use super::search::LossFreeRates;
use super::sweep::Sweep;
use super::write::{BYTES_A_FRAME, empty, memory_folder};
use crate::experiments::capture::measurement::Measurement;
use crate::experiments::context::{Context, Experiment};
use crate::peers::capture::Peer;
use crate::report::summary::{Axis, Chart, Claim};
use crate::traffic::generated::Traffic;

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "capture-pcap",
    title: "Programs that use libpcap, alone and under linerate run",
    about: "64-byte frames to unmodified programs. At full speed, and where frames are lost there \
            downwards: tcpdump to /dev/null. At a million frames a second: dumpcap writing pcapng \
            to a tmpfs, and what a frame costs a program that only counts what pcap_loop hands it, \
            against linerate capture that only counts.",
    run,
};

const MILLION: u64 = 1_000_000;
/// The loop of `linerate capture` over the same source.
const OWN_LOOP: &str = "xdp, discarding";
const LOOP: &str = "pcap_loop, xdp";
const DUMPCAP: &str = "dumpcap, packet";
/// Nanoseconds that the interface may cost a packet over that loop.
const MAX_COST_NS: f64 = 15.0;

fn run(context: &mut Context) -> Result<()> {
    full_speed(context)?;
    writing(context)?;
    cost(context)
}

fn full_speed(context: &mut Context) -> Result<()> {
    let peers = vec![
        Peer::tcpdump(),
        Peer::tcpdump().with_linerate_run("packet"),
        Peer::tcpdump().with_linerate_run("tee"),
        Peer::tcpdump().with_linerate_run("xdp"),
    ];
    let frames = context.quick_or_full(3 * MILLION, 10 * MILLION);
    let free = LossFreeRates::search(context, peers, frames, || Ok(()))?;
    context.charts.push(Chart::bars(
        "loss-free",
        format!(
            "tcpdump -w /dev/null: frames a second without loss, over {} million",
            frames / MILLION
        ),
        "Longer is better. The same program; behind the comma the source that linerate \
                  run gave it.",
        Axis::linear("captured without loss", "million frames a second"),
        free.bars(),
    ));
    context.claims.push(Claim::at_least(
        "64-byte frames a second without loss: tcpdump under linerate run --source xdp over tcpdump alone",
        free.ratio("tcpdump, xdp", "tcpdump"),
        2.5,
        context.options.repeats,
    ));
    Ok(())
}

fn writing(context: &mut Context) -> Result<()> {
    let frames = context.quick_or_full(3 * MILLION, 10 * MILLION);
    let folder = memory_folder(frames * BYTES_A_FRAME)?;
    let to = |peer: Peer| peer.writing(folder.path().join("dumpcap.pcapng"));
    // No XDP: dumpcap gives CAP_BPF up before it opens anything.
    let peers = vec![to(Peer::dumpcap()), to(Peer::dumpcap().with_linerate_run("packet"))];
    let x = MILLION as f64;
    let place = (x, Traffic::smallest(frames, Some(MILLION)));
    let sweep = Sweep::run(context, peers, &[place])?;
    empty(folder.path())?;
    context.charts.push(Chart::bars(
        "dumpcap",
        format!(
            "dumpcap to a tmpfs at a million frames a second, {} million frames",
            frames / MILLION
        ),
        "Lower is better.",
        Axis::linear("lost", "%"),
        sweep.lines(|measured| Some(measured.loss() * 100.0)),
    ));
    let claim = format!(
        "dumpcap under linerate run: {} million frames at a million a second",
        frames / MILLION
    );
    let counted = sweep.counted(x, DUMPCAP);
    let most = counted.iter().map(|one| one.lost()).max();
    context.claims.push(match most {
        Some(most) if counted.len() >= context.options.repeats.min(3) => Claim::new(
            &claim,
            format!("{most} lost at most ({} runs)", counted.len()),
            "0 lost",
            most == 0,
        ),
        _ => Claim::open(&claim, "too few runs counted", "0 lost"),
    });
    Ok(())
}

fn cost(context: &mut Context) -> Result<()> {
    let peers = vec![
        Peer::capture("xdp").discarding(),
        Peer::pcap_loop().with_linerate_run("xdp"),
        Peer::pcap_loop().with_linerate_run("packet"),
        Peer::pcap_loop(),
    ];
    let frames = context.quick_or_full(3 * MILLION, 10 * MILLION);
    let x = MILLION as f64;
    let sweep = Sweep::run(context, peers, &[(x, Traffic::smallest(frames, Some(MILLION)))])?;
    context.charts.push(Chart::bars(
        "cost",
        "CPU time of the program for each frame, at a million a second",
        "Shorter is better. Its start and end are in it.",
        Axis::linear("CPU time", "nanoseconds a frame"),
        sweep.lines(|measured| Some(measured.cpu_per_frame())),
    ));
    let claim = "cost of libpcap's interface over linerate capture's own loop, xdp";
    let bound = format!("at most {MAX_COST_NS} ns a packet");
    let more = sweep.difference(x, LOOP, OWN_LOOP, Measurement::cpu_per_frame);
    context.claims.push(Claim::of_runs(claim, more, &bound, context.options.repeats, "ns", |ns| {
        ns <= MAX_COST_NS
    }));
    Ok(())
}
