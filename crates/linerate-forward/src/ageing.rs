//! [`Ageing`]: takes sessions without packets out of the table, and frees the places of those that ended.
//!
//! The clock algorithm, with a reference bit for each session: the fast path sets it, a pass over the table
//! clears it and notes when, and a session whose bit has been clear for longer than its protocol may idle
//! is ended. A pass reads one cache line of a place, in the order of memory, and writes only where the bit
//! was set. Where sessions may have an age only, the time when each was made is looked at too, one more cache
//! line. It is spread over its period in ticks, and a tick stops when it has had its share of a core:
//! passes over a table too large for that take longer, and idle sessions stay for as much longer.
//!
//! A place is freed a grace period after its session ended, and only if nothing has happened to it
//! since ([`crate::table`]), so no session is ended for another that had its place, and no count is lost.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linerate_bpf::rcu::RcuBarrier;

use crate::Result;
use crate::clock::Clock;
use crate::config::{Config, Lifetime};
use crate::program::Maps;
use crate::table::{Mark, Table};
use crate::tuple::Protocol;

/// How often [`Ageing::tick`] wants to be called.
pub const TICK: Duration = Duration::from_millis(250);
/// The longest that a pass is spread over.
const LONGEST_PERIOD: Duration = Duration::from_secs(10);
/// Share of one core that a tick may take, in thousands: room below the two hundredths that are promised,
/// for what looking at the time between does not see.
const SHARE: u32 = 15;
/// Places between two looks at the time: some tens of microseconds.
const STRETCH: usize = 4096;
/// How long a place is to be locked in one version before its writer counts as dead. A program holds the
/// lock for a microsecond, and cannot be stopped while it does.
pub(crate) const DEAD_AFTER: Duration = Duration::from_secs(2);

/// For how long sessions may have no packet, and how old they may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Those of TCP.
    pub tcp: Duration,
    /// Those of UDP.
    pub udp: Duration,
    /// All of them, from when they were first learned.
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
    /// For how long this protocol's may.
    #[inline]
    pub fn of(&self, protocol: Protocol) -> Duration {
        match protocol {
            Protocol::Tcp => self.tcp,
            Protocol::Udp => self.udp,
        }
    }

    /// Whether a session of this age is too old.
    #[inline]
    pub(crate) fn is_over(&self, age: impl FnOnce() -> Duration) -> bool {
        match self.lifetime {
            Lifetime::Off => false,
            Lifetime::For(lifetime) => age() > lifetime,
        }
    }

    /// How long a pass is spread over: idleness and age are noticed so much late at most.
    pub(crate) fn period(&self) -> Duration {
        let mut shortest = self.tcp.min(self.udp);
        if let Lifetime::For(lifetime) = self.lifetime {
            shortest = shortest.min(lifetime);
        }
        (shortest / 4).clamp(2 * TICK, LONGEST_PERIOD)
    }
}

/// What ageing has done, from when it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aged {
    /// Sessions ended here because they were idle.
    pub idle: u64,
    /// Sessions ended here because of their age.
    pub expired: u64,
    /// Places freed of sessions that had ended, for whatever reason.
    pub freed: u64,
    /// Places freed that a writer had died over.
    pub abandoned: u64,
    /// Packets that the sessions of freed places had counted.
    pub packets: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Whole passes over the table.
    pub passes: u64,
    /// Sessions that had not ended, found in the last whole pass.
    pub held: u64,
    /// How long the last whole pass took, from its first tick to its last.
    pub pass: Duration,
    /// Time spent looking, a wait for programs to end not counted.
    pub spent: Duration,
}

/// Looks after a table. There must be one for a table, whoever else reads it.
#[derive(Debug)]
pub struct Ageing {
    table: Arc<Table>,
    grace: RcuBarrier,
    limits: Limits,
    clock: Clock,
    /// The next place to look at.
    cursor: usize,
    /// Sessions that were found ended since the last tick.
    condemned: Vec<(usize, Mark)>,
    /// Places found locked, the version, and when first.
    locked: HashMap<usize, (u32, Instant)>,
    ticked: Instant,
    pass_began: Instant,
    /// Sessions found so far in this pass.
    found: u64,
    aged: Aged,
}

impl Ageing {
    /// Ageing of `table`, which the programs with `maps` forward by.
    ///
    /// # Errors
    /// [`crate::Error::Ring`].
    pub fn new(table: Arc<Table>, maps: &Maps, limits: Limits, clock: Clock) -> Result<Self> {
        // Any array would do.
        let grace = RcuBarrier::new(maps.get("table")?.as_fd())?;
        let now = Instant::now();
        Ok(Self {
            table,
            grace,
            limits,
            clock,
            cursor: 0,
            condemned: Vec::new(),
            locked: HashMap::new(),
            ticked: now,
            pass_began: now,
            found: 0,
            aged: Aged::default(),
        })
    }

    /// What was done so far.
    pub fn aged(&self) -> Aged {
        self.aged
    }

    /// Other limits from now on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Does what has come due since the last call; to be called every [`TICK`]. Waits for running programs,
    /// some tens of milliseconds asleep, where places can be freed.
    ///
    /// # Errors
    /// [`crate::Error::Ring`] where the kernel cannot wait; what was condemned stays so.
    pub fn tick(&mut self) -> Result<()> {
        let now = Instant::now();
        let passed = now.saturating_duration_since(self.ticked).min(LONGEST_PERIOD);
        self.ticked = now;
        self.free()?;
        let due = passed.as_secs_f64() / self.limits.period().as_secs_f64();
        let due = (self.table.places() as f64 * due).ceil() as usize;
        self.look(due.min(self.table.places()), Some(passed * SHARE / 1000));
        Ok(())
    }

    /// Looks at every place once and frees what has ended, however long that takes: for tests, and for who
    /// is in a hurry.
    ///
    /// # Errors
    /// As [`Ageing::tick`].
    pub fn pass(&mut self) -> Result<()> {
        self.cursor = 0;
        (self.found, self.pass_began) = (0, Instant::now());
        self.look(self.table.places(), None);
        self.free()
    }

    /// Looks at the next `count` places, or as far as the time goes.
    fn look(&mut self, count: usize, budget: Option<Duration>) {
        let began = Instant::now();
        let seconds = self.clock.seconds();
        let places = self.table.places();
        let mut left = count;
        while left > 0 {
            let stretch = left.min(STRETCH).min(places - self.cursor);
            self.stretch(self.cursor..self.cursor + stretch, seconds);
            self.cursor += stretch;
            left -= stretch;
            if self.cursor == places {
                self.end_pass();
            }
            if budget.is_some_and(|budget| began.elapsed() >= budget) {
                break;
            }
        }
        self.aged.spent += began.elapsed();
    }

    #[inline]
    fn stretch(&mut self, places: std::ops::Range<usize>, seconds: u64) {
        // A handle of its own: the borrow is not of `self`, which notes what is found.
        let table = Arc::clone(&self.table);
        for index in places {
            let place = table.place(index);
            let Some((protocol, mark)) = place.look() else {
                // Free, and so it stays, or somebody is just moving in.
                if place.version_now() % 2 == 1 {
                    self.note_locked(index, place.version_now());
                }
                continue;
            };
            if mark.version % 2 == 1 {
                self.note_locked(index, mark.version);
                continue;
            }
            if mark.is_ended() {
                self.condemned.push((index, mark));
                continue;
            }
            self.found += 1;
            let seen = place.seen();
            let is_over = self.limits.is_over(|| self.clock.since(place.created()));
            if is_over && let Some(mark) = place.end(mark) {
                self.aged.expired += 1;
                self.condemned.push((index, mark));
            } else if seen.since {
                place.clear_seen(seconds);
            } else if seen.idle(seconds) > self.limits.of(protocol)
                && let Some(mark) = place.end(mark)
            {
                self.aged.idle += 1;
                self.condemned.push((index, mark));
            }
        }
    }

    fn end_pass(&mut self) {
        let now = Instant::now();
        self.aged.passes += 1;
        self.aged.held = self.found;
        self.aged.pass = now.saturating_duration_since(self.pass_began);
        (self.cursor, self.found, self.pass_began) = (0, 0, now);
        // What is not locked any more needs no memory.
        let table = &self.table;
        self.locked.retain(|index, (version, _)| table.place(*index).version_now() == *version);
    }

    fn note_locked(&mut self, index: usize, version: u32) {
        let now = Instant::now();
        let (known, since) = self.locked.entry(index).or_insert((version, now));
        if *known != version {
            (*known, *since) = (version, now);
        } else if now.saturating_duration_since(*since) >= DEAD_AFTER {
            self.locked.remove(&index);
            if self.table.place(index).free_of_the_dead(version) {
                self.aged.abandoned += 1;
            }
        }
    }

    /// Frees what was condemned before, once no program runs any more that may count for it.
    fn free(&mut self) -> Result<()> {
        if self.condemned.is_empty() {
            return Ok(());
        }
        self.grace.wait()?;
        let began = Instant::now();
        for (index, mark) in self.condemned.drain(..) {
            if let Some(total) = self.table.place(index).free(mark) {
                self.aged.freed += 1;
                self.aged.packets = self.aged.packets.wrapping_add(total.packets);
                self.aged.bytes = self.aged.bytes.wrapping_add(total.bytes);
            }
        }
        self.aged.spent += began.elapsed();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
