//! The records that a meter must make, as docs/flows.md says: the packets of each flow in a list.

use std::collections::HashMap;
use std::net::IpAddr;

use linerate_flow::{BiflowDirection, Direction, EndReason, FlowKey, FlowRecord};
use linerate_pcapfile::ByteRange;

use crate::frames::{A, F, R, S, SECOND};
use crate::traffic::{Packet, Part, Payload, address};

/// How long after its first fragment the ports of a packet are known.
const FRAGMENT_LIFETIME: u64 = 30 * SECOND;

/// How long a TCP connection that has ended keeps its flow.
const CLOSED_TIMEOUT: u64 = SECOND;

/// A sender or receiver: address and port.
pub(crate) type End = (IpAddr, Option<u16>);

/// Which flow a packet belongs to; the smaller end is first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    ends: [End; 2],
    protocol: u8,
    icmp_type_code: Option<u16>,
    vlan: Option<u16>,
    interface: u16,
}

/// Which packet a fragment belongs to.
type Fragmented = ((u8, u8), bool, u8, u8);

/// A packet of a flow.
struct Seen {
    time: u64,
    from: End,
    octets: u64,
    ttl: u8,
    flags: u8,
    byte_range: Option<ByteRange>,
}

struct Flow {
    initiator: End,
    direction: BiflowDirection,
    /// Who has sent a FIN.
    finished: Vec<End>,
    reset: bool,
    /// A SYN came.
    synchronised: bool,
    last: u64,
    /// Since the last record.
    packets: Vec<Seen>,
}

impl Flow {
    fn is_closed(&self) -> bool {
        self.reset || self.finished.len() == 2
    }

    fn record(&self, key: &Key, reason: EndReason) -> FlowRecord {
        let of = |forward: bool| {
            let of = move |seen: &&Seen| (seen.from == self.initiator) == forward;
            self.packets.iter().filter(of)
        };
        let direction = |forward: bool| Direction {
            packets: of(forward).count() as u64,
            octets: of(forward).map(|seen| seen.octets).sum(),
            tcp_flags: of(forward).fold(0, |flags, seen| flags | u16::from(seen.flags)),
            ttl: of(forward).map(|seen| seen.ttl).min().zip(of(forward).map(|seen| seen.ttl).max()),
            length: of(forward)
                .map(|seen| seen.octets as u32)
                .min()
                .zip(of(forward).map(|seen| seen.octets as u32).max()),
        };
        let [a, b] = key.ends;
        let peer = if self.initiator == a { b } else { a };
        FlowRecord {
            start: self.packets[0].time,
            end: self.last,
            reverse_start: of(false).map(|seen| seen.time).next(),
            key: FlowKey {
                source: self.initiator.0,
                source_port: self.initiator.1,
                destination: peer.0,
                destination_port: peer.1,
                icmp_type_code: key.icmp_type_code,
                protocol: key.protocol,
                vlan: key.vlan,
                customer_vlan: None,
            },
            forward: direction(true),
            reverse: direction(false),
            direction: self.direction,
            end_reason: Some(reason),
            ..FlowRecord::default()
        }
    }

    fn byte_range(&self) -> Option<ByteRange> {
        let mut ranges = self.packets.iter().filter_map(|seen| seen.byte_range);
        let first = ranges.next()?;
        Some(ByteRange { begin: first.begin, end: ranges.next_back().unwrap_or(first).end })
    }
}

/// A record as text, with what is beside it.
pub(crate) fn text(record: &FlowRecord, byte_range: Option<ByteRange>, interface: u16) -> String {
    format!("{record:?} {byte_range:?} {interface}")
}

/// What the model says of a packet.
pub(crate) struct Metered {
    pub(crate) from: End,
    pub(crate) to: End,
    /// Octets of its flow before it, since the last record.
    pub(crate) before: u64,
}

pub(crate) struct Model {
    active_timeout: u64,
    idle_timeout: u64,
    /// The first fragment of a packet, and its time.
    fragments: HashMap<Fragmented, (Packet, u64)>,
    flows: HashMap<Key, Flow>,
    /// The initiators of flows that have ended, and the second of their last packets.
    initiators: HashMap<Key, (End, u64)>,
    /// When each record was due, and its text.
    pub(crate) records: Vec<(u64, String)>,
    pub(crate) without_ports: u64,
}

impl Model {
    /// With these timeouts in seconds.
    pub(crate) fn new(active: u64, idle: u64) -> Self {
        Self {
            active_timeout: active * SECOND,
            idle_timeout: idle * SECOND,
            fragments: HashMap::new(),
            flows: HashMap::new(),
            initiators: HashMap::new(),
            records: Vec::new(),
            without_ports: 0,
        }
    }

    /// Flows that have not ended.
    pub(crate) fn active(&self) -> usize {
        self.flows.len()
    }

    /// The packet, or the first fragment of it, which has the transport header.
    fn first(&mut self, packet: &Packet, now: u64) -> Option<Packet> {
        let fragmented = |id: u8| (packet.hosts, packet.v6, packet.protocol(), id);
        match packet.part {
            Part::Whole => Some(packet.clone()),
            Part::First(id) => {
                self.fragments.insert(fragmented(id), (packet.clone(), now));
                Some(packet.clone())
            }
            Part::Later(id) => {
                let first = self.fragments.get(&fragmented(id));
                first.filter(|first| now - first.1 < FRAGMENT_LIFETIME).map(|first| first.0.clone())
            }
        }
    }

    pub(crate) fn packet(
        &mut self,
        packet: &Packet,
        now: u64,
        byte_range: Option<ByteRange>,
    ) -> Metered {
        let first = self.first(packet, now);
        let has_ports = matches!(packet.payload, Payload::Udp | Payload::Tcp(_));
        let ports = first.as_ref().filter(|_| has_ports).map(|first| first.ports);
        self.without_ports += u64::from(has_ports && ports.is_none());
        let from = (address(packet.hosts.0, packet.v6), ports.map(|ports| ports.0));
        let to = (address(packet.hosts.1, packet.v6), ports.map(|ports| ports.1));
        let (flags, reply, icmp_type_code) = match first.as_ref().map(|first| &first.payload) {
            // The flags of a segment count once.
            Some(Payload::Tcp(flags)) if !matches!(packet.part, Part::Later(_)) => {
                (*flags, false, None)
            }
            Some(Payload::Echo { reply }) => {
                (0, *reply, Some(if packet.v6 { 128 << 8 } else { 8 << 8 }))
            }
            _ => (0, false, None),
        };
        let mut ends = [from, to];
        ends.sort();
        let key = Key {
            ends,
            protocol: packet.protocol(),
            icmp_type_code,
            vlan: packet.vlan,
            interface: packet.interface,
        };
        self.expire(now);
        let is_syn = flags & S != 0;
        if is_syn && self.flows.get(&key).is_some_and(Flow::is_closed) {
            self.end(&key, EndReason::EndOfFlow, now);
            self.remove(&key);
        }
        let is_tcp = matches!(packet.payload, Payload::Tcp(_));
        let is_answer = reply || flags & (S | A) == S | A;
        let ports = (from.1.unwrap_or(0), to.1.unwrap_or(0));
        let is_system = (1..1024).contains(&ports.0) && ports.1 >= 1024;
        let seems_answer = !is_syn && ports.0 < ports.1 && (is_tcp || is_system);
        let tells = is_syn || icmp_type_code.is_some();
        let known =
            self.initiators.get(&key).filter(|(_, last)| !tells && now / SECOND - last < 3600);
        let (initiator, direction) = match known {
            Some((initiator, _)) => (*initiator, BiflowDirection::Initiator),
            None if seems_answer || is_tcp && !is_syn => {
                (if seems_answer { to } else { from }, BiflowDirection::Arbitrary)
            }
            None => (if is_answer { to } else { from }, BiflowDirection::Initiator),
        };
        let flow = self.flows.entry(key).or_insert_with(|| Flow {
            initiator,
            direction,
            finished: Vec::new(),
            reset: false,
            synchronised: false,
            last: now,
            packets: Vec::new(),
        });
        let before = flow.packets.iter().map(|seen| seen.octets).sum();
        flow.last = now;
        flow.reset |= flags & R != 0;
        if is_syn && !flow.synchronised {
            flow.synchronised = true;
            flow.initiator = if is_answer { to } else { from };
            flow.direction = BiflowDirection::Initiator;
        }
        if flags & R == 0 && flags & F != 0 && !flow.finished.contains(&from) {
            flow.finished.push(from);
        }
        let (octets, ttl) = (packet.octets(), packet.ttl);
        flow.packets.push(Seen { time: now, from, octets, ttl, flags, byte_range });
        Metered { from, to, before }
    }

    /// Ends what has ended by now.
    pub(crate) fn expire(&mut self, now: u64) {
        for key in self.flows.keys().cloned().collect::<Vec<_>>() {
            let flow = &self.flows[&key];
            let (reason, idle) = match flow.is_closed() {
                true => (EndReason::EndOfFlow, self.idle_timeout.min(CLOSED_TIMEOUT)),
                false => (EndReason::IdleTimeout, self.idle_timeout),
            };
            let idle_end = flow.last + idle;
            let long = flow.packets.first().map(|seen| seen.time + self.active_timeout);
            match long {
                Some(long) if long <= now && long < idle_end => {
                    self.end(&key, EndReason::ActiveTimeout, long);
                }
                _ if idle_end <= now => self.end(&key, reason, idle_end),
                _ => {}
            }
            if idle_end <= now {
                self.remove(&key);
            }
        }
    }

    fn remove(&mut self, key: &Key) {
        let flow = self.flows.remove(key).unwrap();
        if flow.direction == BiflowDirection::Initiator {
            self.initiators.insert(key.clone(), (flow.initiator, flow.last / SECOND));
        }
    }

    /// The record of a flow, which was due at this time. The flow has no more packets then.
    fn end(&mut self, key: &Key, reason: EndReason, due: u64) {
        let flow = self.flows.get_mut(key).unwrap();
        if !flow.packets.is_empty() {
            let text = text(&flow.record(key, reason), flow.byte_range(), key.interface);
            self.records.push((due, text));
            flow.packets.clear();
        }
    }

    /// Ends all flows.
    pub(crate) fn finish(&mut self, now: u64) {
        self.expire(now);
        for key in self.flows.keys().cloned().collect::<Vec<_>>() {
            self.end(&key, EndReason::ForcedEnd, now);
        }
        self.flows.clear();
    }
}
