//! `-r` from pcapng to pcapng: blocks are copied as they are, except the packets that are not wanted.
//!
//! So everything that the file has beside its packets stays: options, names, decryption secrets, statistics,
//! custom blocks, sections with their byte order and the resolution of their timestamps.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use linerate_pcapfile::edit::RawRecord;
use linerate_pcapfile::{Block, BlockReader, BlockType, Error as FileError, Writer};

use super::Outcome;
use super::file::{FileInput, FileProgress, Selector};
use super::report::Report;
use crate::Result;
use crate::statistics::{DropCause, Drops};

/// As [`read_file`](super::read_file), from a pcapng file into one, without rotation.
pub fn copy_blocks(
    mut input: FileInput<BlockReader>,
    mut output: Writer,
    stop: &AtomicBool,
    progress: &FileProgress,
) -> Outcome {
    let start = Instant::now();
    let mut report = Report::of_file(&input);
    let copied = copy(&mut input, &mut output, &mut report, stop, progress);
    let finished = output.flush().map_err(Into::into);
    // A full disk explains more than the end of the input that it caused.
    let failure = finished.err().or(copied.err());
    let pipe_closed = failure.as_ref().is_some_and(crate::Error::is_broken_pipe);
    let cause = if pipe_closed { DropCause::PipeClosed } else { DropCause::Disk };
    let unwritten = report.captured - output.packets();
    report.dropped = Drops::from([(cause, unwritten)]).into();
    (report.captured, report.written) = (output.packets(), output.packets());
    (report.files, report.file_bytes) = (1, output.bytes_written());
    report.file = Some(output.path().to_owned());
    report.seconds = start.elapsed().as_secs_f64();
    Outcome { report, failure: failure.filter(|_| !pipe_closed) }
}

fn copy(
    input: &mut FileInput<BlockReader>,
    output: &mut Writer,
    report: &mut Report,
    stop: &AtomicBool,
    progress: &FileProgress,
) -> Result<()> {
    let mut selector = Selector::new(input);
    while !stop.load(Relaxed) && input.count.is_none_or(|count| report.captured < count) {
        // A reader of the output must not wait for what a pipe has not delivered yet.
        if input.reader.size().is_none() && !input.reader.is_ready() {
            output.flush()?;
        }
        let (block, interfaces) = match input.reader.next() {
            Ok(Some(next)) => next,
            Ok(None) | Err(FileError::Cancelled { .. }) => break,
            Err(error) => return Err(error.into()),
        };
        let Some(record) = &block.record else {
            output.write_record(false, |out| put_other(out, &block))?;
            continue;
        };
        report.received += 1;
        let linktype = interfaces[record.interface as usize].linktype;
        if selector.accepts(record, linktype, report.received)? {
            report.captured += 1;
            report.bytes += u64::from(record.frame.wire_len);
            let raw = RawRecord {
                bytes: block.bytes,
                block_type: block.block_type,
                big_endian: block.big_endian,
                captured: record.frame.len(),
            };
            output.write_record(true, |out| raw.put_cut(out, input.snaplen as usize))?;
        }
        progress.note(report);
        if input.packet_buffered || progress.take_flush() {
            output.flush()?;
        }
    }
    Ok(())
}

/// Copies a block that is no packet. The length of its section changes with the packets in it, so a section
/// header says that it is unknown.
fn put_other(out: &mut Vec<u8>, block: &Block<'_>) {
    const SECTION_LENGTH: std::ops::Range<usize> = 16..24;
    let start = out.len();
    out.extend_from_slice(block.bytes);
    if block.block_type == BlockType::SectionHeader
        && let Some(length) = out[start..].get_mut(SECTION_LENGTH)
    {
        length.fill(0xff);
    }
}
