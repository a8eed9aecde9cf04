//! Nothing is taken from the host that nobody asked for: `capture` and `run` with `auto` change nothing in any situation, and
//! with consent they say what is taken.

mod situations;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use linerate_ring::packet::{Options, Ring, Sender};
use linerate_ring::{Batch as _, Ring as _};
use linerate_testkit::tools::ip;
use linerate_testkit::{Namespace, Process, print_skipped, root_or_skip};
use linerate_wire::virtio::Header;

use crate::LINERATE;
use crate::capture::support::listening;
use crate::run::has_library;
use situations::{COUNT, Hosts, SITUATIONS, Situation};

/// A capture on `port` with `auto` and these options.
fn capture(host: &Namespace, options: &[&str], sources: &[&str]) -> Process {
    let mut command = host.command(LINERATE);
    let capture = listening(command.args(["capture", "-i", "port", "--discard"]).args(options));
    let said = capture.stderr();
    let line = said.lines().find(|line| line.contains("listening on port")).unwrap();
    assert!(sources.iter().any(|one| line.contains(&format!("source {one}"))), "{said}");
    let longest = line.len() - "port".len() + "fifteen-letters".len();
    assert!(longest <= 100, "with the longest name of an interface: {line}");
    capture
}

/// Captures of both directions: by `linerate capture` and by tcpdump.
fn captures_of_both(host: &Namespace) -> Vec<Process> {
    let mut running = vec![capture(host, &[], &["packet"])];
    if has_library("the captures of tcpdump") {
        let mut tcpdump = host.command(LINERATE);
        tcpdump.args(["run", "--", "tcpdump", "-i", "port", "-n", "-Z", "root", "-w", "/dev/null"]);
        running.push(listening(&mut tcpdump));
    }
    running
}

/// A capture of what comes in, by XDP where the driver has it.
fn capture_of_incoming(host: &Namespace) -> Process {
    let mut capture = capture(host, &["-Q", "in"], &["tee", "packet"]);
    if capture.stderr().contains("source tee") {
        capture.until("--take-over: faster");
    }
    capture
}

/// What plain Linux does in each situation is in the table, which a test of its own compares with Linux.
fn changes_nothing(situation: &Situation) -> bool {
    let hosts = Hosts::new();
    // Before the interface has a use.
    let _both = captures_of_both(&hosts.host);
    let _links = match situation.set_up(&hosts) {
        Ok(links) => links,
        Err(why) => {
            print_skipped(situation.name, &why);
            return false;
        }
    };
    let mut conversation = situation.open(&hosts);
    assert_eq!(conversation.exchange(), situation.counts(), "{}", situation.name);
    // In the middle of its use.
    let _incoming = capture_of_incoming(&hosts.host);
    let beside = conversation.exchange();
    assert_eq!(beside, situation.counts(), "{}: with a tee", situation.name);
    true
}

#[test]
fn captures_of_auto_change_nothing_in_any_situation() {
    root_or_skip!();
    let (next, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some(situation) = SITUATIONS.get(next.fetch_add(1, Relaxed)) {
            seen.fetch_add(usize::from(changes_nothing(situation)), Relaxed);
        }
    };
    // Most of the time goes by while programs start and end.
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
    let seen = seen.into_inner();
    assert!(seen >= 25, "only {seen} situations are possible here");
}

/// A frame with an EtherType that nobody has, behind a VLAN tag.
fn tagged() -> Vec<u8> {
    [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 0x81, 0, 0, 5, 0x88, 0xb5], &[7; 50]].concat()
}

/// Sends frames, and counts those that the packet socket gets.
fn receives(ring: &mut Ring, sender: &Sender) -> usize {
    let header = Header::default();
    (0..COUNT).for_each(|_| sender.send(&header, &tagged()).expect("sent"));
    let (mut seen, end) = (0, Instant::now() + Duration::from_secs(20));
    while seen < COUNT && Instant::now() < end {
        ring.wait(Duration::from_millis(20)).expect("the interface is up");
        while let Some(mut batch) = ring.next_batch() {
            while let Some(frame) = batch.next() {
                seen += usize::from(frame.head().windows(2).any(|word| word == [0x88, 0xb5]));
            }
        }
    }
    seen
}

#[test]
fn packet_sockets_and_a_bridge_get_frames_with_tags_beside_captures() {
    root_or_skip!();
    let hosts = Hosts::new();
    let sender = hosts.peer.run(|| Sender::open("peer").unwrap()).unwrap();
    let open = |host: &Namespace, name: &str| {
        host.run(|| Ring::open(Options::new(name))).unwrap().unwrap()
    };
    let mut before = open(&hosts.host, "port");
    let _captures = (captures_of_both(&hosts.host), capture_of_incoming(&hosts.host));
    let mut after = open(&hosts.host, "port");
    assert_eq!(receives(&mut before, &sender), COUNT, "a packet socket from before");
    drop(before);
    let _ = after.next_batch();
    drop(after);
    let mut after = open(&hosts.host, "port");
    assert_eq!(receives(&mut after, &sender), COUNT, "one that came later");
    for line in
        ["link add br0 type bridge", "link set port master br0", "link set inner master br0"]
    {
        ip(&hosts.host, line);
    }
    ip(&hosts.host, "link set br0 up");
    let mut beyond = open(&hosts.beyond, "beyond");
    assert_eq!(receives(&mut beyond, &sender), COUNT, "a host behind a bridge");
}

#[test]
fn consent_takes_frames_and_says_what_they_pass_by() {
    root_or_skip!();
    let situation = SITUATIONS.iter().find(|one| one.name == "rule of nftables on the answers");
    let situation = situation.expect("a situation");
    let consents: [&[&str]; 2] = [&["--take-over"], &["--source", "xdp"]];
    for options in consents {
        let hosts = Hosts::new();
        situation.set_up(&hosts).unwrap();
        assert_eq!(situation.open(&hosts).exchange(), [COUNT; 2]);
        let mut command = hosts.host.command(LINERATE);
        command.args(["capture", "-i", "port", "--discard", "--json"]).args(options).arg("udp");
        let mut capture = listening(&mut command);
        capture.until("the host does not get the frames of port");
        capture.until("these frames pass by ");
        capture.until("connection tracking");
        assert!(capture.stderr().contains("source xdp"), "{}", capture.stderr());
        assert!(!capture.stderr().contains("--take-over:"), "{}", capture.stderr());
        let socket = hosts.peer.run(|| std::net::UdpSocket::bind("10.9.0.1:0").unwrap()).unwrap();
        for _ in 0..COUNT {
            socket.send_to(&[0], "10.9.0.2:5000").unwrap();
        }
        let (status, json, printed) = capture.interrupt();
        assert!(status.success(), "{printed}");
        assert_eq!(json["captured"], COUNT, "{json}");
        let got = hosts.host.snmp_counter("Udp", "NoPorts").unwrap();
        assert_eq!(got, 0, "the host gets none: {printed}");
    }
}

#[test]
fn consent_that_has_no_effect_is_said() {
    root_or_skip!();
    let hosts = Hosts::new();
    for (options, why) in [
        (&["-i", "port", "-Q", "inout"][..], "only packet sockets see outgoing frames"),
        (&["-i", "lo"], "--take-over has no effect"),
        (&["-i", "port", "--split"], "splitting needs"),
        (&["-i", "port", "--source", "tee"], "which takes no frames"),
    ] {
        let mut command = hosts.host.command(LINERATE);
        command.args(["capture", "--take-over", "-w", "/dev/null"]).args(options);
        let mut capture = listening(&mut command);
        capture.until("warning: --take-over has no effect");
        capture.until(why);
        assert!(!capture.stderr().contains("source xdp"), "{}", capture.stderr());
    }
}

#[test]
fn a_program_takes_frames_with_consent_only() {
    root_or_skip!();
    if !has_library(linerate_testkit::test_name!()) {
        return;
    }
    let situation = SITUATIONS.iter().find(|one| one.name == "address").expect("a situation");
    // The words of the environment, and whether they are consent.
    for (word, consents) in
        [("", false), ("0", false), ("no", false), ("perhaps", false), ("yes", true)]
    {
        let hosts = Hosts::new();
        situation.set_up(&hosts).unwrap();
        let mut command = hosts.host.command(LINERATE);
        command.env("LINERATE_TAKE_OVER", word);
        command.args([
            "run",
            "--",
            "tcpdump",
            "-i",
            "port",
            "-n",
            "-Z",
            "root",
            "-w",
            "/dev/null",
            "udp",
        ]);
        let mut tcpdump = listening(&mut command);
        if word == "perhaps" {
            tcpdump.until("LINERATE_TAKE_OVER=perhaps: expected yes or no");
        }
        if consents {
            tcpdump.until("the host does not get the frames");
            assert!(hosts.host.interface("port").unwrap().has_xdp().unwrap());
            continue;
        }
        assert!(!hosts.host.interface("port").unwrap().has_xdp().unwrap(), "{word}");
        assert_eq!(situation.open(&hosts).exchange(), [COUNT; 2], "{word}");
    }
}
