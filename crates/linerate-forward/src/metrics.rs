//! Metrics for Prometheus. They show the last [`Snapshot`] and the daemon's own counts; there is never a
//! series per session.

mod http;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::snapshot::{Snapshot, State};

/// The data of the metrics. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    shared: Arc<Mutex<Known>>,
}

/// A server of metrics, which ends when it is dropped.
#[derive(Debug)]
pub struct Server(http::Server);

/// Counts that only the daemon has, since its start.
#[derive(Clone, Debug, Default)]
pub struct DaemonStatistics {
    /// Changes that made all sessions stale, by cause.
    pub invalidations: Vec<(&'static str, u64)>,
    /// Sessions that it removed from the table, by reason.
    pub ended: Vec<(&'static str, u64)>,
}

#[derive(Debug, Default)]
struct Known {
    snapshot: Option<Snapshot>,
    counts: DaemonStatistics,
}

impl Metrics {
    /// Replaces what is shown.
    pub fn update(&self, snapshot: Snapshot, counts: DaemonStatistics) {
        *self.lock() = Known { snapshot: Some(snapshot), counts };
    }

    /// Serves the metrics at `address`, in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// The kernel's error, for instance if the address does not belong to this host or is in use.
    pub fn serve(&self, address: SocketAddr) -> io::Result<Server> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let page = move || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).map(|()| text)
        };
        http::Server::start(address, Arc::new(page)).map(Server)
    }

    /// Nothing under the lock can leave partial state.
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let known = self.lock();
        let mut page = Page { encoder: &mut encoder };
        page.counters(
            "linerate_forward_invalidations",
            "Changes of the network after which all sessions asked again, by cause",
            "cause",
            known.counts.invalidations.iter().copied(),
        )?;
        page.counters(
            "linerate_forward_sessions_ended",
            "Sessions that the daemon took out of the table, by reason",
            "reason",
            known.counts.ended.iter().copied(),
        )?;
        known.snapshot.as_ref().map_or(Ok(()), |snapshot| page.snapshot(snapshot))
    }
}

/// The answer to one scrape.
struct Page<'a, 'b> {
    encoder: &'a mut DescriptorEncoder<'b>,
}

impl Page<'_, '_> {
    fn snapshot(&mut self, snapshot: &Snapshot) -> fmt::Result {
        let sessions = &snapshot.sessions;
        self.gauge(
            "linerate_forward_sessions",
            "Sessions in the table",
            None,
            sessions.active as f64,
        )?;
        self.gauge(
            "linerate_forward_session_capacity",
            "Sessions that the table has room for",
            None,
            sessions.capacity as f64,
        )?;
        self.gauge(
            "linerate_forward_table_size",
            "Kernel memory of the table",
            Some(&Unit::Bytes),
            sessions.memory_bytes as f64,
        )?;
        self.gauge(
            "linerate_forward_heartbeat_age",
            "Time since the programs last heard of the daemon",
            Some(&Unit::Seconds),
            snapshot.heartbeat_age,
        )?;
        self.gauge(
            "linerate_forward_heartbeat_timeout",
            "Age of the heartbeat from which on everything goes to the kernel",
            Some(&Unit::Seconds),
            snapshot.heartbeat_timeout,
        )?;
        let on = if snapshot.state == State::FailOpen { 0.0 } else { 1.0 };
        self.gauge(
            "linerate_forward_fast_path_enabled",
            "1 while the programs forward, 0 while they hand everything to the kernel",
            None,
            on,
        )?;
        self.gauge(
            "linerate_forward_deny_list_entries",
            "Addresses, prefixes and sessions that are blocked",
            None,
            snapshot.blocked as f64,
        )?;
        let counted = |list: &[crate::snapshot::Counter]| -> Vec<(&'static str, u64)> {
            list.iter().map(|one| (one.name, one.packets)).collect()
        };
        self.counters(
            "linerate_forward_slow_path_packets",
            "Packets that the programs saw and did not forward, by reason",
            "reason",
            counted(&snapshot.reasons),
        )?;
        self.counters(
            "linerate_forward_learn_refusals",
            "Packets that left the kernel and no session was learned from, by reason",
            "reason",
            counted(&snapshot.refusals),
        )?;
        self.datapaths(snapshot)?;
        self.ports(snapshot)
    }

    fn datapaths(&mut self, snapshot: &Snapshot) -> fmt::Result {
        let name = "linerate_forward_port_datapath";
        let help =
            "1 for the fastest datapath that packets of a port may take, with why not a faster one";
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for port in &snapshot.ports {
            for (direction, side) in [("rx", &port.ingress), ("tx", &port.egress)] {
                let labels = [
                    ("interface", port.interface.as_str()),
                    ("direction", direction),
                    ("datapath", side.name()),
                    ("reason", side.reason.as_deref().unwrap_or_default()),
                ];
                family.encode_family(&labels)?.encode_gauge(&1_i64)?;
            }
        }
        Ok(())
    }

    /// Prometheus computes rates: these are counters of each port.
    fn ports(&mut self, snapshot: &Snapshot) -> fmt::Result {
        let name = "linerate_forward_port_packets";
        let help = "Packets of each port, whoever forwarded them";
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for port in &snapshot.ports {
            let traffic = &port.traffic;
            for (direction, value) in [("rx", traffic.rx_packets), ("tx", traffic.tx_packets)] {
                port_counter(&mut family, &port.interface, direction, value)?;
            }
        }
        let name = "linerate_forward_port";
        let help = "Bytes of each port, whoever forwarded them";
        let unit = Some(&Unit::Bytes);
        let mut family = self.encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
        for port in &snapshot.ports {
            let traffic = &port.traffic;
            for (direction, value) in [("rx", traffic.rx_bytes), ("tx", traffic.tx_bytes)] {
                port_counter(&mut family, &port.interface, direction, value)?;
            }
        }
        Ok(())
    }

    fn gauge(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: f64) -> fmt::Result {
        let gauge = prometheus_client::metrics::gauge::ConstGauge::new(value);
        gauge.encode(self.encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?)
    }

    fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'static str, u64)>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        values.into_iter().try_for_each(|(of, value)| {
            let labels = [(label, of)];
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
        })
    }
}

fn port_counter(
    family: &mut MetricEncoder<'_>,
    interface: &str,
    direction: &str,
    value: u64,
) -> fmt::Result {
    let labels = [("interface", interface), ("direction", direction)];
    family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
}

#[cfg(test)]
mod tests;
