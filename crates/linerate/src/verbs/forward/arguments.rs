//! The command line of `linerate forward`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use linerate_forward::config::{self, Lifetime, Metrics, Mode, Statistics};
use linerate_forward::deny::Target;
use linerate_forward::prefix::Prefix;
use linerate_forward::session::{self, Sort, State};
use linerate_forward::tuple::{FiveTuple, Protocol};

use super::values;

/// Arguments of `linerate forward`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

const AFTER_HELP: &str = "\
The kernel routes, filters and translates the first packets of a session; the programs learn what it did and \
do the same to the rest at the driver. No routes are configured. Everything but `run` and `check-config` works \
on the pinned tables, also when no daemon runs.

Examples:
  linerate forward run -i eth1 -i eth2
  linerate forward status
  linerate forward sessions --sort bytes --limit 20
  linerate forward block 203.0.113.0/24 --for 10m";

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Forward between interfaces, until a signal ends it.
    Run(Box<Run>),
    /// Read a configuration file and say what is wrong with it, or what it comes to.
    CheckConfig(CheckConfig),
    /// Print what an instance is, what it forwarded, and why packets went to the kernel.
    Status(Status),
    /// List sessions.
    Sessions(Sessions),
    /// Watch rates, CPUs and the reasons of the slow path live.
    Top(Top),
    /// End sessions: their next packets ask the kernel again.
    Flush(Flush),
    /// Drop what comes from or goes to an address or a prefix, at the driver.
    Block(Block),
    /// Let an address or a prefix through again.
    Unblock(Unblock),
    /// List what is blocked.
    Blocked(Blocked),
    /// Take away programs and tables; the kernel forwards everything again.
    Detach(Detach),
}

/// Which accelerator is meant.
#[derive(Debug, Args)]
pub(super) struct Instance {
    /// Name of the instance; by default that of the network namespace, `default` for the one of the host.
    #[arg(long, value_name = "NAME")]
    pub(super) instance: Option<String>,
}

impl Instance {
    /// Opens it.
    pub(super) fn open(&self) -> linerate_forward::Result<linerate_forward::instance::Instance> {
        linerate_forward::instance::Instance::open(self.instance.as_deref())
    }
}

/// `linerate forward run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub(super) struct Run {
    /// Accelerate this interface; given for each that packets come in or leave by.
    #[arg(short, long, value_name = "IFACE", required_unless_present = "config")]
    pub(super) interface: Vec<String>,

    /// Read the configuration from this file (TOML); options given here come before it.
    #[arg(short, long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    #[command(flatten)]
    pub(super) instance: Instance,

    /// `session`: learn from what the kernel does. `fib`: ask the kernel's routing table for each packet,
    /// for comparison. [default: session]
    #[arg(long, value_name = "MODE", value_parser = values::modes())]
    pub(super) mode: Option<Mode>,

    /// How sessions are counted: `slot` (in the session, by the CPU that owns it: exact, and the fastest of
    /// those that count), `none`, or for comparison `shared`, `per-cpu` or `split`, which keep sessions in
    /// the kernel's hashes. [default: slot]
    #[arg(long, value_name = "DESIGN", value_parser = values::designs())]
    pub(super) statistics: Option<Statistics>,

    /// Room for this many sessions, with k or M for thousands or millions; the memory it takes is said
    /// first. [default: 1M]
    #[arg(long, value_name = "N", value_parser = config::count)]
    pub(super) max_sessions: Option<u64>,

    /// Forget a UDP session without packets for this long. [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = config::duration)]
    pub(super) udp_idle: Option<Duration>,

    /// Forget a TCP session without packets for this long. [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = config::duration)]
    pub(super) tcp_idle: Option<Duration>,

    /// End a session of this age, packets or not; `off` for never. [default: off]
    #[arg(long, value_name = "TIME")]
    pub(super) lifetime: Option<Lifetime>,

    /// Have one packet of each session ask the kernel again after this long. [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = config::duration)]
    pub(super) relearn: Option<Duration>,

    /// How long the programs forward by themselves once the daemon is dead. [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = config::duration)]
    pub(super) hand_back: Option<Duration>,

    /// Serve metrics for Prometheus here, as http://ADDRESS/metrics; `off` for nowhere.
    /// [default: 127.0.0.1:9818]
    #[arg(long, value_name = "ADDRESS")]
    pub(super) metrics: Option<Metrics>,

    /// At the end leave programs and tables where they are, for the next `run` to adopt.
    #[arg(long)]
    pub(super) leave: bool,

    /// Change nothing that stands in the way of an interface, only say it.
    #[arg(long)]
    pub(super) no_mend: bool,

    /// Send no frames out of the interfaces to prove that they can.
    #[arg(long)]
    pub(super) no_probe: bool,

    /// Form of the log on standard error.
    #[arg(long, value_name = "FORM", default_value = "text")]
    pub(super) log: Form,
}

const RUN_HELP: &str = "\
SIGINT and SIGTERM end it: programs and tables are taken away and the kernel forwards everything, or, with \
--leave, the programs go on until --hand-back is over and the next `run` adopts them with their sessions. \
SIGHUP reads the configuration file again. SIGUSR1 logs the counts. When the daemon dies otherwise the \
programs go on for --hand-back, and then hand everything to the kernel by themselves.

Examples:
  linerate forward run -i eth1 -i eth2
  linerate forward run -c /etc/linerate/forward.toml --leave --log json";

/// `linerate forward check-config`.
#[derive(Debug, Args)]
pub(super) struct CheckConfig {
    /// The file.
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,

    /// One JSON object on standard output: the whole configuration, defaults filled in.
    #[arg(long)]
    pub(super) json: bool,
}

/// `linerate forward status`.
#[derive(Debug, Args)]
pub(super) struct Status {
    #[command(flatten)]
    pub(super) instance: Instance,

    /// One JSON object on standard output.
    #[arg(long)]
    pub(super) json: bool,
}

/// Which sessions are meant: those that all holds for that is given. What may be given several times holds
/// for any of its values.
#[derive(Debug, Args)]
pub(super) struct Filter {
    /// Only this one: protocol, source, port, destination and port, as udp,192.0.2.1,5000,198.51.100.7,53.
    #[arg(long, value_name = "SESSION")]
    pub(super) session: Option<FiveTuple>,

    /// Of this protocol.
    #[arg(long, value_name = "PROTOCOL", value_parser = values::protocols())]
    pub(super) protocol: Option<Protocol>,

    /// From or to this address or prefix, before or after translation; repeatable.
    #[arg(long, value_name = "ADDRESS[/BITS]")]
    pub(super) address: Vec<Prefix>,

    /// From or to this port, before or after translation; repeatable.
    #[arg(long, value_name = "PORT")]
    pub(super) port: Vec<u16>,

    /// Coming in or leaving by this interface; repeatable.
    #[arg(short, long, value_name = "IFACE")]
    pub(super) interface: Vec<String>,

    /// Tagged with this VLAN where it comes in or leaves; repeatable.
    #[arg(long, value_name = "VLAN", value_parser = clap::value_parser!(u16).range(..4096))]
    pub(super) vlan: Vec<u16>,

    /// Coming in with this DSCP; repeatable.
    #[arg(long, value_name = "DSCP", value_parser = clap::value_parser!(u8).range(..64))]
    pub(super) dscp: Vec<u8>,

    /// Translated, or (`--nat=no`) not.
    #[arg(long, value_name = "yes|no", num_args = 0..=1, require_equals = true,
        default_missing_value = "yes", value_parser = values::yes_or_no())]
    pub(super) nat: Option<bool>,

    /// In this state: `fast`; `due` or `stale`, whose next packet asks the kernel; `ended`, which is shown
    /// only if asked for. Repeatable.
    #[arg(long, value_name = "STATE", value_parser = values::states())]
    pub(super) state: Vec<State>,
}

impl Filter {
    /// The same for the table.
    pub(super) fn filter(&self) -> session::Filter {
        session::Filter {
            tuple: self.session,
            protocol: self.protocol,
            addresses: self.address.clone(),
            ports: self.port.clone(),
            interfaces: self.interface.clone(),
            vlans: self.vlan.clone(),
            dscps: self.dscp.clone(),
            nat: self.nat,
            states: self.state.clone(),
        }
    }
}

/// `linerate forward sessions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  linerate forward sessions --sort bytes --limit 20
  linerate forward sessions --address 192.0.2.0/24 --protocol tcp --json")]
pub(super) struct Sessions {
    #[command(flatten)]
    pub(super) instance: Instance,

    #[command(flatten)]
    pub(super) filter: Filter,

    /// The order: the largest first, but the smallest first of addresses. The rates are measured over
    /// --interval.
    #[arg(long, value_name = "BY", default_value = "packets", value_parser = values::sorts())]
    pub(super) sort: Sort,

    /// At most this many; 0 for all.
    #[arg(long, value_name = "N", default_value = "50")]
    pub(super) limit: usize,

    /// Time over which rates are measured.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::interval)]
    pub(super) interval: Duration,

    /// One JSON object for each session on standard output, a line each.
    #[arg(long)]
    pub(super) json: bool,
}

/// `linerate forward top`.
#[derive(Debug, Args)]
#[command(after_help = "\
Keys: q or Esc ends it, p holds it, s sorts sessions by packets or by bytes.

It needs a terminal; --once prints one view, measured over one interval, and needs none.")]
pub(super) struct Top {
    #[command(flatten)]
    pub(super) instance: Instance,

    /// Time between two views.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::interval)]
    pub(super) interval: Duration,

    /// Print one view and end.
    #[arg(long)]
    pub(super) once: bool,

    /// Show this many sessions, the fastest; 0 for none.
    #[arg(long, value_name = "N", default_value = "10")]
    pub(super) limit: usize,

    /// With --once: one JSON object on standard output.
    #[arg(long, requires = "once")]
    pub(super) json: bool,
}

/// `linerate forward flush`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without a filter all sessions end. A session that goes on is learned again at its next packets, and counts \
from 0.")]
pub(super) struct Flush {
    #[command(flatten)]
    pub(super) instance: Instance,

    #[command(flatten)]
    pub(super) filter: Filter,

    /// One JSON object on standard output.
    #[arg(long)]
    pub(super) json: bool,
}

/// `linerate forward block`.
#[derive(Debug, Args)]
#[command(after_help = "\
What is blocked is dropped before the kernel sees it, whether it would have been forwarded or was for this \
host: do not block the address that you are logged in from. Of all prefixes that hold an address, the \
longest counts. Blocks end with `detach`.

Examples:
  linerate forward block 203.0.113.7
  linerate forward block 2001:db8:bad::/48 --for 10m
  linerate forward block tcp,192.0.2.1,4242,198.51.100.9,80")]
pub(super) struct Block {
    /// What to block: an address, a prefix, or a session as `sessions` prints it.
    #[arg(value_name = "ADDRESS[/BITS]|SESSION")]
    pub(super) target: Target,

    /// End by itself after this time.
    #[arg(long = "for", value_name = "TIME", value_parser = values::time)]
    pub(super) duration: Option<Duration>,

    #[command(flatten)]
    pub(super) instance: Instance,

    /// One JSON object on standard output.
    #[arg(long)]
    pub(super) json: bool,
}

/// `linerate forward unblock`.
#[derive(Debug, Args)]
pub(super) struct Unblock {
    /// What was blocked, as `blocked` prints it.
    #[arg(value_name = "ADDRESS[/BITS]|SESSION", required_unless_present = "all")]
    pub(super) target: Option<Target>,

    /// Everything that is blocked.
    #[arg(long, conflicts_with = "target")]
    pub(super) all: bool,

    #[command(flatten)]
    pub(super) instance: Instance,

    /// One JSON object on standard output.
    #[arg(long)]
    pub(super) json: bool,
}

/// `linerate forward blocked`.
#[derive(Debug, Args)]
pub(super) struct Blocked {
    #[command(flatten)]
    pub(super) instance: Instance,

    /// One JSON object for each on standard output, a line each.
    #[arg(long)]
    pub(super) json: bool,
}

/// `linerate forward detach`.
#[derive(Debug, Args)]
#[command(after_help = "\
It does nothing, successfully, where nothing is attached. A daemon that still runs notices and ends.")]
pub(super) struct Detach {
    #[command(flatten)]
    pub(super) instance: Instance,

    /// Every instance whose interfaces are in this network namespace.
    #[arg(long, conflicts_with = "instance")]
    pub(super) all: bool,

    /// One JSON object on standard output.
    #[arg(long)]
    pub(super) json: bool,
}

/// Form of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}
