//! GRE headers (RFC 2784) with key and sequence number (RFC 2890).

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

/// A view of a GRE header.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a>(&'a [u8]);

impl<'a> Packet<'a> {
    /// A view of bytes that hold a complete header of version 0. Refuses the routing field of
    /// RFC 1701 and every bit that RFC 2784 reserves.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self> {
        require(WHAT, bytes, HEADER_LEN)?;
        let packet = Self(bytes);
        if packet.flags() & 7 != 0 {
            return Err(Error::Malformed { what: WHAT, why: "version is not 0" });
        }
        if packet.flags() & !(CHECKSUM | KEY | SEQUENCE) != 0 {
            return Err(Error::Malformed { what: WHAT, why: "routing field or reserved bits" });
        }
        require(WHAT, packet.0, packet.header_len())?;
        Ok(packet)
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
        EtherType(read::u16(self.0, field::PROTOCOL))
    }

    fn flags(&self) -> u16 {
        read::u16(self.0, field::FLAGS)
    }
}
