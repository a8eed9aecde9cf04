//! What both readers of capture files are put through.

use std::io::Cursor;

use linerate_capture::print::Printer;
use linerate_pcapfile::{BlockReader, DescribedRecord, Reader};

/// More records than this come only of compressed input that goes on for ever.
const MOST_RECORDS: u64 = 20_000;

/// Reads all that is there, record by record and block by block.
pub(crate) fn drain(bytes: &[u8]) {
    let records = records(bytes);
    let blocks = blocks(bytes);
    if records < MOST_RECORDS && blocks.count < MOST_RECORDS {
        assert_eq!(records, blocks.records, "a packet that only one of the readers sees");
    }
}

/// Reads all records and prints them; looks at everything that the reader lends. Returns how many.
fn records(bytes: &[u8]) -> u64 {
    let stream = Box::new(Cursor::new(bytes.to_vec()));
    let Ok(mut reader) = Reader::from_stream("fuzz", stream) else { return 0 };
    let mut line = String::new();
    let mut printer = Printer::new(1, true);
    let mut count = 0;
    while count < MOST_RECORDS {
        let before = reader.offset();
        match reader.next_described() {
            Ok(Some(DescribedRecord { record, interfaces, offsets, .. })) => {
                assert!(before <= offsets.start && offsets.start < offsets.end);
                assert!(
                    (record.interface as usize) < interfaces.len(),
                    "an interface that is not there"
                );
                let frame = record.frame;
                line.clear();
                printer.print(&mut line, frame.timestamp, frame.head(), frame.wire_len);
                assert_eq!(line.matches('\n').count(), 1, "one line a packet");
                count += 1;
            }
            Ok(None) => break,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                break;
            }
        }
        assert!(reader.offset() > before, "a record without bytes");
    }
    count
}

struct Seen {
    count: u64,
    records: u64,
}

/// Reads all blocks: together they are the file, as far as it can be read.
fn blocks(bytes: &[u8]) -> Seen {
    let mut seen = Seen { count: 0, records: 0 };
    let stream = Box::new(Cursor::new(bytes.to_vec()));
    let Ok(mut blocks) = BlockReader::from_stream("fuzz", stream) else { return seen };
    let mut file = Vec::new();
    while seen.count < MOST_RECORDS {
        let Ok(Some((block, _))) = blocks.next() else { break };
        assert!(!block.bytes.is_empty(), "a block without bytes");
        file.extend_from_slice(block.bytes);
        seen.count += 1;
        seen.records += u64::from(block.record.is_some());
    }
    // Unless it was compressed.
    if file.first_chunk::<4>() == bytes.first_chunk() {
        assert!(bytes.starts_with(&file), "bytes that are not in the file");
    }
    seen
}
