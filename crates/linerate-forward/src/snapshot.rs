//! State and counters of an instance at one moment: what `status` prints, `top` watches and the metrics
//! export. Read from pinned maps, so that it needs no daemon.

use linerate_net::link;
use serde::Serialize;

use crate::datapath::Datapath;
use crate::table::rules::Kept;

/// An instance at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    /// Name of the instance.
    pub instance: String,
    /// Whether packets are counted: `slot` or `none`.
    pub statistics: &'static str,
    /// Who forwards.
    pub state: State,
    /// The process of the daemon; `None` if none runs, or it cannot be seen.
    pub process: Option<u32>,
    /// Seconds since the last heartbeat of the daemon.
    pub heartbeat_age: f64,
    /// Age of the heartbeat, in seconds, from which on the kernel gets every packet.
    pub heartbeat_timeout: f64,
    /// Generation of the configuration that valid sessions were learned under.
    pub generation: u32,
    /// The table.
    pub sessions: Sessions,
    /// Packets that went to the kernel, by reason, zeros included.
    pub reasons: Vec<Counter>,
    /// Packets that a session was not learned from, by reason.
    pub refusals: Vec<Counter>,
    /// The rules that keep sessions with the kernel.
    pub rules: Vec<Kept>,
    /// Addresses, prefixes and sessions that are blocked.
    pub blocked: u64,
    /// The interfaces, in the order of their ports.
    pub ports: Vec<Port>,
}

/// Seconds that a heartbeat may be late on a busy machine; it is due each second at least.
const MAX_BEAT_DELAY: f64 = 2.0;

impl Snapshot {
    /// The process of a daemon that sends no heartbeats: it hangs, or was stopped.
    #[must_use]
    pub fn silent_daemon(&self) -> Option<u32> {
        let is_late = match self.state {
            State::Starting | State::Unattended => false,
            State::Running => self.heartbeat_age > MAX_BEAT_DELAY.max(self.heartbeat_timeout / 2.0),
            State::FailOpen => true,
        };
        self.process.filter(|_| is_late)
    }
}

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// A daemon attaches the programs to the interfaces.
    Starting,
    /// The programs, supervised by a daemon.
    Running,
    /// The programs, without a daemon, until the heartbeat times out.
    Unattended,
    /// The kernel: the programs pass it every packet, because the heartbeat timed out or was stopped.
    FailOpen,
}

/// How full the table of sessions is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sessions {
    /// Sessions that have not ended.
    pub active: u64,
    /// Sessions that the table has room for.
    pub capacity: u64,
    /// Kernel memory of the table and of all other maps.
    pub memory_bytes: u64,
}

/// A counter with its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counter {
    /// Its name in the manual, the metrics and JSON.
    pub name: &'static str,
    /// What it counts, in a sentence.
    #[serde(skip)]
    pub description: &'static str,
    /// Packets.
    pub packets: u64,
}

/// An interface under acceleration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Port {
    /// Its name.
    pub interface: String,
    /// Its index in its network namespace.
    pub index: u32,
    /// How the XDP program is attached: `native`, `generic`, or `none`.
    pub xdp_mode: &'static str,
    /// What may forward the packets that come in by it.
    pub ingress: Side,
    /// What may forward the packets that leave by it.
    pub egress: Side,
    /// Its upper devices that packets may come through: bridge, VLANs, VRF.
    pub upper_devices: Vec<String>,
    /// Counters of the driver, fast path and slow path; all 0 when the interface is gone.
    #[serde(flatten)]
    pub traffic: PortStatistics,
}

/// Counters of an interface, from when it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortStatistics {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
}

impl From<link::Statistics> for PortStatistics {
    fn from(all: link::Statistics) -> Self {
        let link::Statistics { rx_packets, rx_bytes, tx_packets, tx_bytes, .. } = all;
        Self { rx_packets, rx_bytes, tx_packets, tx_bytes }
    }
}

/// One direction of a port. A session takes the fastest datapath that both its ports have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Side {
    /// The fastest; `null` where the kernel forwards.
    pub datapath: Option<Datapath>,
    /// Why no faster one, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Side {
    /// The name of what forwards.
    pub fn name(&self) -> &'static str {
        self.datapath.map_or("kernel", Datapath::name)
    }
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())?;
        match &self.reason {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}
