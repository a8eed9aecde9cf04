//! `--flows`: the records on disk against what was sent.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use linerate_testkit::{Namespace, Process, probe_or_skip, root_or_skip, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::support::{Cable, folder, numbers, read};
use crate::LINERATE;
use crate::flow_records::{files, number, records};

/// The header of a pcap file of Ethernet frames with microseconds.
pub(super) fn pcap_header() -> Vec<u8> {
    let mut file = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    file.extend(262_144_u32.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    file
}

/// A record of a UDP datagram from this port of 10.0.0.1 to port 53 of 10.0.0.2, or back.
pub(super) fn pcap_record(seconds: u32, port: u16, back: bool, payload: u16) -> Vec<u8> {
    let mut frame = vec![0; 42 + usize::from(payload)];
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[16..18].copy_from_slice(&(28 + payload).to_be_bytes());
    (frame[22], frame[23]) = (64, 17);
    let (one, two) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let (from, to, source, destination) =
        if back { (two, one, 53, port) } else { (one, two, port, 53) };
    frame[26..30].copy_from_slice(&from);
    frame[30..34].copy_from_slice(&to);
    frame[34..36].copy_from_slice(&source.to_be_bytes());
    frame[36..38].copy_from_slice(&destination.to_be_bytes());
    frame[38..40].copy_from_slice(&(8 + payload).to_be_bytes());
    let length = frame.len() as u32;
    let mut record = Vec::new();
    for field in [1_700_000_000 + seconds, 0, length, length] {
        record.extend(field.to_le_bytes());
    }
    record.extend(frame);
    record
}

#[test]
fn each_flow_of_a_file_has_its_packets_and_octets() {
    let folder = folder();
    let input = folder.path().join("in.pcap");
    let output = folder.path().join("flows");
    let mut file = pcap_header();
    // By port: packets and octets of both directions.
    let mut sent = BTreeMap::<u64, [u64; 4]>::new();
    for number in 0..20_000_u32 {
        let port = 1024 + (number * 7919 % 500) as u16;
        let (back, payload) = (number % 3 == 2, (number % 700) as u16);
        file.extend(pcap_record(number / 100, port, back, payload));
        let sums = sent.entry(port.into()).or_default();
        sums[if back { 2 } else { 0 }] += 1;
        sums[if back { 3 } else { 1 }] += 28 + u64::from(payload);
    }
    std::fs::write(&input, file).unwrap();
    // A table that is much too small loses nothing either.
    for max_flows in [262_144, 64] {
        let _ = std::fs::remove_dir_all(&output);
        let arguments = format!(
            "--flows {} --sensor edge-1 --max-flows {max_flows} --active-timeout 30s --json",
            output.display()
        );
        let done = read(&input, &arguments);
        let printed = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{printed}");
        let json: Value = serde_json::from_slice(&done.stdout).unwrap();
        let flows = &json["flows"];
        let rows = records(&output);
        assert_eq!((&flows["packets"], &flows["active"]), (&20_000.into(), &0.into()), "{json}");
        assert_eq!(flows["records"], rows.len(), "{json}");
        assert_eq!(flows["exported"], rows.len(), "{json}");
        assert_eq!(flows["overflow"].as_u64().unwrap() > 0, max_flows == 64, "{json}");
        let mut seen = BTreeMap::<u64, [u64; 4]>::new();
        for row in &rows {
            let forward = number(row, "destinationTransportPort") == 53;
            let port = number(
                row,
                if forward { "sourceTransportPort" } else { "destinationTransportPort" },
            );
            let mut counts = [
                "packetDeltaCount",
                "octetDeltaCount",
                "reversePacketDeltaCount",
                "reverseOctetDeltaCount",
            ]
            .map(|name| number(row, name));
            if !forward {
                counts.rotate_left(2);
            }
            let sums = seen.entry(port).or_default();
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        assert_eq!(seen, sent);
        let partition = output.join("date=2023-11-14/hour=22/sensor=edge-1");
        assert!(
            files(&output).iter().all(|path| path.starts_with(&partition)),
            "{:?}",
            files(&output)
        );
    }
}

#[test]
fn a_collector_and_files_get_the_same_records() {
    root_or_skip!();
    let missing = Command::new("nfcapd").arg("-V").output().is_err();
    probe_or_skip!(missing.then(|| "nfcapd is not installed".to_owned()));
    let (folder, namespace) = (folder(), Namespace::create("collector").unwrap());
    let path = |name| folder.path().join(name).to_str().unwrap().to_owned();
    let mut file = pcap_header();
    let (mut packets, mut octets) = (0_u64, 0);
    // Each port is a flow, and with the active timeout some of them have two records.
    for number in 0..60_000_u32 {
        let payload = (number % 700) as u16;
        file.extend(pcap_record(number / 500, 1024 + (number % 5_000) as u16, false, payload));
        packets += 1;
        octets += 28 + u64::from(payload);
    }
    std::fs::write(path("in.pcap"), file).unwrap();
    std::fs::create_dir(path("collected")).unwrap();
    let mut nfcapd = namespace.command_killed_with_parent("nfcapd");
    nfcapd.args(["-w", &path("collected"), "-p", "4739", "-b", "127.0.0.1", "-B", "4000000"]);
    let mut nfcapd = Process::start(&mut nfcapd);
    nfcapd.until("Startup nfcapd");
    let mut capture = namespace.command(LINERATE);
    capture.args(["capture", "-r", &path("in.pcap"), "--json", "--sensor", "edge-1"]);
    capture.args(["--flows", "ipfix://127.0.0.1", "--flows", &path("flows")]);
    // Nobody listens there.
    capture.args(["--flows", "ipfix+tcp://127.0.0.1:9", "--flows", "ipfix://127.0.0.1:9?uniflow"]);
    let done = capture.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(1), "{said}");
    let json: Value = serde_json::from_slice(&done.stdout).unwrap();
    let (_, _, printed) = nfcapd.end(Signal::SIGTERM);
    let rows = records(Path::new(&path("flows"))).len();
    assert!(rows > 5_000, "{json}");
    let [collector, absent, deaf] = [0, 1, 2].map(|n| &json["flows"]["collectors"][n]);
    assert_eq!(
        (&collector["records"], &collector["not_sent"]),
        (&rows.into(), &0.into()),
        "{json}"
    );
    assert_eq!((&absent["records"], &absent["not_sent"]), (&0.into(), &rows.into()), "{json}");
    assert!(deaf["refused"].as_u64() > Some(0), "{json}");
    assert!(
        said.contains(&format!("{rows} records not sent to ipfix+tcp://127.0.0.1:9")),
        "{said}"
    );
    assert!(said.contains("refused by ipfix://127.0.0.1:9?uniflow"), "{said}");
    let line = format!(
        "Flows: {rows}, Packets: {packets}, Bytes: {octets}, Sequence Errors: 0, Bad Packets: 0"
    );
    assert!(printed.contains(&line), "expected {line}\n{printed}");
}

#[test]
fn kill_leaves_readable_files_without_doubles_and_the_next_capture_counts_it() {
    let folder = folder();
    let run = |stdin: Stdio| {
        let mut command = Command::new(LINERATE);
        command.args([
            "capture",
            "-r",
            "-",
            "--sensor",
            "edge-1",
            "--flow-file-time",
            "1s",
            "--json",
        ]);
        command.args(["--flows".as_ref(), folder.path().as_os_str()]);
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut capture = run(Stdio::piped());
    let mut input = capture.stdin.take().unwrap();
    input.write_all(&pcap_header()).unwrap();
    let mut second = 0;
    wait_for("two complete files", || {
        // Each second a flow of its own; the ones before end by the idle timeout.
        for _ in 0..100 {
            input.write_all(&pcap_record(second, (1024 + second) as u16, false, 10)).unwrap();
            second += 1;
        }
        input.flush().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        files(folder.path()).len() >= 2
    });
    capture.kill().unwrap();
    capture.wait().unwrap();
    // No record is there twice, and none is missing between others.
    let flows = || {
        let mut ports: Vec<_> = records(folder.path())
            .iter()
            .map(|row| number(row, "sourceTransportPort"))
            .filter(|port| *port != 9)
            .collect();
        ports.sort_unstable();
        assert_eq!(ports, (1024..1024 + ports.len() as u64).collect::<Vec<_>>());
        ports.len()
    };
    let before = flows();

    let mut next = run(Stdio::piped());
    let mut input = next.stdin.take().unwrap();
    input.write_all(&[pcap_header(), pcap_record(0, 9, false, 1)].concat()).unwrap();
    drop(input);
    let done = next.wait_with_output().unwrap();
    let json: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(
        (&json["flows"]["interruptions"], &json["flows"]["records"]),
        (&1.into(), &1.into()),
        "{json}"
    );
    let printed = String::from_utf8_lossy(&done.stderr);
    assert!(printed.contains("interrupted: its flows that had not ended are missing"), "{printed}");
    // Files that were complete at the kill get their names from the next capture.
    let (after, all) = (flows(), records(folder.path()).len());
    assert!(after >= before, "{after} of {before}");
    assert_eq!(all, after + 1);
}

#[test]
fn a_live_capture_meters_beside_the_file_and_instead_of_it() {
    root_or_skip!();
    let cable = Cable::new();
    for (source, file) in [("packet", true), ("packet", false), ("tee", true)] {
        let folder = folder();
        let path = folder.path().join("out.pcapng");
        let mut arguments =
            format!("--source {source} --flows {} --json -s 100 udp", folder.path().display());
        if file {
            arguments += &format!(" -w {}", path.display());
        }
        let arguments = arguments.replace(" udp", "") + " udp";
        let capture = cable.capture(&arguments);
        cable.send(1000, 400);
        let (status, json, printed) = capture.interrupt();
        assert!(status.success(), "{printed}");
        assert_eq!(json["flows"]["packets"], 1000, "{json}");
        let rows = records(folder.path());
        let sum = |name| rows.iter().map(|row| number(row, name)).sum::<u64>();
        assert_eq!(
            (sum("packetDeltaCount"), sum("octetDeltaCount")),
            (1000, 1000 * 428),
            "{source}"
        );
        assert!(rows.iter().all(|row| number(row, "sourceTransportPort") == 4000));
        if file {
            assert_eq!(numbers(&path).len(), 1000);
        }
    }
}

#[test]
fn a_capture_warns_if_the_directions_of_a_flow_may_reach_two_readers() {
    root_or_skip!();
    let cable = Cable::with_queues(2);
    // A veth does not show its hash.
    for (options, warning) in [
        ("--source packet --threads 2", None),
        ("--source packet --threads 2 --fanout lb", Some("--fanout lb does not keep")),
        ("--source tee --threads 2", Some("does not show its receive hash")),
        ("--source tee", None),
    ] {
        let folder = folder();
        let capture =
            cable.capture(&format!("{options} --flows {} --json", folder.path().display()));
        let (status, _, printed) = capture.interrupt();
        assert!(status.success(), "{options}: {printed}");
        let found = printed.contains("each direction has its own flow record");
        assert_eq!(found, warning.is_some(), "{options}: {printed}");
        assert!(printed.contains(warning.unwrap_or_default()), "{options}: {printed}");
    }
}

#[test]
fn two_captures_of_one_sensor_and_wrong_names_are_refused() {
    let folder = folder();
    let input = folder.path().join("in.pcap");
    std::fs::write(&input, pcap_header()).unwrap();
    let refused = |arguments: &str| {
        let done = read(&input, arguments);
        assert!(!done.status.success(), "{arguments}");
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let output = folder.path().join("flows");
    let why = refused(&format!("--flows {} --sensor ../x", output.display()));
    assert!(why.contains("not a valid sensor name"), "{why}");
    refused("--sensor x");
    std::fs::create_dir(&output).unwrap();
    let state = File::create(output.join(".sensor=x")).unwrap();
    state.lock().unwrap();
    let why = refused(&format!("--flows {} --sensor x", output.display()));
    assert!(why.contains("another meter"), "{why}");
    let why = refused("--flows s3://bucket/x");
    assert!(why.contains("linerate flows ship"), "{why}");
    let why = refused("--flows 127.0.0.1:4739");
    assert!(why.contains("ipfix://127.0.0.1:4739"), "{why}");
    // What is refused leaves nothing that the next capture takes for an interruption.
    let twice = folder.path().join("twice");
    let why = refused(&format!("--flows {0} --flows {0}", twice.display()));
    assert!(why.contains("given twice"), "{why}");
    refused(&format!("--flows {} --flows ipfix+tls://127.0.0.1?ca=/nonexistent", twice.display()));
    assert!(!twice.exists());
    let done = read(&input, &format!("--flows {} --json", twice.display()));
    let json: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(json["flows"]["interruptions"], 0, "{json}");
}

#[test]
fn a_capture_of_an_unknown_collector_says_so_at_its_start() {
    // No name has a label of more than 63 octets, so nobody asks a name server.
    let target = format!("ipfix://{}.invalid", "a".repeat(64));
    let mut command = Command::new(LINERATE);
    command.args(["capture", "-r", "-", "--flows", &target]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut capture = command.spawn().unwrap();
    let mut input = capture.stdin.take().unwrap();
    input.write_all(&pcap_header()).unwrap();
    // It still waits for packets.
    let mut lines = BufReader::new(capture.stderr.take().unwrap()).lines().map(Result::unwrap);
    let warning = lines.find(|line| line.contains(&format!("{target}:4739: "))).expect("a warning");
    assert!(warning.contains("it is tried again"), "{warning}");
    drop(input);
    assert!(capture.wait().unwrap().success());
}

#[test]
fn several_days_of_records_need_few_open_files() {
    let folder = folder();
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("flows"));
    let records_of = |hour: u32| pcap_record(hour * 3600, 1024 + hour as u16, false, 1);
    let file = (0..100).flat_map(records_of);
    std::fs::write(&input, pcap_header().into_iter().chain(file).collect::<Vec<_>>()).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64 && exec \"$@\"", "sh", LINERATE, "capture", "-r"]);
    let done = command.arg(&input).arg("--flows").arg(&output).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(records(&output).len(), 100);
}

#[test]
fn root_writes_records_into_a_folder_of_another_user() {
    root_or_skip!();
    let folder = folder();
    let input = folder.path().join("in.pcap");
    std::fs::write(&input, [pcap_header(), pcap_record(0, 9, false, 1)].concat()).unwrap();
    let output = folder.path().join("flows");
    std::fs::create_dir(&output).unwrap();
    std::os::unix::fs::chown(&output, Some(65_534), Some(65_534)).unwrap();
    let done = read(&input, &format!("--flows {}", output.display()));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(records(&output).len(), 1);
}
