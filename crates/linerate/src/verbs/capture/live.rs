//! While a capture runs: requests by signal, the live line, and the final report.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Result;
use linerate_capture::Error as CaptureError;
use linerate_capture::engine::{Engine, FileProgress, Outcome, Report};
use linerate_capture::source::{OpenInterface, SourceKind, TakenFrames};
use linerate_capture::statistics::{DropCause, Drops};
use linerate_flow::export::ExportStatistics;
use linerate_pcapfile::Error as FileError;
use linerate_service::Manager;

use super::arguments::Arguments;
use super::decoder::Decoder;
use super::stats::{CaptureStats, FILE_SOURCE, Line, queues};
use super::values::Limit;
use crate::cli::json::{self, Schema};
use crate::cli::metrics::Publisher;
use crate::cli::progress::{Meter, StatusLine};
use crate::cli::signals::Signals;
use crate::cli::stdio::plural;
use crate::cli::{self, stdio};

/// How often signals and limits are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Prints a line for each interface, what the host does not get, and filters in user space; with `details` also the
/// reasons.
pub(super) fn announce(opened: &[OpenInterface], snaplen: u32, details: bool) {
    for one in opened {
        let name = &one.label;
        let source = one.selection.kind;
        let hint = if one.selection.awaits_consent {
            "; --take-over: faster, host gets no packets"
        } else {
            ""
        };
        stdio::eprintln(format_args!("linerate: listening on {name}, source {source}{hint}"));
        if details {
            let notes = one.notes.iter().filter(|note| !note.is_empty());
            let notes: String = notes.map(|note| format!("; {note}")).collect();
            let pages = one.chosen_pages().map(|pages| format!("; pages: {pages}"));
            let (reason, pages) = (&one.selection.reason, pages.unwrap_or_default());
            stdio::eprintln(format_args!(
                "linerate: {name}: {reason}{notes}{pages}; snapshot length {snaplen} bytes"
            ));
        }
        if source == SourceKind::Xdp {
            let line = match one.taken {
                TakenFrames::Accepted => {
                    format!("the host does not get the frames of {name} that this capture takes")
                }
                TakenFrames::All => format!(
                    "the host gets no frame of {name}, also none that the filter rejects, because the filter runs \
                     in user space"
                ),
                TakenFrames::None => format!(
                    "the host gets all frames of {name}, because the filter runs in user space"
                ),
            };
            stdio::eprintln(format_args!("linerate: {line}"));
            if !one.bypassed.is_empty() && one.taken != TakenFrames::None {
                let all = one.bypassed.join(", ");
                stdio::eprintln(format_args!("linerate: these frames pass by {all}"));
            }
        }
        let filter = one.filter.as_ref().filter(|_| details || one.filter_in_user);
        if let Some(filter) = filter {
            let side = if one.filter_in_user { "user space" } else { "the kernel" };
            let (text, why) = (filter.text(), &one.filter_reason);
            stdio::eprintln(format_args!("linerate: filter \"{text}\" runs in {side}: {why}"));
        }
    }
}

/// The options of `capture` that remedy an error of the library.
pub(crate) fn remedy(error: &CaptureError) -> Option<&'static str> {
    Some(match error {
        CaptureError::Direction { .. } => "use -Q in, or --source packet",
        CaptureError::NoDirection | CaptureError::Undirected { .. } => "leave -Q out",
        CaptureError::Split { .. } => "--split needs --source packet",
        CaptureError::Threads { .. } => "leave --threads out",
        CaptureError::LinkLayers => "--format pcapng writes pcapng",
        CaptureError::KeepFree { .. } => "-C and -b filesize: make smaller files",
        _ => return None,
    })
}

/// Prints the warnings.
pub(super) fn warn(opened: &[OpenInterface]) {
    for one in opened {
        // The same name may be in several namespaces.
        let place =
            if one.namespace.is_some() { format!("{}: ", one.label) } else { String::new() };
        for setting in &one.unused {
            let option = match setting.name {
                "time-stamp-type" => "-j adapter".to_owned(),
                name => format!("--{name}"),
            };
            let reason = &setting.reason;
            stdio::warn(format_args!("{place}{option} has no effect {reason}"));
        }
        for warning in &one.warnings {
            stdio::warn(format_args!("{place}{warning}"));
        }
    }
}

/// Waits for the end of a capture, and handles signals and limits until then.
pub(super) fn follow(
    engine: Engine,
    signals: &Signals,
    arguments: &Arguments,
    mut publisher: Publisher<CaptureStats>,
) -> Outcome {
    let start = Instant::now();
    let duration = arguments.limit(|limit| match limit {
        Limit::Duration(duration) => Some(*duration),
        _ => None,
    });
    let mut line = Line::new(arguments);
    let mut meter = Meter::start();
    let mut manager = Manager::find();
    manager.ready("capturing");
    while !engine.is_finished() {
        std::thread::sleep(POLL_INTERVAL);
        if signals.is_stopped() || duration.is_some_and(|limit| start.elapsed() >= limit) {
            engine.stop();
        }
        if signals.take_flush() {
            engine.flush();
        }
        if signals.take_rotation() {
            engine.rotate();
        }
        let say = |text: &str| beside(line.as_ref(), text);
        if signals.take_report_request() {
            say(&counts(&engine.report()));
        }
        engine.events().for_each(|event| say(&format!("linerate: {event}")));
        publisher.update(|| CaptureStats::of(engine.report(), &mut meter));
        manager.beat();
        manager.update(|| {
            let report = engine.report();
            format!(
                "{} captured, {} lost",
                plural(report.captured, "packet"),
                report.dropped.total()
            )
        });
        if let Some(line) = &mut line {
            line.update(|| engine.report());
        }
    }
    manager.stopping();
    StatusLine::clear(line.map(|line| line.status));
    for event in engine.events() {
        stdio::eprintln(format_args!("linerate: {event}"));
    }
    engine.finish()
}

/// Prints a line above the live one.
fn beside(line: Option<&Line>, text: &str) {
    StatusLine::eprintln(line.map(|line| &line.status), text);
}

/// Reads a file with `read`, and handles signals until the end.
pub(super) fn accompany(
    progress: &FileProgress,
    signals: &Signals,
    arguments: &Arguments,
    read: impl FnOnce() -> Outcome,
) -> Outcome {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut line = Line::new(arguments);
            while !done.load(Relaxed) {
                std::thread::park_timeout(POLL_INTERVAL);
                if signals.take_flush() {
                    progress.flush();
                }
                if signals.take_report_request() {
                    beside(line.as_ref(), &file_counts(&progress.report()));
                }
                if let Some(line) = &mut line {
                    line.update(|| progress.report());
                }
            }
            StatusLine::clear(line.map(|line| line.status));
        });
        let outcome = read();
        done.store(true, Relaxed);
        watcher.thread().unpark();
        outcome
    })
}

fn file_counts(report: &Report) -> String {
    let [captured, read] = [report.captured, report.received].map(|count| plural(count, "packet"));
    format!("{captured} captured\n{read} read")
}

/// The final report, the JSON and the exit status, after `decoder` has printed everything.
pub(super) fn conclude(
    mut outcome: Outcome,
    arguments: &Arguments,
    decoder: Option<Decoder>,
) -> Result<ExitCode> {
    let report = &mut outcome.report;
    if decoder.is_some() {
        // The pipe to tcpdump is no file of the user's.
        (report.file, report.files, report.file_bytes, report.written) = (None, 0, 0, 0);
    }
    let printed = decoder.is_none_or(Decoder::finish) && !super::output::failed();
    if let Some(error) = &outcome.failure {
        let remedy = cli::remedy(error).map(|remedy| format!("; {remedy}")).unwrap_or_default();
        cli::eprint_message(format_args!("{error}{remedy}"));
    }
    if report.source != FILE_SOURCE {
        if arguments.final_report {
            stdio::eprintln(counts(report));
        }
    } else {
        let full = matches!(&outcome.failure, Some(CaptureError::File(FileError::Write { .. })));
        let stopped = full.then(|| {
            let packets = plural(report.received, "packet");
            format!("reading stopped after {packets}; the file may have more")
        });
        let drops = &report.dropped;
        // The counts are all that the user asked for.
        let counted = arguments.discard && arguments.final_report && !arguments.quiet;
        let counted = counted.then(|| file_counts(report));
        let lines = [counted, unwritten(drops), stopped, deleted(report), flows(report)];
        lines.into_iter().flatten().chain(left_out(drops)).for_each(stdio::eprintln);
    }
    if arguments.json {
        json::print(Schema::Capture, report)?;
    }
    let lost_on_disk = report.dropped[DropCause::Disk] > 0;
    let lost_records = report.flows.as_ref().is_some_and(|flows| flows.output.has_lost_records());
    let failed = outcome.failure.is_some() || lost_on_disk || lost_records || !printed;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// tcpdump's three lines, followed by the drop ledger.
fn counts(report: &Report) -> String {
    let drops = &report.dropped;
    let some =
        |packets, what| (packets > 0).then(|| format!("{} {what}", plural(packets, "packet")));
    let mut lines = vec![
        format!("{} captured", plural(report.captured, "packet")),
        format!("{} received by filter", plural(report.received, "packet")),
        format!("{} dropped by kernel", plural(drops.kernel(), "packet")),
    ];
    lines.extend(flows(report));
    lines.extend(report.split.as_ref().map(ToString::to_string));
    lines.extend(some(drops[DropCause::Interface], "dropped by interface"));
    lines.extend(unwritten(drops));
    lines.extend(left_out(drops));
    if let Some(processes) = &report.processes {
        for (count, what) in [
            (processes.lost_events, "event of sockets lost, after which packets had no process"),
            (processes.limited_flows, "packet of flows that began too fast to have a process"),
        ] {
            let (name, rest) = what.split_once(' ').unwrap_or_default();
            lines.extend((count > 0).then(|| format!("{} {rest}", plural(count, name))));
        }
    }
    lines.extend(deleted(report));
    lines.extend(some(drops[DropCause::OutOfOrder], "came too late to be sorted by time"));
    lines.extend(some(drops[DropCause::Cut], "cut: the source had only a part of them"));
    if drops.total() > 0 || drops[DropCause::Freezes] > 0 {
        lines.push(format!("lost by cause: {drops}"));
    }
    for one in report.interfaces.iter().filter(|one| one.queues.len() > 1) {
        lines.push(format!("by queue of {}: {}", one.name, queues(&one.queues, usize::MAX)));
    }
    lines.join("\n")
}

/// The packets that options leave out, and those of no known process.
fn left_out(drops: &Drops) -> impl Iterator<Item = String> {
    [
        (drops[DropCause::Sampled], "of other flows (--sample)"),
        (drops[DropCause::NotSelected], "of processes that are not selected, or not known"),
        (drops[DropCause::Unattributed], "of no known process"),
        (drops[DropCause::Cutoff], "after the cutoff of a flow (--cutoff)"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{} {what}", plural(count, "packet")))
}

/// What was metered.
fn flows(report: &Report) -> Option<String> {
    let ExportStatistics { meter, output } = report.flows.as_ref()?;
    let mut text = format!(
        "{} in {}, {} active",
        plural(meter.packets, "packet"),
        plural(meter.exported, "flow record"),
        plural(meter.active, "flow")
    );
    for (count, name, what) in [
        (meter.not_ip, "packet", "of no flow: not IP"),
        (meter.malformed, "packet", "of no flow: malformed"),
        (meter.link_type, "packet", "of no flow: unknown link type"),
        (meter.time_range, "packet", "of no flow: a time after 2262"),
        (meter.without_ports, "packet", "of flows without ports: fragments, or cut off"),
        (meter.overflow, "record", "early, because the flow table was full"),
        (output.not_written, "record", "not in files: they could not be written"),
        (
            output.files.deleted,
            "older file",
            "of records deleted (--flows-keep, --flows-keep-free)",
        ),
    ] {
        if count > 0 {
            text += &format!("\n{} {what}", plural(count, name));
        }
    }
    for (collector, one) in &output.collectors {
        let error = one.error.as_deref();
        let error = error.map(|error| format!(": {error}")).unwrap_or_default();
        let [records, messages] = [plural(one.flows, "record"), plural(one.messages, "message")];
        text += &format!("\n{records} in {messages} to {collector}");
        if one.not_sent_flows > 0 {
            text += &format!(
                "\n{} not sent to {collector}{error}",
                plural(one.not_sent_flows, "record")
            );
        }
        if one.refused > 0 {
            let refused = plural(one.refused, "message");
            text += &format!("\nat least {refused} refused by {collector}{error}");
        }
    }
    Some(text)
}

/// The files that the capture has deleted.
fn deleted(report: &Report) -> Option<String> {
    let files = report.deleted_files;
    (files > 0).then(|| {
        format!("{} deleted (-b files:, --keep, --keep-free)", plural(files, "older file"))
    })
}

/// The packets that were captured and are not in the file.
fn unwritten(drops: &Drops) -> Option<String> {
    match (drops[DropCause::Disk], drops[DropCause::PipeClosed]) {
        (0, 0) => None,
        (0, packets) => {
            let packets = plural(packets, "packet");
            Some(format!("{packets} not written: the reader of the pipe had gone"))
        }
        (packets, _) => Some(format!("{} could not be written", plural(packets, "packet"))),
    }
}
