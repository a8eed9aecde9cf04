//! [`Memory`]: what the maps of an instance will take of the kernel's memory, told before it is taken.

use std::fmt;
use std::fs;

use crate::layout::{Bucket, Bucket6, Pending, Strays};
use crate::program::{Options, Sizes};
use crate::{Error, Result};

/// What the kernel says of its memory (proc(5)).
const MEMINFO: &str = "/proc/meminfo";
/// Bytes that a page table has for each page, and bytes of a page: each process that maps the table has them,
/// and so has the kernel.
const ENTRY: u64 = 8;
const PAGE: u64 = 4096;

/// Bytes of kernel memory, by what they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Sessions that there will be room for, as asked.
    pub sessions: u64,
    /// Sessions with their IPv6 addresses and counters; in the designs with hash maps an estimate.
    pub table: u64,
    /// What XDP leaves for the learner.
    pub pending: u64,
    /// Page tables of the kernel and of a daemon.
    pub page_tables: u64,
}

impl Memory {
    /// That of programs with these options.
    pub fn of(options: &Options) -> Self {
        let sizes = Sizes::of(options);
        let pending = u64::from(sizes.pending) * size_of::<Pending>() as u64;
        let each = size_of::<Bucket>() + size_of::<Bucket6>() + size_of::<Strays>();
        let mapped = u64::from(sizes.buckets) * each as u64;
        Self {
            sessions: options.max_sessions,
            table: if sizes.hashed > 1 { sizes.memory - pending - mapped } else { mapped },
            pending,
            page_tables: 2 * mapped / PAGE * ENTRY,
        }
    }

    /// All of it, bytes.
    pub fn total(&self) -> u64 {
        self.table + self.pending + self.page_tables
    }

    /// Refuses what the machine does not have now. The kernel might give it all the same, and then end
    /// processes for the want of it.
    ///
    /// # Errors
    /// [`Error::Invalid`] with how many sessions would fit; [`Error::System`] without `/proc`.
    pub fn check(&self) -> Result<()> {
        let text = fs::read_to_string(MEMINFO)
            .map_err(|error| Error::system(format!("read {MEMINFO}"), error))?;
        match available(&text) {
            Some(available) => self.check_against(available),
            None => Ok(()),
        }
    }

    fn check_against(&self, available: u64) -> Result<()> {
        if self.total() <= available {
            return Ok(());
        }
        // Sizes are powers of two: half as many take half, and so on.
        let halves = self.total().div_ceil(available.max(1)).next_power_of_two();
        Err(Error::Invalid(format!(
            "{self}, and the machine has {} available; --max-sessions {} would fit",
            Binary(available),
            self.sessions / halves
        )))
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "room for {} sessions takes {} of the kernel's memory (sessions {}, pending {}, page tables {})",
            self.sessions,
            Binary(self.total()),
            Binary(self.table),
            Binary(self.pending),
            Binary(self.page_tables)
        )
    }
}

/// `MemAvailable`, bytes.
fn available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Bytes to a tenth of the largest unit.
struct Binary(u64);

impl fmt::Display for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, name) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
            if self.0 >> unit > 0 {
                return write!(f, "{:.1} {name}", self.0 as f64 / f64::from(1u32 << unit));
            }
        }
        write!(f, "{} bytes", self.0)
    }
}

#[cfg(test)]
mod tests {
    use linerate_netns::root_or_skip;

    use super::*;
    use crate::program::Programs;
    use crate::table::Table;

    fn memory(max_sessions: u64) -> Memory {
        Memory::of(&Options { max_sessions, ..Options::default() })
    }

    #[test]
    fn what_is_told_is_what_the_maps_are() {
        root_or_skip!("what_is_told_is_what_the_maps_are");
        let options = Options { max_sessions: 4096, ..Options::default() };
        let programs = Programs::load(&options).unwrap();
        let told = Memory::of(&options);
        assert_eq!(told.table, Table::open(&programs.maps).unwrap().bytes() as u64);
        let size = |name: &str| {
            use libbpf_rs::MapCore;
            let map = programs.maps.get(name).unwrap();
            u64::from(map.max_entries()) * u64::from(map.value_size())
        };
        assert_eq!(told.pending, size("pending"));
        assert_eq!(told.table, size("table") + size("table6") + size("strays"));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        let most = memory(50_000_000);
        assert!(most.total() > 25 << 30 && most.total() < 35 << 30, "{most}");
        let said = most.check_against(20 << 30).unwrap_err().to_string();
        assert!(said.contains("room for 50000000 sessions takes"), "{said}");
        assert!(
            said.contains("has 20.0 GiB available; --max-sessions 25000000 would fit"),
            "{said}"
        );
        assert!(memory(25_000_000).check_against(20 << 30).is_ok());
        assert!(memory(1_000_000).check_against(1 << 30).is_ok(), "{}", memory(1_000_000));
    }

    #[test]
    fn the_kernels_text_is_read() {
        let text = "MemTotal: 9 kB\nMemAvailable:   23744384 kB\nBuffers: 1 kB\n";
        assert_eq!(available(text), Some(23_744_384 << 10));
        assert_eq!(available("MemTotal: 9 kB\n"), None);
        assert!(available(&fs::read_to_string(MEMINFO).unwrap()).is_some());
    }
}
