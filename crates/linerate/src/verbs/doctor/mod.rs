//! `linerate doctor`: what stands between this host and the speed of the wire.

mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;
use linerate_doctor::checks::CHECKS;
use linerate_doctor::persist::persist;
use linerate_doctor::state::{self, Step};
use linerate_doctor::{Change, Finding, Job, Options, Remedy, Severity, examine};
use serde_json::json;

use crate::cli::json::{self, Schema};
use crate::cli::stdio;
use crate::cli::values::parse_known;

/// Arguments of `linerate doctor`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// What the host is to do: capture, forward, receive, uplink; default: all of them, forward if the kernel forwards.
    #[arg(value_name = "JOB", hide_possible_values = true,
        value_parser = parse_known::<Job>(Job::ALL.iter().map(|job| job.name())))]
    jobs: Vec<Job>,

    /// Interface to examine, can be repeated; default: all hardware and veth interfaces that are up.
    #[arg(short, long = "interface", value_name = "IFACE")]
    interfaces: Vec<String>,

    /// Only this check, by its id; can be repeated. Default: all.
    #[arg(long = "check", value_name = "ID", hide_possible_values = true,
        value_parser = PossibleValuesParser::new(CHECKS.iter().map(|check| check.id)))]
    checks: Vec<String>,

    /// Show also what is as it should be.
    #[arg(long)]
    all: bool,

    /// Do not attach an XDP program and a tracing program as a test: some drivers reset their queues for XDP.
    #[arg(long)]
    no_attach: bool,

    /// Make the changes that findings show as `fix`, and record them; then examine again.
    #[arg(long)]
    fix: bool,

    /// Write the recorded changes into files that make them again at each start: sysctl.d, tmpfiles.d, a systemd
    /// unit for each interface.
    #[arg(long)]
    persist: bool,

    /// Take all recorded changes back, and remove the files of --persist.
    #[arg(long, conflicts_with_all = ["fix", "persist", "jobs", "interfaces", "checks", "all", "no_attach"])]
    undo: bool,

    /// File that records the changes.
    #[arg(long, value_name = "FILE", default_value = state::PATH)]
    state: PathBuf,

    /// Write the files of --persist below this directory, as into an image.
    #[arg(long, value_name = "DIR", default_value = "/", requires = "persist")]
    root: PathBuf,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Without arguments each problem has a line, and warnings do not change the exit status.

Exit status: 0 if nothing is worse than a note, 3 after a warning, 4 if a job does not work at all; \
1 on failure, also of a change, 2 on a wrong command line. What this process may not see is listed as unknown.

Examples:
  linerate doctor capture -i eth1
  linerate doctor forward -i eth1 -i eth2 --fix
  linerate doctor --undo
  linerate doctor --json | jq '.findings[] | select(.severity == \"fatal\")'";

/// The exit status after a warning, and where a job does not work.
const WARNING: u8 = 3;
const FATAL: u8 = 4;

/// Examines the host, and changes it on request.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.undo {
        return undo(&arguments.state, arguments.json);
    }
    let Arguments { jobs, interfaces, checks, all, fix, persist: persists, .. } = arguments;
    // Nobody has asked for a job: what only costs speed is no failure.
    let is_overview = jobs.is_empty() && interfaces.is_empty() && checks.is_empty();
    let is_overview = is_overview && !(*all || *fix || *persists);
    let jobs = if jobs.is_empty() { Job::of_host() } else { jobs.clone() };
    let (interfaces, checks) = (interfaces.clone(), checks.clone());
    let options = Options { jobs, interfaces, checks, attach: !arguments.no_attach };
    let mut findings = examine(&options)?;
    let mut steps = Vec::new();
    if arguments.fix {
        steps = state::fix(&arguments.state, changes(&findings))?;
        if !steps.is_empty() {
            findings = examine(&options)?;
        }
    }
    if arguments.persist {
        steps.extend(persist(&arguments.state, &arguments.root)?);
    }
    if arguments.json {
        let report = json!({
            "jobs": options.jobs,
            "steps": steps,
            "findings": findings,
            "counts": text::counts(&findings).collect::<serde_json::Map<_, _>>(),
        });
        json::print(Schema::Doctor, &report)?;
    } else if is_overview {
        stdio::println(text::overview(&options, &findings))?;
    } else {
        print_steps(&steps)?;
        stdio::println(text::report(&options, &findings, arguments.all))?;
    }
    Ok(match status(&findings) {
        _ if has_failed(&steps) => ExitCode::FAILURE,
        WARNING if is_overview => ExitCode::SUCCESS,
        status => status.into(),
    })
}

/// The changes that the findings propose, each once.
fn changes(findings: &[Finding]) -> Vec<Change> {
    let mut changes = Vec::new();
    for finding in findings {
        if let Remedy::Changes(proposed) = &finding.remedy {
            for change in proposed {
                if !changes.contains(change) {
                    changes.push(change.clone());
                }
            }
        }
    }
    changes
}

fn undo(path: &Path, as_json: bool) -> Result<ExitCode> {
    let (steps, restarted) = state::undo(path)?;
    if as_json {
        let report = json!({ "restarted": restarted, "steps": steps });
        json::print(Schema::DoctorUndo, &report)?;
    } else {
        if restarted {
            stdio::println(
                "The machine was restarted since: the kernel has forgotten what no file keeps.",
            )?;
        }
        print_steps(&steps)?;
    }
    Ok(if has_failed(&steps) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Each change as the command that does the same.
fn print_steps(steps: &[Step]) -> Result<()> {
    for Step { command, left, unchanged } in steps {
        let command = text::printable(command);
        match left {
            Some(left) => {
                stdio::println_whole(format_args!("{command}  # {}", text::printable(left)))?;
            }
            None if *unchanged => {
                stdio::println_whole(format_args!("{command}  # it is so already"))?;
            }
            None => stdio::println_whole(command)?,
        }
    }
    if steps.is_empty() { Ok(()) } else { stdio::println_whole("") }
}

/// Whether a change was not made.
fn has_failed(steps: &[Step]) -> bool {
    steps.iter().any(|step| step.left.is_some() && !step.unchanged)
}

fn status(findings: &[Finding]) -> u8 {
    match findings.iter().map(|finding| finding.severity).max() {
        Some(Severity::Fatal) => FATAL,
        Some(Severity::Warning) => WARNING,
        _ => 0,
    }
}
