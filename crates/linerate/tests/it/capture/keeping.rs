//! What `capture -r` keeps of a file: all of it in pcapng, and in pcap what tcpdump keeps.

mod captures;

use std::path::Path;
use std::process::{Command, Output};

use super::support::{accepts, folder, write_mixed};
use crate::LINERATE;

fn read_into(input: &Path, output: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(LINERATE);
    command.args(["capture", "-q", "-r"]).arg(input).arg("-w").arg(output);
    command.args(arguments).output().unwrap()
}

/// The number of each block and its bytes.
fn blocks(bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let (mut blocks, mut at, mut big) = (Vec::new(), 0, false);
    while at < bytes.len() {
        let word = |at: usize, big: bool| {
            let word = bytes[at..at + 4].try_into().unwrap();
            if big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
        };
        if bytes[at..at + 4] == [0x0a, 0x0d, 0x0d, 0x0a] {
            big = bytes[at + 8..at + 12] == [0x1a, 0x2b, 0x3c, 0x4d];
        }
        let end = at + word(at + 4, big) as usize;
        blocks.push((word(at, big), bytes[at..end].to_vec()));
        at = end;
    }
    blocks
}

const PACKETS: [u32; 3] = [2, 3, 6];

/// Writes blocks and options in either byte order.
struct Maker {
    big: bool,
    out: Vec<u8>,
}

impl Maker {
    fn short(&self, value: u16) -> [u8; 2] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn word(&self, value: u32) -> [u8; 4] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn long(&self, value: u64) -> [u8; 8] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn options(&self, options: &[(u16, &[u8])]) -> Vec<u8> {
        let one = |(code, value): &(u16, &[u8])| {
            let padding = &[0; 3][..value.len().wrapping_neg() & 3];
            [&self.short(*code)[..], &self.short(value.len() as u16), value, padding].concat()
        };
        options.iter().chain([&(0, &[][..])]).flat_map(one).collect()
    }

    fn block(&mut self, number: u32, body: &[&[u8]]) {
        let body = body.concat();
        let length = self.word(body.len() as u32 + 12);
        let number = self.word(number);
        self.out.extend([&number[..], &length, &body, &length].concat());
    }

    /// A section with every kind of block, and with options that only this file has.
    fn section(&mut self, version: [u16; 2]) {
        let magic = self.word(0x1a2b_3c4d);
        let versions = version.map(|number| self.short(number)).concat();
        // Private enterprise numbers, for custom options and blocks.
        let enterprise = self.word(32473);
        let custom = [&enterprise[..], b"anything"].concat();
        let options = self.options(&[
            (1, b"a comment"),
            (1, b"another"),
            (2, b"hardware"),
            (3, b"system"),
            (4, b"program"),
            (2988, &custom),
        ]);
        self.block(0x0a0d_0d0a, &[&magic, &versions, &[0xff; 8], &options]);
        let speed = self.long(10_000_000_000);
        let offset = self.long(3600);
        let options = self.options(&[
            (2, b"eth9"),
            (4, &[192, 0, 2, 1, 255, 255, 255, 0]),
            (6, &[2, 0, 0, 0, 0, 1]),
            (8, &speed),
            (9, &[3]),
            (11, b"\0a filter of its own"),
            (13, &[4]),
            (14, &offset),
            (15, b"card"),
        ]);
        let head = [self.short(1), self.short(0)].concat();
        let snaplen = self.word(65535);
        self.block(1, &[&head, &snaplen, &options]);
        let (kind, secrets) = (self.word(0x544c_534b), b"CLIENT_RANDOM 00 11\n");
        let length = self.word(secrets.len() as u32);
        self.block(10, &[&kind, &length, secrets]);
        let head = [self.short(1), self.short(9)].concat();
        let end = [self.short(0), self.short(0)].concat();
        self.block(4, &[&head, &[192, 0, 2, 1], b"host\0", &[0; 3], &end]);
        self.block(0x0bad, &[&enterprise, b"opaque bytes"]);
        self.block(0x4000_0bad, &[&enterprise, b"not to copy?"]);
        self.block(9, &[b"__REALTIME_TIMESTAMP=1\n\n"]);
        for number in 0..10_u8 {
            let mut frame = [0; 63];
            frame[12..15].copy_from_slice(&[8, 0, 0x45]);
            frame[23] = if number % 2 == 0 { 17 } else { 6 };
            frame[62] = number;
            let (flags, dropped) = (self.word(0x0000_0105), self.long(7));
            let options = self.options(&[
                (1, b"of a packet"),
                (2, &flags),
                (3, &[2, 1, 2, 3, 4]),
                (4, &dropped),
                (5, &dropped),
                (6, &flags),
                (7, &[1, 0, 0, 0, 0, 0, 0, 0, 2]),
                (2989, &custom),
            ]);
            // The last is shorter on the wire than what was captured.
            let wire = if number == 9 { 60 } else { 1500 };
            let head =
                [0, 0, 1000 + 400 * u32::from(number), 63, wire].map(|field| self.word(field));
            self.block(6, &[&head.concat(), &frame, &[0], &options]);
        }
        let times = [self.word(0), self.word(2000)].concat();
        let interface = self.word(0);
        let options = self.options(&[(1, b"counts"), (2, &times), (4, &speed), (2988, &custom)]);
        self.block(5, &[&interface, &times, &options]);
    }
}

#[test]
fn pcapng_keeps_every_block_and_option() {
    let folder = folder();
    let (input, output) = (folder.path().join("in.pcapng"), folder.path().join("out.pcapng"));
    let mut maker = Maker { big: false, out: Vec::new() };
    for big in [false, true] {
        maker.big = big;
        maker.section([1, 0]);
    }
    std::fs::write(&input, &maker.out).unwrap();
    let all = read_into(&input, &output, &[]);
    assert!(all.status.success(), "{all:?}");
    assert!(std::fs::read(&output).unwrap() == maker.out, "a copy");
    for (filter, kept) in [("udp", 10), ("tcp", 10), ("not ip", 0)] {
        let some = read_into(&input, &output, &[filter]);
        assert!(some.status.success(), "{some:?}");
        let (before, after) = (blocks(&maker.out), blocks(&std::fs::read(&output).unwrap()));
        let others = |blocks: &[(u32, Vec<u8>)]| {
            let other = blocks.iter().filter(|(number, _)| !PACKETS.contains(number));
            other.cloned().collect::<Vec<_>>()
        };
        assert_eq!(others(&before), others(&after), "{filter}");
        let packets: Vec<_> = after.iter().filter(|(number, _)| PACKETS.contains(number)).collect();
        assert_eq!(packets.len(), kept, "{filter}");
        assert!(packets.iter().all(|packet| before.contains(packet)), "{filter}: with its options");
    }
    let cut = read_into(&input, &output, &["-s", "30", "-c", "3"]);
    assert!(cut.status.success(), "{cut:?}");
    let mut reader = linerate_pcapfile::Reader::open(&output).unwrap();
    let mut packets = 0;
    while let Some(record) = reader.next().unwrap() {
        let frame = record.frame;
        assert_eq!((frame.len(), frame.wire_len, record.comment), (30, 1500, Some("of a packet")));
        packets += 1;
    }
    assert_eq!(packets, 3);
}

/// Blocks that packets need to be understood: sections, interfaces, names and secrets.
const HEADERS: [u32; 4] = [0x0a0d_0d0a, 1, 4, 10];

#[test]
fn each_file_of_a_rotation_has_what_its_packets_need() {
    let folder = folder();
    let input = folder.path().join("in.pcapng");
    let mut maker = Maker { big: false, out: Vec::new() };
    maker.section([1, 0]);
    let first = blocks(&maker.out);
    maker.big = true;
    maker.section([1, 0]);
    std::fs::write(&input, &maker.out).unwrap();
    let all = blocks(&maker.out);
    let second = &all[first.len()..];
    let rotations: [(&[&str], usize); 5] = [
        (&["-b", "packets:3"], 7),
        (&["-C", "1k"], 2),
        (&["-G", "1"], 4),
        (&["-G", "1", "-U"], 4),
        (&["-b", "packets:3", "-s", "30"], 7),
    ];
    for (rotation, least) in rotations {
        let place = tempfile::tempdir().unwrap();
        let stem = place.path().join(if rotation[0] == "-G" { "out-%s" } else { "out" });
        let ended = read_into(&input, &stem, &[&["--format", "pcapng"], rotation].concat());
        assert!(ended.status.success() && ended.stderr.is_empty(), "{rotation:?}: {ended:?}");
        let mut files: Vec<_> =
            std::fs::read_dir(place.path()).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort_by_key(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            (!name.starts_with("out_") && !name.starts_with("out-"), name.len(), name.to_owned())
        });
        assert!(files.len() >= least, "{rotation:?}: {files:?}");
        let (mut packets, mut others) = (Vec::new(), Vec::new());
        for file in &files {
            accepts("capinfos", &["-c"], file);
            let mut at_start = blocks(&std::fs::read(file).unwrap());
            let body = at_start.iter().position(|(number, _)| !HEADERS.contains(number));
            let rest = at_start.split_off(body.unwrap());
            let wanted = [&first[..], second].map(|section| {
                let wanted = section.iter().filter(|(number, _)| HEADERS.contains(number));
                wanted.cloned().collect::<Vec<_>>()
            });
            assert!(wanted.contains(&at_start), "{rotation:?}: {}: {at_start:x?}", file.display());
            for block in rest {
                match block.0 {
                    6 => packets.push(block),
                    number if HEADERS.contains(&number) => {}
                    _ => others.push(block),
                }
            }
        }
        let of = |wanted: fn(u32) -> bool| {
            all.iter().filter(|(number, _)| wanted(*number)).cloned().collect::<Vec<_>>()
        };
        assert_eq!(others, of(|number| number != 6 && !HEADERS.contains(&number)), "{rotation:?}");
        let whole = of(|number| number == 6);
        if rotation.contains(&"30") {
            assert_eq!(packets.len(), whole.len());
        } else {
            assert_eq!(packets, whole, "{rotation:?}");
        }
    }
}

#[test]
fn files_of_a_rotation_have_the_secrets_that_editcap_gives_them() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    write_mixed(&path("mixed.pcap"));
    std::fs::write(path("keys"), "CLIENT_RANDOM 00 11\n").unwrap();
    for arguments in
        [&["mixed.pcap", "in.pcapng"][..], &["-c", "40", "mixed.pcap", "theirs.pcapng"]]
    {
        let mut editcap = Command::new("editcap");
        editcap.args(["--inject-secrets", "tls,keys", "--capture-comment", "a section"]);
        editcap.args(arguments).current_dir(folder.path());
        let Ok(ran) = editcap.output() else {
            println!("skipped: files_of_a_rotation_have_the_secrets: no editcap");
            return;
        };
        assert!(ran.status.success(), "{ran:?}");
    }
    let ours = read_into(&path("in.pcapng"), &path("ours.pcapng"), &["-b", "packets:40"]);
    assert!(ours.status.success(), "{ours:?}");
    let starting = |start: &str| {
        let names = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
        let mut names: Vec<_> = names
            .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(start))
            .collect();
        names.sort();
        names
    };
    let [ours, theirs] = [starting("ours_"), starting("theirs_")];
    assert_eq!((ours.len(), theirs.len()), (3, 3));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let [ours, theirs] = [ours, theirs].map(|path| {
            let blocks = blocks(&std::fs::read(path).unwrap());
            let secrets: Vec<_> =
                blocks.iter().filter(|(number, _)| *number == 10).cloned().collect();
            let comments = String::from_utf8_lossy(&blocks[0].1).contains("a section");
            let packets = blocks.iter().filter(|(number, _)| *number == 6).count();
            (secrets, comments, packets)
        });
        assert_eq!(ours, theirs);
        assert!(ours.0.len() == 1 && ours.1, "{ours:?}");
    }
}

#[test]
fn a_full_output_ends_the_reading_and_says_where() {
    let folder = folder();
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    write_mixed(&input);
    let mut large = std::fs::read(&input).unwrap();
    let packets = large[24..].to_vec();
    (0..2000).for_each(|_| large.extend_from_slice(&packets));
    std::fs::write(&input, large).unwrap();
    for format in ["pcap", "pcapng"] {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 64; exec \"$@\"", "sh", LINERATE, "capture", "-q", "-r"]);
        command.arg(&input).args(["--format", format, "-w"]).arg(&output);
        let ended = command.output().unwrap();
        let printed = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{printed}");
        assert!(printed.contains("reading stopped after"), "{printed}");
        accepts("capinfos", &["-c"], &output);
    }
}

#[test]
fn files_of_wiresharks_tools_are_kept_whole() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    write_mixed(&path("mixed.pcap"));
    std::fs::write(path("keys"), "CLIENT_RANDOM 00 11\n").unwrap();
    std::fs::write(path("hosts"), "192.0.2.1 named.example\n").unwrap();
    let tools: [(&str, &[&str]); 4] = [
        ("editcap", &["--inject-secrets", "tls,keys", "mixed.pcap", "secrets.pcapng"]),
        ("editcap", &["-a", "3:a comment", "mixed.pcap", "commented.pcapng"]),
        ("mergecap", &["-F", "pcapng", "-w", "merged.pcapng", "mixed.pcap", "commented.pcapng"]),
        ("tshark", &["-r", "merged.pcapng", "-H", "hosts", "-W", "n", "-w", "written.pcapng"]),
    ];
    for (tool, arguments) in tools {
        let Ok(ran) = Command::new(tool).args(arguments).current_dir(folder.path()).output() else {
            println!("skipped: files_of_wiresharks_tools_are_kept_whole: no {tool}");
            return;
        };
        assert!(ran.status.success(), "{tool}: {ran:?}");
    }
    for name in ["secrets", "commented", "merged", "written"] {
        let input = path(&format!("{name}.pcapng"));
        let ended = read_into(&input, &path("out.pcapng"), &[]);
        assert!(ended.status.success(), "{name}: {ended:?}");
        let [before, after] = [input, path("out.pcapng")].map(|path| std::fs::read(path).unwrap());
        let bodies = |bytes: &[u8]| {
            // The length of a section is not known while it is written.
            let of = |(number, mut bytes): (u32, Vec<u8>)| {
                if number == 0x0a0d_0d0a {
                    bytes[16..24].fill(0);
                }
                bytes
            };
            blocks(bytes).into_iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(bodies(&before), bodies(&after), "{name}");
    }
}

/// In an order that rotation does not change; each file repeats what its packets need to be understood.
fn sort(blocks: &mut Vec<(u32, Vec<u8>)>) {
    blocks.sort();
    let repeated =
        |one: &mut (u32, Vec<u8>), other: &mut _| HEADERS.contains(&one.0) && one == other;
    blocks.dedup_by(repeated);
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn pcap_files_are_refused_and_copied_as_tcpdump_does() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    write_mixed(&path("mixed.pcap"));
    let mixed = std::fs::read(path("mixed.pcap")).unwrap();
    let with = |at: usize, bytes: &[u8]| {
        let mut file = mixed.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    // A packet of which half was captured, with the lengths in either order.
    let mut half = with(24 + 12, &80_u32.to_le_bytes());
    let mut swapped = with(24 + 8, &80_u32.to_le_bytes());
    for minor in 0..=5_u16 {
        for (order, file) in [("first", &mut half), ("last", &mut swapped)] {
            file[6..8].copy_from_slice(&minor.to_le_bytes());
            files.push((format!("version 2.{minor}, captured {order}"), file.clone()));
        }
    }
    for (major, minor) in [(1, 0), (1, 2), (3, 0), (543, 0), (0, 0), (65535, 4)] {
        let version = [u16::to_le_bytes(major), u16::to_le_bytes(minor)].concat();
        files.push((format!("version {major}.{minor}"), with(4, &version)));
    }
    let magics = [0xa1b2_cd34_u32, 0xa1b2_34cd, 0xa12b_3c4d, 0xa1e2_cb12];
    for magic in magics.into_iter().flat_map(|magic| [magic, magic.swap_bytes()]) {
        files.push((format!("magic number {magic:#x}"), with(0, &magic.to_le_bytes())));
    }
    // The records of the first of them have an interface, a protocol and a type more.
    for big in [false, true] {
        let (mut at, mut file) = (24, with(0, &0xa1b2_cd34_u32.to_le_bytes())[..24].to_vec());
        while at < mixed.len() {
            let length: [u8; 4] = mixed[at + 8..at + 12].try_into().unwrap();
            let end = at + 16 + u32::from_le_bytes(length) as usize;
            let words = [&mixed[at..at + 16], &[2, 0, 0, 0], &[0, 8, 0, 0]].concat();
            file.extend([&words, &mixed[at + 16..end]].concat());
            if big {
                let start = file.len() - (end - at - 16) - 24;
                (start..start + 20).step_by(4).for_each(|at| file[at..at + 4].reverse());
            }
            at = end;
        }
        if big {
            file[..4].reverse();
            [4, 6].into_iter().for_each(|at| file[at..at + 2].reverse());
            (8..24).step_by(4).for_each(|at| file[at..at + 4].reverse());
        }
        files.push((format!("Kuznetsov's format, big-endian: {big}"), file));
    }
    for network in [
        0x0001_0001_u32,
        0x0200_0001,
        0x4400_0001,
        0x2400_0001,
        0x0400_0001,
        0xf000_0001,
        0,
        9,
        12,
        13,
        14,
        15,
        16,
        50,
        101,
        103,
        105,
        113,
        143,
        147,
        276,
        65_534,
        65_535,
    ] {
        files.push((format!("network {network:#010x}"), with(20, &network.to_le_bytes())));
    }
    for snaplen in [0_u32, 40, 300_000, 262_144, 0x7fff_ffff, 0x8000_0000, u32::MAX] {
        files.push((format!("snapshot length {snaplen}"), with(16, &snaplen.to_le_bytes())));
    }
    // The first packet was shorter on the wire than it is here.
    files.push(("shorter on the wire".into(), with(24 + 12, &20_u32.to_le_bytes())));
    let mut long = mixed[..24].to_vec();
    long[16..20].copy_from_slice(&400_000_u32.to_le_bytes());
    long.extend([1_u32, 2, 200_000, 200_000].map(u32::to_le_bytes).concat());
    long.resize(long.len() + 200_000, 7);
    files.push(("a long packet".into(), long));
    for part in [999_999_u32, 1_000_000, 2_000_000_000, 0x8000_0000, u32::MAX] {
        for magic in [0xa1b2_c3d4_u32, 0xa1b2_3c4d] {
            let mut file = with(24 + 4, &part.to_le_bytes());
            file[..4].copy_from_slice(&magic.to_le_bytes());
            files.push((format!("{part} parts of a second, {magic:#x}"), file));
        }
    }
    // The same in the other byte order.
    let mut swapped = mixed.clone();
    swapped[..4].reverse();
    [4, 6].into_iter().for_each(|at| swapped[at..at + 2].reverse());
    (8..24).step_by(4).for_each(|at| swapped[at..at + 4].reverse());
    let mut at = 24;
    while at < swapped.len() {
        let length: [u8; 4] = swapped[at + 8..at + 12].try_into().unwrap();
        (at..at + 16).step_by(4).for_each(|at| swapped[at..at + 4].reverse());
        at += 16 + u32::from_le_bytes(length) as usize;
    }
    files.push(("big-endian".into(), swapped));
    let precise = "--time-stamp-precision=nano";
    let files = files.iter().flat_map(|(what, bytes)| {
        let filter = "not ip or udp or greater 70";
        let cases = [vec![], vec![precise], vec![filter]];
        cases.map(|options| (format!("{what} {options:?}"), bytes, options))
    });
    for (what, bytes, options) in files {
        std::fs::write(path("in.pcap"), bytes).unwrap();
        let mut tcpdump = Command::new("tcpdump");
        tcpdump.arg("-r").arg(path("in.pcap")).arg("-w").arg(path("theirs.pcap")).args(&options);
        let Ok(theirs) = tcpdump.output() else {
            println!("skipped: pcap_files_are_refused_and_copied_as_tcpdump_does: no tcpdump");
            return;
        };
        let ours = read_into(&path("in.pcap"), &path("ours.pcap"), &options);
        assert_eq!(ours.status.success(), theirs.status.success(), "{what}: {ours:?} {theirs:?}");
        if theirs.status.success() {
            let [ours, theirs] =
                ["ours.pcap", "theirs.pcap"].map(|name| std::fs::read(path(name)).unwrap());
            assert!(ours == theirs, "{what}: {:02x?} and {:02x?}", &ours[..64], &theirs[..64]);
        }
    }
}

/// The unit of its packets' times may be among them.
#[test]
fn damaged_options_of_an_interface_are_refused_as_by_tcpdump() {
    let folder = folder();
    let (input, output) = (folder.path().join("in.pcapng"), folder.path().join("out.pcap"));
    let nine: &[u8] = &[9, 0, 1, 0, 9, 0, 0, 0];
    let whole: &[u8] = &[9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0];
    for (options, known) in [
        (&[][..], true),
        (nine, true),
        (whole, true),
        (&[whole, &[1, 2, 3, 4]].concat(), true),
        (&nine[..4], false),
        (&[9, 0, 2, 0, 9, 0, 0, 0], false),
        (&[14, 0, 4, 0, 9, 0, 0, 0], false),
        (&[2, 0, 200, 0, 9, 0, 0, 0], false),
        (&[2, 0, 3, 0, b'a', 0, 0, 0], true),
        (&[0, 0, 1, 0, 0, 0, 0, 0], false),
        (&[nine, nine].concat(), false),
    ] {
        let mut maker = Maker { big: false, out: Vec::new() };
        let head = [maker.word(0x1a2b_3c4d), [1, 0, 0, 0]].concat();
        maker.block(0x0a0d_0d0a, &[&head, &[0xff; 8]]);
        maker.block(1, &[&[1, 0, 0, 0, 0, 0, 4, 0], options]);
        std::fs::write(&input, &maker.out).unwrap();
        let ended = read_into(&input, &output, &[]);
        assert_eq!(ended.status.success(), known, "{options:?}: {ended:?}");
        match Command::new("tcpdump").arg("-nr").arg(&input).output() {
            Ok(theirs) => assert_eq!(theirs.status.success(), known, "{options:?}: {theirs:?}"),
            Err(_) => println!("skipped: tcpdump's opinion: not installed"),
        }
    }
}

#[test]
fn a_section_of_an_unknown_version_is_refused() {
    let folder = folder();
    let (input, output) = (folder.path().join("in.pcapng"), folder.path().join("out.pcap"));
    for (version, known) in [([1, 0], true), ([1, 2], true), ([1, 1], false), ([2, 0], false)] {
        let mut maker = Maker { big: false, out: Vec::new() };
        maker.section(version);
        std::fs::write(&input, &maker.out).unwrap();
        let ended = read_into(&input, &output, &[]);
        assert_eq!(ended.status.success(), known, "{version:?}: {ended:?}");
        match Command::new("tcpdump").arg("-nr").arg(&input).output() {
            Ok(theirs) => assert_eq!(theirs.status.success(), known, "{version:?}: {theirs:?}"),
            Err(_) => println!("skipped: tcpdump's opinion: not installed"),
        }
    }
}
