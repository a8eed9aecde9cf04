//! [`Hashed`]: sessions in hash maps, listed and counted with batched map system calls.
//!
//! User space cannot change a part of an entry, so ageing cannot clear a reference bit: it remembers what
//! every session had counted, and a session that counts no more is idle. A packet may come between the check
//! and the deletion. Its session is then deleted nevertheless and learned again, and its counts are lost. The
//! product's table has neither flaw.
//!
//! The kernel gives the memory of a deleted entry to the next one at once, even while a program holds it. So
//! a session is deleted in two steps, as a slot of the table is freed: the program `end_session` ends it and
//! leaves it locked, and it is deleted a grace period later, when no program can hold it any more.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapHandle};
use linerate_bpf::map::batch;
use linerate_bpf::rcu::RcuSynchronizer;
use linerate_bpf::test_run;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use anyhow::{Context, Result};
use linerate_forward::runtime::memory;
use linerate_forward::runtime::program::Programs;
use linerate_forward::table::ageing::{DEAD_WRITER_TIMEOUT, Limits, Statistics};
use linerate_forward::table::clock::Clock;
use linerate_forward::table::layout::{
    self, Cold, Counters, GENERATION_ENDED, Hop, Session, SessionKey,
};
use linerate_forward::table::session::{Addresses, Fields, Record};

use super::MapDesign;

/// `struct hashed_session`: the value of the map `hashed`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HashedSession {
    /// The session.
    pub session: Session,
    /// How its packets come in and leave.
    pub hop: Hop,
    /// Its addresses, where they are IPv6.
    pub addresses: layout::Addresses,
    /// Source and destination after NAT, where they are IPv6.
    pub out: [[u8; 16]; 2],
    /// What packets rarely touch.
    pub cold: Cold,
}

/// `struct end_session`, the context of the program of that name.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct EndSession {
    key: SessionKey,
    cpu: u32,
    retire: u32,
    ended: u32,
    busy: u32,
}

/// The hash map of sessions, that of their counters where they have one, and the program `end_session`.
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
    /// Another writer has the lock of a copy.
    busy: bool,
}

impl Hashed {
    /// Those of programs that were loaded in this design.
    ///
    /// # Errors
    /// When a map is missing.
    pub fn open(programs: &Programs, design: MapDesign) -> Result<Self> {
        let map = |name| {
            MapHandle::try_from(programs.maps.get(name)?)
                .with_context(|| format!("cannot use the map {name}"))
        };
        let counters = (design == MapDesign::Split).then(|| map("split_counters")).transpose()?;
        let copies = match design {
            MapDesign::PerCpu => libbpf_rs::num_possible_cpus()? as u32,
            _ => 1,
        };
        let end = programs.get("end_session")?.try_clone_to_owned()?;
        Ok(Self { sessions: map("hashed")?, counters, end, copies })
    }

    /// Sessions that there is room for.
    pub fn capacity(&self) -> u64 {
        self.sessions.max_entries().into()
    }

    /// Bytes of kernel memory that the maps take.
    pub fn bytes(&self) -> u64 {
        let maps = [Some(&self.sessions), self.counters.as_ref()];
        maps.into_iter().flatten().map(|map| memory::of_map(map.as_fd()).unwrap_or(0)).sum()
    }

    /// Ends the sessions that `accepts` selects, and returns how many.
    ///
    /// # Errors
    /// When the kernel refuses.
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
            let mut context =
                EndSession { key, cpu, retire: retire.into(), ..EndSession::default() };
            test_run::run_syscall(self.end.as_fd(), context.as_mut_bytes())?;
            found.was_valid |= context.ended != 0;
            found.busy |= context.busy != 0;
        }
        Ok(found)
    }

    /// Calls `each` with every session; slots are running numbers.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn for_each(&self, mut each: impl FnMut(Record)) -> Result<()> {
        let counted = self.counted()?;
        let mut slot = 0;
        batch::for_each(self.sessions.as_fd(), |key, value| {
            let Some(mut record) = record(value) else { return };
            if let Some(count) = counted.get(key) {
                record.remote = *count;
            }
            record.slot = slot;
            slot += 1;
            each(record);
        })?;
        Ok(())
    }

    /// What is counted beside the sessions.
    fn counted(&self) -> Result<HashMap<Vec<u8>, Counters>> {
        let mut counted = HashMap::new();
        if let Some(counters) = &self.counters {
            batch::for_each(counters.as_fd(), |key, value| {
                let cells = value.chunks_exact(size_of::<Counters>());
                let cells = cells.filter_map(|cell| Counters::read_from_bytes(cell).ok());
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

fn sum(a: Counters, b: Counters) -> Counters {
    let packets = a.packets.wrapping_add(b.packets);
    Counters { packets, bytes: a.bytes.wrapping_add(b.bytes) }
}

/// The session of an entry: of one value, or of one for each CPU, where it is what the CPU has that learned it
/// last, with the counts of all. One that has ended on some CPUs only has not ended.
fn record(value: &[u8]) -> Option<Record> {
    let values = value.chunks_exact(size_of::<HashedSession>());
    let values = values.filter_map(|value| HashedSession::read_from_bytes(value).ok());
    let mut values = values.filter(|value| value.session.kind != 0);
    let mut latest = values.next()?;
    for other in values {
        let is_ended = |one: &HashedSession| one.session.generation & GENERATION_ENDED != 0;
        let passed = other.session.deadline.wrapping_sub(latest.session.deadline);
        let is_later = match (is_ended(&latest), is_ended(&other)) {
            (before, now) if before == now => passed < 0x8000_0000,
            (before, _) => before,
        };
        let (mut one, rest) = if is_later { (other, latest) } else { (latest, other) };
        one.session.packets = one.session.packets.wrapping_add(rest.session.packets);
        one.session.bytes = one.session.bytes.wrapping_add(rest.session.bytes);
        latest = one;
    }
    let HashedSession { session, hop, addresses, out: [out_source, out_destination], cold } =
        latest;
    let layout::Addresses { source, destination } = addresses;
    let addresses = Addresses { source, destination, out_source, out_destination };
    Some(Record { session: Fields::new(&session, &hop, &cold), addresses, ..Record::default() })
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
    grace: RcuSynchronizer,
    limits: Limits,
    clock: Clock,
    /// Packets of each session at the last look, and the second when they were fewer.
    known: HashMap<SessionKey, (u64, u64)>,
    /// Sessions to retire that were found locked, and when first.
    locked: HashMap<SessionKey, Instant>,
    /// Keys of what was retired, to be deleted after a grace period.
    retired: Vec<u8>,
    looked: Option<Instant>,
    statistics: Statistics,
}

impl HashedAgeing {
    /// Ageing of `hashed`.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(hashed: Arc<Hashed>, limits: Limits, clock: Clock) -> Result<Self> {
        // Any map serves.
        let grace = RcuSynchronizer::new(hashed.sessions.as_fd())?;
        Ok(Self {
            hashed,
            grace,
            limits,
            clock,
            known: HashMap::new(),
            locked: HashMap::new(),
            retired: Vec::new(),
            looked: None,
            statistics: Statistics::default(),
        })
    }

    /// What was done so far.
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Other limits from now on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Deletes what was retired, and visits all sessions if that is due, as the ageing of a table would have.
    ///
    /// # Errors
    /// When the kernel refuses.
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
        let (before, limits, clock, statistics) =
            (&self.known, self.limits, self.clock, &mut self.statistics);
        self.hashed.for_each(|record| {
            let key = plain(&record);
            let packets = record.packets();
            let since = match before.get(&key) {
                Some((same, since)) if *same == packets => *since,
                _ => seconds,
            };
            let idle = Duration::from_secs(seconds.saturating_sub(since));
            let reason = if record.is_ended() {
                Some(Why::Ended)
            } else if limits.exceeds_lifetime(|| clock.since(record.session.created)) {
                Some(Why::Age)
            } else {
                (idle > limits.of(record.protocol())).then_some(Why::Idle)
            };
            if let Some(reason) = reason {
                doomed.push((key, packets, record.bytes(), reason));
            } else {
                known.insert(key, (packets, since));
            }
        })?;
        let mut locked = HashMap::new();
        for (key, packets, bytes, reason) in doomed {
            let busy = self.hashed.end_one(key, true)?.busy;
            // A program holds the lock for a microsecond. A long holder was retired, or is dead.
            let since = *self.locked.get(&key).unwrap_or(&began);
            if busy && began.saturating_duration_since(since) < DEAD_WRITER_TIMEOUT {
                locked.insert(key, since);
                continue;
            }
            match reason {
                Why::Ended => {}
                Why::Age => statistics.expired += 1,
                Why::Idle => statistics.idle += 1,
            }
            statistics.packets = statistics.packets.wrapping_add(packets);
            statistics.bytes = statistics.bytes.wrapping_add(bytes);
            self.retired.extend_from_slice(key.as_bytes());
        }
        statistics.active = known.len() as u64;
        (self.known, self.locked) = (known, locked);
        statistics.passes += 1;
        statistics.pass_time = began.elapsed();
        statistics.busy_time += began.elapsed();
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
        self.statistics.freed += batch::delete(self.hashed.sessions.as_fd(), &retired)?;
        if let Some(counters) = &self.hashed.counters {
            batch::delete(counters.as_fd(), &retired)?;
        }
        self.statistics.busy_time += began.elapsed();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
