//! What of the traffic is captured: another network namespace, a sample of the flows.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::process::{Command, Stdio};

use linerate_pcapfile::{InterfaceDescription, Reader};
use linerate_testkit::{Process, root_or_skip, uninterrupted};
use serde_json::Value;

use super::support::{Cable, folder, number, numbers, read};
use crate::LINERATE;

#[test]
fn another_namespace_is_found_by_its_name_and_by_a_process() {
    root_or_skip!();
    let (cable, folder) = (Cable::new(), folder());
    let mut sleep = cable.far.command_killed_with_parent("sleep");
    let mut sleep = sleep.arg("600").stdout(Stdio::null()).spawn().unwrap();
    let places = [cable.far.name().to_owned(), sleep.id().to_string()];
    for (place, source) in places.iter().zip(["packet", "tee"]) {
        let path = folder.path().join(source);
        let options = ["--source", source, "udp", "-w"];
        let start = || {
            let mut command = Command::new(LINERATE);
            command.args(["capture", "--netns", place, "-i", "far"]).args(options).arg(&path);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            Process::from(command.spawn().unwrap())
        };
        let mut capture = start();
        capture.until("listening on far");
        cable.send(20, 64);
        let (status, _, printed) = capture.interrupt();
        assert!(status.success(), "{printed}");
        assert_eq!(numbers(&path), (0..20).collect::<Vec<_>>(), "{place}");
    }
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    let output = Command::new(LINERATE).args(["capture", "--netns", "nowhere", "-D"]).output();
    let printed = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(printed.contains("/run/netns/nowhere"), "{printed}");
}

#[test]
fn interfaces_of_several_namespaces_are_in_one_capture() {
    root_or_skip!();
    let (cable, folder) = (Cable::new(), folder());
    let path = folder.path().join("both.pcapng");
    let names = [&cable.near, &cable.far].map(|namespace| namespace.name().to_owned());
    let [near, far] = &names;
    let mut command = Command::new(LINERATE);
    command.args(["capture", "--netns", near, "--netns", far, "-i", "any", "--json", "-w"]);
    command.arg(&path).arg("udp").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut capture = Process::from(command.spawn().unwrap());
    capture.until(&format!("listening on {far}/far"));
    cable.send(50, 64);
    let (status, json, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    assert_eq!((&json["captured"], &json["dropped"]["total"]), (&100.into(), &0.into()), "{json}");
    let mut reader = Reader::open(&path).unwrap();
    let mut packets = BTreeMap::<u32, Vec<u32>>::new();
    let (mut last, mut back) = (0, 0);
    while let Some(record) = reader.next().unwrap() {
        let stamp = record.frame.timestamp.unwrap().0;
        back += usize::from(stamp < last);
        last = stamp;
        packets.entry(record.interface).or_default().push(number(&record));
    }
    assert_eq!(back, 0, "one order of time");
    let all: Vec<_> = (0..50).collect();
    for place in [format!("{near}/near"), format!("{far}/far")] {
        let named = |one: &InterfaceDescription| one.name.as_ref() == Some(&place);
        let index = reader.interfaces().iter().position(named).expect("the interface");
        assert_eq!(packets[&(index as u32)], all, "{place}");
        let statistics = reader.interfaces()[index].statistics.as_ref().unwrap();
        assert!(statistics.received.is_some_and(|count| count < 1000), "{statistics:?}");
    }
    for wrong in ["-D", "-L", "-Z nobody -w file"] {
        let mut command = Command::new(LINERATE);
        command.args(["capture", "--netns", near, "--netns", far]).args(wrong.split(' '));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
}

#[test]
fn an_interface_is_named_with_its_namespace() {
    root_or_skip!();
    let (cable, folder) = (Cable::new(), folder());
    let names = [&cable.near, &cable.far].map(|namespace| namespace.name().to_owned());
    let [near, far] = &names;
    let both = ["--netns", near, "--netns", far];
    let capture = |netns: &[&str], interfaces: &[String]| {
        let mut command = Command::new(LINERATE);
        command.arg("capture").args(netns).args(interfaces.iter().flat_map(|name| ["-i", name]));
        command.args(["--discard", "-c", "1"]);
        command
    };
    // `near` has no interface `far`, and vice versa.
    let of_both = [format!("{near}/near"), format!("{far}/far")];
    let mut command = Command::new(LINERATE);
    command.args(["capture", "--json", "-w"]).arg(folder.path().join("both.pcapng")).args(both);
    command.args(["-i", &of_both[0], "-i", &of_both[1], "udp"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Process::from(command.spawn().unwrap());
    running.until(&format!("listening on {far}/far"));
    cable.send(20, 64);
    let (status, json, printed) = running.interrupt();
    assert!(status.success() && json["captured"] == 40, "{printed}");
    let listed: Vec<_> =
        json["interfaces"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(listed, of_both.iter().collect::<Vec<_>>());

    /// The namespaces, the interfaces, the exit status, and words of the message.
    type Refused<'a> = (&'a [&'a str], Vec<String>, i32, Vec<String>);
    let twice = ["--netns", near, "--netns", near];
    let refused: [Refused<'_>; 10] = [
        (&both, vec!["nope".into()], 1, vec![near.clone(), "no interface named nope".into()]),
        (&both[..2], vec!["nope".into()], 1, vec![near.clone(), "no interface named nope".into()]),
        (&both, vec!["near".into()], 1, vec![far.clone(), "no interface named near".into()]),
        (&both, vec!["elsewhere/near".into()], 2, vec!["give --netns elsewhere, too".into()]),
        (&[], vec![of_both[0].clone()], 2, vec![format!("give --netns {near}, too")]),
        (&both, vec![of_both[0].clone()], 2, vec![format!("give -i {far}/NAME")]),
        (&both, vec!["near".into(), of_both[0].clone()], 2, vec!["given twice".into()]),
        (&twice, vec!["near".into()], 2, vec![format!("--netns {near} is given twice")]),
        (&both, vec!["/near".into()], 2, vec!["-i /near names no network namespace".into()]),
        (
            &both,
            vec![format!("{near}/any"), of_both[1].clone()],
            2,
            vec!["take two captures".into()],
        ),
    ];
    for (netns, interfaces, code, words) in refused {
        let output = capture(netns, &interfaces).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{interfaces:?}: {printed}");
        for word in words {
            assert!(printed.contains(&word), "{interfaces:?}: no {word} in {printed}");
        }
    }

    // A warning names the namespace, too.
    cable.veth().b.set_features(&[("rx-vlan-hw-parse", true)]).unwrap();
    let output = capture(&both, &of_both)
        .args(["--source", "tee", "-B", "8M", "-a", "duration:0.1"])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    let mut warnings = printed.lines().filter(|line| line.contains("rx-vlan-offload"));
    assert!(warnings.any(|line| line.contains(&format!("warning: {far}/far: "))), "{printed}");

    // An interface that is deleted during the capture.
    let mut command = capture(&both, &of_both);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Process::from(command.spawn().unwrap());
    running.until(&format!("listening on {far}/far"));
    let mut delete = cable.far.command("ip");
    assert!(delete.args(["link", "del", "far"]).status().unwrap().success());
    let (status, _, printed) = running.wait();
    let gone = |name: &String| printed.contains(&format!("interface {name} is gone"));
    assert!(!status.success() && of_both.iter().any(gone), "{printed}");
}

#[test]
fn a_cutoff_keeps_the_beginning_of_each_flow_and_counts_the_rest() {
    root_or_skip!();
    const CUTOFF: u64 = 20_000;
    for source in ["packet", "tee"] {
        let (cable, folder) = (Cable::new(), folder());
        let path = folder.path().join("cutoff.pcap");
        let options = format!("--source {source} --cutoff {CUTOFF} -s 96 --json udp");
        let capture = cable.capture(&format!("-w {} {options}", path.display()));
        let bind = |address: &str, port| UdpSocket::bind((address, port)).unwrap();
        let server = cable.far.run(|| bind("10.9.0.2", 5000)).unwrap();
        // There and back: 28 bytes of files and so many more, so often.
        let flows: Vec<(u16, usize, u64)> = (0..20)
            .map(|flow| (10_000 + flow, 20, 5))
            .chain([(20_000, 1000, 100), (20_001, 972, 10), (20_002, 972, 11)])
            .collect();
        let mut buffer = [0; 2048];
        for (port, size, times) in &flows {
            let client = cable.near.run(|| bind("10.9.0.1", *port)).unwrap();
            for _ in 0..*times {
                client.send_to(&vec![1; *size], "10.9.0.2:5000").unwrap();
                let (_, from) = uninterrupted(|| server.recv_from(&mut buffer)).unwrap();
                server.send_to(&vec![2; *size], from).unwrap();
            }
        }
        let (status, json, printed) = capture.interrupt();
        assert!(status.success(), "{printed}");
        let mut kept = BTreeMap::<u16, u64>::new();
        let mut reader = Reader::open(&path).unwrap();
        while let Some(record) = reader.next().unwrap() {
            assert!(record.frame.len() <= 96);
            let port = |at| u16::from_be_bytes(record.frame.head()[at..at + 2].try_into().unwrap());
            *kept.entry(port(34).max(port(36))).or_default() += 1;
        }
        // A tee sees what comes in.
        let directions = if source == "tee" { 1 } else { 2 };
        let (mut all, mut captured) = (0, 0);
        for (port, size, times) in flows {
            let sent = times * directions;
            let expected = sent.min(CUTOFF.div_ceil(size as u64 + 28));
            assert_eq!(kept.get(&port), Some(&expected), "{source}: port {port}");
            (all, captured) = (all + sent, captured + expected);
        }
        assert_eq!(
            (&json["captured"], &json["received"]),
            (&captured.into(), &all.into()),
            "{json}"
        );
        assert_eq!(json["dropped"]["cutoff"], all - captured, "{json}");
        assert_eq!(json["dropped"]["total"], 0, "{json}");
        assert!(printed.contains(&format!("{} packets after", all - captured)), "{printed}");
    }
}

#[test]
fn a_sample_has_whole_flows_and_counts_the_others() {
    root_or_skip!();
    const FLOWS: u16 = 64;
    let (cable, folder) = (Cable::new(), folder());
    let path = folder.path().join("sample.pcap");
    let capture = cable.capture(&format!("-w {} --sample 1/4 --json udp", path.display()));
    let bind = |address: &str, port| UdpSocket::bind((address, port)).unwrap();
    let server = cable.far.run(|| bind("10.9.0.2", 5000)).unwrap();
    for flow in 0..FLOWS {
        let client = cable.near.run(|| bind("10.9.0.1", 10_000 + flow)).unwrap();
        for _ in 0..5 {
            client.send_to(&[1; 20], "10.9.0.2:5000").unwrap();
            let (_, from) = uninterrupted(|| server.recv_from(&mut [0; 64])).unwrap();
            server.send_to(&[2; 20], from).unwrap();
        }
    }
    let (status, json, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    let mut flows = BTreeMap::<u16, u64>::new();
    let mut reader = Reader::open(&path).unwrap();
    while let Some(record) = reader.next().unwrap() {
        let port = |at| u16::from_be_bytes(record.frame.head()[at..at + 2].try_into().unwrap());
        *flows.entry(port(34).max(port(36))).or_default() += 1;
    }
    // Both directions of it, or nothing.
    assert!(flows.values().all(|packets| *packets == 10), "{flows:?}");
    assert!((4..=32).contains(&flows.len()), "{} of {FLOWS}", flows.len());
    let all = u64::from(FLOWS) * 10;
    let captured = flows.len() as u64 * 10;
    assert_eq!((&json["captured"], &json["received"]), (&captured.into(), &all.into()), "{json}");
    assert_eq!(json["dropped"]["sampled"], all - captured, "{json}");
    assert_eq!(json["dropped"]["total"], 0, "{json}");
    assert!(printed.contains(&format!("{} packets of other flows", all - captured)), "{printed}");
}

/// What a reader of a file selects is what a live capture would have selected.
#[test]
fn a_file_gives_the_same_sample_and_beginnings_as_the_interface() {
    root_or_skip!();
    let (cable, folder) = (Cable::new(), folder());
    let place = |name: &str| folder.path().join(name).display().to_string();
    let options = ["--sample 1/3", "--cutoff 1000", "--sample 1/3 --cutoff 1000"];
    let all = cable.capture(&format!("-w {} udp", place("all.pcapng")));
    let live: Vec<_> = options
        .iter()
        .zip(1..)
        .map(|(options, n)| {
            cable.capture(&format!("-w {}{n}.pcapng --json {options} udp", place("live")))
        })
        .collect();
    let send = || {
        for port in 10_000..10_040 {
            let socket = UdpSocket::bind(("10.9.0.1", port)).unwrap();
            for number in 0..10_u32 {
                let payload = [&number.to_be_bytes()[..], &[0; 300]].concat();
                socket.send_to(&payload, "10.9.0.2:5000").unwrap();
            }
        }
    };
    cable.near.run(send).unwrap();
    all.stop();
    let whole = Reader::open(place("all.pcapng").as_ref()).map(packets).unwrap();
    assert_eq!(whole.len(), 400);
    // The same as raw IP.
    let mut file = Vec::new();
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 262_144, 101] {
        file.extend(word.to_le_bytes());
    }
    for (time, bytes) in &whole {
        let words = [time / 1_000_000_000, time % 1_000_000_000, bytes.len() as u64 - 14];
        for word in [words[0], words[1], words[2], words[2]] {
            file.extend((word as u32).to_le_bytes());
        }
        file.extend(&bytes[14..]);
    }
    std::fs::write(place("raw.pcap"), file).unwrap();
    for ((options, n), live) in options.iter().zip(1..).zip(live) {
        let json = live.stop();
        let expected = Reader::open(format!("{}{n}.pcapng", place("live")).as_ref()).map(packets);
        let expected = expected.unwrap();
        assert!(!expected.is_empty() && expected.len() < 400, "{json}");
        for (input, output, cut) in [("all.pcapng", "a.pcapng", 0), ("raw.pcap", "b.pcapng", 14)] {
            let done =
                read(place(input).as_ref(), &format!("-w {} --json {options}", place(output)));
            let read: Value = serde_json::from_slice(&done.stdout).unwrap();
            for cause in ["sampled", "cutoff"] {
                assert_eq!(read["dropped"][cause], json["dropped"][cause], "{options}: {read}");
            }
            let found = Reader::open(place(output).as_ref()).map(packets).unwrap();
            assert_eq!(found.len() as u64, read["captured"].as_u64().unwrap());
            let payloads = |packets: &[(u64, Vec<u8>)], cut: usize| {
                packets.iter().map(|(_, bytes)| bytes[cut..].to_vec()).collect::<Vec<_>>()
            };
            assert_eq!(payloads(&found, 14 - cut), payloads(&expected, 14), "{options} {input}");
        }
    }
}

/// Time and bytes of each packet.
fn packets(mut reader: Reader) -> Vec<(u64, Vec<u8>)> {
    let mut packets = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        packets.push((record.frame.timestamp.unwrap().0, record.frame.head().to_vec()));
    }
    packets
}

/// In a map of the kernel where the filter is eBPF, in the program where it is a socket's.
#[test]
fn addresses_are_looked_up_in_a_file_of_many() {
    root_or_skip!();
    let (cable, folder) = (Cable::new(), folder());
    let (hosts, nets) = (folder.path().join("hosts"), folder.path().join("nets"));
    let other = |number: u32| std::net::Ipv4Addr::from(0x0b00_0000 + 3 * number).to_string();
    let many: Vec<_> = (0..100_000).map(other).chain(["10.9.0.1".to_owned()]).collect();
    std::fs::write(&hosts, many.join("\n")).unwrap();
    std::fs::write(&nets, "10.9.0.0/24\n2001:db8::/32 # documentation\n").unwrap();
    let path = folder.path().join("out.pcapng");
    let [hosts, nets] = [hosts, nets].map(|path| path.display().to_string());
    let expressions = [
        (format!("udp and src host in @{hosts}"), 20),
        (format!("udp and not dst net in @{nets}"), 0),
        (format!("(udp and src net in @{nets}) and not dst host in @{hosts}"), 20),
    ];
    for (source, side) in
        [("packet", "user space"), ("tee", "the kernel"), ("xdp --take-over", "the kernel")]
    {
        for (expression, count) in &expressions {
            let options = format!("-v --source {source} -w {} {expression}", path.display());
            let capture = cable.capture(&options);
            cable.send(20, 64);
            let (status, _, printed) = capture.interrupt();
            assert!(status.success(), "{printed}");
            assert!(printed.contains(&format!("runs in {side}")), "{printed}");
            assert_eq!(numbers(&path).len(), *count, "{expression}: {printed}");
        }
    }
    let all = folder.path().join("all.pcapng");
    let capture = cable.capture(&format!("-w {} udp", all.display()));
    cable.send(20, 64);
    assert!(capture.interrupt().0.success());
    for (expression, count) in &expressions {
        let output = read(&all, &format!("-w {} {expression}", path.display()));
        assert!(output.status.success(), "{output:?}");
        assert_eq!(numbers(&path).len(), *count, "{expression}");
    }
    let output =
        read(&all, &format!("--discard host in @{}", folder.path().join("none").display()));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && printed.contains("cannot read"), "{printed}");
}
