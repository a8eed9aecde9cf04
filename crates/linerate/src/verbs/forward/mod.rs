//! `linerate forward`: a fast path that learns from the kernel.

mod accounting;
mod arguments;
mod check_config;
mod columns;
mod deny;
mod detach;
mod flush;
mod run;
mod sessions;
mod signals;
mod status;
mod top;
mod values;

use std::process::ExitCode;

use anyhow::Result;

pub(crate) use arguments::Arguments;
use arguments::{Command, LogFormat};

use crate::cli::logging;

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Command::CheckConfig(arguments) => check_config::run(arguments),
        Command::Run(arguments) => run::run(arguments),
        Command::Status(arguments) => status::run(arguments),
        Command::Sessions(arguments) => sessions::run(arguments),
        Command::Accounting(arguments) => accounting::run(arguments),
        Command::Top(arguments) => top::run(arguments),
        Command::Flush(arguments) => flush::run(arguments),
        Command::Detach(arguments) => detach::run(arguments),
        Command::Block(arguments) => deny::block(arguments),
        Command::Unblock(arguments) => deny::unblock(arguments),
        Command::Blocked(arguments) => deny::blocked(arguments),
    }
}

impl Arguments {
    /// How it logs.
    pub(crate) fn log(&self) -> logging::Options {
        match &self.command {
            Command::Run(run) => {
                logging::Options { daemon: true, json: run.log == LogFormat::Json }
            }
            _ => logging::Options::default(),
        }
    }
}
