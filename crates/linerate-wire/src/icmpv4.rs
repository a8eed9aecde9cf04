//! ICMP for IPv4 (RFC 792): the part that all messages share, and echo.

use core::fmt;

use crate::error::require;
use crate::{Result, checksum, read};

/// Length in bytes of the part that all messages share, rest-of-header included.
pub const HEADER_LEN: usize = 8;

const WHAT: &str = "ICMP header";

mod field {
    use core::ops::Range;
    pub(super) const TYPE: usize = 0;
    pub(super) const CODE: usize = 1;
    pub(super) const CHECKSUM: Range<usize> = 2..4;
    pub(super) const IDENTIFIER: Range<usize> = 4..6;
    pub(super) const SEQUENCE: Range<usize> = 6..8;
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Type(pub u8);

impl Type {
    /// Answer to an echo request.
    pub const ECHO_REPLY: Self = Self(0);
    /// A packet could not be delivered; the code says why.
    pub const UNREACHABLE: Self = Self(3);
    /// There is a better router.
    pub const REDIRECT: Self = Self(5);
    /// Asks for an answer.
    pub const ECHO_REQUEST: Self = Self(8);
    /// The time to live or of reassembly ran out.
    pub const TIME_EXCEEDED: Self = Self(11);
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ECHO_REPLY => f.write_str("echo reply"),
            Self::UNREACHABLE => f.write_str("unreachable"),
            Self::REDIRECT => f.write_str("redirect"),
            Self::ECHO_REQUEST => f.write_str("echo request"),
            Self::TIME_EXCEEDED => f.write_str("time exceeded"),
            Self(other) => write!(f, "type {other}"),
        }
    }
}

/// A view of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Message<T> {
    /// A view of bytes that hold at least the shared part.
    pub fn new_checked(buffer: T) -> Result<Self> {
        require(WHAT, buffer.as_ref(), HEADER_LEN)?;
        Ok(Self { buffer })
    }

    /// The bytes again.
    pub fn into_inner(self) -> T {
        self.buffer
    }

    /// What the message is about.
    pub fn message_type(&self) -> Type {
        Type(read::u8(self.buffer.as_ref(), field::TYPE))
    }

    /// More about it.
    pub fn code(&self) -> u8 {
        read::u8(self.buffer.as_ref(), field::CODE)
    }

    /// The checksum as it stands.
    pub fn checksum(&self) -> u16 {
        read::u16(self.buffer.as_ref(), field::CHECKSUM)
    }

    /// Identifier of an echo.
    pub fn identifier(&self) -> u16 {
        read::u16(self.buffer.as_ref(), field::IDENTIFIER)
    }

    /// Sequence number of an echo.
    pub fn sequence(&self) -> u16 {
        read::u16(self.buffer.as_ref(), field::SEQUENCE)
    }

    /// Whether the checksum over the whole buffer is right.
    pub fn verify_checksum(&self) -> bool {
        checksum::verify(self.buffer.as_ref())
    }
}

impl<'a, T: AsRef<[u8]> + ?Sized> Message<&'a T> {
    /// The bytes after the shared part.
    pub fn payload(&self) -> &'a [u8] {
        read::clamp(self.buffer.as_ref(), HEADER_LEN, usize::MAX)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Message<T> {
    /// Writes what the message is about.
    pub fn set_type(&mut self, message_type: Type, code: u8) {
        read::put(self.buffer.as_mut(), field::TYPE, &[message_type.0, code]);
    }

    /// Writes identifier and sequence number of an echo.
    pub fn set_echo(&mut self, identifier: u16, sequence: u16) {
        read::put(self.buffer.as_mut(), field::IDENTIFIER.start, &identifier.to_be_bytes());
        read::put(self.buffer.as_mut(), field::SEQUENCE.start, &sequence.to_be_bytes());
    }

    /// Computes and writes the checksum over the whole buffer.
    pub fn fill_checksum(&mut self) {
        read::put(self.buffer.as_mut(), field::CHECKSUM.start, &[0, 0]);
        let checksum = checksum::of(self.buffer.as_ref());
        read::put(self.buffer.as_mut(), field::CHECKSUM.start, &checksum.to_be_bytes());
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Message<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ICMP {}", self.message_type())?;
        match self.message_type() {
            Type::ECHO_REQUEST | Type::ECHO_REPLY => {
                write!(f, " id {} seq {}", self.identifier(), self.sequence())
            }
            _ => write!(f, " code {}", self.code()),
        }
    }
}

/// An echo request or reply as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Echo {
    /// A reply, not a request.
    pub reply: bool,
    /// Says whose echo it is.
    pub identifier: u16,
    /// Counts the requests.
    pub sequence: u16,
}

impl Echo {
    /// Reads a message; `None` where it is no echo.
    pub fn parse<T: AsRef<[u8]>>(message: &Message<T>) -> Option<Self> {
        let reply = match message.message_type() {
            Type::ECHO_REQUEST => false,
            Type::ECHO_REPLY => true,
            _ => return None,
        };
        Some(Self { reply, identifier: message.identifier(), sequence: message.sequence() })
    }

    /// Writes the header at the start of `bytes`, which is the whole message.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<()> {
        let mut message = Message::new_checked(bytes)?;
        message.set_type(if self.reply { Type::ECHO_REPLY } else { Type::ECHO_REQUEST }, 0);
        message.set_echo(self.identifier, self.sequence);
        message.fill_checksum();
        Ok(())
    }
}
