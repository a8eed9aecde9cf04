//! The writer's thread: buffers into files, and when to begin another one.

use std::ffi::OsString;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use linerate_ring::Timestamp;

use super::merge::Merge;
use super::name::{self, Names};
use super::pcapng::{InterfaceDescription, InterfaceTotals, Section};
use super::pool::{Chunk, Feed, Job, Keeper, Origin, Pool, Ready};
use super::progress::{Fate, Progress, Summary};
use super::sink::{Compression, Sink};
use super::walk::records;
use super::{Encoder, Rotation, pcap, pcapng};
use crate::{Error, Format, Result};

/// Asks for the counts of every interface, for the statistics at a file's end.
pub type Totals = Box<dyn Fn() -> Vec<InterfaceTotals> + Send>;

/// What to write and where.
pub struct Options {
    /// The file, `-` for standard output; with a rotation the stem of the names.
    pub path: PathBuf,
    /// Format and contents of the records.
    pub encoder: Encoder,
    /// Compression.
    pub compression: Compression,
    /// When to begin another file.
    pub rotation: Rotation,
    /// Bytes after which the whole capture ends (`-a filesize:`).
    pub size_limit: Option<u64>,
    /// A program to run with the name of each finished file (`-z`).
    pub postrotate: Option<OsString>,
    /// What pcapng says about the origin.
    pub section: Section,
    /// The interfaces, in the order of their numbers; classic pcap takes the first one's link type.
    pub interfaces: Vec<InterfaceDescription>,
    /// Buffers of 256 KiB between the readers and the file: one for each reader, and at least one more.
    pub buffers: usize,
    /// When the first period of `rotation.seconds` begins; `None` for the first packet's time.
    pub start: Option<Timestamp>,
    /// The thread gives up its capabilities, unless it will have to open more files.
    pub drop_privileges: bool,
    /// Puts the packets of several feeds in the order of time, as far as waiting a quarter of a
    /// second for the slowest of them does that. What one feed brings stays in its order.
    pub in_order: bool,
    /// Ends the wait for somebody to read a named pipe.
    pub stop: Arc<AtomicBool>,
    /// The counts for the statistics blocks.
    pub totals: Totals,
}

/// A running writer.
pub struct Writer {
    thread: JoinHandle<Summary>,
    pool: Arc<Pool>,
    progress: Arc<Progress>,
    encoder: Encoder,
    keeper: Keeper,
}

impl Writer {
    /// Opens the first file, writes its header and starts the thread.
    ///
    /// # Errors
    ///
    /// [`Error::Create`] and [`Error::Write`].
    pub fn start(options: Options) -> Result<Self> {
        let pool = Pool::new(options.buffers.max(2));
        let progress = Arc::new(Progress::default());
        let encoder = options.encoder;
        let mut files = Files::new(options, Arc::clone(&pool), Arc::clone(&progress));
        if files.options.rotation.seconds.is_some() && !name::is_format(&files.options.path) {
            let what = "the name is no format for strftime(3), which -G fills in; write %% for %";
            let source = io::Error::new(io::ErrorKind::InvalidInput, what);
            return Err(Error::Create { path: files.options.path, source });
        }
        if files.names.is_some() {
            files.open()?;
        }
        let keeper = Keeper::new(&pool);
        let thread = std::thread::Builder::new()
            .name("writer".into())
            .spawn(move || files.run())
            .map_err(|source| Error::Thread { source })?;
        Ok(Self { thread, pool, progress, encoder, keeper })
    }

    /// A new reader's end, whose packets count for this interface.
    pub fn feed(&self, interface: u32) -> Feed {
        Feed::new(Arc::clone(&self.pool), self.encoder, interface)
    }

    /// How far it is.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// The share of buffers that wait to be written, 0 to 1.
    pub fn fill(&self) -> f32 {
        self.pool.fill()
    }

    /// Whether it takes no more: a limit is reached or a file failed.
    pub fn is_closed(&self) -> bool {
        self.pool.is_closed()
    }

    /// Waits until every feed is dropped and what they sent is in the file, and closes it.
    pub fn finish(self) -> Summary {
        drop(self.keeper);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Why a file ends in the middle of a buffer.
enum Boundary {
    /// It is full; the next one takes what follows.
    Full,
    /// The packet that follows belongs to another period.
    Period(Timestamp),
    /// The capture is as large as it may be.
    Limit,
}

struct Files {
    options: Options,
    pool: Arc<Pool>,
    progress: Arc<Progress>,
    names: Option<Names>,
    sink: Option<Sink>,
    path: PathBuf,
    /// Packets in the current file.
    records: u64,
    children: Vec<Child>,
    summary: Summary,
    stopped: bool,
}

impl Files {
    fn new(options: Options, pool: Arc<Pool>, progress: Arc<Progress>) -> Self {
        let start = match options.start {
            None if options.rotation.seconds.is_some() => None,
            start => Some(start.unwrap_or_default()),
        };
        let names = start.map(|start| Names::new(&options.path, options.rotation, start));
        Self {
            options,
            pool,
            progress,
            names,
            sink: None,
            path: PathBuf::new(),
            records: 0,
            children: Vec::new(),
            summary: Summary::default(),
            stopped: false,
        }
    }

    fn run(mut self) -> Summary {
        // Out here, as a panic must not take along what it holds.
        let mut merge = Merge::new(self.options.encoder.format);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.work(&mut merge))) {
            self.give_up(Error::panicked("writer".into(), &*panic), merge);
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
        self.summary
    }

    /// After a panic: readers may wait for empty buffers, and what they still send has to be counted.
    fn give_up(&mut self, error: Error, merge: Merge) {
        self.fail(error);
        self.sink = None;
        // Its packets are counted as taken, and so are among those under way.
        merge.into_chunks().for_each(|chunk| self.pool.give_back(chunk));
        let under_way = self.summary.interfaces.iter().map(Fate::unwritten).sum::<u64>();
        self.lose(under_way - self.summary.unwritten);
        while let Some(job) = self.pool.next() {
            if let Job::Write(chunk) = job {
                self.take(&chunk);
                self.miss(&chunk, 0);
                self.pool.give_back(chunk);
            }
        }
    }

    fn work(&mut self, merge: &mut Merge) {
        if self.options.drop_privileges && self.sink.is_some() && !self.options.rotation.rotates() {
            crate::privilege::drop_all();
        }
        if self.options.in_order {
            self.merge(merge);
        }
        while let Some(job) = self.pool.next() {
            match job {
                Job::End(_) => {}
                Job::Write(chunk) => {
                    self.take(&chunk);
                    self.write(&chunk);
                    self.pool.give_back(chunk);
                }
                Job::Interface(interface) => self.describe(*interface),
            }
        }
        if self.names.is_none() && !self.stopped {
            // Nothing came whose time could name the file; an empty capture is still a file.
            self.name_from(Timestamp(0));
        }
        self.close();
    }

    /// Writes what several feeds send in the order of time, until they end.
    fn merge(&mut self, merge: &mut Merge) {
        let pool = Arc::clone(&self.pool);
        loop {
            let Ready { limit, interfaces, last } = pool.gather(merge, |chunk| self.take(chunk));
            interfaces.into_iter().for_each(|interface| self.describe(interface));
            let limit = if last || self.stopped { Timestamp(u64::MAX) } else { limit };
            merge.release(limit, |chunk| self.write(chunk));
            merge.take_empty().for_each(|chunk| pool.give_back(chunk));
            if last {
                return;
            }
        }
    }

    /// Opens the file that is next and writes what stands before the packets.
    fn open(&mut self) -> Result<()> {
        let Some(names) = &self.names else { return Ok(()) };
        self.path = names.current();
        let create = |source| Error::Create { path: self.path.clone(), source };
        let sink = Sink::create(&self.path, self.options.compression, &self.options.stop)
            .map_err(create)?;
        self.progress.current.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&self.path);
        self.sink = Some(sink);
        self.records = 0;
        self.summary.files += 1;
        self.progress.files.store(self.summary.files, Relaxed);
        let mut header = Vec::new();
        let encoder = self.options.encoder;
        match encoder.format {
            Format::Pcapng => {
                pcapng::section(&mut header, &self.options.section);
                for interface in &self.options.interfaces {
                    pcapng::interface(&mut header, interface);
                }
            }
            Format::Pcap { nanoseconds } => {
                let linktype = self.options.interfaces.first().map_or(1, |first| first.linktype);
                pcap::header(&mut header, nanoseconds, encoder.snaplen, linktype);
            }
        }
        self.put(&header).map_err(|source| Error::Write { path: self.path.clone(), source })
    }

    fn name_from(&mut self, start: Timestamp) {
        self.names = Some(Names::new(&self.options.path, self.options.rotation, start));
        if let Err(error) = self.open() {
            self.fail(error);
        }
    }

    /// Bytes that are no packets: whole or not at all.
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(sink) = &mut self.sink else { return Ok(()) };
        let before = sink.length();
        let result = sink.write(bytes, |_| 0).map_err(|(error, _)| error);
        self.count_bytes(before);
        result
    }

    fn count_bytes(&mut self, before: u64) {
        let after = self.sink.as_ref().map_or(before, Sink::length);
        self.summary.bytes += after - before;
        self.progress.bytes.store(self.summary.bytes, Relaxed);
    }

    fn describe(&mut self, interface: InterfaceDescription) {
        if self.options.encoder.format == Format::Pcapng && !self.stopped {
            let mut block = Vec::new();
            pcapng::interface(&mut block, &interface);
            if let Err(source) = self.put(&block) {
                self.fail(Error::Write { path: self.path.clone(), source });
            }
        }
        self.options.interfaces.push(interface);
    }

    fn write(&mut self, chunk: &Chunk) {
        let format = self.options.encoder.format;
        let (mut rest, mut frames) = (&chunk.bytes[..], chunk.frames);
        if self.names.is_none()
            && let Some(first) = records(format, rest).next()
        {
            self.name_from(first.timestamp);
        }
        while frames > 0 && !self.stopped {
            let (bytes, count, boundary) = match self.boundary(rest, chunk.last) {
                Some((bytes, count, why)) => (bytes, count, Some(why)),
                None => (rest.len(), frames, None),
            };
            let kept = self.append(&rest[..bytes], count);
            self.deliver(&chunk.origins, chunk.frames - frames, kept);
            frames -= kept;
            if kept < count || self.stopped {
                break;
            }
            rest = &rest[bytes..];
            match boundary {
                Some(Boundary::Limit) => self.stop(),
                Some(Boundary::Full) => self.rotate(None),
                Some(Boundary::Period(now)) => self.rotate(Some(now)),
                None => {}
            }
        }
        if frames > 0 {
            self.miss(chunk, chunk.frames - frames);
        }
    }

    /// Counts what readers handed over.
    fn take(&mut self, chunk: &Chunk) {
        for origin in &chunk.origins {
            self.fate(origin.interface).taken += origin.frames;
        }
    }

    /// Counts packets, behind the first `before` of these, as written.
    fn deliver(&mut self, origins: &[Origin], mut before: u64, mut count: u64) {
        for origin in origins {
            let written = origin.frames.saturating_sub(before).min(count);
            before = before.saturating_sub(origin.frames);
            count -= written;
            self.fate(origin.interface).written += written;
        }
    }

    /// Counts the packets of `chunk` behind the first `written` ones, which are not in the files.
    #[cold]
    fn miss(&mut self, chunk: &Chunk, written: u64) {
        let failed = self.summary.failure.is_some() || self.summary.pipe_closed;
        let mut marks = records(self.options.encoder.format, &chunk.bytes);
        let mut before = written;
        for origin in &chunk.origins {
            let kept = before.min(origin.frames);
            before -= kept;
            let missing = origin.frames - kept;
            let of_origin = marks.by_ref().take(origin.frames as usize).skip(kept as usize);
            let bytes: u64 = of_origin.map(|mark| u64::from(mark.wire_len)).sum();
            let fate = self.fate(origin.interface);
            fate.missing_bytes += bytes;
            if failed {
                self.lose(missing);
            } else {
                fate.beyond_limit += missing;
                self.summary.beyond_limit += missing;
            }
        }
    }

    fn fate(&mut self, interface: u32) -> &mut Fate {
        let fates = &mut self.summary.interfaces;
        let index = interface as usize;
        if fates.len() <= index {
            fates.resize(index + 1, Fate::default());
        }
        &mut fates[index]
    }

    /// Appends records to the current file and answers how many of them are in it.
    fn append(&mut self, bytes: &[u8], count: u64) -> u64 {
        let Some(sink) = &mut self.sink else { return 0 };
        if bytes.is_empty() {
            return count;
        }
        let format = self.options.encoder.format;
        let before = sink.length();
        let mut kept = count;
        let result = sink.write(bytes, |done| {
            let whole = records(format, bytes).take_while(|mark| mark.end <= done);
            let (number, end) = whole.fold((0, 0), |(number, _), mark| (number + 1, mark.end));
            kept = number;
            end
        });
        if let Err((source, stayed)) = result {
            kept = if stayed == 0 { 0 } else { kept };
            self.fail(Error::Write { path: self.path.clone(), source });
        } else if self.options.compression != Compression::None
            && self.options.size_limit.is_some_and(|limit| sink.length() >= limit)
        {
            self.stop();
        }
        self.count_bytes(before);
        self.records += kept;
        self.summary.written += kept;
        self.progress.written.store(self.summary.written, Relaxed);
        kept
    }

    /// The first place in `bytes` where the current file ends: how many bytes and packets are before
    /// it, and why. `last` is the latest time in them.
    fn boundary(&self, bytes: &[u8], last: Timestamp) -> Option<(usize, u64, Boundary)> {
        let length = self.sink.as_ref().map_or(0, Sink::length);
        let Rotation { size, .. } = self.options.rotation;
        let limit = self.options.size_limit;
        let period_end = self.names.as_ref().and_then(Names::period_end);
        // How long the file gets is known only afterwards when it is compressed: then files end
        // between buffers.
        let compressed = self.options.compression != Compression::None;
        let after = length + if compressed { 0 } else { bytes.len() as u64 };
        let size_matters = size.is_some_and(|size| after > size);
        let limit_matters = !compressed && limit.is_some_and(|limit| after >= limit);
        if !size_matters && !limit_matters && period_end.is_none_or(|end| last < end) {
            return None;
        }
        let mut start = 0;
        for (number, mark) in records(self.options.encoder.format, bytes).enumerate() {
            let number = number as u64;
            if period_end.is_some_and(|end| mark.timestamp >= end) {
                return Some((start, number, Boundary::Period(mark.timestamp)));
            }
            let so_far = length + if compressed { 0 } else { start as u64 };
            let has_some = self.records + if compressed { 0 } else { number } > 0;
            if has_some && size.is_some_and(|size| so_far > size) {
                let before = if compressed { (0, 0) } else { (start, number) };
                return Some((before.0, before.1, Boundary::Full));
            }
            if !compressed && limit.is_some_and(|limit| length + mark.end as u64 >= limit) {
                return Some((mark.end, number + 1, Boundary::Limit));
            }
            start = mark.end;
        }
        None
    }

    /// Ends this file and begins the next: of the period that `now` is in, or with the next number.
    fn rotate(&mut self, now: Option<Timestamp>) {
        self.close();
        if self.stopped {
            return;
        }
        let Some(names) = &mut self.names else { return };
        match now {
            None => names.next_by_size(),
            Some(now) => {
                if !names.next_by_time(now) {
                    return self.stop();
                }
            }
        }
        if let Err(error) = self.open() {
            self.fail(error);
        }
    }

    /// Ends the current file with the statistics.
    fn close(&mut self) {
        if self.sink.is_none() {
            return;
        }
        if self.options.encoder.format == Format::Pcapng && !self.summary.pipe_closed {
            let mut block = Vec::new();
            for (number, mut totals) in (self.options.totals)().into_iter().enumerate() {
                totals.delivered = Some(self.fate(number as u32).written);
                pcapng::statistics(&mut block, number as u32, &totals);
            }
            if let Err(source) = self.put(&block)
                && self.summary.failure.is_none()
            {
                self.fail(Error::Write { path: self.path.clone(), source });
            }
        }
        self.sink = None;
        self.postrotate();
    }

    fn postrotate(&mut self) {
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let Some(program) = self.options.postrotate.as_ref() else { return };
        if !self.options.rotation.rotates() || self.path == Path::new("-") {
            return;
        }
        match Command::new(program).arg(&self.path).spawn() {
            Ok(child) => self.children.push(child),
            Err(error) => {
                let program = program.display();
                tracing::warn!("cannot run {program} for {}: {error}", self.path.display());
            }
        }
    }

    fn fail(&mut self, error: Error) {
        let pipe = |source: &io::Error| source.kind() == io::ErrorKind::BrokenPipe;
        if matches!(&error, Error::Write { source, .. } if pipe(source)) {
            self.summary.pipe_closed = true;
        } else {
            self.summary.failure.get_or_insert(error);
        }
        self.stop();
    }

    fn stop(&mut self) {
        self.stopped = true;
        self.pool.close();
    }

    fn lose(&mut self, frames: u64) {
        self.summary.unwritten += frames;
        self.progress.unwritten.store(self.summary.unwritten, Relaxed);
    }
}
