//! [`Memory`]: kernel memory that an instance's maps need, computed before allocation.

use std::fmt;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::MapType;

use crate::config::MAX_SESSIONS_RANGE;
use crate::maps::Maps;
use crate::runtime::program::{MapSpec, Options, map_specs};
use crate::{Error, Result};

/// The kernel's memory statistics (proc(5)).
const MEMINFO: &str = "/proc/meminfo";
/// Connections that conntrack tracks at most, of all network namespaces; there once conntrack is loaded.
const CONNTRACK_MAX: &str = "/proc/sys/net/netfilter/nf_conntrack_max";
/// The part of the machine's memory that `max-sessions auto` takes at most.
const AUTO_SHARE: u64 = 32;
/// Bytes of page table for each page, and bytes of a page. Each process that maps the table needs them, and
/// so does the kernel.
const ENTRY: u64 = 8;
const PAGE: u64 = 4096;

/// Bytes of kernel memory, by purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The requested capacity in sessions.
    pub sessions: u64,
    /// The maps, full.
    pub maps: u64,
    /// Page tables of the kernel and of a daemon.
    pub page_tables: u64,
}

impl Memory {
    /// The memory of all maps of programs with these options.
    ///
    /// # Errors
    /// As [`crate::runtime::program::Programs::load`].
    pub fn of(options: &Options) -> Result<Self> {
        let cpus = libbpf_rs::num_possible_cpus().unwrap_or(1) as u64;
        let map_specs = map_specs(options)?;
        let maps = map_specs.iter().map(|spec| of_spec(spec, cpus)).sum();
        let mapped: u64 =
            map_specs.iter().filter(|spec| spec.is_mapped()).map(MapSpec::bytes).sum();
        Ok(Self { sessions: options.max_sessions, maps, page_tables: 2 * mapped / PAGE * ENTRY })
    }

    /// The total in bytes.
    pub fn total(&self) -> u64 {
        self.maps + self.page_tables
    }

    /// Refuses more memory than is available now. The kernel might overcommit, and the OOM killer would then
    /// kill processes.
    ///
    /// # Errors
    /// [`Error::Invalid`] with how many sessions would fit; [`Error::System`] without `/proc`.
    pub fn check(&self) -> Result<()> {
        let text = fs::read_to_string(MEMINFO)
            .map_err(|error| Error::system(format!("read {MEMINFO}"), error))?;
        match field(&text, "MemAvailable:") {
            Some(available) => self.check_against(available),
            None => Ok(()),
        }
    }

    fn check_against(&self, available: u64) -> Result<()> {
        if self.total() <= available {
            return Ok(());
        }
        // Half as many sessions need half the memory.
        let halves = self.total().div_ceil(available.max(1)).next_power_of_two();
        Err(Error::Invalid(format!(
            "{self}, and the machine has {} available; max-sessions = {} would fit",
            Binary(available),
            self.sessions / halves
        )))
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "room for {} sessions takes {} of the kernel's memory (maps {}, page tables {})",
            self.sessions,
            Binary(self.total()),
            Binary(self.maps),
            Binary(self.page_tables)
        )
    }
}

/// The capacity of `max-sessions auto` on this machine, in sessions.
///
/// # Errors
/// As [`Memory::of`]; [`Error::System`] without `/proc`.
pub fn auto(options: &Options) -> Result<u64> {
    let meminfo = fs::read_to_string(MEMINFO)
        .map_err(|error| Error::system(format!("read {MEMINFO}"), error))?;
    let total = field(&meminfo, "MemTotal:").ok_or_else(|| {
        Error::Invalid(format!("{MEMINFO} does not say how much memory there is"))
    })?;
    let connections = fs::read_to_string(CONNTRACK_MAX).ok();
    let connections = connections.and_then(|text| text.trim().parse().ok());
    let sessions = auto_of(total, connections, options)?;
    tracing::info!(
        max_sessions = sessions,
        memory = %Binary(total),
        nf_conntrack_max = connections,
        "max-sessions auto: at most 1/{AUTO_SHARE} of the memory, and two sessions for each tracked connection"
    );
    Ok(sessions)
}

/// The same, of a machine with `total` bytes of memory that tracks at most this many connections: a power of two.
fn auto_of(total: u64, connections: Option<u64>, options: &Options) -> Result<u64> {
    // 0: unlimited (`__nf_conntrack_alloc`).
    let useful =
        connections.filter(|most| *most > 0).map_or(u64::MAX, |most| most.saturating_mul(2));
    let mut sessions = *MAX_SESSIONS_RANGE.start();
    while sessions < useful && 2 * sessions <= *MAX_SESSIONS_RANGE.end() {
        let twice = Memory::of(&Options { max_sessions: 2 * sessions, ..options.clone() })?;
        if twice.total() > total / AUTO_SHARE {
            break;
        }
        sessions *= 2;
    }
    Ok(sessions)
}

/// A number of [`MEMINFO`], in bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Bytes of a preallocated hash map beside its values: `struct htab_elem`, the head of a bucket, a pointer for each
/// CPU (kernel/bpf/hashtab.c).
const ELEMENT: u64 = 48;
const BUCKET: u64 = 16;
const POINTER: u64 = 8;

/// The memory of a full map, as the kernel computes it (`map_mem_usage` of each kind). Maps that allocate
/// their entries on demand count as empty, for instance deny lists.
fn of_spec(spec: &MapSpec, cpus: u64) -> u64 {
    let entries = u64::from(spec.entries);
    let value = u64::from(spec.value_size).next_multiple_of(8);
    let key = u64::from(spec.key_size).next_multiple_of(8);
    let buckets = BUCKET * entries.next_power_of_two();
    match spec.kind {
        MapType::Array if spec.is_mapped() => spec.bytes().next_multiple_of(PAGE) + PAGE,
        MapType::Array => spec.bytes(),
        MapType::PercpuArray => entries * (POINTER + value * cpus),
        MapType::Hash if spec.is_not_preallocated() => buckets,
        // One more for each CPU, for replaced values.
        MapType::Hash => (ELEMENT + key + value) * (entries + cpus) + POINTER * cpus + buckets,
        MapType::Devmap => POINTER * entries,
        _ => 0,
    }
}

/// Bytes of all these maps, as the kernel reports them.
///
/// # Errors
/// As [`of_map`].
pub(crate) fn of_maps(maps: &Maps) -> Result<u64> {
    maps.iter().map(|(_, map)| of_map(map.as_fd())).sum()
}

/// Bytes of this map, as the kernel reports them.
///
/// # Errors
/// [`Error::System`] where `/proc` is not mounted.
pub fn of_map(map: BorrowedFd<'_>) -> Result<u64> {
    let path = format!("/proc/thread-self/fdinfo/{}", map.as_raw_fd());
    let text =
        fs::read_to_string(&path).map_err(|error| Error::system(format!("read {path}"), error))?;
    let line = text.lines().find_map(|line| line.strip_prefix("memlock:"));
    let missing = || Error::Invalid(format!("{path} does not say what the map takes"));
    line.and_then(|line| line.trim().parse().ok()).ok_or_else(missing)
}

/// Formats bytes in the largest unit, with one decimal.
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
mod tests;
