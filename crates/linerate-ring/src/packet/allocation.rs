//! [`Allocation`]: how the kernel allocates ring blocks, if the program can choose.

use std::fmt;

/// How the blocks of a ring are allocated. All but the first need a kernel with the patches of `kernel/`, and
/// there is no fallback to other memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Allocation {
    /// The kernel's choice; the program's mapping always has base pages.
    #[default]
    Any,
    /// Reserved huge pages of the program, which the kernel uses.
    HugeTlb,
    /// Transparent huge pages, mapped as such.
    TransparentHuge,
    /// Contiguous pages, without reclaim.
    NoRetry,
    /// Virtually contiguous pages.
    Vzalloc,
    /// Contiguous pages, after reclaim and swap if need be.
    Retry,
}

impl Allocation {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::Any,
        Self::HugeTlb,
        Self::TransparentHuge,
        Self::NoRetry,
        Self::Vzalloc,
        Self::Retry,
    ];

    /// The word that [`FromStr`](std::str::FromStr) reads and [`Display`](fmt::Display) writes.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::HugeTlb => "hugetlb",
            Self::TransparentHuge => "transhuge",
            Self::NoRetry => "noretry",
            Self::Vzalloc => "vzalloc",
            Self::Retry => "retry",
        }
    }

    /// Whether the program's mapping is of huge pages.
    pub const fn is_huge(self) -> bool {
        matches!(self, Self::HugeTlb | Self::TransparentHuge)
    }

    /// The option of `SOL_PACKET` that sets a ring of this memory: that of the stock kernel, or the patches'
    /// own. For rings in this process that somebody else maps.
    pub const fn option(self, transmit: bool) -> libc::c_int {
        let receive = match self {
            Self::Any if transmit => return libc::PACKET_TX_RING,
            Self::Any => return libc::PACKET_RX_RING,
            Self::NoRetry => 64,
            Self::Vzalloc => 66,
            Self::Retry => 68,
            Self::TransparentHuge => 70,
            Self::HugeTlb => 73,
        };
        receive + transmit as libc::c_int
    }
}

impl fmt::Display for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}
