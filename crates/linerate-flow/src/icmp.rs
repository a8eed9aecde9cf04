//! ICMP messages that ask and those that answer them.

use linerate_wire::ip::Protocol;

/// Types of a request and its reply.
struct Pair {
    request: u8,
    reply: u8,
    /// Both belong to one flow. Others are sent to multicast addresses, or unasked.
    is_flow: bool,
}

const fn pair(request: u8, reply: u8, is_flow: bool) -> Pair {
    Pair { request, reply, is_flow }
}

/// Echo, timestamp, information, address mask (RFC 792, RFC 950), router discovery (RFC 1256).
const ICMP: [Pair; 5] = [
    pair(8, 0, true),
    pair(13, 14, true),
    pair(15, 16, true),
    pair(17, 18, true),
    pair(10, 9, false),
];

/// Echo (RFC 4443), multicast listeners (RFC 2710), router and neighbour discovery (RFC 4861), node information
/// (RFC 4620), home agents (RFC 6275).
const ICMPV6: [Pair; 6] = [
    pair(128, 129, true),
    pair(130, 131, false),
    pair(133, 134, false),
    pair(135, 136, true),
    pair(139, 140, false),
    pair(144, 145, false),
];

fn pairs(protocol: Protocol) -> &'static [Pair] {
    if protocol == Protocol::ICMP { &ICMP } else { &ICMPV6 }
}

/// The type that answers `kind`, or that it answers.
#[cfg(feature = "parquet")]
pub(crate) fn counterpart(protocol: Protocol, kind: u8) -> Option<u8> {
    pairs(protocol).iter().find_map(|pair| match kind {
        kind if kind == pair.request => Some(pair.reply),
        kind if kind == pair.reply => Some(pair.request),
        _ => None,
    })
}

/// The type of the request that a message of the same flow answers; of another message its own.
pub(crate) fn request(protocol: Protocol, kind: u8) -> u8 {
    let answered = pairs(protocol).iter().find(|pair| pair.is_flow && pair.reply == kind);
    answered.map_or(kind, |pair| pair.request)
}
