//! What the kernel drops, with its own counts as the oracle.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use linerate_bpf::filter::MemoryFilter;
use linerate_bpf::link::{Hook, Link};
use linerate_ring::trace::{Options, Trace, drop_reasons};
use linerate_ring::tun::{Device, Kind};
use linerate_ring::{Batch as _, Frame, Ring as _, TraceEvent};
use linerate_testkit::{Namespace, VethOptions, only_this_test, probe_or_skip, root_or_skip};
use linerate_wire::virtio::Header;

use crate::trace::{compile, program, programs_of, verdicts};
use crate::xdp_support::{CHILD, Cable, child, number, port, udp};

fn open(namespace: &Namespace, options: Options<'_>, interface: Option<&str>) -> Trace {
    let trace = namespace.run(|| options.drops(interface)).expect("the namespace");
    trace.unwrap_or_else(|error| panic!("{error}"))
}

/// A drop as the trace shows it.
#[derive(Debug)]
struct Dropped {
    reason: String,
    location: u64,
    interface: u32,
    bytes: Vec<u8>,
    wire_len: u32,
}

/// Reads until nothing has come for a while.
fn drain(trace: &mut Trace) -> Vec<Dropped> {
    let names = drop_reasons().expect("the kernel's names");
    let of = |frame: &Frame<'_>| {
        let Some(TraceEvent::Drop { reason, location, interface }) = frame.trace else {
            panic!("{frame:?}")
        };
        let name = names.iter().find(|(number, _)| *number == reason);
        Dropped {
            reason: name.map_or_else(|| reason.to_string(), |(_, name)| name.clone()),
            location,
            interface,
            bytes: frame.head().to_vec(),
            wire_len: frame.wire_len,
        }
    };
    let mut all = Vec::new();
    while trace.wait(Duration::from_millis(300)).expect("wait") {
        while let Some(mut batch) = trace.next_batch() {
            while let Some(frame) = batch.next() {
                all.push(of(&frame));
            }
        }
    }
    all
}

/// The column `drops` of `/proc/net/udp` for the socket of this port.
fn socket_drops(namespace: &Namespace, port: u16) -> u64 {
    let table = namespace.run(|| fs::read_to_string("/proc/thread-self/net/udp")).unwrap().unwrap();
    let suffix = format!(":{port:04X}");
    let line = table
        .lines()
        .find(|line| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(&suffix)));
    line.expect("the socket").split_whitespace().last().unwrap().parse().unwrap()
}

/// A socket of the receiver that holds a few datagrams and is never read.
fn small_socket(cable: &Cable, port: u16) -> UdpSocket {
    let socket =
        cable.receiver.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))).unwrap().unwrap();
    let room: libc::c_int = 4096;
    // SAFETY: an integer and its size.
    let answer = unsafe {
        let (value, len) = ((&raw const room).cast(), size_of_val(&room) as u32);
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, value, len)
    };
    assert_eq!(answer, 0);
    socket
}

fn filter(expression: &str) -> MemoryFilter {
    compile(expression).1
}

#[test]
fn a_full_socket_buffer_drops_as_many_as_the_socket_counts() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let _socket = small_socket(&cable, 5000);
    let filter = filter("udp dst port 5000");
    let mut all =
        open(&cable.receiver, Options { filter: Some(&filter), ..Options::default() }, None);
    let mut of_interface =
        open(&cable.receiver, Options { filter: Some(&filter), ..Options::default() }, Some("rx"));
    let mut of_loopback =
        open(&cable.receiver, Options { filter: Some(&filter), ..Options::default() }, Some("lo"));
    let mut elsewhere =
        open(&cable.sender, Options { filter: Some(&filter), ..Options::default() }, None);
    let raw = cable.raw();
    (0..500).for_each(|n| raw.send(&udp(5000, n, 300)));
    let dropped = drain(&mut all);
    let counted = socket_drops(&cable.receiver, 5000);
    assert!(counted > 400, "{counted}");
    assert_eq!(dropped.len() as u64, counted, "{:?}", all.statistics());
    for one in &dropped {
        assert_eq!(one.reason, "SOCKET_RCVBUFF");
        assert_eq!(one.interface, cable.veth.b.index());
        assert_eq!(one.bytes, udp(5000, number(&one.bytes), 300), "from its MAC header on");
        assert_eq!(one.wire_len, 300);
    }
    let of_interface = drain(&mut of_interface);
    assert_eq!(of_interface.len() as u64, counted);
    assert_eq!((drain(&mut of_loopback).len(), drain(&mut elsewhere).len()), (0, 0));
    let counts = all.statistics().unwrap();
    assert_eq!((counts.captured, counts.lost(), counts.missed), (counted, 0, 0), "{counts:?}");
}

#[test]
fn a_filter_sees_what_the_record_shows() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let raw = cable.raw();
    // Nobody listens: NO_SOCKET.
    let frames: Vec<_> = (0..60).map(|n| udp(50 + n as u16 % 6, n, 60 + 20 * n as usize)).collect();
    for expression in
        ["udp port 53", "not udp port 53", "greater 500", "udp[8:4] = 0 and ether[800] != 0", "ip6"]
    {
        let (classic, filter) = compile(expression);
        let mut trace = open(
            &cable.receiver,
            Options { filter: Some(&filter), snaplen: 64, ..Options::default() },
            Some("rx"),
        );
        frames.iter().for_each(|frame| raw.send(frame));
        let dropped = drain(&mut trace);
        let expected: Vec<_> =
            frames.iter().filter(|frame| classic.accepts(frame, frame.len() as u32) != 0).collect();
        assert_eq!(dropped.len(), expected.len(), "{expression}: {dropped:?}");
        for (one, sent) in dropped.iter().zip(expected) {
            assert_eq!((&*one.reason, &one.bytes[..]), ("NO_SOCKET", &sent[..sent.len().min(64)]));
            assert_eq!(one.wire_len as usize, sent.len());
            assert_ne!(one.location, 0);
        }
    }
}

#[test]
fn a_tag_beside_the_packet_is_put_back() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let object = verdicts();
    let program = program(&object, "drop_all");
    let index = cable.veth.b.index();
    // What the stack drops later has lost its tag before.
    let link = cable.receiver.run(|| Link::attach(program, "rx", index, Hook::TcxIngress)).unwrap();
    probe_or_skip!(link.as_ref().err());
    let filter = filter("vlan 77");
    let mut trace =
        open(&cable.receiver, Options { filter: Some(&filter), ..Options::default() }, Some("rx"));
    let plain = udp(7, 1, 100);
    let tagged = [&plain[..12], &[0x81, 0, 0, 77], &plain[12..]].concat();
    cable.raw().send(&tagged);
    cable.raw().send(&plain);
    let dropped = drain(&mut trace);
    assert_eq!(dropped.len(), 1, "{dropped:?}");
    assert_eq!((&dropped[0].bytes, dropped[0].wire_len), (&tagged, 104));
    assert_eq!(dropped[0].reason, "TC_INGRESS");
}

#[test]
fn a_packet_without_a_mac_header_gets_one() {
    root_or_skip!();
    let namespace = Namespace::create("drop-tun").expect("a namespace");
    let device =
        namespace.run(|| Device::builder("u0").kind(Kind::Tun).build()).unwrap().expect("a device");
    let interface = namespace.interface("u0").expect("the interface");
    interface.up().expect("up");
    interface.add_address("10.9.0.2".parse().unwrap(), 24).expect("an address");
    let filter = filter("udp dst port 999 and ether host 00:00:00:00:00:00");
    let mut trace =
        open(&namespace, Options { filter: Some(&filter), ..Options::default() }, Some("u0"));
    let sent = udp(999, 3, 200);
    device.queues()[0].send(&Header::default(), &sent[14..]).expect("sent");
    let dropped = drain(&mut trace);
    assert_eq!(dropped.len(), 1, "{dropped:?}");
    assert_eq!(dropped[0].bytes, [&[0; 12][..], &[8, 0], &sent[14..]].concat());
    assert_eq!((&*dropped[0].reason, dropped[0].interface), ("NO_SOCKET", interface.index()));
}

#[test]
fn packets_in_pages_are_read_whole_or_counted() {
    root_or_skip!();
    let cable = Cable::new(VethOptions { mtu: 60_000, ..VethOptions::default() });
    let mut trace = open(&cable.receiver, Options::default(), Some("rx"));
    // A packet socket puts what is over a page into pages of its own.
    let raw = cable.raw();
    let frames: Vec<_> =
        [200, 5000, 40_000, 60_000].into_iter().map(|len| udp(999, len as u64, len)).collect();
    frames.iter().for_each(|frame| raw.send(frame));
    let dropped = drain(&mut trace);
    assert_eq!(dropped.len(), 4, "{:?}", trace.statistics());
    let mut cut = 0;
    for (one, sent) in dropped.iter().zip(&frames) {
        assert_eq!(one.wire_len as usize, sent.len());
        assert_eq!(one.bytes, sent[..one.bytes.len()]);
        cut += u64::from(one.bytes.len() < sent.len());
    }
    let counts = trace.statistics().unwrap();
    assert_eq!((counts.cut, counts.faults), (cut, 0), "{counts:?}");
    if cut != 0 {
        println!("this kernel lets no tracing program read pages: {cut} of 4 were cut");
    }
}

#[test]
fn what_is_over_the_rate_limit_is_counted() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let filter = filter("udp dst port 5001");
    let options = Options { filter: Some(&filter), rate_limit: Some(20), ..Options::default() };
    let mut trace = open(&cable.receiver, options, Some("rx"));
    let raw = cable.raw();
    let start = Instant::now();
    (0..300).for_each(|n| raw.send(&udp(5001, n, 100)));
    let end = Instant::now() + Duration::from_secs(5);
    while trace.statistics().unwrap().captured + trace.statistics().unwrap().limited < 300
        && Instant::now() < end
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    let seconds = start.elapsed().as_secs() + 1;
    let dropped = drain(&mut trace);
    let counts = trace.statistics().unwrap();
    assert_eq!(counts.captured + counts.limited, 300, "{counts:?}");
    assert_eq!(dropped.len() as u64, counts.captured);
    assert!((20..=20 * (seconds + 1)).contains(&counts.captured), "{counts:?} in {seconds} s");
    assert!(dropped.iter().all(|one| port(&one.bytes) == 5001));
}

#[test]
fn nothing_stays_after_a_killed_process() {
    if std::env::var_os(CHILD).is_some() {
        let _trace = Options { buffer: 1 << 16, ..Options::default() }.drops(Some("rx")).unwrap();
        println!("ready");
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let mut child = child(&cable, only_this_test!());
    let programs = programs_of(&child);
    assert_eq!(programs.len(), 1);
    child.kill().unwrap();
    child.wait().unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while programs.iter().any(|id| libbpf_rs::Program::fd_from_id(*id).is_ok()) {
        assert!(Instant::now() < end, "the program is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}
