//! `linerate forward status`: what an instance is and has counted.

use std::process::ExitCode;

use anyhow::{Context, Result};
use linerate_forward::snapshot::{Counted, Port, Snapshot, State};

use super::arguments::Status;
use super::columns::columns;
use crate::cli::stdio;

/// Prints it.
pub(super) fn run(arguments: &Status) -> Result<ExitCode> {
    let snapshot = arguments.instance.open()?.snapshot()?;
    if arguments.json {
        stdio::println(serde_json::to_string(&snapshot).context("cannot write the JSON")?)?;
    } else {
        stdio::println(text(&snapshot))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The whole in words.
fn text(snapshot: &Snapshot) -> String {
    let Snapshot { instance, mode, statistics, heartbeat_age, bound, generation, .. } = snapshot;
    let state = match snapshot.state {
        State::Running => format!("running, heartbeat {heartbeat_age:.1} s ago"),
        State::Alone => format!(
            "without a daemon for {heartbeat_age:.1} s, handed back to the kernel after {bound:.0} s"
        ),
        State::HandedBack => "handed back to the kernel, no daemon".to_owned(),
    };
    let sessions = &snapshot.sessions;
    let full = 100.0 * sessions.held as f64 / sessions.room.max(1) as f64;
    let mib = sessions.memory as f64 / f64::from(1 << 20);
    let mut parts = vec![format!(
        "{instance}: {state}\n\
         mode {mode}, statistics {statistics}, generation {generation}, {} blocked\n\
         {} sessions of {}, table {full:.1}% full, {mib:.1} MiB",
        snapshot.blocked, sessions.held, sessions.room
    )];
    parts.push(ports(&snapshot.ports));
    for (title, list) in
        [("not on the fast path", &snapshot.reasons), ("not learned from", &snapshot.refusals)]
    {
        parts.push(counts(title, list));
    }
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

fn ports(ports: &[Port]) -> String {
    let names = ["port", "attached", "rx packets", "rx bytes", "tx packets", "tx bytes", "below"];
    let numbers = [false, false, true, true, true, true, false];
    let rows = ports.iter().map(|port| {
        let Port { interface, attached, uppers, traffic, .. } = port;
        [
            interface.clone(),
            (*attached).to_owned(),
            traffic.rx_packets.to_string(),
            traffic.rx_bytes.to_string(),
            traffic.tx_packets.to_string(),
            traffic.tx_bytes.to_string(),
            uppers.join(" "),
        ]
    });
    columns(names, numbers, rows)
}

/// Those that ever counted.
fn counts(title: &str, list: &[Counted]) -> String {
    let mut rows = list.iter().filter(|one| one.packets > 0).peekable();
    if rows.peek().is_none() {
        return String::new();
    }
    let rows = rows.map(|one| [one.name.to_owned(), one.packets.to_string(), one.about.to_owned()]);
    columns([title, "packets", ""], [false, true, false], rows)
}
