//! flock(2) of files: who holds a lock, and a wait with an end.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::process::Process;

/// How long a process waits for another that changes the same files.
pub const MAX_WAIT: Duration = Duration::from_secs(10);

const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Locks a file or folder, and waits at most `max_wait` for the holder.
///
/// # Errors
/// `TimedOut`, which names the holder; the kernel's error.
pub fn lock_within(file: &File, max_wait: Duration) -> io::Result<()> {
    let start = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if start.elapsed() < max_wait => sleep(RETRY_INTERVAL),
            Err(TryLockError::WouldBlock) => {
                let holder = holder(file);
                let holder = holder.map_or("another process".to_owned(), |one| one.to_string());
                let text = format!("{holder} has a lock on it; try again when that has ended");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
        }
    }
}

/// The process that holds the flock(2) of `file`, from `/proc/locks`.
pub fn holder(file: &File) -> Option<Process> {
    let inode = file.metadata().ok()?.ino().to_string();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| holder_in(line, &inode)).map(Process::by_id)
}

/// The process in a line of `/proc/locks` (proc_locks(5)) about this inode.
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
    fn the_holder_of_a_lock_is_named_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = [(); 2].map(|()| File::open(folder.path()).unwrap());
        assert_eq!(holder(&first), None);
        lock_within(&first, Duration::ZERO).unwrap();
        let process = holder(&second).unwrap();
        assert_eq!(process.id, std::process::id());
        let error = lock_within(&second, Duration::from_millis(20)).unwrap_err();
        assert!(error.to_string().contains(&process.to_string()), "{error}");
        drop(first);
        lock_within(&second, MAX_WAIT).unwrap();
    }

    #[test]
    fn waiters_other_locks_and_other_files_are_skipped() {
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
