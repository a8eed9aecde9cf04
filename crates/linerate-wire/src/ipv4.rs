//! IPv4 headers (RFC 791), options included.

use core::fmt;
use core::net::Ipv4Addr;

use crate::error::require;
use crate::protocol::Protocol;
use crate::{Error, Result, checksum, read};

/// Length of a header without options, in bytes.
pub const HEADER_LEN: usize = 20;

/// Length of a header with as many options as fit, in bytes.
pub const MAX_HEADER_LEN: usize = 60;

const WHAT: &str = "IPv4 header";

mod field {
    use core::ops::Range;
    pub(super) const VERSION_LEN: usize = 0;
    pub(super) const TRAFFIC_CLASS: usize = 1;
    pub(super) const TOTAL_LEN: Range<usize> = 2..4;
    pub(super) const IDENTIFICATION: Range<usize> = 4..6;
    pub(super) const FRAGMENT: Range<usize> = 6..8;
    pub(super) const TTL: usize = 8;
    pub(super) const PROTOCOL: usize = 9;
    pub(super) const CHECKSUM: Range<usize> = 10..12;
    pub(super) const SOURCE: usize = 12;
    pub(super) const DESTINATION: usize = 16;
}

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;

/// A view of an IPv4 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// A view of bytes that hold a complete header of version 4, with its options.
    pub fn new_checked(buffer: T) -> Result<Self> {
        let bytes = buffer.as_ref();
        require(WHAT, bytes, HEADER_LEN)?;
        if bytes[field::VERSION_LEN] >> 4 != 4 {
            return Err(Error::Malformed { what: WHAT, why: "version is not 4" });
        }
        let header = usize::from(bytes[field::VERSION_LEN] & 0xf) * 4;
        if header < HEADER_LEN {
            return Err(Error::Malformed { what: WHAT, why: "header length under 20" });
        }
        require(WHAT, bytes, header)?;
        let total = usize::from(read::u16(bytes, field::TOTAL_LEN));
        if total != 0 && total < header {
            return Err(Error::Malformed { what: WHAT, why: "total length under header length" });
        }
        Ok(Self { buffer })
    }

    /// The bytes again.
    pub fn into_inner(self) -> T {
        self.buffer
    }

    /// Length of the header with its options, `20..=60`.
    pub fn header_len(&self) -> usize {
        (usize::from(read::u8(self.buffer.as_ref(), field::VERSION_LEN) & 0xf) * 4).max(HEADER_LEN)
    }

    /// Length of header and payload that the header claims; the bytes may hold less or more. It is 0
    /// in the super-packets over 64 KiB that Linux hands around (BIG TCP), which end with the frame.
    pub fn total_len(&self) -> u16 {
        read::u16(self.buffer.as_ref(), field::TOTAL_LEN)
    }

    /// Differentiated services and explicit congestion notification, the old type of service.
    pub fn traffic_class(&self) -> u8 {
        read::u8(self.buffer.as_ref(), field::TRAFFIC_CLASS)
    }

    /// Says which fragments belong together.
    pub fn identification(&self) -> u16 {
        read::u16(self.buffer.as_ref(), field::IDENTIFICATION)
    }

    /// Routers must not fragment the packet.
    pub fn dont_fragment(&self) -> bool {
        self.fragment() & DONT_FRAGMENT != 0
    }

    /// This is a fragment, and not the last.
    pub fn more_fragments(&self) -> bool {
        self.fragment() & MORE_FRAGMENTS != 0
    }

    /// Where this fragment belongs, in bytes; 0 in the first and in whole packets.
    pub fn fragment_offset(&self) -> u16 {
        (self.fragment() & 0x1fff) << 3
    }

    /// A piece of a packet: more follow, or some came before.
    pub fn is_fragment(&self) -> bool {
        self.fragment() & (MORE_FRAGMENTS | 0x1fff) != 0
    }

    /// Hops left.
    pub fn ttl(&self) -> u8 {
        read::u8(self.buffer.as_ref(), field::TTL)
    }

    /// What the packet carries.
    pub fn protocol(&self) -> Protocol {
        Protocol(read::u8(self.buffer.as_ref(), field::PROTOCOL))
    }

    /// The header checksum as it stands.
    pub fn checksum(&self) -> u16 {
        read::u16(self.buffer.as_ref(), field::CHECKSUM)
    }

    /// Whether the header checksum is right.
    pub fn verify_checksum(&self) -> bool {
        checksum::verify(read::clamp(self.buffer.as_ref(), 0, self.header_len()))
    }

    /// Who sent it.
    pub fn source(&self) -> Ipv4Addr {
        read::array::<4>(self.buffer.as_ref(), field::SOURCE).into()
    }

    /// Whom it is for.
    pub fn destination(&self) -> Ipv4Addr {
        read::array::<4>(self.buffer.as_ref(), field::DESTINATION).into()
    }

    /// Length of the payload that the header claims.
    pub fn payload_len(&self) -> usize {
        self.end().saturating_sub(self.header_len())
    }

    /// Where the packet ends, in bytes from its start; may be past the end of the bytes.
    pub fn end(&self) -> usize {
        match self.total_len() {
            0 => self.buffer.as_ref().len(),
            len => len.into(),
        }
    }

    fn fragment(&self) -> u16 {
        read::u16(self.buffer.as_ref(), field::FRAGMENT)
    }
}

impl<'a, T: AsRef<[u8]> + ?Sized> Packet<&'a T> {
    /// The options with their padding; empty in most packets.
    pub fn options(&self) -> &'a [u8] {
        read::clamp(self.buffer.as_ref(), HEADER_LEN, self.header_len())
    }

    /// The payload without link-layer padding; shorter than claimed where the capture was cut.
    pub fn payload(&self) -> &'a [u8] {
        read::clamp(self.buffer.as_ref(), self.header_len(), self.end())
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    /// Writes the length of header and payload.
    pub fn set_total_len(&mut self, len: u16) {
        read::put(self.buffer.as_mut(), field::TOTAL_LEN.start, &len.to_be_bytes());
    }

    /// Writes differentiated services and congestion notification.
    pub fn set_traffic_class(&mut self, class: u8) {
        read::put(self.buffer.as_mut(), field::TRAFFIC_CLASS, &[class]);
    }

    /// Writes the identification.
    pub fn set_identification(&mut self, identification: u16) {
        let bytes = identification.to_be_bytes();
        read::put(self.buffer.as_mut(), field::IDENTIFICATION.start, &bytes);
    }

    /// Writes the flags and the offset; `offset` in bytes is rounded down to a multiple of 8.
    pub fn set_fragment(&mut self, dont_fragment: bool, more_fragments: bool, offset: u16) {
        let flags = if dont_fragment { DONT_FRAGMENT } else { 0 }
            | if more_fragments { MORE_FRAGMENTS } else { 0 };
        let bytes = (flags | offset >> 3).to_be_bytes();
        read::put(self.buffer.as_mut(), field::FRAGMENT.start, &bytes);
    }

    /// Writes the hops left.
    pub fn set_ttl(&mut self, ttl: u8) {
        read::put(self.buffer.as_mut(), field::TTL, &[ttl]);
    }

    /// Writes what the packet carries.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        read::put(self.buffer.as_mut(), field::PROTOCOL, &[protocol.0]);
    }

    /// Writes the source.
    pub fn set_source(&mut self, address: Ipv4Addr) {
        read::put(self.buffer.as_mut(), field::SOURCE, &address.octets());
    }

    /// Writes the destination.
    pub fn set_destination(&mut self, address: Ipv4Addr) {
        read::put(self.buffer.as_mut(), field::DESTINATION, &address.octets());
    }

    /// Writes a header checksum.
    pub fn set_checksum(&mut self, checksum: u16) {
        read::put(self.buffer.as_mut(), field::CHECKSUM.start, &checksum.to_be_bytes());
    }

    /// Computes and writes the header checksum.
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let header = self.header_len();
        self.set_checksum(checksum::of(read::clamp(self.buffer.as_ref(), 0, header)));
    }

    /// The bytes after the header, to the end of the buffer.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let header = self.header_len();
        self.buffer.as_mut().get_mut(header..).unwrap_or(&mut [])
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Packet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = (self.source(), self.destination());
        write!(f, "IPv4 {source} > {destination} {} ttl {}", self.protocol(), self.ttl())?;
        write!(f, " length {}", self.total_len())?;
        if self.is_fragment() {
            let more = if self.more_fragments() { "+" } else { "" };
            write!(f, " fragment {}@{}{more}", self.identification(), self.fragment_offset())?;
        }
        Ok(())
    }
}

/// A header without options as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Who sends it.
    pub source: Ipv4Addr,
    /// Whom it is for.
    pub destination: Ipv4Addr,
    /// What it carries.
    pub protocol: Protocol,
    /// Length of the payload in bytes.
    pub payload_len: usize,
    /// Differentiated services and congestion notification.
    pub traffic_class: u8,
    /// Says which fragments belong together.
    pub identification: u16,
    /// Routers must not fragment it.
    pub dont_fragment: bool,
    /// Hops left.
    pub ttl: u8,
}

impl Repr {
    /// Reads the header of a whole packet; options are not kept, a fragment is refused.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Self> {
        if packet.is_fragment() {
            return Err(Error::Malformed { what: "IPv4 packet", why: "a fragment" });
        }
        Ok(Self {
            source: packet.source(),
            destination: packet.destination(),
            protocol: packet.protocol(),
            payload_len: packet.payload_len(),
            traffic_class: packet.traffic_class(),
            identification: packet.identification(),
            dont_fragment: packet.dont_fragment(),
            ttl: packet.ttl(),
        })
    }

    /// Bytes that [`Repr::emit`] writes.
    pub const fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header, checksum included, at the start of `bytes`.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<()> {
        require(WHAT, bytes, HEADER_LEN)?;
        let total = u16::try_from(HEADER_LEN + self.payload_len)
            .map_err(|_| Error::Malformed { what: WHAT, why: "payload over 65515 bytes" })?;
        bytes[field::VERSION_LEN] = 0x45;
        let mut packet = Packet { buffer: bytes };
        packet.set_traffic_class(self.traffic_class);
        packet.set_total_len(total);
        packet.set_identification(self.identification);
        packet.set_fragment(self.dont_fragment, false, 0);
        packet.set_ttl(self.ttl);
        packet.set_protocol(self.protocol);
        packet.set_source(self.source);
        packet.set_destination(self.destination);
        packet.fill_checksum();
        Ok(())
    }
}
