//! `capture-loss`: packet loss by delay factor, as in Laura Trivelloni, "Huge Pages Impact Analysis on
//! High-Speed Network Packet Capture in the Linux Kernel" (2018), figure 6.13.

use std::path::PathBuf;

use anyhow::Result;

use crate::experiments::capture::measurement::{Measurement, measure};
use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::Samples;
use crate::peers::capture::Peer;
use crate::report::summary::{Axis, Chart, Line};
use crate::traffic::exchange;
use crate::traffic::generated::Traffic;

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "capture-loss",
    title: "Loss by delay factor",
    about: "A consumer hashes every byte of every frame, and every hundredth frame keeps it for \
            another F × 1000 multiplications; F is the delay factor. The traffic is synthetic (700 \
            to 1500 bytes, random addresses, ports and hardware addresses, as Trivelloni 2018 sets pktgen \
            up) and a replayed trace of HTTP, DNS and a TCP bulk transfer, both as fast as they go.",
    run,
};

/// Every n-th frame is of interest.
const EVERY: u64 = 100;

fn run(context: &mut Context) -> Result<()> {
    let (trace, traced) = match context.folder().map(|folder| folder.join("trace.pcap")) {
        Some(trace) => (trace.clone(), exchange::record(&trace)?),
        // A dry run: as many frames as the exchanges have.
        None => (PathBuf::new(), exchange::has_recording_tools().then_some(20_000)),
    };
    let factors: &[u64] = context.quick_or_full(&[0, 40, 120], &[0, 20, 40, 60, 80, 100, 140, 200]);
    let frames = context.quick_or_full(400_000, 2_000_000);
    context.notes.push(
        "packet and tee have one line each: their rings are the kernel's own memory, mapped page \
         by page on a stock kernel. The curves of Trivelloni 2018 for them need a changed kernel."
            .into(),
    );
    let synthetic = one(context, "synthetic", &Traffic::synthetic(frames, None), factors)?;
    match traced {
        Some(in_trace) => {
            let loops = (frames / in_trace).max(1);
            let replayed = Traffic::Replayed { file: trace, loops, rate: None };
            one(context, "replayed", &replayed, factors)?;
        }
        None => context.notes.push(
            "skipped: the replayed trace: recording one takes python3, curl, dnsmasq, dig, iperf3 \
             and tcpdump"
                .into(),
        ),
    }
    context.notes.push(compare(&synthetic));
    Ok(())
}

/// One kind of traffic: a chart with a line for each source and kind of pages.
fn one(context: &mut Context, kind: &str, traffic: &Traffic, factors: &[u64]) -> Result<Vec<Line>> {
    let subjects = [
        ("xdp", "hugetlb"),
        ("xdp", "thp"),
        ("xdp", "small"),
        ("packet", "small"),
        ("tee", "small"),
    ];
    let peer = |(source, pages), factor| Peer::consumer(source, pages, factor, EVERY);
    let mut available = Vec::new();
    for subject in subjects {
        if context.can_run(&peer(subject, 0))? {
            available.push(subject);
        }
    }
    let names = available.iter().map(|&subject| peer(subject, 0).line()).collect();
    let xs: Vec<f64> = factors.iter().map(|&factor| factor as f64).collect();
    let selected = |name: &str| format!("{kind}: {name}");
    let measure = |context: &mut Context, subject: usize, place: usize, repeat: usize| {
        let peer = peer(available[subject], factors[place]);
        let seconds = peer.expected_seconds(traffic);
        context.keep(&selected(&peer.name), xs[place], repeat, seconds, |pair| {
            measure(pair, &peer, traffic)
        })
    };
    let samples = Samples::collect_named(context, names, &xs, selected, measure)?;
    let loss = |one: &Measurement| if one.counts() { one.loss() * 100.0 } else { f64::NAN };
    let lines = samples.lines(loss);
    context.charts.push(Chart::lines(
        kind,
        format!("Frames lost by delay factor, {kind} traffic"),
        "Lower is better. Where whiskers of two kinds of pages overlap, the pages made no \
                  difference that these runs can show.",
        Axis::linear("delay factor", "thousand multiplications each hundredth frame"),
        Axis::linear("lost", "%"),
        lines.clone(),
    ));
    Ok(lines)
}

/// A note, not a claim: the largest difference between huge and small pages beside the spread of the same
/// point.
fn compare(lines: &[Line]) -> String {
    let subject =
        "huge pages against small pages, xdp: largest difference of loss, synthetic traffic";
    let find = |pages| lines.iter().find(|line| line.name == Peer::sockets(pages).name);
    let (Some(huge), Some(small)) = (find("hugetlb"), find("small")) else {
        return format!("{subject}: one of the lines is missing");
    };
    let pairs = huge.points.iter().zip(&small.points);
    let differences = pairs.filter_map(|(a, b)| Some((a.x, b.spread?, a.spread?)));
    let largest = differences.max_by(|(_, a, b), (_, c, d)| {
        (a.median - b.median).abs().total_cmp(&(c.median - d.median).abs())
    });
    match largest {
        Some((x, small, huge)) => {
            let overlap = small.min <= huge.max && huge.min <= small.max;
            format!(
                "{subject}: at F = {x}: small {:.2}% ({:.2} to {:.2}), huge {:.2}% ({:.2} to {:.2}); {}",
                small.median,
                small.min,
                small.max,
                huge.median,
                huge.min,
                huge.max,
                if overlap { "the spreads overlap" } else { "the spreads are apart" }
            )
        }
        None => format!("{subject}: no run counted"),
    }
}
