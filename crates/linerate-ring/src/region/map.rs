//! [`Mapping`]: the system calls behind a region.

use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{self, MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};

use super::hugetlb;
use super::pages::{Pages, base_page_size};
use crate::error::Size;
use crate::{Error, Result};

/// `MADV_COLLAPSE` (Linux 6.1): make these pages huge now, regardless of the system-wide setting.
const MADV_COLLAPSE: libc::c_int = 25;
/// `MPOL_MF_STRICT`: fail if a page is already on another node.
const MPOL_MF_STRICT: libc::c_long = 1;

/// An anonymous private mapping, unmapped on drop.
///
/// It is between two inaccessible guard pages: an overrun faults instead of reaching another mapping, and the
/// kernel cannot merge it with another, so that it has its own entry in `/proc/self/smaps`.
#[derive(Debug)]
pub(super) struct Mapping {
    /// The whole reservation, guards included.
    outer: NonNull<u8>,
    outer_len: usize,
    start: NonNull<u8>,
    len: usize,
    /// The preferred node, and why the kernel refused it.
    preferred_node: Option<(u32, Option<io::Error>)>,
}

// SAFETY: a mapping belongs to the process, not to the thread that made it.
unsafe impl Send for Mapping {}
// SAFETY: through `&Mapping` only the address can be read; the region guards what lies there.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps at least `len` bytes of this kind of pages, of node `preferred_node` if possible, nothing touched yet.
    pub(super) fn new(len: usize, pages: Pages, preferred_node: Option<u32>) -> Result<Self> {
        let page_size = match pages {
            Pages::Hugetlb | Pages::HugetlbGigantic => hugetlb::size(pages),
            Pages::Transparent => hugetlb::size(Pages::Hugetlb),
            Pages::Auto | Pages::Small => base_page_size(),
        };
        let huge = matches!(pages, Pages::Hugetlb | Pages::HugetlbGigantic);
        let len = len.next_multiple_of(page_size);
        if huge {
            hugetlb::check(len, pages)?;
        }
        let mut mapping = Self::reserve(len, page_size)?;
        mapping.place(pages, page_size)?;
        mapping.preferred_node = preferred_node.map(|node| (node, mapping.prefer(node).err()));
        match pages {
            Pages::Transparent => mapping.advise(libc::MADV_HUGEPAGE).map_err(|error| {
                Error::Pages { pages, len, why: format!("this kernel has none ({error})") }
            })?,
            // A kernel without transparent huge pages refuses this, and has nothing to forbid.
            Pages::Small => drop(mapping.advise(libc::MADV_NOHUGEPAGE)),
            _ => {}
        }
        mapping.advise(libc::MADV_DONTFORK).map_err(|error| {
            Error::system(format!("keep {} of memory from children", Size(len as u64)), error)
        })?;
        Ok(mapping)
    }

    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Why the memory, which is on `node` if on one, is not on the preferred node.
    pub(super) fn why_elsewhere(&self, node: Option<u32>) -> Option<String> {
        match &self.preferred_node {
            Some((preferred_node, Some(error))) => {
                Some(format!("not on NUMA node {preferred_node}: the kernel refuses it ({error})"))
            }
            Some((preferred_node, None)) if node.is_some_and(|node| node != *preferred_node) => {
                Some(format!("not on NUMA node {preferred_node}, which has no such memory left"))
            }
            _ => None,
        }
    }

    /// Makes the kernel back every page now. It reports what it cannot back, where an access would end in a
    /// signal: a page of the pool that is free on another node only, a cgroup at its limit.
    pub(super) fn prefault(&self, pages: Pages) -> Result<()> {
        match self.advise(libc::MADV_POPULATE_WRITE) {
            Ok(()) => {}
            // Before Linux 5.14: locking populates too, and reports failure as well.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                self.lock()?;
                // SAFETY: the range is this mapping's.
                let _ = unsafe { mm::munlock(self.as_ptr().cast(), self.len) };
            }
            Err(error) => return Err(self.no_memory(pages, &error)),
        }
        if pages == Pages::Transparent {
            // Also where faults found no huge page, or the system-wide setting is `never`, the kernel may
            // still be able to compact. The result is read from smaps.
            let collapsed = self.advise(MADV_COLLAPSE);
            tracing::trace!(?collapsed, "MADV_COLLAPSE");
        }
        Ok(())
    }

    fn lock(&self) -> Result<()> {
        // SAFETY: the range is this mapping's.
        unsafe { mm::mlock(self.as_ptr().cast(), self.len) }
            .map_err(|errno| memlock_error(self.len, errno.into()))
    }

    /// Reserves address space for `len` bytes aligned to `align`, with a guard page on either side.
    fn reserve(len: usize, align: usize) -> Result<Self> {
        let guard = base_page_size();
        // Room to align; the guards come out of it, but for a base-page alignment that leaves none.
        let outer_len = len + align + 2 * guard;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let outer = unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            mm::mmap_anonymous(ptr::null_mut(), outer_len, ProtFlags::empty(), flags)
        };
        let outer = outer.map_err(|errno| {
            Error::system(format!("reserve {} of addresses", Size(len as u64)), errno.into())
        })?;
        let outer = NonNull::new(outer.cast::<u8>()).expect("mmap does not map address zero");
        let offset = (outer.addr().get() + guard).next_multiple_of(align) - outer.addr().get();
        // SAFETY: `offset` + `len` + `guard` is at most `outer_len`, so both stay inside.
        let start = unsafe { outer.add(offset) };
        Ok(Self { outer, outer_len, start, len, preferred_node: None })
    }

    /// Maps the pages into the reservation.
    fn place(&self, pages: Pages, page_size: usize) -> Result<()> {
        let mut flags = MapFlags::PRIVATE | MapFlags::FIXED;
        if matches!(pages, Pages::Hugetlb | Pages::HugetlbGigantic) {
            let size = page_size.trailing_zeros() << libc::MAP_HUGE_SHIFT;
            flags |= MapFlags::HUGETLB | MapFlags::from_bits_retain(size);
        }
        // SAFETY: MAP_FIXED replaces a part of our own reservation, which nothing uses yet.
        let placed = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            mm::mmap_anonymous(self.as_ptr().cast(), self.len, protection, flags)
        };
        placed.map(drop).map_err(|errno| self.no_memory(pages, &errno.into()))
    }

    /// Prefers `node` for pages that are touched from now on, if it has free ones.
    fn prefer(&self, node: u32) -> io::Result<()> {
        const BITS: u32 = u64::BITS;
        let mut mask = vec![0u64; (node / BITS + 1) as usize];
        mask[(node / BITS) as usize] = 1 << (node % BITS);
        // The kernel reads one bit less than it is told.
        let bits = mask.len() as u64 * u64::from(BITS) + 1;
        // SAFETY: the range is this mapping's, the mask has `bits - 1` bits.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.as_ptr(),
                self.len,
                libc::c_long::from(libc::MPOL_PREFERRED),
                mask.as_ptr(),
                bits as libc::c_ulong,
                MPOL_MF_STRICT,
            )
        };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        loop {
            // SAFETY: the range is this mapping's, and no advice used here discards content.
            if unsafe { libc::madvise(self.as_ptr().cast(), self.len, advice) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    fn no_memory(&self, pages: Pages, error: &io::Error) -> Error {
        let why = match pages {
            Pages::Hugetlb | Pages::HugetlbGigantic => format!(
                "the pool has enough, but this process cannot have them ({error}): \
                 its NUMA binding or the hugetlb limit of its cgroup is in the way"
            ),
            _ => format!("the kernel says: {error}"),
        };
        Error::Pages { pages, len: self.len, why }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the reservation is ours, and whoever held its address held a borrow of the
        // region or took the duty upon itself in an unsafe block of its own.
        let _ = unsafe { mm::munmap(self.outer.as_ptr().cast(), self.outer_len) };
    }
}

/// The error for `len` bytes that could not be locked.
pub(crate) fn memlock_error(len: usize, source: io::Error) -> Error {
    Error::MemoryLock { len, limit: getrlimit(Resource::Memlock).current, source }
}
