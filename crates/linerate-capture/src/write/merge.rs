//! The packets of several readers in the order of time.
//!
//! Each reader's packets come in its own order of time. The merge keeps their buffers until no reader
//! can have anything earlier any more, and hands over the records up to there, smallest stamp first.
//! How long it keeps them is bounded: by [`SLACK`] for a reader that has nothing, by [`HOLD`] for one
//! that does not get to hand over what it has, and by the stock of buffers: when a reader waits for
//! one, the oldest buffer goes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire};
use std::time::{Duration, Instant};

use linerate_ring::Timestamp;

use super::pool::{CAPACITY, Chunk, Origin};
use super::walk::{Mark, records};
use crate::Format;

/// How long a reader that waits for packets may not have seen one that has come: the timeout of a
/// packet ring's block (20 ms), and the time it takes to be scheduled.
const SLACK: Duration = Duration::from_millis(60);

/// How long a reader that has packets may keep them.
const HOLD: Duration = Duration::from_millis(250);

/// Whole buffers of at least this many bytes are written from where they are, other runs gathered in
/// one: for records of 100 bytes that lie alternately in two buffers, `writev` takes as long as a copy
/// and one `write` (43 ns a record to tmpfs), and everything behind it would have to know of pieces.
const LONG: usize = 64 << 10;

/// One reader's buffers.
pub(super) struct Lane {
    /// Set while the reader waits and has nothing to hand over.
    idle: Arc<AtomicBool>,
    ended: bool,
    /// The latest stamp that came.
    latest: Timestamp,
    chunks: VecDeque<Chunk>,
    /// What of the first buffer is handed over: bytes, and packets.
    at: usize,
    taken: u64,
}

/// All readers' buffers.
pub(super) struct Merge {
    format: Format,
    lanes: Vec<Lane>,
    /// Short runs.
    gathered: Chunk,
    /// Buffers that are done with.
    empty: Vec<Chunk>,
}

impl Merge {
    pub(super) fn new(format: Format) -> Self {
        let gathered = Chunk::default();
        Self { format, lanes: Vec::new(), gathered, empty: Vec::new() }
    }

    /// Makes lanes for readers that it does not know yet.
    pub(super) fn know(&mut self, all: &[Arc<AtomicBool>]) {
        for idle in &all[self.lanes.len()..] {
            let idle = Arc::clone(idle);
            let (latest, chunks) = (Timestamp(0), VecDeque::new());
            self.lanes.push(Lane { idle, ended: false, latest, chunks, at: 0, taken: 0 });
        }
    }

    pub(super) fn add(&mut self, chunk: Chunk) {
        let lane = &mut self.lanes[chunk.lane];
        lane.latest = lane.latest.max(chunk.last);
        lane.chunks.push_back(chunk);
    }

    pub(super) fn end(&mut self, lane: usize) {
        self.lanes[lane].ended = true;
    }

    /// Whether it has packets that are not handed over.
    pub(super) fn holds(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.chunks.is_empty())
    }

    /// Buffers that can be filled again.
    pub(super) fn take_empty(&mut self) -> impl Iterator<Item = Chunk> + '_ {
        self.empty.drain(..)
    }

    /// All buffers that readers sent, also those with packets.
    pub(super) fn into_chunks(self) -> impl Iterator<Item = Chunk> {
        self.lanes.into_iter().flat_map(|lane| lane.chunks).chain(self.empty)
    }

    /// The stamp up to which no reader can have anything earlier. Call it with everything added that
    /// readers have sent: an idle one has nothing else.
    ///
    /// Time is only measured between handing over and now, on one clock: stamps may be a network
    /// card's.
    pub(super) fn limit(&self, now: Instant, starving: bool) -> Timestamp {
        let waited = |patience: Duration| {
            let all = self.lanes.iter().flat_map(|lane| &lane.chunks);
            let old = all.filter(|chunk| now.duration_since(chunk.sent.unwrap_or(now)) >= patience);
            old.map(|chunk| chunk.last).max().unwrap_or_default()
        };
        let (slack, hold) = (waited(SLACK), waited(HOLD));
        let running = self.lanes.iter().filter(|lane| !lane.ended);
        let bound =
            |lane: &Lane| lane.latest.max(if lane.idle.load(Acquire) { slack } else { hold });
        let limit = running.map(bound).min().unwrap_or(Timestamp(u64::MAX));
        if !starving {
            return limit;
        }
        let firsts = self.lanes.iter().filter_map(|lane| lane.chunks.front());
        let oldest = firsts.min_by_key(|chunk| chunk.sent).map(|chunk| chunk.last);
        limit.max(oldest.unwrap_or_default())
    }

    /// Hands over the records up to `limit`, in buffers of whole records.
    pub(super) fn release(&mut self, limit: Timestamp, mut write: impl FnMut(&Chunk)) {
        while let Some((lane, bound)) = self.earliest(limit) {
            let run = self.lanes[lane].run(self.format, bound);
            self.hand_over(lane, run, &mut write);
        }
        self.flush(&mut write);
    }

    /// The reader with the earliest record up to `limit`, and up to where it is the earliest.
    fn earliest(&self, limit: Timestamp) -> Option<(usize, Timestamp)> {
        let (mut first, mut bound) = (None, limit);
        for (number, lane) in self.lanes.iter().enumerate() {
            let Some(stamp) = lane.head(self.format) else { continue };
            match first {
                Some((_, earliest)) if stamp >= earliest => bound = bound.min(stamp),
                _ if stamp > limit => {}
                _ => {
                    bound = first.map_or(bound, |(_, earliest)| bound.min(earliest));
                    first = Some((number, stamp));
                }
            }
        }
        first.map(|(number, _)| (number, bound))
    }

    fn hand_over(&mut self, number: usize, run: Run, write: &mut impl FnMut(&Chunk)) {
        let lane = &mut self.lanes[number];
        let whole = lane.at == 0 && lane.chunks[0].bytes.len() == run.bytes;
        if whole && run.bytes >= LONG {
            self.flush(write);
            write(&self.lanes[number].chunks[0]);
        } else {
            if self.gathered.bytes.len() + run.bytes > CAPACITY {
                self.flush(write);
            }
            let lane = &self.lanes[number];
            let from = &lane.chunks[0];
            let gathered = &mut self.gathered;
            gathered.bytes.extend_from_slice(&from.bytes[lane.at..lane.at + run.bytes]);
            gathered.frames += run.frames;
            gathered.last = gathered.last.max(run.last);
            // A reader has one interface.
            let interface = from.origins.first().map_or(0, |origin| origin.interface);
            match gathered.origins.last_mut() {
                Some(last) if last.interface == interface => last.frames += run.frames,
                _ => gathered.origins.push(Origin { interface, frames: run.frames }),
            }
        }
        let lane = &mut self.lanes[number];
        (lane.at, lane.taken) = (lane.at + run.bytes, lane.taken + run.frames);
        if lane.at == lane.chunks[0].bytes.len() {
            (lane.at, lane.taken) = (0, 0);
            self.empty.extend(lane.chunks.pop_front());
        }
    }

    fn flush(&mut self, write: &mut impl FnMut(&Chunk)) {
        if self.gathered.frames > 0 {
            write(&self.gathered);
            self.gathered.clear();
        }
    }
}

/// Records in a row of one reader.
struct Run {
    bytes: usize,
    frames: u64,
    last: Timestamp,
}

impl Lane {
    /// The stamp of its next record.
    fn head(&self, format: Format) -> Option<Timestamp> {
        let chunk = self.chunks.front()?;
        records(format, &chunk.bytes[self.at..]).next().map(|mark: Mark| mark.timestamp)
    }

    /// Its next records up to `bound`, in its first buffer.
    fn run(&self, format: Format, bound: Timestamp) -> Run {
        let chunk = &self.chunks[0];
        let rest = &chunk.bytes[self.at..];
        if chunk.last <= bound {
            return Run { bytes: rest.len(), frames: chunk.frames - self.taken, last: chunk.last };
        }
        let mut run = Run { bytes: 0, frames: 0, last: Timestamp(0) };
        for mark in records(format, rest).take_while(|mark| mark.timestamp <= bound) {
            run =
                Run { bytes: mark.end, frames: run.frames + 1, last: run.last.max(mark.timestamp) };
        }
        run
    }
}
