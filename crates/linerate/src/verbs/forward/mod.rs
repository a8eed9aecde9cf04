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

pub(crate) use arguments::{Arguments, RouterCommand};
use arguments::{Command, LogFormat};

use crate::cli::logging;

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        Command::Router(command) => command.run(),
        Command::Top(arguments) => top::run(arguments),
    }
}

impl RouterCommand {
    /// Runs it.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        match self {
            Self::CheckConfig(arguments) => check_config::run(arguments),
            Self::Run(arguments) => run::run(arguments),
            Self::Status(arguments) => status::run(arguments),
            Self::Sessions(arguments) => sessions::run(arguments),
            Self::Accounting(arguments) => accounting::run(arguments),
            Self::Flush(arguments) => flush::run(arguments),
            Self::Detach(arguments) => detach::run(arguments),
            Self::Block(arguments) => deny::block(arguments),
            Self::Unblock(arguments) => deny::unblock(arguments),
            Self::Blocked(arguments) => deny::blocked(arguments),
        }
    }

    /// How it logs.
    pub(crate) fn log(&self) -> logging::Options {
        match self {
            Self::Run(run) => logging::Options { daemon: true, json: run.log == LogFormat::Json },
            _ => logging::Options::default(),
        }
    }
}

impl Arguments {
    /// How it logs.
    pub(crate) fn log(&self) -> logging::Options {
        match &self.command {
            Command::Router(command) => command.log(),
            Command::Top(_) => logging::Options::default(),
        }
    }
}
