//! While a capture runs: signals, the live line, and the last words.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use linerate_capture::engine::{Engine, Outcome, Report};
use linerate_capture::open::Opened;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};

use super::arguments::Arguments;
use super::values::Limit;
use crate::say;

/// How soon a signal or a limit is noticed.
const TICK: Duration = Duration::from_millis(25);

/// How often the live line changes.
const LINE: Duration = Duration::from_millis(500);

/// The signals that a capture answers to.
pub(super) struct Signals {
    stop: Arc<AtomicBool>,
    counts: Arc<AtomicBool>,
    flush: Arc<AtomicBool>,
}

impl Signals {
    /// Takes them from now on. A second signal to end, before the first has been obeyed, ends the
    /// program at once.
    pub(super) fn register() -> Result<Self> {
        use signal_hook::flag::{register, register_conditional_shutdown};
        let signals = Self { stop: Arc::default(), counts: Arc::default(), flush: Arc::default() };
        let register_all = || -> std::io::Result<()> {
            // Under nohup(1) the capture is to outlive its terminal.
            let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
            for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
                register_conditional_shutdown(signal, 128 + signal, Arc::clone(&signals.stop))?;
                register(signal, Arc::clone(&signals.stop))?;
            }
            register(SIGUSR1, Arc::clone(&signals.counts))?;
            register(SIGUSR2, Arc::clone(&signals.flush))?;
            Ok(())
        };
        register_all().context("cannot take signals")?;
        Ok(signals)
    }

    /// Set when the capture is to end.
    pub(super) fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }
}

/// Whether whoever started this process has told it to ignore `signal`.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Says what is captured, how, and why so.
pub(super) fn announce(opened: &[Opened], snaplen: u32) {
    for one in opened {
        let name = &one.interface.name;
        let (source, reason) = (one.choice.source, &one.choice.reason);
        let notes: String = one.notes.iter().map(|note| format!("; {note}")).collect();
        say::tell(format_args!(
            "linerate: listening on {name}, source {source} ({reason}{notes}), pages: {}, snapshot \
             length {snaplen} bytes",
            one.pages
        ));
        if let Some(filter) = &one.filter {
            let side = if one.filter_in_user { "user space" } else { "the kernel" };
            let (text, why) = (filter.text(), &one.filter_why);
            say::tell(format_args!("linerate: filter \"{text}\" runs in {side}: {why}"));
        }
    }
}

/// Waits for the end of a capture, and meanwhile does what signals and limits ask for.
pub(super) fn follow(engine: Engine, signals: &Signals, arguments: &Arguments) -> Outcome {
    let start = Instant::now();
    let duration = arguments.limit(|limit| match limit {
        Limit::Duration(duration) => Some(*duration),
        _ => None,
    });
    // Packets printed on the same terminal are live enough, and would be drawn over.
    let printed =
        arguments.write.is_none() && !arguments.discard && std::io::stdout().is_terminal();
    let shown = !arguments.quiet && !printed && std::io::stderr().is_terminal();
    let mut line = shown.then(Line::new);
    while !engine.is_finished() {
        std::thread::sleep(TICK);
        if signals.stop.load(Relaxed) || duration.is_some_and(|limit| start.elapsed() >= limit) {
            engine.stop();
        }
        if signals.flush.swap(false, Relaxed) {
            engine.flush();
        }
        let say = |text: &str| match &line {
            Some(line) => line.bar.suspend(|| say::tell(text)),
            None => say::tell(text),
        };
        if signals.counts.swap(false, Relaxed) {
            say(&counts(&engine.report()));
        }
        engine.events().for_each(|event| say(&format!("linerate: {event}")));
        if let Some(line) = &mut line {
            line.update(&engine);
        }
    }
    if let Some(line) = line {
        line.bar.finish_and_clear();
    }
    for event in engine.events() {
        say::tell(format_args!("linerate: {event}"));
    }
    engine.finish()
}

/// The last words, the JSON and the exit status.
pub(super) fn conclude(outcome: &Outcome, json: bool) -> Result<ExitCode> {
    let report = &outcome.report;
    if let Some(error) = &outcome.failure {
        say::tell(format_args!("linerate: {error}"));
    }
    if report.source != "file" {
        say::tell(counts(report));
    } else if report.dropped.total > 0 {
        say::tell(format_args!("{} packets could not be written", report.dropped.total));
    }
    if json {
        say::print(serde_json::to_string(report).context("cannot write the JSON")?)?;
    }
    let lost_on_disk = report.dropped.causes.disk > 0 && !outcome.pipe_closed;
    let failed = outcome.failure.is_some() || lost_on_disk || super::output::failed();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// tcpdump's three lines, and the ledger behind the third.
fn counts(report: &Report) -> String {
    let drops = &report.dropped.causes;
    let mut text = format!(
        "{} packets captured\n{} packets received by filter\n{} packets dropped by kernel",
        report.captured,
        report.received,
        drops.kernel()
    );
    if drops.interface > 0 {
        text += &format!("\n{} packets dropped by interface", drops.interface);
    }
    if drops.disk > 0 {
        text += &format!("\n{} packets could not be written", drops.disk);
    }
    if report.dropped.total > 0 || drops.freezes > 0 {
        text += &format!("\nlost by cause: {drops}");
    }
    text
}

/// The line on a terminal.
struct Line {
    bar: ProgressBar,
    last: Instant,
    captured: u64,
}

impl Line {
    fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            bar.set_style(style);
        }
        Self { bar, last: Instant::now(), captured: 0 }
    }

    fn update(&mut self, engine: &Engine) {
        let elapsed = self.last.elapsed();
        if elapsed < LINE {
            return;
        }
        let report = engine.report();
        let rate =
            (report.captured - self.captured.min(report.captured)) as f64 / elapsed.as_secs_f64();
        (self.last, self.captured) = (Instant::now(), report.captured);
        let mut text = format!(
            "{} packets, {}/s, lost: {}",
            HumanCount(report.captured),
            HumanCount(rate as u64),
            report.dropped.causes
        );
        let ring = report.interfaces.iter().map(|one| one.fill).fold(0.0, f32::max);
        text += &format!(", ring {:.0}% full", ring * 100.0);
        if let Some(fill) = report.writer_fill {
            text += &format!(
                ", {} in {} files, writer {:.0}% full",
                HumanBytes(report.file_bytes),
                report.files,
                fill * 100.0
            );
        }
        self.bar.set_message(text);
        self.bar.tick();
    }
}
