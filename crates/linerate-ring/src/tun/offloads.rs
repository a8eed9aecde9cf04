//! [`Offloads`]: what the kernel may leave to the program that has the device.

use std::fmt;

/// What the kernel may leave to the program in the packets that it sends (`TUNSETOFFLOAD`). It does not limit
/// what the program may send to the kernel.
///
/// Segmentation leaves checksums partial, so each kind of it includes [`Offloads::CHECKSUM`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Offloads(pub u32);

impl Offloads {
    /// Nothing: packets are complete, and no longer than the MTU.
    pub const NONE: Self = Self(0);
    /// Checksums of TCP and UDP (`TUN_F_CSUM`).
    pub const CHECKSUM: Self = Self(libc::TUN_F_CSUM);
    /// Segmentation of TCP over IPv4 (`TUN_F_TSO4`).
    pub const TSO4: Self = Self(libc::TUN_F_TSO4 | libc::TUN_F_CSUM);
    /// Segmentation of TCP over IPv6 (`TUN_F_TSO6`).
    pub const TSO6: Self = Self(libc::TUN_F_TSO6 | libc::TUN_F_CSUM);
    /// CWR on the first segment only, so that TCP with ECN is left too (`TUN_F_TSO_ECN`). Of use
    /// beside TCP segmentation.
    pub const ECN: Self = Self(libc::TUN_F_TSO_ECN | libc::TUN_F_CSUM);
    /// Segmentation of UDP into datagrams, which the kernel has for both families or for none
    /// (`TUN_F_USO4`, `TUN_F_USO6`; Linux 6.2).
    pub const USO: Self = Self(libc::TUN_F_USO4 | libc::TUN_F_USO6 | libc::TUN_F_CSUM);
    /// All that, inside VXLAN, Geneve and other tunnels through UDP, outer checksum included
    /// (`TUN_F_UDP_TUNNEL_GSO` and `TUN_F_UDP_TUNNEL_GSO_CSUM`; Linux 6.17).
    pub const UDP_TUNNEL: Self = Self(0x80 | 0x100 | libc::TUN_F_CSUM);
    /// Everything above.
    pub const ALL: Self =
        Self(Self::TSO4.0 | Self::TSO6.0 | Self::ECN.0 | Self::USO.0 | Self::UDP_TUNNEL.0);

    /// Whether everything in `other` is in this.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// What is in one of them.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This without the segmentation in `other`; checksums stay.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !(other.0 & !libc::TUN_F_CSUM))
    }
}

impl fmt::Display for Offloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::CHECKSUM, "checksum"),
            (Self::TSO4, "TSO4"),
            (Self::TSO6, "TSO6"),
            (Self::ECN, "ECN"),
            (Self::USO, "USO"),
            (Self::UDP_TUNNEL, "UDP tunnels"),
        ];
        let mut separator = "";
        for (_, name) in names.iter().filter(|(offload, _)| self.contains(*offload)) {
            write!(f, "{separator}{name}")?;
            separator = ", ";
        }
        if separator.is_empty() { f.write_str("no offload") } else { Ok(()) }
    }
}

impl fmt::Debug for Offloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Offloads({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segmentation_brings_checksums_along_and_leaves_them() {
        for offload in [Offloads::TSO4, Offloads::TSO6, Offloads::USO, Offloads::UDP_TUNNEL] {
            assert!(offload.contains(Offloads::CHECKSUM));
            assert_eq!(offload.without(offload), Offloads::CHECKSUM);
        }
        let left = Offloads::ALL.without(Offloads::USO);
        assert!(!left.contains(Offloads::USO) && left.contains(Offloads::TSO6));
    }

    #[test]
    fn it_prints_in_one_line() {
        assert_eq!(Offloads::NONE.to_string(), "no offload");
        assert_eq!(Offloads::TSO4.union(Offloads::ECN).to_string(), "checksum, TSO4, ECN");
    }
}
