//! The pools of reserved huge pages: how many are free, and the command that reserves more.

use std::fs;
use std::path::{Path, PathBuf};

use super::pages::Pages;
use crate::{Error, Result};

/// Bytes of one page of this kind. Transparent huge pages have the size of [`Pages::Hugetlb`].
pub(super) fn size(pages: Pages) -> usize {
    const TRANSPARENT: &str = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
    match pages {
        Pages::HugetlbGigantic => 1 << 30,
        _ => read(Path::new(TRANSPARENT)).map_or(2 << 20, |size| size as usize),
    }
}

/// The kinds that [`Pages::Auto`] tries before small pages, best first: pages of 1 GiB only where
/// the region is a whole number of them and somebody reserved some.
pub(super) fn worth_trying(len: usize) -> impl Iterator<Item = Pages> {
    let gigantic = Pool::new(Pages::HugetlbGigantic);
    let whole = len.is_multiple_of(size(Pages::HugetlbGigantic));
    let gigantic = (whole && gigantic.total() > 0).then_some(Pages::HugetlbGigantic);
    gigantic.into_iter().chain([Pages::Hugetlb, Pages::Transparent])
}

/// Checks that the pool can serve `len` bytes.
pub(super) fn check(len: usize, pages: Pages) -> Result<()> {
    let pool = Pool::new(pages);
    if !pool.dir.exists() {
        let why = "this machine has no huge pages of that size".to_owned();
        return Err(Error::Pages { pages, len, why });
    }
    let needed = len.div_ceil(pool.page_size) as u64;
    let available = pool.available();
    if available >= needed {
        return Ok(());
    }
    let command = pool.command(needed - available);
    Err(Error::HugePages { page_size: pool.page_size, needed, available, command })
}

/// One pool: of one page size.
struct Pool {
    dir: PathBuf,
    page_size: usize,
}

impl Pool {
    fn new(pages: Pages) -> Self {
        let page_size = size(pages);
        let dir = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", page_size / 1024);
        Self { dir: dir.into(), page_size }
    }

    /// Pages reserved for the pool, used or not.
    fn total(&self) -> u64 {
        self.count("nr_hugepages")
    }

    /// Pages that a new mapping can have: free, promised to nobody, or still to be added on demand.
    fn available(&self) -> u64 {
        let free = self.count("free_hugepages");
        let promised = self.count("resv_hugepages");
        let surplus =
            self.count("nr_overcommit_hugepages").saturating_sub(self.count("surplus_hugepages"));
        free.saturating_sub(promised) + surplus
    }

    /// What root types to add `shortage` pages.
    fn command(&self, shortage: u64) -> String {
        let total = self.total() + shortage;
        if default_size() == Some(self.page_size) {
            return format!("sysctl vm.nr_hugepages={total}");
        }
        format!("echo {total} > {}", self.dir.join("nr_hugepages").display())
    }

    fn count(&self, file: &str) -> u64 {
        read(&self.dir.join(file)).unwrap_or(0)
    }
}

/// The size that `vm.nr_hugepages` counts in.
fn default_size() -> Option<usize> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("Hugepagesize:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn read(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
