//! Reading capture files: pcap in both byte orders and both precisions, pcapng, and either of them
//! in a gzip, zstd or lz4 stream, from a file or a pipe.
//!
//! A [`Reader`] lends one [`Record`] at a time out of its buffer; nothing is copied and nothing is
//! allocated for a packet.
//!
//! ```no_run
//! # fn main() -> linerate_capture::Result<()> {
//! let mut reader = linerate_capture::read::Reader::open("trace.pcapng".as_ref())?;
//! while let Some(record) = reader.next()? {
//!     println!("{} bytes on interface {}", record.frame.wire_len, record.interface);
//! }
//! # Ok(())
//! # }
//! ```

mod blocks;
mod input;
mod live;
mod pcap;
mod pcapng;
#[cfg(test)]
mod tests;
mod time;

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use linerate_ring::Frame;
use rustix::fs::OFlags;

use crate::{Error, Format, Result};
pub use blocks::{Block, Blocks, Shape};
use input::Input;
use live::Live;
pub use time::Resolution;

/// An interface as the file describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// `if_name`, such as `eth0`.
    pub name: Option<String>,
    /// `if_description`.
    pub description: Option<String>,
    /// The capture filter it was captured with (`if_filter`, textual kind only).
    pub filter: Option<String>,
    /// `if_os`.
    pub os: Option<String>,
    /// The first comment on it.
    pub comment: Option<String>,
    /// Link type as in the LINKTYPE registry; 1 is Ethernet.
    pub linktype: u16,
    /// Longest record, in bytes; 0 means no limit.
    pub snaplen: u32,
    /// Ticks of its time stamps.
    pub resolution: Resolution,
    /// Seconds to add to its time stamps.
    pub offset: i64,
    /// Its last statistics block, where the file has one already.
    pub statistics: Option<Statistics>,
}

/// What an interface statistics block says; every count is since the start of the capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// `isb_ifrecv`: packets the interface received.
    pub received: Option<u64>,
    /// `isb_ifdrop`: packets the interface dropped for lack of resources.
    pub interface_dropped: Option<u64>,
    /// `isb_filteraccept`: packets the filter accepted.
    pub filter_accepted: Option<u64>,
    /// `isb_osdrop`: packets the operating system dropped.
    pub system_dropped: Option<u64>,
    /// `isb_usrdeliv`: packets delivered to the user.
    pub delivered: Option<u64>,
    /// The first comment.
    pub comment: Option<String>,
}

/// One packet of a capture file, lent until the next call.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The packet; its time stamp is `None` only where the file has none (simple packet blocks).
    pub frame: Frame<'a>,
    /// Index into [`Reader::interfaces`]; always 0 for classic pcap.
    pub interface: u32,
    /// The packet's first comment, where it is valid UTF-8.
    pub comment: Option<&'a str>,
}

/// A capture file being read.
pub struct Reader {
    input: Input,
    format: State,
    interfaces: Vec<Interface>,
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
    ///
    /// [`Error::Open`], [`Error::NotACapture`], and what [`Reader::next`] says of a damaged header.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_until(path, &Arc::default())
    }

    /// As [`Reader::open`]; setting `stop` ends the wait for a pipe that has nothing to read.
    ///
    /// # Errors
    ///
    /// As [`Reader::open`], and [`Error::Abandoned`] also from [`Reader::next`].
    pub fn open_until(path: &Path, stop: &Arc<AtomicBool>) -> Result<Self> {
        let source = Source::open(path, stop)?;
        Self::from_stream(&source.name, source.stream)
    }

    /// Reads from any stream; `name` is what errors call it.
    ///
    /// # Errors
    ///
    /// As [`Reader::open`].
    pub fn from_stream(name: &str, stream: Box<dyn Read + Send>) -> Result<Self> {
        let mut reader = Self::begin(name, stream)?;
        if let State::Pcapng(state) = &mut reader.format {
            state.open(&mut reader.input, &mut reader.interfaces)?;
        }
        Ok(reader)
    }

    /// As [`Reader::from_stream`], at the first block of a pcapng file.
    fn begin(name: &str, stream: Box<dyn Read + Send>) -> Result<Self> {
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
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Packets read so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Bytes of the (decompressed) file that are behind the last record.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// The next packet, or `None` at the end of the file.
    ///
    /// # Errors
    ///
    /// [`Error::Read`], [`Error::Truncated`] and [`Error::Malformed`]: each says at which byte, and
    /// how many packets were read before. After an error there is nothing more: the next call
    /// answers `None`.
    #[allow(clippy::should_implement_trait, reason = "an iterator cannot lend its item")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>> {
        Ok(self.next_described()?.map(|(record, _)| record))
    }

    /// As [`Reader::next`], with the interfaces described so far, the packet's own among them.
    ///
    /// # Errors
    ///
    /// As [`Reader::next`].
    pub fn next_described(&mut self) -> Result<Option<(Record<'_>, &[Interface])>> {
        if self.finished {
            return Ok(None);
        }
        self.finished = true;
        let record = match &mut self.format {
            State::Pcap(state) => state.next(&mut self.input)?.map(|(record, _)| record),
            State::Pcapng(state) => state.next(&mut self.input, &mut self.interfaces)?,
        };
        if record.is_some() {
            self.finished = false;
            self.records += 1;
        }
        Ok(record.map(|record| (record, &self.interfaces[..])))
    }
}

/// A file, a pipe or standard input, opened.
struct Source {
    /// What errors call it.
    name: String,
    /// Bytes of a regular file.
    size: Option<u64>,
    stream: Box<dyn Read + Send>,
}

impl Source {
    fn open(path: &Path, stop: &Arc<AtomicBool>) -> Result<Self> {
        let open = |source| Error::Open { path: path.to_owned(), source };
        let (name, file) = if path.as_os_str() == "-" {
            let file = File::from(std::io::stdin().as_fd().try_clone_to_owned().map_err(open)?);
            ("standard input".to_owned(), file)
        } else {
            // Opening a named pipe would else wait for its writer, deaf to `stop`.
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
            (path.display().to_string(), options.open(path).map_err(open)?)
        };
        let metadata = file.metadata().map_err(open)?;
        if metadata.is_dir() {
            return Err(open(std::io::ErrorKind::IsADirectory.into()));
        }
        let size = metadata.is_file().then_some(metadata.len());
        let stream: Box<dyn Read + Send> = match size {
            Some(_) => Box::new(file),
            None => Box::new(Live { file, stop: Arc::clone(stop) }),
        };
        Ok(Self { name, size, stream })
    }
}
