//! [`Region`]: a memory mapping that knows its actual pages.
//!
//! User-space rings are in regions: the UMEM of an AF_XDP socket, buffers of a writer, frames loaded for a
//! replay. Large pages save translations in the data TLB (Trivelloni 2018, chapter 6), but a kernel out of
//! contiguous memory silently falls back to small pages. So a region reads its actual pages from
//! `/proc/self/smaps` and reports them in [`Region::actual_pages`].
//!
//! A region is written to by the kernel before it is handed out (prefaulted), so no later access faults, and
//! no access raises SIGBUS because huge pages ran out.

mod actual;
mod hugetlb;
mod map;
mod numa;
pub(crate) mod pages;
#[cfg(test)]
mod tests;

pub use actual::{ActualPages, Refusal};
pub use pages::Pages;

pub(crate) use map::memlock_error;
pub(crate) use pages::base_page_size;

use std::slice;

use crate::{Error, Result};
use map::Mapping;

/// Anonymous memory of one process: prefaulted, page-aligned, not inherited by `fork`, with its
/// page size known.
#[derive(Debug)]
pub struct Region {
    mapping: Mapping,
    actual: ActualPages,
}

impl Region {
    /// A region of at least `len` bytes in whole pages of this kind. On a NUMA node (see
    /// [`linerate_net::link::numa_node`]) if one is preferred: others are used if it has no free pages, or this process
    /// may not use it, as in a cpuset without it. [`ActualPages::elsewhere`] then says why.
    ///
    /// # Errors
    /// [`Error::Invalid`] for no bytes, [`Error::HugePages`] when too few are reserved, [`Error::Pages`] when the kernel
    /// cannot give the kind asked for, [`Error::MemoryLock`] before Linux 5.14 beyond `RLIMIT_MEMLOCK`,
    /// [`Error::System`] for the rest.
    pub fn new(len: usize, pages: Pages, preferred_node: Option<u32>) -> Result<Self> {
        if len == 0 || len > isize::MAX as usize / 2 {
            return Err(Error::Invalid(format!("a region of {len} bytes makes no sense")));
        }
        if pages != Pages::Auto {
            return Self::attempt(len, pages, preferred_node, Vec::new());
        }
        let mut refusals = Vec::new();
        for pages in hugetlb::worth_trying(len) {
            match Self::attempt(len, pages, preferred_node, refusals.clone()) {
                Err(error @ (Error::HugePages { .. } | Error::Pages { .. })) => {
                    tracing::debug!(%pages, %error, "region: trying the next kind of pages");
                    refusals.push(Refusal { pages, why: error.to_string() });
                }
                other => return other,
            }
        }
        Self::attempt(len, Pages::Small, preferred_node, refusals)
    }

    /// Maps, binds and prefaults one kind of pages, and reads back the result.
    fn attempt(
        len: usize,
        pages: Pages,
        preferred_node: Option<u32>,
        refusals: Vec<Refusal>,
    ) -> Result<Self> {
        let mapping = Mapping::new(len, pages, preferred_node)?;
        mapping.prefault(pages)?;
        let actual = ActualPages::read(&mapping, refusals)?;
        if pages == Pages::Transparent && actual.huge_bytes == 0 {
            return Err(Error::Pages { pages, len, why: actual::why_no_transparent() });
        }
        Ok(Self { mapping, actual })
    }

    /// Bytes in the region: whole pages, at least the requested size.
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Whether the region holds no byte; it never is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first byte, aligned to the actual page size. Valid for reads and writes of [`Region::len`] bytes
    /// until the region is dropped, wherever the region itself is moved.
    pub fn as_ptr(&self) -> *mut u8 {
        self.mapping.as_ptr()
    }

    /// The bytes; zero until somebody writes to them. There is no such view behind a shared
    /// reference, since that is what everybody has while the kernel writes to the region.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is `len` readable, initialised bytes for as long as `self` lives, and
        // `&mut self` keeps every other safe access away.
        unsafe { slice::from_raw_parts_mut(self.as_ptr(), self.len()) }
    }

    /// The pages that the kernel actually used.
    pub fn actual_pages(&self) -> &ActualPages {
        &self.actual
    }
}
