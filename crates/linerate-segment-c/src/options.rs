//! The options in C, and their conversion to the library's.

use linerate_segment::coalesce;
use linerate_segment::segment::{Checksums, IpId, LinkType, Options, Split};

/// How to split, with a size in bytes.
#[repr(u8)]
#[derive(Clone, Copy)]
pub enum linerate_split {
    /// Into TCP segments with so much payload (gso_size: the MSS less the length of the TCP options).
    Tcp = 0,
    /// Into UDP datagrams with so much payload (USO).
    Udp = 1,
    /// Into fragments of the outermost IP packet, none longer than this, without the link header.
    Fragments = 2,
    /// Into IP packets no longer than this, without the link header: TCP becomes segments, also in a tunnel,
    /// and everything else fragments.
    Mtu = 3,
}

/// What to do with a super-packet. Start with linerate_segment_options_default() and change what differs.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct linerate_segment_options {
    /// Longest IP packet that is split, in bytes.
    pub max_burst: u32,
    /// Most segments that a packet may make.
    pub max_segments: u32,
    /// Identification of the IPv6 fragments, if there will be any.
    pub fragment_id: u32,
    /// The size that belongs to `split`, in bytes.
    pub size: u16,
    /// UDP destination port that means VXLAN; 0 for none.
    pub vxlan_port: u16,
    /// UDP destination port that means Geneve; 0 for none.
    pub geneve_port: u16,
    /// UDP destination port that means GTP-U; 0 for none.
    pub gtp_port: u16,
    /// UDP destination port that means GUE, or IP directly in UDP; 0 for none.
    pub gue_port: u16,
    /// How to split: a linerate_split.
    pub split: u8,
    /// What the packet starts with: a linerate_link_type.
    pub link: u8,
    /// What is done about checksums: a linerate_checksums.
    pub checksums: u8,
    /// The identification of the outermost IPv4 header: a linerate_ip_id.
    pub outer_id: u8,
    /// The identification of the IPv4 header inside of a tunnel: a linerate_ip_id.
    pub inner_id: u8,
    /// CWR belongs to Accurate ECN and is repeated in all segments; otherwise it is set in the first only.
    pub accurate_ecn: bool,
}

/// What a coalescer does. Start with linerate_coalesce_options_default() and change what differs.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct linerate_coalesce_options {
    /// UDP destination port that means VXLAN; 0 for none.
    pub vxlan_port: u16,
    /// UDP destination port that means Geneve; 0 for none.
    pub geneve_port: u16,
    /// Longest IP packet to make, in bytes.
    pub max_len: u16,
    /// Most segments to join, 2 to 128.
    pub max_segments: u16,
    /// What a frame starts with: a linerate_link_type.
    pub link: u8,
    /// What the innermost checksum of a super-packet becomes: a linerate_checksums.
    pub checksums: u8,
    /// Join TCP segments.
    pub tcp: bool,
    /// Join UDP datagrams of one size.
    pub udp: bool,
    /// Join what is inside of VXLAN, Geneve, GRE and IP in IP.
    pub tunnels: bool,
}

/// Ethernet frames, full checksums, incrementing identifications, the default ports, no limits.
/// `split` is a linerate_split and `size` what belongs to it.
#[unsafe(no_mangle)]
pub extern "C" fn linerate_segment_options_default(
    split: u8,
    size: u16,
) -> linerate_segment_options {
    linerate_segment_options { split, size, ..Options::new(Split::Mtu(size)).into() }
}

/// Ethernet frames, all protocols, full checksums, the largest super-packets.
#[unsafe(no_mangle)]
pub extern "C" fn linerate_coalesce_options_default() -> linerate_coalesce_options {
    let coalesce::Options {
        vxlan_port, geneve_port, max_len, max_segments, tcp, udp, tunnels, ..
    } = coalesce::Options::default();
    linerate_coalesce_options {
        vxlan_port,
        geneve_port,
        max_len,
        max_segments,
        link: LinkType::Ethernet as u8,
        checksums: Checksums::Full as u8,
        tcp,
        udp,
        tunnels,
    }
}

impl From<Options> for linerate_segment_options {
    fn from(options: Options) -> Self {
        let (split, size) = match options.split {
            Split::Tcp { mss } => (linerate_split::Tcp, mss),
            Split::Udp { size } => (linerate_split::Udp, size),
            Split::Fragments { mtu } => (linerate_split::Fragments, mtu),
            Split::Mtu(mtu) => (linerate_split::Mtu, mtu),
        };
        Self {
            max_burst: options.max_burst,
            max_segments: options.max_segments,
            fragment_id: options.fragment_id,
            size,
            vxlan_port: options.vxlan_port,
            geneve_port: options.geneve_port,
            gtp_port: options.gtp_port,
            gue_port: options.gue_port,
            split: split as u8,
            link: options.link as u8,
            checksums: options.checksums as u8,
            outer_id: options.outer_id as u8,
            inner_id: options.inner_id as u8,
            accurate_ecn: options.accurate_ecn,
        }
    }
}

impl linerate_segment_options {
    /// The library's; `None` if a number is not in its enumeration.
    pub(crate) fn read(&self) -> Option<Options> {
        const TCP: u8 = linerate_split::Tcp as u8;
        const UDP: u8 = linerate_split::Udp as u8;
        const FRAGMENTS: u8 = linerate_split::Fragments as u8;
        const MTU: u8 = linerate_split::Mtu as u8;
        let split = match self.split {
            TCP => Split::Tcp { mss: self.size },
            UDP => Split::Udp { size: self.size },
            FRAGMENTS => Split::Fragments { mtu: self.size },
            MTU => Split::Mtu(self.size),
            _ => return None,
        };
        Some(Options {
            link: link(self.link)?,
            split,
            checksums: checksums(self.checksums)?,
            outer_id: ip_id(self.outer_id)?,
            inner_id: ip_id(self.inner_id)?,
            accurate_ecn: self.accurate_ecn,
            vxlan_port: self.vxlan_port,
            geneve_port: self.geneve_port,
            gtp_port: self.gtp_port,
            gue_port: self.gue_port,
            fragment_id: self.fragment_id,
            max_burst: self.max_burst,
            max_segments: self.max_segments,
        })
    }
}

impl linerate_coalesce_options {
    /// The library's; `None` if a number is not in its enumeration.
    pub(crate) fn read(&self) -> Option<coalesce::Options> {
        Some(coalesce::Options {
            link: link(self.link)?,
            tcp: self.tcp,
            udp: self.udp,
            tunnels: self.tunnels,
            vxlan_port: self.vxlan_port,
            geneve_port: self.geneve_port,
            checksums: checksums(self.checksums)?,
            max_len: self.max_len,
            max_segments: self.max_segments,
        })
    }
}

fn link(number: u8) -> Option<LinkType> {
    [LinkType::Ethernet, LinkType::Ip].into_iter().find(|one| *one as u8 == number)
}

fn checksums(number: u8) -> Option<Checksums> {
    let all = [Checksums::Full, Checksums::Partial, Checksums::None];
    all.into_iter().find(|one| *one as u8 == number)
}

fn ip_id(number: u8) -> Option<IpId> {
    [IpId::Increment, IpId::Fixed].into_iter().find(|one| *one as u8 == number)
}
