use std::collections::HashSet;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};

use linerate_testkit::root_or_skip;

use super::*;
use crate::runtime::program::{Options, Programs};
use crate::table::writer::{NewSession, Writer, tuple_hash};

/// A table, and what fills it.
pub(crate) struct TestTable {
    pub(crate) table: Arc<Table>,
    pub(crate) writer: Writer,
}

impl TestTable {
    fn open(maps: &Maps) -> Self {
        Self { table: Arc::new(Table::open(maps).unwrap()), writer: Writer::open(maps) }
    }

    pub(crate) fn insert(&self, hash: u64, new: &NewSession) -> Option<usize> {
        self.writer.insert(hash, new)
    }

    pub(crate) fn read(&self, index: usize) -> Option<Stored> {
        self.slot(index).stored()
    }

    /// All sessions, with their slots.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, Stored)> {
        (0..self.slots()).filter_map(|index| Some((index, self.read(index)?)))
    }
}

impl Deref for TestTable {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.table
    }
}

impl Stored {
    pub(crate) fn is_ended(&self) -> bool {
        self.session.generation & GENERATION_ENDED != 0
    }
}

/// Programs, loaded but on no interface, and their table of 1024 sessions.
pub(crate) fn table() -> (Programs, TestTable) {
    let programs = Programs::load(&Options { max_sessions: 1024, ..Options::default() }).unwrap();
    let table = TestTable::open(&programs.maps);
    (programs, table)
}

impl<'t> Slot<'t> {
    pub(crate) fn version_for_tests(self) -> &'t AtomicU32 {
        self.version()
    }

    /// Counts packets, and gives the session this hop, as the programs do.
    pub(crate) fn count_for_tests(self, packets: u64, hop: u16) {
        self.atomic_u64(at::PACKETS).fetch_add(packets, Relaxed);
        let with_hop = |word: u32| Some(word & 0xffff | u32::from(hop) << 16);
        self.atomic_u32(at::KIND).fetch_update(Relaxed, Relaxed, with_hop).unwrap();
    }

    /// Publishes like the learner, from the value that it read before.
    pub(crate) fn republish_for_tests(self, before: SlotVersion, generation: u32) {
        let word = self.atomic_u32(at::GENERATION);
        word.compare_exchange(before.generation, generation, AcqRel, Relaxed).unwrap();
    }
}

/// A hash whose first bucket is this one, and the second one the first of all; the home way is the first.
pub(crate) fn hash_in(table: &Table, bucket: u64) -> u64 {
    let buckets = (table.slots() / WAYS) as u64;
    (bucket << 32).div_ceil(buckets) << 32
}

/// The UDP session of this number; all its fields follow from the number.
pub(crate) fn record(number: u32) -> NewSession {
    let mut record = NewSession::default();
    let (source, destination) = (number.to_be_bytes(), (!number).to_be_bytes());
    record.session = layout::Session {
        in_source: source,
        in_destination: destination,
        kind: kind::IPV4,
        generation: 1,
        deadline: number,
        owner: REFERENCED,
        source,
        destination,
        ..layout::Session::default()
    };
    (record.hop.ifindex, record.hop.tag) = (7, [[0, 1], [2, 3]]);
    record.cold.created = number;
    record.cold.remote.packets = u64::from(number);
    record
}

fn is_whole(record: &Stored) -> bool {
    let session = &record.session;
    let number = record.cold.created;
    session.in_source == number.to_be_bytes()
        && session.in_destination == (!number).to_be_bytes()
        && session.source == session.in_source
        && session.destination == session.in_destination
        && session.deadline == number
}

#[test]
fn what_is_inserted_is_read_whole() {
    root_or_skip!();
    let (_programs, table) = table();
    // 154 buckets: five sixths of their slots are 1024 sessions and a little more.
    assert_eq!((table.slots(), table.capacity()), (1232, 1024));
    assert_eq!(table.all().count(), 0);
    let mut six = record(3);
    six.session.kind = kind::IPV6 | kind::TCP;
    six.cold.used = 0x0901_0203;
    (six.hop.out_ifindex, six.hop.mtu, six.hop.flags) = (8, 1400, 3);
    (six.session.deadline, six.session.owner) = (0x0102_0304, REFERENCED | 2);
    (six.session.packets, six.session.bytes) = (10, 1000);
    six.cold.remote = Counters { packets: 5, bytes: 500 };
    six.addresses[0].source = *b"0123456789abcdef";
    six.addresses[1].destination = *b"fedcba9876543210";
    // The halves pick buckets 9 and 0; the home way is the third.
    let hash = hash_in(&table, 9) | 2;
    let index = table.insert(hash, &six).unwrap();
    assert_eq!(index, 9 * WAYS + 2, "the home way first");
    six.session.version = 2;
    let read = table.read(index).unwrap();
    let session = table.session(index, &mut table.decoder(Clock::from_boot_time())).unwrap();
    assert_eq!((session.slot, session.revalidations, session.created), (index, 9, 3));
    // The numbers of shared entries, which the table has chosen.
    six.session.hop = read.session.hop;
    (six.session.source, six.session.destination) = (read.session.source, read.session.destination);
    let NewSession { session, hop, cold, addresses } = six;
    assert_eq!(read, Stored { session, hop, cold, addresses });
    let others = [(); 16].map(|()| table.insert(hash, &record(1)));
    let first = |ways: &[usize]| ways.iter().map(|way| Some(9 * WAYS + way)).collect::<Vec<_>>();
    assert_eq!(others[..4], first(&[3, 4, 5, 6]), "the first bucket");
    assert_eq!(others[4..9], [2, 3, 4, 5, 6].map(Some), "the second while it is emptier");
    assert_eq!(others[9..13], [Some(79), Some(7), Some(72), Some(0)]);
    assert_eq!(others[13..], [Some(73), Some(1), None]);
    assert_eq!(table.all().count(), 16);
}

#[test]
fn a_table_takes_what_it_has_room_for() {
    root_or_skip!();
    let sessions = 65_536;
    let options = Options { max_sessions: u64::from(sessions), ..Options::default() };
    let programs = Programs::load(&options).unwrap();
    let table = TestTable::open(&programs.maps);
    // Unrelated numbers, the same in each run.
    let random = |number: u32| layout::fnv(&number.to_be_bytes());
    let seeds = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|seed| random(seed) | 1);
    let refused = |number: &u32| {
        let record = record(random(*number) as u32);
        table.insert(tuple_hash(&seeds, &record.session), &record).is_none()
    };
    let refused = (0..sessions).filter(refused).count();
    println!("{refused} of {sessions} sessions had no slot");
    assert!(refused < sessions as usize / 300, "{refused}");
}

#[test]
fn a_session_is_ended_once_and_freed_as_it_was_condemned() {
    root_or_skip!();
    let (_programs, table) = table();
    let mut counted = record(5);
    (counted.session.packets, counted.session.bytes) = (10, 640);
    counted.cold.remote = Counters { packets: 2, bytes: 128 };
    let index = table.insert(0, &counted).unwrap();
    let slot = table.slot(index);
    let (protocol, stamp) = slot.peek().unwrap();
    assert_eq!((protocol, stamp.generation, stamp.is_ended()), (Protocol::Udp, 1, false));
    let to_free = slot.end(stamp).unwrap();
    assert!(to_free.is_ended() && table.read(index).unwrap().is_ended());
    assert_eq!(slot.end(stamp), None, "it is not what it was");

    // Learned again: under the lock, and then ended with the same number as before.
    let generation = slot.atomic_u32(at::GENERATION).load(SeqCst);
    drop(WriteGuard::try_lock_at_version(slot.version(), to_free.version).unwrap());
    assert_eq!(slot.atomic_u32(at::GENERATION).load(SeqCst), generation);
    assert_eq!(slot.free(to_free), None, "another version");
    assert!(table.read(index).is_some());

    let (_, to_free) = slot.peek().unwrap();
    assert_eq!(slot.free(to_free), Some(Counters { packets: 12, bytes: 768 }));
    assert_eq!((table.read(index), slot.peek(), slot.free(to_free)), (None, None, None));
    // Nothing remains for the next session.
    assert_eq!(table.insert(0, &record(6)), Some(index));
    assert_eq!(slot.counters().packets, 6);
}

/// Learners take free slots, write sessions in several steps, learn again and end them; the ager frees.
/// Every record that is read is of one session, and no slot is freed under a session that lives.
#[test]
fn readers_writers_and_the_ager_meet_without_halves() {
    root_or_skip!();
    let (_programs, table) = table();
    let (table, stop) = (&table, &AtomicBool::new(false));
    let slots = 0..4 * WAYS;
    let (freed, kept) = (&AtomicUsize::new(0), &AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for learner in 1..=2u32 {
            scope.spawn(move || {
                for number in 0.. {
                    if stop.load(SeqCst) {
                        break;
                    }
                    let session = record(number << 2 | learner);
                    let hash = hash_in(table, u64::from(number % 4)) | u64::from(number % 3);
                    let Some(index) = table.insert(hash, &session) else {
                        std::thread::yield_now();
                        continue;
                    };
                    // It is ours: nobody else frees or rewrites a live session.
                    let found = table.read(index).expect("it lives");
                    assert_eq!(found.cold.created, session.cold.created);
                    let slot = table.slot(index);
                    let (_, stamp) = slot.peek().expect("it lives");
                    assert!(!stamp.is_ended());
                    slot.end(stamp).expect("nobody else ends it");
                }
            });
        }
        scope.spawn(move || {
            while !stop.load(SeqCst) {
                for index in 0..4 * WAYS {
                    let slot = table.slot(index);
                    if let Some((_, stamp)) = slot.peek()
                        && stamp.is_ended()
                        && slot.free(stamp).is_some()
                    {
                        freed.fetch_add(1, SeqCst);
                    }
                }
            }
        });
        scope.spawn(move || {
            let mut seen = HashSet::new();
            while !stop.load(SeqCst) {
                for record in slots.clone().filter_map(|index| table.read(index)) {
                    assert!(is_whole(&record), "{record:?}");
                    seen.insert(record.cold.created);
                }
                kept.store(seen.len(), SeqCst);
            }
        });
        // Until they have met, even on few CPUs; a thread's panic is reported afterwards.
        let (start, least) = (Instant::now(), Duration::from_millis(600));
        let few = || freed.load(SeqCst) <= 100 || kept.load(SeqCst) <= 10;
        while start.elapsed() < least || few() && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, SeqCst);
    });
    let (freed, kept) = (freed.load(SeqCst), kept.load(SeqCst));
    assert!(freed > 100 && kept > 10, "{freed} freed, {kept} kept");
}
