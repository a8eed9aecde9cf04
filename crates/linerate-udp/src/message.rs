//! [`Message`]: what a batch lends, and [`Losses`]: what never got into one.

use std::net::SocketAddr;
use std::ops::AddAssign;

use serde::Serialize;

/// The payload of one UDP datagram, and what is known about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The payload, at most as long as the receiver was built for.
    pub payload: &'a [u8],
    /// Who sent it.
    pub source: SocketAddr,
    /// The address and port that it was sent to. Where a receiver is bound to an unspecified address
    /// and nobody asked for [`Details::destination`], the address that it is bound to.
    pub destination: SocketAddr,
    /// When it came, in nanoseconds since the Unix epoch, if [`Details::timestamp`] was asked for.
    pub timestamp: Option<u64>,
    /// The traffic class (RFC 2474, RFC 3168), if it is known.
    pub traffic_class: Option<u8>,
    /// Index of the interface that it came in by, if it is known.
    pub interface: Option<u32>,
    /// It was longer than the receiver was built for; the payload is its beginning.
    pub truncated: bool,
}

impl Message<'_> {
    /// The differentiated services code point, `0..64`, if known.
    pub fn dscp(&self) -> Option<u8> {
        self.traffic_class.map(|class| class >> 2)
    }

    /// The ECN field, `0..4`, if known.
    pub fn ecn(&self) -> Option<u8> {
        self.traffic_class.map(|class| class & 3)
    }
}

/// What a socket is to say of each message besides its source. Each costs the kernel and the reader
/// some tens of nanoseconds a datagram; AF_XDP gives all but the time stamp for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The address that it was sent to and the interface that it came in by.
    pub destination: bool,
    /// DSCP and ECN.
    pub traffic_class: bool,
    /// The time at which it came.
    pub timestamp: bool,
}

impl Details {
    /// Everything.
    pub const ALL: Self = Self { destination: true, traffic_class: true, timestamp: true };

    pub(crate) fn any(self) -> bool {
        self.destination || self.traffic_class || self.timestamp
    }
}

/// Messages that were lost since the receiver was built, by cause, and what was not lost but cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Losses {
    /// The socket's buffer was full: the reader was too slow, or the buffer too small. With the `gro` back
    /// end a lower bound: the kernel counts a super-datagram as one, though it holds up to 64 messages.
    pub socket_buffer: u64,
    /// The rings of `xdp` were full.
    pub ring: u64,
    /// A checksum was wrong.
    pub checksum: u64,
    /// The lengths in the headers contradict each other.
    pub malformed: u64,
    /// Messages delivered cut, for being longer than the message size. Not lost.
    pub truncated: u64,
}

impl Losses {
    /// Messages that never reached the reader.
    pub fn lost(&self) -> u64 {
        self.socket_buffer + self.ring + self.checksum + self.malformed
    }
}

impl AddAssign for Losses {
    fn add_assign(&mut self, other: Self) {
        self.socket_buffer += other.socket_buffer;
        self.ring += other.ring;
        self.checksum += other.checksum;
        self.malformed += other.malformed;
        self.truncated += other.truncated;
    }
}
