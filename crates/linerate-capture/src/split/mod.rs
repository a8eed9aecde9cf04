//! Super-packets of captures into the frames that were on the wire, and back.
//!
//! A host that leaves segmentation to its network card, or joins what it receives, shows a capture
//! packets of up to 64 KiB that no wire carried. [`rewrite`] makes a capture file in which they are split,
//! or in which frames are joined; [`LiveSplitter`] splits while a capture runs, with the kernel's
//! metadata of each super-packet. Other packets stay the same, byte for byte; packets that could not be
//! split are counted by [`UnsplitReason`].

mod file;
mod join;
mod link;
mod live;
mod statistics;

use linerate_segment::Error;
use linerate_segment::segment::{Checksums, IpId, LinkType, Options, Segments, Split};
use linerate_wire::ip::Protocol;
use linerate_wire::udp_tunnel::{GTP_PORT, GUE_PORT};
use linerate_wire::{geneve, vxlan};

pub use file::{Operation, Progress, Report, Rewrite, filters, rewrite};
pub use join::JoinOptions;
pub use live::LiveSplitter;
pub use statistics::{
    JoinStatistics, SplitStatistics, UnjoinedCounts, UnsplitCounts, UnsplitReason,
};

/// How packets of a file are split. A file does not have the length of the segments; the MTU of the path
/// gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitOptions {
    /// Longest IP packet that the wire carried, in bytes, with its header.
    pub mtu: u16,
    /// Payload of a TCP segment in bytes; `None` for what the MTU leaves room for. With a number, packets
    /// that fit are split, too, where they have more.
    pub mss: Option<u16>,
    /// The same for UDP datagrams; without it UDP is not split.
    pub uso: Option<u16>,
    /// What is neither TCP nor, with [`SplitOptions::uso`], UDP becomes IP fragments.
    pub fragment: bool,
    /// The checksums of what is split.
    pub checksums: Checksums,
    /// The IPv4 identifications of what is split.
    pub ip_id: IpId,
    /// Longest IP packet that is split, in bytes.
    pub max_burst: u32,
}

impl Default for SplitOptions {
    fn default() -> Self {
        Self {
            mtu: 1500,
            mss: None,
            uso: None,
            fragment: false,
            checksums: Checksums::Full,
            ip_id: IpId::Increment,
            max_burst: u32::MAX,
        }
    }
}

/// UDP destination ports that mean a tunnel; 0 for none. A file does not say that a datagram is a tunnel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelPorts {
    /// VXLAN. Linux' own default is 8472.
    pub vxlan: u16,
    /// Geneve.
    pub geneve: u16,
    /// GTP-U.
    pub gtp: u16,
    /// GUE, or IP directly in UDP.
    pub gue: u16,
}

impl Default for TunnelPorts {
    /// Those of IANA.
    fn default() -> Self {
        Self { vxlan: vxlan::PORT, geneve: geneve::PORT, gtp: GTP_PORT, gue: GUE_PORT }
    }
}

impl TunnelPorts {
    const NONE: Self = Self { vxlan: 0, geneve: 0, gtp: 0, gue: 0 };

    fn options(self, link: LinkType, split: Split) -> Options {
        let Self { vxlan: vxlan_port, geneve: geneve_port, gtp: gtp_port, gue: gue_port } = self;
        Options { link, vxlan_port, geneve_port, gtp_port, gue_port, ..Options::new(split) }
    }
}

/// What to do with a packet.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "it lives on the stack, for one packet")]
enum Decision<'p> {
    /// Keep it: it fits the wire.
    Keep,
    /// Replace it by these segments, of which the capture has so many bytes of payload at most.
    Split(Segments<'p>, usize),
    /// Keep it, although it is too long.
    Refuse(UnsplitReason),
}

impl SplitOptions {
    fn segment_options(&self, link: LinkType, ports: TunnelPorts, split: Split) -> Options {
        let (checksums, max_burst) = (self.checksums, self.max_burst);
        let (outer_id, inner_id) = (self.ip_id, self.ip_id);
        Options { checksums, outer_id, inner_id, max_burst, ..ports.options(link, split) }
    }

    /// Decides about a packet that had `wire_len` bytes on the wire. If the capture kept fewer, what is missing is zero
    /// in `padded`, and the segments are without checksums.
    fn decide<'p>(
        &self,
        packet: &'p [u8],
        link: LinkType,
        ports: TunnelPorts,
        wire_len: usize,
        padded: &'p mut Vec<u8>,
    ) -> Decision<'p> {
        let claimed = link::ip_len(packet, link);
        let over = claimed.unwrap_or_else(|| link::rest(packet, link, wire_len)) > self.mtu.into();
        if !over && self.mss.is_none() && self.uso.is_none() {
            return Decision::Keep;
        }
        let captured = packet.len();
        let cut = captured < wire_len;
        if cut && !over {
            return Decision::Keep;
        }
        let packet = match cut {
            true if wire_len > MAX_PADDED => return Decision::Refuse(UnsplitReason::Truncated),
            true => {
                padded.clear();
                padded.extend_from_slice(packet);
                padded.resize(wire_len, 0);
                padded
            }
            false => packet,
        };
        let new = |split| {
            let mut options = self.segment_options(link, ports, split);
            if cut {
                options.checksums = Checksums::None;
            }
            Segments::new(packet, &options)
        };
        let tcp = new(Split::Tcp { mss: self.mss.unwrap_or(u16::MAX) });
        let segments = match tcp {
            Ok(_) if self.mss.is_none() && over => new(Split::Mtu(self.mtu)),
            Ok(segments) if self.mss.is_some() => Ok(segments),
            Ok(_) => return Decision::Keep,
            Err(Error::OtherProtocol { found: Protocol::UDP, .. }) => match self.uso {
                Some(size) => new(Split::Udp { size }),
                None if !over => return Decision::Keep,
                None if self.fragment => new(Split::Fragments { mtu: self.mtu }),
                None => return Decision::Refuse(UnsplitReason::UdpSize),
            },
            Err(Error::Protocol(_)) if self.fragment => new(Split::Fragments { mtu: self.mtu }),
            Err(error) => Err(error),
        };
        match segments {
            Ok(segments) if segments.len() > 1 => {
                let kept =
                    if cut { kept_payload(packet, captured, &segments) } else { Some(usize::MAX) };
                // Headers that were cut are zeroes, too.
                kept.map_or(Decision::Refuse(UnsplitReason::Truncated), |kept| {
                    Decision::Split(segments, kept)
                })
            }
            Err(Error::Header(_)) if cut => Decision::Refuse(UnsplitReason::Truncated),
            Err(error) if over => Decision::Refuse(error.into()),
            _ => Decision::Keep,
        }
    }
}

/// How many of the first `captured` bytes of `packet` are payload of its segments; `None` if headers are missing.
fn kept_payload(packet: &[u8], captured: usize, segments: &Segments<'_>) -> Option<usize> {
    let payload = segments.clone().next_view()?.payload;
    captured.checked_sub(payload.as_ptr().addr() - packet.as_ptr().addr())
}

/// The longest packet that is split although the capture cut it: longer than the kernel's `GSO_MAX_SIZE`.
const MAX_PADDED: usize = 1 << 20;

/// The packet as one segment with its checksum filled in, if the sender left that to its network card: if
/// the field has the sum of the pseudo header. Wrong checksums stay wrong. Around what leaves none, as ARP in VXLAN
/// does, the sender may have left the sum of the outer datagram.
fn completed(packet: &[u8], link: LinkType, ports: TunnelPorts) -> Option<Segments<'_>> {
    let (tcp, udp) = (Split::Tcp { mss: u16::MAX }, Split::Udp { size: u16::MAX });
    let inside = [tcp, udp].map(|split| ports.options(link, split));
    let outer = TunnelPorts::NONE.options(link, udp);
    inside.into_iter().chain([outer]).filter_map(|options| filled_in(packet, &options)).next()
}

/// The packet as [`completed`] gives it, where the checksum that these options find was left to the card.
fn filled_in<'p>(packet: &'p [u8], options: &Options) -> Option<Segments<'p>> {
    let new = |checksums| {
        // The identification of a single segment stays what it is.
        let options = Options { checksums, ..*options };
        Segments::new(packet, &options).ok().filter(|segments| segments.len() == 1)
    };
    let mut partial = new(Checksums::Partial)?;
    let field = partial.partial_checksum()?;
    let at = usize::from(field.start) + usize::from(field.offset);
    let stands = packet.get(at..at + 2)?;
    let is_partial = partial.next_view()?.header.get(at..at + 2)? == stands;
    if is_partial { new(Checksums::Full) } else { None }
}
