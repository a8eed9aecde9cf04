//! Reading capture files: pcap in both byte orders and both precisions, pcapng, and either of them
//! in a gzip, zstd or lz4 stream, from a file or a pipe.
//!
//! A [`Reader`] lends one [`Record`] at a time from its buffer; it copies and allocates nothing for a
//! packet.

mod blocks;
mod input;
mod pcap;
mod pcapng;
mod stream;
#[cfg(test)]
mod tests;

use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::{Format, InterfaceDescription, Record, Result};
pub use blocks::{Block, BlockReader, BlockType};
use input::{BorrowedRecord, Input};
use stream::Stream;

/// A capture file being read.
pub struct Reader {
    input: Input,
    format: State,
    interfaces: Vec<InterfaceDescription>,
    records: u64,
    finished: bool,
}

enum State {
    Pcap(pcap::State),
    Pcapng(pcapng::State),
}

impl Reader {
    /// Opens a file, or standard input for `-`, and reads as far as the file header.
    ///
    /// # Errors
    /// [`Error::Open`](crate::Error::Open), [`Error::NotACapture`](crate::Error::NotACapture), and what
    /// [`Reader::next`] says of a damaged header.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_until(path, &Arc::default())
    }

    /// As [`Reader::open`]; setting `stop` ends the wait for a pipe that has nothing to read.
    ///
    /// # Errors
    /// As [`Reader::open`], and [`Error::Cancelled`](crate::Error::Cancelled) also from [`Reader::next`].
    pub fn open_until(path: &Path, stop: &Arc<AtomicBool>) -> Result<Self> {
        let stream = Stream::open(path, stop)?;
        Self::from_stream(&stream.name, stream.bytes)
    }

    /// Reads from any stream; `name` is what errors call it.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn from_stream(name: &str, stream: Box<dyn Read + Send>) -> Result<Self> {
        Self::detect(name, stream)?.described()
    }

    /// With the interfaces that a pcapng file describes before its first packet.
    fn described(mut self) -> Result<Self> {
        if let State::Pcapng(state) = &mut self.format {
            state.open(&mut self.input, &mut self.interfaces)?;
        }
        Ok(self)
    }

    /// As [`Reader::from_stream`], at the first block of a pcapng file.
    fn detect(name: &str, stream: Box<dyn Read + Send>) -> Result<Self> {
        let mut input = Input::new(name, stream)?;
        let mut interfaces = Vec::new();
        let format = if pcapng::recognises(input.peek(4)?) {
            State::Pcapng(pcapng::State::default())
        } else {
            State::Pcap(pcap::State::open(&mut input, &mut interfaces)?)
        };
        Ok(Self { input, format, interfaces, records: 0, finished: false })
    }

    /// The file's format.
    pub fn format(&self) -> Format {
        match &self.format {
            State::Pcap(state) => Format::Pcap { nanoseconds: state.nanoseconds() },
            State::Pcapng(_) => Format::Pcapng,
        }
    }

    /// The interfaces described so far. A pcapng file may describe more of them later, but always
    /// before the first packet that refers to them; classic pcap has exactly one.
    pub fn interfaces(&self) -> &[InterfaceDescription] {
        &self.interfaces
    }

    /// The byte order of the numbers in the file, or in the current section of a pcapng file.
    #[inline]
    pub fn is_big_endian(&self) -> bool {
        match &self.format {
            State::Pcap(state) => state.big_endian,
            State::Pcapng(state) => state.big_endian,
        }
    }

    /// Bytes of the (decompressed) file up to the end of the last record.
    pub fn offset(&self) -> u64 {
        self.input.offsets().end
    }

    /// The next packet, or `None` at the end of the file.
    ///
    /// # Errors
    /// [`Error::Read`](crate::Error::Read), [`Error::Truncated`](crate::Error::Truncated) and
    /// [`Error::Malformed`](crate::Error::Malformed): each says at which byte, and how many packets were read before.
    /// After an error there is nothing more: the next call returns `None`.
    #[allow(clippy::should_implement_trait, reason = "an iterator cannot lend its item")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        Ok(self.next_described()?.map(|next| next.record))
    }

    /// As [`Reader::next`], with the interfaces and the offsets of the packet.
    ///
    /// # Errors
    /// As [`Reader::next`].
    #[inline]
    pub fn next_described(&mut self) -> Result<Option<DescribedRecord<'_>>> {
        if self.finished {
            return Ok(None);
        }
        self.finished = true;
        // Each has its own result: a common one would be a copy of the record.
        match &mut self.format {
            State::Pcap(state) => {
                let next = state.next(&mut self.input)?;
                let Some(BorrowedRecord { record, offsets, .. }) = next else { return Ok(None) };
                (self.finished, self.records) = (false, self.records + 1);
                let (interfaces, big_endian) = (&self.interfaces[..], state.big_endian);
                Ok(Some(DescribedRecord { record, interfaces, big_endian, offsets }))
            }
            State::Pcapng(state) => {
                let next = state.next(&mut self.input, &mut self.interfaces)?;
                let Some(BorrowedRecord { record, offsets, .. }) = next else { return Ok(None) };
                (self.finished, self.records) = (false, self.records + 1);
                let (interfaces, big_endian) = (&self.interfaces[..], state.big_endian);
                Ok(Some(DescribedRecord { record, interfaces, big_endian, offsets }))
            }
        }
    }
}

/// A packet of a file, borrowed until the next call.
#[derive(Clone, Debug)]
pub struct DescribedRecord<'a> {
    /// The packet.
    pub record: Record<'a>,
    /// The interfaces described so far, including its own.
    pub interfaces: &'a [InterfaceDescription],
    /// The byte order of the numbers in its record.
    pub big_endian: bool,
    /// The offsets of its record in the (decompressed) file.
    pub offsets: Range<u64>,
}
