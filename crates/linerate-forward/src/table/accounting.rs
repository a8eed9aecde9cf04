//! [`Connection`]: packets and bytes of a connection in both directions, on the fast path and through the kernel.
//! Conntrack's own counters stop where a session forwards.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use serde::Serialize;

use crate::table::Table;
use crate::table::clock::Clock;
use crate::table::layout::Counters;
use crate::table::session::{Nat, Session};
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
    /// Packets in this direction, and bytes of them as IP packets.
    pub original: Counters,
    /// What went against it.
    pub reply: Counters,
}

/// The sessions of one direction: packets may come in by several interfaces, or with several DSCPs.
struct Direction {
    reply: FiveTuple,
    nat: Option<Nat>,
    /// Since its first session began.
    age: Duration,
    traffic: Counters,
}

/// The connections with the most bytes, up to `limit`. It reads the table twice.
pub fn largest(table: &Table, clock: &Clock, limit: usize) -> Vec<Connection> {
    // Of the sessions; each of the largest connections has one of them.
    let mut heap = BinaryHeap::new();
    let mut decoder = table.decoder(*clock);
    for session in table.sessions(&mut decoder) {
        heap.push(Reverse((session.bytes, session.tuple, reply(&session))));
        if heap.len() > limit.saturating_mul(2) {
            heap.pop();
        }
    }
    let mut directions: HashMap<FiveTuple, Option<Direction>> = HashMap::new();
    for Reverse((_, tuple, reply)) in heap {
        directions.extend([(tuple, None), (reply, None)]);
    }
    for session in table.sessions(&mut decoder) {
        let Some(direction) = directions.get_mut(&session.tuple) else { continue };
        let direction = direction.get_or_insert_with(|| Direction {
            reply: reply(&session),
            nat: session.nat,
            age: session.age,
            traffic: Counters::default(),
        });
        direction.age = direction.age.max(session.age);
        direction.traffic.packets += session.packets;
        direction.traffic.bytes += session.bytes;
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
        let reply = against.map_or_else(Counters::default, |one| one.traffic);
        Some(Connection { tuple, nat, original: traffic, reply })
    };
    order.into_iter().filter_map(connection).collect()
}

/// The tuple of packets that reply to those of this session, as they arrive.
fn reply(session: &Session) -> FiveTuple {
    let (source, destination) = session.out();
    FiveTuple { protocol: session.tuple.protocol, source: destination, destination: source }
}
