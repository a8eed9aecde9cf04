//! The Internet checksum (RFC 1071), its incremental update (RFC 1624) and the pseudo headers of TCP,
//! UDP and ICMPv6 (RFC 9293 §3.1, RFC 8200 §8.1).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::ip::Protocol;

/// A ones' complement sum that is not yet folded into a checksum.
///
/// Sums are added up piece by piece; every piece but the last must have an even length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// Nothing summed yet.
    pub const ZERO: Self = Self(0);

    /// The pseudo header of a packet between two IPv4 addresses; `len` is that of the transport
    /// header and payload in bytes.
    pub fn pseudo_v4(
        source: Ipv4Addr,
        destination: Ipv4Addr,
        protocol: Protocol,
        len: u16,
    ) -> Self {
        Self::ZERO
            .bytes(&source.octets())
            .bytes(&destination.octets())
            .word(protocol.0.into())
            .word(len)
    }

    /// The pseudo header of a packet between two IPv6 addresses; `len` is that of the transport
    /// header and payload in bytes.
    pub fn pseudo_v6(
        source: Ipv6Addr,
        destination: Ipv6Addr,
        protocol: Protocol,
        len: u32,
    ) -> Self {
        Self::ZERO
            .bytes(&source.octets())
            .bytes(&destination.octets())
            .word(protocol.0.into())
            .bytes(&len.to_be_bytes())
    }

    /// The pseudo header between two addresses; `None` where one is IPv4 and the other IPv6.
    pub fn pseudo(
        source: IpAddr,
        destination: IpAddr,
        protocol: Protocol,
        len: u16,
    ) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Some(Self::pseudo_v4(source, destination, protocol, len))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Some(Self::pseudo_v6(source, destination, protocol, len.into()))
            }
            _ => None,
        }
    }

    /// Adds bytes; a last odd byte counts as the high half of a word.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        // Summing 32-bit pieces in the machine's own byte order into 64 bits cannot overflow below
        // 16 GiB, vectorises, and differs from the big-endian sum only by a byte swap at the end.
        let mut words = bytes.chunks_exact(4);
        let mut sum = 0_u64;
        for word in &mut words {
            sum += u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        }
        let rest = words.remainder();
        let mut last = [0_u8; 4];
        last[..rest.len()].copy_from_slice(rest);
        sum += u64::from(u32::from_ne_bytes(last));
        Self(self.0 + u64::from(u16::from_ne_bytes(fold(sum).to_be_bytes())))
    }

    /// Adds one 16-bit word.
    #[must_use]
    pub const fn word(self, word: u16) -> Self {
        Self(self.0 + word as u64)
    }

    /// Adds another sum of an even number of bytes.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0 + fold(other.0) as u64)
    }

    /// The folded sum, not complemented.
    pub const fn folded(self) -> u16 {
        fold(self.0)
    }

    /// The checksum of what was added.
    pub const fn checksum(self) -> u16 {
        !fold(self.0)
    }

    /// The checksum as UDP sends it: 0 would mean "none", so 0xffff, which is the same number, goes
    /// in its place (RFC 768).
    pub const fn udp_checksum(self) -> u16 {
        match self.checksum() {
            0 => 0xffff,
            checksum => checksum,
        }
    }

    /// Whether what was added contained its own right checksum.
    pub const fn is_valid(self) -> bool {
        fold(self.0) == 0xffff
    }
}

/// The checksum of `bytes`, in which the checksum field is zero.
pub fn of(bytes: &[u8]) -> u16 {
    Sum::ZERO.bytes(bytes).checksum()
}

/// Whether `bytes` contain their own right checksum.
pub fn verify(bytes: &[u8]) -> bool {
    Sum::ZERO.bytes(bytes).is_valid()
}

/// The checksum after one 16-bit word changed from `old` to `new` (RFC 1624, equation 3).
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(!checksum as u64 + !old as u64 + new as u64)
}

/// The checksum after a 32-bit word changed from `old` to `new`.
pub const fn update_u32(checksum: u16, old: u32, new: u32) -> u16 {
    let checksum = update(checksum, (old >> 16) as u16, (new >> 16) as u16);
    update(checksum, old as u16, new as u16)
}

const fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}
