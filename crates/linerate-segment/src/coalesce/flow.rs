//! The super-packet of one flow while it grows.

use linerate_wire::checksum::Sum;
use linerate_wire::ip::Protocol;
use linerate_wire::{gre, ipv4, ipv6, tcp, udp};

use super::headers::{self, Segment, word};
use super::links::Links;
use super::output::{FlushReason, Output, SuperPacket};
use super::{MAX_SEGMENTS, Options};
use crate::segment::layout::{Ip, Layout, Tunnel, Version};
use crate::segment::{Checksums, IpId, MAX_HEADER_LEN};

/// Memory for one flow: the headers of its super-packet and the names of its frames, 2.5 KiB.
#[derive(Clone, Debug)]
pub struct Flow {
    pub(super) links: Links,
    /// What is known of the flow; `None` where it was never used.
    held: Option<FlowState>,
    /// The first frame's headers.
    header: [u8; MAX_HEADER_LEN],
    /// Which of their bits all segments share.
    mask: [u8; MAX_HEADER_LEN],
    tokens: [u64; MAX_SEGMENTS],
}

#[derive(Clone, Copy, Debug)]
struct FlowState {
    layout: Layout,
    /// When the first frame came.
    first_timestamp: u64,
    segments: u16,
    /// Payload of every segment but the last.
    size: u16,
    /// Payload of the last segment.
    last: u16,
    /// Payload of all.
    total: u32,
    /// Sum of the payload of all.
    sum: Sum,
    /// TCP's next sequence number.
    next: u32,
    /// FIN and PSH of the last segment.
    flags: u16,
    /// How the identification goes on, in the outermost IP header and inside of the tunnel.
    ids: [IpId; 2],
}

impl Default for Flow {
    fn default() -> Self {
        Self {
            links: Links::UNUSED,
            held: None,
            header: [0; MAX_HEADER_LEN],
            mask: [0; MAX_HEADER_LEN],
            tokens: [0; MAX_SEGMENTS],
        }
    }
}

impl Flow {
    /// Starts with `frame`.
    pub(super) fn begin(
        &mut self,
        frame: &[u8],
        token: u64,
        first_timestamp: u64,
        layout: &Layout,
        segment: &Segment,
    ) {
        let header = layout.payload;
        self.header[..header].copy_from_slice(&frame[..header]);
        headers::mask(layout, &mut self.mask[..header]);
        self.tokens[0] = token;
        self.held = Some(FlowState {
            layout: *layout,
            first_timestamp,
            segments: 1,
            size: segment.len,
            last: segment.len,
            total: segment.len.into(),
            sum: Sum::ZERO.word(segment.sum),
            next: sequence(frame, layout).wrapping_add(segment.len.into()),
            flags: 0,
            ids: [IpId::Increment; 2],
        });
    }

    /// When the first frame came.
    pub(super) fn first_timestamp(&self) -> u64 {
        self.held.map_or(0, |held| held.first_timestamp)
    }

    /// Whether a frame belongs to this flow.
    pub(super) fn is_of(&self, frame: &[u8], layout: &Layout) -> bool {
        self.held
            .as_ref()
            .is_some_and(|held| headers::same_flow(&self.header, &held.layout, frame, layout))
    }

    /// Whether the outermost addresses are these.
    pub(super) fn is_between(&self, addresses: &[u8]) -> bool {
        self.held.as_ref().is_some_and(|held| {
            let ip = &held.layout.outer;
            self.header[headers::addresses(ip.version, ip.at)] == *addresses
        })
    }

    /// Appends a frame of the same flow and says whether nothing can follow it. Where it does not
    /// continue what is held, nothing has changed.
    pub(super) fn join(
        &mut self,
        frame: &[u8],
        token: u64,
        layout: &Layout,
        segment: &Segment,
        options: &Options,
    ) -> Result<bool, FlushReason> {
        let Some(held) = &mut self.held else { return Err(FlushReason::Unmergeable) };
        let header = held.layout.payload;
        let (ours, mask) = (&self.header[..header], &self.mask[..header]);
        if layout.payload != header
            || headers::differ(ours, &frame[..header], mask)
            || headers::summed(layout) != headers::summed(&held.layout)
        {
            return Err(FlushReason::Header);
        }
        let tcp = layout.innermost().protocol == Protocol::TCP;
        if tcp && sequence(frame, layout) != held.next {
            return Err(FlushReason::Sequence);
        }
        let ids = held.next_ids(ours, frame).ok_or(FlushReason::Sequence)?;
        if segment.len > held.size {
            return Err(FlushReason::LargerSegment);
        }
        let total = held.total + u32::from(segment.len);
        let packet = header as u32 + total - held.layout.outer.at as u32;
        let most = usize::from(options.max_segments).min(MAX_SEGMENTS);
        if packet > options.max_len.into() || usize::from(held.segments) >= most {
            return Err(FlushReason::Full);
        }
        // A piece that starts at an odd offset has its bytes in the other halves of the words.
        let odd = held.total % 2 == 1;
        let sum = if odd { segment.sum.swap_bytes() } else { segment.sum };
        self.tokens[usize::from(held.segments)] = token;
        held.segments += 1;
        held.last = segment.len;
        held.total = total;
        held.sum = held.sum.word(sum);
        held.next = held.next.wrapping_add(segment.len.into());
        held.flags = segment.flags.0 & (tcp::Flags::FIN.0 | tcp::Flags::PSH.0);
        held.ids = ids;
        Ok(segment.len < held.size || segment.is_last())
    }

    /// Hands over what is held.
    pub(super) fn finish(
        &mut self,
        reason: FlushReason,
        options: &Options,
        sink: &mut impl FnMut(Output<'_>),
    ) {
        let Some(held) = self.held.take() else { return };
        if held.segments == 1 {
            return sink(Output::Frame { token: self.tokens[0], reason });
        }
        let header = &mut self.header[..held.layout.payload];
        held.complete(header, options.checksums);
        sink(Output::Super(SuperPacket {
            header,
            tokens: &self.tokens[..usize::from(held.segments)],
            layout: &held.layout,
            options,
            size: held.size,
            last: held.last,
            ids: held.ids,
            first_timestamp: held.first_timestamp,
            reason,
        }));
    }
}

impl FlowState {
    /// How the identifications go on if `frame` is the next segment; `None` where it is not. The
    /// second segment decides.
    fn next_ids(&self, header: &[u8], frame: &[u8]) -> Option<[IpId; 2]> {
        let mut ids = self.ids;
        for (ip, id) in self.ips().zip(&mut ids) {
            if ip.version == Version::V6 {
                continue;
            }
            let step = word(frame, ip.at + 4).wrapping_sub(word(header, ip.at + 4));
            let fixed_allowed = word(header, ip.at + 6) & 0x4000 != 0;
            if self.segments == 1 && step == 0 && fixed_allowed {
                *id = IpId::Fixed;
            }
            let right = match id {
                IpId::Increment => self.segments,
                IpId::Fixed => 0,
            };
            if step != right {
                return None;
            }
        }
        Some(ids)
    }

    fn ips(&self) -> impl Iterator<Item = &Ip> {
        let inner = self.layout.tunnel.as_ref().map(|(_, inner)| inner);
        core::iter::once(&self.layout.outer).chain(inner)
    }

    /// Turns the headers of the first segment into those of the super-packet.
    fn complete(&self, header: &mut [u8], checksums: Checksums) {
        // All end where the payload does. The length was limited to 65,535 before.
        let end = header.len() + self.total as usize;
        let put = |header: &mut [u8], at: usize, value: u16| {
            header[at..at + 2].copy_from_slice(&value.to_be_bytes());
        };
        for ip in self.ips() {
            match ip.version {
                Version::V4 => {
                    put(header, ip.at + 2, (end - ip.at) as u16);
                    put(header, ip.at + 10, 0);
                    let sum = Sum::ZERO.bytes(&header[ip.at..ip.at + ipv4::HEADER_LEN]);
                    put(header, ip.at + 10, sum.checksum());
                }
                Version::V6 => put(header, ip.at + 4, (end - ip.at - ipv6::HEADER_LEN) as u16),
            }
        }
        let ip = self.layout.innermost();
        let at = ip.upper;
        let pseudo = pseudo(ip, end);
        let checksum = at + self.checksum_offset();
        if ip.protocol == Protocol::TCP {
            let flags = word(header, at + 12) | self.flags;
            put(header, at + 12, flags);
        } else {
            put(header, at + 4, (end - at) as u16);
        }
        put(header, checksum, 0);
        let complete = || pseudo.bytes(&header[at..]).plus(self.sum);
        let value = match checksums {
            Checksums::Full if ip.protocol == Protocol::TCP => complete().checksum(),
            Checksums::Full => complete().udp_checksum(),
            Checksums::Partial => pseudo.folded(),
            Checksums::None => 0,
        };
        put(header, checksum, value);
        let Some((tunnel, _)) = &self.layout.tunnel else { return };
        // Once complete, everything from the inner transport header on sums up to the complement of its
        // pseudo header, so that the outer checksum needs neither the inner one nor the payload.
        let inside = !pseudo.folded();
        let outer = &self.layout.outer;
        let around = |header: &[u8]| Sum::ZERO.bytes(&header[outer.upper..at]).word(inside);
        match tunnel {
            Tunnel::Udp { checksum: has, .. } => {
                put(header, outer.upper + 4, (end - outer.upper) as u16);
                put(header, outer.upper + udp::CHECKSUM_OFFSET, 0);
                if *has && checksums != Checksums::None {
                    let pseudo = self::pseudo(outer, end);
                    let value = pseudo.plus(around(header)).udp_checksum();
                    put(header, outer.upper + udp::CHECKSUM_OFFSET, value);
                }
            }
            Tunnel::Gre { checksum: true } => {
                put(header, outer.upper + gre::CHECKSUM_OFFSET, 0);
                if checksums != Checksums::None {
                    let value = around(header).checksum();
                    put(header, outer.upper + gre::CHECKSUM_OFFSET, value);
                }
            }
            _ => {}
        }
    }

    fn checksum_offset(&self) -> usize {
        match self.layout.innermost().protocol {
            Protocol::TCP => tcp::CHECKSUM_OFFSET,
            _ => udp::CHECKSUM_OFFSET,
        }
    }
}

/// The pseudo header of what `ip` carries, in a packet that ends at `end`.
fn pseudo(ip: &Ip, end: usize) -> Sum {
    // A frame whose pseudo header is not known was never joined.
    ip.pseudo().unwrap_or(Sum::ZERO).word((end - ip.upper) as u16)
}

/// TCP's sequence number; for UDP a number that nobody looks at.
fn sequence(frame: &[u8], layout: &Layout) -> u32 {
    let at = layout.innermost().upper + 4;
    u32::from(word(frame, at)) << 16 | u32::from(word(frame, at + 2))
}
