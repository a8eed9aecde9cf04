//! The Internet checksum (RFC 1071), its incremental update (RFC 1624) and the pseudo headers of TCP,
//! UDP and ICMPv6 (RFC 9293 §3.1, RFC 8200 §8.1).
//!
//! [`Sum`] is the arithmetic; an [`Engine`] is the loop over many bytes, chosen by what the CPU has.
//! Who sums or copies many pieces in a row picks the engine once.

mod engine;
mod portable;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod simd;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use engine::Engine;

use crate::protocol::Protocol;

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
    pub const fn pseudo_v4(
        source: Ipv4Addr,
        destination: Ipv4Addr,
        protocol: Protocol,
        len: u16,
    ) -> Self {
        Self::ZERO
            .word32(source.to_bits())
            .word32(destination.to_bits())
            .word(protocol.0 as u16)
            .word(len)
    }

    /// The pseudo header of a packet between two IPv6 addresses; `len` is that of the transport
    /// header and payload in bytes.
    pub const fn pseudo_v6(
        source: Ipv6Addr,
        destination: Ipv6Addr,
        protocol: Protocol,
        len: u32,
    ) -> Self {
        Self::ZERO
            .word128(source.to_bits())
            .word128(destination.to_bits())
            .word(protocol.0 as u16)
            .word32(len)
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

    /// From a sum of words in the machine's own byte order.
    #[inline]
    const fn native(sum: u64) -> Self {
        // RFC 1071 §2(B): sums of swapped bytes are swapped sums.
        Self(fold(sum).to_be() as u64)
    }

    /// Adds bytes; a last odd byte counts as the high half of a word.
    #[inline]
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        self.plus(Engine::detect().sum(bytes))
    }

    /// Adds one 16-bit word.
    #[inline]
    #[must_use]
    pub const fn word(self, word: u16) -> Self {
        Self(self.0 + word as u64)
    }

    /// Adds two 16-bit words, the first in the upper half.
    #[inline]
    #[must_use]
    pub const fn word32(self, word: u32) -> Self {
        // 2^16 is 1 in ones' complement arithmetic of 16 bits, so the halves need not be taken apart.
        Self(self.0 + word as u64)
    }

    /// Adds eight 16-bit words, the first uppermost.
    const fn word128(self, word: u128) -> Self {
        self.word32((word >> 96) as u32)
            .word32((word >> 64) as u32)
            .word32((word >> 32) as u32)
            .word32(word as u32)
    }

    /// Adds another sum. All bytes that were added before, on this side, must be of an even number.
    #[inline]
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0 + fold(other.0) as u64)
    }

    /// The folded sum, not complemented.
    #[inline]
    pub const fn folded(self) -> u16 {
        fold(self.0)
    }

    /// The checksum of what was added.
    #[inline]
    pub const fn checksum(self) -> u16 {
        !fold(self.0)
    }

    /// The checksum as UDP sends it: 0 would mean "none", so 0xffff, which is the same number, goes
    /// in its place (RFC 768).
    #[inline]
    pub const fn udp_checksum(self) -> u16 {
        match self.checksum() {
            0 => 0xffff,
            checksum => checksum,
        }
    }

    /// Whether what was added contained its own right checksum.
    #[inline]
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

/// The halves of a number, each added to the other with the carry: their sum is in the upper one.
#[inline]
const fn fold(sum: u64) -> u16 {
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}
