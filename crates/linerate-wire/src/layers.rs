//! Where the headers of a frame are.

use core::net::IpAddr;

use crate::error::require;
use crate::ethernet::{self, EtherType};
use crate::ip::Protocol;
use crate::udp_tunnel::{UdpTunnel, ip_version};
use crate::{Error, Result, arp, gre, ipv4, ipv6, read, tcp, udp, vlan};

/// VLAN tags that [`parse`] looks behind; a frame with more is given as it is from there on.
pub const MAX_TAGS: u8 = 4;

/// The layers of a frame: offsets in bytes from its first byte, and what stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    /// VLAN tags, `0..=4`; the last ends at [`Layers::network_offset`].
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
}

/// Finds the layers of an Ethernet frame.
///
/// # Errors
/// An incomplete Ethernet header. An error further in leaves the outer layers usable and is in
/// [`Layers::error`].
pub fn parse(frame: &[u8]) -> Result<Layers> {
    let ethernet = ethernet::Frame::new_checked(frame)?;
    Ok(parse_from(frame, ethernet.ether_type(), ethernet::HEADER_LEN))
}

/// The same behind another link-layer header, which says that `ether_type` starts at `offset`.
pub fn parse_from(frame: &[u8], ether_type: EtherType, offset: usize) -> Layers {
    let mut layers = Layers {
        tags: 0,
        ether_type,
        network_offset: offset,
        network: Network::Other,
        protocol: None,
        transport_offset: frame.len(),
        transport: Transport::Other,
        end: frame.len(),
        error: None,
    };
    if let Err(error) = layers.descend(frame) {
        layers.error = Some(error);
    }
    layers
}

impl Layers {
    /// The VLANs of the first two tags; `frame` is the one that was parsed, here and below.
    pub fn vlans(&self, frame: &[u8]) -> [Option<u16>; 2] {
        let first = self.network_offset - usize::from(self.tags) * vlan::TAG_LEN;
        let id = |tag: u8| {
            let tag =
                (tag < self.tags).then(|| from(frame, first + usize::from(tag) * vlan::TAG_LEN))?;
            vlan::Tag::new_checked(tag).ok().map(|tag| tag.id())
        };
        [id(0), id(1)]
    }

    /// The IPv4 packet.
    pub fn ipv4<'f>(&self, frame: &'f [u8]) -> Option<ipv4::Packet<'f>> {
        matches!(self.network, Network::Ipv4 { .. })
            .then(|| ipv4::Packet::new_checked(from(frame, self.network_offset)).ok())
            .flatten()
    }

    /// The IPv6 packet.
    pub fn ipv6<'f>(&self, frame: &'f [u8]) -> Option<ipv6::Packet<'f>> {
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

    /// The fragment header of IPv6, or what says the same in IPv4; `None` for a whole packet.
    pub fn fragment(&self, frame: &[u8]) -> Option<ipv6::Fragment> {
        match self.network {
            Network::Ipv4 { fragment: true } => self.ipv4(frame).map(|packet| ipv6::Fragment {
                offset: packet.fragment_offset(),
                more: packet.more_fragments(),
                identification: packet.identification().into(),
            }),
            Network::Ipv6 { fragment: true } => self.ipv6(frame)?.upper_layer().ok()?.fragment,
            _ => None,
        }
    }

    /// The ports of source and destination, for each protocol that begins with them, also where the rest of its
    /// header was cut off. A fragment that is not the first has none: see [`Layers::fragment`].
    pub fn ports(&self, frame: &[u8]) -> Option<(u16, u16)> {
        let bytes = self.protocol?.has_ports().then(|| self.transport_bytes(frame))?;
        (bytes.len() >= 4).then(|| (read::u16(bytes, 0..2), read::u16(bytes, 2..4)))
    }

    /// The flags of TCP, also where the end of its header was cut off.
    pub fn tcp_flags(&self, frame: &[u8]) -> Option<tcp::Flags> {
        let bytes = (self.protocol? == Protocol::TCP).then(|| self.transport_bytes(frame))?;
        tcp::flags(bytes)
    }

    /// Type and code of an ICMP or ICMPv6 message.
    pub fn icmp(&self, frame: &[u8]) -> Option<(u8, u8)> {
        let is_icmp = matches!(
            (self.network, self.protocol?),
            (Network::Ipv4 { .. }, Protocol::ICMP) | (Network::Ipv6 { .. }, Protocol::ICMPV6)
        );
        let bytes = is_icmp.then(|| self.transport_bytes(frame))?;
        (bytes.len() >= 2).then(|| (bytes[0], bytes[1]))
    }

    /// The TCP segment, without link-layer padding.
    pub fn tcp<'f>(&self, frame: &'f [u8]) -> Option<tcp::Segment<'f>> {
        (self.transport == Transport::Tcp)
            .then(|| tcp::Segment::new_checked(self.transport_bytes(frame)).ok())
            .flatten()
    }

    /// The UDP datagram, without link-layer padding.
    pub fn udp<'f>(&self, frame: &'f [u8]) -> Option<udp::Datagram<'f>> {
        (self.transport == Transport::Udp)
            .then(|| udp::Datagram::new_checked(self.transport_bytes(frame)).ok())
            .flatten()
    }

    /// The layers of the packet inside, if this is a tunnel: GRE, IP in IP, or a datagram for any port that begins as
    /// a tunnel of [`UdpTunnel`] does. A datagram of something else may begin so, too: verify what is inside.
    pub fn inside(&self, frame: &[u8]) -> Option<Self> {
        if self.fragment(frame).is_some() {
            return None;
        }
        let (ether_type, len) = match self.protocol? {
            Protocol::IPV4 => (EtherType::IPV4, 0),
            Protocol::IPV6 => (EtherType::IPV6, 0),
            Protocol::GRE => {
                let header = gre::Packet::new_checked(self.transport_bytes(frame)).ok()?;
                (header.protocol(), header.header_len())
            }
            Protocol::UDP => {
                let payload = self.transport_bytes(frame).get(udp::HEADER_LEN..)?;
                let (_, ether_type, len) = UdpTunnel::detect(payload)?;
                (ether_type, udp::HEADER_LEN + len)
            }
            _ => return None,
        };
        let (frame, at) = (frame.get(..self.end)?, self.transport_offset + len);
        if ether_type != EtherType::TEB {
            return Some(parse_from(frame, ether_type, at));
        }
        let ethernet = ethernet::Frame::new_checked(from(frame, at)).ok()?;
        Some(parse_from(frame, ethernet.ether_type(), at + ethernet::HEADER_LEN))
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
        }
        let bytes = from(frame, self.network_offset);
        match self.ether_type {
            EtherType::ARP => {
                arp::Repr::parse(bytes)?;
                self.network = Network::Arp;
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
        let upper = packet.upper_layer()?;
        self.network = Network::Ipv6 { fragment: upper.fragment.is_some() };
        self.protocol = Some(upper.protocol);
        self.transport_offset = self.network_offset + upper.offset;
        if upper.is_later_fragment() {
            return Ok(());
        }
        self.descend_transport(frame, upper.protocol)
    }

    fn descend_transport(&mut self, frame: &[u8], protocol: Protocol) -> Result<()> {
        let bytes = self.transport_bytes(frame);
        self.transport = match protocol {
            Protocol::TCP => tcp::Segment::new_checked(bytes).map(|_| Transport::Tcp)?,
            Protocol::UDP => udp::Datagram::new_checked(bytes).map(|_| Transport::Udp)?,
            _ => Transport::Other,
        };
        Ok(())
    }
}

/// What follows the header of a link type (LINKTYPE registry), and where. `None` for a link type that is not known.
pub fn link_payload(frame: &[u8], linktype: u16) -> Option<Result<(EtherType, usize)>> {
    let ip = |at: usize| Ok((ip_version(frame, at).unwrap_or(EtherType(0)), at));
    let word = |at: usize, len: usize| {
        require("link-layer header", frame, at + 2)?;
        Ok((EtherType(read::u16(frame, at..at + 2)), len))
    };
    Some(match linktype {
        // Ethernet.
        1 => word(12, ethernet::HEADER_LEN),
        // BSD loopback: the address family, in the byte order of the host or of the network.
        0 | 108 => match frame.first_chunk() {
            Some([2 | 10 | 24 | 28 | 30, 0, 0, 0] | [0, 0, 0, 2 | 10 | 24 | 28 | 30]) => ip(4),
            _ => Ok((EtherType(0), 0)),
        },
        // Raw IP, as TUN devices have it, also by the numbers of OpenBSD and BSD/OS.
        12 | 14 | 101 | 228 | 229 => ip(0),
        // Linux cooked, in both versions.
        113 => word(14, 16),
        276 => word(0, 20),
        _ => return None,
    })
}

/// Types of VLAN tags, with an old one that [`parse`] does not look behind.
pub const VLAN_TAG_TYPES: [EtherType; 3] =
    [EtherType(0x9100), EtherType::VLAN, EtherType::SERVICE_VLAN];

/// What follows a header at `at` that is neither IP nor ARP, and where: MPLS, PPPoE, tags, SNAP, FabricPath, NSH. It is
/// always behind that header.
pub fn next_header(frame: &[u8], ether_type: EtherType, at: usize) -> Option<(EtherType, usize)> {
    let bytes = frame.get(at..)?;
    let word = |at: usize| bytes.get(at..at + 2).map(|bytes| EtherType(read::u16(bytes, 0..2)));
    let (ether_type, len) = match ether_type.0 {
        _ if VLAN_TAG_TYPES.contains(&ether_type) => (word(2)?, 4),
        // MPLS (RFC 3032): labels up to the bottom of the stack, and then probably IP.
        0x8847 | 0x8848 => {
            let labels = bytes.chunks_exact(4).position(|label| label[2] & 1 == 1)? + 1;
            (ip_version(bytes, 4 * labels)?, 4 * labels)
        }
        // With IP.
        _ if ether_type == EtherType::PPPOE => match word(6)?.0 {
            0x0021 => (EtherType::IPV4, 8),
            0x0057 => (EtherType::IPV6, 8),
            _ => return None,
        },
        // FabricPath: a tag, and the rest of an Ethernet frame.
        0x8903 => (word(2 + 12)?, 2 + ethernet::HEADER_LEN),
        // Network service header (RFC 8300).
        0x894f => {
            let len = 4 * usize::from(*bytes.get(1)? & 0x3f);
            match bytes.get(3)? {
                1 if len > 0 => (EtherType::IPV4, len),
                2 if len > 0 => (EtherType::IPV6, len),
                3 => (word(len + 12)?, len + ethernet::HEADER_LEN),
                _ => return None,
            }
        }
        // 802.3 with LLC and SNAP (RFC 1042).
        _ if ether_type.is_length() && bytes.starts_with(&[0xaa, 0xaa, 3, 0, 0, 0]) => {
            (word(6)?, 8)
        }
        _ => return None,
    };
    Some((ether_type, at + len))
}

fn from(frame: &[u8], offset: usize) -> &[u8] {
    frame.get(offset..).unwrap_or(&[])
}
