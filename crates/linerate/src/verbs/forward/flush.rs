//! `linerate forward flush`: ends sessions.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use super::arguments::Flush;
use crate::cli::json::{self, Schema};
use crate::cli::stdio;

/// Ends those that are meant, and says how many.
pub(super) fn run(arguments: &Flush) -> Result<ExitCode> {
    let ended = arguments.instance.open()?.flush(&arguments.filter.filter())?;
    if arguments.json {
        json::print(Schema::ForwardFlush, &json!({ "ended": ended }))?;
    } else {
        stdio::println(format_args!("{} ended", stdio::plural(ended, "session")))?;
    }
    Ok(ExitCode::SUCCESS)
}
