//! Flow records under the names that others have for the same: Zeek's conn.log, the Elastic Common Schema, and the
//! Network Activity class of OCSF.

use anyhow::Result;
use datafusion::common::DFSchema;
use datafusion::prelude::SessionContext;

use crate::queries::{self, DURATION, OCTETS, PACKETS};
use crate::source::TABLE;

const SOURCE: &str = "ip(\"sourceIPv4Address\", \"sourceIPv6Address\")";
const DESTINATION: &str = "ip(\"destinationIPv4Address\", \"destinationIPv6Address\")";
const START: &str = "arrow_cast(\"flowStartNanoseconds\", 'Int64')";
const END: &str = "arrow_cast(\"flowEndNanoseconds\", 'Int64')";
const TRANSPORT: &str = "CASE \"protocolIdentifier\" WHEN 1 THEN 'icmp' WHEN 6 THEN 'tcp' WHEN 17 THEN 'udp' \
    WHEN 58 THEN 'ipv6-icmp' WHEN 132 THEN 'sctp' ELSE arrow_cast(\"protocolIdentifier\", 'Utf8') END";

/// Adds the views to a session.
pub(crate) async fn register(context: &SessionContext) -> Result<()> {
    let records = context.table(TABLE).await?;
    for (name, columns) in views(records.schema()) {
        let columns = columns.join(", ");
        let sql = format!("SELECT {columns} FROM {TABLE} WHERE \"natEvent\" IS NULL");
        context.register_table(name, context.sql(&sql).await?.into_view())?;
    }
    Ok(())
}

/// The name and the columns of each view of records with these columns.
fn views(schema: &DFSchema) -> [(&'static str, Vec<String>); 3] {
    // A field on request is missing in the files of most meters.
    let column = |name: &str, kind: &str| match schema.has_column_with_unqualified_name(name) {
        true => format!("\"{name}\""),
        false => format!("arrow_cast(NULL, '{kind}')"),
    };
    let text = |name| column(name, "Utf8");
    let [payload, reverse_payload] =
        ["transportOctetDeltaCount", "reverseTransportOctetDeltaCount"]
            .map(|name| column(name, "UInt64"));
    let (source_mac, destination_mac) = (text("sourceMacAddress"), text("destinationMacAddress"));
    let community_id = queries::community_id("source", "destination", "", "");
    let [source_port, destination_port] =
        ["\"sourceTransportPort\"", "\"destinationTransportPort\""];
    let zeek = [
        (&*format!("arrow_cast({START}, 'Float64') / 1e9"), "ts"),
        (SOURCE, "id.orig_h"),
        (source_port, "id.orig_p"),
        (DESTINATION, "id.resp_h"),
        (destination_port, "id.resp_p"),
        (TRANSPORT, "proto"),
        (&format!("arrow_cast({DURATION}, 'Float64') / 1e9"), "duration"),
        (&payload, "orig_bytes"),
        (&reverse_payload, "resp_bytes"),
        (&text("flowHistory"), "history"),
        ("\"packetDeltaCount\"", "orig_pkts"),
        ("\"octetDeltaCount\"", "orig_ip_bytes"),
        ("\"reversePacketDeltaCount\"", "resp_pkts"),
        ("\"reverseOctetDeltaCount\"", "resp_ip_bytes"),
        (&source_mac, "orig_l2_addr"),
        (&destination_mac, "resp_l2_addr"),
        ("\"dot1qVlanId\"", "vlan"),
        ("\"dot1qCustomerVlanId\"", "inner_vlan"),
        (&community_id, "community_id"),
    ];
    let ecs = [
        ("\"flowStartNanoseconds\"", "@timestamp"),
        ("\"flowStartNanoseconds\"", "event.start"),
        ("\"flowEndNanoseconds\"", "event.end"),
        (DURATION, "event.duration"),
        (SOURCE, "source.ip"),
        (source_port, "source.port"),
        (&source_mac, "source.mac"),
        ("\"packetDeltaCount\"", "source.packets"),
        ("\"octetDeltaCount\"", "source.bytes"),
        ("ip(\"postNATSourceIPv4Address\", \"postNATSourceIPv6Address\")", "source.nat.ip"),
        ("\"postNAPTSourceTransportPort\"", "source.nat.port"),
        (DESTINATION, "destination.ip"),
        (destination_port, "destination.port"),
        (&destination_mac, "destination.mac"),
        ("\"reversePacketDeltaCount\"", "destination.packets"),
        ("\"reverseOctetDeltaCount\"", "destination.bytes"),
        (
            "ip(\"postNATDestinationIPv4Address\", \"postNATDestinationIPv6Address\")",
            "destination.nat.ip",
        ),
        ("\"postNAPTDestinationTransportPort\"", "destination.nat.port"),
        ("CASE \"ipVersion\" WHEN 4 THEN 'ipv4' ELSE 'ipv6' END", "network.type"),
        (TRANSPORT, "network.transport"),
        ("arrow_cast(\"protocolIdentifier\", 'Utf8')", "network.iana_number"),
        (PACKETS, "network.packets"),
        (OCTETS, "network.bytes"),
        ("arrow_cast(\"dot1qVlanId\", 'Utf8')", "network.vlan.id"),
        (&community_id, "network.community_id"),
        ("\"interfaceName\"", "observer.ingress.interface.name"),
    ];
    let ocsf = [
        ("4001", "class_uid"),
        ("4", "category_uid"),
        ("6", "activity_id"),
        ("400106", "type_uid"),
        (&*format!("({START} / 1000000)"), "time"),
        (&format!("({START} / 1000000)"), "start_time"),
        (&format!("({END} / 1000000)"), "end_time"),
        (&format!("({DURATION} / 1000000)"), "duration"),
        (SOURCE, "src_endpoint.ip"),
        (source_port, "src_endpoint.port"),
        (&source_mac, "src_endpoint.mac"),
        (DESTINATION, "dst_endpoint.ip"),
        (destination_port, "dst_endpoint.port"),
        (&destination_mac, "dst_endpoint.mac"),
        ("\"protocolIdentifier\"", "connection_info.protocol_num"),
        ("\"ipVersion\"", "connection_info.protocol_ver_id"),
        (&community_id, "connection_info.community_uid"),
        ("\"tcpControlBits\"", "connection_info.tcp_flags"),
        (PACKETS, "traffic.packets"),
        (OCTETS, "traffic.bytes"),
        ("\"packetDeltaCount\"", "traffic.packets_out"),
        ("\"octetDeltaCount\"", "traffic.bytes_out"),
        ("\"reversePacketDeltaCount\"", "traffic.packets_in"),
        ("\"reverseOctetDeltaCount\"", "traffic.bytes_in"),
    ];
    let named = |columns: &[(&str, &str)]| {
        columns.iter().map(|(value, name)| format!("{value} AS \"{name}\"")).collect()
    };
    [("zeek", named(&zeek)), ("ecs", named(&ecs)), ("ocsf", named(&ocsf))]
}
