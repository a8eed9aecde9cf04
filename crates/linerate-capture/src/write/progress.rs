//! How far the writer is, and how it ended.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::Error;

/// How far the writer is; may be read at any time.
#[derive(Debug, Default)]
pub struct Progress {
    pub(super) files: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) unwritten: AtomicU64,
    pub(super) current: Mutex<PathBuf>,
}

impl Progress {
    /// Files begun.
    pub fn files(&self) -> u64 {
        self.files.load(Relaxed)
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

    /// The file being written.
    pub fn current(&self) -> PathBuf {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// How it ended.
#[derive(Debug, Default)]
pub struct Summary {
    /// Files begun.
    pub files: u64,
    /// Bytes in all of them.
    pub bytes: u64,
    /// Packets in them.
    pub written: u64,
    /// Packets that could not be written.
    pub unwritten: u64,
    /// Packets that came after a limit of size or count had been reached: they are no part of the
    /// capture.
    pub beyond_limit: u64,
    /// The same counts, interface by interface.
    pub interfaces: Vec<Fate>,
    /// The reader of the pipe went away.
    pub pipe_closed: bool,
    /// What stopped the writing, if anything did.
    pub failure: Option<Error>,
}

/// What became of one interface's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// Packets that readers handed over.
    pub taken: u64,
    /// Packets in the files.
    pub written: u64,
    /// Packets that came after a limit.
    pub beyond_limit: u64,
    /// Bytes on the wire of those that are not in the files. What was under way when the writer
    /// panicked is not in it.
    pub missing_bytes: u64,
}

impl Fate {
    /// Packets that could not be written.
    pub fn unwritten(&self) -> u64 {
        self.taken - self.written - self.beyond_limit
    }
}
