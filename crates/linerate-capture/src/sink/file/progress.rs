//! How far the writer is, and what it reports at the end.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::Error;

/// How far the writer is; may be read at any time.
#[derive(Debug, Default)]
pub struct FileSinkProgress {
    pub(super) files: AtomicU64,
    pub(super) deleted: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) unwritten: AtomicU64,
    pub(super) out_of_order: AtomicU64,
    pub(super) current: Mutex<PathBuf>,
}

impl FileSinkProgress {
    /// Files started.
    pub fn files(&self) -> u64 {
        self.files.load(Relaxed)
    }

    /// Files deleted again ([`Retention`](super::Retention)).
    pub fn deleted(&self) -> u64 {
        self.deleted.load(Relaxed)
    }

    /// Bytes in all files.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Packets in the files.
    pub fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Packets that could not be written.
    pub fn unwritten(&self) -> u64 {
        self.unwritten.load(Relaxed)
    }

    /// Packets that came too late for their place in the order of time; they are in the files.
    pub fn out_of_order(&self) -> u64 {
        self.out_of_order.load(Relaxed)
    }

    /// The file being written.
    pub fn current(&self) -> PathBuf {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The result of the writer.
#[derive(Debug, Default)]
pub struct FileSinkReport {
    /// Files started.
    pub files: u64,
    /// Files deleted again.
    pub deleted: u64,
    /// Bytes in all of them.
    pub bytes: u64,
    /// Packets in them.
    pub written: u64,
    /// Packets that could not be written.
    pub unwritten: u64,
    /// Packets that came after a limit of size or count had been reached: they are not part of the
    /// capture.
    pub beyond_limit: u64,
    /// The same counts, interface by interface.
    pub interfaces: Vec<InterfaceOutcome>,
    /// The reader of the pipe went away.
    pub pipe_closed: bool,
    /// What stopped the writing, if anything did.
    pub failure: Option<Error>,
}

impl FileSinkReport {
    /// The sum of two. The first failure stays.
    pub(crate) fn plus(mut self, other: Self) -> Self {
        self.files += other.files;
        self.deleted += other.deleted;
        self.bytes += other.bytes;
        self.written += other.written;
        self.unwritten += other.unwritten;
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
