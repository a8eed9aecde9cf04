//! The command line of `linerate forward`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use linerate_flow::outputs::Destination;
use linerate_forward::config::{self, Lifetime, MaxSessions, Statistics};
use linerate_forward::datapath::Mode;
use linerate_forward::prefix::Prefix;
use linerate_forward::table::deny::Target;
use linerate_forward::table::session::{self, Sort, State};
use linerate_forward::tuple::{FiveTuple, Protocol};
use linerate_service::ListenAddress;

use super::values;

/// Arguments of `linerate forward`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(super) command: Command,
}

const AFTER_HELP: &str = "\
The kernel routes, filters and translates the first packets of a session. XDP programs learn what it did and \
do the same to the rest at the driver. There are no routes to configure. All commands except `run` and \
`check-config` work on the pinned tables, with or without a daemon.

Examples:
  linerate forward run -i eth1 -i eth2
  linerate forward status
  linerate forward sessions --sort bytes --limit 20
  linerate forward block 203.0.113.0/24 --for 10m";

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    #[command(flatten)]
    Router(RouterCommand),
    /// Show rates, CPUs and the reasons of the slow path, live.
    Top(Top),
}

/// The commands that `linerate-router` has, too.
#[derive(Debug, Subcommand)]
pub(crate) enum RouterCommand {
    /// Forward between interfaces until a signal stops it.
    Run(Box<Run>),
    /// Check a configuration file and print the complete configuration.
    CheckConfig(CheckConfig),
    /// Print the state of an instance, and why packets took the slow path.
    Status(Status),
    /// List sessions.
    Sessions(Box<Sessions>),
    /// List connections with their packets and bytes, on the fast path and through the kernel.
    Accounting(Accounting),
    /// End sessions: their next packets go to the kernel.
    Flush(Box<Flush>),
    /// Drop packets from or to an address or prefix, at the driver.
    Block(Box<Block>),
    /// Stop blocking an address or prefix.
    Unblock(Unblock),
    /// List what is blocked.
    Blocked(Blocked),
    /// Detach programs and remove tables; the kernel forwards everything again.
    Detach(Detach),
}

/// Selects an instance.
#[derive(Debug, Args)]
pub(crate) struct Instance {
    /// Name of the instance [default: that of the network namespace, `default` on the host]
    #[arg(long, value_name = "NAME", value_parser = values::instance)]
    pub(super) instance: Option<String>,
}

impl Instance {
    /// Opens it.
    pub(super) fn open(
        &self,
    ) -> linerate_forward::Result<linerate_forward::runtime::instance::Instance> {
        linerate_forward::runtime::instance::Instance::open(self.instance.as_deref())
    }
}

/// An instance, and how the answer is printed.
#[derive(Debug, Args)]
pub(crate) struct Query {
    #[command(flatten)]
    pub(super) instance: Instance,

    /// Print JSON: one object, or one per line for each entry of a list.
    #[arg(long)]
    pub(super) json: bool,
}

/// `linerate forward run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub(crate) struct Run {
    /// Accelerate this interface; repeat for each input and output interface.
    #[arg(short, long, value_name = "IFACE", required_unless_present = "config")]
    pub(super) interface: Vec<String>,

    /// Read the configuration from this file (TOML); options on the command line override it.
    #[arg(short, long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    #[command(flatten)]
    pub(super) instance: Instance,

    /// `xdp` or `tc` instead of the fastest datapath that is right for each session. [default: auto]
    #[arg(long, value_name = "DATAPATH")]
    pub(super) datapath: Option<Mode>,

    /// `slot` counts packets and bytes of each session, `none` does not. [default: slot]
    #[arg(long, value_name = "WHERE", value_parser = values::statistics())]
    pub(super) statistics: Option<Statistics>,

    /// Size the table for this many sessions; suffixes k and M. `auto` takes at most 1/32 of the memory, and two
    /// sessions for each of `nf_conntrack_max` connections. The log states the memory first. [default: auto]
    #[arg(long, value_name = "N")]
    pub(super) max_sessions: Option<MaxSessions>,

    /// Idle timeout of UDP sessions. [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = config::duration)]
    pub(super) udp_idle: Option<Duration>,

    /// Idle timeout of TCP sessions. [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = config::duration)]
    pub(super) tcp_idle: Option<Duration>,

    /// Maximum age of a session, idle or not; `off` for none. [default: off]
    #[arg(long, value_name = "TIME")]
    pub(super) lifetime: Option<Lifetime>,

    /// Send one packet of each session through the kernel after this time. [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = config::duration)]
    pub(super) revalidate: Option<Duration>,

    /// When the daemon dies, keep forwarding this long, then leave every packet to the kernel. [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = config::duration)]
    pub(super) fail_open_after: Option<Duration>,

    /// Serve Prometheus metrics at http://ADDRESS/metrics; `off` for none. [default: 127.0.0.1:9818]
    #[arg(long, value_name = "ADDRESS")]
    pub(super) metrics: Option<ListenAddress>,

    /// Have the packets and bytes of this many connections, the largest, in the metrics. [default: 0]
    #[arg(long, value_name = "N")]
    pub(super) metrics_connections: Option<usize>,

    /// Serve a page with live charts at http://ADDRESS/. ADDRESS is 127.0.0.1:9820, or 9820 for a port on the loopback
    /// interface. [default: off]
    #[arg(long, value_name = "ADDRESS")]
    pub(super) web: Option<ListenAddress>,

    /// Write flow records of sessions and NAT events to Parquet files in this folder, or send them to an IPFIX
    /// collector: `ipfix://HOST[:PORT]` (UDP), `ipfix+tcp://…` or `ipfix+tls://…`. Repeatable.
    #[arg(long, value_name = "FOLDER|URL")]
    pub(super) flows: Vec<Destination>,

    /// Name of this instance in the paths below the folder of --flows. [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub(super) sensor: Option<String>,

    /// Let this group read the Parquet files of --flows (mode 0640). [default: only their owner, 0600]
    #[arg(long, value_name = "NAME")]
    pub(super) group: Option<String>,

    /// A session that continues gets a flow record after this time. [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = config::duration)]
    pub(super) active_timeout: Option<Duration>,

    /// Complete the Parquet files of --flows after this time. [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = config::duration)]
    pub(super) flow_file_time: Option<Duration>,

    /// Delete the Parquet files of --flows, of this --sensor, whose hour ended longer ago than this, such as `90d`.
    /// [default: off]
    #[arg(long, value_name = "AGE|off")]
    pub(super) flows_keep: Option<Lifetime>,

    /// Keep a part (`10%`) or size (`20G`) of the file system of --flows free: the Parquet files of the oldest hours, of
    /// this --sensor, are deleted first.
    #[arg(long, value_name = "SHARE")]
    pub(super) flows_keep_free: Option<String>,

    /// Verify TCP and UDP checksums of tracked sessions where conntrack does, at the cost of reading the payload. By
    /// default they are not verified, as nftables' flowtable does not: a wrong checksum stays wrong.
    #[arg(long)]
    pub(super) verify_checksums: bool,

    /// On exit, keep programs and tables in place for the next `run` to adopt.
    #[arg(long)]
    pub(super) persist: bool,

    /// Do not fix settings of interfaces that prevent acceleration; only report them.
    #[arg(long)]
    pub(super) no_fix: bool,

    /// Do not send probe frames to verify that the interfaces transmit.
    #[arg(long)]
    pub(super) no_probe: bool,

    /// Format of the log on standard error.
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(super) log: LogFormat,
}

const RUN_HELP: &str = "\
SIGINT and SIGTERM stop it: it detaches the programs, and the kernel forwards everything. With --persist the \
programs keep forwarding for --fail-open-after, and the next `run` adopts them with their sessions. \
SIGHUP reloads the configuration file. SIGUSR1 logs the counters. If the daemon dies, the programs \
keep forwarding for --fail-open-after, and then leave every packet to the kernel.

Examples:
  linerate forward run -i eth1 -i eth2
  linerate forward run -c /etc/linerate/forward.toml --persist --log json";

/// `linerate forward check-config`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  linerate forward check-config /etc/linerate/forward.toml")]
pub(crate) struct CheckConfig {
    /// The file.
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,

    /// Print the complete configuration as one JSON object.
    #[arg(long)]
    pub(super) json: bool,
}

/// `linerate forward status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  linerate forward status
  linerate forward status --json | jq .reasons")]
pub(crate) struct Status {
    #[command(flatten)]
    pub(super) query: Query,
}

/// Selects sessions that match all given options. A repeated option matches any of its values.
#[derive(Debug, Args)]
pub(crate) struct Filter {
    /// Exactly this one: protocol, source, port, destination and port, as udp,192.0.2.1,5000,198.51.100.7,53.
    #[arg(long, value_name = "SESSION")]
    pub(super) session: Option<FiveTuple>,

    /// Transport protocol.
    #[arg(long, value_name = "PROTOCOL", value_parser = values::protocols())]
    pub(super) protocol: Option<Protocol>,

    /// Source or destination address or prefix, before or after NAT; repeatable.
    #[arg(long, value_name = "ADDRESS[/BITS]")]
    pub(super) address: Vec<Prefix>,

    /// Source or destination port, before or after NAT; repeatable.
    #[arg(long, value_name = "PORT")]
    pub(super) port: Vec<u16>,

    /// Input or output interface; repeatable.
    #[arg(short, long, value_name = "IFACE")]
    pub(super) interface: Vec<String>,

    /// VLAN at input or output; repeatable.
    #[arg(long, value_name = "VLAN", value_parser = clap::value_parser!(u16).range(..4096))]
    pub(super) vlan: Vec<u16>,

    /// DSCP at input; repeatable.
    #[arg(long, value_name = "DSCP", value_parser = clap::value_parser!(u8).range(..64))]
    pub(super) dscp: Vec<u8>,

    /// With NAT, or (`--nat=no`) without.
    #[arg(long, value_name = "yes|no", num_args = 0..=1, require_equals = true,
        default_missing_value = "yes", value_parser = values::yes_or_no())]
    pub(super) nat: Option<bool>,

    /// State: `fast`; `due` or `stale`, whose next packet goes to the kernel; `ended`, hidden by default.
    /// Repeatable.
    #[arg(long, value_name = "STATE", value_parser = values::states())]
    pub(super) state: Vec<State>,
}

impl Filter {
    /// The same for the library.
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
pub(crate) struct Sessions {
    #[command(flatten)]
    pub(super) query: Query,

    #[command(flatten)]
    pub(super) filter: Filter,

    /// Sort by this, largest first, addresses smallest first. Rates are measured over --interval.
    #[arg(long, value_name = "BY", default_value = "packets", value_parser = values::sorts())]
    pub(super) sort: Sort,

    /// Print at most this many; 0 for all.
    #[arg(long, value_name = "N", default_value = "50")]
    pub(super) limit: usize,

    /// Time over which rates are measured.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::interval)]
    pub(super) interval: Duration,
}

/// `linerate forward accounting`.
#[derive(Debug, Args)]
#[command(after_help = "\
Conntrack counts no packet of the fast path (`nf_conntrack_acct`). This counts both, from the first packet of a \
session to the end of the session.

Examples:
  linerate forward accounting --limit 20
  linerate forward accounting --json | jq .original.bytes")]
pub(crate) struct Accounting {
    #[command(flatten)]
    pub(super) query: Query,

    /// Print at most this many, those with the most bytes; 0 for all.
    #[arg(long, value_name = "N", default_value = "0")]
    pub(super) limit: usize,
}

/// `linerate forward top`.
#[derive(Debug, Args)]
#[command(after_help = "\
Keys: q or Esc quits, p pauses, s sorts sessions by packets or by bytes.

With --once, and where standard output is no terminal, it prints one view, measured over one interval.

Examples:
  linerate forward top
  linerate forward top --once --interval 10s")]
pub(super) struct Top {
    #[command(flatten)]
    pub(super) instance: Instance,

    /// Time between two views.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::interval)]
    pub(super) interval: Duration,

    /// Print one view and exit.
    #[arg(long)]
    pub(super) once: bool,

    /// Show this many sessions, the fastest; 0 for none.
    #[arg(long, value_name = "N", default_value = "10")]
    pub(super) limit: usize,

    /// With --once: print one JSON object.
    #[arg(long, requires = "once")]
    pub(super) json: bool,
}

/// `linerate forward flush`.
#[derive(Debug, Args)]
#[command(after_help = "\
Without a filter it ends all sessions. A session that continues is learned again from its next packets, and \
counts from 0.

Examples:
  linerate forward flush
  linerate forward flush --address 192.0.2.0/24 --protocol tcp")]
pub(crate) struct Flush {
    #[command(flatten)]
    pub(super) query: Query,

    #[command(flatten)]
    pub(super) filter: Filter,
}

/// `linerate forward block`.
#[derive(Debug, Args)]
#[command(after_help = "\
Blocked packets are dropped before the kernel sees them, whether to be forwarded or for this \
host: do not block the address that you are logged in from. The longest matching prefix of an address \
counts its packets. `detach` removes all blocks.

Examples:
  linerate forward block 203.0.113.7
  linerate forward block 2001:db8:bad::/48 --for 10m
  linerate forward block tcp,192.0.2.1,4242,198.51.100.9,80")]
pub(crate) struct Block {
    /// What to block: an address, a prefix, or a session as `sessions` prints it.
    #[arg(value_name = "ADDRESS[/BITS]|SESSION")]
    pub(super) target: Target,

    /// Expire after this time.
    #[arg(long = "for", value_name = "TIME", value_parser = values::time)]
    pub(super) duration: Option<Duration>,

    /// Block also what cuts off this host: a prefix with one of its addresses, or with the client of this SSH session.
    #[arg(long)]
    pub(super) force: bool,

    #[command(flatten)]
    pub(super) query: Query,
}

/// `linerate forward unblock`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  linerate forward unblock 203.0.113.7
  linerate forward unblock --all")]
pub(crate) struct Unblock {
    /// What to unblock, as `blocked` prints it.
    #[arg(value_name = "ADDRESS[/BITS]|SESSION", required_unless_present = "all")]
    pub(super) target: Option<Target>,

    /// Unblock everything.
    #[arg(long, conflicts_with = "target")]
    pub(super) all: bool,

    #[command(flatten)]
    pub(super) query: Query,
}

/// `linerate forward blocked`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  linerate forward blocked
  linerate forward blocked --json | jq -s length")]
pub(crate) struct Blocked {
    #[command(flatten)]
    pub(super) query: Query,
}

/// `linerate forward detach`.
#[derive(Debug, Args)]
#[command(after_help = "\
If nothing is attached, it succeeds and does nothing. A running daemon notices and exits.

Examples:
  linerate forward detach
  linerate forward detach --all")]
pub(crate) struct Detach {
    #[command(flatten)]
    pub(super) query: Query,

    /// Every instance whose interfaces are in this network namespace.
    #[arg(long, conflicts_with = "instance")]
    pub(super) all: bool,
}

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Text lines.
    Text,
    /// One JSON object per line.
    Json,
}
