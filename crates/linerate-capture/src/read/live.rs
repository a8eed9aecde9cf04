//! Streams that may have nothing to read for a long time: pipes, terminals, sockets.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How often it is noticed that nobody wants to wait any longer.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A stream that fails with [`Stopped`] when it has nothing and `stop` is set.
pub(super) struct Live {
    pub(super) file: File,
    pub(super) stop: Arc<AtomicBool>,
}

/// The wait for more was called off.
#[derive(Debug)]
pub(super) struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the wait for more of it was called off")
    }
}

impl std::error::Error for Stopped {}

impl Stopped {
    /// Whether an error is this, as it comes through a decompressor.
    pub(super) fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

impl Read for Live {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            // A hang-up is readable, too: `read` then says what it means.
            let mut fds = [PollFd::new(&self.file, PollFlags::IN)];
            if poll(&mut fds, Some(&LOOK))? == 0 {
                if self.stop.load(Relaxed) {
                    return Err(io::Error::other(Stopped));
                }
                continue;
            }
            match self.file.read(buffer) {
                // Whoever shares the pipe was faster.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }
}
