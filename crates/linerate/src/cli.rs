//! From raw arguments to a verb, and from its result to an exit status.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::say;
use crate::verbs::{
    capture, completion, forward, generate, lab, manual, receive, replay, run, segment, send,
    uplink,
};

/// Capture packets and send them at line rate, on an unmodified Linux kernel, and measure how well.
#[derive(Debug, Parser)]
#[command(name = "linerate", version, max_term_width = 100)]
#[command(after_help = "Exit status: 0 on success, 1 on failure, 2 on a wrong command line.\n\
    Every verb has its own --help; `linerate manual DIR` writes man pages.")]
pub struct Cli {
    /// More detail on standard error; twice for debugging. RUST_LOG overrides it.
    #[arg(short = 'v', long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Capture packets from interfaces, or read them from a file, into files or lines.
    Capture(Box<capture::Arguments>),
    /// Forward at the driver what the kernel has decided, session by session.
    Forward(forward::Arguments),
    /// Send synthetic traffic.
    Generate(generate::Arguments),
    /// Receive UDP messages by the batch: count, check, and put feeds in order.
    Receive(Box<receive::Arguments>),
    /// Send captured traffic again.
    Replay(replay::Arguments),
    /// Split the super-packets of a capture file into the frames that the wire carried, or join frames.
    Segment(Box<segment::Arguments>),
    /// Run a program that uses libpcap, as it is, on Linerate's sources.
    Run(run::Arguments),
    /// Send UDP messages by the batch.
    Send(Box<send::Arguments>),
    /// Join a TAP device to an interface, and split and join packets in between.
    Uplink(uplink::Arguments),
    /// Measure against peers, and draw the report.
    Lab(lab::Arguments),
    /// Print a completion script for a shell.
    Completion(completion::Arguments),
    /// Write the man pages into a folder.
    Manual(manual::Arguments),
}

/// Reads the command line, runs the verb and turns its result into an exit status.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    match &cli.verb {
        Verb::Forward(arguments) => start_logging(cli.verbose, arguments.log()),
        _ => start_logging(cli.verbose, Log::default()),
    }
    let outcome: Result<ExitCode> = match cli.verb {
        Verb::Capture(arguments) => capture::run(&arguments),
        Verb::Completion(arguments) => completion::run(&arguments).map(|()| ExitCode::SUCCESS),
        Verb::Forward(arguments) => forward::run(&arguments),
        Verb::Generate(arguments) => generate::run(&arguments),
        Verb::Receive(arguments) => receive::run(&arguments),
        Verb::Replay(arguments) => replay::run(&arguments),
        Verb::Run(arguments) => run::run(&arguments),
        Verb::Lab(arguments) => lab::run(&arguments),
        Verb::Segment(arguments) => segment::run(&arguments),
        Verb::Send(arguments) => send::run(&arguments),
        Verb::Uplink(arguments) => uplink::run(&arguments),
        Verb::Manual(arguments) => manual::run(&arguments).map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|error| {
        say::tell(format_args!("linerate: {}", say::described(&error)));
        ExitCode::FAILURE
    })
}

/// How a verb logs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Log {
    /// It runs for months: what it does is logged unasked, and when.
    pub(crate) daemon: bool,
    /// One JSON object a line.
    pub(crate) json: bool,
}

fn start_logging(verbose: u8, log: Log) {
    use tracing_subscriber::{EnvFilter, fmt};
    let default = match verbose.saturating_add(log.daemon.into()) {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let colours = std::io::stderr().is_terminal();
    let lines = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    // The journal has its own clock.
    let timed = log.daemon && std::env::var_os("JOURNAL_STREAM").is_none();
    match (log.json, timed) {
        (true, _) => lines.json().flatten_event(true).init(),
        (false, true) => lines.with_target(false).init(),
        (false, false) => lines.without_time().init(),
    }
}
