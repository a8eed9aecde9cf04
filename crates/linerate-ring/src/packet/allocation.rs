//! [`Allocation`]: what the kernel makes the blocks of a ring of, where it lets a program choose.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::str::FromStr;

use super::rules::{Kind, Request};
use super::socket::Socket;
use crate::region::{self, Pages};
use crate::{Error, Region, Result};

/// What the blocks of a ring are made of. All but the first take a kernel with the patches of `kernel/`,
/// and there the ring is of that memory or there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Allocation {
    /// What the kernel finds; whatever it is, the program's mapping is of base pages.
    #[default]
    Any,
    /// Reserved huge pages of the program, which the kernel uses.
    HugeTlb,
    /// Huge pages that the kernel looks for, mapped as such.
    TransparentHuge,
    /// Contiguous pages that are easily had.
    NoRetry,
    /// Single pages, contiguous by address only.
    Vzalloc,
    /// Contiguous pages, after reclaim and swap if need be.
    Retry,
}

/// `PACKET_HUGETLB_ENABLE` of the patches: lends memory for the next ring.
const LEND: libc::c_int = 72;

/// `struct tpacket_hugetlb` of the patches.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Lent {
    addr: u64,
    size: u64,
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

    /// The word that [`FromStr`] reads and [`Display`](fmt::Display) writes.
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

    /// Lends memory of this process for the next [`HugeTlb`](Self::HugeTlb) ring of a socket that somebody
    /// else made; a length of 0 takes back what was lent. What is wrong with the memory shows when the ring is
    /// set.
    ///
    /// # Errors
    /// The kernel's; `ENOPROTOOPT` where it gives no choice of memory.
    ///
    /// # Safety
    /// The kernel writes to the memory while the ring is set, and nobody may take it for their own meanwhile.
    pub unsafe fn lend(socket: RawFd, memory: *const u8, len: usize) -> io::Result<()> {
        let lent = Lent { addr: memory.addr() as u64, size: len as u64 };
        // SAFETY: the kernel reads the structure during the call; the memory is for the caller to answer for.
        let answer = unsafe {
            let size = size_of::<Lent>() as libc::socklen_t;
            libc::setsockopt(socket, libc::SOL_PACKET, LEND, (&raw const lent).cast(), size)
        };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// As many blocks or more, so that they fill whole huge pages where the kernel wants that.
    ///
    /// # Errors
    /// [`Error::Invalid`] for blocks that are no part of a huge page.
    pub(super) fn whole(self, block_size: u32, blocks: u32) -> Result<u32> {
        if !self.is_huge() || block_size == 0 {
            return Ok(blocks);
        }
        let huge = region::huge_page_size();
        if !huge.is_multiple_of(block_size as usize) {
            return Err(Error::Invalid(format!(
                "a ring of {self} memory has blocks that divide a huge page of {huge} bytes, not blocks of \
                 {block_size}"
            )));
        }
        let in_page = (huge / block_size as usize) as u32;
        Ok(blocks.checked_next_multiple_of(in_page).unwrap_or(u32::MAX))
    }

    /// Has the kernel make the ring, and gives the memory back that it is in, if that is the program's.
    /// What the kernel says against it is for the caller to tell, in the inner result.
    ///
    /// # Errors
    /// [`Error::RingMemory`] where the kernel gives no choice, [`Error::HugePages`] and the like.
    pub(super) fn set(
        self,
        socket: &Socket,
        request: Request,
        bytes: usize,
    ) -> Result<io::Result<Option<Region>>> {
        let option = self.option(request.kind != Kind::Receive);
        let kernel = request.to_kernel();
        if self == Self::Any {
            return Ok(socket.set(libc::SOL_PACKET, option, &kernel).map(|()| None));
        }
        let lend = |memory, len| {
            // SAFETY: a region that is dropped when the ring is.
            unsafe { Self::lend(socket.as_fd().as_raw_fd(), memory, len) }
        };
        // Nothing lent changes nothing, and tells whether there is a choice.
        lend(std::ptr::null(), 0).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOPROTOOPT) => Error::RingMemory(self),
            _ => Error::system("ask for a choice of the ring's memory", error),
        })?;
        let region = match self {
            Self::HugeTlb => Some(Region::builder(bytes).pages(Pages::Hugetlb).build()?),
            _ => None,
        };
        let lent = region
            .as_ref()
            .map_or(Ok(()), |region| lend(region.as_ptr().cast_const(), region.len()));
        let answer = lent.and_then(|()| socket.set(libc::SOL_PACKET, option, &kernel));
        Ok(answer.map(|()| region))
    }
}

impl fmt::Display for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Allocation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|one| one.word() == text).ok_or_else(|| {
            let words = Self::ALL.map(Self::word).join(", ");
            Error::Invalid(format!("unknown memory of a ring \"{text}\": choose one of {words}"))
        })
    }
}
