//! Which datapath sessions take, and that nothing is bypassed that plain Linux would obey: filters, mirrors and qdiscs
//! of the ports, there from the start or added later.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use linerate_testkit::{Process, bind_udp, exclusive, root_or_skip, uninterrupted, wait_for};
use nix::sys::signal::Signal;

use super::support::{CLIENT, Net, SERVER};
use crate::LINERATE;

/// The datapaths that the sessions of this port of the client take: those that are fast.
pub(super) fn datapaths(net: &Net, port: u16) -> Vec<String> {
    let sessions = net.json(&format!("sessions --port {port} --sort source"));
    let fast = sessions.iter().filter(|one| one["state"] == "fast");
    fast.map(|one| one["datapath"].as_str().unwrap().to_owned()).collect()
}

/// Whether packets from `port` are forwarded to the server by `there`, and back by `back`.
pub(super) fn takes(net: &Net, port: u16, there: &str, back: &str) -> bool {
    net.ask(0, port, 10) == 10 && datapaths(net, port) == [there, back]
}

/// What `status` says of a port.
pub(super) fn port(net: &Net, name: &str) -> serde_json::Value {
    let status = net.json("status").remove(0);
    let ports = status["ports"].as_array().unwrap();
    ports.iter().find(|port| port["interface"] == name).unwrap().clone()
}

#[test]
fn a_shaped_port_is_sent_to_by_tc() {
    root_or_skip!();
    let net = Net::new();
    net.router_does("tc qdisc add dev right root tbf rate 100mbit burst 64kb latency 50ms");
    let _daemon = net.run("");
    wait_for("TC there, XDP back", || takes(&net, 4000, "tc", "xdp"));
    let right = port(&net, "right");
    assert_eq!(right["egress"]["datapath"], "tc", "{right}");
    assert_eq!(right["egress"]["reason"], "qdisc tbf", "{right}");
    assert_eq!(right["ingress"]["datapath"], "xdp", "{right}");
    for command in ["status", "sessions", "top --once --interval 200ms"] {
        let printed = net.stdout_of(command);
        assert!(printed.contains("qdisc tbf)"), "{command}: {printed}");
    }
    let slower: Vec<_> = net.sessions().iter().map(|one| one["reason"].clone()).collect();
    assert!(slower.contains(&"right: qdisc tbf".into()), "{slower:?}");
    for family in 0..2 {
        net.tcp(family, 3_000_000, || {});
    }
    // While it runs: gone, and another.
    net.router_does("tc qdisc del dev right root");
    wait_for("XDP both ways", || takes(&net, 4001, "xdp", "xdp"));
    net.router_does("tc qdisc add dev right root handle 1: htb default 10");
    net.router_does("tc class add dev right parent 1: classid 1:10 htb rate 100mbit");
    wait_for("TC there again", || takes(&net, 4001, "tc", "xdp"));
    // The kernel's default is nobody's wish.
    net.router_does("tc qdisc del dev right root");
    net.router_does("tc qdisc add dev right root pfifo_fast");
    wait_for("XDP both ways again", || takes(&net, 4001, "xdp", "xdp"));
}

#[test]
fn a_port_that_xdp_cannot_send_by_is_sent_to_by_tc() {
    root_or_skip!();
    let net = Net::new();
    net.left.b.set_features(&[("rx-gro", true)]).unwrap();
    net.right.b.set_features(&[("rx-gro", false)]).unwrap();
    // As the service, which has no access to the namespaces of the peers.
    let mut command = net.router.command_killed_with_parent("setpriv");
    command.arg("--bounding-set=-all,+bpf,+perfmon,+net_admin").arg(LINERATE);
    command.args(["forward", "run", "-i", "left", "-i", "right", "--max-sessions", "4096"]);
    let mut daemon = Process::start(&mut command);
    daemon.until("takes TC");
    daemon.until("ready: forwarding");
    wait_for("TC there, XDP back", || takes(&net, 4000, "tc", "xdp"));
    let right = port(&net, "right");
    assert_eq!(right["egress"]["reason"], "not verified that it transmits", "{right}");
    for family in 0..2 {
        net.tcp(family, 3_000_000, || {});
    }
}

/// Sends to the server for a second as fast as it goes, after a few answered packets; the rate that arrives in bits a
/// second, headers included.
fn rate(net: &Net, port: u16) -> f64 {
    const PAYLOAD: usize = 1000;
    let client = net.client.run(|| bind_udp(([10, 9, 1, 2], port).into())).unwrap();
    let server =
        net.server.run(|| bind_udp(SocketAddr::new(SERVER[0].parse().unwrap(), 7001))).unwrap();
    server.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    client.connect((SERVER[0], 7001)).unwrap();
    let mut buffer = [0; 2048];
    for _ in 0..10 {
        client.send(b"first").unwrap();
        let (_, from) = uninterrupted(|| server.recv_from(&mut buffer)).unwrap();
        server.send_to(b"answer", from).unwrap();
        uninterrupted(|| client.recv(&mut buffer)).unwrap();
    }
    let sender = std::thread::spawn(move || {
        let end = Instant::now() + Duration::from_millis(2500);
        while Instant::now() < end {
            let _ = client.send(&[7; PAYLOAD]);
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    // The bucket is full at first: what it holds is not counted.
    let begun = Instant::now();
    let (mut first, mut last, mut bits) = (None, begun, 0.0);
    while uninterrupted(|| server.recv_from(&mut buffer)).is_ok()
        && begun.elapsed() < Duration::from_secs(4)
    {
        if begun.elapsed() < Duration::from_millis(500) {
            continue;
        }
        last = Instant::now();
        match first {
            None => first = Some(last),
            Some(_) => bits += ((PAYLOAD + 8 + 20 + 14) * 8) as f64,
        }
    }
    sender.join().unwrap();
    bits / (last - first.expect("nothing came")).as_secs_f64()
}

#[test]
fn a_shaper_keeps_its_rate() {
    root_or_skip!();
    // The sender has to be in time.
    let _exclusive = exclusive();
    let net = Net::new();
    let _daemon = net.run("");
    wait_for("XDP", || takes(&net, 4000, "xdp", "xdp"));
    for (number, add) in [
        &["tc qdisc replace dev right root tbf rate 4mbit burst 10kb latency 20ms"][..],
        &[
            "tc qdisc replace dev right root handle 1: htb default 10",
            "tc class add dev right parent 1: classid 1:10 htb rate 4mbit burst 10kb cburst 10kb",
        ],
    ]
    .into_iter()
    .enumerate()
    {
        add.iter().for_each(|line| net.router_does(line));
        wait_for("TC", || takes(&net, 4001, "tc", "xdp"));
        let port = 4010 + number as u16;
        let got = rate(&net, port);
        assert_eq!(datapaths(&net, port)[0], "tc");
        // The figure is the lab's: this tells a shaper from none.
        assert!((3.4e6..4.6e6).contains(&got), "{got} bit/s of 4,000,000");
    }
}

/// Of 100 datagrams, how many arrive beside a TCP stream that keeps the queue full, and the stream's bits a second.
fn beside_tcp(net: &Net, port: u16) -> (usize, f64) {
    let [client, server] = [CLIENT, SERVER].map(|addresses| addresses[0].parse().unwrap());
    let listener =
        net.server.run(|| TcpListener::bind(SocketAddr::new(server, port))).unwrap().unwrap();
    let receiver = net.server.run(|| bind_udp(SocketAddr::new(server, 7001))).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let sender = net.client.run(|| bind_udp(SocketAddr::new(client, port))).unwrap();
    let stream = net.client.run(|| TcpStream::connect(SocketAddr::new(server, port)));
    let mut stream = stream.unwrap().unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    std::thread::scope(|scope| {
        let stop = stream.try_clone().unwrap();
        scope.spawn(move || while stream.write_all(&[7; 4096]).is_ok() {});
        let received = scope.spawn(move || {
            let (begun, mut bytes, mut buffer) = (Instant::now(), 0, [0; 65536]);
            while let Ok(read @ 1..) = accepted.read(&mut buffer) {
                bytes += read;
            }
            (bytes * 8) as f64 / begun.elapsed().as_secs_f64()
        });
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(500));
            for _ in 0..100 {
                sender.send_to(&[7; 200], (server, 7001)).unwrap();
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let arrived =
            (0..100).take_while(|_| uninterrupted(|| receiver.recv(&mut [0; 256])).is_ok()).count();
        stop.shutdown(Shutdown::Both).unwrap();
        (arrived, received.join().unwrap())
    })
}

#[test]
fn datagrams_pass_beside_a_stream_that_fills_the_shaper_as_by_plain_linux() {
    root_or_skip!();
    let net = Net::new();
    // Less than the queues hold: plain Linux loses nothing.
    net.client.sysctl("net.ipv4.tcp_wmem", "4096 65536 131072").unwrap();
    let shapers = [
        &["qdisc replace dev right root tbf rate 8mbit burst 16kb latency 2000ms"][..],
        &[
            "qdisc replace dev right root handle 1: htb default 10",
            "class add dev right parent 1: classid 1:1 htb rate 8mbit burst 16kb",
            "class add dev right parent 1:1 classid 1:10 htb rate 6mbit ceil 8mbit burst 16kb",
            "class add dev right parent 1:1 classid 1:20 htb rate 2mbit ceil 8mbit burst 16kb",
            "filter add dev right parent 1: protocol ip u32 match ip protocol 17 0xff flowid 1:20",
        ],
    ];
    let mut results = Vec::new();
    for (number, shaper) in (0..).zip(shapers) {
        let shape = || {
            let _ =
                net.router.command("tc").args(["qdisc", "del", "dev", "right", "root"]).output();
            shaper.iter().for_each(|line| net.router_does(&format!("tc {line}")));
        };
        shape();
        let plain = beside_tcp(&net, 4100 + number);
        let daemon = net.run("");
        shape();
        wait_for("TC", || takes(&net, 4000, "tc", "xdp"));
        let fast = beside_tcp(&net, 4200 + number);
        assert!(datapaths(&net, 4200 + number).contains(&"tc".to_owned()));
        daemon.end(Signal::SIGTERM);
        results.push((plain, fast));
    }
    println!("arrived of 100, and bit/s of TCP: {results:?}");
    for (plain, fast) in results {
        assert_eq!((plain.0, fast.0), (100, 100));
        assert!(fast.1 < 8.5e6, "{fast:?} by a shaper of 8 Mbit/s");
    }
}

/// HTB classes by the mark and the priority that rules give to packets.
#[test]
fn mark_and_priority_are_those_that_the_rules_set() {
    root_or_skip!();
    let net = Net::new();
    for line in [
        "tc qdisc add dev right root handle 1: htb default 10",
        "tc class add dev right parent 1: classid 1:10 htb rate 100mbit",
        "tc class add dev right parent 1: classid 1:20 htb rate 100mbit",
        "tc class add dev right parent 1: classid 1:30 htb rate 100mbit",
        "nft add table inet classes",
        "nft add chain inet classes between { type filter hook forward priority mangle; }",
        "nft add rule inet classes between udp sport 4001 meta mark set 7",
        "nft add rule inet classes between udp sport 4002 meta priority set 1:30",
    ] {
        net.router_does(line);
    }
    let by_mark =
        ["filter", "add", "dev", "right", "parent", "1:", "handle", "7", "fw", "classid", "1:20"];
    let by_mark = net.router.command("tc").args(by_mark).output().unwrap().status.success();
    let _daemon = net.run("");
    let sent = |class: &str| {
        let command = ["-s", "class", "show", "dev", "right"];
        let output = net.router.command("tc").args(command).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let at = text.find(&format!("htb {class} ")).unwrap_or_else(|| panic!("{text}"));
        let words = text[at..].split_once(" bytes ").unwrap().1;
        words.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    let classes = [(4000, "1:10"), (4001, if by_mark { "1:20" } else { "1:10" }), (4002, "1:30")];
    for (port, class) in classes {
        wait_for("TC", || takes(&net, port, "tc", "xdp"));
        let before = sent(class);
        assert_eq!(net.ask(0, port, 50), 50);
        assert!(sent(class) >= before + 50, "{class}: {before}, {}", sent(class));
    }
}

/// Packets that came to the interface `spy`.
fn spied(net: &Net) -> u64 {
    let counted = net.router.interface("spy").unwrap().statistics().unwrap();
    counted.tx_packets + counted.tx_dropped + counted.rx_packets + counted.rx_dropped
}

fn add_spy(net: &Net) {
    // Not an ifb: that hands what is redirected to it back to where it came from.
    net.router_does("ip link add spy type veth peer name behind");
    net.router_does("ip link set spy up");
    net.router_does("ip link set behind up");
}

const EVERYTHING: &str = "protocol all u32 match u32 0 0 action mirred egress";

#[test]
fn an_egress_filter_is_obeyed() {
    root_or_skip!();
    let net = Net::new();
    add_spy(&net);
    let _daemon = net.run("");
    wait_for("XDP", || takes(&net, 4000, "xdp", "xdp"));
    // Added later: one that takes everything away.
    net.router_does("tc qdisc add dev right clsact");
    net.router_does(&format!("tc filter add dev right egress {EVERYTHING} redirect dev spy"));
    wait_for("the filter to be obeyed", || net.ask_in_vain(0, 4000) == 0);
    wait_for("the filter to be told", || {
        port(&net, "right")["egress"]["reason"] == "egress filter u32"
    });
    assert_eq!(net.ask_in_vain(0, 4000), 0);
    // One that lets packets through sees all of them.
    net.router_does("tc filter del dev right egress");
    net.router_does(&format!("tc filter add dev right egress {EVERYTHING} mirror dev spy"));
    wait_for("TC", || takes(&net, 4001, "tc", "xdp"));
    let before = spied(&net);
    assert_eq!(net.ask(0, 4001, 100), 100);
    assert!(spied(&net) >= before + 100, "{before}, {}", spied(&net));
    net.router_does("tc qdisc del dev right clsact");
    wait_for("XDP again", || takes(&net, 4001, "xdp", "xdp"));
}

#[test]
fn an_ingress_filter_sees_every_packet() {
    root_or_skip!();
    let net = Net::new();
    add_spy(&net);
    let _daemon = net.run("");
    for (qdisc, parent) in [("clsact", "ingress"), ("ingress", "parent ffff:")] {
        wait_for("XDP", || takes(&net, 4000, "xdp", "xdp"));
        net.router_does(&format!("tc qdisc add dev left {qdisc}"));
        net.router_does(&format!("tc filter add dev left {parent} {EVERYTHING} mirror dev spy"));
        wait_for("the mirror to be told", || {
            let left = &port(&net, "left")["ingress"];
            left["reason"] == "ingress filter u32" && left["datapath"].is_null()
        });
        // Nothing is said of what leaves.
        let left = &port(&net, "left")["egress"];
        assert!(left["datapath"] == "xdp" && left["reason"].is_null(), "{qdisc}: {left}");
        assert_eq!(net.ask(0, 4000, 10), 10);
        let before = spied(&net);
        assert_eq!(net.ask(0, 4000, 100), 100);
        assert!(spied(&net) >= before + 100, "{before}, {}", spied(&net));
        assert_eq!(datapaths(&net, 4000), ["xdp"], "only the way back");
        net.router_does(&format!("tc qdisc del dev left {qdisc}"));
    }
    wait_for("XDP again", || takes(&net, 4000, "xdp", "xdp"));
}

/// Filters that see nothing of a packet's connection on TC; not every kernel has them.
#[test]
fn what_looks_at_the_connection_keeps_sessions_with_the_kernel() {
    root_or_skip!();
    let net = Net::new();
    net.router_does("tc qdisc add dev right root handle 1: htb default 10");
    net.router_does("tc class add dev right parent 1: classid 1:1 htb rate 100mbit");
    net.router_does("tc class add dev right parent 1:1 classid 1:10 htb rate 100mbit");
    let _daemon = net.run("");
    let all = "protocol all u32 match u32 0 0";
    let mut tried = 0;
    for (filter, reason) in [
        (format!("parent 1:1 {all} action connmark"), "action connmark, which needs the stack"),
        (format!("parent 1: {all} action ct"), "action ct, which needs the stack"),
        (
            "parent 1:1 protocol ip flower ct_state +trk+est classid 1:10".to_owned(),
            "filter flower by connection, which needs the stack",
        ),
    ] {
        wait_for("TC", || takes(&net, 4000, "tc", "xdp"));
        let mut words = vec!["filter", "add", "dev", "right"];
        words.extend(filter.split(' '));
        if !net.router.command("tc").args(words).output().unwrap().status.success() {
            continue;
        }
        tried += 1;
        wait_for(reason, || {
            let right = &port(&net, "right")["egress"];
            right["reason"] == reason && right["datapath"].is_null()
        });
        assert_eq!(net.ask(0, 4000, 20), 20);
        assert_eq!(datapaths(&net, 4000), ["xdp"], "only the way back");
        let parent = filter.split(' ').nth(1).unwrap();
        net.router_does(&format!("tc filter del dev right parent {parent}"));
    }
    if tried == 0 {
        linerate_testkit::skip!("the kernel has neither connmark, ct nor flower");
    }
}

#[test]
fn one_datapath_may_be_asked_for() {
    root_or_skip!();
    let net = Net::new();
    let daemon = net.run("--datapath tc");
    wait_for("TC", || takes(&net, 4000, "tc", "tc"));
    assert!(!net.is_attached(), "no XDP program is needed");
    for family in 0..2 {
        net.tcp(family, 3_000_000, || {});
    }
    assert!(net.refused("run -i left --datapath fast", 2).contains("choose one of auto, xdp, tc"));
    drop(daemon);
    net.stdout_of("detach");
    net.router_does("tc qdisc add dev right root tbf rate 100mbit burst 64kb latency 50ms");
    let _daemon = net.run("--datapath xdp");
    assert_eq!(net.ask(0, 4000, 20), 20);
    assert_eq!(datapaths(&net, 4000), ["xdp"], "only the way back");
}

#[test]
fn an_adopted_instance_takes_the_datapath_that_is_asked_for() {
    root_or_skip!();
    let net = Net::new();
    let mut before = 0;
    for (mode, taken) in [("tc", "tc"), ("auto", "xdp"), ("tc", "tc"), ("xdp", "xdp")] {
        let daemon = net.run(&format!("--persist --fail-open-after 10s --datapath {mode}"));
        wait_for(mode, || takes(&net, 4000, taken, taken));
        assert_eq!(net.is_attached(), taken == "xdp", "{mode}");
        let packets = net.json("sessions --port 4000")[0]["packets"].as_u64().unwrap();
        assert!(packets >= before + 10, "{mode}: the counts go on: {before}, {packets}");
        before = packets;
        daemon.end(Signal::SIGKILL);
    }
}

/// Sets the CPUs that packets of an interface are steered to.
pub(super) fn steer(net: &Net, interface: &str, cpus: &str) {
    let words = "mount -t sysfs sysfs /sys && echo $1 > /sys/class/net/$0/queues/rx-0/rps_cpus";
    let mut shell = net.router.command("unshare");
    let output = shell.args(["--mount", "sh", "-c", words, interface, cpus]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Packets of new sessions at once, each from another port; how many the server gets behind a later one.
fn overtaken(net: &Net, ports: std::ops::Range<u16>) -> usize {
    const PACKETS: u16 = 40;
    let count = ports.len() * usize::from(PACKETS);
    let server =
        net.server.run(|| bind_udp(SocketAddr::new(SERVER[0].parse().unwrap(), 7002))).unwrap();
    server.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let sockets: Vec<_> = ports
        .map(|port| {
            net.client.run(|| bind_udp(SocketAddr::new(CLIENT[0].parse().unwrap(), port))).unwrap()
        })
        .collect();
    let receive = || {
        let mut newest = std::collections::HashMap::new();
        let (mut arrived, mut late, mut buffer) = (0, 0, [0; 64]);
        while arrived < count {
            let Ok((_, from)) = uninterrupted(|| server.recv_from(&mut buffer)) else { break };
            let number = u16::from_be_bytes([buffer[0], buffer[1]]);
            let newest = newest.entry(from.port()).or_insert(number);
            late += usize::from(number < *newest);
            *newest = number.max(*newest);
            arrived += 1;
        }
        // A busy machine loses some in the buffer of the server's socket.
        assert!(arrived * 2 > count, "{arrived} of {count} arrived");
        late
    };
    std::thread::scope(|scope| {
        let receiver = scope.spawn(receive);
        for socket in &sockets {
            for number in 0..PACKETS {
                socket.send_to(&number.to_be_bytes(), (SERVER[0], 7002)).unwrap();
            }
            // The next burst finds the server's buffer empty.
            std::thread::sleep(Duration::from_millis(1));
        }
        receiver.join().unwrap()
    })
}

#[test]
fn packets_that_are_steered_to_another_cpu_are_not_overtaken() {
    root_or_skip!();
    let net = Net::new();
    steer(&net, "left", "3");
    // Packets that wait for the address of a neighbour may be overtaken.
    assert_eq!(net.ask(0, 3999, 2), 2);
    assert_eq!(overtaken(&net, 20_000..20_100), 0, "by plain Linux");
    let _daemon = net.run("");
    wait_for("TC there, XDP back", || takes(&net, 4000, "tc", "xdp"));
    let left = port(&net, "left");
    assert_eq!(left["ingress"]["reason"], "receive packet steering (RPS)", "{left}");
    assert_eq!(overtaken(&net, 21_000..21_500), 0);
    assert!(net.sessions().len() > 300, "they were learned");
    // While it runs: off, and on again.
    steer(&net, "left", "0");
    wait_for("XDP both ways", || takes(&net, 4001, "xdp", "xdp"));
    steer(&net, "left", "2");
    wait_for("TC there again", || takes(&net, 4001, "tc", "xdp"));
}
