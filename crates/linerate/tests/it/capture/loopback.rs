//! The loopback interface: packets that come by twice, and the longest that there are.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;

use linerate_pcapfile::Reader;
use linerate_testkit::{Namespace, root_or_skip, skip, wait_for};

use super::support::{folder, listening};
use crate::LINERATE;

fn loopback() -> Namespace {
    let namespace = Namespace::create("vcap-lo").unwrap();
    namespace.interface("lo").unwrap().up().unwrap();
    namespace
}

/// Bytes of each packet in the file and on the wire.
fn lengths(path: &Path) -> Vec<(usize, usize)> {
    let mut lengths = Vec::new();
    let mut reader = Reader::open(path).unwrap();
    while let Some(record) = reader.next().unwrap() {
        lengths.push((record.frame.head().len(), record.frame.wire_len as usize));
    }
    lengths
}

#[test]
fn directions_on_the_loopback_interface_are_tcpdumps() {
    root_or_skip!();
    if Command::new("tcpdump").arg("--version").output().is_err() {
        skip!("there is no tcpdump");
    }
    let (namespace, folder) = (loopback(), folder());
    let mut running = Vec::new();
    for interface in ["lo", "any"] {
        for direction in ["in", "out", "inout"] {
            let start = |program: &str, arguments: &[&str]| {
                let path = folder.path().join(format!("{program}-{interface}-{direction}"));
                let mut command = namespace.command(program);
                command.args(arguments).args(["-i", interface, "-Q", direction, "-U", "-w"]);
                let capture = listening(command.arg(&path).args(["--", "udp"]));
                (capture, path)
            };
            running.push((
                format!("{interface} {direction}"),
                [
                    start("tcpdump", &["-Z", "root"]),
                    start(LINERATE, &["capture", "--format", "pcap"]),
                ],
            ));
        }
    }
    let send = || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..7 {
            socket.send_to(&[1; 40], "127.0.0.1:5000").unwrap();
        }
    };
    namespace.run(send).unwrap();
    for (name, [(tcpdump, theirs), (linerate, ours)]) in running {
        if name != "lo out" && name != "any out" {
            wait_for("packets in both files", || {
                [&theirs, &ours].iter().all(|path| lengths(path).len() >= 7)
            });
        }
        for capture in [tcpdump, linerate] {
            let (status, _, printed) = capture.end(nix::sys::signal::Signal::SIGINT);
            assert!(status.success(), "{name}: {printed}");
        }
        assert_eq!(lengths(&ours), lengths(&theirs), "{name}");
    }
}

/// With BIG TCP packets are longer than a block of a packet ring is elsewhere.
#[test]
fn packets_of_big_tcp_are_captured_whole() {
    root_or_skip!();
    let (namespace, folder) = (loopback(), folder());
    let set = |size: &str| {
        let sizes = ["link", "set", "lo", "gso_max_size", size, "gro_max_size", size];
        namespace.command("ip").args(sizes).status().unwrap().success()
    };
    if !set("200000") {
        skip!("this kernel has no BIG TCP");
    }
    for (interface, is_later) in [("lo", false), ("any", false), ("lo", true), ("any", true)] {
        assert!(set(if is_later { "65536" } else { "200000" }));
        let path = folder.path().join(format!("{interface}.pcap"));
        let mut command = namespace.command(LINERATE);
        // Before TCP there is a header for the length (RFC 2675), so that `tcp` does not accept it.
        let capture = listening(command.args(["capture", "-i", interface, "-w"]).arg(&path));
        assert!(set("200000"));
        let talk = || {
            let listener = TcpListener::bind("[::1]:0").unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            let reader = std::thread::spawn(move || {
                let mut buffer = vec![0; 1 << 20];
                while server.read(&mut buffer).unwrap() > 0 {}
            });
            (0..16).for_each(|_| client.write_all(&vec![1; 1 << 20]).unwrap());
            drop(client);
            reader.join().unwrap();
        };
        namespace.run(talk).unwrap();
        let (status, _, printed) = capture.interrupt();
        assert!(status.success(), "{printed}");
        let lengths = lengths(&path);
        assert!(lengths.iter().any(|(_, wire)| *wire > 140_000), "{:?}", lengths.iter().max());
        let cut: Vec<_> = lengths.iter().filter(|(captured, wire)| captured != wire).collect();
        if is_later {
            // The ring is as it was at the start: what it cannot hold is cut, and counted.
            let counted = format!("{} packets cut", cut.len());
            assert!(!cut.is_empty() && printed.contains(&counted), "{counted}: {printed}");
            continue;
        }
        assert!(cut.is_empty(), "{interface}: {} of {}: {cut:?}", cut.len(), lengths.len());
    }
}
