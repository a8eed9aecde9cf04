//! [`Ageing`]: ends sessions without packets, and frees the slots of those that ended.
//!
//! The clock algorithm, with a reference bit for each session. The fast path sets the bit. A pass over the table
//! clears it and notes the time, and ends a session whose bit has been clear for longer than the idle timeout of its
//! protocol. A pass reads the cache lines of a slot, in the order of memory: one of a free slot, and one more of a
//! session. It writes only where the bit was set.
//! A pass is spread over its period in ticks, and a tick stops when it has used its share of a core.
//! In a table that is too large for that, passes take longer, and idle sessions stay for as much longer.
//!
//! The pass also adds up what sessions have counted since the last one, by their datapath: a session that changes
//! its datapath keeps what it counted under the former one.
//!
//! A slot is freed a grace period after its session ended, if nothing has happened to it since ([`crate::table`]). With
//! flow records, its last one must be in a complete file, too (`crate::table::flows`). So no session is ended for
//! another that had its slot, and no count is lost. A pass also finds the hops that no session has any more
//! (`crate::table::hops`).

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_bpf::rcu::RcuSynchronizer;
use linerate_flow::EndReason;
use serde::Serialize;

use crate::Result;
use crate::config::{Config, Lifetime};
use crate::datapath::Datapath;
use crate::maps::Maps;
use crate::table::clock::Clock;
use crate::table::flows::{SessionMeter, SessionMeterStatistics};
use crate::table::hops::HopUse;
use crate::table::layout::GENERATION_CLOSED;
use crate::table::mapped::{SlotVersion, Table};
use crate::table::session::LastUse;
use crate::tuple::Protocol;

/// The interval in which [`Ageing::tick`] must be called.
pub const TICK_INTERVAL: Duration = Duration::from_millis(250);
/// The longest time that a pass is spread over.
const MAX_PERIOD: Duration = Duration::from_secs(10);
/// Share of one core that a tick may take, per mille. The documented bound is 2%; the rest is for what the
/// time checks between stretches miss.
const CORE_SHARE_PER_MILLE: u32 = 15;
/// Slots between two checks of the time: some tens of microseconds.
const STRETCH: usize = 4096;
/// How long a slot must be locked in one version before its writer counts as dead. A program holds the
/// lock for a microsecond, and cannot be stopped while it does.
pub const DEAD_WRITER_TIMEOUT: Duration = Duration::from_secs(2);

/// How long sessions may be idle, and how old they may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Idle timeout of TCP.
    pub tcp: Duration,
    /// Idle timeout of UDP.
    pub udp: Duration,
    /// Maximum age, from when a session was first learned.
    pub lifetime: Lifetime,
}

impl Default for Limits {
    fn default() -> Self {
        Self::from(&Config::default())
    }
}

impl From<&Config> for Limits {
    fn from(config: &Config) -> Self {
        Self { tcp: config.tcp_idle, udp: config.udp_idle, lifetime: config.lifetime }
    }
}

impl Limits {
    /// Idle timeout of this protocol.
    #[inline]
    pub fn of(&self, protocol: Protocol) -> Duration {
        match protocol {
            Protocol::Tcp => self.tcp,
            Protocol::Udp => self.udp,
        }
    }

    /// Whether a session of this age is too old.
    #[inline]
    pub fn exceeds_lifetime(&self, age: impl FnOnce() -> Duration) -> bool {
        match self.lifetime {
            Lifetime::Off => false,
            Lifetime::For(lifetime) => age() > lifetime,
        }
    }

    /// The time that a pass is spread over: idleness and age are detected at most this much too late.
    pub fn period(&self) -> Duration {
        let mut shortest = self.tcp.min(self.udp);
        if let Lifetime::For(lifetime) = self.lifetime {
            shortest = shortest.min(lifetime);
        }
        (shortest / 4).clamp(2 * TICK_INTERVAL, MAX_PERIOD)
    }
}

/// The sessions of one datapath and their packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DatapathStatistics {
    /// Sessions that have not ended.
    pub sessions: u64,
    /// Packets that sessions counted while they had this datapath.
    pub packets: u64,
}

/// Counts of ageing since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Sessions ended because they were idle.
    pub idle: u64,
    /// Sessions ended because of their age.
    pub expired: u64,
    /// Slots freed after their session ended, for any reason.
    pub freed: u64,
    /// Slots freed whose writer had died.
    pub abandoned: u64,
    /// Packets that the sessions of freed slots had counted.
    pub packets: u64,
    /// Bytes of those packets.
    pub bytes: u64,
    /// Complete passes over the table.
    pub passes: u64,
    /// Sessions that had not ended, in the last complete pass.
    pub active: u64,
    /// The same by datapath, with the packets that sessions have counted so far.
    pub datapaths: [(Datapath, DatapathStatistics); 2],
    /// How long the last complete pass took, from its first tick to its last.
    pub pass_time: Duration,
    /// Time spent on passes, without the wait for grace periods.
    pub busy_time: Duration,
}

impl Default for Statistics {
    fn default() -> Self {
        let datapaths =
            [Datapath::Xdp, Datapath::Tc].map(|datapath| (datapath, DatapathStatistics::default()));
        Self {
            idle: 0,
            expired: 0,
            freed: 0,
            abandoned: 0,
            packets: 0,
            bytes: 0,
            passes: 0,
            active: 0,
            datapaths,
            pass_time: Duration::ZERO,
            busy_time: Duration::ZERO,
        }
    }
}

/// Learns of slots that are freed.
pub(crate) trait FreeListener: std::fmt::Debug + Send {
    /// This slot was freed: its session is gone.
    fn freed(&self, slot: usize);
}

/// Gives the connections of sessions the timeouts that they would have if conntrack had seen all packets.
pub(crate) trait Timeouts: std::fmt::Debug + Send {
    /// The session of this slot had its last packet this long ago, or less. Another that has `ended` is freed next.
    fn refresh(&mut self, slot: usize, idle: Duration, ended: bool);
    /// Does what was asked for.
    fn flush(&mut self);
}

/// Ages a table. A table must have exactly one ager; any number of others may read it.
#[derive(Debug)]
pub struct Ageing {
    table: Arc<Table>,
    grace: RcuSynchronizer,
    limits: Limits,
    clock: Clock,
    /// The next slot to look at.
    cursor: usize,
    /// Slots of sessions that were found ended since the last tick.
    to_free: Vec<(usize, SlotVersion, EndReason)>,
    meter: Option<SessionMeter>,
    /// Who must know of freed slots, if there is no meter.
    free_listener: Option<Box<dyn FreeListener>>,
    timeouts: Option<Box<dyn Timeouts>>,
    hops: HopUse,
    /// Slots found locked, with the version and the time when first found.
    locked: HashMap<usize, (u32, Instant)>,
    ticked: Instant,
    pass_started: Instant,
    /// When the last pass and this one began, as sessions note it.
    pass_times: [u64; 2],
    /// Sessions found so far in this pass, by datapath.
    found: [u64; 2],
    /// The counts of the session of each slot in the last pass.
    counted: Vec<u64>,
    statistics: Statistics,
}

impl Ageing {
    /// An ager of `table`, which belongs to the programs with `maps`.
    ///
    /// # Errors
    /// [`crate::Error::Bpf`].
    pub fn new(table: Arc<Table>, maps: &Maps, limits: Limits, clock: Clock) -> Result<Self> {
        // Any array works.
        let grace = RcuSynchronizer::new(maps.get("table")?.as_fd())?;
        let now = Instant::now();
        let counted = vec![0; table.slots()];
        Ok(Self {
            hops: HopUse::new(table.hops()),
            table,
            grace,
            limits,
            clock,
            cursor: 0,
            to_free: Vec::new(),
            meter: None,
            free_listener: None,
            timeouts: None,
            locked: HashMap::new(),
            ticked: now,
            pass_started: now,
            pass_times: [0, clock.sixteenths()],
            found: [0; 2],
            counted,
            statistics: Statistics::default(),
        })
    }

    /// Leaves out what sessions have counted until now: the previous daemon has reported it.
    pub fn skip_counted(&mut self) {
        for (index, counted) in self.counted.iter_mut().enumerate() {
            let slot = self.table.slot(index);
            if slot.peek().is_some() {
                *counted = slot.counters().packets;
            }
        }
    }

    /// Makes flow records from now on.
    pub fn set_meter(&mut self, meter: SessionMeter) {
        self.meter = Some(meter);
    }

    /// Tells `listener` of each slot that is freed from now on.
    pub(crate) fn set_free_listener(&mut self, listener: Box<dyn FreeListener>) {
        self.free_listener = Some(listener);
    }

    /// Keeps the timeouts of connections right from now on.
    pub(crate) fn set_timeouts(&mut self, timeouts: Box<dyn Timeouts>) {
        self.timeouts = Some(timeouts);
    }

    /// The counts of flow records, if there is a meter.
    pub fn meter_statistics(&self) -> Option<SessionMeterStatistics> {
        self.meter.as_ref().map(SessionMeter::statistics)
    }

    /// Ends the meter, with a last record of `all` sessions if nothing forwards any more. While the queue is full,
    /// `is_room` waits and says whether to try again.
    pub fn finish_meter(
        &mut self,
        all: bool,
        mut is_room: impl FnMut() -> bool,
    ) -> Option<SessionMeterStatistics> {
        let mut meter = self.meter.take()?;
        let slots = if all { self.table.slots() } else { 0 };
        for index in 0..slots {
            let slot = self.table.slot(index);
            while slot.peek().is_some() && !meter.finish(index, slot) && is_room() {}
        }
        while !meter.flush(false) && is_room() {}
        Some(meter.statistics())
    }

    /// The counts so far.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Changes the limits.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Does the work that is due since the last call; call it every [`TICK_INTERVAL`]. Sleeps for a grace period, some
    /// tens of milliseconds, if slots can be freed.
    ///
    /// # Errors
    /// [`crate::Error::Bpf`] when the kernel refuses the grace period; slots to free stay so.
    pub fn tick(&mut self) -> Result<()> {
        if let Some(meter) = &mut self.meter {
            meter.flush(false);
        }
        let now = Instant::now();
        let passed = now.saturating_duration_since(self.ticked).min(MAX_PERIOD);
        self.ticked = now;
        self.free()?;
        let due = passed.as_secs_f64() / self.limits.period().as_secs_f64();
        let due = (self.table.slots() as f64 * due).ceil() as usize;
        self.visit(due.min(self.table.slots()), Some(passed * CORE_SHARE_PER_MILLE / 1000))
    }

    /// Visits every slot once and frees ended sessions, without a time limit: for tests and measurements.
    ///
    /// # Errors
    /// As [`Ageing::tick`].
    pub fn pass(&mut self) -> Result<()> {
        self.cursor = 0;
        (self.found, self.pass_started) = ([0; 2], Instant::now());
        self.visit(self.table.slots(), None)?;
        self.free()
    }

    /// Visits the next `count` slots, or as many as the budget allows.
    fn visit(&mut self, count: usize, budget: Option<Duration>) -> Result<()> {
        let started = Instant::now();
        let now = self.clock.sixteenths();
        let slots = self.table.slots();
        let mut left = count;
        while left > 0 {
            let stretch = left.min(STRETCH).min(slots - self.cursor);
            self.stretch(self.cursor..self.cursor + stretch, now);
            self.cursor += stretch;
            left -= stretch;
            if let Some(timeouts) = &mut self.timeouts {
                timeouts.flush();
            }
            if self.cursor == slots && self.end_pass() {
                // The next pass begins with the next tick, after the grace period of the hops.
                self.statistics.busy_time += started.elapsed();
                return Ok(self.grace.wait()?);
            }
            if budget.is_some_and(|budget| started.elapsed() >= budget) {
                break;
            }
        }
        self.statistics.busy_time += started.elapsed();
        Ok(())
    }

    #[inline]
    fn stretch(&mut self, slots: std::ops::Range<usize>, now: u64) {
        // A separate reference, because `self` changes in the loop.
        let table = Arc::clone(&self.table);
        for index in slots {
            let slot = table.slot(index);
            let Some((protocol, stamp)) = slot.peek() else {
                // Free, or a learner is claiming it.
                if slot.version_now() % 2 == 1 {
                    self.note_locked(index, slot.version_now());
                }
                continue;
            };
            self.hops.note(slot.hop());
            self.hops.note_nat_addresses(slot.nat_addresses());
            if stamp.version % 2 == 1 {
                self.note_locked(index, stamp.version);
                continue;
            }
            if stamp.is_ended() {
                let closed = stamp.generation & GENERATION_CLOSED != 0;
                let reason = if closed { EndReason::EndOfFlow } else { EndReason::ForcedEnd };
                self.to_free.push((index, stamp, reason));
                continue;
            }
            if let Some(meter) = &mut self.meter {
                meter.visit(index, slot);
            }
            self.found[self.count(index, slot.datapath(), slot.counters().packets)] += 1;
            let is_over = self.limits.exceeds_lifetime(|| self.clock.since(slot.created()));
            if is_over && let Some(stamp) = slot.end(stamp) {
                self.statistics.expired += 1;
                self.to_free.push((index, stamp, EndReason::ForcedEnd));
            } else if slot.is_referenced() {
                slot.clear_referenced(now);
            } else {
                let idle = slot.last_use().idle(now);
                if idle > self.limits.of(protocol)
                    && let Some(stamp) = slot.end(stamp)
                {
                    self.statistics.idle += 1;
                    self.to_free.push((index, stamp, EndReason::IdleTimeout));
                } else if idle <= LastUse::UNIT * now.saturating_sub(self.pass_times[0]) as u32 {
                    // The last pass found it referenced.
                    self.refresh(index, idle, false);
                }
            }
        }
    }

    /// Gives the connection of a session its timeout.
    fn refresh(&mut self, index: usize, idle: Duration, ended: bool) {
        if let Some(timeouts) = &mut self.timeouts
            && self.table.slot(index).is_tracked()
        {
            timeouts.refresh(index, idle, ended);
        }
    }

    /// Adds what the session of this slot has counted since the last pass. Returns the index of its datapath.
    #[inline]
    fn count(&mut self, index: usize, datapath: Datapath, packets: u64) -> usize {
        let counted = &mut self.counted[index];
        let at = usize::from(datapath == Datapath::Tc);
        if packets != *counted {
            self.statistics.datapaths[at].1.packets += packets.wrapping_sub(*counted);
            *counted = packets;
        }
        at
    }

    /// Whether a grace period must pass before the next pass begins.
    fn end_pass(&mut self) -> bool {
        let now = Instant::now();
        if let Some(meter) = &mut self.meter {
            meter.flush(true);
        }
        self.statistics.passes += 1;
        self.statistics.active = self.found.iter().sum();
        for ((_, datapath), found) in self.statistics.datapaths.iter_mut().zip(self.found) {
            datapath.sessions = found;
        }
        self.statistics.pass_time = now.saturating_duration_since(self.pass_started);
        (self.cursor, self.found, self.pass_started) = (0, [0; 2], now);
        self.pass_times = [self.pass_times[1], self.clock.sixteenths()];
        // Forget slots that are no longer locked.
        let table = &self.table;
        self.locked.retain(|index, (version, _)| table.slot(*index).version_now() == *version);
        self.hops.end_pass(table.hops())
    }

    fn note_locked(&mut self, index: usize, version: u32) {
        let now = Instant::now();
        let (known, since) = self.locked.entry(index).or_insert((version, now));
        if *known != version {
            (*known, *since) = (version, now);
        } else if now.saturating_duration_since(*since) >= DEAD_WRITER_TIMEOUT {
            self.locked.remove(&index);
            if self.table.slot(index).free_abandoned(version) {
                self.forget(index);
                self.statistics.abandoned += 1;
            }
        }
    }

    /// Forgets the session of a slot that is free now.
    fn forget(&mut self, index: usize) {
        self.counted[index] = 0;
        if let Some(meter) = &mut self.meter {
            meter.forget(index);
        }
        if let Some(listener) = &self.free_listener {
            listener.freed(index);
        }
    }

    /// Frees the slots of ended sessions, once no program runs that may still count for them.
    fn free(&mut self) -> Result<()> {
        if self.to_free.is_empty() {
            return Ok(());
        }
        self.grace.wait()?;
        let started = Instant::now();
        let now = self.clock.sixteenths();
        for at in 0..self.to_free.len() {
            let (index, ..) = self.to_free[at];
            self.refresh(index, self.table.slot(index).last_use().idle(now), true);
        }
        if let Some(timeouts) = &mut self.timeouts {
            timeouts.flush();
        }
        for (index, stamp, reason) in std::mem::take(&mut self.to_free) {
            let slot = self.table.slot(index);
            let datapath = slot.datapath();
            if let Some(meter) = &mut self.meter
                && slot.peek().is_some_and(|(_, now)| now == stamp)
                && !meter.end(index, slot, reason)
            {
                continue;
            }
            if let Some(total) = slot.free(stamp) {
                self.count(index, datapath, total.packets);
                self.forget(index);
                self.statistics.freed += 1;
                self.statistics.packets = self.statistics.packets.wrapping_add(total.packets);
                self.statistics.bytes = self.statistics.bytes.wrapping_add(total.bytes);
            }
        }
        self.statistics.busy_time += started.elapsed();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
