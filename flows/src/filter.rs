//! Filters in the syntax of pcap-filter(7), as conditions of SQL on flow records.
//!
//! `and` and `or` have the same precedence and associate to the left, `not` binds more tightly, and a value without
//! qualifiers takes those of the value before it, as in libpcap. What records do not have is refused by name.

mod parse;
mod sql;
#[cfg(test)]
mod tests;
mod values;

use std::net::IpAddr;

pub(crate) use self::parse::{parse, parse_for_search};
pub(crate) use self::values::FLAGS;

/// A filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    /// Both.
    And(Box<Self>, Box<Self>),
    /// One of them.
    Or(Box<Self>, Box<Self>),
    /// The opposite.
    Not(Box<Self>),
    /// A condition.
    Leaf(Leaf),
    /// A condition of packets that records do not know: only in a search, which looks at the packets themselves.
    Unknown,
}

/// A condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    /// Only of this version of IP: 4 or 6.
    pub(crate) version: Option<u8>,
    /// Only of this protocol.
    pub(crate) protocol: Option<u8>,
    pub(crate) direction: Direction,
    pub(crate) what: What,
}

/// Which end of a flow a condition is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Direction {
    /// `src`: the initiator.
    Source,
    /// `dst`: its peer.
    Destination,
    /// One of them.
    #[default]
    Either,
    /// `src and dst`.
    Both,
}

/// What a condition asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Only version and protocol.
    Any,
    /// Addresses from the first to the last, of one version.
    Net(IpAddr, IpAddr),
    /// Ports from the first to the last, of TCP, UDP and SCTP.
    Ports(u16, u16),
    /// Packets with a VLAN tag, or with this one.
    Vlan(Option<u16>),
    /// Flows with these TCP flags.
    Flags(u16),
    /// Flows whose record ended for this reason.
    Reason(u8),
    /// Flows with so much of this.
    Amount(Quantity, &'static str, u64),
}

/// What a flow has an amount of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    Octets,
    Packets,
    /// Nanoseconds from the first to the last packet.
    Duration,
    /// Bits of IP packets a second.
    BitRate,
    /// Packets a second.
    PacketRate,
}

/// What a condition says of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The flow is one of those that the filter names.
    Flow,
    /// The flow may have packets that the filter matches: for a search that looks at the packets themselves.
    MayHavePackets,
}

impl Filter {
    /// Whether a packet that is not in any flow (ARP, say) matches; `None` if that is not known.
    pub(crate) fn matches_other_packets(&self) -> Option<bool> {
        let (a, b, decisive) = match self {
            Self::And(a, b) => (a, b, false),
            Self::Or(a, b) => (a, b, true),
            Self::Not(inner) => return inner.matches_other_packets().map(|matches| !matches),
            // A tagged frame need not be IP.
            Self::Leaf(leaf) => return Some(matches!(leaf.what, What::Vlan(_))),
            Self::Unknown => return None,
        };
        let (a, b) = (a.matches_other_packets(), b.matches_other_packets());
        if a == Some(decisive) || b == Some(decisive) {
            return Some(decisive);
        }
        a.and(b).map(|_| !decisive)
    }
}
