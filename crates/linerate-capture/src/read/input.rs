//! The byte stream under a capture file: decompression, one growing buffer, and the offset.

use std::io::{self, BufRead, BufReader, Read};

use super::live::Stopped;
use crate::{Error, Result};

/// Bytes asked from the stream at once. Large enough that a system call is paid once for thousands
/// of small packets.
const CHUNK: usize = 1 << 20;

/// A buffered view of the decompressed stream that can hold a whole record.
pub(super) struct Input {
    stream: Box<dyn Read + Send>,
    name: String,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset in the file of `buffer[start]`.
    offset: u64,
    /// Bytes of the record lent last; they are given up with the next call.
    lent: usize,
    /// Whether they are a packet's.
    lent_packet: bool,
    records: u64,
}

impl Input {
    /// Looks at the first bytes of `stream` and puts the decompressor in that they ask for.
    pub(super) fn new(name: &str, stream: Box<dyn Read + Send>) -> Result<Self> {
        let mut stream = BufReader::with_capacity(CHUNK, stream);
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
        let stream: Box<dyn Read + Send> = match magic {
            [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(whole)),
            [0x28, 0xb5, 0x2f, 0xfd] => {
                Box::new(zstd::stream::read::Decoder::with_buffer(whole).map_err(failed)?)
            }
            [0x04, 0x22, 0x4d, 0x18] => {
                Box::new(Lz4Frames(Some(lz4_flex::frame::FrameDecoder::new(whole))))
            }
            _ => Box::new(whole),
        };
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
    pub(super) fn peek(&mut self, wanted: usize) -> Result<&[u8]> {
        self.release();
        if self.end - self.start < wanted {
            self.fill(wanted)?;
        }
        Ok(&self.buffer[self.start..self.end.min(self.start + wanted)])
    }

    /// All `length` bytes at the current position, or the error that says they are not there.
    pub(super) fn whole(&mut self, length: usize, what: &'static str) -> Result<&[u8]> {
        let available = self.peek(length)?.len();
        if available < length {
            return Err(self.truncated(what, length as u64, available as u64));
        }
        Ok(&self.buffer[self.start..self.start + length])
    }

    /// Leaves `length` bytes behind that [`Input::whole`] showed.
    pub(super) fn skip(&mut self, length: usize) {
        self.start += length;
        self.offset += length as u64;
    }

    /// Makes a packet's record [`Input::lent`] until the next call that takes `&mut self`.
    pub(super) fn lend(&mut self, length: usize, what: &'static str) -> Result<()> {
        self.whole(length, what)?;
        (self.lent, self.lent_packet) = (length, true);
        Ok(())
    }

    /// The same for a block that is no packet and that [`Input::whole`] showed.
    pub(super) fn lend_other(&mut self, length: usize) {
        (self.lent, self.lent_packet) = (length, false);
    }

    /// The record of the last [`Input::lend`].
    pub(super) fn lent(&self) -> &[u8] {
        &self.buffer[self.start..self.start + self.lent]
    }

    /// Where the bytes not yet handed out start, in the decompressed file.
    pub(super) fn offset(&self) -> u64 {
        self.offset + self.lent as u64
    }

    /// What was read and not handed out yet.
    pub(super) fn ahead(&self) -> &[u8] {
        &self.buffer[self.start + self.lent..self.end]
    }

    pub(super) fn truncated(&self, what: &'static str, needed: u64, available: u64) -> Error {
        let (name, offset, salvaged) = (self.name.clone(), self.offset, self.records);
        Error::Truncated { name, offset, what, needed, available, salvaged }
    }

    /// The record at the current position contradicts the format.
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

    fn release(&mut self) {
        if self.lent > 0 {
            self.skip(self.lent);
            self.records += u64::from(self.lent_packet);
            self.lent = 0;
        }
    }

    /// Makes `wanted` bytes available if the stream has them. The buffer grows only as bytes really
    /// arrive, so that a record's invented length costs no memory.
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

/// What it means that the stream failed.
fn unreadable(name: &str, offset: u64, source: io::Error, salvaged: u64) -> Error {
    let name = name.to_owned();
    if Stopped::is(&source) {
        return Error::Abandoned { name, salvaged };
    }
    Error::Read { name, offset, source, salvaged }
}

/// Several lz4 frames in a row are one stream, as `lz4 -d` sees it. The decoder stops after each, and
/// each gets a decoder of its own: one that goes on cannot change its block size.
struct Lz4Frames<R: BufRead>(Option<lz4_flex::frame::FrameDecoder<R>>);

impl<R: BufRead> Read for Lz4Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(decoder) = &mut self.0 else { return Ok(0) };
            let length = decoder.read(buffer)?;
            if length > 0 || buffer.is_empty() {
                return Ok(length);
            }
            let Some(mut rest) = self.0.take().map(lz4_flex::frame::FrameDecoder::into_inner)
            else {
                return Ok(0);
            };
            if rest.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.0 = Some(lz4_flex::frame::FrameDecoder::new(rest));
        }
    }
}
