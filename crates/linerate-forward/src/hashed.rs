//! [`Hashed`]: sessions of the three designs of statistics that keep them in hash maps, listed and aged by batches
//! of system calls, for comparison with the table.
//!
//! User space cannot change a part of an entry, so ageing cannot clear a reference bit: it remembers what
//! every session had counted, and a session that counts no more is idle. Between the look and the deletion
//! a packet may come; its session is then deleted all the same and learned again, and what it had counted
//! is forgotten. The table ([`crate::table`]) has neither flaw.
//!
//! The kernel gives the memory of a deleted entry to the next one at once, whoever still looks at it. So a
//! session is deleted in two steps, as a place of the table is freed: the program `end` ends it and leaves it locked,
//! and it is deleted a grace period later, when nobody can have it in hand any more.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapHandle};
use linerate_bpf::map::batch;
use linerate_bpf::rcu::RcuBarrier;
use linerate_bpf::test_run;
use zerocopy::{FromBytes, IntoBytes};

use crate::ageing::{Aged, DEAD_AFTER, Limits};
use crate::clock::Clock;
use crate::config::Statistics;
use crate::layout::{End, GENERATION_ENDED, HashedSession, SessionKey, Stray};
use crate::memory;
use crate::program::Maps;
use crate::session::Record;
use crate::{Error, Result};

/// The hash map of sessions, that of their counters where they have one, and the program `end`.
#[derive(Debug)]
pub struct Hashed {
    sessions: MapHandle,
    counters: Option<MapHandle>,
    end: OwnedFd,
    /// Copies of each session: one for each CPU, or one.
    copies: u32,
}

/// What [`Hashed::end`] found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ended {
    /// It had not ended before.
    was_valid: bool,
    /// Somebody else has the lock of a copy.
    busy: bool,
}

impl Hashed {
    /// Those of programs with these maps that count by `statistics`; `end` is the program of that name.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the design keeps its sessions in the table; [`Error::System`].
    pub fn open(maps: &Maps, statistics: Statistics, end: OwnedFd) -> Result<Self> {
        let map = |name| {
            MapHandle::try_from(maps.get(name)?)
                .map_err(|error| Error::bpf(format!("use the map {name}"), &error))
        };
        let counters = match statistics {
            Statistics::None | Statistics::Slot => {
                return Err(Error::Invalid(format!(
                    "with statistics {statistics} sessions are in the table, not in a hash map"
                )));
            }
            Statistics::Shared | Statistics::PerCpu => None,
            Statistics::Split => Some(map("counters")?),
        };
        let copies = match statistics {
            Statistics::PerCpu => libbpf_rs::num_possible_cpus()
                .map_err(|error| Error::bpf("count the CPUs", &error))?
                as u32,
            _ => 1,
        };
        Ok(Self { sessions: map("hashed")?, counters, end, copies })
    }

    /// Sessions that there is room for.
    pub fn room(&self) -> u64 {
        self.sessions.max_entries().into()
    }

    /// Bytes of kernel memory that the maps take.
    pub fn bytes(&self) -> u64 {
        let maps = [Some(&self.sessions), self.counters.as_ref()];
        maps.into_iter().flatten().map(|map| memory::of_map(map.as_fd()).unwrap_or(0)).sum()
    }

    /// Ends the sessions that `accepts` says: the kernel has their next packets. How many there were.
    ///
    /// # Errors
    /// [`Error::Ring`].
    pub fn end(&self, mut accepts: impl FnMut(&Record) -> bool) -> Result<u64> {
        let mut keys = Vec::new();
        self.for_each(|record| {
            if !record.is_ended() && accepts(&record) {
                keys.push(plain(&record));
            }
        })?;
        let mut ended = 0;
        for key in keys {
            ended += u64::from(self.end_one(key, false)?.was_valid);
        }
        Ok(ended)
    }

    fn end_one(&self, key: SessionKey, retire: bool) -> Result<Ended> {
        let mut found = Ended::default();
        for cpu in 0..self.copies {
            let mut context = End { key, cpu, retire: retire.into(), ..End::default() };
            test_run::run_syscall(self.end.as_fd(), context.as_mut_bytes())?;
            found.was_valid |= context.ended != 0;
            found.busy |= context.busy != 0;
        }
        Ok(found)
    }

    /// Calls `each` with every session; places are running numbers.
    ///
    /// # Errors
    /// [`Error::Ring`].
    pub fn for_each(&self, mut each: impl FnMut(Record)) -> Result<()> {
        let counted = self.counted()?;
        let mut place = 0;
        batch::for_each(self.sessions.as_fd(), |key, value| {
            let Some(mut record) = record(value) else { return };
            if let Some(count) = counted.get(key) {
                record.stray = *count;
            }
            record.place = place;
            place += 1;
            each(record);
        })?;
        Ok(())
    }

    /// What is counted beside the sessions.
    fn counted(&self) -> Result<HashMap<Vec<u8>, Stray>> {
        let mut counted = HashMap::new();
        if let Some(counters) = &self.counters {
            batch::for_each(counters.as_fd(), |key, value| {
                let cells = value.chunks_exact(size_of::<Stray>());
                let cells = cells.filter_map(|cell| Stray::read_from_bytes(cell).ok());
                counted.insert(key.to_vec(), cells.reduce(sum).unwrap_or_default());
            })?;
        }
        Ok(counted)
    }
}

/// As the maps have it.
fn plain(record: &Record) -> SessionKey {
    SessionKey { generation: 0, ..record.session.key }
}

fn sum(a: Stray, b: Stray) -> Stray {
    let packets = a.packets.wrapping_add(b.packets);
    Stray { packets, bytes: a.bytes.wrapping_add(b.bytes) }
}

/// The session of an entry: of one value, or of one for each CPU, where it is what the CPU has that learned it
/// last, with the counts of all. One that has ended on some CPUs only has not ended.
fn record(value: &[u8]) -> Option<Record> {
    let values = value.chunks_exact(size_of::<HashedSession>());
    let values = values.filter_map(|value| HashedSession::read_from_bytes(value).ok());
    let mut values = values.filter(|value| value.session.key.kind != 0);
    let mut latest = values.next()?;
    for other in values {
        let is_ended = |one: &HashedSession| one.session.key.generation & GENERATION_ENDED != 0;
        let passed = other.session.learned.wrapping_sub(latest.session.learned);
        let is_later = match (is_ended(&latest), is_ended(&other)) {
            (before, now) if before == now => passed < 0x8000_0000,
            (before, _) => before,
        };
        let (mut one, rest) = if is_later { (other, latest) } else { (latest, other) };
        one.session.packets = one.session.packets.wrapping_add(rest.session.packets);
        one.session.bytes = one.session.bytes.wrapping_add(rest.session.bytes);
        latest = one;
    }
    let HashedSession { session, addresses } = latest;
    Some(Record { session, addresses, ..Record::default() })
}

/// Why a session goes.
#[derive(Clone, Copy, Debug)]
enum Why {
    Ended,
    Age,
    Idle,
}

/// Looks after sessions in hash maps; 72 bytes of memory for each.
#[derive(Debug)]
pub struct HashedAgeing {
    hashed: Arc<Hashed>,
    grace: RcuBarrier,
    limits: Limits,
    clock: Clock,
    /// Packets of each session at the last look, and the second when they were fewer.
    known: HashMap<SessionKey, (u64, u64)>,
    /// Those that were to be retired and were locked by somebody, and when first.
    locked: HashMap<SessionKey, Instant>,
    /// Keys of what was retired, to be deleted after a grace period.
    retired: Vec<u8>,
    looked: Option<Instant>,
    aged: Aged,
}

impl HashedAgeing {
    /// Ageing of `hashed`.
    ///
    /// # Errors
    /// [`Error::Ring`].
    pub fn new(hashed: Arc<Hashed>, maps: &Maps, limits: Limits, clock: Clock) -> Result<Self> {
        Ok(Self {
            hashed,
            grace: RcuBarrier::new(maps.get("table")?.as_fd())?,
            limits,
            clock,
            known: HashMap::new(),
            locked: HashMap::new(),
            retired: Vec::new(),
            looked: None,
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

    /// Deletes what was retired, and looks at all sessions if it is time to, as the ageing of a table would have.
    ///
    /// # Errors
    /// [`Error::Ring`].
    pub fn tick(&mut self) -> Result<()> {
        self.free()?;
        let now = Instant::now();
        let is_due = |last| now.saturating_duration_since(last) >= self.limits.period();
        if self.looked.is_none_or(is_due) {
            self.looked = Some(now);
            self.pass(self.clock.seconds())?;
        }
        Ok(())
    }

    fn pass(&mut self, seconds: u64) -> Result<()> {
        let began = Instant::now();
        let (mut known, mut doomed) = (HashMap::new(), Vec::new());
        let (before, limits, clock, aged) = (&self.known, self.limits, self.clock, &mut self.aged);
        self.hashed.for_each(|record| {
            let key = plain(&record);
            let packets = record.packets();
            let since = match before.get(&key) {
                Some((same, since)) if *same == packets => *since,
                _ => seconds,
            };
            let idle = Duration::from_secs(seconds.saturating_sub(since));
            let why = if record.is_ended() {
                Some(Why::Ended)
            } else if limits.is_over(|| clock.since(record.session.created)) {
                Some(Why::Age)
            } else {
                (idle > limits.of(record.protocol())).then_some(Why::Idle)
            };
            if let Some(why) = why {
                doomed.push((key, packets, record.bytes(), why));
            } else {
                known.insert(key, (packets, since));
            }
        })?;
        let mut locked = HashMap::new();
        for (key, packets, bytes, why) in doomed {
            let busy = self.hashed.end_one(key, true)?.busy;
            // A program has the lock for a microsecond. Whoever has it for long was retired, or is dead.
            let since = *self.locked.get(&key).unwrap_or(&began);
            if busy && began.saturating_duration_since(since) < DEAD_AFTER {
                locked.insert(key, since);
                continue;
            }
            match why {
                Why::Ended => {}
                Why::Age => aged.expired += 1,
                Why::Idle => aged.idle += 1,
            }
            aged.packets = aged.packets.wrapping_add(packets);
            aged.bytes = aged.bytes.wrapping_add(bytes);
            self.retired.extend_from_slice(key.as_bytes());
        }
        aged.held = known.len() as u64;
        (self.known, self.locked) = (known, locked);
        aged.passes += 1;
        aged.pass = began.elapsed();
        aged.spent += began.elapsed();
        Ok(())
    }

    /// Deletes what was retired, once no program runs any more that has found it.
    fn free(&mut self) -> Result<()> {
        if self.retired.is_empty() {
            return Ok(());
        }
        self.grace.wait()?;
        let began = Instant::now();
        let retired = std::mem::take(&mut self.retired);
        self.aged.freed += batch::delete(self.hashed.sessions.as_fd(), &retired)?;
        if let Some(counters) = &self.hashed.counters {
            batch::delete(counters.as_fd(), &retired)?;
        }
        self.aged.spent += began.elapsed();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::{MapCore, MapFlags};
    use linerate_testkit::root_or_skip;

    use super::*;
    use crate::program::{Options, Programs};
    use crate::table::tests::record;

    fn open(programs: &Programs, statistics: Statistics) -> Arc<Hashed> {
        let end = programs.share("end").unwrap();
        Arc::new(Hashed::open(&programs.maps, statistics, end).unwrap())
    }

    fn ageing(programs: &Programs, statistics: Statistics) -> HashedAgeing {
        let (hashed, clock) = (open(programs, statistics), Clock::estimated());
        HashedAgeing::new(hashed, &programs.maps, Limits::default(), clock).unwrap()
    }

    /// Puts a session into the maps as the learner would, with so many packets on the first CPU and as many
    /// on the second, where there is one for each.
    fn put(programs: &Programs, statistics: Statistics, number: u32, packets: u64) {
        let mut value = HashedSession { session: record(number).session, ..Default::default() };
        value.session.packets = if statistics == Statistics::Split { 0 } else { packets };
        let key = SessionKey { generation: 0, ..value.session.key };
        let map = programs.maps.get("hashed").unwrap();
        let cpus = libbpf_rs::num_possible_cpus().unwrap();
        if statistics == Statistics::PerCpu {
            let values = vec![value.as_bytes().to_vec(); cpus];
            map.update_percpu(key.as_bytes(), &values, MapFlags::ANY).unwrap();
        } else {
            map.update(key.as_bytes(), value.as_bytes(), MapFlags::ANY).unwrap();
        }
        if statistics == Statistics::Split {
            let cell = Stray { packets, bytes: 0 };
            let values = vec![cell.as_bytes().to_vec(); cpus];
            let counters = programs.maps.get("counters").unwrap();
            counters.update_percpu(key.as_bytes(), &values, MapFlags::ANY).unwrap();
        }
    }

    #[test]
    fn each_design_is_listed_and_aged() {
        root_or_skip!();
        let cpus = libbpf_rs::num_possible_cpus().unwrap() as u64;
        for statistics in [Statistics::Shared, Statistics::PerCpu, Statistics::Split] {
            let options = Options { max_sessions: 1024, statistics, ..Options::default() };
            let programs = Programs::load(&options).unwrap();
            let open = || open(&programs, statistics);
            for number in 1..=100 {
                put(&programs, statistics, number, u64::from(number));
            }
            let each = if statistics == Statistics::Shared { 1 } else { cpus };
            let (mut sessions, mut packets) = (0, 0);
            open()
                .for_each(|record| (sessions, packets) = (sessions + 1, packets + record.packets()))
                .unwrap();
            assert_eq!((sessions, packets), (100, 5050 * each), "{statistics}");

            let mut ageing = ageing(&programs, statistics);
            ageing.pass(1000).unwrap();
            assert_eq!((ageing.aged().held, ageing.aged().freed), (100, 0));
            // One goes on counting, the others do not.
            put(&programs, statistics, 1, 2);
            ageing.pass(1020).unwrap();
            ageing.pass(1035).unwrap();
            assert_eq!(ageing.aged().freed, 0, "before a grace period");
            ageing.free().unwrap();
            let aged = ageing.aged();
            assert_eq!((aged.held, aged.freed, aged.idle), (1, 99, 99), "{statistics}");
            assert_eq!(aged.packets, 5049 * each);
            let mut left = Vec::new();
            open().for_each(|record| left.push(record.session.out_ifindex)).unwrap();
            assert_eq!(left, [1]);
        }
    }

    #[test]
    fn an_ended_session_goes_at_once() {
        root_or_skip!();
        let statistics = Statistics::Shared;
        let options = Options { max_sessions: 1024, statistics, ..Options::default() };
        let programs = Programs::load(&options).unwrap();
        let mut value = HashedSession { session: record(5).session, ..Default::default() };
        value.session.key.generation = GENERATION_ENDED | 2;
        let key = SessionKey { generation: 0, ..value.session.key };
        let map = programs.maps.get("hashed").unwrap();
        map.update(key.as_bytes(), value.as_bytes(), MapFlags::ANY).unwrap();
        let mut ageing = ageing(&programs, statistics);
        ageing.tick().unwrap();
        ageing.tick().unwrap();
        assert_eq!((ageing.aged().freed, ageing.aged().idle, ageing.aged().passes), (1, 0, 1));
        let end = programs.share("end").unwrap();
        assert!(Hashed::open(&programs.maps, Statistics::Slot, end).is_err());
    }

    #[test]
    fn sessions_are_ended_one_by_one_and_locked_ones_go_when_their_writer_is_dead() {
        root_or_skip!();
        for statistics in [Statistics::Shared, Statistics::PerCpu, Statistics::Split] {
            let options = Options { max_sessions: 1024, statistics, ..Options::default() };
            let programs = Programs::load(&options).unwrap();
            let hashed = open(&programs, statistics);
            (1..=10).for_each(|number| put(&programs, statistics, number, 1));
            let odd = |record: &Record| record.session.out_ifindex % 2 == 1;
            assert_eq!(hashed.end(odd).unwrap(), 5, "{statistics}");
            assert_eq!(hashed.end(odd).unwrap(), 0, "{statistics}: a second time");
            let mut valid = Vec::new();
            let mut keep = |record: Record| {
                if !record.is_ended() {
                    valid.push(record.session.out_ifindex);
                }
            };
            hashed.for_each(&mut keep).unwrap();
            valid.sort_unstable();
            assert_eq!(valid, [2, 4, 6, 8, 10], "{statistics}");

            // What a cleaner before this one had retired is locked for ever.
            let mut lost = Vec::new();
            hashed.for_each(|record| lost.extend(odd(&record).then(|| plain(&record)))).unwrap();
            let ended = hashed.end_one(lost[0], true).unwrap();
            assert_eq!(ended, Ended::default(), "{statistics}");
            assert!(hashed.end_one(lost[0], true).unwrap().busy, "{statistics}");
            let mut ageing = ageing(&programs, statistics);
            ageing.pass(1000).unwrap();
            ageing.free().unwrap();
            assert_eq!((ageing.aged().held, ageing.aged().freed), (5, 4), "{statistics}");
            let since = ageing.locked.values_mut().next().unwrap();
            *since = since.checked_sub(DEAD_AFTER).unwrap();
            ageing.pass(1001).unwrap();
            ageing.free().unwrap();
            assert_eq!((ageing.aged().held, ageing.aged().freed), (5, 5), "{statistics}");
        }
    }
}
