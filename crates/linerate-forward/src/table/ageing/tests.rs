use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};

use linerate_bpf::seqlock::WriteGuard;
use linerate_testkit::root_or_skip;

use super::*;
use crate::runtime::program::Programs;
use crate::table::layout::{self, GENERATION_ENDED, REFERENCED, kind};
use crate::table::mapped::tests::{TestTable, hash_in, record, table};
use crate::table::session::LastUse;
use crate::table::writer::NewSession;

/// Programs on no interface, their table, and its ager.
fn ageing() -> (Programs, TestTable, Ageing) {
    let (programs, table) = table();
    let clock = Clock::read(programs.heartbeat().unwrap());
    let limits = Limits::default();
    let ageing = Ageing::new(Arc::clone(&table.table), &programs.maps, limits, clock).unwrap();
    (programs, table, ageing)
}

/// A session whose last packet was found `idle` seconds ago.
fn idle(number: u32, protocol: Protocol, idle: u64, clock: &Clock) -> NewSession {
    let mut record = record(number);
    if protocol == Protocol::Tcp {
        record.session.kind |= kind::TCP;
    }
    let used = LastUse::new(false, (clock.sixteenths() - 16 * idle) as u32).at();
    (record.session.owner, record.cold.used) = (0, used);
    record
}

#[test]
fn sessions_end_when_they_are_too_old() {
    root_or_skip!();
    let (_programs, table, mut ageing) = ageing();
    let hour = Duration::from_secs(3600);
    ageing.set_limits(Limits { lifetime: Lifetime::For(hour), ..Limits::default() });
    for (number, minutes, seen) in [(0, 59, false), (1, 61, false), (2, 61, true)] {
        let mut record = idle(number, Protocol::Tcp, 0, &ageing.clock);
        let age = ageing.clock.jiffies(Duration::from_secs(60 * minutes)) as u32;
        record.cold.created = (ageing.clock.now() as u32).wrapping_sub(age);
        // Packets do not help.
        record.session.owner |= if seen { REFERENCED } else { 0 };
        assert!(table.insert(hash_in(&table, number.into()), &record).is_some());
    }
    ageing.pass().unwrap();
    let left: Vec<_> = table.all().map(|(slot, _)| slot).collect();
    assert_eq!(left, [0]);
    let aged = ageing.statistics();
    assert_eq!((aged.expired, aged.idle, aged.freed), (2, 0, 2));
    ageing.set_limits(Limits::default());
    assert_eq!(ageing.limits.period(), Duration::from_secs_f64(7.5));
    let short = Lifetime::For(Duration::from_secs(4));
    assert_eq!(Limits { lifetime: short, ..Limits::default() }.period(), Duration::from_secs(1));
}

#[test]
fn sessions_end_when_they_are_idle_for_longer_than_their_protocol_may() {
    root_or_skip!();
    let (_programs, table, mut ageing) = ageing();
    let clock = ageing.clock;
    let cases = [
        (Protocol::Udp, 10, true),
        (Protocol::Udp, 40, false),
        (Protocol::Tcp, 40, true),
        (Protocol::Tcp, 310, false),
    ];
    for (number, (protocol, seconds, _)) in (0..).zip(cases) {
        let record = idle(number, protocol, seconds, &clock);
        assert!(table.insert(hash_in(&table, number.into()), &record).is_some());
    }
    // Its bit is set: whatever was noted before does not count.
    let mut used = idle(9, Protocol::Udp, 1000, &clock);
    used.session.owner |= REFERENCED;
    let used = table.insert(hash_in(&table, 9), &used).unwrap();

    ageing.pass().unwrap();
    for (bucket, (protocol, seconds, stays)) in cases.into_iter().enumerate() {
        let found = table.read(bucket * crate::table::layout::WAYS);
        assert_eq!(found.is_some(), stays, "{protocol} idle for {seconds} s");
    }
    let aged = ageing.statistics();
    assert_eq!((aged.idle, aged.freed, aged.passes), (2, 2, 1));
    assert_eq!((aged.packets, aged.active), (1 + 3, 5));
    let noted = table.read(used).unwrap();
    assert!(
        noted.session.owner & REFERENCED == 0
            && LastUse::new(false, noted.cold.used).idle(clock.sixteenths()).as_secs() < 2
    );
    ageing.pass().unwrap();
    assert!(table.read(used).is_some());
    assert_eq!((ageing.statistics().active, ageing.statistics().freed), (3, 2));
}

/// The slots that were freed.
#[derive(Clone, Debug, Default)]
struct FreedSlots(Arc<std::sync::Mutex<Vec<usize>>>);

impl FreeListener for FreedSlots {
    fn freed(&self, slot: usize) {
        self.0.lock().unwrap().push(slot);
    }
}

#[test]
fn places_of_ended_sessions_are_freed_with_their_counts() {
    root_or_skip!();
    let (_programs, table, mut ageing) = ageing();
    let mut ended = record(100);
    ended.session.generation = GENERATION_ENDED | 2;
    (ended.session.packets, ended.session.bytes) = (7, 700);
    let index = table.insert(0, &ended).unwrap();
    assert!(table.insert(1, &record(101)).is_some());
    let freed = FreedSlots::default();
    ageing.set_free_listener(Box::new(freed.clone()));
    ageing.pass().unwrap();
    assert_eq!(table.read(index), None);
    let aged = ageing.statistics();
    assert_eq!((aged.freed, aged.idle, aged.packets, aged.bytes), (1, 0, 107, 700));
    assert_eq!(*freed.0.lock().unwrap(), [index]);
}

#[test]
fn a_hop_is_freed_after_the_last_session_that_had_it() {
    root_or_skip!();
    let (_programs, table, mut ageing) = ageing();
    let room = table.hops().len();
    // Two sessions for each hop, and no room for another.
    let session = |number: usize| {
        let mut record = record(number as u32);
        record.hop.out_ifindex = (number / 2) as u32;
        record
    };
    let insert =
        |number: usize| table.insert(hash_in(&table, number as u64 % 154), &session(number));
    let capacity = table.capacity().min(2 * room);
    let slots: Vec<_> = (0..capacity).map(|number| insert(number).unwrap()).collect();
    let end = |slot: usize| {
        let (_, stamp) = table.slot(slot).peek().unwrap();
        table.slot(slot).end(stamp).unwrap();
    };
    let hops: Vec<_> = slots.iter().map(|slot| table.slot(*slot).hop()).collect();
    assert!(hops.chunks(2).all(|two| two[0] == two[1]) && hops[0] != hops[2]);
    end(slots[0]);
    end(slots[2]);
    end(slots[3]);
    let mut other = record(1 << 20);
    for pass in 0..4 {
        ageing.pass().unwrap();
        other.hop.out_ifindex = 1 << 20 | pass;
        let taken = table.writer.insert_hop(&other.hop).unwrap();
        // The first pass finds the ended sessions, the second the hop without one, the third that it stays so.
        assert_eq!(taken == hops[2], pass == 2, "pass {pass}");
        assert_ne!(taken, hops[0], "a session has it");
    }
    assert!(table.all().all(|(_, record)| record.hop.out_ifindex < 1 << 20));
}

/// A session that changes its datapath keeps what it counted before under the former one, and nothing is counted twice.
#[test]
fn packets_are_counted_by_the_datapath_that_the_session_had() {
    root_or_skip!();
    let (programs, table, mut ageing) = ageing();
    let mut tc = record(1);
    tc.hop.flags |= layout::flags::TC;
    // Their packets are 1 and 2, and 100 of other CPUs each.
    let (xdp, tc) = (record(2), tc);
    let total = |record: &NewSession| record.session.packets + record.cold.remote.packets;
    let slot = table.slot(table.insert(hash_in(&table, 2), &xdp).unwrap());
    let tc_slot = table.slot(table.insert(hash_in(&table, 1), &tc).unwrap());
    let datapaths =
        |ageing: &Ageing| ageing.statistics().datapaths.map(|(_, of)| (of.sessions, of.packets));
    for _ in 0..2 {
        ageing.pass().unwrap();
        assert_eq!(datapaths(&ageing), [(1, total(&xdp)), (1, total(&tc))]);
    }
    // Three packets more, and from then on it is TC's.
    slot.count_for_tests(3, tc_slot.hop());
    ageing.pass().unwrap();
    assert_eq!(datapaths(&ageing), [(0, total(&xdp)), (2, total(&tc) + 3)]);
    // What it counts until it is freed is not lost, and the next session in its slot begins at 0.
    let (_, stamp) = slot.peek().unwrap();
    slot.end(stamp).unwrap();
    slot.count_for_tests(4, tc_slot.hop());
    ageing.pass().unwrap();
    assert_eq!(datapaths(&ageing), [(0, total(&xdp)), (1, total(&tc) + 7)]);
    table.insert(hash_in(&table, 2), &xdp).unwrap();
    ageing.pass().unwrap();
    assert_eq!(datapaths(&ageing), [(1, 2 * total(&xdp)), (1, total(&tc) + 7)]);

    // Another daemon shows what is counted from its start on.
    let mut next =
        Ageing::new(Arc::clone(&table.table), &programs.maps, Limits::default(), ageing.clock)
            .unwrap();
    next.skip_counted();
    next.pass().unwrap();
    assert_eq!(datapaths(&next), [(1, 0), (1, 0)]);
}

/// The race of cleaners: a session is found idle, and a packet causes it to be learned again before it is
/// deleted.
#[test]
fn a_session_that_is_used_again_is_not_freed() {
    root_or_skip!();
    let (_programs, table, mut ageing) = ageing();
    let clock = ageing.clock;
    let index = table.insert(0, &idle(1, Protocol::Udp, 100, &clock)).unwrap();
    let slot = table.slot(index);
    ageing.visit(table.slots(), None).unwrap();
    let (_, to_free) = slot.peek().unwrap();
    assert!(to_free.is_ended() && ageing.to_free.len() == 1);

    // What the learner does: the lock, line two, and the generation by exchange.
    drop(WriteGuard::try_lock_at_version(slot.version_for_tests(), to_free.version).unwrap());
    slot.republish_for_tests(to_free, 1);
    ageing.free().unwrap();
    let found = table.read(index).expect("it stays");
    assert!(!found.is_ended());
    assert_eq!((ageing.statistics().idle, ageing.statistics().freed), (1, 0));
}

#[test]
fn a_place_that_a_writer_died_over_is_freed_after_a_while() {
    root_or_skip!();
    let (_programs, table, mut ageing) = ageing();
    let index = table.insert(0, &record(1)).unwrap();
    let slot = table.slot(index);
    std::mem::forget(WriteGuard::try_lock_at_version(slot.version_for_tests(), 2).unwrap());
    assert_eq!(table.read(index), None, "locked");
    ageing.pass().unwrap();
    assert_eq!(ageing.statistics().abandoned, 0);
    std::thread::sleep(DEAD_WRITER_TIMEOUT);
    ageing.pass().unwrap();
    assert_eq!(ageing.statistics().abandoned, 1);
    assert!(slot.peek().is_none() && slot.version_now() == 6);
    assert_eq!(table.insert(0, &record(2)), Some(index));
}

#[test]
fn ticks_make_a_pass_in_its_period_whatever_their_number() {
    root_or_skip!();
    let (_programs, table, mut ageing) = ageing();
    let two = Duration::from_secs(2);
    ageing.set_limits(Limits { tcp: two, udp: two, ..Limits::default() });
    let clock = ageing.clock;
    let index = table.insert(hash_in(&table, 77), &idle(1, Protocol::Udp, 60, &clock)).unwrap();
    let began = Instant::now();
    while table.read(index).is_some() && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(50));
        ageing.tick().unwrap();
    }
    assert_eq!((table.read(index), ageing.statistics().freed), (None, 1));
    assert!(ageing.statistics().passes <= 20, "{:?}", ageing.statistics());
}

/// Sessions come, end and come again in the same slots while a thread ages as fast as it can: what
/// was counted is accounted for to the last packet, and what lives is never freed.
#[test]
fn nothing_is_lost_between_learning_ending_and_freeing() {
    root_or_skip!();
    let (_programs, table, mut ageing) = ageing();
    let (stop, come, shared) = (AtomicBool::new(false), AtomicU64::new(0), &table);
    let (inserted, counted) = std::thread::scope(|scope| {
        let learner = scope.spawn(|| {
            let (mut inserted, mut counted) = (0u64, 0u64);
            for number in 1u32.. {
                if stop.load(SeqCst) {
                    break;
                }
                let Some(index) =
                    shared.insert(hash_in(shared, u64::from(number % 64)), &record(number))
                else {
                    std::thread::sleep(Duration::from_micros(50));
                    continue;
                };
                (inserted, counted) = (inserted + 1, counted + u64::from(number));
                come.store(inserted, SeqCst);
                let slot = shared.slot(index);
                let found = shared.read(index).expect("it lives");
                assert_eq!(found.cold.created, number);
                let (_, stamp) = slot.peek().unwrap();
                assert!(slot.end(stamp).is_some());
            }
            (inserted, counted)
        });
        // Twice as many as there are slots in these buckets.
        while come.load(SeqCst) < 1024 && !learner.is_finished() {
            ageing.pass().unwrap();
        }
        stop.store(true, SeqCst);
        learner.join().unwrap()
    });
    ageing.pass().unwrap();
    ageing.pass().unwrap();
    let aged = ageing.statistics();
    assert_eq!((aged.freed, aged.packets, aged.active), (inserted, counted, 0));
    assert!(inserted >= 1024, "{inserted} sessions");
}
