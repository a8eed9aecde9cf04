//! Packet rings on real veth pairs, with the kernel as the other side.

use std::net::UdpSocket;
use std::time::{Duration, Instant, SystemTime};

use crate::packet_support::{Cable, collect, drain, finish, number, numbered, quick};
use linerate_bpf::filter::{ClassicInstruction, ClassicProgram};
use linerate_ring::packet::{self, DirectionFilter, Options, Ring, TimestampClock, TxRing};
use linerate_ring::{Direction, Error, Ring as _, TimestampSource};
use linerate_testkit::root_or_skip;

const SHORT: Duration = Duration::from_millis(50);

#[test]
fn everything_sent_is_captured() {
    root_or_skip!();
    let cable = Cable::new();
    // Nobody reads until all is sent, however long that takes: no block is to be handed over half empty.
    let options = Options { retire_timeout: Duration::from_secs(1), ..quick("rx") };
    let mut ring = cable.receive(options).unwrap();
    let frames: Vec<_> = (0..3000).map(|n| numbered(n, 60 + n as usize % 1455)).collect();
    cable.send(&frames);
    let kept = finish(&mut ring);
    assert_eq!(kept.len() + cable.lost(), frames.len());
    for kept in &kept {
        let sent = &frames[number(&kept.bytes) as usize];
        assert_eq!(&kept.bytes, sent);
        assert_eq!(kept.wire_len as usize, sent.len());
        assert_eq!(kept.direction, Direction::Inbound);
    }
    assert!(kept.is_sorted_by_key(|kept| number(&kept.bytes)));
    let (statistics, count) = (ring.statistics().unwrap(), kept.len() as u64);
    assert_eq!((statistics.packets, statistics.lent), (count, count));
    assert_eq!((statistics.drops, statistics.unread, statistics.damaged), (0, 0, 0));
}

#[test]
fn what_finds_no_room_is_counted_and_the_ring_thaws() {
    root_or_skip!();
    let cable = Cable::new();
    let options = Options { block_size: 4096, blocks: Some(2), ..quick("rx") };
    let mut ring = cable.receive(options).unwrap();
    let frames: Vec<_> = (0..500).map(|n| numbered(n, 100)).collect();
    cable.send(&frames);
    let before = drain(&mut ring).len();
    cable.send(&frames[..10]);
    let kept = before + finish(&mut ring).len();
    let statistics = ring.statistics().unwrap();
    assert!(statistics.drops > 400 && statistics.freezes > 0, "{statistics:?}");
    assert_eq!(statistics.packets, 510);
    assert_eq!(statistics.drops + kept as u64, 510);
    assert!(kept > before, "the ring stayed frozen");
}

#[test]
fn the_fill_level_is_the_share_of_blocks_that_wait_for_the_reader() {
    root_or_skip!();
    let cable = Cable::new();
    let mut ring =
        cable.receive(Options { block_size: 4096, blocks: Some(8), ..quick("rx") }).unwrap();
    assert_eq!(ring.fill_level(), 0.0);
    let frames: Vec<_> = (0..500).map(|n| numbered(n, 100)).collect();
    cable.send(&frames);
    assert_eq!(ring.fill_level(), 1.0);
    for given_back in 1..=5_u8 {
        let batch = ring.next_batch().expect("a full block");
        drop(batch);
        assert_eq!(ring.fill_level(), f32::from(8 - given_back) / 8.0);
    }
    // The kernel starts again where the ring starts; the reader is at block 5.
    cable.send(&frames);
    assert_eq!(ring.fill_level(), 1.0);
    drain(&mut ring);
    assert_eq!(ring.fill_level(), 0.0);
}

#[test]
fn statistics_add_up_over_reads_and_outlive_the_ring() {
    root_or_skip!();
    let cable = Cable::new();
    let mut ring = cable.ring();
    let counters = ring.statistics_reader().unwrap();
    for sent in 1..=5 {
        cable.send(&(0..100).map(|n| numbered(n, 80)).collect::<Vec<_>>());
        assert_eq!(collect(&mut ring, 100).len(), 100);
        assert_eq!(ring.statistics().unwrap().packets, sent * 100);
        assert_eq!(counters.read().unwrap().lent, sent * 100);
    }
    cable.send(&[numbered(0, 80)]);
    assert!(ring.wait(Duration::from_secs(5)).unwrap());
    drop(ring.next_batch());
    drop(ring);
    let last = counters.read().unwrap();
    assert_eq!((last.packets, last.lent, last.unread), (501, 500, 1));
    cable.send(&[numbered(0, 80)]);
    assert_eq!(counters.read().unwrap(), last);
}

#[test]
fn the_default_buffer_rides_out_a_stall() {
    root_or_skip!();
    let cable = Cable::new();
    let mut ring = cable.receive(Options::new("rx")).unwrap();
    // 50 ms at a million frames a second, without a reader.
    let frames: Vec<_> = (0..50_000).map(|n| numbered(n, 64)).collect();
    cable.send(&frames);
    assert_eq!(ring.statistics().unwrap().drops, 0);
    assert_eq!(finish(&mut ring).len() + cable.lost(), frames.len());
    assert!(cable.lost() < frames.len() / 2, "the cable lost {}", cable.lost());
}

#[test]
fn vlan_tags_are_put_back() {
    root_or_skip!();
    let cable = Cable::new();
    let tagged = |number, tags: &[[u8; 4]]| {
        let mut frame = numbered(number, 100);
        for tag in tags.iter().rev() {
            frame.splice(12..12, *tag);
        }
        frame
    };
    let frames = [
        tagged(1, &[[0x81, 0x00, 0x60, 0x07]]),
        tagged(2, &[[0x88, 0xa8, 0x0f, 0xff]]),
        tagged(3, &[[0x88, 0xa8, 0x00, 0x02], [0x81, 0x00, 0x00, 0x03]]),
        tagged(4, &[]),
    ];
    let mut whole = cable.ring();
    let mut cut = cable.receive(Options { snaplen: 17, ..quick("rx") }).unwrap();
    cable.send(&frames);
    for (kept, sent) in finish(&mut whole).iter().zip(&frames) {
        assert_eq!(&kept.bytes, sent);
        assert_eq!(kept.wire_len as usize, sent.len());
    }
    assert_eq!(whole.statistics().unwrap().lent, 4);
    for (kept, sent) in finish(&mut cut).iter().zip(&frames) {
        assert_eq!(kept.bytes, sent[..17]);
        assert_eq!(kept.wire_len as usize, sent.len());
    }
    assert_eq!(cut.statistics().unwrap().lent, 4);
}

#[test]
fn the_snap_length_cuts_and_the_wire_length_stays() {
    root_or_skip!();
    let cable = Cable::new();
    let mut ring = cable.receive(Options { snaplen: 64, ..quick("rx") }).unwrap();
    cable.send(&[numbered(0, 1000), numbered(1, 40)]);
    let kept = finish(&mut ring);
    assert_eq!((kept[0].bytes.len(), kept[0].wire_len), (64, 1000));
    assert_eq!((kept[1].bytes.len(), kept[1].wire_len), (40, 40));
    let error = cable.receive(Options { snaplen: 0, ..quick("rx") }).unwrap_err().to_string();
    assert!(error.contains("0 bytes captures nothing"), "{error}");
}

#[test]
fn directions_are_told_apart() {
    root_or_skip!();
    let cable = Cable::new();
    let traffics = [DirectionFilter::In, DirectionFilter::Out, DirectionFilter::InOut];
    let mut rings = traffics
        .map(|traffic| cable.receive(Options { direction: traffic, ..quick("rx") }).unwrap());
    cable.send(&[numbered(1, 60)]);
    let mut back = cable.receiver.run(|| TxRing::open("rx", 2048)).unwrap().unwrap();
    for number in 2..4 {
        let mut frame = back.frame(60).unwrap().unwrap();
        frame.copy_from_slice(&numbered(number, 60));
        frame.send();
    }
    back.flush().unwrap();
    let inbound = (1, Direction::Inbound);
    let outbound = [(2, Direction::Outbound), (3, Direction::Outbound)];
    let expected = [vec![inbound], outbound.to_vec(), vec![inbound, outbound[0], outbound[1]]];
    for (ring, expected) in rings.iter_mut().zip(expected) {
        let kept: Vec<_> =
            finish(ring).iter().map(|kept| (number(&kept.bytes), kept.direction)).collect();
        assert_eq!(kept, expected);
    }
}

#[test]
fn frames_on_loopback_come_once() {
    root_or_skip!();
    let cable = Cable::new();
    let mut ring = cable.receiver.run(|| Ring::open(quick("lo")).unwrap()).unwrap();
    cable
        .receiver
        .run(|| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let to = socket.local_addr().unwrap();
            (0..10).for_each(|_| assert_eq!(socket.send_to(b"once", to).unwrap(), 4));
        })
        .unwrap();
    let mut kept = collect(&mut ring, 10);
    kept.extend(finish(&mut ring));
    assert_eq!((kept.len(), ring.interface()), (10, "lo"));
    assert!(kept.iter().all(|kept| kept.direction == Direction::Inbound));
}

/// Accepts frames whose number is below `limit`.
fn below(limit: u32) -> ClassicProgram {
    let instructions = [
        ClassicInstruction { code: 0x20, jt: 0, jf: 0, k: 14 },
        ClassicInstruction { code: 0x35, jt: 1, jf: 0, k: limit },
        ClassicInstruction { code: 0x06, jt: 0, jf: 0, k: 65_535 },
        ClassicInstruction { code: 0x06, jt: 0, jf: 0, k: 0 },
    ];
    ClassicProgram::new(instructions).unwrap()
}

#[test]
fn a_filter_holds_from_the_first_frame_and_can_be_exchanged() {
    root_or_skip!();
    let cable = Cable::new();
    let frames: Vec<_> = (0..200).map(|n| numbered(n, 60)).collect();
    // While a flood is on, no ring holds a frame that its filter rejects.
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| (0..40).for_each(|_| cable.send(&frames)));
        while !flood.is_finished() {
            let mut ring =
                cable.receive(Options { filter: Some(below(50)), ..quick("rx") }).unwrap();
            std::thread::sleep(Duration::from_millis(2));
            assert!(finish(&mut ring).iter().all(|kept| number(&kept.bytes) < 50));
        }
    });
    let mut ring = cable.receive(Options { filter: Some(below(50)), ..quick("rx") }).unwrap();
    cable.send(&frames);
    ring.set_filter(Some(below(10))).unwrap();
    cable.send(&frames);
    assert_eq!(collect(&mut ring, 60).len(), 60);
    ring.set_filter(None).unwrap();
    cable.send(&frames);
    assert_eq!(collect(&mut ring, 200).len(), 200);
    let statistics = ring.statistics().unwrap();
    assert_eq!((statistics.packets, statistics.lent, statistics.unread), (260, 260, 0));
}

#[test]
fn the_interface_goes_down_and_comes_up_again() {
    root_or_skip!();
    let cable = Cable::new();
    let mut ring = cable.ring();
    for round in 0..3 {
        cable.send(&[numbered(round, 60)]);
        cable.veth.b.down().unwrap();
        // What came before comes before the news.
        assert!(ring.wait(Duration::from_secs(5)).unwrap());
        assert_eq!(drain(&mut ring).len(), 1);
        let error = ring.wait(Duration::from_secs(5)).unwrap_err();
        assert!(matches!(&error, Error::InterfaceDown(name) if name == "rx"), "{error}");
        assert!(!ring.wait(SHORT).unwrap());
        cable.veth.b.up().unwrap();
        wait_for_carrier(&cable);
        drain(&mut ring);
    }
    cable.send(&[numbered(9, 60)]);
    assert_eq!(number(&collect(&mut ring, 1)[0].bytes), 9);
    cable.veth.b.down().unwrap();
    let error = cable.receive(quick("rx")).unwrap_err();
    assert!(matches!(error, Error::InterfaceDown(_)), "{error}");
}

#[test]
fn an_unplugged_cable_is_no_error_and_frames_come_again() {
    root_or_skip!();
    let cable = Cable::new();
    let mut ring = cable.ring();
    cable.veth.a.down().unwrap();
    assert!(!ring.wait(Duration::from_millis(200)).unwrap());
    cable.veth.a.up().unwrap();
    wait_for_carrier(&cable);
    assert!(number(&collect(&mut ring, 1)[0].bytes) == 1000);
}

/// Waits until frames reach `rx` again: a veth's carrier is set from a work queue.
fn wait_for_carrier(cable: &Cable) {
    let mut ring = cable.ring();
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        cable.launch(&[numbered(1000, 60)]);
        if ring.wait(SHORT).unwrap() {
            return;
        }
    }
    panic!("no carrier after five seconds");
}

#[test]
fn an_interface_that_is_removed_is_told_after_its_last_frames() {
    root_or_skip!();
    let cable = Cable::new();
    let mut ring = cable.ring();
    cable.send(&[numbered(1, 60), numbered(2, 60)]);
    let Cable { veth, sender: _sender, receiver: _receiver, .. } = cable;
    veth.delete().unwrap();
    assert!(ring.wait(Duration::from_secs(5)).unwrap());
    assert_eq!(drain(&mut ring).len(), 2);
    for _ in 0..3 {
        let error = ring.wait(Duration::from_secs(5)).unwrap_err();
        assert!(matches!(&error, Error::InterfaceGone(name) if name == "rx"), "{error}");
    }
}

/// The kernel reports only the first of the two as an error of the socket.
#[test]
fn an_interface_that_is_removed_while_it_is_down_is_told() {
    root_or_skip!();
    let cable = Cable::new();
    let mut ring = cable.ring();
    cable.veth.b.down().unwrap();
    let error = ring.wait(Duration::from_secs(5)).unwrap_err();
    assert!(matches!(error, Error::InterfaceDown(_)), "{error}");
    assert!(!ring.wait(SHORT).unwrap());
    let Cable { veth, sender: _sender, receiver: _receiver, .. } = cable;
    let waiting = std::thread::spawn(move || ring.wait(Duration::from_secs(30)));
    std::thread::sleep(SHORT);
    veth.delete().unwrap();
    let error = waiting.join().unwrap().unwrap_err();
    assert!(matches!(&error, Error::InterfaceGone(name) if name == "rx"), "{error}");
}

#[test]
fn promiscuous_mode_lasts_as_long_as_the_ring() {
    root_or_skip!();
    let cable = Cable::new();
    let promiscuity = || {
        let output =
            cable.receiver.command("ip").args(["-d", "link", "show", "rx"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut words = text.split_whitespace().skip_while(|word| *word != "promiscuity").skip(1);
        words.next().unwrap().parse::<u32>().unwrap()
    };
    assert_eq!(promiscuity(), 0);
    let ring = cable.receive(Options { promiscuous: true, ..quick("rx") }).unwrap();
    assert_eq!(promiscuity(), 1);
    drop(ring);
    assert_eq!(promiscuity(), 0);
}

#[test]
fn timestamps_say_when_and_whose_clock() {
    root_or_skip!();
    let cable = Cable::new();
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    // A veth stamps nothing, so the kernel's clock stands in.
    for stamps in [TimestampSource::Software, TimestampSource::Hardware] {
        let mut ring = cable.receive(Options { timestamps: stamps, ..quick("rx") }).unwrap();
        assert_eq!(ring.clock(), None);
        let before = now();
        cable.send(&[numbered(1, 60), numbered(2, 60)]);
        let after = now();
        let stamps: Vec<_> =
            finish(&mut ring).iter().map(|kept| u128::from(kept.timestamp.unwrap().0)).collect();
        assert!(before <= stamps[0] && stamps[0] <= stamps[1] && stamps[1] <= after);
        assert_eq!(ring.clock(), Some(TimestampClock::Software));
    }
}

#[test]
fn unfinished_checksums_are_marked() {
    root_or_skip!();
    let cable = Cable::new();
    let (a, b) = ("10.77.0.1".parse().unwrap(), "10.77.0.2".parse().unwrap());
    cable.veth.a.add_address(a, 24).unwrap();
    cable.veth.b.add_address(b, 24).unwrap();
    cable.veth.a.add_neighbour(b, cable.veth.b.mac()).unwrap();
    cable.veth.b.add_neighbour(a, cable.veth.a.mac()).unwrap();
    let mut ring =
        cable.receive(Options { direction: DirectionFilter::In, ..quick("rx") }).unwrap();
    let send = || UdpSocket::bind((a, 0)).unwrap().send_to(b"hello", (b, 9)).unwrap();
    cable.sender.run(send).unwrap();
    let kept = collect(&mut ring, 1);
    assert!(kept[0].checksum_partial);
}

#[test]
fn a_stopped_ring_hands_over_what_came_before_and_nothing_after() {
    root_or_skip!();
    let cable = Cable::new();
    let mut ring = cable
        .receive(Options { retire_timeout: Duration::from_millis(100), ..Options::new("rx") })
        .unwrap();
    cable.send(&[numbered(1, 60)]);
    ring.stop().unwrap();
    cable.send(&[numbered(2, 60)]);
    assert!(ring.wait(Duration::from_secs(5)).unwrap());
    let kept = drain(&mut ring);
    assert_eq!(kept.iter().map(|kept| number(&kept.bytes)).collect::<Vec<_>>(), [1]);
    let start = Instant::now();
    assert!(!ring.wait(Duration::from_secs(60)).unwrap());
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_ring_is_readable_when_a_batch_is_ready() {
    root_or_skip!();
    use std::os::fd::{AsFd, AsRawFd};
    let cable = Cable::new();
    let mut ring =
        cable.receive(Options { busy_poll: Duration::from_micros(100), ..quick("rx") }).unwrap();
    let readable = |ring: &Ring, timeout| {
        let fd = ring.as_fd().as_raw_fd();
        let mut fd = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, alive during the call.
        unsafe { libc::poll(&mut fd, 1, timeout) == 1 }
    };
    assert!(!readable(&ring, 20));
    assert!(!ring.wait(Duration::ZERO).unwrap());
    cable.send(&[numbered(1, 60)]);
    assert!(readable(&ring, 5000));
    assert!(ring.wait(Duration::ZERO).unwrap());
    assert_eq!(drain(&mut ring).len(), 1);
    assert!(!readable(&ring, 20));
}

#[test]
fn interfaces_that_are_not_there_are_named() {
    root_or_skip!();
    for name in ["no-such-if", "a-name-that-is-too-long-for-one", "nul\0l", ""] {
        let error = Ring::open(Options::new(name)).unwrap_err();
        assert!(matches!(&error, Error::NoInterface(missing) if missing.name == name), "{error}");
        let error = TxRing::open(name, 2048).unwrap_err();
        assert!(matches!(&error, Error::NoInterface(missing) if missing.name == name), "{error}");
    }
}

#[test]
fn without_the_capability_the_error_says_how_to_get_it() {
    root_or_skip!();
    packet::probe().unwrap();
    let errors = std::thread::spawn(|| {
        // SAFETY: version 3 of the structures, for this thread, dropping everything.
        unsafe {
            let header = [0x2008_0522u32, 0];
            let none = [0u32; 6];
            assert_eq!(libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()), 0);
        }
        [packet::probe().unwrap_err(), Ring::open(Options::new("lo")).unwrap_err()]
    })
    .join()
    .unwrap();
    for error in errors {
        assert!(matches!(&error, Error::Privilege { capability: "CAP_NET_RAW", .. }), "{error}");
        assert!(error.to_string().contains("setcap cap_net_raw+ep"), "{error}");
    }
}

#[test]
fn sizes_that_the_kernel_refuses_are_named() {
    root_or_skip!();
    for (options, words) in [
        (Options { block_size: 5000, ..quick("lo") }, "whole pages"),
        (Options { block_size: 0, ..quick("lo") }, "1 to 2147483647 bytes"),
        (Options { blocks: Some(0), ..quick("lo") }, "at least one block"),
        (Options { buffer_size: u64::MAX, ..quick("lo") }, "memory available"),
        (Options { buffer_size: 1 << 46, ..quick("lo") }, "memory available"),
        (
            Options { block_size: 4096, blocks: Some(1 << 20), ..quick("lo") },
            "ask for fewer blocks",
        ),
    ] {
        let error = Ring::open(options).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
