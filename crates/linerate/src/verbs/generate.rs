//! `linerate generate`: synthetic traffic.

use std::fmt;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use indicatif::ProgressBar;
use linerate_generate::fields::{Addresses, Ports};
use linerate_generate::{
    Backend, Config, Generator, Options, PayloadHeader, Progress, RandomFields, Rate, Report,
    Running, Sizes, Transport,
};
use linerate_service::{MetricEncoder, Unit};
use linerate_wire::ethernet::Address;
use linerate_wire::tcp::Flags;
use serde::Serialize;

use crate::cli::json::{self, Schema};
use crate::cli::metrics::{Metrics, Publisher};
use crate::cli::progress::{self, Meter, Moment, Stats, StatusLine, scaled};
use crate::cli::signals::stop_flag;
use crate::cli::stdio;
use crate::cli::stdio::plural;
use crate::cli::values::{one_cpu, parse_known, positive, seconds};

/// Arguments of `linerate generate`.
#[derive(Debug, Args)]
#[command(after_help = "\
Sizes are those of the frame in memory: Ethernet header and VLAN tag included, without the four bytes \
of frame check sequence that a wire adds. A field with a range counts up, source port first, \
then destination port, source and destination address; --random makes it random instead.

The fastest backend, XDP live frames, works on a veth pair only if the peer has an XDP program or GRO \
on. `sent` counts every frame given to the interface, `refused` those that the peer could not \
accept.

Examples:
  linerate generate -i veth0 --count 1000000
  linerate generate -i veth0 --seconds 10 --rate 1Mpps --flows 100
  linerate generate -i veth0 --tcp --tcp-flags syn --src 10.0.0.0/8 --random src
  linerate generate -i veth0 --size 64-1500 --random src,sport,size --seed 7")]
pub(crate) struct Arguments {
    /// Output interface.
    #[arg(short, long, value_name = "IFACE")]
    interface: String,
    /// Frames to send; unlimited if neither this nor --seconds is given.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Stop after this many seconds. With --rate, what was late is still sent, for one more second.
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Frame length: bytes, a range as 64-1500, a list as 64,64,1500, or imix (7:4:1 of 64, 590 and
    /// 1514 bytes) [default: 64, or what the headers take]
    #[arg(short, long)]
    size: Option<Sizes>,
    /// Speed: max, frames per second as 450kpps, or bits per second as 2Gbps.
    #[arg(short, long, default_value = "max")]
    rate: Rate,
    /// Start the fields again after this many flows; varies the source port if nothing else varies.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    flows: Option<u64>,
    /// Choose the flow of each frame by Zipf's law with this exponent, as 1.1: few flows have most frames.
    #[arg(long, value_name = "S", requires = "flows", value_parser = positive)]
    zipf: Option<f64>,
    /// Source addresses: one, a range as 10.0.0.1-10.0.0.9, or a network as 10.0.0.0/24
    /// [default: 198.18.0.1 or 2001:2::1]
    #[arg(long, value_name = "ADDRESSES")]
    src: Option<Addresses>,
    /// Destination addresses [default: 198.19.0.1 or 2001:2:0:1::1]
    #[arg(long, value_name = "ADDRESSES")]
    dst: Option<Addresses>,
    /// Source ports: one, or a range as 1024-65535 [default: 1024]
    #[arg(long, value_name = "PORTS")]
    sport: Option<Ports>,
    /// Destination ports [default: 9, discard]
    #[arg(long, value_name = "PORTS")]
    dport: Option<Ports>,
    /// Source hardware address [default: the interface's own]
    #[arg(long, value_name = "MAC")]
    src_mac: Option<Address>,
    /// Destination hardware address [default: a veth peer's if it is in this namespace, else
    /// 02:4c:4e:52:54:02, which no host has]
    #[arg(long, value_name = "MAC")]
    dst_mac: Option<Address>,
    /// Send UDP datagrams (the default).
    #[arg(long, conflicts_with = "tcp")]
    udp: bool,
    /// Send TCP segments (of no connection).
    #[arg(long)]
    tcp: bool,
    /// Flags of the TCP segments: a list of fin, syn, rst, psh, ack, urg, ece, cwr [default: psh,ack]
    #[arg(long, value_name = "FLAGS", requires = "tcp", value_parser = tcp_flags)]
    tcp_flags: Option<Flags>,
    /// TTL or hop limit.
    #[arg(long, value_name = "N", default_value_t = 64)]
    ttl: u8,
    /// Differentiated services code point.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=63))]
    dscp: u8,
    /// Clear DF in IPv4 headers, so that routers may fragment the packets.
    #[arg(long)]
    no_df: bool,
    /// Put an 802.1Q tag with this identifier into each frame; 0 is a priority tag.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(..=4094))]
    vlan: Option<u16>,
    /// Fields that are random: a list of src, dst, sport, dport, mac (or smac, dmac), size.
    #[arg(long, value_name = "FIELDS")]
    random: Option<RandomFields>,
    /// Seed of the random numbers; the same seed gives the same frames.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Payload: none (all zero), sequence (LNRT and the frame's number), time (and nanoseconds of
    /// CLOCK_MONOTONIC) [default: sequence where the shortest frame has room]
    #[arg(long)]
    stamp: Option<PayloadHeader>,
    /// CPU that sends.
    #[arg(long, value_name = "N", value_parser = one_cpu)]
    cpu: Option<usize>,
    /// How frames are sent: auto, live (XDP live frames), packet (AF_PACKET), xdp (AF_XDP).
    #[arg(long, default_value = "auto",
        value_parser = parse_known::<Backend>(["auto", "live", "packet", "xdp"]))]
    backend: Backend,
    /// Flood an interface even if a default route uses it.
    #[arg(long)]
    allow_default_route: bool,
    /// Exit with status 1 if the requested rate was not reached.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    stats: Stats,
    #[command(flatten)]
    metrics: Metrics,
    /// Print one JSON object on standard output at the end.
    #[arg(long)]
    json: bool,
    /// No progress and no summary.
    #[arg(short, long)]
    quiet: bool,
}

/// Generates, and reports.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let listener = arguments.metrics.listen()?;
    let config = Config::new(&arguments.interface, arguments.options())?;
    let interrupted = stop_flag()?;
    let Stats { stats } = arguments.stats;
    let bar = progress::bar(config.count(), arguments.quiet || stats.is_some());
    let line =
        stats.and_then(|_| StatusLine::new(arguments.stats, arguments.json, arguments.quiet));
    let running = Generator::start(config)?;
    let publisher = Publisher::default().metrics(listener, "generate", arguments.quiet, encode)?;
    follow(&running, &bar, line, &interrupted, publisher);
    let report = running.wait()?;
    bar.finish_and_clear();
    if let (0, Some(error)) = (report.sent, &report.error) {
        anyhow::bail!("{error}");
    }
    if arguments.json {
        json::print(Schema::Generate, &report)?;
    } else if !arguments.quiet {
        summarise(&report)?;
    }
    if let Some(error) = &report.error {
        anyhow::bail!("ended after {}: {error}", plural(report.sent, "frame"));
    }
    if report.sent > 0 && report.accepted == 0 {
        let hint = report.hint.as_deref().unwrap_or("no reason given");
        anyhow::bail!("0 of {} accepted: {hint}", plural(report.sent, "frame"));
    }
    check_rate(report.rate_reached, arguments.strict, arguments.quiet)?;
    Ok(ExitCode::SUCCESS)
}

fn tcp_flags(text: &str) -> Result<Flags, String> {
    const NAMES: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];
    text.split(',').try_fold(Flags::default(), |flags, name| {
        let bit = NAMES.iter().position(|known| *known == name.trim());
        let bit = bit.ok_or_else(|| format!("expected a list of {}", NAMES.join(", ")))?;
        Ok(flags.union(Flags(1 << bit)))
    })
}

/// Says that the requested rate was not reached, `part` being how much of it was: with `strict` that is an error.
pub(super) fn check_rate(part: Option<f64>, strict: bool, quiet: bool) -> Result<()> {
    let Some(part) = part.filter(|part| *part < 1.0) else { return Ok(()) };
    let text = format!("the requested rate was not reached: {:.1}% of it", part * 100.0);
    if strict {
        anyhow::bail!(text);
    }
    if !quiet {
        stdio::warn(text);
    }
    Ok(())
}

impl Arguments {
    fn options(&self) -> Options {
        Options {
            count: self.count,
            duration: self.seconds,
            sizes: self.size.clone(),
            rate: self.rate,
            flows: self.flows,
            zipf: self.zipf,
            source: self.src,
            destination: self.dst,
            source_ports: self.sport,
            destination_ports: self.dport,
            source_mac: self.src_mac,
            destination_mac: self.dst_mac,
            transport: if self.tcp { Transport::Tcp } else { Transport::Udp },
            tcp_flags: self.tcp_flags,
            ttl: Some(self.ttl),
            dscp: self.dscp,
            fragmentable: self.no_df,
            vlan: self.vlan,
            random: self.random.unwrap_or_default(),
            seed: self.seed,
            stamp: self.stamp,
            cpu: self.cpu,
            backend: self.backend,
            allow_default_route: self.allow_default_route,
        }
    }
}

/// The metrics.
fn encode(progress: &Progress, encoder: &mut MetricEncoder<'_, '_>) -> fmt::Result {
    let Progress { sent, refused, bytes, .. } = *progress;
    let help = "Frames given to the interface";
    encoder.counter("linerate_generate_sent_packets", help, None, sent)?;
    let help = "Bytes of the frames given to the interface";
    encoder.counter("linerate_generate_sent", help, Some(&Unit::Bytes), bytes)?;
    let help = "Frames that were not sent, by cause";
    let refused = [(["refused"], refused)];
    encoder.counters("linerate_generate_dropped_packets", help, None, ["cause"], refused)
}

fn follow(
    running: &Running,
    bar: &ProgressBar,
    mut line: Option<StatusLine>,
    interrupted: &AtomicBool,
    mut publisher: Publisher<Progress>,
) {
    let mut meter = Meter::start();
    let mut round = 0_u32;
    while !running.is_finished() {
        std::thread::sleep(Duration::from_millis(10));
        if interrupted.load(Ordering::Relaxed) {
            running.stop();
        }
        publisher.update(|| running.progress());
        if let Some(line) = &mut line
            && line.is_due()
        {
            line.show(Schema::GenerateStats, &GenerateStats::of(running.progress(), &mut meter));
        }
        round += 1;
        if !round.is_multiple_of(20) || bar.is_hidden() {
            continue;
        }
        let stats = GenerateStats::of(running.progress(), &mut meter);
        bar.set_position(stats.progress.sent);
        bar.set_message(stats.to_string());
    }
    StatusLine::clear(line);
}

/// What was sent so far, with rates. The names are those of the report.
#[derive(Debug, Serialize)]
struct GenerateStats {
    #[serde(flatten)]
    moment: Moment,
    packets_per_second: f64,
    bits_per_second: f64,
    #[serde(flatten)]
    progress: Progress,
}

impl GenerateStats {
    fn of(progress: Progress, meter: &mut Meter<2>) -> Self {
        let (moment, [packets, bytes]) = meter.read([progress.sent, progress.bytes]);
        Self { moment, packets_per_second: packets, bits_per_second: 8.0 * bytes, progress }
    }
}

impl fmt::Display for GenerateStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Progress { sent, refused, .. } = self.progress;
        write!(f, "{sent} sent, {}, {refused} refused", scaled(self.packets_per_second, "pps"))
    }
}

fn summarise(report: &Report) -> Result<()> {
    let Report { interface, backend, reason, sent, accepted, refused, seconds, .. } = report;
    let frames = plural(*sent, "frame");
    stdio::println(format_args!(
        "{frames} sent to {interface} in {seconds:.3} s through {backend} ({reason})"
    ))?;
    stdio::println(format_args!(
        "{}, {}; {accepted} accepted, {refused} refused",
        scaled(report.packets_per_second, "pps"),
        scaled(report.bits_per_second, "b/s")
    ))?;
    if let Some(hint) = &report.hint {
        stdio::println(format_args!("refused because {hint}"))?;
    }
    Ok(())
}
