//! `receive-echo`: messages received and answered a second.

use anyhow::Result;

use super::servers::{self, SERVERS};
use super::testbed::{Load, Testbed};
use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::Samples;
use crate::report::distribution::Distribution;
use crate::report::summary::{Axis, Chart, Claim, Role};

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "receive-echo",
    title: "Messages received and answered a second",
    about: "A server sends every 64-byte UDP message back to where it came from, over a veth: generator and receiving \
            softirq on one core, the server on the other, with the softirq of its answers. An XDP program counts the \
            answers that come back, frame by frame. First as fast as the generator goes, then at the highest rate \
            without loss, which is searched for by halving: one flow (1), and 64 flows (64). recvmmsg/sendmmsg is the \
            careful program of today, with headers and buffers prepared once, and without GSO.",
    run,
};

/// What one server reached.
struct Rates {
    /// Answers a second at full speed.
    flood: f64,
    /// CPU nanoseconds of each.
    cpu: f64,
    /// System calls of each.
    calls: f64,
    /// Part of them that bypassed the stack.
    ring: f64,
    /// Messages a second without loss.
    loss_free: f64,
}

fn run(context: &mut Context) -> Result<()> {
    let servers = &SERVERS[1..];
    let flows: &[u64] = context.quick_or_full(&[1], &[1, 64]);
    let xs: Vec<f64> = flows.iter().map(|&flows| flows as f64).collect();
    let messages = context.quick_or_full(500_000, 4_000_000);
    let steps = context.quick_or_full(4, 7);
    let lines = servers::lines(servers);
    let samples = Samples::collect(context, lines, &xs, |context, at, place, repeat| {
        let server = &servers[at];
        let name = server.name;
        let load =
            Load { sizes: &[64], messages, rate: None, flows: flows[place], stamp: "sequence" };
        let seconds = f64::from(steps + 1) * (2.0 + messages as f64 / 1e6);
        let measured = context.try_measure(name, xs[place], repeat, seconds, |_| {
            let bed = Testbed::build()?;
            let flood = bed.echo(server, &load)?;
            let loss_free = bed.echo_without_loss(server, &load, steps)?;
            Ok((flood, loss_free))
        })?;
        let Some((flood, loss_free)) = measured else { return Ok(None) };
        let loss_free = loss_free.unwrap_or_else(|lowest| {
            let why = format!("answers were lost at every rate down to {lowest:.0} a second");
            context.record_void(name, xs[place], repeat, &why);
            f64::NAN
        });
        let answers = flood.answers.max(1) as f64;
        let cells = [
            ("sent", flood.sent.to_string()),
            ("answers", flood.answers.to_string()),
            ("ring", flood.ring.to_string()),
            ("calls", flood.calls.to_string()),
            ("seconds", format!("{:.6}", flood.seconds)),
            ("cpu_seconds", format!("{:.6}", flood.cpu)),
            ("loss_free_per_second", format!("{loss_free:.0}")),
        ];
        context.row("raw", (name, xs[place], repeat), &cells)?;
        Ok(Some(Rates {
            flood: answers / flood.seconds.max(1e-9),
            cpu: flood.cpu * 1e9 / answers,
            calls: flood.calls as f64 / answers,
            ring: flood.ring as f64 / answers,
            loss_free,
        }))
    })?;
    for &x in &xs {
        let of = if x == 1.0 { "one flow".to_owned() } else { format!("{x} flows") };
        context.charts.extend([
            Chart::bars(
                format!("free-{x}"),
                format!("Messages answered a second without loss: {of}"),
                "Longer is better.",
                Axis::linear("answered without loss", "million a second"),
                samples.bars(x, |one| one.loss_free / 1e6),
            ),
            Chart::bars(
                format!("rate-{x}"),
                format!("Answers a second at full speed: {of}"),
                "Longer is better. What was lost is not in it.",
                Axis::linear("answered", "million a second"),
                samples.bars(x, |one| one.flood / 1e6),
            ),
            Chart::bars(
                format!("cpu-{x}"),
                format!("CPU of the server for each answer: {of}"),
                "Shorter is better.",
                Axis::linear("CPU", "ns"),
                samples.bars(x, |one| one.cpu),
            ),
        ]);
        let repeats = context.options.repeats;
        let plain = servers[0].name;
        let ratio = |name| samples.ratio((name, x), (plain, x), |one| one.loss_free);
        let rate = |name| samples.median((name, x), |one| one.loss_free);
        let best = |from: &[&'static str]| {
            let known = from.iter().copied().filter(|name| rate(name).is_finite());
            known.max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap_or(from[0])
        };
        let (stock, xdp) = (best(&["gro", "uring both ways"]), best(&["xdp", "xdp both ways"]));
        context.claims.extend([
            Claim::at_least(
                &format!("echo without loss, {of}: best of the stock socket ({stock}) over recvmmsg/sendmmsg"),
                ratio(stock),
                1.5,
                repeats,
            ),
            Claim::at_least(
                &format!("echo without loss, {of}: {xdp} over recvmmsg/sendmmsg"),
                ratio(xdp),
                3.0,
                repeats,
            ),
        ]);
        let ours = servers.iter().filter(|server| server.role == Role::Ours);
        let calls = ours.flat_map(|server| samples.values((server.name, x), |one| one.calls / 2.0));
        let few = format!(
            "system calls a message at full speed, received or sent, {of}, all of ours, the most"
        );
        context.claims.push(Claim::most_is_few(&few, Distribution::of(calls)));
        let names = servers.iter().map(|server| server.name);
        let seen = names.filter(|name| samples.at((name, x)).iter().any(Option::is_some));
        context.notes.extend(seen.map(|name| {
            let part = |value: fn(&Rates) -> f64| samples.median((name, x), value);
            format!(
                "{name}, {of}: {:.4} system calls an answer, {:.1}% of the answers past the stack",
                part(|one| one.calls),
                100.0 * part(|one| one.ring)
            )
        }));
    }
    Ok(())
}
