//! What happened between two snapshots, per second.

use std::time::Instant;

use linerate_forward::snapshot::{Counter, Port, PortStatistics, Side, Snapshot, State};
use linerate_forward::table::session::Session;
use serde::Serialize;

use super::cpu::{self, Share, Ticks};

/// A snapshot with its sessions, and what the CPUs had done by then.
pub(super) struct Sample {
    pub(super) snapshot: Snapshot,
    pub(super) fastest: Vec<Session>,
    pub(super) at: Instant,
    pub(super) cpus: Vec<(u32, Ticks)>,
}

/// What one view shows.
#[derive(Debug, Serialize)]
pub(super) struct Rates {
    pub(super) instance: String,
    pub(super) state: State,
    /// A daemon that does not answer.
    #[serde(skip)]
    pub(super) silent: Option<u32>,
    /// Seconds that it was measured over.
    pub(super) seconds: f64,
    pub(super) sessions: linerate_forward::snapshot::Sessions,
    pub(super) generation: u32,
    pub(super) blocked: u64,
    pub(super) ports: Vec<PortRates>,
    pub(super) cpus: Vec<Cpu>,
    /// Packets a second that went to the kernel or were dropped, the most first; all that ever counted.
    pub(super) reasons: Vec<Reason>,
    pub(super) refusals: Vec<Reason>,
    /// The sessions that forward most, the first first.
    pub(super) fastest: Vec<Session>,
}

/// Packets and bits a second.
#[derive(Debug, Serialize)]
pub(super) struct PortRates {
    pub(super) interface: String,
    pub(super) ingress: Side,
    pub(super) egress: Side,
    pub(super) rx_packets: f64,
    pub(super) rx_bits: f64,
    pub(super) tx_packets: f64,
    pub(super) tx_bits: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct Cpu {
    pub(super) number: u32,
    #[serde(flatten)]
    pub(super) share: Share,
}

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Reason {
    pub(super) name: &'static str,
    /// Packets a second.
    pub(super) rate: f64,
    /// Packets ever.
    pub(super) packets: u64,
}

impl Sample {
    /// Takes the time and the CPUs for what was just read.
    pub(super) fn of((snapshot, fastest): (Snapshot, Vec<Session>)) -> Self {
        Self { snapshot, fastest, at: Instant::now(), cpus: cpu::read() }
    }

    /// What happened from `before` until here.
    pub(super) fn since(&self, before: &Self) -> Rates {
        let seconds = (self.at - before.at).as_secs_f64();
        let (now, then) = (&self.snapshot, &before.snapshot);
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds.max(1e-3);
        let port = |port: &Port| {
            let then = then.ports.iter().find(|other| other.index == port.index);
            // An interface that has just come is not one that received everything at once.
            let PortStatistics { rx_packets, rx_bytes, tx_packets, tx_bytes } =
                then.map_or(port.traffic, |then| then.traffic);
            PortRates {
                interface: port.interface.clone(),
                ingress: port.ingress.clone(),
                egress: port.egress.clone(),
                rx_packets: rate(port.traffic.rx_packets, rx_packets),
                rx_bits: 8.0 * rate(port.traffic.rx_bytes, rx_bytes),
                tx_packets: rate(port.traffic.tx_packets, tx_packets),
                tx_bits: 8.0 * rate(port.traffic.tx_bytes, tx_bytes),
            }
        };
        let cpus = cpu::shares(&before.cpus, &self.cpus).into_iter();
        Rates {
            instance: now.instance.clone(),
            state: now.state,
            silent: now.silent_daemon(),
            seconds,
            sessions: now.sessions,
            generation: now.generation,
            blocked: now.blocked,
            ports: now.ports.iter().map(port).collect(),
            cpus: cpus.map(|(number, share)| Cpu { number, share }).collect(),
            reasons: reasons(&now.reasons, &then.reasons, rate),
            refusals: reasons(&now.refusals, &then.refusals, rate),
            fastest: self.fastest.clone(),
        }
    }
}

/// The reasons that ever counted, those that count most now first.
fn reasons(now: &[Counter], then: &[Counter], rate: impl Fn(u64, u64) -> f64) -> Vec<Reason> {
    let before = |name| then.iter().find(|one| one.name == name).map_or(0, |one| one.packets);
    let reason = |one: &Counter| Reason {
        name: one.name,
        rate: rate(one.packets, before(one.name)),
        packets: one.packets,
    };
    let mut reasons: Vec<_> = now.iter().filter(|one| one.packets > 0).map(reason).collect();
    reasons.sort_by(|a, b| b.rate.total_cmp(&a.rate).then(b.packets.cmp(&a.packets)));
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_count_now_come_first() {
        let then = [
            Counter { name: "a", description: "", packets: 1000 },
            Counter { name: "b", description: "", packets: 10 },
        ];
        let now = [
            Counter { name: "a", description: "", packets: 1000 },
            Counter { name: "b", description: "", packets: 30 },
            Counter { name: "c", description: "", packets: 0 },
            Counter { name: "d", description: "", packets: 2000 },
        ];
        let rate = |now: u64, then: u64| (now - then) as f64 / 2.0;
        let wanted = [("d", 1000.0, 2000), ("b", 10.0, 30), ("a", 0.0, 1000)];
        let wanted = wanted.map(|(name, rate, packets)| Reason { name, rate, packets });
        assert_eq!(reasons(&now, &then, rate), wanted);
    }
}
