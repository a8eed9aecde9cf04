//! What receiving a frame costs: no allocation, and a system call only when there is nothing to do.
//!
//! Allocations are counted by the allocator of this program, system calls by strace, which runs
//! this program again in the part of the receiver.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use crate::counting::allocations;
use crate::xdp_support::{CHILD, Cable, copying, small, udp};
use linerate_ring::tee::Tee;
use linerate_ring::xdp::{Sockets, TxSocket};
use linerate_ring::{Batch as _, Options, Ring as _, TimestampSource, WaitStrategy};
use linerate_testkit::{VethOptions, only_this_test, root_or_skip, skip, test_name};

/// What both kinds of source have in common here.
trait Receive {
    /// Takes the frames that are ready; waits if there are none. Returns their number.
    fn some(&mut self) -> u64;

    /// Receives `count` frames.
    fn all(&mut self, count: u64) {
        let mut received = 0;
        while received < count {
            let some = self.some();
            assert!(some > 0, "only {received} came");
            received += some;
        }
    }
}

/// Both have the methods, but no trait in common: a lending batch makes none that is worth it.
macro_rules! receive {
    ($kind:ty) => {
        impl Receive for $kind {
            fn some(&mut self) -> u64 {
                let (mut count, mut bytes) = (0, 0);
                if self.wait(Duration::from_secs(10)).expect("waited") {
                    while let Some(mut batch) = self.next_batch() {
                        while let Some(frame) = batch.next() {
                            count += 1;
                            bytes += frame.len();
                        }
                    }
                }
                std::hint::black_box(bytes);
                count
            }
        }
    };
}
receive!(Sockets);
receive!(Tee);

fn source(stamps: TimestampSource, pace: WaitStrategy) -> Sockets {
    let (buffer, timestamps, wait_strategy) = (Some(64 << 20), stamps, pace);
    let options = Options { buffer, timestamps, wait_strategy, ..small() };
    Sockets::open("rx", &options, None).expect("a source")
}

fn allocations_of(cable: &Cable, mut receiver: impl Receive, len: usize) -> u64 {
    let raw = cable.raw();
    std::thread::scope(|scope| {
        scope.spawn(move || (0..10_000).for_each(|n| raw.send(&udp(7, n, len))));
        allocations(|| receiver.all(10_000)).0
    })
}

#[test]
fn receiving_allocates_nothing() {
    root_or_skip!();
    let cable = Cable::new(VethOptions { mtu: 9000, ..VethOptions::default() });
    for stamps in [
        TimestampSource::None,
        TimestampSource::Reader,
        TimestampSource::Software,
        TimestampSource::Hardware,
    ] {
        let source = cable.receiver.run(|| source(stamps, WaitStrategy::default())).unwrap();
        assert_eq!(allocations_of(&cable, source, 100), 0, "{stamps:?}");
    }
    let source =
        cable.receiver.run(|| source(TimestampSource::Reader, WaitStrategy::default())).unwrap();
    assert_eq!(allocations_of(&cable, source, 5000), 0, "frames in pieces");
    let tee = cable.receiver.run(|| Tee::open("rx", &copying(), None).unwrap()).unwrap();
    assert_eq!(allocations_of(&cable, tee, 100), 0, "a tee");
}

#[test]
fn sending_allocates_nothing() {
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let mut sender = cable.sender.run(|| TxSocket::open("tx", 0, 256, 2048)).unwrap().unwrap();
    let bytes = udp(7, 0, 100);
    let (allocations, drained) = allocations(|| {
        let mut sent = 0;
        while sent < 5000 {
            let Some(mut frame) = sender.frame() else {
                sender.flush().unwrap();
                continue;
            };
            sender.bytes(&mut frame)[..bytes.len()].copy_from_slice(&bytes);
            sender.send(frame, bytes.len());
            sent += 1;
        }
        sender.drain(Duration::from_secs(5)).unwrap()
    });
    assert!(drained);
    assert_eq!(allocations, 0);
}

/// Long naps: the sender of this test is slow, and a nap serves as many frames as come during it.
const NAPS: WaitStrategy =
    WaitStrategy { sleep: Duration::from_millis(2), poll_after: Duration::from_millis(100) };

/// System calls of a child that receives `count` frames with what `kind` names, its start and end
/// included.
fn calls(cable: &Cable, test: &str, kind: &str, count: u64) -> u64 {
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("calls");
    let mut child = cable
        .receiver
        .command("strace")
        .args(["-f", "-c", "-U", "calls,name", "-o"])
        .arg(&report)
        .arg(std::env::current_exe().expect("this program"))
        .args(only_this_test!(test))
        .env(CHILD, format!("{kind} {count}"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("strace");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert!(lines.any(|line| line.expect("text").contains("ready")), "never ready");
    let (raw, frame) = (cable.raw(), udp(7, 0, 100));
    (0..count).for_each(|_| raw.send(&frame));
    assert!(child.wait().expect("waited").success());
    let report = fs::read_to_string(&report).expect("a report");
    let total = report.lines().find(|line| line.trim_end().ends_with(" total"));
    let total = total.and_then(|line| line.split_whitespace().next()).expect("a total");
    total.parse().expect("a number")
}

#[test]
fn a_system_call_serves_more_than_fifty_frames() {
    if let Ok(wish) = std::env::var(CHILD) {
        let (kind, count) = wish.split_once(' ').expect("two words");
        let count = count.parse().expect("a number");
        if kind == "xdp" {
            let mut source = source(TimestampSource::Reader, NAPS);
            println!("ready");
            source.all(count);
        } else {
            let mut tee = Tee::open("rx", &Options { wait_strategy: NAPS, ..copying() }, None)
                .expect("a tee");
            println!("ready");
            tee.all(count);
        }
        return;
    }
    root_or_skip!();
    let cable = Cable::new(VethOptions::default());
    let strace = cable.receiver.command("strace").arg("-V").stdout(Stdio::null()).status();
    if !strace.is_ok_and(|status| status.success()) {
        skip!("needs strace");
    }
    for kind in ["xdp", "tee"] {
        // The difference leaves start and end out.
        let (few, many) =
            (calls(&cable, test_name!(), kind, 1000), calls(&cable, test_name!(), kind, 201_000));
        let each = (many as f64 - few as f64) / 200_000.0;
        println!("{kind}: {each:.4} system calls a frame");
        assert!(each < 0.02, "{kind}: {each} system calls a frame");
    }
}
