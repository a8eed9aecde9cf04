//! `linerate replay`: captured traffic again.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use linerate_generate::Rate;
use linerate_generate::replay::{self, Frames, Progress, Recorded, Report, Settings, Speed, Trace};
use linerate_pcapfile::{Error, Reader};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::generate::scaled;
use crate::cli::stdio;

/// LINKTYPE_ETHERNET in the registry of capture file formats.
const ETHERNET: u16 = 1;

/// Arguments of `linerate replay`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without a speed the recorded gaps are kept, to within what the kernel's timers allow (some tens of \
microseconds). Gaps between files and rounds are zero. --topspeed and --loop read the files into \
memory first.

Examples:
  linerate replay -i veth0 trace.pcapng
  linerate replay -i veth0 --multiplier 2 --loop 10 trace.pcap
  linerate replay -i veth0 --topspeed --limit 1000000 --loop 1000 trace.pcap.zst")]
pub(crate) struct Arguments {
    /// Interface that the frames leave by.
    #[arg(short, long, value_name = "IFACE")]
    interface: String,
    /// Capture files, pcap or pcapng, plain or compressed; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Frames per second, as 1000 or 450k.
    #[arg(long, value_name = "RATE", group = "speed")]
    pps: Option<Rate>,
    /// Megabits per second.
    #[arg(long, value_name = "MBPS", group = "speed")]
    mbps: Option<f64>,
    /// Keep the recorded gaps, divided by this factor.
    #[arg(short = 'x', long, value_name = "X", group = "speed")]
    multiplier: Option<f64>,
    /// As fast as the machine can.
    #[arg(short = 't', long, group = "speed")]
    topspeed: bool,
    /// Send the whole so many times.
    #[arg(short, long = "loop", value_name = "N", default_value_t = 1)]
    rounds: u64,
    /// Send so many frames at most.
    #[arg(short = 'L', long, value_name = "N")]
    limit: Option<u64>,
    /// CPU that sends.
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// How frames get out: packet (AF_PACKET) or xdp (AF_XDP).
    #[arg(long, default_value = "packet", value_parser = ["packet", "xdp"])]
    backend: String,
    /// Send even if a default route leaves by the interface.
    #[arg(long)]
    allow_default_route: bool,
    /// Print one JSON object on standard output at the end.
    #[arg(long)]
    json: bool,
    /// No progress and no summary.
    #[arg(short, long)]
    quiet: bool,
}

/// Replays, and reports.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let settings = arguments.settings()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot handle signals")?;
    }
    let mut files = Files::new(&arguments.files, &stop);
    let preload = arguments.topspeed || arguments.rounds > 1;
    let mut trace = match preload {
        true => Some(load(&mut files, &stop, arguments.quiet)?),
        false => None,
    };
    let total = trace.as_ref().map(|trace| {
        let all = (trace.len() as u64).saturating_mul(arguments.rounds);
        all.min(arguments.limit.unwrap_or(u64::MAX))
    });
    let progress = Progress::default();
    let bar = progress_bar(total.or(arguments.limit), arguments.quiet);
    let interface = arguments.interface.as_str();
    let report = thread::scope(|scope| {
        let sender = scope.spawn(|| match &mut trace {
            Some(trace) => replay::run(interface, trace, settings, &progress, &stop),
            None => replay::run(interface, &mut files, settings, &progress, &stop),
        });
        while !sender.is_finished() {
            thread::sleep(Duration::from_millis(20));
            bar.set_position(progress.sent());
            bar.set_message(format!(
                "{} sent, {}",
                progress.sent(),
                scaled(progress.bytes() as f64, "B")
            ));
        }
        sender.join().map_err(|_| anyhow!("the sending thread panicked"))
    })??;
    bar.finish_and_clear();
    if let (0, Some(trouble)) = (report.sent, &report.trouble) {
        bail!("{trouble}");
    }
    if arguments.json {
        stdio::println(serde_json::to_string(&report)?)?;
    } else if !arguments.quiet {
        summarise(&report)?;
    }
    if report.too_long > 0 {
        stdio::eprintln(format_args!(
            "linerate: {} frames were longer than the MTU of {interface} allows and not sent; \
             `ip link set dev {interface} mtu N` makes room",
            report.too_long
        ));
    }
    if let Some(trouble) = &report.trouble {
        bail!("ended after {} frames: {trouble}", report.sent);
    }
    let nothing = report.frames > 0 && report.accepted == 0;
    Ok(if nothing { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Reads the files into memory, and shows how far it is.
fn load(files: &mut Files<'_>, stop: &AtomicBool, quiet: bool) -> Result<Trace> {
    let bar = progress_bar(None, quiet);
    let trace = Trace::preload(&mut Loading { files, stop, bar: &bar, frames: 0, bytes: 0 });
    bar.finish_and_clear();
    trace
}

/// Frames on their way into memory.
struct Loading<'a, 'f> {
    files: &'a mut Files<'f>,
    stop: &'a AtomicBool,
    bar: &'a ProgressBar,
    frames: u64,
    bytes: u64,
}

impl Frames for Loading<'_, '_> {
    type Error = anyhow::Error;

    fn next(&mut self) -> Result<Option<Recorded<'_>>> {
        /// Frames between two looks at the signals.
        const LOOK: u64 = 1 << 12;
        const STOPPED: &str = "stopped while files were read into memory; nothing was sent";
        if self.frames.is_multiple_of(LOOK) {
            if self.stop.load(Relaxed) {
                bail!(STOPPED);
            }
            let bytes = scaled(self.bytes as f64, "B");
            self.bar.set_message(format!("{} frames read into memory, {bytes}", self.frames));
            self.bar.tick();
        }
        self.frames += 1;
        let frame = self.files.next()?;
        // A pipe that said nothing more.
        if frame.is_none() && self.stop.load(Relaxed) {
            bail!(STOPPED);
        }
        self.bytes += frame.as_ref().map_or(0, |frame| frame.bytes.len() as u64);
        Ok(frame)
    }

    fn rewind(&mut self) -> Result<()> {
        self.files.rewind()
    }
}

impl Arguments {
    fn settings(&self) -> Result<Settings> {
        let speed = match (self.pps, self.mbps, self.multiplier) {
            (Some(Rate::Bits(_)), ..) => bail!("--pps takes frames per second, not bits"),
            (Some(rate), ..) => Speed::Rate(rate),
            (_, Some(mbps), _) if mbps > 0.0 => Speed::Rate(Rate::Bits(mbps * 1e6)),
            (_, Some(mbps), _) => bail!("--mbps {mbps}: must be above 0"),
            _ if self.topspeed => Speed::Rate(Rate::Max),
            (_, _, factor) => Speed::Recorded(factor.unwrap_or(1.0)),
        };
        Ok(Settings {
            speed,
            rounds: self.rounds,
            limit: self.limit,
            cpu: self.cpu,
            backend: self.backend.parse()?,
            allow_default_route: self.allow_default_route,
        })
    }
}

/// The frames of several capture files, read one file after the other.
struct Files<'a> {
    paths: &'a [PathBuf],
    stop: &'a Arc<AtomicBool>,
    /// Index of the file to open next.
    next: usize,
    open: Option<Reader>,
    /// Time of the frame before, in this file.
    before: Option<u64>,
    /// The frame that is lent.
    frame: Vec<u8>,
}

impl<'a> Files<'a> {
    fn new(paths: &'a [PathBuf], stop: &'a Arc<AtomicBool>) -> Self {
        Self { paths, stop, next: 0, open: None, before: None, frame: Vec::new() }
    }

    /// Opens the next file if none is open.
    fn open_next(&mut self) -> Result<(), Error> {
        if self.open.is_none()
            && let Some(path) = self.paths.get(self.next)
        {
            self.open = Some(Reader::open_until(path, self.stop)?);
            self.next += 1;
            self.before = None;
        }
        Ok(())
    }
}

impl Frames for Files<'_> {
    type Error = anyhow::Error;

    fn next(&mut self) -> Result<Option<Recorded<'_>>> {
        let (time, cut, interface) = loop {
            match self.open_next() {
                Err(Error::Cancelled { .. }) => return Ok(None),
                opened => opened?,
            }
            let Some(reader) = &mut self.open else { return Ok(None) };
            let record = match reader.next() {
                Err(Error::Cancelled { .. }) => return Ok(None),
                record => record?,
            };
            if let Some(record) = record {
                let frame = record.frame;
                self.frame.clear();
                self.frame.extend_from_slice(frame.head());
                frame.tail().iter().for_each(|piece| self.frame.extend_from_slice(piece));
                let cut = frame.wire_len as usize > frame.len();
                break (frame.timestamp.map(|time| time.0), cut, record.interface as usize);
            }
            self.open = None;
        };
        let linktype = self
            .open
            .as_ref()
            .and_then(|reader| reader.interfaces().get(interface))
            .map_or(ETHERNET, |interface| interface.linktype);
        if linktype != ETHERNET {
            bail!(
                "{}: its frames have link type {linktype}; only Ethernet (1) can be replayed",
                self.paths[self.next - 1].display()
            );
        }
        let gap = match (self.before, time) {
            (Some(before), Some(time)) => time.saturating_sub(before),
            _ => 0,
        };
        // A frame that goes back in time does not move the clock back for those that follow.
        self.before = self.before.max(time);
        Ok(Some(Recorded { bytes: &self.frame, gap, cut }))
    }

    fn rewind(&mut self) -> Result<()> {
        (self.next, self.open, self.before) = (0, None, None);
        Ok(())
    }
}

fn progress_bar(total: Option<u64>, quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match total {
        Some(total) => (ProgressBar::new(total), "{wide_bar} {percent}% {msg}"),
        None => (ProgressBar::new_spinner(), "{spinner} {msg}"),
    };
    bar.with_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}

fn summarise(report: &Report) -> Result<()> {
    let Report { interface, sent, accepted, refused, seconds, cut, too_short, .. } = report;
    stdio::println(format_args!("{sent} frames sent to {interface} in {seconds:.3} s"))?;
    stdio::println(format_args!(
        "{}, {}; {accepted} accepted, {refused} refused",
        scaled(report.packets_per_second, "pps"),
        scaled(report.bits_per_second, "b/s")
    ))?;
    if report.late_max_us > 0.0 {
        let (mean, max) = (report.late_mean_us, report.late_max_us);
        stdio::println(format_args!("{mean:.1} us late on average, {max:.1} us at most"))?;
    }
    if *cut > 0 {
        stdio::println(format_args!("{cut} frames were cut when captured, and sent as they are"))?;
    }
    if *too_short > 0 {
        let what = "frames were shorter than an Ethernet header and not sent";
        stdio::println(format_args!("{too_short} {what}"))?;
    }
    Ok(())
}
