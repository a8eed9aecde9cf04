//! Many sessions at once. A flood of sessions of one packet each gets no entry, and those that have one keep it. As many as
//! there is room for are learned soon, also when they take turns.
//!
//! LINERATE_FLOOD is their number; default: a million.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use linerate_forward::runtime::program::Options;
use linerate_forward::table::session::{Session, State};
use linerate_generate::RandomFields;
use linerate_ring::packet::Sender;
use linerate_testkit::{exclusive, root_or_skip};
use linerate_wire::virtio::Header;

use crate::common::accelerator::Accelerator;
use crate::common::host::{DMZ, Host, PORTS, router_mac};
use crate::common::load::load;
use crate::common::router::Router;
use crate::common::sink::Sink;

/// Sessions that were there before.
const ESTABLISHED: u16 = 64;
/// More than anything here takes, also while others have the CPUs.
const TIMEOUT: Duration = Duration::from_secs(30);

fn frame(port: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ethernet2(Host { port: DMZ, number: 10 }.mac().0, router_mac(DMZ).0)
        .ipv4([10, 3, 0, 10], [10, 2, 0, 10], 64)
        .udp(port, 9)
        .write(&mut frame, &[0; 20])
        .expect("a frame");
    frame
}

fn established(accelerator: &Accelerator) -> Vec<Session> {
    let mut sessions = accelerator.sessions();
    sessions.retain(|session| session.tuple.source.ip().to_string() == "10.3.0.10");
    sessions
}

/// Keeps a thread from staying when the test panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn a_flood_takes_no_place_from_sessions_that_are_there() {
    root_or_skip!();
    // It loads both CPUs.
    let _exclusive = exclusive();
    let flood = std::env::var("LINERATE_FLOOD").ok().and_then(|text| text.parse().ok());
    let flood: u64 = flood.unwrap_or(1_000_000);
    let router = Router::new("flood");
    let _sink = Sink::open(&router, "count");
    let options = Options { max_sessions: 65_536, ..Options::default() };
    let accelerator = Accelerator::start(&router, &options);
    let sender =
        router.outside.run(|| Sender::open(PORTS[DMZ])).expect("entered").expect("a socket");
    let frames: Vec<_> = (0..ESTABLISHED).map(|flow| frame(2000 + flow)).collect();
    let round = || {
        for frame in &frames {
            sender.send(&Header::default(), frame).expect("sent");
        }
    };
    let reached = || router.cables[DMZ].a.statistics().expect("counted").rx_packets;
    // No more at once than a veth's ring holds, even if the CPU that drains it is busy.
    let round = || {
        let all = reached() + u64::from(ESTABLISHED);
        round();
        let deadline = Instant::now() + TIMEOUT;
        while reached() < all {
            assert!(Instant::now() < deadline, "the router does not take in a round");
            sleep(Duration::from_micros(100));
        }
    };
    (0..10).for_each(|_| round());
    let counted = |sessions: &[Session]| sessions.iter().map(|one| one.packets).sum::<u64>();
    let deadline = Instant::now() + TIMEOUT;
    // Of two sessions that meet where packets are counted before they are sessions, the first packets may be
    // lost; with the random hash that befalls two of these every thirtieth time. The counts have to stand still.
    let mut before = established(&accelerator);
    loop {
        sleep(Duration::from_millis(50));
        let records = established(&accelerator);
        let all = records.len() == usize::from(ESTABLISHED)
            && records.iter().all(|record| (9..=10).contains(&record.packets));
        if all && counted(&records) == counted(&before) {
            break;
        }
        before = records;
        let told = (before.len(), counted(&before), accelerator.refusals(), accelerator.reasons());
        assert!(Instant::now() < deadline, "{told:?}");
    }

    let done = AtomicBool::new(false);
    let rounds = thread::scope(|scope| {
        let talking = scope.spawn(|| {
            let mut rounds = 0_u64;
            while !done.load(SeqCst) {
                round();
                rounds += 1;
                sleep(Duration::from_millis(1));
            }
            rounds
        });
        let _stop = Stop(&done);
        let traffic = linerate_generate::Options {
            count: Some(flood),
            source: Some("10.101.0.0/16".parse().expect("addresses")),
            destination: Some("10.102.0.9".parse().expect("an address")),
            random: RandomFields {
                source: true,
                source_port: true,
                destination_port: true,
                ..RandomFields::default()
            },
            ..linerate_generate::Options::default()
        };
        let report = load(&router, traffic).wait().expect("a report");
        println!("{} of {} frames of the flood reached the router", report.accepted, report.sent);
        assert!(report.error.is_none() && report.accepted > flood / 4, "{report:?}");
        done.store(true, SeqCst);
        talking.join().expect("joined")
    });
    let deadline = Instant::now() + TIMEOUT;
    let all = counted(&before) + rounds * u64::from(ESTABLISHED);
    while counted(&established(&accelerator)) < all && Instant::now() < deadline {
        sleep(Duration::from_millis(5));
    }

    let after = established(&accelerator);
    assert_eq!(after.len(), before.len());
    let place = |one: &Session| (one.slot, one.created, one.revalidations);
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(place(before), place(after), "{after:?}");
        assert_ne!(after.state, State::Ended, "{after:?}");
        assert_eq!(after.packets - before.packets, rounds, "{after:?}");
    }
    // Whoever goes through the kernel is learned from, or counted as known, at the way out only.
    let all = accelerator.sessions().len();
    println!("{all} sessions afterwards, {rounds} packets of each that was there");
    println!(
        "to the kernel: {:?}; not learned: {:?}",
        accelerator.reasons(),
        accelerator.refusals()
    );
    assert!(all < usize::from(ESTABLISHED) + flood as usize / 1000, "{all} sessions");
}

#[test]
fn sessions_that_take_turns_are_learned_in_three_rounds() {
    const SESSIONS: u64 = 65_536;
    root_or_skip!();
    let _exclusive = exclusive();
    let router = Router::new("turns");
    let _sink = Sink::open(&router, "count");
    let options = Options { max_sessions: SESSIONS, ..Options::default() };
    let accelerator = Accelerator::start(&router, &options);
    let traffic = linerate_generate::Options {
        count: Some(3 * SESSIONS),
        flows: Some(SESSIONS),
        // The router takes in every frame, also while others have the CPUs.
        rate: "40kpps".parse().expect("a rate"),
        source: Some("10.101.0.0-10.101.0.1".parse().expect("addresses")),
        destination: Some("10.102.0.9".parse().expect("an address")),
        source_ports: Some("1-32768".parse().expect("ports")),
        ..linerate_generate::Options::default()
    };
    let report = load(&router, traffic).wait().expect("a report");
    assert!(report.error.is_none() && report.accepted == 3 * SESSIONS, "{report:?}");
    let learned = || accelerator.sessions().len() as u64;
    let deadline = Instant::now() + TIMEOUT;
    while learned() < SESSIONS * 96 / 100 {
        let told = (learned(), accelerator.refusals(), accelerator.reasons());
        assert!(Instant::now() < deadline, "{told:?}");
        sleep(Duration::from_millis(50));
    }
}
