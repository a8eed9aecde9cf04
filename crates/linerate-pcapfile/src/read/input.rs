//! The byte stream under a capture file: decompression, one growing buffer, and the offset.

use std::io::{self, BufReader, Read};
use std::ops::Range;

use super::stream::Cancelled;
use crate::compression::decompress;
use crate::{Error, Record, Result};

/// Bytes of one read: one system call serves thousands of small packets, and they are still in the core's own cache
/// when they are parsed.
const CHUNK: usize = 1 << 18;

/// A packet, borrowed from the buffer; its record as in version 2.4 of pcap or in pcapng; and the offsets of the record
/// in the decompressed file.
pub(super) struct BorrowedRecord<'a> {
    pub(super) record: Record<'a>,
    pub(super) bytes: &'a [u8],
    pub(super) offsets: Range<u64>,
}

/// A buffered view of the decompressed stream that can hold a whole record.
pub(super) struct Input {
    stream: Box<dyn Read + Send>,
    name: String,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset in the file of `buffer[start]`.
    offset: u64,
    /// Bytes of the record lent last; the next call skips them.
    lent: usize,
    /// Whether they are a packet's.
    lent_packet: bool,
    records: u64,
}

impl Input {
    /// Chooses the decompressor by the first bytes of `stream`.
    pub(super) fn new(name: &str, stream: Box<dyn Read + Send>) -> Result<Self> {
        // Each read of `fill` asks for as much at least, so it does not go through this buffer.
        let mut stream = BufReader::with_capacity(CHUNK / 2, stream);
        let failed = |source| unreadable(name, 0, source, 0);
        let mut magic = [0; 4];
        let mut have = 0;
        while have < magic.len() {
            match stream.read(&mut magic[have..]) {
                Ok(0) => break,
                Ok(n) => have += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let whole = io::Cursor::new(magic).take(have as u64).chain(stream);
        let stream = decompress(magic, whole).map_err(failed)?;
        Ok(Self {
            stream,
            name: name.into(),
            buffer: Vec::new(),
            start: 0,
            end: 0,
            offset: 0,
            lent: 0,
            lent_packet: false,
            records: 0,
        })
    }

    /// Up to `wanted` bytes from the current position; fewer only at the end of the stream.
    #[inline]
    pub(super) fn peek(&mut self, wanted: usize) -> Result<&[u8]> {
        self.release();
        if self.end - self.start < wanted {
            self.fill(wanted)?;
        }
        Ok(&self.buffer[self.start..self.end.min(self.start + wanted)])
    }

    /// All `length` bytes at the current position, or [`Error::Truncated`].
    #[inline]
    pub(super) fn whole(&mut self, length: usize, what: &'static str) -> Result<&[u8]> {
        let available = self.peek(length)?.len();
        if available < length {
            return Err(self.truncated(what, length as u64, available as u64));
        }
        Ok(&self.buffer[self.start..self.start + length])
    }

    /// Skips `length` bytes that [`Input::whole`] returned.
    #[inline]
    pub(super) fn skip(&mut self, length: usize) {
        self.start += length;
        self.offset += length as u64;
    }

    /// Makes a packet's record [`Input::lent`] until the next call that takes `&mut self`.
    #[inline]
    pub(super) fn lend(&mut self, length: usize, what: &'static str) -> Result<()> {
        self.whole(length, what)?;
        (self.lent, self.lent_packet) = (length, true);
        Ok(())
    }

    /// The same for a block that is not a packet and that [`Input::whole`] returned.
    pub(super) fn lend_other(&mut self, length: usize) {
        (self.lent, self.lent_packet) = (length, false);
    }

    /// The record of the last [`Input::lend`].
    #[inline]
    pub(super) fn lent(&self) -> &[u8] {
        &self.buffer[self.start..self.start + self.lent]
    }

    /// The same, to be changed.
    pub(super) fn lent_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.start + self.lent]
    }

    /// The offsets of the lent record in the decompressed file.
    #[inline]
    pub(super) fn offsets(&self) -> Range<u64> {
        self.offset..self.offset + self.lent as u64
    }

    /// Bytes in the buffer behind the lent record.
    pub(super) fn ahead(&self) -> &[u8] {
        &self.buffer[self.start + self.lent..self.end]
    }

    #[cold]
    pub(super) fn truncated(&self, what: &'static str, needed: u64, available: u64) -> Error {
        let (name, offset, salvaged) = (self.name.clone(), self.offset, self.records);
        Error::Truncated { name, offset, what, needed, available, salvaged }
    }

    /// The record at the current position contradicts the format.
    #[cold]
    pub(super) fn malformed(&self, what: impl Into<String>) -> Error {
        let (name, offset, salvaged) = (self.name.clone(), self.offset, self.records);
        Error::Malformed { name, offset, what: what.into(), salvaged }
    }

    pub(super) fn not_a_capture(&self, start: &[u8]) -> Error {
        let found = match start {
            [] => "nothing (it is empty)".into(),
            bytes => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "),
        };
        Error::NotACapture { name: self.name.clone(), found }
    }

    #[inline]
    fn release(&mut self) {
        if self.lent > 0 {
            self.skip(self.lent);
            self.records += u64::from(self.lent_packet);
            self.lent = 0;
        }
    }

    /// Makes `wanted` bytes available if the stream has them. The buffer grows only as bytes really
    /// arrive, so that a record's invented length costs no memory.
    #[cold]
    fn fill(&mut self, wanted: usize) -> Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < wanted {
            if self.buffer.len() - self.end < CHUNK / 2 {
                self.buffer.resize(self.end + CHUNK, 0);
            }
            match self.stream.read(&mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(n) => self.end += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    let offset = self.offset + self.end as u64;
                    return Err(unreadable(&self.name, offset, source, self.records));
                }
            }
        }
        Ok(())
    }
}

/// The error of a stream that failed.
fn unreadable(name: &str, offset: u64, source: io::Error, salvaged: u64) -> Error {
    let name = name.to_owned();
    if Cancelled::is(&source) {
        return Error::Cancelled { name, salvaged };
    }
    Error::Read { name, offset, source, salvaged }
}
