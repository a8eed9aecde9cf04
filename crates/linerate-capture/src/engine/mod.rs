//! The running capture: readers, the writer, and who is told what.

mod affairs;
mod files;
mod reader;
mod report;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use affairs::Event;
pub(crate) use files::Filters;
pub use files::{FileProgress, FileSink, Input, PerFilePacket, description, read_file};
pub(crate) use report::Cpu;
pub use report::{FilterReport, InterfaceReport, Report};

use crate::interface::{self, Interface};
use crate::ledger::{Drops, Page};
use crate::open::{Opened, Request};
use crate::split::Live;
use crate::write::{Options, Progress, Writer};
use crate::{Error, Result};
use affairs::Affairs;
use reader::{Output, Reader, Taker};

/// How the readers behave.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// End after this many packets (`-c`).
    pub count: Option<u64>,
    /// Each packet is to reach the file at once (`-U`).
    pub packet_buffered: bool,
    /// CPUs for the readers, in turn; empty leaves it to the kernel.
    pub cpus: Vec<usize>,
    /// An interface that is removed ends only its own part of the capture.
    pub outlive_interfaces: bool,
    /// Split super-packets into frames; the sources come with virtio headers.
    pub split: bool,
    /// Give up all privileges of the threads that need none any more.
    pub drop_privileges: bool,
}

/// Is called for each packet with the number of its interface; answers false to end.
pub type PerPacket = Box<dyn FnMut(&linerate_ring::Frame<'_>, u32) -> bool + Send>;

/// Where the packets go.
pub enum Sink {
    /// Nowhere: they are counted.
    Discard,
    /// Into a file.
    File(Box<Writer>),
    /// To a function that is called for each packet, one reader at a time.
    Call(PerPacket),
}

/// A capture in progress.
pub struct Engine {
    readers: Vec<JoinHandle<()>>,
    writer: Option<Writer>,
    progress: Option<Arc<Progress>>,
    affairs: Arc<Affairs>,
    pages: Arc<Vec<Page>>,
    events: Receiver<Event>,
    facts: Vec<InterfaceReport>,
    filter: Option<FilterReport>,
    start: Instant,
}

/// How a capture ended.
#[derive(Debug)]
pub struct Outcome {
    /// The final counts.
    pub report: Report,
    /// What ended it, if that was not the user.
    pub failure: Option<Error>,
}

/// One page of the ledger for each interface, in the order of their numbers.
pub fn ledger(opened: &[Opened]) -> Arc<Vec<Page>> {
    let page = |one: &Opened| Page::new(&one.interface, one.choice.source, one.sources.len());
    Arc::new(opened.iter().map(page).collect())
}

/// What the statistics blocks of the files are to say.
pub fn totals(pages: &Arc<Vec<Page>>) -> crate::write::Totals {
    let pages = Arc::clone(pages);
    Box::new(move || pages.iter().map(Page::totals).collect())
}

impl Engine {
    /// Starts the readers.
    ///
    /// # Errors
    ///
    /// [`Error::Thread`].
    pub fn start(
        opened: Vec<Opened>,
        pages: Arc<Vec<Page>>,
        sink: Sink,
        settings: &Settings,
    ) -> Result<Self> {
        let (tell, events) = channel();
        let affairs = Arc::new(Affairs::new(settings.count, settings.split));
        let facts = opened.iter().map(InterfaceReport::of).collect();
        let filter = opened.first().and_then(FilterReport::of);
        let (writer, call) = match sink {
            Sink::Discard => (None, None),
            Sink::File(writer) => (Some(*writer), None),
            Sink::Call(call) => (None, Some(reader::shared(call))),
        };
        let mut prepared = Vec::new();
        for (number, one) in opened.into_iter().enumerate() {
            let filter = one.filter.filter(|_| one.filter_in_user).map(Arc::new);
            let live =
                settings.split.then(|| one.interface.linktype().map(Live::new)).transpose()?;
            for (index, source) in one.sources.into_iter().enumerate() {
                let output = match (&writer, &call) {
                    (Some(writer), _) => Output::Feed(writer.feed(number as u32)),
                    (None, Some(call)) => Output::Call(Arc::clone(call)),
                    (None, None) => Output::Discard,
                };
                let taker = Taker {
                    output,
                    filter: filter.clone(),
                    interface: number as u32,
                    affairs: Arc::clone(&affairs),
                };
                prepared.push((
                    number,
                    index,
                    one.interface.name.clone(),
                    source,
                    taker,
                    live.clone(),
                ));
            }
        }
        let mut readers = Vec::new();
        let age = match prepared.len() {
            _ if settings.packet_buffered => Duration::ZERO,
            1 => reader::AGE,
            _ => reader::AGE_OF_SEVERAL,
        };
        for (turn, (number, index, name, source, taker, live)) in prepared.into_iter().enumerate() {
            let reader = Reader {
                source,
                taker,
                live,
                name,
                pages: Arc::clone(&pages),
                page: number,
                account: index,
                tell: Sender::clone(&tell),
                age,
                cpu: settings.cpus.get(turn % settings.cpus.len().max(1)).copied(),
                outlive_interface: settings.outlive_interfaces,
                drop_privileges: settings.drop_privileges,
            };
            let thread = std::thread::Builder::new()
                .name(format!("reader {turn}"))
                .spawn(move || reader.run())
                .map_err(|source| Error::Thread { source })?;
            readers.push(thread);
        }
        let progress = writer.as_ref().map(Writer::progress);
        let start = Instant::now();
        Ok(Self { readers, writer, progress, affairs, pages, events, facts, filter, start })
    }

    /// Asks the readers to end. They read what came before.
    pub fn stop(&self) {
        self.affairs.stop.store(true, Relaxed);
    }

    /// Brings what was captured into the file now.
    pub fn flush(&self) {
        self.affairs.flush.fetch_add(1, Relaxed);
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
        self.pages.iter().for_each(Page::refresh);
        let progress = self.progress.as_deref();
        let mut drops = self.pages.iter().map(Page::drops).fold(Drops::default(), Drops::plus);
        drops.disk = progress.map_or(0, Progress::unwritten);
        let mut interfaces = self.facts.clone();
        let split = self.affairs.split();
        for (fact, page) in interfaces.iter_mut().zip(self.pages.iter()) {
            fact.update(page);
            // Readers ask the kernel for its counts now and then only; what was captured was received,
            // unless that counts the pieces of what was.
            if split.is_none() {
                fact.received = fact.received.max(fact.captured);
            }
        }
        Report {
            captured: interfaces.iter().map(|one| one.captured).sum(),
            received: interfaces.iter().map(|one| one.received).sum(),
            bytes: interfaces.iter().map(|one| one.bytes).sum(),
            written: progress.map_or(0, Progress::written),
            files: progress.map_or(0, Progress::files),
            file_bytes: progress.map_or(0, Progress::bytes),
            file: progress.map(Progress::current).filter(|path| *path != PathBuf::new()),
            writer_fill: self.writer.as_ref().map(Writer::fill),
            seconds: self.start.elapsed().as_secs_f64(),
            filter: self.filter.clone(),
            split,
            ..Report::new(drops, interfaces)
        }
    }

    /// Waits for the readers and the writer.
    pub fn finish(mut self) -> Outcome {
        for reader in self.readers.drain(..) {
            // A reader catches its own panics and says so in `affairs`.
            let _ = reader.join();
        }
        let seconds = self.start.elapsed().as_secs_f64();
        let summary = self.writer.take().map(Writer::finish).unwrap_or_default();
        let mut report = self.report();
        report.seconds = seconds;
        report.settle(&summary);
        Outcome { report, failure: self.affairs.take_failure().or(summary.failure) }
    }
}

/// Opens all interfaces of a capture, unless `stop` is set meanwhile.
///
/// # Errors
///
/// [`Error::NoInterface`], [`Error::Net`], [`Error::Stopped`], and the first refusal of
/// [`choose`](crate::choose::choose), of the filter or of the rings.
pub fn open_all(names: &[String], request: &Request, stop: &AtomicBool) -> Result<Vec<Opened>> {
    open_each(names, request, stop, None)
}

/// As [`open_all`], passing over interfaces that are removed meanwhile: also their names.
///
/// # Errors
///
/// As [`open_all`]; [`Error::NoInterface`] only if none is left.
pub fn open_remaining(
    names: &[String],
    request: &Request,
    stop: &AtomicBool,
) -> Result<(Vec<Opened>, Vec<String>)> {
    let mut gone = Vec::new();
    let opened = open_each(names, request, stop, Some(&mut gone))?;
    Ok((opened, gone))
}

fn open_each(
    names: &[String],
    request: &Request,
    stop: &AtomicBool,
    mut gone: Option<&mut Vec<String>>,
) -> Result<Vec<Opened>> {
    // Asked once: with hundreds of interfaces each answer takes a while.
    let uses = request.asks_for_uses();
    let all = if uses { Interface::all()? } else { Interface::all_but_listeners()? };
    let open = |name: &String| {
        if stop.load(Relaxed) {
            return Err(Error::Stopped);
        }
        let found = Interface::find(&all, name)?.clone();
        Opened::open(if uses { found.with_all_uses()? } else { found }, request)
    };
    // Which of several errors a removal causes depends on when it happens.
    let is_gone = |name: &String| {
        let found = Interface::find(&all, name);
        found.map_or(true, |found| interface::counters(found.index).is_none())
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

/// Finds out whether readers can run on these CPUs.
///
/// # Errors
///
/// [`Error::Cpu`] for the first that they cannot.
pub fn check_cpus(cpus: &[usize]) -> Result<()> {
    linerate_net::cpu::check(cpus).map_err(|(cpu, source)| Error::Cpu { cpu, source })
}

/// Buffers of 256 KiB that all readers together get, unless each has to have one for itself.
const MOST_BUFFERS: usize = 1024;

/// How many buffers serve so many readers, if one is served by `least`.
fn buffers(least: usize, readers: usize, in_order: bool) -> usize {
    let wanted = least.max(2 * readers);
    // What a fast reader fills while the writer waits for a slow one.
    let wanted = wanted + if in_order { 32 * readers } else { 0 };
    // Each reader keeps one; the others go to whoever fills them.
    wanted.min(MOST_BUFFERS.max(readers + least))
}

/// Starts a writer whose interfaces and statistics are those of `opened`.
///
/// # Errors
///
/// As [`Writer::start`]; [`Error::LinkLayers`] for classic pcap of interfaces whose link layers
/// differ.
pub fn start_writer(
    opened: &[Opened],
    pages: &Arc<Vec<Page>>,
    mut options: Options,
) -> Result<Writer> {
    options.interfaces = report::descriptions(opened, options.encoder.snaplen)?;
    let types = || options.interfaces.iter().map(|interface| interface.linktype);
    if options.encoder.format != crate::Format::Pcapng
        && types().any(|one| Some(one) != types().next())
    {
        return Err(Error::LinkLayers);
    }
    options.totals = totals(pages);
    let readers = opened.iter().map(|one| one.sources.len()).sum::<usize>();
    options.in_order &= readers > 1;
    options.buffers = buffers(options.buffers, readers, options.in_order);
    Writer::start(options)
}

#[cfg(test)]
mod tests {
    use super::buffers;

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
