//! What stands before the packets of a file.

use std::io::Read;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use anyhow::Result;
use linerate_pcapfile::{BlockReader, Format};

use super::open;

/// Bytes that are searched for the first packet.
const MAX_BEGINNING: u64 = 64 << 10;

/// The beginning of a file that can be read from any packet on.
pub(super) struct Beginning {
    /// The blocks before the first packet.
    pub(super) blocks: Vec<u8>,
    /// The time of the first packet.
    pub(super) time: Option<i64>,
    /// Whether a capture can have written it: not the result of another search.
    pub(super) of_capture: bool,
    /// Bytes that were read for this.
    pub(super) consumed: u64,
}

impl Beginning {
    /// `None` for a file that has to be read from its beginning: a compressed one, one of another program, which may
    /// have several sections, and one without a packet near its beginning.
    pub(super) fn of(path: &Path) -> Result<Option<Self>> {
        let mut stored = Vec::new();
        open(path)?.take(MAX_BEGINNING).read_to_end(&mut stored)?;
        let stream = Box::new(std::io::Cursor::new(stored.clone()));
        let Ok(mut reader) = BlockReader::from_stream(&path.display().to_string(), stream) else {
            return Ok(None);
        };
        let (mut blocks, mut time) = (Vec::new(), None);
        loop {
            let Ok(next) = reader.next() else { return Ok(None) };
            let Some((block, _)) = next else { break };
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
        let consumed = reader.consumed().load(Relaxed);
        Ok(seekable.then_some(Self { blocks, time, of_capture, consumed }))
    }
}
