//! [`Memory`]: reserved huge pages that are lent to the kernel for the rings of a socket.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use linerate_ring::region::huge_page_size;

use super::kernel;

/// All memory that was ever lent is between these addresses. Other memory, as of allocators, is unmapped
/// without a search of the sockets.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// Whether any of these addresses could be in memory that was lent.
pub(super) fn may_be_lent(address: usize, len: usize) -> bool {
    address < HIGHEST.load(Ordering::Relaxed)
        && LOWEST.load(Ordering::Relaxed) < address.saturating_add(len)
}

/// A mapping of huge pages. A child of `fork` shares it, as it shares the rings of a socket.
#[derive(Debug)]
pub(super) struct Memory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: an address and a length; nothing here reads or writes what is there.
unsafe impl Send for Memory {}

impl Memory {
    /// At least `len` bytes.
    pub(super) fn of(len: usize) -> io::Result<Self> {
        let page = huge_page_size();
        let len = len.checked_next_multiple_of(page).ok_or(io::ErrorKind::OutOfMemory)?;
        let size = (page.trailing_zeros() as libc::c_int) << libc::MAP_HUGE_SHIFT;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | size;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start = unsafe { kernel::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            return Err(match error.raw_os_error() {
                Some(libc::ENOMEM) => io::Error::other(format!(
                    "it takes {} free huge pages of {} MiB: reserve more, as with sysctl vm.nr_hugepages",
                    len / page,
                    page >> 20
                )),
                _ => error,
            });
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        LOWEST.fetch_min(start.addr().get(), Ordering::Relaxed);
        HIGHEST.fetch_max(start.addr().get() + len, Ordering::Relaxed);
        Ok(Self { start, len })
    }

    /// Whether any of these addresses is in it.
    pub(super) fn overlaps(&self, address: usize, len: usize) -> bool {
        let start = self.start.addr().get();
        address < start + self.len && start < address.saturating_add(len)
    }

    /// From the byte `offset` on.
    pub(super) fn from(&self, offset: usize) -> *mut u8 {
        self.start.as_ptr().wrapping_add(offset)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this library made the mapping, and the program has unmapped its own.
        unsafe { kernel::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
