//! `linerate lab`: experiments against peers, and the report.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use linerate_lab::experiments::{self, Only, Options};
use linerate_lab::model::claim_table;
use linerate_lab::redirect::{self, Mac};
use linerate_lab::{
    connections, consumer, datagrams, demo, interrupt, kernel, pcap_loop, report, sink, splitter,
    store, stream,
};

use super::capture::usage_error;
use crate::say;

/// Arguments of `linerate lab`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the experiments, and about how long each takes, in full and with --quick.
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
  linerate lab run capture-soak --only 'xdp at 64'")]
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
    Report {
        /// A folder of runs, or one run.
        #[arg(value_name = "DIR", default_value = "runs")]
        folder: PathBuf,
        /// The page [default: DIR/index.html].
        #[arg(long, value_name = "FILE")]
        page: Option<PathBuf>,
    },
    /// Put what `make test-kernel` found among the runs: page faults and page-table entries of rings, and
    /// instructions of recvmmsg(), in its virtual machine.
    #[command(after_help = "\
Exit status: 0 when every claim held or stayed open, 1 when one did not.

Example:
  scripts/test-kernel && scripts/test-kernel count && linerate lab kernel && linerate lab report")]
    Kernel {
        /// Where scripts/test-kernel has left test.json and count.json.
        #[arg(value_name = "DIR", default_value = "target/kernel/6.1")]
        folder: PathBuf,
        /// The folder that receives DATE-HOST-kernel.
        #[arg(long, value_name = "DIR", default_value = "runs")]
        out: PathBuf,
    },
    /// Lay two hosts, drive real traffic, capture it with Linerate and with tcpdump, account for
    /// every frame, and draw the report.
    Demo {
        /// The folder that receives index.html and the run.
        #[arg(long, value_name = "DIR", default_value = "report")]
        out: PathBuf,
    },
    /// Analyse frames as seed 000 does (used by capture-loss and capture-tlb).
    #[command(hide = true)]
    Consumer {
        #[arg(short, long)]
        interface: String,
        #[arg(long)]
        source: String,
        #[arg(long, default_value = "auto")]
        pages: linerate_ring::region::Pages,
        #[arg(long, default_value_t = 0)]
        delay: u64,
        #[arg(long, default_value_t = 1)]
        every: u64,
        #[arg(long)]
        hold: bool,
    },
    /// Receive with a plain AF_XDP loop, the limit that rates are compared with.
    #[command(hide = true)]
    Bare {
        #[arg(short, long)]
        interface: String,
        #[arg(long)]
        huge: bool,
        /// Parse and verify a UDP datagram in each frame.
        #[arg(long)]
        udp: bool,
    },
    /// Count what libpcap's loop hands over (used by capture-pcap).
    #[command(hide = true)]
    PcapLoop {
        #[arg(short, long)]
        interface: String,
    },
    /// Send a TCP stream, or datagrams (used by segment-tcp and segment-udp).
    #[command(hide = true)]
    Send {
        #[arg(long)]
        address: SocketAddr,
        #[arg(long)]
        seconds: f64,
        #[arg(long, value_name = "PAYLOAD")]
        datagrams: Option<usize>,
        #[arg(long)]
        split: bool,
    },
    /// Take and compare what `send` sends.
    #[command(hide = true)]
    Take {
        #[arg(long)]
        address: SocketAddr,
        #[arg(long, value_name = "PAYLOAD")]
        datagrams: Option<usize>,
        #[arg(long)]
        split: bool,
    },
    /// Split a super-packet again and again (used by segment-rate).
    #[command(hide = true)]
    Split { way: String, frame: PathBuf, headers: usize, mss: u16, milliseconds: u64, out: PathBuf },
    /// Send back what comes on TCP connections (used by forward-sessions).
    #[command(hide = true)]
    Echo {
        #[arg(long)]
        address: SocketAddr,
    },
    /// Open TCP connections and hold them (used by forward-sessions).
    #[command(hide = true)]
    Hold {
        #[arg(long)]
        address: SocketAddr,
        #[arg(long)]
        connections: u64,
        #[arg(long)]
        rounds: u64,
        #[arg(long)]
        ready: PathBuf,
    },
    /// Redirect every frame with constant addresses, the limit of forwarding (used by forward-*).
    #[command(hide = true)]
    Redirect {
        #[arg(short, long)]
        interface: String,
        #[arg(long)]
        to: String,
        #[arg(long)]
        dst_mac: Mac,
        #[arg(long)]
        src_mac: Mac,
    },
    /// Count and drop frames in the driver (used by capture-stage).
    #[command(hide = true)]
    Sink {
        #[arg(short, long)]
        interface: String,
    },
}

/// Runs it.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    interrupt::install()?;
    match &arguments.command {
        Command::List => {
            let width = experiments::ALL.iter().map(|one| one.name.len()).max().unwrap_or(0);
            for experiment in experiments::ALL {
                let time = |quick| {
                    let options = Options { quick, ..Options::default() };
                    experiments::plan(&experiment, &options).map(|plan| about(plan.seconds))
                };
                let time = match (time(false), time(true)) {
                    (Ok(full), Ok(quick)) => format!("{full} (quick: {quick})"),
                    (Err(error), _) | (_, Err(error)) => {
                        format!("not here: {}", say::described(&error))
                    }
                };
                say::print(format_args!(
                    "{:<width$}  {}; {time}",
                    experiment.name, experiment.title
                ))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Run { experiments, out, quick, repeats, only } => {
            let repeats = usize::from(*repeats);
            let options = Options { quick: *quick, repeats, only: Only::new(only.clone()) };
            let mut held = true;
            let chosen = match experiments::find(experiments) {
                Ok(chosen) => chosen,
                Err(error) => return Ok(usage_error(&error.to_string())),
            };
            let plan = |experiment| (experiment, experiments::plan(&experiment, &options));
            let planned: Vec<_> = chosen.into_iter().map(plan).collect();
            let nothing_left = planned.iter().find_map(|(experiment, plan)| {
                experiments::nothing_left(experiment, &options, plan.as_ref().ok()?)
            });
            if let Some(why) = nothing_left {
                return Ok(usage_error(&why));
            }
            for (experiment, plan) in planned {
                let plan = plan?;
                say::tell(format_args!(
                    "{}: {}; {} measurements, {}, longer where a rate without loss is searched for",
                    experiment.name,
                    experiment.title,
                    plan.measurements,
                    about(plan.seconds)
                ));
                let (summary, folder) = experiments::run(&experiment, out, &options, &plan)
                    .with_context(|| format!("{} broke off", experiment.name))?;
                for note in &summary.notes {
                    say::print(format_args!("note: {note}"))?;
                }
                for void in &summary.void {
                    say::print(format_args!("void: {void}"))?;
                }
                say::print(format_args!("raw data and summary: {}", folder.display()))?;
                held &= summary.claims.iter().all(|claim| claim.holds != Some(false));
            }
            Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Report { folder, page } => {
            let page = page.clone().unwrap_or_else(|| folder.join("index.html"));
            report::write(&page, &store::summaries(folder)?)?;
            say::print(page.display())?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Kernel { folder, out } => {
            let (summary, stored) = kernel::run(folder, out)?;
            say::print(claim_table(&summary.claims).trim_end())?;
            say::print(format_args!("summary: {}", stored.display()))?;
            let held = summary.claims.iter().all(|claim| claim.holds != Some(false));
            Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Demo { out } => {
            let held = demo::run(out)?;
            Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::Consumer { interface, source, pages, delay, every, hold } => {
            let report = consumer::run(&consumer::Settings {
                interface: interface.clone(),
                source: source.clone(),
                pages: *pages,
                delay: *delay,
                every: *every,
                hold: *hold,
            })?;
            say::print(serde_json::to_string(&report)?)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Bare { interface, huge, udp } => {
            let parser = linerate_udp::xdp::Parser::new(false);
            let stop = interrupt::flag();
            let counts = if *udp {
                let look = |frame: &[u8]| parser.parse(frame).is_ok();
                linerate_ring::bare::run_with(interface, *huge, stop, look)
            } else {
                linerate_ring::bare::run(interface, *huge, stop)
            };
            let counts = counts.with_context(|| format!("cannot receive from {interface}"))?;
            say::print(format_args!(
                "{{\"captured\": {}, \"dropped\": {{\"no chunk\": {}, \"ring full\": {}}}}}",
                counts.received, counts.dropped, counts.ring_full
            ))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::PcapLoop { interface } => {
            say::print(pcap_loop::run(interface)?)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Send { address, seconds, datagrams: payload, split } => {
            let time = Duration::try_from_secs_f64(*seconds).context("--seconds is no time")?;
            let seen = match payload {
                Some(payload) => {
                    serde_json::to_string(&datagrams::send(*address, *payload, *split, time)?)
                }
                None => serde_json::to_string(&stream::send(*address, time)?),
            };
            say::print(seen?)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Take { address, datagrams: payload, .. } => {
            let seen = match payload {
                Some(_) => serde_json::to_string(&datagrams::receive(*address)?),
                None => serde_json::to_string(&stream::receive(*address)?),
            };
            say::print(seen?)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Split { way, frame, headers, mss, milliseconds, out } => {
            splitter::run(&splitter::Settings {
                frame: frame.clone(),
                headers: *headers,
                mss: *mss,
                time: Duration::from_millis(*milliseconds),
                way: way.clone(),
                out: out.clone(),
            })?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Echo { address } => {
            connections::echo(*address)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Hold { address, connections, rounds, ready } => {
            let report = connections::hold(*address, *connections, *rounds, ready)?;
            say::print(serde_json::to_string(&report)?)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Redirect { interface, to, dst_mac, src_mac } => {
            redirect::run(&redirect::Settings {
                interface,
                to,
                destination: *dst_mac,
                source: *src_mac,
            })?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Sink { interface } => {
            let arrived = sink::run(interface)?;
            say::print(format_args!(
                "{{\"captured\": {}, \"bytes\": {}, \"dropped\": {{}}}}",
                arrived.frames, arrived.bytes
            ))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// A time for people.
fn about(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 100.0 => format!("about {seconds:.0} s"),
        seconds if seconds < 6000.0 => format!("about {:.0} min", seconds / 60.0),
        seconds => format!("about {:.1} h", seconds / 3600.0),
    }
}
