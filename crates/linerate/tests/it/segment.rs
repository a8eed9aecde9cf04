//! `linerate segment` and `linerate capture --split` on real traffic, against each other, the kernel's
//! own receivers, and what other programs say of the files.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::LINERATE;
use crate::capture::support::{Cable, everybody_accepts, folder};
use linerate_net::cpu;
use linerate_pcapfile::Reader;
use linerate_testkit::{Namespace, root_or_skip, uninterrupted, wait_for};
use linerate_wire::checksum::Sum;
use linerate_wire::ip::Protocol;
use linerate_wire::layers::{self, Transport};
use serde_json::Value;

/// Bytes of an Ethernet frame with a full IP packet.
const LONGEST: usize = 14 + 1500;

/// A packet of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Packet {
    bytes: Vec<u8>,
    time: u64,
    comment: Option<String>,
}

fn packets(path: &Path) -> Vec<Packet> {
    let mut reader = Reader::open(path).unwrap();
    let mut all = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        let frame = &record.frame;
        let bytes = frame.head().to_vec();
        let comment = record.comment.map(str::to_owned);
        all.push(Packet { bytes, time: frame.timestamp.unwrap().0, comment });
    }
    all
}

fn bytes(packets: &[Packet]) -> Vec<&[u8]> {
    packets.iter().map(|packet| &packet.bytes[..]).collect()
}

/// Each direction's packets in their order: the order between the two may change when frames join.
fn directions(packets: &[Packet]) -> BTreeMap<[u8; 6], Vec<&[u8]>> {
    let mut all = BTreeMap::<_, Vec<_>>::new();
    for packet in packets {
        let source = packet.bytes[6..12].try_into().unwrap();
        all.entry(source).or_default().push(&packet.bytes[..]);
    }
    all
}

fn checksum_is_right(frame: &[u8]) -> bool {
    let layers = layers::parse(frame).unwrap();
    let (from, to) = layers.addresses(frame).unwrap();
    let pseudo = |protocol, len: usize| Sum::pseudo(from, to, protocol, len as u16).unwrap();
    let len = layers.end - layers.transport_offset;
    let transport = match layers.transport {
        Transport::Tcp => layers.tcp(frame).unwrap().verify_checksum(pseudo(Protocol::TCP, len)),
        Transport::Udp => layers.udp(frame).unwrap().verify_checksum(pseudo(Protocol::UDP, len)),
        _ => return true,
    };
    transport && layers.ipv4(frame).is_none_or(|packet| packet.verify_checksum())
}

/// The bytes that the far host sent to port 9000, by sequence number.
fn stream(packets: &[Packet]) -> Vec<u8> {
    let mut pieces = BTreeMap::new();
    let mut first = None;
    for packet in packets {
        let layers = layers::parse(&packet.bytes).unwrap();
        let Some(segment) = layers.tcp(&packet.bytes) else { continue };
        if segment.destination_port() != 9000 {
            continue;
        }
        let syn = segment.flags().contains(linerate_wire::tcp::Flags::SYN);
        if syn {
            first = Some(segment.sequence().wrapping_add(1));
        }
        let Some(first) = first else { continue };
        let at = segment.sequence().wrapping_sub(first);
        if !segment.payload().is_empty() {
            // What is sent again may be shorter or longer than it was at first.
            let piece: &mut Vec<u8> = pieces.entry(at).or_default();
            if piece.len() < segment.payload().len() {
                *piece = segment.payload().to_vec();
            }
        }
    }
    let mut stream = Vec::new();
    for (at, piece) in pieces {
        assert!(at as usize <= stream.len(), "a hole before byte {at}");
        let known = stream.len() - at as usize;
        stream.extend(piece.get(known..).unwrap_or_default());
    }
    stream
}

fn linerate(arguments: &[&str], paths: &[&Path]) -> Output {
    Command::new(LINERATE).args(arguments).args(paths).output().unwrap()
}

/// Runs `linerate segment`, which is to succeed, and answers with its JSON.
fn segment(arguments: &str, input: &Path, output: &Path) -> Value {
    let mut command = Command::new(LINERATE);
    command.args(["segment", "--json", "-w"]).arg(output).arg(input);
    let done = command.args(arguments.split_whitespace()).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    serde_json::from_slice(&done.stdout).unwrap()
}

/// Sends `length` bytes by TCP from the far host to the near one and answers with them, when the last
/// packet of the connection has been on the veth pair.
///
/// All of it on one CPU: a veth pair hands frames to the CPU that sends them, so that those of two CPUs
/// overtake each other, and two captures see them in another order.
fn bulk(cable: &Cable, length: usize) -> Vec<u8> {
    bulk_to(cable, "10.9.0.1:9000", length)
}

fn bulk_to(cable: &Cable, to: &str, length: usize) -> Vec<u8> {
    let sent: Vec<u8> = (0..length).map(|at| ((at * 31) ^ (at >> 9)) as u8).collect();
    let transfer = || {
        cpu::pin(cpu::allowed().unwrap()[0]).unwrap();
        let listener = cable.near.run(|| TcpListener::bind(to)).unwrap().unwrap();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut bytes).unwrap();
            bytes
        });
        let mut stream = cable.far.run(|| TcpStream::connect(to)).unwrap().unwrap();
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert!(reader.join().unwrap() == sent);
        // The kernel wakes this thread by the other's FIN and goes on to acknowledge it.
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    };
    std::thread::scope(|scope| scope.spawn(transfer).join()).unwrap();
    sent
}

/// Bad checksums and other trouble that tshark finds.
fn tshark_finds(path: &Path, filter: &str) -> usize {
    let mut command = Command::new("tshark");
    command.args(["-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]);
    let Ok(output) =
        command.args(["-o", "ip.check_checksum:TRUE", "-Y", filter, "-r"]).arg(path).output()
    else {
        println!("skipped: tshark on {}: not installed", path.display());
        return 0;
    };
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).lines().count()
}

const BAD: &str = "tcp.checksum.status==\"Bad\" || udp.checksum.status==\"Bad\" || \
                   ip.checksum.status==\"Bad\" || _ws.malformed";

#[test]
fn a_bulk_transfer_is_split_live_and_from_a_file_and_joined_and_split_again() {
    root_or_skip!();
    let (cable, folder) = (Cable::new(), folder());
    let path = |name: &str| folder.path().join(name);
    let (live, raw, pcap) = (path("live.pcapng"), path("raw.pcapng"), path("live.pcap"));
    let listen = |file: &Path, options: &str| {
        cable.capture(&format!("{options} --json -w {} tcp port 9000", file.display()))
    };
    let mut split = listen(&live, "--split -v");
    split.until("splitting needs");
    let whole = listen(&raw, "--source packet");
    let cut = listen(&pcap, "--split -s 80 --time-stamp-precision nano");
    let sent = bulk(&cable, 3_000_000);
    let (status, report, printed) = split.interrupt();
    assert!(status.success(), "{printed}");
    assert!(whole.interrupt().0.success() && cut.interrupt().0.success());

    // Live: what the wire carries.
    let frames = packets(&live);
    assert!(frames.iter().all(|frame| frame.bytes.len() <= LONGEST));
    assert!(frames.iter().all(|frame| checksum_is_right(&frame.bytes)));
    assert!(stream(&frames) == sent, "the stream is another one");
    assert_eq!(tshark_finds(&live, BAD), 0);
    assert_eq!(tshark_finds(&live, "tcp.analysis.lost_segment"), 0);
    let counts = &report["split"];
    assert!(counts["super_packets"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(counts["refused"]["total"], 0, "{report}");
    assert_eq!(report["captured"], frames.len(), "{report}");
    assert!(report["received"].as_u64().unwrap() < frames.len() as u64, "{report}");
    assert!(printed.contains("super-packets split into"), "{printed}");

    // The snap length cuts the pieces, not the super-packets.
    let mut short = frames.clone();
    short.iter_mut().for_each(|frame| frame.bytes.truncate(80));
    assert_eq!(directions(&packets(&pcap)), directions(&short));

    // From a file: the same.
    let file = path("file.pcapng");
    let report = segment("--fix-checksums", &raw, &file);
    assert_eq!(directions(&packets(&file)), directions(&frames));
    assert_eq!(report["super_packets"], counts["super_packets"]);
    assert_eq!(report["checksums"], counts["checksums"]);

    // Joined, and split again.
    let (joined, again) = (path("joined.pcapng.zst"), path("again.pcapng"));
    let report = segment("--coalesce", &live, &joined);
    let supers = packets(&joined);
    assert!(supers.len() < frames.len() / 2, "{report}");
    // Two processors may have been in the ring at once; joining changes nothing about that.
    let in_order = |packets: &[Packet]| packets.is_sorted_by_key(|packet| packet.time);
    assert!(in_order(&supers) || !in_order(&frames));
    assert!(supers.iter().all(|frame| checksum_is_right(&frame.bytes)));
    assert!(stream(&supers) == sent, "the stream is another one");
    let report = segment("", &joined, &again);
    assert_eq!(report["written"], frames.len());
    assert_eq!(directions(&packets(&again)), directions(&frames));

    // Other formats, through pipes.
    let classic = path("classic.pcap");
    segment("--fix-checksums", &raw, &classic);
    let nanoseconds = |packets: &[Packet]| packets.iter().map(|one| one.time).collect::<Vec<_>>();
    assert_eq!(nanoseconds(&packets(&classic)), nanoseconds(&packets(&file)));
    let mut command = Command::new(LINERATE);
    command.args(["segment", "-", "-w", "-", "--fix-checksums", "-q"]);
    let input = std::fs::File::open(&raw).unwrap();
    let piped = command.stdin(input).output().unwrap();
    assert!(piped.stdout == std::fs::read(&file).unwrap() && piped.stderr.is_empty());
    for path in [&live, &raw, &pcap, &file, &again, &classic] {
        everybody_accepts(path);
    }
}

#[test]
fn super_packets_in_vxlan_are_split_live_on_any_port() {
    root_or_skip!();
    for port in [8472, 4789] {
        let (cable, folder) = (Cable::new(), folder());
        let ip = |host: &Namespace, arguments: &str| {
            assert!(host.command("ip").args(arguments.split(' ')).status().unwrap().success());
        };
        for (host, own, other) in [(&cable.near, 1, 2), (&cable.far, 2, 1)] {
            ip(
                host,
                &format!(
                    "link add vx0 type vxlan id 5 remote 10.9.0.{other} local 10.9.0.{own} dstport {port}"
                ),
            );
            ip(host, &format!("addr add 10.8.0.{own}/24 dev vx0"));
            ip(host, "link set vx0 up");
        }
        let (live, raw) = (folder.path().join("live.pcapng"), folder.path().join("raw.pcapng"));
        let listen = |file: &Path, options: &str| {
            cable.capture(&format!("{options} --json -w {} udp port {port}", file.display()))
        };
        let split = listen(&live, "--split");
        let whole = listen(&raw, "--source packet");
        bulk_to(&cable, "10.8.0.1:9000", 1_000_000);
        let (status, report, printed) = split.interrupt();
        assert!(status.success() && whole.interrupt().0.success(), "{printed}");
        assert!(report["split"]["super_packets"].as_u64() > Some(0), "{port}: {report}");
        let refused = report["split"]["refused"].as_object().expect("refused");
        assert!(refused.values().all(|count| count == 0), "{port}: {report}");
        let frames = packets(&live);
        assert!(frames.iter().all(|frame| frame.bytes.len() <= LONGEST), "{port}");
        assert_eq!(tshark_finds(&live, BAD), 0, "{port}");
        // From a file, which does not have the sizes of segments, the port is given.
        let file = folder.path().join("file.pcapng");
        let report = segment(&format!("--vxlan-port {port} --fix-checksums"), &raw, &file);
        assert!(report["refused"].as_object().expect("refused").values().all(|count| count == 0));
        assert!(packets(&file).iter().all(|frame| frame.bytes.len() <= LONGEST), "{port}");
        assert_eq!(tshark_finds(&file, BAD), 0, "{port}");
    }
}

#[test]
fn datagrams_of_a_uso_sender_come_out_one_by_one() {
    root_or_skip!();
    let (cable, folder) = (Cable::new(), folder());
    let (live, raw) = (folder.path().join("live.pcapng"), folder.path().join("raw.pcapng"));
    let listen = |file: &Path, options: &str| {
        cable.capture(&format!("{options} --json -w {} udp port 5000", file.display()))
    };
    let split = listen(&live, "--split");
    let whole = listen(&raw, "--source packet");
    let (beginning, flows) = (folder.path().join("beginning.pcapng"), folder.path().join("flows"));
    let cut = listen(&beginning, &format!("--split --cutoff 5000 --flows {}", flows.display()));
    let receiver = cable.near.run(|| UdpSocket::bind("10.9.0.1:5000")).unwrap().unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let sender = cable.far.run(|| UdpSocket::bind("10.9.0.2:4000")).unwrap().unwrap();
    nix::sys::socket::setsockopt(&sender, nix::sys::socket::sockopt::UdpGsoSegment, &1200).unwrap();
    let payload: Vec<u8> = (0..20 * 1200 + 77).map(|at: u32| ((at * 13) >> 3) as u8).collect();
    assert_eq!(sender.send_to(&payload, "10.9.0.1:5000").unwrap(), payload.len());
    let mut received = Vec::new();
    let mut buffer = [0; 2000];
    while received.len() < 21 {
        let length = uninterrupted(|| receiver.recv(&mut buffer)).unwrap();
        received.push(buffer[..length].to_vec());
    }
    assert_eq!(received.concat(), payload);
    let (status, report, printed) = split.interrupt();
    assert!(status.success() && whole.interrupt().0.success(), "{printed}");
    assert_eq!(report["split"]["super_packets"], 1, "{report}");
    // The datagrams have 1,228 bytes each.
    let report = cut.stop();
    assert_eq!((&report["captured"], &report["dropped"]["cutoff"]), (&5.into(), &16.into()));
    assert_eq!((report["flows"]["packets"].as_u64(), packets(&beginning).len()), (Some(21), 5));
    let frames = packets(&live);
    let payloads = |packets: &[Packet]| -> Vec<Vec<u8>> {
        let payload = |one: &Packet| {
            layers::parse(&one.bytes).unwrap().udp(&one.bytes).unwrap().payload().to_vec()
        };
        packets.iter().map(payload).collect()
    };
    assert_eq!(payloads(&frames), received);
    assert!(frames.iter().all(|frame| checksum_is_right(&frame.bytes)));

    let (untold, told) = (folder.path().join("untold.pcapng"), folder.path().join("told.pcapng"));
    let report = segment("", &raw, &untold);
    assert_eq!(
        (&report["refused"]["udp_size_unknown"], &report["written"]),
        (&1.into(), &1.into())
    );
    assert_eq!(std::fs::read(&untold).unwrap(), std::fs::read(&raw).unwrap());
    segment("--uso 1200", &raw, &told);
    assert_eq!(bytes(&packets(&told)), bytes(&frames));
    let (joined, again) = (folder.path().join("joined.pcap"), folder.path().join("again.pcap"));
    assert_eq!(
        segment("--coalesce=udp --hold 100000", &told, &joined)["joined"]["super_packets"],
        1
    );
    segment("--uso 1200 udp port 5000", &joined, &again);
    assert_eq!(bytes(&packets(&again)), bytes(&frames));
    for path in [&live, &raw, &untold, &told, &joined, &again] {
        everybody_accepts(path);
    }
    assert_eq!(tshark_finds(&told, BAD), 0);
}

#[test]
fn a_capture_that_was_cut_says_so_and_comments_stay() {
    root_or_skip!();
    let (cable, folder) = (Cable::new(), folder());
    let (raw, cut) = (folder.path().join("raw.pcapng"), folder.path().join("cut.pcapng"));
    let listen = |file: &Path, options: &str| {
        cable.capture(&format!("--source packet {options} -w {} tcp port 9000", file.display()))
    };
    let whole = listen(&raw, "");
    let short = listen(&cut, "-s 96");
    bulk(&cable, 300_000);
    assert!(whole.interrupt().0.success() && short.interrupt().0.success());

    let out = folder.path().join("out.pcapng");
    let report = segment("", &cut, &out);
    assert!(report["cut"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(
        (&report["cut"], &report["refused"]["total"]),
        (&report["super_packets"], &0.into())
    );
    assert!(packets(&out).iter().all(|one| one.bytes.len() <= 96));

    let frames = packets(&raw);
    let large = frames.iter().position(|one| one.bytes.len() > LONGEST).unwrap();
    let commented = folder.path().join("commented.pcapng");
    let mut command = Command::new("editcap");
    command.args(["-a", &format!("{}:the large one", large + 1), "-a", "1:the first"]);
    let Ok(done) = command.arg(&raw).arg(&commented).output() else {
        println!("skipped: comments: editcap is not installed");
        return;
    };
    assert!(done.status.success(), "{done:?}");
    segment("", &commented, &out);
    let comments = |path: &Path| -> Vec<(u64, String)> {
        packets(path).into_iter().filter_map(|one| Some((one.time, one.comment?))).collect()
    };
    assert_eq!(comments(&out), comments(&commented));
    assert_eq!(comments(&out).len(), 2);
    everybody_accepts(&out);
    let joined = folder.path().join("joined.pcapng");
    segment("--coalesce --fix-checksums", &out, &joined);
    let texts = |path: &Path| comments(path).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    assert_eq!(texts(&joined), texts(&commented));
    everybody_accepts(&joined);
}

#[test]
fn files_that_are_none_and_words_that_contradict_are_refused() {
    let folder = folder();
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    crate::capture::support::write_mixed(&input);
    let printed = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let good = linerate(&["segment", "-w"], &[&output, &input]);
    assert!(
        good.status.success() && printed(&good).contains("100 packets read, 100 written"),
        "{good:?}"
    );
    assert_eq!(std::fs::read(&output).unwrap(), std::fs::read(&input).unwrap());

    let same = linerate(&["segment", "-w"], &[&input, &input]);
    assert_eq!(same.status.code(), Some(1), "{same:?}");
    assert!(printed(&same).contains("emptied before it is read"), "{same:?}");
    for arguments in [
        &["segment", "--coalesce", "--mtu", "9000", "-w"][..],
        &["segment", "--hold", "10", "-w"],
        &["segment", "--mtu", "20", "-w"],
        &["segment", "--mss", "0", "-w"],
        &["segment"],
    ] {
        let refused = linerate(arguments, &[&output, &input]);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {refused:?}");
    }
    let both = linerate(&["segment", "--json", "-w", "-"], &[&input]);
    assert_eq!(both.status.code(), Some(2), "{both:?}");

    // The reader's errors, and the filter's.
    let whole = std::fs::read(&input).unwrap();
    std::fs::write(&input, &whole[..whole.len() - 3]).unwrap();
    let cut = linerate(&["segment", "--json", "-w"], &[&output, &input]);
    assert_eq!(cut.status.code(), Some(1), "{cut:?}");
    assert!(printed(&cut).contains("cut off") && printed(&cut).contains("at byte"), "{cut:?}");
    let report: Value = serde_json::from_slice(&cut.stdout).unwrap();
    assert_eq!((&report["read"], packets(&output).len()), (&99.into(), 99));
    std::fs::write(&input, b"GIF89a").unwrap();
    let none = linerate(&["segment", "-w"], &[&output, &input]);
    assert!(printed(&none).contains("is not a capture file"), "{none:?}");
    assert_eq!(none.status.code(), Some(1));
    std::fs::write(&input, &whole).unwrap();
    // A typing error overwrites no file.
    std::fs::write(&output, b"precious").unwrap();
    let typo = Path::new("tcp prot 80");
    for syntax in [
        linerate(&["segment", "-w"], &[&output, &input, typo]),
        linerate(&["capture", "-w"], &[&output, Path::new("-r"), &input, typo]),
    ] {
        assert_eq!(syntax.status.code(), Some(1), "{syntax:?}");
        assert!(printed(&syntax).contains("pcap-filter(7)"), "{syntax:?}");
        assert_eq!(std::fs::read(&output).unwrap(), b"precious", "{syntax:?}");
    }
    let nowhere = linerate(&["segment", "-w"], &[&folder.path().join("no/out"), &input]);
    assert!(printed(&nowhere).contains("cannot create"), "{nowhere:?}");
    let refused = linerate(&["capture", "--split", "-r"], &[&input]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

#[test]
fn a_signal_ends_it_with_what_was_read_in_the_file() {
    let folder = folder();
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    crate::capture::support::write_mixed(&input);
    let whole = std::fs::read(&input).unwrap();
    let mut command = Command::new(LINERATE);
    command.args(["segment", "-", "-w"]).arg(&output);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // The header, two packets of 42 and 43 bytes, and a part of the next: the two are in the file at
    // once, because more may come at any time.
    let part = 24 + 16 + 42 + 16 + 43;
    stdin.write_all(&whole[..part + 30]).unwrap();
    wait_for("the packets in the file", || {
        std::fs::read(&output).unwrap_or_default() == whole[..part]
    });
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    // It does not wait for the rest of the third.
    let ended = child.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{printed}");
    assert!(printed.contains("2 packets read, 2 written"), "{printed}");
    assert_eq!(std::fs::read(&output).unwrap(), whole[..part]);
    drop(stdin);
}
