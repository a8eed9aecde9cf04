//! [`Connection`]: packets and bytes of a connection in both directions, on the fast path and through the kernel.
//! Conntrack's own counters stop where a session forwards.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use serde::Serialize;

use crate::table::Table;
use crate::table::clock::Clock;
use crate::table::layout::{self, Counters};
use crate::table::session::{Nat, Record};
use crate::tuple::FiveTuple;

/// A connection of which at least one direction is a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Connection {
    /// Protocol, addresses and ports of arriving packets, in the direction whose session began first; `connection` in
    /// JSON.
    #[serde(rename = "connection")]
    pub tuple: FiveTuple,
    /// Addresses and ports after NAT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nat: Option<Nat>,
    /// What went in this direction.
    pub original: Traffic,
    /// What went against it.
    pub reply: Traffic,
}

/// Packets, and bytes of them as IP packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the words of Counters")]
pub struct Traffic {
    pub packets: u64,
    pub bytes: u64,
}

impl From<Counters> for Traffic {
    fn from(Counters { packets, bytes }: Counters) -> Self {
        Self { packets, bytes }
    }
}

/// The sessions of one direction: packets may come in by several interfaces, or with several DSCPs.
struct Direction {
    reply: FiveTuple,
    nat: Option<Nat>,
    /// Jiffies since its first session began.
    age: u32,
    traffic: Traffic,
}

/// The connections with the most bytes, up to `limit`. It reads the table twice.
pub fn largest(table: &Table, clock: &Clock, limit: usize) -> Vec<Connection> {
    // Of the sessions; each of the largest connections has one of them.
    let mut heap = BinaryHeap::new();
    for record in table.records() {
        let tuple = record.tuple();
        heap.push(Reverse((record.bytes(), tuple, record.reply())));
        if heap.len() > limit.saturating_mul(2) {
            heap.pop();
        }
    }
    let mut directions: HashMap<FiveTuple, Option<Direction>> = HashMap::new();
    for Reverse((_, tuple, reply)) in heap {
        directions.extend([(tuple, None), (reply, None)]);
    }
    for record in table.records() {
        let Some(direction) = directions.get_mut(&record.tuple()) else { continue };
        let age = (clock.now() as u32).wrapping_sub(layout::created(record.cold.created));
        let direction = direction.get_or_insert_with(|| Direction {
            reply: record.reply(),
            nat: record.nat(),
            age,
            traffic: Traffic::default(),
        });
        direction.age = direction.age.max(age);
        direction.traffic.packets += record.packets();
        direction.traffic.bytes += record.bytes();
    }
    let mut connections = connections(directions);
    connections.sort_by_key(|one| {
        (Reverse(one.original.bytes.saturating_add(one.reply.bytes)), one.tuple)
    });
    connections.truncate(limit);
    connections
}

/// Joins directions that reply to each other.
fn connections(mut directions: HashMap<FiveTuple, Option<Direction>>) -> Vec<Connection> {
    let mut order: Vec<_> = directions
        .iter()
        .filter_map(|(tuple, one)| Some((Reverse(one.as_ref()?.age), *tuple)))
        .collect();
    order.sort_unstable();
    let connection = |(_, tuple): (_, FiveTuple)| {
        let Direction { reply, nat, traffic, .. } = directions.get_mut(&tuple)?.take()?;
        let against = directions.get_mut(&reply);
        let against = against.and_then(|one| one.take_if(|one| one.reply == tuple));
        let reply = against.map_or_else(Traffic::default, |one| one.traffic);
        Some(Connection { tuple, nat, original: traffic, reply })
    };
    order.into_iter().filter_map(connection).collect()
}

impl Record {
    /// The tuple of packets that reply to those of this session, as they arrive.
    fn reply(&self) -> FiveTuple {
        let (source, destination) = self.out();
        FiveTuple { protocol: self.protocol(), source: destination, destination: source }
    }
}
