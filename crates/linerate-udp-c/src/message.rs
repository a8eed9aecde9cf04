//! Messages and losses.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV6};

use linerate_udp::{Drops, Message};

/// An address and a port. `bytes` are laid out as struct sockaddr_in or sockaddr_in6 of this system, `len`
/// of them in use, as bind() and sendto() take them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linerate_sockaddr {
    /// The family, the port and the rest.
    pub bytes: [u8; 28],
    /// Bytes in use: 16 for IPv4, 28 for IPv6.
    pub len: u32,
}

/// A message, lent until the next call with the receiver.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linerate_message {
    /// The payload, at most as long as the receiver was opened for.
    pub payload: *const u8,
    /// Bytes of payload.
    pub len: usize,
    /// Who sent it.
    pub source: linerate_sockaddr,
    /// The destination address, if LINERATE_RECEIVE_DESTINATION was requested; otherwise that of the
    /// receiver.
    pub destination: linerate_sockaddr,
    /// When it arrived, in nanoseconds since the Unix epoch; 0 if unknown.
    pub timestamp: u64,
    /// Index of the interface that it arrived on; 0 if unknown.
    pub interface_index: u32,
    /// DSCP in the upper six bits, ECN in the lower two; -1 if unknown.
    pub traffic_class: i16,
    /// 1 if it was longer than the receiver was opened for; `payload` is then its beginning.
    pub truncated: u8,
    /// The Ethernet address that its frame came from, if it bypassed the stack (`xdp`); zeroes if unknown.
    pub next_hop: [u8; 6],
    /// 1 if the destination is an IPv4 broadcast address, if LINERATE_RECEIVE_DESTINATION was requested.
    pub broadcast: u8,
}

/// Messages lost since the receiver was opened, by cause.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linerate_drops {
    /// The socket's buffer was full. With gro a lower bound.
    pub socket_buffer: u64,
    /// The rings of `xdp` were full.
    pub ring: u64,
    /// A checksum was wrong.
    pub checksum: u64,
    /// The lengths in the headers contradict each other; or a filter or an IPsec policy of the kernel rejected it.
    pub malformed: u64,
    /// Not lost: delivered truncated, because longer than the message size.
    pub truncated: u64,
}

impl From<SocketAddr> for linerate_sockaddr {
    #[inline]
    fn from(address: SocketAddr) -> Self {
        // AF_INET and AF_INET6 of Linux.
        let (family, len) = if address.is_ipv4() { (2u16, 16) } else { (10, 28) };
        let mut bytes = [0; 28];
        bytes[..2].copy_from_slice(&family.to_ne_bytes());
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(address) => bytes[4..8].copy_from_slice(&address.ip().octets()),
            SocketAddr::V6(address) => {
                bytes[4..8].copy_from_slice(&address.flowinfo().to_ne_bytes());
                bytes[8..24].copy_from_slice(&address.ip().octets());
                bytes[24..].copy_from_slice(&address.scope_id().to_ne_bytes());
            }
        }
        Self { bytes, len }
    }
}

impl linerate_sockaddr {
    /// The address; `None` for what is none of IP.
    #[inline]
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        let array = |at: usize| [0, 1, 2, 3].map(|place| self.bytes[at + place]);
        let [family, port] = [
            u16::from_ne_bytes([self.bytes[0], self.bytes[1]]),
            u16::from_be_bytes([self.bytes[2], self.bytes[3]]),
        ];
        match (family, self.len) {
            (2, 16..) => Some((Ipv4Addr::from(array(4)), port).into()),
            (10, 28) => {
                let ip: [u8; 16] = self.bytes[8..24].try_into().ok()?;
                let (flow, scope) = (u32::from_ne_bytes(array(4)), u32::from_ne_bytes(array(24)));
                Some(SocketAddrV6::new(ip.into(), port, flow, scope).into())
            }
            _ => None,
        }
    }
}

impl From<&Message<'_>> for linerate_message {
    #[inline]
    fn from(message: &Message<'_>) -> Self {
        Self {
            payload: message.payload.as_ptr(),
            len: message.payload.len(),
            source: message.source.into(),
            destination: message.destination.into(),
            timestamp: message.timestamp.unwrap_or(0),
            interface_index: message.interface_index.unwrap_or(0),
            traffic_class: message.traffic_class.map_or(-1, i16::from),
            truncated: message.truncated.into(),
            next_hop: message.next_hop.map_or([0; 6], |address| address.0),
            broadcast: message.broadcast.into(),
        }
    }
}

impl From<Drops> for linerate_drops {
    fn from(drops: Drops) -> Self {
        let Drops { socket_buffer, ring, checksum, malformed, other, truncated, .. } = drops;
        Self { socket_buffer, ring, checksum, malformed: malformed + other, truncated }
    }
}
