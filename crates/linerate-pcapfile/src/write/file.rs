//! [`OutputFile`]: a file, a pipe or standard output that ends with a whole record, compressed or not.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::lock;
use crate::compression::Compressor;
use crate::foreign::{Found, create_own, look, refuse_foreign};
use crate::{Compression, Error, FILE_MODE, Result, UserGroup};

/// Refuses standard output (`-`) if it is a terminal, before there is anything to write.
/// [`OutputFile::create`] does the same.
///
/// # Errors
/// [`Error::Terminal`].
pub fn refuse_terminal(path: &Path) -> Result<()> {
    match path.as_os_str() == "-" && io::stdout().is_terminal() {
        true => Err(Error::Terminal { path: path.to_owned() }),
        false => Ok(()),
    }
}

/// An open output file.
///
/// With compression, every buffer becomes one compressed frame; every decompressor reads consecutive
/// frames as one stream. So a file is complete after each write, also after `kill -9`, and after a
/// failed write it can be truncated to the frame before.
pub struct OutputFile {
    file: File,
    path: PathBuf,
    /// A regular file, which can be truncated.
    regular: bool,
    compressor: Compressor,
    /// Bytes in the file.
    length: u64,
}

impl OutputFile {
    /// Creates the file, which only its owner can read, or truncates it if it exists; `-` is standard output. Opening
    /// a named pipe waits until it has a reader, or until `stop`.
    ///
    /// # Errors
    /// [`Error::Create`], also for a file or link of another user in a folder such as `/tmp`, and for a file that
    /// another process writes; [`Error::Terminal`].
    pub fn create(path: &Path, compression: Compression, stop: &AtomicBool) -> Result<Self> {
        let output = Self::open(path, compression, stop)
            .map_err(|source| Error::Create { path: path.to_owned(), source })?;
        match output.file.is_terminal() {
            true => Err(Error::Terminal { path: path.to_owned() }),
            false => Ok(output),
        }
    }

    fn open(path: &Path, compression: Compression, stop: &AtomicBool) -> io::Result<Self> {
        let is_stdout = path.as_os_str() == "-";
        let file = if is_stdout {
            File::from(io::stdout().as_fd().try_clone_to_owned()?)
        } else if path.metadata().is_ok_and(|found| found.file_type().is_fifo()) {
            refuse_foreign(path)?;
            open_pipe(path, stop)?
        } else {
            open_file(path)?
        };
        // Standard output may be a file that the shell appends to: it is never truncated.
        let regular = !is_stdout && file.metadata()?.is_file();
        Self::new(file, path.to_owned(), regular, compression)
    }

    fn new(file: File, path: PathBuf, regular: bool, compression: Compression) -> io::Result<Self> {
        let compressor = Compressor::new(compression)?;
        Ok(Self { file, path, regular, compressor, length: 0 })
    }

    /// As [`OutputFile::create`], for the next file of a rotation, whose name other users can foresee. If one has put
    /// something there, or another process writes there, the file has another name: `path` with the time, which is
    /// logged. `owner` has the file before.
    ///
    /// # Errors
    /// [`Error::Create`].
    pub fn create_next(
        path: &Path,
        compression: Compression,
        stop: &AtomicBool,
        owner: u32,
    ) -> Result<Self> {
        let failed = |source| Error::Create { path: path.to_owned(), source };
        let create = |path: &Path| {
            let mut exclusive = OpenOptions::new();
            let file = exclusive.write(true).create_new(true).mode(FILE_MODE).open(path)?;
            lock::claim(&file, path)?;
            Self::new(file, path.to_owned(), true, compression)
        };
        let created = match look(path, Some(owner)) {
            Found::Own => Self::open(path, compression, stop),
            Found::Nothing => create(path),
            Found::Foreign(_) => Err(io::ErrorKind::AlreadyExists.into()),
        };
        let reason = match created {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                "another user has put something there".to_owned()
            }
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => error.to_string(),
            created => return created.map_err(failed),
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let mut other = path.as_os_str().to_owned();
        other.push(format!(".{}", now.unwrap_or_default().as_nanos()));
        let other = PathBuf::from(other);
        tracing::warn!(
            "cannot write {}: {reason}; the file is {}",
            path.display(),
            other.display()
        );
        create(&other).map_err(failed)
    }

    /// The user who owns the file.
    ///
    /// # Errors
    /// [`Error::Create`].
    pub fn owner(&self) -> Result<u32> {
        let found = self.file.metadata();
        let found = found.map_err(|source| Error::Create { path: self.path.clone(), source })?;
        Ok(found.uid())
    }

    /// Lets this group read the file, if it is a regular one.
    ///
    /// # Errors
    /// [`Error::Create`].
    pub fn share(&self, group: UserGroup) -> Result<()> {
        if !self.regular {
            return Ok(());
        }
        group.share(&self.file).map_err(|source| Error::Create { path: self.path.clone(), source })
    }

    /// Its name, `-` for standard output.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes in the file.
    pub fn bytes_written(&self) -> u64 {
        self.length
    }

    /// Writes all of `bytes`. If that fails, `whole` gets the number of bytes that are in the file and
    /// returns how many may stay, so that the file ends with a whole record.
    ///
    /// # Errors
    /// [`Error::Write`], and how many bytes of `bytes` stayed.
    pub fn write(
        &mut self,
        bytes: &[u8],
        whole: impl FnOnce(usize) -> usize,
    ) -> Result<(), (Error, usize)> {
        let failed = |source| Error::Write { path: self.path.clone(), source };
        let compressed = self.compressor.compress(bytes).map_err(|error| (failed(error), 0))?;
        let (target, is_compressed) = (compressed.unwrap_or(bytes), compressed.is_some());
        let mut done = 0;
        while done < target.len() {
            let error = match (&self.file).write(&target[done..]) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(n) => {
                    done += n;
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            let error = failed(error);
            let kept = if is_compressed { 0 } else { whole(done) };
            self.truncate(kept);
            return Err((error, kept));
        }
        self.length += done as u64;
        Ok(())
    }

    /// After a failed write: keeps `kept` bytes of it.
    fn truncate(&mut self, kept: usize) {
        self.length += kept as u64;
        if !self.regular {
            return;
        }
        if let Err(error) = self.file.set_len(self.length) {
            tracing::warn!("cannot truncate the file to its last whole packet: {error}");
        }
        // The next write, if any, must not leave a hole behind the end.
        let _ = (&self.file).seek(SeekFrom::Start(self.length));
    }
}

/// Opens or creates a file that nobody else writes, and empties it. A device, or what is already open, stays as it is.
fn open_file(path: &Path) -> io::Result<File> {
    loop {
        let file = create_own(path, OpenOptions::new().write(true).truncate(false))?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Ok(file);
        }
        if !is_descriptor(path) {
            lock::claim(&file, path)?;
        }
        // The process that wrote it before may have removed it.
        if path.metadata().is_ok_and(|now| (now.dev(), now.ino()) == (found.dev(), found.ino())) {
            file.set_len(0)?;
            return Ok(file);
        }
    }
}

/// Whether this names a file that a process has open already, such as standard output: those may be shared.
fn is_descriptor(path: &Path) -> bool {
    ["/dev/stdout", "/dev/stderr", "/dev/fd", "/proc"].iter().any(|start| path.starts_with(start))
}

/// Whether both are one regular file, whatever their names; `input` may be `-` for standard input.
pub fn same_file(input: &Path, output: &Path) -> bool {
    let identity = |path: &Path| {
        let found = path.metadata().ok().filter(fs::Metadata::is_file)?;
        Some((found.dev(), found.ino()))
    };
    let input = if input.as_os_str() == "-" { Path::new("/dev/stdin") } else { input };
    identity(input).is_some_and(|one| identity(output) == Some(one))
}

/// How often to try whether a named pipe has a reader.
const PIPE_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Opens a named pipe once it has a reader. A blocking open(2) would wait in the kernel, where a signal
/// handler that only sets a flag does not end it.
fn open_pipe(path: &Path, stop: &AtomicBool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    loop {
        match options.open(path) {
            Ok(file) => {
                fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
                return Ok(file);
            }
            // The pipe has no reader (fifo(7)).
            Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {}
            Err(error) => return Err(error),
        }
        if stop.load(Relaxed) {
            let what = "no process opened this pipe for reading before the capture was told to end";
            return Err(io::Error::new(io::ErrorKind::Interrupted, what));
        }
        std::thread::sleep(PIPE_RETRY_INTERVAL);
    }
}
