//! `--flows`: records of forwarded sessions against their counters, and NAT events against conntrack's own log.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use linerate_forward::tuple::FiveTuple;
use linerate_testkit::{Process, bind_udp, probe_or_skip, root_or_skip, wait_for};
use nix::sys::signal::Signal;
use parquet::record::Row;
use serde_json::Value;

use super::support::{CLIENT, Net, SERVER};
use crate::flow_records::{find_number, number, records};

/// Addresses and ports of arriving packets, as text.
type Session = String;

/// Makes the router translate what leaves to the server, by this statement of nftables.
fn translate(net: &Net, statement: &str) {
    net.router_does("nft add table ip nat");
    net.router_does("nft add chain ip nat out { type nat hook postrouting priority 100 ; }");
    net.router_does(&format!("nft add rule ip nat out oifname right {statement}"));
}

/// Packets and bytes by session, as `forward sessions` has them.
fn counted(net: &Net) -> BTreeMap<Session, (u64, u64)> {
    let row = |one: &Value| {
        let session: FiveTuple = one["session"].as_str().unwrap().parse().unwrap();
        let text = format!("{}>{}", session.source, session.destination);
        (text, (one["packets"].as_u64().unwrap(), one["bytes"].as_u64().unwrap()))
    };
    net.sessions().iter().map(row).collect()
}

/// The same, as records have them.
fn recorded(folder: &Path) -> BTreeMap<Session, (u64, u64)> {
    let mut sums = BTreeMap::<_, (u64, u64)>::new();
    for row in records(folder).iter().filter(|row| find_number(row, "natEvent").is_none()) {
        let sum = sums.entry(session(row)).or_default();
        sum.0 += number(row, "packetDeltaCount");
        sum.1 += number(row, "octetDeltaCount");
        let (start, end) = (time(row, "flowStart"), time(row, "flowEnd"));
        assert!(start > 0 && start <= end, "{row}");
    }
    sums
}

fn time(row: &Row, name: &str) -> i64 {
    let name = format!("{name}Nanoseconds");
    let (_, field) = row.get_column_iter().find(|(column, _)| **column == name).unwrap();
    let parquet::record::Field::Long(nanoseconds) = field else { panic!("{field:?}") };
    *nanoseconds
}

fn session(row: &Row) -> Session {
    let address = |name: &str| match find_number(row, &format!("{name}IPv4Address")) {
        Some(address) => Ipv4Addr::from(address as u32).to_string(),
        None => {
            let name = format!("{name}IPv6Address");
            let (_, field) = row.get_column_iter().find(|(column, _)| **column == name).unwrap();
            let parquet::record::Field::Bytes(bytes) = field else { panic!("{field:?}") };
            let octets: [u8; 16] = bytes.data().try_into().unwrap();
            format!("[{}]", std::net::Ipv6Addr::from(octets))
        }
    };
    let port = |name: &str| number(row, &format!("{name}TransportPort"));
    let (source, destination) = (address("source"), address("destination"));
    format!("{source}:{}>{destination}:{}", port("source"), port("destination"))
}

#[test]
fn the_records_of_a_session_have_its_packets_also_after_kill_and_adoption() {
    root_or_skip!();
    for datapath in ["xdp", "tc"] {
        let net = Net::new();
        translate(&net, "masquerade");
        let folder = tempfile::tempdir().unwrap();
        let arguments = format!(
            "--datapath {datapath} --flows {} --sensor r1 --flow-file-time 1s --active-timeout 1s",
            folder.path().display()
        );
        let run = || net.run(&arguments);
        let ask = |count| {
            for port in 4000..4010 {
                assert_eq!(net.ask(usize::from(port % 2 == 1), port, count), count);
            }
        };
        let daemon = run();
        ask(20);
        wait_for("the first records", || recorded(folder.path()).len() >= 10);
        let before: u64 = recorded(folder.path()).values().map(|(packets, _)| packets).sum();
        ask(20);
        // Killed at any moment: some records are in files, some are not.
        daemon.end(Signal::SIGKILL);
        let daemon = run();
        ask(20);
        daemon.end(Signal::SIGKILL);
        let daemon = run();
        let sessions = counted(&net);
        assert_eq!(sessions.len(), 20, "{sessions:?}");
        wait_for("records of what was counted", || recorded(folder.path()) == sessions);
        let after: u64 = sessions.values().map(|(packets, _)| packets).sum();
        assert!(before < after, "{before} {after}");

        // Translation, interfaces and times.
        let records = records(folder.path());
        let out = records.iter().filter(|row| {
            number(row, "ipVersion") == 4
                && find_number(row, "destinationTransportPort") == Some(7000)
        });
        let out: Vec<_> = out.filter(|row| find_number(row, "natEvent").is_none()).collect();
        let outside = u64::from(u32::from("10.9.2.1".parse::<Ipv4Addr>().unwrap()));
        assert!(!out.is_empty());
        for row in out {
            assert_eq!(find_number(row, "postNATSourceIPv4Address"), Some(outside), "{row}");
            assert_eq!(number(row, "postNAPTDestinationTransportPort"), 7000);
            assert_ne!(number(row, "ingressInterface"), number(row, "egressInterface"));
        }

        // The last records, when it is detached.
        ask(7);
        let sessions = counted(&net);
        let (status, _, printed) = daemon.end(Signal::SIGINT);
        assert!(status.success(), "{printed}");
        assert_eq!(recorded(folder.path()), sessions, "{printed}");
    }
}

#[test]
fn a_session_that_ends_has_its_packets_in_records_before_its_slot_is_free() {
    root_or_skip!();
    let net = Net::new();
    let folder = tempfile::tempdir().unwrap();
    let arguments = format!(
        "--udp-idle 1s --flows {} --sensor r1 --flow-file-time 2s",
        folder.path().display()
    );
    let daemon = net.run(&arguments);
    for port in 4000..4020 {
        assert_eq!(net.ask(0, port, 10), 10);
    }
    let sessions = counted(&net);
    assert!(sessions.len() > 30, "{sessions:?}");
    let ended = || net.json("status")[0]["sessions"]["active"] == 0;
    wait_for("sessions to be idle", ended);
    daemon.end(Signal::SIGKILL);
    let daemon = net.run(&arguments);
    assert_eq!(net.ask(0, 5000, 10), 10);
    wait_for("records of all", || recorded(folder.path()).len() == 42);
    let recorded = recorded(folder.path());
    // The counts were read before the last packet of each session.
    assert!(sessions.iter().all(|(session, count)| recorded[session] >= *count));
    // The kernel forwards the first of each session, before it is learned.
    let packets: u64 = recorded.values().map(|(packets, _)| packets).sum();
    assert!((336..=420).contains(&packets), "{packets}");
    // A daemon that was killed knew why a session ended; the daemon that found it ended does not.
    for row in records(folder.path()).iter().filter(|row| session(row).contains(":5000")) {
        assert_eq!(
            find_number(row, "flowEndReason").filter(|_| find_number(row, "natEvent").is_none()),
            Some(1)
        );
    }
    daemon.end(Signal::SIGINT);
}

#[test]
fn connections_that_tcp_ends_have_this_reason() {
    root_or_skip!();
    for datapath in ["xdp", "tc"] {
        let net = Net::new();
        // It tracks IPv4, and not IPv6.
        translate(&net, "masquerade");
        let folder = tempfile::tempdir().unwrap();
        // The table is looked through each half second.
        let options = "--sensor r1 --flow-file-time 1s --udp-idle 2s";
        let daemon = net
            .run(&format!("--datapath {datapath} {options} --flows {}", folder.path().display()));
        for family in [0, 1] {
            net.tcp(family, 3_000_000, || {});
        }
        let reasons = || {
            let rows = records(folder.path());
            let rows = rows.iter().filter(|row| find_number(row, "natEvent").is_none());
            rows.map(|row| (session(row), number(row, "flowEndReason"))).collect::<BTreeMap<_, _>>()
        };
        wait_for("records of both directions", || reasons().len() == 4);
        let reasons = reasons();
        assert!(reasons.values().all(|reason| *reason == 3), "{datapath}: {reasons:?}");
        daemon.end(Signal::SIGINT);
    }
}

#[test]
fn a_session_that_begins_again_is_counted_once_and_for_its_own_host() {
    root_or_skip!();
    let missing = Command::new("conntrack").arg("--version").output().is_err();
    probe_or_skip!(missing.then(|| "conntrack is not installed".to_owned()));
    let net = Net::new();
    // All clients have one public port, so what answers them is one session after the other.
    translate(&net, "udp dport 7000 masquerade to :20000");
    let folder = tempfile::tempdir().unwrap();
    let arguments = format!(
        "--udp-idle 2s --flows {} --sensor r1 --flow-file-time 60s",
        folder.path().display()
    );
    let daemon = net.run(&arguments);
    let active = || net.json("status")[0]["sessions"]["active"].as_u64().unwrap();
    let ask = |port, wait: bool| {
        // Packets of the first seconds wait for the slot of the connection before.
        assert_eq!(net.ask(0, port, 50), 50);
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(net.ask(0, port, 50), 50);
        net.router_does("conntrack -D -p udp --dport 7000");
        if wait {
            wait_for("the sessions to end", || active() == 0);
            std::thread::sleep(Duration::from_secs(1));
        }
    };
    // Twice the same, then another client, and the first again; with and without a record in between.
    for (port, wait) in [(4000, true), (4000, false), (4001, false), (4001, true), (4000, true)] {
        ask(port, wait);
        if (port, wait) == (4000, false) {
            // The kernel alone forwards the answers to this one: it is over before the slot is free.
            assert_eq!(net.ask(0, 4002, 5), 5);
            net.router_does("conntrack -D -p udp --dport 7000");
        }
    }
    let (status, _, printed) = daemon.end(Signal::SIGINT);
    assert!(status.success(), "{printed}");
    let mut clients = BTreeMap::<(Session, u64), u64>::new();
    for row in records(folder.path()) {
        if find_number(&row, "natEvent").is_none() {
            let client = match number(&row, "destinationTransportPort") {
                7000 => number(&row, "sourceTransportPort"),
                _ => number(&row, "postNAPTDestinationTransportPort"),
            };
            let sum = clients.entry((session(&row), client)).or_default();
            *sum += number(&row, "packetDeltaCount");
        }
    }
    let answers = "10.9.2.2:7000>10.9.2.1:20000".to_owned();
    let session = |client: u64| (format!("10.9.1.2:{client}>10.9.2.2:7000"), client);
    let expected = [
        (session(4000), 300),
        (session(4001), 200),
        (session(4002), 5),
        ((answers.clone(), 4000), 300),
        ((answers, 4001), 200),
    ];
    assert_eq!(clients, expected.into());
}

/// A connection as conntrack prints it, from `src=` on: both tuples.
fn tuples(line: &str) -> Vec<String> {
    let word =
        |word: &str| ["src=", "dst=", "sport=", "dport="].iter().any(|name| word.starts_with(name));
    let words = line.split_whitespace().filter(|one| word(one));
    words.map(|word| word.split_once('=').unwrap().1.to_owned()).collect()
}

/// A NAT event: whether it creates, both tuples of its connection.
type Event = (bool, Vec<String>);

fn nat_events(folder: &Path) -> BTreeMap<Event, u64> {
    let mut events = BTreeMap::new();
    for row in records(folder) {
        let Some(event) = find_number(&row, "natEvent") else { continue };
        let address = |name: &str| Ipv4Addr::from(number(&row, name) as u32).to_string();
        let port = |name: &str| number(&row, name).to_string();
        // The reply comes from where packets go to after NAT.
        let tuples = vec![
            address("sourceIPv4Address"),
            address("destinationIPv4Address"),
            port("sourceTransportPort"),
            port("destinationTransportPort"),
            address("postNATDestinationIPv4Address"),
            address("postNATSourceIPv4Address"),
            port("postNAPTDestinationTransportPort"),
            port("postNAPTSourceTransportPort"),
        ];
        *events.entry((event == 4, tuples)).or_default() += 1;
    }
    events
}

/// Connections that begin or end at once. The buffer of conntrack's socket has room for about 160 events.
const MAX_BURST: u32 = 100;

fn nat_events_are_those_of_conntrack(connections: u32) {
    root_or_skip!();
    let missing = Command::new("conntrack").arg("--version").output().is_err();
    probe_or_skip!(missing.then(|| "conntrack is not installed".to_owned()));
    let net = Net::new();
    translate(&net, "masquerade");
    net.router_does("sysctl -qw net.netfilter.nf_conntrack_udp_timeout=600");
    let folder = tempfile::tempdir().unwrap();
    let arguments = format!("--flows {} --sensor r1 --flow-file-time 1s", folder.path().display());
    let daemon = net.run(&arguments);
    let log = folder.path().join("conntrack.log");
    let mut command = net.router.command_killed_with_parent("sh");
    // Real-time priority, where it can be had, keeps the buffer of its socket from overrunning. It has the default size:
    // `-b` of conntrack 1.4.7 sets that of another socket.
    let line = format!(
        "chrt --fifo 1 true 2>/dev/null && set -- chrt --fifo 1; exec \"$@\" stdbuf -oL conntrack -E -e NEW,DESTROY >{}",
        log.display()
    );
    command.args(["-c", &line]);
    let conntrack = Process::start(&mut command);
    let read = || std::fs::read_to_string(&log).unwrap_or_default();
    let bind = |address: &str, port| bind_udp(format!("{address}:{port}").parse().unwrap());
    // It listens when it prints the first one.
    let probe = net.client.run(|| bind(CLIENT[0], 999)).unwrap();
    wait_for("conntrack to listen", || {
        net.router_does("conntrack -F");
        probe.send_to(&[0], (SERVER[0], 7000)).unwrap();
        !read().is_empty()
    });
    let sockets: Vec<UdpSocket> = (0..connections.min(MAX_BURST))
        .map(|_| net.client.run(|| bind(CLIENT[0], 0)).unwrap())
        .collect();
    let count = |kind: &str| {
        let log = read();
        let lines = log.lines().filter(|line| line.contains(kind));
        lines.filter(|line| !line.contains("sport=999 ")).count()
    };
    // conntrack loses events when its buffer is full, so each step is small and waits for its log.
    let each = sockets.len();
    let ports = 10_000..10_000 + connections as usize / each;
    for port in ports.clone() {
        // Each is one datagram: no session is learned from it.
        for (number, socket) in sockets.iter().enumerate() {
            socket.send_to(&[0; 20], (SERVER[0], port as u16)).unwrap();
            if number % 100 == 99 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        wait_for("conntrack's own log", || count("[NEW]") >= (port - 9_999) * each);
    }
    for port in ports {
        net.router_does(&format!("conntrack -D -p udp --dport {port}"));
        wait_for("the end of connections in it", || count("[DESTROY]") >= (port - 9_999) * each);
    }
    conntrack.end(Signal::SIGINT);
    let (status, _, printed) = daemon.end(Signal::SIGINT);
    assert!(status.success() && !printed.contains("NAT events lost"), "{printed}");
    let mut logged = BTreeMap::<Event, u64>::new();
    for line in read().lines() {
        let tuples = tuples(line);
        // The router's own connections are not translated.
        let is_probe = tuples.get(2).is_some_and(|port| port == "999");
        if tuples.len() == 8 && !is_probe {
            *logged.entry((line.contains("[NEW]"), tuples)).or_default() += 1;
        }
    }
    let mut found = nat_events(folder.path());
    found.retain(|(_, tuples), _| tuples[2] != "999");
    let count = |events: &BTreeMap<Event, u64>, is_new| {
        events.iter().filter(|((new, _), _)| *new == is_new).map(|(_, times)| times).sum::<u64>()
    };
    for is_new in [true, false] {
        assert_eq!(count(&logged, is_new), u64::from(connections), "{is_new}");
    }
    assert!(found == logged, "{} and {} events", found.len(), logged.len());
    println!(
        "{connections} connections: {} NAT events of creation and {} of deletion, those of conntrack -E",
        count(&found, true),
        count(&found, false)
    );
}

#[test]
fn nat_events_are_those_of_conntrack_s_own_log() {
    nat_events_are_those_of_conntrack(1_000);
}

/// `cargo test -p linerate --test it forward::flows -- --ignored`
#[test]
#[ignore = "it takes as long as 20,000 events do"]
fn ten_thousand_connections_have_the_nat_events_of_conntrack_s_own_log() {
    nat_events_are_those_of_conntrack(10_000);
}
