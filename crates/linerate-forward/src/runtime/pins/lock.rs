//! [`Lock`]: the right to change an instance, a flock(2) of its directory.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::{Error, Result};

/// How often the lock is asked for before somebody has it for good, and how long after each time: a quarter of a
/// second, in which a busy machine comes back to who only looks.
const LOCK_RETRIES: usize = 50;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// The right to change an instance; nobody else has it, and it ends with the process.
#[derive(Debug)]
pub struct Lock {
    _directory: File,
}

/// Makes `directory` where there is none, and locks it. Returns the process that has the lock instead, where that can
/// be told.
///
/// # Errors
/// [`Error::Pin`], [`Error::Privilege`], [`Error::System`].
pub(super) fn acquire(directory: &Path) -> Result<std::result::Result<Lock, Option<u32>>> {
    let action = || format!("make {}", directory.display());
    // Whoever removed the directory between our making and our locking it was the last to hold it.
    for attempt in 0..100 {
        fs::create_dir_all(directory).map_err(|error| Error::system(action(), error))?;
        let locked = match File::open(directory) {
            Ok(locked) => locked,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(Error::system(action(), error)),
        };
        match flock(&locked, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            // Who only looks (`is_free`) has it for an instant.
            Err(Errno::WOULDBLOCK) if attempt < LOCK_RETRIES => {
                std::thread::sleep(LOCK_RETRY_INTERVAL);
                continue;
            }
            Err(Errno::WOULDBLOCK) => return Ok(Err(holder(&locked))),
            Err(error) => {
                let action = format!("lock {}", directory.display());
                return Err(Error::system(action, error.into()));
            }
        }
        let number = |metadata: io::Result<fs::Metadata>| metadata.map(|one| one.ino()).ok();
        if number(locked.metadata()) == number(fs::metadata(directory)) {
            return Ok(Ok(Lock { _directory: locked }));
        }
    }
    Err(Error::Pin {
        path: directory.to_owned(),
        reason: "it is being made and removed by others all the time; try again".into(),
    })
}

/// Whether nobody has the lock of `directory`. False where that cannot be told.
pub(super) fn is_free(directory: &Path) -> bool {
    let Ok(directory) = File::open(directory) else { return false };
    flock(&directory, FlockOperation::NonBlockingLockShared).is_ok()
}

/// Locks `directory` until the file is dropped; waits for who has it.
///
/// # Errors
/// [`Error::System`].
pub(super) fn wait(directory: &Path) -> Result<File> {
    let failed = |error| Error::system(format!("lock {}", directory.display()), error);
    let file = File::open(directory).map_err(failed)?;
    flock(&file, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
    Ok(file)
}

/// The process that has the flock(2) of `file`, where `/proc/locks` tells it.
fn holder(file: &File) -> Option<u32> {
    let inode = file.metadata().ok()?.ino().to_string();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| holder_in(line, &inode))
}

/// Of a line of `/proc/locks` (proc_locks(5)) about this inode.
fn holder_in(line: &str, inode: &str) -> Option<u32> {
    let mut words = line.split_whitespace();
    let kind = words.nth(1)?;
    let process = words.nth(2)?;
    let file = words.next()?;
    let is_meant = kind == "FLOCK" && file.rsplit(':').next() == Some(inode);
    is_meant.then(|| process.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(holder(&file), None);
        flock(&file, FlockOperation::LockExclusive).unwrap();
        assert_eq!(holder(&file), Some(std::process::id()));
        // Somebody who waits is none, nor is who has a lock of another kind or of another file.
        for line in [
            "7: -> FLOCK  ADVISORY  WRITE 22719 fe:00:9980357 0 EOF",
            "8: POSIX  ADVISORY  WRITE 22719 fe:00:9980357 0 EOF",
            "9: FLOCK  ADVISORY  WRITE 22719 fe:00:19980357 0 EOF",
            "",
        ] {
            assert_eq!(holder_in(line, "9980357"), None, "{line}");
        }
        let line = "7: FLOCK  ADVISORY  WRITE 22719 00:1b:9980357 0 EOF";
        assert_eq!(holder_in(line, "9980357"), Some(22719));
    }
}
