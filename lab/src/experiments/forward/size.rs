//! `forward-size`: what forwarding a frame costs, by its size, as in Niccolò Giraudo, "Prototipazione di un
//! acceleratore di traffico per dispositivi embedded basato su eBPF/XDP" (2022), figures 5.2 and 5.3.

use anyhow::Result;

use super::cost::{
    Costs, FIB, FLOW_TABLE, Forwarder, LINERATE, LINUX, REDIRECT, available, by_size, charts,
};
use super::idle;
use crate::experiments::context::{Context, Experiment};
use crate::report::summary::{Axis, Chart};
use crate::topology::routed::{Datapath, Rules};
use crate::traffic::generated::Headers;

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "forward-size",
    title: "What forwarding a frame costs, by its size",
    about: "UDP frames of one session through a router, everything on the core of the generator, in turns \
            with the same frames to the same sink without a router: one over the rate with it, less one \
            over the rate without it, is what forwarding adds to each frame. fib mode asks the kernel's \
            routing table for each packet; the plain redirect writes constants and parses nothing. Then the same \
            of sessions that conntrack tracks, that are masqueraded (by the TC datapath, too), of IPv6, and behind a priority tag that the \
            router takes off. Before the first two the hosts talk for some seconds.",
    run,
};

/// Where the claims are.
const SMALL: f64 = 64.0;

fn run(context: &mut Context) -> Result<()> {
    let all = available(context, &[LINUX, FLOW_TABLE, FIB, LINERATE, REDIRECT])?;
    let sizes: &[u32] = context.quick_or_full(&[64, 1500], &[64, 128, 256, 512, 1024, 1500]);
    let frames = context.quick_or_full(2_000_000, 5_000_000);
    let one_way = Costs::measure(context, &all, &by_size(sizes, frames), false)?;
    let x = Axis::logarithmic("frame size", "bytes");
    let caption = "Higher is better. Generator, router and sink share one core.";
    context.charts.extend(charts(&one_way, &x, "a frame", caption));
    let repeats = context.options.repeats;
    let ours = (LINERATE.name, SMALL);
    for (claim, rival, bound) in [
        ("cost of a 64-byte UDP packet, over plain Linux forwarding", LINUX.name, 1.0 / 7.0),
        ("the same over fib mode", FIB.name, 0.6),
        ("the same over a plain redirect with header rewrite", REDIRECT.name, 1.15),
    ] {
        let claim = one_way.claim(claim, ours, (rival, SMALL), bound, repeats);
        context.claims.push(claim);
    }
    kinds(context, frames)?;
    two_ways(context, &all, frames)?;
    idle::run(context, &all)
}

/// A session that the rest are compared with, in the same run.
const PLAIN: Forwarder = Forwarder::linerate("Linerate, plain", Rules::None, Headers::Ipv4);
const TRANSLATED: Forwarder =
    Forwarder::linerate("Linerate, translated", Rules::Translated, Headers::Ipv4);
const TRANSLATED_BY_TC: Forwarder =
    Forwarder { name: "Linerate TC, translated", datapath: Datapath::LinerateTc, ..TRANSLATED };
const LINUX_TRANSLATED: Forwarder =
    Forwarder::linux("Linux, translated", Rules::Translated, Headers::Ipv4);

/// Sessions that are more than routed IPv4.
fn kinds(context: &mut Context, frames: u64) -> Result<()> {
    let lines = [
        PLAIN,
        TRANSLATED,
        TRANSLATED_BY_TC,
        LINUX_TRANSLATED,
        Forwarder::linerate("Linerate, tracked", Rules::Tracked, Headers::Ipv4),
        Forwarder::linux("Linux, tracked", Rules::Tracked, Headers::Ipv4),
        Forwarder::linerate("Linerate, IPv6", Rules::None, Headers::Ipv6),
        Forwarder::linux("Linux, IPv6", Rules::None, Headers::Ipv6),
        Forwarder::linerate("Linerate, tagged", Rules::None, Headers::Tagged),
        Forwarder::linux("Linux, tagged", Rules::None, Headers::Tagged),
    ];
    let costs = Costs::measure(context, &lines, &by_size(&[64, 1400], frames), false)?;
    context.charts.push(Chart::lines(
        "kinds",
        "Cost of forwarding a frame, by the kind of its session",
        "Lower is better.",
        Axis::logarithmic("frame size", "bytes"),
        Axis::linear("added to each frame", "ns"),
        costs.costs(),
    ));
    let repeats = context.options.repeats;
    for size in [SMALL, 1400.0] {
        let ours = (TRANSLATED.name, size);
        for (rival, claim, bound) in
            [(PLAIN.name, "a plain one's", 1.3), (LINUX_TRANSLATED.name, "plain Linux's", 0.1)]
        {
            let claim = format!("cost of a translated session over {claim}, {size} bytes");
            let claim = costs.claim(&claim, ours, (rival, size), bound, repeats);
            context.claims.push(claim);
        }
    }
    let claim = costs.claim(
        "the same by the TC datapath over plain Linux's, 64 bytes",
        (TRANSLATED_BY_TC.name, SMALL),
        (LINUX_TRANSLATED.name, SMALL),
        0.6,
        repeats,
    );
    context.claims.push(claim);
    Ok(())
}

fn two_ways(context: &mut Context, all: &[Forwarder], frames: u64) -> Result<()> {
    let named: Vec<_> = all
        .iter()
        .filter(|one| one.name != REDIRECT.name)
        .map(|one| Forwarder { name: both(one.name), ..*one })
        .collect();
    let places = by_size(context.quick_or_full(&[64], &[64, 512, 1500]), frames);
    let costs = Costs::measure(context, &named, &places, true)?;
    context.charts.push(Chart::lines(
        "both",
        "Frames forwarded a second, in both directions at once",
        "Higher is better. A generator on each core; the sum.",
        Axis::logarithmic("frame size", "bytes"),
        Axis::linear("rate", "million frames a second"),
        costs.rates(),
    ));
    Ok(())
}

/// The name of a line for both directions.
fn both(name: &str) -> &'static str {
    match name {
        "Linux" => "Linux, both directions",
        "nft flowtable" => "nft flowtable, both directions",
        "fib mode" => "fib mode, both directions",
        _ => "Linerate, both directions",
    }
}
