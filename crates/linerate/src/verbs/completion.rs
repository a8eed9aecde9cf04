//! `linerate completion SHELL`: a completion script on standard output.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Arguments of `linerate completion`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The shell to complete for.
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(arguments: &Arguments) {
    let mut command = crate::Cli::command();
    clap_complete::generate(arguments.shell, &mut command, "linerate", &mut std::io::stdout());
}
