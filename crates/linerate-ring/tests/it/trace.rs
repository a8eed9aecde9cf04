//! Traces of an XDP program that somebody else attached: every frame twice, with its verdict.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use libbpf_rs::{Object, ObjectBuilder};
use linerate_bpf::filter::{
    ClassicInstruction, ClassicProgram, MemoryFilter, translate, translate_for_memory,
};
use linerate_bpf::link::{Hook, Link};
use linerate_bpf::xdp::AttachMode;
use linerate_ring::tee::Tee;
use linerate_ring::trace::{Options, Points, TargetChange, Trace};
use linerate_ring::{Batch as _, Frame, Ring as _, TraceEvent};
use linerate_testkit::{VethOptions, only_this_test, probe_or_skip, root_or_skip};
use pcap::{Capture, Linktype};

use crate::xdp_support::{CHILD, Cable, child, copying, number, port, udp};

const ABORTED: u32 = 0;
const DROP: u32 = 1;
const PASS: u32 = 2;
const TX: u32 = 3;
const REDIRECT: u32 = 4;

/// The programs of `tests/bpf/verdicts.bpf.c`, loaded.
pub(crate) fn verdicts() -> Object {
    let directory = tempfile::tempdir().expect("a directory");
    let object = directory.path().join("verdicts.bpf.o");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bpf/verdicts.bpf.c");
    let headers = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let mut clang = Command::new("clang");
    clang.args(["-target", "bpf", "-g", "-O2", &headers, "-c"]).arg(source).arg("-o").arg(&object);
    assert!(clang.status().expect("clang runs").success());
    ObjectBuilder::default().open_file(&object).expect("an object").load().expect("loaded")
}

/// The program of this name.
pub(crate) fn program<'o>(object: &'o Object, name: &str) -> BorrowedFd<'o> {
    let program = object.progs().find(|one| one.name() == name).expect("the program");
    // SAFETY: the object holds its programs as long as it lives.
    unsafe { BorrowedFd::borrow_raw(program.as_fd().as_raw_fd()) }
}

fn attach(object: &Object, name: &str, cable: &Cable) -> Link {
    let (program, hook) = (program(object, name), Hook::Xdp(AttachMode::Native));
    let index = cable.veth.b.index();
    cable.receiver.run(|| Link::attach(program, "rx", index, hook)).unwrap().expect("attached")
}

/// Why this kernel has no traces of programs, where its security policy refuses them.
fn refused(cable: &Cable) -> Option<String> {
    let trace = || Options { buffer: 1 << 12, ..Options::default() }.xdp("rx", Points::Both);
    let object = verdicts();
    let _link = attach(&object, "verdicts", cable);
    let error = cable.receiver.run(trace).unwrap().err()?.to_string();
    error.contains("by a security policy").then_some(error)
}

fn open(cable: &Cable, options: Options<'_>, points: Points) -> Trace {
    let trace = cable.receiver.run(|| options.xdp("rx", points)).expect("the namespace");
    trace.unwrap_or_else(|error| panic!("{error}"))
}

/// Reads until nothing has come for a while.
fn drain(cable: &Cable, trace: &mut Trace, mut each: impl FnMut(&Frame<'_>) + Send) -> u64 {
    cable.receiver.run(|| crate::xdp_support::drain(trace, &mut each)).expect("the namespace")
}

#[test]
fn every_frame_is_seen_as_it_came_and_as_it_left_with_its_verdict() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    probe_or_skip!(refused(&cable));
    let object = verdicts();
    let _link = attach(&object, "verdicts", &cable);
    let mut trace = open(&cable, Options::default(), Points::Both);
    assert_eq!(trace.target().expect("a target").name, "verdicts");
    let raw = cable.raw();
    let sent: Vec<_> = (0..600)
        .map(|n| udp(if n % 6 == 5 { 2000 } else { 1000 + n as u16 % 6 }, n, 100))
        .collect();
    sent.iter().for_each(|frame| raw.send(frame));
    let mut came = HashMap::new();
    let mut left = Vec::new();
    drain(&cable, &mut trace, |frame| match frame.trace.expect("traced") {
        TraceEvent::XdpEntry { packet } => {
            assert!(came.insert(packet, frame.head().to_vec()).is_none(), "a number of its own");
        }
        TraceEvent::XdpExit { packet, verdict } => {
            left.push((packet, verdict, frame.head().to_vec()));
        }
        TraceEvent::Drop { .. } => panic!("{frame:?}"),
    });
    assert_eq!((came.len(), left.len()), (600, 600), "{:?}", trace.statistics());
    for (number, (packet, verdict, bytes)) in left.iter().enumerate() {
        let expected = &sent[number];
        assert_eq!(&came[packet], expected, "as it was sent");
        match port(expected) {
            2000 => {
                assert_eq!((*verdict, port(bytes)), (PASS, 7), "changed by the program");
                assert_eq!(bytes[38..], expected[38..]);
            }
            to => {
                assert_eq!(*verdict, [ABORTED, DROP, PASS, TX, REDIRECT][usize::from(to) - 1000]);
                assert_eq!(bytes, expected);
            }
        }
    }
    let counts = trace.statistics().unwrap();
    assert_eq!(
        (counts.captured, counts.lost(), counts.cut, counts.missed),
        (1200, 0, 0, 0),
        "{counts:?}"
    );
}

#[test]
fn one_point_alone_numbers_the_frames_too() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    probe_or_skip!(refused(&cable));
    let object = verdicts();
    let _link = attach(&object, "verdicts", &cable);
    for points in [Points::Entry, Points::Exit] {
        let mut trace = open(&cable, Options { snaplen: 60, ..Options::default() }, points);
        let raw = cable.raw();
        (0..100).for_each(|n| raw.send(&udp(1000 + PASS as u16, n, 100)));
        let mut numbers = Vec::new();
        drain(&cable, &mut trace, |frame| {
            assert_eq!((frame.len(), frame.wire_len), (60, 100));
            numbers.push(match frame.trace {
                Some(TraceEvent::XdpEntry { packet }) if points == Points::Entry => packet,
                Some(TraceEvent::XdpExit { packet, verdict: PASS }) if points == Points::Exit => {
                    packet
                }
                other => panic!("{other:?}"),
            });
        });
        assert_eq!(numbers.len(), 100);
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 100, "each has its own");
    }
}

/// What libpcap makes of an expression, for XDP and for traces.
pub(crate) fn compile(expression: &str) -> (ClassicProgram, MemoryFilter) {
    let ethernet = Capture::dead(Linktype::ETHERNET).expect("a handle");
    let program = ethernet.compile(expression, true).expect("an expression");
    let instruction = |text: String| {
        let mut numbers = text.split(' ').map(|number| number.parse::<u32>().unwrap());
        let mut next = || numbers.next().unwrap();
        ClassicInstruction { code: next() as u16, jt: next() as u8, jf: next() as u8, k: next() }
    };
    let instructions = program.get_instructions().iter().map(|one| instruction(one.to_string()));
    let classic = ClassicProgram::new(instructions.collect::<Vec<_>>()).expect("a program");
    let filter = translate_for_memory(&classic).expect("translated");
    (classic, filter)
}

#[test]
fn a_filter_means_what_it_means_on_the_tee() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    probe_or_skip!(refused(&cable));
    let raw = cable.raw();
    let mut frames: Vec<_> =
        (0..40).map(|n| udp(50 + n as u16 % 6, n, 60 + 37 * n as usize)).collect();
    let mut random = 1u64;
    for n in 0..40 {
        // Bent frames: other protocols, header lengths, addresses.
        let mut frame = udp(53, n, 90);
        for _ in 0..3 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            frame[12 + (random >> 33) as usize % 40] = (random >> 56) as u8;
        }
        frames.push(frame);
    }
    for expression in [
        "udp port 53",
        "not udp port 53",
        "ip",
        "greater 500",
        "less 500",
        "host 10.9.0.1 and udp[4:2] > 300",
        "ether[len - 1] & 1 = 0",
        "ether[ip[2:2]] != 0",
        "ip[0] & 0xf > 5 or tcp or icmp",
        "tcp[tcpflags] & tcp-syn != 0",
        "ip6 or arp or vlan",
        "udp[8:4] = 0",
        "ether[1000] != 0",
    ] {
        let (classic, filter) = compile(expression);
        let translated = translate(&classic).expect("translated");
        let mut tee =
            cable.receiver.run(|| Tee::open("rx", &copying(), Some(&translated))).unwrap().unwrap();
        let mut trace =
            open(&cable, Options { filter: Some(&filter), ..Options::default() }, Points::Both);
        frames.iter().for_each(|frame| raw.send(frame));
        let (mut came, mut left) = (Vec::new(), Vec::new());
        drain(&cable, &mut trace, |frame| {
            let entry = matches!(frame.trace, Some(TraceEvent::XdpEntry { .. }));
            (if entry { &mut came } else { &mut left }).push(frame.head().to_vec());
        });
        let mut teed = Vec::new();
        while let Some(mut batch) = tee.next_batch() {
            while let Some(frame) = batch.next() {
                teed.push(frame.head().to_vec());
            }
        }
        let expected: Vec<_> = frames
            .iter()
            .filter(|frame| classic.accepts(frame, frame.len() as u32) != 0)
            .cloned()
            .collect();
        assert_eq!(teed, expected, "the tee: {expression}");
        assert_eq!(came, expected, "{expression}");
        assert_eq!(left, expected, "{expression}");
        let counts = trace.statistics().unwrap();
        let accepted = 2 * expected.len() as u64;
        assert_eq!(
            (counts.captured, counts.unmatched),
            (accepted, 160 - accepted),
            "{expression}: {counts:?}"
        );
    }
}

#[test]
fn what_a_full_buffer_has_no_room_for_is_counted() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    probe_or_skip!(refused(&cable));
    let object = verdicts();
    let _link = attach(&object, "verdicts", &cable);
    let mut trace = open(&cable, Options { buffer: 1 << 15, ..Options::default() }, Points::Both);
    let raw = cable.raw();
    (0..1000).for_each(|n| raw.send(&udp(1000 + DROP as u16, n, 200)));
    // The last ones may still be on their way.
    let end = Instant::now() + Duration::from_secs(10);
    let seen =
        |trace: &Trace| trace.statistics().map(|counts| counts.captured + counts.lost()).unwrap();
    while seen(&trace) < 2000 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    let counts = trace.statistics().unwrap();
    let read = drain(&cable, &mut trace, |_| ());
    assert_eq!((counts.captured + counts.full, counts.faults), (2000, 0), "{counts:?}");
    assert!(counts.full > 1000, "{counts:?}");
    assert_eq!(read, counts.captured);
    // What comes after the stop is not looked at.
    trace.stop().expect("stopped");
    (0..10).for_each(|n| raw.send(&udp(1000 + DROP as u16, n, 200)));
    assert!(!trace.wait(Duration::from_millis(200)).unwrap());
    assert_eq!(trace.statistics().unwrap().captured, counts.captured);
}

#[test]
fn frames_of_several_buffers_are_cut_and_counted() {
    root_or_skip!();
    let cable = Cable::new(VethOptions { mtu: 9000, ..VethOptions::default() });
    probe_or_skip!(refused(&cable));
    let object = verdicts();
    let _link = attach(&object, "verdicts", &cable);
    let mut trace = open(&cable, Options::default(), Points::Exit);
    let raw = cable.raw();
    (0..20).for_each(|n| raw.send(&udp(1000 + DROP as u16, n, 9000)));
    let mut cut = 0;
    let count = drain(&cable, &mut trace, |frame| {
        assert_eq!(frame.wire_len, 9000);
        assert_eq!(
            frame.head(),
            &udp(1000 + DROP as u16, number(frame.head()), 9000)[..frame.len()]
        );
        cut += u64::from(frame.len() < 9000);
    });
    let counts = trace.statistics().unwrap();
    assert_eq!((count, counts.cut), (20, cut), "{counts:?}");
}

#[test]
fn a_successor_is_followed_and_an_end_is_said() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    probe_or_skip!(refused(&cable));
    let object = verdicts();
    let link = attach(&object, "verdicts", &cable);
    let mut trace = open(&cable, Options::default(), Points::Exit);
    let first = trace.target().unwrap().clone();
    let raw = cable.raw();
    let expect_change = |trace: &mut Trace| {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            assert_eq!(drain(&cable, trace, |_| ()), 0);
            match trace.take_change() {
                Some(change) => return change,
                None => assert!(Instant::now() < end, "no change was found"),
            }
        }
    };
    drop(link);
    assert_eq!(expect_change(&mut trace), TargetChange::Detached(first));
    let link = attach(&object, "successor", &cable);
    let TargetChange::Replaced { from: None, to: second } = expect_change(&mut trace) else {
        panic!("followed")
    };
    assert_eq!(second.name, "successor");
    raw.send(&udp(1000 + DROP as u16, 1, 100));
    assert_eq!(drain(&cable, &mut trace, |_| ()), 1, "the successor is traced");
    // Replaced while it is attached: no moment without a program.
    link.replace(program(&object, "verdicts")).expect("replaced");
    match expect_change(&mut trace) {
        TargetChange::Replaced { from: Some(from), to } => {
            assert_eq!((from, &*to.name), (second, "verdicts"));
        }
        other => panic!("{other:?}"),
    }
    raw.send(&udp(1000 + DROP as u16, 2, 100));
    assert_eq!(drain(&cable, &mut trace, |_| ()), 1);
}

#[test]
fn what_cannot_be_traced_is_refused_with_the_reason() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let open = || cable.receiver.run(|| Options::default().xdp("rx", Points::Both)).unwrap();
    let error = open().expect_err("nothing is attached").to_string();
    assert!(error.contains("interface rx has no XDP program to trace"), "{error}");
}

#[test]
fn nothing_stays_after_a_killed_process() {
    if std::env::var_os(CHILD).is_some() {
        let _trace =
            Options { buffer: 1 << 16, ..Options::default() }.xdp("rx", Points::Both).unwrap();
        println!("ready");
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    probe_or_skip!(refused(&cable));
    let object = verdicts();
    let _link = attach(&object, "verdicts", &cable);
    let mut child = child(&cable, only_this_test!());
    let programs = programs_of(&child);
    assert_eq!(programs.len(), 2, "an entry and an exit");
    child.kill().unwrap();
    child.wait().unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while programs.iter().any(|id| libbpf_rs::Program::fd_from_id(*id).is_ok()) {
        assert!(Instant::now() < end, "the programs are still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The programs that links of this process hold.
pub(crate) fn programs_of(child: &Child) -> Vec<u32> {
    let mut programs = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{}/fdinfo", child.id())).expect("a process") {
        let file = std::fs::File::open(entry.unwrap().path()).expect("a descriptor");
        let lines: Vec<_> = BufReader::new(file).lines().map_while(Result::ok).collect();
        let value =
            |key: &str| lines.iter().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
        if value("link_id:").is_some_and(|_: u32| true) {
            programs.extend(value("prog_id:"));
        }
    }
    programs
}
