//! `-r`: from a capture file through a filter to a sink.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use linerate_ring::packet::Traffic;
use linerate_ring::{Direction, Frame};

use super::Outcome;
use super::report::{Cpu, FilterReport, Report};
use crate::filter::{Filter, Side};
use crate::read::{Interface, Reader};
use crate::write::{Feed, InterfaceDescription, Progress, Writer};
use crate::{Error, Format, Result};

/// What to read, and how much of it.
pub struct Input {
    /// The file.
    pub reader: Reader,
    /// Filter expression; `None` or empty takes everything.
    pub filter: Option<String>,
    /// Longest piece of a packet to keep, in bytes; the filter program is compiled for it.
    pub snaplen: u32,
    /// End after this many matching packets.
    pub count: Option<u64>,
    /// Which way the packets are to have gone.
    pub traffic: Traffic,
    /// Each packet is to reach the file at once.
    pub packet_buffered: bool,
}

/// Is called for each packet with its link type; answers false to end.
pub type PerFilePacket = Box<dyn FnMut(&Frame<'_>, u16) -> bool>;

/// Where the packets go.
pub enum FileSink {
    /// Nowhere: they are counted.
    Discard,
    /// Into a file, which takes as long as it takes: nothing is lost between two files.
    File(Box<Writer>),
    /// To a function.
    Call(PerFilePacket),
}

/// How a file's interface is described in another one.
pub fn description(
    interface: &Interface,
    filter: Option<&str>,
    snaplen: u32,
) -> InterfaceDescription {
    InterfaceDescription {
        name: interface.name.clone(),
        description: interface.description.clone(),
        filter: filter.map(str::to_owned).or_else(|| interface.filter.clone()),
        linktype: interface.linktype,
        snaplen: if interface.snaplen == 0 { snaplen } else { interface.snaplen.min(snaplen) },
    }
}

/// How far the reading of a file has come, for other threads to see, and what they ask of it.
#[derive(Debug, Default)]
pub struct FileProgress {
    received: AtomicU64,
    captured: AtomicU64,
    flush: AtomicBool,
    writer: Option<Arc<Progress>>,
}

impl FileProgress {
    /// For reading into `sink`.
    pub fn of(sink: &FileSink) -> Self {
        let writer = match sink {
            FileSink::File(writer) => Some(writer.progress()),
            _ => None,
        };
        Self { writer, ..Self::default() }
    }

    /// Asks for what was read to be brought into the file now.
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
            files: writer.map_or(0, Progress::files),
            file_bytes: writer.map_or(0, Progress::bytes),
            ..Report::default()
        }
    }

    fn note(&self, report: &Report) {
        self.received.store(report.received, Relaxed);
        self.captured.store(report.captured, Relaxed);
    }

    fn take_flush(&self) -> bool {
        self.flush.load(Relaxed) && self.flush.swap(false, Relaxed)
    }
}

/// What a report names as the source.
const SOURCE: &str = "file";

/// Reads until the end of the file, the limit, or `stop`, and says in `progress` how far it is. What was read before trouble is in the
/// sink; the trouble comes back in the outcome.
pub fn read_file(
    mut input: Input,
    sink: FileSink,
    stop: &AtomicBool,
    progress: &FileProgress,
) -> Outcome {
    let start = Instant::now();
    let (mut output, writer) = match sink {
        FileSink::Discard => (Output::Discard, None),
        FileSink::File(writer) => (Output::Feed(writer.feed(0)), Some(writer)),
        FileSink::Call(call) => (Output::Call(call), None),
    };
    let mut report = Report { source: SOURCE.into(), pages: "none".into(), ..Report::default() };
    let text = input.filter.take().filter(|text| !text.trim().is_empty());
    report.filter = text.as_ref().map(|text| FilterReport {
        expression: text.clone(),
        side: Side::User,
        why: "a file has no kernel side".into(),
    });
    let watched = Watched { stop, progress };
    let failure = copy(&mut input, text.as_deref(), &mut output, &mut report, &watched).err();
    drop(output);
    let summary = writer.map(|writer| {
        let progress = writer.progress();
        (writer.finish(), progress.current())
    });
    report.seconds = start.elapsed().as_secs_f64();
    report.cpu = Cpu::now();
    let Some((summary, file)) = summary else {
        return Outcome { report, failure };
    };
    report.settle(&summary);
    (report.written, report.files) = (summary.written, summary.files);
    (report.file_bytes, report.file) = (summary.bytes, Some(file));
    // A full disk explains more than the end of the input that it caused.
    let failure = summary.failure.or(failure);
    Outcome { report, failure }
}

/// What reading and other threads tell each other.
struct Watched<'a> {
    stop: &'a AtomicBool,
    progress: &'a FileProgress,
}

enum Output {
    Discard,
    Feed(Feed),
    Call(PerFilePacket),
}

fn copy(
    input: &mut Input,
    text: Option<&str>,
    output: &mut Output,
    report: &mut Report,
    watched: &Watched<'_>,
) -> Result<()> {
    let Watched { stop, progress } = watched;
    let mut filters = Filters::new(text, input.snaplen);
    // An expression with a mistake in it is refused also for an empty file.
    filters.of(input.reader.interfaces().first().map_or(1, |first| first.linktype))?;
    // A pcap header has one link type, the first interface's.
    let only = match output {
        Output::Feed(feed) if feed.format() != Format::Pcapng => {
            Some(input.reader.interfaces().first().map_or(1, |first| first.linktype))
        }
        _ => None,
    };
    let mut described = input.reader.interfaces().len();
    let mut scratch = Vec::new();
    while !stop.load(Relaxed) && input.count.is_none_or(|count| report.captured < count) {
        let (record, interfaces) = match input.reader.next_described() {
            Ok(Some(next)) => next,
            Ok(None) | Err(Error::Abandoned { .. }) => break,
            Err(error) => return Err(error),
        };
        report.received += 1;
        progress.note(report);
        let frame = &record.frame;
        let linktype = interfaces[record.interface as usize].linktype;
        if let Some(filter) = filters.of(linktype)?
            && !filter.matches(frame.contiguous(&mut scratch), frame.wire_len)
        {
            continue;
        }
        if !goes(frame.direction, input.traffic) {
            if frame.direction == Direction::Unknown {
                return Err(Error::Undirected { packet: report.received });
            }
            continue;
        }
        if only.is_some_and(|only| only != linktype) {
            return Err(Error::LinkLayers);
        }
        report.captured += 1;
        report.bytes += u64::from(frame.wire_len);
        match output {
            Output::Discard => {}
            Output::Feed(feed) => {
                for interface in &interfaces[described..] {
                    feed.describe(description(interface, text, input.snaplen));
                }
                described = interfaces.len();
                feed.push(&record);
                if input.packet_buffered || progress.take_flush() {
                    feed.flush();
                }
                if feed.is_closed() {
                    break;
                }
            }
            Output::Call(call) => {
                if !call(frame, linktype) {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Whether a packet of this direction is wanted.
fn goes(direction: Direction, wanted: Traffic) -> bool {
    match wanted {
        Traffic::InOut => true,
        Traffic::In => direction == Direction::Inbound,
        Traffic::Out => direction == Direction::Outbound,
    }
}

/// The expression compiled for each link type that the file has.
pub(crate) struct Filters<'a> {
    text: Option<&'a str>,
    snaplen: u32,
    made: Vec<(u16, Filter)>,
}

impl<'a> Filters<'a> {
    /// Of `text`; `None` takes everything.
    pub(crate) fn new(text: Option<&'a str>, snaplen: u32) -> Self {
        Self { text, snaplen, made: Vec::new() }
    }

    /// The filter for a link type, compiled when it is first asked for.
    pub(crate) fn of(&mut self, linktype: u16) -> Result<Option<&Filter>> {
        let Some(text) = self.text else { return Ok(None) };
        let position = match self.made.iter().position(|(made_for, _)| *made_for == linktype) {
            Some(position) => position,
            None => {
                let filter = Filter::compile(text, linktype, self.snaplen, true)?;
                self.made.push((linktype, filter));
                self.made.len() - 1
            }
        };
        Ok(Some(&self.made[position].1))
    }
}
