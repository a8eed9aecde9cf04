//! Huge pages for the length of a run, given back afterwards.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::{NamedTempFile, TempPath};

const POOL: &str = "/proc/sys/vm/nr_hugepages";
/// The folder of notes; `/run` is empty after boot, as the pool is.
const NOTE_FOLDER: &str = "/run/linerate";
const NOTE_PREFIX: &str = "hugepages-";
/// What a note is called until it is locked.
const NEW_NOTE_PREFIX: &str = "new-hugepages-";

/// Huge pages of the default size, reserved while this value lives.
///
/// A note has how many were added, `/run/linerate/hugepages-…`, which its owner keeps locked and removes. The
/// next to reserve pages gives back those of every note that is not locked: its owner was killed.
#[derive(Debug)]
pub(crate) struct ReservedPages {
    pool: PathBuf,
    note: Option<NamedTempFile>,
    added: u64,
    /// Pages in the pool now.
    pub(crate) got: u64,
}

impl ReservedPages {
    /// Makes the pool at least `wanted` pages large, as far as memory and the system (a container
    /// may not write its size) allow. `None` on a kernel without huge pages.
    pub(crate) fn at_least(wanted: u64) -> Result<Option<Self>> {
        Self::of(Path::new(POOL), Path::new(NOTE_FOLDER), wanted)
    }

    fn of(pool: &Path, notes: &Path, wanted: u64) -> Result<Option<Self>> {
        if read(pool).is_err() {
            return Ok(None);
        }
        give_back_for_the_dead(pool, notes);
        let before = read(pool)?;
        let mut reserved = Self { pool: pool.to_owned(), note: None, added: 0, got: before };
        if before < wanted {
            // Without a note the pages are still given back, but not if this process is killed.
            reserved.note = note(notes);
            // The size of the pool shows whether this worked.
            let _ = fs::write(pool, wanted.to_string());
            reserved.got = read(pool)?;
            reserved.added = reserved.got.saturating_sub(before);
            if let Some(note) = &mut reserved.note {
                let _ = write!(note, "{}", reserved.added);
            }
        }
        Ok(Some(reserved))
    }
}

impl Drop for ReservedPages {
    fn drop(&mut self) {
        give_back(&self.pool, self.added);
    }
}

/// Removes what was added, and not what others have reserved since then.
fn give_back(pool: &Path, added: u64) {
    if let (true, Ok(now)) = (added > 0, read(pool)) {
        let _ = fs::write(pool, now.saturating_sub(added).to_string());
    }
}

/// A locked file for the count, which stays empty until the pages are there. It gets the name of a note
/// when it is locked: before, another would take it for one of the dead.
fn note(notes: &Path) -> Option<NamedTempFile> {
    fs::create_dir_all(notes).ok()?;
    let (file, path) =
        tempfile::Builder::new().prefix(NEW_NOTE_PREFIX).tempfile_in(notes).ok()?.into_parts();
    file.lock().ok()?;
    let unique = path.file_name()?.to_str()?.strip_prefix(NEW_NOTE_PREFIX)?;
    let name = notes.join(format!("{NOTE_PREFIX}{unique}"));
    path.persist_noclobber(&name).ok()?;
    Some(NamedTempFile::from_parts(file, TempPath::try_from_path(name).ok()?))
}

fn give_back_for_the_dead(pool: &Path, notes: &Path) {
    let Ok(entries) = fs::read_dir(notes) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let ours = path.file_name().and_then(|name| name.to_str());
        if !ours.is_some_and(|name| name.starts_with(NOTE_PREFIX)) {
            continue;
        }
        let Ok(mut file) = File::open(&path) else { continue };
        let mut text = String::new();
        if file.try_lock().is_ok()
            && file.read_to_string(&mut text).is_ok()
            && fs::remove_file(&path).is_ok()
        {
            give_back(pool, text.trim().parse().unwrap_or(0));
        }
    }
}

fn read(pool: &Path) -> Result<u64> {
    let text =
        fs::read_to_string(pool).with_context(|| format!("cannot read {}", pool.display()))?;
    text.trim().parse().with_context(|| format!("{} holds no number", pool.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_the_note_of_a_beginner_for_one_of_the_dead() {
        let folder = tempfile::tempdir().unwrap();
        let (pool, notes) = (folder.path().join("pool"), folder.path().join("notes"));
        fs::write(&pool, "10").unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let seeker = scope.spawn(|| {
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    give_back_for_the_dead(&pool, &notes);
                }
            });
            let kept = (0..1000).all(|_| note(&notes).is_some_and(|note| note.path().exists()));
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            seeker.join().unwrap();
            assert!(kept);
        });
        assert_eq!(fs::read_dir(&notes).unwrap().count(), 0, "each is removed by its owner");
    }

    /// This test uses a file, since all processes share the machine's pool; the test of the
    /// command that kills a lab uses the pool.
    #[test]
    fn what_a_killed_owner_added_is_given_back_by_the_next_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let (pool, notes) = (folder.path().join("pool"), folder.path().join("notes"));
        fs::write(&pool, "10\n").unwrap();
        let pages = || read(&pool).unwrap();
        let first = ReservedPages::of(&pool, &notes, 160).unwrap().unwrap();
        assert_eq!((first.got, first.added, pages()), (160, 150, 160));

        // A live owner keeps its pages and its note.
        let second = ReservedPages::of(&pool, &notes, 170).unwrap().unwrap();
        assert_eq!((second.added, pages()), (10, 170));
        drop(second);
        assert_eq!((pages(), fs::read_dir(&notes).unwrap().count()), (160, 1));

        // Killed: the lock goes with the process, the note stays.
        let note = first.note.as_ref().unwrap();
        assert_eq!(fs::read_to_string(note.path()).unwrap(), "150");
        note.as_file().unlock().unwrap();
        std::mem::forget(first);
        fs::write(notes.join("somebody-elses"), "7").unwrap();
        let third = ReservedPages::of(&pool, &notes, 5).unwrap().unwrap();
        assert_eq!((third.got, third.added), (10, 0));
        drop(third);
        let left: Vec<_> = fs::read_dir(&notes).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!((pages(), left), (10, vec!["somebody-elses".into()]));
    }
}
