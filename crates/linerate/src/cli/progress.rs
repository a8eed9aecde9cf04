//! The progress of a verb: a line that changes on a terminal, the lines of `--stats`, or a bar.

use std::fmt::Display;
use std::io::IsTerminal;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::json::{self, Schema};
use super::stdio;
use super::values::duration;

/// How often the line on a terminal changes.
const INTERVAL: Duration = Duration::from_millis(500);

/// The option.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Stats {
    /// Print counts and rates at this interval, such as 1s: with --json an object per line on standard output,
    /// else a line on standard error. [default: a line on a terminal, every 500ms]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) stats: Option<Duration>,
}

/// Where counts are shown while a verb runs.
pub(crate) struct StatusLine {
    output: Output,
    interval: Duration,
    shown: Instant,
}

enum Output {
    /// A line that changes.
    Terminal(ProgressBar),
    /// A line each time, on standard error.
    Text,
    /// An object each time, on standard output.
    Json,
    /// Standard output failed.
    Ended,
}

impl StatusLine {
    /// What `stats` asks for, else a line on a terminal, unless `quiet`.
    pub(crate) fn new(stats: Stats, as_json: bool, quiet: bool) -> Option<Self> {
        let is_terminal = std::io::stderr().is_terminal();
        let bar = || ProgressBar::new_spinner().with_style(style("{wide_msg}"));
        let output = match stats.stats {
            Some(_) if as_json => Output::Json,
            Some(_) if !is_terminal || quiet => Output::Text,
            None if !is_terminal || quiet => return None,
            _ => Output::Terminal(bar()),
        };
        let interval = stats.stats.unwrap_or(INTERVAL);
        Some(Self { output, interval, shown: Instant::now() })
    }

    /// Whether the next counts are due.
    pub(crate) fn is_due(&self) -> bool {
        self.shown.elapsed() >= self.interval
    }

    /// Shows the counts. If standard output fails, the verb continues without them.
    pub(crate) fn show<T: Display + Serialize>(&mut self, schema: Schema, counts: &T) {
        // A late line does not delay those after it.
        let missed = self.shown.elapsed().as_nanos() / self.interval.as_nanos().max(1);
        self.shown += self.interval * u32::try_from(missed).unwrap_or(u32::MAX);
        match &self.output {
            Output::Terminal(bar) => {
                bar.set_message(within(&counts.to_string(), stdio::error_width()).to_owned());
                bar.tick();
            }
            Output::Text => stdio::eprintln(counts),
            Output::Json => {
                if let Err(error) = json::print(schema, counts) {
                    stdio::warn(format_args!("--stats ends: {error:#}"));
                    self.output = Output::Ended;
                }
            }
            Output::Ended => {}
        }
    }

    /// Prints a line on standard error, above the one that changes if there is one.
    pub(crate) fn eprintln(line: Option<&Self>, text: impl Display) {
        match line.map(|line| &line.output) {
            Some(Output::Terminal(bar)) => bar.suspend(|| stdio::eprintln(text)),
            _ => stdio::eprintln(text),
        }
    }

    /// Removes it.
    pub(crate) fn clear(line: Option<Self>) {
        if let Some(Output::Terminal(bar)) = line.map(|line| line.output) {
            bar.finish_and_clear();
        }
    }
}

/// The counts of a line that have room in it: a part of a number would be a wrong one.
fn within(line: &str, width: Option<u16>) -> &str {
    let fits = |part: &&str| width.is_none_or(|width| part.chars().count() <= width.into());
    let ends = line.rmatch_indices(", ").map(|(end, _)| &line[..end]);
    std::iter::once(line).chain(ends).find(fits).unwrap_or_default()
}

/// When counts were read, and the time over which their rates were measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Moment {
    /// Seconds since the Unix epoch.
    time: f64,
    /// Seconds since the counts before.
    interval: f64,
}

/// Counters at the last reading, for their rates.
pub(crate) struct Meter<const N: usize> {
    at: Instant,
    before: [u64; N],
}

impl<const N: usize> Meter<N> {
    /// Starts now, from zero.
    pub(crate) fn start() -> Self {
        Self { at: Instant::now(), before: [0; N] }
    }

    /// How much each counter has grown a second since the last reading.
    pub(crate) fn read(&mut self, counters: [u64; N]) -> (Moment, [f64; N]) {
        let interval = self.at.elapsed().as_secs_f64().max(1e-9);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let grown = |at: usize| counters[at].saturating_sub(self.before[at]) as f64;
        let rates = std::array::from_fn(|at| grown(at) / interval);
        *self = Self { at: Instant::now(), before: counters };
        (Moment { time: now.as_secs_f64(), interval }, rates)
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
        None => ProgressBar::new_spinner().with_style(style("{spinner} {wide_msg}")),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_with_a_whole_count() {
        let line = "1,234 packets, 5/s, lost: 0";
        for (width, shown) in
            [(27, line), (26, "1,234 packets, 5/s"), (17, "1,234 packets"), (9, "")]
        {
            assert_eq!(within(line, Some(width)), shown);
        }
        assert_eq!(within(line, None), line);
    }
}
