//! `capture-rate`: frames captured a second by frame size.

use anyhow::Result;

use super::search::LossFreeRates;
use super::sweep::Sweep;
use crate::experiments::capture::measurement::Measurement;
use crate::experiments::context::{Context, Experiment};
use crate::peers::capture::{BUFFERED, LIKE_XDP_LOOP, Peer, XDP_LOOP};
use crate::report::summary::{Axis, Chart, Claim};
use crate::traffic::generated::Traffic;

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "capture-rate",
    title: "Frames captured a second, by frame size",
    about: "The generator sends as fast as it can, from 64 to 1500 bytes, to a capture that throws \
            frames away. Generator and receive interrupt share one core, the capture has the \
            other. Where frames are lost at full speed, the 64-byte rate without loss is searched \
            for downwards.",
    run,
};

/// What `--source xdp` is called here.
pub(super) const XDP: &str = "xdp";

/// All capture programs.
pub(super) fn all_peers(context: &mut Context) -> Vec<Peer> {
    let peers = vec![
        Peer::capture("xdp"),
        Peer::capture("xdp").discarding(),
        Peer::sockets("hugetlb"),
        Peer::sockets("small"),
        Peer::capture_as_xdp_loop(),
        Peer::capture("packet"),
        Peer::capture("tee"),
        Peer::tcpdump(),
        Peer::tcpdump_buffered(),
        Peer::dumpcap(),
        Peer::netsniff(),
        Peer::xdp_loop(),
    ];
    context.notes.push(
        "packet, tee and xdp through its ring buffer have one line each: their rings are the \
         kernel's own memory, which a stock kernel maps page by page whatever is asked for. Only the \
         UMEM of AF_XDP sockets can lie in huge pages."
            .into(),
    );
    peers
}

fn run(context: &mut Context) -> Result<()> {
    let peers = all_peers(context);
    let sizes: &[u32] = context.quick_or_full(&[64, 1500], &[64, 128, 256, 512, 1024, 1500]);
    let frames = context.quick_or_full(2_000_000, 10_000_000);
    let places: Vec<_> =
        sizes.iter().map(|&size| (f64::from(size), Traffic::sized(size, frames, None))).collect();
    let sweep = Sweep::run(context, peers, &places)?;
    let x = || Axis::logarithmic("frame size", "bytes");
    context.charts.push(Chart::lines(
        "rate",
        "Frames captured a second at full speed",
        "Higher is better. The generator alone reaches several million frames a second; \
                  what a capture costs on the receive side slows the sending core down.",
        x(),
        Axis::linear("captured", "million frames a second"),
        sweep.lines(|measured| Some(measured.rate() / 1e6)),
    ));
    context.charts.push(Chart::lines(
        "loss",
        "Frames lost at full speed",
        "Lower is better; every lost frame is in somebody's count.",
        x(),
        Axis::linear("lost", "%"),
        sweep.lines(|measured| Some(measured.loss() * 100.0)),
    ));

    let chosen = [XDP, "packet", "tcpdump", BUFFERED, XDP_LOOP];
    let main: Vec<Peer> =
        sweep.peers.iter().filter(|peer| chosen.contains(&peer.name.as_str())).cloned().collect();
    let frames = context.quick_or_full(3_000_000, 10_000_000);
    let free = LossFreeRates::search(context, main, frames, || Ok(()))?;
    context.charts.push(Chart::bars(
        "loss-free",
        format!("64-byte frames a second without loss, over {} million", frames / 1_000_000),
        "Longer is better.",
        Axis::linear("captured without loss", "million frames a second"),
        free.bars(),
    ));
    let repeats = context.options.repeats;
    let faster = |theirs, which: &str| {
        let claim = format!("64-byte frames without loss a second: xdp over tcpdump {which}");
        Claim::at_least(&claim, free.ratio(XDP, theirs), 2.7, repeats)
    };
    let full_speed = |claim: &str, ours: &str, theirs: &str, bound| {
        let ratio = sweep.ratio(64.0, ours, theirs, Measurement::rate);
        Claim::at_least(claim, ratio, bound, repeats).adding(&sweep.losses(64.0, [ours, theirs]))
    };
    context.claims.extend([
        faster("tcpdump", "-w /dev/null"),
        faster(BUFFERED, "with a buffer as large as xdp's"),
        full_speed(
            "the framework's own cost: rate of xdp, discarding, over a plain AF_XDP loop, 64 bytes",
            "xdp, discarding",
            XDP_LOOP,
            0.95,
        ),
        full_speed(
            "the same for AF_XDP sockets as deep as the plain loop's",
            LIKE_XDP_LOOP,
            XDP_LOOP,
            0.95,
        ),
        Claim::at_least(
            "--source packet is no slower: 64-byte frames without loss a second over tcpdump",
            free.ratio("packet", "tcpdump"),
            1.0,
            repeats,
        ),
        full_speed(
            "the same at full speed, where tcpdump may lose frames",
            "packet",
            "tcpdump",
            1.0,
        ),
        Claim::at_most(
            "--source packet: CPU time a frame over tcpdump's, 64 bytes",
            sweep.ratio(64.0, "packet", "tcpdump", Measurement::cpu_per_frame),
            1.0,
            repeats,
        ),
    ]);
    Ok(())
}
