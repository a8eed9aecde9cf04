//! The lock of an output file: who writes it, so that a second writer is refused.
//!
//! It is a byte-range lock (fcntl(2)), which only a process that may write the file can take. flock(2) is for everybody
//! who may read it, and readers take it here to keep a file from deletion. The lock of the open file description keeps
//! out writers of the same process, too. The lock of the process, one byte later, is there for its ID.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use linerate_net::process::Process;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_WRLCK, SEEK_SET, c_int, flock, off_t};

/// Behind all bytes that a file can have.
const DESCRIPTION: off_t = 1 << 62;
const PROCESS: off_t = DESCRIPTION + 1;

/// A lock of the byte at `start`.
fn range(kind: c_int, start: off_t) -> flock {
    let (l_type, l_whence) = (kind as i16, SEEK_SET as i16);
    flock { l_type, l_whence, l_start: start, l_len: 1, l_pid: 0 }
}

/// Claims `file`, at `path`, until it is closed. A lock that somebody who only reads has taken does not stop it.
///
/// # Errors
/// `ResourceBusy`, which names the process that writes it.
pub(super) fn claim(file: &File, path: &Path) -> io::Result<()> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&range(F_WRLCK, DESCRIPTION))) {
        Ok(_) => {
            // It only gives a name.
            let _ = fcntl(file, FcntlArg::F_SETLK(&range(F_WRLCK, PROCESS)));
            Ok(())
        }
        Err(Errno::EAGAIN | Errno::EACCES) => match FileWriter::of(file) {
            Some(writer) => {
                let text = format!("{writer} writes it; choose another name, or end that first");
                Err(io::Error::new(ErrorKind::ResourceBusy, text))
            }
            None => {
                let path = path.display();
                tracing::warn!(
                    "{path} has a lock of a reader (fcntl): another capture into it would not be refused"
                );
                Ok(())
            }
        },
        // Not every file system has locks.
        Err(_) => Ok(()),
    }
}

/// Who writes a capture file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileWriter(Option<Process>);

impl FileWriter {
    /// The writer of this file, if an [`OutputFile`](crate::OutputFile) has it open.
    pub fn of(file: &File) -> Option<Self> {
        let find = |argument: fn(&mut flock) -> FcntlArg<'_>, start| {
            let mut found = range(F_WRLCK, start);
            fcntl(file, argument(&mut found)).ok()?;
            (i32::from(found.l_type) == F_WRLCK).then_some(found.l_pid)
        };
        find(|lock| FcntlArg::F_OFD_GETLK(lock), DESCRIPTION)?;
        let process = find(|lock| FcntlArg::F_GETLK(lock), PROCESS);
        let process = process.and_then(|id| u32::try_from(id).ok()).filter(|id| *id > 0);
        Some(Self(process.map(Process::by_id)))
    }

    /// The process; `None` if this one or one of another PID namespace writes it.
    pub fn process(&self) -> Option<&Process> {
        self.0.as_ref()
    }
}

impl std::fmt::Display for FileWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(process) => process.fmt(f),
            // This process, or one of another PID namespace.
            None => f.write_str("another capture"),
        }
    }
}

/// Refuses a rotation whose names are `base` and numbers behind it while a file of such a name is written.
///
/// # Errors
/// `ResourceBusy`, which names the file and the process that writes it.
pub fn refuse_numbered_in_use(base: &Path) -> io::Result<()> {
    let Some(name) = base.file_name() else { return Ok(()) };
    let folder = base.parent().filter(|folder| !folder.as_os_str().is_empty());
    // A folder that cannot be listed may still be written.
    for entry in fs::read_dir(folder.unwrap_or(Path::new("."))).into_iter().flatten().flatten() {
        let other = entry.file_name();
        let number = other.as_bytes().strip_prefix(name.as_bytes()).unwrap_or_default();
        let is_numbered = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
        if is_numbered
            && entry.file_type().is_ok_and(|found| found.is_file())
            && let Ok(file) = File::open(entry.path())
            && let Some(writer) = FileWriter::of(&file)
        {
            let other = other.display();
            let text = format!(
                "{writer} writes {other}, a file of the same rotation; choose another name, or end that first"
            );
            return Err(io::Error::new(ErrorKind::ResourceBusy, text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::sync::atomic::AtomicBool;

    use nix::libc::F_RDLCK;

    use super::*;
    use crate::{Compression, OutputFile, Result};

    fn create(path: &Path) -> Result<OutputFile> {
        OutputFile::create(path, Compression::None, &AtomicBool::new(false))
    }

    fn next(path: &Path) -> OutputFile {
        let owner = rustix::process::geteuid().as_raw();
        OutputFile::create_next(path, Compression::None, &AtomicBool::new(false), owner).unwrap()
    }

    #[test]
    fn a_file_that_is_written_is_neither_emptied_nor_written_by_a_second_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let mut first = create(&path).unwrap();
        first.write(b"packets", |_| 0).unwrap();
        let error = create(&path).err().unwrap().to_string();
        assert!(error.contains("another capture writes it"), "{error}");
        // A file of a rotation gets another name.
        assert_ne!(next(&path).path(), path);
        assert_eq!(fs::read(&path).unwrap(), b"packets");
        drop(first);
        assert_eq!(FileWriter::of(&File::open(&path).unwrap()), None);
        assert_eq!(next(&path).path(), path);
        assert_eq!(fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn what_is_no_file_or_already_open_may_be_shared() {
        for path in ["/dev/null", "-"] {
            let writers = [(); 2].map(|()| create(Path::new(path)).map(drop));
            assert!(writers.iter().all(Result::is_ok), "{path}: {writers:?}");
        }
    }

    #[test]
    fn locks_of_those_who_only_read_stop_no_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "old").unwrap();
        let reader = File::open(&path).unwrap();
        reader.lock().unwrap();
        let all = flock { l_len: 0, ..range(F_RDLCK, 0) };
        fcntl(&reader, FcntlArg::F_OFD_SETLK(&all)).unwrap();
        let exclusive = flock { l_len: 0, ..range(F_WRLCK, 0) };
        assert!(fcntl(&reader, FcntlArg::F_OFD_SETLK(&exclusive)).is_err(), "it may not write");
        create(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn files_with_a_number_are_those_of_a_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let others = ["x", "xy", "x7y", "y7"].map(|name| create(&path(name)).unwrap());
        OpenOptions::new().append(true).create(true).open(path("x6")).unwrap();
        refuse_numbered_in_use(&path("x")).unwrap();
        drop(others);
        let _seventh = create(&path("x7")).unwrap();
        let error = refuse_numbered_in_use(&path("x")).unwrap_err().to_string();
        assert!(error.contains(" writes x7, "), "{error}");
    }
}
