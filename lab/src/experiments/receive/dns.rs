//! `receive-dns`: a DNS responder under dnsperf.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;

use super::servers::{self, Answered, SERVERS};
use super::testbed::Testbed;
use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::Samples;
use crate::programs;
use crate::report::summary::{Axis, Chart, Claim};

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "receive-dns",
    title: "A DNS responder under dnsperf",
    about: "dnsperf asks for the addresses of 10,000 names over a veth, from 16 sockets, with up to 1000 questions under \
            way, on one core; the responder of linerate-udp's examples answers on the other. The plain responder has \
            the same code around recvfrom and sendto. Where dnsperf is slower than a responder, only the CPU \
            time of an answer tells responders apart.",
    run,
};

const NAMES: usize = 10_000;

fn run(context: &mut Context) -> Result<()> {
    if context.folder().is_some() && !programs::installed("dnsperf") {
        context.notes.push("skipped: dnsperf is not installed".to_owned());
        return Ok(());
    }
    let questions = write_questions(context)?;
    let seconds = context.quick_or_full(2, 10);
    // Whether answers are segmented makes no difference here.
    let servers = [&SERVERS[..1], &SERVERS[2..]].concat();
    let lines = servers::lines(&servers);
    let samples = Samples::collect(context, lines, &[1.0], |context, at, _, repeat| {
        let server = &servers[at];
        let name = server.name;
        let seen = context.try_measure(name, 1.0, repeat, f64::from(seconds) + 1.5, |_| {
            Testbed::build()?.dns(server, &questions, seconds)
        })?;
        let Some(seen) = seen else { return Ok(None) };
        let cells = [
            ("completed", seen.completed.to_string()),
            ("wrong", seen.wrong.to_string()),
            ("answers_per_second", format!("{:.0}", seen.per_second)),
            ("cpu_seconds", format!("{:.6}", seen.cpu)),
            ("dnsperf_load", format!("{:.3}", seen.client_load)),
        ];
        context.row("raw", (name, 1.0, repeat), &cells)?;
        Ok(Some(seen))
    })?;
    let cpu = |one: &Answered| one.cpu * 1e9 / one.completed.max(1) as f64;
    context.charts.extend([
        Chart::bars(
            "rate".to_owned(),
            "Answers a second".to_owned(),
            "Longer is better.",
            Axis::linear("answers", "thousand a second"),
            samples.bars(1.0, |one| one.per_second / 1e3),
        ),
        Chart::bars(
            "cpu".to_owned(),
            "CPU of the responder for each answer".to_owned(),
            "Shorter is better.",
            Axis::linear("CPU", "ns"),
            samples.bars(1.0, cpu),
        ),
    ]);
    let plain = (servers[0].name, 1.0);
    let rate = |name| samples.median((name, 1.0), |one: &Answered| one.per_second);
    let names = || servers.iter().map(|server| server.name);
    let ours = names().skip(1).filter(|name| rate(name).is_finite());
    let best = ours.max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap_or("xdp");
    let load = |name| samples.median((name, 1.0), |one: &Answered| one.client_load * 100.0);
    let loads = [load(plain.0), load(best)];
    if let [at_plain, at_best] = loads
        && loads.iter().all(|load| load.is_finite())
    {
        context.notes.push(format!(
            "dnsperf used {at_plain:.0}% of its core at plain sockets, {at_best:.0}% at {best}; at 100% it limits the rate"
        ));
    }
    let repeats = context.options.repeats;
    let answered = names().flat_map(|name| samples.at((name, 1.0)));
    let wrong: u64 = answered.flatten().map(|one| one.wrong).sum();
    let measured = names().any(|name| !samples.at((name, 1.0)).is_empty());
    context.claims.extend([
        Claim::at_least(
            &format!("answers a second: {best} over plain sockets"),
            samples.ratio((best, 1.0), plain, |one| one.per_second),
            1.5,
            repeats,
        ),
        Claim::at_most(
            &format!("CPU of the responder for an answer: {best} over plain sockets"),
            samples.ratio((best, 1.0), plain, cpu),
            1.0 / 1.5,
            repeats,
        ),
        match measured {
            true => Claim::new(
                "wrong or lost answers, all responders",
                wrong.to_string(),
                "0",
                wrong == 0,
            ),
            false => Claim::open("wrong or lost answers, all responders", "no run counted", "0"),
        },
    ]);
    Ok(())
}

/// The questions, in the run's folder; nothing in a dry run.
fn write_questions(context: &Context) -> Result<PathBuf> {
    let Some(folder) = context.folder() else { return Ok(PathBuf::new()) };
    let mut lines = String::new();
    for name in 0..NAMES {
        writeln!(lines, "host{name}.example A")?;
    }
    let path = std::path::absolute(folder)?.join("questions");
    std::fs::write(&path, lines)?;
    Ok(path)
}
