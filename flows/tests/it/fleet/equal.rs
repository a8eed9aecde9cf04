//! Packets and octets of each flow, in every engine and collector, against what was sent.

use linerate_testkit::wait_for;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::engines::{Sums, own_directions, sums};
use super::site::{KAFKA, PORTS, TOPIC};
use super::{definitions, figure, site_or_skip, thorough};
use crate::support::{Random, START, frame, key, v4, v6, write};

/// Packets a second of each sensor.
const RATE: u64 = 30_000;
/// How often a file is replayed.
const ROUNDS: u64 = 10;

/// Frames of flows in both directions; `base` tells the hosts of one sensor from those of others.
fn frames(count: u64, flows: u64, base: u64) -> Vec<Vec<u8>> {
    let mut random = Random(base);
    (0..count)
        .map(|n| {
            // Each flow has a packet, and a few flows have most packets.
            let limit = 1 + random.below(flows);
            let flow = if n < flows { n } else { random.below(limit) };
            let host = if flow % 4 == 0 { v6 } else { v4 };
            let (a, b) = (host(base + flow % 1_000), host(base + 1_000 + flow % 7));
            let (one, two) = (1024 + (flow / 1_000) as u16, [53, 80, 443][flow as usize % 3]);
            let protocol = if two == 53 { 17 } else { 6 };
            let len = random.below(200) as usize;
            if n >= flows && random.below(3) == 0 {
                frame(b, a, protocol, (two, one), None, len)
            } else {
                frame(a, b, protocol, (one, two), None, len)
            }
        })
        .collect()
}

fn add(sent: &mut Sums, frame: &[u8], times: u64) {
    let (key, octets) = key(frame).unwrap();
    let port = |port: Option<u16>| u64::from(port.unwrap());
    let (source, destination) = (port(key.source_port), port(key.destination_port));
    let direction = (key.source, key.destination, key.protocol.into(), source, destination);
    let sum = sent.entry(direction).or_default();
    sum.0 += times;
    sum.1 += times * octets;
}

fn compare(engine: &str, found: &Sums, sent: &Sums) {
    let total = |sums: &Sums| {
        sums.values().fold((0, 0), |sum, direction| (sum.0 + direction.0, sum.1 + direction.1))
    };
    let ((packets, octets), (sent_packets, sent_octets)) = (total(found), total(sent));
    let differ = sent.iter().filter(|(direction, sum)| found.get(direction) != Some(sum));
    let differ: Vec<_> = differ.map(|(key, sum)| (key, sum, found.get(key))).collect();
    assert!(
        found == sent,
        "{engine}: {packets} of {sent_packets} packets and {octets} of {sent_octets} octets, {} directions for {}, \
         {} of them with other counts: {:?}",
        found.len(),
        sent.len(),
        differ.len(),
        &differ[..differ.len().min(3)]
    );
    figure!(
        "{engine}: {} directions of flows, {packets} packets, {octets} octets: equal to what was sent",
        found.len()
    );
}

/// The sums of nfdump's files, which have both directions in a record.
fn nfdump(folder: &str) -> Sums {
    let format = "fmt:%sa,%da,%pr,%sp,%dp,%pkt,%byt,%opkt,%obyt";
    let mut command = std::process::Command::new("nfdump");
    let output = command.args(["-R", folder, "-q", "-N", "-6", "-o", format]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut sums = Sums::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let number = |at: usize| fields[at].parse::<u64>().unwrap_or_else(|_| panic!("{line}"));
        let [source, destination] = [0, 1].map(|at| fields[at].parse().unwrap());
        let there = (source, destination, number(2), number(3), number(4));
        let back = (destination, source, number(2), number(4), number(3));
        for (direction, packets, octets) in
            [(there, number(5), number(6)), (back, number(7), number(8))]
        {
            if packets > 0 {
                let sum = sums.entry(direction).or_default();
                *sum = (sum.0 + packets, sum.1 + octets);
            }
        }
    }
    sums
}

/// The sums that nfacctd has written.
fn nfacctd(path: &str) -> Sums {
    let text = std::fs::read_to_string(path).unwrap();
    let row = |line| {
        let row: Value = serde_json::from_str(line).unwrap();
        let protocol = row["ip_proto"].as_str().unwrap().to_uppercase();
        serde_json::json!({
            "source": row["ip_src"], "destination": row["ip_dst"], "protocol": protocol,
            "source_port": row["port_src"], "destination_port": row["port_dst"],
            "packets": row["packets"], "octets": row["bytes"],
        })
    };
    sums(&text.lines().map(row).collect::<Vec<_>>())
}

#[test]
fn every_engine_and_collector_has_the_packets_and_octets_of_each_flow() {
    let site = site_or_skip!(3);
    let (packets, flows) =
        if thorough() { (10_000_000, 100_000) } else { (1_000_000_u64, 10_000_u64) };

    // What is sent: two sensors see files that are replayed, in both directions of flows of both versions of IP; the
    // third sees frames of `linerate generate`.
    let mut sent = Sums::new();
    for sensor in 0..2 {
        let frames = frames(packets * 3 / 10 / ROUNDS, flows * 3 / 10, 1 + sensor * 10_000);
        frames.iter().for_each(|frame| add(&mut sent, frame, ROUNDS));
        write(&site.folder().join(format!("{sensor}.pcapng")), &frames, START);
    }
    let (generated, generated_flows) = (packets * 4 / 10, flows * 4 / 10);
    for flow in 0..generated_flows {
        let (source, destination) = ("198.18.0.1".parse().unwrap(), "198.19.0.1".parse().unwrap());
        // A frame of 64 bytes has an IP packet of 50.
        let frame = frame(source, destination, 17, (1024 + flow as u16, 9), None, 10);
        add(&mut sent, &frame, generated / generated_flows);
    }
    assert_eq!(sent.values().map(|sum| sum.0).sum::<u64>(), packets);

    let (collected, summed) = (site.path("nfcapd"), site.path("nfacctd.json"));
    let _kafka = site.kafka();
    let nfcapd_process = site.nfcapd(&collected);
    let nfacctd_process = site.nfacctd(&summed);
    let goflow2 = site.goflow2(&format!(
        "-transport kafka -transport.kafka.brokers {KAFKA} -transport.kafka.topic {TOPIC} -transport.kafka.flushfreq 200ms"
    ));
    let captures: Vec<_> = site
        .sensors
        .iter()
        .enumerate()
        .map(|(n, sensor)| {
            let [biflow, uniflow, kafka] = PORTS.map(|port| format!("ipfix://10.99.{n}.1:{port}"));
            // All flows start together, so an active timeout would export all of them at once: more records than the
            // queue of an exporter holds. At the end of a capture, records wait for room in the queue.
            let options = format!(
                "--flows {biflow} --flows {uniflow}?uniflow --flows {kafka}?uniflow --flow-file-time 10s \
                 --active-timeout 600s"
            );
            site.capture(sensor, &options)
        })
        .collect();
    let replay = |sensor: u64| {
        let file = site.path(&format!("{sensor}.pcapng"));
        site.send(sensor as usize, "replay", &format!("--pps {RATE} --loop {ROUNDS} {file}"))
    };
    let generate = format!(
        "--count {generated} --flows {generated_flows} --size 64 --rate {}pps",
        RATE * 4 / 3
    );
    let senders = [replay(0), replay(1), site.send(2, "generate", &generate)];
    let senders: Vec<Value> = senders.into_iter().map(|sender| sender.join().unwrap()).collect();
    let (mut received, mut uniflows) = (0, 0);
    for (capture, sender) in captures.into_iter().zip(senders) {
        let (status, json, printed) = capture.interrupt();
        assert!(status.success(), "{printed}");
        let count = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{json}"));
        let captured = count(&json["flows"]["packets"]);
        figure!(
            "sensor: {} packets sent, {captured} metered, {} discarded, {} records",
            sender["sent"],
            json["dropped"]["total"],
            json["flows"]["records"]
        );
        assert_eq!(
            (&json["dropped"]["total"], &sender["sent"]),
            (&0.into(), &captured.into()),
            "{json} {sender}"
        );
        received += captured;
        for collector in json["flows"]["collectors"].as_array().unwrap() {
            assert_eq!((&collector["not_sent"], &collector["refused"]), (&0.into(), &0.into()));
        }
        uniflows += count(&json["flows"]["collectors"][2]["records"]);
    }
    assert_eq!(received, packets);
    assert_eq!(site.lost_datagrams(), 0, "the buffers of the collectors' sockets were full");

    let location = site.path("flows");
    compare("linerate flows (DataFusion)", &sums(&own_directions(&location)), &sent);
    let _cluster = site.spark();
    for engine in ["duckdb", "clickhouse", "spark"] {
        let queries = definitions(&format!("{engine}.sql"), &[("@LOCATION@", &location)]);
        let answers = site.ask(engine, &queries, 0);
        let (_, rows) = answers.iter().find(|(name, _)| name == "directions").unwrap();
        compare(engine, &sums(rows), &sent);
    }
    let queries = definitions("goflow2.sql", &[("@BROKERS@", KAFKA), ("@TOPIC@", TOPIC)]);
    let wait = "-- wait\nSELECT count() AS records FROM flows;\n\n-- sum";
    let queries = queries.replacen("-- sum", wait, 1);
    let answers = site.ask("clickhouse", &queries, uniflows);
    let (_, rows) = answers.iter().find(|(name, _)| name == "directions").unwrap();
    compare("goflow2, Kafka, ClickHouse", &sums(rows), &sent);
    goflow2.end(Signal::SIGINT);
    let (_, _, said) = nfcapd_process.end(Signal::SIGTERM);
    assert!(said.contains("Sequence Errors: 0"), "{said}");
    compare("nfcapd, nfdump", &nfdump(&collected), &sent);
    nfacctd_process.end(Signal::SIGINT);
    wait_for("nfacctd to write its file", || std::fs::exists(&summed).unwrap());
    compare("nfacctd (pmacct)", &nfacctd(&summed), &sent);
}
