//! The command line of `linerate-lab`: that of `linerate lab`, and the helpers.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use linerate::cli::{self, logging, stdio};
use linerate::lab;
use linerate_net::text::plural;

use crate::experiments;
use crate::experiments::context::Options;
use crate::experiments::selection::Selection;
use crate::helpers::Helper;
use crate::report::summary::claim_table;
use crate::report::{self, store};
use crate::{demo, interrupt};

/// Measure Linerate against its peers, and draw the report.
#[derive(Debug, Parser)]
#[command(name = "linerate-lab", bin_name = "linerate lab", version, max_term_width = 100)]
struct Cli {
    /// More detail on standard error; twice for debugging. RUST_LOG overrides it.
    #[arg(short = 'v', long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Lab(lab::Command),
    /// Run one of the small programs that experiments start in their namespaces.
    #[command(subcommand, hide = true, bin_name = "linerate-lab helper")]
    Helper(Helper),
}

/// Reads the command line, runs what it asks for and turns the result into an exit status.
pub fn run() -> ExitCode {
    let Cli { verbose, command } = Cli::parse();
    logging::start(verbose, logging::Options::default());
    cli::exit_status(command.run())
}

impl Command {
    fn run(self) -> Result<ExitCode> {
        interrupt::install()?;
        match self {
            Self::Lab(lab::Command::List) => list(),
            Self::Lab(lab::Command::Run { experiments, out, quick, repeats, only }) => {
                let only = Selection::new(only);
                measure(&experiments, &out, &Options { quick, repeats: repeats.into(), only })
            }
            Self::Lab(lab::Command::Report { folder, page }) => {
                let page = page.unwrap_or_else(|| folder.join("index.html"));
                report::write(&page, &store::summaries(&folder)?)?;
                stdio::println(page.display())?;
                Ok(ExitCode::SUCCESS)
            }
            Self::Lab(lab::Command::Demo { out }) => Ok(verdict(demo::run(&out)?)),
            Self::Helper(helper) => helper.run().map(|()| ExitCode::SUCCESS),
        }
    }
}

fn verdict(held: bool) -> ExitCode {
    if held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn list() -> Result<ExitCode> {
    let width = experiments::ALL.iter().map(|one| one.name.len()).max().unwrap_or(0);
    for experiment in experiments::ALL {
        let time = |quick| {
            let options = Options { quick, ..Options::default() };
            experiments::plan(&experiment, &options).map(|plan| about(plan.seconds))
        };
        let time = match (time(false), time(true)) {
            (Ok(full), Ok(quick)) => format!("{full} (quick: {quick})"),
            (Err(error), _) | (_, Err(error)) => {
                format!("not available here: {}", cli::format_error_chain(&error))
            }
        };
        stdio::println(format_args!("{:<width$}  {}; {time}", experiment.name, experiment.title))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(names: &[String], out: &Path, options: &Options) -> Result<ExitCode> {
    let chosen = match experiments::find(names) {
        Ok(chosen) => chosen,
        Err(error) => return Ok(cli::usage_error(&error.to_string())),
    };
    let plan = |experiment| (experiment, experiments::plan(&experiment, options));
    let mut planned: Vec<_> = chosen.into_iter().map(plan).collect();
    let empty = planned.iter().find_map(|(experiment, plan)| {
        experiments::nothing_selected(experiment, options, plan.as_ref().ok()?)
    });
    if let Some(reason) = empty {
        return Ok(cli::usage_error(&reason));
    }
    let mut refused = Vec::new();
    planned.retain(|(experiment, _)| {
        experiments::prepare(experiment).map_err(|error| refused.push(error)).is_ok()
    });
    match refused.pop() {
        // What was asked for cannot run at all.
        Some(error) if planned.is_empty() => return Err(error),
        last => refused.extend(last),
    }
    for error in refused {
        stdio::println(format_args!("skipped: {error:#}"))?;
    }
    let mut held = true;
    for (experiment, plan) in planned {
        let plan = plan?;
        stdio::eprintln(format_args!(
            "{}: {}; {}, {}, longer where a rate without loss is searched for",
            experiment.name,
            experiment.title,
            plural(plan.measurements as u64, "measurement"),
            about(plan.seconds)
        ));
        let (summary, folder) = experiments::run(&experiment, out, options, &plan)
            .with_context(|| format!("{} failed", experiment.name))?;
        if !summary.claims.is_empty() {
            stdio::println(claim_table(&summary.claims))?;
        }
        for note in &summary.notes {
            stdio::println(format_args!("note: {note}"))?;
        }
        for void in &summary.void {
            stdio::println(format_args!("void: {void}"))?;
        }
        stdio::println(format_args!("raw data and summary: {}", folder.display()))?;
        held &= summary.all_claims_hold();
    }
    Ok(verdict(held))
}

/// A time for people.
fn about(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 100.0 => format!("about {seconds:.0} s"),
        seconds if seconds < 6000.0 => format!("about {:.0} min", seconds / 60.0),
        seconds => format!("about {:.1} h", seconds / 3600.0),
    }
}
