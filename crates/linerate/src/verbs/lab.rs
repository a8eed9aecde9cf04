//! `linerate lab`: experiments against peers, and the report. A separate program, `linerate-lab`, runs them;
//! its command line is defined here.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::cli::companion::Companion;

/// Arguments of `linerate lab`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  linerate lab list
  linerate lab run capture-stage --quick
  linerate lab report")]
pub struct Arguments {
    #[command(subcommand)]
    /// What to do.
    pub command: Command,
}

/// The verbs of `linerate lab`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the experiments, and about how long each takes, in full and with --quick.
    #[command(after_help = "\
Examples:
  linerate lab list")]
    List,
    /// Run experiments; each leaves raw CSV, the machine's facts and a JSON summary in a folder of
    /// its own, and prints which claims held.
    #[command(after_help = "\
A measurement is called LINE at X: the line of a chart and the place on its axis, the frame size where \
there is no axis. --only with a name that is not there lists them.

Exit status: 0 when every claim held or stayed open, 1 when one did not, 2 for a name that is not there.

Examples:
  linerate lab run capture-stage --quick
  linerate lab run capture-rate --only '* at 64'
  linerate lab run capture-stall --only 'xdp at 64'")]
    Run {
        /// Experiments of `linerate lab list`, or all.
        #[arg(required = true, value_name = "EXPERIMENT")]
        experiments: Vec<String>,
        /// The folder that receives DATE-HOST-EXPERIMENT.
        #[arg(long, value_name = "DIR", default_value = "runs")]
        out: PathBuf,
        /// Fewer points and frames: minutes instead of hours.
        #[arg(long)]
        quick: bool,
        /// Repeats of each point.
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
        repeats: u16,
        /// Make only the measurements of this name, with * for any text and ? for any character;
        /// repeatable.
        #[arg(long, value_name = "PATTERN")]
        only: Vec<String>,
    },
    /// Draw one HTML page from all runs in a folder.
    #[command(after_help = "\
Examples:
  linerate lab report
  linerate lab report runs --page report.html")]
    Report {
        /// A folder of runs, or one run.
        #[arg(value_name = "DIR", default_value = "runs")]
        folder: PathBuf,
        /// The page [default: DIR/index.html].
        #[arg(long, value_name = "FILE")]
        page: Option<PathBuf>,
    },
    /// Drive real traffic between two network namespaces, capture it with Linerate and with tcpdump, account
    /// for every frame, and draw the report.
    #[command(after_help = "\
Exit status: 0 when every claim held or stayed open, 1 when one did not.

Examples:
  linerate lab demo
  linerate lab demo --out /tmp/report")]
    Demo {
        /// The folder that receives index.html and the run.
        #[arg(long, value_name = "DIR", default_value = "report")]
        out: PathBuf,
    },
}

/// Becomes `linerate-lab`, with the same arguments.
pub(crate) fn run() -> Result<ExitCode> {
    let remedy = "`make build` builds it, `make install` puts it in its place";
    let companion = Companion { program: "linerate-lab", verb: "lab", remedy };
    // Only -v can stand in front of the verb.
    companion.exec(companion.arguments().into_iter().flatten())
}
