//! The predefined queries, as SQL.

use clap::ValueEnum;

use crate::filter::{Filter, Meaning};
use crate::source::TABLE;
use crate::time::Range;

/// The most rows that SQL can ask for.
const MAX_ROWS: u64 = i64::MAX as u64;
const PACKETS: &str = "sum(\"packetDeltaCount\" + \"reversePacketDeltaCount\")";
const OCTETS: &str = "sum(\"octetDeltaCount\" + \"reverseOctetDeltaCount\")";
const SOURCE: &str = "\"sourceIPv4Address\", \"sourceIPv6Address\"";
const DESTINATION: &str = "\"destinationIPv4Address\", \"destinationIPv6Address\"";

/// What `top` groups by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// Addresses, whether they began the flow or not. A flow counts for both, and once if they are the same.
    Host,
    /// The initiator's address.
    Source,
    /// The address of its peer.
    Destination,
    /// Both addresses.
    Pair,
    /// The destination port with its protocol.
    Port,
    /// The protocol.
    Protocol,
    /// The VLAN.
    Vlan,
    /// The interface.
    Interface,
    /// The sensor: the folder sensor=NAME.
    Sensor,
}

/// What `top` sorts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// Octets of both directions.
    Octets,
    /// Packets of both directions.
    Packets,
    /// Flow records.
    Flows,
}

/// The condition of a filter and a range of time. A record is in a range if a part of its flow is.
pub(crate) fn condition(filter: Option<&Filter>, range: Range, meaning: Meaning) -> String {
    let mut all = Vec::new();
    let time = |nanos: i64| format!("arrow_cast({nanos}, 'Timestamp(Nanosecond, Some(\"UTC\"))')");
    all.extend(range.after.map(|after| format!("\"flowEndNanoseconds\" >= {}", time(after))));
    all.extend(range.before.map(|before| format!("\"flowStartNanoseconds\" < {}", time(before))));
    all.extend(filter.map(|filter| filter.sql(meaning)));
    if all.is_empty() { "TRUE".to_owned() } else { all.join(" AND ") }
}

/// The condition of a Community ID, before or after NAT.
pub(crate) fn of_community_id(id: &str) -> String {
    let tuple = |source: &str, destination: &str, nat: &str, napt: &str| {
        format!(
            "community_id(\"{nat}{source}IPv4Address\", \"{nat}{source}IPv6Address\", \
             \"{nat}{destination}IPv4Address\", \"{nat}{destination}IPv6Address\", \"protocolIdentifier\", \
             \"{napt}{source}TransportPort\", \"{napt}{destination}TransportPort\", \
             coalesce(\"icmpTypeCodeIPv4\", \"icmpTypeCodeIPv6\")) = '{id}'"
        )
    };
    let before = tuple("source", "destination", "", "");
    let after = tuple("Source", "Destination", "postNAT", "postNAPT");
    format!("({before} OR {after})")
}

/// `top`: the top talkers.
pub(crate) fn top(by: By, sort: Sort, count: u64, condition: &str) -> String {
    let flows = format!("(SELECT * FROM {TABLE} WHERE \"natEvent\" IS NULL AND {condition})");
    let (from, columns, keys) = match by {
        By::Host => {
            let counts = "\"packetDeltaCount\", \"reversePacketDeltaCount\", \"octetDeltaCount\", \"reverseOctetDeltaCount\"";
            let end = |columns: &str| format!("SELECT {columns}, {counts} FROM {flows}");
            let (source, destination) = (end(SOURCE), end(DESTINATION));
            // A host that talks to itself is one host.
            let differ = |version: &str| {
                format!(
                    "(\"source{version}Address\" IS DISTINCT FROM \"destination{version}Address\")"
                )
            };
            let differ = format!("({} OR {})", differ("IPv4"), differ("IPv6"));
            (
                format!("({source} UNION ALL {destination} WHERE {differ})"),
                format!("ip({SOURCE}) AS host"),
                SOURCE.to_owned(),
            )
        }
        By::Source => (flows, format!("ip({SOURCE}) AS source"), SOURCE.to_owned()),
        By::Destination => {
            (flows, format!("ip({DESTINATION}) AS destination"), DESTINATION.to_owned())
        }
        By::Pair => {
            let columns = format!("ip({SOURCE}) AS source, ip({DESTINATION}) AS destination");
            (flows, columns, format!("{SOURCE}, {DESTINATION}"))
        }
        By::Port => {
            let keys = "\"protocolIdentifier\", \"destinationTransportPort\"";
            (
                flows,
                "\"protocolIdentifier\" AS protocol, \"destinationTransportPort\" AS port"
                    .to_owned(),
                keys.to_owned(),
            )
        }
        By::Protocol => single(flows, "protocolIdentifier", "protocol"),
        By::Vlan => single(flows, "dot1qVlanId", "vlan"),
        By::Interface => single(flows, "interfaceName", "interface"),
        By::Sensor => single(flows, "sensor", "sensor"),
    };
    let count = count.min(MAX_ROWS);
    let sort = match sort {
        Sort::Octets => "octets",
        Sort::Packets => "packets",
        Sort::Flows => "flows",
    };
    format!(
        "SELECT {columns}, count(*) AS flows, {PACKETS} AS packets, {OCTETS} AS octets FROM {from} \
         GROUP BY {keys} ORDER BY {sort} DESC, {keys} LIMIT {count}"
    )
}

fn single(flows: String, column: &str, name: &str) -> (String, String, String) {
    (flows, format!("\"{column}\" AS {name}"), format!("\"{column}\""))
}

/// `list`: records in the order of time.
pub(crate) fn list(count: u64, condition: &str, nat_events: bool) -> String {
    let (columns, kind) = if nat_events {
        let translated = "ip(\"postNATSourceIPv4Address\", \"postNATSourceIPv6Address\") AS translated_source, \
             \"postNAPTSourceTransportPort\" AS translated_source_port, \
             ip(\"postNATDestinationIPv4Address\", \"postNATDestinationIPv6Address\") AS translated_destination, \
             \"postNAPTDestinationTransportPort\" AS translated_destination_port";
        (format!("\"natEvent\" AS event, {translated}"), "IS NOT NULL")
    } else {
        let counts = "\"packetDeltaCount\" AS packets, \"octetDeltaCount\" AS octets, \
             \"reversePacketDeltaCount\" AS reverse_packets, \"reverseOctetDeltaCount\" AS reverse_octets";
        (counts.to_owned(), "IS NULL")
    };
    let count = count.min(MAX_ROWS);
    format!(
        "SELECT \"flowStartNanoseconds\" AS start, \"flowEndNanoseconds\" AS \"end\", \"protocolIdentifier\" AS protocol, \
         ip({SOURCE}) AS source, \"sourceTransportPort\" AS source_port, ip({DESTINATION}) AS destination, \
         \"destinationTransportPort\" AS destination_port, {columns} FROM {TABLE} \
         WHERE \"natEvent\" {kind} AND {condition} ORDER BY \"flowStartNanoseconds\", \"flowEndNanoseconds\" LIMIT {count}"
    )
}

/// `sum`: totals, or those of each interval of `every` nanoseconds that flows begin in.
pub(crate) fn sum(every: Option<i64>, condition: &str) -> String {
    let columns = format!(
        "count(*) AS flows, coalesce({PACKETS}, 0) AS packets, coalesce({OCTETS}, 0) AS octets, \
         min(\"flowStartNanoseconds\") AS first, max(\"flowEndNanoseconds\") AS last, \
         min(\"samplingProbability\") AS sampling_probability"
    );
    let from = format!("FROM {TABLE} WHERE \"natEvent\" IS NULL AND {condition}");
    match every {
        None => format!("SELECT {columns} {from}"),
        Some(nanos) => {
            let bin =
                format!("(arrow_cast(\"flowStartNanoseconds\", 'Int64') / {nanos}) * {nanos}");
            format!(
                "SELECT arrow_cast({bin}, 'Timestamp(Nanosecond, Some(\"UTC\"))') AS start, {columns} {from} \
                 GROUP BY {bin} ORDER BY {bin}"
            )
        }
    }
}
