//! The progress of a verb, on a terminal only: a line that changes, or a bar.

use std::fmt::Display;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::stdio;

/// How often the line changes.
const INTERVAL: Duration = Duration::from_millis(500);

/// The line of a verb that runs without a known end.
pub(crate) struct StatusLine {
    bar: ProgressBar,
    shown: Instant,
}

impl StatusLine {
    /// A line, unless `quiet` or if standard error is not a terminal.
    pub(crate) fn new(quiet: bool) -> Option<Self> {
        let shown = !quiet && std::io::stderr().is_terminal();
        let bar = || ProgressBar::new_spinner().with_style(style("{wide_msg}"));
        shown.then(|| Self { bar: bar(), shown: Instant::now() })
    }

    /// The time since the last change, when the next is due.
    pub(crate) fn next_update(&self) -> Option<Duration> {
        Some(self.shown.elapsed()).filter(|elapsed| *elapsed >= INTERVAL)
    }

    /// Changes the line.
    pub(crate) fn show(&mut self, text: String) {
        self.shown = Instant::now();
        self.bar.set_message(text);
        self.bar.tick();
    }

    /// Prints a line on standard error, above the one that changes if there is one.
    pub(crate) fn eprintln(line: Option<&Self>, text: impl Display) {
        match line {
            Some(line) => line.bar.suspend(|| stdio::eprintln(text)),
            None => stdio::eprintln(text),
        }
    }

    /// Removes it.
    pub(crate) fn clear(line: Option<Self>) {
        if let Some(line) = line {
            line.bar.finish_and_clear();
        }
    }
}

/// A bar for `total` steps, or a spinner if the number is unknown; hidden if `quiet` or if standard error is
/// not a terminal.
pub(crate) fn bar(total: Option<u64>, quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    match total {
        Some(total) => ProgressBar::new(total).with_style(style("{wide_bar} {percent}% {msg}")),
        None => ProgressBar::new_spinner().with_style(style("{spinner} {msg}")),
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// A number with a factor and its unit, as `1.234 Mpps`.
pub(crate) fn scaled(value: f64, unit: &str) -> String {
    match value {
        value if value >= 1e9 => format!("{:.3} G{unit}", value / 1e9),
        value if value >= 1e6 => format!("{:.3} M{unit}", value / 1e6),
        value if value >= 1e3 => format!("{:.3} k{unit}", value / 1e3),
        value => format!("{value:.1} {unit}"),
    }
}
