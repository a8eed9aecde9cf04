//! Ethernet II frames (IEEE 802.3, without the frame check sequence, which Linux never shows).

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

use crate::error::require;
use crate::{Error, Result, read};

/// Length of the header in bytes: two addresses and the EtherType.
pub const HEADER_LEN: usize = 14;

const WHAT: &str = "Ethernet header";

mod field {
    use core::ops::Range;
    pub(super) const DESTINATION: Range<usize> = 0..6;
    pub(super) const SOURCE: Range<usize> = 6..12;
    pub(super) const ETHER_TYPE: Range<usize> = 12..14;
}

/// A six-byte hardware address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub [u8; 6]);

impl Address {
    /// All ones: everybody on the link.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// The address of an IP multicast group on the wire (RFC 1112 §6.4, RFC 2464 §7); `None` for another
    /// address.
    pub const fn of_group(group: IpAddr) -> Option<Self> {
        match group {
            IpAddr::V4(group) if group.is_multicast() => {
                let [_, b, c, d] = group.octets();
                Some(Self([0x01, 0x00, 0x5e, b & 0x7f, c, d]))
            }
            IpAddr::V6(group) if group.is_multicast() => {
                let [.., a, b, c, d] = group.octets();
                Some(Self([0x33, 0x33, a, b, c, d]))
            }
            _ => None,
        }
    }

    /// Sent to a group (the lowest bit of the first byte), which includes broadcast.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// Not given by a manufacturer (the second lowest bit of the first byte).
    pub const fn is_local(self) -> bool {
        self.0[0] & 2 == 2
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Address {
    type Err = Error;

    /// Six hexadecimal bytes with `:` or `-` between them.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = Error::Malformed {
            what: "MAC address",
            why: "expected six hexadecimal bytes, as 02:00:00:00:00:01",
        };
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next().ok_or(wrong)?;
            if part.is_empty() || part.len() > 2 || part.starts_with('+') {
                return Err(wrong);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong)?;
        }
        if parts.next().is_some() {
            return Err(wrong);
        }
        Ok(Self(bytes))
    }
}

/// What a frame carries. Values below 0x0600 are an 802.3 length, not a type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: Self = Self(0x0800);
    /// An Ethernet frame in a tunnel: transparent Ethernet bridging (RFC 1701, RFC 8926).
    pub const TEB: Self = Self(0x6558);
    /// ARP (RFC 826).
    pub const ARP: Self = Self(0x0806);
    /// A customer VLAN tag (IEEE 802.1Q).
    pub const VLAN: Self = Self(0x8100);
    /// IPv6 (RFC 2464).
    pub const IPV6: Self = Self(0x86dd);
    /// A session of PPPoE (RFC 2516).
    pub const PPPOE: Self = Self(0x8864);
    /// A service VLAN tag (IEEE 802.1ad, "Q in Q").
    pub const SERVICE_VLAN: Self = Self(0x88a8);

    /// Whether a VLAN tag follows.
    pub const fn is_tag(self) -> bool {
        matches!(self, Self::VLAN | Self::SERVICE_VLAN)
    }

    /// Whether the value is the length of an 802.3 frame with an LLC header instead of a type.
    pub const fn is_length(self) -> bool {
        self.0 < 0x0600
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::IPV4 => f.write_str("IPv4"),
            Self::IPV6 => f.write_str("IPv6"),
            Self::ARP => f.write_str("ARP"),
            Self::TEB => f.write_str("Ethernet"),
            Self::VLAN => f.write_str("802.1Q"),
            Self::SERVICE_VLAN => f.write_str("802.1ad"),
            Self(other) => write!(f, "0x{other:04x}"),
        }
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtherType({self})")
    }
}

/// A view of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a>(&'a [u8]);

impl<'a> Frame<'a> {
    /// A view of bytes that hold at least the header.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self> {
        require(WHAT, bytes, HEADER_LEN)?;
        Ok(Self(bytes))
    }

    /// Whom the frame is for.
    pub fn destination(&self) -> Address {
        Address(read::array(self.0, field::DESTINATION.start))
    }

    /// Who sent it.
    pub fn source(&self) -> Address {
        Address(read::array(self.0, field::SOURCE.start))
    }

    /// What follows the header: a tag where the frame has one.
    pub fn ether_type(&self) -> EtherType {
        EtherType(read::u16(self.0, field::ETHER_TYPE))
    }

    /// The bytes after the header.
    pub fn payload(&self) -> &'a [u8] {
        read::clamp(self.0, HEADER_LEN, usize::MAX)
    }
}

/// The header as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Whom the frame is for.
    pub destination: Address,
    /// Who sends it.
    pub source: Address,
    /// What follows.
    pub ether_type: EtherType,
}

impl Repr {
    /// Writes the header at the start of `bytes`.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<()> {
        require(WHAT, bytes, HEADER_LEN)?;
        read::put(bytes, field::DESTINATION.start, &self.destination.0);
        read::put(bytes, field::SOURCE.start, &self.source.0);
        read::put(bytes, field::ETHER_TYPE.start, &self.ether_type.0.to_be_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_the_addresses_of_their_rfcs() {
        for (group, address) in
            [("239.255.0.250", [1, 0, 0x5e, 0x7f, 0, 250]), ("ff02::1:2", [0x33, 0x33, 0, 1, 0, 2])]
        {
            assert_eq!(Address::of_group(group.parse().unwrap()), Some(Address(address)));
        }
        assert_eq!(Address::of_group("10.0.0.1".parse().unwrap()), None);
        assert_eq!(Address::of_group("fd00::1".parse().unwrap()), None);
    }
}
