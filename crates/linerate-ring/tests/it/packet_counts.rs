//! What receiving a frame costs: no allocation, and a system call only when there is nothing to do.
//!
//! Allocations are counted by the allocator of this program, system calls by strace, which runs
//! this program again in the part of the receiver.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::counting::allocations;
use crate::packet_support::{Cable, numbered, quick};
use linerate_ring::packet::Ring;
use linerate_ring::{Batch as _, Ring as _};
use linerate_testkit::{only_this_test, root_or_skip, skip};

/// Says to the program that strace runs how many frames to receive.
const FRAMES: &str = "LINERATE_TEST_FRAMES";

/// Ends another thread's loop, also when this one panics.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Receives `count` frames; returns the sum of their lengths.
fn receive(ring: &mut Ring, count: u64) -> u64 {
    let (mut frames, mut bytes) = (0, 0);
    while frames < count {
        while let Some(mut batch) = ring.next_batch() {
            while let Some(frame) = batch.next() {
                frames += 1;
                bytes += frame.len() as u64;
            }
        }
        if frames < count {
            assert!(ring.wait(Duration::from_secs(10)).expect("waited"), "only {frames} came");
        }
    }
    bytes
}

#[test]
fn receiving_allocates_nothing() {
    root_or_skip!();
    let cable = Cable::new();
    let mut ring = cable.ring();
    let frames: Vec<_> = (0..500).map(|n| numbered(n, 100)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                cable.send(&frames);
            }
        });
        let _done = SetOnDrop(&done);
        let (allocations, bytes) = allocations(|| receive(&mut ring, 20_000));
        assert_eq!(allocations, 0);
        assert!(bytes >= 2_000_000);
    });
}

#[test]
fn sending_allocates_nothing() {
    root_or_skip!();
    let cable = Cable::new();
    let mut ring = cable.transmit();
    let frame = numbered(1, 100);
    let (allocations, ()) = allocations(|| {
        for _ in 0..5000 {
            if let Some(mut slot) = ring.frame(frame.len()).expect("a fitting length") {
                slot.copy_from_slice(&frame);
                slot.send();
            } else {
                ring.flush().expect("flushed");
            }
        }
        ring.flush().expect("flushed");
    });
    assert_eq!(allocations, 0);
    assert!(ring.statistics().sent > 4000);
}

#[test]
fn a_system_call_serves_more_than_fifty_frames() {
    if let Ok(frames) = std::env::var(FRAMES) {
        let mut ring = Ring::open(quick("rx")).expect("a ring");
        println!("ready");
        receive(&mut ring, frames.parse().expect("a number"));
        return;
    }
    root_or_skip!();
    let cable = Cable::new();
    let strace = |args: &[&str]| cable.receiver.command("strace").args(args).output();
    if !strace(&["-V"]).is_ok_and(|output| output.status.success()) {
        skip!("needs strace");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let calls = |count: u64| {
        let report = folder.path().join("calls");
        let program = std::env::current_exe().expect("this program");
        let mut child = cable
            .receiver
            .command("strace")
            .args(["-f", "-c", "-U", "calls,name", "-o"])
            .arg(&report)
            .arg(program)
            .args(only_this_test!())
            .env(FRAMES, count.to_string())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("strace");
        let output = std::io::BufReader::new(child.stdout.take().expect("piped"));
        let mut lines = std::io::BufRead::lines(output);
        assert!(lines.any(|line| line.expect("text").contains("ready")), "never ready");
        let frames: Vec<_> = (0..500).map(|n| numbered(n, 100)).collect();
        let status = loop {
            match child.try_wait().expect("waited") {
                Some(status) => break status,
                None => cable.send(&frames),
            }
        };
        assert!(status.success());
        let report = fs::read_to_string(&report).expect("a report");
        let total = report.lines().find(|line| line.trim_end().ends_with(" total"));
        let total = total.and_then(|line| line.split_whitespace().next()).expect("a total");
        total.parse::<u64>().expect("a number")
    };
    // Everything that the program does counts, its start included.
    let (few, many) = (calls(1000), calls(101_000));
    let a_frame = many.saturating_sub(few) as f64 / 100_000.0;
    println!("{few} system calls for 1000 frames, {many} for 101000: {a_frame:.4} a frame");
    assert!(few > 10, "strace counted nothing");
    assert!(a_frame < 0.02, "{a_frame} system calls a frame");
}
