//! AF_XDP and the tee on network cards with drivers of their own, where they share frames without a copy: two
//! cards on one cable, that the machine lends by LINERATE_TEST_CARDS ("eth0 eth1"), as `scripts/test-kernels` does.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::xdp_support::{Raw, copying, small, udp};
use linerate_ring::region::Pages;
use linerate_ring::tee::Tee;
use linerate_ring::xdp::{CopyMode, Socket, Sockets, Umem, probe};
use linerate_ring::{Batch as _, Frame, Options, Region, Ring as _, WaitStrategy};
use linerate_testkit::{
    Exclusive, Interface, Namespace, exclusive, print_skipped, root_or_skip, test_name,
};

const FRAMES: u64 = 2000;
/// Fewer than a queue of the card holds.
const AT_ONCE: u64 = 32;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Two cards on one cable, each in a namespace.
struct Cards {
    sender: Namespace,
    receiver: Namespace,
    tx: Interface,
    rx: Interface,
    driver: String,
    // Last: the next test may have the cards when the namespaces are gone.
    _exclusive: Exclusive,
}

impl Cards {
    /// `None`, with a line that says so, if there are none.
    fn take(test: &str) -> Option<Self> {
        let names = std::env::var("LINERATE_TEST_CARDS").unwrap_or_default();
        let [tx, rx] = names.split_whitespace().collect::<Vec<_>>()[..] else {
            print_skipped(test, "LINERATE_TEST_CARDS names no two cards on one cable");
            return None;
        };
        let exclusive = exclusive();
        // The kernel gives a card back to the machine a while after its namespace has gone.
        let at = |name: &str| Path::new("/sys/class/net").join(name).join("device/driver");
        let end = Instant::now() + TIMEOUT;
        while !(at(tx).exists() && at(rx).exists()) {
            assert!(Instant::now() < end, "{tx} and {rx} are not both here");
            std::thread::sleep(Duration::from_millis(10));
        }
        let driver = at(rx).read_link().expect("a driver");
        let driver = driver.file_name().expect("a name").to_string_lossy().into_owned();
        let [(sender, tx), (receiver, rx)] =
            [("cardtx", tx), ("cardrx", rx)].map(|(name, card)| {
                let space = Namespace::create(name).expect("a namespace");
                for which in ["all", "default"] {
                    let key = format!("net/ipv6/conf/{which}/disable_ipv6");
                    space.sysctl(&key, "1").expect("a sysctl");
                }
                let words = ["link", "set", card, "netns", space.name()];
                let moved = std::process::Command::new("ip").args(words).status();
                assert!(moved.expect("iproute2 is installed").success(), "{card} cannot be moved");
                let card = space.interface(card).expect("moved");
                card.up().expect("up");
                (space, card)
            });
        Some(Self { sender, receiver, tx, rx, driver, _exclusive: exclusive })
    }

    /// Whether the driver of the cards announces zero-copy; prints a line if not.
    fn share_frames(&self, test: &str) -> bool {
        let probe = self.receiver.run(|| probe(self.rx.name())).expect("entered");
        assert!(probe.unavailable.is_none(), "{probe:?}");
        if !probe.zero_copy {
            print_skipped(test, &format!("the driver {} announces no zero-copy", self.driver));
        }
        probe.zero_copy
    }

    fn raw(&self) -> Raw {
        self.sender.run(|| Raw::open(self.tx.name())).expect("entered").expect("a socket")
    }
}

fn frame(n: u64) -> Vec<u8> {
    udp(7, n, 60 + (n % 1400) as usize)
}

/// Reads until as many frames have come; each has to be the next.
fn expect(next: &mut u64, until: u64, mut read: impl FnMut(&mut dyn FnMut(&Frame<'_>))) {
    let end = Instant::now() + TIMEOUT;
    loop {
        if *next >= until {
            return;
        }
        assert!(Instant::now() < end, "{next} of {until} frames came");
        read(&mut |got| {
            assert_eq!(got.head(), frame(*next), "frame {next}");
            *next += 1;
        });
    }
}

fn read_source(source: &mut Sockets, each: &mut dyn FnMut(&Frame<'_>)) {
    source.wait(Duration::from_millis(100)).expect("waited");
    while let Some(mut batch) = source.next_batch() {
        while let Some(frame) = batch.next() {
            each(&frame);
        }
    }
}

/// What a card does until it works at all is not counted: its driver starts its queues anew for a program.
fn wait_until_it_carries(raw: &Raw, mut comes: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !comes() {
        assert!(Instant::now() < end, "nothing comes through");
        raw.send(&[&[0xff; 12][..], &[0x88, 0xb5], &[0; 46]].concat());
    }
    while comes() {}
}

fn receives(cards: &Cards, copy_mode: CopyMode, zero_copy: bool) {
    let build = || {
        let options = Options { copy_mode, wait_strategy: WaitStrategy::BLOCKING, ..small() };
        Sockets::open(cards.rx.name(), &options, None)
    };
    let mut source = cards.receiver.run(build).expect("entered").unwrap_or_else(|e| panic!("{e}"));
    // What the kernel says of the socket (`XDP_OPTIONS`), not what was asked for.
    assert_eq!(source.mode().zero_copy, zero_copy, "{:?}", source.mode());
    let raw = cards.raw();
    wait_until_it_carries(&raw, || {
        let mut came = false;
        read_source(&mut source, &mut |_| came = true);
        came
    });
    let before = source.statistics().expect("counted");
    let mut next = 0;
    for n in 0..FRAMES {
        raw.send(&frame(n));
        if (n + 1) % AT_ONCE == 0 || n + 1 == FRAMES {
            expect(&mut next, n + 1, |each| read_source(&mut source, each));
        }
    }
    let counts = source.statistics().expect("counted");
    assert_eq!((counts.received - before.received, counts.lost()), (FRAMES, 0), "{counts:?}");
}

#[test]
fn frames_are_received_without_a_copy() {
    root_or_skip!();
    let Some(cards) = Cards::take(test_name!()) else { return };
    if cards.share_frames(test_name!()) {
        receives(&cards, CopyMode::ZeroCopy, true);
        // Nobody has to ask for it.
        receives(&cards, CopyMode::Auto, true);
    }
}

#[test]
fn frames_are_received_with_a_copy_where_that_is_asked_for() {
    root_or_skip!();
    let Some(cards) = Cards::take(test_name!()) else { return };
    receives(&cards, CopyMode::Copy, false);
}

#[test]
fn frames_are_sent_without_a_copy() {
    root_or_skip!();
    let Some(cards) = Cards::take(test_name!()) else { return };
    if !cards.share_frames(test_name!()) {
        return;
    }
    let build = || {
        let region = Region::new(64 * 2048, Pages::Small, None)?;
        let umem = Umem::new(region, 2048)?;
        let copy_mode = CopyMode::ZeroCopy;
        let options = Options { copy_mode, transmit: 64, ..Options::default() };
        Socket::open(cards.tx.name(), 0, &umem, 0, options).map(|socket| socket.tx.expect("a ring"))
    };
    let mut socket = cards.sender.run(build).expect("entered").unwrap_or_else(|e| panic!("{e}"));
    assert!(socket.mode().zero_copy, "{:?}", socket.mode());
    let open = || Sockets::open(cards.rx.name(), &small(), None);
    let mut source = cards.receiver.run(open).expect("entered").unwrap_or_else(|e| panic!("{e}"));
    let mut next = 0;
    for n in 0..FRAMES {
        let end = Instant::now() + TIMEOUT;
        let mut outgoing = loop {
            match socket.frame() {
                Some(outgoing) => break outgoing,
                None => assert!(Instant::now() < end, "no frame comes back"),
            }
            socket.flush().expect("flushed");
        };
        let bytes = frame(n);
        socket.bytes(&mut outgoing)[..bytes.len()].copy_from_slice(&bytes);
        socket.send(outgoing, bytes.len());
        if (n + 1) % AT_ONCE == 0 || n + 1 == FRAMES {
            while !socket.flush().expect("flushed") {
                assert!(Instant::now() < end, "the card takes nothing");
            }
            expect(&mut next, n + 1, |each| read_source(&mut source, each));
        }
    }
}

#[test]
fn a_tee_copies_all_that_a_card_receives() {
    root_or_skip!();
    let Some(cards) = Cards::take(test_name!()) else { return };
    let open =
        || Tee::open(cards.rx.name(), &Options { buffer: Some(16 << 20), ..copying() }, None);
    let mut tee = cards.receiver.run(open).expect("entered").unwrap_or_else(|e| panic!("{e}"));
    let raw = cards.raw();
    let read = |tee: &mut Tee, each: &mut dyn FnMut(&Frame<'_>)| {
        tee.wait(Duration::from_millis(100)).expect("waited");
        while let Some(mut batch) = tee.next_batch() {
            while let Some(frame) = batch.next() {
                each(&frame);
            }
        }
    };
    wait_until_it_carries(&raw, || {
        let mut came = false;
        read(&mut tee, &mut |_| came = true);
        came
    });
    let mut next = 0;
    for n in 0..FRAMES {
        raw.send(&frame(n));
        if (n + 1) % AT_ONCE == 0 || n + 1 == FRAMES {
            expect(&mut next, n + 1, |each| read(&mut tee, each));
        }
    }
    assert_eq!(tee.statistics().expect("counted").lost(), 0);
}
