//! [`Message`]: what a batch lends, and [`Drops`]: what was lost before.

use std::net::SocketAddr;

use linerate_wire::ethernet;
use serde::Serialize;

/// The payload of one UDP datagram, and what is known about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The payload, at most as long as the receiver was built for.
    pub payload: &'a [u8],
    /// Who sent it.
    pub source: SocketAddr,
    /// The address and port that it was sent to. Where a receiver is bound to an unspecified address
    /// and [`Metadata::destination`] was not asked for, the address that it is bound to.
    pub destination: SocketAddr,
    /// The destination is an IPv4 broadcast address; known if [`Metadata::destination`] was asked for.
    pub broadcast: bool,
    /// When it arrived, in nanoseconds since the Unix epoch, if [`Metadata::timestamp`] was asked for.
    pub timestamp: Option<u64>,
    /// The traffic class (RFC 2474, RFC 3168), if it is known.
    pub traffic_class: Option<u8>,
    /// Index of the interface that it arrived on, if it is known.
    pub interface_index: Option<u32>,
    /// The Ethernet address that its frame came from; known of messages that bypassed the stack (`xdp`).
    pub next_hop: Option<ethernet::Address>,
    /// It was longer than the receiver was built for; the payload is its beginning.
    pub truncated: bool,
}

/// What a receiver reports of each message besides its source. Each costs the kernel and the reader some tens
/// of nanoseconds a datagram; with XDP all but the timestamp are free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The address that it was sent to, and the interface that it arrived on (`IP_PKTINFO`).
    pub destination: bool,
    /// DSCP and ECN (`IP_RECVTOS`).
    pub traffic_class: bool,
    /// When it arrived (`SO_TIMESTAMPNS`).
    pub timestamp: bool,
}

impl Metadata {
    /// Everything.
    pub const ALL: Self = Self { destination: true, traffic_class: true, timestamp: true };

    pub(crate) fn any(self) -> bool {
        self.destination || self.traffic_class || self.timestamp
    }
}

/// Messages dropped since the receiver was opened, by cause; and those that were truncated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Drops {
    /// The socket's buffer was full: the reader was too slow, or the buffer too small. With the `gro` backend
    /// a lower bound: the kernel counts a super-datagram as one, though it has up to 64 messages.
    pub socket_buffer: u64,
    /// The rings of `xdp` were full.
    pub ring: u64,
    /// A checksum was wrong.
    pub checksum: u64,
    /// The lengths in the headers contradict each other.
    pub malformed: u64,
    /// The kernel dropped it for another reason: a filter of the socket or of its control group, or an IPsec policy.
    pub other: u64,
    /// Messages delivered truncated, for being longer than the message size. Not lost.
    pub truncated: u64,
}

impl Drops {
    /// Messages that never reached the reader, of all causes.
    pub fn total(&self) -> u64 {
        self.named().iter().map(|(_, count)| count).sum()
    }

    /// The causes of losses with their names in the JSON.
    pub fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("socket_buffer", self.socket_buffer),
            ("ring", self.ring),
            ("checksum", self.checksum),
            ("malformed", self.malformed),
            ("other", self.other),
        ]
    }
}

linerate_net::sums! { Drops { socket_buffer, ring, checksum, malformed, other, truncated } }
