//! `linerate forward check-config`: what a file comes to.

use std::process::ExitCode;

use anyhow::{Context, Result};
use linerate_forward::config::Config;

use super::arguments::CheckConfig;
use crate::cli::json::{self, Schema};
use crate::cli::stdio;

/// Reads it, and prints it with every value.
pub(super) fn run(arguments: &CheckConfig) -> Result<ExitCode> {
    let config = Config::read(&arguments.file)?;
    config.check().with_context(|| arguments.file.display().to_string())?;
    match arguments.json {
        true => json::print(Schema::ForwardConfig, &config)?,
        false => stdio::println_whole(config.to_toml().trim_end())?,
    }
    Ok(ExitCode::SUCCESS)
}
