//! While an uplink runs: what it is, what signals ask for, the live line, and the last words.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use linerate_capture::interface::Interface;
use linerate_uplink::{Config, Outcome, Report, Running};

use crate::cli::json::{self, Schema};
use crate::cli::metrics::Publisher;
use crate::cli::progress::{StatusLine, scaled};
use crate::cli::signals::Signals;
use crate::cli::{self, stdio};

/// How soon a signal is noticed.
const TICK: Duration = Duration::from_millis(25);

/// Prints what was joined, how, and why.
pub(super) fn announce(config: &Config) {
    let Config { device, kind, interface, backend, reason, mac, mtu, queues, offloads, .. } =
        config;
    let notes: String = config.notes.iter().map(|note| format!("; {note}")).collect();
    let attached =
        config.attached.iter().map(|attached| format!(", {attached}")).collect::<String>();
    let copy = if config.zero_copy { ", zero-copy" } else { "" };
    let namespace = config.namespace.iter().map(|name| format!(" in {name}")).collect::<String>();
    let s = if *queues == 1 { "" } else { "s" };
    stdio::eprintln(format_args!(
        "linerate: {device}{namespace} joined to {interface}, backend {backend}{attached}{copy} \
         ({reason}{notes})"
    ));
    let has = match *kind {
        "tun" => format!("is a TUN device at {mac}"),
        _ => format!("has address {mac}"),
    };
    stdio::eprintln(format_args!(
        "linerate: {device} {has}, MTU {mtu}, {queues} queue{s}; it leaves to the uplink: {offloads}"
    ));
}

/// Warns about what will not arrive.
pub(super) fn warn(interface: &Interface, config: &Config) {
    if config.backend != "xdp" {
        return;
    }
    let name = &interface.name;
    let (who, remedy) = match interface.kind.as_deref() {
        Some("veth") => ("the peer of", "ethtool -K PEER txvlan off".to_owned()),
        _ => ("the driver of", format!("ethtool -K {name} rxvlan off")),
    };
    if linerate_net::ethtool::strips_vlan_tags(interface.index) {
        stdio::eprintln(format_args!(
            "linerate: warning: {who} {name} takes VLAN tags out of frames (rx-vlan-offload) before XDP \
             sees them, and they will be missing; `{remedy}` keeps them in"
        ));
    }
}

/// Waits for the end, and handles signals until then.
pub(super) fn follow(
    mut running: Running,
    signals: &Signals,
    quiet: bool,
    mut publisher: Publisher<Report>,
) -> Outcome {
    let mut line = StatusLine::new(quiet).map(|status| Line { status, before: (0, 0) });
    while !running.is_finished() {
        std::thread::sleep(TICK);
        if signals.is_stopped() {
            running.stop();
        }
        let say = |line: Option<&Line>, text: &str| {
            StatusLine::eprintln(line.map(|line| &line.status), text);
        };
        if signals.take_report_request() {
            say(line.as_ref(), &counts(&running.report()));
        }
        if let Some(event) = running.poll() {
            say(line.as_ref(), &format!("linerate: {event}"));
        }
        publisher.update(|| running.report());
        if let Some(line) = &mut line {
            line.update(&running);
        }
    }
    StatusLine::clear(line.map(|line| line.status));
    running.finish()
}

/// The last words, the JSON and the exit status.
pub(super) fn conclude(outcome: &Outcome, as_json: bool) -> Result<ExitCode> {
    if let Some(error) = &outcome.failure {
        cli::eprint_message(error);
    }
    stdio::eprintln(counts(&outcome.report));
    if as_json {
        json::print(Schema::Uplink, &outcome.report)?;
    }
    let failed = outcome.failure.is_some();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What went which way, and what did not.
fn counts(report: &Report) -> String {
    let Report { config, statistics, seconds } = report;
    let (tx, rx) = (&statistics.tx, &statistics.rx);
    let mut text = format!(
        "{} to {}: {} split into {}, {}, {}\n\
         {} to {}: {}, {}; {} of them joined to {}\n\
         {:.1} seconds, {} lost, {} not split",
        config.device,
        config.interface,
        number(tx.super_packets, "super-packet"),
        number(tx.segments, "segment"),
        number(tx.packets, "other packet"),
        scaled(tx.bytes as f64, "B"),
        config.interface,
        config.device,
        number(rx.frames, "frame"),
        scaled(rx.bytes as f64, "B"),
        rx.joined,
        number(rx.super_packets, "super-packet"),
        seconds,
        number(statistics.dropped.total(), "packet"),
        statistics.unsplit.total(),
    );
    if statistics.dropped.total() > 0 {
        text += &format!("\nlost by cause: {}", causes(report));
    }
    let kinds: Vec<_> =
        statistics.unsplit.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    if !kinds.is_empty() {
        let _ = write!(text, "\nnot split for: {}", kinds.join(", "));
    }
    text
}

/// A number of things of this name.
fn number(count: u64, name: &str) -> String {
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

fn causes(report: &Report) -> String {
    let causes = report.statistics.dropped.named();
    let seen: Vec<_> = causes
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(cause, count)| format!("{cause} {count}"))
        .collect();
    if seen.is_empty() { "none".to_owned() } else { seen.join(", ") }
}

/// The line on a terminal, and the bytes in both directions that it showed.
struct Line {
    status: StatusLine,
    before: (u64, u64),
}

impl Line {
    fn update(&mut self, running: &Running) {
        let Some(elapsed) = self.status.next_update() else { return };
        let report = running.report();
        let (tx, rx) = (&report.statistics.tx, &report.statistics.rx);
        let rate = |now: u64, before: u64| {
            scaled(now.saturating_sub(before) as f64 * 8.0 / elapsed.as_secs_f64(), "b/s")
        };
        self.status.show(format!(
            "tx {}, {} super-packets, {} segments; rx {}, {} frames, {} super-packets; lost: {}",
            rate(tx.bytes, self.before.0),
            tx.super_packets,
            tx.segments,
            rate(rx.bytes, self.before.1),
            rx.frames,
            rx.super_packets,
            causes(&report)
        ));
        self.before = (tx.bytes, rx.bytes);
    }
}
