//! `linerate completion SHELL`: a completion script on standard output.

use anyhow::Result;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::cli::stdio;

/// Arguments of `linerate completion`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The shell to complete for.
    shell: Shell,
}

/// Prints the script for `command`.
pub(crate) fn run(arguments: &Arguments, mut command: Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "linerate", &mut script);
    stdio::println(String::from_utf8_lossy(&script).trim_end())
}
