//! While an uplink runs: what it is, what signals ask for, the live line, and the last words.

use std::fmt::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use linerate_net::link::Link;
use linerate_uplink::{Config, Outcome, Report, Running};
use serde::Serialize;

use super::Arguments;
use crate::cli::json::{self, Schema};
use crate::cli::metrics::Publisher;
use crate::cli::progress::{Meter, Moment, StatusLine, scaled};
use crate::cli::signals::Signals;
use crate::cli::stdio::{occurred, plural};
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
    let queues = plural(u64::from(*queues), "queue");
    stdio::eprintln(format_args!(
        "linerate: {device}{namespace} joined to {interface}, backend {backend}{attached}{copy} \
         ({reason}{notes})"
    ));
    let has = match *kind {
        "tun" => format!("is a TUN device at {mac}"),
        "socket" => "is a socket".to_owned(),
        "vhost-user" => "is a socket for vhost-user".to_owned(),
        _ => format!("has address {mac}"),
    };
    stdio::eprintln(format_args!(
        "linerate: {device} {has}, MTU {mtu}, {queues}; it leaves to the uplink: {offloads}"
    ));
}

/// Warns about what will not arrive.
pub(super) fn warn(link: &Link, config: &Config) {
    if config.backend != "xdp" {
        return;
    }
    let name = &link.name;
    let (who, remedy) = match link.kind.as_str() {
        "veth" => ("the peer of", "ethtool -K PEER txvlan off".to_owned()),
        _ => ("the driver of", format!("ethtool -K {name} rxvlan off")),
    };
    if linerate_net::ethtool::strips_vlan_tags(link.index) {
        stdio::warn(format_args!(
            "{who} {name} takes VLAN tags out of frames (rx-vlan-offload) before XDP \
             sees them, and they will be missing; `{remedy}` keeps them in"
        ));
    }
}

/// Waits for the end, and handles signals until then.
pub(super) fn follow(
    mut running: Running,
    signals: &Signals,
    arguments: &Arguments,
    mut publisher: Publisher<Report>,
) -> Outcome {
    let Arguments { stats, json, quiet, .. } = *arguments;
    let mut line = StatusLine::new(stats, json, quiet);
    let mut meter = Meter::start();
    while !running.is_finished() {
        std::thread::sleep(TICK);
        if signals.is_stopped() {
            running.stop();
        }
        if signals.take_report_request() {
            StatusLine::eprintln(line.as_ref(), counts(&running.report()));
        }
        if let Some(event) = running.poll() {
            StatusLine::eprintln(line.as_ref(), format_args!("linerate: {event}"));
        }
        publisher.update(|| running.report());
        if let Some(line) = &mut line
            && line.is_due()
        {
            line.show(Schema::UplinkStats, &UplinkStats::of(running.report(), &mut meter));
        }
    }
    StatusLine::clear(line);
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
        plural(tx.super_packets, "super-packet"),
        plural(tx.segments, "segment"),
        plural(tx.packets, "other packet"),
        scaled(tx.bytes as f64, "B"),
        config.interface,
        config.device,
        plural(rx.frames, "frame"),
        scaled(rx.bytes as f64, "B"),
        rx.joined,
        plural(rx.super_packets, "super-packet"),
        seconds,
        plural(statistics.dropped.total(), "packet"),
        statistics.unsplit.total(),
    );
    if statistics.dropped.total() > 0 {
        text += &format!("\nlost by cause: {}", causes(report));
    }
    let kinds = occurred(statistics.unsplit.iter());
    if !kinds.is_empty() {
        let _ = write!(text, "\nnot split for: {kinds}");
    }
    text
}

fn causes(report: &Report) -> String {
    let seen = occurred(report.statistics.dropped.named());
    if seen.is_empty() { "none".to_owned() } else { seen }
}

/// The report so far, with rates of bytes given to the interface (tx) and received from it (rx).
#[derive(Debug, Serialize)]
struct UplinkStats {
    #[serde(flatten)]
    moment: Moment,
    tx_bits_per_second: f64,
    rx_bits_per_second: f64,
    #[serde(flatten)]
    report: Report,
}

impl UplinkStats {
    fn of(report: Report, meter: &mut Meter<2>) -> Self {
        let bytes = [report.statistics.tx.bytes, report.statistics.rx.bytes];
        let (moment, [tx, rx]) = meter.read(bytes);
        Self { moment, tx_bits_per_second: 8.0 * tx, rx_bits_per_second: 8.0 * rx, report }
    }
}

impl fmt::Display for UplinkStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { report, tx_bits_per_second, rx_bits_per_second, .. } = self;
        let (tx, rx) = (&report.statistics.tx, &report.statistics.rx);
        write!(
            f,
            "tx {}, {}, {}; rx {}, {}, {}; lost: {}",
            scaled(*tx_bits_per_second, "b/s"),
            plural(tx.super_packets, "super-packet"),
            plural(tx.segments, "segment"),
            scaled(*rx_bits_per_second, "b/s"),
            plural(rx.frames, "frame"),
            plural(rx.super_packets, "super-packet"),
            causes(report)
        )
    }
}
