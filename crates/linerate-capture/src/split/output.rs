//! The file that is written: whole records, in large pieces.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::write::{Compression, Sink};
use crate::{Error, Result};

/// Bytes written at once.
const CHUNK: usize = 1 << 20;

/// A capture file in the making.
pub struct Output {
    sink: Sink,
    path: PathBuf,
    buffer: Vec<u8>,
    /// Where the records in the buffer end, and which are packets.
    ends: Vec<(usize, bool)>,
    packets: u64,
}

impl Output {
    /// Creates the file, or empties it; `-` is standard output. A named pipe is waited for until
    /// somebody reads it, or until `stop`.
    ///
    /// # Errors
    ///
    /// [`Error::Create`].
    pub fn create(path: &Path, compression: Compression, stop: &AtomicBool) -> Result<Self> {
        let sink = Sink::create(path, compression, stop)
            .map_err(|source| Error::Create { path: path.to_owned(), source })?;
        let buffer = Vec::with_capacity(CHUNK + (CHUNK >> 2));
        Ok(Self { sink, path: path.to_owned(), buffer, ends: Vec::new(), packets: 0 })
    }

    /// Appends what `write` writes: one record, of a packet or not.
    pub(super) fn put(&mut self, packet: bool, write: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        write(&mut self.buffer);
        self.ends.push((self.buffer.len(), packet));
        if self.buffer.len() >= CHUNK { self.flush() } else { Ok(()) }
    }

    /// Brings everything into the file.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let ends = std::mem::take(&mut self.ends);
        let whole = |done: usize| {
            ends.iter().take_while(|(end, _)| *end <= done).last().map_or(0, |(end, _)| *end)
        };
        let written = self.sink.write(&self.buffer, whole);
        let kept = match &written {
            Ok(()) => self.buffer.len(),
            Err((_, kept)) => *kept,
        };
        let packets = ends.iter().filter(|(end, packet)| *packet && *end <= kept).count();
        self.packets += packets as u64;
        self.buffer.clear();
        self.ends = ends;
        self.ends.clear();
        written.map_err(|(source, _)| Error::Write { path: self.path.clone(), source })
    }

    /// Packets in the file.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Bytes in the file.
    pub(super) fn length(&self) -> u64 {
        self.sink.length()
    }

    /// Its name.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
