//! The header that goes before a frame which somebody else is to finish (virtio 1.2, §5.1.6;
//! `struct virtio_net_hdr` of `include/uapi/linux/virtio_net.h`): TUN and TAP devices, packet sockets
//! and virtual machines tell with it how to segment, and where a checksum is missing.
//!
//! It is not a header of the wire: it is read and written once, beside its frame, so that there is a
//! value and no view. Its numbers are in the byte order of the machine, as TUN devices and packet
//! sockets have them unless told otherwise.

use core::fmt;

use crate::error::require;
use crate::offload::PartialChecksum;
use crate::{Result, read};

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 10;

/// Length of the header with the count of merged buffers (`struct virtio_net_hdr_mrg_rxbuf`), which
/// neither TUN devices nor packet sockets fill in.
pub const MERGEABLE_HEADER_LEN: usize = 12;

/// Length of the header with the hash and the offsets of a tunnel
/// (`struct virtio_net_hdr_v1_hash_tunnel`, Linux 6.17).
pub const TUNNEL_HEADER_LEN: usize = 24;

const WHAT: &str = "virtio header";

mod field {
    pub(super) const FLAGS: usize = 0;
    pub(super) const GSO_TYPE: usize = 1;
    pub(super) const HDR_LEN: usize = 2;
    pub(super) const GSO_SIZE: usize = 4;
    pub(super) const CSUM_START: usize = 6;
    pub(super) const CSUM_OFFSET: usize = 8;
    pub(super) const OUTER_TH_OFFSET: usize = 20;
    pub(super) const INNER_NH_OFFSET: usize = 22;
}

/// What is known of the checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// The checksum field holds the sum of the pseudo header only. To be filled in: the checksum from
    /// [`Header::csum_start`] to the end (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
    pub const NEEDS_CSUM: Self = Self(1);
    /// Somebody checked the checksum, and it was right (`VIRTIO_NET_HDR_F_DATA_VALID`).
    pub const DATA_VALID: Self = Self(2);
    /// The outer UDP checksum of a tunnel is to be filled in for each segment
    /// (`VIRTIO_NET_HDR_F_UDP_TUNNEL_CSUM`).
    pub const UDP_TUNNEL_CSUM: Self = Self(8);

    /// Whether all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags of both.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// How the frame is to be segmented: a kind, and bits beside it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct GsoType(pub u8);

impl GsoType {
    /// Not at all.
    pub const NONE: Self = Self(0);
    /// TCP over IPv4 (`VIRTIO_NET_HDR_GSO_TCPV4`).
    pub const TCPV4: Self = Self(1);
    /// One UDP datagram in IP fragments, IPv4 or IPv6 (`VIRTIO_NET_HDR_GSO_UDP`).
    pub const UDP: Self = Self(3);
    /// TCP over IPv6 (`VIRTIO_NET_HDR_GSO_TCPV6`).
    pub const TCPV6: Self = Self(4);
    /// Many UDP datagrams, IPv4 or IPv6 (`VIRTIO_NET_HDR_GSO_UDP_L4`).
    pub const UDP_L4: Self = Self(5);

    /// Beside a kind: the packet is inside UDP over IPv4 (`VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV4`).
    pub const UDP_TUNNEL_IPV4: Self = Self(0x20);
    /// Beside a kind: the packet is inside UDP over IPv6 (`VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV6`).
    pub const UDP_TUNNEL_IPV6: Self = Self(0x40);
    /// Beside a kind of TCP: CWR is set, which belongs to the first segment alone
    /// (`VIRTIO_NET_HDR_GSO_ECN`).
    pub const ECN: Self = Self(0x80);

    /// The kind, without the bits beside it.
    pub const fn kind(self) -> Self {
        Self(self.0 & 0x1f)
    }

    /// The kind and bits of both.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all bits of `other` are set; for the bits, not for kinds.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Display for GsoType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.kind() {
            Self::NONE => "none",
            Self::TCPV4 => "TCPv4",
            Self::UDP => "UDP fragments",
            Self::TCPV6 => "TCPv6",
            Self::UDP_L4 => "UDP",
            Self(kind) => return write!(f, "kind {kind}"),
        };
        f.write_str(name)?;
        let bits = [
            (Self::UDP_TUNNEL_IPV4, "UDPv4"),
            (Self::UDP_TUNNEL_IPV6, "UDPv6"),
            (Self::ECN, "ECN"),
        ];
        let mut set = bits.iter().filter(|(bit, _)| self.contains(*bit));
        set.try_for_each(|(_, name)| write!(f, "+{name}"))
    }
}

impl fmt::Debug for GsoType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GsoType({self})")
    }
}

/// The header. The default says that the frame is finished.
///
/// Offsets count from the first byte of the frame that follows. A header that came from outside is a
/// claim: no offset has been compared with the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Header {
    /// What is known of the checksum.
    pub flags: Flags,
    /// How the frame is to be segmented.
    pub gso_type: GsoType,
    /// Bytes of all headers. A hint: the kernel itself gets it wrong for packets that it forwards.
    pub hdr_len: u16,
    /// Payload bytes of a segment, 0 without segmentation; for [`GsoType::UDP`], bytes of a fragment.
    pub gso_size: u16,
    /// Where the checksummed bytes start: at the transport header.
    pub csum_start: u16,
    /// Where the checksum stands, in bytes from `csum_start`.
    pub csum_offset: u16,
    /// Where the UDP header of a tunnel starts; 0 in a header under [`TUNNEL_HEADER_LEN`].
    pub outer_th_offset: u16,
    /// Where the IP header inside a tunnel starts; 0 in a header under [`TUNNEL_HEADER_LEN`].
    pub inner_nh_offset: u16,
}

impl Header {
    /// Reads a header from `bytes`, which are as long as the two sides agreed on.
    ///
    /// # Errors
    /// Fewer than [`HEADER_LEN`] bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        require(WHAT, bytes, HEADER_LEN)?;
        let word = |at| u16::from_ne_bytes(read::array(bytes, at));
        // The offsets of a tunnel are younger than virtio 1, and little-endian everywhere.
        let young = |at| u16::from_le_bytes(read::array(bytes, at));
        Ok(Self {
            flags: Flags(read::u8(bytes, field::FLAGS)),
            gso_type: GsoType(read::u8(bytes, field::GSO_TYPE)),
            hdr_len: word(field::HDR_LEN),
            gso_size: word(field::GSO_SIZE),
            csum_start: word(field::CSUM_START),
            csum_offset: word(field::CSUM_OFFSET),
            outer_th_offset: young(field::OUTER_TH_OFFSET),
            inner_nh_offset: young(field::INNER_NH_OFFSET),
        })
    }

    /// Writes the header over `bytes`, which are as long as the two sides agreed on. What
    /// this type does not have becomes zero; the offsets of a tunnel go into a long header only.
    ///
    /// # Errors
    /// Fewer than [`HEADER_LEN`] bytes.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<()> {
        require(WHAT, bytes, HEADER_LEN)?;
        bytes.fill(0);
        read::put(bytes, field::FLAGS, &[self.flags.0]);
        read::put(bytes, field::GSO_TYPE, &[self.gso_type.0]);
        read::put(bytes, field::HDR_LEN, &self.hdr_len.to_ne_bytes());
        read::put(bytes, field::GSO_SIZE, &self.gso_size.to_ne_bytes());
        read::put(bytes, field::CSUM_START, &self.csum_start.to_ne_bytes());
        read::put(bytes, field::CSUM_OFFSET, &self.csum_offset.to_ne_bytes());
        read::put(bytes, field::OUTER_TH_OFFSET, &self.outer_th_offset.to_le_bytes());
        read::put(bytes, field::INNER_NH_OFFSET, &self.inner_nh_offset.to_le_bytes());
        Ok(())
    }

    /// The header after `len` bytes were put in front of the frame: every offset is that much larger. Offsets
    /// that say nothing stay 0.
    #[inline]
    #[must_use]
    pub fn push(mut self, len: u16) -> Self {
        if self.flags.contains(Flags::NEEDS_CSUM) {
            self.csum_start = self.csum_start.saturating_add(len);
        }
        for offset in [&mut self.hdr_len, &mut self.outer_th_offset, &mut self.inner_nh_offset] {
            if *offset > 0 {
                *offset = offset.saturating_add(len);
            }
        }
        self
    }

    /// The header after the first `len` bytes of the frame were removed: every offset is that much smaller.
    #[inline]
    #[must_use]
    pub fn pull(mut self, len: u16) -> Self {
        let Self { hdr_len, csum_start, outer_th_offset, inner_nh_offset, .. } = &mut self;
        for offset in [hdr_len, csum_start, outer_th_offset, inner_nh_offset] {
            *offset = offset.saturating_sub(len);
        }
        self
    }

    /// The checksum that is not finished; `None` where the frame has none such.
    #[inline]
    pub fn partial_checksum(&self) -> Option<PartialChecksum> {
        let (start, offset) = (self.csum_start, self.csum_offset);
        self.flags.contains(Flags::NEEDS_CSUM).then_some(PartialChecksum { start, offset })
    }

    /// Whether the frame is a super-packet.
    pub const fn is_gso(&self) -> bool {
        self.gso_type.kind().0 != GsoType::NONE.0
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gso {}", self.gso_type)?;
        if self.is_gso() {
            write!(f, " of {}", self.gso_size)?;
        }
        if self.flags.contains(Flags::NEEDS_CSUM) {
            write!(f, ", checksum from {} at {}", self.csum_start, self.csum_offset)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
