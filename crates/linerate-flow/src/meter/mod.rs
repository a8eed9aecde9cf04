//! [`Meter`]: from packets to flows.

mod details;
mod entry;
mod fragments;
mod initiators;
mod packet;
mod table;

use std::sync::Arc;
use std::time::Duration;

use linerate_pcapfile::ByteRange;
use linerate_wire::layers::Layers;
use linerate_wire::tcp;

use crate::EndReason;
use crate::record::Processes;
use crate::schema::{Group, Groups};
use details::PacketDetails;
pub use entry::Flow;
use entry::{CLOSED_TIMEOUT, Entry};
use fragments::Fragments;
use packet::{Packet, Unmetered};
use table::Table;

/// How a meter works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterOptions {
    /// The most flows at one time, `1..=2^31 - 1`. Their memory is allocated at the start.
    pub max_flows: u32,
    /// A flow that continues gets a record each time that this has passed.
    pub active_timeout: Duration,
    /// A flow ends when no packet came for this time.
    pub idle_timeout: Duration,
    /// The fields that records have on request.
    pub groups: Groups,
}

impl Default for MeterOptions {
    fn default() -> Self {
        Self {
            max_flows: 1 << 18,
            active_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
            groups: Groups::default(),
        }
    }
}

/// What a meter counted since its start. `packets` are all packets of flows, so each packet that the meter was given
/// is in it or in `not_ip`, `malformed`, `link_type` or `time_range`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct MeterStatistics {
    /// Packets of flows.
    pub packets: u64,
    /// Their octets, from the IP header on.
    #[serde(skip)]
    pub octets: u64,
    /// Frames that carry no IP packet, such as ARP.
    pub not_ip: u64,
    /// Frames with a malformed IP header, or one that was cut off.
    pub malformed: u64,
    /// Frames with a link-layer header that the meter does not know.
    pub link_type: u64,
    /// Packets with a time after 2262-04-11, which a record cannot have.
    pub time_range: u64,
    /// Packets that should have ports and are in flows without them: fragments whose first one was not seen, and
    /// packets that were cut off in front of them.
    pub without_ports: u64,
    /// Flows in the table.
    pub active: u64,
    /// Flows given to `export`.
    pub exported: u64,
    /// Of these, flows that ended early to make room in a full table.
    pub overflow: u64,
}

impl MeterStatistics {
    /// The sum of two.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            octets: self.octets + other.octets,
            not_ip: self.not_ip + other.not_ip,
            malformed: self.malformed + other.malformed,
            link_type: self.link_type + other.link_type,
            time_range: self.time_range + other.time_range,
            without_ports: self.without_ports + other.without_ports,
            active: self.active + other.active,
            exported: self.exported + other.exported,
            overflow: self.overflow + other.overflow,
        }
    }
}

/// A packet as its source lends it.
#[derive(Clone, Copy, Debug)]
pub struct MeteredPacket<'a> {
    /// The frame, or its beginning.
    pub frame: &'a [u8],
    /// Its length on the wire.
    pub wire_len: u32,
    /// Its link type (LINKTYPE registry).
    pub linktype: u16,
    /// The number of its interface: packets of two interfaces are two flows.
    pub interface: u16,
    /// When it came, in nanoseconds since 1970 (UTC).
    pub time: u64,
    /// Where it is in the output, if it is output. The meter keeps where the first packet of a flow begins, and where
    /// the last one ends.
    pub byte_range: Option<ByteRange>,
    /// The processes of its sender and its receiver, if one of them is known.
    pub processes: Option<&'a Arc<Processes>>,
}

/// The layers of a frame with this link type (LINKTYPE registry); `None` if a meter cannot parse them.
pub fn layers(frame: &[u8], linktype: u16) -> Option<Layers> {
    packet::layers(frame, linktype).ok().map(|(layers, _)| layers)
}

/// Whether a meter parses link-layer headers of this type (LINKTYPE registry).
pub fn supports_link_type(linktype: u16) -> bool {
    packet::layers(&[], linktype).err() != Some(Unmetered::LinkType)
}

/// A sweep of the whole table takes this many steps.
const SWEEP_STEPS: u64 = 256;

/// How long a sweep takes, in nanoseconds. A flow is exported at most this long after its end, unless sweeps pause.
const SWEEP_TIME: u64 = 1_000_000_000;

/// The longest time that a flow waits for a sweep that pauses, in nanoseconds.
const MAX_SWEEP_PAUSE: u64 = 10_000_000_000;

/// The latest time of a record, in nanoseconds since 1970: the integers of Parquet are signed.
const MAX_TIME: u64 = i64::MAX as u64;

/// The clock has been set back if all packets of this time, in nanoseconds, are older than it by the idle timeout.
const MIN_SET_BACK_TIME: u64 = 1_000_000_000;

/// Finds flows in packets.
///
/// The time is the latest of the packets and of [`Meter::advance`]. If packets come in the order of time, a flow ends at
/// a time that only its own packets and the timeouts decide. When it is exported depends on the next sweep. The time goes
/// back if the packets' clock was set back by more than the idle timeout.
pub struct Meter {
    table: Table,
    fragments: Fragments,
    active_timeout: u64,
    idle_timeout: u64,
    now: u64,
    /// The first of the latest packets, if they are all older than `now` by more than the idle timeout.
    set_back: Option<u64>,
    /// When the next step of the sweep is due.
    sweep_due: u64,
    /// The next entry of the sweep.
    cursor: u32,
    /// Packets whose flows are looked up together.
    batch: Vec<Parsed>,
    groups: Groups,
    /// Of the packets in the batch, or of the only one, if the meter has details.
    details: Vec<PacketDetails>,
    /// The same, if it has processes.
    processes: Vec<Option<Arc<Processes>>>,
    /// Whether sweeps pause.
    is_congested: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    statistics: MeterStatistics,
}

/// Packets in a batch. Three cache lines of each, two of a flow and one of the index, fit into any first-level cache.
const BATCH_PACKETS: usize = 32;

/// A packet in a batch.
#[derive(Clone, Copy)]
struct Parsed {
    packet: Packet,
    hash: u32,
    time: u64,
    byte_range: Option<ByteRange>,
}

impl Meter {
    /// A meter without flows.
    pub fn new(options: &MeterOptions) -> Self {
        let nanoseconds = |time: Duration| time.as_nanos().try_into().unwrap_or(u64::MAX / 2);
        Self {
            table: Table::new(options.max_flows.clamp(1, i32::MAX as u32), options.groups),
            fragments: Fragments::new(),
            active_timeout: nanoseconds(options.active_timeout),
            idle_timeout: nanoseconds(options.idle_timeout),
            now: 0,
            set_back: None,
            sweep_due: 0,
            cursor: 0,
            batch: Vec::with_capacity(BATCH_PACKETS),
            groups: options.groups,
            details: Vec::with_capacity(BATCH_PACKETS),
            processes: Vec::new(),
            is_congested: None,
            statistics: MeterStatistics::default(),
        }
    }

    /// While `is_congested` says so, flows that have ended stay in the table: each for ten seconds at most, and only
    /// while a quarter of the table is free. Without this call sweeps never pause. Their records do not change.
    pub fn pause_sweeps_while(&mut self, is_congested: impl Fn() -> bool + Send + Sync + 'static) {
        self.is_congested = Some(Box::new(is_congested));
    }

    /// The counts now.
    pub fn statistics(&self) -> MeterStatistics {
        MeterStatistics { active: self.table.len() as u64, ..self.statistics }
    }

    /// The latest time that it was given, in nanoseconds since 1970 (UTC); 0 before the first packet.
    pub fn time(&self) -> u64 {
        self.now
    }

    /// Counts a packet. Flows that ended go to `export`. Returns how many octets of its flow were counted before it, in
    /// both directions and since the last record; `None` if it belongs to no flow.
    #[inline]
    pub fn packet(
        &mut self,
        packet: &MeteredPacket<'_>,
        mut export: impl FnMut(&Flow),
    ) -> Option<u64> {
        self.flush(&mut export);
        if packet.time <= MAX_TIME {
            self.follow_clock(packet.time, &mut export);
        }
        let parsed = self.parse(packet)?;
        let before = self.count(&parsed, 0, &mut export);
        self.details.clear();
        self.processes.clear();
        Some(before)
    }

    /// Counts a packet later: with the packets after it, or at the next [`Meter::flush`]. The records are those of
    /// [`Meter::packet`].
    ///
    /// With many flows, a packet waits for three cache lines from memory. Those of a batch are loaded together.
    #[inline]
    pub fn push(&mut self, packet: &MeteredPacket<'_>, mut export: impl FnMut(&Flow)) {
        match self.parse(packet) {
            Some(parsed) => {
                self.batch.push(parsed);
                if self.batch.len() >= BATCH_PACKETS {
                    self.flush(&mut export);
                }
            }
            None if packet.time <= MAX_TIME => {
                self.flush(&mut export);
                self.follow_clock(packet.time, &mut export);
            }
            None => {}
        }
    }

    /// Counts the packets that [`Meter::push`] was given.
    #[inline]
    pub fn flush(&mut self, mut export: impl FnMut(&Flow)) {
        if !self.batch.is_empty() {
            self.count_batch(&mut export);
        }
    }

    fn count_batch(&mut self, export: &mut impl FnMut(&Flow)) {
        let mut batch = std::mem::take(&mut self.batch);
        // No load depends on another one, so the processor overlaps them.
        let slots = batch.iter().fold(0, |all, one| all ^ self.table.load_slot(one.hash));
        let entries = batch.iter().fold(0, |all, one| all ^ self.table.load_entry(one.hash));
        std::hint::black_box(slots ^ entries);
        for (at, parsed) in batch.drain(..).enumerate() {
            self.follow_clock(parsed.time, export);
            self.count(&parsed, at, export);
        }
        self.details.clear();
        self.processes.clear();
        self.batch = batch;
    }

    /// Parses what the meter needs of a packet. `None` if it belongs to no flow; that is counted.
    #[inline]
    fn parse(&mut self, packet: &MeteredPacket<'_>) -> Option<Parsed> {
        let MeteredPacket { frame, wire_len, linktype, interface, time, byte_range, processes } =
            *packet;
        if time > MAX_TIME {
            self.statistics.time_range += 1;
            return None;
        }
        let fragments = &mut self.fragments;
        let details = self.groups.need_packets().then_some(&mut self.details);
        let parsed = Packet::parse(frame, wire_len, linktype, interface, time, fragments, details);
        let statistics = &mut self.statistics;
        let packet = match parsed {
            Ok(packet) => packet,
            Err(why) => {
                *match why {
                    Unmetered::NotIp => &mut statistics.not_ip,
                    Unmetered::Malformed => &mut statistics.malformed,
                    Unmetered::LinkType => &mut statistics.link_type,
                } += 1;
                return None;
            }
        };
        if self.groups.contains(Group::Process) {
            self.processes.push(processes.cloned());
        }
        statistics.packets += 1;
        statistics.octets += u64::from(packet.octets);
        statistics.without_ports += u64::from(packet.without_ports);
        Some(Parsed { hash: self.table.hash(&packet.key), packet, time, byte_range })
    }

    /// Counts a packet for its flow; its details are `at` this place. Returns the octets before it.
    #[inline]
    fn count(&mut self, parsed: &Parsed, at: usize, export: &mut impl FnMut(&Flow)) -> u64 {
        let Parsed { packet, hash, time, byte_range } = parsed;
        let found = self.table.find(*hash, &packet.key);
        let number = match found.filter(|number| self.goes_on(*number, packet, *time, export)) {
            Some(number) => number,
            None => {
                if self.table.is_full() {
                    self.make_room(*time, export);
                }
                let initiator_was_a = self.table.initiator_was_a(*hash, *time);
                self.table.insert(*hash, Entry::begin(packet, initiator_was_a))
            }
        };
        let entry = self.table.entry_mut(number);
        let before = entry.octets();
        entry.count(packet, *time, *byte_range);
        if self.groups.need_packets() {
            let is_first = entry.is_first(packet.from_a);
            let details = self.table.details_mut(number).expect("the table was made with them");
            details.count(packet, &self.details[at], *time, is_first);
        }
        if let Some(processes) = self.processes.get_mut(at).and_then(Option::take) {
            self.table.set_processes(number, processes, packet.from_a);
        }
        before
    }

    /// Whether a packet belongs to this flow. If the flow has ended before it, the entry is removed; if a record is
    /// due, its counts start again at 0.
    #[inline]
    fn goes_on(
        &mut self,
        number: u32,
        packet: &Packet,
        time: u64,
        export: &mut impl FnMut(&Flow),
    ) -> bool {
        if !self.expire(number, time, export) {
            return false;
        }
        let entry = self.table.entry(number);
        if entry.is_closed() && packet.flags.contains(tcp::Flags::SYN) {
            self.end(number, EndReason::EndOfFlow, export);
            self.table.remove(number);
            return false;
        }
        if entry.is_exhausted() {
            self.end(number, EndReason::ActiveTimeout, export);
            self.table.restart(number);
        } else if entry.first.saturating_sub(time) > self.idle_timeout {
            // The clock was set back, and a record has one clock.
            self.end(number, EndReason::ForcedEnd, export);
            self.table.restart(number);
        }
        true
    }

    /// Counts the packets that [`Meter::push`] was given, advances the clock to `time`, and exports flows that have
    /// ended by then.
    pub fn advance(&mut self, time: u64, mut export: impl FnMut(&Flow)) {
        self.flush(&mut export);
        self.advance_clock(time, &mut export);
    }

    #[inline]
    fn advance_clock(&mut self, time: u64, export: &mut impl FnMut(&Flow)) {
        self.now = self.now.max(time);
        if self.now >= self.sweep_due {
            self.sweep(export);
        }
    }

    /// Advances the clock to the time of a packet, or sets it back.
    #[inline]
    fn follow_clock(&mut self, time: u64, export: &mut impl FnMut(&Flow)) {
        if self.now.saturating_sub(time) > self.idle_timeout {
            self.fall_back(time, export);
        } else {
            self.set_back = None;
            self.advance_clock(time, export);
        }
    }

    #[cold]
    fn fall_back(&mut self, time: u64, export: &mut impl FnMut(&Flow)) {
        let since = *self.set_back.get_or_insert(time);
        if time.saturating_sub(since) < MIN_SET_BACK_TIME {
            return;
        }
        (self.now, self.sweep_due, self.set_back) = (time, time, None);
        // Flows without a packet since then would stay until the clock is where it was.
        for number in 0..self.table.high_water() {
            let entry = self.table.entry(number);
            if entry.is_used() && entry.last.saturating_sub(time) > self.idle_timeout {
                self.end(number, EndReason::ForcedEnd, export);
                self.table.remove(number);
            }
        }
    }

    #[cold]
    fn sweep(&mut self, export: &mut impl FnMut(&Flow)) {
        const STEP: u64 = SWEEP_TIME / SWEEP_STEPS;
        let due = (self.now - self.sweep_due) / STEP + 1;
        self.sweep_due = self.sweep_due.saturating_add(due.saturating_mul(STEP));
        let steps = due.min(SWEEP_STEPS);
        let high_water = u64::from(self.table.high_water());
        for _ in 0..(high_water * steps).div_ceil(SWEEP_STEPS) {
            if self.cursor >= self.table.high_water() {
                self.cursor = 0;
            }
            let entry = self.table.entry(self.cursor);
            if entry.is_used() && self.is_due(entry) {
                self.expire(self.cursor, self.now, export);
            }
            self.cursor += 1;
        }
    }

    /// Whether the sweep exports or removes this entry now.
    fn is_due(&self, entry: &Entry) -> bool {
        let (ends, record) = self.times(entry);
        if !entry.has_packets() {
            return ends <= self.now;
        }
        let due = ends.min(record);
        let is_paused = || self.is_congested.as_ref().is_some_and(|is_congested| is_congested());
        let is_urgent = || self.now - due >= MAX_SWEEP_PAUSE || self.table.is_nearly_full();
        due <= self.now && (!is_paused() || is_urgent())
    }

    /// When a flow ends if no packet comes, and when the active timeout of its record passes.
    #[inline]
    fn times(&self, entry: &Entry) -> (u64, u64) {
        let idle = if entry.is_closed() {
            self.idle_timeout.min(CLOSED_TIMEOUT)
        } else {
            self.idle_timeout
        };
        (entry.last.saturating_add(idle), entry.first.saturating_add(self.active_timeout))
    }

    /// Exports what is due by `time`; false if the flow has ended, and its entry was removed.
    ///
    /// Of two timeouts that have passed, the one that passed first is the reason: so the reason does not depend on
    /// when somebody looks.
    #[inline]
    fn expire(&mut self, number: u32, time: u64, export: &mut impl FnMut(&Flow)) -> bool {
        let entry = self.table.entry(number);
        let closed = entry.is_closed();
        let (ends, due) = self.times(entry);
        let ended = time >= ends;
        if entry.has_packets() {
            if time >= due && due < ends {
                self.end(number, EndReason::ActiveTimeout, export);
                self.table.restart(number);
            } else if ended {
                let reason = if closed { EndReason::EndOfFlow } else { EndReason::IdleTimeout };
                self.end(number, reason, export);
            }
        }
        if ended {
            self.table.remove(number);
        }
        !ended
    }

    /// Removes one flow: the least recently active of the next few in the table. Unless it has ended, it ends early.
    #[cold]
    fn make_room(&mut self, time: u64, export: &mut impl FnMut(&Flow)) {
        const CANDIDATES: u32 = 8;
        let full = self.table.high_water();
        let candidates = (0..CANDIDATES.min(full)).map(|step| (self.cursor + step) % full);
        let oldest = candidates.min_by_key(|number| self.table.entry(*number).last);
        let oldest = oldest.expect("a full table has entries");
        self.cursor = (self.cursor + CANDIDATES) % full;
        if !self.expire(oldest, time, export) {
            return;
        }
        if self.table.entry(oldest).has_packets() {
            self.end(oldest, EndReason::LackOfResources, export);
            self.statistics.overflow += 1;
        }
        self.table.remove(oldest);
    }

    fn end(&mut self, number: u32, reason: EndReason, export: &mut impl FnMut(&Flow)) {
        let entry = self.table.entry(number);
        if entry.has_packets() {
            self.statistics.exported += 1;
            export(&entry.flow(reason, self.table.optional_fields(number)));
        }
    }

    /// Ends all flows.
    pub fn finish(&mut self, mut export: impl FnMut(&Flow)) {
        self.flush(&mut export);
        for number in 0..self.table.high_water() {
            if self.table.entry(number).is_used() && self.expire(number, self.now, &mut export) {
                self.end(number, EndReason::ForcedEnd, &mut export);
                self.table.remove(number);
            }
        }
    }
}
