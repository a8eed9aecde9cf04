//! [`Packet`]: what the meter needs of a frame.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_wire::ethernet::EtherType;
use linerate_wire::ip::Protocol;
use linerate_wire::layers::{self, Layers, Network};
use linerate_wire::{tcp, vlan};

use super::details::PacketDetails;
use super::fragments::Fragments;
use crate::{FlowKey, icmp};

/// Why a frame is in no flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unmetered {
    /// It has a link-layer header that the meter does not know.
    LinkType,
    /// It carries no IP packet.
    NotIp,
    /// Its IP header is malformed or cut off.
    Malformed,
}

/// The key of a flow, the same in both directions: of the two ends the smaller one is `a`. Words, so that
/// comparing and hashing are fast. Without the attribute it would end with four bytes of padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(super) struct Key {
    /// The addresses of `a` and `b`; IPv4 addresses are mapped (RFC 4291 section 2.5.5.2).
    addresses: [u64; 4],
    /// From the highest bits: the ports of `a` and `b`, outer and second VLAN. ICMP has type and code as both ports.
    ports_vlans: u64,
    /// From the highest bits: number of the interface (16), protocol (8), [`Key::IPV6`] and [`Key::PORTS`] (8).
    rest: u32,
}

/// Stands for no VLAN.
const NO_VLAN: u16 = 0xffff;

impl Key {
    const IPV6: u32 = 1;
    const PORTS: u32 = 2;
    const ICMP: u32 = 4;

    /// The words to hash.
    pub(super) fn words(&self) -> [u64; 6] {
        let [a, b, c, d] = self.addresses;
        [a, b, c, d, self.ports_vlans, self.rest.into()]
    }

    #[cfg(test)]
    pub(super) fn of_addresses(addresses: [u64; 4]) -> Self {
        Self { addresses, rest: Self::IPV6, ..Self::default() }
    }

    #[cfg(test)]
    pub(super) fn numbered(number: u32) -> Self {
        Self { rest: number, ..Self::default() }
    }

    /// The number of the interface.
    pub(super) fn interface(&self) -> u16 {
        (self.rest >> 16) as u16
    }

    /// The key as the initiator sends, which is `a` or `b`.
    pub(super) fn flow_key(&self, initiator_is_a: bool) -> FlowKey {
        let [a1, a2, b1, b2] = self.addresses;
        let address = |high: u64, low: u64| {
            let address = Ipv6Addr::from(u128::from(high) << 64 | u128::from(low));
            match self.rest & Self::IPV6 {
                0 => IpAddr::V4(address.to_ipv4_mapped().expect("an IPv4 address was mapped")),
                _ => IpAddr::V6(address),
            }
        };
        let [a, b, outer, customer] =
            [48, 32, 16, 0].map(|shift| (self.ports_vlans >> shift) as u16);
        let ends = [(address(a1, a2), a), (address(b1, b2), b)];
        let [(source, source_port), (destination, destination_port)] = match initiator_is_a {
            true => ends,
            false => [ends[1], ends[0]],
        };
        let port = |port| (self.rest & Self::PORTS != 0).then_some(port);
        let vlan = |vlan| (vlan != NO_VLAN).then_some(vlan);
        FlowKey {
            source,
            destination,
            source_port: port(source_port),
            destination_port: port(destination_port),
            icmp_type_code: (self.rest & Self::ICMP != 0).then_some(source_port),
            protocol: (self.rest >> 8) as u8,
            vlan: vlan(outer),
            customer_vlan: vlan(customer),
        }
    }
}

/// What a packet says of who began the flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Initiator {
    /// Nothing: the flow began before. The sender has the higher port, or the ports say nothing.
    LikelySender,
    /// Nothing, and the receiver has the higher port.
    LikelyReceiver,
    /// The sender, by the SYN of TCP, an ICMP request, or because nothing contradicts.
    Sender,
    /// The receiver: the packet is an answer.
    Receiver,
}

impl Initiator {
    pub(super) fn is_certain(self) -> bool {
        matches!(self, Self::Sender | Self::Receiver)
    }
}

/// Ethernet pads shorter frames to 60 bytes. There may be a tag or an FCS besides.
const MAX_PADDED_LEN: u32 = 64;

/// Ports that only servers have (IANA's system ports).
const SYSTEM_PORTS: std::ops::Range<u16> = 1..1024;

/// An IP packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) key: Key,
    /// Whether `a` of the key sent it.
    pub(super) from_a: bool,
    pub(super) initiator: Initiator,
    /// Octets of the IP packet, as its header says.
    pub(super) octets: u32,
    pub(super) ttl: u8,
    pub(super) flags: tcp::Flags,
    /// Its protocol has ports, but it is a fragment whose first one is not known, or its headers were cut off.
    pub(super) without_ports: bool,
}

/// The layers of a frame of this link type (LINKTYPE registry), and the VLANs of its first two tags.
#[inline]
pub(super) fn layers(frame: &[u8], linktype: u16) -> Result<(Layers, [u16; 2]), Unmetered> {
    let behind = layers::link_payload(frame, linktype).ok_or(Unmetered::LinkType)?;
    let (ether_type, offset) = behind.map_err(|_| Unmetered::Malformed)?;
    let layers = layers::parse_from(frame, ether_type, offset);
    let vlans = match layers.tags {
        0 => [NO_VLAN; 2],
        _ => layers.vlans(frame).map(|vlan| vlan.unwrap_or(NO_VLAN)),
    };
    Ok(match layers.network {
        Network::Other => encapsulated(frame, layers, vlans),
        _ => (layers, vlans),
    })
}

/// The layers behind what stands between Ethernet and IP.
#[cold]
fn encapsulated(frame: &[u8], mut layers: Layers, mut vlans: [u16; 2]) -> (Layers, [u16; 2]) {
    while layers.network == Network::Other
        && let Some((ether_type, offset)) =
            layers::next_header(frame, layers.ether_type, layers.network_offset)
    {
        let tag = layers::VLAN_TAG_TYPES.contains(&layers.ether_type);
        let tag = tag.then(|| frame.get(layers.network_offset..).unwrap_or(&[]));
        let tag = tag.and_then(|bytes| vlan::Tag::new_checked(bytes).ok()).map(|tag| tag.id());
        layers = layers::parse_from(frame, ether_type, offset);
        for vlan in tag.into_iter().chain(layers.vlans(frame).into_iter().flatten()) {
            if let Some(free) = vlans.iter_mut().find(|known| **known == NO_VLAN) {
                *free = vlan;
            }
        }
    }
    (layers, vlans)
}

impl Packet {
    /// Whether `a` is the initiator, as far as this packet says.
    pub(super) fn initiator_is_a(&self) -> bool {
        let is_receiver = matches!(self.initiator, Initiator::Receiver | Initiator::LikelyReceiver);
        self.from_a != is_receiver
    }

    /// Whether it says by itself who the initiator is: a SYN or a message of ICMP.
    pub(super) fn tells_initiator(&self) -> bool {
        self.flags.contains(tcp::Flags::SYN) || self.key.rest & Key::ICMP != 0
    }

    /// The packet in a frame that was `wire_len` bytes long; `frame` may be its beginning only. Its details are added
    /// to `details`, here, where the layers are: a copy of those would cost each packet that has none.
    #[inline]
    pub(super) fn parse(
        frame: &[u8],
        wire_len: u32,
        linktype: u16,
        interface: u16,
        now: u64,
        fragments: &mut Fragments,
        details: Option<&mut Vec<PacketDetails>>,
    ) -> Result<Self, Unmetered> {
        let (layers, vlans) = layers(frame, linktype)?;
        // Addresses are numbers here: of `Ipv6Addr`, which IPv4 would be mapped to, the compiler moves each octet alone.
        let mapped = |address: Ipv4Addr| 0xffff_0000_0000 | u128::from(u32::from(address));
        let (source, destination, total_len, ttl) = match layers.network {
            Network::Ipv4 { .. } => {
                let packet = layers.ipv4(frame).ok_or(Unmetered::Malformed)?;
                let ends = (mapped(packet.source()), mapped(packet.destination()));
                (ends.0, ends.1, u32::from(packet.total_len()), packet.ttl())
            }
            Network::Ipv6 { .. } => {
                let packet = layers.ipv6(frame).ok_or(Unmetered::Malformed)?;
                let header_len = linerate_wire::ipv6::HEADER_LEN as u32;
                let len = match packet.has_len() {
                    true => header_len + u32::from(packet.payload_len()),
                    false => 0,
                };
                let ends = (u128::from(packet.source()), u128::from(packet.destination()));
                (ends.0, ends.1, len, packet.hop_limit())
            }
            Network::Arp => return Err(Unmetered::NotIp),
            Network::Other => {
                let is_ip = matches!(layers.ether_type, EtherType::IPV4 | EtherType::IPV6);
                return Err(if is_ip { Unmetered::Malformed } else { Unmetered::NotIp });
            }
        };
        // Super-packets may have no length in their header. A frame as short as this is padded.
        let octets = match total_len {
            0 if linktype == 1 && wire_len <= MAX_PADDED_LEN => {
                (layers.transport_offset - layers.network_offset) as u32
            }
            0 => wire_len.saturating_sub(layers.network_offset as u32),
            len => len,
        };
        let protocol = layers.protocol.ok_or(Unmetered::Malformed)?;
        let is_v6 = matches!(layers.network, Network::Ipv6 { .. });
        let mut rest = u32::from(interface) << 16 | u32::from(protocol.0) << 8;
        rest |= if is_v6 { Key::IPV6 } else { 0 };
        let mut flags = layers.tcp_flags(frame).unwrap_or(tcp::Flags(0));
        // The type and code of ICMP stand in place of both ports.
        let type_code = |(kind, code)| u16::from_be_bytes([kind, code]);
        let icmp = || layers.icmp(frame).map(|both| (type_code(both), type_code(both)));
        let mut ports = layers.ports(frame).or_else(icmp);
        if let Some(fragment) = layers.fragment(frame) {
            let ends = [source, destination];
            let identity = fragments.identity(ends, fragment.identification, rest, vlans);
            if fragment.offset != 0 {
                (ports, flags) = (fragments.ports(identity, now), tcp::Flags(0));
            } else if let Some(ports) = ports {
                fragments.remember(identity, ports, now);
            }
        }
        let without_ports = protocol.has_ports() && ports.is_none();
        let mut initiator = match protocol {
            Protocol::TCP if flags.contains(tcp::Flags::SYN.union(tcp::Flags::ACK)) => {
                Initiator::Receiver
            }
            Protocol::TCP if !flags.contains(tcp::Flags::SYN) => Initiator::LikelySender,
            _ => Initiator::Sender,
        };
        let (source_port, destination_port) = match ports {
            Some(ports) if protocol.has_ports() => {
                rest |= Key::PORTS;
                let (source, destination) = ports;
                // Beside TCP, a packet from such a port is probably an answer.
                let is_system = SYSTEM_PORTS.contains(&source) && destination >= SYSTEM_PORTS.end;
                if !flags.contains(tcp::Flags::SYN)
                    && source < destination
                    && (is_system || protocol == Protocol::TCP)
                {
                    initiator = Initiator::LikelyReceiver;
                }
                ports
            }
            Some((type_code, _)) => {
                rest |= Key::ICMP;
                let [kind, code] = type_code.to_be_bytes();
                // Nobody has asked for an advertisement that all nodes get.
                let is_multicast = is_v6 && destination >> 120 == 0xff;
                let request = if is_multicast { kind } else { icmp::request(protocol, kind) };
                if request != kind {
                    initiator = Initiator::Receiver;
                }
                let type_code = u16::from_be_bytes([request, code]);
                (type_code, type_code)
            }
            None => (0, 0),
        };
        let (a, b) = ((source, source_port), (destination, destination_port));
        // Where both ends are the same, an answer is what comes from `b`.
        let from_a = if a == b { initiator != Initiator::Receiver } else { a < b };
        let (a, b) = if from_a { (a, b) } else { (b, a) };
        let words = |address: u128| [(address >> 64) as u64, address as u64];
        let [[a1, a2], [b1, b2]] = [words(a.0), words(b.0)];
        let key = Key {
            addresses: [a1, a2, b1, b2],
            ports_vlans: u64::from(a.1) << 48
                | u64::from(b.1) << 32
                | u64::from(vlans[0]) << 16
                | u64::from(vlans[1]),
            rest,
        };
        let packet = Self { key, from_a, initiator, octets, ttl, flags, without_ports };
        if let Some(details) = details {
            details.push(PacketDetails::parse(frame, &layers, linktype, &packet));
        }
        Ok(packet)
    }
}
