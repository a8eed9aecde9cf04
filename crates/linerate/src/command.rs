//! The command line of `linerate`: from the arguments to a verb, and from its result to an exit status.

pub(crate) mod router;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};

use crate::cli::{self, logging};
use crate::verbs::{
    capture, completion, doctor, extcap, flows, forward, generate, lab, manual, receive, replay,
    run, segment, send, uplink,
};

/// Capture packets and send them at line rate, on an unmodified Linux kernel, and measure how well.
#[derive(Debug, Parser)]
#[command(name = "linerate", version, max_term_width = 100)]
#[command(after_help = "Exit status: 0 on success, 1 on failure, 2 on a wrong command line.\n\
    \n\
    Every verb has its own --help; `linerate manual DIR` writes man pages.\n\
    \n\
    Examples:\n  \
    linerate capture -i eth0 -w web.pcapng tcp port 443\n  \
    linerate forward run -i eth1 -i eth2\n  \
    linerate receive --bind 10.0.0.2:7000 --for 10s\n  \
    linerate doctor capture -i eth1")]
pub struct Cli {
    /// More detail on standard error; twice for debugging. RUST_LOG overrides it.
    #[arg(short = 'v', long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Capture packets from interfaces, or read them from a file; write or print them.
    Capture(Box<capture::Arguments>),
    /// Examine the host and its interfaces: what costs frames or speed, and what helps.
    Doctor(doctor::Arguments),
    /// Serve Wireshark and tshark with Linerate's sources as interfaces.
    Extcap(Box<extcap::Arguments>),
    /// Write the packets of a host or a filter, from the files that flow records point at.
    #[command(after_help = "\
linerate-flows, a separate program, does it; `make flows` builds it.

Examples:
  linerate find 10.0.0.7 -r /var/lib/linerate/flows --after -2h -w host.pcapng
  linerate find -r flows -w - tcp port 443 and net 192.0.2.0/24 | tcpdump -r -")]
    Find(flows::FindArguments),
    /// Query flow records, and ship them to an object store.
    #[command(after_help = "\
linerate-flows, a separate program, does it; `make flows` builds it.

Examples:
  linerate flows top -r /var/lib/linerate/flows --by port net 10.0.0.0/8
  linerate flows sum -r s3://flows/site-1 --after -1d --every 1h
  linerate flows ship /var/lib/linerate/flows s3://flows/a --follow 10s --delete")]
    Flows(flows::FlowsArguments),
    /// Forward packets in XDP as the kernel forwarded their session before.
    Forward(forward::Arguments),
    /// Send synthetic traffic.
    Generate(generate::Arguments),
    /// Receive UDP messages in batches: count and check them, put feeds in order.
    Receive(Box<receive::Arguments>),
    /// Send captured traffic again.
    Replay(replay::Arguments),
    /// Split the super-packets of a capture file into the frames that the wire carried, or join frames.
    Segment(Box<segment::Arguments>),
    /// Run an unmodified libpcap program on Linerate's capture sources.
    Run(run::Arguments),
    /// Send UDP messages in batches.
    Send(Box<send::Arguments>),
    /// Connect a TAP or TUN device to an interface, and split and join packets in between.
    Uplink(uplink::Arguments),
    /// Measure Linerate against its peers, and draw the report.
    Lab(lab::Arguments),
    /// Print a completion script for a shell.
    Completion(completion::Arguments),
    /// Write the man pages into a folder.
    Manual(manual::Arguments),
}

/// The command line, and its words with what the file of `capture --config` says.
fn parse(mut words: Vec<OsString>) -> Result<(Cli, Vec<OsString>), ExitCode> {
    cli::start(&words, &Cli::command());
    if !words.iter().any(|word| word.to_string_lossy().starts_with("--config")) {
        return Cli::try_parse_from(&words).map(|cli| (cli, words)).map_err(refuse);
    }
    // What is missing on the command line may be in the file.
    let mut command = Cli::command().ignore_errors(true);
    let matches = command.try_get_matches_from_mut(&words);
    let capture = matches.as_ref().ok().and_then(|matches| matches.subcommand_matches("capture"));
    let file = capture.and_then(|given| given.get_one::<PathBuf>("config"));
    let (Some(given), Some(file)) = (capture, file) else {
        return Cli::try_parse_from(&words).map(|cli| (cli, words)).map_err(refuse);
    };
    let verb = command.find_subcommand("capture").expect("a verb");
    let [options, expression] = capture::config_words(file, verb, given)
        .map_err(|error| cli::usage_error(&cli::format_error_chain(&error)))?;
    let at = words.iter().position(|word| word == "capture").expect("the verb") + 1;
    words.splice(at..at, options.into_iter().map(OsString::from));
    if !expression.is_empty() {
        words.push("--".into());
        words.extend(expression.into_iter().map(OsString::from));
    }
    cli::start(&words, &Cli::command());
    match Cli::try_parse_from(&words) {
        Ok(cli) => Ok((cli, words)),
        Err(error) => {
            cli::stdio::eprintln(format_args!("linerate: with {}:", file.display()));
            Err(refuse(error))
        }
    }
}

/// Reads the command line, runs the verb and turns its result into an exit status.
pub fn run() -> ExitCode {
    completion::complete_if_asked();
    match parse(std::env::args_os().collect()) {
        Ok((cli, words)) => run_verb(cli, &words),
        Err(status) => status,
    }
}

/// The same for a command line of `capture` without the verb. Options that take frames from the host are refused.
pub fn run_capture() -> ExitCode {
    // A process that its user can trace would give away the packet socket, which can also send.
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        eprintln!("linerate-capture: cannot make the process non-dumpable: {error}");
        return ExitCode::FAILURE;
    }
    let words = std::env::args_os().skip(1);
    match parse(["linerate".into(), "capture".into()].into_iter().chain(words).collect()) {
        Ok((Cli { verb: Verb::Capture(arguments), .. }, _)) if arguments.takes_frames() => {
            cli::usage_error(
                "linerate-capture leaves all frames to the host: use --source packet or tee, and no --take-over",
            )
        }
        Ok((cli, words)) => run_verb(cli, &words),
        Err(status) => status,
    }
}

fn run_verb(Cli { verbose, verb }: Cli, words: &[OsString]) -> ExitCode {
    let log = match &verb {
        Verb::Forward(arguments) => arguments.log(),
        _ => logging::Options::default(),
    };
    logging::start(verbose, log);
    // The others only start a program, which has the limit of who called them.
    if !matches!(verb, Verb::Find(_) | Verb::Flows(_) | Verb::Lab(_) | Verb::Run(_)) {
        raise_open_files();
    }
    let outcome: Result<ExitCode> = match verb {
        Verb::Capture(arguments) if arguments.check => capture::check_only(&arguments, words),
        Verb::Capture(arguments) => capture::run(*arguments, verbose),
        Verb::Completion(arguments) => completion::run(&arguments).map(|()| ExitCode::SUCCESS),
        Verb::Doctor(arguments) => doctor::run(&arguments),
        Verb::Extcap(arguments) => extcap::run(&arguments),
        Verb::Find(_) => flows::run("find"),
        Verb::Flows(_) => flows::run("flows"),
        Verb::Forward(arguments) => forward::run(&arguments),
        Verb::Generate(arguments) => generate::run(&arguments),
        Verb::Receive(arguments) => receive::run(&arguments),
        Verb::Replay(arguments) => replay::run(&arguments),
        Verb::Run(arguments) => run::run(&arguments),
        Verb::Lab(_) => lab::run(),
        Verb::Segment(arguments) => segment::run(&arguments),
        Verb::Send(arguments) => send::run(&arguments),
        Verb::Uplink(arguments) => uplink::run(&arguments),
        Verb::Manual(arguments) => {
            manual::run(&arguments, Cli::command()).map(|()| ExitCode::SUCCESS)
        }
    };
    cli::exit_status(outcome)
}

/// The most files that a verb needs. Programs that it starts inherit the limit, and some close all that may be open.
const MAX_OPEN_FILES: u64 = 65_536;

/// Lets this process open more files, within its hard limit: many queues take more than the usual 1,024.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // A process may always do this, except where seccomp forbids it; then the limit stays.
    let most = limit.maximum.map_or(MAX_OPEN_FILES, |hard| hard.min(MAX_OPEN_FILES));
    let current = limit.current.map(|soft| soft.max(most));
    let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
}

/// Says what is wrong with the command line, or prints the help that it asks for.
fn refuse(mut error: clap::Error) -> ExitCode {
    if error.kind() == ErrorKind::UnknownArgument {
        // The suggestion of clap would be to pass the option as a value.
        error.remove(ContextKind::Suggested);
        let verb = std::env::args().skip(1).find(|word| !word.starts_with('-'));
        if verb.as_deref() == Some("capture")
            && let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
            && let Some(remedy) = capture::foreign::remedy(option)
        {
            return cli::usage_error(&format!("capture has no option {option}: {remedy}"));
        }
    }
    cli::refuse(&error)
}

#[cfg(test)]
mod tests;
