//! The drop ledger: what each interface received and captured, and every packet that was lost, by cause,
//! in 64 bits.

mod drops;
pub mod handles;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use linerate_net::Connection;
use linerate_net::link::{Link, Statistics};
use linerate_pcapfile::InterfaceStatistics;
use linerate_ring::Timestamp;

use crate::clock;
use crate::interface;

pub use drops::{DropCause, Drops};

/// The counters of all interfaces, in the order of their numbers. There may be more during a capture.
#[derive(Debug, Default)]
pub struct AllCounters(RwLock<Vec<Arc<InterfaceCounters>>>);

impl AllCounters {
    pub(crate) fn new(first: Vec<Arc<InterfaceCounters>>) -> Self {
        Self(RwLock::new(first))
    }

    /// Those that are there now.
    pub fn all(&self) -> Vec<Arc<InterfaceCounters>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds an interface; its number.
    pub(crate) fn add(&self, counters: Arc<InterfaceCounters>) -> u32 {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        all.push(counters);
        (all.len() - 1) as u32
    }
}

/// The counters of one interface.
#[derive(Debug)]
pub struct InterfaceCounters {
    pub(crate) name: String,
    index: u32,
    /// To the namespace of the interface, where that is another one.
    connection: Option<Connection>,
    /// The kernel's counters of the interface when the capture began.
    before: Statistics,
    /// The same now.
    now: Mutex<Statistics>,
    start: Timestamp,
    pub(crate) readers: Vec<ReaderCounters>,
}

/// The counters of one reader. It writes to them after each round of batches; any thread may read.
#[derive(Debug, Default)]
pub(crate) struct ReaderCounters {
    received: AtomicU64,
    captured: AtomicU64,
    bytes: AtomicU64,
    rejected: AtomicU64,
    sampled: AtomicU64,
    unattributed: AtomicU64,
    not_selected: AtomicU64,
    cutoff: AtomicU64,
    /// How full the source's buffer is, in thousandths.
    fill: AtomicU64,
    drops: Mutex<Drops>,
    /// What the source counted for each receive queue.
    queues: Mutex<Vec<QueueCounts>>,
}

/// What was counted for a receive queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct QueueCounts {
    /// Its number. Queues that the interface got during the capture are counted together, as that after the last.
    pub queue: u32,
    /// Packets that the filter in the kernel accepted, lost ones included.
    pub received: u64,
    /// Packets lost between the driver and the reader. What was lost because the reader waited for the writer is
    /// among what its ring lost.
    #[serde(rename = "dropped")]
    pub drops: Drops,
}

impl InterfaceCounters {
    /// The calling thread is in the namespace of the interface; with a `connection` later calls need not be.
    pub(crate) fn new(interface: &Link, connection: Option<Connection>, readers: usize) -> Self {
        let before = interface::statistics(interface.index).unwrap_or(interface.statistics);
        Self::since_then(before, interface, connection, readers)
    }

    /// As [`InterfaceCounters::new`], for an interface that had these counters when the capture began.
    pub(crate) fn since_then(
        before: Statistics,
        interface: &Link,
        connection: Option<Connection>,
        readers: usize,
    ) -> Self {
        Self {
            name: interface.name.clone(),
            index: interface.index,
            connection,
            before,
            now: Mutex::new(before),
            start: clock::now(),
            readers: (0..readers).map(|_| ReaderCounters::default()).collect(),
        }
    }

    /// Reads the kernel's counters of the interface; the last ones stay when it is gone.
    pub fn refresh(&self) {
        let statistics = match &self.connection {
            Some(connection) => interface::statistics_by(connection, self.index),
            None => interface::statistics(self.index),
        };
        if let Some(statistics) = statistics {
            *self.now.lock().unwrap_or_else(PoisonError::into_inner) = statistics;
        }
    }

    /// Packets lost so far.
    pub fn drops(&self) -> Drops {
        let readers = self.readers.iter().map(ReaderCounters::drops);
        let mut drops = readers.fold(Drops::default(), Drops::plus);
        drops[DropCause::Interface] = self.since(interface::missed);
        drops
    }

    /// Packets that the filter accepted, lost ones included.
    pub fn received(&self) -> u64 {
        self.sum(|reader| &reader.received)
    }

    /// Counts what the one reader has handled as received, where its socket counts for several interfaces; how many.
    pub(crate) fn receive_handled(&self) -> u64 {
        let reader = &self.readers[0];
        let handled = [&reader.captured, &reader.sampled, &reader.not_selected, &reader.cutoff];
        let handled = handled.into_iter().map(|count| count.load(Relaxed)).sum();
        reader.received.store(handled, Relaxed);
        handled
    }

    /// Packets that reached the sink.
    pub fn captured(&self) -> u64 {
        self.sum(|reader| &reader.captured)
    }

    /// Bytes on the wire of those.
    pub fn bytes(&self) -> u64 {
        self.sum(|reader| &reader.bytes)
    }

    /// The counts of each receive queue that had packets, in the order of their numbers.
    pub fn queues(&self) -> Vec<QueueCounts> {
        let mut sums = BTreeMap::<u32, QueueCounts>::new();
        for reader in &self.readers {
            for one in reader.queues.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                let sum = sums.entry(one.queue).or_default();
                let (received, drops) = (sum.received + one.received, sum.drops.plus(one.drops));
                *sum = QueueCounts { queue: one.queue, received, drops };
            }
        }
        sums.into_values().collect()
    }

    /// How full the fullest reader's buffer is, 0 to 1.
    pub fn fill_level(&self) -> f32 {
        let fill = |reader: &ReaderCounters| reader.fill.load(Relaxed);
        self.readers.iter().map(fill).max().unwrap_or_default() as f32 / 1000.0
    }

    /// The counts for a statistics block.
    pub fn statistics(&self) -> InterfaceStatistics {
        self.refresh();
        let drops = self.drops();
        InterfaceStatistics {
            start: Some(self.start),
            end: Some(clock::now()),
            received: Some(self.since(|all| all.rx_packets)),
            interface_dropped: Some(drops[DropCause::Interface]),
            filter_accepted: Some(self.received()),
            system_dropped: Some(drops.kernel()),
            delivered: None,
            comment: Some(format!("lost by cause: {drops}")),
        }
    }

    /// How much a counter of the interface has grown. It may be reset.
    fn since(&self, counter: fn(&Statistics) -> u64) -> u64 {
        let now = *self.now.lock().unwrap_or_else(PoisonError::into_inner);
        counter(&now).saturating_sub(counter(&self.before))
    }

    fn sum(&self, of: impl Fn(&ReaderCounters) -> &AtomicU64) -> u64 {
        self.readers.iter().map(|reader| of(reader).load(Relaxed)).sum()
    }
}

impl ReaderCounters {
    /// Adds a round of batches. Only the reader writes: a load and a store are enough.
    pub(crate) fn add(&self, captured: u64, bytes: u64, rejected: u64, sampled: u64, cutoff: u64) {
        for (count, more) in [
            (&self.captured, captured),
            (&self.bytes, bytes),
            (&self.rejected, rejected),
            (&self.sampled, sampled),
            (&self.cutoff, cutoff),
        ] {
            count.store(count.load(Relaxed) + more, Relaxed);
        }
    }

    /// The same for packets whose processes were looked for.
    pub(crate) fn add_processes(&self, unattributed: u64, not_selected: u64) {
        for (count, more) in
            [(&self.unattributed, unattributed), (&self.not_selected, not_selected)]
        {
            count.store(count.load(Relaxed) + more, Relaxed);
        }
    }

    /// Sets what the source counted: frames that the kernel's filter accepted, and losses. Frames that a
    /// filter in user space (`filtered_here`) rejected are not "received by filter".
    pub(crate) fn set(&self, received: u64, drops: Drops, filtered_here: bool) {
        let rejected = if filtered_here { self.rejected.load(Relaxed) } else { 0 };
        self.received.store(received.saturating_sub(rejected), Relaxed);
        *self.drops.lock().unwrap_or_else(PoisonError::into_inner) = drops;
    }

    /// Sets what the source counted for each receive queue.
    pub(crate) fn set_queues(&self, queues: Vec<QueueCounts>) {
        *self.queues.lock().unwrap_or_else(PoisonError::into_inner) = queues;
    }

    /// Sets how full the source's buffer is, 0 to 1.
    pub(crate) fn set_fill(&self, fill: f32) {
        self.fill.store((fill * 1000.0) as u64, Relaxed);
    }

    fn drops(&self) -> Drops {
        let mut drops = *self.drops.lock().unwrap_or_else(PoisonError::into_inner);
        drops[DropCause::Sampled] = self.sampled.load(Relaxed);
        drops[DropCause::Unattributed] = self.unattributed.load(Relaxed);
        drops[DropCause::NotSelected] = self.not_selected.load(Relaxed);
        drops[DropCause::Cutoff] = self.cutoff.load(Relaxed);
        drops
    }
}
