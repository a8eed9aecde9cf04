//! Log lines on standard error.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt};

/// How a verb logs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// It runs for months: it logs what it does, and when, without -v.
    pub daemon: bool,
    /// One JSON object a line.
    pub json: bool,
}

/// Starts logging at the level that `verbose` (the number of -v) asks for. RUST_LOG overrides it.
pub fn start(verbose: u8, options: Options) {
    let default = match verbose.saturating_add(options.daemon.into()) {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let colours = std::io::stderr().is_terminal();
    let lines = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    // The journal has its own clock.
    let timed = options.daemon && std::env::var_os("JOURNAL_STREAM").is_none();
    match (options.json, timed) {
        (true, _) => lines.json().flatten_event(true).init(),
        (false, true) => lines.with_target(false).init(),
        (false, false) => lines.without_time().init(),
    }
}
