//! TCP headers with their options (RFC 9293).

use core::fmt;

use crate::checksum::Sum;
use crate::error::require;
use crate::{Error, Result, read};

/// Length of a header without options, in bytes.
pub const HEADER_LEN: usize = 20;

/// Length of a header with as many options as fit, in bytes.
pub const MAX_HEADER_LEN: usize = 60;

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
    pub(super) const CHECKSUM: Range<usize> = 16..18;
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

    /// These flags without those of `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl fmt::Display for Flags {
    /// tcpdump's letters: `S`, `F`, `P`, `R`, `U`, `E`, `W`, `e`, `.` for ACK; `none` for no flag.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LETTERS: [(Flags, &str); 9] = [
            (Flags::FIN, "F"),
            (Flags::SYN, "S"),
            (Flags::RST, "R"),
            (Flags::PSH, "P"),
            (Flags::ACK, "."),
            (Flags::URG, "U"),
            (Flags::ECE, "E"),
            (Flags::CWR, "W"),
            (Flags::AE, "e"),
        ];
        if self.0 & 0x1ff == 0 {
            return f.write_str("none");
        }
        LETTERS
            .iter()
            .filter(|(flag, _)| self.contains(*flag))
            .try_for_each(|(_, letter)| f.write_str(letter))
    }
}

/// A view of a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Segment<T> {
    /// A view of bytes that hold a complete header with its options.
    pub fn new_checked(buffer: T) -> Result<Self> {
        let bytes = buffer.as_ref();
        require(WHAT, bytes, HEADER_LEN)?;
        let header = usize::from(bytes[field::LEN_FLAGS.start] >> 4) * 4;
        if header < HEADER_LEN {
            return Err(Error::Malformed { what: WHAT, why: "header length under 20" });
        }
        require(WHAT, bytes, header)?;
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

    /// Number of the first byte of the payload.
    pub fn sequence(&self) -> u32 {
        read::u32(self.buffer.as_ref(), field::SEQUENCE)
    }

    /// Number of the byte that the sender expects next.
    pub fn acknowledgement(&self) -> u32 {
        read::u32(self.buffer.as_ref(), field::ACKNOWLEDGEMENT)
    }

    /// Length of the header with its options, `20..=60`.
    pub fn header_len(&self) -> usize {
        (usize::from(read::u8(self.buffer.as_ref(), field::LEN_FLAGS.start) >> 4) * 4)
            .max(HEADER_LEN)
    }

    /// The flags.
    pub fn flags(&self) -> Flags {
        Flags(read::u16(self.buffer.as_ref(), field::LEN_FLAGS) & 0x1ff)
    }

    /// Receive window, not scaled.
    pub fn window(&self) -> u16 {
        read::u16(self.buffer.as_ref(), field::WINDOW)
    }

    /// The checksum as it stands.
    pub fn checksum(&self) -> u16 {
        read::u16(self.buffer.as_ref(), field::CHECKSUM)
    }

    /// The urgent pointer.
    pub fn urgent(&self) -> u16 {
        read::u16(self.buffer.as_ref(), field::URGENT)
    }

    /// Whether the checksum over `pseudo` header and the whole buffer is right; the buffer must end
    /// where the segment does.
    pub fn verify_checksum(&self, pseudo: Sum) -> bool {
        pseudo.bytes(self.buffer.as_ref()).is_valid()
    }
}

impl<'a, T: AsRef<[u8]> + ?Sized> Segment<&'a T> {
    /// The options with their padding, as bytes.
    pub fn option_bytes(&self) -> &'a [u8] {
        read::clamp(self.buffer.as_ref(), HEADER_LEN, self.header_len())
    }

    /// The options one by one; ends at the end-of-list option and at the first malformed one.
    pub fn options(&self) -> Options<'a> {
        Options { rest: self.option_bytes() }
    }

    /// The bytes after the header.
    pub fn payload(&self) -> &'a [u8] {
        read::clamp(self.buffer.as_ref(), self.header_len(), usize::MAX)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Segment<T> {
    /// Writes the port of the sender.
    pub fn set_source_port(&mut self, port: u16) {
        read::put(self.buffer.as_mut(), field::SOURCE.start, &port.to_be_bytes());
    }

    /// Writes the port of the receiver.
    pub fn set_destination_port(&mut self, port: u16) {
        read::put(self.buffer.as_mut(), field::DESTINATION.start, &port.to_be_bytes());
    }

    /// Writes the number of the first byte.
    pub fn set_sequence(&mut self, number: u32) {
        read::put(self.buffer.as_mut(), field::SEQUENCE.start, &number.to_be_bytes());
    }

    /// Writes the number of the byte expected next.
    pub fn set_acknowledgement(&mut self, number: u32) {
        read::put(self.buffer.as_mut(), field::ACKNOWLEDGEMENT.start, &number.to_be_bytes());
    }

    /// Writes the flags, and leaves the header length as it is.
    pub fn set_flags(&mut self, flags: Flags) {
        let word = read::u16(self.buffer.as_ref(), field::LEN_FLAGS) & 0xfe00 | flags.0 & 0x1ff;
        read::put(self.buffer.as_mut(), field::LEN_FLAGS.start, &word.to_be_bytes());
    }

    /// Writes the receive window.
    pub fn set_window(&mut self, window: u16) {
        read::put(self.buffer.as_mut(), field::WINDOW.start, &window.to_be_bytes());
    }

    /// Writes the urgent pointer.
    pub fn set_urgent(&mut self, urgent: u16) {
        read::put(self.buffer.as_mut(), field::URGENT.start, &urgent.to_be_bytes());
    }

    /// Writes a checksum.
    pub fn set_checksum(&mut self, checksum: u16) {
        read::put(self.buffer.as_mut(), field::CHECKSUM.start, &checksum.to_be_bytes());
    }

    /// Computes and writes the checksum over `pseudo` header and the whole buffer, which must end
    /// where the segment does.
    pub fn fill_checksum(&mut self, pseudo: Sum) {
        self.set_checksum(0);
        self.set_checksum(pseudo.bytes(self.buffer.as_ref()).checksum());
    }

    /// The bytes after the header.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let header = self.header_len();
        self.buffer.as_mut().get_mut(header..).unwrap_or(&mut [])
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Segment<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = (self.source_port(), self.destination_port());
        write!(f, "TCP {source} > {destination} [{}] seq {}", self.flags(), self.sequence())?;
        if self.flags().contains(Flags::ACK) {
            write!(f, " ack {}", self.acknowledgement())?;
        }
        write!(f, " win {}", self.window())
    }
}

/// One option of a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// Padding.
    NoOperation,
    /// Largest segment that the sender takes, in bytes.
    MaximumSegmentSize(u16),
    /// Shift of the window (RFC 7323).
    WindowScale(u8),
    /// Selective acknowledgement is understood (RFC 2018).
    SackPermitted,
    /// Value and echo of the timestamp (RFC 7323).
    Timestamps(u32, u32),
    /// Another kind, with its data.
    Other(u8, &'a [u8]),
}

/// Iterator over the options of a header.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Options<'a> {
    type Item = TcpOption<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (&kind, after) = self.rest.split_first()?;
        if kind == 0 {
            self.rest = &[];
            return None;
        }
        if kind == 1 {
            self.rest = after;
            return Some(TcpOption::NoOperation);
        }
        let len = usize::from(*after.first()?);
        let Some(data) = self.rest.get(2..len) else {
            self.rest = &[];
            return None;
        };
        self.rest = &self.rest[len..];
        Some(match (kind, data.len()) {
            (2, 2) => TcpOption::MaximumSegmentSize(read::u16(data, 0..2)),
            (3, 1) => TcpOption::WindowScale(data[0]),
            (4, 0) => TcpOption::SackPermitted,
            (8, 8) => TcpOption::Timestamps(read::u32(data, 0..4), read::u32(data, 4..8)),
            _ => TcpOption::Other(kind, data),
        })
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
    /// Reads a header; options are not kept.
    pub fn parse<T: AsRef<[u8]>>(segment: &Segment<T>) -> Self {
        Self {
            source_port: segment.source_port(),
            destination_port: segment.destination_port(),
            sequence: segment.sequence(),
            acknowledgement: segment.acknowledgement(),
            flags: segment.flags(),
            window: segment.window(),
            urgent: segment.urgent(),
        }
    }

    /// Bytes that [`Repr::emit`] writes.
    pub const fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header at the start of `bytes`, with the checksum over `pseudo` header, header and
    /// everything behind it in `bytes`.
    pub fn emit(&self, bytes: &mut [u8], pseudo: Sum) -> Result<()> {
        require(WHAT, bytes, HEADER_LEN)?;
        bytes[field::LEN_FLAGS].copy_from_slice(&[0x50, 0]);
        let mut segment = Segment { buffer: bytes };
        segment.set_source_port(self.source_port);
        segment.set_destination_port(self.destination_port);
        segment.set_sequence(self.sequence);
        segment.set_acknowledgement(self.acknowledgement);
        segment.set_flags(self.flags);
        segment.set_window(self.window);
        segment.set_urgent(self.urgent);
        segment.fill_checksum(pseudo);
        Ok(())
    }
}
