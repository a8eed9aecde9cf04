//! [`SharedCounters`]: rows of counters in a memory file (memfd_create(2)) that several processes map.
//!
//! A process with the descriptor adds to them without a system call. Another process, with other privileges, can read
//! them at any time, even after the first has ended.

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use linerate_bpf::map::{ProtFlags, SharedMapping};
use rustix::fs::{self, MemfdFlags, SealFlags};

use crate::{Error, Result};

/// Counters in a row.
pub const COLUMNS: usize = 27;
/// The most bytes of a label.
pub const MAX_LABEL: usize = LABEL_WORDS * size_of::<u64>();

const LABEL_WORDS: usize = 4;
/// Rows with labels. A row without a label precedes them.
const ROWS: usize = 63;
/// The state of the first row, which identifies a file of this module and layout.
const MAGIC: u64 = u64::from_be_bytes(*b"linerat1");

/// States of the other rows.
const FREE: u64 = 0;
/// Its label is being written. If the writer is killed, the row keeps this state.
const CLAIMED: u64 = 1;
const LABELLED: u64 = 2;

const NAME: &CStr = c"linerate-counters";
/// Nobody may shrink the file: access to memory after its end would raise SIGBUS.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

#[repr(C, align(64))]
struct Row {
    state: AtomicU64,
    label: [AtomicU64; LABEL_WORDS],
    counts: [AtomicU64; COLUMNS],
}

type Rows = [Row; ROWS + 1];

/// The mapped rows.
#[derive(Debug)]
pub struct SharedCounters(SharedMapping);

impl SharedCounters {
    /// Creates a file without labels. Processes that inherit or receive the descriptor can map it.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn create() -> Result<(Self, OwnedFd)> {
        let make = || {
            let file = fs::memfd_create(NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            fs::ftruncate(&file, size_of::<Rows>() as u64)?;
            fs::fcntl_add_seals(&file, SEALS)?;
            Ok(file)
        };
        let file = make().map_err(|error: io::Error| failed("create", error))?;
        let counters = Self::map(&file)?;
        counters.rows()[0].state.store(MAGIC, Release);
        Ok((counters, file))
    }

    /// Maps the file of [`SharedCounters::create`]. The mapping stays when the descriptor is closed.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is another file; the error of the kernel.
    pub fn open(file: impl AsFd) -> Result<Self> {
        let other = || Error::Invalid("the descriptor is not that of shared counters".to_owned());
        // Only memory files have seals.
        let seals = fs::fcntl_get_seals(&file).map_err(|_| other())?;
        let stat = fs::fstat(&file).map_err(|error| failed("open", error.into()))?;
        if !seals.contains(SEALS) || stat.st_size != size_of::<Rows>() as i64 {
            return Err(other());
        }
        let counters = Self::map(file)?;
        if counters.rows()[0].state.load(Acquire) == MAGIC { Ok(counters) } else { Err(other()) }
    }

    fn map(file: impl AsFd) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        SharedMapping::new(file.as_fd(), size_of::<Rows>(), 0, protection)
            .map(Self)
            .map_err(|error| failed("map", error))
    }

    fn rows(&self) -> &Rows {
        // SAFETY: mapped until this is dropped, aligned to a page, of a file that is that long and stays so; atomics may
        // have any bits.
        unsafe { self.0.as_ptr().cast().as_ref() }
    }

    /// The counters with this label; all callers with one label share them. The label is cut after [`MAX_LABEL`] bytes.
    /// `None` if all rows have other labels; [`SharedCounters::refused`] counts that.
    pub fn row(&self, label: &str) -> Option<&[AtomicU64; COLUMNS]> {
        let mut bytes = [0; MAX_LABEL];
        let len = label.len().min(MAX_LABEL);
        bytes[..len].copy_from_slice(&label.as_bytes()[..len]);
        let (words, _) = bytes.as_chunks::<{ size_of::<u64>() }>();
        let words: [u64; LABEL_WORDS] = std::array::from_fn(|at| u64::from_ne_bytes(words[at]));
        let (first, rows) = self.rows().split_first().expect("a first row");
        for row in rows {
            if row.state.compare_exchange(FREE, CLAIMED, AcqRel, Acquire).is_ok() {
                for (place, word) in row.label.iter().zip(words) {
                    place.store(word, Relaxed);
                }
                row.state.store(LABELLED, Release);
                return Some(&row.counts);
            }
            // Two callers with the same new label may get a row each; readers add the rows up.
            if row.state.load(Acquire) == LABELLED && row.words() == words {
                return Some(&row.counts);
            }
        }
        first.counts[0].fetch_add(1, Relaxed);
        None
    }

    /// The labels and counts so far. A label may be in several rows.
    pub fn read(&self) -> impl Iterator<Item = (String, [u64; COLUMNS])> + '_ {
        let labelled = self.rows()[1..].iter().filter(|row| row.state.load(Acquire) == LABELLED);
        labelled.map(|row| {
            let label: Vec<u8> = row.words().into_iter().flat_map(u64::to_ne_bytes).collect();
            let label = String::from_utf8_lossy(&label).trim_end_matches('\0').to_owned();
            (label, std::array::from_fn(|at| row.counts[at].load(Relaxed)))
        })
    }

    /// How often no row was left.
    pub fn refused(&self) -> u64 {
        self.rows()[0].counts[0].load(Relaxed)
    }
}

impl Row {
    fn words(&self) -> [u64; LABEL_WORDS] {
        std::array::from_fn(|at| self.label[at].load(Relaxed))
    }
}

fn failed(action: &str, error: io::Error) -> Error {
    Error::system(format!("{action} a memory file of counters"), error)
}

#[cfg(test)]
mod tests;
