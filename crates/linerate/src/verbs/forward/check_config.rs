//! `linerate forward check-config`: what a file comes to.

use std::process::ExitCode;

use anyhow::{Context, Result};
use linerate_forward::config::Config;

use super::arguments::CheckConfig;
use crate::cli::json::{self, Schema};

/// Reads it, and prints it with every value.
pub(super) fn run(arguments: &CheckConfig) -> Result<ExitCode> {
    let config = Config::read(&arguments.file)?;
    config.check().with_context(|| arguments.file.display().to_string())?;
    let text = || config.to_toml().trim_end().to_owned();
    json::print_or(arguments.json, Schema::ForwardConfig, &config, text)
}
