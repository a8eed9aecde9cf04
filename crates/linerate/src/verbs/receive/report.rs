//! What `linerate receive` prints.

use std::process::ExitCode;

use anyhow::Result;
use hdrhistogram::Histogram;
use linerate_feed::{RequestStatistics, Statistics};
use linerate_udp::{Backend, CalibrationRun, Receiver};
use serde::Serialize;

use super::Arguments;
use super::stats::Lost;
use super::worker::{self, Choice, ring_of};
use crate::cli::json::{self, Schema};
use crate::cli::progress::scaled;
use crate::cli::stdio::{occurred, plural};
use crate::cli::{self, stdio};

/// The JSON object.
#[derive(Debug, Serialize)]
struct Report {
    messages: u64,
    bytes: u64,
    /// With `truncated`: `None` where they could not be read.
    lost: Option<Lost>,
    truncated: Option<u64>,
    /// From the first message to the last.
    seconds: f64,
    /// Of the threads that receive, from the first message on.
    cpu_seconds: f64,
    messages_per_second: f64,
    nanoseconds_per_message: f64,
    backend: String,
    /// With xdp: the interface, and how its frames are delivered.
    ring: Option<String>,
    /// With xdp: messages that bypassed the stack, and messages through the companion socket.
    ring_messages: Option<u64>,
    companion_messages: Option<u64>,
    why: Vec<String>,
    /// The backends that were measured for the choice.
    measured: Vec<Measured>,
    calls: u64,
    batch: Option<Distribution>,
    latency_ns: Option<Distribution>,
    check: Option<Check>,
    feed: Option<Statistics>,
    /// Requests for missing messages of the feed.
    requests: Option<RequestStatistics>,
}

/// The result of a backend's measurement.
#[derive(Debug, Serialize)]
struct Measured {
    backend: &'static str,
    messages: u64,
    lost: u64,
    cpu_seconds: f64,
}

#[derive(Debug, Serialize)]
struct Distribution {
    mean: f64,
    p50: u64,
    p90: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

#[derive(Debug, Serialize)]
struct Check {
    wrong: u64,
    good: u64,
    first: Option<u64>,
    last: Option<u64>,
    missing: u64,
    out_of_order: u64,
}

impl Distribution {
    fn of(histogram: &Histogram<u32>) -> Option<Self> {
        (!histogram.is_empty()).then(|| Self {
            mean: histogram.mean(),
            p50: histogram.value_at_quantile(0.5),
            p90: histogram.value_at_quantile(0.9),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        })
    }
}

impl Measured {
    fn of(run: &CalibrationRun) -> Self {
        let CalibrationRun { backend, messages, lost, cpu } = *run;
        Self { backend: backend.name(), messages, lost, cpu_seconds: cpu.as_secs_f64() }
    }
}

impl Report {
    fn of(statistics: worker::Statistics, choice: Choice, checked: bool) -> Self {
        let Choice { backend, ring, why, calibration_runs } = choice;
        let seconds = match (statistics.first, statistics.last) {
            (Some(first), Some(last)) => (last - first).as_secs_f64(),
            _ => 0.0,
        };
        let losses = statistics.losses;
        let numbers = statistics.numbers;
        let messages = statistics.messages as f64;
        Self {
            messages: statistics.messages,
            bytes: statistics.bytes,
            lost: losses.map(|losses| Lost::of(losses, &backend)),
            truncated: losses.map(|losses| losses.truncated),
            seconds,
            cpu_seconds: statistics.cpu_seconds,
            messages_per_second: if seconds > 0.0 { messages / seconds } else { 0.0 },
            nanoseconds_per_message: statistics.cpu_seconds * 1e9 / messages.max(1.0),
            backend,
            ring_messages: ring.as_ref().map(|_| statistics.ring_messages),
            companion_messages: ring
                .as_ref()
                .map(|_| statistics.messages.saturating_sub(statistics.ring_messages)),
            ring,
            why,
            measured: calibration_runs.iter().map(Measured::of).collect(),
            calls: statistics.calls,
            batch: Distribution::of(&statistics.batches),
            latency_ns: Distribution::of(&statistics.latency),
            check: checked.then(|| Check {
                wrong: numbers.wrong,
                good: numbers.good,
                first: numbers.lowest,
                last: numbers.highest,
                missing: match (numbers.lowest, numbers.highest) {
                    (Some(lowest), Some(highest)) => {
                        (highest - lowest).saturating_add(1).saturating_sub(numbers.good)
                    }
                    _ => 0,
                },
                out_of_order: numbers.behind,
            }),
            feed: statistics.feed,
            requests: statistics.requests,
        }
    }
}

/// Messages that one `recvmmsg` gives at most (`UIO_MAXIOV`).
const IN_A_CALL: usize = 1024;

/// Prints how messages are received, and why.
pub(super) fn announce(receivers: &[Receiver], arguments: &Arguments) {
    let batch = arguments.batch;
    let mut last = String::new();
    for receiver in receivers {
        let (address, backend) = (receiver.address(), receiver.backend());
        let ring = ring_of(receiver).map_or_else(String::new, |ring| format!(" on {ring}"));
        let why: String =
            receiver.selection_reasons().iter().map(|why| format!("; {why}")).collect();
        let several = backend == Backend::Recvmmsg && batch > IN_A_CALL;
        let calls = if several {
            format!("; a batch of {batch} takes several calls, the kernel gives {IN_A_CALL} in one")
        } else {
            String::new()
        };
        // Threads of one socket have one line.
        let line = format!("receiving on {address} by {backend}{ring}{why}{calls}");
        if line != last {
            super::tell(&line);
            last = line;
        }
    }
    if arguments.awaits_consent() {
        super::tell(
            "--take-over: about twice as fast, by xdp; the host gets none of these messages",
        );
    }
    if arguments.ring.is_some() && receivers.iter().all(|one| one.backend() != Backend::Xdp) {
        stdio::warn("--ring has no effect: no messages are taken by xdp");
    }
    // The kernel says twice what a socket got: half of it is for its own overhead. Threads share one.
    let granted = receivers[0].recv_buffer_size().map_or(usize::MAX, |bytes| bytes as usize / 2);
    if granted < arguments.buffer {
        stdio::warn(format_args!(
            "the socket's buffer has {granted} bytes of the {} asked for: raise net.core.rmem_max, or run with \
             CAP_NET_ADMIN",
            arguments.buffer
        ));
    }
}

/// The summary, the JSON and the exit status.
pub(super) fn conclude(
    statistics: worker::Statistics,
    choice: Choice,
    arguments: &Arguments,
) -> Result<ExitCode> {
    if let Some(error) = &statistics.failure {
        cli::eprint_message(error);
    }
    let failed = statistics.failure.is_some();
    let report = Report::of(statistics, choice, arguments.check.is_some());
    if !arguments.quiet {
        summarise(&report);
    }
    if arguments.json {
        json::print(Schema::Receive, &report)?;
    }
    let wrong = report.check.as_ref().is_some_and(|check| check.wrong > 0);
    Ok(if failed || wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The losses, by cause.
fn summary_of(lost: &Lost, truncated: u64) -> String {
    let seen = occurred([
        ("socket buffer", lost.socket_buffer),
        ("ring", lost.ring),
        ("checksum", lost.checksum),
        ("malformed", lost.malformed),
        ("other", lost.other),
    ]);
    let by = if seen.is_empty() { seen } else { format!(": {seen}") };
    let least = if lost.at_least { "at least " } else { "" };
    let joined =
        if lost.at_least { " (in joined datagrams, of up to 64 messages each)" } else { "" };
    format!("{least}{} lost{by}{joined}; {truncated} truncated", lost.total)
}

fn summarise(report: &Report) {
    let Report { messages, seconds, lost, truncated, nanoseconds_per_message: cpu, .. } = report;
    // A feed has messages of its own in them.
    let feed = report.feed.is_some();
    let what = if feed { "datagrams" } else { "messages" };
    stdio::eprintln(format_args!(
        "{messages} {what} in {seconds:.3} s, {}; {cpu:.0} ns of CPU each",
        scaled(report.messages_per_second, if feed { "datagrams/s" } else { "msg/s" }),
    ));
    stdio::eprintln(match lost.as_ref().zip(*truncated) {
        Some((lost, truncated)) => summary_of(lost, truncated),
        None => Lost::text(None),
    });
    if let (Some(ring), Some(companion)) = (report.ring_messages, report.companion_messages) {
        stdio::eprintln(format_args!(
            "xdp: {ring} {what} bypassed the stack, {companion} came through the companion socket"
        ));
    }
    if let Some(batch) = &report.batch {
        let Distribution { mean, p50, p99, max, .. } = batch;
        let calls = report.calls;
        stdio::eprintln(format_args!(
            "batches: {mean:.1} {what} on average, half up to {p50}, 99% up to {p99}, largest {max}; \
             {calls} system calls"
        ));
    }
    if let Some(latency) = &report.latency_ns {
        let us = |ns: u64| ns as f64 / 1e3;
        stdio::eprintln(format_args!(
            "latency in µs: p50 {:.1}, p90 {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.1}",
            us(latency.p50),
            us(latency.p90),
            us(latency.p99),
            us(latency.p999),
            us(latency.max)
        ));
    }
    if let Some(check) = &report.check {
        let Check { wrong, good, missing, out_of_order, .. } = check;
        stdio::eprintln(format_args!(
            "checked: {good} good, {wrong} wrong, {missing} missing, {out_of_order} out of order"
        ));
    }
    if let Some(feed) = &report.feed {
        stdio::eprintln(format_args!(
            "feed: {} of {}, {}, {} missing, {} late, {}, {} abandoned; first by line A {}, B {}; {}, {} of session, \
             {} malformed",
            plural(feed.messages, "message"),
            plural(feed.sessions, "session"),
            plural(feed.gaps, "gap"),
            feed.missing,
            feed.late,
            plural(feed.duplicates, "duplicate"),
            feed.abandoned,
            feed.first_a,
            feed.first_b,
            plural(feed.heartbeats, "heartbeat"),
            plural(feed.ends, "end"),
            feed.malformed
        ));
        if let Some(RequestStatistics { requests, repeated, unanswered, .. }) = report.requests {
            stdio::eprintln(format_args!(
                "{}, {repeated} of them repeated, for {}; {} without an answer",
                plural(requests, "request"),
                plural(feed.retransmitted, "message"),
                plural(unanswered, "gap")
            ));
        }
    }
}
