//! `linerate forward flush`: ends sessions.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use super::arguments::Flush;
use crate::cli::json::{self, Schema};
use crate::cli::stdio::plural;

/// Ends those that are meant, and says how many.
pub(super) fn run(arguments: &Flush) -> Result<ExitCode> {
    let ended = arguments.query.instance.open()?.flush(&arguments.filter.filter())?;
    let text = || format!("{} ended", plural(ended, "session"));
    json::print_or(arguments.query.json, Schema::ForwardFlush, &json!({ "ended": ended }), text)
}
