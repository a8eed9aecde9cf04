//! Geneve headers with their options (RFC 8926).

use core::fmt;

use crate::error::require;
use crate::ethernet::EtherType;
use crate::{Error, Result, read};

/// Length of a header without options, in bytes.
pub const HEADER_LEN: usize = 8;

/// Length of a header with as many options as fit, in bytes.
pub const MAX_HEADER_LEN: usize = 260;

/// The UDP port that it is sent to by default.
pub const PORT: u16 = 6081;

const WHAT: &str = "Geneve header";

mod field {
    use core::ops::Range;
    pub(super) const VERSION_LEN: usize = 0;
    pub(super) const FLAGS: usize = 1;
    pub(super) const PROTOCOL: Range<usize> = 2..4;
    pub(super) const IDENTIFIER: Range<usize> = 4..8;
}

/// A view of a Geneve header and what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// A view of bytes that hold a complete header of version 0, with its options.
    pub fn new_checked(buffer: T) -> Result<Self> {
        require(WHAT, buffer.as_ref(), HEADER_LEN)?;
        let packet = Self { buffer };
        if read::u8(packet.buffer.as_ref(), field::VERSION_LEN) >> 6 != 0 {
            return Err(Error::Malformed { what: WHAT, why: "version is not 0" });
        }
        require(WHAT, packet.buffer.as_ref(), packet.header_len())?;
        Ok(packet)
    }

    /// The bytes again.
    pub fn into_inner(self) -> T {
        self.buffer
    }

    /// Length of the header with its options, `8..=260`.
    pub fn header_len(&self) -> usize {
        let words = read::u8(self.buffer.as_ref(), field::VERSION_LEN) & 0x3f;
        HEADER_LEN + usize::from(words) * 4
    }

    /// Control traffic of the tunnel itself.
    pub fn is_control(&self) -> bool {
        read::u8(self.buffer.as_ref(), field::FLAGS) & 0x80 != 0
    }

    /// Some option must be understood.
    pub fn is_critical(&self) -> bool {
        read::u8(self.buffer.as_ref(), field::FLAGS) & 0x40 != 0
    }

    /// What the header carries: [`EtherType::TEB`] for an Ethernet frame.
    pub fn protocol(&self) -> EtherType {
        EtherType(read::u16(self.buffer.as_ref(), field::PROTOCOL))
    }

    /// The network identifier, 24 bits.
    pub fn identifier(&self) -> u32 {
        read::u32(self.buffer.as_ref(), field::IDENTIFIER) >> 8
    }
}

impl<'a, T: AsRef<[u8]> + ?Sized> Packet<&'a T> {
    /// The options, undecoded.
    pub fn options(&self) -> &'a [u8] {
        read::clamp(self.buffer.as_ref(), HEADER_LEN, self.header_len())
    }

    /// What is inside.
    pub fn payload(&self) -> &'a [u8] {
        read::clamp(self.buffer.as_ref(), self.header_len(), usize::MAX)
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Packet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Geneve vni {} {}", self.identifier(), self.protocol())
    }
}

/// A header without options as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// The network identifier, 24 bits.
    pub identifier: u32,
    /// What the header carries.
    pub protocol: EtherType,
}

impl Repr {
    /// Reads a header; flags and options are not kept.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        Self { identifier: packet.identifier(), protocol: packet.protocol() }
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
        read::put(bytes, field::VERSION_LEN, &[0, 0]);
        read::put(bytes, field::PROTOCOL.start, &self.protocol.0.to_be_bytes());
        read::put(bytes, field::IDENTIFIER.start, &(self.identifier << 8).to_be_bytes());
        Ok(())
    }
}
