//! [`Selection`]: which sessions to show, how many, and in which order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::{Session, State};
use crate::prefix::Prefix;
use crate::tuple::{FiveTuple, Protocol};

/// Selects sessions that match all fields; by default every session that has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Exactly this one.
    pub tuple: Option<FiveTuple>,
    /// Of this protocol.
    pub protocol: Option<Protocol>,
    /// Source or destination, before or after NAT, is in one of these; empty for any.
    pub addresses: Vec<Prefix>,
    /// Source or destination port, before or after NAT, is one of these; empty for any.
    pub ports: Vec<u16>,
    /// Arrives or leaves by one of these interfaces; empty for any.
    pub interfaces: Vec<String>,
    /// Arrives or leaves with one of these VLANs; empty for any.
    pub vlans: Vec<u16>,
    /// Arrives with one of these DSCPs; empty for any.
    pub dscps: Vec<u8>,
    /// Is changed by NAT, or is not.
    pub nat: Option<bool>,
    /// Is in one of these states; empty for any but [`State::Ended`].
    pub states: Vec<State>,
}

impl Filter {
    /// Whether `session` matches.
    pub fn accepts(&self, session: &Session) -> bool {
        let Session { tuple, nat, .. } = session;
        let out = nat.iter().flat_map(|nat| [nat.source, nat.destination]).flatten();
        let ends = || [tuple.source, tuple.destination].into_iter().chain(out.clone());
        let mut vlans = session.vlan.iter().chain(&session.out_vlan).map(|tag| tag.vlan);
        let ports = [&session.ingress, &session.egress];
        let state = match &self.states[..] {
            [] => session.state != State::Ended,
            states => states.contains(&session.state),
        };
        state
            && self.tuple.is_none_or(|wanted| wanted == *tuple)
            && self.protocol.is_none_or(|wanted| wanted == tuple.protocol)
            && self.nat.is_none_or(|wanted| wanted == nat.is_some())
            && any(&self.addresses, |wanted| ends().any(|end| wanted.contains(end.ip())))
            && any(&self.ports, |wanted| ends().any(|end| *wanted == end.port()))
            && any(&self.interfaces, |wanted| ports.iter().any(|port| *port.name == **wanted))
            && any(&self.vlans, |wanted| vlans.any(|vlan| vlan == *wanted))
            && any(&self.dscps, |wanted| *wanted == session.dscp)
    }
}

/// Whether one of `wanted` is `there`; nothing wanted is anything.
fn any<T>(wanted: &[T], there: impl FnMut(&T) -> bool) -> bool {
    wanted.is_empty() || wanted.iter().any(there)
}

/// The sort key of sessions; the largest first, except for addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sort {
    /// The order of the table: unsorted.
    #[default]
    Table,
    /// Packets counted.
    Packets,
    /// Bytes counted.
    Bytes,
    /// Packets a second.
    PacketRate,
    /// Bytes a second.
    ByteRate,
    /// Time since it was first learned.
    Age,
    /// Time without a packet.
    Idle,
    /// Source, port, destination, port, protocol; the smallest first.
    Source,
    /// Destination, port, source, port, protocol; the smallest first.
    Destination,
}

linerate_net::named!(
    Sort, "sort key": Table = "table", Packets = "packets", Bytes = "bytes",
    PacketRate = "packet-rate", ByteRate = "byte-rate", Age = "age", Idle = "idle",
    Source = "source", Destination = "destination",
);

impl Sort {
    /// Which of two comes first. Unknown rates come last.
    pub fn compare(self, a: &Session, b: &Session) -> Ordering {
        let rate = |one: &Session, of: fn(&super::Rate) -> f64| one.rate.as_ref().map_or(-1.0, of);
        match self {
            Self::Table => Ordering::Equal,
            Self::Packets => b.packets.cmp(&a.packets),
            Self::Bytes => b.bytes.cmp(&a.bytes),
            Self::PacketRate => rate(b, |of| of.packets).total_cmp(&rate(a, |of| of.packets)),
            Self::ByteRate => rate(b, |of| of.bytes).total_cmp(&rate(a, |of| of.bytes)),
            Self::Age => b.age.cmp(&a.age),
            Self::Idle => b.idle.cmp(&a.idle),
            Self::Source => ends(a.tuple).cmp(&ends(b.tuple)),
            Self::Destination => ends(a.tuple.reversed()).cmp(&ends(b.tuple.reversed())),
        }
    }
}

fn ends(tuple: FiveTuple) -> impl Ord {
    (tuple.source, tuple.destination, tuple.protocol)
}

/// Takes sessions one by one and keeps the first `limit` of the order.
///
/// Stores at most as many sessions as it returns.
#[derive(Debug)]
pub struct Selection {
    filter: Filter,
    sort: Sort,
    limit: usize,
    kept: BinaryHeap<Kept>,
    accepted: u64,
}

/// A session with its place in the order; the heap's greatest is the first to go.
#[derive(Debug)]
struct Kept {
    sort: Sort,
    number: u64,
    session: Session,
}

impl Selection {
    /// Keeps the first `limit` in the order of `sort` of what `filter` accepts.
    pub fn new(filter: Filter, sort: Sort, limit: usize) -> Self {
        Self { filter, sort, limit, kept: BinaryHeap::new(), accepted: 0 }
    }

    /// Offers a session to the selection.
    pub fn add(&mut self, session: Session) {
        if !self.filter.accepts(&session) {
            return;
        }
        self.accepted += 1;
        let kept = Kept { sort: self.sort, number: self.accepted, session };
        if self.kept.len() < self.limit {
            self.kept.push(kept);
        } else if let Some(mut last) = self.kept.peek_mut()
            && kept < *last
        {
            *last = kept;
        }
    }

    /// The number of sessions that the filter accepted, kept or not.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// The kept sessions in order; equal ones in the order in which they were offered.
    pub fn into_sessions(self) -> Vec<Session> {
        self.kept.into_sorted_vec().into_iter().map(|kept| kept.session).collect()
    }
}

impl Ord for Kept {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = self.sort.compare(&self.session, &other.session);
        order.then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Kept {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Kept {}
