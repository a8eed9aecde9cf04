//! [`Transmit`]: what a [`Transmitter`](crate::Transmitter) sends, like the type of this name in quinn-udp.

use std::net::{IpAddr, SocketAddr};

use linerate_wire::ethernet;

use crate::message::Message;

/// One datagram, or several of one size to one address that the kernel or this library splits (GSO).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit<'a> {
    /// The destination address.
    pub destination: SocketAddr,
    /// The source address; default: the one that the socket is bound to, or the kernel's choice.
    pub source: Option<IpAddr>,
    /// Index of the output interface; default: that of the route.
    pub interface_index: Option<u32>,
    /// DSCP and, in the lower two bits, ECN; default: that of the socket.
    pub traffic_class: Option<u8>,
    /// Bytes of each datagram but the last, which may be shorter; default: all of `contents` are one.
    pub segment_size: Option<usize>,
    /// The Ethernet address of the next hop, for the transmit ring of `xdp`
    /// ([`SendBackend::Xdp`](crate::SendBackend::Xdp)), which the stack does not need; default: unknown.
    pub next_hop: Option<ethernet::Address>,
    /// When it is to leave, in nanoseconds of [`SendOptions::transmit_clock`](crate::SendOptions::transmit_clock),
    /// which has to be set; default: at once.
    pub time: Option<u64>,
    /// The payload.
    pub contents: &'a [u8],
}

impl<'a> Transmit<'a> {
    /// `contents` to `destination`, with the defaults for all else.
    pub const fn new(destination: SocketAddr, contents: &'a [u8]) -> Self {
        let (source, interface_index, traffic_class) = (None, None, None);
        let (segment_size, next_hop, time) = (None, None, None);
        Self {
            destination,
            source,
            interface_index,
            traffic_class,
            segment_size,
            next_hop,
            time,
            contents,
        }
    }

    /// The same with another payload.
    pub(crate) const fn with<'b>(&self, contents: &'b [u8]) -> Transmit<'b> {
        Transmit { contents, ..*self }
    }

    /// Bytes of each segment, if there are several.
    #[inline]
    pub(crate) fn split_size(&self) -> Option<usize> {
        self.segment_size.filter(|size| *size > 0 && *size < self.contents.len())
    }

    /// The number of datagrams.
    pub(crate) fn segments(&self) -> usize {
        self.split_size().map_or(1, |size| self.contents.len().div_ceil(size))
    }

    /// Whether both have the same destination, source and options, so that they can be segments of one super-datagram.
    #[inline]
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        self.destination == other.destination
            && self.source == other.source
            && self.interface_index == other.interface_index
            && self.traffic_class == other.traffic_class
            && self.next_hop == other.next_hop
            && self.time == other.time
    }
}

impl Message<'_> {
    /// A reply to this message: to its sender, from the address that the message was sent to. That address is known if
    /// the receiver is bound to it, or if [`Metadata::destination`](crate::Metadata::destination) was requested. If it
    /// is a broadcast address or a group, the kernel chooses the source. The next hop is the one that the message came
    /// from, if that is known.
    #[inline]
    pub fn reply<'c>(&self, contents: &'c [u8]) -> Transmit<'c> {
        let ip = self.destination.ip();
        let is_unicast = !ip.is_unspecified() && !ip.is_multicast() && !self.broadcast;
        let source = is_unicast.then_some(ip);
        Transmit { source, next_hop: self.next_hop, ..Transmit::new(self.source, contents) }
    }
}
