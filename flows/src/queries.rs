//! The predefined queries, as SQL.

use clap::ValueEnum;

use crate::filter::{Filter, Meaning};
use crate::source::TABLE;
use crate::time::Range;

/// The most rows that SQL can ask for.
const MAX_ROWS: u64 = i64::MAX as u64;
pub(crate) const PACKETS: &str = "(\"packetDeltaCount\" + \"reversePacketDeltaCount\")";
pub(crate) const OCTETS: &str = "(\"octetDeltaCount\" + \"reverseOctetDeltaCount\")";
/// Nanoseconds from the first to the last packet.
pub(crate) const DURATION: &str =
    "(arrow_cast(\"flowEndNanoseconds\", 'Int64') - arrow_cast(\"flowStartNanoseconds\", 'Int64'))";
const SOURCE: &str = "\"sourceIPv4Address\", \"sourceIPv6Address\"";
const DESTINATION: &str = "\"destinationIPv4Address\", \"destinationIPv6Address\"";

/// What `top` groups by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// Addresses, whether they began the flow or not. A flow counts for both, and once if they are the same.
    Host,
    /// Networks, likewise: net/N has N bits of IPv4 (default: 24), net/N/M also M bits of IPv6 (default: 64).
    Net,
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
    /// Names of local processes. A flow between two of them counts for both.
    Process,
    /// Ids of containers of local processes, likewise.
    Container,
    /// Units of local processes, likewise.
    Unit,
}

impl By {
    /// A column that only some records have, and what to say where it is missing.
    pub(crate) fn required_column(self) -> Option<(&'static str, &'static str)> {
        const PROCESSES: &str =
            "have no processes: record them with `linerate capture --process-info --flows`";
        Some(match self {
            Self::Sensor => ("sensor", "are not in folders sensor=NAME"),
            Self::Process => ("sourceProcessName", PROCESSES),
            Self::Container => ("sourceContainerId", PROCESSES),
            Self::Unit => ("sourceUnitName", PROCESSES),
            _ => return None,
        })
    }

    /// Whether a flow counts for both ends.
    fn counts_both_ends(self) -> bool {
        matches!(self, Self::Host | Self::Net | Self::Process | Self::Container | Self::Unit)
    }
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

/// What `list` sorts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListSort {
    /// The first packet, earliest first.
    Time,
    /// Octets of both directions, most first.
    Octets,
    /// Packets of both directions, most first.
    Packets,
    /// The time from the first to the last packet, longest first.
    Duration,
}

/// Flows, packets and octets, in this order. Those that sampling left out are estimated, if `is_scaled`.
fn counts(is_scaled: bool) -> [String; 3] {
    ["1", PACKETS, OCTETS].map(|of_one| match is_scaled {
        true => {
            let scaled = format!("arrow_cast({of_one}, 'Float64') / \"samplingProbability\"");
            format!("arrow_cast(round(sum({scaled})), 'UInt64')")
        }
        false if of_one == "1" => "count(*)".to_owned(),
        false => format!("sum({of_one})"),
    })
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

/// The Community ID of a flow by the columns of its ends, after these words.
pub(crate) fn community_id(source: &str, destination: &str, nat: &str, napt: &str) -> String {
    format!(
        "community_id(\"{nat}{source}IPv4Address\", \"{nat}{source}IPv6Address\", \
         \"{nat}{destination}IPv4Address\", \"{nat}{destination}IPv6Address\", \"protocolIdentifier\", \
         \"{napt}{source}TransportPort\", \"{napt}{destination}TransportPort\", \
         coalesce(\"icmpTypeCodeIPv4\", \"icmpTypeCodeIPv6\"))"
    )
}

/// The condition of a Community ID, before or after NAT.
pub(crate) fn of_community_id(id: &str) -> String {
    let before = community_id("source", "destination", "", "");
    let after = community_id("Source", "Destination", "postNAT", "postNAPT");
    // Messages of ICMP that nothing answers have an ID for each direction, and one record for both.
    let back = community_id("destination", "source", "", "");
    let back = format!("\"protocolIdentifier\" IN (1, 58) AND {back} = '{id}'");
    format!("({before} = '{id}' OR {after} = '{id}' OR ({back}))")
}

/// What `top` shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Top {
    pub(crate) by: By,
    /// The lengths of prefixes of IPv4 and IPv6, for [`By::Net`].
    pub(crate) prefixes: (u8, u8),
    pub(crate) sort: Sort,
    pub(crate) count: u64,
    pub(crate) is_scaled: bool,
}

/// `top`: the top talkers.
pub(crate) fn top(options: Top, condition: &str) -> String {
    let Top { by, prefixes, sort, count, is_scaled } = options;
    let flows = format!("(SELECT * FROM {TABLE} WHERE \"natEvent\" IS NULL AND {condition})");
    let (from, columns, keys) = grouping(by, prefixes, flows);
    let count = count.min(MAX_ROWS);
    // Each flow has two hosts, and counts once in the total.
    let is_whole = if by.counts_both_ends() { "whole" } else { "1" };
    let (sort, of_one) = match sort {
        Sort::Octets => ("octets", OCTETS),
        Sort::Packets => ("packets", PACKETS),
        Sort::Flows => ("flows", "1"),
    };
    let of_one = match is_scaled {
        true => format!("(arrow_cast({of_one}, 'Float64') / \"samplingProbability\")"),
        false => of_one.to_owned(),
    };
    let float = |sum: &str| format!("arrow_cast(sum({sum}), 'Float64')");
    let total = format!("sum({}) OVER ()", float(&format!("{of_one} * {is_whole}")));
    let percent = format!("round({} * 100 / nullif({total}, 0), 2)", float(&of_one));
    let [flow_count, packets, octets] = counts(is_scaled);
    let time = "arrow_cast(max(\"flowEndNanoseconds\"), 'Int64') - arrow_cast(min(\"flowStartNanoseconds\"), 'Int64')";
    let rate = format!("round(arrow_cast({octets}, 'Float64') * 8e9 / nullif({time}, 0))");
    format!(
        "SELECT {columns}, {flow_count} AS flows, {packets} AS packets, {octets} AS octets, {percent} AS percent, \
         {rate} AS bits_per_second FROM {from} GROUP BY {keys} ORDER BY {sort} DESC, {keys} LIMIT {count}"
    )
}

/// Of `top`: what it selects from, its columns, and the keys of its groups.
fn grouping(by: By, prefixes: (u8, u8), flows: String) -> (String, String, String) {
    // A flow for each of its ends, but once if they are the same.
    let of_ends = |source: &str, destination: &str, differ: &str| {
        let counts = "\"packetDeltaCount\", \"reversePacketDeltaCount\", \"octetDeltaCount\", \
             \"reverseOctetDeltaCount\", \"flowStartNanoseconds\", \"flowEndNanoseconds\", \"samplingProbability\"";
        let end = |columns: &str, whole| {
            format!("SELECT {columns}, {counts}, {whole} AS whole FROM {flows}")
        };
        let (source, destination) = (end(source, 1), end(destination, 0));
        format!("({source} UNION ALL {destination} WHERE {differ})")
    };
    // A flow with one local process counts for it alone.
    let of_local = |column: &str, name: &str| {
        let [source, destination] =
            ["source", "destination"].map(|end| format!("\"{end}{column}\""));
        let from = of_ends(
            &format!("coalesce({source}, {destination}) AS {name}"),
            &format!("{destination} AS {name}"),
            &format!("{source} <> {destination}"),
        );
        (from, name.to_owned(), name.to_owned())
    };
    match by {
        By::Process => of_local("ProcessName", "process"),
        By::Container => of_local("ContainerId", "container"),
        By::Unit => of_local("UnitName", "unit"),
        By::Host => {
            let differ = |version: &str| {
                format!(
                    "(\"source{version}Address\" IS DISTINCT FROM \"destination{version}Address\")"
                )
            };
            let differ = format!("({} OR {})", differ("IPv4"), differ("IPv6"));
            let from = of_ends(SOURCE, DESTINATION, &differ);
            (from, format!("ip({SOURCE}) AS host"), SOURCE.to_owned())
        }
        By::Net => {
            let net = |columns| format!("net({columns}, {}, {})", prefixes.0, prefixes.1);
            let (source, destination) = (net(SOURCE), net(DESTINATION));
            let differ = format!("({source} IS DISTINCT FROM {destination})");
            let named = |net: &str| format!("{net} AS net");
            let from = of_ends(&named(&source), &named(&destination), &differ);
            (from, "net".to_owned(), "net".to_owned())
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
    }
}

fn single(flows: String, column: &str, name: &str) -> (String, String, String) {
    (flows, format!("\"{column}\" AS {name}"), format!("\"{column}\""))
}

/// What `list` lists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub(crate) count: u64,
    pub(crate) sort: ListSort,
    pub(crate) nat_events: bool,
}

/// `list`: records; with their sensors, if `has_sensor`.
pub(crate) fn list(options: List, condition: &str, has_sensor: bool) -> String {
    let List { count, sort, nat_events } = options;
    let (columns, kind) = if nat_events {
        let translated = "ip(\"postNATSourceIPv4Address\", \"postNATSourceIPv6Address\") AS translated_source, \
             \"postNAPTSourceTransportPort\" AS translated_source_port, \
             ip(\"postNATDestinationIPv4Address\", \"postNATDestinationIPv6Address\") AS translated_destination, \
             \"postNAPTDestinationTransportPort\" AS translated_destination_port";
        (format!("\"natEvent\" AS event, {translated}"), "IS NOT NULL")
    } else {
        let counts = "\"packetDeltaCount\" AS packets, \"octetDeltaCount\" AS octets, \
             \"reversePacketDeltaCount\" AS reverse_packets, \"reverseOctetDeltaCount\" AS reverse_octets, \
             tcp_flags(\"tcpControlBits\") AS flags, tcp_flags(\"reverseTcpControlBits\") AS reverse_flags, \
             \"flowEndReason\" AS end_reason";
        (format!("arrow_cast({DURATION}, 'Float64') / 1e9 AS duration, {counts}"), "IS NULL")
    };
    let sensor = if has_sensor { ", sensor" } else { "" };
    let sort = match sort {
        ListSort::Time => String::new(),
        ListSort::Octets => format!("{OCTETS} DESC, "),
        ListSort::Packets => format!("{PACKETS} DESC, "),
        ListSort::Duration => format!("{DURATION} DESC, "),
    };
    let count = count.min(MAX_ROWS);
    format!(
        "SELECT \"flowStartNanoseconds\" AS start, \"flowEndNanoseconds\" AS \"end\", \"protocolIdentifier\" AS protocol, \
         ip({SOURCE}) AS source, \"sourceTransportPort\" AS source_port, ip({DESTINATION}) AS destination, \
         \"destinationTransportPort\" AS destination_port, {columns}{sensor} FROM {TABLE} \
         WHERE \"natEvent\" {kind} AND {condition} \
         ORDER BY {sort}\"flowStartNanoseconds\", \"flowEndNanoseconds\" LIMIT {count}"
    )
}

/// `sum`: totals, or those of each interval of `every` nanoseconds that flows begin in.
pub(crate) fn sum(every: Option<i64>, condition: &str, is_scaled: bool) -> String {
    let [flows, packets, octets] = counts(is_scaled);
    let columns = format!(
        "coalesce({flows}, 0) AS flows, coalesce({packets}, 0) AS packets, coalesce({octets}, 0) AS octets, \
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
