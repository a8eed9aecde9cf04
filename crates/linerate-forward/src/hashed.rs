//! [`Hashed`]: sessions of the three designs of statistics that keep them in hash maps, listed and aged by batches
//! of system calls, for comparison with the table.
//!
//! User space cannot change a part of an entry, so ageing cannot clear a reference bit: it remembers what
//! every session had counted, and a session that counts no more is idle. Between the look and the deletion
//! a packet may come; its session is then deleted all the same and learned again, and what it had counted
//! is forgotten. The table ([`crate::table`]) has neither flaw.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use libbpf_rs::MapHandle;
use linerate_ring::map::batch;
use zerocopy::FromBytes;

use crate::ageing::{Aged, Limits};
use crate::clock::Clock;
use crate::config::Statistics;
use crate::layout::{HashedSession, SessionKey, Stray, kind};
use crate::program::Maps;
use crate::session::Record;
use crate::tuple::Protocol;
use crate::{Error, Result};

/// The hash map of sessions, and that of their counters where they have one.
#[derive(Debug)]
pub struct Hashed {
    sessions: MapHandle,
    counters: Option<MapHandle>,
}

impl Hashed {
    /// Those of programs with these maps that count by `statistics`.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the design keeps its sessions in the table; [`Error::System`].
    pub fn open(maps: &Maps, statistics: Statistics) -> Result<Self> {
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
        Ok(Self { sessions: map("hashed")?, counters })
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

fn sum(a: Stray, b: Stray) -> Stray {
    let packets = a.packets.wrapping_add(b.packets);
    Stray { packets, bytes: a.bytes.wrapping_add(b.bytes) }
}

/// The session of an entry: of one value, or of one for each CPU, where it is what the CPU has that learned it
/// last, with the counts of all.
fn record(value: &[u8]) -> Option<Record> {
    let values = value.chunks_exact(size_of::<HashedSession>());
    let values = values.filter_map(|value| HashedSession::read_from_bytes(value).ok());
    let mut values = values.filter(|value| value.session.key.kind != 0);
    let mut latest = values.next()?;
    for other in values {
        let (mut one, rest) = match other.session.learned.wrapping_sub(latest.session.learned) {
            0..0x8000_0000 => (other, latest),
            _ => (latest, other),
        };
        one.session.packets = one.session.packets.wrapping_add(rest.session.packets);
        one.session.bytes = one.session.bytes.wrapping_add(rest.session.bytes);
        latest = one;
    }
    let HashedSession { session, addresses } = latest;
    Some(Record { session, addresses, ..Record::default() })
}

/// Looks after sessions in hash maps; 72 bytes of memory for each.
#[derive(Debug)]
pub struct HashedAgeing {
    hashed: Hashed,
    limits: Limits,
    clock: Clock,
    /// Packets of each session at the last look, and the second when they were fewer.
    known: HashMap<SessionKey, (u64, u64)>,
    looked: Option<Instant>,
    aged: Aged,
}

impl HashedAgeing {
    /// Ageing of `hashed`.
    pub fn new(hashed: Hashed, limits: Limits, clock: Clock) -> Self {
        Self { hashed, limits, clock, known: HashMap::new(), looked: None, aged: Aged::default() }
    }

    /// What was done so far.
    pub fn aged(&self) -> Aged {
        self.aged
    }

    /// Other limits from now on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Looks at all sessions if it is time to, as the ageing of a table would have.
    ///
    /// # Errors
    /// [`Error::Ring`].
    pub fn tick(&mut self) -> Result<()> {
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
        let (before, limits, aged) = (&self.known, self.limits, &mut self.aged);
        let mut held = 0;
        self.hashed.for_each(|record| {
            let key = SessionKey { generation: 0, ..record.session.key };
            let packets = record.packets();
            let since = match before.get(&key) {
                Some((same, since)) if *same == packets => *since,
                _ => seconds,
            };
            let protocol = if key.kind & kind::TCP == 0 { Protocol::Udp } else { Protocol::Tcp };
            let is_idle = Duration::from_secs(seconds - since) > limits.of(protocol);
            if is_idle || record.is_ended() {
                aged.idle += u64::from(is_idle && !record.is_ended());
                aged.packets = aged.packets.wrapping_add(packets);
                aged.bytes = aged.bytes.wrapping_add(record.bytes());
                doomed.extend_from_slice(zerocopy::IntoBytes::as_bytes(&key));
            } else {
                held += 1;
                known.insert(key, (packets, since));
            }
        })?;
        self.aged.freed += batch::delete(self.hashed.sessions.as_fd(), &doomed)?;
        if let Some(counters) = &self.hashed.counters {
            batch::delete(counters.as_fd(), &doomed)?;
        }
        self.known = known;
        self.aged.held = held;
        self.aged.passes += 1;
        self.aged.pass = began.elapsed();
        self.aged.spent += began.elapsed();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::{MapCore, MapFlags};
    use linerate_netns::root_or_skip;
    use zerocopy::IntoBytes;

    use super::*;
    use crate::layout::GENERATION_ENDED;
    use crate::program::{Options, Programs};
    use crate::table::tests::record;

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
        root_or_skip!("each_design_is_listed_and_aged");
        let cpus = libbpf_rs::num_possible_cpus().unwrap() as u64;
        for statistics in [Statistics::Shared, Statistics::PerCpu, Statistics::Split] {
            let options = Options { max_sessions: 1024, statistics, ..Options::default() };
            let programs = Programs::load(&options).unwrap();
            let open = || Hashed::open(&programs.maps, statistics).unwrap();
            for number in 1..=100 {
                put(&programs, statistics, number, u64::from(number));
            }
            let each = if statistics == Statistics::Shared { 1 } else { cpus };
            let (mut sessions, mut packets) = (0, 0);
            open()
                .for_each(|record| (sessions, packets) = (sessions + 1, packets + record.packets()))
                .unwrap();
            assert_eq!((sessions, packets), (100, 5050 * each), "{statistics}");

            let mut ageing = HashedAgeing::new(open(), Limits::default(), Clock::estimated());
            ageing.pass(1000).unwrap();
            assert_eq!((ageing.aged().held, ageing.aged().freed), (100, 0));
            // One goes on counting, the others do not.
            put(&programs, statistics, 1, 2);
            ageing.pass(1020).unwrap();
            ageing.pass(1035).unwrap();
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
        root_or_skip!("an_ended_session_goes_at_once");
        let statistics = Statistics::Shared;
        let options = Options { max_sessions: 1024, statistics, ..Options::default() };
        let programs = Programs::load(&options).unwrap();
        let mut value = HashedSession { session: record(5).session, ..Default::default() };
        value.session.key.generation = GENERATION_ENDED | 2;
        let key = SessionKey { generation: 0, ..value.session.key };
        let map = programs.maps.get("hashed").unwrap();
        map.update(key.as_bytes(), value.as_bytes(), MapFlags::ANY).unwrap();
        let hashed = Hashed::open(&programs.maps, statistics).unwrap();
        let mut ageing = HashedAgeing::new(hashed, Limits::default(), Clock::estimated());
        ageing.tick().unwrap();
        ageing.tick().unwrap();
        assert_eq!((ageing.aged().freed, ageing.aged().idle, ageing.aged().passes), (1, 0, 1));
        assert!(Hashed::open(&programs.maps, Statistics::Slot).is_err());
    }
}
