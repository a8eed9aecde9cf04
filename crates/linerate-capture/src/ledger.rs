//! The drop ledger: every packet that did not make it, by cause, in 64 bits.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use linerate_ring::Timestamp;
use serde::Serialize;

use crate::write::InterfaceTotals;

/// Packets lost since the start of the capture, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drops {
    /// The interface had no buffer or the driver no time (`rx_dropped`, `rx_missed_errors`,
    /// `rx_fifo_errors`, `rx_over_errors` of the interface). It counts what the filter would have
    /// rejected, too.
    pub interface: u64,
    /// The fill ring of an AF_XDP socket was empty.
    pub xdp_fill_empty: u64,
    /// The receive ring of an AF_XDP socket was full.
    pub receive_ring_full: u64,
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
    /// The file could not take it: disk full, quota, I/O error, closed pipe.
    pub disk: u64,
}

impl Drops {
    /// All lost packets.
    pub fn total(&self) -> u64 {
        self.interface + self.kernel() + self.disk
    }

    /// What tcpdump calls "dropped by kernel": lost between the driver and the reader.
    pub fn kernel(&self) -> u64 {
        self.xdp_fill_empty
            + self.receive_ring_full
            + self.invalid_descriptors
            + self.tp_drops
            + self.ring_buffer_full
            + self.writer_too_slow
    }

    /// Every cause with its name in the JSON and its count.
    pub fn causes(&self) -> [(&'static str, u64); 9] {
        [
            ("interface", self.interface),
            ("xdp_fill_empty", self.xdp_fill_empty),
            ("receive_ring_full", self.receive_ring_full),
            ("invalid_descriptors", self.invalid_descriptors),
            ("tp_drops", self.tp_drops),
            ("freezes", self.freezes),
            ("ring_buffer_full", self.ring_buffer_full),
            ("writer_too_slow", self.writer_too_slow),
            ("disk", self.disk),
        ]
    }

    /// The sum over two counts, cause by cause.
    pub fn plus(mut self, other: Self) -> Self {
        self.interface += other.interface;
        self.xdp_fill_empty += other.xdp_fill_empty;
        self.receive_ring_full += other.receive_ring_full;
        self.invalid_descriptors += other.invalid_descriptors;
        self.tp_drops += other.tp_drops;
        self.freezes += other.freezes;
        self.ring_buffer_full += other.ring_buffer_full;
        self.writer_too_slow += other.writer_too_slow;
        self.disk += other.disk;
        self
    }

    /// What was lost in the ring itself, moved to the writer's account: the ring overflowed only
    /// because nobody emptied it.
    pub(crate) fn blame_writer(&mut self, before: &Self) {
        let causes = [
            (&mut self.xdp_fill_empty, before.xdp_fill_empty),
            (&mut self.receive_ring_full, before.receive_ring_full),
            (&mut self.tp_drops, before.tp_drops),
            (&mut self.ring_buffer_full, before.ring_buffer_full),
        ];
        for (count, before) in causes {
            self.writer_too_slow += *count - before.min(*count);
            *count = before.min(*count);
        }
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

/// One interface's page of the ledger. Its readers write to it once a batch, anybody may read it.
#[derive(Debug, Default)]
pub struct Account {
    /// Packets that the kernel's filter accepted, lost ones included.
    pub received: AtomicU64,
    /// Packets that reached the sink.
    pub captured: AtomicU64,
    /// Captured bytes.
    pub bytes: AtomicU64,
    drops: Mutex<Drops>,
}

impl Account {
    /// What was lost so far.
    pub fn drops(&self) -> Drops {
        *self.drops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in new counts.
    pub fn set_drops(&self, drops: Drops) {
        *self.drops.lock().unwrap_or_else(PoisonError::into_inner) = drops;
    }

    /// The counts as a statistics block has them.
    pub fn totals(
        &self,
        start: Timestamp,
        end: Timestamp,
        received: Option<u64>,
    ) -> InterfaceTotals {
        let drops = self.drops();
        InterfaceTotals {
            start,
            end,
            received,
            interface_dropped: Some(drops.interface),
            filter_accepted: Some(self.received.load(Relaxed)),
            system_dropped: Some(drops.kernel()),
            delivered: Some(self.captured.load(Relaxed)),
            comment: Some(format!("drops: {drops}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blaming_the_writer_moves_counts_and_keeps_the_total() {
        let before = Drops { tp_drops: 3, interface: 1, ..Drops::default() };
        let mut drops = Drops { tp_drops: 10, receive_ring_full: 2, interface: 1, ..before };
        let total = drops.total();
        drops.blame_writer(&before);
        assert_eq!((drops.tp_drops, drops.receive_ring_full, drops.writer_too_slow), (3, 0, 9));
        assert_eq!(drops.total(), total);
    }

    #[test]
    fn freezes_are_no_packets_and_silence_is_none() {
        let drops = Drops { freezes: 4, ..Drops::default() };
        assert_eq!((drops.total(), drops.to_string()), (0, "freezes 4".into()));
        assert_eq!(Drops::default().to_string(), "none");
    }
}
