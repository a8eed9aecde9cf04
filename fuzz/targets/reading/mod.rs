//! What both readers of capture files are put through.

use std::io::Cursor;

use linerate_capture::print::Printer;
use linerate_capture::read::Reader;

/// More records than this come only of compressed input that goes on for ever.
const MOST_RECORDS: u64 = 20_000;

/// Reads all records and prints them; looks at everything that the reader lends.
pub(crate) fn drain(bytes: &[u8]) {
    let stream = Box::new(Cursor::new(bytes.to_vec()));
    let Ok(mut reader) = Reader::from_stream("fuzz", stream) else { return };
    let mut line = String::new();
    let mut printer = Printer::new(1, true);
    let mut count = 0;
    while count < MOST_RECORDS {
        let before = reader.offset();
        match reader.next_described() {
            Ok(Some((record, interfaces))) => {
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
    assert!(reader.records() >= count || count == MOST_RECORDS);
}
