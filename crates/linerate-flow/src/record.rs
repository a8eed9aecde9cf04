//! [`FlowRecord`]: what is known about a flow.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use linerate_pcapfile::PacketLocation;
use linerate_wire::ethernet::Address;

/// A flow: packets with one key in an interval, in both directions (a biflow of RFC 5103).
///
/// The forward direction is that of the initiator: who sent the first packet, or the SYN of TCP.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowRecord {
    /// The time of the first packet of either direction, in nanoseconds since 1970 (UTC).
    pub start: u64,
    /// The time of the last packet of either direction, likewise.
    pub end: u64,
    /// The time of the first packet of the reverse direction, likewise; `None` if there was none.
    pub reverse_start: Option<u64>,
    /// What the packets have in common.
    pub key: FlowKey,
    /// The index of the interface that the packets came in by, or that they were captured at.
    pub ingress_interface: Option<u32>,
    /// The index of the interface that the packets left by.
    pub egress_interface: Option<u32>,
    /// The name of the ingress interface.
    pub interface_name: Option<Arc<str>>,
    /// Packets of the initiator.
    pub forward: Direction,
    /// Packets of the responder.
    pub reverse: Direction,
    /// How the forward direction was found.
    pub direction: BiflowDirection,
    /// Why the record ends here; `None` for an event.
    pub end_reason: Option<EndReason>,
    /// The probability that a flow is metered: 1 without sampling.
    pub sampling_probability: f64,
    /// What NAT makes of the initiator's packets.
    pub translation: Option<Translation>,
    /// The record is an event of NAT and not a flow: its counts are 0, and `start` and `end` are its time.
    pub nat_event: Option<NatEvent>,
    /// Where the packets are.
    pub packets: Option<PacketLocation>,
    /// What only some meters store.
    pub details: Details,
}

impl Default for FlowRecord {
    fn default() -> Self {
        Self {
            start: 0,
            end: 0,
            reverse_start: None,
            key: FlowKey::default(),
            ingress_interface: None,
            egress_interface: None,
            interface_name: None,
            forward: Direction::default(),
            reverse: Direction::default(),
            direction: BiflowDirection::default(),
            end_reason: None,
            sampling_probability: 1.0,
            translation: None,
            nat_event: None,
            packets: None,
            details: Details::default(),
        }
    }
}

/// What the packets of a flow have in common, as the initiator sends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The initiator's address.
    pub source: IpAddr,
    /// The responder's address, of the same version.
    pub destination: IpAddr,
    /// The initiator's port; `None` for protocols without ports, and fragments whose first one was not seen.
    pub source_port: Option<u16>,
    /// The responder's port.
    pub destination_port: Option<u16>,
    /// ICMP: type · 256 + code of the initiator's messages.
    pub icmp_type_code: Option<u16>,
    /// The protocol number after IPv6 extension headers.
    pub protocol: u8,
    /// The VLAN identifier of the outer tag.
    pub vlan: Option<u16>,
    /// The VLAN identifier of the second tag.
    pub customer_vlan: Option<u16>,
}

impl Default for FlowKey {
    fn default() -> Self {
        let unspecified = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Self {
            source: unspecified,
            destination: unspecified,
            source_port: None,
            destination_port: None,
            icmp_type_code: None,
            protocol: 0,
            vlan: None,
            customer_vlan: None,
        }
    }
}

/// The packets of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Direction {
    /// Packets.
    pub packets: u64,
    /// Octets of IP headers and payload: no link-layer header, padding or FCS.
    pub octets: u64,
    /// The TCP flags of all packets, or-ed.
    pub tcp_flags: u16,
    /// The smallest and the largest TTL or hop limit; `None` without packets.
    pub ttl: Option<(u8, u8)>,
    /// The smallest and the largest packet in octets as above; `None` without packets.
    pub length: Option<(u32, u32)>,
}

/// What a meter stores of a flow on request ([`crate::schema::Group`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The initiator's and the responder's MAC address.
    pub macs: Option<(Address, Address)>,
    /// Packets of the initiator.
    pub forward: DirectionDetails,
    /// Packets of the responder.
    pub reverse: DirectionDetails,
    /// What came for the first time, in the letters of Zeek's history.
    pub history: Option<Box<str>>,
    /// Microseconds from the first SYN to the SYN with ACK.
    pub syn_ack: Option<u32>,
    /// Microseconds from the first SYN to the ACK that completes the handshake.
    pub handshake: Option<u32>,
    /// The Community ID.
    pub community_id: Option<Box<str>>,
    /// The initiator's and the responder's process, of those on this host.
    pub processes: Processes,
}

/// What a record says of a local process. Missing text is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessFields {
    /// Its number in the initial PID namespace.
    pub id: u32,
    /// Its name (`comm`).
    pub name: String,
    /// Its arguments with spaces between them.
    pub command: Option<String>,
    /// Its effective user, as the host numbers users.
    pub uid: u32,
    /// The name of the user on the host.
    pub user: Option<String>,
    /// The id of its container.
    pub container: Option<String>,
    /// The name of its container.
    pub container_name: Option<String>,
    /// The UID of its pod in Kubernetes.
    pub pod: Option<String>,
    /// The namespace and the name of its pod.
    pub pod_name: Option<(String, String)>,
    /// Its unit of systemd.
    pub unit: Option<String>,
}

/// Those of a packet's sender and receiver.
pub type Processes = [Option<Arc<ProcessFields>>; 2];

/// What a meter stores of a direction on request; `None` also without packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionDetails {
    /// Type of service or traffic class of the first packet.
    pub tos: Option<u8>,
    /// Flow label of the first packet.
    pub flow_label: Option<u32>,
    /// Octets of payload.
    pub payload: Option<u64>,
    /// TCP flags of the first packet.
    pub first_flags: Option<u8>,
}

/// How the forward direction was found (IANA: `biflowDirection`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum BiflowDirection {
    /// By the ports, or by the first packet that was seen, although the flow had begun before.
    #[default]
    Arbitrary = 0,
    /// By the flow's first packet, or that of an earlier flow with this key: the source is the initiator.
    Initiator = 1,
}

/// Why a record ends (IANA: `flowEndReason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EndReason {
    /// No packet came for the idle timeout.
    IdleTimeout = 1,
    /// The active timeout passed; the flow continues.
    ActiveTimeout = 2,
    /// TCP ended the connection: FIN in both directions, or RST.
    EndOfFlow = 3,
    /// The meter ended.
    ForcedEnd = 4,
    /// The flow table was full.
    LackOfResources = 5,
}

/// Addresses and ports after NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The source address after NAT.
    pub source: IpAddr,
    /// The destination address after NAT.
    pub destination: IpAddr,
    /// The source port after NAT.
    pub source_port: Option<u16>,
    /// The destination port after NAT.
    pub destination_port: Option<u16>,
}

/// What happened to a translation (IANA: `natEvent`, RFC 8158).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NatEvent {
    /// NAT44 session create.
    Nat44Create = 4,
    /// NAT44 session delete.
    Nat44Delete = 5,
    /// NAT64 session create. Also a session of IPv6 to IPv6, which has no value of its own.
    Nat64Create = 6,
    /// NAT64 session delete, likewise.
    Nat64Delete = 7,
}
