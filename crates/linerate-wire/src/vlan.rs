//! VLAN tags (IEEE 802.1Q and 802.1ad): four bytes between the addresses and the EtherType.
//!
//! The view starts *after* the tag's own EtherType (0x8100 or 0x88a8), as the payload of an Ethernet
//! frame does.

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
#[derive(Clone, Copy, Debug)]
pub struct Tag<'a>(&'a [u8]);

impl<'a> Tag<'a> {
    /// A view of bytes that hold at least the tag.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self> {
        require(WHAT, bytes, TAG_LEN)?;
        Ok(Self(bytes))
    }

    /// The VLAN, `0..=4095`.
    pub fn id(&self) -> u16 {
        read::u16(self.0, field::TCI) & 0x0fff
    }

    /// What follows the tag: another tag where there are two.
    pub fn ether_type(&self) -> EtherType {
        EtherType(read::u16(self.0, field::ETHER_TYPE))
    }
}

/// The tag as a value, of the lowest priority and not to be dropped before others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// The VLAN, `0..=4095`.
    pub id: u16,
    /// What follows the tag.
    pub ether_type: EtherType,
}

impl Repr {
    /// Writes the tag at the start of `bytes`.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<()> {
        if self.id > 0x0fff {
            return Err(Error::Malformed { what: WHAT, why: "identifier over 4095" });
        }
        require(WHAT, bytes, TAG_LEN)?;
        read::put(bytes, field::TCI.start, &self.id.to_be_bytes());
        read::put(bytes, field::ETHER_TYPE.start, &self.ether_type.0.to_be_bytes());
        Ok(())
    }
}
