//! Parts of a fleet fail: no record is duplicated, and what is missing is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use linerate_testkit::{Process, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::site::PORTS;
use super::{definitions, figure, site_or_skip};
use crate::support::{START, answer, meter, parquet, traffic, write};

/// Complete files of records below a folder.
fn files(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let count = |path: &Path| match path.extension() {
        _ if path.is_dir() => files(path),
        Some(extension) => usize::from(extension == "parquet"),
        None => 0,
    };
    entries.map(|entry| count(&entry.unwrap().path())).sum()
}

/// Each datagram is a flow of its own, numbered by its ports.
fn generate(count: u64, rate: u64) -> String {
    format!("--count {count} --sport 1024-65535 --dport 9-99 --rate {rate}pps")
}

/// Waits until all packets are sent, and ends the capture, which must have lost none. Returns the JSON that it prints.
fn end(capture: Process, sender: JoinHandle<Value>, count: u64) -> Value {
    let sender = sender.join().unwrap();
    assert_eq!(sender["sent"], count, "{sender}");
    let (status, json, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    assert_eq!(json["dropped"]["total"], 0, "{json}");
    json
}

fn number(source_port: &Value, destination_port: &Value) -> u64 {
    let port = |value: &Value| value.as_u64().unwrap();
    (port(destination_port) - 9) * 64_512 + port(source_port) - 1024
}

#[test]
fn a_sensor_that_is_killed_loses_its_open_interval_and_doubles_nothing() {
    const COUNT: u64 = 40_000;
    const RATE: u64 = 2_000;
    let site = site_or_skip!(1);
    let flows = site.folder().join("flows");
    let options = "--idle-timeout 1s --flow-file-time 1s";
    let capture = site.capture(&site.sensors[0], options);
    let sender = site.send(0, "generate", &generate(COUNT, RATE));
    wait_for("three complete files", || files(&flows) >= 3);
    let killed = std::time::Instant::now();
    capture.end(Signal::SIGKILL);
    let capture = site.capture(&site.sensors[0], options);
    let interval = killed.elapsed();
    let json = end(capture, sender, COUNT);
    assert_eq!(json["flows"]["interruptions"], 1, "{json}");

    let query = "SELECT sourceTransportPort AS a, destinationTransportPort AS b, count(*) AS records, \
         sum(packetDeltaCount + reversePacketDeltaCount) AS packets FROM flows \
         GROUP BY sourceTransportPort, destinationTransportPort";
    let location = flows.to_str().unwrap();
    let text = answer(&["flows", "query", "-r", location, "--json", query]);
    let mut there = BTreeSet::new();
    for line in text.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&row["records"], &row["packets"]), (&1.into(), &1.into()), "double: {row}");
        there.insert(number(&row["a"], &row["b"]));
    }
    let missing: Vec<u64> = (0..COUNT).filter(|number| !there.contains(number)).collect();
    let (first, last) = (missing[0], missing[missing.len() - 1]);
    let gap = last - first + 1;
    // The flows of the open file, those that were in the table, and the time until the next capture listens. A busy
    // machine adds to each.
    figure!(
        "sensor killed: {} of {COUNT} records are missing, from {first} to {last}, {:.1} s; 0 double; interruptions: {}",
        missing.len(),
        gap as f64 / RATE as f64,
        json["flows"]["interruptions"]
    );
    // Until it listens again, and what the table and the open file held for a second each and a sweep.
    let limit = (interval.as_secs_f64() + 5.0) * RATE as f64;
    assert!((gap as f64) <= limit, "{gap} in {interval:?}");
    // What the second capture has seen is there in full.
    let captured = json["flows"]["packets"].as_u64().unwrap();
    assert_eq!(there.range(COUNT - captured..).count() as u64, captured);
}

#[test]
fn a_collector_that_is_restarted_gets_templates_again_and_its_losses_are_counted() {
    const COUNT: u64 = 90_000;
    let site = site_or_skip!(1);
    let options = format!("--flows ipfix://10.99.0.1:{}?uniflow --idle-timeout 1s", PORTS[2]);
    let files = ["before.json", "after.json"].map(|name| site.path(name));
    let start = |file: &str| site.goflow2(&format!("-transport.file {file}"));
    let lines = |file: &str| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        // The last line may be incomplete.
        let end = text.rfind('\n').map_or(0, |end| end + 1);
        text[..end].lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let collector = start(&files[0]);
    let capture = site.capture(&site.sensors[0], &options);
    let sender = site.send(0, "generate", &generate(COUNT, 6_000));
    wait_for("the first records", || lines(&files[0]).len() >= 5_000);
    collector.end(Signal::SIGKILL);
    std::thread::sleep(Duration::from_secs(2));
    let collector = start(&files[1]);
    let json = end(capture, sender, COUNT);
    assert_eq!(json["flows"]["collectors"][0]["records"], COUNT, "{json}");
    let refused = json["flows"]["collectors"][0]["refused"].as_u64().unwrap();
    assert!(refused > 0, "{json}");
    wait_for("the last record", || {
        let after = lines(&files[1]);
        after.last().is_some_and(|last| {
            let same = after.iter().filter(|one| one["sequence_num"] == last["sequence_num"]);
            last["sequence_num"].as_u64().unwrap() + same.count() as u64 == COUNT
        })
    });
    collector.end(Signal::SIGINT);
    assert_eq!(site.lost_datagrams(), 0, "the buffer of the collector's socket was full");
    // The sequence number of a message is the number of records before it, so the collector knows what it missed.
    let mut messages = BTreeMap::<u64, u64>::new();
    let mut numbers = BTreeMap::<u64, u64>::new();
    for row in files.iter().flat_map(|file| lines(file)) {
        *messages.entry(row["sequence_num"].as_u64().unwrap()).or_default() += 1;
        *numbers.entry(number(&row["src_port"], &row["dst_port"])).or_default() += 1;
    }
    let (mut next, mut gaps, mut longest) = (0, 0, 0);
    for (sequence, records) in messages {
        let gap = sequence.checked_sub(next).expect("no message is there twice");
        gaps += gap;
        longest = longest.max(gap);
        next = sequence + records;
    }
    let lost = COUNT - numbers.len() as u64;
    assert!(numbers.values().all(|times| *times == 1), "a record is there twice");
    figure!(
        "collector restarted: {} of {COUNT} records arrived, 0 double; {lost} lost, and {gaps} missing in the \
         sequence numbers, {longest} at once; the exporter counted {refused} refused messages",
        numbers.len()
    );
    assert_eq!((gaps, longest), (lost, lost));
    assert!(lost > 0 && lines(&files[1]).len() > 1_000, "{lost}");
}

#[test]
fn a_query_has_the_same_answer_when_a_worker_of_spark_is_killed_in_it() {
    /// How often each record is counted, so that the query takes several seconds.
    const COPIES: u64 = 3_000;
    let site = site_or_skip!(0);
    let file = site.folder().join("a.pcapng");
    write(&file, &traffic(6_000, false), START);
    let records = meter(&[file]);
    parquet(&site.folder().join("flows/sensor=a/1.parquet"), &records);
    let packets: u64 = records.iter().map(|one| one.forward.packets + one.reverse.packets).sum();
    let octets: u64 = records.iter().map(|one| one.forward.octets + one.reverse.octets).sum();

    let queries = definitions("spark.sql", &[("@LOCATION@", &site.path("flows"))]);
    let define = &queries[..queries.find("-- sum").unwrap()];
    let queries = format!(
        "{define}\nSET spark.sql.adaptive.enabled = false;\nSET spark.sql.shuffle.partitions = 48;\n\n-- long\n\
         SELECT sum(flows) AS flows, sum(packets) AS packets, sum(octets) AS octets FROM (\n\
             SELECT sourceIPv4Address, sourceIPv6Address, sourceTransportPort, destinationTransportPort, copy,\n\
                 count(*) AS flows, sum(packetDeltaCount + reversePacketDeltaCount) AS packets,\n\
                 sum(octetDeltaCount + reverseOctetDeltaCount) AS octets\n\
             FROM flows CROSS JOIN (SELECT id AS copy FROM range(0, {COPIES}, 1, 48)) WHERE natEvent IS NULL\n\
             GROUP BY ALL);\n"
    );
    let cluster = site.spark();
    let mut query = site.query_command("spark", &queries, 0).spawn().unwrap();
    let mut stderr = query.stderr.take().unwrap();
    let errors = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = stderr.read_to_string(&mut text);
        text
    });
    let (mut running, mut answers) = (None, BTreeMap::<String, Value>::new());
    for line in BufReader::new(query.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Ok((name, mut rows)) = serde_json::from_str::<(String, Vec<Value>)>(&line) else {
            continue;
        };
        if name == "running" {
            cluster.kill_worker();
            running = Some(rows.remove(0));
        } else {
            answers.insert(name, rows.remove(0));
        }
    }
    let status = query.wait().unwrap();
    assert!(status.success(), "{}", errors.join().unwrap());
    let running = running.expect("the query took long enough");
    let found = &answers["long"];
    figure!(
        "worker killed after {} of {} tasks of stage {}: {} flows, {} packets, {} octets, as sent; executors: {}",
        running["numCompletedTasks"],
        running["numTasks"],
        running["stageId"],
        found["flows"],
        found["packets"],
        found["octets"],
        answers["executors"]
    );
    let expected = serde_json::json!({
        "flows": COPIES * records.len() as u64, "packets": COPIES * packets, "octets": COPIES * octets,
    });
    assert_eq!(found, &expected);
    assert_eq!(answers["executors"]["lost"], 1, "{}", answers["executors"]);
}
