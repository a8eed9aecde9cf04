//! The drop ledger: every packet that did not make it, by cause, in 64 bits.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use linerate_ring::Timestamp;
use serde::Serialize;

use crate::choose::Kind;
use crate::interface::{self, Counters, Interface};
use crate::write::InterfaceTotals;

/// Packets lost since the start of the capture, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drops {
    /// The interface had no buffer or the driver no time (`rx_missed_errors`, `rx_fifo_errors` or
    /// `rx_over_errors`, and for packet sockets `rx_dropped` of the interface). It counts what the
    /// filter would have rejected, too.
    pub interface: u64,
    /// The fill ring of an AF_XDP socket was empty.
    pub xdp_fill_empty: u64,
    /// The receive ring of an AF_XDP socket was full.
    pub receive_ring_full: u64,
    /// Frames longer than an AF_XDP chunk, where the driver has no multi-buffer frames.
    pub too_long: u64,
    /// The kernel found a descriptor of an AF_XDP ring invalid.
    pub invalid_descriptors: u64,
    /// A packet socket's ring had no free block (`tp_drops`).
    pub tp_drops: u64,
    /// Times that a packet socket's ring froze (`tp_freeze_q_cnt`): events, not packets, and
    /// therefore no part of the total.
    pub freezes: u64,
    /// The tee's BPF ring buffer was full.
    pub ring_buffer_full: u64,
    /// The ring overflowed while the reader waited for the writer.
    pub writer_too_slow: u64,
    /// The file could not take it: disk full, quota, I/O error.
    pub disk: u64,
    /// The reader of the pipe had gone.
    pub pipe_closed: u64,
}

impl Drops {
    /// All lost packets.
    pub fn total(&self) -> u64 {
        self.interface + self.kernel() + self.disk + self.pipe_closed
    }

    /// What tcpdump calls "dropped by kernel": lost between the driver and the reader.
    pub fn kernel(&self) -> u64 {
        self.xdp_fill_empty
            + self.receive_ring_full
            + self.too_long
            + self.invalid_descriptors
            + self.tp_drops
            + self.ring_buffer_full
            + self.writer_too_slow
    }

    /// Every cause with its name in the JSON and its count.
    pub fn causes(&self) -> [(&'static str, u64); 11] {
        [
            ("interface", self.interface),
            ("xdp_fill_empty", self.xdp_fill_empty),
            ("receive_ring_full", self.receive_ring_full),
            ("too_long", self.too_long),
            ("invalid_descriptors", self.invalid_descriptors),
            ("tp_drops", self.tp_drops),
            ("freezes", self.freezes),
            ("ring_buffer_full", self.ring_buffer_full),
            ("writer_too_slow", self.writer_too_slow),
            ("disk", self.disk),
            ("pipe_closed", self.pipe_closed),
        ]
    }

    /// The sum over two counts, cause by cause.
    pub fn plus(mut self, other: Self) -> Self {
        self.interface += other.interface;
        self.xdp_fill_empty += other.xdp_fill_empty;
        self.receive_ring_full += other.receive_ring_full;
        self.too_long += other.too_long;
        self.invalid_descriptors += other.invalid_descriptors;
        self.tp_drops += other.tp_drops;
        self.freezes += other.freezes;
        self.ring_buffer_full += other.ring_buffer_full;
        self.writer_too_slow += other.writer_too_slow;
        self.disk += other.disk;
        self.pipe_closed += other.pipe_closed;
        self
    }

    /// What the rings lost since `before`. While the reader waits for the writer they overflow only
    /// because nobody empties them: those losses go to the writer's account.
    pub(crate) fn ring_losses_since(&self, before: &Self) -> Self {
        Self {
            xdp_fill_empty: self.xdp_fill_empty.saturating_sub(before.xdp_fill_empty),
            receive_ring_full: self.receive_ring_full.saturating_sub(before.receive_ring_full),
            tp_drops: self.tp_drops.saturating_sub(before.tp_drops),
            ring_buffer_full: self.ring_buffer_full.saturating_sub(before.ring_buffer_full),
            ..Self::default()
        }
    }

    /// These counts with `moved`, sums of [`Drops::ring_losses_since`], on the writer's account. The
    /// total stays.
    pub(crate) fn blamed_on_writer(mut self, moved: &Self) -> Self {
        self.xdp_fill_empty -= moved.xdp_fill_empty;
        self.receive_ring_full -= moved.receive_ring_full;
        self.tp_drops -= moved.tp_drops;
        self.ring_buffer_full -= moved.ring_buffer_full;
        self.writer_too_slow += moved.total();
        self
    }
}

impl fmt::Display for Drops {
    /// The causes that lost something, such as `tp_drops 12, disk 3`; `none` otherwise.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (cause, count) in self.causes().into_iter().filter(|(_, count)| *count > 0) {
            write!(f, "{separator}{} {count}", cause.replace('_', " "))?;
            separator = ", ";
        }
        if separator.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

/// One interface's page of the ledger.
#[derive(Debug)]
pub struct Page {
    index: u32,
    /// Whether `rx_dropped` counts losses. Where frames are captured by XDP it counts, by driver,
    /// also those that were captured, those that a ring of ours counts itself, and those that the
    /// stack has no use for.
    dropped_is_lost: bool,
    /// The interface's own counters when the capture began.
    before: Counters,
    /// The same now.
    now: Mutex<Counters>,
    start: Timestamp,
    /// One account for each reader.
    pub(crate) accounts: Vec<Account>,
}

/// One reader's counts. It writes to them once a round of batches; anybody may read.
#[derive(Debug, Default)]
pub(crate) struct Account {
    received: AtomicU64,
    captured: AtomicU64,
    bytes: AtomicU64,
    rejected: AtomicU64,
    /// How full the source's buffer is, in thousandths.
    fill: AtomicU64,
    drops: Mutex<Drops>,
}

impl Page {
    pub(crate) fn new(interface: &Interface, source: Kind, readers: usize) -> Self {
        let before = interface::counters(interface.index).unwrap_or(interface.counters);
        Self {
            index: interface.index,
            dropped_is_lost: source == Kind::Packet,
            before,
            now: Mutex::new(before),
            start: now(),
            accounts: (0..readers).map(|_| Account::default()).collect(),
        }
    }

    /// Asks the interface for its counters; what it said last stays when it is gone.
    pub fn refresh(&self) {
        if let Some(counters) = interface::counters(self.index) {
            *self.now.lock().unwrap_or_else(PoisonError::into_inner) = counters;
        }
    }

    /// What was lost so far.
    pub fn drops(&self) -> Drops {
        let readers = self.accounts.iter().map(Account::drops).fold(Drops::default(), Drops::plus);
        let since = self.since();
        let dropped = if self.dropped_is_lost { since.dropped } else { 0 };
        Drops { interface: since.missed + dropped, ..readers }
    }

    /// Packets that the filter accepted, lost ones included.
    pub fn received(&self) -> u64 {
        self.sum(|account| &account.received)
    }

    /// Packets that reached the sink.
    pub fn captured(&self) -> u64 {
        self.sum(|account| &account.captured)
    }

    /// Bytes on the wire of those.
    pub fn bytes(&self) -> u64 {
        self.sum(|account| &account.bytes)
    }

    /// How full the fullest reader's buffer is, 0 to 1; 0 where the source cannot tell.
    pub fn fill(&self) -> f32 {
        let fill = |account: &Account| account.fill.load(Relaxed);
        self.accounts.iter().map(fill).max().unwrap_or_default() as f32 / 1000.0
    }

    /// The counts as a statistics block has them.
    pub fn totals(&self) -> InterfaceTotals {
        self.refresh();
        let drops = self.drops();
        InterfaceTotals {
            start: self.start,
            end: now(),
            received: Some(self.since().received),
            interface_dropped: Some(drops.interface),
            filter_accepted: Some(self.received()),
            system_dropped: Some(drops.kernel()),
            delivered: None,
            comment: Some(format!("lost by cause: {drops}")),
        }
    }

    fn since(&self) -> Counters {
        let now = *self.now.lock().unwrap_or_else(PoisonError::into_inner);
        // An interface whose counters were reset would count backwards.
        Counters {
            received: now.received.saturating_sub(self.before.received),
            missed: now.missed.saturating_sub(self.before.missed),
            dropped: now.dropped.saturating_sub(self.before.dropped),
        }
    }

    fn sum(&self, of: impl Fn(&Account) -> &AtomicU64) -> u64 {
        self.accounts.iter().map(|account| of(account).load(Relaxed)).sum()
    }
}

impl Account {
    /// A round of batches. There is one writer: a load and a store are enough.
    pub(crate) fn add(&self, captured: u64, bytes: u64, rejected: u64) {
        for (count, more) in
            [(&self.captured, captured), (&self.bytes, bytes), (&self.rejected, rejected)]
        {
            count.store(count.load(Relaxed) + more, Relaxed);
        }
    }

    /// What the source counted: frames accepted by the filter in the kernel, and losses. Frames that
    /// a filter in user space (`filtered_here`) turned away were not "received by filter".
    pub(crate) fn set(&self, received: u64, drops: Drops, filtered_here: bool) {
        let rejected = if filtered_here { self.rejected.load(Relaxed) } else { 0 };
        self.received.store(received.saturating_sub(rejected), Relaxed);
        *self.drops.lock().unwrap_or_else(PoisonError::into_inner) = drops;
    }

    /// How full the source's buffer is, 0 to 1.
    pub(crate) fn set_fill(&self, fill: f32) {
        self.fill.store((fill * 1000.0) as u64, Relaxed);
    }

    fn drops(&self) -> Drops {
        *self.drops.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blaming_the_writer_moves_counts_and_keeps_the_total() {
        let before = Drops { tp_drops: 3, interface: 1, ..Drops::default() };
        let drops = Drops { tp_drops: 10, receive_ring_full: 2, interface: 1, ..before };
        let blamed = drops.blamed_on_writer(&drops.ring_losses_since(&before));
        assert_eq!((blamed.tp_drops, blamed.receive_ring_full, blamed.writer_too_slow), (3, 0, 9));
        assert_eq!(blamed.total(), drops.total());
    }

    #[test]
    fn freezes_are_no_packets_and_silence_is_none() {
        let drops = Drops { freezes: 4, ..Drops::default() };
        assert_eq!((drops.total(), drops.to_string()), (0, "freezes 4".into()));
        assert_eq!(Drops::default().to_string(), "none");
    }
}
