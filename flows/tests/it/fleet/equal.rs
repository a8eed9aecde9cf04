//! Packets and octets of each flow, and translated addresses, in every engine and collector, against what was sent.

use std::net::{IpAddr, Ipv6Addr};

use linerate_testkit::wait_for;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::engines::{
    Answers, Connection, Connections, ENGINES, Sums, connections, own_directions, own_nat_events,
    store_queries, sums,
};
use super::site::{KAFKA, PORTS, TOPIC};
use super::{definitions, figure, site_or_skip, thorough};
use crate::support::{Random, START, answer, frame, key, v4, v6, write};

/// Packets a second of each sensor.
const RATE: u64 = 30_000;
/// How often a file is replayed.
const ROUNDS: u64 = 10;
/// Where records are in the object store.
const STORED: &str = "flows/site";

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

fn compare_connections(engine: &str, found: &Connections, sent: &Connections) {
    let differ = sent.iter().filter(|(connection, counts)| found.get(connection) != Some(counts));
    let differ: Vec<_> = differ.map(|(key, counts)| (key, counts, found.get(key))).collect();
    assert!(
        found == sent,
        "{engine}: {} translated connections for {}, {} of them with other counts: {:?}; {:?}",
        found.len(),
        sent.len(),
        differ.len(),
        &differ[..differ.len().min(3)],
        found.iter().find(|(connection, _)| !sent.contains_key(connection))
    );
    figure!("{engine}: {} translated connections: equal to what was sent", found.len());
}

/// The queries `directions` and `translations` of an engine.
fn compare_answers(engine: &str, answers: &Answers, sent: &Sums, translated: &Connections) {
    let rows = |name: &str| &answers.iter().find(|(found, _)| found == name).expect(name).1;
    compare(engine, &sums(rows("directions")), sent);
    compare_connections(engine, &connections(rows("translations")), translated);
}

/// What nfdump prints of its files.
fn nfdump(folder: &str, arguments: &[&str]) -> String {
    let mut command = std::process::Command::new("nfdump");
    let output = command.args(["-R", folder, "-q", "-N", "-6", "-o"]).args(arguments).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What nfcapd has stored: directions of flows, which it has both in a record, and translated connections.
fn nfcapd(folder: &str) -> (Sums, Connections) {
    let (mut sums, mut connections) = (Sums::new(), Connections::new());
    for line in nfdump(folder, &["fmt:%sa,%da,%pr,%sp,%dp,%pkt,%byt,%opkt,%obyt,%nsa,%nsp"]).lines()
    {
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
        if number(5) > 0 && is_translated(number(3), number(10)) {
            let counts = connections.entry((there, stored(fields[9]), number(10))).or_default();
            *counts = [0, 0, counts[2] + number(5), counts[3] + number(6)];
        }
    }
    // Objects with commas between them.
    let events = format!("[{}]", nfdump(folder, &["json", "packets 0"]));
    let events: Vec<Value> = serde_json::from_str(&events).unwrap();
    for event in events {
        let text = |names: [&str; 2]| names.iter().find_map(|name| event[name].as_str());
        let address = |names| text(names).unwrap().parse::<IpAddr>().unwrap();
        let number = |name: &str| event[name].as_u64().unwrap();
        let (source, destination) =
            (address(["src4_addr", "src6_addr"]), address(["dst4_addr", "dst6_addr"]));
        let original =
            (source, destination, number("proto"), number("src_port"), number("dst_port"));
        let translated = stored(text(["src4_xlt_ip", "src6_xlt_ip"]).unwrap_or_default());
        let port = event["src_xlt_port"].as_str().unwrap().parse().unwrap();
        let counts = connections.entry((original, translated, port)).or_default();
        match event["nat_event_id"].as_str() {
            Some("4" | "6") => counts[0] += 1,
            Some("5" | "7") => counts[1] += 1,
            _ => panic!("{event}"),
        }
    }
    (sums, connections)
}

/// The router of this test translates every port.
fn is_translated(port: u64, translated: u64) -> bool {
    translated != 0 && translated != port
}

/// A translated address as a collector has stored it.
fn stored(address: &str) -> IpAddr {
    let address = address.parse().ok().filter(|address: &IpAddr| !address.is_unspecified());
    address.unwrap_or(Ipv6Addr::UNSPECIFIED.into())
}

/// nfcapd and nfacctd do not store translated addresses of IPv6.
fn without_ipv6(connections: &Connections) -> Connections {
    let known = |address: IpAddr| if address.is_ipv4() { address } else { stored("") };
    let without = |(&(original, address, port), &counts): (&Connection, &[u64; 4])| {
        ((original, known(address), port), counts)
    };
    connections.iter().map(without).collect()
}

/// The rows that nfacctd has written, as an engine would have them.
fn nfacctd(path: &str) -> Vec<Value> {
    wait_for("nfacctd to write its file", || std::fs::exists(path).unwrap());
    let text = std::fs::read_to_string(path).unwrap();
    let row = |line| {
        let row: Value = serde_json::from_str(line).unwrap();
        let protocol = row["ip_proto"].as_str().unwrap().to_uppercase();
        let is_event = |kinds: [u64; 2]| kinds.iter().any(|kind| row["nat_event"] == *kind);
        let count = |name: &str| row[name].as_u64().unwrap_or_default();
        serde_json::json!({
            "source": row["ip_src"], "destination": row["ip_dst"], "protocol": protocol,
            "source_port": row["port_src"], "destination_port": row["port_dst"],
            "translated_source": stored(row["post_nat_ip_src"].as_str().unwrap_or_default()),
            "translated_source_port": count("post_nat_port_src"),
            "created": u64::from(is_event([4, 6])), "deleted": u64::from(is_event([5, 7])),
            "packets": count("packets"), "octets": count("bytes"),
        })
    };
    text.lines().map(row).collect()
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
    // Collectors know an exporter by its address: those of nfcapd, nfacctd and goflow2.
    let collectors = |network: usize| {
        let [biflow, uniflow, kafka] =
            PORTS.map(|port| format!("ipfix://10.99.{network}.1:{port}"));
        [biflow, format!("{uniflow}?uniflow"), format!("{kafka}?uniflow")]
    };
    let captures: Vec<_> = site
        .sensors
        .iter()
        .enumerate()
        .map(|(n, sensor)| {
            // All flows start together, so an active timeout exports all of them at once: more records than the queue of
            // an exporter holds.
            let options =
                format!("--flows {} --flow-file-time 10s", collectors(n).join(" --flows "));
            site.capture(sensor, &options)
        })
        .collect();
    let router = site.router();
    let location = site.path("flows");
    let forward = router.forward(&location, &collectors(99));
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
    // The router sends its records after those of the sensors.
    let routed = router.run(forward, if thorough() { 100 } else { 10 });
    sent.extend(routed.directions);
    let translated = routed.connections;
    assert_eq!(site.lost_datagrams(), 0, "the buffers of the collectors' sockets were full");
    let query = "SELECT count(*) AS records FROM flows WHERE sensor = 'router'";
    let routed: Value =
        serde_json::from_str(&answer(&["flows", "query", "-r", &location, "--json", query]))
            .unwrap();

    compare("linerate flows (DataFusion)", &sums(&own_directions(&location)), &sent);
    let is_event = |[created, deleted, ..]: &[u64; 4]| [*created, *deleted, 0, 0];
    let events: Connections =
        translated.iter().map(|(key, counts)| (*key, is_event(counts))).collect();
    compare_connections("linerate flows", &connections(&own_nat_events(&location, "")), &events);
    // Who was behind a public address and port. Another host may have had them later, or this port without NAT.
    for (key @ (_, address, port), counts) in events.iter().take(3) {
        let filter = format!("src host {address} and src port {port}");
        let found = connections(&own_nat_events(&location, &filter));
        assert_eq!(found.get(key), Some(counts), "{filter}");
        let is_meant = |(original, one, other): &Connection| {
            original.3 == *port || (one, other) == (address, port)
        };
        assert!(found.keys().all(is_meant), "{filter}: {found:?}");
    }
    // The engines read what the sensors and the router have shipped.
    let store = site.store(&location, STORED);
    let _cluster = site.spark();
    for engine in ENGINES {
        let queries = store_queries(engine, &store, STORED);
        let answers = site.query(engine, &queries, 0);
        compare_answers(engine, &answers, &sent, &translated);
    }
    let queries = definitions("goflow2.sql", &[("@BROKERS@", KAFKA), ("@TOPIC@", TOPIC)]);
    let wait = "-- wait\nSELECT count() AS records FROM flows;\n\n-- sum";
    let queries = queries.replacen("-- sum", wait, 1);
    let answers =
        site.query("clickhouse", &queries, uniflows + routed["records"].as_u64().unwrap());
    compare_answers("goflow2, Kafka, ClickHouse", &answers, &sent, &translated);
    goflow2.end(Signal::SIGINT);
    let (_, _, said) = nfcapd_process.end(Signal::SIGTERM);
    assert!(said.contains("Sequence Errors: 0"), "{said}");
    let (found, found_connections) = nfcapd(&collected);
    compare("nfcapd, nfdump", &found, &sent);
    let translated = without_ipv6(&translated);
    compare_connections("nfcapd, nfdump", &found_connections, &translated);
    nfacctd_process.end(Signal::SIGINT);
    let mut rows = nfacctd(&summed);
    let counted: Vec<_> = rows.iter().filter(|row| row["packets"] != 0).cloned().collect();
    compare("nfacctd (pmacct)", &sums(&counted), &sent);
    let port = |row: &Value, name: &str| row[name].as_u64().unwrap();
    rows.retain(|row| is_translated(port(row, "source_port"), port(row, "translated_source_port")));
    compare_connections("nfacctd (pmacct)", &connections(&rows), &translated);
}
