//! UDP headers (RFC 768, RFC 8200 §8.1).

use crate::checksum::Sum;
use crate::error::require;
use crate::{Error, Result, read};

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 8;

/// Where the checksum stands, in bytes from the start of the header.
pub const CHECKSUM_OFFSET: usize = 6;

const WHAT: &str = "UDP header";

mod field {
    use core::ops::Range;
    pub(super) const SOURCE: Range<usize> = 0..2;
    pub(super) const DESTINATION: Range<usize> = 2..4;
    pub(super) const LENGTH: Range<usize> = 4..6;
    pub(super) const CHECKSUM: Range<usize> = 6..8;
}

/// A view of a UDP datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a>(&'a [u8]);

impl<'a> Datagram<'a> {
    /// A view of bytes that hold at least the header.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self> {
        require(WHAT, bytes, HEADER_LEN)?;
        if usize::from(read::u16(bytes, field::LENGTH)) < HEADER_LEN {
            return Err(Error::Malformed { what: WHAT, why: "length under 8" });
        }
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

    /// Length of header and payload that the header claims, at least 8.
    pub fn length(&self) -> u16 {
        read::u16(self.0, field::LENGTH)
    }

    /// The checksum as it stands; 0 means that the sender made none (IPv4 only).
    pub fn checksum(&self) -> u16 {
        read::u16(self.0, field::CHECKSUM)
    }

    /// Whether the checksum over `pseudo` header and datagram is right. A checksum of 0 is accepted
    /// here; over IPv6 the caller must refuse it.
    pub fn verify_checksum(&self, pseudo: Sum) -> bool {
        let datagram = read::clamp(self.0, 0, self.length().into());
        self.checksum() == 0 || pseudo.bytes(datagram).is_valid()
    }

    /// The message; shorter than claimed where the capture was cut.
    pub fn payload(&self) -> &'a [u8] {
        read::clamp(self.0, HEADER_LEN, self.length().into())
    }
}

/// The header as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver.
    pub destination_port: u16,
}

impl Repr {
    /// Writes the header at the start of `bytes`, which is the whole datagram: its length is that of
    /// `bytes`, and the checksum covers `pseudo` header, header and message.
    pub fn emit(&self, bytes: &mut [u8], pseudo: Sum) -> Result<()> {
        require(WHAT, bytes, HEADER_LEN)?;
        let length = u16::try_from(bytes.len())
            .map_err(|_| Error::Malformed { what: WHAT, why: "datagram over 65535 bytes" })?;
        read::put(bytes, field::SOURCE.start, &self.source_port.to_be_bytes());
        read::put(bytes, field::DESTINATION.start, &self.destination_port.to_be_bytes());
        read::put(bytes, field::LENGTH.start, &length.to_be_bytes());
        read::put(bytes, field::CHECKSUM.start, &[0, 0]);
        let checksum = pseudo.bytes(bytes).udp_checksum();
        read::put(bytes, field::CHECKSUM.start, &checksum.to_be_bytes());
        Ok(())
    }
}
