//! [`Fields`]: all fields of a session, from all maps of the table.

use crate::table::layout::{Cold, Hop, REFERENCED, Session, SessionKey};
use crate::table::session::LastUse;

/// What a session is matched by, counts and does: its line, its hop, and what packets rarely touch, but for the counts
/// of other CPUs. Raw fields are as in the frame; `bpf/layout.h` describes each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "layout.h describes each field")]
pub struct Fields {
    pub key: SessionKey,
    pub version: u32,
    pub deadline: u32,
    pub owner: u16,
    pub route_generation: u16,
    /// Forwarded a packet since the ager last looked.
    pub referenced: bool,
    /// Low 24 bits of the sixteenths of a second when the ager last found it referenced.
    pub used: u32,
    pub packets: u64,
    pub bytes: u64,
    pub destination_mac: [u8; 6],
    pub source_mac: [u8; 6],
    pub out_tag: [[u8; 4]; 2],
    pub mtu: u16,
    /// Times that it was learned again; stops at 255.
    pub revalidations: u8,
    pub source: [u8; 4],
    pub destination: [u8; 4],
    pub source_port: [u8; 2],
    pub destination_port: [u8; 2],
    pub network_delta: [u8; 2],
    pub transport_delta: [u8; 2],
    pub dscp: u8,
    pub out_tags: u8,
    pub flags: u8,
    pub port: u8,
    /// When it began, and its number among the sessions of its slot.
    pub created: u32,
    pub out_ifindex: u32,
    pub mark: u32,
    pub priority: u32,
}

impl Fields {
    /// Those of a session with this hop.
    pub fn new(session: &Session, hop: &Hop, cold: &Cold) -> Self {
        let [source_port, destination_port] = session.ports;
        let last_use = LastUse::new(session.owner & REFERENCED != 0, cold.used);
        Self {
            key: SessionKey {
                source: session.in_source,
                destination: session.in_destination,
                source_port,
                destination_port,
                ifindex: hop.ifindex,
                dst_mac: hop.dst_mac,
                kind: session.kind,
                dscp: session.dscp,
                tag: hop.tag,
                generation: session.generation,
            },
            version: session.version,
            deadline: session.deadline,
            owner: session.owner & !REFERENCED,
            route_generation: session.route_generation,
            referenced: last_use.is_recent,
            used: last_use.at(),
            packets: session.packets,
            bytes: session.bytes,
            destination_mac: hop.destination_mac,
            source_mac: hop.source_mac,
            out_tag: hop.out_tag,
            mtu: hop.mtu,
            revalidations: (cold.used >> 24) as u8,
            source: session.source,
            destination: session.destination,
            source_port: session.source_port,
            destination_port: session.destination_port,
            network_delta: session.network_delta,
            transport_delta: session.transport_delta,
            dscp: hop.dscp,
            out_tags: hop.out_tags,
            flags: hop.flags,
            port: hop.port,
            created: cold.created,
            out_ifindex: hop.out_ifindex,
            mark: hop.mark,
            priority: hop.priority,
        }
    }

    /// The session, whose hop has the index `hop`.
    pub fn session(&self, hop: u16) -> Session {
        let key = &self.key;
        Session {
            in_source: key.source,
            in_destination: key.destination,
            ports: [key.source_port, key.destination_port],
            kind: key.kind,
            dscp: key.dscp,
            hop,
            generation: key.generation,
            version: self.version,
            deadline: self.deadline,
            owner: self.owner | if self.referenced { REFERENCED } else { 0 },
            route_generation: self.route_generation,
            packets: self.packets,
            bytes: self.bytes,
            source: self.source,
            destination: self.destination,
            source_port: self.source_port,
            destination_port: self.destination_port,
            network_delta: self.network_delta,
            transport_delta: self.transport_delta,
        }
    }

    /// The hop; nothing in the table refers to it yet.
    pub fn hop(&self) -> Hop {
        Hop {
            ifindex: self.key.ifindex,
            tag: self.key.tag,
            dst_mac: self.key.dst_mac,
            mtu: self.mtu,
            destination_mac: self.destination_mac,
            source_mac: self.source_mac,
            dscp: self.dscp,
            out_tags: self.out_tags,
            flags: self.flags,
            port: self.port,
            out_tag: self.out_tag,
            out_ifindex: self.out_ifindex,
            mark: self.mark,
            priority: self.priority,
            ..Hop::default()
        }
    }

    /// [`Cold::used`].
    pub fn used_word(&self) -> u32 {
        self.used & 0xff_ffff | u32::from(self.revalidations) << 24
    }
}
