//! [`Retention`]: which finished files of a capture are deleted, so that the disk never fills.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open, statvfs};
use rustix::io::Errno;

/// Bytes beside the packets that a write may need: the end of a file, and the header of the next.
const OVERHEAD: u64 = 64 << 10;

/// Which of the finished files of this capture are deleted, the oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Retention {
    /// Those that ended so long ago (`--keep`).
    pub keep: Option<Duration>,
    /// As many as it takes to keep this free on the file system (`--keep-free`).
    pub keep_free: Option<KeepFree>,
}

/// What is to stay free on a file system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeepFree {
    /// A part of its size.
    Percent(f64),
    /// Bytes.
    Bytes(u64),
}

impl fmt::Display for KeepFree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Bytes(bytes) => write!(f, "{bytes} bytes"),
        }
    }
}

impl FromStr for KeepFree {
    type Err = String;

    /// `10%`, or bytes with the suffixes K, M, G and T.
    fn from_str(text: &str) -> Result<Self, String> {
        let explain =
            || format!("`{text}` is neither a percentage such as 10% nor a size such as 20G");
        if let Some(percent) = text.strip_suffix('%') {
            let percent = percent.parse::<f64>().map_err(|_| explain())?;
            return match percent {
                0.0..100.0 => Ok(Self::Percent(percent)),
                _ => Err(explain()),
            };
        }
        let shift = match text.chars().last().map(|unit| unit.to_ascii_uppercase()) {
            Some('K') => 10,
            Some('M') => 20,
            Some('G') => 30,
            Some('T') => 40,
            _ => 0,
        };
        let digits = if shift > 0 { &text[..text.len() - 1] } else { text };
        let number: u64 = digits.parse().map_err(|_| explain())?;
        number.checked_mul(1 << shift).map(Self::Bytes).ok_or_else(explain)
    }
}

impl KeepFree {
    /// Bytes that have to become free before `more` are written to the file; `None` when there is room, or the
    /// file system does not say.
    pub(super) fn missing(self, file: &Path, more: u64) -> Option<u64> {
        let found = statvfs(file).ok()?;
        let least = match self {
            Self::Percent(percent) => {
                (found.f_blocks as f64 * found.f_frsize as f64 * percent / 100.0) as u64
            }
            Self::Bytes(bytes) => bytes,
        };
        let available = found.f_bavail.saturating_mul(found.f_frsize);
        (least + more + OVERHEAD).checked_sub(available).filter(|missing| *missing > 0)
    }
}

/// The finished files of a capture, the oldest first.
#[derive(Debug, Default)]
pub(super) struct FinishedFiles(VecDeque<Finished>);

#[derive(Debug)]
struct Finished {
    path: PathBuf,
    /// Device and inode: a file that somebody puts at the same name is not ours to delete.
    identity: (u64, u64),
    ended: Instant,
}

impl FinishedFiles {
    /// Adds the regular file that ended now.
    pub(super) fn add(&mut self, path: &Path) {
        self.forget(path);
        if let Ok(found) = std::fs::symlink_metadata(path)
            && found.is_file()
        {
            let identity = (found.dev(), found.ino());
            self.0.push_back(Finished { path: path.to_owned(), identity, ended: Instant::now() });
        }
    }

    /// Takes out the file of this name, which is written again: a ring of names comes back to it.
    pub(super) fn forget(&mut self, path: &Path) {
        self.0.retain(|known| known.path != path);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Looks for the oldest file that nobody reads and that ended at least `age` ago, and takes it out. `None` when
    /// there is none.
    pub(super) fn delete_oldest(&mut self, age: Duration) -> Option<Deletion> {
        let mut index = 0;
        while let Some(file) = self.0.get(index) {
            if file.ended.elapsed() < age {
                return None;
            }
            match delete(file) {
                Deletion::Read => index += 1,
                done => {
                    self.0.remove(index);
                    return Some(done);
                }
            }
        }
        None
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Deletion {
    /// It had this many bytes on the disk.
    Deleted(u64),
    /// Somebody has moved, replaced or compressed it (-z), or it cannot be deleted.
    Gone,
    /// A reader has a lock on it.
    Read,
}

/// Deletes a file unless a reader of Linerate's holds its lock (`Stream::open` of `linerate-pcapfile`).
fn delete(Finished { path, identity, .. }: &Finished) -> Deletion {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::LOOP) => return Deletion::Gone,
        Err(error) => {
            tracing::warn!("cannot delete {}: {error}", path.display());
            return Deletion::Gone;
        }
    };
    let found = file.metadata().ok().filter(|found| (found.dev(), found.ino()) == *identity);
    let Some(found) = found else { return Deletion::Gone };
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Deletion::Read;
    }
    match std::fs::remove_file(path) {
        Ok(()) => Deletion::Deleted(found.blocks() * 512),
        Err(error) => {
            tracing::warn!("cannot delete {}: {error}", path.display());
            Deletion::Gone
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_free_is_a_part_or_a_size() {
        assert_eq!("10%".parse(), Ok(KeepFree::Percent(10.0)));
        assert_eq!("0.5%".parse(), Ok(KeepFree::Percent(0.5)));
        assert_eq!("20G".parse(), Ok(KeepFree::Bytes(20 << 30)));
        assert_eq!("4096".parse(), Ok(KeepFree::Bytes(4096)));
        for wrong in ["", "%", "100%", "-1%", "x", "5X", "99999999T"] {
            assert!(wrong.parse::<KeepFree>().is_err(), "{wrong}");
        }
    }

    /// Three files that have ended, the oldest first.
    fn finished(folder: &Path) -> (FinishedFiles, [PathBuf; 3]) {
        let mut files = FinishedFiles::default();
        let paths = ["a", "b", "c"].map(|name| folder.join(name));
        for path in &paths {
            std::fs::write(path, [1; 100]).expect("a file");
            files.add(path);
        }
        (files, paths)
    }

    #[test]
    fn the_oldest_file_goes_that_nobody_reads() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut files, [a, b, c]) = finished(folder.path());
        let reader = File::open(&a).expect("a file");
        flock(&reader, FlockOperation::LockShared).expect("a lock");
        assert!(matches!(files.delete_oldest(Duration::ZERO), Some(Deletion::Deleted(_))));
        assert!(a.exists() && !b.exists() && c.exists());
        assert_eq!(files.delete_oldest(Duration::from_secs(3600)), None);
        drop(reader);
        assert!(files.delete_oldest(Duration::ZERO).is_some() && !a.exists());
        std::fs::remove_file(&c).expect("it is there");
        assert_eq!((files.delete_oldest(Duration::ZERO), files.len()), (Some(Deletion::Gone), 0));
        assert_eq!(files.delete_oldest(Duration::ZERO), None);
    }

    /// One that was moved away is one less: the next is not deleted for it.
    #[test]
    fn a_file_that_is_not_ours_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut files, [a, b, c]) = finished(folder.path());
        // Both exist at once, so the other has another inode.
        let other = folder.path().join("other");
        std::fs::write(&other, "somebody's").expect("a file");
        std::fs::rename(&other, &a).expect("renamed");
        assert_eq!(files.delete_oldest(Duration::ZERO), Some(Deletion::Gone));
        assert!(a.exists() && b.exists() && files.len() == 2);
        // A ring of names has come back to it.
        files.forget(&b);
        assert!(matches!(files.delete_oldest(Duration::ZERO), Some(Deletion::Deleted(_))));
        assert!(b.exists() && !c.exists());
    }
}
