//! `linerate replay`: captured traffic again.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use indicatif::ProgressBar;
use linerate_generate::replay::{
    self, Files, FrameSource, Options, Progress, RecordedFrame, Report, Speed, Trace,
};
use linerate_generate::{Backend, Rate};
use linerate_wire::ethernet::Address;

use super::generate::check_rate;
use crate::cli::json::{self, Schema};
use crate::cli::progress::{self, scaled};
use crate::cli::signals::stop_flag;
use crate::cli::stdio;
use crate::cli::stdio::plural;
use crate::cli::values::{one_cpu, parse_known, positive, seconds};

/// Arguments of `linerate replay`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without a speed the recorded gaps are kept; for the last half of a millisecond of each gap the sender \
spins. Gaps between files are zero. --topspeed and --loop read the files into memory first.

Captures of Linux cooked, raw IP and BSD loopback packets get an Ethernet header. An interface without \
one (TUN, WireGuard, PPP) gets the IP packets of any capture. tcprewrite changes packets: \
tcprewrite OPTIONS -i FILE -o - | linerate replay -i IFACE -

Exit status: 0 when all frames were sent, 1 when some could not be (unless --skip) or something ended \
it, 2 for a wrong command line.

Examples:
  linerate replay -i veth0 trace.pcapng
  linerate replay -i veth0 --multiplier 2 --loop 10 trace.pcap
  linerate replay -i veth0 --loop 0 --loop-delay 0.5 --duration 60 trace.pcap
  linerate replay -i veth0 --topspeed --limit 1000000 --loop 1000 trace.pcap.zst")]
pub(crate) struct Arguments {
    /// Output interface.
    #[arg(short, long, value_name = "IFACE")]
    interface: String,
    /// Capture files, pcap or pcapng, plain or compressed; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Frames per second, as 1000 or 450k.
    #[arg(short, long, value_name = "RATE", group = "speed", value_parser = frames_per_second)]
    pps: Option<Rate>,
    /// Megabits per second.
    #[arg(short = 'M', long, value_name = "MBPS", group = "speed", value_parser = megabits_per_second)]
    mbps: Option<Rate>,
    /// Keep the recorded gaps, divided by this factor.
    #[arg(short = 'x', long, value_name = "X", group = "speed", value_parser = positive)]
    multiplier: Option<f64>,
    /// As fast as possible.
    #[arg(short = 't', long, group = "speed")]
    topspeed: bool,
    /// Send the files this many times; 0 for no end.
    #[arg(short = 'l', long = "loop", value_name = "N", default_value_t = 1)]
    rounds: u64,
    /// Seconds between the end of a round and the next one.
    #[arg(long, value_name = "S", value_parser = seconds)]
    loop_delay: Option<Duration>,
    /// Send the frames that are due within this many seconds.
    #[arg(long, value_name = "S", value_parser = seconds)]
    duration: Option<Duration>,
    /// Send at most this many frames.
    #[arg(short = 'L', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// CPU that sends.
    #[arg(long, value_name = "N", value_parser = one_cpu)]
    cpu: Option<usize>,
    /// How frames are sent: packet (AF_PACKET) or xdp (AF_XDP).
    #[arg(long, default_value = "packet", value_parser = parse_known::<Backend>(["packet", "xdp"]))]
    backend: Backend,
    /// Destination hardware address of frames that were captured without an Ethernet header [default: as for
    /// `linerate generate`]
    #[arg(long, value_name = "MAC")]
    dst_mac: Option<Address>,
    /// Exit with status 0 even if the interface cannot take some frames (length, link type).
    #[arg(long)]
    skip: bool,
    /// Send even if a default route uses the interface.
    #[arg(long)]
    allow_default_route: bool,
    /// Exit with status 1 if the requested rate was not reached.
    #[arg(long)]
    strict: bool,
    /// Print one JSON object on standard output at the end.
    #[arg(long)]
    json: bool,
    /// No progress and no summary.
    #[arg(short, long)]
    quiet: bool,
}

/// Bytes of the longest frame that AF_XDP sends.
const AF_XDP_CHUNK: u64 = 4096;

/// How often the progress is shown.
const SHOW_INTERVAL: Duration = Duration::from_millis(100);

/// Replays, and reports.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let options = arguments.options();
    let stop = stop_flag()?;
    let mut files = Files::new(&arguments.files, &stop);
    let preload = arguments.topspeed || arguments.rounds != 1;
    let mut trace = match preload {
        true => Some(load(&mut files, &stop, arguments.quiet)?),
        false => None,
    };
    let total = trace.as_ref().filter(|_| arguments.rounds > 0).map(|trace| {
        let all = (trace.len() as u64).saturating_mul(arguments.rounds);
        all.min(arguments.limit.unwrap_or(u64::MAX))
    });
    let progress = Progress::default();
    let bar = progress::bar(total.or(arguments.limit), arguments.quiet);
    let interface = arguments.interface.as_str();
    let report = thread::scope(|scope| {
        let sender = scope.spawn(|| match &mut trace {
            Some(trace) => replay::run(interface, trace, options, &progress, &stop),
            None => replay::run(interface, &mut files, options, &progress, &stop),
        });
        // Where nothing is shown nothing wakes up, perhaps on the CPU of the sender, and disturbs it.
        while !bar.is_hidden() && !sender.is_finished() {
            thread::sleep(SHOW_INTERVAL);
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
    if let (0, Some(error)) = (report.sent, &report.error) {
        bail!("{error}");
    }
    if arguments.json {
        json::print(Schema::Replay, &report)?;
    } else if !arguments.quiet {
        summarise(&report)?;
    }
    if report.too_long > 0 {
        let (frames, most) = (plural(report.too_long, "frame"), report.max_frame);
        let remedy = match arguments.backend {
            Backend::Xdp if most == AF_XDP_CHUNK => {
                "AF_XDP takes no more; --backend packet does".to_owned()
            }
            _ => format!("`ip link set dev {interface} mtu N` raises the limit"),
        };
        stdio::warn(format_args!("{frames} not sent: longer than {most} bytes; {remedy}"));
    }
    if report.too_short > 0 {
        let frames = plural(report.too_short, "frame");
        stdio::warn(format_args!("{frames} not sent: shorter than an Ethernet header"));
    }
    if report.unsupported > 0 {
        stdio::warn(format_args!(
            "{} not sent: of an unknown link type, or not IP on an interface without Ethernet headers",
            plural(report.unsupported, "frame")
        ));
    }
    if let Some(error) = &report.error {
        bail!("ended after {}: {error}", plural(report.sent, "frame"));
    }
    check_rate(report.rate_reached, arguments.strict, arguments.quiet)?;
    let unsent = report.frames - report.accepted;
    let nothing = report.frames > 0 && report.accepted == 0;
    Ok(if nothing || unsent > 0 && !arguments.skip { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Reads the files into memory and shows the progress.
fn load(files: &mut Files<'_>, stop: &AtomicBool, quiet: bool) -> Result<Trace> {
    let bar = progress::bar(None, quiet);
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

impl FrameSource for Loading<'_, '_> {
    type Error = anyhow::Error;

    fn next(&mut self) -> Result<Option<RecordedFrame<'_>>> {
        /// Frames between two checks of the signals.
        const CHECK_INTERVAL: u64 = 1 << 12;
        const STOPPED: &str = "stopped while files were read into memory; nothing was sent";
        if self.frames.is_multiple_of(CHECK_INTERVAL) {
            if self.stop.load(Relaxed) {
                bail!(STOPPED);
            }
            let bytes = scaled(self.bytes as f64, "B");
            self.bar
                .set_message(format!("{} read into memory, {bytes}", plural(self.frames, "frame")));
            self.bar.tick();
        }
        self.frames += 1;
        let frame = self.files.next()?;
        // The wait for a pipe was cancelled.
        if frame.is_none() && self.stop.load(Relaxed) {
            bail!(STOPPED);
        }
        self.bytes += frame.as_ref().map_or(0, |frame| frame.bytes.len() as u64);
        Ok(frame)
    }

    fn rewind(&mut self) -> Result<()> {
        Ok(self.files.rewind()?)
    }
}

fn frames_per_second(text: &str) -> Result<Rate, String> {
    match text.parse::<Rate>() {
        Ok(Rate::Bits(_)) => Err("frames per second, not bits".into()),
        rate => rate.map_err(|error| error.to_string()),
    }
}

fn megabits_per_second(text: &str) -> Result<Rate, String> {
    let bits = positive(text)? * 1e6;
    if bits.is_finite() { Ok(Rate::Bits(bits)) } else { Err("fewer megabits".into()) }
}

impl Arguments {
    fn options(&self) -> Options {
        let speed = match self.pps.or(self.mbps) {
            Some(rate) => Speed::Rate(rate),
            None if self.topspeed => Speed::Rate(Rate::Max),
            None => Speed::Recorded(self.multiplier.unwrap_or(1.0)),
        };
        Options {
            speed,
            rounds: self.rounds,
            round_gap: self.loop_delay.unwrap_or_default(),
            duration: self.duration,
            destination_mac: self.dst_mac,
            limit: self.limit,
            cpu: self.cpu,
            backend: self.backend,
            allow_default_route: self.allow_default_route,
        }
    }
}

fn summarise(report: &Report) -> Result<()> {
    let Report { interface, sent, accepted, refused, seconds, cut, .. } = report;
    let frames = plural(*sent, "frame");
    stdio::println(format_args!("{frames} sent to {interface} in {seconds:.3} s"))?;
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
        let frames = plural(*cut, "frame");
        stdio::println(format_args!("{frames} sent as captured, cut short"))?;
    }
    Ok(())
}
