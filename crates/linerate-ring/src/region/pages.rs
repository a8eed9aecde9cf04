//! [`Pages`]: the kinds of memory pages that can be requested, and the size of a base page.

/// The kind of pages of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pages {
    /// The largest available: reserved huge pages, then transparent ones, then small ones.
    #[default]
    Auto,
    /// Reserved huge pages of the size that one page-middle-directory entry maps (2 MiB on x86-64).
    Hugetlb,
    /// Reserved huge pages of 1 GiB.
    HugetlbGigantic,
    /// Transparent huge pages, which the kernel uses if it has some.
    Transparent,
    /// The machine's base pages (4 KiB on x86-64), never merged into huge ones.
    Small,
}

linerate_net::named!(
    Pages, "kind of pages": Auto = "auto", HugetlbGigantic = "hugetlb-1g", Hugetlb = "hugetlb",
    Transparent = "thp", Small = "small"
);

/// Bytes in a base page of this machine.
pub(crate) fn base_page_size() -> usize {
    // SAFETY: sysconf has no precondition.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).expect("every Linux knows its page size")
}
