//! Where the headers of a frame are.

use core::net::IpAddr;

use crate::ethernet::{self, EtherType};
use crate::ip::Protocol;
use crate::{Error, Result, arp, icmpv4, icmpv6, ipv4, ipv6, read, tcp, udp, vlan};

/// VLAN tags that [`parse`] looks behind; a frame with more is given as it is from there on.
pub const MAX_TAGS: u8 = 4;

/// The layers of a frame: offsets in bytes from its first byte, and what stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    /// VLAN tags, `0..=4`; the first starts at offset 14.
    pub tags: u8,
    /// What follows the Ethernet header and the tags.
    pub ether_type: EtherType,
    /// Where it starts.
    pub network_offset: usize,
    /// The network layer, where it is known and its header complete.
    pub network: Network,
    /// What the packet carries, from the last header that was complete.
    pub protocol: Option<Protocol>,
    /// Where the transport header starts, or would.
    pub transport_offset: usize,
    /// The transport layer, where it is known, its header complete, and no fragment cuts it off.
    pub transport: Transport,
    /// Where the innermost payload starts.
    pub payload_offset: usize,
    /// Where the packet ends: link-layer padding follows. Not past the end of the frame.
    pub end: usize,
    /// Why a deeper layer is missing, where a header was cut short or malformed.
    pub error: Option<Error>,
}

/// The network layer of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Network {
    /// Another protocol, or an incomplete header.
    Other,
    /// ARP for Ethernet and IPv4.
    Arp,
    /// IPv4.
    Ipv4 {
        /// A fragment, the first one included.
        fragment: bool,
    },
    /// IPv6.
    Ipv6 {
        /// A fragment, the first one included.
        fragment: bool,
    },
}

/// The transport layer of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Another protocol, an incomplete header, or a fragment that is not the first.
    Other,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP for IPv4.
    Icmpv4,
    /// ICMP for IPv6.
    Icmpv6,
}

/// Finds the layers of an Ethernet frame.
///
/// # Errors
/// An incomplete Ethernet header. An error further in leaves the outer layers usable and is in
/// [`Layers::error`].
pub fn parse(frame: &[u8]) -> Result<Layers> {
    let ethernet = ethernet::Frame::new_checked(frame)?;
    let mut layers = Layers {
        tags: 0,
        ether_type: ethernet.ether_type(),
        network_offset: ethernet::HEADER_LEN,
        network: Network::Other,
        protocol: None,
        transport_offset: frame.len(),
        transport: Transport::Other,
        payload_offset: ethernet::HEADER_LEN,
        end: frame.len(),
        error: None,
    };
    if let Err(error) = layers.descend(frame) {
        layers.error = Some(error);
    }
    Ok(layers)
}

impl Layers {
    /// The Ethernet header; `frame` is the one that was parsed, here and below.
    pub fn ethernet<'f>(&self, frame: &'f [u8]) -> Option<ethernet::Frame<&'f [u8]>> {
        ethernet::Frame::new_checked(frame).ok()
    }

    /// VLAN tag number `index`, counted from the outside.
    pub fn vlan<'f>(&self, frame: &'f [u8], index: u8) -> Option<vlan::Tag<&'f [u8]>> {
        let offset = ethernet::HEADER_LEN + usize::from(index) * vlan::TAG_LEN;
        (index < self.tags).then(|| vlan::Tag::new_checked(from(frame, offset)).ok()).flatten()
    }

    /// The ARP packet.
    pub fn arp<'f>(&self, frame: &'f [u8]) -> Option<arp::Packet<&'f [u8]>> {
        (self.network == Network::Arp)
            .then(|| arp::Packet::new_checked(from(frame, self.network_offset)).ok())
            .flatten()
    }

    /// The IPv4 packet.
    pub fn ipv4<'f>(&self, frame: &'f [u8]) -> Option<ipv4::Packet<&'f [u8]>> {
        matches!(self.network, Network::Ipv4 { .. })
            .then(|| ipv4::Packet::new_checked(from(frame, self.network_offset)).ok())
            .flatten()
    }

    /// The IPv6 packet.
    pub fn ipv6<'f>(&self, frame: &'f [u8]) -> Option<ipv6::Packet<&'f [u8]>> {
        matches!(self.network, Network::Ipv6 { .. })
            .then(|| ipv6::Packet::new_checked(from(frame, self.network_offset)).ok())
            .flatten()
    }

    /// Source and destination of the IP packet.
    pub fn addresses(&self, frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
        if let Some(packet) = self.ipv4(frame) {
            return Some((packet.source().into(), packet.destination().into()));
        }
        self.ipv6(frame).map(|packet| (packet.source().into(), packet.destination().into()))
    }

    /// The TCP segment, without link-layer padding.
    pub fn tcp<'f>(&self, frame: &'f [u8]) -> Option<tcp::Segment<&'f [u8]>> {
        (self.transport == Transport::Tcp)
            .then(|| tcp::Segment::new_checked(self.transport_bytes(frame)).ok())
            .flatten()
    }

    /// The UDP datagram, without link-layer padding.
    pub fn udp<'f>(&self, frame: &'f [u8]) -> Option<udp::Datagram<&'f [u8]>> {
        (self.transport == Transport::Udp)
            .then(|| udp::Datagram::new_checked(self.transport_bytes(frame)).ok())
            .flatten()
    }

    /// The ICMP message, without link-layer padding.
    pub fn icmpv4<'f>(&self, frame: &'f [u8]) -> Option<icmpv4::Message<&'f [u8]>> {
        (self.transport == Transport::Icmpv4)
            .then(|| icmpv4::Message::new_checked(self.transport_bytes(frame)).ok())
            .flatten()
    }

    /// The ICMPv6 message, without link-layer padding.
    pub fn icmpv6<'f>(&self, frame: &'f [u8]) -> Option<icmpv6::Message<&'f [u8]>> {
        (self.transport == Transport::Icmpv6)
            .then(|| icmpv6::Message::new_checked(self.transport_bytes(frame)).ok())
            .flatten()
    }

    /// The innermost payload, without link-layer padding.
    pub fn payload<'f>(&self, frame: &'f [u8]) -> &'f [u8] {
        read::clamp(frame, self.payload_offset, self.end)
    }

    fn transport_bytes<'f>(&self, frame: &'f [u8]) -> &'f [u8] {
        read::clamp(frame, self.transport_offset, self.end)
    }

    fn descend(&mut self, frame: &[u8]) -> Result<()> {
        while self.ether_type.is_tag() && self.tags < MAX_TAGS {
            let tag = vlan::Tag::new_checked(from(frame, self.network_offset))?;
            self.ether_type = tag.ether_type();
            self.tags += 1;
            self.network_offset += vlan::TAG_LEN;
            self.payload_offset = self.network_offset;
        }
        let bytes = from(frame, self.network_offset);
        match self.ether_type {
            EtherType::ARP => {
                arp::Packet::new_checked(bytes)?;
                self.network = Network::Arp;
                self.payload_offset += arp::PACKET_LEN;
                Ok(())
            }
            EtherType::IPV4 => self.descend_ipv4(frame, bytes),
            EtherType::IPV6 => self.descend_ipv6(frame, bytes),
            _ => Ok(()),
        }
    }

    fn descend_ipv4(&mut self, frame: &[u8], bytes: &[u8]) -> Result<()> {
        let packet = ipv4::Packet::new_checked(bytes)?;
        self.network = Network::Ipv4 { fragment: packet.is_fragment() };
        self.end = frame.len().min(self.network_offset + packet.end());
        self.protocol = Some(packet.protocol());
        self.transport_offset = self.network_offset + packet.header_len();
        self.payload_offset = self.transport_offset;
        if packet.fragment_offset() != 0 {
            return Ok(());
        }
        self.descend_transport(frame, packet.protocol())
    }

    fn descend_ipv6(&mut self, frame: &[u8], bytes: &[u8]) -> Result<()> {
        let packet = ipv6::Packet::new_checked(bytes)?;
        self.network = Network::Ipv6 { fragment: false };
        self.end = frame.len().min(self.network_offset + packet.total_len());
        self.protocol = Some(packet.next_header());
        self.transport_offset = self.network_offset + ipv6::HEADER_LEN;
        self.payload_offset = self.transport_offset;
        let upper = packet.upper()?;
        self.network = Network::Ipv6 { fragment: upper.fragment.is_some() };
        self.protocol = Some(upper.protocol);
        self.transport_offset = self.network_offset + upper.offset;
        self.payload_offset = self.transport_offset;
        if upper.is_later_fragment() {
            return Ok(());
        }
        self.descend_transport(frame, upper.protocol)
    }

    fn descend_transport(&mut self, frame: &[u8], protocol: Protocol) -> Result<()> {
        let bytes = self.transport_bytes(frame);
        let v6 = matches!(self.network, Network::Ipv6 { .. });
        let (transport, header) = match protocol {
            Protocol::TCP => (Transport::Tcp, tcp::Segment::new_checked(bytes)?.header_len()),
            Protocol::UDP => {
                udp::Datagram::new_checked(bytes)?;
                (Transport::Udp, udp::HEADER_LEN)
            }
            Protocol::ICMP if !v6 => {
                icmpv4::Message::new_checked(bytes)?;
                (Transport::Icmpv4, icmpv4::HEADER_LEN)
            }
            Protocol::ICMPV6 if v6 => {
                icmpv6::Message::new_checked(bytes)?;
                (Transport::Icmpv6, icmpv6::HEADER_LEN)
            }
            _ => return Ok(()),
        };
        self.transport = transport;
        self.payload_offset = self.transport_offset + header;
        Ok(())
    }
}

fn from(frame: &[u8], offset: usize) -> &[u8] {
    frame.get(offset..).unwrap_or(&[])
}
