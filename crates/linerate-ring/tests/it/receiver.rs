//! The receiver of frames by XDP: each delivery, what it says of itself, its fallback and promiscuity.

use std::cell::Cell;
use std::time::Duration;

use linerate_net::link;
use linerate_ring::tee::Action;
use linerate_ring::{
    Batch as _, Delivery, Error, Options, Receiver, Result, Ring as _, WaitStrategy,
};
use linerate_testkit::{VethOptions, root_or_skip};

use crate::xdp_support::{Cable, drain, number, udp};

const FRAMES: u64 = 100;

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
    for (delivery, action) in [
        (Delivery::AfXdp, Action::Redirect),
        (Delivery::RingBuffer, Action::Redirect),
        (Delivery::RingBuffer, Action::Copy),
    ] {
        let cable = Cable::new(VethOptions::default());
        let wait_strategy = WaitStrategy::BLOCKING;
        let options = Options { delivery, action, wait_strategy, ..Options::default() };
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
