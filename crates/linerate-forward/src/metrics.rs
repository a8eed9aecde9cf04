//! Metrics for Prometheus, and the data of the page: the last [`Snapshot`] and the daemon's own counts. Connections have
//! series only where the configuration wants it, up to a number of them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use linerate_service::{MetricEncoder, Object, Unit, metrics};
use serde::Serialize;

use crate::config::Statistics;
use crate::datapath::Datapath;
use crate::reason::Reason;
use crate::runtime::flows::FlowStatistics;
use crate::snapshot::{Counter, PortStatistics, Snapshot, State};
use crate::table::accounting::Connection;
use crate::table::ageing::DatapathStatistics;
use crate::table::layout::Counters;

/// What the metrics show.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// When they were read.
    pub time: SystemTime,
    /// The instance.
    pub snapshot: Snapshot,
    /// What only the daemon counts.
    pub daemon: DaemonStatistics,
}

/// Counts that only the daemon has, since its start.
#[derive(Clone, Debug, Default)]
pub struct DaemonStatistics {
    /// Changes that made all sessions stale, by cause.
    pub invalidations: Vec<(&'static str, u64)>,
    /// Sessions that it removed from the table, by reason.
    pub ended: Vec<(&'static str, u64)>,
    /// Sessions of each datapath, and the packets that they counted, as of the last ageing pass.
    pub datapaths: Vec<(Datapath, DatapathStatistics)>,
    /// Flow records, with `--flows`.
    pub flows: Option<FlowStatistics>,
    /// The largest connections, with `metrics-connections`.
    pub connections: Vec<Connection>,
}

/// The name of the schema of [`Metrics::to_json`].
pub const SCHEMA: &str = "linerate-forward-stats-1";

/// The JSON: what `status` prints, and the daemon's counts by name.
#[derive(Serialize)]
struct Stats<'a> {
    /// Seconds since the Unix epoch.
    time: f64,
    #[serde(flatten)]
    snapshot: &'a Snapshot,
    invalidations: BTreeMap<&'static str, u64>,
    ended: BTreeMap<&'static str, u64>,
    datapaths: BTreeMap<&'static str, DatapathStatistics>,
}

impl Metrics {
    /// As a JSON object.
    pub fn to_json(&self) -> Result<String, String> {
        let Self { time, snapshot, daemon } = self;
        let DaemonStatistics { invalidations, ended, datapaths, .. } = daemon;
        let fields = Stats {
            time: time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            snapshot,
            invalidations: invalidations.iter().copied().collect(),
            ended: ended.iter().copied().collect(),
            datapaths: datapaths.iter().map(|(datapath, of)| (datapath.name(), *of)).collect(),
        };
        let object = Object { schema: SCHEMA, fields: &fields };
        serde_json::to_string(&object).map_err(|error| error.to_string())
    }

    /// Writes them.
    pub fn encode(&self, encoder: &mut MetricEncoder<'_, '_>) -> fmt::Result {
        let Self { snapshot, daemon, .. } = self;
        metrics! { encoder;
            counters "linerate_forward_invalidations"
                "Changes of the network after which all sessions asked again, by cause"
                ["cause"] = labelled(&daemon.invalidations);
            counters "linerate_forward_sessions_ended" "Sessions that the daemon took out of the table, by reason"
                ["reason"] = labelled(&daemon.ended);
        }
        table(snapshot, encoder)?;
        metrics! { encoder;
            counters "linerate_forward_slow_path_packets" "Packets that the programs saw and did not forward, by reason"
                ["reason"] = counted(&snapshot.reasons);
            counters "linerate_forward_learn_refusals"
                "Packets that left the kernel and no session was learned from, by reason"
                ["reason"] = counted(&snapshot.refusals);
            counters "linerate_forward_rule_packets"
                "Packets that no session was learned from because of a rule, by rule"
                ["rule"] = snapshot.rules.iter().map(|kept| ([&kept.rule], kept.packets));
        }
        self.datapaths(encoder)?;
        if let Some(statistics) = &daemon.flows {
            flows(statistics, encoder)?;
        }
        ports(snapshot, encoder)?;
        connections(&daemon.connections, encoder)
    }

    /// Packets by datapath. The kernel's are those that the programs left to it. Sessions count the others, if they
    /// count.
    fn datapaths(&self, encoder: &mut MetricEncoder<'_, '_>) -> fmt::Result {
        let Self { snapshot, daemon, .. } = self;
        let datapaths = || daemon.datapaths.iter();
        let sessions = datapaths().map(|(datapath, of)| ([datapath.name()], of.sessions as f64));
        let slow = snapshot.reasons.iter().filter(|one| one.name != Reason::Denied.name());
        let kernel = ([KERNEL], slow.map(|one| one.packets).sum());
        let fast = datapaths().filter(|_| snapshot.statistics == Statistics::Slot.name());
        let fast = fast.map(|(datapath, of)| ([datapath.name()], of.packets));
        metrics! { encoder;
            gauges "linerate_forward_datapath_sessions" "Sessions in the table, by datapath" ["datapath"] = sessions;
            counters "linerate_forward_datapath_packets"
                "Packets by the datapath that forwarded them: XDP, tc or the kernel"
                ["datapath"] = fast.chain([kernel]);
        }
        Ok(())
    }
}

/// The datapath of packets without a session.
const KERNEL: &str = "kernel";

fn labelled<'a>(
    list: &'a [(&'static str, u64)],
) -> impl Iterator<Item = ([&'static str; 1], u64)> + 'a {
    list.iter().map(|(label, value)| ([*label], *value))
}

fn counted(list: &[Counter]) -> impl Iterator<Item = ([&'static str; 1], u64)> + '_ {
    list.iter().map(|one| ([one.name], one.packets))
}

fn table(snapshot: &Snapshot, encoder: &mut MetricEncoder<'_, '_>) -> fmt::Result {
    let sessions = &snapshot.sessions;
    metrics! { encoder;
        gauge "linerate_forward_sessions" "Sessions in the table" = sessions.active as f64;
        gauge "linerate_forward_session_capacity" "Sessions that the table has room for" = sessions.capacity as f64;
        gauge "linerate_forward_table_size" "Kernel memory of the table and of all other maps"
            in (Unit::Bytes) = sessions.memory_bytes as f64;
        gauge "linerate_forward_deny_list_entries" "Addresses, prefixes and sessions that are blocked"
            = snapshot.blocked as f64;
        gauge "linerate_forward_heartbeat_age" "Time since the last heartbeat of the daemon"
            in (Unit::Seconds) = snapshot.heartbeat_age;
        gauge "linerate_forward_heartbeat_timeout"
            "Age of the heartbeat at which the programs pass every packet to the kernel"
            in (Unit::Seconds) = snapshot.heartbeat_timeout;
        gauge "linerate_forward_fast_path_enabled"
            "1 while the programs forward, 0 while they pass every packet to the kernel"
            = u8::from(snapshot.state != State::FailOpen).into();
    }
    Ok(())
}

fn flows(flows: &FlowStatistics, encoder: &mut MetricEncoder<'_, '_>) -> fmt::Result {
    let FlowStatistics { sessions, nat_events, nat_events_lost, nat_event_overruns, output } =
        flows;
    let exported = output.collectors.iter().flat_map(|(target, sent)| {
        [("sent", sent.flows), ("not_sent", sent.not_sent_flows)]
            .map(|(outcome, count)| ([target.to_string(), outcome.to_owned()], count))
    });
    metrics! { encoder;
        counters "linerate_forward_flow_records" "Flow records made, of sessions and of NAT events"
            ["kind"] = [(["session"], sessions.records), (["nat_event"], *nat_events)];
        counters "linerate_forward_flow_records_lost" "Flow records lost because records could not be written"
            ["kind"] = [(["session"], sessions.lost), (["nat_event"], *nat_events_lost)];
        counter "linerate_forward_flow_records_written" "Flow records in complete files" = output.files.records;
        counter "linerate_forward_deleted_flow_files"
            "Files of flow records deleted by flows-keep or flows-keep-free" = output.files.deleted;
        counter "linerate_forward_nat_event_overruns"
            "How often the kernel dropped NAT events because they were read too slowly" = *nat_event_overruns;
        counters "linerate_forward_flow_records_exported" "Flow records for collectors, by outcome"
            ["collector", "outcome"] = exported;
    }
    Ok(())
}

fn ports(snapshot: &Snapshot, encoder: &mut MetricEncoder<'_, '_>) -> fmt::Result {
    let sides = snapshot.ports.iter().flat_map(|port| {
        [("rx", &port.ingress), ("tx", &port.egress)].map(|(direction, side)| {
            let reason = side.reason.as_deref().unwrap_or_default();
            ([port.interface.as_str(), direction, side.name(), reason], 1.0)
        })
    });
    // Prometheus computes rates: these are counters of each port.
    let both = |of: fn(&PortStatistics) -> [u64; 2]| {
        snapshot.ports.iter().flat_map(move |port| {
            let [rx, tx] = of(&port.traffic);
            [([port.interface.as_str(), "rx"], rx), ([port.interface.as_str(), "tx"], tx)]
        })
    };
    metrics! { encoder;
        gauges "linerate_forward_port_datapath"
            "1 for the fastest datapath that packets of a port may take, with the reason that it is not a faster one"
            ["interface", "direction", "datapath", "reason"] = sides;
        counters "linerate_forward_port_packets" "Packets of each port, over all datapaths"
            ["interface", "direction"] = both(|traffic| [traffic.rx_packets, traffic.tx_packets]);
        counters "linerate_forward_port" "Bytes of each port, over all datapaths"
            ["interface", "direction"] in (Unit::Bytes) = both(|traffic| [traffic.rx_bytes, traffic.tx_bytes]);
    }
    Ok(())
}

fn connections(all: &[Connection], encoder: &mut MetricEncoder<'_, '_>) -> fmt::Result {
    let both = |of: fn(&Counters) -> u64| {
        all.iter().flat_map(move |one| {
            let tuple = one.tuple.to_string();
            let label = |direction: &str| [tuple.clone(), direction.to_owned()];
            [(label("original"), of(&one.original)), (label("reply"), of(&one.reply))]
        })
    };
    metrics! { encoder;
        counters "linerate_forward_connection_packets"
            "Packets of the largest connections, on the fast path and through the kernel"
            ["connection", "direction"] = both(|traffic| traffic.packets);
        counters "linerate_forward_connection"
            "Bytes of the largest connections, on the fast path and through the kernel"
            ["connection", "direction"] in (Unit::Bytes) = both(|traffic| traffic.bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
