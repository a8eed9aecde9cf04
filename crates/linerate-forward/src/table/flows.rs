//! [`FlowReporter`]: flow records from the counters of sessions, in the passes of the ager. Packets cost nothing more.
//!
//! A session is one direction of a flow. It gets a record when it ends, and each time that the active timeout has passed
//! while it continues: each says what was counted since the last one. A mark says what the records of a session have so
//! far. Marks of records that are in whole files outlive this process (`crate::runtime::flows`), so that the next daemon
//! goes on from there. The slot of a session that has ended is freed once its last record is in a whole file: if the
//! daemon is killed before, the next one finds the session, and makes the record again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, UNIX_EPOCH};

use linerate_flow::{Direction, EndReason, FlowKey, FlowRecord, Translation};

use crate::table::clock::Clock;
use crate::table::mapped::Slot;
use crate::table::session::Record;
use crate::tuple::Protocol;

/// Reports that are handed over at once.
const BATCH: usize = 1024;
/// One of so many slots may wait for the last record of its session. What is more is freed, although a kill could then
/// lose its record.
const WAITING_SHARE: usize = 8;

/// What the records of the session in a slot have so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// When the session was learned, low half of jiffies: another session has another number.
    pub created: u32,
    /// Its packets in records.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the last record ended, or the session began; nanoseconds since 1970.
    pub since: u64,
}

/// A record, and the mark that its session has when the record is in a whole file.
#[derive(Clone, Debug)]
pub struct FlowReport {
    /// The record.
    pub record: FlowRecord,
    /// The slot of its session and the mark; `None` for an event of NAT.
    pub mark: Option<(usize, Mark)>,
    /// A number that rises from report to report of sessions; 0 for an event.
    pub number: u64,
}

/// Counts of a [`FlowReporter`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Records of sessions.
    pub records: u64,
    /// Sessions that were freed without their last record, because records could not be written for too long.
    pub lost: u64,
    /// Packets of these.
    pub lost_packets: u64,
    /// Sessions that were freed before their last record was in a whole file.
    pub unsaved: u64,
}

/// Makes records of the sessions of a table.
#[derive(Debug)]
pub struct FlowReporter {
    marks: Vec<Mark>,
    /// The number of the last report of each slot's session.
    numbers: Vec<u64>,
    batch: Vec<FlowReport>,
    reports: SyncSender<Vec<FlowReport>>,
    /// The highest number that is in a whole file.
    saved: Arc<AtomicU64>,
    number: u64,
    active_timeout: Duration,
    clock: Clock,
    names: HashMap<u32, Arc<str>>,
    /// Sessions that have ended and were found waiting in this pass.
    waiting: usize,
    counts: FlowCounts,
}

impl FlowReporter {
    /// Bytes that a slot takes.
    pub const BYTES_PER_SLOT: usize = size_of::<Mark>() + size_of::<u64>();

    /// Of a table with these marks, which hands its reports over to `reports`. `saved` says which are in whole files.
    pub fn new(
        marks: Vec<Mark>,
        reports: SyncSender<Vec<FlowReport>>,
        saved: Arc<AtomicU64>,
        active_timeout: Duration,
        clock: Clock,
    ) -> Self {
        Self {
            numbers: vec![0; marks.len()],
            marks,
            batch: Vec::new(),
            reports,
            saved,
            number: 0,
            active_timeout,
            clock,
            names: HashMap::new(),
            waiting: 0,
            counts: FlowCounts::default(),
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> FlowCounts {
        self.counts
    }

    /// Reports what a session that continues has counted, if it is time.
    #[inline]
    pub(super) fn visit(&mut self, index: usize, slot: Slot<'_>) {
        let mark = self.mark(index, slot);
        let is_due = || now().saturating_sub(mark.since) >= self.active_timeout.as_nanos() as u64;
        if slot.counters().packets != mark.packets && is_due() {
            self.report(index, slot, mark, EndReason::ActiveTimeout);
        }
    }

    /// Reports the rest of a session that has ended, once. Whether its slot may be freed.
    pub(super) fn end(&mut self, index: usize, slot: Slot<'_>, reason: EndReason) -> bool {
        let mark = self.mark(index, slot);
        let counted = slot.counters().packets;
        let is_reported = counted == mark.packets || self.report(index, slot, mark, reason);
        if is_reported && self.numbers[index] <= self.saved.load(Relaxed) {
            return true;
        }
        self.waiting += 1;
        if self.waiting <= self.marks.len() / WAITING_SHARE {
            return false;
        }
        if is_reported {
            self.counts.unsaved += 1;
        } else {
            self.counts.lost += 1;
            self.counts.lost_packets += counted.wrapping_sub(mark.packets);
        }
        true
    }

    /// Reports what a session has counted when reports end. Whether there was room for it.
    pub(super) fn rest(&mut self, index: usize, slot: Slot<'_>) -> bool {
        let mark = self.mark(index, slot);
        slot.counters().packets == mark.packets
            || self.report(index, slot, mark, EndReason::ForcedEnd)
    }

    /// Hands over what was reported; whether there was room. A pass has ended if `is_pass`.
    pub(super) fn flush(&mut self, is_pass: bool) -> bool {
        if is_pass {
            self.waiting = 0;
        }
        if !self.batch.is_empty()
            && let Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) =
                self.reports.try_send(std::mem::take(&mut self.batch))
        {
            // Nothing is reported until there is room.
            self.batch = batch;
        }
        self.batch.is_empty()
    }

    /// The mark of the session in this slot.
    #[inline]
    fn mark(&mut self, index: usize, slot: Slot<'_>) -> Mark {
        let created = slot.created();
        let mark = &mut self.marks[index];
        if mark.created != created || mark.since == 0 {
            let age = self.clock.since(created).as_nanos() as u64;
            *mark = Mark { created, since: now().saturating_sub(age), ..Mark::default() };
            self.numbers[index] = 0;
        }
        *mark
    }

    /// Whether there was room for the report.
    fn report(&mut self, index: usize, slot: Slot<'_>, mark: Mark, reason: EndReason) -> bool {
        if self.batch.len() >= BATCH {
            self.flush(false);
            if self.batch.len() >= BATCH {
                return false;
            }
        }
        // Locked for long, or another session by now.
        let Some(record) = slot.read().filter(|record| record.session.created == mark.created)
        else {
            return false;
        };
        let now = now();
        let idle = slot.last_use().idle(self.clock.seconds()).as_nanos() as u64;
        let end = now.saturating_sub(idle).max(mark.since);
        let next = Mark { packets: record.packets(), bytes: record.bytes(), since: now, ..mark };
        let mut flow = flow_record(&record, mark.since, end, reason);
        flow.forward.packets = next.packets.wrapping_sub(mark.packets);
        flow.forward.octets = next.bytes.wrapping_sub(mark.bytes);
        flow.interface_name = Some(self.name(record.session.key.ifindex));
        self.number += 1;
        (self.marks[index], self.numbers[index]) = (next, self.number);
        self.counts.records += 1;
        let number = self.number;
        self.batch.push(FlowReport { record: flow, mark: Some((index, next)), number });
        true
    }

    fn name(&mut self, index: u32) -> Arc<str> {
        if !self.names.contains_key(&index) {
            if let Ok(links) = linerate_net::link::all() {
                self.names.extend(links.into_iter().map(|link| (link.index, link.name.into())));
            }
            self.names.entry(index).or_insert_with(|| format!("#{index}").into());
        }
        Arc::clone(&self.names[&index])
    }
}

/// Nanoseconds since 1970 (UTC).
fn now() -> u64 {
    UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() as u64
}

/// A record of this session, without counts and the interface's name.
fn flow_record(session: &Record, start: u64, end: u64, reason: EndReason) -> FlowRecord {
    let tuple = session.tuple();
    let mut vlans = session.vlans();
    FlowRecord {
        start,
        end,
        key: FlowKey {
            source: tuple.source.ip(),
            destination: tuple.destination.ip(),
            source_port: Some(tuple.source.port()),
            destination_port: Some(tuple.destination.port()),
            protocol: match tuple.protocol {
                Protocol::Tcp => 6,
                Protocol::Udp => 17,
            },
            vlan: vlans.next(),
            customer_vlan: vlans.next(),
            icmp_type_code: None,
        },
        ingress_interface: Some(session.session.key.ifindex),
        egress_interface: Some(session.session.out_ifindex),
        forward: Direction::default(),
        end_reason: Some(reason),
        translation: session.is_translated().then(|| {
            let (source, destination) = session.out();
            Translation {
                source: source.ip(),
                destination: destination.ip(),
                source_port: Some(source.port()),
                destination_port: Some(destination.port()),
            }
        }),
        ..FlowRecord::default()
    }
}
