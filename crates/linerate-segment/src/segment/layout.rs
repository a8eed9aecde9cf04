//! Where the headers of a super-packet are, and whether its lengths are true.

use core::net::Ipv6Addr;

use linerate_wire::checksum::Sum;
use linerate_wire::ethernet::{self, EtherType};
use linerate_wire::ip::Protocol;
use linerate_wire::udp_tunnel::UdpTunnel;
use linerate_wire::{gre, ipv4, ipv6, layers, tcp, udp, vlan};

use super::{LinkType, Options};
use crate::{Error, Result};

/// An IP header in the packet. Offsets are in bytes from the start of the packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ip {
    pub(crate) version: Version,
    /// Where the header starts.
    pub(crate) at: usize,
    /// Where its payload starts, after options or extension headers.
    pub(crate) upper: usize,
    /// Where the packet ends.
    pub(crate) end: usize,
    /// What it carries.
    pub(crate) protocol: Protocol,
    pub(crate) length: Length,
    /// The header between Ethernet and this one, if it is no VLAN tag.
    pub(crate) behind: Option<EtherType>,
    /// The pseudo header of what it carries, without the length.
    pseudo: core::result::Result<Sum, Error>,
}

/// What the header says of the packet's length. Segments have lengths that it can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    InHeader,
    /// 0, as senders leave it to the card, and as IPv4 over 65,535 bytes has it (BIG TCP): the packet ends with its
    /// bytes.
    Absent,
    /// IPv6 over 65,535 bytes: a hop-by-hop header of [`JUMBO_LEN`] bytes with nothing else says it (RFC 2675, BIG TCP).
    JumboOption,
}

/// Bytes of a hop-by-hop header with the jumbo payload option alone.
pub(crate) const JUMBO_LEN: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V4,
    V6,
}

/// A tunnel between an outer and an inner IP header.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tunnel {
    /// Through UDP: its header is where the outer IP header ends. GTP-U has a length in its own.
    Udp { checksum: bool, gtp: bool },
    /// GRE: its header is where the outer IP header ends.
    Gre { checksum: bool },
    /// IP in IP.
    Ip,
}

/// The headers of a super-packet of TCP or UDP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// The outermost IP header.
    pub(crate) outer: Ip,
    /// The tunnel and the IP header inside of it.
    pub(crate) tunnel: Option<(Tunnel, Ip)>,
    /// Where the payload of TCP or UDP starts.
    pub(crate) payload: usize,
}

impl Layout {
    /// Copies the headers of the packet to `header`, with a length that segments can have, and returns them as they are
    /// there.
    pub(crate) fn copy_headers(mut self, packet: &[u8], header: &mut [u8]) -> Self {
        if self.outer.length != Length::JumboOption {
            header[..self.payload].copy_from_slice(&packet[..self.payload]);
            return self;
        }
        let option = self.outer.at + ipv6::HEADER_LEN;
        self.payload -= JUMBO_LEN;
        header[..option].copy_from_slice(&packet[..option]);
        let (to, from) = (option..self.payload, option + JUMBO_LEN..self.payload + JUMBO_LEN);
        header[to].copy_from_slice(&packet[from]);
        header[self.outer.at + 6] = packet[option];
        self.outer.upper -= JUMBO_LEN;
        self.outer.end -= JUMBO_LEN;
        if let Some((_, inner)) = &mut self.tunnel {
            for offset in [&mut inner.at, &mut inner.upper, &mut inner.end] {
                *offset -= JUMBO_LEN;
            }
        }
        self
    }

    /// The IP header in front of TCP or UDP.
    pub(crate) fn innermost(&self) -> &Ip {
        self.tunnel.as_ref().map_or(&self.outer, |(_, inner)| inner)
    }
}

impl Ip {
    /// Reads the header at `at` of bytes that end at `end`. Bytes after the IP packet are padding if it is in
    /// a frame, and an error if it is in another packet.
    fn read(packet: &[u8], at: usize, end: usize, version: Version, padded: bool) -> Result<Self> {
        let bytes = packet.get(at..end).unwrap_or(&[]);
        let mut ip = match version {
            Version::V4 => Self::read_v4(bytes)?,
            Version::V6 => Self::read_v6(bytes)?,
        };
        let (what, claimed, have) = (ip.version.name(), ip.end, bytes.len());
        if claimed > have || (claimed < have && !padded) {
            return Err(Error::Length { what, claimed, have });
        }
        ip.at += at;
        ip.upper += at;
        ip.end += at;
        Ok(ip)
    }

    fn read_v4(bytes: &[u8]) -> Result<Self> {
        let header = ipv4::Packet::new_checked(bytes)?;
        let (end, length) = match header.total_len() {
            0 => (bytes.len(), Length::Absent),
            total => (usize::from(total), Length::InHeader),
        };
        if header.is_fragment() {
            return Err(Error::Fragment);
        }
        let protocol = header.protocol();
        let pseudo = match source_route(header.options()) {
            true => Err(Error::Route("an IPv4 source route")),
            false => Ok(Sum::pseudo_v4(header.source(), header.destination(), protocol, 0)),
        };
        let upper = header.header_len();
        Ok(Self { version: Version::V4, at: 0, upper, end, protocol, length, behind: None, pseudo })
    }

    fn read_v6(bytes: &[u8]) -> Result<Self> {
        let header = ipv6::Packet::new_checked(bytes)?;
        let (end, length) = match header.has_len() {
            true => (header.total_len(), Length::InHeader),
            false if header.next_header() == Protocol::HOP_BY_HOP => {
                match bytes[ipv6::HEADER_LEN..] {
                    [_, 0, 0xc2, 4, a, b, c, d, ..] => {
                        let payload = u32::from_be_bytes([a, b, c, d]) as usize;
                        (ipv6::HEADER_LEN.saturating_add(payload), Length::JumboOption)
                    }
                    _ => return Err(Error::Jumbo),
                }
            }
            false => (bytes.len(), Length::Absent),
        };
        if end > bytes.len() {
            let what = Version::V6.name();
            return Err(Error::Length { what, claimed: end, have: bytes.len() });
        }
        let upper = header.upper_layer()?;
        if upper.fragment.is_some() {
            return Err(Error::Fragment);
        }
        let pseudo = final_destination(bytes, header.next_header(), upper.offset)
            .map(|routed| routed.unwrap_or(header.destination()))
            .map(|to| Sum::pseudo_v6(header.source(), to, upper.protocol, 0));
        let (upper, protocol) = (upper.offset, upper.protocol);
        Ok(Self { version: Version::V6, at: 0, upper, end, protocol, length, behind: None, pseudo })
    }

    /// Whether a PPPoE header, which has a length, ends where this one starts.
    pub(crate) fn is_in_pppoe(&self) -> bool {
        self.behind == Some(EtherType::PPPOE)
    }

    /// The pseudo header of TCP or UDP, without the length.
    pub(crate) fn pseudo(&self) -> Result<Sum> {
        self.pseudo
    }

    /// Refuses extension headers after which the kernel does not segment, because they say something about
    /// the one packet: authentication, mobility.
    fn extensions_repeat(&self, packet: &[u8]) -> Result<()> {
        if self.version == Version::V4 {
            return Ok(());
        }
        for (protocol, _) in Extensions::new(packet, self.at, self.upper) {
            if matches!(protocol, Protocol::AUTHENTICATION | Protocol::MOBILITY) {
                return Err(Error::Protocol(protocol));
            }
        }
        Ok(())
    }
}

impl Version {
    const fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4 header",
            Self::V6 => "IPv6 header",
        }
    }
}

/// The extension headers of the IPv6 header at `at` up to `end`: protocol and offset of each.
pub(crate) struct Extensions<'a> {
    packet: &'a [u8],
    next: Protocol,
    at: usize,
    end: usize,
}

impl<'a> Extensions<'a> {
    pub(crate) fn new(packet: &'a [u8], at: usize, end: usize) -> Self {
        let next = Protocol(packet.get(at + 6).copied().unwrap_or(59));
        Self { packet, next, at: at + ipv6::HEADER_LEN, end }
    }
}

impl Iterator for Extensions<'_> {
    type Item = (Protocol, usize);

    fn next(&mut self) -> Option<(Protocol, usize)> {
        if self.at >= self.end {
            return None;
        }
        let (protocol, at) = (self.next, self.at);
        let &[next, units, ..] = self.packet.get(at..)? else { return None };
        let len = match protocol {
            Protocol::AUTHENTICATION => (usize::from(units) + 2) * 4,
            Protocol::FRAGMENT => 8,
            _ => (usize::from(units) + 1) * 8,
        };
        self.next = Protocol(next);
        self.at += len;
        Some((protocol, at))
    }
}

/// Whether the options hold a source route with addresses still to visit (RFC 791 §3.1).
fn source_route(mut options: &[u8]) -> bool {
    while let [kind, rest @ ..] = options {
        match kind {
            0 => return false,
            1 => options = rest,
            _ => {
                let len = usize::from(rest.first().copied().unwrap_or(0));
                if matches!(kind, 131 | 137) {
                    let pointer = usize::from(rest.get(1).copied().unwrap_or(0));
                    return pointer <= len;
                }
                match options.get(len.max(2)..) {
                    Some(after) => options = after,
                    None => return false,
                }
            }
        }
    }
    false
}

/// The last address of a routing header with segments left, which the pseudo header has in place of
/// the destination (RFC 8200 §8.1, RFC 8754 §4.3.1.1).
fn final_destination(bytes: &[u8], first: Protocol, upper: usize) -> Result<Option<Ipv6Addr>> {
    debug_assert!(!first.is_extension() || upper > ipv6::HEADER_LEN);
    for (protocol, at) in Extensions::new(bytes, 0, upper) {
        if protocol != Protocol::ROUTING {
            continue;
        }
        let (units, kind, left) = (bytes[at + 1], bytes[at + 2], bytes[at + 3]);
        if left == 0 {
            continue;
        }
        let addresses = usize::from(units) / 2;
        let last = match kind {
            0 | 2 if addresses > 0 => addresses - 1,
            4 if addresses > 0 => 0,
            _ => return Err(Error::Route("an IPv6 routing header")),
        };
        let octets = bytes[at + 8 + last * 16..].first_chunk::<16>();
        let octets = octets.ok_or(Error::Route("an IPv6 routing header"))?;
        return Ok(Some(Ipv6Addr::from(*octets)));
    }
    Ok(None)
}

/// The outermost IP header.
pub(crate) fn outermost(packet: &[u8], link: LinkType) -> Result<Ip> {
    match link {
        LinkType::Ethernet => behind_ethernet(packet, 0, packet.len()),
        LinkType::Ip => {
            let version = match packet.first().map(|byte| byte >> 4) {
                Some(6) => Version::V6,
                // IPv4, or something of which the IPv4 header says what is wrong.
                _ => Version::V4,
            };
            Ip::read(packet, 0, packet.len(), version, true)
        }
    }
}

fn behind_ethernet(packet: &[u8], at: usize, end: usize) -> Result<Ip> {
    let frame = ethernet::Frame::new_checked(packet.get(at..end).unwrap_or(&[]))?;
    let mut ether_type = frame.ether_type();
    let mut at = at + ethernet::HEADER_LEN;
    let (mut tags, mut behind) = (0, None);
    let bytes = packet.get(..end).unwrap_or(&[]);
    loop {
        if ether_type.is_tag() {
            if tags == 2 {
                return Err(Error::TooManyTags);
            }
            let tag = vlan::Tag::new_checked(bytes.get(at..).unwrap_or(&[]))?;
            ether_type = tag.ether_type();
            at += vlan::TAG_LEN;
            tags += 1;
        } else if !ether_type.is_length()
            && let Some(next) = layers::next_header(bytes, ether_type, at)
        {
            behind = Some(ether_type);
            (ether_type, at) = next;
        } else {
            break;
        }
    }
    let version = match ether_type {
        EtherType::IPV4 => Version::V4,
        EtherType::IPV6 => Version::V6,
        other => return Err(Error::NotIp(other)),
    };
    Ok(Ip { behind, ..Ip::read(packet, at, end, version, true)? })
}

fn behind_tunnel(packet: &[u8], at: usize, end: usize, carries: EtherType) -> Result<Ip> {
    match carries {
        EtherType::TEB => behind_ethernet(packet, at, end),
        EtherType::IPV4 => Ip::read(packet, at, end, Version::V4, false),
        EtherType::IPV6 => Ip::read(packet, at, end, Version::V6, false),
        other => Err(Error::NotIp(other)),
    }
}

/// Finds the innermost TCP or UDP header after `outer`.
pub(crate) fn transport(packet: &[u8], outer: Ip, options: &Options) -> Result<Layout> {
    outer.extensions_repeat(packet)?;
    let Some((tunnel, inner)) = tunnel(packet, &outer, options)? else {
        return Ok(Layout { outer, tunnel: None, payload: payload(packet, &outer)? });
    };
    inner.extensions_repeat(packet)?;
    if inner.length == Length::JumboOption {
        return Err(Error::Jumbo);
    }
    if let Some(name) = tunnel_name(packet, &inner, options)? {
        return Err(Error::NestedTunnel(name));
    }
    Ok(Layout { outer, tunnel: Some((tunnel, inner)), payload: payload(packet, &inner)? })
}

/// The tunnel that `ip` carries, if it does, and the IP header inside.
fn tunnel(packet: &[u8], ip: &Ip, options: &Options) -> Result<Option<(Tunnel, Ip)>> {
    let Some(name) = tunnel_name(packet, ip, options)? else { return Ok(None) };
    let (at, end) = (ip.upper, ip.end);
    let bytes = packet.get(at..end).unwrap_or(&[]);
    let inside = |tunnel, why| Error::Tunnel { tunnel, why };
    let found = match ip.protocol {
        Protocol::UDP => {
            let checksum = datagram(packet, ip)?.checksum() != 0;
            let Some(through) = udp_tunnel(packet, ip, options)? else { return Ok(None) };
            let (carries, len) = through
                .payload_type(&bytes[udp::HEADER_LEN..])?
                .ok_or(inside(name, "a number, or an extension that is not known"))?;
            let tunnel = Tunnel::Udp { checksum, gtp: through == UdpTunnel::Gtp };
            (tunnel, behind_tunnel(packet, at + udp::HEADER_LEN + len, end, carries)?)
        }
        Protocol::GRE => {
            let header = gre::Packet::new_checked(bytes)?;
            if header.has_sequence() {
                return Err(inside(name, "it numbers its packets"));
            }
            let tunnel = Tunnel::Gre { checksum: header.has_checksum() };
            let inner = at + header.header_len();
            (tunnel, behind_tunnel(packet, inner, end, header.protocol())?)
        }
        Protocol::IPV4 => (Tunnel::Ip, Ip::read(packet, at, end, Version::V4, false)?),
        _ => (Tunnel::Ip, Ip::read(packet, at, end, Version::V6, false)?),
    };
    Ok(Some(found))
}

/// What kind of tunnel `ip` carries, if it does.
fn tunnel_name(packet: &[u8], ip: &Ip, options: &Options) -> Result<Option<&'static str>> {
    Ok(match ip.protocol {
        Protocol::GRE => Some("GRE"),
        Protocol::IPV4 | Protocol::IPV6 => Some("IP in IP"),
        Protocol::UDP => udp_tunnel(packet, ip, options)?.map(UdpTunnel::name),
        _ => None,
    })
}

/// The tunnel that the port of the datagram in `ip` means. A datagram that cannot be of GTP-U or GUE is one of something
/// else, whose ports nobody names.
fn udp_tunnel(packet: &[u8], ip: &Ip, options: &Options) -> Result<Option<UdpTunnel>> {
    let datagram = datagram(packet, ip)?;
    let port = datagram.destination_port();
    let is_meant = |tunnel: &UdpTunnel| {
        let is_named = matches!(tunnel, UdpTunnel::Vxlan | UdpTunnel::Geneve);
        port == options.port(*tunnel)
            && (is_named || tunnel.payload_type(datagram.payload()).is_ok())
    };
    Ok(UdpTunnel::ALL.into_iter().filter(|_| port != 0).find(is_meant))
}

/// The UDP datagram in `ip`, whose length is that of the IP payload.
fn datagram<'p>(packet: &'p [u8], ip: &Ip) -> Result<udp::Datagram<'p>> {
    let bytes = packet.get(ip.upper..ip.end).unwrap_or(&[]);
    let datagram = udp::Datagram::new_checked(bytes)?;
    let claimed = usize::from(datagram.length());
    if claimed != bytes.len() {
        return Err(Error::Length { what: "UDP header", claimed, have: bytes.len() });
    }
    Ok(datagram)
}

/// Where the payload of the TCP or UDP header in `ip` starts.
pub(crate) fn payload(packet: &[u8], ip: &Ip) -> Result<usize> {
    let bytes = packet.get(ip.upper..ip.end).unwrap_or(&[]);
    match ip.protocol {
        Protocol::TCP => Ok(ip.upper + tcp::Segment::new_checked(bytes)?.header_len()),
        Protocol::UDP => datagram(packet, ip).map(|_| ip.upper + udp::HEADER_LEN),
        other => Err(Error::Protocol(other)),
    }
}
