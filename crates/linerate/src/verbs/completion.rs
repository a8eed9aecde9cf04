//! `linerate completion SHELL`: a completion script on standard output.

use anyhow::Result;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Arguments of `linerate completion`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The shell to complete for.
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let mut command = crate::Cli::command();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "linerate", &mut script);
    crate::say::print(String::from_utf8_lossy(&script).trim_end())
}
