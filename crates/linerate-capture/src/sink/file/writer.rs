//! The writer's thread: buffers into files, and when to start another file.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linerate_pcapfile::{
    ByteRange, Compression, Format, OutputFile, create_own, refuse_numbered_in_use, same_file,
};
use linerate_ring::Timestamp;

use super::chunk::{Chunk, ReaderRun};
use super::extents::file_name;
use super::merge::Merge;
use super::options::FileSinkOptions;
use super::pool::{BlockPlace, Message, Pool, Ready};
use super::progress::{FileSinkProgress, FileSinkReport, InterfaceOutcome};
use super::retention::{Deletion, FinishedFiles, Retention};
use super::rotation::{FileNames, Naming, Rotation, is_name_of};
use crate::{Error, Result, clock};

/// How long the writer waits for a program of `-z` where no other file can be deleted, and how often it looks. The
/// buffers and the ring hold the packets.
const MAX_CHILD_WAIT: Duration = Duration::from_secs(2);
const CHILD_INTERVAL: Duration = Duration::from_millis(5);

/// How long after the end of its period a file waits for packets that are still on their way. Then it ends also if no
/// packet comes.
const MAX_DELAY: Duration = Duration::from_millis(500);

/// Why a file ends in the middle of a buffer.
enum Boundary {
    /// It is full; the rest, which came from then on, goes into the next one.
    Full(Timestamp),
    /// The packet that follows belongs to another period.
    Period(Timestamp),
    /// The capture has reached its size limit.
    Limit,
}

pub(super) struct Writer {
    options: FileSinkOptions,
    pool: Arc<Pool>,
    progress: Arc<FileSinkProgress>,
    names: Option<FileNames>,
    file: Option<OutputFile>,
    path: PathBuf,
    /// Its name in flow records.
    name: Option<Arc<str>>,
    /// Bytes that were written to it, uncompressed.
    offset: u64,
    /// What each file begins with.
    header: Vec<u8>,
    /// Interfaces in it.
    described: usize,
    /// Blocks that came before the first file had a name.
    early: Vec<u8>,
    /// The user who owns the current file, or the last one.
    owner: Option<u32>,
    /// Packets in the current file.
    records: u64,
    /// When a live capture goes on to the next file, whether packets come or not. Setting the clock does not move it.
    deadline: Option<Instant>,
    /// From when on packets go into the next file by request.
    requested: Option<Timestamp>,
    /// Those of the other writers, too, where there are several.
    finished: Arc<Mutex<FinishedFiles>>,
    /// The number of this writer there.
    number: usize,
    /// Gets the names of finished files.
    print_names: Option<File>,
    report: FileSinkReport,
    stopped: bool,
}

impl Writer {
    /// Opens the first file, unless its name depends on the first packet.
    pub(super) fn new(
        options: FileSinkOptions,
        pool: Arc<Pool>,
        progress: Arc<FileSinkProgress>,
        finished: Arc<Mutex<FinishedFiles>>,
    ) -> Result<Self> {
        let start = match options.start {
            None if options.rotation.names_time() => None,
            start => Some(start.unwrap_or_default()),
        };
        let names = start.map(|start| FileNames::new(&options.path, options.rotation, start));
        let number = finished.lock().unwrap_or_else(PoisonError::into_inner).add_writer();
        let mut header = Vec::new();
        if let Some(section) = &options.section {
            options.encoder.encode_file_header(&mut header, section, &options.interfaces);
        }
        let described = options.interfaces.len();
        let print_names = options.print_names.as_deref().map(open_list).transpose()?;
        let mut writer = Self {
            options,
            pool,
            progress,
            names,
            file: None,
            owner: None,
            path: PathBuf::new(),
            name: None,
            offset: 0,
            early: header.clone(),
            header,
            described,
            records: 0,
            deadline: None,
            requested: None,
            finished,
            number,
            print_names,
            report: FileSinkReport::default(),
            stopped: false,
        };
        writer.open()?;
        Ok(writer)
    }

    /// Writes until every sender is gone.
    pub(super) fn run(mut self) -> FileSinkReport {
        // Outside of `catch_unwind`: a panic must not drop the buffers.
        let mut merge = Merge::new(self.options.encoder.format);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.work(&mut merge))) {
            self.abort(Error::panicked("writer".into(), &*panic), merge);
        }
        self.pool.extents.lock().end();
        let children = self.finished().take_children();
        for (_, mut child) in children {
            let _ = child.wait();
        }
        FileSinkReport { counts: self.progress.counts(), ..self.report }
    }

    /// After a panic: readers may wait for empty buffers, and the packets that they still send are counted.
    fn abort(&mut self, error: Error, merge: Merge) {
        self.fail(error);
        self.file = None;
        self.pool.extents.lock().end();
        // Its packets are counted as received already.
        merge.into_chunks().for_each(|chunk| self.pool.give_back(chunk));
        let in_flight = self.report.interfaces.iter().map(InterfaceOutcome::unwritten).sum::<u64>();
        self.count_unwritten(in_flight - self.progress.counts().unwritten);
        while let Some(message) = self.pool.next(None) {
            if let Message::Write(chunk) = message {
                self.count_received(&chunk);
                self.count_missing(&chunk, 0);
                self.pool.give_back(chunk);
            }
        }
    }

    fn work(&mut self, merge: &mut Merge) {
        if self.options.drop_privileges && self.file.is_some() && !self.options.rotation.rotates() {
            crate::privilege::drop_all();
        }
        if self.options.in_order {
            self.merge(merge);
        }
        while let Some(message) = self.pool.next(self.deadline) {
            self.rotate_when_due();
            match message {
                Message::End(_) | Message::Timeout => {}
                Message::Write(chunk) => {
                    self.count_received(&chunk);
                    self.write(&chunk);
                    self.pool.give_back(chunk);
                }
                Message::Block(bytes, place) => self.add_block(&bytes, place),
                Message::Rotate(time) => self.request(time),
            }
        }
        if self.names.is_none() && !self.stopped {
            // No packet came whose time could name the file; an empty capture is still a file.
            self.start_naming(Timestamp(0));
        }
        self.close();
    }

    /// Writes the packets of several readers in the order of time, until the readers end.
    fn merge(&mut self, merge: &mut Merge) {
        let pool = Arc::clone(&self.pool);
        loop {
            let Ready { limit, blocks, rotate, last } =
                pool.gather(merge, self.deadline, |chunk| self.count_received(chunk));
            rotate.into_iter().for_each(|time| self.request(time));
            blocks.into_iter().for_each(|(bytes, place)| self.add_block(&bytes, place));
            let limit = if last || self.stopped { Timestamp(u64::MAX) } else { limit };
            merge.release(limit, |chunk| self.write(chunk));
            // What is released after the end has no place in a file.
            if !self.stopped {
                self.progress.update(|counts| counts.out_of_order = merge.out_of_order());
            }
            merge.take_empty().for_each(|chunk| pool.give_back(chunk));
            if last {
                return;
            }
            self.rotate_when_due();
        }
    }

    /// Opens the next file, if it has a name, and writes its header.
    fn open(&mut self) -> Result<()> {
        let Some(names) = &self.names else { return Ok(()) };
        self.path = names.current();
        self.finished().forget(&self.path);
        let options = &self.options;
        if options.input.as_ref().is_some_and(|input| same_file(input, &self.path)) {
            return Err(linerate_pcapfile::Error::IsInput { path: self.path.clone() }.into());
        }
        let (compression, stop) = (options.compression, &options.stop);
        let file = match self.owner {
            Some(owner) => OutputFile::create_next(&self.path, compression, stop, owner)?,
            None => {
                let path = &self.path;
                names.stem().map_or(Ok(()), |stem| refuse_numbered_in_use(&stem)).map_err(
                    |source| linerate_pcapfile::Error::Create { path: path.clone(), source },
                )?;
                OutputFile::create(path, compression, stop)?
            }
        };
        let owner = file.owner()?;
        self.path = file.path().to_owned();
        if self.owner.replace(owner).is_none() {
            self.add_earlier_files(owner);
        }
        options.group.map_or(Ok(()), |group| file.share(group))?;
        self.file = Some(file);
        (self.name, self.offset) = (file_name(&self.path), 0);
        self.records = 0;
        self.deadline = self.deadline();
        self.progress.update(|counts| {
            counts.files += 1;
            counts.current.clone_from(&self.path);
        });
        let early = std::mem::take(&mut self.early);
        let header = if early.is_empty() { self.header.clone() } else { early };
        self.delete_beyond_count();
        self.put(&header)
    }

    /// Looks for files of earlier captures, which are deleted as those of this one are.
    fn add_earlier_files(&self, owner: u32) {
        let options = &self.options;
        let Retention { keep, keep_free } = options.retention;
        let Some(folder) = options.path.parent().filter(|_| keep.is_some() || keep_free.is_some())
        else {
            return;
        };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let mut finished = self.finished();
        let is_name = |name: &str| is_name_of(&options.path, options.rotation, name);
        if let Err(error) = finished.add_earlier_files(folder, owner, is_name) {
            tracing::warn!("files of earlier captures in {} stay: {error}", folder.display());
        }
        // This is the file that is written now.
        finished.forget(&self.path);
    }

    /// When the current file of a live capture ends, if no packet ends it before.
    fn deadline(&self) -> Option<Instant> {
        self.options.start?;
        let names = self.names.as_ref()?;
        let left = names.period_end()?.0.saturating_sub(clock::now().0);
        let left = Duration::from_nanos(left.min(names.period_length()?));
        Instant::now().checked_add(left + MAX_DELAY)
    }

    /// Packets from `time` on go into another file, which begins a little later also if none comes.
    fn request(&mut self, time: Timestamp) {
        self.requested.get_or_insert(time);
        let deadline = Instant::now() + MAX_DELAY;
        self.deadline = Some(self.deadline.map_or(deadline, |other| other.min(deadline)));
    }

    /// When the next packets go into another file.
    fn period_end(&self) -> Option<Timestamp> {
        let end = self.names.as_ref().and_then(FileNames::period_end);
        end.into_iter().chain(self.requested).min()
    }

    fn rotate_when_due(&mut self) {
        if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            self.rotate(clock::now(), FileNames::advance_period);
        }
    }

    fn start_naming(&mut self, start: Timestamp) {
        self.names = Some(FileNames::new(&self.options.path, self.options.rotation, start));
        if let Err(error) = self.open() {
            self.fail(error);
        }
    }

    /// Writes bytes that are not packets: whole or not at all.
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let before = file.bytes_written();
        let result = file.write(bytes, |_| 0).map_err(|(error, _)| error.into());
        if result.is_ok() {
            self.offset += bytes.len() as u64;
        }
        self.count_bytes(before);
        result
    }

    fn count_bytes(&mut self, before: u64) {
        let after = self.file.as_ref().map_or(before, OutputFile::bytes_written);
        self.progress.update(|counts| counts.bytes += after - before);
    }

    fn add_block(&mut self, bytes: &[u8], place: BlockPlace) {
        match place {
            BlockPlace::NewSection => self.header = bytes.to_vec(),
            BlockPlace::EachFile => {
                self.header.extend_from_slice(bytes);
                self.described += 1;
            }
            BlockPlace::OneFile => {}
        }
        if self.names.is_none() {
            self.early.extend_from_slice(bytes);
        } else if !self.stopped
            && let Err(error) = self.put(bytes)
        {
            self.fail(error);
        }
    }

    fn write(&mut self, chunk: &Chunk) {
        let format = self.options.encoder.format;
        let (mut start, mut frames) = (0, chunk.frames);
        if self.names.is_none()
            && let Some(first) = chunk.records(format, 0).next()
        {
            self.start_naming(first.timestamp);
        }
        self.make_room(chunk.bytes.len());
        while frames > 0 && !self.stopped {
            let (end, count, boundary) = match self.boundary(chunk, start, frames) {
                Some((end, count, why)) => (end, count, Some(why)),
                None => (chunk.bytes.len(), frames, None),
            };
            let kept = self.append(chunk, start..end, count);
            self.count_written(&chunk.runs, chunk.frames - frames, kept);
            frames -= kept;
            if kept < count || self.stopped {
                break;
            }
            start = end;
            match boundary {
                Some(Boundary::Limit) => self.stop(),
                Some(Boundary::Full(now)) => self.rotate(now, FileNames::fill),
                Some(Boundary::Period(now)) => self.rotate(now, FileNames::advance_period),
                None => {}
            }
        }
        if frames > 0 {
            self.count_missing(chunk, chunk.frames - frames);
        }
        if self.pool.extents.is_enabled() {
            let mut extents = self.pool.extents.lock();
            chunk.runs.iter().for_each(|run| extents.set_done(run.reader, run.byte_range.end));
        }
    }

    /// Adds the extents of this part of a buffer, which is the last that was written to the file.
    fn add_extents(&self, runs: &[ReaderRun], range: Range<usize>) {
        let Some(name) = self.name.as_ref().filter(|_| self.pool.extents.is_enabled()) else {
            return;
        };
        let mut extents = self.pool.extents.lock();
        let (mut at, file_offset) = (0, self.offset - range.len() as u64);
        for run in runs {
            let (begin, end) = (at.max(range.start), (at + run.len()).min(range.end));
            if begin < end {
                let position = |offset: usize| run.byte_range.begin + (offset - at) as u64;
                let byte_range = ByteRange { begin: position(begin), end: position(end) };
                extents.add(
                    run.reader,
                    byte_range,
                    name,
                    file_offset + (begin - range.start) as u64,
                );
            }
            at += run.len();
        }
    }

    /// Counts the packets of a buffer as received.
    fn count_received(&mut self, chunk: &Chunk) {
        for run in &chunk.runs {
            self.outcome(run.interface).received += run.frames;
        }
    }

    /// Counts `count` packets after the first `before` as written.
    fn count_written(&mut self, runs: &[ReaderRun], mut before: u64, mut count: u64) {
        for run in runs {
            let written = run.frames.saturating_sub(before).min(count);
            before = before.saturating_sub(run.frames);
            count -= written;
            self.outcome(run.interface).written += written;
        }
    }

    /// Counts the packets of `chunk` after the first `written` ones as not in the files.
    #[cold]
    fn count_missing(&mut self, chunk: &Chunk, written: u64) {
        let failed = self.report.failure.is_some() || self.report.pipe_closed;
        let mut records = chunk.records(self.options.encoder.format, 0);
        let mut before = written;
        for run in &chunk.runs {
            let kept = before.min(run.frames);
            before -= kept;
            let missing = run.frames - kept;
            let of_run = records.by_ref().take(run.frames as usize).skip(kept as usize);
            let bytes: u64 = of_run.map(|record| u64::from(record.wire_len)).sum();
            let outcome = self.outcome(run.interface);
            outcome.missing_bytes += bytes;
            if failed {
                self.count_unwritten(missing);
            } else {
                outcome.beyond_limit += missing;
                self.report.beyond_limit += missing;
            }
        }
    }

    fn outcome(&mut self, interface: u32) -> &mut InterfaceOutcome {
        let outcomes = &mut self.report.interfaces;
        let index = interface as usize;
        if outcomes.len() <= index {
            outcomes.resize(index + 1, InterfaceOutcome::default());
        }
        &mut outcomes[index]
    }

    /// Appends the `count` records in this range to the current file and answers how many of them are in it.
    fn append(&mut self, chunk: &Chunk, mut range: Range<usize>, count: u64) -> u64 {
        let Some(file) = &mut self.file else { return 0 };
        let (start, bytes) = (range.start, &chunk.bytes[range.clone()]);
        if bytes.is_empty() {
            return count;
        }
        let format = self.options.encoder.format;
        let before = file.bytes_written();
        let mut kept = count;
        let result = file.write(bytes, |done| {
            let whole = chunk.records(format, start).take_while(|one| one.end <= start + done);
            let (number, end) = whole.fold((0, start), |(number, _), one| (number + 1, one.end));
            kept = number;
            end - start
        });
        if let Err((error, stayed)) = result {
            kept = if stayed == 0 { 0 } else { kept };
            range.end = start + stayed;
            self.fail(error.into());
        } else if self.options.compression != Compression::None
            && self.options.size_limit.is_some_and(|limit| file.bytes_written() >= limit)
        {
            self.stop();
        }
        self.offset += range.len() as u64;
        self.add_extents(&chunk.runs, range);
        self.count_bytes(before);
        self.records += kept;
        self.progress.update(|counts| counts.written += kept);
        kept
    }

    /// The first place behind `start`, where the last `frames` packets of `chunk` begin, where the current file ends:
    /// its offset, the packets before it, and the reason.
    fn boundary(&self, chunk: &Chunk, start: usize, frames: u64) -> Option<(usize, u64, Boundary)> {
        let length = self.file.as_ref().map_or(0, OutputFile::bytes_written);
        let Rotation { size, packets, naming, .. } = self.options.rotation;
        let limit = self.options.size_limit;
        let period_end = self.period_end();
        // The length of a compressed file is known only after the write: such files end between buffers.
        let compressed = self.options.compression != Compression::None;
        let grown = |end: usize| length + if compressed { 0 } else { (end - start) as u64 };
        let after = grown(chunk.bytes.len());
        // tcpdump lets a file grow beyond its size, dumpcap up to it.
        let is_full = |length: u64| match (size, naming) {
            (Some(size), Naming::Tcpdump) => length > size,
            (Some(size), Naming::Dumpcap) => length >= size,
            (None, _) => false,
        };
        let has_all = |records: u64| packets.is_some_and(|packets| records >= packets);
        let limit_matters = !compressed && limit.is_some_and(|limit| after >= limit);
        if !is_full(after)
            && !has_all(self.records + frames - 1)
            && !limit_matters
            && period_end.is_none_or(|end| chunk.last < end)
        {
            return None;
        }
        let mut before = start;
        for (number, record) in chunk.records(self.options.encoder.format, start).enumerate() {
            let number = number as u64;
            if period_end.is_some_and(|end| record.timestamp >= end) {
                return Some((before, number, Boundary::Period(record.timestamp)));
            }
            let has_some = self.records + if compressed { 0 } else { number } > 0;
            if has_some && is_full(grown(before)) {
                let (end, number) = if compressed { (start, 0) } else { (before, number) };
                return Some((end, number, Boundary::Full(record.timestamp)));
            }
            if has_all(self.records + number) {
                return Some((before, number, Boundary::Full(record.timestamp)));
            }
            if !compressed && limit.is_some_and(|limit| grown(record.end) >= limit) {
                return Some((record.end, number + 1, Boundary::Limit));
            }
            before = record.end;
        }
        None
    }

    /// Ends this file and starts the next, for a packet that came at `now`; `advance` names it, or returns false at
    /// the end of the capture.
    fn rotate(&mut self, now: Timestamp, advance: impl FnOnce(&mut FileNames, Timestamp) -> bool) {
        self.deadline = None;
        // A file that begins before the request does not fulfil it.
        self.requested = self.requested.filter(|time| *time > now);
        self.close();
        if self.stopped {
            return;
        }
        let Some(names) = &mut self.names else { return };
        let limit = self.options.file_limit;
        let was_last = limit.is_some_and(|limit| self.progress.counts().files >= limit);
        if was_last || !advance(names, now) {
            return self.stop();
        }
        if let Err(error) = self.open() {
            self.fail(error);
        }
        if let Some(time) = self.requested {
            self.request(time);
        }
    }

    /// Deletes the oldest files of a ring (`-b files:`).
    fn delete_beyond_count(&mut self) {
        let Rotation { naming: Naming::Dumpcap, count: Some(count), .. } = self.options.rotation
        else {
            return;
        };
        // The current file is one of them.
        while self.finished().len(self.number) >= count as usize
            && let Some(deletion) = self.delete_oldest(Duration::ZERO, Some(self.number))
        {
            self.count_deleted(&deletion);
        }
    }

    /// Deletes files that are too old, and as many as `more` bytes need.
    fn make_room(&mut self, more: usize) {
        let Retention { keep, keep_free } = self.options.retention;
        while let Some(deletion) = keep.and_then(|age| self.delete_oldest(age, None)) {
            self.count_deleted(&deletion);
        }
        let Some(free) = keep_free.filter(|_| self.path != Path::new("-")) else { return };
        // The other writers may do the same at this moment.
        let more = (more * self.finished().writers()) as u64;
        let Some(missing) = free.missing(&self.path, more) else { return };
        let mut freed = 0;
        // Some file systems free the blocks later.
        while freed < missing && !self.stopped && free.missing(&self.path, more).is_some() {
            match self.delete_oldest(Duration::ZERO, None) {
                Some(deletion) => freed += self.count_deleted(&deletion),
                None if self.wait_for_child() => {}
                None => {
                    let holder = self.finished().holder();
                    self.fail(Error::KeepFree { path: self.path.clone(), keep_free: free, holder });
                }
            }
        }
    }

    fn finished(&self) -> MutexGuard<'_, FinishedFiles> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn delete_oldest(&self, age: Duration, writer: Option<usize>) -> Option<Deletion> {
        self.finished().delete_oldest(age, writer)
    }

    /// Waits a while until a program of `-z` ends, whose file can be deleted then; whether one did.
    fn wait_for_child(&self) -> bool {
        let (before, start) = (self.finished().running(), Instant::now());
        while before > 0 && start.elapsed() < MAX_CHILD_WAIT {
            if self.finished().running() < before {
                return true;
            }
            std::thread::sleep(CHILD_INTERVAL);
        }
        false
    }

    /// Counts a file that was deleted; the bytes that it had.
    fn count_deleted(&mut self, deletion: &Deletion) -> u64 {
        let Deletion::Deleted(bytes) = deletion else { return 0 };
        self.progress.update(|counts| counts.deleted += 1);
        *bytes
    }

    /// Ends the current file with the statistics.
    fn close(&mut self) {
        if self.file.is_none() {
            return;
        }
        if self.options.encoder.format == Format::Pcapng && !self.report.pipe_closed {
            let mut blocks = Vec::new();
            let statistics = (self.options.statistics)().into_iter().take(self.described);
            for (number, mut statistics) in statistics.enumerate() {
                let number = number as u32;
                statistics.delivered = Some(self.outcome(number).written);
                self.options.encoder.encode_statistics(&mut blocks, number, &statistics);
            }
            if let Err(error) = self.put(&blocks)
                && self.report.failure.is_none()
            {
                self.fail(error);
            }
        }
        // Whoever has a pipe or a device there wants to keep it.
        let is_file = || self.path.symlink_metadata().is_ok_and(|found| found.is_file());
        let is_unwanted = self.options.rotation.skip_empty && self.records == 0 && is_file();
        if is_unwanted {
            self.remove_empty();
        }
        // Once it is closed, another capture may write it.
        self.file = None;
        if is_unwanted {
            return;
        }
        if self.options.rotation.rotates() {
            self.finished().add(self.number, &self.path);
        }
        if let Some(list) = &mut self.print_names
            && let Err(error) = writeln!(list, "{}", self.path.display())
        {
            tracing::warn!("cannot print the name of {}: {error}", self.path.display());
        }
        self.postrotate();
    }

    /// Removes the file that ends.
    fn remove_empty(&mut self) {
        match std::fs::remove_file(&self.path) {
            Ok(()) => self.progress.update(|counts| counts.files -= 1),
            Err(error) => tracing::warn!("cannot remove {}: {error}", self.path.display()),
        }
    }

    fn postrotate(&mut self) {
        let Some(program) = self.options.postrotate.as_ref() else { return };
        if !self.options.rotation.rotates() || self.path == Path::new("-") {
            return;
        }
        match Command::new(program).arg(&self.path).spawn() {
            Ok(child) => self.finished().add_child(&self.path, child),
            Err(error) => {
                let program = program.display();
                tracing::warn!("cannot run {program} for {}: {error}", self.path.display());
            }
        }
    }

    fn fail(&mut self, error: Error) {
        if error.is_broken_pipe() {
            self.report.pipe_closed = true;
        } else {
            self.report.failure.get_or_insert(error);
        }
        self.stop();
    }

    fn stop(&mut self) {
        self.stopped = true;
        self.pool.close();
    }

    fn count_unwritten(&mut self, frames: u64) {
        self.progress.update(|counts| counts.unwritten += frames);
    }
}

/// Opens a file that gets the names of finished files. Several writers may add to it.
fn open_list(path: &Path) -> Result<File> {
    let path = match path.to_str() {
        Some("-" | "stdout") => Path::new("/dev/stdout"),
        Some("stderr") => Path::new("/dev/stderr"),
        _ => path,
    };
    let list = create_own(path, OpenOptions::new().append(true));
    list.map_err(|source| linerate_pcapfile::Error::Create { path: path.into(), source }.into())
}
