//! While a file is rewritten: requests by signal, and the live line.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use indicatif::HumanCount;
use linerate_capture::engine::Outcome;
use linerate_capture::split::{Progress, Report};

use crate::cli::progress;
use crate::cli::signals::Signals;
use crate::cli::stdio;
use crate::cli::stdio::noun;

/// How often signals are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs `work` and shows its progress meanwhile.
pub(super) fn accompany(
    progress: &Progress,
    signals: &Signals,
    quiet: bool,
    work: impl FnOnce() -> Outcome<Report>,
) -> Outcome<Report> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let bar = progress::bar(progress.position().1, quiet);
            while !done.load(Relaxed) {
                std::thread::park_timeout(POLL_INTERVAL);
                if signals.take_report_request() {
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
    format!(
        "{} {} read, {} written",
        HumanCount(progress.packets_read()),
        noun(progress.packets_read(), "packet"),
        HumanCount(progress.packets_written())
    )
}
