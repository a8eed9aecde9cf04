//! `linerate forward status`: what an instance is and has counted.

use std::process::ExitCode;

use anyhow::Result;
use linerate_forward::snapshot::{Counter, Port, Snapshot, State};
use linerate_forward::table::rules::Kept;

use super::arguments::Status;
use super::columns::columns;
use crate::cli::json::{self, Schema};
use crate::cli::stdio;

/// Prints it.
pub(super) fn run(arguments: &Status) -> Result<ExitCode> {
    let snapshot = arguments.query.instance.open()?.snapshot()?;
    json::print_or(arguments.query.json, Schema::ForwardStatus, &snapshot, || text(&snapshot))
}

/// The snapshot as text.
fn text(snapshot: &Snapshot) -> String {
    let Snapshot { instance, statistics, heartbeat_age, generation, .. } = snapshot;
    let timeout = snapshot.heartbeat_timeout;
    let process = snapshot.process.unwrap_or_default();
    let silent = snapshot.silent_daemon().map(|process| {
        format!("the daemon (process {process}) does not answer, last heartbeat {heartbeat_age:.1} s ago")
    });
    let left = (timeout - heartbeat_age).max(0.0);
    let state = match (snapshot.state, silent) {
        (State::FailOpen, Some(silent)) => format!("failed open to the kernel: {silent}"),
        (_, Some(silent)) => format!("{silent}, fails open to the kernel in {left:.1} s"),
        (State::Starting, None) => {
            format!("starting: the daemon (process {process}) attaches to the interfaces")
        }
        (State::Running, None) => format!("running, heartbeat {heartbeat_age:.1} s ago"),
        (State::Unattended, None) => format!(
            "no daemon for {heartbeat_age:.1} s, fails open to the kernel in {left:.1} s; rules that change \
             until then take effect then"
        ),
        (State::FailOpen, None) => "failed open to the kernel, no daemon".to_owned(),
    };
    let sessions = &snapshot.sessions;
    let full = 100.0 * sessions.active as f64 / sessions.capacity.max(1) as f64;
    let mib = sessions.memory_bytes as f64 / f64::from(1 << 20);
    let mut parts = vec![format!(
        "{instance}: {state}\n\
         statistics {statistics}, generation {generation}, {} blocked\n\
         {} of {}, table {full:.1}% full, {mib:.1} MiB",
        snapshot.blocked,
        stdio::plural(sessions.active, "session"),
        sessions.capacity
    )];
    parts.push(ports(&snapshot.ports));
    for (title, list) in [("slow path", &snapshot.reasons), ("learn refusals", &snapshot.refusals)]
    {
        parts.push(counts(title, list));
    }
    parts.push(rules(&snapshot.rules));
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

fn ports(ports: &[Port]) -> String {
    let names = [
        "port",
        "xdp",
        "ingress",
        "egress",
        "rx packets",
        "rx bytes",
        "tx packets",
        "tx bytes",
        "upper devices",
    ];
    let numbers = [false, false, false, false, true, true, true, true, false];
    let rows = ports.iter().map(|port| {
        let Port { interface, xdp_mode, ingress, egress, upper_devices, traffic, .. } = port;
        [
            interface.clone(),
            (*xdp_mode).to_owned(),
            ingress.to_string(),
            egress.to_string(),
            traffic.rx_packets.to_string(),
            traffic.rx_bytes.to_string(),
            traffic.tx_packets.to_string(),
            traffic.tx_bytes.to_string(),
            upper_devices.join(" "),
        ]
    });
    columns(names, numbers, rows)
}

/// Counters that are not zero.
fn counts(title: &str, list: &[Counter]) -> String {
    let mut rows = list.iter().filter(|one| one.packets > 0).peekable();
    if rows.peek().is_none() {
        return String::new();
    }
    let rows =
        rows.map(|one| [one.name.to_owned(), one.packets.to_string(), one.description.to_owned()]);
    columns([title, "packets", ""], [false, true, false], rows)
}

/// What keeps sessions with the kernel.
pub(super) fn rules(kept: &[Kept]) -> String {
    if kept.is_empty() {
        return String::new();
    }
    let rows = kept.iter().map(|kept| [kept.rule.clone(), kept.packets.to_string()]);
    columns(["sessions stay with the kernel", "packets"], [false, true], rows)
}
