//! `capture-pages`: packet loss by delay factor and kind of pages, as in Laura Trivelloni, "Huge Pages Impact
//! Analysis on High-Speed Network Packet Capture in the Linux Kernel" (2018), figure 6.13.

use anyhow::Result;

use crate::experiments::capture::measurement::{Measurement, measure};
use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::Samples;
use crate::peers::capture::Peer;
use crate::report::summary::{Axis, Chart};
use crate::traffic::generated::Traffic;

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "capture-pages",
    title: "Loss by delay factor and kind of pages",
    about: "A consumer hashes every byte of every frame, and every hundredth frame keeps it for \
            another F × 1000 multiplications; F is the delay factor. The traffic is synthetic (700 \
            to 1500 bytes, random addresses, ports and hardware addresses, as Trivelloni 2018 sets pktgen \
            up), as fast as it goes. packet and tee have one line each: their rings are the kernel's own memory, \
            mapped page by page on a stock kernel.",
    run,
};

/// Every n-th frame is of interest.
const EVERY: u64 = 100;

fn run(context: &mut Context) -> Result<()> {
    let factors: &[u64] = context.quick_or_full(&[0, 40, 120], &[0, 20, 40, 60, 80, 100, 140, 200]);
    let traffic = Traffic::synthetic(context.quick_or_full(400_000, 2_000_000), None);
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
    let samples = Samples::collect(context, names, &xs, |context, subject, place, repeat| {
        let peer = peer(available[subject], factors[place]);
        let seconds = peer.expected_seconds(&traffic);
        context.keep(&peer.name, xs[place], repeat, seconds, |pair| measure(pair, &peer, &traffic))
    })?;
    let loss = |one: &Measurement| if one.counts() { one.loss() * 100.0 } else { f64::NAN };
    context.charts.push(Chart::lines(
        "loss",
        "Frames lost by delay factor",
        "Lower is better. Where whiskers of two kinds of pages overlap, the pages made no \
         difference that these runs can show.",
        Axis::linear("delay factor", ""),
        Axis::linear("lost", "%"),
        samples.lines(loss),
    ));
    // Notes, not claims: huge pages beside small pages.
    for &x in &xs {
        let spread = |pages| samples.distribution((&Peer::sockets(pages).name, x), loss);
        if let (Some(huge), Some(small)) = (spread("hugetlb"), spread("small")) {
            context.notes.push(format!(
                "xdp at F = {x}: huge pages lost {:.2}% ({:.2} to {:.2}), small pages {:.2}% ({:.2} to {:.2})",
                huge.median, huge.min, huge.max, small.median, small.min, small.max
            ));
        }
    }
    Ok(())
}
