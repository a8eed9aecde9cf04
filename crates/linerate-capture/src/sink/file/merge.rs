//! The packets of several readers in the order of time.
//!
//! Each reader sends its packets in the order of time. The merge holds their buffers until no reader can
//! have an earlier packet, and then releases the records up to there, smallest timestamp first. A reader
//! that waits for packets says up to when it has none, if its source tells it. The wait is bounded: by
//! [`IDLE_WAIT`] for a reader that has nothing and whose source does not tell, by [`BUSY_WAIT`] for
//! others, and by the number of buffers: when a reader waits for an empty one, the oldest buffer is
//! released. A record that comes after that is written late, and counted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire};
use std::time::{Duration, Instant};

use linerate_pcapfile::write::records;
use linerate_pcapfile::{ByteRange, Format};
use linerate_ring::Timestamp;

use super::chunk::{CAPACITY, Chunk, ReaderRun};

/// How long a packet may have arrived before an idle reader sees it: the timeout of a packet ring's block
/// (20 ms), and the scheduling delay.
const IDLE_WAIT: Duration = Duration::from_millis(60);

/// How long a reader may keep packets before it sends them: one that gets no CPU time does so.
const BUSY_WAIT: Duration = Duration::from_secs(1);

/// What a reader does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderState {
    /// It handles packets.
    Busy,
    /// It waits for packets. Those that come will not have a timestamp before this time, where it is known.
    Idle(Option<Timestamp>),
}

impl From<ReaderState> for u64 {
    fn from(state: ReaderState) -> Self {
        match state {
            ReaderState::Busy => 0,
            ReaderState::Idle(None) => 1,
            ReaderState::Idle(Some(Timestamp(since))) => since.max(2),
        }
    }
}

impl From<u64> for ReaderState {
    fn from(word: u64) -> Self {
        match word {
            0 => Self::Busy,
            1 => Self::Idle(None),
            since => Self::Idle(Some(Timestamp(since))),
        }
    }
}

/// Whole buffers of at least this many bytes are written in place; other runs are gathered in one buffer. For
/// records of 100 bytes that alternate between two buffers, `writev` takes as long as a copy and one `write`
/// (43 ns a record to tmpfs), and everything after it would have to handle pieces.
const WRITE_IN_PLACE_LEN: usize = 64 << 10;

/// One reader's buffers.
struct ReaderQueue {
    /// Its [`ReaderState`].
    state: Arc<AtomicU64>,
    ended: bool,
    /// The latest timestamp that came.
    latest: Timestamp,
    /// The latest timestamp that was released.
    written: Timestamp,
    chunks: VecDeque<Chunk>,
    /// How much of the first buffer is released: bytes, and packets.
    at: usize,
    released: u64,
}

/// All readers' buffers.
pub(super) struct Merge {
    format: Format,
    readers: Vec<ReaderQueue>,
    /// The latest timestamp that was released.
    written: Timestamp,
    /// Records released after others with a later timestamp, although their reader sent them in order.
    out_of_order: u64,
    /// Short runs.
    gathered: Chunk,
    /// Buffers whose records are all released.
    empty: Vec<Chunk>,
}

impl Merge {
    pub(super) fn new(format: Format) -> Self {
        let gathered = Chunk::default();
        let written = Timestamp(0);
        Self { format, readers: Vec::new(), written, out_of_order: 0, gathered, empty: Vec::new() }
    }

    /// Records released too late for their place.
    pub(super) fn out_of_order(&self) -> u64 {
        self.out_of_order
    }

    /// Adds queues for new readers.
    pub(super) fn add_readers(&mut self, all: &[Arc<AtomicU64>]) {
        for state in &all[self.readers.len()..] {
            self.readers.push(ReaderQueue {
                state: Arc::clone(state),
                ended: false,
                latest: Timestamp(0),
                written: Timestamp(0),
                chunks: VecDeque::new(),
                at: 0,
                released: 0,
            });
        }
    }

    pub(super) fn add(&mut self, chunk: Chunk) {
        let reader = &mut self.readers[chunk.reader];
        reader.latest = reader.latest.max(chunk.last);
        reader.chunks.push_back(chunk);
    }

    pub(super) fn end(&mut self, reader: usize) {
        self.readers[reader].ended = true;
    }

    /// Whether it holds packets back.
    pub(super) fn holds(&self) -> bool {
        self.readers.iter().any(|reader| !reader.chunks.is_empty())
    }

    /// Buffers that can be filled again.
    pub(super) fn take_empty(&mut self) -> impl Iterator<Item = Chunk> + '_ {
        self.empty.drain(..)
    }

    /// All buffers that readers sent, also those with packets.
    pub(super) fn into_chunks(self) -> impl Iterator<Item = Chunk> {
        self.readers.into_iter().flat_map(|reader| reader.chunks).chain(self.empty)
    }

    /// The timestamp before which no reader can have another packet. The caller has added everything that
    /// readers have sent: an idle reader has nothing else.
    ///
    /// Waiting times are measured on one clock, from the moment of sending: timestamps may come from the
    /// clock of a network card.
    pub(super) fn limit(&self, now: Instant, starving: bool) -> Timestamp {
        let waited = |time: Duration| {
            let all = self.readers.iter().flat_map(|reader| &reader.chunks);
            let old = all.filter(|chunk| now.duration_since(chunk.sent.unwrap_or(now)) >= time);
            old.map(|chunk| chunk.last).max().unwrap_or_default()
        };
        let (idle_limit, busy_limit) = (waited(IDLE_WAIT), waited(BUSY_WAIT));
        let running = self.readers.iter().filter(|reader| !reader.ended);
        let bound = |reader: &ReaderQueue| {
            let told = match reader.state.load(Acquire).into() {
                ReaderState::Busy => busy_limit,
                ReaderState::Idle(None) => idle_limit,
                ReaderState::Idle(Some(since)) => busy_limit.max(since),
            };
            reader.latest.max(told)
        };
        let limit = running.map(bound).min().unwrap_or(Timestamp(u64::MAX));
        if !starving {
            return limit;
        }
        let firsts = self.readers.iter().filter_map(|reader| reader.chunks.front());
        let oldest = firsts.min_by_key(|chunk| chunk.sent).map(|chunk| chunk.last);
        limit.max(oldest.unwrap_or_default())
    }

    /// Passes the records up to `limit` to `write`, in buffers of whole records.
    pub(super) fn release(&mut self, limit: Timestamp, mut write: impl FnMut(&Chunk)) {
        while let Some((reader, bound)) = self.earliest(limit) {
            let run = self.readers[reader].run(self.format, bound);
            self.release_run(reader, run, &mut write);
        }
        self.flush(&mut write);
    }

    /// The reader with the earliest record up to `limit`, and up to where it is the earliest.
    fn earliest(&self, limit: Timestamp) -> Option<(usize, Timestamp)> {
        let (mut first, mut bound) = (None, limit);
        for (number, reader) in self.readers.iter().enumerate() {
            let Some(time) = reader.head(self.format) else { continue };
            match first {
                Some((_, earliest)) if time >= earliest => bound = bound.min(time),
                _ if time > limit => {}
                _ => {
                    bound = first.map_or(bound, |(_, earliest)| bound.min(earliest));
                    first = Some((number, time));
                }
            }
        }
        first.map(|(number, _)| (number, bound))
    }

    fn release_run(&mut self, number: usize, run: Run, write: &mut impl FnMut(&Chunk)) {
        let reader = &mut self.readers[number];
        if is_before(run.first, self.written, self.format) {
            self.out_of_order += reader.count_late(self.format, run.bytes, self.written);
        }
        (self.written, reader.written) = (self.written.max(run.last), reader.written.max(run.last));
        let whole = reader.at == 0 && reader.chunks[0].bytes.len() == run.bytes;
        if whole && run.bytes >= WRITE_IN_PLACE_LEN {
            self.flush(write);
            write(&self.readers[number].chunks[0]);
        } else {
            if self.gathered.bytes.len() + run.bytes > CAPACITY {
                self.flush(write);
            }
            let reader = &self.readers[number];
            let from = &reader.chunks[0];
            let gathered = &mut self.gathered;
            gathered.bytes.extend_from_slice(&from.bytes[reader.at..reader.at + run.bytes]);
            gathered.frames += run.frames;
            gathered.last = gathered.last.max(run.last);
            // A buffer has one run, of its reader.
            let all = from.runs[0];
            let begin = all.byte_range.begin + reader.at as u64;
            let byte_range = ByteRange { begin, end: begin + run.bytes as u64 };
            match gathered.runs.last_mut() {
                Some(last) if last.reader == number && last.byte_range.end == begin => {
                    last.frames += run.frames;
                    last.byte_range.end = byte_range.end;
                }
                _ => {
                    gathered.runs.push(ReaderRun { frames: run.frames, byte_range, ..all });
                }
            }
        }
        let reader = &mut self.readers[number];
        (reader.at, reader.released) = (reader.at + run.bytes, reader.released + run.frames);
        if reader.at == reader.chunks[0].bytes.len() {
            (reader.at, reader.released) = (0, 0);
            self.empty.extend(reader.chunks.pop_front());
        }
    }

    fn flush(&mut self, write: &mut impl FnMut(&Chunk)) {
        if self.gathered.frames > 0 {
            write(&self.gathered);
            self.gathered.clear();
        }
    }
}

/// Whether a timestamp of a record is before another one, which may be more precise than the format.
fn is_before(record: Timestamp, other: Timestamp, format: Format) -> bool {
    let resolution = if format == (Format::Pcap { nanoseconds: false }) { 1_000 } else { 1 };
    record.0 + resolution <= other.0
}

/// Consecutive records of one reader.
struct Run {
    bytes: usize,
    frames: u64,
    first: Timestamp,
    last: Timestamp,
}

impl ReaderQueue {
    /// The timestamp of its next record.
    fn head(&self, format: Format) -> Option<Timestamp> {
        let chunk = self.chunks.front()?;
        records(format, &chunk.bytes[self.at..]).next().map(|record| record.timestamp)
    }

    /// Its next records up to `bound`, in its first buffer.
    fn run(&self, format: Format, bound: Timestamp) -> Run {
        let chunk = &self.chunks[0];
        let rest = &chunk.bytes[self.at..];
        let first = records(format, rest).next().map_or(Timestamp(0), |record| record.timestamp);
        if chunk.last <= bound {
            let (frames, last) = (chunk.frames - self.released, chunk.last);
            return Run { bytes: rest.len(), frames, first, last };
        }
        let mut run = Run { bytes: 0, frames: 0, first, last: Timestamp(0) };
        for record in records(format, rest).take_while(|record| record.timestamp <= bound) {
            let last = run.last.max(record.timestamp);
            run = Run { bytes: record.end, frames: run.frames + 1, last, ..run };
        }
        run
    }

    /// How many of its next records, `bytes` long, have a timestamp before `written`. Those that were not in order
    /// when the reader sent them do not count.
    #[cold]
    fn count_late(&self, format: Format, bytes: usize, written: Timestamp) -> u64 {
        let (mut late, mut last) = (0, self.written);
        for record in records(format, &self.chunks[0].bytes[self.at..self.at + bytes]) {
            let in_order = !is_before(record.timestamp, last, format);
            late += u64::from(in_order && is_before(record.timestamp, written, format));
            last = last.max(record.timestamp);
        }
        late
    }
}
