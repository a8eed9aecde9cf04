//! Tees on real veth pairs: a copy for each capture, the stack still gets everything, and nothing
//! stays attached.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::xdp_support::{
    CHILD, Cable, SetOnDrop, Stack, becomes_free, child, copying, drain, number, port, to_port, udp,
};
use linerate_bpf::filter::Instruction;
use linerate_ring::tee::{Action, Statistics, Tee};
use linerate_ring::{Batch as _, Error, Options, Result, Ring as _, TimestampSource};
use linerate_testkit::{VethOptions, only_this_test, root_or_skip, uninterrupted};
use rustix::event::{Timespec, epoll};

fn open(cable: &Cable, options: Options, filter: Option<&[Instruction]>) -> Result<Tee> {
    cable.receiver.run(|| Tee::open("rx", &options, filter)).expect("the namespace")
}

fn tee(cable: &Cable, options: Options, filter: Option<&[Instruction]>) -> Tee {
    open(cable, options, filter).unwrap_or_else(|error| panic!("{error}"))
}

/// The check after the announcement may pass over the record that carries a wake-up. The program has cleared the
/// announcement by then.
#[test]
fn a_look_that_passes_over_a_wake_up_announces_the_sleep_again() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let filter = to_port(7);
    let mut tee = tee(&cable, Options { batch: 1, ..copying() }, Some(&filter));
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let ring = tee.descriptors()[0].try_clone_to_owned().unwrap();
    let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&epoll, &ring, epoll::EventData::new_u64(0), edges).unwrap();
    let raw = cable.raw();
    for turn in 0..10 {
        assert!(!tee.arm(), "turn {turn}: no frame");
        raw.send(&udp(7, turn, 100));
        assert!(is_woken(&epoll), "turn {turn}: the frame wakes the reader");
        // Reads the frame, and not the empty record behind it.
        let frame =
            tee.next_batch().and_then(|mut batch| batch.next().map(|frame| number(frame.head())));
        assert_eq!(frame, Some(turn), "turn {turn}");
        assert!(!tee.ready(), "turn {turn}: there is one frame");
        raw.send(&udp(7, turn, 100));
        assert!(
            is_woken(&epoll),
            "turn {turn}: the reader said that it sleeps, and no frame was there"
        );
        assert_eq!(drain(&mut tee, |_| ()), 1, "turn {turn}");
    }
}

/// An epoll instance with an edge for each wake-up of the reader.
fn edges_of(tee: &Tee) -> OwnedFd {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    for ring in tee.descriptors() {
        epoll::add(&epoll, ring, epoll::EventData::new_u64(0), flags).unwrap();
    }
    epoll
}

/// A reader that announces its sleep only when it finds nothing is woken once for each announcement.
#[test]
fn a_reader_that_is_awake_is_not_woken() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let filter = to_port(7);
    let mut tee = tee(&cable, Options { batch: 3, ..copying() }, Some(&filter));
    let epoll = edges_of(&tee);
    let raw = cable.raw();
    for turn in 0..20 {
        assert!(!tee.arm(), "turn {turn}: a frame");
        assert_eq!(tee.wakeups(), turn);
        raw.send(&udp(7, 0, 100));
        assert!(is_woken(&epoll), "turn {turn}: the frame wakes the reader");
        assert!(tee.arm());
        (1..50).for_each(|n| raw.send(&udp(7, n, 100)));
        let (mut count, end) = (0, Instant::now() + Duration::from_secs(20));
        while count < 50 {
            assert!(Instant::now() < end, "turn {turn}: {count} frames");
            let Some(mut batch) = tee.next_batch() else { continue };
            while let Some(frame) = batch.next() {
                assert_eq!(number(frame.head()), count, "turn {turn}");
                count += 1;
            }
        }
    }
    assert!(!tee.arm());
    assert_eq!(tee.wakeups(), 20, "frames that came while the reader was awake woke it");
}

/// Frames that come at any moment of the announcement wake the reader, with one ring and with several.
#[test]
fn an_edge_triggered_reader_misses_no_wake_up() {
    const FRAMES: u64 = 3000;
    root_or_skip!();
    for (rings, timestamps) in
        [(1, TimestampSource::Software), (2, TimestampSource::Software), (2, TimestampSource::None)]
    {
        let cable = Cable::new(VethOptions { queues: rings, ..VethOptions::default() });
        let filter = to_port(7);
        let mut tee = tee(&cable, Options { timestamps, ..copying() }, Some(&filter));
        let epoll = edges_of(&tee);
        let raw = cable.raw();
        let sender = std::thread::spawn(move || {
            for n in 0..FRAMES {
                // From a few hundred nanoseconds, in which the reader is about to sleep, to a sleep.
                (0..n * 37 % 400).for_each(|_| std::hint::spin_loop());
                if n % 16 == 0 {
                    std::thread::sleep(Duration::from_micros(n % 100));
                }
                raw.send(&udp(7, n, 100));
            }
        });
        let mut count = 0;
        while count < FRAMES {
            while tee.arm() {
                let Some(mut batch) = tee.next_batch() else { continue };
                while batch.next().is_some() {
                    count += 1;
                }
            }
            assert!(count == FRAMES || is_woken(&epoll), "not woken after {count} frames");
        }
        sender.join().unwrap();
    }
}

/// Whether there is an event within a second.
fn is_woken(epoll: &OwnedFd) -> bool {
    let mut events =
        [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
    let limit = Timespec { tv_sec: 1, tv_nsec: 0 };
    uninterrupted(|| Ok(epoll::wait(epoll, &mut events[..], Some(&limit))?)).unwrap() > 0
}

#[test]
fn a_reader_that_never_catches_up_gives_room_back() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    // Room for 500 frames and a few.
    let mut tee = tee(&cable, Options { buffer: Some(1 << 16), ..copying() }, None);
    let raw = cable.raw();
    for n in 0..100 {
        raw.send(&udp(7, n, 100));
    }
    for n in 0..2000 {
        raw.send(&udp(7, 100 + n, 100));
        // One of each batch, as programs read that ask for one packet.
        let mut found = false;
        while !found {
            assert!(tee.wait(Duration::from_secs(20)).expect("wait"));
            let mut batch = tee.next_batch().expect("a batch");
            if let Some(frame) = batch.next() {
                assert_eq!(number(frame.head()), n);
                found = true;
            }
            batch.suspend();
        }
    }
    let counts = tee.statistics().unwrap();
    assert_eq!(counts.lost(), 0, "{counts:?}");
}

#[test]
fn four_tees_get_their_frames_and_the_stack_gets_all() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let filters: Vec<_> = (0..3).map(|n| to_port(7 + n)).collect();
    let stacks: Vec<_> = (0..3).map(|n| Stack::listen(&cable, 7 + n)).collect();
    let mut tees: Vec<_> = filters.iter().map(|f| tee(&cable, copying(), Some(f))).collect();
    tees.push(tee(&cable, Options { snaplen: 50, ..copying() }, None));
    assert_eq!(
        tees.iter().filter_map(|tee| tee.program().slot()).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
    let raw = cable.raw();
    let send = || (0..300).for_each(|n| raw.send(&udp(7 + n as u16 % 3, n, 100)));
    send();
    for (n, tee) in tees.iter_mut().enumerate().take(3) {
        let count = drain(tee, |frame| assert_eq!(port(frame.head()), 7 + n as u16));
        let counts = tee.statistics().unwrap();
        assert_eq!((count, counts.captured, counts.unmatched), (100, 100, 200), "{counts:?}");
    }
    let all = drain(&mut tees[3], |frame| assert_eq!((frame.len(), frame.wire_len), (50, 100)));
    assert_eq!(all, 300);
    assert!(stacks.iter().all(|stack| stack.count() == 100), "the stack gets every frame");
    // One in the middle leaves; the others go on, and the next takes its place.
    tees.remove(1);
    send();
    let counts: Vec<_> = tees.iter_mut().map(|tee| drain(tee, |_| ())).collect();
    assert_eq!(counts, [100, 100, 300]);
    let again = tee(&cable, copying(), None);
    assert_eq!(again.program().slot(), Some(1));
    // The one that attached the root leaves before the others.
    drop(tees.remove(0));
    send();
    assert_eq!(drain(&mut tees[1], |_| ()), 300);
    drop((tees, again));
    assert!(becomes_free(&cable), "after the last");
}

#[test]
fn taken_frames_end_and_the_others_reach_the_stack() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let filter = to_port(7);
    let taken = Stack::listen(&cable, 7);
    let passed = Stack::listen(&cable, 8);
    let mut taking = tee(&cable, Options { action: Action::Redirect, ..copying() }, Some(&filter));
    assert_eq!(taking.program().slot(), None);
    let raw = cable.raw();
    (0..200).for_each(|n| raw.send(&udp(7 + n as u16 % 2, n, 100)));
    let mut expected = 0;
    drain(&mut taking, |frame| {
        assert_eq!(frame.head(), udp(7, expected, 100));
        expected += 2;
    });
    let counts = taking.statistics().unwrap();
    assert_eq!((counts.captured, counts.unmatched, counts.lost()), (100, 100, 0), "{counts:?}");
    assert_eq!((taken.count(), passed.count()), (0, 100));
    drop(taking);
    assert!(becomes_free(&cable));
}

#[test]
fn a_ninth_tee_is_refused() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let mut tees: Vec<_> =
        (0..8).map(|_| tee(&cable, Options { buffer: Some(1 << 16), ..copying() }, None)).collect();
    match open(&cable, copying(), None) {
        Err(Error::Bpf(linerate_bpf::Error::NoSlot { interface, slots })) => {
            assert_eq!((&*interface, slots), ("rx", 8));
        }
        other => panic!("{other:?}"),
    }
    cable.raw().send(&udp(7, 5, 100));
    for tee in &mut tees {
        assert_eq!(drain(tee, |frame| assert_eq!(number(frame.head()), 5)), 1);
    }
}

#[test]
fn processes_share_an_interface_and_may_be_killed() {
    if std::env::var_os(CHILD).is_some() {
        let _tee = Tee::open("rx", &Options { buffer: Some(1 << 16), ..copying() }, None).unwrap();
        println!("ready");
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let raw = cable.raw();
    // The child attaches the root; it dies, and the others stay.
    let mut first = child(&cable, only_this_test!());
    let mut second = child(&cable, only_this_test!());
    let mut own = tee(&cable, copying(), None);
    assert_eq!(own.program().slot(), Some(2));
    for child in [&mut first, &mut second] {
        raw.send(&udp(7, 0, 100));
        assert_eq!(drain(&mut own, |_| ()), 1);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    raw.send(&udp(7, 0, 100));
    assert_eq!(drain(&mut own, |_| ()), 1, "goes on without them");
    let heir = tee(&cable, copying(), None);
    assert_eq!(heir.program().slot(), Some(0), "the place of a dead process is free");
    drop((own, heir));
    assert!(becomes_free(&cable), "after the last");
    // A lone one is killed.
    let mut lone = child(&cable, only_this_test!());
    assert!(cable.veth.b.has_xdp().unwrap());
    lone.kill().unwrap();
    lone.wait().unwrap();
    assert!(becomes_free(&cable), "after kill -9");
}

#[test]
fn tees_that_start_and_stop_at_the_same_moment_all_work() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let tee = tee(&cable, Options { buffer: Some(4096), ..copying() }, None);
                    assert!(tee.program().slot() < Some(8));
                }
            });
        }
    });
    assert!(becomes_free(&cable));
}

/// The counts once all that was sent has come: a busy softirq may be behind the sender.
fn after_all(tee: &Tee, sent: u64) -> Statistics {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        let counts = tee.statistics().unwrap();
        let come = counts.captured + counts.unmatched + counts.lost() + counts.late;
        if come >= sent || Instant::now() > end {
            return counts;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_stop_under_load_leaves_no_frame_without_an_account() {
    root_or_skip!();
    // A buffer that holds all, and one that overflows.
    let actions = [Action::Copy, Action::Redirect];
    for (action, buffer) in actions.map(|one| [(one, 64 << 20), (one, 1 << 16)]).concat() {
        let cable = Cable::new(VethOptions::default());
        let mut tee = tee(&cable, Options { action, buffer: Some(buffer), ..copying() }, None);
        let (raw, stack) = (cable.raw(), Stack::listen(&cable, 7));
        let (sent, done) = (AtomicU64::new(0), AtomicBool::new(false));
        let mut numbers = Vec::new();
        let at_stop = std::thread::scope(|scope| {
            let (sent, done) = (&sent, &done);
            scope.spawn(move || {
                while !done.load(SeqCst) {
                    raw.send(&udp(7, sent.fetch_add(1, SeqCst), 100));
                }
            });
            let ending = SetOnDrop(done);
            while numbers.len() < 5000 {
                assert!(
                    tee.wait(Duration::from_secs(3)).unwrap(),
                    "{action:?} {buffer}: nothing comes"
                );
                while let Some(mut batch) = tee.next_batch() {
                    while let Some(frame) = batch.next() {
                        numbers.push(number(frame.head()));
                    }
                }
            }
            tee.stop().unwrap();
            let at_stop = tee.statistics().unwrap();
            drain(&mut tee, |frame| numbers.push(number(frame.head())));
            assert_eq!(tee.statistics().unwrap().received, at_stop.captured, "all is in the ring");
            // Some certainly come after the stop.
            let after = sent.load(SeqCst) + 1000;
            while sent.load(SeqCst) < after {
                std::thread::yield_now();
            }
            drop(ending);
            at_stop
        });
        assert!(!tee.wait(Duration::from_secs(60)).unwrap(), "it says so at once");
        assert!(tee.next_batch().is_none());
        let end = after_all(&tee, sent.load(SeqCst));
        assert!(end.late > 0, "{action:?} {buffer}: {end:?}");
        assert_eq!((end.captured, end.lost()), (at_stop.captured, at_stop.lost()), "{end:?}");
        assert_eq!(end.received + end.lost() + end.late, sent.load(SeqCst), "{end:?}");
        assert_eq!(numbers.len() as u64, end.received);
        assert!(numbers.is_sorted_by(|a, b| a < b));
        if buffer > 1 << 16 {
            assert_eq!(end.lost(), 0, "{end:?}");
            assert_eq!(numbers.last(), Some(&(end.received - 1)), "none is missing in between");
        }
        if action == Action::Redirect {
            // The receive buffer of the stack's socket holds some hundred.
            assert!(stack.count() > 0, "what came later went to the stack");
        }
    }
}
