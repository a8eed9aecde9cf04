//! Errors on standard error: a line of text, with `--json` a JSON object.

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::process::ExitCode;
use std::sync::OnceLock;

use anyhow::Result;
use clap::Command;
use linerate_capture::Error as CaptureError;
use linerate_flow::Error as FlowError;
use linerate_forward::Error as ForwardError;
use linerate_net::unit;
use linerate_pcapfile::Error as FileError;
use serde::Serialize;
use tracing::Level;

use super::json::{self, Schema};
use super::stdio;
use crate::verbs::capture;

/// The verb, where errors are JSON.
static JSON_OF: OnceLock<String> = OnceLock::new();

/// The exit status of a wrong command line.
const USAGE: u8 = 2;
/// The exit status of a failure.
const FAILURE: u8 = 1;
/// The same if the kernel lacks what is needed, so that another start fails, too: EX_UNAVAILABLE of sysexits.h.
const UNAVAILABLE: u8 = 69;

/// Messages of the standard library and clap about numbers, and the messages that replace them.
const REWORDED: &[(&str, &str)] = &[
    ("invalid digit found in string", "expected a whole number"),
    ("is not in 1..18446744073709551615", "is too small: expected 1 or more"),
];

/// An error in the command line itself, on every host. Its exit status is 2.
#[derive(Debug)]
struct UsageError(String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for UsageError {}

/// Makes an error one of the command line, with exit status 2.
pub(crate) fn as_usage_error(error: impl Into<anyhow::Error>) -> anyhow::Error {
    UsageError(format_error_chain(&error.into())).into()
}

/// The JSON of an error.
#[derive(Serialize)]
struct ErrorObject<'a> {
    verb: &'a str,
    kind: &'static str,
    status: u8,
    message: &'a str,
    causes: Vec<String>,
}

/// Errors are JSON from now on if this command line asks for it.
pub(crate) fn start(words: &[OsString], command: &Command) {
    let verb = verb(words, command);
    let mut own = words.iter().take_while(|word| *word != "--");
    // What follows `run` is the command line of another program.
    if verb != "run" && own.any(|word| word == "--json") {
        let _ = JSON_OF.set(verb);
    }
}

/// The verb of a command line, with that below it: `capture`, `forward status`.
fn verb(words: &[OsString], command: &Command) -> String {
    let mut path: Vec<&str> = Vec::new();
    let mut command = command;
    for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
        match command.find_subcommand(word) {
            Some(below) => {
                path.push(below.get_name());
                command = below;
            }
            None if word.starts_with('-') => {}
            None => break,
        }
    }
    path.join(" ")
}

/// The exit status of a verb's result; an error goes to standard error.
pub fn exit_status(outcome: Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        let is_usage = error.is::<UsageError>()
            || matches!(error.downcast_ref(), Some(linerate_generate::Error::Argument { .. }));
        if is_usage {
            return usage_error(&format_error_chain(&error));
        }
        let causes = error.chain().skip(1).map(ToString::to_string).collect();
        let status = match error.downcast_ref() {
            Some(ForwardError::Kernel { .. }) => UNAVAILABLE,
            _ => FAILURE,
        };
        emit("failure", status, &format_error_chain(&error), causes);
        ExitCode::from(status)
    })
}

/// The same for an error without causes.
pub(crate) fn eprint_message(error: impl ToString) {
    emit("failure", FAILURE, &error.to_string(), Vec::new());
}

/// Reports a wrong command line, and returns the exit status for it.
pub fn usage_error(reason: &str) -> ExitCode {
    emit("usage", USAGE, reason, Vec::new());
    ExitCode::from(USAGE)
}

/// Prints what clap says about a command line, a wrong one or a request for help, and returns the exit status.
pub(crate) fn refuse(error: &clap::Error) -> ExitCode {
    let status = u8::try_from(error.exit_code()).unwrap_or(USAGE);
    if status == 0 {
        // A closed output does not change the exit status.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    let text = REWORDED.iter().fold(text, |text, (from, to)| text.replace(from, to));
    if JSON_OF.get().is_none() {
        // As plain text: control characters in arguments are escaped.
        stdio::log(Level::ERROR, text.trim_end());
    } else {
        let mut line = String::new();
        for part in text.lines().map(str::trim).filter(|part| !part.is_empty()) {
            let separator = if line.is_empty() || line.ends_with(':') { " " } else { "; " };
            line += separator;
            line += part;
        }
        emit("usage", status, line.trim_start_matches(" error: "), Vec::new());
    }
    ExitCode::from(status)
}

fn emit(kind: &'static str, status: u8, message: &str, causes: Vec<String>) {
    let object = JSON_OF.get().and_then(|verb| {
        json::line(Schema::Error, &ErrorObject { verb, kind, status, message, causes }).ok()
    });
    match object {
        Some(line) => stdio::log(Level::ERROR, line),
        None => stdio::log(Level::ERROR, format_args!("linerate: {message}")),
    }
}

/// The error and its causes, and the options that help. Most errors name their cause themselves; it is not repeated.
pub fn format_error_chain(error: &anyhow::Error) -> String {
    let text = error.chain().skip(1).fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.contains(&cause) { text } else { format!("{text}: {cause}") }
    });
    match error.chain().find_map(remedy) {
        Some(remedy) => format!("{text}; {remedy}"),
        None => text,
    }
}

/// What helps against an error of a library: an option, or a setting of the unit of this service.
pub(crate) fn remedy(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<CaptureError>() {
        return match error {
            CaptureError::File(inner) => remedy(inner),
            CaptureError::Flow(inner) => remedy(inner),
            CaptureError::User { user, .. } => unit::user_remedy(user),
            error => capture::remedy(error).map(str::to_owned),
        };
    }
    if let Some(ForwardError::Flow(inner)) = error.downcast_ref() {
        return remedy(inner);
    }
    match (error.downcast_ref(), error.downcast_ref()) {
        (Some(FileError::Create { path, source } | FileError::Write { path, source }), _)
        | (_, Some(FlowError::Io { path, source, .. })) => unit::path_remedy(path, source),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_verb_of_a_command_line_is_found() {
        let of = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            verb(&words, &crate::Cli::command())
        };
        assert_eq!(of("linerate -v forward status --instance capture"), "forward status");
        assert_eq!(of("linerate capture -i eth0 forward"), "capture");
        assert_eq!(of("linerate nothing capture"), "");
    }
}
