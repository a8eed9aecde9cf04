//! VXLAN headers (RFC 7348), with the bits of the group policy extension as Linux sets them.

use crate::error::require;
use crate::{Error, Result, read};

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 8;

/// The UDP port that it is sent to by default.
pub const PORT: u16 = 4789;

const WHAT: &str = "VXLAN header";

mod field {
    use core::ops::Range;
    pub(super) const FLAGS: Range<usize> = 0..4;
}

/// The flags of the first 32-bit word.
pub mod flag {
    /// There is a network identifier; the only flag of RFC 7348, and required.
    pub const IDENTIFIER: u32 = 0x0800_0000;
    /// Group policy: the lower 16 bits are a group, two more are its flags.
    pub const GROUP_POLICY: u32 = 0x8000_0000;
    /// Everything that belongs to a group policy: its flag, "don't learn", "applied", the group.
    pub const GROUP_POLICY_ALL: u32 = GROUP_POLICY | 0x0048_ffff;
}

/// A view of a VXLAN header.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a>(&'a [u8]);

impl<'a> Packet<'a> {
    /// A view of bytes that hold at least the header, with a network identifier.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self> {
        require(WHAT, bytes, HEADER_LEN)?;
        let packet = Self(bytes);
        if packet.flags() & flag::IDENTIFIER == 0 {
            return Err(Error::Malformed { what: WHAT, why: "no network identifier" });
        }
        Ok(packet)
    }

    /// The first word: flags, and what extensions put there; see [`flag`].
    pub fn flags(&self) -> u32 {
        read::u32(self.0, field::FLAGS)
    }

    /// Whether the payload is an Ethernet frame: no flag is set that could say otherwise.
    pub fn is_plain(&self) -> bool {
        let group = match self.flags() & flag::GROUP_POLICY {
            0 => 0,
            _ => flag::GROUP_POLICY_ALL,
        };
        self.flags() & !group == flag::IDENTIFIER
    }
}
