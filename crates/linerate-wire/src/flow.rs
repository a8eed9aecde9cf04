//! Flow keys: which conversation a frame belongs to.

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
        Self::in_layers(&layers::parse(frame).ok()?, frame)
    }

    /// The key of a frame with these layers; `None` if it carries no IP packet.
    pub fn in_layers(layers: &Layers, frame: &[u8]) -> Option<Self> {
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
}
