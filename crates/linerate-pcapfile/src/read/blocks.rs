//! Capture files block by block, as they are in the file: for programs that change some blocks and copy
//! the rest.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::input::BorrowedRecord;
use super::{Reader, State, Stream, pcapng};
use crate::format::pcapng as block_type;
use crate::{Format, InterfaceDescription, Record, Result};

/// The type of a block; the two parts of a pcap file count as blocks, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockType {
    /// The 24-byte header of a pcap file.
    PcapHeader,
    /// A packet of a pcap file with its 16-byte header.
    PcapRecord,
    /// A section header block.
    SectionHeader,
    /// An interface description block.
    InterfaceDescription,
    /// An enhanced packet block.
    EnhancedPacket,
    /// The packet block that pcapng had before the enhanced one.
    ObsoletePacket,
    /// A simple packet block.
    SimplePacket,
    /// A name resolution block.
    NameResolution,
    /// A decryption secrets block.
    DecryptionSecrets,
    /// Any other block of pcapng: statistics, custom blocks.
    Other,
}

/// One block, lent until the next call.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// Its type.
    pub block_type: BlockType,
    /// All its bytes.
    pub bytes: &'a [u8],
    /// The byte order of its fields.
    pub big_endian: bool,
    /// The packet, if it is one.
    pub record: Option<Record<'a>>,
}

/// A capture file that is read block by block.
pub struct BlockReader {
    reader: Reader,
    /// The header of a pcap file comes next.
    header: bool,
    consumed: Arc<AtomicU64>,
    size: Option<u64>,
}

impl BlockReader {
    /// Opens a file, or standard input for `-`.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_until(path, &Arc::default())
    }

    /// As [`BlockReader::open`]; setting `stop` ends the wait for a pipe that has nothing to read.
    ///
    /// # Errors
    /// As [`Reader::open_until`].
    pub fn open_until(path: &Path, stop: &Arc<AtomicBool>) -> Result<Self> {
        let Stream { name, size, bytes } = Stream::open(path, stop)?;
        Ok(Self { size, ..Self::from_stream(&name, bytes)? })
    }

    /// Reads from any stream; `name` is what errors call it.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn from_stream(name: &str, stream: Box<dyn Read + Send>) -> Result<Self> {
        let consumed = Arc::new(AtomicU64::new(0));
        let counted = Counted { stream, count: Arc::clone(&consumed) };
        let reader = Reader::detect(name, Box::new(counted))?;
        let header = matches!(reader.format, State::Pcap(_));
        Ok(Self { reader, header, consumed, size: None })
    }

    /// A reader of the packets in it; to be called before the first block.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn into_reader(self) -> Result<Reader> {
        self.reader.described()
    }

    /// The file's format.
    pub fn format(&self) -> Format {
        self.reader.format()
    }

    /// The interfaces described so far: those that the last call of [`BlockReader::next`] had, at the start that of
    /// a pcap file.
    pub fn interfaces(&self) -> &[InterfaceDescription] {
        self.reader.interfaces()
    }

    /// The byte order of the numbers in the file, or in the current section of a pcapng file.
    pub fn is_big_endian(&self) -> bool {
        self.reader.is_big_endian()
    }

    /// Bytes read so far of the file as it is stored, compressed or not.
    pub fn consumed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.consumed)
    }

    /// Size of the file in bytes, where that is known.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// Whether the next block is in the buffer: otherwise [`BlockReader::next`] may wait for a pipe.
    pub fn is_ready(&self) -> bool {
        let ahead = self.reader.input.ahead();
        match &self.reader.format {
            State::Pcap(state) => self.header || state.has_record(ahead),
            State::Pcapng(state) => {
                let Some(field) = ahead.get(4..8) else { return false };
                ahead.len() >= state.word([field[0], field[1], field[2], field[3]]) as usize
            }
        }
    }

    /// The next block with the interfaces described so far, or `None` at the end.
    ///
    /// # Errors
    /// As [`Reader::next`].
    #[allow(clippy::should_implement_trait, reason = "an iterator cannot lend its item")]
    pub fn next(&mut self) -> Result<Option<(Block<'_>, &[InterfaceDescription])>> {
        let reader = &mut self.reader;
        if reader.finished {
            return Ok(None);
        }
        reader.finished = true;
        let block = match &mut reader.format {
            State::Pcap(state) => {
                let big_endian = state.big_endian;
                if std::mem::take(&mut self.header) {
                    let (block_type, bytes) = (BlockType::PcapHeader, &state.header);
                    Some(Block { block_type, bytes, big_endian, record: None })
                } else {
                    let next = state.next(&mut reader.input)?;
                    next.map(|BorrowedRecord { record, bytes, .. }| {
                        let record = Some(record);
                        Block { block_type: BlockType::PcapRecord, bytes, big_endian, record }
                    })
                }
            }
            State::Pcapng(state) => {
                let next = state.next_block(&mut reader.input, &mut reader.interfaces)?;
                let big_endian = state.big_endian;
                next.map(|pcapng::RawBlock { number, bytes, record }| {
                    let block_type = match number {
                        block_type::SECTION_HEADER => BlockType::SectionHeader,
                        block_type::INTERFACE_DESCRIPTION => BlockType::InterfaceDescription,
                        block_type::ENHANCED_PACKET => BlockType::EnhancedPacket,
                        block_type::OBSOLETE_PACKET => BlockType::ObsoletePacket,
                        block_type::SIMPLE_PACKET => BlockType::SimplePacket,
                        block_type::NAME_RESOLUTION => BlockType::NameResolution,
                        block_type::DECRYPTION_SECRETS => BlockType::DecryptionSecrets,
                        _ => BlockType::Other,
                    };
                    Block { block_type, bytes, big_endian, record }
                })
            }
        };
        reader.finished = block.is_none();
        reader.records += u64::from(block.is_some_and(|block| block.record.is_some()));
        Ok(block.map(|block| (block, &reader.interfaces[..])))
    }
}

/// A stream that counts the bytes read.
struct Counted {
    stream: Box<dyn Read + Send>,
    count: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.stream.read(buffer)?;
        self.count.fetch_add(length as u64, Relaxed);
        Ok(length)
    }
}
