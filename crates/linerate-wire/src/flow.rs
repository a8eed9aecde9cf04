//! Flow keys: which conversation a frame belongs to.

use core::fmt;
use core::net::IpAddr;

use crate::ip::Protocol;
use crate::layers::{self, Layers, Network, Transport};

/// One direction of a conversation.
///
/// Ports are 0 for protocols without them, and in every fragment, so that all pieces of a packet have
/// the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Who sends.
    pub source: IpAddr,
    /// Who receives.
    pub destination: IpAddr,
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
    /// What the packets carry.
    pub protocol: Protocol,
}

impl Key {
    /// The key of an Ethernet frame; `None` where it carries no IP packet.
    pub fn of(frame: &[u8]) -> Option<Self> {
        Self::from_layers(&layers::parse(frame).ok()?, frame)
    }

    /// The key of a frame that was parsed already.
    pub fn from_layers(layers: &Layers, frame: &[u8]) -> Option<Self> {
        let (source, destination) = layers.addresses(frame)?;
        let fragment = matches!(
            layers.network,
            Network::Ipv4 { fragment: true } | Network::Ipv6 { fragment: true }
        );
        let (source_port, destination_port) = match layers.transport {
            _ if fragment => (0, 0),
            Transport::Tcp => {
                let segment = layers.tcp(frame)?;
                (segment.source_port(), segment.destination_port())
            }
            Transport::Udp => {
                let datagram = layers.udp(frame)?;
                (datagram.source_port(), datagram.destination_port())
            }
            _ => (0, 0),
        };
        let protocol = layers.protocol?;
        Some(Self { source, destination, source_port, destination_port, protocol })
    }

    /// The key of the other direction.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            protocol: self.protocol,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, destination, source_port, destination_port, protocol } = self;
        match (source_port, destination_port) {
            (0, 0) => write!(f, "{protocol} {source} > {destination}"),
            _ => write!(f, "{protocol} {source}:{source_port} > {destination}:{destination_port}"),
        }
    }
}
