//! What an operator reads beside a running instance: accounts of connections, and the doctor.

use std::io::{Read, Write};
use std::net::TcpStream;

use linerate_forward::runtime::program::unavailable;
use linerate_testkit::{Process, probe_or_skip, root_or_skip, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::support::Net;
use crate::LINERATE;

#[test]
fn connections_are_accounted_on_the_fast_path_and_through_the_kernel() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    let net = Net::new();
    // So each direction begins with packets that the kernel forwards.
    net.router_does("nft add table ip t");
    net.router_does(
        "nft add chain ip t post { type nat hook postrouting priority 100; masquerade; }",
    );
    let daemon = net.run("--metrics 127.0.0.1:9818 --metrics-connections 1");
    assert_eq!(net.ask(0, 4001, 40), 40);
    assert_eq!(net.ask_with(0, 4002, 60, 500), 60);
    let connections = net.json("accounting");
    assert_eq!(connections.len(), 2, "{connections:?}");
    let traffic = |packets: u64, payload: u64| serde_json::json!({"packets": packets, "bytes": packets * (payload + 28)});
    for (connection, (port, packets, payload)) in
        connections.iter().zip([("4002", 60, 500), ("4001", 40, 8)])
    {
        let name = connection["connection"].as_str().unwrap();
        assert!(name.contains(port), "{connection}");
        assert_eq!(connection["original"], traffic(packets, payload), "{connection}");
        assert_eq!(connection["reply"], traffic(packets, payload), "{connection}");
    }
    assert_eq!(net.json("accounting --limit 1").len(), 1);
    assert!(net.stdout_of("accounting").contains("reply bytes"));

    let scrape = || {
        let mut stream = TcpStream::connect("127.0.0.1:9818").unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let line = "connection_packets_total{connection=\"udp,";
    let found = || {
        let text = net.router.run(scrape).unwrap();
        let found: Vec<_> = text.lines().filter(|one| one.contains(line)).collect();
        found.len() == 2 && found.iter().all(|one| one.contains("4002") && one.ends_with(" 60"))
    };
    wait_for("the largest connection in the metrics", found);
    daemon.end(Signal::SIGTERM);
}

#[test]
fn the_doctor_calls_a_running_instance_no_fault() {
    root_or_skip!();
    let net = Net::new();
    let daemon = net.run("");
    let mut capture = net.router.command_killed_with_parent(LINERATE);
    capture.args("capture -i right --source packet -w /dev/null".split(' '));
    let capture = Process::start(&mut capture);
    let findings = || {
        let mut doctor = net.router.command(LINERATE);
        let output = doctor.args("doctor forward -i left -i right --json".split(' ')).output();
        let output = output.unwrap();
        assert_ne!(output.status.code(), Some(4), "{}", String::from_utf8_lossy(&output.stdout));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["findings"].as_array().unwrap().clone()
    };
    let says = |id: &str, words: &str| {
        let is_it = |one: &Value| one["id"] == id && one["what"].as_str().unwrap().contains(words);
        findings().iter().any(is_it)
    };
    assert!(says("xdp-program", "linerate forward accelerates it"), "{:?}", findings());
    wait_for("the capture", || {
        says("packet-sockets", "they see no packet that the fast path sends")
    });
    capture.end(Signal::SIGTERM);
    daemon.end(Signal::SIGTERM);
}
