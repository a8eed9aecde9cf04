//! [`Map`]: a ring in memory, and how the kernel is asked for the memory that an [`Allocation`] stands for.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::ptr::{self, NonNull};
use std::str::FromStr;

use super::allocation::Allocation;
use super::rules::{Kind, RingConfig};
use super::socket::Socket;
use crate::error::Size;
use crate::region::{self, Pages};
use crate::{Error, Region, Result};

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

    /// Lets the kernel create the ring, and returns its memory if the program owns it. The inner result is
    /// the kernel's refusal, which the caller reports.
    ///
    /// # Errors
    /// [`Error::RingMemory`] where the kernel gives no choice, [`Error::HugePages`] and the like.
    fn set(
        self,
        socket: &Socket,
        request: RingConfig,
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

impl Socket {
    /// Has the kernel allocate a ring and maps it. The request has been checked.
    pub(super) fn map(&self, request: RingConfig, interface: &str) -> Result<Map> {
        self.map_of(request, Allocation::Any, interface)
    }

    /// The same of chosen memory.
    pub(super) fn map_of(
        &self,
        request: RingConfig,
        allocation: Allocation,
        interface: &str,
    ) -> Result<Map> {
        let bytes = (request.block_size as usize).saturating_mul(request.blocks as usize);
        let action = || {
            format!(
                "allocate a ring of {} blocks of {} for interface {interface}",
                request.blocks,
                Size(u64::from(request.block_size))
            )
        };
        if let Some(available) = available_memory().filter(|available| bytes > *available) {
            return Err(Error::Invalid(format!(
                "cannot {}: that is more than the {} MiB of memory available",
                action(),
                available >> 20
            )));
        }
        self.set(libc::SOL_PACKET, libc::PACKET_VERSION, &request.kind.version())
            .map_err(|error| Error::system("choose the version of the ring", error))?;
        let made = allocation.set(self, request, bytes)?;
        let lent = made.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOMEM) => Error::Invalid(format!(
                "cannot {}: the kernel finds no memory for it, or for the list of its \
                 blocks; ask for fewer blocks",
                action()
            )),
            Some(libc::ENOBUFS) if allocation == Allocation::HugeTlb => Error::Invalid(format!(
                "cannot {}: huge pages of the program that the kernel uses are locked memory, and \
                 RLIMIT_MEMLOCK allows no more of that",
                action()
            )),
            _ => Error::system(action(), error),
        })?;
        if let Some(region) = lent {
            let start = NonNull::new(region.as_ptr()).expect("a region is nowhere at address zero");
            return Ok(Map { start, len: bytes, lent: Some(Box::new(region)) });
        }
        // SAFETY: a fresh shared mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                self.as_fd().as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(Error::last_os(format!("map the ring of interface {interface}")));
        }
        let start = NonNull::new(address.cast()).expect("mmap does not map address zero");
        Ok(Map { start, len: bytes, lent: None })
    }
}

/// The memory of a ring, shared with the kernel; unmapped on drop.
#[derive(Debug)]
pub(super) struct Map {
    start: NonNull<u8>,
    len: usize,
    /// The memory, where it is the program's: it unmaps itself, and the kernel keeps the pages for as long
    /// as the ring is there.
    lent: Option<Box<Region>>,
}

// SAFETY: a mapping belongs to the process, not to the thread that made it.
unsafe impl Send for Map {}
// SAFETY: `&Map` gives away the address only; who reads or writes there states why he may.
unsafe impl Sync for Map {}

impl Map {
    /// The byte at `offset`.
    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len);
        // SAFETY: the offset is inside the mapping.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        if self.lent.is_none() {
            // SAFETY: the mapping is ours, and borrows of its bytes borrow its owner.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

/// Bytes that the machine can give without swapping, as far as it says. The kernel itself would
/// take all it has for a ring, and then kill processes.
fn available_memory() -> Option<usize> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
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
