//! [`Lock`]: the right to change an instance, a flock(2) of its directory.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use linerate_net::lock::{MAX_WAIT, holder, lock_within};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::DIRECTORIES;
use crate::{Error, Result};

/// Number of lock attempts and the delay between them: 250 ms in total, so that a reader that holds the lock
/// briefly can release it.
const LOCK_RETRIES: usize = 50;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// The exclusive right to change an instance; it ends with the process.
#[derive(Debug)]
pub struct Lock {
    _directory: File,
}

/// Creates `directory` if there is none, and locks it. If another process holds the lock, returns that
/// process, if known.
///
/// # Errors
/// [`Error::Pin`], [`Error::Privilege`], [`Error::System`].
pub(super) fn acquire(directory: &Path) -> Result<std::result::Result<Lock, Option<u32>>> {
    let action = || format!("make {}", directory.display());
    // The last holder may have removed the directory between our creating and our locking it.
    for attempt in 0..100 {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| Error::system(action(), error))?;
        let locked = match File::open(directory) {
            Ok(locked) => locked,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(Error::system(action(), error)),
        };
        match check_owners(directory).and_then(|()| ours(directory).try_for_each(close_to_others)) {
            Err(Error::System { source, .. }) if source.kind() == ErrorKind::NotFound => continue,
            checked => checked?,
        }
        match flock(&locked, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            // `is_free` holds the lock for a moment.
            Err(Errno::WOULDBLOCK) if attempt < LOCK_RETRIES => {
                std::thread::sleep(LOCK_RETRY_INTERVAL);
                continue;
            }
            Err(Errno::WOULDBLOCK) => return Ok(Err(holder(&locked).map(|process| process.id))),
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

/// The instance's directory and those of Linerate above it.
fn ours(directory: &Path) -> impl Iterator<Item = &Path> {
    directory.ancestors().take(DIRECTORIES.len() + 1)
}

/// Fails if somebody else could have put what is in the instance's `directory` there: where the BPF file system is open
/// to all, they may have made it first.
///
/// # Errors
/// [`Error::Pin`], [`Error::System`].
pub(super) fn check_owners(directory: &Path) -> Result<()> {
    ours(directory).try_for_each(check_owner)
}

/// Closes `directory` to others, who could lock what they can read: somebody may have opened it.
fn close_to_others(directory: &Path) -> Result<()> {
    let failed = |error| Error::system(format!("look at {}", directory.display()), error);
    let found = fs::symlink_metadata(directory).map_err(failed)?;
    if found.mode() & 0o007 == 0 || found.uid() != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let mode = fs::Permissions::from_mode(found.mode() & 0o770);
    fs::set_permissions(directory, mode)
        .map_err(|error| Error::system(format!("chmod o= {}", directory.display()), error))
}

fn check_owner(directory: &Path) -> Result<()> {
    let failed = |reason| Error::Pin { path: directory.to_owned(), reason };
    let found = fs::symlink_metadata(directory)
        .map_err(|error| Error::system(format!("look at {}", directory.display()), error))?;
    let own = rustix::process::geteuid().as_raw();
    if found.uid() != 0 && found.uid() != own {
        return Err(failed(format!(
            "it belongs to user {}, who may have put anything there; remove it, and mount the BPF file system with \
             -o mode=700",
            found.uid()
        )));
    }
    if found.mode() & 0o022 != 0 {
        return Err(failed(format!(
            "others may write to it (mode {:o}); `chmod 700 {}`",
            found.mode() & 0o7777,
            directory.display()
        )));
    }
    Ok(())
}

/// Whether the lock of `directory` is free. False if that is unknown.
pub(super) fn is_free(directory: &Path) -> bool {
    let Ok(directory) = File::open(directory) else { return false };
    flock(&directory, FlockOperation::NonBlockingLockShared).is_ok()
}

/// The process that has the lock of `directory`, if this process can see it.
pub(super) fn holder_of(directory: &Path) -> Option<u32> {
    holder(&File::open(directory).ok()?).map(|process| process.id)
}

/// Locks `directory` until the file is dropped; waits at most [`MAX_WAIT`] for the current holder.
pub(super) fn wait(directory: &Path) -> Result<File> {
    let failed = |error| Error::system(format!("lock {}", directory.display()), error);
    let file = File::open(directory).map_err(failed)?;
    lock_within(&file, MAX_WAIT).map_err(failed)?;
    Ok(file)
}
