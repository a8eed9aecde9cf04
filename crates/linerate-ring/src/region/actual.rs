//! [`ActualPages`]: the pages that the kernel actually used, from `/proc/self/smaps`.

use std::fmt;
use std::fs;

use super::map::Mapping;
use super::pages::{Pages, base_page_size};
use super::{hugetlb, numa};
use crate::error::Size;
use crate::{Error, Result};

/// What a region is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActualPages {
    /// The kind of pages; never [`Pages::Auto`]. [`Pages::Transparent`] when at least one
    /// transparent huge page is in it.
    pub pages: Pages,
    /// Bytes of the largest page in the region.
    pub page_size: usize,
    /// Bytes of the region that huge pages back; less than the whole only with
    /// [`Pages::Transparent`].
    pub huge_bytes: usize,
    /// Bytes of the whole region.
    pub len: usize,
    /// The NUMA node of every page; `None` when they are spread or the kernel has no nodes.
    pub node: Option<u32>,
    /// Why it is not the preferred node; `None` if it is, as far as the kernel reports, and if none was preferred.
    pub elsewhere: Option<String>,
    /// The better kinds that [`Pages::Auto`] tried without success, best first.
    pub refusals: Vec<Refusal>,
}

/// A kind of pages that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind.
    pub pages: Pages,
    /// Why not, with the remedy where there is one.
    pub why: String,
}

impl fmt::Display for ActualPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {} pages", Size(self.len as u64), self.pages)?;
        write!(f, " of {}", Size(self.page_size as u64))?;
        if self.pages == Pages::Transparent && self.huge_bytes < self.len {
            write!(f, " (huge: {})", Size(self.huge_bytes as u64))?;
        }
        if let Some(node) = self.node {
            write!(f, ", node {node}")?;
        }
        if let Some(why) = &self.elsewhere {
            write!(f, "; {why}")?;
        }
        self.refusals.iter().try_for_each(|refusal| write!(f, "; {refusal}"))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not {}: {}", self.pages, self.why)
    }
}

impl ActualPages {
    /// Reads the kernel's data about a prefaulted mapping.
    pub(super) fn read(mapping: &Mapping, refusals: Vec<Refusal>) -> Result<Self> {
        const SMAPS: &str = "/proc/self/smaps";
        let smaps = fs::read_to_string(SMAPS)
            .map_err(|error| Error::system(format!("read {SMAPS}"), error))?;
        let start = mapping.as_ptr().addr();
        let entry = Entry::find(&smaps, start).ok_or_else(|| {
            Error::Invalid(format!("{SMAPS} does not list the mapping at {start:x}"))
        })?;
        let gigantic = hugetlb::size(Pages::HugetlbGigantic);
        let (pages, page_size, huge_bytes) = if entry.page_size >= gigantic {
            (Pages::HugetlbGigantic, entry.page_size, mapping.len())
        } else if entry.page_size > base_page_size() {
            (Pages::Hugetlb, entry.page_size, mapping.len())
        } else if entry.anon_huge > 0 {
            (Pages::Transparent, hugetlb::size(Pages::Transparent), entry.anon_huge)
        } else {
            (Pages::Small, entry.page_size, 0)
        };
        let node = numa::node_of_mapping(start);
        let elsewhere = mapping.why_elsewhere(node);
        let len = mapping.len();
        Ok(Self { pages, page_size, huge_bytes, len, node, elsewhere, refusals })
    }
}

/// Why there is no transparent huge page, as far as the kernel reports.
pub(super) fn why_no_transparent() -> String {
    const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let Ok(enabled) = fs::read_to_string(ENABLED) else {
        return "this kernel has none".to_owned();
    };
    if enabled.contains("[never]") {
        return format!("they are switched off; allow them with: echo madvise > {ENABLED}");
    }
    let failed = fs::read_to_string("/proc/vmstat").ok().and_then(|vmstat| {
        let line = vmstat.lines().find_map(|line| line.strip_prefix("thp_fault_fallback "))?;
        line.trim().parse::<u64>().ok()
    });
    format!(
        "no contiguous memory was found (thp_fault_fallback in /proc/vmstat: {}); \
         compact it with: echo 1 > /proc/sys/vm/compact_memory",
        failed.unwrap_or(0)
    )
}

/// The lines of smaps about one mapping.
#[derive(Debug, Default, PartialEq, Eq)]
struct Entry {
    page_size: usize,
    anon_huge: usize,
}

impl Entry {
    /// The entry of the mapping that starts at `start`.
    fn find(smaps: &str, start: usize) -> Option<Self> {
        let mut lines = smaps.lines();
        lines.find(|line| header(line) == Some(start))?;
        let mut entry = Self::default();
        for line in lines.take_while(|line| header(line).is_none()) {
            let (key, value) = line.split_once(':')?;
            match key {
                "KernelPageSize" => entry.page_size = kib(value)?,
                "AnonHugePages" => entry.anon_huge = kib(value)?,
                _ => {}
            }
        }
        (entry.page_size > 0).then_some(entry)
    }
}

/// The start address, if this line begins an entry: `7f00-7f80 rw-p ...`.
fn header(line: &str) -> Option<usize> {
    let (range, _) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    usize::from_str_radix(end, 16).ok()?;
    usize::from_str_radix(start, 16).ok()
}

/// Bytes in `  123 kB`.
fn kib(value: &str) -> Option<usize> {
    let kib: usize = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \n\
Size:               4096 kB\nKernelPageSize:        4 kB\nAnonHugePages:      2048 kB\n\
VmFlags: rd wr mr mw me lo ac sd hg \n\
7f0000600000-7f0000800000 rw-p 00000000 00:0f 7 /anon_hugepage (deleted)\n\
Size:               2048 kB\nKernelPageSize:     2048 kB\nAnonHugePages:         0 kB\n\
VmFlags: rd wr mr mw me de ht \n";

    #[test]
    fn an_entry_ends_where_the_next_begins() {
        let first = Entry::find(SMAPS, 0x7f00_0000_0000);
        let expected = Entry { page_size: 4096, anon_huge: 2 << 20 };
        assert_eq!(first, Some(expected));
        let second = Entry::find(SMAPS, 0x7f00_0060_0000);
        assert_eq!(second, Some(Entry { page_size: 2 << 20, anon_huge: 0 }));
        assert_eq!(Entry::find(SMAPS, 0x1000), None);
    }
}
