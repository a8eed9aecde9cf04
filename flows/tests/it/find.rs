//! The packets behind records are those of tcpdump.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{START, answer, meter, packets, parquet, run, tcpdump, traffic, write};

const PACKETS: u64 = 20_000;

#[test]
fn the_packets_of_a_filter_are_those_of_tcpdump_over_all_files() {
    let folder = tempfile::tempdir().unwrap();
    let frames = traffic(PACKETS, true);
    let half = frames.len() / 2;
    let files: [PathBuf; 2] = ["a_1.pcapng", "a_2.pcapng"].map(|name| folder.path().join(name));
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
        let expected = tcpdump(&files, filter, folder.path());
        assert!(!expected.is_empty(), "{filter}");
        assert_eq!(packets(&out), expected, "{filter}");
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
    let host = |n: usize| {
        crate::support::frame(
            crate::support::v4(200),
            crate::support::v4(60),
            17,
            (5, n as u16),
            None,
            10,
        )
    };
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
    let (files, location) = two_files(folder.path(), ["a_1.pcapng", "a_2.pcapng"]);
    let (hard, symbolic) = (folder.path().join("hard"), folder.path().join("symbolic.pcapng"));
    fs::hard_link(&files[1], &hard).unwrap();
    std::os::unix::fs::symlink(&files[0], &symbolic).unwrap();
    let records = PathBuf::from(&location);
    let before = [&files[0], &files[1], &records].map(|file| fs::read(file).unwrap());
    for out in [&files[0], &files[1], &hard, &symbolic] {
        let said = refusal(&location, out);
        assert!(said.contains("would be emptied before it is read"), "{said}");
    }
    // The records would be lost, too.
    let said = refusal(&location, &records);
    assert!(said.contains("flow records"), "{said}");
    assert_eq!([&files[0], &files[1], &records].map(|file| fs::read(file).unwrap()), before);
}

#[test]
fn names_that_promise_another_format_are_refused_and_an_empty_result_is_a_file_for_tcpdump() {
    let folder = tempfile::tempdir().unwrap();
    let (_, location) = two_files(folder.path(), ["a_1.pcapng", "a_2.pcapng"]);
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
