//! Messages of nftables (`include/uapi/linux/netfilter/nf_tables.h`): dumps of them, and their attributes.

use std::io;

use crate::netlink::{Message, Protocol, Socket, attribute, attributes, bytes_at};

/// Bytes of `struct nfgenmsg`.
pub(super) const HEADER: usize = 4;

// Attributes of chains.
pub(super) const CHAIN_TABLE: u16 = 1;
pub(super) const CHAIN_NAME: u16 = 3;
pub(super) const CHAIN_HOOK: u16 = 4;
pub(super) const HOOK_NUMBER: u16 = 1;

/// Attributes of a message, an expression or a nested attribute.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// Those of a message.
    pub(super) fn of(body: &'a [u8]) -> Self {
        Self(body.get(HEADER..).unwrap_or_default())
    }

    pub(super) fn get(self, kind: u16) -> Option<&'a [u8]> {
        attribute(self.0, kind)
    }

    /// The attributes in an attribute; none where there is no such.
    pub(super) fn nested(self, kind: u16) -> Self {
        Self(self.get(kind).unwrap_or_default())
    }

    /// A number in network order.
    pub(super) fn number(self, kind: u16) -> Option<u32> {
        bytes_at(self.get(kind)?, 0).map(u32::from_be_bytes)
    }

    /// A string without the zero at its end.
    pub(super) fn text(self, kind: u16) -> Option<&'a [u8]> {
        self.get(kind).map(text)
    }

    /// The bytes in data.
    pub(super) fn value(self, kind: u16) -> Option<&'a [u8]> {
        /// `NFTA_DATA_VALUE`
        const DATA_VALUE: u16 = 1;
        self.nested(kind).get(DATA_VALUE)
    }

    /// The attributes in each attribute, with the type of that.
    pub(super) fn each(self) -> impl Iterator<Item = (u16, Attributes<'a>)> {
        attributes(self.0).map(|(kind, value)| (kind, Attributes(value)))
    }

    /// The name of an expression, and its attributes.
    pub(super) fn expression(self) -> Option<(&'a [u8], Attributes<'a>)> {
        Some((self.text(1)?, self.nested(2)))
    }

    /// The expressions of a list.
    pub(super) fn expressions(self) -> impl Iterator<Item = (&'a [u8], Attributes<'a>)> {
        self.each().filter_map(|(_, one)| one.expression())
    }
}

/// A list of expressions, as an attribute holds it.
impl<'a> From<&'a [u8]> for Attributes<'a> {
    fn from(list: &'a [u8]) -> Self {
        Self(list)
    }
}

/// A string without the zero at its end.
pub(super) fn text(value: &[u8]) -> &[u8] {
    value.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Calls `each` with all objects that the kernel reports; `what` is an `NFT_MSG_GET*`.
pub(super) fn dump(
    what: libc::c_int,
    request: &[u8],
    each: impl FnMut(Message<'_>),
) -> io::Result<()> {
    let kind = (libc::NFNL_SUBSYS_NFTABLES as u16) << 8 | what as u16;
    match Socket::open(Protocol::Netfilter)?.dump(kind, request, each) {
        // A kernel without nftables.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
            Ok(())
        }
        other => other.map(drop),
    }
}
