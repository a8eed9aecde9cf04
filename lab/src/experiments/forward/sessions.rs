//! `forward-sessions`: rate, memory and learning by the number of sessions, as in section 5.4 of
//! Giraudo 2022.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::cost::{Costs, Forwarder, LINERATE, LINUX, REDIRECT, charts};
use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::Samples;
use crate::interrupt;
use crate::measure::cores::Cores;
use crate::measure::process::count;
use crate::report::summary::{Axis, Chart, Claim, Role};
use crate::topology::pair::Pair;
use crate::topology::routed::{
    Datapath, EAST_INTERFACE, RoutedPair, Rules, SessionTraffic, end_datapath,
};
use crate::traffic::generated::{Headers, Sessions};

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "forward-sessions",
    title: "Forwarding by the number of sessions",
    about: "64-byte UDP frames of so many sessions, one after the other, so that each frame is of another \
            session than the one before, in turns with the same frames without a router. The bare \
            redirect knows of no sessions: what it costs is no table's. Linux keeps sessions only with conntrack, \
            which is a line of its own. Zipf: the same sessions by Zipf's law with the exponent 1.1, so that few \
            have most frames. Learning: from the first frame \
            sent at full speed until the table holds 99% of the sessions. TCP: real connections, opened \
            through the router and held open together while each exchanges messages.",
    run,
};

const MILLION: f64 = 1e6;
/// As many as Giraudo 2022 has.
const CONNECTIONS: u64 = 21_000;
/// Programs on each side that share them: one may not have so many files open.
const PAIRS: u16 = 2;
/// Messages there and back on each connection.
const ROUNDS: u64 = 5;

const CONNTRACK: Forwarder = Forwarder::linux("Linux, conntrack", Rules::Tracked, Headers::Ipv4);
const ZIPF: [Forwarder; 2] = [
    Forwarder { name: "Linux, conntrack, Zipf", zipf: true, ..CONNTRACK },
    Forwarder { name: "Linerate, Zipf", zipf: true, ..LINERATE },
];

fn run(context: &mut Context) -> Result<()> {
    let all: &[u64] =
        context.quick_or_full(&[1, 1_000_000], &[1, 100, 1_000, 10_000, 100_000, 1_000_000]);
    let frames = context.quick_or_full(3_000_000, 5_000_000);
    let place = |&sessions: &u64| {
        (
            sessions as f64,
            SessionTraffic { size: 64, frames, sessions: Sessions::uniform(sessions), rate: None },
        )
    };
    let places: Vec<_> = all.iter().map(place).collect();
    let lines = [LINUX, CONNTRACK, LINERATE, REDIRECT, ZIPF[0], ZIPF[1]];
    let costs = Costs::measure(context, &lines, &places, false)?;
    let x = Axis::logarithmic("sessions", "");
    context.charts.extend(charts(&costs, &x, "a 64-byte frame", "Higher is better."));
    let repeats = context.options.repeats;
    let (uniform, zipf) = ((LINERATE.name, MILLION), (ZIPF[1].name, MILLION));
    for (claim, ours, theirs, bound) in [
        ("cost of a packet: 1,000,000 sessions over 1", uniform, (LINERATE.name, 1.0), 2.0),
        ("the same by Zipf's law", zipf, (LINERATE.name, 1.0), 2.5),
        (
            "cost of a packet with 1,000,000 sessions, over Linux with conntrack",
            uniform,
            (CONNTRACK.name, MILLION),
            0.3,
        ),
    ] {
        context.claims.push(costs.claim(claim, ours, theirs, bound, repeats));
    }
    learning(context, all)?;
    connections(context)
}

fn learning(context: &mut Context, all: &[u64]) -> Result<()> {
    const NAME: &str = "learning";
    let xs: Vec<f64> = all.iter().filter(|count| **count > 1).map(|count| *count as f64).collect();
    let line = vec![(NAME.to_owned(), Role::Ours)];
    let samples = Samples::collect(context, line, &xs, |context, _, place, repeat| {
        let x = xs[place];
        let about = 4.0 + 4.0 * x / 1e6;
        let work = |pair: &Pair| learn(pair.cores, x as u64);
        let Some(done) = context.try_measure(NAME, x, repeat, about, work)? else {
            return Ok(None);
        };
        let cells = [
            ("held", done.held.to_string()),
            ("seconds", format!("{:.3}", done.seconds)),
            ("memory_bytes", done.memory.to_string()),
        ];
        context.row("learning", (NAME, x, repeat), &cells)?;
        Ok(Some(done))
    })?;
    let lines = |value: fn(&Learned) -> f64| {
        let mut lines = samples.lines(value);
        lines.iter_mut().for_each(|line| line.name = LINERATE.name.into());
        lines
    };
    let x = || Axis::logarithmic("sessions", "");
    context.charts.extend([
        Chart::lines(
            "learning",
            "Sessions learned a second",
            "Higher is better. The two packets of each that the kernel forwards are in it.",
            x(),
            Axis::linear("learned", "thousand sessions a second"),
            lines(|one| one.held as f64 / one.seconds / 1e3),
        ),
        Chart::lines(
            "memory",
            "Kernel memory of the tables",
            "As the kernel accounts it, with room for as many sessions, and for 65,536 at least.",
            x(),
            Axis::linear("memory", "MiB"),
            lines(|one| one.memory as f64 / f64::from(1 << 20)),
        ),
    ]);
    let (claim, bound) =
        ("kernel memory of the tables with room for 1,000,000 sessions", "at most 160 MB");
    let memory = samples.distribution((NAME, MILLION), |one| one.memory as f64 / 1e6);
    let (repeats, is_small) = (context.options.repeats, |memory| memory <= 160.0);
    context.claims.push(Claim::of_runs(claim, memory, bound, repeats, "MB", is_small));
    Ok(())
}

struct Learned {
    held: u64,
    seconds: f64,
    memory: u64,
}

fn learn(cores: Cores, sessions: u64) -> Result<Learned> {
    let routed = RoutedPair::build(cores)?;
    let running = routed.start_datapath(LINERATE.datapath, sessions)?;
    let traffic = SessionTraffic {
        size: 64,
        frames: 12 * sessions,
        sessions: Sessions::uniform(sessions),
        rate: None,
    };
    let sink = routed.sink(&routed.east, EAST_INTERFACE)?;
    let began = Instant::now();
    let sender = routed.generate(&traffic, false)?;
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
    end_datapath(running)?;
    anyhow::ensure!(
        learned.held >= enough,
        "only {} of {sessions} sessions were learned",
        learned.held
    );
    Ok(learned)
}

/// The line of Linerate.
const OURS: &str = "TCP, Linerate";

fn connections(context: &mut Context) -> Result<()> {
    let datapaths = [Datapath::Linux, LINERATE.datapath];
    let lines = vec![("TCP, Linux".to_owned(), Role::Peer), (OURS.to_owned(), Role::Ours)];
    let names = lines.clone();
    let x = CONNECTIONS as f64;
    let samples = Samples::collect(context, lines, &[x], |context, line, _, repeat| {
        let (name, _) = &names[line];
        let work = |pair: &Pair| hold(pair.cores, datapaths[line]);
        let Some(done) = context.try_measure(name, x, repeat, 12.0, work)? else { return Ok(None) };
        let cells = [
            ("connections", done.held.to_string()),
            ("sessions_held", done.sessions.to_string()),
            ("exchanges_per_second", format!("{:.0}", done.exchanges_per_second)),
        ];
        context.row("connections", (name, x, repeat), &cells)?;
        Ok(Some(done))
    })?;
    let ours = || samples.at((OURS, x)).iter().flatten();
    let least = ours().map(|one| one.held).min().zip(ours().map(|one| one.sessions).min());
    context.charts.push(Chart::bars(
        "connections",
        format!("Messages there and back on {CONNECTIONS} TCP connections held open together"),
        "Higher is better. The hosts' own TCP is most of it.",
        Axis::linear("exchanged", "thousand messages a second"),
        samples.bars(x, |one| one.exchanges_per_second / 1e3),
    ));
    let claim = "real TCP connections held open at once, each both directions on the fast path";
    let bound = format!("{CONNECTIONS} connections, {} sessions", 2 * CONNECTIONS);
    context.claims.push(match least {
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

struct Connections {
    held: u64,
    sessions: u64,
    exchanges_per_second: f64,
}

fn hold(cores: Cores, datapath: Datapath) -> Result<Connections> {
    let routed = RoutedPair::build(cores)?;
    routed.add_qdisc()?;
    // Room for twice as many, so that every one of them finds a place.
    let running = routed.start_datapath(datapath, 4 * CONNECTIONS)?;
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    let (mut servers, mut clients) = (Vec::new(), Vec::new());
    for number in 0..PAIRS {
        servers.push(routed.echo(number)?);
        let ready = folder.path().join(number.to_string());
        let each = CONNECTIONS / u64::from(PAIRS);
        clients.push((routed.connect(number, each, ROUNDS, &ready)?, ready));
    }
    // They hold their connections until a signal ends them.
    let done = || {
        clients.iter_mut().try_for_each(|(client, _)| client.check())?;
        Ok(clients.iter().all(|(_, ready)| ready.exists()))
    };
    interrupt::wait_until("the messages", Duration::from_secs(240), done)?;
    let sessions = match datapath {
        Datapath::Linerate(_) => count(&routed.status()?["sessions"], "active")?,
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
    end_datapath(running)?;
    Ok(Connections { held, sessions, exchanges_per_second })
}
