//! [`Statistics`] of a receive ring: the kernel's 32-bit counters, which it clears at every read,
//! added up in 64 bits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::socket::Socket;
use super::walk::BlockFrames;

/// The outcome of the frames that a ring's filter accepted.
///
/// `packets` = `drops` + `lent` + `unread` + what still waits in the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that passed the filter, those dropped included (`tp_packets`).
    pub packets: u64,
    /// Frames that found no room in the ring (`tp_drops`).
    pub drops: u64,
    /// Times that the ring was full, so that the kernel froze it (`tp_freeze_q_cnt`).
    pub freezes: u64,
    /// Frames lent to the program.
    pub lent: u64,
    /// Those of them that are longer than a block, and were cut.
    pub cut: u64,
    /// Frames in blocks that were given back before all their frames were asked for.
    pub unread: u64,
    /// Blocks that broke off at an impossible offset.
    pub damaged: u64,
}

linerate_net::sums! { Statistics { packets, drops, freezes, lent, cut, unread, damaged } }

/// Reads the statistics of a ring from any thread, and its last ones after it is gone.
#[derive(Clone, Debug)]
pub(super) struct StatisticsReader(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Weak, so that counters that outlive their ring do not keep it receiving.
    socket: Weak<Socket>,
    kernel: Mutex<Statistics>,
    lent: AtomicU64,
    cut: AtomicU64,
    unread: AtomicU64,
    damaged: AtomicU64,
}

impl StatisticsReader {
    pub(super) fn new(socket: &Arc<Socket>) -> Self {
        Self(Arc::new(Inner {
            socket: Arc::downgrade(socket),
            kernel: Mutex::default(),
            lent: AtomicU64::new(0),
            cut: AtomicU64::new(0),
            unread: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
        }))
    }

    /// The counts since the ring was made.
    pub(super) fn read(&self) -> Statistics {
        let inner = &*self.0;
        let mut statistics = {
            let mut kernel = inner.kernel.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(socket) = inner.socket.upgrade() {
                *kernel += read_and_clear(&socket);
            }
            *kernel
        };
        statistics.lent = inner.lent.load(Ordering::Relaxed);
        statistics.cut = inner.cut.load(Ordering::Relaxed);
        statistics.unread = inner.unread.load(Ordering::Relaxed);
        statistics.damaged = inner.damaged.load(Ordering::Relaxed);
        statistics
    }

    /// Adds the counts of one block.
    pub(super) fn add(&self, walk: &BlockFrames) {
        let add = |counter: &AtomicU64, count: u32| {
            if count > 0 {
                counter.fetch_add(u64::from(count), Ordering::Relaxed);
            }
        };
        add(&self.0.lent, walk.frames_returned());
        add(&self.0.cut, walk.frames_cut());
        add(&self.0.unread, walk.remaining());
        add(&self.0.damaged, u32::from(walk.is_corrupt()));
    }
}

/// The kernel's counts since the last read.
fn read_and_clear(socket: &Socket) -> Statistics {
    let empty = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
    match socket.get(libc::SOL_PACKET, libc::PACKET_STATISTICS, empty) {
        Ok(counts) => Statistics {
            packets: u64::from(counts.tp_packets),
            drops: u64::from(counts.tp_drops),
            freezes: u64::from(counts.tp_freeze_q_cnt),
            ..Statistics::default()
        },
        // The kernel has no reason to refuse this on a packet socket.
        Err(error) => {
            tracing::warn!(%error, "cannot read PACKET_STATISTICS");
            Statistics::default()
        }
    }
}
