//! TCP headers with their options (RFC 9293).

use crate::checksum::Sum;
use crate::error::require;
use crate::{Error, Result, read};

/// Length of a header without options, in bytes.
pub const HEADER_LEN: usize = 20;

/// Where the checksum stands, in bytes from the start of the header.
pub const CHECKSUM_OFFSET: usize = 16;

const WHAT: &str = "TCP header";

mod field {
    use core::ops::Range;
    pub(super) const SOURCE: Range<usize> = 0..2;
    pub(super) const DESTINATION: Range<usize> = 2..4;
    pub(super) const SEQUENCE: Range<usize> = 4..8;
    pub(super) const ACKNOWLEDGEMENT: Range<usize> = 8..12;
    pub(super) const LEN_FLAGS: Range<usize> = 12..14;
    pub(super) const WINDOW: Range<usize> = 14..16;
    pub(super) const URGENT: Range<usize> = 18..20;
}

/// The nine flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u16);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x001);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x002);
    /// Reset the connection.
    pub const RST: Self = Self(0x004);
    /// Push.
    pub const PSH: Self = Self(0x008);
    /// The acknowledgement number counts.
    pub const ACK: Self = Self(0x010);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x020);
    /// Congestion was seen (RFC 3168).
    pub const ECE: Self = Self(0x040);
    /// The congestion window was reduced (RFC 3168).
    pub const CWR: Self = Self(0x080);
    /// Accurate ECN (RFC 9768).
    pub const AE: Self = Self(0x100);

    /// Whether all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags of both.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The flags of a header whose end may be cut off.
pub(crate) fn flags(bytes: &[u8]) -> Option<Flags> {
    (bytes.len() >= field::LEN_FLAGS.end).then(|| Flags(read::u16(bytes, field::LEN_FLAGS) & 0x1ff))
}

/// A view of a TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a>(&'a [u8]);

impl<'a> Segment<'a> {
    /// A view of bytes that hold a complete header with its options.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self> {
        require(WHAT, bytes, HEADER_LEN)?;
        let header = usize::from(bytes[field::LEN_FLAGS.start] >> 4) * 4;
        if header < HEADER_LEN {
            return Err(Error::Malformed { what: WHAT, why: "header length under 20" });
        }
        require(WHAT, bytes, header)?;
        Ok(Self(bytes))
    }

    /// Port of the sender.
    pub fn source_port(&self) -> u16 {
        read::u16(self.0, field::SOURCE)
    }

    /// Port of the receiver.
    pub fn destination_port(&self) -> u16 {
        read::u16(self.0, field::DESTINATION)
    }

    /// Number of the first byte of the payload.
    pub fn sequence(&self) -> u32 {
        read::u32(self.0, field::SEQUENCE)
    }

    /// Length of the header with its options, `20..=60`.
    pub fn header_len(&self) -> usize {
        (usize::from(read::u8(self.0, field::LEN_FLAGS.start) >> 4) * 4).max(HEADER_LEN)
    }

    /// The flags.
    pub fn flags(&self) -> Flags {
        Flags(read::u16(self.0, field::LEN_FLAGS) & 0x1ff)
    }

    /// Whether the checksum over `pseudo` header and the whole buffer is right; the buffer must end
    /// where the segment does.
    pub fn verify_checksum(&self, pseudo: Sum) -> bool {
        pseudo.bytes(self.0).is_valid()
    }

    /// The bytes after the header.
    pub fn payload(&self) -> &'a [u8] {
        read::clamp(self.0, self.header_len(), usize::MAX)
    }
}

/// A header without options as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
    /// Number of the first byte.
    pub sequence: u32,
    /// Number of the byte expected next.
    pub acknowledgement: u32,
    /// The flags.
    pub flags: Flags,
    /// Receive window, not scaled.
    pub window: u16,
    /// The urgent pointer.
    pub urgent: u16,
}

impl Repr {
    /// Writes the header at the start of `bytes`, with the checksum over `pseudo` header, header and
    /// everything behind it in `bytes`.
    pub fn emit(&self, bytes: &mut [u8], pseudo: Sum) -> Result<()> {
        require(WHAT, bytes, HEADER_LEN)?;
        bytes[..HEADER_LEN].fill(0);
        // The header length in words, and the flags.
        let len_flags = (HEADER_LEN as u16 / 4) << 12 | self.flags.0 & 0x1ff;
        read::put(bytes, field::SOURCE.start, &self.source_port.to_be_bytes());
        read::put(bytes, field::DESTINATION.start, &self.destination_port.to_be_bytes());
        read::put(bytes, field::SEQUENCE.start, &self.sequence.to_be_bytes());
        read::put(bytes, field::ACKNOWLEDGEMENT.start, &self.acknowledgement.to_be_bytes());
        read::put(bytes, field::LEN_FLAGS.start, &len_flags.to_be_bytes());
        read::put(bytes, field::WINDOW.start, &self.window.to_be_bytes());
        read::put(bytes, field::URGENT.start, &self.urgent.to_be_bytes());
        let checksum = pseudo.bytes(bytes).checksum();
        read::put(bytes, CHECKSUM_OFFSET, &checksum.to_be_bytes());
        Ok(())
    }
}
