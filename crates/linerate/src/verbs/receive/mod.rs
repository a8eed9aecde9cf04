//! `linerate receive`: counts and checks UDP messages, and puts feeds in order.

mod metrics;
mod report;
mod requests;
mod stats;
mod values;
mod worker;

pub(in crate::verbs) use values::batch;

use crate::cli::stdio::plural;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use linerate_capture::privilege;
use linerate_net::cpu;
use linerate_udp::pattern::PayloadPattern;
use linerate_udp::{Backend, Delivery, Group, Metadata, Receiver, Reuseport};

use requests::Requests;

use crate::cli::as_usage_error;
use crate::cli::metrics::{Metrics, Publisher};
use crate::cli::progress::Stats;
use crate::cli::signals::Signals;
use crate::cli::stdio;
use crate::cli::values::{
    Cpus, cpus, deliveries, duration, endpoint, microseconds, parse_known, threads,
};

/// Arguments of `linerate receive`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Address and port to receive on, as 10.0.0.2:7000, 0.0.0.0:7000 or [::]:7000 (both versions of IP).
    #[arg(short, long, value_name = "ADDRESS:PORT", value_parser = endpoint)]
    bind: SocketAddr,

    /// With [::]: leave IPv4 to other sockets.
    #[arg(long)]
    only_v6: bool,

    /// Receive only messages that arrive on this interface.
    #[arg(short, long, value_name = "IFACE")]
    interface: Option<String>,

    /// Multicast group to join, as 239.1.1.1, 239.1.1.1@eth1, or SOURCE,GROUP@eth1 to receive from one sender
    /// only; repeatable.
    #[arg(short, long, value_name = "GROUP[@IFACE]")]
    join: Vec<Group>,

    /// Datagrams of a batch, at most. The kernel returns up to 1024 in a call; a larger batch takes several
    /// calls. With gro a datagram holds up to 64 messages, and a batch has at most 64 datagrams; with uring
    /// this is how many may wait.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = batch)]
    batch: usize,

    /// Bytes of the longest message. A longer one is truncated and counted.
    #[arg(long, value_name = "BYTES", default_value_t = 2048, value_parser = values::message_size)]
    message_size: usize,

    /// Backend: auto, recvmmsg, gro (datagrams joined by the kernel), uring (io_uring), xdp (past the network
    /// stack).
    #[arg(long, value_name = "BACKEND", default_value = "auto",
        value_parser = PossibleValuesParser::new(["auto", "recvmmsg", "gro", "uring", "xdp"])
            .map(|word| BackendOption(word.parse().ok())))]
    backend: BackendOption,

    /// With --backend auto: xdp where it is available. About twice as fast as gro; the messages bypass the host's
    /// firewall, and its other sockets get none of them.
    #[arg(long)]
    take_over: bool,

    /// Choose the backend by measuring: each receives for this time, and the one that costs the least CPU a
    /// message and loses none is taken. Messages that arrive during the measurement are counted, and not
    /// received.
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with_all = ["threads", "bind_b"])]
    calibrate: Option<Duration>,

    /// Threads that receive from the same socket.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = threads)]
    threads: usize,

    /// CPUs for the threads, such as `1` or `0,2-3`.
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    cpu: Option<Cpus>,

    /// End after this many messages; with --feed after this many datagrams.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// End after this time, as 10s, 500ms or 2m.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    time: Option<Duration>,

    /// Read the messages as packets of this feed: gaps, duplicates, sessions.
    #[arg(long, value_name = "FEED", value_parser = ["moldudp64"], conflicts_with = "threads")]
    feed: Option<String>,

    /// The second line of the feed: the first arrival of each message wins.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "feed", value_parser = endpoint)]
    bind_b: Option<SocketAddr>,

    /// Ask this request server of the feed for missing messages, at most 1000 times a second; its answers fill the
    /// gaps.
    #[arg(long, value_name = "HOST:PORT", requires = "feed", value_parser = endpoint)]
    request: Option<SocketAddr>,

    /// Check that payloads are what `linerate send --pattern` wrote: sequence, time or counted. time also
    /// measures the latency of a sender on this machine.
    #[arg(long, value_name = "PATTERN", conflicts_with = "feed",
        value_parser = parse_known::<PayloadPattern>(["sequence", "time", "counted"]))]
    check: Option<PayloadPattern>,

    /// Let the kernel timestamp messages, and measure how long each waited for the reader.
    #[arg(long)]
    timestamps: bool,

    /// Bytes of the socket's receive buffer, as far as net.core.rmem_max allows.
    #[arg(long, value_name = "BYTES", default_value = "8M", value_parser = values::buffer)]
    buffer: usize,

    /// Share the port with other receivers that have this option (SO_REUSEPORT): `flow` (a flow stays with
    /// one), or `cpu:N` or `spread:N` for N receivers (by the CPU that a message arrives on; at random). Each
    /// of them gets all messages of a multicast group.
    #[arg(long, value_name = "HOW", value_parser = values::steering)]
    reuseport: Option<Reuseport>,

    /// How xdp delivers frames: `af-xdp` (AF_XDP sockets), `ringbuf` (a BPF ring buffer that the program copies
    /// to), or `auto`: sockets with a zero-copy driver or --busy-poll, else the ring buffer, which is then
    /// faster [default: auto].
    #[arg(long, value_name = "DELIVERY", value_parser = deliveries())]
    xdp_delivery: Option<Delivery>,

    /// Bytes of the rings of xdp, which hold frames while the reader is delayed [default: 32M].
    #[arg(long, value_name = "BYTES", value_parser = values::ring)]
    ring: Option<usize>,

    /// Let the kernel poll the network card this long in each wait (SO_BUSY_POLL).
    #[arg(long, value_name = "MICROSECONDS", value_parser = microseconds)]
    busy_poll: Option<Duration>,

    /// Wait this long between calls while 640,000 messages a second or more arrive, so that a call returns
    /// more; 0 for never [default: 250 for xdp, 20 for gro, 100 for recvmmsg].
    #[arg(long, value_name = "MICROSECONDS", value_parser = microseconds, conflicts_with = "spin")]
    coalesce_usecs: Option<Duration>,

    /// Never sleep: the lowest latency, at the cost of a CPU for each thread.
    #[arg(long)]
    spin: bool,

    #[command(flatten)]
    stats: Stats,

    #[command(flatten)]
    metrics: Metrics,

    /// One JSON object on standard output at the end.
    #[arg(long)]
    json: bool,

    /// No status line and no summary.
    #[arg(short, long)]
    quiet: bool,
}

/// `--backend`; `None` for `auto`.
#[derive(Clone, Copy, Debug)]
struct BackendOption(Option<Backend>);

const AFTER_HELP: &str = "\
auto takes gro, else recvmmsg, which leave each datagram to the host. With --take-over it takes xdp where it is \
available, and says why not elsewhere. With --calibrate it takes what was best on the messages that arrived.

xdp takes only whole datagrams to the given addresses and port; everything else stays with the kernel. These \
datagrams bypass the firewall and connection tracking, IPsec, the filters of control groups and sk_lookup. Other \
receivers of a multicast group, in containers too, do not get them.

SIGINT or SIGTERM ends it, after the messages that have arrived; SIGUSR1 prints the counts.

Examples:
  linerate receive --bind 10.0.0.2:7000 --for 10s
  linerate receive -b 0.0.0.0:26400 -j 233.54.12.111@eth1 --feed moldudp64
  linerate receive -b 0.0.0.0:26400 -j 233.54.12.111@eth1 --feed moldudp64 \\
    --request 10.0.0.9:26401
  linerate receive --bind 10.0.0.2:7000 --count 1000000 --check sequence --json";

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    arguments.check().map_err(as_usage_error)?;
    cpu::check_affinity(arguments.cpus()).map_err(refused_cpu)?;
    let listener = arguments.metrics.listen()?;
    let signals = Signals::register()?;
    let receivers = arguments.open()?;
    let requests = arguments.request.map(Requests::open).transpose()?;
    if !arguments.quiet {
        report::announce(&receivers, arguments);
    }
    privilege::drop_all();
    signals.drop_privileges();
    // The threads have what this one has left: nothing.
    let running = worker::start(receivers, requests, arguments)?;
    let publisher =
        Publisher::default().metrics(listener, "receive", arguments.quiet, metrics::encode)?;
    let (statistics, choice) = running.follow(&signals, arguments, publisher);
    report::conclude(statistics, choice, arguments)
}

impl Arguments {
    /// Refuses options that contradict each other by their values, or have no effect.
    pub(crate) fn check(&self) -> Result<()> {
        if let (Some(_), Some(backend)) = (self.calibrate, self.backend.0) {
            bail!("--calibrate is for --backend auto: {backend} was asked for");
        }
        if let (true, Some(backend)) = (self.take_over, self.backend.0)
            && backend != Backend::Xdp
        {
            bail!("--take-over is for --backend auto: {backend} was asked for");
        }
        let of_xdp =
            [("--ring", self.ring.is_some()), ("--xdp-delivery", self.xdp_delivery.is_some())];
        if let Some((option, _)) = of_xdp.iter().find(|(_, given)| *given) {
            match self.backend.0 {
                Some(Backend::Xdp) => {}
                Some(other) => bail!("{option} is for the backend xdp: {other} was asked for"),
                None if self.several() || self.reuseport.is_some() => {
                    bail!("{option} is for the backend xdp, which has one reader and one port")
                }
                None if !self.take_over => {
                    bail!("{option} is for the backend xdp: add --take-over")
                }
                None => {}
            }
        }
        if self.busy_poll.is_some() && self.xdp_delivery == Some(Delivery::RingBuffer) {
            bail!("--busy-poll is for AF_XDP sockets: --xdp-delivery ringbuf was asked for");
        }
        let mut lines = [Some(self.bind), self.bind_b].into_iter().flatten().map(|line| line.ip());
        let is_joined = |line: &IpAddr| self.join.iter().any(|group| group.address == *line);
        if let Some(group) = lines.find(|line| line.is_multicast() && !is_joined(line)) {
            bail!(
                "{group} is a group, and nothing comes before it is joined: add --join {group}@IFACE"
            );
        }
        if self.timestamps && self.check == Some(PayloadPattern::Time) {
            bail!(
                "--timestamps and --check time both measure the latency, each from another time: choose one"
            );
        }
        if self.only_v6 && !self.bind.is_ipv6() {
            bail!("--only-v6 is for an IPv6 address such as [::]:7000: {} is none", self.bind);
        }
        if self.cpus().len() > self.threads {
            let cpus = plural(self.cpus().len() as u64, "CPU");
            bail!("--cpu names {cpus} for {}", plural(self.threads as u64, "thread"));
        }
        if self.reuseport.is_some() && self.bind.port() == 0 {
            bail!(
                "--reuseport needs a port that others can name: {} leaves the choice to the kernel",
                self.bind
            );
        }
        if self.bind_b == Some(self.bind) {
            bail!("both lines of the feed would be {}", self.bind);
        }
        if self.coalesce_usecs.is_some() && self.backend.0 == Some(Backend::Uring) {
            bail!("--coalesce-usecs is not for uring, which lets messages gather in its own wait");
        }
        Ok(())
    }

    /// More than the one reader that the rings of an interface have.
    fn several(&self) -> bool {
        self.threads > 1 || self.bind_b.is_some()
    }

    /// Whether consent is all that `xdp` lacks.
    fn awaits_consent(&self) -> bool {
        self.options(self.bind).awaits_consent()
    }

    fn cpus(&self) -> &[usize] {
        self.cpu.as_ref().map_or(&[], |cpus| &cpus.0)
    }

    /// One receiver a thread, or a line of the feed.
    fn open(&self) -> Result<Vec<Receiver>> {
        let first = self.receiver(self.bind)?;
        let mut receivers = vec![first];
        for _ in 1..self.threads {
            receivers.push(receivers[0].try_clone()?);
        }
        if let Some(second) = self.bind_b {
            receivers.push(self.receiver(second).context("the second line")?);
        }
        Ok(receivers)
    }

    fn receiver(&self, bind: SocketAddr) -> Result<Receiver> {
        Ok(Receiver::open(self.options(bind))?)
    }

    fn options(&self, bind: SocketAddr) -> linerate_udp::Options {
        // Of two lines that are bound to groups, each joins its own.
        let other = if bind == self.bind { self.bind_b } else { Some(self.bind) };
        let joins = |group: &&Group| {
            group.address == bind.ip() || other.is_none_or(|other| group.address != other.ip())
        };
        let defaults = linerate_udp::Options::new(bind);
        linerate_udp::Options {
            interface: self.interface.clone(),
            groups: self.join.iter().filter(joins).cloned().collect(),
            batch: self.batch,
            message_size: self.message_size,
            backend: self.backend.0,
            take_over: self.take_over,
            // Two lines may come by two interfaces, each with rings, where that is asked for by name.
            multiple_readers: self.several() && self.backend.0.is_none(),
            reuseport: self.reuseport.unwrap_or_default(),
            calibrate: self.calibrate,
            metadata: Metadata { timestamp: self.timestamps, ..Metadata::default() },
            recv_buffer_size: Some(self.buffer),
            only_v6: self.only_v6,
            delivery: self.xdp_delivery.unwrap_or_default(),
            busy_poll: self.busy_poll,
            spin: self.spin,
            ring_size: self.ring.unwrap_or(defaults.ring_size),
            coalesce: self.coalesce_usecs,
            ..defaults
        }
    }
}

/// Prints a message on standard error.
fn tell(text: &str) {
    stdio::eprintln(format_args!("linerate: {text}"));
}

/// A CPU that a thread cannot stay on, and which it could.
fn refused_cpu((cpu, error): (usize, io::Error)) -> anyhow::Error {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let allowed =
        allowed.map_or_else(String::new, |cpus| format!("; this process may use {}", cpus.trim()));
    anyhow::Error::new(error).context(format!("cannot stay on CPU {cpu}{allowed}"))
}
