//! Suricata with two workers finds under this library what it finds by itself: alerts, flows, and every packet.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use etherparse::PacketBuilder;
use linerate_testkit::root_or_skip;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::{Cable, FAR, Libpcap, Library, NEAR, Running, compile, has, traffic};

/// Sessions of TCP, each with a request that a rule is about.
const SESSIONS: u16 = 200;
/// Flows of one datagram each that another rule is about. They come last.
const DATAGRAMS: u16 = 100;

const RULES: &str = r#"
alert http any any -> any any (msg:"a request"; http.uri; content:"/linerate"; sid:1; rev:1;)
alert udp any any -> any 7001 (msg:"a datagram"; content:"last"; sid:2; rev:1;)
"#;

/// `@FAR@`, `@THREADS@`: the interface, and its workers.
const CONFIGURATION: &str = r#"%YAML 1.1
---
vars:
  address-groups: {HOME_NET: "any", EXTERNAL_NET: "any"}
stats: {enabled: yes, interval: 600}
outputs:
  - eve-log:
      enabled: yes
      filetype: regular
      filename: eve.json
      types: [alert, flow, stats: {threads: yes}]
logging:
  outputs: [console: {enabled: yes}]
af-packet:
  - interface: @FAR@
    threads: @THREADS@
    cluster-id: 99
    cluster-type: cluster_flow
    use-mmap: yes
    tpacket-v3: yes
    ring-size: 20000
pcap:
  - interface: @FAR@
    threads: @THREADS@
    buffer-size: 64mb
app-layer:
  protocols:
    http: {enabled: yes}
unix-command: {enabled: no}
"#;

/// Sessions beside each other, then the datagrams.
fn frames() -> Vec<Vec<u8>> {
    let sessions: Vec<_> = (0..SESSIONS).map(|number| traffic::session(40_000 + number)).collect();
    let mut frames = Vec::new();
    for step in 0..sessions[0].len() {
        frames.extend(sessions.iter().map(|session| session[step].clone()));
    }
    for number in 0..DATAGRAMS {
        let mut frame = Vec::new();
        let packet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let packet = packet.ipv4([10, 1, 0, 1], [10, 1, 0, 2], 64).udp(30_000 + number, 7001);
        packet.write(&mut frame, b"the last ones").unwrap();
        frames.push(frame);
    }
    frames
}

/// What Suricata found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Findings {
    /// How often the rule of each number had each flow.
    alerts: BTreeMap<(u64, String), u32>,
    /// Packets in each direction of each flow, and whether there was an alert.
    flows: BTreeMap<String, (u64, u64, bool)>,
}

/// What Suricata counted.
#[derive(Debug, Default)]
struct Counts {
    dropped: u64,
    /// By worker.
    decoded: Vec<u64>,
}

fn events(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("eve.json")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn is(event: &Value, kind: &str) -> bool {
    event["event_type"] == kind
}

fn read(folder: &Path) -> (Findings, Counts) {
    let (mut findings, mut counts) = (Findings::default(), Counts::default());
    for event in events(folder) {
        let flow = ["proto", "src_ip", "src_port", "dest_ip", "dest_port"]
            .map(|field| event[field].to_string())
            .join(" ");
        if is(&event, "alert") {
            let rule = event["alert"]["signature_id"].as_u64().unwrap();
            *findings.alerts.entry((rule, flow)).or_default() += 1;
        } else if is(&event, "flow") {
            let packets = |field: &str| event["flow"][field].as_u64().unwrap();
            let alerted = event["flow"]["alerted"] == true;
            let found = (packets("pkts_toserver"), packets("pkts_toclient"), alerted);
            assert_eq!(findings.flows.insert(flow.clone(), found), None, "{flow} twice");
        } else if is(&event, "stats") {
            // The last one counts.
            let stats = &event["stats"];
            counts.dropped = stats["capture"]["kernel_drops"].as_u64().unwrap_or(0);
            let threads = stats["threads"].as_object().unwrap();
            let workers = threads.iter().filter(|(name, _)| name.starts_with("W#"));
            let decoded = workers.map(|(_, one)| one["decoder"]["pkts"].as_u64().unwrap_or(0));
            counts.decoded = decoded.collect();
        }
    }
    (findings, counts)
}

/// Runs Suricata with so many workers, and sends the frames past it.
fn suricata(way: &str, threads: u32, library: &Library, libpcap: Libpcap) -> (Findings, Counts) {
    let (cable, folder) = (Cable::new(), tempfile::tempdir().unwrap());
    let path = |name: &str| folder.path().join(name);
    let configuration =
        CONFIGURATION.replace("@FAR@", FAR).replace("@THREADS@", &threads.to_string());
    fs::write(path("suricata.yaml"), configuration).unwrap();
    fs::write(path("rules"), RULES).unwrap();
    traffic::write_frames(&path("traffic.pcap"), &frames());
    let (configuration, rules) = (path("suricata.yaml"), path("rules"));
    let interface = format!("--{way}={FAR}");
    let line = [
        "suricata",
        "-c",
        configuration.to_str().unwrap(),
        "-S",
        rules.to_str().unwrap(),
        "-l",
        folder.path().to_str().unwrap(),
        "--runmode",
        "workers",
        // A program that sends without a card leaves checksums as they are.
        "-k",
        "none",
        &interface,
    ];
    let mut running: Running = cable.start(library, libpcap, &line, folder.path());
    running.wait_for("started engine", |running| {
        (running.stdout() + &running.stderr()).contains("Engine started")
    });
    let sender = compile("send.c", folder.path(), &[]);
    let mut sender = cable.namespace.command(&sender);
    assert!(sender.arg(NEAR).arg(path("traffic.pcap")).arg("1").status().unwrap().success());
    running.wait_for("last alert", |_| {
        let alerts = events(folder.path()).iter().filter(|event| is(event, "alert")).count();
        alerts >= usize::from(SESSIONS + DATAGRAMS)
    });
    running.interrupt(Signal::SIGINT);
    assert_eq!(running.ended(), Some(0), "{}", running.stderr());
    read(folder.path())
}

#[test]
fn two_workers_find_what_suricata_finds_by_itself() {
    root_or_skip!();
    if !has("two_workers_find_what_suricata_finds_by_itself", "suricata") {
        return;
    }
    let library = Library::install();
    let sent = frames().len() as u64;
    let two = Libpcap::Preloaded(&[("LINERATE_SOURCE", "packet"), ("LINERATE_THREADS", "2")]);
    // Without a group each of its own pcap handles sees everything, so there is one.
    for (way, own_threads) in [("af-packet", 2), ("pcap", 1)] {
        let (own, own_counts) = suricata(way, own_threads, &library, Libpcap::System);
        let (ours, counts) = suricata(way, 2, &library, two);
        println!(
            "suricata --{way}, 2 workers: {} alerts and {} flows, its own {} and {}; packets by worker {:?}, {} \
             dropped, of {sent} sent",
            ours.alerts.values().sum::<u32>(),
            ours.flows.len(),
            own.alerts.values().sum::<u32>(),
            own.flows.len(),
            counts.decoded,
            counts.dropped
        );
        assert_eq!(ours, own, "{way}");
        assert_eq!(ours.flows.len(), usize::from(SESSIONS + DATAGRAMS), "{way}");
        for counts in [&own_counts, &counts] {
            let decoded: u64 = counts.decoded.iter().sum();
            assert_eq!(decoded + counts.dropped, sent, "{way}: every packet is counted");
        }
        assert!(counts.decoded.len() == 2 && !counts.decoded.contains(&0), "{way}: both work");
    }
}
