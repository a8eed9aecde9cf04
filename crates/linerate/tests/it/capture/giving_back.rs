//! `auto` never takes traffic away, also not from a user that comes later.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use linerate_net::ethtool;
use linerate_pcapfile::Reader;
use linerate_ring::packet::{Ring, Sender};
use linerate_testkit::{
    Namespace, Veth, VethOptions, probe_or_skip, root_or_skip, skip, uninterrupted,
};
use linerate_wire::virtio::Header;

use super::support::{folder, listening};
use crate::LINERATE;

/// Why `auto` takes no frames of an idle interface on this kernel.
fn without_xdp_features(veth: &Veth, host: &Namespace) -> Option<&'static str> {
    let features = host.run(|| ethtool::xdp_features(veth.b.index())).unwrap().unwrap();
    features.is_none().then_some("this kernel does not say whether a driver has native XDP")
}

/// Datagrams in a file.
fn datagrams(path: &std::path::Path) -> usize {
    let mut reader = Reader::open(path).unwrap();
    let mut datagrams = 0;
    while let Some(record) = reader.next().unwrap() {
        let frame = record.frame.head();
        datagrams += usize::from(frame[12..14] == [8, 0] && frame[23] == 17);
    }
    datagrams
}

#[test]
fn auto_passes_frames_on_when_something_begins_to_use_the_interface() {
    root_or_skip!();
    let (near, far) = (Namespace::create("gb-near").unwrap(), Namespace::create("gb-far").unwrap());
    for namespace in [&near, &far] {
        namespace.sysctl("net.ipv6.conf.default.disable_ipv6", "1").unwrap();
    }
    let veth = Veth::create(&near, "near", &far, "far", VethOptions::default()).unwrap();
    probe_or_skip!(without_xdp_features(&veth, &far));
    veth.a.add_address("10.9.0.1".parse().unwrap(), 24).unwrap();
    let folder = folder();
    let path = folder.path().join("all.pcapng");
    let mut command = far.command(LINERATE);
    command.args(["capture", "-i", "far", "--json", "-w"]).arg(&path);
    let mut capture = listening(&mut command);
    assert!(capture.stderr().contains("source xdp"), "{}", capture.stderr());
    capture.until("the host does not get");
    assert!(!capture.stderr().contains("in use now"), "nothing uses it yet: {}", capture.stderr());
    veth.b.add_address("10.9.0.2".parse().unwrap(), 24).unwrap();
    capture.until("interface far is in use now (it has the address 10.9.0.2)");
    let bind = |address: &str| UdpSocket::bind(address).unwrap();
    let receiver = far.run(|| bind("10.9.0.2:5000")).unwrap();
    let sender = near.run(|| bind("10.9.0.1:4000")).unwrap();
    for socket in [&receiver, &sender] {
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    }
    for number in 0..50 {
        // There and back: the first one also asks for the hardware address.
        let mut buffer = [0; 8];
        sender.send_to(&[number], "10.9.0.2:5000").unwrap();
        let (length, from) =
            uninterrupted(|| receiver.recv_from(&mut buffer)).expect("the host gets it");
        assert_eq!(buffer[..length], [number]);
        receiver.send_to(&buffer[..length], from).unwrap();
        assert_eq!(uninterrupted(|| sender.recv(&mut buffer)).expect("an answer"), 1);
    }
    let (status, json, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    assert_eq!(datagrams(&path), 50, "the capture has them, too: {printed}");
    assert_eq!(json["dropped"]["total"], 0, "{json}");
}

/// Two hosts on a veth pair; nothing uses the end of the second.
fn idle(name: &str) -> (Namespace, Namespace, Veth) {
    let near = Namespace::create(&format!("{name}-near")).unwrap();
    let far = Namespace::create(&format!("{name}-far")).unwrap();
    for namespace in [&near, &far] {
        namespace.sysctl("net.ipv6.conf.default.disable_ipv6", "1").unwrap();
    }
    let veth = Veth::create(&near, "near", &far, "far", VethOptions::default()).unwrap();
    (near, far, veth)
}

#[test]
fn a_packet_socket_gets_its_first_frame() {
    root_or_skip!();
    let (near, far, veth) = idle("gf");
    probe_or_skip!(without_xdp_features(&veth, &far));
    let mut command = far.command(LINERATE);
    let mut capture = listening(command.args(["capture", "-i", "far", "--discard", "--json"]));
    capture.until("the host does not get");
    if capture.stderr().contains("not at once") {
        skip!("this kernel cannot trace the function that adds packet sockets");
    }
    let sender = near.run(|| Sender::open("near").unwrap()).unwrap();
    let frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 0x88, 0xb5], &[7; 50]].concat();
    sender.send(&Header::default(), &frame).unwrap();
    // Those of other interfaces, and those that receive nothing, change nothing.
    far.interface("lo").unwrap().up().unwrap();
    let _other = far.run(|| Ring::builder("lo").build().unwrap()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert!(!capture.stderr().contains("in use now"), "{}", capture.stderr());
    let mut ring = far.run(|| Ring::builder("far").promiscuous(false).build().unwrap()).unwrap();
    for _ in 0..100 {
        sender.send(&Header::default(), &frame).unwrap();
    }
    let (mut seen, end) = (0, Instant::now() + Duration::from_secs(10));
    while seen < 100 && Instant::now() < end {
        if let Some(mut batch) = ring.next_batch() {
            while let Some(frame) = batch.next() {
                seen += usize::from(frame.head()[12..14] == [0x88, 0xb5]);
            }
        }
    }
    assert_eq!(seen, 100, "frames that the socket got, of those that came after it");
    capture.until("interface far is in use now");
    assert!(capture.stderr().contains("packet socket"), "{}", capture.stderr());
    let (status, json, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    assert_eq!((&json["captured"], &json["dropped"]["total"]), (&101.into(), &0.into()), "{json}");
}

#[test]
fn a_second_capture_of_auto_sees_the_frames_and_is_not_warned() {
    root_or_skip!();
    let (near, far, veth) = idle("g2");
    probe_or_skip!(without_xdp_features(&veth, &far));
    let start = || {
        let mut command = far.command(LINERATE);
        listening(command.args(["capture", "-i", "far", "--discard", "--json"]))
    };
    let mut first = start();
    first.until("source xdp");
    let mut second = start();
    second.until("source packet");
    first.until("interface far is in use now");
    let sender = near.run(|| Sender::open("near").unwrap()).unwrap();
    let frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 0x88, 0xb5], &[7; 50]].concat();
    for _ in 0..20 {
        sender.send(&Header::default(), &frame).unwrap();
    }
    for capture in [second, first] {
        let (status, json, printed) = capture.interrupt();
        assert!(status.success() && !printed.contains("does not see"), "{printed}");
        assert_eq!(json["captured"], 20, "{printed}");
    }
}

#[test]
fn a_packet_socket_that_comes_later_sees_the_frames() {
    root_or_skip!();
    let (_near, far, veth) = idle("gs");
    probe_or_skip!(without_xdp_features(&veth, &far));
    let mut command = far.command(LINERATE);
    let mut capture = listening(command.args(["capture", "-i", "far", "--discard", "--json"]));
    capture.until("the host does not get");
    let mut command = far.command(LINERATE);
    command.args(["capture", "-i", "far", "--source", "packet", "--discard", "--json"]);
    let other = listening(&mut command);
    capture.until("interface far is in use now");
    assert!(capture.stderr().contains("packet socket"), "{}", capture.stderr());
    drop(other);
    let (status, _, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
}
