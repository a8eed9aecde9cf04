//! Geneve headers with their options (RFC 8926).

use crate::error::require;
use crate::ethernet::EtherType;
use crate::{Error, Result, read};

/// Length of a header without options, in bytes.
pub const HEADER_LEN: usize = 8;

/// The UDP port that it is sent to by default.
pub const PORT: u16 = 6081;

const WHAT: &str = "Geneve header";

mod field {
    use core::ops::Range;
    pub(super) const VERSION_LEN: usize = 0;
    pub(super) const PROTOCOL: Range<usize> = 2..4;
}

/// A view of a Geneve header.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a>(&'a [u8]);

impl<'a> Packet<'a> {
    /// A view of bytes that hold a complete header of version 0, with its options.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self> {
        require(WHAT, bytes, HEADER_LEN)?;
        let packet = Self(bytes);
        if read::u8(packet.0, field::VERSION_LEN) >> 6 != 0 {
            return Err(Error::Malformed { what: WHAT, why: "version is not 0" });
        }
        require(WHAT, packet.0, packet.header_len())?;
        Ok(packet)
    }

    /// Length of the header with its options, `8..=260`.
    pub fn header_len(&self) -> usize {
        let words = read::u8(self.0, field::VERSION_LEN) & 0x3f;
        HEADER_LEN + usize::from(words) * 4
    }

    /// What the header carries: [`EtherType::TEB`] for an Ethernet frame.
    pub fn protocol(&self) -> EtherType {
        EtherType(read::u16(self.0, field::PROTOCOL))
    }
}
