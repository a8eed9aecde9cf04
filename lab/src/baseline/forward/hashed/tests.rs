use libbpf_rs::{MapCore, MapFlags};
use linerate_forward::table::layout::kind;
use linerate_testkit::root_or_skip;

use super::*;
use crate::baseline::forward::load_hashed;

const DESIGNS: [MapDesign; 3] = [MapDesign::Shared, MapDesign::PerCpu, MapDesign::Split];

fn open(programs: &Programs, design: MapDesign) -> Arc<Hashed> {
    Arc::new(Hashed::open(programs, design).unwrap())
}

fn ageing(programs: &Programs, design: MapDesign) -> HashedAgeing {
    HashedAgeing::new(open(programs, design), Limits::default(), Clock::from_boot_time()).unwrap()
}

/// A UDP session number `number`; all that is not its number follows from it.
fn session(number: u32) -> HashedSession {
    let key = SessionKey {
        source: number.to_be_bytes(),
        destination: (!number).to_be_bytes(),
        ifindex: 7,
        kind: kind::IPV4,
        generation: 1,
        ..SessionKey::default()
    };
    let fields = Fields { key, out_ifindex: number, deadline: number, ..Fields::default() };
    HashedSession { session: fields.session(0), hop: fields.hop(), ..HashedSession::default() }
}

fn key_of(value: &HashedSession) -> SessionKey {
    let fields = Fields::new(&value.session, &value.hop, &value.cold);
    SessionKey { generation: 0, ..fields.key }
}

/// Puts a session into the maps as the learner would, with this many packets on the first CPU and as many on
/// the second, where there is one for each.
fn put(programs: &Programs, design: MapDesign, number: u32, packets: u64) {
    let mut value = session(number);
    value.session.packets = if design == MapDesign::Split { 0 } else { packets };
    let key = key_of(&value);
    let map = programs.maps.get("hashed").unwrap();
    let cpus = libbpf_rs::num_possible_cpus().unwrap();
    if design == MapDesign::PerCpu {
        let values = vec![value.as_bytes().to_vec(); cpus];
        map.update_percpu(key.as_bytes(), &values, MapFlags::ANY).unwrap();
    } else {
        map.update(key.as_bytes(), value.as_bytes(), MapFlags::ANY).unwrap();
    }
    if design == MapDesign::Split {
        let cell = Counters { packets, bytes: 0 };
        let values = vec![cell.as_bytes().to_vec(); cpus];
        let counters = programs.maps.get("split_counters").unwrap();
        counters.update_percpu(key.as_bytes(), &values, MapFlags::ANY).unwrap();
    }
}

#[test]
fn each_design_is_listed_and_aged() {
    root_or_skip!();
    let cpus = libbpf_rs::num_possible_cpus().unwrap() as u64;
    for design in DESIGNS {
        let programs = load_hashed(design, 1024).unwrap();
        let open = || open(&programs, design);
        for number in 1..=100 {
            put(&programs, design, number, u64::from(number));
        }
        let each = if design == MapDesign::Shared { 1 } else { cpus };
        let (mut sessions, mut packets) = (0, 0);
        open()
            .for_each(|record| (sessions, packets) = (sessions + 1, packets + record.packets()))
            .unwrap();
        assert_eq!((sessions, packets), (100, 5050 * each), "{design:?}");

        let mut ageing = ageing(&programs, design);
        ageing.pass(1000).unwrap();
        assert_eq!((ageing.statistics().active, ageing.statistics().freed), (100, 0));
        // One goes on counting, the others do not.
        put(&programs, design, 1, 2);
        ageing.pass(1020).unwrap();
        ageing.pass(1035).unwrap();
        assert_eq!(ageing.statistics().freed, 0, "before a grace period");
        ageing.free().unwrap();
        let statistics = ageing.statistics();
        assert_eq!(
            (statistics.active, statistics.freed, statistics.idle),
            (1, 99, 99),
            "{statistics:?}"
        );
        assert_eq!(statistics.packets, 5049 * each);
        let mut left = Vec::new();
        open().for_each(|record| left.push(record.session.out_ifindex)).unwrap();
        assert_eq!(left, [1]);
    }
}

#[test]
fn an_ended_session_goes_at_once() {
    root_or_skip!();
    let design = MapDesign::Shared;

    let programs = load_hashed(design, 1024).unwrap();
    let mut value = session(5);
    value.session.generation = GENERATION_ENDED | 2;
    let key = key_of(&value);
    let map = programs.maps.get("hashed").unwrap();
    map.update(key.as_bytes(), value.as_bytes(), MapFlags::ANY).unwrap();
    let mut ageing = ageing(&programs, design);
    ageing.tick().unwrap();
    ageing.tick().unwrap();
    assert_eq!(
        (ageing.statistics().freed, ageing.statistics().idle, ageing.statistics().passes),
        (1, 0, 1)
    );
}

#[test]
fn sessions_are_ended_one_by_one_and_locked_ones_go_when_their_writer_is_dead() {
    root_or_skip!();
    for design in DESIGNS {
        let programs = load_hashed(design, 1024).unwrap();
        let hashed = open(&programs, design);
        (1..=10).for_each(|number| put(&programs, design, number, 1));
        let odd = |record: &Record| record.session.out_ifindex % 2 == 1;
        assert_eq!(hashed.end(odd).unwrap(), 5, "{design:?}");
        assert_eq!(hashed.end(odd).unwrap(), 0, "{design:?}: a second time");
        let mut valid = Vec::new();
        let mut keep = |record: Record| {
            if !record.is_ended() {
                valid.push(record.session.out_ifindex);
            }
        };
        hashed.for_each(&mut keep).unwrap();
        valid.sort_unstable();
        assert_eq!(valid, [2, 4, 6, 8, 10], "{design:?}");

        // What a cleaner before this one had retired is locked for ever.
        let mut lost = Vec::new();
        hashed.for_each(|record| lost.extend(odd(&record).then(|| plain(&record)))).unwrap();
        let ended = hashed.end_one(lost[0], true).unwrap();
        assert_eq!(ended, Ended::default(), "{design:?}");
        assert!(hashed.end_one(lost[0], true).unwrap().busy, "{design:?}");
        let mut ageing = ageing(&programs, design);
        ageing.pass(1000).unwrap();
        ageing.free().unwrap();
        assert_eq!((ageing.statistics().active, ageing.statistics().freed), (5, 4), "{design:?}");
        let since = ageing.locked.values_mut().next().unwrap();
        *since = since.checked_sub(DEAD_WRITER_TIMEOUT).unwrap();
        ageing.pass(1001).unwrap();
        ageing.free().unwrap();
        assert_eq!((ageing.statistics().active, ageing.statistics().freed), (5, 5), "{design:?}");
    }
}
