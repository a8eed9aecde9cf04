//! Programs in several processes that share the packets of an interface: each flow is in one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use linerate_testkit::root_or_skip;
use nix::sys::signal::Signal;

use crate::support::{Cable, FAR, Libpcap, Library, NEAR, Running, compile, has, traffic};

/// Flows, with packets in both directions.
const SESSIONS: u16 = 200;
const WORKERS: usize = 3;

/// The addresses and ports of each packet in a file, those of the client first.
fn flows(file: &Path) -> Vec<[String; 2]> {
    let output = Command::new("tcpdump").args(["-t", "-nn", "-r"]).arg(file).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let ends = |line: &str| {
        let mut words = line.split([' ', ':']);
        let mut ends = [words.nth(1)?.to_owned(), words.nth(1)?.to_owned()];
        ends.sort();
        Some(ends)
    };
    text.lines().filter_map(ends).collect()
}

#[test]
fn workers_of_a_cluster_get_whole_flows_and_together_every_packet() {
    root_or_skip!();
    if !has("workers_of_a_cluster_get_whole_flows_and_together_every_packet", "tcpdump") {
        return;
    }
    let (library, cable, folder) = (Library::install(), Cable::new(), tempfile::tempdir().unwrap());
    let path = |name: &str| folder.path().join(name);
    let sessions: Vec<_> = (0..SESSIONS).map(|number| traffic::session(40_000 + number)).collect();
    let steps = 0..sessions[0].len();
    let frames: Vec<_> =
        steps.flat_map(|step| sessions.iter().map(move |session| session[step].clone())).collect();
    traffic::write_frames(&path("traffic.pcap"), &frames);
    let sender = compile("send.c", folder.path(), &[]);
    let files: Vec<_> = (0..WORKERS).map(|number| path(&format!("{number}.pcap"))).collect();
    let clustered = Libpcap::Preloaded(&[("LINERATE_CLUSTER", "4711")]);
    let mut workers: Vec<Running> = Vec::new();
    for file in &files {
        let file = file.to_str().unwrap();
        let line = ["tcpdump", "-i", FAR, "-U", "-Z", "root", "-w", file, "tcp"];
        let mut worker = cable.start(&library, clustered, &line, folder.path());
        worker.wait_for("the interface", |worker| worker.stderr().contains("listening on"));
        workers.push(worker);
    }
    let mut send = cable.namespace.command(&sender);
    assert!(send.arg(NEAR).arg(path("traffic.pcap")).arg("1").status().unwrap().success());
    let all = || files.iter().map(|file| flows(file)).collect::<Vec<_>>();
    workers[0]
        .wait_for("every packet", |_| all().iter().map(Vec::len).sum::<usize>() >= frames.len());
    for worker in &mut workers {
        worker.interrupt(Signal::SIGINT);
        assert_eq!(worker.ended(), Some(0), "{}", worker.stderr());
        assert!(worker.stderr().contains("\n0 packets dropped by kernel"), "{}", worker.stderr());
    }
    let all = all();
    let packets: Vec<_> = all.iter().map(Vec::len).collect();
    assert_eq!(packets.iter().sum::<usize>(), frames.len(), "each one once: {packets:?}");
    assert!(!packets.contains(&0), "all work: {packets:?}");
    let mut workers_of = BTreeMap::<_, BTreeSet<usize>>::new();
    for (worker, packets) in all.iter().enumerate() {
        packets.iter().for_each(|flow| _ = workers_of.entry(flow).or_default().insert(worker));
    }
    assert_eq!(workers_of.len(), usize::from(SESSIONS));
    assert!(workers_of.values().all(|workers| workers.len() == 1), "a flow of two workers");
    println!("{} packets of {SESSIONS} flows by {WORKERS} processes: {packets:?}", frames.len());
}

#[test]
fn a_source_that_cannot_share_is_replaced_and_said() {
    root_or_skip!();
    if !has("a_source_that_cannot_share_is_replaced_and_said", "tcpdump") {
        return;
    }
    let (library, cable, folder) = (Library::install(), Cable::new(), tempfile::tempdir().unwrap());
    let clustered = Libpcap::Preloaded(&[
        ("LINERATE_SOURCE", "tee"),
        ("LINERATE_CLUSTER", "4712"),
        ("LINERATE_QUIET", "0"),
    ]);
    let line = ["tcpdump", "-i", FAR, "-Z", "root", "-w", "/dev/null"];
    let mut worker = cable.start(&library, clustered, &line, folder.path());
    worker.wait_for("the interface", |worker| worker.stderr().contains("listening on"));
    assert!(worker.stderr().contains("continues with source packet: handles share packets"));
    worker.interrupt(Signal::SIGINT);
    assert_eq!(worker.ended(), Some(0), "{}", worker.stderr());
}

#[test]
fn an_interface_whose_packets_cannot_be_shared_is_named() {
    root_or_skip!();
    if !has("an_interface_whose_packets_cannot_be_shared_is_named", "tcpdump") {
        return;
    }
    let (library, cable, folder) = (Library::install(), Cable::new(), tempfile::tempdir().unwrap());
    for (interface, options, by) in [
        ("lo", &[("LINERATE_CLUSTER", "2"), ("LINERATE_QUIET", "0")], "cluster"),
        ("lo", &[("LINERATE_THREADS", "2"), ("LINERATE_QUIET", "0")], "threads"),
        ("any", &[("LINERATE_CLUSTER", "2"), ("LINERATE_QUIET", "0")], "cluster"),
    ] {
        let shared = Libpcap::Preloaded(options);
        let line = ["tcpdump", "-i", interface, "-Z", "root", "-w", "/dev/null"];
        let mut program = cable.start(&library, shared, &line, folder.path());
        program.wait_for("the interface", |program| program.stderr().contains("listening on"));
        program.interrupt(Signal::SIGINT);
        assert_eq!(program.ended(), Some(0), "{}", program.stderr());
        let why =
            format!("{interface}: continues with libpcap alone: handles share packets ({by}) only");
        assert!(program.stderr().contains(&why), "{}", program.stderr());
    }
}
