//! [`Retention`]: which finished files of a capture are deleted, so that the disk never fills.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use linerate_net::lock;
use linerate_net::process::Process;
use linerate_pcapfile::{FileWriter, KeepFree};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;

/// Which of the finished files of this capture and of earlier ones to the same names are deleted, the oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Retention {
    /// Those that ended so long ago (`--keep`).
    pub keep: Option<Duration>,
    /// As many as it takes to keep this free on the file system (`--keep-free`).
    pub keep_free: Option<KeepFree>,
}

/// Extensions that compressors give to a file, which they then remove: what `-z` may have run.
const COMPRESSED: [&str; 6] = [".gz", ".bz2", ".xz", ".zst", ".lz4", ".lzma"];

/// The finished files of a capture, the oldest first. The writers of `--per-thread-files` share one list.
#[derive(Debug, Default)]
pub(crate) struct FinishedFiles {
    /// Writers that share it.
    writers: usize,
    files: VecDeque<Finished>,
    /// Programs that still run on a finished file (`-z`).
    children: Vec<(PathBuf, Child)>,
}

#[derive(Debug)]
struct Finished {
    path: PathBuf,
    /// `None`: of an earlier capture.
    writer: Option<usize>,
    /// Device and inode: a file that somebody puts at the same name is not ours to delete.
    identity: (u64, u64),
    /// Seconds. Compressors keep it.
    modified: i64,
    ended: Instant,
}

impl FinishedFiles {
    /// A number for one more writer.
    pub(super) fn add_writer(&mut self) -> usize {
        self.writers += 1;
        self.writers - 1
    }

    /// Writers that share it.
    pub(super) fn writers(&self) -> usize {
        self.writers
    }

    /// Adds the regular file of `writer` that ended now.
    pub(super) fn add(&mut self, writer: usize, path: &Path) {
        self.forget(path);
        if let Ok(found) = std::fs::symlink_metadata(path)
            && found.is_file()
        {
            let (identity, modified) = ((found.dev(), found.ino()), found.mtime());
            let (path, writer, ended) = (path.to_owned(), Some(writer), Instant::now());
            self.files.push_back(Finished { path, writer, identity, modified, ended });
        }
    }

    /// Puts the regular files of `folder` that `owner` has, and whose names an earlier capture gave, before all others.
    /// The time of their last change is that of their end.
    pub(super) fn add_earlier_files(
        &mut self,
        folder: &Path,
        owner: u32,
        is_name: impl Fn(&str) -> bool,
    ) -> io::Result<()> {
        let mut earlier = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let plain = COMPRESSED.iter().find_map(|extension| name.strip_suffix(extension));
            if !is_name(name) && !plain.is_some_and(&is_name) {
                continue;
            }
            // One that has just gone is none.
            let Ok(found) = std::fs::symlink_metadata(entry.path()) else { continue };
            if !found.is_file() || found.uid() != owner {
                continue;
            }
            let age = found.modified().ok().and_then(|time| time.elapsed().ok());
            // A time in the future is now.
            let now = Instant::now();
            let ended = now.checked_sub(age.unwrap_or_default()).unwrap_or(now);
            earlier.push(Finished {
                path: entry.path(),
                writer: None,
                identity: (found.dev(), found.ino()),
                modified: found.mtime(),
                ended,
            });
        }
        earlier.sort_by_key(|file| std::cmp::Reverse(file.ended));
        for file in earlier {
            let is_known = self.files.iter().any(|known| known.path == file.path);
            if !is_known {
                self.files.push_front(file);
            }
        }
        Ok(())
    }

    /// Takes out the file of this name, which is written again: a ring of names comes back to it.
    pub(super) fn forget(&mut self, path: &Path) {
        self.files.retain(|known| known.path != path);
    }

    /// Files of this writer.
    pub(super) fn len(&self, writer: usize) -> usize {
        self.files.iter().filter(|file| file.writer == Some(writer)).count()
    }

    /// A program runs on this finished file, which stays until the program has ended.
    pub(super) fn add_child(&mut self, path: &Path, child: Child) {
        self.reap();
        self.children.push((path.to_owned(), child));
    }

    /// How many programs still run.
    pub(super) fn running(&mut self) -> usize {
        self.reap();
        self.children.len()
    }

    /// The programs that still run.
    pub(super) fn take_children(&mut self) -> Vec<(PathBuf, Child)> {
        std::mem::take(&mut self.children)
    }

    fn reap(&mut self) {
        self.children.retain_mut(|(_, child)| matches!(child.try_wait(), Ok(None)));
    }

    /// Looks for the oldest file, of this writer or of all, that nobody reads and that ended at least `age` ago, and
    /// takes it out. `None` when there is none.
    pub(super) fn delete_oldest(
        &mut self,
        age: Duration,
        writer: Option<usize>,
    ) -> Option<Deletion> {
        self.reap();
        let mut index = 0;
        while let Some(file) = self.files.get(index) {
            if file.ended.elapsed() < age {
                return None;
            }
            let is_of_other = writer.is_some_and(|writer| Some(writer) != file.writer);
            let is_handled = self.children.iter().any(|(path, _)| *path == file.path);
            let deletion = if is_of_other || is_handled { Deletion::InUse } else { file.delete() };
            match deletion {
                Deletion::InUse => index += 1,
                done => {
                    self.files.remove(index);
                    return Some(done);
                }
            }
        }
        None
    }

    /// Who reads or writes the oldest file that somebody has a lock on.
    pub(super) fn holder(&self) -> Option<Process> {
        self.files.iter().find_map(|file| {
            let file = File::open(&file.path).ok()?;
            lock::holder(&file).or_else(|| FileWriter::of(&file)?.process().cloned())
        })
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Deletion {
    /// It had this many bytes on the disk.
    Deleted(u64),
    /// Somebody has moved or replaced it, or it cannot be deleted.
    Gone,
    /// A reader has a lock on it, another capture writes it, or a program of `-z` runs on it.
    InUse,
}

impl Finished {
    /// Deletes the file, or what a compressor made of it, unless a reader of Linerate's holds its lock
    /// (`Stream::open` of `linerate-pcapfile`).
    fn delete(&self) -> Deletion {
        let is_ours =
            |found: &Metadata| (found.dev(), found.ino()) == self.identity && found.is_file();
        if std::fs::symlink_metadata(&self.path).is_ok() {
            return delete(&self.path, is_ours);
        }
        let is_compressed = |found: &Metadata| found.mtime() == self.modified && found.is_file();
        let compressed = COMPRESSED.iter().map(|extension| {
            let mut path = self.path.clone().into_os_string();
            path.push(extension);
            delete(Path::new(&path), is_compressed)
        });
        compressed.into_iter().find(|done| *done != Deletion::Gone).unwrap_or(Deletion::Gone)
    }
}

/// Deletes a file that `is_ours`, unless a reader or a writer holds its lock.
fn delete(path: &Path, is_ours: impl Fn(&Metadata) -> bool) -> Deletion {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT | Errno::LOOP) => return Deletion::Gone,
        Err(error) => {
            tracing::warn!("cannot delete {}: {error}", path.display());
            return Deletion::Gone;
        }
    };
    let Some(found) = file.metadata().ok().filter(is_ours) else { return Deletion::Gone };
    let is_read = || flock(&file, FlockOperation::NonBlockingLockExclusive).is_err();
    if FileWriter::of(&file).is_some() || is_read() {
        return Deletion::InUse;
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
mod tests;
