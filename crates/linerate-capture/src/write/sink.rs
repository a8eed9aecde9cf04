//! One output file, or standard output: whole records or nothing, compressed or not.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Streaming compression of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// As it is.
    #[default]
    None,
    /// Zstandard, level 1: the fastest that still halves typical captures.
    Zstd,
    /// LZ4 frames.
    Lz4,
}

/// An open output.
///
/// With compression, every buffer becomes a compressed frame of its own; frames in a row are one
/// stream to every decompressor. So a file is complete after each write, also after `kill -9`, and
/// after a failed write it can be cut back to the frame before.
pub(crate) struct Sink {
    file: File,
    /// Can be cut back (a regular file).
    regular: bool,
    compressor: Compressor,
    /// Bytes in the file.
    length: u64,
}

enum Compressor {
    None,
    Zstd { context: Box<zstd::bulk::Compressor<'static>>, out: Vec<u8> },
    Lz4 { out: Vec<u8> },
}

impl Sink {
    /// Creates the file, or empties it if it exists; `-` is standard output. A named pipe is waited
    /// for until somebody reads it, or until `stop`.
    pub(crate) fn create(
        path: &Path,
        compression: Compression,
        stop: &AtomicBool,
    ) -> io::Result<Self> {
        let file = if path.as_os_str() == "-" {
            File::from(io::stdout().as_fd().try_clone_to_owned()?)
        } else if path.metadata().is_ok_and(|found| found.file_type().is_fifo()) {
            open_pipe(path, stop)?
        } else {
            OpenOptions::new().write(true).create(true).truncate(true).open(path)?
        };
        let compressor = match compression {
            Compression::None => Compressor::None,
            Compression::Zstd => {
                let mut context = zstd::bulk::Compressor::new(1)?;
                context.include_checksum(true)?;
                Compressor::Zstd { context: Box::new(context), out: Vec::new() }
            }
            Compression::Lz4 => Compressor::Lz4 { out: Vec::new() },
        };
        // Standard output may be a file that the shell appends to: it is never cut.
        let regular = path.as_os_str() != "-" && file.metadata()?.is_file();
        Ok(Self { file, regular, compressor, length: 0 })
    }

    /// Bytes in the file.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Writes all of `bytes`. If that fails, `whole` is told how many of them are in the file and
    /// answers how many may stay, so that the file ends with a whole record.
    ///
    /// # Errors
    ///
    /// The system's error, and how many bytes of `bytes` stayed.
    pub(crate) fn write(
        &mut self,
        bytes: &[u8],
        whole: impl FnOnce(usize) -> usize,
    ) -> Result<(), (io::Error, usize)> {
        let nothing = |error| (error, 0);
        let packed = match &mut self.compressor {
            Compressor::None => None,
            Compressor::Zstd { context, out } => {
                out.resize(zstd::zstd_safe::compress_bound(bytes.len()), 0);
                let length = context.compress_to_buffer(bytes, out).map_err(nothing)?;
                Some(&out[..length])
            }
            Compressor::Lz4 { out } => {
                out.clear();
                let mut encoder = lz4_flex::frame::FrameEncoder::new(&mut *out);
                encoder.write_all(bytes).map_err(nothing)?;
                encoder.finish().map_err(|error| nothing(error.into()))?;
                Some(&out[..])
            }
        };
        let (target, compressed) = (packed.unwrap_or(bytes), packed.is_some());
        let mut done = 0;
        while done < target.len() {
            match (&self.file).write(&target[done..]) {
                Ok(0) => {
                    let error = io::Error::from(io::ErrorKind::WriteZero);
                    return Err((error, self.cut_back(done, compressed, whole)));
                }
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err((error, self.cut_back(done, compressed, whole))),
            }
        }
        self.length += done as u64;
        Ok(())
    }

    /// After a failed write: keeps the whole records of the `done` bytes that reached the file.
    fn cut_back(
        &mut self,
        done: usize,
        compressed: bool,
        whole: impl FnOnce(usize) -> usize,
    ) -> usize {
        let kept = if compressed { 0 } else { whole(done) };
        self.length += kept as u64;
        if self.regular
            && let Err(error) = self.file.set_len(self.length)
        {
            tracing::warn!("cannot cut the file back to its last whole packet: {error}");
        }
        // The next write, if any, must not leave a hole behind the cut.
        if self.regular {
            use io::{Seek, SeekFrom};
            let _ = (&self.file).seek(SeekFrom::Start(self.length));
        }
        kept
    }
}

/// How often a named pipe is asked whether somebody reads it.
const ASK: Duration = Duration::from_millis(20);

/// Opens a named pipe once it has a reader. A plain open(2) would wait in the kernel, where signals
/// that only set a flag do not end it.
fn open_pipe(path: &Path, stop: &AtomicBool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    loop {
        match options.open(path) {
            Ok(file) => {
                fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
                return Ok(file);
            }
            // What a pipe without a reader answers (fifo(7)).
            Err(error) if error.raw_os_error() == Some(nix::errno::Errno::ENXIO as i32) => {}
            Err(error) => return Err(error),
        }
        if stop.load(Relaxed) {
            let what = "nobody opened this pipe for reading before the capture was told to end";
            return Err(io::Error::new(io::ErrorKind::Interrupted, what));
        }
        std::thread::sleep(ASK);
    }
}
