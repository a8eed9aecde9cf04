//! The captures of a folder, such as those of Wireshark's source, beside tcpdump and editcap.

use std::process::Command;

use linerate_pcapfile::Reader;
use linerate_testkit::skip;

use super::super::support::{accepts, folder};
use super::{blocks, read_into, sort};

/// Blocks of a capture, but for the length of a section, which is not known while it is written.
fn blocks_without_lengths(bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut blocks = blocks(bytes);
    let sections = blocks.iter_mut().filter(|(number, _)| *number == 0x0a0d_0d0a);
    sections.for_each(|(_, bytes)| bytes[16..24].fill(0));
    blocks
}

/// Captures of others: `LINERATE_CAPTURES` names a folder of them, such as `test/captures` in Wireshark's source.
#[test]
fn captures_of_a_folder_are_kept_whole() {
    let Some(captures) = std::env::var_os("LINERATE_CAPTURES") else {
        skip!("LINERATE_CAPTURES names no folder");
    };
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let rotations: [&[&str]; 6] = [
        &[],
        &["-b", "packets:7"],
        &["-b", "filesize:3"],
        &["-b", "duration:1"],
        &["-C", "2k"],
        &["-C", "3k", "-G", "2"],
    ];
    let (mut pcapng, mut pcap, mut kept) = (0, 0, 0);
    for capture in std::fs::read_dir(captures).unwrap().map(|entry| entry.unwrap().path()) {
        let what = capture.display();
        let packed = capture.extension().is_some_and(|end| end == "gz");
        let mut cat = Command::new(if packed { "zcat" } else { "cat" });
        let bytes = cat.arg(&capture).output().unwrap().stdout;
        match bytes.first_chunk() {
            Some([0x0a, 0x0d, 0x0d, 0x0a]) => pcapng += 1,
            Some(
                [0xd4, 0xc3, 0xb2, 0xa1] | [0xa1, 0xb2, 0xc3, 0xd4] | [0x4d, 0x3c, 0xb2, 0xa1],
            ) => {
                std::fs::write(path("in.pcap"), &bytes).unwrap();
                let mut tcpdump = Command::new("tcpdump");
                tcpdump.arg("-r").arg(path("in.pcap")).arg("-w").arg(path("theirs.pcap"));
                let theirs = tcpdump.output().expect("tcpdump");
                let ours = read_into(&path("in.pcap"), &path("ours.pcap"), &[]);
                assert_eq!(ours.status.success(), theirs.status.success(), "{what}: {ours:?}");
                let [ours, theirs] =
                    ["ours.pcap", "theirs.pcap"].map(|name| std::fs::read(path(name)).unwrap());
                assert!(ours == theirs, "{what}");
                pcap += 1;
                continue;
            }
            _ => continue,
        }
        let mut before = blocks_without_lengths(&bytes);
        for rotation in rotations {
            let place = tempfile::tempdir().unwrap();
            let name = if rotation.contains(&"-G") { "out-%s" } else { "out" };
            let options = [&["--format", "pcapng"], rotation].concat();
            let ended = read_into(&capture, &place.path().join(name), &options);
            assert!(ended.status.success() && ended.stderr.is_empty(), "{what}: {ended:?}");
            let mut after = Vec::new();
            for file in std::fs::read_dir(place.path()).unwrap() {
                let file = file.unwrap().path();
                accepts("capinfos", &["-c"], &file);
                after.extend(blocks_without_lengths(&std::fs::read(file).unwrap()));
            }
            if !rotation.is_empty() {
                sort(&mut before);
                sort(&mut after);
            }
            assert!(before == after, "{what} {rotation:?}");
            kept += before.len();
        }
    }
    println!(
        "{pcapng} pcapng files, each with {} ways of rotation: {kept} blocks, none lost; {pcap} pcap files: as tcpdump \
         writes them",
        rotations.len()
    );
    assert!(pcapng > 0 && pcap > 0);
}

/// What libpcap refuses, and Linerate reads: several link layers, as long as packets of one are accepted, or several
/// snapshot lengths; no interface, and so no packet; any unit of time; packets of more than 262,144 bytes.
const BEYOND_LIBPCAP: [&str; 4] = [
    "different from the",
    "has no Interface Description Blocks",
    "is too high",
    "bigger than maximum of 262144",
];

/// The captures of [`captures_of_a_folder_are_kept_whole`], by the filters of tcpdump and the cuts of editcap.
#[test]
fn captures_of_a_folder_are_filtered_and_cut_as_others_do() {
    let Some(captures) = std::env::var_os("LINERATE_CAPTURES") else {
        skip!("LINERATE_CAPTURES names no folder");
    };
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let filters = [
        "ip or ip6",
        "tcp port 80 or udp portrange 1-1023 or icmp",
        "not arp and greater 100",
        "vlan or mpls or pppoes",
        "host 10.0.0.1 or net 192.168.0.0/16 or ip6 net fe80::/10",
        "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    ];
    let (mut same, mut both_refuse, mut cut, mut differences) = (0, 0, 0, Vec::new());
    let (mut cut_like_tcpdump, mut more) = (0, 0);
    let packets = |name: &str, snaplen: usize| {
        let mut reader = Reader::open(&path(name)).ok()?;
        let mut packets = Vec::new();
        while let Some(record) = reader.next().ok()? {
            let (frame, head) = (&record.frame, record.frame.head());
            let head = &head[..head.len().min(snaplen)];
            packets.push((frame.timestamp, frame.wire_len, head.to_vec()));
        }
        Some(packets)
    };
    let precise = "--time-stamp-precision=nano";
    for capture in std::fs::read_dir(captures).unwrap().map(|entry| entry.unwrap().path()) {
        let what = capture.display();
        for filter in filters {
            let mut tcpdump = Command::new("tcpdump");
            tcpdump.arg("-r").arg(&capture).arg("-w").arg(path("theirs.pcap")).arg(filter);
            let theirs = tcpdump.output().expect("tcpdump");
            let why = String::from_utf8_lossy(&theirs.stderr).into_owned();
            let theirs = theirs.status.success();
            let ours = read_into(&capture, &path("ours.pcap"), &[filter]);
            let files = ["ours.pcap", "theirs.pcap"].map(|name| std::fs::read(path(name)).ok());
            match (ours.status.success(), theirs) {
                (false, false) => both_refuse += 1,
                (true, true) if files[0] == files[1] => same += 1,
                (true, false) if BEYOND_LIBPCAP.iter().any(|limit| why.contains(limit)) => {
                    more += 1;
                }
                (ours_does, _) => {
                    let said = String::from_utf8_lossy(&ours.stderr);
                    differences
                        .push(format!("{what} `{filter}`: {ours_does}, tcpdump {theirs}: {said}"));
                }
            }
            for name in ["ours.pcap", "theirs.pcap"] {
                let _ = std::fs::remove_file(path(name));
            }
        }
        let mut editcap = Command::new("editcap");
        editcap.args(["-F", "nsecpcap", "-s", "60"]).arg(&capture).arg(path("theirs.pcap"));
        // It writes one link type into a pcap file.
        let ended = editcap.output().expect("editcap");
        if !ended.status.success() {
            continue;
        }
        let is_damaged = String::from_utf8_lossy(&ended.stderr).contains("damaged or corrupt");
        let ours = read_into(&capture, &path("ours.pcap"), &["-s", "60", precise]);
        let found = packets("ours.pcap", usize::MAX);
        // editcap keeps more than the snapshot length of the input, and writes the headers that Wireshark understands its
        // own way (SunATM). tcpdump does neither.
        let as_tcpdump = || {
            let mut tcpdump = Command::new("tcpdump");
            tcpdump.arg(precise).arg("-r").arg(&capture).arg("-w").arg(path("whole.pcap"));
            tcpdump.output().expect("tcpdump").status.success()
                && packets("whole.pcap", 60) == found
        };
        if ours.status.success() == is_damaged || found.is_none() {
            differences.push(format!("{what} cut: {}", String::from_utf8_lossy(&ours.stderr)));
        } else if found == packets("theirs.pcap", usize::MAX) {
            cut += 1;
        } else if as_tcpdump() {
            cut_like_tcpdump += 1;
        } else {
            differences.push(format!("{what} is cut otherwise"));
        }
    }
    println!(
        "{} filters: {same} files as tcpdump writes them, {both_refuse} refused by both, {more} by \
         tcpdump alone; {cut} files cut as editcap cuts \
         them, {cut_like_tcpdump} others at the bytes of tcpdump's copy; {} differences",
        filters.len(),
        differences.len()
    );
    assert!(differences.is_empty() && same > 0 && cut > 0, "{}", differences.join("\n"));
}
