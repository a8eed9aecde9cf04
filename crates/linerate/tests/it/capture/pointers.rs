//! The packets that flow records point at, against all packets of the files.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;

use linerate_pcapfile::BlockReader;
use linerate_testkit::root_or_skip;
use parquet::record::{Field, Row};
use serde_json::Value;

use super::flows::{pcap_header, pcap_record};
use super::support::{Cable, folder, listening, read};
use crate::LINERATE;
use crate::flow_records::{field, number, records};

/// A packet in a file.
#[derive(Debug)]
struct Packet {
    file: PathBuf,
    /// The offsets of its record in the uncompressed file.
    offsets: (u64, u64),
    time: u64,
    /// The port of its flow.
    port: u64,
}

/// All packets of the files in a folder whose names begin with this name, in the order of the files.
fn packets(folder: &Path, name: &str) -> Vec<Packet> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_one = |path: &PathBuf| {
        path.is_file() && path.file_name().unwrap().to_str().unwrap().starts_with(name)
    };
    let mut files: Vec<_> = names.filter(is_one).collect();
    files.sort();
    let mut packets = Vec::new();
    for file in files {
        let mut reader = BlockReader::open(&file).unwrap();
        let mut at = 0;
        while let Some((block, _)) = reader.next().unwrap() {
            let offsets = (at, at + block.bytes.len() as u64);
            at = offsets.1;
            let Some(record) = block.record else { continue };
            let bytes = record.frame.head();
            let port = |at: usize| u64::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
            let port = if port(34) < 1024 { port(36) } else { port(34) };
            let time = record.frame.timestamp.unwrap().0;
            packets.push(Packet { file: file.clone(), offsets, time, port });
        }
    }
    packets
}

fn offset(row: &Row, name: &str) -> Option<u64> {
    match field(row, name) {
        Field::ULong(value) => Some(*value),
        Field::Null => None,
        other => panic!("{name}: {other:?}"),
    }
}

fn time(row: &Row, name: &str) -> u64 {
    match field(row, name) {
        Field::Long(value) => (*value).try_into().unwrap(),
        other => panic!("{name}: {other:?}"),
    }
}

/// Checks that each record points at the first and the last packet of its flow in a file. Returns how many packets of
/// records are in no file.
fn check_locations(rows: &[Row], packets: &[Packet]) -> u64 {
    let mut by_port = BTreeMap::<u64, Vec<&Packet>>::new();
    packets.iter().for_each(|packet| by_port.entry(packet.port).or_default().push(packet));
    let (mut pointed, mut metered) = (0, 0);
    for row in rows {
        let port = number(row, "sourceTransportPort").max(number(row, "destinationTransportPort"));
        let times = time(row, "flowStartNanoseconds")..=time(row, "flowEndNanoseconds");
        metered += number(row, "packetDeltaCount") + number(row, "reversePacketDeltaCount");
        let own = by_port.get(&port).map_or(&[][..], |packets| packets);
        let own: Vec<_> = own.iter().filter(|packet| times.contains(&packet.time)).collect();
        pointed += own.len() as u64;
        let (Some(first), Some(last)) = (own.first(), own.last()) else {
            assert_eq!(*field(row, "packetFile"), Field::Null, "{row}");
            assert_eq!((offset(row, "packetOffset"), offset(row, "packetEnd")), (None, None));
            continue;
        };
        assert_eq!(
            *field(row, "packetFile"),
            Field::Str(first.file.display().to_string()),
            "{row}"
        );
        let (begin, end) = (offset(row, "packetOffset").unwrap(), offset(row, "packetEnd"));
        assert_eq!(end.is_some(), last.file == first.file, "{row}");
        let (begins, ends) = (first.offsets.0, last.offsets.1.next_multiple_of(4096));
        assert_eq!((begin, end.unwrap_or(ends)), (begins, ends), "{row}");
    }
    assert_eq!(pointed, packets.len() as u64, "a packet of no record");
    metered - pointed
}

/// A file of 20,000 packets of 500 flows.
fn write_input(path: &Path, packets_a_second: u32) {
    let mut file = pcap_header();
    for number in 0..20_000_u32 {
        let port = 1024 + (number * 7919 % 500) as u16;
        let (back, payload) = (number % 3 == 2, (number % 700) as u16);
        file.extend(pcap_record(number / packets_a_second, port, back, payload));
    }
    std::fs::write(path, file).unwrap();
}

#[test]
fn records_point_at_their_packets_in_the_file_that_is_read_or_written() {
    let folder = folder();
    let input = folder.path().join("in.pcap");
    write_input(&input, 100);
    let copies = [
        // The input, and outputs whose blocks are copied, converted, rotated, and compressed.
        ("in.pcap", ""),
        ("same", "-w same.pcap"),
        ("other", "-w other.pcapng"),
        ("old", "-w old.pcap -C 1M"),
        ("ring", "-w ring.pcapng -b packets:333"),
        ("short", "-w short.pcapng -b duration:7"),
        ("packed", "-w packed.pcapng.zst"),
        ("filtered", "-w filtered.pcap -s 50 portrange 1100-1400"),
        ("beginning", "-w beginning.pcapng -b filesize:100 --cutoff 3000"),
        ("first", "-w first.pcap --cutoff 3000"),
    ];
    for (name, arguments) in copies {
        let output = folder.path().join(format!("flows-{name}"));
        let arguments = arguments.replace("-w ", &format!("-w {}/", folder.path().display()));
        let words = format!("--flows {} --active-timeout 30s --json {arguments}", output.display());
        let done = read(&input, &words);
        assert!(done.status.success(), "{name}: {done:?}");
        let json: Value = serde_json::from_slice(&done.stdout).unwrap();
        let (rows, packets) = (records(&output), packets(folder.path(), name));
        let files: Vec<_> = packets.iter().map(|packet| &packet.file).collect();
        assert_eq!(
            files.iter().any(|file| file != &files[0]),
            words.contains(" -b") || words.contains("-C")
        );
        let left_out = check_locations(&rows, &packets);
        assert_eq!(json["dropped"]["cutoff"], left_out, "{name}: {json}");
        assert_eq!(left_out > 0, words.contains("--cutoff"), "{name}");
        assert_eq!(json["captured"], packets.len(), "{name}: {json}");
        assert_eq!(json["flows"]["packets"], packets.len() as u64 + left_out, "{name}: {json}");
    }
    // Pipes and standard output can be read only once.
    for (number, place) in ["-", "/dev/null"].into_iter().enumerate() {
        let output = folder.path().join(format!("flows-nowhere-{number}"));
        let done = read(&input, &format!("--flows {} -w {place}", output.display()));
        assert!(done.status.success(), "{done:?}");
        let rows = records(&output);
        assert!(rows.iter().all(|row| *field(row, "packetFile") == Field::Null));
    }
}

#[test]
fn records_do_not_point_at_what_a_full_disk_left_out() {
    let folder = folder();
    let input = folder.path().join("in.pcap");
    write_input(&input, 100);
    for name in ["full.pcap", "full.pcapng"] {
        let output = folder.path().join(format!("flows-{name}"));
        // In units of 512 bytes.
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 160; exec \"$@\"", "sh", LINERATE, "capture", "-q", "-r"]);
        command.arg(&input).arg("-w").arg(folder.path().join(name)).arg("--flows").arg(&output);
        let done = command.args(["--json", "--active-timeout", "30s"]).output().unwrap();
        assert_eq!(done.status.code(), Some(1), "{name}: {done:?}");
        let json: Value = serde_json::from_slice(&done.stdout).unwrap();
        let (rows, packets) = (records(&output), packets(folder.path(), name));
        assert!(!packets.is_empty() && json["captured"] == packets.len(), "{name}: {json}");
        let length = packets.last().unwrap().offsets.1.next_multiple_of(4096);
        let mut without = 0;
        for row in &rows {
            let [one, other] =
                ["sourceTransportPort", "destinationTransportPort"].map(|name| number(row, name));
            let (port, begins) = (one.max(other), time(row, "flowStartNanoseconds"));
            let times = begins..=time(row, "flowEndNanoseconds");
            let of_row = |packet: &&Packet| packet.port == port && times.contains(&packet.time);
            let own: Vec<_> = packets.iter().filter(of_row).collect();
            let place = offset(row, "packetOffset").zip(offset(row, "packetEnd"));
            let Some((first, last)) = own.first().zip(own.last()) else {
                assert_eq!((place, field(row, "packetFile")), (None, &Field::Null), "{row}");
                without += 1;
                continue;
            };
            let (begin, end) = place.expect("a place");
            assert_eq!(begin, first.offsets.0, "{row}");
            assert!((last.offsets.1..=length).contains(&end), "{row}: {length}");
        }
        assert!(without > 0, "{name}: {json}");
    }
}

#[test]
fn a_limit_of_packets_ends_metering_too() {
    let folder = folder();
    let input = folder.path().join("in.pcap");
    write_input(&input, 1000);
    for (number, arguments) in ["-c 780", "-c 780 --cutoff 300"].into_iter().enumerate() {
        let output = folder.path().join(format!("flows-{number}"));
        let done = read(&input, &format!("--flows {} --json {arguments}", output.display()));
        let json: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(json["captured"], 780, "{json}");
        assert_eq!(json["dropped"]["cutoff"].as_u64() > Some(0), number == 1, "{json}");
        assert_eq!(json["flows"]["packets"], json["received"], "{json}");
    }
}

/// Sends `each` datagrams on each of 40 ports in turn, on one of them only `short`.
fn send(cable: &Cable, each: u32, short: u32) {
    let bind = |port: u16| UdpSocket::bind(("10.9.0.1", port)).unwrap();
    let sockets: Vec<_> =
        cable.near.run(|| (0..40).map(|port| bind(4000 + port)).collect()).unwrap();
    for round in 0..each {
        for (number, socket) in sockets.iter().enumerate() {
            if number > 0 || round < short {
                socket.send_to(&[7; 400], "10.9.0.2:500").unwrap();
            }
        }
        std::thread::sleep(std::time::Duration::from_micros(500));
    }
}

#[test]
fn records_of_a_live_capture_point_at_their_packets() {
    root_or_skip!();
    let cable = Cable::new();
    for (rotation, files) in [
        ("", false),
        ("-b packets:1000", true),
        ("--threads 2 --per-thread-files", true),
        ("--threads 2 --per-thread-files -b packets:500", true),
    ] {
        let folder = folder();
        let words = format!(
            "--source packet -w {0}/out.pcapng --flows {0}/flows {rotation} --json udp",
            folder.path().display()
        );
        let capture = cable.capture(&words);
        send(&cable, 100, 2);
        let (status, json, printed) = capture.interrupt();
        assert!(status.success(), "{printed}");
        let (rows, packets) =
            (records(&folder.path().join("flows")), packets(folder.path(), "out"));
        assert_eq!((packets.len(), &json["flows"]["packets"]), (3902, &3902.into()), "{json}");
        assert_eq!(packets[0].file != packets[3901].file, files);
        assert_eq!(check_locations(&rows, &packets), 0);
    }
}

#[test]
fn records_of_several_readers_point_into_their_one_file() {
    root_or_skip!();
    let cable = Cable::new();
    for rotation in ["", "-b packets:1000"] {
        let folder = folder();
        let [near, far] = [&cable.near, &cable.far].map(|namespace| namespace.name().to_owned());
        let mut command = cable.far.command(LINERATE);
        command.args(["capture", "--netns", &near, "--netns", &far, "-i", "any", "--json", "udp"]);
        command.args(["-w".as_ref(), folder.path().join("out.pcapng").as_os_str()]);
        command.args(["--flows".as_ref(), folder.path().join("flows").as_os_str()]);
        command.args(rotation.split_whitespace());
        let mut capture = listening(&mut command);
        capture.until(&format!("listening on {far}/far"));
        send(&cable, 100, 2);
        let (status, json, printed) = capture.interrupt();
        assert!(status.success(), "{printed}");
        let packets = packets(folder.path(), "out");
        assert_eq!((packets.len(), &json["flows"]["packets"]), (7804, &7804.into()), "{json}");
        // Each packet was seen on both interfaces: the records of one have half of them.
        let rows = records(&folder.path().join("flows"));
        for name in [format!("{near}/near"), format!("{far}/far")] {
            let own: Vec<_> = rows
                .iter()
                .filter(|row| *field(row, "interfaceName") == Field::Str(name.clone()))
                .cloned()
                .collect();
            assert_eq!(own.iter().map(|row| number(row, "packetDeltaCount")).sum::<u64>(), 3902);
            check_merged_locations(&own, &packets);
        }
    }
}

/// Checks that records point at a part of the files with all their packets. It may have packets of other readers, too.
fn check_merged_locations(rows: &[Row], packets: &[Packet]) {
    let order = |file: &Path| packets.iter().position(|packet| packet.file == file).unwrap();
    for row in rows {
        let port = number(row, "sourceTransportPort");
        let times = [time(row, "flowStartNanoseconds"), time(row, "flowEndNanoseconds")];
        let Field::Str(file) = field(row, "packetFile") else { panic!("{row}") };
        let (begin, end) = (offset(row, "packetOffset").unwrap(), offset(row, "packetEnd"));
        let of_flow = |packet: &&Packet| packet.port == port && times.contains(&packet.time);
        let mut seen = 0;
        for packet in packets.iter().filter(of_flow) {
            seen += 1;
            match order(&packet.file).cmp(&order(file.as_ref())) {
                std::cmp::Ordering::Equal => {
                    assert!(begin <= packet.offsets.0, "{row}: {packet:?}");
                    assert!(end.is_none_or(|end| packet.offsets.1 <= end), "{row}: {packet:?}");
                }
                std::cmp::Ordering::Greater => assert_eq!(end, None, "{row}: {packet:?}"),
                std::cmp::Ordering::Less => panic!("{row} is behind {packet:?}"),
            }
        }
        assert!(seen >= 2 || times[0] == times[1], "{row}");
    }
}

#[test]
fn a_live_cutoff_leaves_packets_out_of_the_file_and_not_out_of_the_records() {
    root_or_skip!();
    let cable = Cable::new();
    for (source, limit) in [("packet", ""), ("tee", ""), ("packet", "-c 50")] {
        let folder = folder();
        let words = format!(
            "--source {source} -w {0}/out.pcapng --flows {0}/flows --cutoff 2000 {limit} --json udp",
            folder.path().display()
        );
        let capture = cable.capture(&words);
        send(&cable, 100, 2);
        let json = if limit.is_empty() { capture.stop() } else { capture.report() };
        let (rows, packets) =
            (records(&folder.path().join("flows")), packets(folder.path(), "out"));
        let left_out = check_locations(&rows, &packets);
        assert_eq!(json["dropped"]["cutoff"], left_out, "{json}");
        let captured = if limit.is_empty() { 39 * 5 + 2 } else { 50 };
        assert_eq!((&json["captured"], packets.len()), (&captured.into(), captured), "{json}");
        if limit.is_empty() {
            assert_eq!(captured as u64 + left_out, 3902, "{json}");
        }
    }
}
