//! `run --metrics`: the counts of a program's handles. The library writes them into shared memory.
//!
//! This process becomes the program, so another process, the metrics server, serves the counts. The server has no
//! capabilities, and ends with the program. It is not the program's child, because the program may wait for its
//! children.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{self, Command, ExitCode};

use anyhow::{Context, Result, bail};
use linerate_capture::privilege;
use linerate_capture::statistics::DropCause;
use linerate_capture::statistics::handles::HandleStatistics;
use linerate_ring::counters::SharedCounters;
use linerate_service::{INTERVAL, MetricEncoder, Unit, metrics};
use nix::unistd::daemon;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::Arguments;
use crate::cli::metrics::Publisher;
use crate::cli::stdio;

/// The option of the metrics server. Its standard input is the listening socket, its standard output the counters.
pub(super) const SERVE: &str = "--serve-metrics";

const LIBPCAP: &str = "libpcap";

/// Starts the metrics server with `--metrics`. Returns the descriptor of the counters, which the program inherits.
pub(super) fn start(arguments: &Arguments, program: &OsStr) -> Result<Option<OwnedFd>> {
    let Some(listener) = arguments.metrics.listen()? else { return Ok(None) };
    if !arguments.quiet {
        let address = listener.local_addr().context("--metrics")?;
        stdio::eprintln(format_args!("linerate: metrics at http://{address}/metrics"));
    }
    let (_, counters) = SharedCounters::create()?;
    let mut server = Command::new(env::current_exe().context("cannot tell where this command is")?);
    server.args(["run", SERVE, &process::id().to_string(), "--"]).arg(program);
    server.stdin(OwnedFd::from(listener)).stdout(counters.try_clone().context("--metrics")?);
    // It becomes a daemon: this process ends when its child is ready.
    let status = server.status().context("cannot start the metrics server")?;
    if !status.success() {
        bail!("the metrics server did not start: {status}");
    }
    fcntl_setfd(&counters, FdFlags::empty()).context("--metrics")?;
    Ok(Some(counters))
}

/// Serves until the process `program` ends.
pub(super) fn serve(program: u32, arguments: &Arguments) -> Result<ExitCode> {
    let listener = TcpListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    let counters = SharedCounters::open(io::stdout())?;
    let pid = i32::try_from(program).ok().and_then(Pid::from_raw).context("no such process")?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("cannot watch the program")?;
    // Before any thread: a fork copies only the calling thread.
    daemon(false, false).context("cannot become a daemon")?;
    privilege::drop_all();
    let publisher = Publisher::for_process(program);
    let mut publisher = publisher.metrics(Some(listener), "run", true, encode)?;
    let name = arguments.program.first().map(|name| name.display().to_string());
    let interval = Timespec { tv_sec: INTERVAL.as_secs() as i64, tv_nsec: 0 };
    loop {
        publisher.update(|| RunStatistics {
            program: name.clone().unwrap_or_default(),
            handles: HandleStatistics::read(&counters),
            refused: counters.refused(),
        });
        let mut ended = [PollFd::new(&pidfd, PollFlags::IN)];
        match poll(&mut ended, Some(&interval)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            _ => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// The counts by interface and source.
#[derive(Debug)]
struct RunStatistics {
    program: String,
    handles: BTreeMap<[String; 2], HandleStatistics>,
    /// Handles without counters.
    refused: u64,
}

fn encode(statistics: &RunStatistics, encoder: &mut MetricEncoder<'_, '_>) -> fmt::Result {
    let all = &statistics.handles;
    // libpcap reports its counts only to the program.
    let counted = || all.iter().filter(|([_, source], _)| source != LIBPCAP);
    let each = |of: fn(&HandleStatistics) -> u64| {
        counted().map(move |(labels, one)| (labels.each_ref(), of(one)))
    };
    let causes = DropCause::ALL.iter().filter(|cause| cause.is_kernel());
    let drops = counted().flat_map(|([interface, source], one)| {
        let labels = [interface.as_str(), source.as_str()];
        causes.clone().map(move |cause| ([labels[0], labels[1], cause.name()], one.drops[*cause]))
    });
    metrics! { encoder;
        gauges "linerate_run_info" "1 for the program" ["program"] = [([statistics.program.as_str()], 1.0)];
        counters "linerate_run_handles" "Handles activated"
            ["interface", "source"] = all.iter().map(|(labels, one)| (labels.each_ref(), one.handles));
        counters "linerate_run_received_packets" "Packets that the filter accepted, lost ones included"
            ["interface", "source"] = each(|one| one.received);
        counters "linerate_run_delivered_packets" "Packets delivered to the program"
            ["interface", "source"] = each(|one| one.delivered);
        counters "linerate_run_delivered" "Bytes on the wire of the packets delivered to the program"
            ["interface", "source"] in (Unit::Bytes) = each(|one| one.bytes);
        counters "linerate_run_dropped_packets" "Packets lost, by cause" ["interface", "source", "cause"] = drops;
        gauges "linerate_run_read_timestamp"
            "When the program last read packets or began to wait for them, since the Unix epoch"
            ["interface", "source"] in (Unit::Seconds)
            = counted().map(|(labels, one)| (labels.each_ref(), one.read_at as f64));
        counter "linerate_run_uncounted_handles"
            "Handles without counters, because there are too many interfaces and sources" = statistics.refused;
    }
    Ok(())
}
