//! What stands before the packets of a file.

use std::io::Read;
use std::path::Path;

use anyhow::Result;
use linerate_pcapfile::{BlockReader, Format};

use super::open;

/// Bytes that are searched for the first packet: few at first, because a folder may have many files.
const BEGINNINGS: [u64; 2] = [4 << 10, 64 << 10];

/// The beginning of a file that can be read from any packet on.
pub(super) struct Beginning {
    /// The blocks before the first packet.
    pub(super) blocks: Vec<u8>,
    /// The time of the first packet.
    pub(super) time: Option<i64>,
    /// Whether a capture can have written it: not the result of another search.
    pub(super) of_capture: bool,
    /// The names of the interfaces described before the first packet.
    pub(super) interfaces: Vec<String>,
}

impl Beginning {
    /// `None` for a file that has to be read from its beginning: a compressed one, one of another program, which may
    /// have several sections, and one without a packet near its beginning.
    pub(super) fn of(path: &Path) -> Result<Option<Self>> {
        let mut stored = Vec::new();
        let mut file = open(path)?;
        for length in BEGINNINGS {
            let more = length - stored.len() as u64;
            file.by_ref().take(more).read_to_end(&mut stored)?;
            if let Some(beginning) = Self::within(path, &stored) {
                return Ok(Some(beginning));
            }
        }
        Ok(None)
    }

    fn within(path: &Path, stored: &[u8]) -> Option<Self> {
        let stream = Box::new(std::io::Cursor::new(stored.to_owned()));
        let mut reader = BlockReader::from_stream(&path.display().to_string(), stream).ok()?;
        let (mut blocks, mut time) = (Vec::new(), None);
        while let Some((block, _)) = reader.next().ok()? {
            if let Some(record) = block.record {
                time = record.frame.timestamp.and_then(|time| i64::try_from(time.0).ok());
                break;
            }
            blocks.extend_from_slice(block.bytes);
        }
        let of_capture = reader.format() != Format::Pcapng
            || blocks.windows(9).any(|window| window == b"linerate ");
        let ours = blocks.windows(8).any(|window| window == b"linerate");
        let seekable = stored.starts_with(&blocks) && (reader.format() != Format::Pcapng || ours);
        let interfaces = reader.interfaces().iter().filter_map(|one| one.name.clone()).collect();
        seekable.then_some(Self { blocks, time, of_capture, interfaces })
    }
}
