//! What a coalescer does.

use linerate_wire::ip::Protocol;
use linerate_wire::{geneve, vxlan};

use crate::segment::layout::Layout;
use crate::segment::{self, Checksums, LinkType, Split};

/// Most segments of a super-packet (the kernel's `UDP_MAX_SEGMENTS`): 64 KiB of 512 bytes each.
pub const MAX_SEGMENTS: usize = 128;

/// What a coalescer does. Start with the default and change what differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// What a frame starts with.
    pub link: LinkType,
    /// Join TCP segments.
    pub tcp: bool,
    /// Join UDP datagrams of one size, for receivers that can take them apart again (`UDP_GRO`
    /// sockets, a TUN device with USO).
    pub udp: bool,
    /// Join what is inside of VXLAN, Geneve, GRE and IP in IP.
    pub tunnels: bool,
    /// UDP destination port that means VXLAN; 0 for none.
    pub vxlan_port: u16,
    /// UDP destination port that means Geneve; 0 for none.
    pub geneve_port: u16,
    /// What the innermost checksum of a super-packet becomes. `Partial` is what a virtio header asks
    /// for, `Full` what a capture file wants; both cost a few additions, as the payload was summed.
    /// `None` leaves 0 in all transport and tunnel checksums.
    pub checksums: Checksums,
    /// Longest IP packet to make, in bytes.
    pub max_len: u16,
    /// Most segments to join, `2..=`[`MAX_SEGMENTS`].
    pub max_segments: u16,
}

impl Default for Options {
    /// Ethernet frames, all protocols, full checksums, the largest super-packets.
    fn default() -> Self {
        Self {
            link: LinkType::Ethernet,
            tcp: true,
            udp: true,
            tunnels: true,
            vxlan_port: vxlan::PORT,
            geneve_port: geneve::PORT,
            checksums: Checksums::Full,
            max_len: u16::MAX,
            max_segments: MAX_SEGMENTS as u16,
        }
    }
}

impl Options {
    /// How the segmenter has to look at the same frames.
    pub(super) fn parse(&self) -> segment::Options {
        segment::Options {
            link: self.link,
            vxlan_port: self.vxlan_port,
            geneve_port: self.geneve_port,
            gtp_port: 0,
            gue_port: 0,
            ..segment::Options::new(Split::Mtu(u16::MAX))
        }
    }

    /// Whether packets of this kind are joined.
    pub(super) fn joins(&self, layout: &Layout) -> bool {
        let protocol = match layout.innermost().protocol {
            Protocol::TCP => self.tcp,
            _ => self.udp,
        };
        protocol && (self.tunnels || layout.tunnel.is_none())
    }
}
