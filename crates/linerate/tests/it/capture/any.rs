//! `-i any` into a classic file: what tcpdump writes of the same packets.

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;

use linerate_pcapfile::Reader;
use linerate_ring::packet::Sender;
use linerate_ring::tun::{Device, Kind};
use linerate_testkit::tools::ip;
use linerate_testkit::{Process, root_or_skip, skip, wait_for};
use linerate_wire::virtio::Header;
use nix::sys::signal::Signal;

use super::support::{Cable, accepts, everybody_accepts, folder, listening, read};
use crate::LINERATE;

/// An IPv4 packet with a datagram of 8 bytes, without a checksum of UDP.
const PACKET: [u8; 36] = [
    0x45, 0, 0, 36, 0, 1, 0, 0, 64, 17, 0x66, 0x2e, 10, 77, 0, 2, 10, 77, 0, 1, 0x0f, 0xa0, 0x13,
    0x88, 0, 16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8,
];

/// The same in an Ethernet frame to everybody, with a VLAN tag.
fn tagged() -> Vec<u8> {
    [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1], &[0x81, 0, 0, 5, 8, 0], &PACKET].concat()
}

/// Link type, then length on the wire and bytes of each packet; CPUs deliver in any order.
fn packets(path: &Path) -> (u16, Vec<(u32, Vec<u8>)>) {
    let mut reader = Reader::open(path).unwrap();
    let mut packets = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        packets.push((record.frame.wire_len, record.frame.head().to_vec()));
    }
    packets.sort();
    (reader.interfaces()[0].linktype, packets)
}

#[test]
fn all_interfaces_in_a_classic_file_are_what_tcpdump_writes() {
    compare_with_tcpdump(276, &[]);
}

/// Such a name is escaped, and names the interface.
#[test]
fn an_interface_whose_name_is_no_utf_8_is_captured() {
    root_or_skip!();
    let cable = Cable::new();
    let make = r#"name=$(printf 'v\377x'); ip link add name "$name" type veth peer name p
                  ip link set dev "$name" up && ip link set dev p up"#;
    assert!(cable.far.command("sh").args(["-c", make]).status().unwrap().success());
    let listed = String::from_utf8(cable.run("-D").stdout).unwrap();
    assert!(listed.contains(r"v\xffx [up, running, veth] packet:"), "{listed}");
    for arguments in ["any", "any --source packet", r"v\xffx", r"v\xffx --source tee"] {
        let output = cable.run(&format!("--discard -a duration:0.1 -i {arguments}"));
        assert!(output.status.success(), "{arguments}: {output:?}");
    }
    let output = cable.run(r"--discard -a duration:0.1 -i v\xfex");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no interface"), "{output:?}");
}

#[test]
fn all_interfaces_with_the_older_header_are_what_tcpdump_writes() {
    compare_with_tcpdump(113, &["-y", "LINUX_SLL"]);
}

fn compare_with_tcpdump(linktype: u16, options: &[&str]) {
    root_or_skip!();
    if Command::new("tcpdump").arg("--version").output().is_err() {
        skip!("there is no tcpdump");
    }
    let (cable, folder) = (Cable::new(), folder());
    ip(&cable.far, "link set lo up");
    let tun = cable.far.run(|| Device::builder("bare").kind(Kind::Tun).build().unwrap()).unwrap();
    ip(&cable.far, "address add 10.77.0.1/24 dev bare");
    ip(&cable.far, "link set bare up");
    let far = cable.veth().b.index();
    let filters = [
        "udp".to_owned(),
        "inbound and udp".to_owned(),
        "outbound and udp".to_owned(),
        // The older header has no interface.
        match linktype {
            276 => format!("ifindex {far} and udp port 5000"),
            _ => "udp port 5000".to_owned(),
        },
        "udp and greater 80".to_owned(),
        "udp[8] = 1".to_owned(),
    ];
    let name = |by: &str, number: usize| folder.path().join(format!("{by}{number}.pcap"));
    let running: Vec<[Process; 2]> = filters
        .iter()
        .enumerate()
        .map(|(number, filter)| {
            let mut tcpdump = cable.far.command("tcpdump");
            tcpdump.args(["-i", "any", "-s", "70", "-U", "-Z", "root"]).args(options).arg("-w");
            tcpdump.arg(name("tcpdump", number)).arg(filter);
            let mut linerate = cable.far.command(LINERATE);
            linerate.args(["capture", "-i", "any", "-s", "70", "-U"]).args(options).arg("-w");
            linerate.arg(name("linerate", number)).arg(filter);
            [listening(&mut tcpdump), listening(&mut linerate)]
        })
        .collect();
    // Received and sent: by a veth, by the loopback interface, by a device without a link layer.
    cable.send(5, 64);
    let far_sends = || {
        for (from, to, size) in [
            ("10.9.0.2", "10.9.0.1", 30),
            ("127.0.0.1", "127.0.0.1", 40),
            ("10.77.0.1", "10.77.0.2", 50),
        ] {
            let socket = UdpSocket::bind((from, 0)).unwrap();
            socket.send_to(&vec![1; size], (to, 5000)).unwrap();
        }
    };
    cable.far.run(far_sends).unwrap();
    assert!(tun.queues()[0].send(&Header::default(), &PACKET).unwrap());
    let sender = cable.near.run(|| Sender::open("near").unwrap()).unwrap();
    sender.send(&Header::default(), &tagged()).unwrap();
    // 5 and the tagged one, one each way of lo, of which one is kept, one sent by the veth and two by the device.
    wait_for("packets in tcpdump's file", || packets(&name("tcpdump", 0)).1.len() == 10);
    wait_for("packets in ours", || packets(&name("linerate", 0)).1.len() == 10);
    // What tcpdump has not read at the signal is not in its file.
    for (number, filter) in filters.iter().enumerate() {
        wait_for(&format!("as many packets in both files of `{filter}`"), || {
            let [theirs, ours] = ["tcpdump", "linerate"].map(|by| packets(&name(by, number)).1);
            theirs.len() == ours.len()
        });
    }
    for processes in running {
        for process in processes {
            let (status, _, printed) = process.end(Signal::SIGINT);
            assert!(status.success(), "{printed}");
        }
    }
    let mut seen = 0;
    for (number, filter) in filters.iter().enumerate() {
        let (theirs, ours) = (name("tcpdump", number), name("linerate", number));
        assert_eq!(packets(&ours), packets(&theirs), "{filter}");
        assert_eq!(packets(&ours).0, linktype);
        seen += packets(&ours).1.len();
        everybody_accepts(&ours);
    }
    assert!(seen > 25, "{seen}");

    if linktype != 276 {
        // A tag is a part of such a frame in a file, where `udp` does not accept it.
        return;
    }
    // A filter means the same where the file is read.
    for (number, filter) in filters.iter().enumerate() {
        let output = folder.path().join("read.pcap");
        let read = read(&name("linerate", 0), &format!("-w {} {filter}", output.display()));
        assert!(read.status.success(), "{read:?}");
        if !filter.contains("greater") {
            assert_eq!(packets(&output), packets(&name("linerate", number)), "{filter}");
        }
    }
}

#[test]
fn link_types_are_listed_and_chosen() {
    root_or_skip!();
    let (cable, folder) = (Cable::new(), folder());
    cable
        .far
        .run(|| Device::builder("bare").kind(Kind::Tun).build().map(std::mem::forget))
        .unwrap()
        .unwrap();
    ip(&cable.far, "link set bare up");
    for interface in ["far", "any", "lo", "bare"] {
        let output = cable.run(&format!("-i {interface} -L"));
        let printed = String::from_utf8(output.stdout).unwrap();
        match cable.far.command("tcpdump").args(["-L", "-i", interface]).output() {
            // It adds what it cannot print itself.
            Ok(theirs) => {
                let theirs = String::from_utf8([theirs.stdout, theirs.stderr].concat()).unwrap();
                assert_eq!(printed, theirs.replace(" (printing not supported)", ""));
            }
            Err(_) => println!("skipped: tcpdump's list: not installed"),
        }
        let output = cable.run(&format!("-i {interface} -L --json"));
        let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let list = &list["interfaces"];
        assert_eq!(list[0]["name"], interface, "{list}");
        for one in list[0]["link_types"].as_array().unwrap() {
            assert!(printed.contains(one["name"].as_str().unwrap()), "{list}");
        }
    }
    let path = folder.path().join("docsis.pcap");
    let mut command = cable.far.command(LINERATE);
    command.args(["capture", "-i", "far", "-y", "DOCSIS", "-Q", "in", "link[12:2] = 0x800"]);
    command.arg("-w").arg(&path);
    let capture = listening(&mut command);
    cable.send(3, 64);
    let (status, _, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    let (linktype, packets_of_it) = packets(&path);
    assert_eq!((linktype, packets_of_it.len()), (143, 3));
    let path = folder.path().join("any.pcapng");
    let mut command = cable.far.command(LINERATE);
    command.args(["capture", "-i", "any", "-y", "LINUX_SLL2", "udp", "-w"]).arg(&path);
    let capture = listening(&mut command);
    cable.send(3, 64);
    let (status, _, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    let (linktype, packets) = packets(&path);
    assert_eq!((linktype, packets.len()), (276, 3));
    for (options, status, says) in [
        ("-i far -y DOCSIS udp", 1, "DOCSIS link-layer type filtering not implemented"),
        ("-i lo -y DOCSIS", 1, "lo does not have the link type DOCSIS"),
        ("-i far -y RAW", 1, "far does not have the link type RAW"),
        ("-i far -y nothing", 2, "no link type of libpcap"),
    ] {
        let output = cable.run(&format!("{options} --discard"));
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{printed}");
        assert!(printed.contains(says), "{printed}");
    }
}

/// One socket and one reader have the packets of all interfaces, also of those that come later.
#[test]
fn interfaces_that_appear_are_captured_and_named() {
    root_or_skip!();
    interfaces_appear(true);
    // The filter is for their link layer, too, which no interface had at the start.
    interfaces_appear(false);
}

#[test]
fn the_first_ethernet_interface_may_come_later() {
    root_or_skip!();
    for bare_at_start in [true, false] {
        let (cable, folder) = (Cable::new(), folder());
        let path = folder.path().join("any.pcapng");
        cable.veth().b.down().unwrap();
        ip(&cable.far, "link set lo down");
        let bare = cable.far.run(|| Device::builder("bare").kind(Kind::Tun).build().unwrap());
        if bare_at_start {
            ip(&cable.far, "link set bare up");
        }
        let start = |filter: &str| {
            let mut command = cable.far.command(LINERATE);
            command.args(["capture", "-i", "any", "--json", filter, "-w"]).arg(&path);
            listening(&mut command)
        };
        // libpcap compiles this one only for an interface that is up.
        let (status, _, printed) = start("inbound and udp").interrupt();
        assert!(
            status.success() && printed.contains("Ethernet frames that come later"),
            "{printed}"
        );
        let mut capture = start("udp");
        cable.veth().b.up().unwrap();
        cable.veth().a.add_neighbour("10.9.0.2".parse().unwrap(), cable.veth().b.mac()).unwrap();
        cable.wait_until_it_carries();
        cable.send(30, 64);
        capture.until("listening on far, too");
        let (status, json, printed) = capture.interrupt();
        assert!(status.success(), "{printed}");
        assert_eq!(json["captured"], 30, "{json}");
        drop(bare);
    }
}

fn interfaces_appear(up_at_start: bool) {
    let (cable, folder) = (Cable::new(), folder());
    let path = folder.path().join("any.pcapng");
    let program = "for i in $(seq 40); do ip link add d$i type veth peer name e$i && ip link set d$i up; done";
    assert!(cable.far.command("sh").args(["-c", program]).status().unwrap().success());
    ip(&cable.far, "link set lo up");
    let bare = |name: &str| Device::builder(name).kind(Kind::Tun).build().unwrap();
    let first = cable.far.run(|| bare("bare0")).unwrap();
    if up_at_start {
        ip(&cable.far, "link set bare0 up");
    }
    let mut command = cable.far.command(LINERATE);
    command.args(["capture", "-i", "any", "--json", "-b", "packets:20", "udp", "-w"]).arg(&path);
    let mut capture = listening(&mut command);
    ip(&cable.far, "link set bare0 up");
    let tasks = std::fs::read_dir(format!("/proc/{}/task", capture.id())).unwrap().count();
    assert!(tasks < 8, "{tasks} threads");
    let later = cable.far.run(|| bare("bare1")).unwrap();
    ip(&cable.far, "link set bare1 up");
    for _ in 0..5 {
        cable.send(1, 64);
        assert!(first.queues()[0].send(&Header::default(), &PACKET).unwrap());
        assert!(later.queues()[0].send(&Header::default(), &PACKET).unwrap());
    }
    capture.until("listening on bare1, too");
    assert_eq!(capture.stderr().contains("listening on bare0, too"), !up_at_start);
    drop(later);
    capture.until("interface bare1 is gone");
    // Into another file, which begins with all interfaces.
    cable.send(25, 64);
    let (status, json, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    let of = |name: &str| {
        let all = json["interfaces"].as_array().unwrap();
        let one = all.iter().find(|one| one["name"] == name);
        let one = one.unwrap_or_else(|| panic!("{name} in {json}"));
        (one["captured"].as_u64().unwrap(), one["received"].as_u64().unwrap())
    };
    assert_eq!((of("far"), of("bare0"), of("bare1")), ((30, 30), (5, 5), (5, 5)), "{json}");
    assert_eq!((&json["captured"], &json["received"]), (&40.into(), &40.into()), "{json}");
    let mut counts = std::collections::BTreeMap::new();
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let file = file.unwrap().path();
        // tcpdump reads no file with several link types.
        accepts("tshark", &["-nr"], &file);
        let mut reader = Reader::open(&file).unwrap();
        let mut numbers = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            // The first byte of an IPv4 header, behind an Ethernet header or without.
            let head = record.frame.head();
            numbers.push((record.interface, head[0] == 0x45));
        }
        for (number, is_bare) in numbers {
            let interface = &reader.interfaces()[number as usize];
            let name = interface.name.clone().unwrap();
            assert_eq!((interface.linktype == 101, name.starts_with("bare")), (is_bare, is_bare));
            *counts.entry(name).or_insert(0) += 1;
        }
    }
    let expected = [("bare0", 5), ("bare1", 5), ("far", 30)];
    assert_eq!(counts, expected.map(|(name, count)| (name.to_owned(), count)).into());
}
