//! VXLAN headers (RFC 7348), with the bits of the group policy extension as Linux sets them.

use core::fmt;

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
    pub(super) const IDENTIFIER: Range<usize> = 4..8;
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

/// A view of a VXLAN header and the Ethernet frame after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// A view of bytes that hold at least the header, with a network identifier.
    pub fn new_checked(buffer: T) -> Result<Self> {
        require(WHAT, buffer.as_ref(), HEADER_LEN)?;
        let packet = Self { buffer };
        if packet.flags() & flag::IDENTIFIER == 0 {
            return Err(Error::Malformed { what: WHAT, why: "no network identifier" });
        }
        Ok(packet)
    }

    /// The bytes again.
    pub fn into_inner(self) -> T {
        self.buffer
    }

    /// The first word: flags, and what extensions put there; see [`flag`].
    pub fn flags(&self) -> u32 {
        read::u32(self.buffer.as_ref(), field::FLAGS)
    }

    /// Whether the payload is an Ethernet frame: no flag is set that could say otherwise.
    pub fn is_plain(&self) -> bool {
        let group = match self.flags() & flag::GROUP_POLICY {
            0 => 0,
            _ => flag::GROUP_POLICY_ALL,
        };
        self.flags() & !group == flag::IDENTIFIER
    }

    /// The network identifier, 24 bits.
    pub fn identifier(&self) -> u32 {
        read::u32(self.buffer.as_ref(), field::IDENTIFIER) >> 8
    }
}

impl<'a, T: AsRef<[u8]> + ?Sized> Packet<&'a T> {
    /// The Ethernet frame inside.
    pub fn payload(&self) -> &'a [u8] {
        read::clamp(self.buffer.as_ref(), HEADER_LEN, usize::MAX)
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Packet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VXLAN vni {}", self.identifier())
    }
}

/// The header as a value, without extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// The network identifier, 24 bits.
    pub identifier: u32,
}

impl Repr {
    /// Reads a header.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        Self { identifier: packet.identifier() }
    }

    /// Bytes that [`Repr::emit`] writes.
    pub const fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header at the start of `bytes`.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<()> {
        require(WHAT, bytes, HEADER_LEN)?;
        if self.identifier > 0xff_ffff {
            return Err(Error::Malformed { what: WHAT, why: "network identifier over 24 bits" });
        }
        read::put(bytes, field::FLAGS.start, &flag::IDENTIFIER.to_be_bytes());
        read::put(bytes, field::IDENTIFIER.start, &(self.identifier << 8).to_be_bytes());
        Ok(())
    }
}
