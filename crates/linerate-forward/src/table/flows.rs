//! [`SessionMeter`]: makes flow records from the counters of sessions, in the passes of the ager. So packets cost
//! nothing more.
//!
//! A session is one direction of a flow. It gets a record when it ends, and at each active timeout while it continues.
//! Each record has what was counted since the last one. The checkpoint of a session is the sum of its records.
//! Checkpoints are kept in BPF maps when their records are in complete files (`crate::runtime::flows`), so that the
//! next daemon continues from there. The slot of a session that has ended is freed when its last record is in a
//! complete file. If the daemon is killed before that, the next one finds the session, and makes the record again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, UNIX_EPOCH};

use linerate_flow::{Direction, EndReason, FlowKey, FlowRecord, Translation};

use crate::table::clock::Clock;
use crate::table::layout::CREATED_NUMBER;
use crate::table::mapped::Slot;
use crate::table::session::{Decoder, Session};

/// Records that are queued at once.
const BATCH_RECORDS: usize = 1024;
/// One in this many slots may wait until the last record of its session is written. Further slots are freed at once,
/// and a kill may then lose their records.
const WAITING_SLOTS_DIVISOR: usize = 8;

/// The sum of the records of the session in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// When the session began, and its number among the sessions of its slot, as in `cold.created`.
    pub created: u32,
    /// Its packets in records.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the last record ended, or the session began; nanoseconds since 1970.
    pub since: u64,
}

/// A record to be written, and the checkpoint of its session with this record.
#[derive(Clone, Debug)]
pub struct PendingRecord {
    /// The record.
    pub record: FlowRecord,
    /// The slot of its session and the checkpoint; `None` for a NAT event.
    pub checkpoint: Option<(usize, Checkpoint)>,
    /// The sequence number of the record among those of sessions; 0 for a NAT event.
    pub sequence: u64,
}

/// Counts of a [`SessionMeter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionMeterStatistics {
    /// Records of sessions.
    pub records: u64,
    /// Sessions that were freed without their last record, because records could not be written for too long.
    pub lost: u64,
    /// Their packets that no record has.
    pub lost_packets: u64,
    /// Sessions that were freed before their last record was in a complete file.
    pub unsaved: u64,
}

/// Makes records of the sessions of a table.
#[derive(Debug)]
pub struct SessionMeter {
    checkpoints: Vec<Checkpoint>,
    /// The sequence number of the last record of each slot's session.
    sequences: Vec<u64>,
    batch: Vec<PendingRecord>,
    queue: SyncSender<Vec<PendingRecord>>,
    /// The highest sequence number in a complete file.
    saved: Arc<AtomicU64>,
    /// The sequence number of the last record.
    sequence: u64,
    active_timeout: Duration,
    clock: Clock,
    decoder: Decoder,
    /// Ended sessions in this pass whose last record is not in a complete file.
    waiting: usize,
    statistics: SessionMeterStatistics,
}

impl SessionMeter {
    /// Bytes of memory for each slot.
    pub const BYTES_PER_SLOT: usize = size_of::<Checkpoint>() + size_of::<u64>();

    /// The meter of a table with these checkpoints. It sends records to `queue`, whose reader sets `saved` to the
    /// highest sequence number in a complete file.
    pub fn new(
        checkpoints: Vec<Checkpoint>,
        queue: SyncSender<Vec<PendingRecord>>,
        saved: Arc<AtomicU64>,
        active_timeout: Duration,
        decoder: Decoder,
    ) -> Self {
        Self {
            sequences: vec![0; checkpoints.len()],
            checkpoints,
            batch: Vec::new(),
            queue,
            saved,
            sequence: 0,
            active_timeout,
            clock: decoder.clock(),
            decoder,
            waiting: 0,
            statistics: SessionMeterStatistics::default(),
        }
    }

    /// The counts so far.
    pub fn statistics(&self) -> SessionMeterStatistics {
        self.statistics
    }

    /// Makes a record of a session that continues, if the active timeout has passed.
    #[inline]
    pub(super) fn visit(&mut self, index: usize, slot: Slot<'_>) {
        let checkpoint = self.checkpoint(index, slot);
        let is_due =
            || now().saturating_sub(checkpoint.since) >= self.active_timeout.as_nanos() as u64;
        if slot.counters().packets != checkpoint.packets && is_due() {
            self.enqueue(index, slot, checkpoint, EndReason::ActiveTimeout);
        }
    }

    /// Makes the last record of a session that has ended, once. Returns whether its slot may be freed.
    pub(super) fn end(&mut self, index: usize, slot: Slot<'_>, reason: EndReason) -> bool {
        let checkpoint = self.checkpoint(index, slot);
        let counted = slot.counters().packets;
        let is_enqueued =
            counted == checkpoint.packets || self.enqueue(index, slot, checkpoint, reason);
        if is_enqueued && self.sequences[index] <= self.saved.load(Relaxed) {
            return true;
        }
        if is_enqueued && slot.is_wanted() {
            self.statistics.unsaved += 1;
            return true;
        }
        self.waiting += 1;
        if self.waiting <= self.checkpoints.len() / WAITING_SLOTS_DIVISOR {
            return false;
        }
        if is_enqueued {
            self.statistics.unsaved += 1;
        } else {
            self.statistics.lost += 1;
            self.statistics.lost_packets += counted.wrapping_sub(checkpoint.packets);
        }
        true
    }

    /// Makes the last record of a session when metering ends. Returns whether there was room for it.
    pub(super) fn finish(&mut self, index: usize, slot: Slot<'_>) -> bool {
        let checkpoint = self.checkpoint(index, slot);
        slot.counters().packets == checkpoint.packets
            || self.enqueue(index, slot, checkpoint, EndReason::ForcedEnd)
    }

    /// Sends the batch to the queue; returns whether there was room. `is_pass` says that a pass has ended.
    pub(super) fn flush(&mut self, is_pass: bool) -> bool {
        if is_pass {
            self.waiting = 0;
        }
        if !self.batch.is_empty()
            && let Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) =
                self.queue.try_send(std::mem::take(&mut self.batch))
        {
            // There are no new records until there is room.
            self.batch = batch;
        }
        self.batch.is_empty()
    }

    /// The checkpoint of the session in this slot.
    #[inline]
    fn checkpoint(&mut self, index: usize, slot: Slot<'_>) -> Checkpoint {
        let created = slot.created_word();
        let checkpoint = &mut self.checkpoints[index];
        if checkpoint.created != created || checkpoint.since == 0 {
            let begin = now().saturating_sub(self.clock.since(slot.created()).as_nanos() as u64);
            let counters = slot.counters();
            let is_same = (checkpoint.created ^ created) & CREATED_NUMBER == 0
                && counters.packets >= checkpoint.packets
                && counters.bytes >= checkpoint.bytes;
            if is_same && checkpoint.since != 0 {
                // It had ended and begins again. Its counters continue.
                (checkpoint.created, checkpoint.since) = (created, checkpoint.since.max(begin));
            } else {
                *checkpoint = Checkpoint { created, since: begin, ..Checkpoint::default() };
                self.sequences[index] = 0;
            }
        }
        *checkpoint
    }

    /// Forgets the session of this slot, which is free now.
    pub(super) fn forget(&mut self, index: usize) {
        self.checkpoints[index] = Checkpoint::default();
    }

    /// Makes a record, and adds it to the batch. Returns whether there was room.
    fn enqueue(
        &mut self,
        index: usize,
        slot: Slot<'_>,
        checkpoint: Checkpoint,
        reason: EndReason,
    ) -> bool {
        if self.batch.len() >= BATCH_RECORDS {
            self.flush(false);
            if self.batch.len() >= BATCH_RECORDS {
                return false;
            }
        }
        // The slot is locked for too long, or has another session now.
        let session = slot.session(&mut self.decoder);
        let Some(session) = session.filter(|session| session.created == checkpoint.created) else {
            return false;
        };
        let now = now();
        let end = now.saturating_sub(session.idle.as_nanos() as u64).max(checkpoint.since);
        let Session { packets, bytes, .. } = session;
        let next = Checkpoint { packets, bytes, since: now, ..checkpoint };
        let mut flow = flow_record(session, checkpoint.since, end, reason);
        flow.forward.packets = packets.wrapping_sub(checkpoint.packets);
        flow.forward.octets = bytes.wrapping_sub(checkpoint.bytes);
        self.sequence += 1;
        (self.checkpoints[index], self.sequences[index]) = (next, self.sequence);
        self.statistics.records += 1;
        let sequence = self.sequence;
        self.batch.push(PendingRecord { record: flow, checkpoint: Some((index, next)), sequence });
        true
    }
}

/// Nanoseconds since 1970 (UTC).
fn now() -> u64 {
    UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() as u64
}

/// A record of this session, without counts.
fn flow_record(session: Session, start: u64, end: u64, reason: EndReason) -> FlowRecord {
    let tuple = session.tuple;
    let mut vlans = session.vlan.iter().map(|tag| tag.vlan);
    FlowRecord {
        start,
        end,
        key: FlowKey {
            source: tuple.source.ip(),
            destination: tuple.destination.ip(),
            source_port: Some(tuple.source.port()),
            destination_port: Some(tuple.destination.port()),
            protocol: tuple.protocol.number(),
            vlan: vlans.next(),
            customer_vlan: vlans.next(),
            icmp_type_code: None,
        },
        ingress_interface: Some(session.ingress.index),
        egress_interface: Some(session.egress.index),
        forward: Direction::default(),
        end_reason: Some(reason),
        translation: session.nat.map(|_| {
            let (source, destination) = session.out();
            Translation {
                source: source.ip(),
                destination: destination.ip(),
                source_port: Some(source.port()),
                destination_port: Some(destination.port()),
            }
        }),
        interface_name: Some(session.ingress.name),
        ..FlowRecord::default()
    }
}
