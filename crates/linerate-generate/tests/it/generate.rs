//! The generator on a real veth pair: the frames that arrive are checked by an independent parser, and
//! against the same frames built in user space.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::common::Cable;
use crate::common::verify::verify;
use linerate_generate::fields::{Addresses, Ports};
use linerate_generate::interface::OutputInterface;
use linerate_generate::{
    Backend, Config, Error, FrameBuilder, Generator, Options, PayloadHeader, RandomFields, Rate,
    Report, Sizes, Transport,
};
use linerate_testkit::root_or_skip;

/// Slow enough that a ring of 256 never overflows, fast enough for live frames.
const GENTLE: Rate = Rate::Packets(40_000.0);

const ALL: RandomFields = RandomFields {
    source: true,
    destination: true,
    source_port: true,
    destination_port: true,
    source_mac: true,
    destination_mac: true,
    size: true,
};

fn run(options: Options) -> Report {
    Generator::start(Config::new("near", options).unwrap()).unwrap().wait().unwrap()
}

/// Sends a counted run; returns what arrived and checks that nothing else did.
fn carry(cable: &Cable, options: &Options) -> Vec<Vec<u8>> {
    let count = options.count.unwrap();
    let options = options.clone();
    let (arrivals, report) = cable.carry(count as usize, move || run(options));
    assert_eq!((report.sent, report.accepted, report.refused), (count, count, 0), "{report:?}");
    assert_eq!(arrivals.len() as u64, count, "{report:?}");
    let frames: Vec<Vec<u8>> = arrivals.into_iter().map(|(frame, _)| frame).collect();
    assert_eq!(report.bytes, frames.iter().map(|frame| frame.len() as u64).sum::<u64>());
    frames
}

/// The frames of the same run, built in user space.
fn expected(cable: &Cable, options: &Options) -> Vec<Vec<u8>> {
    let interface = cable.near.run(|| OutputInterface::find("near").unwrap()).unwrap();
    built(interface, options)
}

fn built(interface: OutputInterface, options: &Options) -> Vec<Vec<u8>> {
    let config = Config::for_interface(interface, options.clone()).unwrap();
    let mut frames = FrameBuilder::new(&config);
    (0..options.count.unwrap())
        .map(|_| {
            let mut frame = vec![0xa5; frames.next_len()];
            frames.write(&mut frame);
            frame
        })
        .collect()
}

#[test]
fn every_combination_arrives_with_right_checksums() {
    root_or_skip!();
    let cable = Cable::new(1500);
    let v6 = Some("2001:db8:5::7-2001:db8:5::3ff".parse::<Addresses>().unwrap());
    let mut seed = 0;
    for source in [None, v6] {
        for transport in [Transport::Udp, Transport::Tcp] {
            for vlan in [None, Some(0), Some(4094)] {
                for (sizes, random) in [
                    (Sizes::Fixed(101), RandomFields::default()),
                    (Sizes::Fixed(1514), ALL),
                    (Sizes::Range(78, 333), RandomFields::default()),
                    (Sizes::Range(78, 1514), ALL),
                    (
                        Sizes::Mix(vec![78, 590, 1514]),
                        RandomFields { size: true, ..RandomFields::default() },
                    ),
                ] {
                    seed += 1;
                    let options = Options {
                        count: Some(150),
                        sizes: Some(sizes),
                        rate: GENTLE,
                        source,
                        transport,
                        vlan,
                        random,
                        seed,
                        ..Options::default()
                    };
                    let frames = carry(&cable, &options);
                    assert_eq!(frames, expected(&cable, &options), "{options:?}");
                    for frame in &frames {
                        assert_eq!(verify(frame), vlan, "{options:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn rings_send_the_same_frames() {
    root_or_skip!();
    let cable = Cable::new(1500);
    for (vlan, rate, backend) in [
        (None, GENTLE, Backend::Packet),
        (Some(7), Rate::Packets(2_000.0), Backend::Packet),
        (None, Rate::Max, Backend::Packet),
        (Some(7), GENTLE, Backend::Xdp),
        (None, Rate::Max, Backend::Xdp),
    ] {
        let options = Options {
            count: Some(200),
            sizes: Some(Sizes::Range(90, 400)),
            rate,
            vlan,
            random: ALL,
            backend,
            ..Options::default()
        };
        let frames = carry(&cable, &options);
        assert_eq!(frames, expected(&cable, &options));
        for frame in &frames {
            assert_eq!(verify(frame), vlan);
        }
    }
}

#[test]
fn count_is_exact_at_full_speed() {
    root_or_skip!();
    let cable = Cable::new(1500);
    let before = cable.veth.b.statistics().unwrap();
    let options = Options { count: Some(300_001), ..Options::default() };
    let report = cable.near.run(|| run(options)).unwrap();
    assert_eq!((report.backend.as_str(), report.sent), ("live", 300_001));
    assert_eq!(report.accepted + report.refused, report.sent);
    assert_eq!(report.bytes, 64 * 300_001);
    // The last frames may still be in the ring.
    let deadline = Instant::now() + Duration::from_secs(5);
    let received = || cable.veth.b.statistics().unwrap().rx_packets - before.rx_packets;
    while received() != report.accepted && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(received(), report.accepted);
}

#[test]
fn flows_walk_and_start_again() {
    root_or_skip!();
    let cable = Cable::new(1500);
    let flow_of = |frame: &[u8]| linerate_wire::flow::Key::of(frame).unwrap();

    let ports = Options { count: Some(30), rate: GENTLE, flows: Some(10), ..Options::default() };
    let flows: Vec<_> = carry(&cable, &ports).iter().map(|frame| flow_of(frame)).collect();
    assert_eq!(flows[..10].iter().collect::<HashSet<_>>().len(), 10);
    assert_eq!((&flows[..10], &flows[..10]), (&flows[10..20], &flows[20..]));

    let ranges = Options {
        count: Some(24),
        rate: GENTLE,
        source: Some("10.0.0.1-10.0.0.3".parse().unwrap()),
        destination: Some("10.1.0.0/30".parse().unwrap()),
        destination_ports: Some(Ports::new(7, 8).unwrap()),
        ..Options::default()
    };
    let flows: HashSet<_> = carry(&cable, &ranges).iter().map(|frame| flow_of(frame)).collect();
    assert_eq!(flows.len(), 3 * 4 * 2, "every combination once");

    let random = Options {
        count: Some(30),
        rate: GENTLE,
        flows: Some(10),
        random: RandomFields { source: true, destination_port: true, ..RandomFields::default() },
        ..Options::default()
    };
    let flows: Vec<_> = carry(&cable, &random).iter().map(|frame| flow_of(frame)).collect();
    assert_eq!((&flows[..10], &flows[..10]), (&flows[10..20], &flows[20..]));
    assert_ne!(flows[0], flows[1]);
}

/// The program in the kernel takes the order that user space takes.
#[test]
fn flows_by_zipf_come_in_the_same_order_from_both() {
    root_or_skip!();
    let cable = Cable::new(1500);
    let options = Options {
        count: Some(500),
        rate: GENTLE,
        flows: Some(300),
        zipf: Some(1.1),
        source: Some("10.0.0.1-10.0.0.3".parse().unwrap()),
        source_ports: Some(Ports::new(1000, 1099).unwrap()),
        ..Options::default()
    };
    let live = carry(&cable, &Options { backend: Backend::Live, ..options.clone() });
    let packet = carry(&cable, &Options { backend: Backend::Packet, ..options });
    assert_eq!(live.len(), 500);
    assert!(live == packet);
}

#[test]
fn same_seed_same_frames() {
    root_or_skip!();
    let cable = Cable::new(1500);
    let options = |seed| Options {
        count: Some(100),
        rate: GENTLE,
        sizes: Some(Sizes::Range(64, 1500)),
        random: ALL,
        seed,
        ..Options::default()
    };
    let (first, again, other) =
        (carry(&cable, &options(7)), carry(&cable, &options(7)), carry(&cable, &options(8)));
    assert_eq!(first, again);
    assert_ne!(first, other);
    let lengths: HashSet<usize> = first.iter().map(Vec::len).collect();
    assert!(lengths.len() > 50, "lengths vary");
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_ones() {
    root_or_skip!();
    let cable = Cable::new(1500);
    for source in ["10.0.0.1", "2001:db8::1"] {
        let options = |port| Options {
            count: Some(1),
            source: Some(source.parse().unwrap()),
            source_ports: Some(Ports::one(port)),
            sizes: Some(Sizes::Fixed(80)),
            ..Options::default()
        };
        let checksum_at = if source.contains(':') { 60 } else { 40 };
        let ones = |frame: &[u8]| frame[checksum_at..checksum_at + 2] == [0xff, 0xff];
        // Of all ports exactly one makes the sum of the frame zero.
        let interface = cable.near.run(|| OutputInterface::find("near").unwrap()).unwrap();
        let port = (0..=u16::MAX)
            .find(|port| ones(&built(interface.clone(), &options(*port))[0]))
            .expect("every sum is met once");
        let frame = &carry(&cable, &options(port))[0];
        verify(frame);
        assert!(ones(frame), "{frame:02x?}");
    }
}

#[test]
fn stamps_count_and_tell_the_time() {
    root_or_skip!();
    let cable = Cable::new(1500);
    let options = Options {
        count: Some(100),
        rate: GENTLE,
        sizes: Some(Sizes::Fixed(100)),
        stamp: Some(PayloadHeader::Time),
        ..Options::default()
    };
    let mut time = 0;
    for (number, frame) in carry(&cable, &options).iter().enumerate() {
        verify(frame);
        let stamp = &frame[42..62];
        assert_eq!(&stamp[..4], b"LNRT");
        assert_eq!(stamp[4..12], (number as u64).to_be_bytes());
        let stamped = u64::from_be_bytes(stamp[12..].try_into().unwrap());
        assert!(stamped > time, "time goes on");
        time = stamped;
    }
}

#[test]
fn a_timed_run_ends_and_can_be_stopped() {
    root_or_skip!();
    let cable = Cable::new(1500);
    let timed = Options { duration: Some(Duration::from_millis(300)), ..Options::default() };
    let report = cable.near.run(|| run(timed)).unwrap();
    assert!(report.sent > 0 && report.seconds >= 0.25, "{report:?}");

    for backend in [Backend::Live, Backend::Packet, Backend::Xdp] {
        let endless = Options { backend, rate: GENTLE, ..Options::default() };
        let report = cable
            .near
            .run(|| {
                let running = Generator::start(Config::new("near", endless).unwrap()).unwrap();
                std::thread::sleep(Duration::from_millis(200));
                assert!(running.progress().sent > 0);
                assert!(!running.is_finished());
                running.stop();
                running.wait().unwrap()
            })
            .unwrap();
        assert_eq!(report.sent, report.accepted + report.refused);
    }
}

#[test]
fn a_removed_interface_ends_the_run() {
    root_or_skip!();
    for backend in [Backend::Live, Backend::Packet] {
        let cable = Cable::new(1500);
        let endless = Options { backend, rate: GENTLE, ..Options::default() };
        let config = cable.near.run(|| Config::new("near", endless).unwrap()).unwrap();
        let running = cable.near.run(|| Generator::start(config).unwrap()).unwrap();
        while running.progress().sent < 100 {
            std::thread::sleep(Duration::from_millis(1));
        }
        cable.veth.b.clone().delete().unwrap();
        let report = running.wait().unwrap();
        assert!(report.sent >= 100);
        let trouble = report.error.unwrap();
        assert!(trouble.contains("removed") || trouble.contains("down"), "{trouble}");
    }
}

#[test]
fn nobody_at_the_far_end_is_told() {
    root_or_skip!();
    let cable = Cable::new(1500);
    cable.veth.b.set_gro(false).unwrap();
    let live = Options { count: Some(1000), backend: Backend::Live, ..Options::default() };
    let report = cable.near.run(|| run(live)).unwrap();
    assert_eq!((report.sent, report.accepted, report.refused), (1000, 0, 1000));
    assert!(report.hint.unwrap().contains("GRO"));

    let automatic = Options { count: Some(500), rate: GENTLE, ..Options::default() };
    let (arrivals, report) = cable.carry(500, || run(automatic));
    assert_eq!((report.backend.as_str(), report.accepted, arrivals.len()), ("packet", 500, 500));
    let reason = "XDP live frames cannot be used on near: ";
    assert!(report.reason.starts_with(reason), "{}", report.reason);
}

#[test]
fn jumbo_frames_go_as_far_as_a_page() {
    root_or_skip!();
    let cable = Cable::new(9000);
    for (size, backend) in [(3408, "live"), (3409, "packet"), (9014, "packet")] {
        let options = Options {
            count: Some(50),
            rate: GENTLE,
            sizes: Some(Sizes::Fixed(size)),
            ..Options::default()
        };
        let (arrivals, report) = cable.carry(50, || run(options));
        assert_eq!((report.backend.as_str(), arrivals.len()), (backend, 50), "{report:?}");
        for (frame, _) in &arrivals {
            assert_eq!(frame.len(), usize::from(size));
            verify(frame);
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    root_or_skip!();
    let cable = Cable::new(1500);
    let refused = |options: Options| {
        cable.near.run(|| Config::new("near", options).unwrap_err().to_string()).unwrap()
    };
    let base = Options::default;
    for (options, word) in [
        (Options { sizes: Some(Sizes::Fixed(41)), ..base() }, "at least 42"),
        (Options { sizes: Some(Sizes::Fixed(1515)), ..base() }, "at most 1514"),
        (
            Options { sizes: Some(Sizes::Fixed(50)), stamp: Some(PayloadHeader::Time), ..base() },
            "62",
        ),
        (Options { vlan: Some(4095), ..base() }, "4094"),
        (Options { count: Some(0), ..base() }, "count"),
        (Options { duration: Some(Duration::ZERO), ..base() }, "above 0"),
        (Options { flows: Some(0), ..base() }, "flows"),
        (
            Options { flows: Some(9), source: Some("10.0.0.0/29".parse().unwrap()), ..base() },
            "1 to 8",
        ),
        (
            Options {
                source: Some("10.0.0.1".parse().unwrap()),
                destination: Some("::1".parse().unwrap()),
                ..base()
            },
            "both IPv4 or both IPv6",
        ),
    ] {
        let text = refused(options.clone());
        assert!(text.contains(word), "{text:?} does not say {word:?} ({options:?})");
    }
    let unknown = cable.near.run(|| Config::new("nowhere", base()).unwrap_err()).unwrap();
    assert!(unknown.to_string().contains("near"), "{unknown}");
    let cpu = Options { cpu: Some(1000), ..base() };
    let error = cable
        .near
        .run(|| Generator::start(Config::new("near", cpu).unwrap()).unwrap_err())
        .unwrap();
    assert!(matches!(error, Error::Argument { .. }), "{error}");
    cable.veth.a.down().unwrap();
    assert!(refused(base()).contains("is down"));
}

#[test]
fn a_default_route_asks_for_consent() {
    root_or_skip!();
    let cable = Cable::new(1500);
    cable.veth.a.add_address("10.9.0.1".parse().unwrap(), 24).unwrap();
    let any = "0.0.0.0".parse().unwrap();
    cable.near.add_route(any, 0, "10.9.0.2".parse().unwrap()).unwrap();
    let decide = |allow_default_route| {
        let options = Options { allow_default_route, ..Options::default() };
        cable.near.run(|| Config::new("near", options)).unwrap()
    };
    assert!(decide(false).unwrap_err().to_string().contains("default route"));
    assert!(decide(true).is_ok());
}
