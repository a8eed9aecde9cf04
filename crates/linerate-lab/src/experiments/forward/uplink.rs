//! `forward-uplink`: what a TCP stream through a shaped uplink that translates costs the router.

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
            30% of the rate that Linux forwards without it: an Ethernet interface; a VLAN device on the port that has \
            the local network too (a router on a stick); PPPoE, pppd against an access concentrator. The CPU time of \
            all cores a byte, less that of the same stream at the same rate between the hosts without a router, right \
            before. The router merges what it receives (GRO); no interface segments.",
    run,
};

const UPLINKS: [(Uplink, [&str; 2]); 3] = [
    (Uplink::Ethernet, ["Linux, Ethernet", "Linerate, Ethernet"]),
    (Uplink::Vlan, ["Linux, on a stick", "Linerate, on a stick"]),
    (Uplink::Pppoe, ["Linux, PPPoE", "Linerate, PPPoE"]),
];

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
    let time = context.quick_or_full(Duration::from_secs(3), Duration::from_secs(8));
    let mut uplinks = UPLINKS.to_vec();
    let mut rate = 0;
    if let Some(cores) = context.cores() {
        uplinks.retain(|(uplink, [name, _])| {
            let why = ShapedUplink::unavailable(cores, *uplink);
            let note = why.as_ref().map(|why| format!("skipped: {name}: {why}"));
            context.notes.extend(note);
            why.is_none()
        });
        let fastest = ShapedUplink::build(cores, Uplink::Ethernet, None)?.stream(time)?.rate();
        rate = (fastest * SHARE / 100.0) as u64;
        context.notes.push(format!(
            "Linux forwards {:.2} Gbit/s without a shaper; the shaper has {:.2}.",
            fastest / 1e9,
            rate as f64 / 1e9
        ));
    }
    let all: Vec<_> = uplinks
        .iter()
        .flat_map(|(uplink, names)| {
            [(*uplink, names[0], Role::Peer), (*uplink, names[1], Role::Ours)]
        })
        .collect();
    let lines = all.iter().map(|(_, name, role)| ((*name).to_owned(), *role)).collect();
    let samples = Samples::collect(context, lines, &[SHARE], |context, line, _, repeat| {
        let (uplink, name, role) = all[line];
        let about = 2.0 * time.as_secs_f64() + 9.0;
        let done = context.try_measure(name, SHARE, repeat, about, |pair| {
            measure(pair.cores, uplink, role == Role::Ours, rate, time)
        })?;
        let Some((direct, routed)) = done else { return Ok(None) };
        let outcome =
            Outcome { cost: routed.cost() - direct.cost(), rate: routed.rate() / rate as f64 };
        let number = |value: f64| format!("{value:.4}");
        let cells = [
            ("line", name.to_owned()),
            ("repeat", repeat.to_string()),
            ("shaper_bits_per_second", rate.to_string()),
            ("bits_per_second", format!("{:.0}", routed.rate())),
            ("direct_ns_per_byte", number(direct.cost())),
            ("ns_per_byte", number(routed.cost())),
            ("cost_ns_per_byte", number(outcome.cost)),
        ];
        context.row("raw", &cells)?;
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
    for (_, [linux, linerate]) in &UPLINKS {
        let (ours, theirs) = ((*linerate, SHARE), (*linux, SHARE));
        let claim = format!("CPU of the router a byte, over plain Linux: {linerate}");
        let ratio = samples.ratio(ours, theirs, |one| one.cost);
        context.claims.push(Claim::at_most(&claim, ratio, 0.6, repeats));
    }
    let claim = format!("rate of the shaped stream: {}", UPLINKS[0].1[1]);
    let bound = format!("within {NEAR}% of the shaper's");
    let rates = samples.distribution((UPLINKS[0].1[1], SHARE), |one| (one.rate - 1.0) * 100.0);
    context.claims.push(match rates {
        Some(off) => Claim::new(
            &claim,
            format!("{:+.2}% ({:+.2} to {:+.2})", off.median, off.min, off.max),
            &bound,
            off.median.abs() <= NEAR,
        ),
        None => Claim::open(&claim, "no run counted", &bound),
    });
    Ok(())
}

fn measure(
    cores: Cores,
    uplink: Uplink,
    accelerated: bool,
    rate: u64,
    time: Duration,
) -> Result<(ShapedStream, ShapedStream)> {
    let direct = shaped::direct(cores, rate, time)?;
    let built = ShapedUplink::build(cores, uplink, Some(rate))?;
    let running = accelerated.then(|| built.start_forward()).transpose()?;
    let routed = built.stream(time)?;
    if let Some(running) = running {
        running.stop(Duration::from_secs(30))?.success()?;
    }
    for one in [&direct, &routed] {
        ensure!(
            one.rate() > 0.9 * rate as f64,
            "{:.0} bits a second of {rate} arrived",
            one.rate()
        );
    }
    Ok((direct, routed))
}
