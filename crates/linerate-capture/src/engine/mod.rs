//! The running capture: readers, sink, counters and events.

mod blocks;
mod cutoff;
mod file;
mod processes;
mod reader;
mod report;
mod router;
mod sample;
mod shared;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linerate_flow::export::{InterfaceName, RecordWriter};
use linerate_flow::meter::MeterOptions;
use linerate_net::Connection;
use linerate_net::link;
use linerate_pcapfile::Format;
use linerate_process::Attribution;

pub use blocks::copy_blocks;
pub use file::{FileInput, FileProgress, InputFile, description, read_file};
pub use processes::ProcessOptions;
pub(crate) use report::Cpu;
pub use report::{FilterReport, InterfaceReport, Report};
pub use sample::Sample;
pub use shared::Event;

use crate::annotate::Annotator;
use crate::interface::{self, ANY};
use crate::sink::Sink;
use crate::sink::file::{
    FileSink, FileSinkCounts, FileSinkHandle, FileSinkOptions, FileSinkProgress, StatisticsSource,
};
use crate::source::{OpenInterface, SourceKind, SourceOptions, any, inside};
use crate::split::LiveSplitter;
use crate::statistics::{AllCounters, DropCause, Drops, InterfaceCounters};
use crate::{Error, Result, clock};
use cutoff::Cutoff;
use processes::Processes;
use reader::{MAX_BUFFER_AGE, MAX_BUFFER_AGE_OF_SEVERAL, PacketPath, Reader};
use router::Router;
use shared::Shared;

/// How the readers behave.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// End after this many packets (`-c`).
    pub count: Option<u64>,
    /// Write each packet to the file at once (`-U`).
    pub packet_buffered: bool,
    /// CPUs for the readers, in turn; empty leaves it to the kernel.
    pub cpus: Vec<usize>,
    /// The removal of an interface ends only its own part of the capture.
    pub outlive_interfaces: bool,
    /// Say whose packets they are, and select them by it.
    pub processes: Option<ProcessOptions>,
    /// Only the packets of these flows.
    pub sample: Option<Sample>,
    /// Capture the packets of each flow until they have this many bytes, both directions together.
    pub cutoff: Option<u64>,
    /// Longest piece of a packet in the output, in bytes.
    pub snaplen: u32,
    /// Split super-packets into frames; the sources come with virtio headers.
    pub split: bool,
    /// Drop the capabilities of the threads that do not need them any more.
    pub drop_privileges: bool,
}

/// Metering the flows of what is captured, beside the sink.
pub struct Metering {
    /// Writes the records.
    pub record_writer: RecordWriter,
    /// How flows are metered. The readers share the table's room.
    pub options: MeterOptions,
}

/// The interfaces as flow records name them.
pub fn interface_names(opened: &[OpenInterface]) -> Vec<InterfaceName> {
    let name = |one: &OpenInterface| InterfaceName {
        name: Some(one.label.as_str().into()),
        index: (one.interface.index != 0).then_some(one.interface.index),
    };
    opened.iter().map(name).collect()
}

/// A running capture.
pub struct Engine {
    readers: Vec<JoinHandle<()>>,
    sink: Sink,
    record_writer: Option<RecordWriter>,
    attribution: Option<Arc<Attribution>>,
    progress: Vec<Arc<FileSinkProgress>>,
    shared: Arc<Shared>,
    counters: Arc<AllCounters>,
    events: Receiver<Event>,
    /// What is known of the interfaces from the start.
    interfaces: Vec<InterfaceReport>,
    filter: Option<FilterReport>,
    start: Instant,
}

/// How a run ended.
#[derive(Debug)]
pub struct Outcome<R = Report> {
    /// The final counts.
    pub report: R,
    /// What ended it, if that was not the user or the end of the input.
    pub failure: Option<Error>,
}

/// The counters of each interface, in the order of their numbers.
///
/// # Errors
///
/// [`Error::Net`] for an interface of another namespace that cannot be entered.
pub fn counters(opened: &[OpenInterface]) -> Result<Arc<AllCounters>> {
    let of = |one: &OpenInterface| {
        let (interface, readers) = (&one.interface, one.sources.len());
        let namespace = one.namespace.as_deref();
        inside(namespace, || {
            let connection = namespace.is_some().then(Connection::open).transpose()?;
            Ok(Arc::new(InterfaceCounters::new(interface, connection, readers.max(1))))
        })?
    };
    let first = opened.iter().map(of).collect::<Result<_>>()?;
    Ok(Arc::new(AllCounters::new(first)))
}

/// The statistics for the end of each file.
fn statistics_source(counters: &Arc<AllCounters>) -> StatisticsSource {
    let counters = Arc::clone(counters);
    Box::new(move || counters.all().iter().map(|one| one.statistics()).collect())
}

impl Engine {
    /// Starts the readers.
    ///
    /// # Errors
    ///
    /// [`Error::Thread`].
    pub fn start(
        opened: Vec<OpenInterface>,
        counters: Arc<AllCounters>,
        sink: Sink,
        metering: Option<Metering>,
        options: &EngineOptions,
    ) -> Result<Self> {
        let (events_in, events) = channel();
        let shared = Arc::new(Shared::new(options.count, options.split));
        let interfaces = opened.iter().map(InterfaceReport::of).collect();
        let filter = opened.first().and_then(FilterReport::of);
        let readers = opened.iter().map(|one| one.sources.len()).sum::<usize>().max(1);
        let all = counters.all();
        let mut router = match opened.first() {
            Some(first) if first.is_any() => {
                let described = report::descriptions(&opened, options.snaplen)?.swap_remove(0);
                Some(Box::new(Router::new(&opened, &counters, &events_in, described)?))
            }
            _ => None,
        };
        let meter = |sink: &mut Sink<FileSinkHandle>| {
            let Metering { record_writer, options } = metering.as_ref()?;
            let max_flows = (options.max_flows / readers as u32).max(1);
            let options = MeterOptions { max_flows, ..*options };
            Some(record_writer.meter(&options, sink.file().map(|file| file.packet_locator())))
        };
        let mut prepared = Vec::new();
        for (number, one) in opened.into_iter().enumerate() {
            let processes = options.processes.as_ref();
            let processes = processes.map(|options| {
                let new = |_| Processes::new(options, &one, readers);
                (0..one.sources.len()).map(new).collect::<Result<Vec<_>>>()
            });
            let mut processes = processes.transpose()?.unwrap_or_default().into_iter();
            let filter = one.filter.filter(|_| one.filter_in_user);
            let linktype = one.linktype;
            let drops = one.selection.kind == SourceKind::Drops;
            for (index, source) in one.sources.into_iter().enumerate() {
                let turn = prepared.len();
                let mut sink = sink.reader(number as u32, turn);
                let meter = meter(&mut sink);
                let reader = Reader {
                    source,
                    path: PacketPath {
                        sink,
                        filter: filter.clone(),
                        sample: options.sample,
                        processes: processes.next(),
                        cutoff: options.cutoff.map(|bytes| Cutoff::new(bytes, readers)),
                        router: router.take(),
                        counters: Arc::clone(&all[number]),
                        reader: index,
                        interface: number as u32,
                        linktype,
                        shared: Arc::clone(&shared),
                        meter,
                        annotator: drops.then(Annotator::new).transpose()?,
                    },
                    splitter: options.split.then(|| LiveSplitter::new(linktype)),
                    name: one.label.clone(),
                    counters: Arc::clone(&all[number]),
                    index,
                    events: Sender::clone(&events_in),
                    max_age: Duration::ZERO,
                    cpus: match options.cpus.get(turn % options.cpus.len().max(1)) {
                        Some(cpu) => vec![*cpu],
                        None => one.cpus.get(index).cloned().unwrap_or_default(),
                    },
                    outlive_interface: options.outlive_interfaces,
                    drop_privileges: options.drop_privileges,
                };
                prepared.push((reader, one.namespace.clone()));
            }
        }
        let max_age = match prepared.len() {
            _ if options.packet_buffered => Duration::ZERO,
            1 => MAX_BUFFER_AGE,
            _ => MAX_BUFFER_AGE_OF_SEVERAL,
        };
        let mut readers = Vec::new();
        for (turn, (reader, namespace)) in prepared.into_iter().enumerate() {
            let thread = std::thread::Builder::new().name(format!("reader {turn}"));
            let spawn = || thread.spawn(move || Reader { max_age, ..reader }.run());
            let spawned = inside(namespace.as_deref(), spawn)?;
            readers.push(spawned.map_err(|source| Error::Thread { source })?);
        }
        let progress = sink.files().iter().map(FileSink::progress).collect();
        let start = Instant::now();
        Ok(Self {
            readers,
            sink,
            record_writer: metering.map(|metering| metering.record_writer),
            attribution: options.processes.as_ref().map(|one| Arc::clone(&one.attribution)),
            progress,
            shared,
            counters,
            events,
            interfaces,
            filter,
            start,
        })
    }

    /// Asks the readers to end. They read what came before.
    pub fn stop(&self) {
        self.shared.stop.store(true, Relaxed);
    }

    /// Writes everything that was captured to the file now.
    pub fn flush(&self) {
        self.shared.flush.fetch_add(1, Relaxed);
    }

    /// Starts another file for the packets from now on.
    pub fn rotate(&self) {
        let now = clock::now();
        self.sink.files().iter().for_each(|file| file.rotate(now));
    }

    /// Whether every reader has ended.
    pub fn is_finished(&self) -> bool {
        self.readers.iter().all(JoinHandle::is_finished)
    }

    /// What happened since the last call that the user should know.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.events.try_iter()
    }

    /// The counts now.
    pub fn report(&self) -> Report {
        let all = self.counters.all();
        all.iter().for_each(|one| one.refresh());
        let files = self.progress.iter().map(|one| one.counts());
        let files = files.fold(FileSinkCounts::default(), FileSinkCounts::plus);
        let drops = all.iter().map(|one| one.drops());
        let mut drops = drops.fold(Drops::default(), Drops::plus);
        drops[DropCause::Disk] = files.unwritten;
        drops[DropCause::OutOfOrder] += files.out_of_order;
        let mut interfaces = self.interfaces.clone();
        for later in &all[interfaces.len()..] {
            interfaces.push(InterfaceReport { name: later.name.clone(), ..interfaces[0].clone() });
        }
        let split = self.shared.split();
        for (interface, counters) in interfaces.iter_mut().zip(&all) {
            interface.update(counters);
            // Readers ask the kernel for its counts only now and then. What was captured or left out was
            // received, except that the segments of what was split are counted.
            if split.is_none() {
                let causes = &interface.dropped;
                let left_out = causes[DropCause::Sampled]
                    + causes[DropCause::NotSelected]
                    + causes[DropCause::Cutoff];
                interface.received = interface.received.max(interface.captured + left_out);
            }
        }
        let mut report = Report {
            captured: interfaces.iter().map(|one| one.captured).sum(),
            received: interfaces.iter().map(|one| one.received).sum(),
            bytes: interfaces.iter().map(|one| one.bytes).sum(),
            writer_fill: self.sink.files().iter().map(FileSink::fill_level).reduce(f32::max),
            seconds: self.start.elapsed().as_secs_f64(),
            filter: self.filter.clone(),
            split,
            flows: self.record_writer.as_ref().map(RecordWriter::statistics),
            processes: self.attribution.as_ref().map(|one| one.statistics()),
            ..Report::new(drops, interfaces)
        };
        report.set_files(&files);
        report.file = Some(files.current).filter(|path| *path != PathBuf::new());
        report
    }

    /// Waits for the readers and the writer.
    pub fn finish(mut self) -> Outcome {
        for reader in self.readers.drain(..) {
            // A reader catches its own panics and reports them in `shared`.
            let _ = reader.join();
        }
        let seconds = self.start.elapsed().as_secs_f64();
        let sink = std::mem::replace(&mut self.sink, Sink::Discard);
        let written = sink.finish();
        let record_writer = self.record_writer.take();
        let mut report = self.report();
        let unwritten = report.finish_flows(record_writer);
        report.seconds = seconds;
        report.settle(&written);
        Outcome { report, failure: self.shared.take_failure().or(written.failure).or(unwritten) }
    }
}

/// Opens all interfaces of a capture; setting `stop` cancels that.
///
/// # Errors
///
/// [`Error::NoInterface`], [`Error::Net`], [`Error::Stopped`], and the first refusal of
/// [`select`](crate::source::select), of the filter or of the rings.
pub fn open_all(
    names: &[String],
    options: &SourceOptions,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<OpenInterface>> {
    open_each(names, options, stop, None)
}

/// As [`open_all`], but skips interfaces that are removed during the call, and returns their names.
///
/// # Errors
///
/// As [`open_all`]; [`Error::NoInterface`] only if none is left.
pub fn open_remaining(
    names: &[String],
    options: &SourceOptions,
    stop: &Arc<AtomicBool>,
) -> Result<(Vec<OpenInterface>, Vec<String>)> {
    let mut gone = Vec::new();
    let opened = open_each(names, options, stop, Some(&mut gone))?;
    Ok((opened, gone))
}

/// Opens one socket for all interfaces that are up, and for later ones; `None` if that is not possible with these
/// options.
///
/// # Errors
///
/// As [`open_all`].
pub fn open_any(
    options: &SourceOptions,
    stop: &Arc<AtomicBool>,
) -> Result<Option<Vec<OpenInterface>>> {
    let mut interfaces = link::all()?;
    interfaces.retain(|one| one.is_up() && interface::linktype(one).is_ok());
    any::open(interfaces, options, &mut options.filters(Arc::clone(stop)))
}

fn open_each(
    names: &[String],
    options: &SourceOptions,
    stop: &Arc<AtomicBool>,
    mut gone: Option<&mut Vec<String>>,
) -> Result<Vec<OpenInterface>> {
    // One query for all: with hundreds of interfaces each answer takes a while.
    let all = link::all()?;
    let mut filters = options.filters(Arc::clone(stop));
    let mut open = |name: &String| {
        if stop.load(Relaxed) {
            return Err(Error::Stopped);
        }
        let found = match options.source {
            Some(SourceKind::Drops) if name == ANY => interface::any(),
            _ if options.cooked.is_some() => interface::any(),
            _ => interface::find(&all, name)?.clone(),
        };
        OpenInterface::open(found, options, &mut filters)
    };
    // The error that a removal causes depends on when it happens.
    let is_gone = |name: &String| {
        let found = interface::find(&all, name);
        found.map_or(true, |found| link::by_index(found.index).is_ok_and(|now| now.is_none()))
    };
    let mut opened = Vec::new();
    for name in names {
        match (open(name), &mut gone) {
            (Ok(one), _) => opened.push(one),
            (Err(error), Some(gone)) if !matches!(error, Error::Stopped) && is_gone(name) => {
                gone.push(name.clone());
                if opened.is_empty() && gone.len() == names.len() {
                    return Err(error);
                }
            }
            (Err(error), _) => return Err(error),
        }
    }
    Ok(opened)
}

/// Checks that readers can run on these CPUs.
///
/// # Errors
///
/// [`Error::Cpu`] for the first that they cannot.
pub fn check_cpus(cpus: &[usize]) -> Result<()> {
    linerate_net::cpu::check_affinity(cpus).map_err(|(cpu, source)| Error::Cpu { cpu, source })
}

/// The most buffers of 256 KiB for all readers together, unless there are more readers.
const MAX_BUFFERS: usize = 1024;

/// How many buffers serve this many readers, if `least` serve one.
fn buffers(least: usize, readers: usize, in_order: bool) -> usize {
    let wanted = least.max(2 * readers);
    // Room for what a fast reader fills while the writer waits for a slow one.
    let wanted = wanted + if in_order { 32 * readers } else { 0 };
    // Each reader keeps one; the others are shared.
    wanted.min(MAX_BUFFERS.max(readers + least))
}

/// As [`start_file_sink`], a writer for each reader, whose file has the number of the reader in its name:
/// `all-0.pcapng`, `all-1.pcapng`. `options` gives the options of another writer.
///
/// # Errors
///
/// As [`start_file_sink`].
pub fn start_file_sinks(
    opened: &[OpenInterface],
    counters: &Arc<AllCounters>,
    options: impl Fn() -> FileSinkOptions,
) -> Result<Vec<FileSink>> {
    let readers = opened.iter().map(|one| one.sources.len()).sum::<usize>();
    let finished = Arc::default();
    let start = |reader| {
        let mut options = options();
        options.path = with_number(&options.path, reader);
        options.in_order = false;
        options.buffers = (options.buffers / readers).max(MIN_BUFFERS);
        prepare(opened, counters, &mut options)?;
        FileSink::start_beside(options, Arc::clone(&finished))
    };
    (0..readers).map(start).collect()
}

/// The least buffers of each of several writers.
const MIN_BUFFERS: usize = 16;

/// This path with a number in front of the first dot of the file's name.
fn with_number(path: &Path, number: usize) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // A name may begin with a dot.
    let dot = name.char_indices().skip(1).find(|(_, c)| *c == '.').map_or(name.len(), |(at, _)| at);
    path.with_file_name(format!("{}-{number}{}", &name[..dot], &name[dot..]))
}

/// Starts a writer for the interfaces and the statistics of `opened`.
///
/// # Errors
///
/// As [`FileSink::start`]; [`Error::LinkLayers`] for classic pcap of interfaces whose link layers differ.
pub fn start_file_sink(
    opened: &[OpenInterface],
    counters: &Arc<AllCounters>,
    mut options: FileSinkOptions,
) -> Result<FileSink> {
    prepare(opened, counters, &mut options)?;
    let readers = opened.iter().map(|one| one.sources.len()).sum::<usize>();
    options.in_order &= readers > 1;
    options.buffers = buffers(options.buffers, readers, options.in_order);
    FileSink::start(options)
}

/// Puts the interfaces and their statistics into the options of a writer.
fn prepare(
    opened: &[OpenInterface],
    counters: &Arc<AllCounters>,
    options: &mut FileSinkOptions,
) -> Result<()> {
    options.interfaces = report::descriptions(opened, options.encoder.snaplen)?;
    let types = || options.interfaces.iter().map(|interface| interface.linktype);
    if options.encoder.format != Format::Pcapng && types().any(|one| Some(one) != types().next()) {
        return Err(Error::LinkLayers);
    }
    options.statistics = statistics_source(counters);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{buffers, with_number};

    #[test]
    fn files_of_readers_are_numbered_in_front_of_the_extension() {
        let cases = [
            ("all.pcapng.zst", "all-3.pcapng.zst"),
            ("/a.b/all", "/a.b/all-3"),
            ("f-%H%M%S.pcap", "f-%H%M%S-3.pcap"),
            (".hidden", ".hidden-3"),
        ];
        for (path, numbered) in cases {
            assert_eq!(with_number(Path::new(path), 3), Path::new(numbered));
        }
    }

    #[test]
    fn many_readers_share_a_bounded_stock_of_buffers() {
        assert_eq!(buffers(96, 1, false), 96);
        assert_eq!(buffers(96, 2, true), 160);
        assert_eq!(buffers(96, 20, true), 736);
        assert_eq!(buffers(96, 100, true), 1024);
        for readers in [1301, 4000] {
            assert_eq!(buffers(96, readers, true), readers + 96);
        }
    }
}
