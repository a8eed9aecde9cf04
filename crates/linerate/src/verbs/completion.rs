//! `linerate completion SHELL`: a script on standard output, with which the shell asks this program what fits. So it
//! offers what the host has: interfaces, instances, experiments.

use std::process::Command as Program;

use anyhow::{Context, Result};
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use linerate_forward::runtime::pins::{BPFFS, Pins};

use crate::Cli;
use crate::cli::stdio;

/// The environment variable by which the script asks.
const VARIABLE: &str = "LINERATE_COMPLETE";

/// zsh runs a file of its `fpath` as the function `_linerate` when it first completes the command. It is to answer then.
const ZSH_AUTOLOAD: &[u8] =
    b"\nif [[ ${funcstack[1]} == _linerate ]]; then _clap_dynamic_completer_linerate \"$@\"; fi\n";

/// Arguments of `linerate completion`.
#[derive(Debug, Args)]
#[command(after_help = "\
The script asks the program for what fits. So interfaces, instances and experiments are those of this host.

Examples:
  linerate completion bash >/etc/bash_completion.d/linerate
  linerate completion zsh >/usr/local/share/zsh/site-functions/_linerate")]
pub(crate) struct Arguments {
    /// The shell to complete for.
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let shells = Shells::builtins();
    let shell = shells.completer(&arguments.shell.to_string()).context("no such shell")?;
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, "linerate", "linerate", "linerate", &mut script)?;
    if arguments.shell == Shell::Zsh {
        script.extend_from_slice(ZSH_AUTOLOAD);
    }
    stdio::println(String::from_utf8_lossy(&script).trim_end())
}

/// Answers the script of a shell, and ends the process. Does nothing if no script asks.
pub(crate) fn answer() {
    CompleteEnv::with_factory(|| with_candidates(Cli::command())).var(VARIABLE).complete();
}

/// Adds what this host has to the values of a command and those below it.
fn with_candidates(command: Command) -> Command {
    command.mut_subcommands(with_candidates).mut_args(|argument| {
        let candidates = match argument.get_id().as_str() {
            // The last is that of `send`.
            "interface" | "interfaces" | "xdp" => interfaces,
            "instance" => instances,
            "experiments" => experiments,
            _ => return argument,
        };
        argument.add(ArgValueCandidates::new(candidates))
    })
}

fn interfaces() -> Vec<CompletionCandidate> {
    let links = linerate_net::link::all().unwrap_or_default();
    links.into_iter().map(|link| CompletionCandidate::new(link.name)).collect()
}

fn instances() -> Vec<CompletionCandidate> {
    let names = Pins::instances(BPFFS.as_ref()).unwrap_or_default();
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// Those that `linerate lab list` prints, one a line.
fn experiments() -> Vec<CompletionCandidate> {
    let output = std::env::current_exe().and_then(|program| {
        Program::new(program).env_remove(VARIABLE).args(["lab", "list"]).output()
    });
    let list = output.map(|output| output.stdout).unwrap_or_default();
    let list = String::from_utf8_lossy(&list);
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    names.chain(["all"]).map(CompletionCandidate::new).collect()
}
