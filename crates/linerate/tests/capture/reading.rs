//! `-r`: from one file into another.

use std::path::Path;

use linerate_capture::read::Reader;
use serde_json::Value;

use crate::support::{LINERATE, folder, write_mixed};

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

#[test]
fn a_damaged_file_gives_what_it_has_and_status_1() {
    let folder = folder();
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pcapng"));
    write_mixed(&input);
    let length = std::fs::metadata(&input).unwrap().len();
    std::fs::File::options().write(true).open(&input).unwrap().set_len(length - 3).unwrap();
    let mut command = std::process::Command::new(LINERATE);
    let run = command.args(["capture", "--json", "-r"]).arg(&input).arg("-w").arg(&output);
    let ended = run.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("cut off") && said.contains("at byte"), "{said}");
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
fn a_pcap_file_takes_one_link_type_only() {
    let folder = folder();
    let (input, output) = (folder.path().join("in.pcapng"), folder.path().join("out.pcap"));
    std::fs::write(&input, two_link_types()).unwrap();
    let read_into = |output: &Path| {
        let mut command = std::process::Command::new(LINERATE);
        command.args(["capture", "-r"]).arg(&input).arg("-w").arg(output).output().unwrap()
    };
    let refused = read_into(&output);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("link layers") && said.contains("pcapng"), "{said}");
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
    let mut command = std::process::Command::new(LINERATE);
    let output = command.args(["capture", "-r"]).arg(&path).arg("-w").arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}
