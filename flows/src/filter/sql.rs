//! From a [`Filter`] to a condition of SQL.

use std::net::IpAddr;

use super::{Direction, Filter, Leaf, Meaning, Quantity, What};
use crate::queries::DURATION;

/// IPv6 extension headers: libpcap looks at the first header, records have the protocol behind them.
const EXTENSION_HEADERS: [u8; 6] = [0, 43, 44, 51, 60, 135];

impl Filter {
    /// The condition, in the columns of flow records.
    pub(crate) fn sql(&self, meaning: Meaning) -> String {
        match meaning {
            Meaning::Flow => self.flow(),
            Meaning::MayHavePackets => self.may(true),
        }
    }

    fn flow(&self) -> String {
        match self {
            Self::And(a, b) => format!("({} AND {})", a.flow(), b.flow()),
            Self::Or(a, b) => format!("({} OR {})", a.flow(), b.flow()),
            // A column that is null does not match, so its opposite does.
            Self::Not(inner) => format!("({} IS NOT TRUE)", inner.flow()),
            Self::Leaf(leaf) => leaf.flow(leaf.direction),
            Self::Unknown => "TRUE".to_owned(),
        }
    }

    /// Whether a flow may have packets that the filter matches (`wanted`), or that it does not match.
    fn may(&self, wanted: bool) -> String {
        match self {
            Self::Not(inner) => inner.may(!wanted),
            Self::And(a, b) | Self::Or(a, b) => {
                let all = matches!(self, Self::And(..)) == wanted;
                let operator = if all { "AND" } else { "OR" };
                format!("({} {operator} {})", a.may(wanted), b.may(wanted))
            }
            Self::Unknown => "TRUE".to_owned(),
            Self::Leaf(leaf) if wanted => leaf.may_match(),
            Self::Leaf(leaf) => leaf.may_not_match(),
        }
    }
}

impl Leaf {
    fn flow(&self, direction: Direction) -> String {
        let mut all = Vec::new();
        all.extend(self.version.map(|version| format!("\"ipVersion\" = {version}")));
        all.extend(self.protocol.map(|number| format!("\"protocolIdentifier\" = {number}")));
        all.extend(match self.what {
            What::Any => None,
            What::Net(first, last) => Some(address(first, last, direction)),
            What::Ports(first, last) => {
                // Other protocols have no ports, but records of ICMP may come from elsewhere.
                let transport = "\"protocolIdentifier\" IN (6, 17, 132)".to_owned();
                let (first, last) = (first.to_string(), last.to_string());
                let ports =
                    ends(direction, "NAPT", "TransportPort", |column| range(column, &first, &last));
                Some(format!("({transport} AND {ports})"))
            }
            What::Vlan(None) => Some("\"dot1qVlanId\" IS NOT NULL".to_owned()),
            What::Vlan(Some(id)) => Some(format!("\"dot1qVlanId\" = {id}")),
            What::Flags(bits) => Some(flags(bits, direction)),
            What::Reason(number) => Some(format!("\"flowEndReason\" = {number}")),
            What::Amount(quantity, operator, amount) => {
                Some(amounts(quantity, operator, amount, direction))
            }
        });
        if all.is_empty() { "TRUE".to_owned() } else { format!("({})", all.join(" AND ")) }
    }

    /// A flow has packets in both directions, so only the ends count and not which is which.
    fn may_match(&self) -> String {
        let version6 = self.version != Some(4);
        if version6 && self.protocol.is_some_and(|number| EXTENSION_HEADERS.contains(&number)) {
            return "TRUE".to_owned();
        }
        let direction = match self.direction {
            Direction::Both => Direction::Both,
            _ => Direction::Either,
        };
        self.flow(direction)
    }

    fn may_not_match(&self) -> String {
        match self.what {
            What::Flags(_) | What::Reason(_) | What::Amount(..) => {
                format!("({} IS NOT TRUE)", self.flow(self.direction))
            }
            // libpcap does not look behind tags, labels and sessions, as records do, the packets of one direction do
            // not match `src`, and fragments have no ports.
            What::Any | What::Net(..) | What::Ports(..) | What::Vlan(_) => "TRUE".to_owned(),
        }
    }
}

/// Whether the packets of these ends have all flags together.
fn flags(bits: u16, direction: Direction) -> String {
    let has = |columns: &str| format!("({columns} & {bits}) = {bits}");
    // Columns of 16 bits become those of 64, as the number is.
    let column = |name: &str| format!("coalesce(arrow_cast(\"{name}\", 'Int64'), 0)");
    let [source, destination] = ["tcpControlBits", "reverseTcpControlBits"].map(column);
    match direction {
        Direction::Source => has(&source),
        Direction::Destination => has(&destination),
        Direction::Either => has(&format!("({source} | {destination})")),
        Direction::Both => format!("({} AND {})", has(&source), has(&destination)),
    }
}

/// The comparison of an amount of these ends, or of both together.
fn amounts(quantity: Quantity, operator: &str, amount: u64, direction: Direction) -> String {
    let names = match quantity {
        Quantity::Duration => return format!("{DURATION} {operator} {amount}"),
        Quantity::Octets | Quantity::BitRate => ["octetDeltaCount", "reverseOctetDeltaCount"],
        Quantity::Packets | Quantity::PacketRate => ["packetDeltaCount", "reversePacketDeltaCount"],
    };
    let [source, destination] = names.map(|name| format!("\"{name}\""));
    let compare = |sum: &str| match quantity {
        Quantity::BitRate | Quantity::PacketRate => {
            let factor = if quantity == Quantity::BitRate { "8e9" } else { "1e9" };
            // One instant has no rate.
            format!(
                "({DURATION} > 0 AND arrow_cast({sum}, 'Float64') * {factor} {operator} \
                 arrow_cast({DURATION}, 'Float64') * {amount})"
            )
        }
        _ => format!("{sum} {operator} {amount}"),
    };
    match direction {
        Direction::Source => compare(&source),
        Direction::Destination => compare(&destination),
        Direction::Either => compare(&format!("({source} + {destination})")),
        Direction::Both => format!("({} AND {})", compare(&source), compare(&destination)),
    }
}

/// A condition of addresses, before or after NAT.
fn address(first: IpAddr, last: IpAddr, direction: Direction) -> String {
    let column = if first.is_ipv4() { "IPv4Address" } else { "IPv6Address" };
    let (first, last) = (literal(first), literal(last));
    ends(direction, "NAT", column, |column| range(column, &first, &last))
}

/// A condition of a column at the ends that the direction names, before or after NAT.
fn ends(
    direction: Direction,
    nat: &str,
    column: &str,
    condition: impl Fn(&str) -> String,
) -> String {
    let end = |before: &str, after: &str| {
        let [before, after] =
            [format!("\"{before}{column}\""), format!("\"post{nat}{after}{column}\"")];
        format!("({} OR {})", condition(&before), condition(&after))
    };
    let [source, destination] = [end("source", "Source"), end("destination", "Destination")];
    match direction {
        Direction::Source => source,
        Direction::Destination => destination,
        Direction::Either => format!("({source} OR {destination})"),
        Direction::Both => format!("({source} AND {destination})"),
    }
}

fn range(column: &str, first: &str, last: &str) -> String {
    if first == last {
        format!("{column} = {first}")
    } else {
        format!("{column} BETWEEN {first} AND {last}")
    }
}

/// An address as a literal of its column's type.
fn literal(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => u32::from(address).to_string(),
        IpAddr::V6(address) => {
            let hex: String = address.octets().iter().map(|octet| format!("{octet:02x}")).collect();
            format!("arrow_cast(X'{hex}', 'FixedSizeBinary(16)')")
        }
    }
}
