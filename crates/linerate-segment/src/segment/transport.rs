//! The headers of TCP segments and UDP datagrams: what all share is written once, into a template; a
//! segment adds its identifications, sequence number, flags and checksums.

use linerate_wire::checksum::Sum;
use linerate_wire::ip::Protocol;
use linerate_wire::offload::PartialChecksum;
use linerate_wire::tcp::Flags;
use linerate_wire::{gre, ipv4, tcp, udp};

use super::layout::{Ip, Layout, Tunnel, Version};
use super::{Checksums, IpId, MAX_HEADER_LEN, Options};
use crate::{Error, Result};

/// Writes a big-endian number; bytes that are not there are not written.
pub(super) fn put16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(field) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *field = value.to_be_bytes();
    }
}

/// Writes the length of a PPPoE header: that of the protocol, and of the IP packet at `at` behind it.
pub(super) fn put_pppoe_len(header: &mut [u8], at: usize, end: usize) {
    put16(header, at - 4, (2 + end - at) as u16);
}

/// What changes from segment to segment: identifications and checksums of IPv4, sequence number, flags
/// and (where it is computed) checksum of TCP and UDP. The template does not matter there.
#[derive(Clone, Debug)]
pub(super) struct Transport {
    outer: IpHeader,
    inner: Option<IpHeader>,
    around: Option<TunnelHeader>,
    /// Where the TCP or UDP header starts.
    at: usize,
    state: State,
    checksum: Checksum,
    pseudo: Sum,
    /// Pseudo header and header, at the present length.
    sum: Sum,
    /// The payload length that the template is made for.
    len: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Tcp { sequence: u32, flags: u8, not_first: u8 },
    Udp,
}

/// What becomes of the checksum of TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checksum {
    Full,
    Partial,
    /// A UDP datagram without.
    Absent,
    /// Not wanted, neither here nor around.
    Off,
}

#[derive(Clone, Copy, Debug)]
struct IpHeader {
    version: Version,
    at: usize,
    upper: usize,
    id: u16,
    step: u16,
    pppoe: bool,
    /// The header without identification, at the present length.
    sum: Sum,
}

/// The UDP or GRE header of a tunnel.
#[derive(Clone, Copy, Debug)]
struct TunnelHeader {
    at: usize,
    /// Offset of its checksum; `None` if the tunnel has no checksum.
    checksum_at: Option<usize>,
    /// The pseudo header without the length; `None` for GRE.
    pseudo: Option<Sum>,
    gtp: bool,
    /// All but the payload. Only a datagram inside that has no checksum makes the one around depend
    /// on the payload; otherwise what is inside sums up to the complement of its pseudo header.
    sum: Option<Sum>,
}

impl IpHeader {
    fn new(ip: &Ip, header: &[u8; MAX_HEADER_LEN], policy: IpId, count: usize) -> Result<Self> {
        let (mut id, mut step) = (0, 0);
        if ip.version == Version::V4 {
            let view = ipv4::Packet::new_checked(&header[ip.at..])?;
            if policy == IpId::Fixed && count > 1 && !view.dont_fragment() {
                return Err(Error::FixedId);
            }
            id = view.identification();
            step = u16::from(policy == IpId::Increment);
        }
        let pppoe = ip.is_in_pppoe();
        Ok(Self {
            version: ip.version,
            at: ip.at,
            upper: ip.upper,
            id,
            step,
            pppoe,
            sum: Sum::ZERO,
        })
    }

    fn set_end(&mut self, header: &mut [u8; MAX_HEADER_LEN], end: usize) {
        if self.pppoe {
            put_pppoe_len(header, self.at, end);
        }
        match self.version {
            Version::V4 => {
                put16(header, self.at + 2, (end - self.at) as u16);
                put16(header, self.at + 4, 0);
                put16(header, self.at + 10, 0);
                self.sum = Sum::ZERO.bytes(&header[self.at..self.upper]);
            }
            Version::V6 => put16(header, self.at + 4, (end - self.at - 40) as u16),
        }
    }

    #[inline]
    fn fill(&mut self, header: &mut [u8]) {
        if self.version == Version::V6 {
            return;
        }
        let field = header.get_mut(self.at..).and_then(<[u8]>::first_chunk_mut::<20>);
        let Some(field) = field else { return };
        field[4..6].copy_from_slice(&self.id.to_be_bytes());
        field[10..12].copy_from_slice(&self.sum.word(self.id).checksum().to_be_bytes());
        self.id = self.id.wrapping_add(self.step);
    }
}

impl Transport {
    /// `header` holds the headers of the super-packet and becomes the template.
    pub(super) fn new(
        layout: &Layout,
        header: &mut [u8; MAX_HEADER_LEN],
        count: usize,
        options: &Options,
    ) -> Result<Self> {
        let ip = layout.innermost();
        let at = ip.upper;
        let outer = IpHeader::new(&layout.outer, header, options.outer_id, count)?;
        let (mut inner, mut around) = (None, None);
        if let Some((tunnel, ip)) = &layout.tunnel {
            inner = Some(IpHeader::new(ip, header, options.inner_id, count)?);
            around = TunnelHeader::new(*tunnel, &layout.outer, header)?;
        }
        let (state, absent) = if ip.protocol == Protocol::TCP {
            let view = tcp::Segment::new_checked(&header[at..])?;
            let (sequence, flags) = (view.sequence(), view.flags());
            if count > 1 && flags.contains(Flags::SYN) {
                return Err(Error::Syn);
            }
            let not_first = if options.accurate_ecn { 0 } else { Flags::CWR.0 as u8 };
            (State::Tcp { sequence, flags: flags.0 as u8, not_first }, false)
        } else {
            (State::Udp, udp::Datagram::new_checked(&header[at..])?.checksum() == 0)
        };
        let checksum = match options.checksums {
            Checksums::None => Checksum::Off,
            _ if absent => Checksum::Absent,
            Checksums::Full => Checksum::Full,
            Checksums::Partial => Checksum::Partial,
        };
        let pseudo = match checksum {
            Checksum::Full | Checksum::Partial => ip.pseudo()?,
            Checksum::Absent | Checksum::Off => Sum::ZERO,
        };
        Ok(Self { outer, inner, around, at, state, checksum, pseudo, sum: Sum::ZERO, len: None })
    }

    fn checksum_offset(&self) -> usize {
        match self.state {
            State::Tcp { .. } => tcp::CHECKSUM_OFFSET,
            State::Udp => udp::CHECKSUM_OFFSET,
        }
    }

    pub(super) fn partial_checksum(&self) -> Option<PartialChecksum> {
        let (start, offset) = (self.at as u16, self.checksum_offset() as u16);
        (self.checksum == Checksum::Partial).then_some(PartialChecksum { start, offset })
    }

    /// Whether [`Self::fill`] needs the sum of the payload.
    #[inline]
    pub(super) fn sums(&self) -> bool {
        match self.checksum {
            Checksum::Full => true,
            Checksum::Absent => self.around.is_some_and(|around| around.checksum_at.is_some()),
            Checksum::Partial | Checksum::Off => false,
        }
    }

    /// Makes the template one for segments with `len` bytes of payload.
    #[inline]
    pub(super) fn set_len(
        &mut self,
        header: &mut [u8; MAX_HEADER_LEN],
        header_len: usize,
        len: usize,
    ) {
        if self.len != Some(len) {
            self.change_len(header, header_len, len);
        }
    }

    /// At most twice for a super-packet: all segments but the last have one length.
    #[cold]
    fn change_len(&mut self, header: &mut [u8; MAX_HEADER_LEN], header_len: usize, len: usize) {
        self.len = Some(len);
        let end = header_len + len;
        self.outer.set_end(header, end);
        if let Some(inner) = &mut self.inner {
            inner.set_end(header, end);
        }
        // The last segment may have left its own numbers here; sums are made without them.
        match self.state {
            State::Tcp { .. } => {
                header[self.at + 4..self.at + 8].fill(0);
                header[self.at + 13] = 0;
            }
            State::Udp => put16(header, self.at + 4, (end - self.at) as u16),
        }
        put16(header, self.at + self.checksum_offset(), 0);
        let pseudo = self.pseudo.word32((end - self.at) as u32);
        match self.checksum {
            Checksum::Full => self.sum = pseudo.bytes(&header[self.at..header_len]),
            Checksum::Partial => put16(header, self.at + self.checksum_offset(), pseudo.folded()),
            Checksum::Absent | Checksum::Off => {}
        }
        if let (Some(around), Some(inner)) = (&mut self.around, &self.inner) {
            around.set_end(header, end);
            let Some(checksum_at) = around.checksum_at else { return };
            put16(header, checksum_at, 0);
            if self.checksum == Checksum::Off {
                return;
            }
            // A right IPv4 header adds nothing to a sum.
            let network = match inner.version {
                Version::V4 => inner.at,
                Version::V6 => inner.upper,
            };
            let sum = around.pseudo_sum(end).bytes(&header[around.at..network]);
            if self.checksum == Checksum::Absent {
                around.sum = Some(sum.bytes(&header[self.at..header_len]));
            } else {
                around.put(header, sum.word(!pseudo.folded()));
            }
        }
    }

    /// Writes what is this segment's own over a copy of the template. `payload` is the sum of the
    /// payload where [`Self::sums`]; the template must be made for its length.
    #[inline]
    pub(super) fn fill(&mut self, header: &mut [u8], payload: Sum, first: bool, last: bool) {
        self.outer.fill(header);
        if let Some(inner) = &mut self.inner {
            inner.fill(header);
        }
        let Some(transport) = header.get_mut(self.at..) else { return };
        match &mut self.state {
            State::Tcp { sequence, flags, not_first } => {
                let Some(tcp) = transport.first_chunk_mut::<20>() else { return };
                let mut now = *flags;
                if !first {
                    now &= !*not_first;
                }
                if !last {
                    now &= !(Flags::FIN.0 | Flags::PSH.0) as u8;
                }
                tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
                tcp[13] = now;
                if self.checksum == Checksum::Full {
                    let sum = self.sum.word32(*sequence).word(now.into()).plus(payload);
                    tcp[16..18].copy_from_slice(&sum.checksum().to_be_bytes());
                }
                *sequence = sequence.wrapping_add(self.len.unwrap_or(0) as u32);
            }
            State::Udp => {
                let Some(udp) = transport.first_chunk_mut::<8>() else { return };
                if self.checksum == Checksum::Full {
                    let sum = self.sum.plus(payload);
                    udp[6..8].copy_from_slice(&sum.udp_checksum().to_be_bytes());
                }
            }
        }
        if let Some(around) = &self.around
            && let Some(sum) = around.sum
        {
            around.put(header, sum.plus(payload));
        }
    }
}

impl TunnelHeader {
    fn new(tunnel: Tunnel, outer: &Ip, header: &mut [u8; MAX_HEADER_LEN]) -> Result<Option<Self>> {
        let at = outer.upper;
        Ok(match tunnel {
            Tunnel::Udp { checksum, gtp } => Some(Self {
                at,
                gtp,
                checksum_at: checksum.then_some(at + udp::CHECKSUM_OFFSET),
                pseudo: Some(if checksum { outer.pseudo()? } else { Sum::ZERO }),
                sum: None,
            }),
            Tunnel::Gre { checksum: true } => {
                // Two bytes after the checksum are reserved and zero (RFC 2784 §2.5).
                put16(header, at + gre::CHECKSUM_OFFSET + 2, 0);
                let checksum_at = Some(at + gre::CHECKSUM_OFFSET);
                Some(Self { at, checksum_at, pseudo: None, gtp: false, sum: None })
            }
            Tunnel::Gre { checksum: false } | Tunnel::Ip => None,
        })
    }

    fn set_end(&self, header: &mut [u8; MAX_HEADER_LEN], end: usize) {
        if self.pseudo.is_some() {
            put16(header, self.at + 4, (end - self.at) as u16);
        }
        if self.gtp {
            // What follows the first eight bytes.
            let at = self.at + udp::HEADER_LEN;
            put16(header, at + 2, (end - at - 8) as u16);
        }
    }

    fn pseudo_sum(&self, end: usize) -> Sum {
        self.pseudo.map_or(Sum::ZERO, |pseudo| pseudo.word32((end - self.at) as u32))
    }

    fn put(&self, header: &mut [u8], sum: Sum) {
        let Some(at) = self.checksum_at else { return };
        let checksum = if self.pseudo.is_some() { sum.udp_checksum() } else { sum.checksum() };
        put16(header, at, checksum);
    }
}
