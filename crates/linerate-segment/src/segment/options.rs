//! What to do with a super-packet.

use linerate_wire::{geneve, vxlan};

/// What the packet starts with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Link {
    /// An Ethernet header with no, one or two VLAN tags.
    #[default]
    Ethernet,
    /// An IPv4 or IPv6 header, as on a TUN device.
    Ip,
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
    /// Into IP packets no longer than this (without the link header): TCP, also behind a tunnel,
    /// becomes segments, and everything else fragments.
    Mtu(u16),
}

/// What is done about the checksums of TCP and UDP. That of an IPv4 header is always right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Checksums {
    /// All are computed.
    #[default]
    Full,
    /// The innermost holds the sum of its pseudo header, for hardware to finish; those of a tunnel
    /// are complete, as they do not depend on that work. See [`Segments::partial`].
    ///
    /// [`Segments::partial`]: super::Segments::partial
    Partial,
    /// None is computed: the fields of segments are 0, also those of tunnels; fragments keep what
    /// stands in the packet.
    None,
}

/// How the identification of an IPv4 header goes on from segment to segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IpId {
    /// One more with each segment, modulo 65,536.
    #[default]
    Increment,
    /// The same in all (the kernel's `SKB_GSO_TCP_FIXEDID`); needs the DF flag.
    Fixed,
}

/// What to do with a super-packet. Start with [`Options::new`] and change what differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// What the packet starts with.
    pub link: Link,
    /// How to split.
    pub split: Split,
    /// What is done about checksums.
    pub checksums: Checksums,
    /// The identification of the outermost IPv4 header, the only one where there is no tunnel.
    /// Fragments share one, whatever is said here.
    pub outer_id: IpId,
    /// The identification of the IPv4 header inside of a tunnel.
    pub inner_id: IpId,
    /// CWR belongs to Accurate ECN (RFC 9768) and is repeated in all segments; otherwise it stands in
    /// the first only (the kernel's `SKB_GSO_TCP_ACCECN`).
    pub accurate_ecn: bool,
    /// UDP destination port that means VXLAN; 0 for none.
    pub vxlan_port: u16,
    /// UDP destination port that means Geneve; 0 for none.
    pub geneve_port: u16,
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
            link: Link::Ethernet,
            split,
            checksums: Checksums::Full,
            outer_id: IpId::Increment,
            inner_id: IpId::Increment,
            accurate_ecn: false,
            vxlan_port: vxlan::PORT,
            geneve_port: geneve::PORT,
            fragment_id: 0,
            max_burst: u32::MAX,
            max_segments: u32::MAX,
        }
    }
}
