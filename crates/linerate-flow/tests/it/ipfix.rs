//! Collectors of others get what was sent: nfcapd and nfacctd, and Wireshark's dissector for TCP.

use std::collections::HashMap;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::process::Command;
use std::time::Duration;

use linerate_flow::ipfix::{Exporter, Options, Statistics, Target};
use linerate_flow::{BiflowDirection, Direction, EndReason, FlowKey, FlowRecord, Translation};
use linerate_testkit::tools::ip;
use linerate_testkit::{
    Namespace, Process, Random, Veth, VethOptions, probe_or_skip, root_or_skip, wait_for,
};
use nix::mount::{MsFlags, mount};
use nix::sched::{self, CloneFlags};
use nix::sys::signal::Signal;

const START: u64 = 1_700_000_000_000_000_000;
const RECORDS: u64 = 2_000;

/// Records of many kinds: both versions of IP, with and without a reverse direction, ports, tags, translation.
fn records() -> Vec<FlowRecord> {
    let mut random = Random::new(20);
    let mut below = |limit: u64| random.next() % limit;
    let direction = |packets: u64, length: u64| Direction {
        packets,
        octets: packets * length,
        tcp_flags: 0x1b,
        ttl: Some((60, 64)),
        length: Some((length as u32, length as u32)),
    };
    (0..RECORDS)
        .map(|n| {
            let (a, b) = (below(200) as u32, below(200) as u32);
            let v6 = |host| IpAddr::V6(Ipv6Addr::from((0x2001_0db8_u128 << 96) + u128::from(host)));
            let v4 = |host| IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + host));
            let (source, destination) = if n % 4 == 3 { (v6(a), v6(b)) } else { (v4(a), v4(b)) };
            let protocol = [6, 17, 1, 6][n as usize % 4];
            let ports = (protocol != 1).then(|| (1024 + below(60_000) as u16, 443));
            let reverse = if below(3) == 0 { 0 } else { 1 + below(50) };
            let translated = n % 8 == 0;
            FlowRecord {
                start: START + n * 1_000_000,
                end: START + n * 1_000_000 + 5_000_000_000,
                reverse_start: (reverse > 0).then_some(START + n * 1_000_000 + 7_000_000),
                key: FlowKey {
                    source,
                    destination,
                    source_port: ports.map(|ports| ports.0),
                    destination_port: ports.map(|ports| ports.1),
                    icmp_type_code: (protocol == 1).then_some(0x0800),
                    protocol,
                    vlan: (n % 5 == 0).then_some(100),
                    customer_vlan: None,
                },
                ingress_interface: Some(2),
                egress_interface: translated.then_some(3),
                interface_name: Some("eth1".into()),
                forward: direction(1 + below(100), 40 + below(1400)),
                reverse: if reverse > 0 { direction(reverse, 60) } else { Direction::default() },
                direction: BiflowDirection::Initiator,
                end_reason: Some(EndReason::IdleTimeout),
                translation: translated.then(|| Translation {
                    source: v4(0xffff),
                    destination,
                    source_port: Some(4000),
                    destination_port: Some(443),
                }),
                ..FlowRecord::default()
            }
        })
        .collect()
}

/// Flows, packets and octets.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    flows: u64,
    packets: u64,
    octets: u64,
}

impl Totals {
    fn add(&mut self, packets: u64, octets: u64) {
        self.flows += 1;
        self.packets += packets;
        self.octets += octets;
    }

    /// What the records have: each direction is a flow for a collector that knows no biflows.
    fn of(records: &[FlowRecord], biflow: bool) -> Self {
        let mut totals = Self::default();
        for FlowRecord { forward, reverse, .. } in records {
            if biflow {
                totals.add(forward.packets + reverse.packets, forward.octets + reverse.octets);
                continue;
            }
            totals.add(forward.packets, forward.octets);
            if reverse.packets > 0 {
                totals.add(reverse.packets, reverse.octets);
            }
        }
        totals
    }
}

/// Sends the records in two halves. The options records are sent at the start of each second, so also between them.
fn export(target: &str, records: &[FlowRecord]) -> Statistics {
    let target: Target = target.parse().unwrap();
    let options = Options { refresh: Duration::ZERO, ..Options::default() };
    let exporter = Exporter::start(target, &options, || ()).unwrap();
    let (first, second) = records.split_at(records.len() / 2);
    first.iter().for_each(|record| exporter.send(record.clone()));
    wait_for("the first half to leave", || {
        let statistics = exporter.statistics();
        statistics.flow_packets + statistics.not_sent_packets == packets(first)
    });
    second.iter().for_each(|record| exporter.send(record.clone()));
    let statistics = exporter.finish(Duration::from_secs(20));
    assert_eq!(statistics.not_sent_flows, 0, "{statistics:?}");
    statistics
}

fn packets(records: &[FlowRecord]) -> u64 {
    records.iter().map(|record| record.forward.packets + record.reverse.packets).sum()
}

/// Why a test that needs this program cannot run.
fn missing(program: &str) -> Option<String> {
    Command::new(program).arg("-V").output().is_err().then(|| format!("{program} is not installed"))
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// A flow as collectors print it: source, destination, packets and octets each way.
type Row = (IpAddr, IpAddr, u64, u64, u64, u64);

fn rows(records: &[FlowRecord]) -> Vec<Row> {
    let row = |record: &FlowRecord| {
        let FlowRecord { key, forward, reverse, .. } = record;
        let reverse = (reverse.packets, reverse.octets);
        (key.source, key.destination, forward.packets, forward.octets, reverse.0, reverse.1)
    };
    let mut rows: Vec<_> = records.iter().map(row).collect();
    rows.sort_unstable();
    rows
}

#[test]
fn nfcapd_gets_what_was_sent() {
    root_or_skip!();
    probe_or_skip!(missing("nfcapd"));
    let records = records();
    let (namespace, folder) = (Namespace::create("nfcapd").unwrap(), tempfile::tempdir().unwrap());
    let folder = folder.path().to_str().unwrap();
    for biflow in [true, false] {
        let mut command = namespace.command_killed_with_parent("nfcapd");
        // A large socket buffer, for the time that nfcapd waits for a CPU.
        command.args(["-w", folder, "-p", "4739", "-b", "127.0.0.1", "-B", "4000000"]);
        let mut process = Process::start(&mut command);
        process.until("Startup nfcapd");
        let query = if biflow { "" } else { "?uniflow" };
        namespace.run(|| export(&format!("ipfix://127.0.0.1:4739{query}"), &records)).unwrap();
        // It does not read what is in its socket after the signal.
        wait_for("nfcapd to empty its socket", || {
            let sockets = namespace.command("ss").args(["-uanH"]).output().unwrap();
            let sockets = String::from_utf8_lossy(&sockets.stdout).into_owned();
            let of_nfcapd = sockets.lines().find(|line| line.contains(":4739"));
            of_nfcapd.and_then(|line| line.split_whitespace().nth(1)) == Some("0")
        });
        let (_, _, said) = process.end(Signal::SIGTERM);
        let Totals { flows, packets, octets } = Totals::of(&records, biflow);
        let line = format!(
            "Flows: {flows}, Packets: {packets}, Bytes: {octets}, Sequence Errors: 0, Bad Packets: 0"
        );
        assert!(said.contains(&line), "expected {line}\n{said}");
        if biflow {
            let text = output("nfdump", &["-R", folder, "-q", "-o", "csv", "-N"]);
            let number = |field: &str| field.trim().parse::<u64>().unwrap();
            let row = |line: &str| {
                let fields: Vec<_> = line.split(',').map(str::trim).collect();
                let [address, peer] = [fields[3], fields[4]].map(|field| field.parse().unwrap());
                let counts = [11, 12, 13, 14].map(|at| number(fields[at]));
                (address, peer, counts[0], counts[1], counts[2], counts[3])
            };
            let mut found: Vec<Row> =
                text.lines().filter(|line| line.contains(',')).map(row).collect();
            found.sort_unstable();
            assert_eq!(found, rows(&records));
        }
    }
}

#[test]
fn nfacctd_gets_what_was_sent() {
    root_or_skip!();
    probe_or_skip!(missing("nfacctd"));
    let records = records();
    let (namespace, folder) = (Namespace::create("nfacctd").unwrap(), tempfile::tempdir().unwrap());
    let (config, out) = (folder.path().join("nfacctd.conf"), folder.path().join("out.json"));
    let text = format!(
        "daemonize: false\nnfacctd_ip: 127.0.0.1\nnfacctd_port: 4739\nnfacctd_pipe_size: 4000000\n\
         plugins: print\n\
         aggregate: src_host, dst_host, src_port, dst_port, proto, flows\nprint_output: json\n\
         print_output_file: {}\nprint_refresh_time: 3600\n",
        out.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut command = namespace.command_killed_with_parent("nfacctd");
    command.args(["-f", config.to_str().unwrap()]);
    let mut process = Process::start(&mut command);
    process.until("waiting for NetFlow/IPFIX data");
    namespace.run(|| export("ipfix://127.0.0.1:4739?uniflow", &records)).unwrap();
    // Its core process hands records to the plugin in batches.
    std::thread::sleep(Duration::from_secs(2));
    let (_, _, said) = process.end(Signal::SIGINT);
    wait_for("nfacctd to write its file", || out.exists());
    let mut totals = Totals::default();
    for line in std::fs::read_to_string(&out).unwrap().lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let count = |name: &str| row[name].as_u64().unwrap();
        totals.flows += count("flows");
        totals.packets += count("packets");
        totals.octets += count("bytes");
    }
    assert_eq!(totals, Totals::of(&records, false), "{said}");
}

/// A stream of messages is a file of RFC 5655, which Wireshark reads.
#[test]
fn a_stream_has_what_was_sent_after_a_collector_came_back() {
    let tshark = Command::new("tshark").arg("--version").output();
    probe_or_skip!(tshark.err().map(|_| "tshark is not installed"));
    let records = records();
    let (first, second) = records.split_at(records.len() / 2);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("ipfix+tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
    let exporter = Exporter::start(target, &Options::default(), || ()).unwrap();
    let mut stream = listener.accept().unwrap().0;
    first.iter().for_each(|record| exporter.send(record.clone()));
    wait_for("the first records to leave", || exporter.statistics().flows == first.len() as u64);
    let mut before = vec![0; exporter.statistics().octets as usize];
    stream.read_exact(&mut before).unwrap();
    let port = format!(":{:04X}", stream.peer_addr().unwrap().port());
    drop(stream);
    // What is written before the end of the connection has arrived is lost, as with each TCP collector.
    wait_for("the end of the connection to arrive", || {
        let connections = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let is_established = |line: &str| {
            let mut words = line.split_ascii_whitespace().skip(1);
            let (local, state) = (words.next(), words.nth(1));
            local.is_some_and(|local| local.ends_with(&port)) && state == Some("01")
        };
        !connections.lines().any(is_established)
    });
    second.iter().for_each(|record| exporter.send(record.clone()));
    let mut stream = listener.accept().unwrap().0;
    let end = std::thread::spawn(move || exporter.finish(Duration::from_secs(20)));
    let mut after = Vec::new();
    stream.read_to_end(&mut after).unwrap();
    let statistics = end.join().unwrap();
    assert_eq!((statistics.flows, statistics.not_sent_flows), (RECORDS, 0));
    assert_eq!(
        (statistics.connections, statistics.octets as usize),
        (2, before.len() + after.len())
    );
    assert_eq!(dissected(&before), (Totals::of(first, true), 0));
    assert_eq!(dissected(&after), (Totals::of(second, true), 2));
}

/// An authority, and certificates that it signed, in PEM files of a folder.
struct Certificates(tempfile::TempDir);

impl Certificates {
    fn make() -> Self {
        let made = Self(tempfile::tempdir().unwrap());
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        made.openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=ca -days 2"));
        for (name, subject) in [("server", "IP:127.0.0.1"), ("client", "DNS:sensor")] {
            made.openssl(&format!(
                "req -new {key} -keyout {name}.key -out {name}.csr -subj /CN={name} \
                 -addext subjectAltName={subject}"
            ));
            made.openssl(&format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                 -copy_extensions copy -out {name}.pem"
            ));
        }
        made
    }

    fn openssl(&self, arguments: &str) {
        let mut command = Command::new("openssl");
        let output =
            command.args(arguments.split_whitespace()).current_dir(&self.0).output().unwrap();
        assert!(
            output.status.success(),
            "{arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn path(&self, file: &str) -> String {
        self.0.path().join(file).to_str().unwrap().to_owned()
    }
}

/// openssl's server is the collector: it prints what it decrypts.
#[test]
fn a_tls_session_has_what_was_sent() {
    root_or_skip!();
    let tshark = Command::new("tshark").arg("--version").output();
    probe_or_skip!(tshark.err().map(|_| "tshark is not installed"));
    let openssl = Command::new("openssl").arg("version").output();
    probe_or_skip!(openssl.err().map(|_| "openssl is not installed"));
    let (records, made) = (records(), Certificates::make());
    let namespace = Namespace::create("ipfixtls").unwrap();
    let serve = |options: &str| {
        let received = tempfile::NamedTempFile::new().unwrap();
        let mut server = namespace.command_killed_with_parent("openssl");
        server.args("s_server -accept 4740 -quiet -cert server.pem -key server.key".split(' '));
        server.args(options.split_whitespace()).current_dir(&made.0);
        server.stdout(received.reopen().unwrap()).stdin(std::process::Stdio::piped());
        server.stderr(std::process::Stdio::piped());
        let server = server.spawn().unwrap();
        wait_for("the server to listen", || {
            let sockets = namespace.command("ss").args(["-tln"]).output().unwrap();
            String::from_utf8_lossy(&sockets.stdout).contains(":4740")
        });
        (server, received)
    };
    let trusted = format!("ca={}", made.path("ca.pem"));
    let known = format!(
        "{trusted}&certificate={}&key={}",
        made.path("client.pem"),
        made.path("client.key")
    );
    for (options, query) in [
        ("-tls1_3", &trusted),
        ("-tls1_2", &trusted),
        ("-CAfile ca.pem -Verify 1 -verify_return_error", &known),
    ] {
        let (mut server, received) = serve(options);
        let target = format!("ipfix+tls://127.0.0.1?{query}");
        let statistics = namespace.run(|| export(&target, &records)).unwrap();
        assert_eq!((statistics.flows, statistics.connections), (RECORDS, 1), "{options}");
        let len = || std::fs::metadata(received.path()).unwrap().len();
        wait_for("the server to print all", || len() >= statistics.octets);
        let stream = std::fs::read(received.path()).unwrap();
        let (totals, of_statistics) = dissected(&stream);
        assert_eq!(totals, Totals::of(&records, true), "{options}");
        assert!(of_statistics >= 4, "{options}: {of_statistics}");
        server.kill().unwrap();
        server.wait().unwrap();
    }
    // A collector that nobody vouches for, or that has another name, gets nothing.
    let (mut server, received) = serve("");
    for target in [
        format!("ipfix+tls://127.0.0.1?ca={}", made.path("client.pem")),
        format!("ipfix+tls://localhost?{trusted}"),
    ] {
        let target: Target = target.parse().unwrap();
        let start = || Exporter::start(target, &Options::default(), || ()).unwrap();
        let statistics = namespace.run(|| {
            let exporter = start();
            exporter.try_send(records[0].clone());
            wait_for("the refusal", || exporter.statistics().error.is_some());
            exporter.finish(Duration::ZERO)
        });
        let statistics = statistics.unwrap();
        let error = statistics.error.clone().unwrap();
        assert!(error.contains("certificate"), "{error}");
        assert_eq!((statistics.messages, statistics.not_sent_flows), (0, 1), "{error}");
    }
    assert!(std::fs::read(received.path()).unwrap().is_empty());
    server.kill().unwrap();
    server.wait().unwrap();
    // Files that are none are named at once.
    for (query, file) in [
        (format!("ca={}", made.path("none.pem")), "none.pem"),
        (format!("ca={}", made.path("ca.key")), "ca.key"),
        (format!("{trusted}&certificate={0}&key={0}", made.path("client.pem")), "client.pem"),
    ] {
        let target = format!("ipfix+tls://127.0.0.1?{query}").parse().unwrap();
        let Err(error) = Exporter::start(target, &Options::default(), || ()) else {
            panic!("{query} is accepted")
        };
        assert!(error.to_string().contains(file), "{error}");
    }
}

/// What Wireshark's dissector finds in a stream of messages, and the number of options records.
fn dissected(stream: &[u8]) -> (Totals, u64) {
    let file = tempfile::Builder::new().suffix(".ipfix").tempfile().unwrap();
    std::fs::write(file.path(), stream).unwrap();
    let fields =
        ["cflow.packets", "cflow.octets", "cflow.sequence", "cflow.flow_end_reason", "cflow.od_id"];
    let mut arguments = vec!["-r", file.path().to_str().unwrap(), "-T", "fields"];
    fields.iter().for_each(|field| arguments.extend(["-e", field]));
    let (mut totals, mut options) = (Totals::default(), 0);
    for line in output("tshark", &arguments).lines() {
        let columns: Vec<Vec<u64>> = line
            .split('\t')
            .map(|column| column.split(',').filter_map(|number| number.parse().ok()).collect())
            .collect();
        // Each message counts the data records of its observation domain before it.
        if columns[4][0] == 0 {
            assert_eq!((columns[2][0], columns[3].len()), (options, 0), "{line}");
            options += 2;
            continue;
        }
        assert_eq!((columns[2][0], columns[4][0]), (totals.flows, 1), "{line}");
        totals.flows += columns[3].len() as u64;
        totals.packets += columns[0].iter().sum::<u64>();
        totals.octets += columns[1].iter().sum::<u64>();
    }
    (totals, options)
}

/// The kernel tells a socket what a firewall answered in place of the next datagram, which must not be lost for that.
#[test]
fn the_message_after_an_icmp_error_is_sent() {
    root_or_skip!();
    let namespace = Namespace::create("firewall").unwrap();
    for rule in [
        "add table inet firewall",
        "add chain inet firewall input { type filter hook input priority 0 ; }",
        "add rule inet firewall input udp dport 4739 reject with icmp type host-prohibited",
    ] {
        assert!(namespace.command("nft").arg(rule).status().unwrap().success(), "{rule}");
    }
    let statistics = namespace.run(|| export("ipfix://127.0.0.1:4739", &records())).unwrap();
    assert_eq!(statistics.flows, RECORDS);
    assert!(statistics.refused > 0, "{statistics:?}");
}

#[test]
fn what_a_collector_does_not_take_is_counted() {
    let records = records();
    // Nobody listens, and the host reports that.
    let unused = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let statistics = export(&format!("ipfix://{unused}"), &records);
    assert!(statistics.refused > 0 && statistics.error.is_some(), "{statistics:?}");
    // A collector accepts and never reads: the queue fills up, and `try_send` does not wait.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("ipfix+tcp://{}", listener.local_addr().unwrap()).parse().unwrap();
    let options = Options { queue_records: 100, ..Options::default() };
    let exporter = Exporter::start(target, &options, || ()).unwrap();
    let many = 200_000;
    for n in 0..many {
        exporter.try_send(records[n as usize % records.len()].clone());
    }
    let statistics = exporter.finish(Duration::from_millis(100));
    assert!(statistics.not_sent_flows > 0, "{statistics:?}");
    assert_eq!(statistics.flows + statistics.not_sent_flows, many, "{statistics:?}");
}

/// A collector over UDP that counts the data records of flows, and takes the layouts from the templates.
struct Collector {
    socket: UdpSocket,
    lengths: HashMap<u16, usize>,
    records: u64,
}

impl Collector {
    fn bind(address: &str) -> Self {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket, lengths: HashMap::new(), records: 0 }
    }

    /// The records so far.
    fn received(&mut self) -> u64 {
        let mut buffer = [0; 2000];
        while let Ok(length) = self.socket.recv(&mut buffer) {
            self.take(&buffer[..length]);
        }
        self.records
    }

    fn take(&mut self, message: &[u8]) {
        let u16_at = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
        if message[12..16] == [0; 4] {
            return;
        }
        let mut at = 16;
        while at < message.len() {
            let (set, end) = (u16_at(at), at + usize::from(u16_at(at + 2)));
            at += 4;
            if set == 2 {
                while at < end {
                    let (id, fields) = (u16_at(at), u16_at(at + 2));
                    at += 4;
                    let mut length = 0;
                    for _ in 0..fields {
                        length += usize::from(u16_at(at + 2));
                        at += if message[at] & 0x80 == 0 { 4 } else { 8 };
                    }
                    self.lengths.insert(id, length);
                }
            } else {
                self.records += ((end - at) / self.lengths[&set]) as u64;
                at = end;
            }
        }
    }
}

/// No record is lost where the kernel says that it cannot be sent.
#[test]
fn a_udp_exporter_follows_names_addresses_and_links() {
    root_or_skip!();
    let [host, peer] = ["follows", "followed"].map(|name| Namespace::create(name).unwrap());
    let _veth = Veth::create(&host, "a", &peer, "b", VethOptions::default()).unwrap();
    ip(&host, "link set lo up");
    ip(&host, "addr add 10.7.0.1/24 dev a");
    ip(&peer, "addr add 10.7.0.8/24 dev b");
    ip(&peer, "addr add 10.7.0.9/24 dev b");
    let record = FlowRecord { interface_name: None, ..records().remove(0) };
    let hosts = tempfile::NamedTempFile::new().unwrap();
    // The name also has an address where nobody listens.
    std::fs::write(hosts.path(), "10.7.0.8 collector.example\n127.0.0.1 collector.example\n")
        .unwrap();
    let exporter = host.run(|| {
        // This thread and the exporter's have their own names.
        sched::unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        mount(Some(hosts.path()), "/etc/hosts", none, MsFlags::MS_BIND, none).unwrap();
        let options = Options { refresh: Duration::ZERO, ..Options::default() };
        let target = "ipfix://collector.example".parse().unwrap();
        Exporter::start(target, &options, || ()).unwrap()
    });
    let exporter = exporter.unwrap();
    let send = |records: u64| (0..records).for_each(|_| exporter.send(record.clone()));
    let mut first = host.run(|| Collector::bind("127.0.0.1:4739")).unwrap();
    send(100);
    wait_for("the records at the second address of the name", || first.received() == 100);
    std::fs::write(hosts.path(), "10.7.0.9 collector.example\n").unwrap();
    let mut collector = peer.run(|| Collector::bind("10.7.0.9:4739")).unwrap();
    let mut sent = 100;
    wait_for("the name to be looked up", || {
        send(1);
        sent += 1;
        std::thread::sleep(Duration::from_millis(50));
        collector.received() > 0
    });
    wait_for("all records to leave", || exporter.statistics().flows == sent);
    wait_for("all records to come", || first.received() + collector.received() == sent);
    let mut expected = collector.records;
    // The host gets another address: no record may leave by the old one, which has no answer.
    ip(&host, "addr del 10.7.0.1/24 dev a");
    ip(&host, "addr add 10.7.0.2/24 dev a");
    send(100);
    expected += 100;
    wait_for("the records from the new address", || collector.received() == expected);
    // The link fails for some time, and records wait.
    ip(&host, "link set dev a down");
    send(100);
    expected += 100;
    wait_for("the failure to be known", || exporter.statistics().error.is_some());
    ip(&host, "link set dev a up");
    wait_for("the records after the failure", || collector.received() == expected);
    let statistics = exporter.finish(Duration::from_secs(20));
    assert_eq!(statistics.not_sent_flows, 0, "{statistics:?}");
    assert!(statistics.error.is_none(), "{statistics:?}");
}
