//! GRE headers (RFC 2784) with key and sequence number (RFC 2890).

use core::fmt;

use crate::error::require;
use crate::ethernet::EtherType;
use crate::{Error, Result, read};

/// Length of a header without optional fields, in bytes.
pub const HEADER_LEN: usize = 4;

/// Where the checksum stands where there is one, in bytes from the start of the header.
pub const CHECKSUM_OFFSET: usize = 4;

const WHAT: &str = "GRE header";

const CHECKSUM: u16 = 0x8000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;

mod field {
    use core::ops::Range;
    pub(super) const FLAGS: Range<usize> = 0..2;
    pub(super) const PROTOCOL: Range<usize> = 2..4;
}

/// A view of a GRE header and what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// A view of bytes that hold a complete header of version 0. Refuses the routing field of
    /// RFC 1701 and every bit that RFC 2784 reserves.
    pub fn new_checked(buffer: T) -> Result<Self> {
        require(WHAT, buffer.as_ref(), HEADER_LEN)?;
        let packet = Self { buffer };
        if packet.flags() & 7 != 0 {
            return Err(Error::Malformed { what: WHAT, why: "version is not 0" });
        }
        if packet.flags() & !(CHECKSUM | KEY | SEQUENCE) != 0 {
            return Err(Error::Malformed { what: WHAT, why: "routing field or reserved bits" });
        }
        require(WHAT, packet.buffer.as_ref(), packet.header_len())?;
        Ok(packet)
    }

    /// The bytes again.
    pub fn into_inner(self) -> T {
        self.buffer
    }

    /// Length of the header with its optional fields, `4..=16`.
    pub fn header_len(&self) -> usize {
        HEADER_LEN + (self.flags() & (CHECKSUM | KEY | SEQUENCE)).count_ones() as usize * 4
    }

    /// Whether there is a checksum, over header and payload.
    pub fn has_checksum(&self) -> bool {
        self.flags() & CHECKSUM != 0
    }

    /// Whether there is a sequence number, which no two packets share.
    pub fn has_sequence(&self) -> bool {
        self.flags() & SEQUENCE != 0
    }

    /// What the header carries: [`EtherType::TEB`] for an Ethernet frame.
    pub fn protocol(&self) -> EtherType {
        EtherType(read::u16(self.buffer.as_ref(), field::PROTOCOL))
    }

    /// The key, which tells tunnels between the same addresses apart.
    pub fn key(&self) -> Option<u32> {
        let at = HEADER_LEN + if self.has_checksum() { 4 } else { 0 };
        (self.flags() & KEY != 0).then(|| read::u32(self.buffer.as_ref(), at..at + 4))
    }

    fn flags(&self) -> u16 {
        read::u16(self.buffer.as_ref(), field::FLAGS)
    }
}

impl<'a, T: AsRef<[u8]> + ?Sized> Packet<&'a T> {
    /// What is inside.
    pub fn payload(&self) -> &'a [u8] {
        read::clamp(self.buffer.as_ref(), self.header_len(), usize::MAX)
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Packet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GRE {}", self.protocol())?;
        match self.key() {
            Some(key) => write!(f, " key {key}"),
            None => Ok(()),
        }
    }
}

/// A header without checksum and sequence number as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// What the header carries.
    pub protocol: EtherType,
    /// The key.
    pub key: Option<u32>,
}

impl Repr {
    /// Reads a header; checksum and sequence number are not kept.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        Self { protocol: packet.protocol(), key: packet.key() }
    }

    /// Bytes that [`Repr::emit`] writes.
    pub const fn header_len(&self) -> usize {
        match self.key {
            Some(_) => HEADER_LEN + 4,
            None => HEADER_LEN,
        }
    }

    /// Writes the header at the start of `bytes`.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<()> {
        require(WHAT, bytes, self.header_len())?;
        let flags = if self.key.is_some() { KEY } else { 0 };
        read::put(bytes, field::FLAGS.start, &flags.to_be_bytes());
        read::put(bytes, field::PROTOCOL.start, &self.protocol.0.to_be_bytes());
        if let Some(key) = self.key {
            read::put(bytes, HEADER_LEN, &key.to_be_bytes());
        }
        Ok(())
    }
}
