//! VLAN tags (IEEE 802.1Q and 802.1ad): four bytes between the addresses and the EtherType.
//!
//! The view starts *after* the tag's own EtherType (0x8100 or 0x88a8), as the payload of an Ethernet
//! frame does.

use core::fmt;

use crate::error::require;
use crate::ethernet::EtherType;
use crate::{Error, Result, read};

/// Bytes that a tag adds to a frame.
pub const TAG_LEN: usize = 4;

/// The largest VLAN identifier that may carry frames; 4095 is reserved.
pub const MAX_ID: u16 = 4094;

const WHAT: &str = "VLAN tag";

mod field {
    use core::ops::Range;
    pub(super) const TCI: Range<usize> = 0..2;
    pub(super) const ETHER_TYPE: Range<usize> = 2..4;
}

/// A view of the tag control information and the EtherType after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Tag<T> {
    /// A view of bytes that hold at least the tag.
    pub fn new_checked(buffer: T) -> Result<Self> {
        require(WHAT, buffer.as_ref(), TAG_LEN)?;
        Ok(Self { buffer })
    }

    /// The bytes again.
    pub fn into_inner(self) -> T {
        self.buffer
    }

    /// The tag control information (TCI), all sixteen bits.
    pub fn tci(&self) -> u16 {
        read::u16(self.buffer.as_ref(), field::TCI)
    }

    /// The VLAN, `0..=4095`; 0 carries a priority only.
    pub fn id(&self) -> u16 {
        self.tci() & 0x0fff
    }

    /// The priority code point, `0..=7`.
    pub fn priority(&self) -> u8 {
        (self.tci() >> 13) as u8
    }

    /// The frame may be dropped before others.
    pub fn drop_eligible(&self) -> bool {
        self.tci() & 0x1000 != 0
    }

    /// What follows the tag: another tag where there are two.
    pub fn ether_type(&self) -> EtherType {
        EtherType(read::u16(self.buffer.as_ref(), field::ETHER_TYPE))
    }
}

impl<'a, T: AsRef<[u8]> + ?Sized> Tag<&'a T> {
    /// The bytes after the tag.
    pub fn payload(&self) -> &'a [u8] {
        read::clamp(self.buffer.as_ref(), TAG_LEN, usize::MAX)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Tag<T> {
    /// Writes the tag control information, all sixteen bits.
    pub fn set_tci(&mut self, tci: u16) {
        read::put(self.buffer.as_mut(), field::TCI.start, &tci.to_be_bytes());
    }

    /// Writes the EtherType that follows.
    pub fn set_ether_type(&mut self, ether_type: EtherType) {
        read::put(self.buffer.as_mut(), field::ETHER_TYPE.start, &ether_type.0.to_be_bytes());
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Tag<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vlan {} p {} {}", self.id(), self.priority(), self.ether_type())
    }
}

/// The tag as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// The VLAN, `0..=4095`.
    pub id: u16,
    /// The priority code point, `0..=7`.
    pub priority: u8,
    /// The frame may be dropped before others.
    pub drop_eligible: bool,
    /// What follows the tag.
    pub ether_type: EtherType,
}

impl Repr {
    /// Reads a tag.
    pub fn parse<T: AsRef<[u8]>>(tag: &Tag<T>) -> Self {
        Self {
            id: tag.id(),
            priority: tag.priority(),
            drop_eligible: tag.drop_eligible(),
            ether_type: tag.ether_type(),
        }
    }

    /// Bytes that [`Repr::emit`] writes.
    pub const fn header_len(&self) -> usize {
        TAG_LEN
    }

    /// Writes the tag at the start of `bytes`.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<()> {
        if self.id > 0x0fff || self.priority > 7 {
            return Err(Error::Malformed {
                what: WHAT,
                why: "identifier over 4095 or priority over 7",
            });
        }
        let mut tag = Tag::new_checked(bytes)?;
        let eligible = u16::from(self.drop_eligible) << 12;
        tag.set_tci(u16::from(self.priority) << 13 | eligible | self.id);
        tag.set_ether_type(self.ether_type);
        Ok(())
    }
}
