//! IPv4 headers (RFC 791), options included.

use core::net::Ipv4Addr;

use crate::error::require;
use crate::protocol::Protocol;
use crate::{Error, Result, checksum, read};

/// Length of a header without options, in bytes.
pub const HEADER_LEN: usize = 20;

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
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a>(&'a [u8]);

impl<'a> Packet<'a> {
    /// A view of bytes that hold a complete header of version 4, with its options.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self> {
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
        Ok(Self(bytes))
    }

    /// Length of the header with its options, `20..=60`.
    pub fn header_len(&self) -> usize {
        (usize::from(read::u8(self.0, field::VERSION_LEN) & 0xf) * 4).max(HEADER_LEN)
    }

    /// Length of header and payload that the header claims; the bytes may hold less or more. It is 0
    /// in the super-packets over 64 KiB that Linux hands around (BIG TCP), which end with the frame.
    pub fn total_len(&self) -> u16 {
        read::u16(self.0, field::TOTAL_LEN)
    }

    /// Differentiated services and explicit congestion notification, the old type of service.
    pub fn traffic_class(&self) -> u8 {
        read::u8(self.0, field::TRAFFIC_CLASS)
    }

    /// Says which fragments belong together.
    pub fn identification(&self) -> u16 {
        read::u16(self.0, field::IDENTIFICATION)
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
        read::u8(self.0, field::TTL)
    }

    /// What the packet carries.
    pub fn protocol(&self) -> Protocol {
        Protocol(read::u8(self.0, field::PROTOCOL))
    }

    /// The header checksum as it stands.
    pub fn checksum(&self) -> u16 {
        read::u16(self.0, field::CHECKSUM)
    }

    /// Whether the header checksum is right.
    pub fn verify_checksum(&self) -> bool {
        checksum::verify(read::clamp(self.0, 0, self.header_len()))
    }

    /// Who sent it.
    pub fn source(&self) -> Ipv4Addr {
        read::array::<4>(self.0, field::SOURCE).into()
    }

    /// Whom it is for.
    pub fn destination(&self) -> Ipv4Addr {
        read::array::<4>(self.0, field::DESTINATION).into()
    }

    /// Where the packet ends, in bytes from its start; may be past the end of the bytes.
    pub fn end(&self) -> usize {
        match self.total_len() {
            0 => self.0.len(),
            len => len.into(),
        }
    }

    fn fragment(&self) -> u16 {
        read::u16(self.0, field::FRAGMENT)
    }

    /// The options with their padding; empty in most packets.
    pub fn options(&self) -> &'a [u8] {
        read::clamp(self.0, HEADER_LEN, self.header_len())
    }

    /// The payload without link-layer padding; shorter than claimed where the capture was cut.
    pub fn payload(&self) -> &'a [u8] {
        read::clamp(self.0, self.header_len(), self.end())
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
    /// Writes the header, checksum included, at the start of `bytes`.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<()> {
        require(WHAT, bytes, HEADER_LEN)?;
        let total = u16::try_from(HEADER_LEN + self.payload_len)
            .map_err(|_| Error::Malformed { what: WHAT, why: "payload over 65515 bytes" })?;
        let flags = if self.dont_fragment { DONT_FRAGMENT } else { 0 };
        read::put(bytes, field::VERSION_LEN, &[0x45, self.traffic_class]);
        read::put(bytes, field::TOTAL_LEN.start, &total.to_be_bytes());
        read::put(bytes, field::IDENTIFICATION.start, &self.identification.to_be_bytes());
        read::put(bytes, field::FRAGMENT.start, &flags.to_be_bytes());
        read::put(bytes, field::TTL, &[self.ttl, self.protocol.0, 0, 0]);
        read::put(bytes, field::SOURCE, &self.source.octets());
        read::put(bytes, field::DESTINATION, &self.destination.octets());
        let checksum = checksum::of(&bytes[..HEADER_LEN]);
        read::put(bytes, field::CHECKSUM.start, &checksum.to_be_bytes());
        Ok(())
    }
}
