//! What to do with a super-packet.

use linerate_wire::ip::Protocol;
use linerate_wire::offload::PartialChecksum;
use linerate_wire::udp_tunnel::{self, UdpTunnel};
use linerate_wire::virtio::{self, GsoType};
use linerate_wire::{geneve, vxlan};

use super::{fragment, layout};

/// Most bytes of headers, link header included, in front of the payload of a segment: two VLAN tags,
/// IPv6, Geneve with all options, another Ethernet and IPv6 header and TCP with all options fit.
pub const MAX_HEADER_LEN: usize = 512;

/// What the packet starts with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LinkType {
    /// An Ethernet header with no, one or two VLAN tags.
    #[default]
    Ethernet = 0,
    /// An IPv4 or IPv6 header, as on a TUN device.
    Ip = 1,
}

/// How to split. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// Into TCP segments with this much payload; the last may have less.
    Tcp {
        /// Payload of a segment: `gso_size`, the MSS less the length of the TCP options.
        mss: u16,
    },
    /// Into UDP datagrams with this much payload (USO, the kernel's `UDP_SEGMENT`).
    Udp {
        /// Payload of a datagram.
        size: u16,
    },
    /// Into fragments of the outermost IP packet, no fragment longer than this (without the link
    /// header).
    Fragments {
        /// Length of an IP packet with its header.
        mtu: u16,
    },
    /// Into IP packets no longer than this (without the link header): TCP, also in a tunnel, becomes
    /// segments, and everything else fragments.
    Mtu(u16),
}

impl Split {
    /// What a virtio header asks for; `None` for a kind that is not split here, and for a frame that is no
    /// super-packet.
    pub const fn from_virtio(header: &virtio::Header) -> Option<Self> {
        match header.gso_type.kind() {
            GsoType::TCPV4 | GsoType::TCPV6 => Some(Self::Tcp { mss: header.gso_size }),
            GsoType::UDP_L4 => Some(Self::Udp { size: header.gso_size }),
            _ => None,
        }
    }
}

/// What is done about the checksums of TCP and UDP. That of an IPv4 header is always right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Checksums {
    /// All are computed.
    #[default]
    Full = 0,
    /// The innermost holds the sum of its pseudo header, for hardware to finish; those of a tunnel
    /// are complete, as they do not depend on that work.
    Partial = 1,
    /// None is computed: the fields of segments are 0, also those of tunnels; fragments keep what
    /// stands in the packet.
    None = 2,
}

/// How the identification of an IPv4 header goes on from segment to segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum IpId {
    /// One more with each segment, modulo 65,536.
    #[default]
    Increment = 0,
    /// The same in all (the kernel's `SKB_GSO_TCP_FIXEDID`); needs the DF flag.
    Fixed = 1,
}

/// What to do with a super-packet. Start with [`Options::new`] and change what differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// What the packet starts with.
    pub link: LinkType,
    /// How to split.
    pub split: Split,
    /// What is done about checksums.
    pub checksums: Checksums,
    /// The identification of the outermost IPv4 header, the only one where there is no tunnel. Fragments
    /// always share one.
    pub outer_id: IpId,
    /// The identification of the IPv4 header inside of a tunnel.
    pub inner_id: IpId,
    /// CWR belongs to Accurate ECN (RFC 9768) and is repeated in all segments; otherwise it is set in the
    /// first only (the kernel's `SKB_GSO_TCP_ACCECN`).
    pub accurate_ecn: bool,
    /// UDP destination port that means VXLAN; 0 for none.
    pub vxlan_port: u16,
    /// UDP destination port that means Geneve; 0 for none.
    pub geneve_port: u16,
    /// UDP destination port that means GTP-U; 0 for none.
    pub gtp_port: u16,
    /// UDP destination port that means GUE, or IP directly in UDP (FOU); 0 for none.
    pub gue_port: u16,
    /// Identification of the IPv6 fragments, if there will be any (RFC 8200 §4.5: not used of late
    /// between the same two addresses).
    pub fragment_id: u32,
    /// Longest IP packet that is split, in bytes.
    pub max_burst: u32,
    /// Most segments that a packet may make.
    pub max_segments: u32,
}

impl Options {
    /// Ethernet frames, full checksums, incrementing identifications, the default ports, no limits.
    pub const fn new(split: Split) -> Self {
        Self {
            link: LinkType::Ethernet,
            split,
            checksums: Checksums::Full,
            outer_id: IpId::Increment,
            inner_id: IpId::Increment,
            accurate_ecn: false,
            vxlan_port: vxlan::PORT,
            geneve_port: geneve::PORT,
            gtp_port: udp_tunnel::GTP_PORT,
            gue_port: udp_tunnel::GUE_PORT,
            fragment_id: 0,
            max_burst: u32::MAX,
            max_segments: u32::MAX,
        }
    }

    /// What the virtio header of `packet` asks for; `None` as [`Split::from_virtio`], but for UDP fragmentation offload
    /// (UFO) outside of tunnels. Give the fragments of each such IPv6 packet their own [`Options::fragment_id`].
    ///
    /// A UDP tunnel may have any port. There is one if the header says so, if the outermost UDP header carries TCP, or if
    /// a checksum starts behind it. Otherwise none is looked for: a plain datagram may be for any port, too.
    pub fn from_virtio(header: &virtio::Header, packet: &[u8], link: LinkType) -> Option<Self> {
        let split = match header.gso_type.kind() {
            GsoType::UDP => fragments(header, packet, link)?,
            _ => Split::from_virtio(header)?,
        };
        let mut options = Self { link, ..Self::new(split) };
        for tunnel in UdpTunnel::ALL {
            *options.port_mut(tunnel) = 0;
        }
        if let Some(at) = tunnel_header(header, packet, &options)
            && let Some([_, _, high, low, _, _, _, _, payload @ ..]) = packet.get(at..)
            && let Some((tunnel, ..)) = UdpTunnel::detect(payload)
        {
            *options.port_mut(tunnel) = u16::from_be_bytes([*high, *low]);
        }
        Some(options)
    }

    /// The port that means this tunnel.
    pub(crate) const fn port(&self, tunnel: UdpTunnel) -> u16 {
        match tunnel {
            UdpTunnel::Vxlan => self.vxlan_port,
            UdpTunnel::Geneve => self.geneve_port,
            UdpTunnel::Gtp => self.gtp_port,
            UdpTunnel::Gue => self.gue_port,
        }
    }

    const fn port_mut(&mut self, tunnel: UdpTunnel) -> &mut u16 {
        match tunnel {
            UdpTunnel::Vxlan => &mut self.vxlan_port,
            UdpTunnel::Geneve => &mut self.geneve_port,
            UdpTunnel::Gtp => &mut self.gtp_port,
            UdpTunnel::Gue => &mut self.gue_port,
        }
    }
}

/// What UDP fragmentation offload asks for: so many bytes behind the headers that all fragments have.
fn fragments(header: &virtio::Header, packet: &[u8], link: LinkType) -> Option<Split> {
    let outer = layout::outermost(packet, link).ok()?;
    let is_outermost = |partial: PartialChecksum| usize::from(partial.start) == outer.upper;
    if outer.protocol != Protocol::UDP || !header.partial_checksum().is_none_or(is_outermost) {
        return None;
    }
    let repeated = fragment::header_len(packet, &outer) - outer.at;
    let mtu = repeated + usize::from(header.gso_size);
    Some(Split::Fragments { mtu: mtu.try_into().ok()? })
}

/// Where the UDP header of a tunnel is in a super-packet, if it is in one.
fn tunnel_header(header: &virtio::Header, packet: &[u8], options: &Options) -> Option<usize> {
    let tunnels = [GsoType::UDP_TUNNEL_IPV4, GsoType::UDP_TUNNEL_IPV6];
    if tunnels.into_iter().any(|bit| header.gso_type.contains(bit)) {
        return Some(header.outer_th_offset.into());
    }
    // Only the longer virtio header has these bits. Packet sockets have the shorter one. This reads the headers once for
    // each super-packet, which is little beside its segments.
    let outer = layout::outermost(packet, options.link).ok()?;
    let checksum_at = header.partial_checksum().map_or(0, |partial| usize::from(partial.start));
    let carries_tcp = matches!(options.split, Split::Tcp { .. });
    (outer.protocol == Protocol::UDP && (carries_tcp || checksum_at > outer.upper))
        .then_some(outer.upper)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_is_looked_for_where_the_header_says_so() {
        let ports = |gso_type: GsoType, outer_th_offset: u16, packet: &[u8]| {
            let header = virtio::Header { gso_type, outer_th_offset, ..virtio::Header::default() };
            let found = Options::from_virtio(&header, packet, LinkType::Ethernet).unwrap();
            (found.vxlan_port, found.geneve_port)
        };
        let mut packet = [0; 64];
        packet[36..38].copy_from_slice(&4789u16.to_be_bytes());
        packet[42] = 8;
        let inside = GsoType::TCPV4.union(GsoType::UDP_TUNNEL_IPV4);
        assert_eq!(ports(GsoType::UDP_L4, 34, &packet), (0, 0), "a plain datagram for that port");
        assert_eq!(ports(inside, 34, &packet), (4789, 0));
        packet[42..46].copy_from_slice(&[0, 0, 0x65, 0x58]);
        assert_eq!(ports(inside, 34, &packet), (0, 4789));
        for beyond in [62, 1000, u16::MAX] {
            assert_eq!(ports(inside, beyond, &packet), (0, 0), "{beyond}");
        }
        let none = virtio::Header::default();
        assert!(Options::from_virtio(&none, &packet, LinkType::Ethernet).is_none());
    }
}
