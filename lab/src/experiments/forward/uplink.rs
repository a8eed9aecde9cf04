//! `forward-uplink`: what a TCP stream through a shaped uplink that translates costs the router.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::Samples;
use crate::measure::cores::Cores;
use crate::report::summary::{Axis, Chart, Claim, Role};
use crate::topology::shaped::{self, ShapedStream, ShapedUplink, Uplink};

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "forward-uplink",
    title: "A TCP stream through a shaped uplink with NAT",
    about: "One TCP stream from a host through a router to another, by an uplink that masquerades and whose HTB has \
            30% of the rate that Linux forwards by it without a shaper: an Ethernet interface; a VLAN device on the \
            port that has the local network too (a router on a stick); PPPoE, pppd against an access concentrator. The \
            CPU time of all cores a byte, less that of the same stream at the same rate between the hosts without a \
            router, right before. The router merges what it receives (GRO); no interface segments. Linerate once as it \
            comes, and once with the TC datapath alone: a veth with an XDP program copies each segment of a local TCP \
            sender, also where the stream then takes TC. On Ethernet also a plain redirect at tcx, with constants for \
            addresses and translation, and the shaper after it: about the least that TC can cost.",
    run,
};

/// Uplinks, and the lines of each: plain Linux, Linerate by default, and Linerate with the TC datapath alone.
const UPLINKS: [(Uplink, [&str; 3]); 3] = [
    (Uplink::Ethernet, ["Linux, Ethernet", "Linerate, Ethernet", "Linerate TC, Ethernet"]),
    (Uplink::Vlan, ["Linux, on a stick", "Linerate, on a stick", "Linerate TC, on a stick"]),
    (Uplink::Pppoe, ["Linux, PPPoE", "Linerate, PPPoE", "Linerate TC, PPPoE"]),
];
const REDIRECT: &str = "plain redirect at tcx, Ethernet";

/// What forwards on the router.
#[derive(Clone, Copy)]
enum Forwarder {
    Linux,
    /// With this `--datapath`.
    Linerate(&'static str),
    Redirect,
}

const FORWARDERS: [Forwarder; 3] =
    [Forwarder::Linux, Forwarder::Linerate("auto"), Forwarder::Linerate("tc")];

/// Percent of what Linux forwards: the shaper's rate. Neither the hosts nor the router are at their limit.
const SHARE: f64 = 30.0;
/// How near the shaper's rate what arrives has to be, in percent.
const NEAR: f64 = 2.0;

struct Outcome {
    /// Nanoseconds a byte that the router adds.
    cost: f64,
    /// What arrived over the shaper's rate.
    rate: f64,
}

fn run(context: &mut Context) -> Result<()> {
    let time = context.quick_or_full(Duration::from_secs(5), Duration::from_secs(10));
    let mut all: Vec<_> = UPLINKS
        .iter()
        .flat_map(|(uplink, names)| {
            names.iter().zip(FORWARDERS).map(|(name, forwarder)| (*uplink, *name, forwarder))
        })
        .collect();
    all.push((Uplink::Ethernet, REDIRECT, Forwarder::Redirect));
    if let Some(cores) = context.cores() {
        for (uplink, [name, ..]) in UPLINKS {
            if let Some(why) = ShapedUplink::unavailable(cores, uplink) {
                context.notes.push(format!("skipped: {name}: {why}"));
                all.retain(|(one, ..)| *one != uplink);
            }
        }
    }
    let role = |forwarder| match forwarder {
        Forwarder::Linux => Role::Peer,
        Forwarder::Linerate(_) => Role::Ours,
        Forwarder::Redirect => Role::Limit,
    };
    let lines = all.iter().map(|(_, name, forwarder)| ((*name).to_owned(), role(*forwarder)));
    let lines = lines.collect();
    let mut rates = BTreeMap::new();
    let samples = Samples::collect(context, lines, &[SHARE], |context, line, _, repeat| {
        let (uplink, name, forwarder) = all[line];
        let rate = match (rates.get(&uplink), context.cores()) {
            (Some(rate), _) => *rate,
            (None, Some(cores)) => {
                let fastest = ShapedUplink::build(cores, uplink, None)?.stream(time)?.rate();
                let rate = (fastest * SHARE / 100.0) as u64;
                context.notes.push(format!(
                    "{uplink:?}: Linux forwards {:.0} Mbit/s without a shaper; the shaper has {:.0}.",
                    fastest / 1e6,
                    rate as f64 / 1e6
                ));
                *rates.entry(uplink).or_insert(rate)
            }
            (None, None) => 0,
        };
        let about = 2.0 * time.as_secs_f64() + 9.0;
        let done = context.try_measure(name, SHARE, repeat, about, |pair| {
            measure(pair.cores, uplink, forwarder, rate, time)
        })?;
        let Some((direct, routed)) = done else { return Ok(None) };
        let outcome =
            Outcome { cost: routed.cost() - direct.cost(), rate: routed.rate() / rate as f64 };
        let number = |value: f64| format!("{value:.4}");
        let cells = [
            ("shaper_bits_per_second", rate.to_string()),
            ("bits_per_second", format!("{:.0}", routed.rate())),
            ("direct_ns_per_byte", number(direct.cost())),
            ("ns_per_byte", number(routed.cost())),
            ("cost_ns_per_byte", number(outcome.cost)),
        ];
        context.row("raw", (name, SHARE, repeat), &cells)?;
        Ok(Some(outcome))
    })?;
    context.charts.push(Chart::bars(
        "cost",
        "CPU time of the router a byte of a TCP stream",
        "Lower is better.",
        Axis::linear("added to each byte", "ns"),
        samples.bars(SHARE, |one| one.cost),
    ));
    let repeats = context.options.repeats;
    for (_, [linux, auto, tc]) in &UPLINKS {
        let over_linux = |line| samples.ratio((line, SHARE), (*linux, SHARE), |one| one.cost);
        let claim = format!("CPU of the router a byte, over plain Linux: {tc}");
        context.claims.push(Claim::at_most(&claim, over_linux(*tc), 0.6, repeats));
        context.notes.extend(over_linux(*auto).map(|ratio| {
            format!(
                "{auto}: {:.2} ({:.2} to {:.2}) of plain Linux's CPU a byte, with the copies of the veth.",
                ratio.median, ratio.min, ratio.max
            )
        }));
    }
    let limit = samples.ratio((REDIRECT, SHARE), (UPLINKS[0].1[0], SHARE), |one| one.cost);
    context.notes.extend(limit.map(|ratio| {
        format!(
            "{REDIRECT}: {:.2} ({:.2} to {:.2}) of plain Linux's CPU a byte: GRO, the shaper and GSO remain.",
            ratio.median, ratio.min, ratio.max
        )
    }));
    for line in &UPLINKS[0].1[1..] {
        let claim = format!("rate of the shaped stream: {line}");
        let bound = format!("within {NEAR}% of the shaper's");
        let rates = samples.distribution((*line, SHARE), |one| (one.rate - 1.0) * 100.0);
        let is_near = |off: f64| off.abs() <= NEAR;
        context.claims.push(Claim::of_runs(&claim, rates, &bound, repeats, "%", is_near));
    }
    Ok(())
}

fn measure(
    cores: Cores,
    uplink: Uplink,
    forwarder: Forwarder,
    rate: u64,
    time: Duration,
) -> Result<(ShapedStream, ShapedStream)> {
    let direct = shaped::direct(cores, rate, time)?;
    let built = ShapedUplink::build(cores, uplink, Some(rate))?;
    let running = match forwarder {
        Forwarder::Linux => Vec::new(),
        Forwarder::Linerate(datapath) => vec![built.start_forward(datapath)?],
        Forwarder::Redirect => built.start_redirects()?,
    };
    let before = built.routed_packets()?;
    let routed = built.stream(time)?;
    if matches!(forwarder, Forwarder::Redirect) {
        let routed = built.routed_packets()? - before;
        ensure!(routed < 100, "{routed} packets took the stack of the router, past the redirect");
    }
    for running in running {
        running.stop(Duration::from_secs(30))?.success()?;
    }
    for one in [&direct, &routed] {
        ensure!(
            one.rate() > 0.9 * rate as f64,
            "{:.0} bits a second of {rate} arrived",
            one.rate()
        );
    }
    // A negative cost would pass any bound.
    ensure!(
        routed.cost() > direct.cost(),
        "the stream took less CPU with a router than without: others used the cores"
    );
    Ok((direct, routed))
}
