//! [`Lock`]: legacy iptables (x_tables). The kernel sends no notification when its tables change.
//!
//! Its programs lock a file while they change a table. When the lock file is closed, iptables has run. It may
//! have changed nothing. Changes without the lock, or with a lock in another mount namespace, are polled ([`Tables`]).

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use linerate_net::ruleset;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

/// The default path of iptables' lock; a build option or `XTABLES_LOCKFILE` changes it.
const LOCK: &str = "/run/xtables.lock";

/// The tables as they were when anybody looked last: what one has seen is no change for another.
#[derive(Clone, Debug)]
pub(super) struct Tables(Arc<Mutex<Result<u64, String>>>);

impl Tables {
    /// Those of the namespace of the calling thread.
    pub(super) fn read() -> Self {
        Self(Arc::new(Mutex::new(digest())))
    }

    /// Whether they have changed since. Tables that cannot be read have changed if they could.
    pub(super) fn have_changed(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = digest();
        std::mem::replace(&mut *last, now.clone()) != now
    }
}

fn digest() -> Result<u64, String> {
    ruleset::xtables_digest().map_err(|error| error.to_string())
}

/// A watch on the lock file.
#[derive(Debug)]
pub(super) struct Lock {
    events: OwnedFd,
    file: PathBuf,
    seen: bool,
}

impl Lock {
    pub(super) fn watch() -> io::Result<Self> {
        let file = std::env::var_os("XTABLES_LOCKFILE").map_or_else(|| LOCK.into(), PathBuf::from);
        Self::watch_file(&file)
    }

    fn watch_file(file: &Path) -> io::Result<Self> {
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let mut lock = Self { events, file: file.to_owned(), seen: false };
        // The first run of iptables after boot creates it.
        let folder = file.parent().unwrap_or(Path::new("/"));
        inotify::add_watch(&lock.events, folder, WatchFlags::CREATE | WatchFlags::MOVED_TO)?;
        lock.look();
        Ok(lock)
    }

    /// Watches the file, if it exists now.
    fn look(&mut self) {
        let closed = WatchFlags::CLOSE_WRITE | WatchFlags::CLOSE_NOWRITE;
        self.seen = inotify::add_watch(&self.events, &self.file, closed).is_ok();
    }

    /// Whether the lock was held since the last call.
    pub(super) fn was_held(&mut self) -> bool {
        let name = self.file.file_name();
        let is_it =
            |found: &CStr| name.is_some_and(|name| name.as_encoded_bytes() == found.to_bytes());
        let (mut held, mut made) = (false, false);
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(self.events.as_fd(), &mut buffer);
        // EAGAIN: everything has been read.
        while let Ok(event) = reader.next() {
            let closing = ReadFlags::CLOSE_WRITE | ReadFlags::CLOSE_NOWRITE;
            let lost = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            held |= lost || event.events().intersects(closing);
            made |= event.file_name().is_some_and(is_it);
        }
        if made {
            self.look();
        }
        // A file that was created and closed before it was watched counts too.
        held || made
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

#[cfg(test)]
mod tests;
