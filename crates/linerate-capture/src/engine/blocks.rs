//! `-r` from pcapng to pcapng, or from pcap to pcap: blocks are copied as they are, except the packets that are not
//! wanted.
//!
//! So everything that a pcapng file has beside its packets stays: options, names, decryption secrets, statistics,
//! custom blocks, sections with their byte order and the resolution of their timestamps. A pcap file is written in
//! little-endian byte order, and with the resolution that is wanted; parts of a second that are a second or more stay,
//! as libpcap has it.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use linerate_pcapfile::ByteRange;
use linerate_pcapfile::edit::RawRecord;
use linerate_pcapfile::{
    Block, BlockReader, BlockType, Encoder, Error as FileError, Format, InterfaceDescription,
    PacketOptions, SectionHeader,
};

use super::file::{FileInput, FileMeter, FileProgress, Selector, description, finish};
use super::report::Report;
use super::{Metering, Outcome};
use crate::Result;
use crate::link_type::registered;
use crate::sink::Sink;
use crate::sink::file::{BlockPlace, FileSink, FileSinkHandle};

/// As [`read_file`](super::read_file), into files of the format `to`, which is pcapng or pcap as that of the input.
/// Their writer has no section header of its own.
pub fn copy_blocks(
    mut input: FileInput<BlockReader>,
    output: FileSink,
    to: Format,
    metering: Option<Metering>,
    stop: &AtomicBool,
    progress: &FileProgress,
) -> Outcome {
    let start = Instant::now();
    let mut report = Report::of_file(&input);
    let pcap = PcapCopy::new(&input, to);
    let mut handle = output.handle(0);
    let (record_writer, meter) = FileMeter::start(metering, handle.packet_locator());
    let context = CopyContext { pcap, meter, stop, progress };
    let copied = copy(&mut input, &mut handle, context, &mut report);
    drop(handle);
    finish(report, Sink::File(vec![output]), record_writer, start, copied.err())
}

/// What a copy needs besides its input and output.
struct CopyContext<'a> {
    pcap: Option<PcapCopy>,
    meter: Option<FileMeter>,
    stop: &'a AtomicBool,
    progress: &'a FileProgress,
}

fn copy(
    input: &mut FileInput<BlockReader>,
    output: &mut FileSinkHandle,
    context: CopyContext<'_>,
    report: &mut Report,
) -> Result<()> {
    let CopyContext { pcap, mut meter, stop, progress } = context;
    let mut selector = Selector::new(input);
    while !stop.load(Relaxed)
        && input.count.is_none_or(|count| report.captured < count)
        && !output.is_closed()
    {
        // A reader of the output must not wait for what a pipe has not delivered yet.
        if input.reader.size().is_none() && !input.reader.is_ready() {
            output.flush();
        }
        let (block, interfaces) = match input.reader.next() {
            Ok(Some(next)) => next,
            Ok(None) | Err(FileError::Cancelled { .. }) => break,
            Err(error) => return Err(error.into()),
        };
        let Some(record) = &block.record else {
            if block.block_type == BlockType::InterfaceDescription
                && let Some(interface) = interfaces.last()
            {
                selector.filters.require_known(interface.linktype)?;
            }
            let bytes = pcap.as_ref().map_or_else(|| other(&block), PcapCopy::header);
            output.put_block(bytes, place(block.block_type));
            continue;
        };
        report.received += 1;
        let linktype = registered(interfaces[record.interface as usize].linktype);
        let accepted = selector.accepts(record, (linktype, block.big_endian), report)?;
        let kept = accepted && selector.keeps(record, linktype, report);
        let begin = output.position();
        if kept {
            report.captured += 1;
            report.bytes += u64::from(record.frame.wire_len);
            let raw = RawRecord {
                bytes: block.bytes,
                block_type: block.block_type,
                big_endian: block.big_endian,
                captured: record.frame.len(),
            };
            output.push_copy(&record.frame, block.bytes.len(), |out| match &pcap {
                Some(pcap) => pcap.put_record(out, &raw),
                None => raw.put_cut(out, input.snaplen as usize),
            });
        }
        let byte_range = kept.then(|| ByteRange { begin, end: output.position() });
        if accepted
            && let Some(meter) = &mut meter
            && !meter.packet(record, interfaces, linktype, byte_range)
        {
            break;
        }
        progress.note(report);
        if input.packet_buffered || progress.take_flush() {
            output.flush();
        }
    }
    Ok(())
}

/// Which files have a block of this type that is no packet. What packets need to be understood is in all of them.
fn place(block_type: BlockType) -> BlockPlace {
    match block_type {
        BlockType::PcapHeader | BlockType::SectionHeader => BlockPlace::NewSection,
        BlockType::InterfaceDescription
        | BlockType::NameResolution
        | BlockType::DecryptionSecrets => BlockPlace::EachFile,
        _ => BlockPlace::OneFile,
    }
}

/// How a pcap file is copied.
struct PcapCopy {
    interface: InterfaceDescription,
    to: Format,
    /// Nanoseconds become microseconds, or the reverse.
    from_nanoseconds: bool,
    to_nanoseconds: bool,
}

impl PcapCopy {
    /// `None` for a pcapng file.
    fn new(input: &FileInput<BlockReader>, to: Format) -> Option<Self> {
        let (Format::Pcap { nanoseconds: from_nanoseconds }, Format::Pcap { nanoseconds }) =
            (input.reader.format(), to)
        else {
            return None;
        };
        let interface = description(input.reader.interfaces().first()?, None, input.snaplen);
        Some(Self { interface, to, from_nanoseconds, to_nanoseconds: nanoseconds })
    }

    fn header(&self) -> Vec<u8> {
        let (format, snaplen) = (self.to, self.interface.snaplen);
        let encoder = Encoder { format, snaplen, options: PacketOptions::default() };
        let interfaces = std::slice::from_ref(&self.interface);
        let mut out = Vec::new();
        encoder.encode_file_header(&mut out, &SectionHeader::default(), interfaces);
        out
    }

    /// Seconds, parts of a second, bytes that are there, bytes on the wire.
    fn put_record(&self, out: &mut Vec<u8>, raw: &RawRecord<'_>) {
        let word = |at: usize| {
            let word = [raw.bytes[at], raw.bytes[at + 1], raw.bytes[at + 2], raw.bytes[at + 3]];
            if raw.big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
        };
        // libpcap takes it as a signed number.
        let part = i64::from(word(4).cast_signed());
        let part = match (self.from_nanoseconds, self.to_nanoseconds) {
            (false, true) => part * 1000,
            (true, false) => part / 1000,
            _ => part,
        };
        let keep = raw.captured.min(self.interface.snaplen as usize);
        for word in [word(0), part as u32, keep as u32, word(12)] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&raw.packet()[..keep]);
    }
}

/// A copy of a block that is no packet. The length of its section changes with the packets in it, so a section
/// header says that it is unknown.
fn other(block: &Block<'_>) -> Vec<u8> {
    const SECTION_LENGTH: std::ops::Range<usize> = 16..24;
    let mut bytes = block.bytes.to_vec();
    if block.block_type == BlockType::SectionHeader
        && let Some(length) = bytes.get_mut(SECTION_LENGTH)
    {
        length.fill(0xff);
    }
    bytes
}
