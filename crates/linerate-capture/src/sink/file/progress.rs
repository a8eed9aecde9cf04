//! How far the writer is, and what it reports at the end.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::Error;

/// What the writer has written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSinkCounts {
    /// Files started.
    pub files: u64,
    /// Files deleted again ([`Retention`](super::Retention)).
    pub deleted: u64,
    /// Bytes in all files.
    pub bytes: u64,
    /// Packets in the files.
    pub written: u64,
    /// Packets that could not be written.
    pub unwritten: u64,
    /// Packets that came too late for their place in the order of time; they are in the files.
    pub out_of_order: u64,
    /// The file being written; empty before the first.
    pub current: PathBuf,
}

impl FileSinkCounts {
    /// The sum of two, with the first file.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            files: self.files + other.files,
            deleted: self.deleted + other.deleted,
            bytes: self.bytes + other.bytes,
            written: self.written + other.written,
            unwritten: self.unwritten + other.unwritten,
            out_of_order: self.out_of_order + other.out_of_order,
            current: if self.current.as_os_str().is_empty() { other.current } else { self.current },
        }
    }
}

/// How far the writer is; may be read at any time.
#[derive(Debug, Default)]
pub struct FileSinkProgress(Mutex<FileSinkCounts>);

impl FileSinkProgress {
    /// The counts now.
    pub fn counts(&self) -> FileSinkCounts {
        self.update(|counts| counts.clone())
    }

    /// Changes the counts.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut FileSinkCounts) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The result of the writer.
#[derive(Debug, Default)]
pub struct FileSinkReport {
    /// The counts at the end.
    pub counts: FileSinkCounts,
    /// Packets that came after a limit of size or count had been reached: they are not part of the
    /// capture.
    pub beyond_limit: u64,
    /// What happened to the packets, interface by interface.
    pub interfaces: Vec<InterfaceOutcome>,
    /// The reader of the pipe went away.
    pub pipe_closed: bool,
    /// What stopped the writing, if anything did.
    pub failure: Option<Error>,
}

impl FileSinkReport {
    /// The sum of two. The first failure stays.
    pub(crate) fn plus(mut self, other: Self) -> Self {
        self.counts = self.counts.plus(other.counts);
        self.beyond_limit += other.beyond_limit;
        let count = self.interfaces.len().max(other.interfaces.len());
        self.interfaces.resize(count, InterfaceOutcome::default());
        for (sum, one) in self.interfaces.iter_mut().zip(other.interfaces) {
            sum.received += one.received;
            sum.written += one.written;
            sum.beyond_limit += one.beyond_limit;
            sum.missing_bytes += one.missing_bytes;
        }
        self.pipe_closed |= other.pipe_closed;
        self.failure = self.failure.or(other.failure);
        self
    }
}

/// What happened to the packets of one interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceOutcome {
    /// Packets that readers sent.
    pub received: u64,
    /// Packets in the files.
    pub written: u64,
    /// Packets that came after a limit.
    pub beyond_limit: u64,
    /// Bytes on the wire of the packets that are not in the files, except those in the buffers of a
    /// writer that panicked.
    pub missing_bytes: u64,
}

impl InterfaceOutcome {
    /// Packets that could not be written.
    pub fn unwritten(&self) -> u64 {
        self.received - self.written - self.beyond_limit
    }
}
