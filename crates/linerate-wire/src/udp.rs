//! UDP headers (RFC 768, RFC 8200 §8.1).

use core::fmt;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Datagram<T> {
    /// A view of bytes that hold at least the header.
    pub fn new_checked(buffer: T) -> Result<Self> {
        require(WHAT, buffer.as_ref(), HEADER_LEN)?;
        if usize::from(read::u16(buffer.as_ref(), field::LENGTH)) < HEADER_LEN {
            return Err(Error::Malformed { what: WHAT, why: "length under 8" });
        }
        Ok(Self { buffer })
    }

    /// The bytes again.
    pub fn into_inner(self) -> T {
        self.buffer
    }

    /// Port of the sender.
    pub fn source_port(&self) -> u16 {
        read::u16(self.buffer.as_ref(), field::SOURCE)
    }

    /// Port of the receiver.
    pub fn destination_port(&self) -> u16 {
        read::u16(self.buffer.as_ref(), field::DESTINATION)
    }

    /// Length of header and payload that the header claims, at least 8.
    pub fn length(&self) -> u16 {
        read::u16(self.buffer.as_ref(), field::LENGTH)
    }

    /// The checksum as it stands; 0 means that the sender made none (IPv4 only).
    pub fn checksum(&self) -> u16 {
        read::u16(self.buffer.as_ref(), field::CHECKSUM)
    }

    /// Whether the checksum over `pseudo` header and datagram is right. A checksum of 0 is accepted
    /// here; over IPv6 the caller must refuse it.
    pub fn verify_checksum(&self, pseudo: Sum) -> bool {
        let datagram = read::clamp(self.buffer.as_ref(), 0, self.length().into());
        self.checksum() == 0 || pseudo.bytes(datagram).is_valid()
    }
}

impl<'a, T: AsRef<[u8]> + ?Sized> Datagram<&'a T> {
    /// The message; shorter than claimed where the capture was cut.
    pub fn payload(&self) -> &'a [u8] {
        read::clamp(self.buffer.as_ref(), HEADER_LEN, self.length().into())
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Datagram<T> {
    /// Writes the port of the sender.
    pub fn set_source_port(&mut self, port: u16) {
        read::put(self.buffer.as_mut(), field::SOURCE.start, &port.to_be_bytes());
    }

    /// Writes the port of the receiver.
    pub fn set_destination_port(&mut self, port: u16) {
        read::put(self.buffer.as_mut(), field::DESTINATION.start, &port.to_be_bytes());
    }

    /// Writes the length of header and payload.
    pub fn set_length(&mut self, length: u16) {
        read::put(self.buffer.as_mut(), field::LENGTH.start, &length.to_be_bytes());
    }

    /// Writes a checksum.
    pub fn set_checksum(&mut self, checksum: u16) {
        read::put(self.buffer.as_mut(), field::CHECKSUM.start, &checksum.to_be_bytes());
    }

    /// Computes and writes the checksum over `pseudo` header and datagram; 0 becomes 0xffff.
    pub fn fill_checksum(&mut self, pseudo: Sum) {
        self.set_checksum(0);
        let datagram = read::clamp(self.buffer.as_ref(), 0, self.length().into());
        let checksum = pseudo.bytes(datagram).udp_checksum();
        self.set_checksum(checksum);
    }

    /// The bytes after the header, to the end of the buffer.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.buffer.as_mut().get_mut(HEADER_LEN..).unwrap_or(&mut [])
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Datagram<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = (self.source_port(), self.destination_port());
        write!(f, "UDP {source} > {destination} length {}", self.length())
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
    /// Reads a header.
    pub fn parse<T: AsRef<[u8]>>(datagram: &Datagram<T>) -> Self {
        Self { source_port: datagram.source_port(), destination_port: datagram.destination_port() }
    }

    /// Bytes that [`Repr::emit`] writes.
    pub const fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header at the start of `bytes`, which is the whole datagram: its length is that of
    /// `bytes`, and the checksum covers `pseudo` header, header and message.
    pub fn emit(&self, bytes: &mut [u8], pseudo: Sum) -> Result<()> {
        require(WHAT, bytes, HEADER_LEN)?;
        let length = u16::try_from(bytes.len())
            .map_err(|_| Error::Malformed { what: WHAT, why: "datagram over 65535 bytes" })?;
        let mut datagram = Datagram { buffer: bytes };
        datagram.set_source_port(self.source_port);
        datagram.set_destination_port(self.destination_port);
        datagram.set_length(length);
        datagram.fill_checksum(pseudo);
        Ok(())
    }
}
