//! [`Writer`]: a file that is written record by record.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::OutputFile;
use crate::{Compression, Result};

/// Bytes of one write.
const CHUNK: usize = 1 << 20;

/// A capture file that is being written. Records go into the file in large pieces.
pub struct Writer {
    file: OutputFile,
    buffer: Vec<u8>,
    /// Where the records in the buffer end, and which are packets.
    ends: Vec<(usize, bool)>,
    packets: u64,
}

impl Writer {
    /// Creates the file as [`OutputFile::create`] does.
    ///
    /// # Errors
    /// [`Error::Create`](crate::Error::Create).
    pub fn create(path: &Path, compression: Compression, stop: &AtomicBool) -> Result<Self> {
        let file = OutputFile::create(path, compression, stop)?;
        let buffer = Vec::with_capacity(CHUNK + (CHUNK >> 2));
        Ok(Self { file, buffer, ends: Vec::new(), packets: 0 })
    }

    /// Appends what `encode` appends: one record, of a packet or not.
    ///
    /// # Errors
    /// [`Error::Write`](crate::Error::Write).
    pub fn write_record(&mut self, packet: bool, encode: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        encode(&mut self.buffer);
        self.ends.push((self.buffer.len(), packet));
        if self.buffer.len() >= CHUNK { self.flush() } else { Ok(()) }
    }

    /// Writes the buffered records to the file.
    ///
    /// # Errors
    /// [`Error::Write`](crate::Error::Write); the file then ends with a whole record.
    pub fn flush(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let ends = &self.ends;
        let whole = |done| {
            ends.iter().map(|(end, _)| *end).take_while(|end| *end <= done).last().unwrap_or(0)
        };
        let written = self.file.write(&self.buffer, whole);
        let kept = match &written {
            Ok(()) => self.buffer.len(),
            Err((_, kept)) => *kept,
        };
        let packets = self.ends.iter().filter(|(end, packet)| *packet && *end <= kept).count();
        self.packets += packets as u64;
        self.buffer.clear();
        self.ends.clear();
        written.map_err(|(error, _)| error)
    }

    /// Packets in the file.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Bytes in the file.
    pub fn bytes_written(&self) -> u64 {
        self.file.bytes_written()
    }

    /// Its name, `-` for standard output.
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}
