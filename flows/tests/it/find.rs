//! The packets behind records are those of tcpdump.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use linerate_flow::community_id::community_id;
use linerate_flow::{EndReason, FlowKey, FlowRecord};
use linerate_pcapfile::{
    BlockReader, Compression, Encoder, Format, InterfaceDescription, PacketLocation, Record,
    SectionHeader, Writer,
};
use linerate_wire::frame::{Frame, Timestamp};

use crate::support::{
    START, answer, frame, key, meter, packets, parquet, run, tcpdump, traffic, v4, write,
};

const PACKETS: u64 = 20_000;

/// Names as `-b` gives them.
const NAMES: [&str; 2] = ["a_00001_20231114221320.pcapng", "a_00002_20231114221330.pcapng"];

#[test]
fn the_packets_of_a_filter_are_those_of_tcpdump_over_all_files() {
    let folder = tempfile::tempdir().unwrap();
    let frames = traffic(PACKETS, true);
    let half = frames.len() / 2;
    let files: [PathBuf; 2] = NAMES.map(|name| folder.path().join(name));
    write(&files[0], &frames[..half], START);
    write(&files[1], &frames[half..], START + half as u64 * 1_000_000);
    let location = folder.path().join("flows/1.parquet");
    parquet(&location, &meter(&files));
    let (location, out) = (location.to_str().unwrap(), folder.path().join("out.pcapng"));
    for filter in [
        "host 10.0.0.3",
        "src host 10.0.0.3",
        "host 2001:db8::3 and tcp",
        "tcp port 80 and not src net 10.0.0.0/28",
        "udp and not port 1025",
        "vlan 7 and host 10.0.0.5",
        "ip and not tcp",
        "not (host 10.0.0.3 or not udp)",
    ] {
        answer(&["find", "-r", location, "-w", out.to_str().unwrap(), filter]);
        // Behind `vlan`, libpcap looks for IP behind the tag.
        let of_ip = format!("({filter}) and (ip or ip6)");
        let expected = tcpdump(&files, &of_ip, folder.path());
        assert!(!expected.is_empty(), "{filter}");
        assert!(packets(&out) == expected, "{filter}");
    }
    // An address alone, and a range of time.
    let range = ["--after", "1700000009.990", "--before", "1700000010.010"];
    let words = ["find", "-r", location, "-w", out.to_str().unwrap()];
    answer(&[&words[..], &range, &["10.0.0.3"]].concat());
    let inside =
        |(time, _): &(u64, Vec<u8>)| (START + 9_990_000_000..START + 10_010_000_000).contains(time);
    let mut expected = tcpdump(&files, "host 10.0.0.3", folder.path());
    expected.retain(inside);
    assert_eq!(packets(&out), expected);

    // The files have moved.
    let elsewhere = tempfile::tempdir().unwrap();
    for file in &files {
        fs::rename(file, elsewhere.path().join(file.file_name().unwrap())).unwrap();
    }
    let output = run(&[&words[..], &["10.0.0.3"]].concat());
    assert!(String::from_utf8_lossy(&output.stderr).contains("--packets"));
    answer(&[&words[..], &["--packets", elsewhere.path().to_str().unwrap(), "10.0.0.3"]].concat());
    assert!(!packets(&out).is_empty());
}

#[test]
fn only_the_parts_of_a_file_are_read_that_records_point_at() {
    let folder = tempfile::tempdir().unwrap();
    let mut frames = traffic(PACKETS, false);
    // Both flows of this host are short, and far from each other.
    let host = |n: usize| frame(v4(200), v4(60), 17, (5, n as u16), None, 10);
    for at in [3_000, 3_001, 15_000, 15_002] {
        frames[at] = host(at / 10_000);
    }
    let file = folder.path().join("a.pcapng");
    write(&file, &frames, START);
    let location = folder.path().join("1.parquet");
    parquet(&location, &meter(std::slice::from_ref(&file)));
    let out = folder.path().join("out.pcapng");
    let output =
        run(&["find", "-r", location.to_str().unwrap(), "-w", out.to_str().unwrap(), "10.0.0.200"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(packets(&out), tcpdump(&[file], "host 10.0.0.200", folder.path()));
    let words: Vec<_> = said.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "read").expect("what was read is said");
    let (read, all): (u64, u64) = (words[at + 1].parse().unwrap(), words[at + 3].parse().unwrap());
    assert!(read * 20 < all, "{said}");
}

#[test]
fn a_search_takes_filters_of_packets_as_tcpdump_does() {
    let folder = tempfile::tempdir().unwrap();
    let (files, location) = two_files(folder.path(), NAMES);
    let out = folder.path().join("out.pcapng");
    for filter in [
        "tcp[13] & (tcp-syn|tcp-ack) = 0 and port 80",
        "udp[0:2] > 1024",
        "greater 100",
        "host 10.0.0.3 and not less 100",
        "ether host 02:00:00:00:00:01",
        "host 10.0.0.3 and (ip[8] = 64 or ether multicast)",
        "ip[9] - 5 = 1 or (ip[0] & 0xf) + 1 > 9",
        "len >= 80 and not src net 10.0.0.0/28",
    ] {
        let words = ["find", "-r", &location, "-w", out.to_str().unwrap(), filter];
        answer(&words);
        let expected = tcpdump(&files, &format!("({filter}) and (ip or ip6)"), folder.path());
        assert!(!expected.is_empty(), "{filter}");
        assert!(packets(&out) == expected, "{filter}");
    }
    let words = ["find", "-r", &location, "-w", out.to_str().unwrap()];
    let said = |filter: &str| {
        let output = run(&[&words[..], &[filter]].concat());
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, error) = said("greater 100");
    assert!(status == Some(0) && error.contains("such as ARP, are not searched"), "{error}");
    let (status, error) = said("tcp[tcpflags] & tcp-syn != 0");
    assert!(status == Some(0) && error.contains("may match"), "{error}");
    let (status, error) = said("greter 100");
    assert!(status == Some(1) && error.contains("libpcap refuses"), "{error}");
}

#[test]
fn a_community_id_finds_the_packets_of_its_flow_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (files, location) = two_files(folder.path(), NAMES);
    let out = folder.path().join("out.pcapng");
    let records = meter(&files);
    let mut found = 0;
    for record in records.iter().step_by(7) {
        let key = &record.key;
        let Some(id) = community_id(key) else { continue };
        let words = ["find", "-r", &location, "-w", out.to_str().unwrap(), "--community-id", &id];
        answer(&words);
        let FlowKey { source: a, destination: b, protocol, .. } = key;
        let ports = key.source_port.zip(key.destination_port);
        let (from, to) = ports.expect("TCP and UDP have ports");
        let filter = format!(
            "proto {protocol} and ((src host {a} and dst host {b} and src port {from} and dst port {to}) \
             or (src host {b} and dst host {a} and src port {to} and dst port {from}))"
        );
        let expected = tcpdump(&files, &filter, folder.path());
        assert!(packets(&out) == expected && !expected.is_empty(), "{filter}");
        found += expected.len();
        // The filter selects among them.
        answer(&[&words[..], &["greater 5000"]].concat());
        assert_eq!(packets(&out), []);
        let sum = answer(&["flows", "sum", "-r", &location, "--json", "--community-id", &id]);
        let packets = format!("\"packets\":{}", expected.len());
        assert!(sum.contains(&packets), "{sum}");
    }
    assert!(found > 20, "{found}");
    let output = run(&["find", "-r", &location, "-w", "-", "--community-id", "1:abc"]);
    assert_eq!(output.status.code(), Some(2));
    let output = run(&["find", "-r", &location, "-w", "-"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--community-id"));
}

#[test]
fn the_interfaces_of_a_result_name_the_sensors() {
    let folder = tempfile::tempdir().unwrap();
    let frames = traffic(200, false);
    for sensor in ["a", "b"] {
        let file = folder.path().join(format!("{sensor}.pcapng"));
        write(&file, &frames, START);
        let location = folder.path().join(format!("flows/sensor={sensor}/1.parquet"));
        parquet(&location, &meter(&[file]));
    }
    let (location, out) = (folder.path().join("flows"), folder.path().join("out.pcapng"));
    answer(&["find", "-r", location.to_str().unwrap(), "-w", out.to_str().unwrap(), "ip or ip6"]);
    let mut reader = BlockReader::open(&out).unwrap();
    let mut packets = [0, 0];
    while let Some((block, interfaces)) = reader.next().unwrap() {
        let Some(record) = block.record else { continue };
        let interface = &interfaces[record.interface as usize];
        let name = interface.description.as_deref();
        let sensor = ["sensor a", "sensor b"].iter().position(|one| Some(*one) == name);
        packets[sensor.unwrap_or_else(|| panic!("{interface:?}"))] += 1;
    }
    assert_eq!(packets, [200, 200]);
}

/// Two packet files in a folder, and the records of their packets.
fn two_files(folder: &Path, names: [&str; 2]) -> ([PathBuf; 2], String) {
    let frames = traffic(200, false);
    let files = names.map(|name| folder.join(name));
    write(&files[0], &frames[..100], START);
    write(&files[1], &frames[100..], START + 100_000_000);
    let location = folder.join("flows/1.parquet");
    parquet(&location, &meter(&files));
    (files, location.to_str().unwrap().to_owned())
}

/// What `find` of everything says when it fails.
fn refusal(location: &str, out: &Path) -> String {
    let output = run(&["find", "-r", location, "-w", out.to_str().unwrap(), "ip or ip6"]);
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_packet_file_that_is_read_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let (files, location) = two_files(folder.path(), NAMES);
    let (hard, symbolic) = (folder.path().join("hard"), folder.path().join("symbolic.pcapng"));
    fs::hard_link(&files[1], &hard).unwrap();
    std::os::unix::fs::symlink(&files[0], &symbolic).unwrap();
    let records = PathBuf::from(&location);
    let before = [&files[0], &files[1], &records].map(|file| fs::read(file).unwrap());
    for out in [&files[0], &files[1], &hard, &symbolic] {
        let said = refusal(&location, out);
        assert!(said.contains("would be emptied before it is read"), "{said}");
    }
    // A packet file of other records.
    let words = ["find", "-r", &location, "-w", files[0].to_str().unwrap()];
    let output = run(&[&words[..], &["192.0.2.1"]].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("would be emptied"), "{said}");
    // The records would be lost, too.
    let said = refusal(&location, &records);
    assert!(said.contains("flow records"), "{said}");
    assert_eq!([&files[0], &files[1], &records].map(|file| fs::read(file).unwrap()), before);
}

#[test]
fn names_that_promise_another_format_are_refused_and_an_empty_result_is_a_file_for_tcpdump() {
    let folder = tempfile::tempdir().unwrap();
    let (_, location) = two_files(folder.path(), NAMES);
    for name in ["f.pcap", "f.CAP", "f.pcapng.zst", "f.pcapng.gz", "f.lz4", "f.xz"] {
        let out = folder.path().join(name);
        let said = refusal(&location, &out);
        assert!(said.contains("find writes pcapng, uncompressed") && said.contains(name), "{said}");
        assert!(!out.exists(), "{name}");
    }
    let out = folder.path().join("none.pcapng");
    answer(&["find", "-r", &location, "-w", out.to_str().unwrap(), "192.0.2.1"]);
    let read = Command::new("tcpdump").arg("-r").arg(&out).output().unwrap();
    let said = String::from_utf8_lossy(&read.stderr);
    assert!(read.status.success() && said.contains("EN10MB"), "{said}");
    assert!(read.stdout.is_empty());
}

/// Files that follow each other, of as many packets, and the location of their records.
fn rotated(folder: &Path, names: &[&str], packets: u64, start: u64) -> (Vec<PathBuf>, String) {
    let frames = traffic(packets * names.len() as u64, false);
    let files: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
    for (n, (file, frames)) in files.iter().zip(frames.chunks(packets as usize)).enumerate() {
        let start = start + n as u64 * packets * 1_000_000;
        if !file.to_string_lossy().contains(".pcapng") {
            let pcapng = folder.join("pcapng");
            write(&pcapng, frames, start);
            tcpdump_copy(&pcapng, file);
            fs::remove_file(pcapng).unwrap();
        } else {
            write(file, frames, start);
        }
    }
    let location = folder.join("flows/1.parquet");
    parquet(&location, &meter(&files));
    (files, location.to_str().unwrap().to_owned())
}

fn tcpdump_copy(from: &Path, to: &Path) {
    let mut command = Command::new("tcpdump");
    let output = command.arg("-r").arg(from).arg("-w").arg(to).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// `find` with `--json`: its exit status, the counts, and what it says.
fn counts(location: &str, out: &Path, filter: &str) -> (Option<i32>, serde_json::Value, String) {
    let output = run(&["find", "--json", "-r", location, "-w", out.to_str().unwrap(), filter]);
    let said = String::from_utf8(output.stderr).unwrap();
    let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    (output.status.code(), json, said)
}

/// What tcpdump finds in files, in the order of time, without files that are gone.
fn expected(files: &[PathBuf], filter: &str, folder: &Path) -> Vec<(u64, Vec<u8>)> {
    let there: Vec<PathBuf> = files.iter().filter(|file| file.exists()).cloned().collect();
    let mut packets = tcpdump(&there, filter, folder);
    packets.sort_by_key(|(time, _)| *time);
    packets
}

#[test]
fn later_files_are_found_by_the_names_of_each_kind_of_rotation() {
    for names in [
        // -C
        &["r.pcapng", "r.pcapng1", "r.pcapng2", "r.pcapng3"][..],
        &["r.pcap", "r.pcap1", "r.pcap2"],
        &["plain", "plain1", "plain2"],
        // -C -W
        &["r.pcapng00", "r.pcapng01", "r.pcapng02", "r.pcapng03"],
        // -G, with -C, and without enough of the time in the name
        &["f-235959.pcapng", "f-000000.pcapng", "f-000000.pcapng1", "f-000001.pcapng"],
        &["f-Mon.pcap", "f-Mon.pcap1", "f-Tue.pcap"],
        // -b
        &["f_00001_20231114221320.pcapng", "f_00002_20231114221321.pcapng"],
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (files, location) = rotated(folder.path(), names, 1000, START);
        // Neither these packets nor their number come into the result.
        let other = folder.path().join("other.pcapng");
        write(&other, &traffic(5000, false), START);
        let out = folder.path().join("out.pcapng");
        for filter in ["host 10.0.0.3", "ip6 and tcp port 80"] {
            let (status, counts, said) = counts(&location, &out, filter);
            assert_eq!(status, Some(0), "{names:?}: {said}");
            let expected = expected(&files, filter, folder.path());
            assert!(!expected.is_empty());
            assert!(packets(&out) == expected, "{names:?} {filter}: {counts}");
            let total: u64 = files.iter().map(|file| file.metadata().unwrap().len()).sum();
            assert_eq!(counts["bytes_total"], total, "{names:?}");
            assert!(counts["bytes_read"].as_u64().unwrap() <= total, "{counts}");
        }
    }
}

#[test]
fn the_packets_of_the_files_that_are_there_are_found() {
    let names = ["r.pcapng", "r.pcapng1", "r.pcapng2", "r.pcapng3"];
    for gone in [&[0][..], &[0, 1], &[2], &[0, 1, 2, 3]] {
        let folder = tempfile::tempdir().unwrap();
        let (files, location) = rotated(folder.path(), &names, 1000, START);
        for n in gone {
            fs::remove_file(&files[*n]).unwrap();
        }
        let out = folder.path().join("out.pcapng");
        let filter = "host 10.0.0.3";
        let (status, counts, said) = counts(&location, &out, filter);
        assert!(packets(&out) == expected(&files, filter, folder.path()), "{gone:?}: {said}");
        if gone.contains(&0) {
            assert_eq!(status, Some(1));
            let first = said.lines().next().unwrap();
            assert!(first.contains("r.pcapng is missing (") && first.contains("flow records)"));
            assert!(counts["missing_files"].as_u64() >= Some(1), "{counts}");
        }
    }
    // A ring that has lost many files: few lines.
    let folder = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..30).map(|n| format!("r.pcapng{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (files, location) = rotated(folder.path(), &names, 20, START);
    files[..25].iter().for_each(|file| fs::remove_file(file).unwrap());
    let out = folder.path().join("out.pcapng");
    let (status, counts, said) = counts(&location, &out, "ip or ip6");
    assert!(status == Some(1) && said.lines().count() <= 8, "{said}");
    let missing = counts["missing_files"].as_u64().unwrap();
    assert!(
        missing > 10 && said.contains(&format!("{} files more missing", missing - 5)),
        "{said}"
    );
    assert!(packets(&out) == expected(&files, "ip or ip6", folder.path()));
}

/// Two hosts name their files alike, and have their records in one place.
#[test]
fn files_of_sensors_without_such_packets_are_not_missing() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["f_00001_20231114221320.pcapng", "f_00002_20231114221321.pcapng"];
    let (files, records) = rotated(folder.path(), &names, 1000, START);
    let flows = folder.path().join("flows");
    fs::create_dir(flows.join("sensor=a")).unwrap();
    fs::rename(records, flows.join("sensor=a/1.parquet")).unwrap();
    let is_ipv4 = |frame: &Vec<u8>| frame[12..14] == [8, 0];
    let frames: Vec<_> = traffic(1000, false).into_iter().filter(is_ipv4).collect();
    let elsewhere = folder.path().join("f_00002_20231114221322.pcapng");
    write(&elsewhere, &frames, START + 500_000_000);
    parquet(&flows.join("sensor=b/1.parquet"), &meter(std::slice::from_ref(&elsewhere)));
    fs::remove_file(elsewhere).unwrap();
    let out = folder.path().join("out.pcapng");
    let (status, _, said) = counts(flows.to_str().unwrap(), &out, "ip6");
    assert_eq!((status, said.contains("missing")), (Some(0), false), "{said}");
    assert!(packets(&out) == expected(&files, "ip6", folder.path()));
}

#[test]
fn a_file_that_was_replaced_is_read_whole() {
    for (name, later) in [
        ("r.pcapng", traffic(3000, true)),
        ("r.pcapng", traffic(10, false)),
        ("r.pcap", traffic(2500, false)),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (files, location) = rotated(folder.path(), &[name], 2000, START);
        fs::remove_file(&files[0]).unwrap();
        let pcapng = folder.path().join("pcapng");
        write(&pcapng, &later, START + 3_600_000_000_000);
        match name {
            "r.pcap" => tcpdump_copy(&pcapng, &files[0]),
            _ => drop(fs::copy(&pcapng, &files[0]).unwrap()),
        }
        let out = folder.path().join("out.pcapng");
        for filter in ["host 10.0.0.3", "host 10.0.0.3 and tcp port 443", "ip or ip6"] {
            let (status, counts, said) = counts(&location, &out, filter);
            assert!(packets(&out) == expected(&files, filter, folder.path()), "{filter}: {said}");
            assert_eq!((status, said.matches("was replaced").count()), (Some(1), 1), "{said}");
            assert_eq!(
                (&counts["replaced_files"], &counts["damaged_files"]),
                (&1.into(), &0.into())
            );
            assert_eq!(counts["bytes_read"], counts["bytes_total"]);
        }
    }
}

#[test]
fn damage_is_named_by_its_offset_in_the_file_and_costs_no_other_file() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["r.pcapng", "r.pcapng1"];
    let (files, location) = rotated(folder.path(), &names, 1000, START);
    let all = expected(&files, "ip or ip6", folder.path());
    // The length of a block in the middle.
    let mut bytes = fs::read(&files[0]).unwrap();
    let mut at = 0;
    while at < bytes.len() / 2 {
        at += u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
    }
    bytes[at + 4] = 3;
    fs::write(&files[0], bytes).unwrap();
    let out = folder.path().join("out.pcapng");
    let (status, counts, said) = counts(&location, &out, "ip or ip6");
    assert!(status == Some(1) && said.contains(&format!("damaged at byte {at}:")), "{said}");
    assert_eq!((&counts["damaged_files"], &counts["replaced_files"]), (&1.into(), &0.into()));
    let found = packets(&out);
    assert!(found.len() > 1000 && found.len() < 2000 && found.iter().all(|one| all.contains(one)));
}

/// The link-layer header of another type for an Ethernet frame.
type Header = dyn Fn(&[u8]) -> Vec<u8>;

/// Writes frames of a link type behind this header of it, and a record for each packet that `key` has.
fn linked(
    file: &Path,
    linktype: u16,
    header: &Header,
    frames: &[Vec<u8>],
    key: &dyn Fn(usize) -> Option<FlowKey>,
) -> String {
    let encoder =
        Encoder { format: Format::Pcapng, snaplen: u32::MAX, options: Default::default() };
    let mut writer = Writer::create(file, Compression::None, &Default::default()).unwrap();
    let section =
        SectionHeader { application: Some("linerate 0.1.0".into()), ..Default::default() };
    let interface = InterfaceDescription { linktype, ..Default::default() };
    let head = |out: &mut Vec<u8>| encoder.encode_file_header(out, &section, &[interface]);
    writer.write_record(false, head).unwrap();
    for (n, bytes) in frames.iter().enumerate() {
        let bytes = [header(bytes), bytes[14..].to_vec()].concat();
        let mut frame = Frame::new(&bytes);
        frame.wire_len = bytes.len() as u32;
        frame.timestamp = Some(Timestamp(START + n as u64 * 1_000_000));
        let record = Record { frame, interface: 0, comment: None };
        writer.write_record(true, |out| encoder.encode(out, &record)).unwrap();
    }
    writer.flush().unwrap();
    let (mut at, mut n, mut records) = (0, 0, Vec::new());
    let mut reader = BlockReader::open(file).unwrap();
    while let Some((block, _)) = reader.next().unwrap() {
        let (first, end) = (at, at + block.bytes.len() as u64);
        at = end;
        let Some(record) = block.record else { continue };
        let time = record.frame.timestamp.unwrap().0;
        let location =
            PacketLocation { file: file.to_str().unwrap().into(), first, end: Some(end) };
        records.extend(key(n).map(|key| FlowRecord {
            start: time,
            end: time,
            key,
            end_reason: Some(EndReason::ForcedEnd),
            packets: Some(location),
            ..FlowRecord::default()
        }));
        n += 1;
    }
    let location = file.with_extension("parquet");
    parquet(&location, &records);
    location.to_str().unwrap().to_owned()
}

#[test]
fn link_types_have_the_numbers_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let any = traffic(400, false);
    let of = |version: [u8; 2]| -> Vec<Vec<u8>> {
        any.iter().filter(|frame| frame[12..14] == version).cloned().collect()
    };
    let raw = |_: &[u8]| Vec::new();
    let sll = |frame: &[u8]| [&[0; 14], &frame[12..14]].concat();
    let sll2 = |frame: &[u8]| [&frame[12..14], &[0; 18]].concat();
    let headers: [(u16, &Header, Vec<Vec<u8>>, &str); 6] = [
        (101, &raw, any.clone(), "host 10.0.0.3"),
        // The number of raw IP at run time: some programs write it.
        (12, &raw, any.clone(), "host 2001:db8::3"),
        (228, &raw, of([8, 0]), "host 10.0.0.3"),
        (229, &raw, of([0x86, 0xdd]), "host 2001:db8::3"),
        (113, &sll, any.clone(), "host 10.0.0.3"),
        (276, &sll2, any.clone(), "host 2001:db8::3"),
    ];
    for (linktype, header, frames, filter) in headers {
        let file = folder.path().join(format!("{linktype}.pcapng"));
        let key = |n: usize| key(&frames[n]).map(|(key, _)| key);
        let location = linked(&file, linktype, header, &frames, &key);
        let out = folder.path().join("out.pcapng");
        answer(&["find", "-r", &location, "-w", out.to_str().unwrap(), filter]);
        let expected = tcpdump(&[file], filter, folder.path());
        assert!(!expected.is_empty(), "{linktype}");
        assert!(packets(&out) == expected, "{linktype}");
        assert!(tcpdump(std::slice::from_ref(&out), filter, folder.path()) == expected);
    }
}

#[test]
fn frames_that_are_in_no_flow_are_in_no_result_wherever_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let ethernet = |frame: &[u8]| frame[..14].to_vec();
    // ARP asks for the host, and a header of 12 bytes is none of IP.
    let host = [10, 0, 0, 200];
    let arp =
        [&[255; 6][..], &[2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &[2; 6], &host].concat();
    let arp = [&arp[..], &[0; 6], &[10, 0, 0, 60]].concat();
    let packet = frame(v4(200), v4(60), 17, (5, 6), None, 10);
    let mut malformed = packet.clone();
    malformed[14] = 0x43;
    let other = frame(v4(1), v4(61), 6, (7, 8), None, 1000);
    let mut results = Vec::new();
    for between in [0, 1000] {
        // Close to a packet of the host, or far from all of them.
        let mut frames = vec![packet.clone()];
        for odd in [&arp, &malformed] {
            frames.extend(std::iter::repeat_n(other.clone(), between));
            frames.push(odd.clone());
            frames.extend(std::iter::repeat_n(other.clone(), between));
            frames.push(packet.clone());
        }
        let file = folder.path().join(format!("{between}.pcapng"));
        let key = |n: usize| match frames[n] == packet || frames[n] == other {
            true => key(&frames[n]).map(|(key, _)| key),
            false => None,
        };
        let location = linked(&file, 1, &ethernet, &frames, &key);
        let out = folder.path().join("out.pcapng");
        answer(&["find", "-r", &location, "-w", out.to_str().unwrap(), "10.0.0.200"]);
        let only = |packets: Vec<(u64, Vec<u8>)>| -> Vec<Vec<u8>> {
            packets.into_iter().map(|(_, bytes)| bytes).collect()
        };
        let all = only(tcpdump(&[file], "host 10.0.0.200", folder.path()));
        assert!(all.contains(&arp) && all.contains(&malformed));
        results.push(only(packets(&out)));
    }
    assert_eq!(results, [vec![packet.clone(); 3], vec![packet; 3]]);
}

#[test]
fn packets_of_a_file_with_two_names_are_found_once() {
    let folder = tempfile::tempdir().unwrap();
    let (files, location) = rotated(folder.path(), &["r.pcapng"], 500, START);
    let link = folder.path().join("link.pcapng");
    std::os::unix::fs::symlink(&files[0], &link).unwrap();
    parquet(&folder.path().join("flows/2.parquet"), &meter(&[link]));
    let (out, records) = (folder.path().join("out.pcapng"), Path::new(&location).parent().unwrap());
    let (status, counts, said) = counts(records.to_str().unwrap(), &out, "ip or ip6");
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(counts["bytes_total"], files[0].metadata().unwrap().len());
    assert!(packets(&out) == expected(&files, "ip or ip6", folder.path()));
}

#[test]
fn a_later_file_that_is_gone_is_known_from_other_records() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["r.pcapng", "r.pcapng1", "r.pcapng2", "r.pcapng3"];
    // One flow goes through all files, and others begin in each.
    let long = frame(v4(200), v4(60), 17, (5, 6), None, 10);
    let frames: Vec<Vec<u8>> = (0..400)
        .map(|n| if n % 10 == 0 { long.clone() } else { frame(v4(1), v4(2), 17, (n, 9), None, 0) })
        .collect();
    let files: Vec<PathBuf> = names.iter().map(|name| folder.path().join(name)).collect();
    for (n, (file, frames)) in files.iter().zip(frames.chunks(100)).enumerate() {
        write(file, frames, START + n as u64 * 100_000_000);
    }
    let location = folder.path().join("flows/1.parquet");
    parquet(&location, &meter(&files));
    fs::remove_file(&files[2]).unwrap();
    let out = folder.path().join("out.pcapng");
    let (status, counts, said) = counts(location.to_str().unwrap(), &out, "host 10.0.0.200");
    assert_eq!((status, &counts["missing_files"]), (Some(1), &1.into()), "{said}");
    assert!(said.contains("r.pcapng2 is missing"), "{said}");
    assert!(packets(&out) == expected(&files, "host 10.0.0.200", folder.path()));
    assert_eq!(packets(&out).len(), 30);
}

/// Two hosts have captured into files of one name.
#[test]
fn files_of_one_name_on_two_sensors_are_told_apart_or_said() {
    let folder = tempfile::tempdir().unwrap();
    let flows = folder.path().join("flows");
    let file = folder.path().join("r.pcapng");
    let own =
        ["a", "b"].map(|sensor| folder.path().join(format!("moved/sensor={sensor}/r.pcapng")));
    for (n, (sensor, own)) in ["a", "b"].iter().zip(&own).enumerate() {
        // The same hosts at the same time, and packets of other lengths.
        let frames: Vec<Vec<u8>> = (0..1000)
            .map(|packet| frame(v4(1), v4(2), 17, (packet, 53), None, n * 9 + packet as usize % 5))
            .collect();
        write(&file, &frames, START + n as u64 * 10_000);
        let records = meter(std::slice::from_ref(&file));
        parquet(&flows.join(format!("sensor={sensor}/1.parquet")), &records);
        fs::create_dir_all(own.parent().unwrap()).unwrap();
        fs::copy(&file, own).unwrap();
    }
    let (flows, out) = (flows.to_str().unwrap(), folder.path().join("out.pcapng"));
    // Only that of the second one is there.
    let (status, counts, said) = counts(flows, &out, "host 10.0.0.1");
    assert_eq!((status, &counts["missing_packets"]), (Some(1), &1000.into()), "{said}");
    assert!(said.contains("1000 packets of these flow records not in the files"), "{said}");
    assert!(packets(&out) == expected(&own[1..], "host 10.0.0.1", folder.path()));
    // Each has its own folder.
    let moved = folder.path().join("moved");
    let words = ["find", "-r", flows, "-w", out.to_str().unwrap(), "--packets"];
    answer(&[&words[..], &[moved.to_str().unwrap(), "10.0.0.1"]].concat());
    assert!(packets(&out) == expected(&own, "host 10.0.0.1", folder.path()));
}

/// A ring has come back to the name of the file, which has as many bytes again, of packets of the same hosts.
#[test]
fn packets_that_a_ring_has_overwritten_are_missed() {
    let folder = tempfile::tempdir().unwrap();
    let frames: Vec<Vec<u8>> =
        (0..3000).map(|n| frame(v4(1), v4(2), 17, (n % 100, 53), None, 20)).collect();
    let file = folder.path().join("r.pcapng0");
    write(&file, &frames, START);
    let location = folder.path().join("flows/1.parquet");
    let mut records = meter(std::slice::from_ref(&file));
    write(&file, &frames, START + 4_000_000_000);
    // And records of its new packets.
    records.extend(meter(std::slice::from_ref(&file)));
    parquet(&location, &records);
    let out = folder.path().join("out.pcapng");
    let (status, counts, said) = counts(location.to_str().unwrap(), &out, "host 10.0.0.1");
    assert_eq!((status, &counts["missing_packets"]), (Some(1), &3000.into()), "{said}");
    assert!(packets(&out) == expected(&[file], "host 10.0.0.1", folder.path()));
}

/// The last flow goes on in a file that nobody else begins in, and that is gone; and with `--cutoff`, files lack the
/// ends of flows.
#[test]
fn fewer_packets_than_the_records_count_are_said_unless_the_capture_cut_them_off() {
    let folder = tempfile::tempdir().unwrap();
    let files: [PathBuf; 2] = ["r.pcapng", "r.pcapng1"].map(|name| folder.path().join(name));
    let frames = vec![frame(v4(1), v4(2), 17, (5, 53), None, 20); 100];
    write(&files[0], &frames[..60], START);
    write(&files[1], &frames[60..], START + 60_000_000);
    let location = folder.path().join("flows/1.parquet");
    parquet(&location, &meter(&files));
    let (out, location) = (folder.path().join("out.pcapng"), location.to_str().unwrap());
    let (status, both, said) = counts(location, &out, "host 10.0.0.1");
    assert_eq!((status, &both["missing_packets"]), (Some(0), &0.into()), "{said}");
    fs::remove_file(&files[1]).unwrap();
    let (status, first, said) = counts(location, &out, "host 10.0.0.1");
    assert_eq!((status, &first["missing_packets"]), (Some(1), &40.into()), "{said}");
    assert_eq!(packets(&out).len(), 60);

    let mut cut = meter(&files[..1]);
    cut[0].forward.packets += 1_000;
    cut[0].end += 60_000_000_000;
    parquet(Path::new(location), &cut);
    let (status, counts, said) = counts(location, &out, "host 10.0.0.1");
    assert_eq!((status, &counts["missing_packets"]), (Some(0), &0.into()), "{said}");
    assert_eq!(packets(&out).len(), 60);
}

#[test]
fn records_without_a_packet_file_have_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let (files, location) = two_files(folder.path(), NAMES);
    let mut records = meter(&files);
    records.iter_mut().for_each(|record| record.packets = None);
    parquet(Path::new(&location), &records);
    let said = refusal(&location, &folder.path().join("out.pcapng"));
    for words in ["no packet file is known for", "capture -w FILE --flows FOLDER"] {
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn packets_are_not_written_to_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let (_, location) = two_files(folder.path(), NAMES);
    let line = format!("{} find -r {location} -w - ip", env!("CARGO_BIN_EXE_linerate-flows"));
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).stdin(Stdio::null());
    let Ok(output) = script.output() else {
        return linerate_testkit::print_skipped(linerate_testkit::test_name!(), "needs script");
    };
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("to a terminal") && said.contains("> FILE"), "{said}");
}

/// Names with two digits may be of one capture, or of several.
#[test]
fn packets_of_another_capture_in_the_folder_are_none_of_the_records() {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<PathBuf> =
        [10, 11, 12].iter().map(|n| folder.path().join(format!("eth{n}.pcap"))).collect();
    let frames = |port| vec![frame(v4(1), v4(2), 17, (port, 53), None, 20); 100];
    for (n, file) in files.iter().enumerate() {
        let pcapng = folder.path().join("pcapng");
        write(&pcapng, &frames(n as u16 % 2), START + n as u64 * 100_000_000);
        tcpdump_copy(&pcapng, file);
        fs::remove_file(&pcapng).unwrap();
    }
    // The first capture goes on in the last file.
    let own = [files[0].clone(), files[2].clone()];
    let location = folder.path().join("flows/1.parquet");
    parquet(&location, &meter(&own));
    let out = folder.path().join("out.pcapng");
    let (status, _, said) = counts(location.to_str().unwrap(), &out, "host 10.0.0.1");
    assert_eq!(status, Some(0), "{said}");
    assert!(packets(&out) == expected(&own, "host 10.0.0.1", folder.path()));
}

#[test]
fn a_file_that_cannot_be_searched_costs_no_other_file() {
    let folder = tempfile::tempdir().unwrap();
    let frames: Vec<_> = (0..100).map(|n| frame(v4(1), v4(2), 17, (n, 53), Some(7), 20)).collect();
    let ethernet = folder.path().join("a.pcapng");
    write(&ethernet, &frames, START);
    parquet(&folder.path().join("flows/1.parquet"), &meter(std::slice::from_ref(&ethernet)));
    // libpcap has no VLAN in raw IP.
    let raw = folder.path().join("0.pcapng");
    let without_tag: Vec<Vec<u8>> = frames.iter().map(|frame| frame[4..].to_vec()).collect();
    let key = |n: usize| key(&frames[n]).map(|(key, _)| key);
    let records = linked(&raw, 101, &|_: &[u8]| Vec::new(), &without_tag, &key);
    fs::rename(records, folder.path().join("flows/2.parquet")).unwrap();
    let (flows, out) = (folder.path().join("flows"), folder.path().join("out.pcapng"));
    let (status, counts, said) = counts(flows.to_str().unwrap(), &out, "vlan 7 and ip");
    assert_eq!((status, &counts["damaged_files"]), (Some(1), &1.into()), "{said}");
    assert!(said.contains("0.pcapng") && said.contains("VLAN"), "{said}");
    assert!(packets(&out) == expected(&[ethernet], "vlan 7 and ip", folder.path()));
}
