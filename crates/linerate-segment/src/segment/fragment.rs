//! The headers of IP fragments (RFC 791 §3.2, RFC 8200 §4.5).

use linerate_wire::checksum::{Engine, Sum};
use linerate_wire::ip::Protocol;
use linerate_wire::offload::PartialChecksum;
use linerate_wire::{ipv4, ipv6, tcp, udp};

use super::layout::{self, Extensions, Ip, Version};
use super::transport::{put_pppoe_len, put16};
use super::{Checksums, MAX_HEADER_LEN, Options};
use crate::{Error, Result};

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;

/// Length of an IPv6 fragment header in bytes.
const FRAGMENT_HEADER_LEN: usize = 8;

/// What changes from fragment to fragment: length, flags, offset and checksum of IPv4; length of IPv6,
/// flags and offset of its fragment header. The template does not matter there.
#[derive(Clone, Debug)]
pub(super) struct Fragmenter {
    version: Version,
    at: usize,
    /// Where the fragment's data starts in the template.
    data: usize,
    /// Bytes of data in the template of the first fragment, because a checksum in them was completed.
    lead: usize,
    /// The IPv4 header without length, flags and offset.
    sum: Sum,
    /// Data in front of the fragment to come, in bytes.
    offset: usize,
    /// The template is one for later fragments.
    later: bool,
    /// The IPv4 flags of a packet that is left whole; `None` where it is fragmented.
    whole: Option<u16>,
    partial: Option<PartialChecksum>,
    pppoe: bool,
}

/// How a packet becomes fragments.
pub(super) struct Fragmentation<'p> {
    pub(super) fragmenter: Fragmenter,
    /// Bytes of header in front of the first fragment's payload.
    pub(super) header_len: usize,
    /// The payload: all data but the lead.
    pub(super) payload: &'p [u8],
    /// Data of every fragment but the last.
    pub(super) size: usize,
    pub(super) count: usize,
}

impl Fragmenter {
    pub(super) fn plan<'p>(
        packet: &'p [u8],
        ip: &Ip,
        mtu: u16,
        header: &mut [u8; MAX_HEADER_LEN],
        options: &Options,
    ) -> Result<Fragmentation<'p>> {
        if mtu == 0 {
            return Err(Error::ZeroSize);
        }
        let len = ip.end - ip.at;
        let fits = len <= usize::from(mtu);
        let flags = match ip.version {
            Version::V4 => u16::from_be_bytes([packet[ip.at + 6], packet[ip.at + 7]]),
            Version::V6 => 0,
        };
        if !fits && flags & DONT_FRAGMENT != 0 {
            return Err(Error::DontFragment { len, mtu });
        }
        // The part that every fragment repeats, and the room after it.
        let (repeated, next_header) = match ip.version {
            Version::V4 => (ip.upper, 0),
            Version::V6 => unfragmentable(packet, ip),
        };
        let data = if fits { repeated } else { header_len(packet, ip) };
        let extra = data - repeated;
        let least = data - ip.at + 8;
        let room = usize::from(mtu).saturating_sub(data - ip.at);
        if !fits && room < 8 {
            return Err(Error::MtuTooSmall { mtu, need: least });
        }
        let size = if fits { ip.end - repeated } else { room & !7 };
        let rest = ip.end - repeated;
        let count = if fits || rest <= room { 1 } else { 1 + (rest - room).div_ceil(size) };

        let unfinished = TransportChecksum::find(packet, ip, options)?;
        let lead = unfinished.as_ref().map_or(0, |found| found.end - repeated);
        if lead > size {
            let need = data - ip.at + lead.next_multiple_of(8);
            return Err(Error::MtuTooSmall { mtu, need });
        }
        let header_len = data + lead;
        if header_len > MAX_HEADER_LEN {
            return Err(Error::HeadersTooLong { len: header_len });
        }
        header[..repeated].copy_from_slice(&packet[..repeated]);
        header[data..header_len].copy_from_slice(&packet[repeated..repeated + lead]);
        let mut partial = None;
        if let Some(unfinished) = unfinished {
            let at = unfinished.at + extra;
            if fits && options.checksums == Checksums::Partial {
                let (start, offset) = (ip.upper + extra, unfinished.at - ip.upper);
                partial = Some(PartialChecksum { start: start as u16, offset: offset as u16 });
                put16(header, at, unfinished.pseudo.folded());
            } else {
                put16(header, at, unfinished.checksum(packet, ip));
            }
        }
        let mut fragmenter = Self {
            version: ip.version,
            at: ip.at,
            data,
            lead,
            sum: Sum::ZERO,
            offset: 0,
            later: false,
            whole: fits.then_some(flags),
            partial,
            pppoe: ip.is_in_pppoe(),
        };
        match ip.version {
            Version::V4 => fragmenter.sum_v4(header),
            Version::V6 if fits => {}
            Version::V6 => {
                header[repeated..repeated + 4].copy_from_slice(&[packet[next_header], 0, 0, 0]);
                header[repeated + 4..data].copy_from_slice(&options.fragment_id.to_be_bytes());
                header[next_header] = Protocol::FRAGMENT.0;
            }
        }
        let payload = &packet[repeated + lead..ip.end];
        Ok(Fragmentation { fragmenter, header_len, payload, size, count })
    }

    pub(super) fn partial_checksum(&self) -> Option<PartialChecksum> {
        self.partial
    }

    /// Bytes of header in front of the payload of the fragment to come.
    #[inline]
    pub(super) fn header_len(&self) -> usize {
        self.data + if self.offset == 0 { self.lead } else { 0 }
    }

    /// Bytes of data in front of the payload of the fragment to come.
    #[inline]
    pub(super) fn lead(&self) -> usize {
        if self.offset == 0 { self.lead } else { 0 }
    }

    /// Makes the template one for later fragments, once.
    #[inline]
    pub(super) fn prepare(&mut self, header: &mut [u8; MAX_HEADER_LEN]) {
        if self.offset == 0 || self.later {
            return;
        }
        self.later = true;
        if self.version == Version::V4 && self.data > self.at + ipv4::HEADER_LEN {
            let options = &mut header[self.at + ipv4::HEADER_LEN..self.data];
            keep_copied_options(options);
            self.sum_v4(header);
        }
    }

    fn sum_v4(&mut self, header: &mut [u8; MAX_HEADER_LEN]) {
        for at in [2, 6, 10] {
            put16(header, self.at + at, 0);
        }
        self.sum = Sum::ZERO.bytes(&header[self.at..self.data]);
    }

    /// Writes what is this fragment's own over a copy of the template.
    #[inline]
    pub(super) fn fill(&mut self, header: &mut [u8], payload_len: usize, last: bool) {
        let end = header.len() + payload_len;
        if self.pppoe {
            put_pppoe_len(header, self.at, end);
        }
        let Some(ip) = header.get_mut(self.at..) else { return };
        let more = if last { 0 } else { MORE_FRAGMENTS };
        match self.version {
            Version::V4 => {
                let Some(ip) = ip.first_chunk_mut::<20>() else { return };
                let len = (end - self.at) as u16;
                let word = self.whole.unwrap_or(more | (self.offset >> 3) as u16);
                let checksum = self.sum.word(len).word(word).checksum();
                ip[2..4].copy_from_slice(&len.to_be_bytes());
                ip[6..8].copy_from_slice(&word.to_be_bytes());
                ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            Version::V6 => {
                put16(ip, 4, (end - self.at - ipv6::HEADER_LEN) as u16);
                if self.whole.is_none() {
                    let word = self.offset as u16 | u16::from(!last);
                    put16(header, self.data - FRAGMENT_HEADER_LEN + 2, word);
                }
            }
        }
        self.offset += end - self.data;
    }
}

/// Where the data of a fragment starts in it.
pub(super) fn header_len(packet: &[u8], ip: &Ip) -> usize {
    match ip.version {
        Version::V4 => ip.upper,
        Version::V6 => unfragmentable(packet, ip).0 + FRAGMENT_HEADER_LEN,
    }
}

/// Where the unfragmentable part of an IPv6 packet ends, and where its last "next header" is. As Linux has
/// it, hop-by-hop options, routing headers and destination options in front of those belong to it, and
/// destination options also where no routing header follows.
fn unfragmentable(packet: &[u8], ip: &Ip) -> (usize, usize) {
    let mut routed = false;
    let mut next_header = ip.at + 6;
    for (protocol, at) in Extensions::new(packet, ip.at, ip.upper) {
        match protocol {
            Protocol::HOP_BY_HOP => {}
            Protocol::ROUTING => routed = true,
            Protocol::DESTINATION_OPTIONS if !routed => {}
            _ => return (at, next_header),
        }
        next_header = at;
    }
    (ip.upper, next_header)
}

/// Turns options without the copied flag into no-operations (RFC 791 §3.1), as Linux does.
fn keep_copied_options(options: &mut [u8]) {
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        let len = match kind {
            0 => return,
            1 => 1,
            _ => usize::from(options.get(at + 1).copied().unwrap_or(0)).max(2),
        };
        let Some(option) = options.get_mut(at..at + len) else { return };
        if kind & 0x80 == 0 {
            option.fill(1);
        }
        at += len;
    }
}

/// A transport checksum that covers more than one fragment and must be right before there are any.
struct TransportChecksum {
    /// Where it stands in the packet.
    at: usize,
    /// Where the bytes end that must go out with it.
    end: usize,
    pseudo: Sum,
    protocol: Protocol,
}

impl TransportChecksum {
    fn find(packet: &[u8], ip: &Ip, options: &Options) -> Result<Option<Self>> {
        let protocol = ip.protocol;
        if !matches!(protocol, Protocol::TCP | Protocol::UDP) {
            return Ok(None);
        }
        // Also for its errors: an inconsistent header is not passed on in pieces.
        let payload = layout::payload(packet, ip)?;
        let offset = match protocol {
            Protocol::TCP => tcp::CHECKSUM_OFFSET,
            _ => udp::CHECKSUM_OFFSET,
        };
        let at = ip.upper + offset;
        let absent = protocol == Protocol::UDP && packet[at..payload].starts_with(&[0, 0]);
        if absent || options.checksums == Checksums::None {
            return Ok(None);
        }
        let pseudo = ip.pseudo()?.word32((ip.end - ip.upper) as u32);
        Ok(Some(Self { at, end: at + 2, pseudo, protocol }))
    }

    fn checksum(&self, packet: &[u8], ip: &Ip) -> u16 {
        let engine = Engine::detect();
        let (before, after) = (&packet[ip.upper..self.at], &packet[self.end..ip.end]);
        let sum = self.pseudo.plus(engine.sum(before)).plus(engine.sum(after));
        match self.protocol {
            Protocol::UDP => sum.udp_checksum(),
            _ => sum.checksum(),
        }
    }
}
