//! Many receive queues, senders on every CPU, several readers: every packet once, in the order of time, and counted
//! for its queue.

use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use linerate_net::cpu;
use linerate_pcapfile::Reader;
use linerate_testkit::{exclusive, root_or_skip};
use serde_json::Value;

use super::support::{Cable, accepts, everybody_accepts, folder};

/// Packets from each CPU.
const PACKETS: u64 = 20_000;

/// Sends from every CPU at once to 200 ports, no faster than the veth pair takes them; how many.
fn send_from_every_cpu(cable: &Cable, packets: u64) -> u64 {
    let before = cable.received();
    let patience = Duration::from_secs(60 + packets / 5_000);
    let (sent, end) = (AtomicU64::new(0), Instant::now() + patience);
    std::thread::scope(|scope| {
        for cpu in cpu::allowed().unwrap() {
            let socket = cable.near.run(|| UdpSocket::bind("10.9.0.1:0").unwrap()).unwrap();
            let sent = &sent;
            scope.spawn(move || {
                cpu::pin(cpu).unwrap();
                for number in 0..packets {
                    let payload = ((cpu as u64) << 32 | number).to_be_bytes();
                    socket.send_to(&payload, ("10.9.0.2", 5000 + (number % 200) as u16)).unwrap();
                    if sent.fetch_add(1, SeqCst).is_multiple_of(32) {
                        while sent.load(SeqCst) > cable.received() - before + 128 {
                            assert!(Instant::now() < end, "the cable lost packets");
                            std::thread::yield_now();
                        }
                    }
                }
            });
        }
    });
    while cable.received() - before < sent.load(SeqCst) {
        assert!(Instant::now() < end, "the cable lost packets");
        std::thread::yield_now();
    }
    sent.load(SeqCst)
}

/// The numbers of the packets in a file, and how often the time goes back.
fn content(path: &Path) -> (Vec<u64>, usize) {
    let mut reader = Reader::open(path).unwrap();
    let (mut numbers, mut back, mut last) = (Vec::new(), 0, 0);
    while let Some(record) = reader.next().unwrap() {
        let stamp = record.frame.timestamp.unwrap().0;
        back += usize::from(stamp < last);
        last = stamp;
        numbers.push(u64::from_be_bytes(record.frame.head()[42..50].try_into().unwrap()));
    }
    (numbers, back)
}

/// Checks that the files have every packet once.
fn check_all(files: &[PathBuf], sent: u64) {
    let mut all: Vec<u64> = files.iter().flat_map(|path| content(path).0).collect();
    assert_eq!(all.len() as u64, sent, "{files:?}");
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len() as u64, sent, "every packet once: {files:?}");
}

/// Checks the ledger: everything received and nothing lost, by queue and in sum.
fn check_ledger(json: &Value, sent: u64, printed: &str) {
    assert_eq!((&json["captured"], &json["received"]), (&sent.into(), &sent.into()), "{printed}");
    assert_eq!(json["dropped"]["total"], 0, "{printed}");
    assert_eq!(json["dropped"]["out_of_order"], 0, "{printed}");
    let queues = json["interfaces"][0]["queues"].as_array().unwrap();
    let received: u64 = queues.iter().map(|queue| queue["received"].as_u64().unwrap()).sum();
    assert_eq!(received, sent, "{queues:?}");
    assert!(queues.iter().all(|queue| queue["dropped"]["total"] == 0), "{queues:?}");
}

#[test]
fn all_queues_come_into_one_file_in_the_order_of_time() {
    root_or_skip!();
    // Frames of sockets are held back for a millisecond: a reader that gets no CPU for longer gives them too late.
    let _exclusive = exclusive();
    let sources =
        ["tee", "xdp --take-over --xdp-delivery ringbuf", "xdp --take-over --xdp-delivery af-xdp"];
    for queues in [2, 64] {
        let cable = Cable::with_queues(queues);
        for (number, source) in sources.into_iter().enumerate() {
            for threads in ["1", "auto"] {
                let folder = folder();
                let path = folder.path().join(format!("{number}.pcapng"));
                let options = format!("--source {source} --threads {threads} --json -B 131072");
                let capture = cable.capture(&format!("{options} -w {} udp", path.display()));
                let sent = send_from_every_cpu(&cable, PACKETS);
                let (status, json, printed) = capture.interrupt();
                assert!(status.success(), "{options}: {printed}");
                check_ledger(&json, sent, &printed);
                check_all(std::slice::from_ref(&path), sent);
                assert_eq!(content(&path).1, 0, "{queues} queues, {options}: the time goes back");
                let readers =
                    if threads == "1" { 1 } else { cpu::online().len().min(queues as usize) };
                assert_eq!(json["interfaces"][0]["readers"], readers, "{printed}");
                assert!(printed.contains("by queue of far: 0: "), "{printed}");
                accepts("capinfos", &["-c"], &path);
            }
        }
    }
}

/// The same with many packets. `cargo test -p linerate --test it capture::queues -- --ignored --nocapture` prints the
/// figures.
#[test]
#[ignore = "takes minutes, and a gigabyte of disk"]
fn eight_million_packets_of_64_queues_are_exact() {
    root_or_skip!();
    const TOTAL: u64 = 8_000_000;
    for (source, per_thread) in [("tee", false), ("xdp --take-over", false), ("tee", true)] {
        let (cable, folder) = (Cable::with_queues(64), folder());
        let path = folder.path().join("all.pcapng");
        let flag = if per_thread { "--per-thread-files" } else { "" };
        let options = format!("--source {source} --threads auto {flag} --json -B 262144");
        let capture = cable.capture(&format!("{options} -w {} udp", path.display()));
        let start = Instant::now();
        let sent = send_from_every_cpu(&cable, TOTAL / cpu::allowed().unwrap().len() as u64);
        let seconds = start.elapsed().as_secs_f64();
        let (status, json, printed) = capture.interrupt();
        assert!(status.success(), "{options}: {printed}");
        let files: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()).collect();
        let queues = json["interfaces"][0]["queues"].as_array().unwrap().len();
        let back: usize = files.iter().map(|path| content(path).1).sum();
        println!(
            "{options}: {sent} packets sent in {seconds:.0} s through {queues} queues, {} captured, {} lost, {} out \
             of order; in {} files the time goes back {back} times",
            json["captured"],
            json["dropped"]["total"],
            json["dropped"]["out_of_order"],
            files.len()
        );
        check_ledger(&json, sent, &printed);
        check_all(&files, sent);
        assert_eq!((back, files.len()), (0, if per_thread { cpu::online().len() } else { 1 }));
        assert!(queues > 48, "{queues}");
    }
}

#[test]
fn rotation_loses_nothing_in_one_file_and_in_one_a_thread() {
    root_or_skip!();
    let cable = Cable::with_queues(4);
    for per_thread in [false, true] {
        let folder = folder();
        let path = folder.path().join("all.pcapng");
        let flag = if per_thread { "--per-thread-files" } else { "" };
        let options = format!("--source tee --threads 2 {flag} -C 100k -z true --json");
        let capture = cable.capture(&format!("{options} -w {} udp", path.display()));
        let sent = send_from_every_cpu(&cable, PACKETS);
        let (status, json, printed) = capture.interrupt();
        assert!(status.success(), "{options}: {printed}");
        check_ledger(&json, sent, &printed);
        let mut files: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()).collect();
        // all.pcapng, all.pcapng1, all.pcapng2, ...
        files.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
        assert!(files.len() > 10, "{files:?}");
        assert_eq!(json["files"], files.len());
        check_all(&files, sent);
        if per_thread {
            assert!(folder.path().join("all-0.pcapng").exists(), "{files:?}");
            let two = cpu::online().len() > 1;
            assert_eq!(folder.path().join("all-1.pcapng").exists(), two, "{files:?}");
        } else {
            let mut last = 0;
            for path in &files {
                let mut reader = Reader::open(path).unwrap();
                while let Some(record) = reader.next().unwrap() {
                    let stamp = record.frame.timestamp.unwrap().0;
                    assert!(stamp >= last, "the time goes back in {}", path.display());
                    last = stamp;
                }
            }
        }
        everybody_accepts(&files[0]);
    }
}

#[test]
fn one_queue_has_one_reader_and_a_warning_says_so() {
    root_or_skip!();
    let cable = Cable::new();
    let capture = cable.capture("--source tee --threads 3 --discard --json udp");
    cable.send(100, 64);
    let (status, json, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    assert_eq!((&json["captured"], &json["interfaces"][0]["readers"]), (&100.into(), &1.into()));
    assert!(printed.contains("warning: 1 reader: the interface has no more"), "{printed}");
}
