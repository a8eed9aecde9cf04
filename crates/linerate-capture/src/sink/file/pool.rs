//! Buffers that travel between the readers and the writer.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linerate_ring::Timestamp;

use super::chunk::{CAPACITY, Chunk};
use super::extents::Extents;
use super::merge::{Merge, ReaderState};

/// How often the writer checks whether records that wait for their order may be written.
const MERGE_INTERVAL: Duration = Duration::from_millis(5);

/// Which files have a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockPlace {
    /// The current one; later ones begin with it, and without the blocks before it.
    NewSection,
    /// The current one, and the start of later ones.
    EachFile,
    /// The current one.
    OneFile,
}

/// What readers send to the writer's thread.
pub(super) enum Message {
    Write(Chunk),
    /// Bytes that are no packet, such as an interface, which later packets refer to.
    Block(Vec<u8>, BlockPlace),
    /// Packets from this time on go into another file.
    Rotate(Timestamp),
    /// The reader of this number sends no more.
    End(usize),
    /// No message came for as long as the writer wanted to wait.
    Timeout,
}

#[derive(Default)]
struct Queues {
    messages: VecDeque<Message>,
    empty: Vec<Chunk>,
    /// The writer accepts no more: a limit is reached or the file failed.
    closed: bool,
    /// The number of possible senders: the handles, and the [`SenderGuard`].
    senders: usize,
    /// Handles that wait for an empty buffer.
    starving: usize,
    /// For each handle ever made, the [`ReaderState`] of its reader: idle only if it has nothing to send.
    states: Vec<Arc<AtomicU64>>,
}

/// What the writer may release from a [`Merge`] now.
pub(super) struct Ready {
    /// Records up to this timestamp may be written.
    pub(super) limit: Timestamp,
    pub(super) blocks: Vec<(Vec<u8>, BlockPlace)>,
    /// From when on they go into another file.
    pub(super) rotate: Option<Timestamp>,
    /// Nothing more will come.
    pub(super) last: bool,
}

/// The bounded stock of buffers.
pub(super) struct Pool {
    queues: Mutex<Queues>,
    work: Condvar,
    room: Condvar,
    pub(super) extents: Arc<Extents>,
}

impl Pool {
    pub(super) fn new(buffers: usize) -> Arc<Self> {
        let empty = (0..buffers).map(|_| Chunk::new()).collect();
        let queues = Mutex::new(Queues { empty, ..Queues::default() });
        let extents = Arc::default();
        Arc::new(Self { queues, work: Condvar::new(), room: Condvar::new(), extents })
    }

    /// The writer's next message, for which it waits until `deadline`; `None` once every handle and the guard are gone and
    /// nothing is left.
    pub(super) fn next(&self, deadline: Option<Instant>) -> Option<Message> {
        let mut queues = self.lock();
        loop {
            if let Some(message) = queues.messages.pop_front() {
                return Some(message);
            }
            if queues.senders == 0 {
                return None;
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Some(Message::Timeout);
            }
            queues = self.wait_for_work(queues, deadline);
        }
    }

    fn wait_for_work<'q>(
        &self,
        queues: MutexGuard<'q, Queues>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'q, Queues> {
        let Some(deadline) = deadline else {
            return self.work.wait(queues).unwrap_or_else(PoisonError::into_inner);
        };
        let left = deadline.saturating_duration_since(Instant::now());
        self.work.wait_timeout(queues, left).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits for messages and adds them to `merge`; returns what may be released. If `merge` holds records
    /// back, this waits at most [`MERGE_INTERVAL`], and else until `deadline`. `count` sees each buffer before `merge`
    /// gets it.
    pub(super) fn gather(
        &self,
        merge: &mut Merge,
        deadline: Option<Instant>,
        mut count: impl FnMut(&Chunk),
    ) -> Ready {
        let mut queues = self.lock();
        let holds = merge.holds();
        let deadline = if holds { Some(Instant::now() + MERGE_INTERVAL) } else { deadline };
        while queues.messages.is_empty()
            && queues.senders > 0
            && !(holds && queues.starving > 0)
            && deadline.is_none_or(|deadline| Instant::now() < deadline)
        {
            queues = self.wait_for_work(queues, deadline);
        }
        merge.add_readers(&queues.states);
        let (mut blocks, mut rotate) = (Vec::new(), None);
        for message in queues.messages.drain(..) {
            match message {
                Message::Write(chunk) => {
                    count(&chunk);
                    merge.add(chunk);
                }
                Message::Block(bytes, place) => blocks.push((bytes, place)),
                Message::Rotate(time) => rotate = rotate.or(Some(time)),
                Message::End(reader) => merge.end(reader),
                Message::Timeout => {}
            }
        }
        // Under the lock, so that everything that an idle reader has sent is in `merge`.
        let limit = merge.limit(Instant::now(), queues.starving > 0);
        Ready { limit, blocks, rotate, last: queues.senders == 0 }
    }

    pub(super) fn give_back(&self, mut chunk: Chunk) {
        chunk.clear();
        // A jumbo record may have grown it.
        chunk.bytes.shrink_to(CAPACITY);
        self.lock().empty.push(chunk);
        self.room.notify_one();
    }

    /// Tells the handles that further records will not be written.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.room.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// The share of buffers that wait for the writer, 0 to 1.
    pub(super) fn fill_level(&self) -> f32 {
        let queues = self.lock();
        let waiting =
            queues.messages.iter().filter(|message| matches!(message, Message::Write(_))).count();
        waiting as f32 / (waiting + queues.empty.len()).max(1) as f32
    }

    pub(super) fn send(&self, message: Message) {
        self.lock().messages.push_back(message);
        self.work.notify_one();
    }

    /// An empty buffer, and how long the caller waited for it.
    pub(super) fn take_empty(&self) -> (Chunk, Duration) {
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

    /// Adds a reader; returns its number and its state.
    pub(super) fn add_reader(&self) -> (usize, Arc<AtomicU64>) {
        let state = Arc::new(AtomicU64::new(ReaderState::Busy.into()));
        let mut queues = self.lock();
        queues.senders += 1;
        queues.states.push(Arc::clone(&state));
        (queues.states.len() - 1, state)
    }

    /// One sender less, after these last messages.
    pub(super) fn remove_sender(&self, last: impl IntoIterator<Item = Message>) {
        let mut queues = self.lock();
        queues.messages.extend(last);
        queues.senders -= 1;
        drop(queues);
        self.work.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the writer's thread waiting for messages until the last handle is made.
pub(super) struct SenderGuard(Arc<Pool>);

impl SenderGuard {
    pub(super) fn new(pool: &Arc<Pool>) -> Self {
        pool.lock().senders += 1;
        Self(Arc::clone(pool))
    }
}

impl Drop for SenderGuard {
    fn drop(&mut self) {
        self.0.remove_sender([]);
    }
}
