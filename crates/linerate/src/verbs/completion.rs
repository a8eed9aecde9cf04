//! `linerate completion SHELL`: a script on standard output. With it the shell asks this program for candidates, which
//! include the interfaces, network namespaces, instances, experiments and programs of the host.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command as Program;
use std::{env, fs};

use anyhow::{Context, Result};
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{CompleteEnv, Shells};
use linerate_forward::runtime::pins::{BPFFS, Pins};
use linerate_net::namespace::NAMED;

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
The script asks the program for candidates, so it completes the interfaces, network namespaces, instances, experiments \
and programs of this host.

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
    stdio::println_whole(String::from_utf8_lossy(&script).trim_end())
}

/// If a shell's script asks for candidates, prints them and ends the process.
pub(crate) fn complete_if_asked() {
    if env::var_os(VARIABLE).is_some() {
        // The script gives the words of the command line after two dashes.
        let words: Vec<_> = env::args_os().skip_while(|word| word != "--").skip(1).collect();
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
            "netns" => namespaces,
            "instance" => instances,
            "experiments" => experiments,
            // Of `run`.
            "program" => return argument.add(ArgValueCompleter::new(programs_and_files)),
            _ => return argument,
        };
        argument.add(ArgValueCandidates::new(candidates))
    })
}

fn interfaces() -> Vec<CompletionCandidate> {
    let links = linerate_net::link::all().unwrap_or_default();
    links.into_iter().map(|link| CompletionCandidate::new(link.name)).collect()
}

fn namespaces() -> Vec<CompletionCandidate> {
    names_in(NAMED.as_ref()).map(CompletionCandidate::new).collect()
}

/// Programs in the folders of `PATH`, and paths: the arguments of a program may be files.
fn programs_and_files(current: &OsStr) -> Vec<CompletionCandidate> {
    let path = env::var_os("PATH").unwrap_or_default();
    let programs = env::split_paths(&path).flat_map(|folder| names_in(&folder));
    let begun = |name: &OsString| name.as_bytes().starts_with(current.as_bytes());
    let programs: BTreeSet<_> = programs.filter(begun).collect();
    let programs = programs.into_iter().map(CompletionCandidate::new);
    programs.chain(PathCompleter::any().complete(current)).collect()
}

fn names_in(folder: &Path) -> impl Iterator<Item = OsString> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name())
}

fn instances() -> Vec<CompletionCandidate> {
    let names = Pins::instances(BPFFS.as_ref()).unwrap_or_default();
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// The experiments of `linerate lab list`, which prints one a line.
fn experiments() -> Vec<CompletionCandidate> {
    let output = env::current_exe().and_then(|program| {
        Program::new(program).env_remove(VARIABLE).args(["lab", "list"]).output()
    });
    let list = output.map(|output| output.stdout).unwrap_or_default();
    let list = String::from_utf8_lossy(&list);
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    names.chain(["all"]).map(CompletionCandidate::new).collect()
}
