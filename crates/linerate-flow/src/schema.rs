//! The one table of fields: names, units, and types in Parquet and IPFIX.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;
#[cfg(feature = "parquet")]
use std::sync::Arc;

#[cfg(feature = "parquet")]
use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
#[cfg(feature = "parquet")]
use parquet::schema::types::{Type as ParquetType, TypePtr};

use linerate_wire::ethernet::Address;

use crate::{Direction, DirectionDetails, FlowRecord, ProcessFields, Translation};

/// The version of the schema. A field that is added at the end leaves it. A field that is removed, moved or gets
/// another meaning increments it. Parquet files have it in their metadata under [`VERSION_KEY`].
pub const VERSION: u32 = 1;

/// The key of [`VERSION`] in the metadata of a Parquet file.
pub const VERSION_KEY: &str = "linerate.schema_version";

/// The PEN of CERT, whose registry of elements YAF and SiLK use. Reverse elements have bit 14 set there.
pub const CERT_PEN: u32 = 6871;

/// The private enterprise number (PEN) of reverse information elements (RFC 5103 section 6.1).
pub const REVERSE_PEN: u32 = 29305;

/// An information element of IPFIX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// The enterprise number: 0 for IANA's own elements, [`REVERSE_PEN`] for their reverse.
    pub enterprise: u32,
    /// The number of the element.
    pub id: u16,
}

/// The abstract data type of a field (RFC 7012 section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// unsigned8.
    Unsigned8,
    /// unsigned16.
    Unsigned16,
    /// unsigned32.
    Unsigned32,
    /// unsigned64.
    Unsigned64,
    /// float64.
    Float64,
    /// dateTimeNanoseconds. IPFIX stores it as an NTP timestamp (RFC 7011 section 6.1.9).
    DateTimeNanoseconds,
    /// ipv4Address.
    Ipv4Address,
    /// ipv6Address.
    Ipv6Address,
    /// macAddress.
    MacAddress,
    /// string.
    String,
}

linerate_net::named!(
    Kind, "abstract data type": Unsigned8 = "unsigned8", Unsigned16 = "unsigned16", Unsigned32 = "unsigned32",
    Unsigned64 = "unsigned64", Float64 = "float64", DateTimeNanoseconds = "dateTimeNanoseconds",
    Ipv4Address = "ipv4Address", Ipv6Address = "ipv6Address", MacAddress = "macAddress", String = "string"
);

impl Kind {
    /// Its length in an IPFIX record, in octets; 65,535 for a variable length (RFC 7011 section 7).
    pub const fn ipfix_len(self) -> u16 {
        match self {
            Self::Unsigned8 => 1,
            Self::Unsigned16 => 2,
            Self::Unsigned32 | Self::Ipv4Address => 4,
            Self::Unsigned64 | Self::Float64 | Self::DateTimeNanoseconds => 8,
            Self::MacAddress => 6,
            Self::Ipv6Address => 16,
            Self::String => 65535,
        }
    }

    /// Its physical and logical type in Parquet. An IPv4 address is a number, so that SQL can compare it with the
    /// ends of a prefix.
    #[cfg(feature = "parquet")]
    pub fn parquet(self) -> (Physical, Option<LogicalType>) {
        let unsigned = |bits| Some(LogicalType::integer(bits, false));
        match self {
            Self::Unsigned8 => (Physical::INT32, unsigned(8)),
            Self::Unsigned16 => (Physical::INT32, unsigned(16)),
            Self::Unsigned32 | Self::Ipv4Address => (Physical::INT32, unsigned(32)),
            Self::Unsigned64 => (Physical::INT64, unsigned(64)),
            Self::Float64 => (Physical::DOUBLE, None),
            Self::DateTimeNanoseconds => {
                (Physical::INT64, Some(LogicalType::timestamp(true, TimeUnit::NANOS)))
            }
            Self::Ipv6Address => (Physical::FIXED_LEN_BYTE_ARRAY, None),
            Self::MacAddress | Self::String => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        }
    }

    /// [`Kind::parquet`] as documents write it.
    pub const fn parquet_name(self) -> &'static str {
        match self {
            Self::Unsigned8 => "INT32 (UINT_8)",
            Self::Unsigned16 => "INT32 (UINT_16)",
            Self::Unsigned32 | Self::Ipv4Address => "INT32 (UINT_32)",
            Self::Unsigned64 => "INT64 (UINT_64)",
            Self::Float64 => "DOUBLE",
            Self::DateTimeNanoseconds => "INT64 (TIMESTAMP, NANOS, UTC)",
            Self::Ipv6Address => "FIXED_LEN_BYTE_ARRAY(16)",
            Self::MacAddress | Self::String => "BYTE_ARRAY (STRING)",
        }
    }
}

/// The value of a field in one record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Of an unsigned kind, an IPv4 address as a number, or nanoseconds since 1970 (UTC).
    Unsigned(u64),
    /// Of [`Kind::Float64`].
    Float(f64),
    /// Of [`Kind::Ipv6Address`].
    Ipv6(Ipv6Addr),
    /// Of [`Kind::MacAddress`].
    Mac(Address),
    /// Of [`Kind::String`].
    String(&'a str),
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Ipv6(address) => address.fmt(f),
            Self::Mac(address) => address.fmt(f),
            Self::String(text) => text.fmt(f),
        }
    }
}

/// A field of the schema.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The name of its information element, which is that of its column.
    pub name: &'static str,
    /// Its information element; `None` for a field that only files have.
    pub element: Option<Element>,
    /// Its type.
    pub kind: Kind,
    /// Its unit; empty without one.
    pub unit: &'static str,
    /// Whether a record may be without it.
    pub nullable: bool,
    /// What it says.
    pub description: &'static str,
    /// The fields that have to be asked for with it; `None` for a field of every record.
    pub group: Option<Group>,
    /// Its value in a record.
    pub value: for<'a> fn(&'a FlowRecord) -> Option<Value<'a>>,
}

/// Fields that only a meter that is asked for them stores: they cost time and space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Group {
    /// MAC addresses.
    Mac,
    /// Type of service, or traffic class.
    Tos,
    /// Flow label of IPv6.
    FlowLabel,
    /// Community ID.
    CommunityId,
    /// Octets of payload.
    Payload,
    /// TCP flags of the first packets, and a history.
    History,
    /// Times of the TCP handshake.
    Handshake,
    /// Local processes, with their container, pod and unit.
    Process,
}

linerate_net::named!(
    Group, "group of fields" or "all": Mac = "mac", Tos = "tos", FlowLabel = "flowlabel", CommunityId = "community-id",
    Payload = "payload", History = "history", Handshake = "handshake", Process = "process"
);

/// A set of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Groups(u8);

impl Groups {
    /// Whether this group is in it.
    pub const fn contains(self, group: Group) -> bool {
        self.0 >> group as u8 & 1 == 1
    }

    /// Whether one of them needs what the packets of a flow say.
    pub const fn need_packets(self) -> bool {
        self.0 & !(1 << Group::CommunityId as u8 | 1 << Group::Process as u8) != 0
    }

    /// These, and this one.
    #[must_use]
    pub const fn with(self, group: Group) -> Self {
        Self(self.0 | 1 << group as u8)
    }

    /// Whether records have this field.
    pub fn have(self, field: &Field) -> bool {
        field.group.is_none_or(|group| self.contains(group))
    }
}

impl FromStr for Groups {
    type Err = String;

    /// Names with commas between them. `all` stands for all that packets say: all but `process`.
    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').try_fold(Self::default(), |groups, name| {
            if name == "all" {
                let is_in_packets = |group: &Group| *group != Group::Process;
                return Ok(Group::ALL
                    .iter()
                    .copied()
                    .filter(is_in_packets)
                    .fold(groups, Self::with));
            }
            let known = Group::ALL.iter().copied().find(|group| group.name() == name);
            known.map(|group| groups.with(group)).ok_or_else(|| {
                let names: Vec<_> = Group::ALL.iter().map(|group| group.name()).collect();
                format!("{name:?} is none of {}, all", names.join(", "))
            })
        })
    }
}

impl FromIterator<Group> for Groups {
    fn from_iter<T: IntoIterator<Item = Group>>(groups: T) -> Self {
        groups.into_iter().fold(Self::default(), Self::with)
    }
}

/// One row a field: name, information element, kind, unit, whether it may be missing or the group that it is of,
/// description, value.
macro_rules! fields {
    ($($name:ident, $element:expr, $kind:ident, $unit:literal, $null:ident, $description:literal, $value:expr;)*) => {
        /// Every field, in the order of columns.
        pub const FIELDS: &[Field] = &[$(Field {
            name: stringify!($name),
            element: $element,
            kind: Kind::$kind,
            unit: $unit,
            nullable: fields!(@ $null),
            description: $description,
            group: fields!(# $null),
            value: $value,
        }),*];
    };
    (@ set) => { false };
    (@ $group:ident) => { true };
    (# set) => { None };
    (# null) => { None };
    (# $group:ident) => { Some(Group::$group) };
}

const fn iana(id: u16) -> Option<Element> {
    Some(Element { enterprise: 0, id })
}

const fn cert(id: u16) -> Option<Element> {
    Some(Element { enterprise: CERT_PEN, id })
}

const fn reverse(id: u16) -> Option<Element> {
    Some(Element { enterprise: REVERSE_PEN, id })
}

fields! {
    flowStartNanoseconds, iana(156), DateTimeNanoseconds, "ns since 1970, UTC", set, "first packet of either direction", |r| number(r.start);
    flowEndNanoseconds, iana(157), DateTimeNanoseconds, "ns since 1970, UTC", set, "last packet of either direction", |r| number(r.end);
    reverseFlowStartNanoseconds, reverse(156), DateTimeNanoseconds, "ns since 1970, UTC", null, "first packet of the reverse direction", |r| r.reverse_start.and_then(number);
    ipVersion, iana(60), Unsigned8, "", set, "4 or 6", |r| number(if r.key.source.is_ipv4() { 4_u8 } else { 6 });
    sourceIPv4Address, iana(8), Ipv4Address, "", null, "the initiator", |r| v4(r.key.source);
    destinationIPv4Address, iana(12), Ipv4Address, "", null, "the responder", |r| v4(r.key.destination);
    sourceIPv6Address, iana(27), Ipv6Address, "", null, "the initiator", |r| v6(r.key.source);
    destinationIPv6Address, iana(28), Ipv6Address, "", null, "the responder", |r| v6(r.key.destination);
    protocolIdentifier, iana(4), Unsigned8, "", set, "IANA's protocol number, after IPv6 extension headers", |r| number(r.key.protocol);
    sourceTransportPort, iana(7), Unsigned16, "", null, "the initiator's port; missing for protocols without ports", |r| r.key.source_port.and_then(number);
    destinationTransportPort, iana(11), Unsigned16, "", null, "the responder's port", |r| r.key.destination_port.and_then(number);
    icmpTypeCodeIPv4, iana(32), Unsigned16, "", null, "type · 256 + code of the initiator's messages", |r| icmp(r, 1);
    icmpTypeCodeIPv6, iana(139), Unsigned16, "", null, "the same for ICMPv6", |r| icmp(r, 58);
    dot1qVlanId, iana(243), Unsigned16, "", null, "VLAN of the outer tag", |r| r.key.vlan.and_then(number);
    dot1qCustomerVlanId, iana(245), Unsigned16, "", null, "VLAN of the second tag", |r| r.key.customer_vlan.and_then(number);
    ingressInterface, iana(10), Unsigned32, "", null, "index of the interface that packets came in by, or were captured at", |r| r.ingress_interface.and_then(number);
    egressInterface, iana(14), Unsigned32, "", null, "index of the interface that packets left by", |r| r.egress_interface.and_then(number);
    interfaceName, iana(82), String, "", null, "name of the ingress interface", |r| r.interface_name.as_deref().map(Value::String);
    packetDeltaCount, iana(2), Unsigned64, "packets", set, "packets of the initiator", |r| number(r.forward.packets);
    octetDeltaCount, iana(1), Unsigned64, "octets", set, "IP headers and payload of these", |r| number(r.forward.octets);
    reversePacketDeltaCount, reverse(2), Unsigned64, "packets", set, "packets of the responder", |r| number(r.reverse.packets);
    reverseOctetDeltaCount, reverse(1), Unsigned64, "octets", set, "IP headers and payload of these", |r| number(r.reverse.octets);
    tcpControlBits, iana(6), Unsigned16, "", null, "TCP flags of the initiator, or-ed", |r| flags(r, &r.forward);
    reverseTcpControlBits, reverse(6), Unsigned16, "", null, "TCP flags of the responder, or-ed", |r| flags(r, &r.reverse);
    minimumTTL, iana(52), Unsigned8, "hops", null, "smallest TTL or hop limit of the initiator", |r| number(r.forward.ttl?.0);
    maximumTTL, iana(53), Unsigned8, "hops", null, "largest", |r| number(r.forward.ttl?.1);
    reverseMinimumTTL, reverse(52), Unsigned8, "hops", null, "smallest of the responder", |r| number(r.reverse.ttl?.0);
    reverseMaximumTTL, reverse(53), Unsigned8, "hops", null, "largest of the responder", |r| number(r.reverse.ttl?.1);
    minimumIpTotalLength, iana(25), Unsigned64, "octets", null, "smallest packet of the initiator", |r| number(r.forward.length?.0);
    maximumIpTotalLength, iana(26), Unsigned64, "octets", null, "largest", |r| number(r.forward.length?.1);
    reverseMinimumIpTotalLength, reverse(25), Unsigned64, "octets", null, "smallest packet of the responder", |r| number(r.reverse.length?.0);
    reverseMaximumIpTotalLength, reverse(26), Unsigned64, "octets", null, "largest of the responder", |r| number(r.reverse.length?.1);
    biflowDirection, iana(239), Unsigned8, "", set, "1: the source is the initiator; 0: the beginning was not seen, and the ports decided", |r| number(r.direction as u8);
    flowEndReason, iana(136), Unsigned8, "", null, "1 idle timeout, 2 active timeout, 3 end of flow, 4 forced end, 5 lack of resources", |r| number(r.end_reason? as u8);
    samplingProbability, iana(311), Float64, "", set, "the share of flows that is metered", |r| Some(Value::Float(r.sampling_probability));
    postNATSourceIPv4Address, iana(225), Ipv4Address, "", null, "the initiator after NAT", |r| v4(nat(r)?.source);
    postNATDestinationIPv4Address, iana(226), Ipv4Address, "", null, "the responder after NAT", |r| v4(nat(r)?.destination);
    postNATSourceIPv6Address, iana(281), Ipv6Address, "", null, "the initiator after NAT", |r| v6(nat(r)?.source);
    postNATDestinationIPv6Address, iana(282), Ipv6Address, "", null, "the responder after NAT", |r| v6(nat(r)?.destination);
    postNAPTSourceTransportPort, iana(227), Unsigned16, "", null, "the initiator's port after NAT", |r| number(nat(r)?.source_port?);
    postNAPTDestinationTransportPort, iana(228), Unsigned16, "", null, "the responder's port after NAT", |r| number(nat(r)?.destination_port?);
    natEvent, iana(230), Unsigned8, "", null, "the record is a NAT event, not a flow: 4 NAT44 session create, 5 delete; 6 NAT64 session create, 7 delete, also for NAT of IPv6 to IPv6", |r| number(r.nat_event? as u8);
    packetFile, None, String, "", null, "packet file with the first packet", |r| Some(Value::String(&r.packets.as_ref()?.file));
    packetOffset, None, Unsigned64, "bytes", null, "an offset in that file where a packet begins, at or before the first packet", |r| number(r.packets.as_ref()?.first);
    packetEnd, None, Unsigned64, "bytes", null, "an offset in that file at or after the end of the last packet; missing if that is in a later file", |r| number(r.packets.as_ref()?.end?);
    sourceMacAddress, iana(56), MacAddress, "", Mac, "MAC address of the initiator, or of the router on its side", |r| Some(Value::Mac(r.details.macs?.0));
    destinationMacAddress, iana(80), MacAddress, "", Mac, "MAC address of the responder, or of the router on its side", |r| Some(Value::Mac(r.details.macs?.1));
    ipClassOfService, iana(5), Unsigned8, "", Tos, "type of service or traffic class of the initiator's first packet", |r| number(r.details.forward.tos?);
    reverseIpClassOfService, reverse(5), Unsigned8, "", Tos, "the same for the responder", |r| number(r.details.reverse.tos?);
    flowLabelIPv6, iana(31), Unsigned32, "", FlowLabel, "flow label of the initiator's first packet", |r| label(r, r.details.forward);
    reverseFlowLabelIPv6, reverse(31), Unsigned32, "", FlowLabel, "the same for the responder", |r| label(r, r.details.reverse);
    transportOctetDeltaCount, iana(401), Unsigned64, "octets", Payload, "payload of TCP, UDP, SCTP and ICMP messages of the initiator; of other protocols what follows IP", |r| number(r.details.forward.payload?);
    reverseTransportOctetDeltaCount, reverse(401), Unsigned64, "octets", Payload, "the same for the responder", |r| number(r.details.reverse.payload?);
    initialTCPFlags, cert(14), Unsigned8, "", History, "TCP flags of the initiator's first packet", |r| first_flags(r, &r.forward, &r.details.forward);
    reverseInitialTCPFlags, cert(14 | 1 << 14), Unsigned8, "", History, "TCP flags of the responder's first packet", |r| first_flags(r, &r.reverse, &r.details.reverse);
    flowHistory, None, String, "", History, "what came for the first time, in order: S SYN, H SYN with ACK, A ACK alone, D payload, F FIN, R RST; of the initiator in capitals", |r| r.details.history.as_deref().map(Value::String);
    tcpSynAckMicroseconds, None, Unsigned32, "µs", Handshake, "from the first SYN to the SYN with ACK", |r| number(r.details.syn_ack?);
    tcpHandshakeMicroseconds, None, Unsigned32, "µs", Handshake, "from the first SYN to the ACK that completes the handshake", |r| number(r.details.handshake?);
    communityId, None, String, "", CommunityId, "Community ID, version 1, as Zeek and Suricata compute it by default", |r| r.details.community_id.as_deref().map(Value::String);
    sourceProcessId, None, Unsigned32, "", Process, "PID of the initiator's process in the initial PID namespace, if it runs on this host", |r| number(process(r, 0)?.id);
    sourceProcessName, None, String, "", Process, "its name, 15 characters at most", |r| text(Some(&process(r, 0)?.name));
    sourceProcessCommandLine, None, String, "", Process, "its arguments with spaces between them", |r| text(process(r, 0)?.command.as_ref());
    sourceUserId, None, Unsigned32, "", Process, "its effective user, as the host numbers users", |r| number(process(r, 0)?.uid);
    sourceUserName, None, String, "", Process, "the name of this user on the host", |r| text(process(r, 0)?.user.as_ref());
    sourceContainerId, None, String, "", Process, "the id of its container", |r| text(process(r, 0)?.container.as_ref());
    sourceContainerName, None, String, "", Process, "the name of its container, if the runtime keeps it in files that can be read", |r| text(process(r, 0)?.container_name.as_ref());
    sourcePodId, None, String, "", Process, "the UID of its pod in Kubernetes", |r| text(process(r, 0)?.pod.as_ref());
    sourcePodNamespace, None, String, "", Process, "the namespace of its pod", |r| text(Some(&process(r, 0)?.pod_name.as_ref()?.0));
    sourcePodName, None, String, "", Process, "the name of its pod", |r| text(Some(&process(r, 0)?.pod_name.as_ref()?.1));
    sourceUnitName, None, String, "", Process, "its systemd unit (service or scope)", |r| text(process(r, 0)?.unit.as_ref());
    destinationProcessId, None, Unsigned32, "", Process, "the same for the responder", |r| number(process(r, 1)?.id);
    destinationProcessName, None, String, "", Process, "the same for the responder", |r| text(Some(&process(r, 1)?.name));
    destinationProcessCommandLine, None, String, "", Process, "the same for the responder", |r| text(process(r, 1)?.command.as_ref());
    destinationUserId, None, Unsigned32, "", Process, "the same for the responder", |r| number(process(r, 1)?.uid);
    destinationUserName, None, String, "", Process, "the same for the responder", |r| text(process(r, 1)?.user.as_ref());
    destinationContainerId, None, String, "", Process, "the same for the responder", |r| text(process(r, 1)?.container.as_ref());
    destinationContainerName, None, String, "", Process, "the same for the responder", |r| text(process(r, 1)?.container_name.as_ref());
    destinationPodId, None, String, "", Process, "the same for the responder", |r| text(process(r, 1)?.pod.as_ref());
    destinationPodNamespace, None, String, "", Process, "the same for the responder", |r| text(Some(&process(r, 1)?.pod_name.as_ref()?.0));
    destinationPodName, None, String, "", Process, "the same for the responder", |r| text(Some(&process(r, 1)?.pod_name.as_ref()?.1));
    destinationUnitName, None, String, "", Process, "the same for the responder", |r| text(process(r, 1)?.unit.as_ref());
}

fn number(value: impl Into<u64>) -> Option<Value<'static>> {
    Some(Value::Unsigned(value.into()))
}

fn v4(address: IpAddr) -> Option<Value<'static>> {
    match address {
        IpAddr::V4(address) => number(u32::from(address)),
        IpAddr::V6(_) => None,
    }
}

fn v6(address: IpAddr) -> Option<Value<'static>> {
    match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(Value::Ipv6(address)),
    }
}

fn icmp(record: &FlowRecord, protocol: u8) -> Option<Value<'static>> {
    record.key.icmp_type_code.filter(|_| record.key.protocol == protocol).and_then(number)
}

fn flags(record: &FlowRecord, direction: &Direction) -> Option<Value<'static>> {
    (record.key.protocol == 6 && direction.packets > 0).then(|| number(direction.tcp_flags))?
}

fn label(record: &FlowRecord, details: DirectionDetails) -> Option<Value<'static>> {
    details.flow_label.filter(|_| record.key.source.is_ipv6()).and_then(number)
}

fn first_flags(
    record: &FlowRecord,
    direction: &Direction,
    details: &DirectionDetails,
) -> Option<Value<'static>> {
    details.first_flags.filter(|_| flags(record, direction).is_some()).and_then(number)
}

fn process(record: &FlowRecord, end: usize) -> Option<&ProcessFields> {
    record.details.processes[end].as_deref()
}

fn text(text: Option<&String>) -> Option<Value<'_>> {
    text.map(|text| Value::String(text))
}

fn nat(record: &FlowRecord) -> Option<&Translation> {
    record.translation.as_ref()
}

/// The schema of a Parquet file with these groups of fields.
#[cfg(feature = "parquet")]
pub fn parquet(groups: Groups) -> TypePtr {
    let column = |field: &Field| {
        let (physical, logical) = field.kind.parquet();
        let repetition = if field.nullable { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let length = if field.kind == Kind::Ipv6Address { 16 } else { -1 };
        let column = ParquetType::primitive_type_builder(field.name, physical)
            .with_repetition(repetition)
            .with_logical_type(logical)
            .with_length(length);
        Arc::new(column.build().expect("a logical type fits its physical type"))
    };
    let columns = FIELDS.iter().filter(|field| groups.have(field)).map(column).collect();
    let schema = ParquetType::group_type_builder("flow").with_fields(columns).build();
    Arc::new(schema.expect("a group of columns"))
}

/// The table of docs/flow-fields.md.
pub fn markdown() -> String {
    let mut table = String::from(
        "| field | IPFIX | type | Parquet | unit | null | option | meaning |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for field in FIELDS {
        let element = match field.element {
            None => String::new(),
            Some(Element { enterprise: 0, id }) => id.to_string(),
            Some(Element { enterprise, id }) => format!("{enterprise}/{id}"),
        };
        let Field { name, kind, unit, description, group, .. } = field;
        let option = group.map_or_else(String::new, |group| format!("`{}`", group.name()));
        let (parquet, null) = (kind.parquet_name(), if field.nullable { "yes" } else { "" });
        let name = format!("`{name}`");
        let row = [&name, &element, kind.name(), parquet, unit, null, &option, description];
        table += &format!("| {} |\n", row.join(" | "));
    }
    table
}

#[cfg(test)]
mod tests;
