//! `linerate receive` and `linerate send` as a user runs them, between two hosts.

use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use linerate_testkit::{
    Namespace, Process, TIMEOUT, Veth, VethOptions, print_skipped, root_or_skip, skip, test_name,
    uninterrupted, wait_for,
};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::LINERATE;

const HERE: &str = "10.76.0.2";

/// `there` sends by `tx`, `here` receives by `rx`.
pub(crate) struct Hosts {
    there: Namespace,
    pub(crate) here: Namespace,
    veth: Veth,
}

impl Hosts {
    pub(crate) fn new() -> Self {
        let there = Namespace::create("rcv-there").unwrap();
        let here = Namespace::create("rcv-here").unwrap();
        let veth = Veth::create(&there, "tx", &here, "rx", VethOptions::default()).unwrap();
        let (left, right) = ("10.76.0.1".parse().unwrap(), HERE.parse().unwrap());
        veth.a.add_address(left, 24).unwrap();
        veth.b.add_address(right, 24).unwrap();
        veth.b.set_gro(true).unwrap();
        veth.a.add_neighbour(right, veth.b.mac()).unwrap();
        veth.b.add_neighbour(left, veth.a.mac()).unwrap();
        Self { there, here, veth }
    }

    /// Starts a receiver on port 7000, and waits until it receives.
    pub(crate) fn receive(&self, arguments: &str) -> Process {
        // The kernel ends the requests of an io_uring, which hold the socket, some time after their process.
        wait_for("the end of the socket before", || !self.sockets().contains(":1B58 "));
        let mut command = self.here.command(LINERATE);
        command.args(["receive", "--bind", "10.76.0.2:7000", "--json"]);
        command.args(arguments.split_whitespace());
        let receiving = Process::start(&mut command);
        wait_for("a socket", || self.sockets().contains(":1B58 "));
        if arguments.contains("xdp") || arguments.starts_with("--take-over --count") {
            wait_for("a program", || self.veth.b.has_xdp().unwrap());
        }
        receiving
    }

    /// The table of UDP sockets of the receiving host.
    fn sockets(&self) -> String {
        self.here.run(|| std::fs::read_to_string("/proc/thread-self/net/udp").unwrap()).unwrap()
    }

    /// Whether the receiving stack has had every packet that was sent.
    fn all_have_arrived(&self) -> bool {
        let sent = self.veth.a.statistics().unwrap().tx_packets;
        self.here.snmp_counter("Ip", "InReceives").unwrap() >= sent
    }

    pub(crate) fn send(&self, arguments: &str) -> Value {
        let mut command = self.there.command(LINERATE);
        command.args(["send", "10.76.0.2:7000", "--json"]);
        let output = command.args(arguments.split_whitespace()).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{printed}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

pub(crate) fn back_ends(hosts: &Hosts, test: &str) -> Vec<&'static str> {
    ["recvmmsg", "gro", "uring", "xdp"]
        .into_iter()
        .filter(|name| {
            let tried = hosts
                .here
                .command(LINERATE)
                .args(["receive", "--bind", "10.76.0.2:7001", "--for", "1ms", "--backend", name])
                .output()
                .unwrap();
            let printed = String::from_utf8_lossy(&tried.stderr);
            if !tried.status.success() {
                print_skipped(&format!("{test} with {name}"), printed.trim());
            }
            tried.status.success()
        })
        .collect()
}

#[test]
fn what_is_sent_is_received_and_checked_on_every_back_end() {
    root_or_skip!();
    let hosts = Hosts::new();
    let able = back_ends(&hosts, "what_is_sent_is_received_and_checked_on_every_back_end");
    for backend in able.into_iter().chain(["auto"]) {
        for pattern in ["sequence", "time", "counted"] {
            let receiving = hosts
                .receive(&format!("--backend {backend} --count 200 --check {pattern} --for 60s"));
            // A veth holds 256 frames, so that all may wait in it.
            let sent = hosts.send(&format!(
                "--count 200 --pattern {pattern} --size 20-200 --rate 20k --batch 16"
            ));
            assert_eq!((&sent["messages"], &sent["refused"]), (&200.into(), &0.into()));
            let report = receiving.report();
            assert_eq!(report["messages"], 200, "{report}");
            assert_eq!(report["bytes"], sent["bytes"], "{report}");
            assert_eq!(report["lost"]["total"], 0, "{report}");
            let check = &report["check"];
            assert_eq!((&check["good"], &check["wrong"]), (&200.into(), &0.into()), "{report}");
            assert_eq!((&check["missing"], &check["last"]), (&0.into(), &199.into()), "{report}");
            assert_eq!(report["latency_ns"].is_null(), pattern != "time", "{report}");
            assert!(backend == "auto" || report["backend"] == backend, "{report}");
        }
    }
}

#[test]
fn other_bytes_are_wrong_and_say_so() {
    root_or_skip!();
    let hosts = Hosts::new();
    let receiving = hosts.receive("--backend recvmmsg --count 3 --check counted --for 60s");
    let socket = hosts.there.run(|| UdpSocket::bind("10.76.0.1:0").unwrap()).unwrap();
    for text in ["LNRT", "LNRT\0\0\0\0\0\0\0\x05wrong", "LNRT\0\0\0\0\0\0\0\x05\x05\x06"] {
        socket.send_to(text.as_bytes(), "10.76.0.2:7000").unwrap();
    }
    let (status, report, _) = receiving.wait();
    assert_eq!(status.code(), Some(1));
    let report: Value = serde_json::from_str(&report).unwrap();
    let check = &report["check"];
    assert_eq!((&check["good"], &check["wrong"]), (&1.into(), &2.into()), "{report}");
}

#[test]
fn what_was_cut_is_not_good() {
    root_or_skip!();
    let hosts = Hosts::new();
    let receiving =
        hosts.receive("--backend recvmmsg --count 2 --check counted --message-size 40 --for 60s");
    hosts.send("--count 2 --size 40,41 --pattern counted");
    let (status, report, _) = receiving.wait();
    assert_eq!(status.code(), Some(1));
    let report: Value = serde_json::from_str(&report).unwrap();
    let check = &report["check"];
    assert_eq!((&check["good"], &check["wrong"]), (&1.into(), &1.into()), "{report}");
    assert_eq!(report["truncated"], 1, "{report}");
}

#[test]
fn joined_datagrams_that_were_lost_are_said_to_be_more() {
    root_or_skip!();
    let hosts = Hosts::new();
    for (backend, at_least) in [("gro", true), ("recvmmsg", false)] {
        let receiving = hosts.receive(&format!("--backend {backend} --buffer 8k"));
        receiving.signal(Signal::SIGSTOP);
        hosts.send("--count 2000");
        // The receiving side takes them from the veth in a softirq, which may be later than the end of the sender.
        wait_for("the last datagram", || hosts.all_have_arrived());
        receiving.signal(Signal::SIGINT);
        receiving.signal(Signal::SIGCONT);
        let report = receiving.report();
        let lost = &report["lost"];
        assert!(lost["socket_buffer"].as_u64().unwrap() > 0, "{report}");
        assert_eq!(lost["at_least"], at_least, "{report}");
        if !at_least {
            let messages = report["messages"].as_u64().unwrap();
            assert_eq!(lost["total"].as_u64().unwrap() + messages, 2000, "{report}");
        }
    }
}

#[test]
fn nobody_listens_and_it_is_said() {
    root_or_skip!();
    let hosts = Hosts::new();
    let sent = hosts.send("--count 20 --rate 200");
    assert_eq!(sent["messages"], 20, "{sent}");
    assert!(sent["unreachable"].as_u64().unwrap() > 0, "{sent}");
}

#[test]
fn programs_hear_one_group() {
    root_or_skip!();
    let hosts = Hosts::new();
    let mut receivers: Vec<_> = (0..2)
        .map(|_| {
            let mut command = hosts.here.command(LINERATE);
            let arguments =
                "receive --bind 239.7.6.5:7000 --join 239.7.6.5@rx --backend gro --count 50 --for 60s --json";
            Process::start(command.args(arguments.split(' ')))
        })
        .collect();
    wait_for("both sockets", || hosts.sockets().matches(":1B58 ").count() == 2);
    let memberships = || std::fs::read_to_string("/proc/thread-self/net/igmp").unwrap();
    // The group in network order, and how many sockets are in it.
    let both = || {
        let table = hosts.here.run(memberships).unwrap();
        table.lines().any(|line| line.split_whitespace().take(2).eq(["050607EF", "2"]))
    };
    wait_for("both memberships", both);
    let mut command = hosts.there.command(LINERATE);
    command.args("send 239.7.6.5:7000 --from 10.76.0.1:0 --count 50 --rate 5k".split(' '));
    assert!(command.status().unwrap().success());
    for receiving in receivers.drain(..) {
        assert_eq!(receiving.report()["messages"], 50);
    }
}

#[test]
fn each_line_of_a_feed_joins_its_own_group() {
    root_or_skip!();
    let hosts = Hosts::new();
    let mut command = hosts.here.command(LINERATE);
    let arguments = "receive --bind 239.7.6.5:7000 --join 239.7.6.5@rx --bind-b 239.7.6.6:7000 \
                     --join 239.7.6.6@rx --feed moldudp64 --for 60s --json";
    let receiving = Process::start(command.args(arguments.split_whitespace()));
    let memberships = || std::fs::read_to_string("/proc/thread-self/net/igmp").unwrap();
    let both = || {
        let table = hosts.here.run(memberships).unwrap();
        ["050607EF", "060607EF"].iter().all(|group| table.contains(group))
    };
    wait_for("both memberships", both);
    receiving.stop();
}

#[test]
fn a_slow_sender_ends_when_it_is_told() {
    root_or_skip!();
    let hosts = Hosts::new();
    // A message in a minute: the first at once.
    assert_eq!(hosts.send("--rate 0.016 --for 100ms")["messages"], 1);
    let socket = hosts.here.run(|| UdpSocket::bind("10.76.0.2:7000").unwrap()).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut command = hosts.there.command(LINERATE);
    command.args(["send", "10.76.0.2:7000", "--json", "--rate", "0.016"]);
    let sending = Process::start(&mut command);
    assert_eq!(uninterrupted(|| socket.recv(&mut [0; 64])).unwrap(), 64);
    assert_eq!(sending.stop()["messages"], 1);
}

#[test]
fn receivers_share_a_port() {
    root_or_skip!();
    let hosts = Hosts::new();
    let one = hosts.receive("--backend recvmmsg --reuseport spread:2");
    let mut command = hosts.here.command(LINERATE);
    command.args(
        "receive --bind 10.76.0.2:7000 --backend recvmmsg --reuseport spread:2 --json".split(' '),
    );
    let other = Process::start(&mut command);
    wait_for("the second socket", || hosts.sockets().matches(":1B58 ").count() == 2);
    // The program that spreads comes after the bind.
    std::thread::sleep(Duration::from_millis(200));
    hosts.send("--count 200 --rate 20k");
    // Counted when a program takes them.
    let taken = || hosts.here.snmp_counter("Udp", "InDatagrams").unwrap() == 200;
    wait_for("the last message", taken);
    let reports = [one, other].map(|receiving| receiving.stop());
    let counts = reports.each_ref().map(|report| report["messages"].as_u64().unwrap());
    assert_eq!(counts.iter().sum::<u64>(), 200, "{reports:?}");
    // Each message is assigned at random: fewer than 50 for one of them happens once in 10^12 runs.
    assert!(counts.iter().all(|count| *count >= 50), "{counts:?}");
}

#[test]
fn two_lines_of_a_feed_are_one() {
    root_or_skip!();
    let hosts = Hosts::new();
    let receiving =
        hosts.receive("--feed moldudp64 --bind-b 10.76.0.2:7001 --backend gro --count 5 --for 60s");
    wait_for("the second line", || hosts.sockets().contains(":1B59 "));
    let socket = hosts.there.run(|| UdpSocket::bind("10.76.0.1:0").unwrap()).unwrap();
    let packet = |first: u8, count: u8| {
        let mut packet = b"SESSION001\0\0\0\0\0\0\0".to_vec();
        packet.extend([first, 0, count]);
        (0..count).for_each(|_| packet.extend(b"\0\x01x"));
        packet
    };
    for (port, first, count) in
        [(7000, 1, 2), (7001, 1, 2), (7000, 4, 1), (7001, 3, 2), (7001, 9, 0)]
    {
        socket.send_to(&packet(first, count), (HERE, port)).unwrap();
    }
    let report = receiving.report();
    let feed = &report["feed"];
    for (field, value) in
        [("packets", 5), ("messages", 4), ("heartbeats", 1), ("duplicates", 3), ("missing", 4)]
    {
        assert_eq!(feed[field], value, "{field}: {report}");
    }
}

#[test]
fn missing_messages_of_a_feed_are_asked_for_and_counted() {
    root_or_skip!();
    let hosts = Hosts::new();
    let receiving = hosts
        .receive("--feed moldudp64 --request 10.76.0.1:7001 --backend gro --count 3 --for 60s");
    let server = hosts.there.run(|| UdpSocket::bind("10.76.0.1:7001").unwrap()).unwrap();
    server.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let packet = |first: u8, count: u8| {
        let mut packet = b"SESSION001\0\0\0\0\0\0\0".to_vec();
        packet.extend([first, 0, count]);
        (0..count).for_each(|_| packet.extend(b"\0\x01x"));
        packet
    };
    server.send_to(&packet(1, 2), (HERE, 7000)).unwrap();
    // Messages 3 to 6 are missing, and the server has two of them in a packet. The first request is lost.
    server.send_to(&packet(7, 1), (HERE, 7000)).unwrap();
    let request = || {
        let mut room = [0; 64];
        let (len, from) = uninterrupted(|| server.recv_from(&mut room)).unwrap();
        assert_eq!((len, &room[..10]), (20, &b"SESSION001"[..]));
        (from, room[17], room[19])
    };
    assert_eq!(request().1, 3);
    let (from, first, count) = request();
    assert_eq!((first, count), (3, 4));
    server.send_to(&packet(3, 2), from).unwrap();
    assert_eq!(request(), (from, 5, 2));
    // Somebody else's answer is none.
    let other = hosts.there.run(|| UdpSocket::bind("10.76.0.1:0").unwrap()).unwrap();
    other.send_to(&packet(5, 1), from).unwrap();
    server.send_to(&packet(6, 1), from).unwrap();
    let (from, first, count) = request();
    assert_eq!((first, count), (5, 1));
    server.send_to(&packet(5, 1), from).unwrap();
    server.send_to(&packet(8, 1), (HERE, 7000)).unwrap();
    let report = receiving.report();
    for (field, value) in [("messages", 8), ("retransmitted", 4), ("missing", 0), ("gaps", 1)] {
        assert_eq!(report["feed"][field], value, "{field}: {report}");
    }
    assert_eq!(report["requests"]["unanswered"], 0, "{report}");
    assert!(report["requests"]["repeated"].as_u64().unwrap() >= 1, "{report}");
}

#[test]
fn a_signal_ends_it_and_nothing_is_left_behind() {
    root_or_skip!();
    let hosts = Hosts::new();
    for backend in back_ends(&hosts, "a_signal_ends_it_and_nothing_is_left_behind") {
        let receiving = hosts.receive(&format!("--backend {backend}"));
        let sent = hosts.send("--count 100 --rate 5k --batch 8");
        assert_eq!(sent["messages"], 100);
        // They have to come before the end does: the process says how many it has.
        let report = receiving.stop();
        assert!(report["messages"].as_u64().unwrap() <= 100, "{report}");

        let receiving = hosts.receive(&format!("--backend {backend}"));
        hosts.send("--count 100 --rate 5k --batch 8");
        assert!(!receiving.end(Signal::SIGKILL).0.success());
        wait_for("the end of the program", || !hosts.veth.b.has_xdp().unwrap());
    }
}

#[test]
fn xdp_takes_the_capabilities_that_are_named_and_no_fewer() {
    root_or_skip!();
    let hosts = Hosts::new();
    if !back_ends(&hosts, test_name!()).contains(&"xdp") {
        return;
    }
    if Command::new("setpriv").arg("--version").output().is_err() {
        skip!("needs setpriv");
    }
    const ALL: [&str; 4] = ["CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_BPF", "CAP_PERFMON"];
    // As user nobody, with all of them but one.
    let run = |without: Option<&str>| {
        let sets = ALL.iter().filter(|one| Some(**one) != without);
        let sets =
            sets.map(|one| format!("+{}", one[4..].to_lowercase())).collect::<Vec<_>>().join(",");
        let mut command = hosts.here.command("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.args([format!("--inh-caps=-all,{sets}"), format!("--ambient-caps=-all,{sets}")]);
        command.arg(format!("--bounding-set=-all,{sets}"));
        command.args([LINERATE, "receive", "--bind", "10.76.0.2:7001", "--for", "1ms"]);
        command.args(["--backend", "xdp", "--xdp-delivery", "ringbuf"]);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, printed) = run(None);
    assert_eq!(status, Some(0), "{printed}");
    for without in ALL {
        let (status, printed) = run(Some(without));
        assert_eq!(status, Some(1), "{without}: {printed}");
        assert!(printed.contains(without), "{without}: {printed}");
        let remedy = "setcap cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon+ep";
        assert!(printed.contains(remedy), "{without}: {printed}");
    }
}

#[test]
fn errors_name_what_is_wrong() {
    let printed = |arguments: &str| {
        let output = Command::new(LINERATE).args(arguments.split_whitespace()).output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        // `wrong` has the status of command lines that are wrong everywhere.
        assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments}: {printed}");
        printed
    };
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    for (arguments, words) in [
        ("receive --bind nowhere:7000", "error: invalid value 'nowhere:7000' for '--bind"),
        ("receive --bind 10.0.0.2", "a port is missing, as in 10.0.0.2:7000"),
        ("send ::1 --count 1", "a port is missing, as in [::1]:7000"),
        ("receive --bind 203.0.113.9:7000 --for 1s", "no interface of this network namespace has"),
        (&format!("receive --bind 127.0.0.1:{port} --for 1s"), "another socket has the port"),
        ("send 127.0.0.1:9 --batch 0 --count 1", "1 to 1048576: messages in a batch"),
        (
            "receive --bind 0.0.0.0:0 --join 239.1.1.1@lr-none --for 1s",
            "no interface named lr-none",
        ),
        ("receive --bind 127.0.0.1:0 --for 0s", "has to be above 0"),
        ("send 127.0.0.1:9 --xdp lr-none --count 1", "no interface named lr-none"),
        ("receive --bind 239.1.1.1:0 --for 1s", "add --join 239.1.1.1@IFACE"),
        (
            "receive --bind 0.0.0.0:0 --bind-b 239.1.1.2:0 --feed moldudp64",
            "add --join 239.1.1.2@IFACE",
        ),
        (
            "receive --bind 203.0.113.9:7000 --backend xdp --for 1s",
            "no interface of this network namespace has",
        ),
        ("receive --bind 127.0.0.1:0 --count 0", "is too small: expected 1 or more"),
        ("send 127.0.0.1:9 --count 0", "is too small: expected 1 or more"),
        ("receive --bind [ff02::1]:0 --join ff02::1@lo --for 1s", "needs its interface"),
        ("receive --bind 127.0.0.1:99999 --for 1s", "99999 is not a port"),
        ("send 127.0.0.1:0 --count 1", "not an address and port"),
        (
            "send 127.0.0.1:9 --count 1 --size 5 --pattern sequence",
            "no room for the pattern, which takes 12",
        ),
        ("send 127.0.0.1:9 --count 1 --size 19 --pattern time", "takes 20"),
        ("send 255.255.255.255:9 --count 1", "a broadcast address"),
        ("send [fe80::1]:9 --count 1", "needs its interface"),
        ("send 127.0.0.1:9 --size 64,70000 --count 1", "a UDP message has at most 65507"),
        ("send 127.0.0.1:9 --size many --count 1", "expected bytes as 64"),
        ("send [::1]:9 --from 127.0.0.1:0 --count 1", "two versions of IP"),
    ] {
        let printed = printed(arguments);
        assert!(printed.contains(words), "{arguments}: {printed}");
    }
    // Of a receiver that would be one.
    for (more, words) in [
        ("--batch 0", "1 to 1048576: messages in a batch"),
        ("--join 10.0.0.1", "is not a multicast group"),
        ("--message-size 70000", "1 to 65507: bytes"),
        ("--calibrate 1s --backend gro", "--calibrate is for --backend auto"),
        ("--join 239.1.1.1@lo", "bind to the group's own"),
        ("--join ff15::1@lo", "other version of IP"),
        ("--backend gro --ring 1M", "--ring is for the backend xdp"),
        ("--threads 2 --xdp-delivery ringbuf", "has one reader"),
        ("--ring 3", "from 262144 to 1073741824"),
        ("--backend uring --coalesce-usecs 5", "--coalesce-usecs is not for uring"),
        ("--cpu 1023", "cannot stay on CPU 1023; this process may use 0"),
        ("--coalesce-usecs 5 --spin", "cannot be used with"),
        ("--reuseport flow", "needs a port that others can name"),
        ("--cpu 0,0", "--cpu names 2 CPUs for 1 thread"),
        ("--check time --timestamps", "choose one"),
        ("--reuseport cpu", "cpu:N or spread:N"),
        ("--check time --feed moldudp64", "cannot be used with"),
    ] {
        let printed = printed(&format!("receive --bind 127.0.0.1:0 --for 1s {more}"));
        assert!(printed.contains(words), "{more}: {printed}");
    }
}
