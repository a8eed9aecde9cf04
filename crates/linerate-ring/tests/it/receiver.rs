//! The receiver of frames by XDP: what both deliveries have in common, what it says of itself, its fallback and
//! promiscuity.

use std::cell::Cell;
use std::time::Duration;

use linerate_bpf::tee;
use linerate_net::link;
use linerate_ring::tee::Action;
use linerate_ring::xdp::{self, AttachMode};
use linerate_ring::{
    Batch as _, Delivery, Error, Options, Receiver, Result, Ring as _, Timestamp, TimestampSource,
    WaitStrategy,
};
use linerate_testkit::{VethOptions, root_or_skip, skip};

use crate::xdp_support::{Cable, becomes_free, copying, drain, number, small, udp};

const FRAMES: u64 = 100;

/// Sockets, ring buffers that take their frames from the host, and a tee.
fn ways() -> [Options; 3] {
    let redirecting = Options { delivery: Delivery::RingBuffer, ..Options::default() };
    [Options { delivery: Delivery::AfXdp, ..small() }, redirecting, copying()]
}

/// Opens a receiver on `rx`, without a filter.
fn open(cable: &Cable, options: &Options) -> Result<Receiver> {
    let open = || Receiver::open("rx", options, |_| Ok::<_, Error>(None));
    cable.receiver.run(open).expect("the namespace")
}

/// How many want `rx` to be promiscuous.
fn promiscuity(cable: &Cable) -> u32 {
    cable.receiver.run(|| link::by_name("rx").expect("a link").promiscuity).expect("the namespace")
}

/// Sends frames, and takes them from the receiver in their order.
fn receives(cable: &Cable, receiver: &mut Receiver) {
    let raw = cable.raw();
    (0..FRAMES).for_each(|n| raw.send(&udp(7, n, 100)));
    let mut next = 0;
    while next < FRAMES {
        assert!(receiver.wait(Duration::from_secs(5)).expect("waited"), "only {next} came");
        while let Some(mut batch) = receiver.next_batch() {
            while let Some(found) = batch.peek().map(number) {
                let frame = batch.next().expect("the frame that was seen");
                assert_eq!((found, number(frame.head())), (next, next));
                next += 1;
            }
        }
    }
    let counts = receiver.statistics().expect("counts");
    assert_eq!((counts.received, counts.matched, counts.lost()), (FRAMES, FRAMES, 0), "{counts:?}");
    let read = receiver.statistics_reader().expect("a handle").read().expect("counts");
    assert_eq!(read.matched, FRAMES);
}

#[test]
fn each_delivery_brings_frames_says_what_it_is_and_keeps_the_interface_promiscuous() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let before = promiscuity(&cable);
    for (delivery, action, said) in [
        (
            Delivery::AfXdp,
            Action::Redirect,
            "native XDP, AF_XDP sockets (requested), one copy by the kernel, ",
        ),
        (Delivery::RingBuffer, Action::Redirect, "native XDP, a ring buffer (requested)"),
        (
            Delivery::Auto,
            Action::Redirect,
            "native XDP, a ring buffer (the driver has no zero-copy AF_XDP)",
        ),
        (Delivery::Auto, Action::Copy, "native XDP"),
    ] {
        let options = Options {
            delivery,
            action,
            buffer: Some(16 << 20),
            promiscuous: true,
            ..Options::default()
        };
        let mut receiver = open(&cable, &options).expect("a receiver");
        assert!(receiver.config().to_string().starts_with(said), "{}", receiver.config());
        assert_eq!(promiscuity(&cable), before + 1);
        receives(&cable, &mut receiver);
        drop(receiver);
        assert_eq!(promiscuity(&cable), before);
    }
}

#[test]
fn options_that_only_sockets_have_decide_for_sockets() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let options = Options {
        buffer: Some(16 << 20),
        busy_poll: Some(Duration::from_micros(20)),
        ..Options::default()
    };
    let receiver = open(&cable, &options).expect("a receiver");
    assert_eq!(receiver.config().delivery, Delivery::AfXdp);
    assert_eq!(receiver.config().reason, "only sockets poll the driver");
}

#[test]
fn sockets_replace_a_ring_buffer_that_does_not_open() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let attempt = |delivery| {
        let options =
            Options { delivery, contiguous: true, buffer: Some(16 << 20), ..Options::default() };
        let open = || {
            let lengths = Cell::new(Vec::new());
            let receiver = Receiver::open("rx", &options, |longest| {
                let seen = [lengths.take(), vec![longest]].concat();
                let first = seen.len() == 1;
                lengths.set(seen);
                if first { Err(Error::Invalid("not this one".to_owned())) } else { Ok(None) }
            });
            (receiver, lengths.take())
        };
        cable.receiver.run(open).expect("the namespace")
    };
    let (receiver, lengths) = attempt(Delivery::Auto);
    let mut receiver = receiver.expect("sockets");
    assert_eq!(receiver.config().reason, "a ring buffer does not open here: not this one");
    // A ring buffer takes what the MTU allows, a chunk of 2,048 bytes what fits behind the headroom.
    assert_eq!((lengths, receiver.config().longest), (vec![1518, 1792], 1792));
    receives(&cable, &mut receiver);
    drop(receiver);
    let (refused, _) = attempt(Delivery::RingBuffer);
    assert_eq!(refused.expect_err("asked for by name").to_string(), "not this one");
}

#[test]
fn an_interface_that_is_down_is_named() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    cable.veth.b.down().expect("down");
    let error = open(&cable, &Options { promiscuous: true, ..Options::default() }).err();
    assert!(matches!(error, Some(Error::InterfaceDown(name)) if name == "rx"));
}

#[test]
fn an_interface_that_goes_down_or_away_is_said_so() {
    root_or_skip!();
    for options in ways() {
        let cable = Cable::new(VethOptions::default());
        let options = Options { wait_strategy: WaitStrategy::BLOCKING, ..options };
        let mut receiver = open(&cable, &options).unwrap();
        let tick = Duration::from_millis(50);
        assert!(!receiver.wait(tick).unwrap(), "{options:?}");
        cable.veth.b.down().unwrap();
        assert!(matches!(receiver.wait(tick), Err(Error::InterfaceDown(name)) if name == "rx"));
        assert!(!receiver.wait(tick).unwrap(), "said once");
        cable.veth.b.up().unwrap();
        cable.raw().send(&udp(7, 0, 100));
        assert_eq!(drain(&mut receiver, |_| ()), 1, "goes on: {options:?}");
        cable.veth.delete().unwrap();
        let gone = (0..20).find_map(|_| receiver.wait(tick).err());
        assert!(matches!(gone, Some(Error::InterfaceGone(name)) if name == "rx"), "{options:?}");
    }
}

#[test]
fn all_that_is_sent_comes_in_order_and_unchanged() {
    root_or_skip!();
    for options in ways() {
        let cable = Cable::new(VethOptions::default());
        // A chunk for each frame: how busy the machine is does not matter.
        let options = Options { buffer: Some(64 << 20), ..options };
        let mut receiver = open(&cable, &options).unwrap();
        let raw = cable.raw();
        let sender = std::thread::spawn(move || {
            for n in 0..20_000 {
                raw.send(&udp(7, n, 60 + (n % 1400) as usize));
            }
        });
        let mut expected = 0;
        drain(&mut receiver, |frame| {
            assert_eq!(frame.head(), udp(7, expected, 60 + (expected % 1400) as usize));
            assert_eq!(frame.wire_len as usize, frame.len());
            assert!(frame.timestamp.is_some(), "the reader or the program stamps");
            expected += 1;
        });
        sender.join().unwrap();
        let counts = receiver.statistics().unwrap();
        assert_eq!((expected, counts.received, counts.lost()), (20_000, 20_000, 0), "{options:?}");
        assert_eq!(counts.matched, 20_000, "{options:?}");
        assert_eq!(receiver.config().mode, AttachMode::Native, "a veth has native XDP");
    }
}

#[test]
fn a_small_buffer_keeps_the_oldest_and_counts_the_others() {
    root_or_skip!();
    for options in ways() {
        let cable = Cable::new(VethOptions::default());
        // Chunks come in whole huge pages. A ring buffer has room for 500 frames and a few.
        let options = Options { buffer: Some(1 << 16), ..options };
        let least = if options.delivery == Delivery::AfXdp { 1024 } else { 300 };
        let mut receiver = open(&cable, &options).unwrap();
        let raw = cable.raw();
        (0..5000).for_each(|n| raw.send(&udp(7, n, 100)));
        let mut next = 0;
        let received = drain(&mut receiver, |frame| {
            assert_eq!(number(frame.head()), next, "the oldest are kept, in order");
            next += 1;
        });
        let counts = receiver.statistics().unwrap();
        assert!((least..=1024).contains(&received), "{options:?}: {counts:?}");
        let full = counts.fill_empty + counts.ring_buffer_full;
        assert_eq!((received + full, counts.lost()), (5000, full), "{options:?}: {counts:?}");
        (0..least).for_each(|n| raw.send(&udp(7, n, 100)));
        assert_eq!(drain(&mut receiver, |_| ()), least, "{options:?}: the space has come back");
    }
}

#[test]
fn jumbo_frames_come_whole() {
    root_or_skip!();
    let cable = Cable::new(VethOptions { mtu: 9000, ..VethOptions::default() });
    for options in ways().into_iter().rev() {
        let by_sockets = options.delivery == Delivery::AfXdp;
        if by_sockets && !cable.receiver.run(|| xdp::probe("rx")).unwrap().multi_buffer {
            let why = "the kernel announces no frames of several buffers for a veth";
            skip!(why);
        }
        let mut receiver = open(&cable, &options).unwrap();
        let raw = cable.raw();
        let len = |n: u64| 60 + (n as usize * 17) % 8900;
        (0..500).for_each(|n| raw.send(&udp(7, n, len(n))));
        let (mut next, mut pieces, mut scratch) = (0, 0, Vec::new());
        drain(&mut receiver, |frame| {
            assert_eq!(frame.contiguous(&mut scratch), udp(7, next, len(next)));
            assert_eq!(frame.wire_len as usize, len(next));
            pieces += frame.tail().len();
            next += 1;
        });
        assert_eq!((next, receiver.statistics().unwrap().lost()), (500, 0), "{options:?}");
        assert_eq!(pieces > 500, by_sockets, "long frames have several chunks: {pieces}");
        drop(receiver);
        assert!(becomes_free(&cable));
    }
}

#[test]
fn a_sleeping_reader_is_woken() {
    root_or_skip!();
    for options in ways() {
        let cable = Cable::new(VethOptions::default());
        let options = Options { wait_strategy: WaitStrategy::BLOCKING, ..options };
        let mut receiver = open(&cable, &options).unwrap();
        let raw = cable.raw();
        let sender = std::thread::spawn(move || {
            for n in 0..200 {
                std::thread::sleep(Duration::from_micros(n * 7));
                raw.send(&udp(7, n, 100));
            }
        });
        let mut count = 0;
        while count < 200 {
            // Far longer than a frame takes to come: a wake-up that is lost ends the test.
            assert!(receiver.wait(Duration::from_secs(3)).unwrap(), "never woken after {count}");
            while let Some(mut batch) = receiver.next_batch() {
                while batch.next().is_some() {
                    count += 1;
                }
            }
        }
        sender.join().unwrap();
    }
}

#[test]
fn stamps_of_the_kernel_are_utc_and_rise() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let [sockets, redirecting, tee] = ways();
    for (options, timestamps) in [
        (&sockets, TimestampSource::Software),
        (&sockets, TimestampSource::Hardware),
        (&redirecting, TimestampSource::Software),
        (&tee, TimestampSource::Software),
        (&tee, TimestampSource::None),
    ] {
        let mut receiver = open(&cable, &Options { timestamps, ..options.clone() }).unwrap();
        let raw = cable.raw();
        let now = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        let before = now();
        for n in 0..50 {
            raw.send(&udp(7, n, 100));
            std::thread::sleep(Duration::from_micros(100));
        }
        let after = now();
        let mut last = before - 1_000_000;
        let count = drain(&mut receiver, |frame| {
            assert_eq!(frame.head(), udp(7, number(frame.head()), 100), "metadata is not data");
            assert_eq!(frame.timestamp.is_some(), timestamps != TimestampSource::None);
            let Some(Timestamp(stamp)) = frame.timestamp else { return };
            assert!(stamp > last && stamp < after + 1_000_000, "{last} {stamp} {after}");
            last = stamp;
        });
        assert_eq!(count, 50, "{timestamps:?}: {:?}", receiver.config());
        drop(receiver);
        assert!(becomes_free(&cable));
    }
}

#[test]
fn somebody_elses_program_is_named_and_left_alone() {
    root_or_skip!();
    let [sockets, redirecting, tee] = ways();
    for (first, second, holder) in [
        (&sockets, &sockets, "linerate_steer"),
        (&sockets, &tee, "linerate_steer"),
        (&redirecting, &tee, "linerate_take"),
        (&tee, &sockets, "linerate_tee"),
    ] {
        let cable = Cable::new(VethOptions::default());
        let shared = cable.receiver.run(|| tee::probe("rx")).unwrap();
        assert!(matches!(shared, Ok(false)), "{shared:?}");
        assert!(!cable.veth.b.has_xdp().unwrap(), "a probe attaches nothing");
        let mut receiver = open(&cable, first).unwrap();
        match open(&cable, second) {
            Err(Error::Bpf(linerate_bpf::Error::ForeignProgram {
                interface,
                id,
                name,
                mode,
                ..
            })) => {
                assert_eq!((&*interface, &*name, mode), ("rx", holder, AttachMode::Native));
                assert!(id > 0);
            }
            other => panic!("{holder}: {other:?}"),
        }
        let found = cable.receiver.run(|| xdp::probe("rx")).unwrap().unavailable;
        let foreign =
            |error: &Error| matches!(error, Error::Bpf(linerate_bpf::Error::ForeignProgram { .. }));
        assert!(found.as_ref().is_some_and(foreign), "{holder}: {found:?}");
        let shared = cable.receiver.run(|| tee::probe("rx")).unwrap();
        assert_eq!(matches!(shared, Ok(true)), first.action == Action::Copy, "{shared:?}");
        cable.raw().send(&udp(7, 0, 100));
        assert_eq!(drain(&mut receiver, |_| ()), 1, "the first goes on");
    }
}
