//! The file, pipe or standard input under a reader. A pipe may have nothing to read for a long time.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, OFlags, flock};

use crate::{Error, Result};

/// How often the wait for data checks `stop`.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A file, a pipe or standard input, opened.
pub(super) struct Stream {
    /// What errors call it.
    pub(super) name: String,
    /// Bytes of a regular file.
    pub(super) size: Option<u64>,
    pub(super) bytes: Box<dyn Read + Send>,
}

impl Stream {
    /// Opens a file, or standard input for `-`; setting `stop` ends the wait for data of a pipe.
    pub(super) fn open(path: &Path, stop: &Arc<AtomicBool>) -> Result<Self> {
        let open = |source| Error::Open { path: path.to_owned(), source };
        let (name, file) = if path.as_os_str() == "-" {
            let file = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(open)?);
            ("standard input".to_owned(), file)
        } else {
            // Without O_NONBLOCK, opening a named pipe waits for its writer and ignores `stop`.
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
            (path.display().to_string(), options.open(path).map_err(open)?)
        };
        let metadata = file.metadata().map_err(open)?;
        if metadata.is_dir() {
            return Err(open(io::ErrorKind::IsADirectory.into()));
        }
        let size = metadata.is_file().then_some(metadata.len());
        if size.is_some() {
            // A capture that makes room deletes no file that has this lock. Not every file system has locks.
            let _ = flock(&file, FlockOperation::NonBlockingLockShared);
        }
        let bytes: Box<dyn Read + Send> = match size {
            Some(_) => Box::new(file),
            None => Box::new(Pipe { file, stop: Arc::clone(stop) }),
        };
        Ok(Self { name, size, bytes })
    }
}

/// A stream that fails with [`Cancelled`] when it has nothing and `stop` is set.
pub(super) struct Pipe {
    pub(super) file: File,
    pub(super) stop: Arc<AtomicBool>,
}

/// The wait for more data was cancelled.
#[derive(Debug)]
pub(super) struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the wait for more data was cancelled")
    }
}

impl std::error::Error for Cancelled {}

impl Cancelled {
    /// Whether an error is this, as it comes through a decompressor.
    pub(super) fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            // A hang-up is readable, too: `read` then returns what it means.
            let mut fds = [PollFd::new(&self.file, PollFlags::IN)];
            if poll(&mut fds, Some(&POLL_INTERVAL))? == 0 {
                if self.stop.load(Relaxed) {
                    return Err(io::Error::other(Cancelled));
                }
                continue;
            }
            match self.file.read(buffer) {
                // Another process that shares the pipe was faster.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }
}
