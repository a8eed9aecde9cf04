//! Buffers that travel between the readers and the writer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Release};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linerate_ring::Timestamp;

use super::merge::Merge;
use super::walk::records;
use super::{Encoder, InterfaceDescription};
use crate::Format;
use crate::read::Record;

/// Bytes in a buffer: enough that one system call carries some 2,500 small packets, little enough
/// that those few which a writer that keeps up has in use stay in a core's own cache, beside the ring.
pub(super) const CAPACITY: usize = 256 << 10;

/// How soon it is noticed that what is held back may go.
const LOOK: Duration = Duration::from_millis(5);

/// Encoded records on their way to the file.
#[derive(Default)]
pub(super) struct Chunk {
    /// The reader.
    pub(super) lane: usize,
    /// When the reader sent it.
    pub(super) sent: Option<Instant>,
    pub(super) bytes: Vec<u8>,
    pub(super) frames: u64,
    /// The latest time stamp among the records.
    pub(super) last: Timestamp,
    /// The interfaces of the records, in their order.
    pub(super) origins: Vec<Origin>,
}

/// Records in a row that count for one interface.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    pub(super) interface: u32,
    pub(super) frames: u64,
}

impl Chunk {
    fn new() -> Self {
        Self { bytes: Vec::with_capacity(CAPACITY), ..Self::default() }
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.origins.clear();
        (self.frames, self.last) = (0, Timestamp(0));
    }
}

/// What the readers hand to the writer's thread.
pub(super) enum Job {
    Write(Chunk),
    /// One more interface, which later packets refer to.
    Interface(Box<InterfaceDescription>),
    /// This reader sends no more.
    End(usize),
}

#[derive(Default)]
struct Queues {
    jobs: VecDeque<Job>,
    empty: Vec<Chunk>,
    /// The writer takes no more: a limit is reached or the file failed.
    closed: bool,
    /// Who may still send jobs: the feeds, and the [`Keeper`].
    senders: usize,
    /// Feeds that wait for an empty buffer.
    starving: usize,
    /// For each feed ever made, whether it waits for packets and has none to send.
    idle: Vec<Arc<AtomicBool>>,
}

/// What the writer may do with a [`Merge`] now.
pub(super) struct Ready {
    /// Records up to this stamp may go.
    pub(super) limit: Timestamp,
    pub(super) interfaces: Vec<InterfaceDescription>,
    /// Nothing more will come.
    pub(super) last: bool,
}

/// The bounded stock of buffers.
pub(super) struct Pool {
    queues: Mutex<Queues>,
    work: Condvar,
    room: Condvar,
}

impl Pool {
    pub(super) fn new(buffers: usize) -> Arc<Self> {
        let empty = (0..buffers).map(|_| Chunk::new()).collect();
        let queues = Mutex::new(Queues { empty, ..Queues::default() });
        Arc::new(Self { queues, work: Condvar::new(), room: Condvar::new() })
    }

    /// The writer's next job; `None` once every feed and the keeper are gone and nothing is left.
    pub(super) fn next(&self) -> Option<Job> {
        let mut queues = self.lock();
        loop {
            if let Some(job) = queues.jobs.pop_front() {
                return Some(job);
            }
            if queues.senders == 0 {
                return None;
            }
            queues = self.work.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Puts all jobs into `merge` and says how far that may go, at the latest after [`LOOK`] if it
    /// holds something back. `take` sees each buffer before `merge` has it.
    pub(super) fn gather(&self, merge: &mut Merge, mut take: impl FnMut(&Chunk)) -> Ready {
        let mut queues = self.lock();
        let holds = merge.holds();
        while queues.jobs.is_empty() && queues.senders > 0 && !(holds && queues.starving > 0) {
            if !holds {
                queues = self.work.wait(queues).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.work.wait_timeout(queues, LOOK);
            let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            queues = next;
            if timeout.timed_out() {
                break;
            }
        }
        merge.know(&queues.idle);
        let mut interfaces = Vec::new();
        for job in queues.jobs.drain(..) {
            match job {
                Job::Write(chunk) => {
                    take(&chunk);
                    merge.add(chunk);
                }
                Job::Interface(interface) => interfaces.push(*interface),
                Job::End(lane) => merge.end(lane),
            }
        }
        // Under the lock: what an idle reader has sent is here.
        let limit = merge.limit(Instant::now(), queues.starving > 0);
        Ready { limit, interfaces, last: queues.senders == 0 }
    }

    pub(super) fn give_back(&self, mut chunk: Chunk) {
        chunk.clear();
        // A jumbo record may have grown it; the stock stays what it was.
        chunk.bytes.shrink_to(CAPACITY);
        self.lock().empty.push(chunk);
        self.room.notify_one();
    }

    /// Tells the feeds that further records will not be written.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.room.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// The share of buffers that wait for the writer, 0 to 1.
    pub(super) fn fill(&self) -> f32 {
        let queues = self.lock();
        let waiting = queues.jobs.iter().filter(|job| matches!(job, Job::Write(_))).count();
        waiting as f32 / (waiting + queues.empty.len()).max(1) as f32
    }

    pub(super) fn send(&self, job: Job) {
        self.lock().jobs.push_back(job);
        self.work.notify_one();
    }

    fn take(&self) -> (Chunk, Duration) {
        let mut queues = self.lock();
        let mut waited = Duration::ZERO;
        loop {
            if let Some(chunk) = queues.empty.pop() {
                return (chunk, waited);
            }
            let start = Instant::now();
            queues.starving += 1;
            self.work.notify_one();
            queues = self.room.wait(queues).unwrap_or_else(PoisonError::into_inner);
            queues.starving -= 1;
            waited += start.elapsed();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the writer's thread waiting while feeds are still to be made.
pub(super) struct Keeper(Arc<Pool>);

impl Keeper {
    pub(super) fn new(pool: &Arc<Pool>) -> Self {
        pool.lock().senders += 1;
        Self(Arc::clone(pool))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.lock().senders -= 1;
        self.0.work.notify_one();
    }
}

/// One reader's end: encodes packets into a buffer and sends it off when it is full.
///
/// Dropping it sends what is left.
pub struct Feed {
    pool: Arc<Pool>,
    encoder: Encoder,
    /// The interface that its packets count for.
    interface: u32,
    lane: usize,
    idle: Arc<AtomicBool>,
    chunk: Chunk,
    since: Option<Instant>,
    stalled: Duration,
}

impl Feed {
    pub(super) fn new(pool: Arc<Pool>, encoder: Encoder, interface: u32) -> Self {
        let idle = Arc::new(AtomicBool::new(false));
        let mut queues = pool.lock();
        queues.senders += 1;
        let lane = queues.idle.len();
        queues.idle.push(Arc::clone(&idle));
        drop(queues);
        let (chunk, _) = pool.take();
        Self { pool, encoder, interface, lane, idle, chunk, since: None, stalled: Duration::ZERO }
    }

    /// The format that packets are encoded in.
    pub(crate) fn format(&self) -> Format {
        self.encoder.format
    }

    /// Encodes one packet. When the buffer is full this waits for an empty one: the ring behind the
    /// caller then holds what arrives meanwhile, and the kernel counts what does not fit.
    #[inline(always)]
    pub fn push(&mut self, record: &Record<'_>) {
        let needed = self.encoder.longest(record);
        if self.chunk.bytes.len() + needed > CAPACITY && self.chunk.frames > 0 {
            self.exchange();
        }
        let chunk = &mut self.chunk;
        self.encoder.encode(&mut chunk.bytes, record);
        chunk.frames += 1;
        chunk.last = chunk.last.max(record.frame.timestamp.unwrap_or_default());
    }

    /// Whether packets are there that were not sent.
    pub fn has_some(&self) -> bool {
        self.chunk.frames > 0
    }

    /// Says whether the caller now waits for packets. Nobody has to wait for one that does and has
    /// nothing, when packets of several readers are put in order.
    pub fn rest(&self, resting: bool) {
        // Release: whoever sees it also sees what was sent before.
        self.idle.store(resting && !self.has_some(), Release);
    }

    /// Sends what is there if it is older than `age`; called between batches.
    pub fn tick(&mut self, now: Instant, age: Duration) {
        if self.chunk.frames == 0 {
            self.since = None;
            return;
        }
        let since = *self.since.get_or_insert(now);
        if now.duration_since(since) >= age {
            self.flush();
        }
    }

    /// Sends what is there to the writer.
    pub fn flush(&mut self) {
        if self.chunk.frames > 0 {
            self.exchange();
        }
    }

    /// Removes what a panic left of a record behind the whole ones.
    pub(crate) fn mend(&mut self) {
        let whole = records(self.encoder.format, &self.chunk.bytes);
        let end = whole.take(self.chunk.frames as usize).last().map_or(0, |mark| mark.end);
        self.chunk.bytes.truncate(end);
    }

    /// Describes one more interface, behind everything pushed so far.
    pub fn describe(&mut self, interface: InterfaceDescription) {
        self.flush();
        self.pool.send(Job::Interface(Box::new(interface)));
    }

    /// Whether the writer takes no more, because a limit is reached or the file failed. What is
    /// pushed after that is counted as unwritten.
    pub fn is_closed(&self) -> bool {
        self.pool.is_closed()
    }

    /// How long this reader has waited for the writer since the last call.
    pub fn take_stall(&mut self) -> Duration {
        std::mem::take(&mut self.stalled)
    }

    #[cold]
    fn exchange(&mut self) {
        let job = Job::Write(self.filled());
        self.pool.send(job);
        self.since = None;
        let (chunk, waited) = self.pool.take();
        self.stalled += waited;
        self.chunk = chunk;
    }

    /// What was pushed.
    fn filled(&mut self) -> Chunk {
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.origins.push(Origin { interface: self.interface, frames: chunk.frames });
        (chunk.lane, chunk.sent) = (self.lane, Some(Instant::now()));
        chunk
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let rest = self.filled();
        let mut queues = self.pool.lock();
        if rest.frames > 0 {
            queues.jobs.push_back(Job::Write(rest));
        }
        queues.jobs.push_back(Job::End(self.lane));
        queues.senders -= 1;
        drop(queues);
        self.pool.work.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use linerate_ring::Frame;

    use super::*;

    #[test]
    fn half_a_record_is_cut_off() {
        for format in [Format::Pcapng, Format::Pcap { nanoseconds: true }] {
            let encoder =
                Encoder { format, snaplen: 100, options: super::super::PacketOptions::default() };
            let mut feed = Feed::new(Pool::new(2), encoder, 0);
            let record = Record { frame: Frame::new(b"twelve bytes"), interface: 0, comment: None };
            feed.mend();
            assert!(feed.chunk.bytes.is_empty());
            feed.push(&record);
            feed.push(&record);
            let whole = feed.chunk.bytes.clone();
            // What is there of a third one when encoding it panics.
            feed.chunk.bytes.extend_from_slice(&whole[..21]);
            feed.mend();
            assert_eq!(feed.chunk.bytes, whole, "{format:?}");
        }
    }
}
