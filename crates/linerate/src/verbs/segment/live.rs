//! While a file is rewritten: what signals ask for, and the live line.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use linerate_capture::split::{Outcome, Progress};

use crate::cli::signals::Signals;
use crate::cli::stdio;

/// How soon a signal is noticed.
const TICK: Duration = Duration::from_millis(50);

/// Does `work`, and meanwhile shows how far it is.
pub(super) fn accompany(
    progress: &Progress,
    signals: &Signals,
    quiet: bool,
    work: impl FnOnce() -> Outcome,
) -> Outcome {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let bar = bar(progress, quiet);
            while !done.load(Relaxed) {
                std::thread::park_timeout(TICK);
                if signals.take_counts() {
                    bar.suspend(|| stdio::eprintln(counts(progress)));
                }
                bar.set_position(progress.position().0);
                bar.set_message(counts(progress));
            }
            bar.finish_and_clear();
        });
        let outcome = work();
        done.store(true, Relaxed);
        watcher.thread().unpark();
        outcome
    })
}

fn counts(progress: &Progress) -> String {
    format!("{} packets read, {} made", HumanCount(progress.read()), HumanCount(progress.written()))
}

/// A bar where the end is known, else a line; hidden where nobody watches.
fn bar(progress: &Progress, quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match progress.position().1 {
        Some(size) => (ProgressBar::new(size), "{bar:30} {bytes}/{total_bytes}, {eta} left, {msg}"),
        None => (ProgressBar::new_spinner(), "{bytes} read, {msg}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
