//! Replay on a real veth pair.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::Cable;
use linerate_generate::replay::{
    self, FrameSource as _, Options, Progress, RecordedFrame, Report, Speed, Trace,
};
use linerate_generate::{Backend, Error, Rate};
use linerate_net::link;
use linerate_ring::tun;
use linerate_testkit::root_or_skip;
use linerate_wire::ethernet::Address;

/// A frame that no stack answers: an experimental EtherType (IEEE 802, 0x88b5) and a number.
fn frame(number: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![number as u8; len];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

fn trace(count: u32, len: impl Fn(u32) -> usize, gap: impl Fn(u32) -> u64) -> Trace {
    let mut trace = Trace::default();
    for number in 0..count {
        let gap = if number == 0 { 0 } else { gap(number) };
        trace.push(RecordedFrame {
            bytes: &frame(number, len(number)),
            linktype: 1,
            gap,
            cut: false,
        });
    }
    trace
}

fn run(trace: &mut Trace, options: Options) -> Result<Report, Error> {
    replay::run("near", trace, options, &Progress::default(), &AtomicBool::new(false))
}

fn top_speed() -> Options {
    Options { speed: Speed::Rate(Rate::Max), ..Options::default() }
}

#[test]
fn arrives_byte_for_byte_in_order() {
    root_or_skip!();
    let cable = Cable::new(1500);
    let len = |number: u32| 60 + (number as usize * 37) % 1454;
    for backend in [Backend::Packet, Backend::Xdp] {
        let mut trace = trace(200, len, |_| 0);
        let options = Options { backend, ..top_speed() };
        let (arrivals, report) = cable.carry(200, || run(&mut trace, options).unwrap());
        assert_eq!((report.frames, report.sent, report.accepted), (200, 200, 200), "{report:?}");
        assert_eq!(arrivals.len(), 200);
        for (number, (arrived, _)) in arrivals.iter().enumerate() {
            assert_eq!(*arrived, frame(number as u32, len(number as u32)));
        }
    }
}

#[test]
fn rounds_and_limit_count_frames() {
    root_or_skip!();
    let cable = Cable::new(1500);
    let mut trace = trace(10, |_| 64, |_| 0);
    let options = Options { rounds: 20, limit: Some(47), ..top_speed() };
    let (arrivals, report) = cable.carry(47, || run(&mut trace, options).unwrap());
    assert_eq!((report.sent, report.rounds, report.bytes), (47, 5, 47 * 64), "{report:?}");
    let numbers: Vec<u8> = arrivals.iter().map(|(frame, _)| frame[17]).collect();
    assert_eq!(numbers, (0..47).map(|number| number % 10).collect::<Vec<u8>>());
}

#[test]
fn gaps_are_those_of_the_recording() {
    root_or_skip!();
    let cable = Cable::new(1500);
    let gap = |number: u32| [300_000, 2_000_000, 1_000, 5_000_000][number as usize % 4];
    for factor in [1.0, 4.0] {
        let mut trace = trace(200, |_| 64, gap);
        let options = Options { speed: Speed::Recorded(factor), ..Options::default() };
        let (arrivals, report) = cable.carry(200, || run(&mut trace, options).unwrap());
        assert_eq!(report.sent, 200);
        let mut due = 0.0;
        let mut errors: Vec<f64> = arrivals
            .iter()
            .enumerate()
            .map(|(number, (_, time))| {
                due += if number == 0 { 0.0 } else { gap(number as u32) as f64 / factor };
                (time - arrivals[0].1) as f64 - due
            })
            .collect();
        errors.sort_by(f64::total_cmp);
        let whole = due;
        let median = errors[errors.len() / 2];
        assert!(median.abs() < whole / 20.0, "the schedule is off by {median} of {whole} ns");
        assert!(report.seconds * 1e9 >= whole, "never early: {report:?}");
    }
}

#[test]
fn a_rate_spaces_frames_evenly() {
    root_or_skip!();
    let cable = Cable::new(1500);
    for rate in [Rate::Packets(1_000.0), Rate::Bits(1_000.0 * 64.0 * 8.0)] {
        let mut trace = trace(200, |_| 64, |_| 77);
        let options = Options { speed: Speed::Rate(rate), ..Options::default() };
        let report = cable.near.run(|| run(&mut trace, options).unwrap()).unwrap();
        assert_eq!(report.sent, 200);
        assert!(report.seconds >= 0.199, "not faster than asked for: {report:?}");
    }
}

#[test]
fn frames_that_do_not_fit_are_counted() {
    root_or_skip!();
    let cable = Cable::new(600);
    let mut trace = trace(60, |number| if number % 3 == 0 { 1000 } else { 100 }, |_| 0);
    trace.push(RecordedFrame { bytes: &[1, 2, 3], linktype: 1, gap: 0, cut: true });
    trace.push(RecordedFrame { bytes: &frame(99, 80), linktype: 1, gap: 0, cut: true });
    let (arrivals, report) = cable.carry(41, || run(&mut trace, top_speed()).unwrap());
    assert_eq!((report.frames, report.sent, report.accepted), (62, 41, 41), "{report:?}");
    assert_eq!((report.too_long, report.too_short, report.cut), (20, 1, 1), "{report:?}");
    assert_eq!(arrivals.len(), 41);
}

#[test]
fn stops_when_told() {
    root_or_skip!();
    let cable = Cable::new(1500);
    let mut trace = trace(1000, |_| 64, |_| 60_000_000_000);
    let (stop, progress) = (AtomicBool::new(false), Progress::default());
    let report = thread::scope(|scope| {
        let sender = scope.spawn(|| {
            cable
                .near
                .run(|| replay::run("near", &mut trace, Options::default(), &progress, &stop))
                .unwrap()
        });
        while progress.sent() == 0 && !sender.is_finished() {
            thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        sender.join().unwrap().unwrap()
    });
    assert_eq!(report.sent, 1);
}

/// An IPv4 packet that says its number.
fn ipv4(number: u8) -> Vec<u8> {
    let mut packet = vec![number; 28];
    packet[..20]
        .copy_from_slice(&[0x45, 0, 0, 28, 0, 0, 0x40, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet
}

/// The same packet behind the header of each link type that is known, and what no interface can send.
fn link_types() -> (Trace, u64) {
    let ethernet = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..], &ipv4(0)].concat();
    let sll = [&[0, 4, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0][..], &ipv4(1)].concat();
    let sll2 = [&[8, 0, 0, 0, 0, 0, 0, 2, 0, 1, 4, 6], &[0; 8][..], &ipv4(2)].concat();
    let null = [&[2, 0, 0, 0][..], &ipv4(4)].concat();
    let loopback = [&[0, 0, 0, 2][..], &ipv4(5)].concat();
    let known =
        [(1, ethernet), (113, sll), (276, sll2), (101, ipv4(3)), (0, null), (108, loopback)];
    let mut trace = Trace::default();
    let count = known.len() as u64;
    // IEEE 802.11, and a header that is not whole.
    for (linktype, bytes) in known.into_iter().chain([(105, ipv4(9)), (113, vec![0; 9])]) {
        trace.push(RecordedFrame { bytes: &bytes, linktype, gap: 0, cut: false });
    }
    (trace, count)
}

#[test]
fn packets_of_other_link_types_get_the_header_of_the_interface() {
    root_or_skip!();
    let cable = Cable::new(1500);
    let (mut trace, count) = link_types();
    let options = Options { destination_mac: Some(Address([2; 6])), ..top_speed() };
    let (arrivals, report) = cable.carry(6, || run(&mut trace, options).unwrap());
    assert_eq!((report.sent, report.unsupported, report.frames), (count, 2, 8), "{report:?}");
    assert_eq!(report.max_frame, 1518);
    for (number, (frame, _)) in arrivals.iter().enumerate() {
        assert_eq!(frame[12..], [&[8, 0], &ipv4(number as u8)[..]].concat(), "{number}");
        assert_eq!(number == 0, frame[..6] != [2; 6], "{number}");
    }

    // A TUN device takes the packets alone, and none that is not IP.
    let received = cable.near.run(|| {
        let device = tun::Device::builder("tun0").kind(tun::Kind::Tun).build().unwrap();
        let connection = linerate_net::Connection::open().unwrap();
        let index = connection.link_by_name("tun0").unwrap().index;
        let up = link::Options { up: Some(true), ..link::Options::default() };
        connection.set_link(index, &up).unwrap();
        trace.push(RecordedFrame { bytes: &frame(7, 60), linktype: 1, gap: 0, cut: false });
        trace.rewind().unwrap();
        let progress = Progress::default();
        let stop = AtomicBool::new(false);
        let report = replay::run("tun0", &mut trace, top_speed(), &progress, &stop).unwrap();
        assert_eq!((report.accepted, report.unsupported), (count, 3), "{report:?}");
        let (mut packets, mut bytes) = (Vec::new(), vec![0; 70_000]);
        while let Some((_, len)) = device.queues()[0].receive(&mut bytes).unwrap() {
            packets.push(bytes[..len].to_vec());
        }
        packets
    });
    assert_eq!(received.unwrap(), (0..count as u8).map(ipv4).collect::<Vec<_>>());
}

#[test]
fn rounds_without_end_stop_at_the_duration_and_pause_in_between() {
    root_or_skip!();
    let cable = Cable::new(1500);
    let pause = Duration::from_millis(50);
    for speed in [Speed::Recorded(1.0), Speed::Rate(Rate::Max), Speed::Rate(Rate::Packets(1e6))] {
        let mut trace = trace(3, |_| 64, |_| 1_000_000);
        let duration = Some(Duration::from_millis(220));
        let options = Options { speed, rounds: 0, round_gap: pause, duration, ..top_speed() };
        let report = cable.near.run(|| run(&mut trace, options).unwrap()).unwrap();
        // Rounds begin at 0, 50, 100, 150 and 200 ms, or a little later, and take 2 ms at most.
        let rounds = if speed == Speed::Rate(Rate::Max) { 2..=5 } else { 5..=5 };
        assert!(rounds.contains(&report.rounds), "{speed:?}: {report:?}");
        assert!((report.rounds - 1) * 3 <= report.sent, "{report:?}");
        assert!(report.seconds >= 0.05, "{report:?}");
    }
}

#[test]
fn refuses_what_makes_no_sense() {
    root_or_skip!();
    let cable = Cable::new(1500);
    let mut trace = trace(1, |_| 64, |_| 0);
    for options in [
        Options { speed: Speed::Recorded(0.0), ..Options::default() },
        Options { speed: Speed::Recorded(f64::NAN), ..Options::default() },
        Options { limit: Some(0), ..Options::default() },
    ] {
        let error = cable.near.run(|| run(&mut trace, options).unwrap_err()).unwrap();
        assert!(matches!(error, Error::Argument { .. }), "{error}");
    }
    let nowhere = || {
        let (progress, stop) = (Progress::default(), AtomicBool::new(false));
        replay::run("nowhere", &mut trace, Options::default(), &progress, &stop)
    };
    let error = cable.near.run(nowhere).unwrap().unwrap_err();
    assert!(error.to_string().contains("near"), "{error}");
}
