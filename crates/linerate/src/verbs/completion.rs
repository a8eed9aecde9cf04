//! `linerate completion SHELL`: a completion script on standard output.

use anyhow::Result;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::cli::stdio;

/// Arguments of `linerate completion`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  linerate completion bash >/etc/bash_completion.d/linerate
  linerate completion zsh >/usr/local/share/zsh/site-functions/_linerate")]
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
