//! `linerate completion SHELL`: a script on standard output. With it the shell asks this program for candidates, which
//! include the interfaces, instances and experiments of the host.

use std::process::Command as Program;

use anyhow::{Context, Result};
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use linerate_forward::runtime::pins::{BPFFS, Pins};

use crate::Cli;
use crate::cli::stdio;
use crate::verbs::flows;

/// The environment variable that the script sets to ask for candidates.
const VARIABLE: &str = "LINERATE_COMPLETE";

/// At the first completion zsh runs the file from its `fpath` as the function `_linerate`, which must then complete.
const ZSH_AUTOLOAD: &[u8] =
    b"\nif [[ ${funcstack[1]} == _linerate ]]; then _clap_dynamic_completer_linerate \"$@\"; fi\n";

/// Arguments of `linerate completion`.
#[derive(Debug, Args)]
#[command(after_help = "\
The script asks the program for candidates, so it completes the interfaces, instances and experiments of this host.

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

/// If a shell's script asks for candidates, prints them and ends the process.
pub(crate) fn complete_if_asked() {
    if std::env::var_os(VARIABLE).is_some() {
        // The script gives the words of the command line after two dashes.
        let words: Vec<_> = std::env::args_os().skip_while(|word| word != "--").skip(1).collect();
        flows::complete(&words);
    }
    CompleteEnv::with_factory(|| with_candidates(Cli::command())).var(VARIABLE).complete();
}

/// Adds the names of this host as candidates to the arguments of a command and its subcommands.
fn with_candidates(command: Command) -> Command {
    command.mut_subcommands(with_candidates).mut_args(|argument| {
        let candidates = match argument.get_id().as_str() {
            // `xdp` is an option of `send`.
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

/// The experiments of `linerate lab list`, which prints one a line.
fn experiments() -> Vec<CompletionCandidate> {
    let output = std::env::current_exe().and_then(|program| {
        Program::new(program).env_remove(VARIABLE).args(["lab", "list"]).output()
    });
    let list = output.map(|output| output.stdout).unwrap_or_default();
    let list = String::from_utf8_lossy(&list);
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    names.chain(["all"]).map(CompletionCandidate::new).collect()
}
