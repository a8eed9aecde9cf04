//! Whether the packets are there that the records count.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use linerate_wire::frame::Frame;
use linerate_wire::layers::Layers;

use super::later::Period;

/// Nanoseconds that the times of a record and of a packet in a file differ by: a file may have microseconds only.
pub(super) const RESOLUTION: i64 = 1_000;

/// The flows of the records that were selected, and how many of their packets were found.
#[derive(Default)]
pub(super) struct Expected {
    hasher: RandomState,
    /// In the order of their hosts, ports and time.
    flows: Vec<Flow>,
    /// Packets whose ports are not known, by their hosts: later fragments, and frames that were cut off.
    without_ports: HashMap<u64, u64>,
    /// Packets whose hosts are not known: frames that were cut off.
    cut_off: u64,
    /// The flows of the packets of this file, in case it is read again.
    of_file: Vec<u32>,
    /// The hosts of its packets without ports, and its packets without hosts.
    without_ports_of_file: Vec<u64>,
    cut_off_of_file: u64,
}

/// A hash of both addresses and the protocol, and both ports: the same in both directions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    hosts: u64,
    ports: (u16, u16),
}

struct Flow {
    key: Key,
    period: Period,
    /// The last time of the flows of this key up to this one.
    latest: i64,
    packets: u64,
    found: u64,
    /// Its last packet is where its first one is.
    is_in_one_file: bool,
    has_last: bool,
}

impl Flow {
    /// With `--cutoff`, the file does not have the packets at the end of a flow.
    fn missing(&self) -> u64 {
        let may_be_cut = self.is_in_one_file && self.found > 0 && !self.has_last;
        if may_be_cut { 0 } else { self.packets.saturating_sub(self.found) }
    }
}

impl Expected {
    fn key(&self, ends: (IpAddr, IpAddr), protocol: u8, ports: Option<(u16, u16)>) -> Key {
        let (source_port, destination_port) = ports.unwrap_or_default();
        let [a, b] = [(ends.0, source_port), (ends.1, destination_port)];
        let (a, b) = if a <= b { (a, b) } else { (b, a) };
        Key { hosts: self.hasher.hash_one((a.0, b.0, protocol)), ports: (a.1, b.1) }
    }

    /// Adds a record.
    pub(super) fn add(
        &mut self,
        ends: (IpAddr, IpAddr),
        protocol: u8,
        ports: Option<(u16, u16)>,
        period: Period,
        packets: u64,
        is_in_one_file: bool,
    ) {
        let key = self.key(ends, protocol, ports);
        let (latest, found, has_last) = (period.last, 0, false);
        self.flows.push(Flow { key, period, latest, packets, found, is_in_one_file, has_last });
    }

    /// Has to be called after all records were added.
    pub(super) fn sort(&mut self) {
        self.flows.sort_unstable_by_key(|flow| (flow.key, flow.period));
        for flows in self.flows.chunk_by_mut(|a, b| a.key == b.key) {
            let mut latest = i64::MIN;
            for flow in flows {
                latest = latest.max(flow.period.last);
                flow.latest = latest;
            }
        }
    }

    /// A file is read from here on.
    pub(super) fn begin_file(&mut self) {
        self.of_file.clear();
        self.without_ports_of_file.clear();
        self.cut_off_of_file = 0;
    }

    /// It is read again.
    pub(super) fn read_again(&mut self) {
        for index in self.of_file.drain(..) {
            self.flows[index as usize].found -= 1;
        }
        for hosts in self.without_ports_of_file.drain(..) {
            self.without_ports.entry(hosts).and_modify(|count| *count -= 1);
        }
        self.cut_off -= std::mem::take(&mut self.cut_off_of_file);
    }

    /// Counts a packet. Returns whether it may be one of the records.
    pub(super) fn count(&mut self, frame: &Frame<'_>, layers: &Layers, time: i64) -> bool {
        let head = frame.head();
        let Some((ends, protocol)) = layers.addresses(head).zip(layers.protocol) else {
            self.cut_off += 1;
            self.cut_off_of_file += 1;
            return true;
        };
        let is_later = layers.fragment(head).is_some_and(|fragment| fragment.offset != 0);
        let ports = if is_later { None } else { layers.ports(head) };
        let key = self.key(ends, protocol.0, ports);
        let mut is_known = false;
        let (earliest, latest) = (time.saturating_sub(RESOLUTION), time.saturating_add(RESOLUTION));
        let end = self.flows.partition_point(|flow| (flow.key, flow.period.start) <= (key, latest));
        for index in (0..end).rev() {
            let flow = &mut self.flows[index];
            if flow.key != key || flow.latest < earliest {
                break;
            }
            if flow.period.last >= earliest {
                is_known = true;
                flow.found += 1;
                flow.has_last |= latest >= flow.period.last;
                self.of_file.push(index as u32);
            }
        }
        let may_be_known = !is_known && protocol.has_ports() && ports.is_none();
        if may_be_known {
            *self.without_ports.entry(key.hosts).or_default() += 1;
            self.without_ports_of_file.push(key.hosts);
        }
        is_known || may_be_known
    }

    /// Packets that the records count, and that were not found.
    pub(super) fn missing(&self) -> u64 {
        let of_hosts = |flows: &[Flow]| {
            let missing: u64 = flows.iter().map(Flow::missing).sum();
            let others = self.without_ports.get(&flows[0].key.hosts).copied().unwrap_or(0);
            // Later fragments that a record with ports counted.
            let surplus = |flow: &Flow| flow.found.saturating_sub(flow.packets);
            let fragments = flows.iter().filter(|flow| flow.key.ports == (0, 0)).map(surplus);
            missing.saturating_sub(others + fragments.sum::<u64>())
        };
        let flows = self.flows.chunk_by(|a, b| a.key.hosts == b.key.hosts);
        flows.map(of_hosts).sum::<u64>().saturating_sub(self.cut_off)
    }
}
