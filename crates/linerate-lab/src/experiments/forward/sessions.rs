//! `forward-sessions`: rate, memory and learning by the number of sessions (seed 003, §5.4).

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::cost::{Crossing, LINERATE, LINUX, Place, REDIRECT};
use crate::experiments::context::{Context, Experiment};
use crate::interrupt;
use crate::measure::cores::Cores;
use crate::measure::process::count;
use crate::report::distribution::Distribution;
use crate::report::summary::{Axis, Chart, Claim, Line, Point, Role};
use crate::topology::routed::{RoutedPair, Traffic, Way};

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "forward-sessions",
    title: "Forwarding by the number of sessions",
    about: "64-byte UDP frames of so many sessions, one after the other, so that each frame is of another \
            session than the one before, in turns with the same frames without a router. The bare \
            redirect knows of no sessions: what it costs is no table's. Learning: from the first frame \
            sent at full speed until the table holds 99% of the sessions. TCP: real connections, opened \
            through the router and held open together while each exchanges messages.",
    run,
};

const MILLION: f64 = 1e6;
/// The seed's.
const CONNECTIONS: u64 = 21_000;
/// Programs on each side that share them: one may not have so many files open.
const PAIRS: u16 = 2;
/// Messages there and back on each connection.
const ROUNDS: u64 = 5;

fn run(context: &mut Context) -> Result<()> {
    let all: &[u64] = context.pick(&[1, 1_000_000], &[1, 100, 1_000, 10_000, 100_000, 1_000_000]);
    let frames = context.pick(3_000_000, 5_000_000);
    let place = |&sessions: &u64| Place {
        x: sessions as f64,
        traffic: Traffic { size: 64, frames, sessions, rate: None },
    };
    let places: Vec<_> = all.iter().map(place).collect();
    let crossing = Crossing::run(context, &[LINUX, LINERATE, REDIRECT], &places, false)?;
    let x = || Some(Axis::logarithmic("sessions", ""));
    context.charts.extend([
        Chart {
            id: "cost".into(),
            title: "Cost of forwarding a 64-byte frame".into(),
            caption: "Lower is better.".into(),
            x: x(),
            y: Axis::linear("added to each frame", "ns"),
            lines: crossing.costs(),
        },
        Chart {
            id: "rate".into(),
            title: "Frames forwarded a second".into(),
            caption: "Higher is better.".into(),
            x: x(),
            y: Axis::linear("rate", "million frames a second"),
            lines: crossing.rates(),
        },
    ]);
    let repeats = context.options.repeats;
    let claim = "cost of a packet: 1,000,000 sessions over 1";
    let claim = crossing.claim(claim, (LINERATE.name, MILLION), (LINERATE.name, 1.0), 2.0, repeats);
    context.claims.push(claim);
    learning(context, all)?;
    connections(context)
}

fn learning(context: &mut Context, all: &[u64]) -> Result<()> {
    const NAME: &str = "learning";
    let (mut rates, mut memory) = (Vec::new(), Vec::new());
    for &sessions in all.iter().filter(|sessions| **sessions > 1) {
        let x = sessions as f64;
        let mut here = Vec::new();
        for repeat in 1..=context.options.repeats {
            if !context.wants(NAME, x) {
                continue;
            }
            let about = 4.0 + 4.0 * x / 1e6;
            let done =
                context.attempt(NAME, x, repeat, about, |pair| learn(pair.cores, sessions))?;
            let Some(done) = done else { continue };
            let cells = [
                x.to_string(),
                repeat.to_string(),
                done.held.to_string(),
                format!("{:.3}", done.seconds),
                done.memory.to_string(),
            ];
            context.row(
                "learning",
                &["sessions", "repeat", "held", "seconds", "memory_bytes"],
                cells,
            )?;
            here.push(done);
        }
        let point = |values: Vec<f64>| Point {
            x,
            void: context.options.repeats - values.len(),
            spread: Distribution::of(values),
            remark: None,
        };
        if !here.is_empty() {
            rates.push(point(here.iter().map(|l| l.held as f64 / l.seconds / 1e3).collect()));
            memory.push(point(here.iter().map(|l| l.memory as f64 / f64::from(1 << 20)).collect()));
        }
    }
    let line = |points| vec![Line { name: LINERATE.name.into(), role: Role::Ours, points }];
    let x = || Some(Axis::logarithmic("sessions", ""));
    context.charts.extend([
        Chart {
            id: "learning".into(),
            title: "Sessions learned a second".into(),
            caption:
                "Higher is better. The two packets of each that the kernel forwards are in it."
                    .into(),
            x: x(),
            y: Axis::linear("learned", "thousand sessions a second"),
            lines: line(rates),
        },
        Chart {
            id: "memory".into(),
            title: "Kernel memory of the tables".into(),
            caption: "With room for a quarter more sessions, and for 65,536 at least.".into(),
            x: x(),
            y: Axis::linear("memory", "MiB"),
            lines: line(memory),
        },
    ]);
    Ok(())
}

struct Learned {
    held: u64,
    seconds: f64,
    memory: u64,
}

fn learn(cores: Cores, sessions: u64) -> Result<Learned> {
    let routed = RoutedPair::build(cores)?;
    let running = routed.begin(LINERATE.way, sessions)?;
    let traffic = Traffic { size: 64, frames: 4 * sessions, sessions, rate: None };
    let sink = routed.sink_east()?;
    let began = Instant::now();
    let sender = routed.send(&traffic)?;
    let enough = sessions - sessions / 100;
    let mut status = routed.status()?;
    let held = |status: &serde_json::Value| count(&status["sessions"], "active");
    while held(&status)? < enough && began.elapsed() < Duration::from_secs(120) {
        interrupt::sleep(Duration::from_millis(20))?;
        status = routed.status()?;
    }
    let learned = Learned {
        held: held(&status)?,
        seconds: began.elapsed().as_secs_f64(),
        memory: count(&status["sessions"], "memory_bytes")?,
    };
    drop(sender);
    sink.stop(Duration::from_secs(20))?;
    if let Some(running) = running {
        running.stop(Duration::from_secs(30))?.success()?;
    }
    anyhow::ensure!(
        learned.held >= enough,
        "only {} of {sessions} sessions were learned",
        learned.held
    );
    Ok(learned)
}

fn connections(context: &mut Context) -> Result<()> {
    let ways =
        [("TCP, Linux", Role::Peer, Way::Linux), ("TCP, Linerate", Role::Ours, LINERATE.way)];
    let x = CONNECTIONS as f64;
    let mut lines = Vec::new();
    let mut most = None;
    for (name, role, way) in ways {
        let mut rates = Vec::new();
        for repeat in 1..=context.options.repeats {
            if !context.wants(name, x) {
                continue;
            }
            let done = context.attempt(name, x, repeat, 12.0, |pair| hold(pair.cores, way))?;
            let Some(done) = done else { continue };
            let cells = [
                name.to_owned(),
                repeat.to_string(),
                done.held.to_string(),
                done.sessions.to_string(),
                format!("{:.0}", done.exchanges_per_second),
            ];
            let columns =
                ["line", "repeat", "connections", "sessions_held", "exchanges_per_second"];
            context.row("connections", &columns, cells)?;
            rates.push(done.exchanges_per_second / 1e3);
            if role == Role::Ours {
                let least = most.map_or(u64::MAX, |(held, _)| held).min(done.held);
                let sessions = most.map_or(u64::MAX, |(_, sessions)| sessions).min(done.sessions);
                most = Some((least, sessions));
            }
        }
        let void = context.options.repeats - rates.len();
        let points = vec![Point { x: 0.0, spread: Distribution::of(rates), void, remark: None }];
        lines.push(Line { name: name.into(), role, points });
    }
    context.charts.push(Chart {
        id: "connections".into(),
        title: format!(
            "Messages there and back on {CONNECTIONS} TCP connections held open together"
        ),
        caption: "Higher is better. The hosts' own TCP is most of it.".into(),
        x: None,
        y: Axis::linear("exchanged", "thousand messages a second"),
        lines,
    });
    let claim = "real TCP connections held open at once, each both ways on the fast path";
    let bound = format!("{CONNECTIONS} connections, {} sessions", 2 * CONNECTIONS);
    context.claims.push(match most {
        Some((held, sessions)) => Claim::new(
            claim,
            format!("{held} connections, {sessions} sessions in the table, in the least run"),
            &bound,
            held >= CONNECTIONS && sessions >= 2 * CONNECTIONS,
        ),
        None => Claim::open(claim, "no run counted", &bound),
    });
    Ok(())
}

struct Held {
    held: u64,
    sessions: u64,
    exchanges_per_second: f64,
}

fn hold(cores: Cores, way: Way) -> Result<Held> {
    let routed = RoutedPair::build(cores)?;
    routed.queue()?;
    // Room for twice as many, so that every one of them finds a place.
    let running = routed.begin(way, 4 * CONNECTIONS)?;
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    let (mut servers, mut clients) = (Vec::new(), Vec::new());
    for number in 0..PAIRS {
        servers.push(routed.echo(number)?);
        let ready = folder.path().join(number.to_string());
        let each = CONNECTIONS / u64::from(PAIRS);
        clients.push((routed.connect(number, each, ROUNDS, &ready)?, ready));
    }
    // They hold their connections until they are told to end.
    let done = || {
        clients.iter_mut().try_for_each(|(client, _)| client.check())?;
        Ok(clients.iter().all(|(_, ready)| ready.exists()))
    };
    interrupt::wait_until("the messages", Duration::from_secs(240), done)?;
    let sessions = match way {
        Way::Linerate(_) => count(&routed.status()?["sessions"], "active")?,
        _ => 0,
    };
    let (mut held, mut exchanges_per_second) = (0, 0.0);
    for (client, _) in clients {
        let said = client.stop(Duration::from_secs(60))?.success()?.json()?;
        held += count(&said, "held")?;
        let rate = said["exchanges_per_second"].as_f64();
        exchanges_per_second += rate.context("the client reports no rate")?;
    }
    for server in servers {
        server.stop(Duration::from_secs(60))?.success()?;
    }
    if let Some(running) = running {
        running.stop(Duration::from_secs(30))?.success()?;
    }
    Ok(Held { held, sessions, exchanges_per_second })
}
