//! Many receive queues and CPUs at once: every frame arrives exactly once, in the order of time, and is counted for
//! its queue.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use linerate_net::cpu;
use linerate_ring::tee::{Action, Tee};
use linerate_ring::{Batch as _, Options, Ring as _, TimestampSource};
use linerate_testkit::{VethOptions, root_or_skip};

use crate::xdp_support::{Cable, Raw, copying, number, port, udp};

/// Frames from each CPU.
const FRAMES: u64 = 12_000;
const PORTS: u64 = 200;

fn cable(queues: u32) -> Cable {
    Cable::new(VethOptions { queues, ..VethOptions::default() })
}

fn tees(cable: &Cable, readers: usize, options: Options) -> Vec<Tee> {
    let open = || Tee::open_group("rx", &Options { readers, ..options }, None);
    cable.receiver.run(open).expect("the namespace").unwrap_or_else(|error| panic!("{error}"))
}

/// Sends from every CPU at once, flows to many ports, no faster than the veth pair takes them. The number of a frame
/// says which CPU sent it.
fn send_from_every_cpu(cable: &Cable, frames: u64) -> u64 {
    let cpus = cpu::allowed().unwrap();
    let before = cable.veth.b.statistics().unwrap().rx_packets;
    let (sent, arrived) = (AtomicU64::new(0), || cable.veth.b.statistics().unwrap().rx_packets);
    thread::scope(|scope| {
        for &cpu in &cpus {
            let raw = cable.sender.run(|| Raw::open("tx")).unwrap().unwrap();
            let sent = &sent;
            scope.spawn(move || {
                cpu::pin(cpu).unwrap();
                for n in 0..frames {
                    let frame = udp(1000 + (n % PORTS) as u16, (cpu as u64) << 32 | n, 60);
                    raw.send(&frame);
                    let end = Instant::now() + Duration::from_secs(20);
                    if sent.fetch_add(1, SeqCst).is_multiple_of(32) {
                        while sent.load(SeqCst) > arrived() - before + 128 {
                            assert!(Instant::now() < end, "the cable lost frames");
                            thread::yield_now();
                        }
                    }
                }
            });
        }
    });
    let end = Instant::now() + Duration::from_secs(20);
    while arrived() - before < sent.load(SeqCst) {
        assert!(Instant::now() < end, "the cable lost frames");
        thread::yield_now();
    }
    sent.load(SeqCst)
}

/// What one reader got.
#[derive(Default)]
struct Got {
    frames: Vec<u64>,
    queues: HashMap<u16, u64>,
    queue_of_port: HashMap<u16, u16>,
    /// Frames with an earlier stamp than the one before them.
    disordered: u64,
}

/// Reads until the end was announced and nothing is left.
fn read(tee: &mut Tee, end: &AtomicBool) -> Got {
    let (mut got, mut last) = (Got::default(), 0);
    loop {
        let ended = end.load(SeqCst);
        if ended {
            tee.stop().unwrap();
        }
        let ready = tee.wait(Duration::from_millis(20)).unwrap();
        while let Some(mut batch) = tee.next_batch() {
            while let Some(frame) = batch.next() {
                let stamp = frame.timestamp.unwrap_or_default().0;
                got.disordered += u64::from(stamp < last);
                last = stamp;
                got.frames.push(number(frame.head()));
                *got.queues.entry(frame.queue).or_default() += 1;
                let queue = *got.queue_of_port.entry(port(frame.head())).or_insert(frame.queue);
                assert_eq!(queue, frame.queue, "a flow stays in its queue");
            }
        }
        if ended && !ready {
            return got;
        }
    }
}

/// Sends to `tees`, each read by a thread; checks that everything came once and in order, and was counted.
fn check(cable: &Cable, mut tees: Vec<Tee>) -> Vec<Got> {
    let end = AtomicBool::new(false);
    let (sent, got) = thread::scope(|scope| {
        let readers: Vec<_> = tees.iter_mut().map(|tee| scope.spawn(|| read(tee, &end))).collect();
        let sent = send_from_every_cpu(cable, FRAMES);
        end.store(true, SeqCst);
        (sent, readers.into_iter().map(|reader| reader.join().unwrap()).collect::<Vec<_>>())
    });
    let mut all: Vec<u64> = got.iter().flat_map(|one| one.frames.iter().copied()).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len() as u64, sent, "every frame once");
    assert_eq!(got.iter().map(|one| one.frames.len() as u64).sum::<u64>(), sent);
    assert_eq!(got.iter().map(|one| one.disordered).sum::<u64>(), 0, "stamps never go back");
    for (tee, got) in tees.iter().zip(&got) {
        let counts = tee.statistics().unwrap();
        let frames = got.frames.len() as u64;
        assert_eq!((counts.captured, counts.lost(), counts.received), (frames, 0, frames));
        for (queue, counts) in tee.queue_statistics().unwrap() {
            let found = got.queues.get(&(queue as u16)).copied().unwrap_or_default();
            assert_eq!(counts.captured, found, "queue {queue}");
        }
    }
    got
}

#[test]
fn one_reader_gets_the_frames_of_all_queues_in_order() {
    root_or_skip!();
    let cpus = cpu::online().len() as u32;
    for queues in [1, 2, 3, 64] {
        let cable = cable(queues);
        let tees = tees(&cable, 1, copying());
        assert_eq!(tees[0].program().layout().rings, queues.min(cpus));
        assert_eq!(tees[0].program().layout().by_cpu, queues > cpus);
        let got = check(&cable, tees);
        if queues == 64 {
            assert!(got[0].queues.len() > 32, "{} queues were used", got[0].queues.len());
        }
    }
}

#[test]
fn each_queue_has_a_ring_of_its_own() {
    root_or_skip!();
    let cable = cable(64);
    for readers in [1, 3, 64, 100] {
        let tees = tees(&cable, readers, Options { rings: Some(64), ..copying() });
        assert_eq!(tees.len(), readers.min(64));
        assert!(!tees[0].program().layout().by_cpu);
        let rings: Vec<_> = tees.iter().map(Tee::rings).collect();
        for (rings, got) in rings.iter().zip(check(&cable, tees)) {
            assert!(got.queues.keys().all(|queue| rings.contains(&u32::from(*queue))));
        }
    }
}

#[test]
fn readers_of_cpus_share_the_queues() {
    root_or_skip!();
    let cable = cable(64);
    let group = tees(&cable, 2, Options { action: Action::Redirect, ..copying() });
    let readers = group.len();
    let got = check(&cable, group);
    assert!(readers == 1 || got.iter().all(|one| !one.frames.is_empty()), "both CPUs sent");
}

#[test]
fn without_stamps_flows_stay_in_rings_that_queues_share() {
    root_or_skip!();
    let cable = cable(8);
    let tees =
        tees(&cable, 3, Options { rings: Some(3), timestamps: TimestampSource::None, ..copying() });
    assert!(!tees[0].program().layout().by_cpu);
    for (ring, got) in (0..).zip(check(&cable, tees)) {
        assert!(!got.frames.is_empty());
        assert!(got.queues.keys().all(|queue| queue % 3 == ring), "{ring}: {:?}", got.queues);
    }
}

#[test]
fn full_rings_are_counted_for_their_queues() {
    root_or_skip!();
    let cable = cable(4);
    let mut tees = tees(&cable, 1, Options { rings: Some(4), buffer: Some(4 << 16), ..copying() });
    let sent = send_from_every_cpu(&cable, 4000);
    let counts = tees[0].statistics().unwrap();
    assert!(counts.full > 0, "{counts:?}");
    assert_eq!(counts.captured + counts.full, sent, "{counts:?}");
    let queues = tees[0].queue_statistics().unwrap();
    assert_eq!(queues.iter().map(|(_, counts)| counts.full).sum::<u64>(), counts.full);
    assert!(queues.len() > 1 && queues.iter().all(|(queue, _)| *queue < 4), "{queues:?}");
    let got = read(&mut tees[0], &AtomicBool::new(true));
    assert_eq!((got.frames.len() as u64, got.disordered), (counts.captured, 0));
}
