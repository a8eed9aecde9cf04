//! `-r`: from a capture file through a filter to a sink.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use linerate_flow::export::{ExportingMeter, InterfaceName};
use linerate_flow::meter::MeteredPacket;
use linerate_pcapfile::{Error as FileError, Format, InterfaceDescription, Reader, Record};
use linerate_ring::Direction;
use linerate_ring::packet::DirectionFilter;

use super::report::{Cpu, FilterReport, FlowReport, Report};
use super::{Metering, Outcome};
use crate::filter::{FilterCache, FilterLocation};
use crate::link_type::registered;
use crate::sink::Sink;
use crate::sink::file::{FileSink, FileSinkHandle, FileSinkProgress};
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
    /// Write each packet to the file at once.
    pub packet_buffered: bool,
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
#[derive(Debug, Default)]
pub struct FileProgress {
    received: AtomicU64,
    captured: AtomicU64,
    flush: AtomicBool,
    writer: Option<Arc<FileSinkProgress>>,
}

impl FileProgress {
    /// For reading into `sink`.
    pub fn of(sink: &FileSink) -> Self {
        Self { writer: Some(sink.progress()), ..Self::default() }
    }

    /// Asks to write everything that was read to the file now.
    pub fn flush(&self) {
        self.flush.store(true, Relaxed);
    }

    /// The counts now.
    pub fn report(&self) -> Report {
        let writer = self.writer.as_deref();
        Report {
            source: SOURCE.into(),
            received: self.received.load(Relaxed),
            captured: self.captured.load(Relaxed),
            files: writer.map_or(0, FileSinkProgress::files),
            deleted_files: writer.map_or(0, FileSinkProgress::deleted),
            file_bytes: writer.map_or(0, FileSinkProgress::bytes),
            ..Report::default()
        }
    }

    pub(super) fn note(&self, report: &Report) {
        self.received.store(report.received, Relaxed);
        self.captured.store(report.captured, Relaxed);
    }

    pub(super) fn take_flush(&self) -> bool {
        self.flush.load(Relaxed) && self.flush.swap(false, Relaxed)
    }
}

/// Packets between two looks at the clock, for the meter.
const PUBLISH_PACKETS: u64 = 256;

/// The name of the source in reports.
const SOURCE: &str = "file";

/// Reads until the end of the file, the limit, or `stop`, and says in `progress` how far it is. After a
/// failure, everything that was read before is in the sink; the outcome has the failure.
pub fn read_file(
    mut input: FileInput,
    sink: Sink,
    metering: Option<Metering>,
    stop: &AtomicBool,
    progress: &FileProgress,
) -> Outcome {
    let start = Instant::now();
    let mut report = Report::of_file(&input);
    let mut output = sink.reader(0, 0);
    let control = Control { stop, progress };
    let (exporter, meter) = match metering {
        Some(Metering { exporter, options }) => {
            let meter = exporter.meter(&options);
            (Some(exporter), Some(meter))
        }
        None => (None, None),
    };
    let failure = copy(&mut input, &mut output, meter, &mut report, &control).err();
    drop(output);
    let unwritten = FlowReport::finish(exporter, &mut report);
    finish(report, sink, start, failure.or(unwritten))
}

/// The outcome of reading since `start` into `sink`, whose handles are dropped.
pub(super) fn finish(
    mut report: Report,
    sink: Sink,
    start: Instant,
    failure: Option<Error>,
) -> Outcome {
    let file = sink.files().first().map(FileSink::progress);
    let written = file.map(|progress| (sink.finish(), progress.current()));
    report.seconds = start.elapsed().as_secs_f64();
    report.cpu = Cpu::now();
    let Some((written, file)) = written else {
        return Outcome { report, failure };
    };
    report.settle(&written);
    (report.written, report.files) = (written.written, written.files);
    (report.file_bytes, report.file) = (written.bytes, Some(file));
    // A full disk explains more than the end of the input that it caused.
    let failure = written.failure.or(failure);
    Outcome { report, failure }
}

/// How other threads follow and control the reading.
struct Control<'a> {
    stop: &'a AtomicBool,
    progress: &'a FileProgress,
}

fn copy(
    input: &mut FileInput,
    output: &mut Sink<FileSinkHandle>,
    mut meter: Option<ExportingMeter>,
    report: &mut Report,
    control: &Control<'_>,
) -> Result<()> {
    let Control { stop, progress } = control;
    let mut selector = Selector::new(input);
    let text = selector.filters.text().map(str::to_owned);
    let first = input.reader.interfaces().first().map_or(1, |first| registered(first.linktype));
    // An expression with a mistake is refused also for an empty file.
    selector.filters.of(first)?;
    // A pcap header has one link type, that of the first interface.
    let only = output.format().filter(|format| *format != Format::Pcapng).map(|_| first);
    for interface in input.reader.interfaces() {
        selector.filters.require_known(interface.linktype)?;
    }
    let mut described = input.reader.interfaces().len();
    let mut named = 0;
    while !stop.load(Relaxed) && input.count.is_none_or(|count| report.captured < count) {
        let (record, interfaces) = match input.reader.next_described() {
            Ok(Some(next)) => next,
            Ok(None) | Err(FileError::Cancelled { .. }) => break,
            Err(error) => return Err(error.into()),
        };
        report.received += 1;
        progress.note(report);
        let frame = &record.frame;
        let linktype = registered(interfaces[record.interface as usize].linktype);
        if !selector.accepts(&record, linktype, report.received)? {
            continue;
        }
        if only.is_some_and(|only| only != linktype) {
            return Err(Error::LinkLayers);
        }
        report.captured += 1;
        report.bytes += u64::from(frame.wire_len);
        for interface in &interfaces[described..] {
            selector.filters.require_known(interface.linktype)?;
            output.describe(|| description(interface, text.as_deref(), input.snaplen));
        }
        described = interfaces.len();
        if let Some(meter) = &mut meter {
            for interface in &interfaces[named..] {
                let name = interface.name.as_deref().map(Into::into);
                meter.interface(InterfaceName { name, index: None });
            }
            named = interfaces.len();
            meter.packet(&MeteredPacket {
                frame: frame.head(),
                wire_len: frame.wire_len,
                linktype,
                interface: record.interface as u16,
                time: frame.timestamp.unwrap_or_default().0,
                position: 0,
            });
            if report.captured.is_multiple_of(PUBLISH_PACKETS) {
                meter.publish(Instant::now());
            }
            if meter.is_closed() {
                break;
            }
        }
        let more = output.push(linktype, || record);
        if input.packet_buffered || progress.take_flush() {
            output.flush();
        }
        if !more || output.is_closed() {
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
    scratch: Vec<u8>,
}

impl Selector {
    pub(super) fn new<R>(input: &mut FileInput<R>) -> Self {
        let filters = std::mem::take(&mut input.filters);
        Self { filters, traffic: input.traffic, scratch: Vec::new() }
    }

    /// Whether the packet of this number is wanted.
    pub(super) fn accepts(
        &mut self,
        record: &Record<'_>,
        linktype: u16,
        packet: u64,
    ) -> Result<bool> {
        let frame = &record.frame;
        if let Some(filter) = self.filters.of(linktype)?
            && !filter.matches(frame, frame.contiguous(&mut self.scratch))
        {
            return Ok(false);
        }
        let wanted = is_wanted(frame.direction, self.traffic);
        if !wanted && frame.direction == Direction::Unknown {
            return Err(Error::Undirected { packet });
        }
        Ok(wanted)
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
