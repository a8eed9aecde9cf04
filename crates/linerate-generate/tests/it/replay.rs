//! Replay on a real veth pair.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::Cable;
use linerate_generate::replay::{self, Options, Progress, RecordedFrame, Report, Speed, Trace};
use linerate_generate::{Backend, Error, Rate};
use linerate_testkit::root_or_skip;

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
        trace.push(RecordedFrame { bytes: &frame(number, len(number)), gap, cut: false });
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
    trace.push(RecordedFrame { bytes: &[1, 2, 3], gap: 0, cut: true });
    trace.push(RecordedFrame { bytes: &frame(99, 80), gap: 0, cut: true });
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

#[test]
fn refuses_what_makes_no_sense() {
    root_or_skip!();
    let cable = Cable::new(1500);
    let mut trace = trace(1, |_| 64, |_| 0);
    for options in [
        Options { speed: Speed::Recorded(0.0), ..Options::default() },
        Options { speed: Speed::Recorded(f64::NAN), ..Options::default() },
        Options { rounds: 0, ..Options::default() },
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
