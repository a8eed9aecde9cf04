//! JSON on standard output. Each object names its schema; `docs/schema` has a file for each.

use std::process::ExitCode;

use anyhow::{Context, Result};
use linerate_service::Object;
use serde::Serialize;

use super::stdio;

/// Defines [`Schema`] from one row for each: what has it, and its name, with the version at the end.
macro_rules! schemas {
    ($($(#[$doc:meta])* $schema:ident, $name:literal;)*) => {
        /// The schema of an object. Its version changes when a field goes, or changes its meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Schema {
            $($(#[$doc])* $schema,)*
        }

        // The name is the value of `schema`.
        linerate_net::named!(Schema, "schema": $($schema = $name),*);
    };
}

schemas! {
    /// The report of `capture`.
    Capture, "linerate-capture-1";
    /// `capture -D`.
    CaptureInterfaces, "linerate-capture-interfaces-1";
    /// `capture -L`.
    CaptureLinkTypes, "linerate-capture-link-types-1";
    /// A line of `capture --stats`.
    CaptureStats, "linerate-capture-stats-1";
    /// `doctor`.
    Doctor, "linerate-doctor-1";
    /// `doctor --undo`.
    DoctorUndo, "linerate-doctor-undo-1";
    /// An error of any verb, on standard error.
    Error, "linerate-error-1";
    /// A connection: `forward accounting`.
    ForwardAccounting, "linerate-forward-accounting-1";
    /// `forward block`.
    ForwardBlock, "linerate-forward-block-1";
    /// An entry of the deny list: `forward blocked`, `forward unblock`.
    ForwardBlocked, "linerate-forward-blocked-1";
    /// `forward check-config`.
    ForwardConfig, "linerate-forward-config-1";
    /// `forward detach`.
    ForwardDetach, "linerate-forward-detach-1";
    /// `forward flush`.
    ForwardFlush, "linerate-forward-flush-1";
    /// A session: `forward sessions`.
    ForwardSession, "linerate-forward-session-1";
    /// What the page of `forward run --web` reads.
    ForwardStats, "linerate-forward-stats-1";
    /// `forward status`.
    ForwardStatus, "linerate-forward-status-1";
    /// `forward top --once`.
    ForwardTop, "linerate-forward-top-1";
    /// The report of `generate`.
    Generate, "linerate-generate-1";
    /// A line of `generate --stats`.
    GenerateStats, "linerate-generate-stats-1";
    /// A line of `forward run --log json`, on standard error.
    Log, "linerate-log-1";
    /// The report of `receive`.
    Receive, "linerate-receive-1";
    /// A line of `receive --stats`.
    ReceiveStats, "linerate-receive-stats-1";
    /// The report of `replay`.
    Replay, "linerate-replay-1";
    /// The report of `segment`.
    Segment, "linerate-segment-1";
    /// The report of `send`.
    Send, "linerate-send-1";
    /// The report of `uplink`.
    Uplink, "linerate-uplink-1";
    /// A line of `uplink --stats`.
    UplinkStats, "linerate-uplink-stats-1";
}

/// An object as one line.
pub(crate) fn line(schema: Schema, object: &impl Serialize) -> Result<String> {
    let object = Object { schema: schema.name(), fields: object };
    serde_json::to_string(&object).context("cannot write the JSON")
}

/// Prints an object as one line.
pub(crate) fn print(schema: Schema, object: &impl Serialize) -> Result<()> {
    stdio::println_whole(line(schema, object)?)
}

/// Prints an object with `as_json`, else the text that stands for it.
pub(crate) fn print_or(
    as_json: bool,
    schema: Schema,
    object: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<ExitCode> {
    match as_json {
        true => print(schema, object)?,
        false => stdio::println(text())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints each object of a list with `as_json`, else the text that stands for all.
pub(crate) fn print_list_or(
    as_json: bool,
    schema: Schema,
    list: &[impl Serialize],
    text: impl FnOnce() -> String,
) -> Result<ExitCode> {
    match as_json {
        true => list.iter().try_for_each(|one| print(schema, one))?,
        false => stdio::println(text())?,
    }
    Ok(ExitCode::SUCCESS)
}
