//! What the verbs share: output, logging, signals, the values of options, progress.

pub mod logging;
pub(crate) mod metrics;
pub(crate) mod progress;
pub(crate) mod signals;
pub mod stdio;
pub(crate) mod values;

use std::process::ExitCode;

use anyhow::Result;

/// The exit status of a verb's result; an error goes to standard error.
pub fn exit_status(outcome: Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        stdio::eprintln(format_args!("linerate: {}", format_error_chain(&error)));
        ExitCode::FAILURE
    })
}

/// Reports a wrong command line, and returns the exit status for it.
pub fn usage_error(reason: &str) -> ExitCode {
    stdio::eprintln(format_args!("linerate: {reason}"));
    ExitCode::from(2)
}

/// The error and its causes. Most errors name their cause themselves; it is not repeated.
pub fn format_error_chain(error: &anyhow::Error) -> String {
    error.chain().skip(1).fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.contains(&cause) { text } else { format!("{text}: {cause}") }
    })
}
