//! `-r`: from a capture file through a filter to a sink.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::Instant;

use linerate_flow::export::{ExportingMeter, InterfaceName, PacketLocator, RecordWriter};
use linerate_flow::meter::MeteredPacket;
use linerate_pcapfile::{
    BlockReader, ByteRange, DescribedRecord, Error as FileError, Format, InterfaceDescription,
    PacketLocation, Reader, Record,
};
use linerate_ring::Direction;
use linerate_ring::packet::DirectionFilter;

use super::cutoff::Cutoff;
use super::report::{Cpu, FilterReport, Report};
use super::sample::Sample;
use super::{Metering, Outcome};
use crate::filter::{FilterCache, FilterLocation};
use crate::link_type::registered;
use crate::sink::Sink;
use crate::sink::file::{FileSink, FileSinkHandle, FileSinkProgress, file_name};
use crate::statistics::{DropCause, Drops};
use crate::{Error, Result};

/// What to read, and how much of it.
pub struct FileInput<R = Reader> {
    /// The file.
    pub reader: R,
    /// Which packets to take.
    pub filters: FilterCache,
    /// Longest piece of a packet to keep, in bytes.
    pub snaplen: u32,
    /// End after this many matching packets.
    pub count: Option<u64>,
    /// The direction of the packets to take.
    pub traffic: DirectionFilter,
    /// Only the packets of these flows.
    pub sample: Option<Sample>,
    /// The packets of each flow until they have this many bytes, both directions together.
    pub cutoff: Option<u64>,
    /// Write each packet to the file at once.
    pub packet_buffered: bool,
}

impl FileInput<BlockReader> {
    /// The same input with a reader of packets. Must be called before the first block is read.
    ///
    /// # Errors
    ///
    /// As [`BlockReader::into_reader`].
    pub fn into_reader(self) -> std::result::Result<FileInput, FileError> {
        let Self { reader, filters, snaplen, count, traffic, sample, cutoff, packet_buffered } =
            self;
        let reader = reader.into_reader()?;
        Ok(FileInput { reader, filters, snaplen, count, traffic, sample, cutoff, packet_buffered })
    }
}

/// The snapshot length of files that have none, as libpcap writes it.
const MAX_SNAPLEN: u32 = 262_144;

/// The description in an output file of an interface of an input file.
pub fn description(
    interface: &InterfaceDescription,
    filter: Option<&str>,
    snaplen: u32,
) -> InterfaceDescription {
    InterfaceDescription {
        name: interface.name.clone(),
        description: interface.description.clone(),
        filter: filter.map(str::to_owned).or_else(|| interface.filter.clone()),
        linktype: registered(interface.linktype),
        // libpcap takes it as a signed number, and one that is not above 0 as the largest.
        snaplen: match interface.snaplen {
            1..=0x7fff_ffff => interface.snaplen.min(snaplen),
            _ => snaplen.min(MAX_SNAPLEN),
        },
        link_extension: interface.link_extension,
        ..InterfaceDescription::default()
    }
}

/// The progress of reading a file, for other threads, and their request to flush.
#[derive(Debug)]
pub struct FileProgress {
    start: Instant,
    received: AtomicU64,
    captured: AtomicU64,
    bytes: AtomicU64,
    sampled: AtomicU64,
    cutoff: AtomicU64,
    flush: AtomicBool,
    writer: Option<Arc<FileSinkProgress>>,
}

impl FileProgress {
    /// For reading into `sink`, if it is a file.
    pub fn new(sink: Option<&FileSink>) -> Self {
        Self {
            start: Instant::now(),
            received: AtomicU64::new(0),
            captured: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            sampled: AtomicU64::new(0),
            cutoff: AtomicU64::new(0),
            flush: AtomicBool::new(false),
            writer: sink.map(FileSink::progress),
        }
    }

    /// Asks to write everything that was read to the file now.
    pub fn flush(&self) {
        self.flush.store(true, Relaxed);
    }

    /// The counts now.
    pub fn report(&self) -> Report {
        let drops = Drops::from([
            (DropCause::Sampled, self.sampled.load(Relaxed)),
            (DropCause::Cutoff, self.cutoff.load(Relaxed)),
        ]);
        let mut report = Report {
            source: SOURCE.into(),
            received: self.received.load(Relaxed),
            captured: self.captured.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            dropped: drops,
            seconds: self.start.elapsed().as_secs_f64(),
            cpu: Cpu::now(),
            ..Report::default()
        };
        if let Some(writer) = &self.writer {
            report.set_files(&writer.counts());
        }
        report
    }

    pub(super) fn note(&self, report: &Report) {
        let drops = &report.dropped;
        for (count, now) in [
            (&self.received, report.received),
            (&self.captured, report.captured),
            (&self.bytes, report.bytes),
            (&self.sampled, drops[DropCause::Sampled]),
            (&self.cutoff, drops[DropCause::Cutoff]),
        ] {
            count.store(now, Relaxed);
        }
    }

    pub(super) fn take_flush(&self) -> bool {
        self.flush.load(Relaxed) && self.flush.swap(false, Relaxed)
    }
}

/// Packets between two looks at the clock, for the meter.
const PUBLISH_PACKETS: u64 = 256;

/// The file that is read, as flow records name it; `None` for what can be read only once.
pub struct InputFile(Option<Arc<str>>);

impl InputFile {
    /// A file of this path.
    pub fn new(path: &Path) -> Self {
        Self(file_name(path))
    }
}

impl PacketLocator for InputFile {
    fn locate(&self, byte_range: ByteRange) -> Poll<Option<PacketLocation>> {
        let ByteRange { begin: first, end } = byte_range;
        let located = |file| PacketLocation { file, first, end: Some(end) };
        Poll::Ready(self.0.clone().map(located))
    }
}

/// The name of the source in reports.
const SOURCE: &str = "file";

/// Reads `file` until its end, the limit, or `stop`, and updates `progress`. After a
/// failure, everything that was read before is in the sink; the outcome has the failure.
pub fn read_file(
    mut input: FileInput,
    file: InputFile,
    sink: Sink,
    metering: Option<Metering>,
    stop: &AtomicBool,
    progress: &FileProgress,
) -> Outcome {
    let start = Instant::now();
    let mut report = Report::of_file(&input);
    let mut output = sink.reader(0, 0);
    let control = Control { stop, progress };
    // Records point into the file that is written. Without one they point into the file that is read.
    let files = output.file().map_or_else(|| Arc::new(file) as _, |file| file.packet_locator());
    let (record_writer, meter) = FileMeter::start(metering, files);
    let failure = copy(&mut input, &mut output, meter, &mut report, &control).err();
    drop(output);
    finish(report, sink, record_writer, start, failure)
}

/// The outcome of reading since `start` into `sink`, whose handles are dropped.
pub(super) fn finish(
    report: Report,
    sink: Sink,
    record_writer: Option<RecordWriter>,
    start: Instant,
    failure: Option<Error>,
) -> Outcome {
    let mut outcome = finish_sink(report, sink, start, failure);
    // The record writer waits until packets are written, so the sink ends first.
    let unwritten = outcome.report.finish_flows(record_writer);
    outcome.failure = outcome.failure.or(unwritten);
    outcome
}

fn finish_sink(mut report: Report, sink: Sink, start: Instant, failure: Option<Error>) -> Outcome {
    let written = (!sink.files().is_empty()).then(|| sink.finish());
    report.seconds = start.elapsed().as_secs_f64();
    report.cpu = Cpu::now();
    let Some(written) = written else {
        return Outcome { report, failure };
    };
    report.settle(&written);
    report.file = Some(written.counts.current);
    // A full disk explains more than the end of the input that it caused.
    let failure = written.failure.or(failure);
    Outcome { report, failure }
}

/// Meters the packets of a file.
pub(super) struct FileMeter {
    meter: ExportingMeter,
    /// Interfaces whose names the record writer has.
    named: usize,
    packets: u64,
}

impl FileMeter {
    /// A meter whose packets `locator` locates, and the record writer of its records.
    pub(super) fn start(
        metering: Option<Metering>,
        files: Arc<dyn PacketLocator>,
    ) -> (Option<RecordWriter>, Option<Self>) {
        let Some(Metering { record_writer, options }) = metering else { return (None, None) };
        let meter = record_writer.meter(&options, Some(files));
        (Some(record_writer), Some(Self { meter, named: 0, packets: 0 }))
    }

    /// Meters a packet with this link type; false if records cannot be written any more.
    // Inlined, the record and its range need not go through memory: reading back as a whole what was just written in
    // parts stalls a processor for a dozen cycles.
    #[inline(always)]
    pub(super) fn packet(
        &mut self,
        record: &Record<'_>,
        interfaces: &[InterfaceDescription],
        linktype: u16,
        byte_range: Option<ByteRange>,
    ) -> bool {
        if self.named < interfaces.len() {
            self.name_interfaces(interfaces);
        }
        self.meter.push(&MeteredPacket {
            frame: record.frame.head(),
            wire_len: record.frame.wire_len,
            linktype,
            interface: record.interface as u16,
            time: record.frame.timestamp.unwrap_or_default().0,
            byte_range,
            processes: None,
        });
        self.packets += 1;
        if self.packets.is_multiple_of(PUBLISH_PACKETS) {
            self.meter.publish(Instant::now());
        }
        !self.meter.is_closed()
    }

    #[cold]
    fn name_interfaces(&mut self, interfaces: &[InterfaceDescription]) {
        for interface in &interfaces[self.named..] {
            let name = interface.name.as_deref().map(Into::into);
            self.meter.add_interface(InterfaceName { name, index: None });
        }
        self.named = interfaces.len();
    }
}

/// How other threads follow and control the reading.
struct Control<'a> {
    stop: &'a AtomicBool,
    progress: &'a FileProgress,
}

fn copy(
    input: &mut FileInput,
    output: &mut Sink<FileSinkHandle>,
    mut meter: Option<FileMeter>,
    report: &mut Report,
    control: &Control<'_>,
) -> Result<()> {
    let Control { stop, progress } = control;
    let mut selector = Selector::new(input);
    let text = selector.filters.text().map(str::to_owned);
    let first = input.reader.interfaces().first().map_or(1, |first| registered(first.linktype));
    // An expression with a mistake is refused also for an empty file.
    selector.filters.of(first, input.reader.is_big_endian())?;
    let format = output.file().map(|file| file.format());
    // A pcap header has one link type, that of the first interface.
    let only = format.filter(|format| *format != Format::Pcapng).map(|_| first);
    for interface in input.reader.interfaces() {
        selector.filters.require_known(interface.linktype)?;
    }
    let mut described = input.reader.interfaces().len();
    let has_files = format.is_some();
    while !stop.load(Relaxed) && input.count.is_none_or(|count| report.captured < count) {
        // The record stays in the result: moved out of it, it would be copied.
        let next = input.reader.next_described();
        let DescribedRecord { record, interfaces, big_endian, offsets } = match &next {
            Ok(Some(next)) => next,
            Ok(None) | Err(FileError::Cancelled { .. }) => break,
            Err(_) => return Err(next.map(drop).expect_err("it is an error").into()),
        };
        report.received += 1;
        progress.note(report);
        let frame = &record.frame;
        let linktype = registered(interfaces[record.interface as usize].linktype);
        if !selector.accepts(record, (linktype, *big_endian), report)? {
            continue;
        }
        if only.is_some_and(|only| only != linktype) {
            return Err(Error::LinkLayers);
        }
        if !selector.keeps(record, linktype, report) {
            if let Some(meter) = &mut meter
                && !meter.packet(record, interfaces, linktype, None)
            {
                break;
            }
            continue;
        }
        report.captured += 1;
        report.bytes += u64::from(frame.wire_len);
        for interface in &interfaces[described..] {
            selector.filters.require_known(interface.linktype)?;
            if let Some(file) = output.file() {
                file.describe(description(interface, text.as_deref(), input.snaplen));
            }
        }
        described = interfaces.len();
        let begin = output.position();
        let more = output.push(linktype, || *record);
        let (begin, end) =
            if has_files { (begin, output.position()) } else { (offsets.start, offsets.end) };
        if let Some(meter) = &mut meter
            && !meter.packet(record, interfaces, linktype, Some(ByteRange { begin, end }))
        {
            break;
        }
        if let Some(file) = output.file() {
            if input.packet_buffered || progress.take_flush() {
                file.flush();
            }
            if file.is_closed() {
                break;
            }
        }
        if !more {
            break;
        }
    }
    Ok(())
}

impl Report {
    /// The start of a report about this file.
    pub(super) fn of_file<R>(input: &FileInput<R>) -> Self {
        let filter = input.filters.text().map(|text| FilterReport {
            expression: text.to_owned(),
            side: FilterLocation::User,
            reason: "a file has no kernel side".into(),
        });
        Self {
            source: SOURCE.into(),
            pages: "none".into(),
            cpu: Cpu::now(),
            filter,
            ..Self::default()
        }
    }
}

/// Selects the packets that are wanted.
pub(super) struct Selector {
    pub(super) filters: FilterCache,
    traffic: DirectionFilter,
    sample: Option<Sample>,
    cutoff: Option<Cutoff>,
    scratch: Vec<u8>,
}

impl Selector {
    pub(super) fn new<R>(input: &mut FileInput<R>) -> Self {
        let filters = std::mem::take(&mut input.filters);
        let cutoff = input.cutoff.map(|bytes| Cutoff::new(bytes, 1));
        Self { filters, traffic: input.traffic, sample: input.sample, cutoff, scratch: Vec::new() }
    }

    /// Whether the filter accepts the packet, it has the wanted direction, and its flow is in the sample.
    #[inline]
    pub(super) fn accepts(
        &mut self,
        record: &Record<'_>,
        (linktype, big_endian): (u16, bool),
        report: &mut Report,
    ) -> Result<bool> {
        let frame = &record.frame;
        if let Some(filter) = self.filters.of(linktype, big_endian)?
            && !filter.matches(frame, frame.contiguous(&mut self.scratch))
        {
            return Ok(false);
        }
        let wanted = is_wanted(frame.direction, self.traffic);
        if !wanted && frame.direction == Direction::Unknown {
            return Err(Error::Undirected { packet: report.received });
        }
        if wanted
            && let Some(sample) = self.sample
            && !sample.has(frame.head(), linktype)
        {
            report.dropped[DropCause::Sampled] += 1;
            return Ok(false);
        }
        Ok(wanted)
    }

    /// Whether an accepted packet is before the cutoff of its flow.
    pub(super) fn keeps(
        &mut self,
        record: &Record<'_>,
        linktype: u16,
        report: &mut Report,
    ) -> bool {
        let Some(cutoff) = &mut self.cutoff else { return true };
        let Record { frame, interface, .. } = record;
        let time = frame.timestamp.unwrap_or_default();
        let keeps = cutoff.keeps(frame.head(), frame.wire_len, linktype, *interface, time);
        report.dropped[DropCause::Cutoff] += u64::from(!keeps);
        keeps
    }
}

/// Whether a packet of this direction is wanted.
fn is_wanted(direction: Direction, wanted: DirectionFilter) -> bool {
    match wanted {
        DirectionFilter::InOut => true,
        DirectionFilter::In => direction == Direction::Inbound,
        DirectionFilter::Out => direction == Direction::Outbound,
    }
}
