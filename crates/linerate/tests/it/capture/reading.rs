//! `-r`: from one file into another.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use linerate_pcapfile::Reader;
use linerate_testkit::wait_for;
use serde_json::Value;

use super::support::{folder, read, write_mixed};
use crate::LINERATE;

#[test]
fn reading_through_a_filter_equals_tcpdump() {
    let folder = folder();
    let input = folder.path().join("in.pcap");
    write_mixed(&input);
    for filter in ["udp", "ip[8] = 3", "not udp"] {
        let (ours, theirs) = (folder.path().join("ours.pcap"), folder.path().join("theirs.pcap"));
        let run = |program: &str, first: &[&str], out: &Path| {
            let mut command = std::process::Command::new(program);
            command.args(first).arg("-r").arg(&input).arg("-w").arg(out).arg(filter).output()
        };
        let Ok(output) = run("tcpdump", &[], &theirs) else {
            println!("skipped: reading_through_a_filter_equals_tcpdump: no tcpdump");
            return;
        };
        assert!(output.status.success(), "{output:?}");
        let output = run(LINERATE, &["capture"], &ours).unwrap();
        assert!(output.status.success(), "{output:?}");
        let (ours, theirs) = (std::fs::read(&ours).unwrap(), std::fs::read(&theirs).unwrap());
        assert!(ours.len() > 24, "{filter} takes something");
        assert_eq!(ours, theirs, "{filter}");
    }
}

/// Link types whose frames begin with an address family: in the byte order of the file, and IPv6 by the number of any BSD.
#[test]
fn address_families_of_a_file_are_those_of_its_byte_order_as_in_tcpdump() {
    let folder = folder();
    let [input, ours, theirs] =
        ["in.pcap", "ours.pcap", "theirs.pcap"].map(|name| folder.path().join(name));
    let mut accepted = 0;
    for (link_type, header) in [(0_u32, 4), (108, 4), (109, 12)] {
        for big in [false, true] {
            let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
            let version = if big { 0x0002_0004 } else { 0x0004_0002 };
            let words = [0xa1b2_c3d4, version, 0, 0, 65535, link_type];
            let mut file = words.map(word).concat();
            for family in [2_u32, 10, 24, 28, 30].into_iter().flat_map(|it| [it, it.swap_bytes()]) {
                let mut frame = vec![0; header];
                frame[..4].copy_from_slice(&family.to_be_bytes());
                let v4 = [2, 2 << 24].contains(&family);
                frame.extend(if v4 { [0x45; 40] } else { [0x60; 40] });
                file.extend([1, 2, frame.len() as u32, frame.len() as u32].map(word).concat());
                file.extend(frame);
            }
            std::fs::write(&input, file).unwrap();
            for filter in ["ip", "ip6", "not ip and not ip6", "ip6[0] & 0xf0 = 0x60"] {
                let run = |program: &str, first: &[&str], out: &Path| {
                    let mut command = std::process::Command::new(program);
                    command.args(first).arg("-r").arg(&input).arg("-w").arg(out).arg(filter);
                    command.output()
                };
                let Ok(output) = run("tcpdump", &[], &theirs) else {
                    println!("skipped: address_families_of_a_file: no tcpdump");
                    return;
                };
                assert!(output.status.success(), "{output:?}");
                let output = run(LINERATE, &["capture"], &ours).unwrap();
                assert!(output.status.success(), "{output:?}");
                let [ours, theirs] = [&ours, &theirs].map(|path| std::fs::read(path).unwrap());
                assert!(ours == theirs, "{filter}, link type {link_type}, big-endian: {big}");
                accepted += ours.len() / (16 + header + 40);
            }
        }
    }
    assert!(accepted > 60, "{accepted}");
}

#[test]
fn a_file_with_tags_is_read_as_tcpdump_does_or_as_an_interface() {
    let folder = folder();
    let [plain, tagged] = ["plain.pcap", "tagged.pcap"].map(|name| folder.path().join(name));
    write_mixed(&plain);
    // The same packets, every third behind a tag.
    let file = std::fs::read(&plain).unwrap();
    let mut out = file[..24].to_vec();
    let (mut at, mut number) = (24, 0);
    while at < file.len() {
        let len = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap());
        let (header, frame) = file[at..at + 16 + len as usize].split_at(16);
        let tag: &[u8] = if number % 3 == 0 { &[0x81, 0, 0, 7] } else { &[] };
        let longer = (len + tag.len() as u32).to_le_bytes();
        out.extend([&header[..8], &longer, &longer, &frame[..12], tag, &frame[12..]].concat());
        (at, number) = (at + 16 + len as usize, number + 1);
    }
    std::fs::write(&tagged, out).unwrap();
    let captured = |input: &Path, arguments: &str, filter: &str| {
        let mut command = std::process::Command::new(LINERATE);
        command.args(["capture", "--discard", "--json", "-r"]).arg(input);
        let output = command.args(arguments.split_whitespace()).arg(filter).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["captured"].as_u64().unwrap()
    };
    assert_eq!(captured(&tagged, "", "udp"), 33);
    assert_eq!(captured(&tagged, "--filter-vlan file", "vlan and udp"), 17);
    assert_eq!(captured(&tagged, "--filter-vlan live", "udp"), 50);
    for filter in ["not ip", "udp", "len < 50", "ip[8] = 3"] {
        let [live, file] = [(&tagged, "--filter-vlan live"), (&plain, "")];
        let expected = captured(file.0, file.1, filter);
        assert_eq!(captured(live.0, live.1, filter), expected, "{filter}");
    }
}

#[test]
fn a_damaged_file_gives_what_it_has_and_status_1() {
    let folder = folder();
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pcapng"));
    write_mixed(&input);
    let length = std::fs::metadata(&input).unwrap().len();
    std::fs::File::options().write(true).open(&input).unwrap().set_len(length - 3).unwrap();
    let ended = read(&input, &format!("--json -w {}", output.display()));
    let printed = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{printed}");
    assert!(printed.contains("cut off") && printed.contains("at byte"), "{printed}");
    let json: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(json["captured"], 99, "{json}");
    let mut reader = Reader::open(&output).unwrap();
    let mut packets = 0;
    while reader.next().unwrap().is_some() {
        packets += 1;
    }
    assert_eq!(packets, 99);
}

#[test]
fn options_that_need_an_interface_are_refused_by_name() {
    let folder = folder();
    let input = folder.path().join("in.pcap");
    write_mixed(&input);
    let refused = [
        "--source packet",
        "--take-over",
        "--xdp-delivery af-xdp",
        "--pages small",
        "--threads 2",
        "--fanout lb",
        "--busy-poll 10",
        "--cpu 0",
        "--filter-in kernel",
        "--metrics 127.0.0.1:0",
        "--web 127.0.0.1:0",
        "-a duration:1",
        "-Q in",
        "-Q out",
    ];
    for arguments in refused {
        let output = read(&input, &format!("--discard {arguments}"));
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {printed}");
        let option = arguments.split(' ').next().unwrap();
        assert!(printed.contains(option), "no {option} in {printed}");
    }
    for option in ["-p", "-B 4096", "--immediate-mode", "-j adapter"] {
        let output = read(&input, &format!("--discard {option}"));
        let printed = String::from_utf8_lossy(&output.stderr);
        let words = format!("{} has no effect", option.split(' ').next().unwrap());
        assert!(output.status.success() && printed.contains(&words), "{option}: {printed}");
        let output = read(&input, &format!("--discard --quiet {option}"));
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    }
    assert!(read(&input, "--discard -Q inout -a packets:3 --filter-in user").status.success());
}

#[test]
fn a_direction_is_taken_from_a_file_that_has_it() {
    let folder = folder();
    let input = folder.path().join("in.pcapng");
    let numbers = |direction: &str| {
        let output = folder.path().join("out.pcapng");
        let done = read(&input, &format!("-Q {direction} -w {}", output.display()));
        let mut reader = Reader::open(&output).unwrap();
        let mut numbers = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            numbers.push(record.frame.head()[0]);
        }
        (done, numbers)
    };
    // epb_flags: the lowest two bits are 1 for inbound, 2 for outbound.
    std::fs::write(&input, flagged(&[1, 2, 1, 0x102])).unwrap();
    assert_eq!(numbers("in").1, [0, 2]);
    assert_eq!(numbers("out").1, [1, 3]);
    assert_eq!(numbers("inout").1, [0, 1, 2, 3]);
    std::fs::write(&input, flagged(&[2, 0, 2])).unwrap();
    let (done, before) = numbers("out");
    let printed = String::from_utf8_lossy(&done.stderr);
    assert_eq!((done.status.code(), before), (Some(1), vec![0]), "{printed}");
    assert!(printed.contains("-Q") && printed.contains("packet 2"), "{printed}");
}

/// A pcapng file of numbered packets with these flags.
fn flagged(flags: &[u32]) -> Vec<u8> {
    let mut file = two_link_types();
    file.truncate(28 + 16 + 20 + 20);
    for (number, flags) in flags.iter().enumerate() {
        let length = 28_u32 + 28 + 8 + 4 + 4;
        let words = [6, length, 0, 0, 0, 28, 28];
        words.iter().for_each(|word: &u32| file.extend(word.to_le_bytes()));
        file.extend([number as u8; 28]);
        file.extend([[2, 0, 4, 0], flags.to_le_bytes(), [0; 4], length.to_le_bytes()].concat());
    }
    file
}

#[test]
fn each_packet_reaches_the_file_at_once_if_that_is_asked_for() {
    let folder = folder();
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    write_mixed(&input);
    let bytes = std::fs::read(&input).unwrap();
    let mut command = std::process::Command::new(LINERATE);
    command.args(["capture", "-r", "-", "-U", "-w"]).arg(&output).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // The header and two packets of 42 and 43 bytes; the stream stays open.
    let part = 24 + 16 + 42 + 16 + 43;
    stdin.write_all(&bytes[..part]).unwrap();
    wait_for("the packets in the file", || {
        std::fs::read(&output).unwrap_or_default() == bytes[..part]
    });
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_pcap_file_takes_one_link_type_only() {
    let folder = folder();
    let (input, output) = (folder.path().join("in.pcapng"), folder.path().join("out.pcap"));
    std::fs::write(&input, two_link_types()).unwrap();
    let read_into = |output: &Path| read(&input, &format!("-w {}", output.display()));
    let refused = read_into(&output);
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{printed}");
    assert!(printed.contains("link layers") && printed.contains("pcapng"), "{printed}");
    let output = folder.path().join("out.pcapng");
    let done = read_into(&output);
    assert!(done.status.success(), "{done:?}");
    let reader = Reader::open(&output).unwrap();
    let types: Vec<_> = reader.interfaces().iter().map(|one| one.linktype).collect();
    assert_eq!(types, [1, 101]);
}

/// A packet of an Ethernet interface and one of an interface of bare IP packets, and a block of names
/// before the interfaces.
fn two_link_types() -> Vec<u8> {
    let mut file = Vec::new();
    let mut block = |kind: u32, body: &[u8]| {
        let length = (body.len() as u32 + 12).to_le_bytes();
        file.extend([&kind.to_le_bytes(), &length, body, &length].concat());
    };
    let section = [0x1a2b_3c4d_u32.to_le_bytes(), [1, 0, 0, 0], [0xff; 4], [0xff; 4]];
    block(0x0a0d_0d0a, &section.concat());
    block(4, &[0; 4]);
    for link_type in [1, 101] {
        block(1, &[link_type, 0, 0, 0, 0, 0, 4, 0]);
    }
    for interface in [0, 1] {
        let mut body = vec![0; 20 + 28];
        body[0] = interface;
        (body[12], body[16]) = (28, 28);
        block(6, &body);
    }
    file
}

#[test]
fn a_file_is_not_emptied_before_it_is_read() {
    let folder = folder();
    let path = folder.path().join("in.pcap");
    write_mixed(&path);
    let before = std::fs::read(&path).unwrap();
    let output = read(&path, &format!("-w {}", path.display()));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn stats_of_a_file_have_all_counts() {
    let folder = folder();
    let input = folder.path().join("in.pcap");
    write_mixed(&input);
    let file = std::fs::read(&input).unwrap();
    let flows = folder.path().join("flows");
    let mut command = std::process::Command::new(LINERATE);
    command.args(["capture", "-r", "-", "--json", "--stats", "20ms", "--cutoff", "100", "--flows"]);
    command.arg(&flows).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut capture = command.spawn().unwrap();
    let mut pipe = capture.stdin.take().unwrap();
    pipe.write_all(&file).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    drop(pipe);
    let output = capture.wait_with_output().unwrap();
    let lines: Vec<Value> = serde_json::Deserializer::from_slice(&output.stdout)
        .into_iter()
        .collect::<Result<_, _>>()
        .unwrap();
    let (last, stats) = lines.split_last().unwrap();
    let stats = stats.last().expect("counts while it waits for more");
    assert_eq!(stats["schema"], "linerate-capture-stats-1", "{stats}");
    // The packet that is being looked at may not be counted yet.
    for (count, most) in [("received", 1), ("captured", 1), ("bytes", 65_535)] {
        let [now, end] = [stats, last].map(|report| report[count].as_u64().unwrap());
        assert!(now > 0 && now <= end && end - now <= most, "{count}: {now} of {end}");
    }
    let [now, end] = [stats, last].map(|report| report["dropped"]["cutoff"].as_u64().unwrap());
    assert!(now > 0 && end - now <= 1, "{now} of {end}");
    assert!(stats["seconds"].as_f64() > Some(0.0), "{stats}");
}
