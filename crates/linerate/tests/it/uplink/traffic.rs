//! What one stack sends, the other one gets.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Duration;

use linerate_testkit::{VethOptions, root_or_skip, uninterrupted};

use super::support::{FAR, Hosts, NEAR, count, tcp_while, udp};

#[test]
fn arp_neighbour_discovery_and_icmp_cross() {
    root_or_skip!();
    let hosts = Hosts::new();
    let uplink = hosts.uplink("");
    for (near, far) in NEAR.iter().zip(FAR) {
        for (from, to) in [(&hosts.near, far.0), (&hosts.far, near.0)] {
            let any = if to.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
            let socket = from.run(|| UdpSocket::bind(any)).unwrap().unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            socket.connect((to, 9)).unwrap();
            // Nobody listens there, and the other host says so.
            socket.send(b"anybody?").unwrap();
            let error = uninterrupted(|| socket.recv(&mut [0; 8])).expect_err("a refusal");
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{to}");
        }
    }
    let report = uplink.stop();
    assert!(count(&report, "tx.checksums") >= 2, "{report}");
    assert_eq!(count(&report, "tx.super_packets"), 0, "{report}");
}

#[test]
fn tcp_streams_cross_as_super_packets() {
    root_or_skip!();
    let hosts = Hosts::new();
    let uplink = hosts.uplink("--backend xdp");
    assert!(uplink.stderr().contains("TSO4, TSO6, ECN"), "{}", uplink.stderr());
    hosts.talk(4 << 20);
    let report = uplink.stop();
    assert_eq!(report["backend"], "xdp", "{report}");
    let (supers, segments) = (count(&report, "tx.super_packets"), count(&report, "tx.segments"));
    assert!(supers > 0 && segments > 4 * supers, "{report}");
    let (supers, joined) = (count(&report, "rx.super_packets"), count(&report, "rx.joined"));
    assert!(supers > 0 && joined > 2 * supers, "{report}");
    assert_eq!(report["unsplit"], serde_json::json!({}), "{report}");
    // Both directions carried 8 MiB and the headers.
    for way in ["tx.bytes", "rx.bytes"] {
        assert!((8 << 20..10 << 20).contains(&count(&report, way)), "{way}: {report}");
    }
}

#[test]
fn datagrams_cross_alone_as_fragments_and_by_the_burst() {
    root_or_skip!();
    let hosts = Hosts::new();
    let uplink = hosts.uplink("");
    let bursts = [30_000, 1001, 60_000, 1, 2000, 45_999].repeat(4);
    for (near, far) in NEAR.iter().zip(FAR) {
        for (from, to, address) in
            [(&hosts.near, &hosts.far, far.0), (&hosts.far, &hosts.near, near.0)]
        {
            udp(from, to, address, &[1, 17, 1000, 1400, 1401], 0);
            udp(from, to, address, &[1500, 4000, 9000, 65_000], 0);
            udp(from, to, address, &bursts, 1000);
        }
    }
    let report = uplink.stop();
    assert!(count(&report, "tx.super_packets") >= 2 * 20, "{report}");
    assert!(count(&report, "rx.super_packets") > 0, "{report}");
}

#[test]
fn several_queues_carry_several_streams() {
    root_or_skip!();
    let hosts = Hosts::with(VethOptions { queues: 2, ..VethOptions::default() });
    for backend in ["xdp", "packet"] {
        let uplink = hosts.uplink(&format!("--queues 2 --cpu 0 --backend {backend}"));
        for _ in 0..4 {
            hosts.talk(1 << 20);
        }
        let report = uplink.stop();
        assert_eq!(count(&report, "queues"), 2, "{report}");
        assert!(count(&report, "tx.super_packets") > 0, "{report}");
    }
    // One thread for two queues of the interface.
    let uplink = hosts.uplink("--queues 1 --backend xdp");
    hosts.talk(1 << 20);
    uplink.stop();
}

#[test]
fn a_stream_survives_the_interface_and_the_device_going_down() {
    root_or_skip!();
    for backend in ["xdp", "packet"] {
        let hosts = Hosts::new();
        let mut uplink = hosts.uplink(&format!("--backend {backend}"));
        let device = hosts.near.interface("up0").unwrap();
        tcp_while(&hosts.near, &hosts.far, FAR[0].0, 8 << 20, || {
            hosts.veth.a.down().unwrap();
            uplink.until("interface wire is down");
            hosts.veth.a.up().unwrap();
            uplink.until("interface wire is up again");
        });
        tcp_while(&hosts.far, &hosts.near, NEAR[0].0, 8 << 20, || {
            device.down().unwrap();
            std::thread::sleep(Duration::from_millis(300));
            device.up().unwrap();
        });
        hosts.veth.b.down().unwrap();
        hosts.veth.b.up().unwrap();
        tcp_while(&hosts.near, &hosts.far, FAR[0].0, 1 << 20, || {});
        uplink.stop();
    }
}

#[test]
fn a_change_of_the_mtu_loses_what_is_too_long_and_nothing_else() {
    root_or_skip!();
    for backend in ["xdp", "packet"] {
        let hosts = Hosts::new();
        let mut uplink = hosts.uplink(&format!("--backend {backend}"));
        let device = hosts.near.interface("up0").unwrap();
        let too_long = |bytes: usize| {
            let socket = hosts.near.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
            socket.send_to(&vec![0; bytes], (FAR[0].0, 9)).unwrap();
        };
        let goes_on = || udp(&hosts.near, &hosts.far, FAR[0].0, &[1000; 3], 0);
        goes_on();
        device.set_mtu(3000).unwrap();
        too_long(2500);
        goes_on();
        device.set_mtu(1500).unwrap();
        hosts.veth.a.set_mtu(1280).unwrap();
        uplink.until("interface wire has an MTU of 1280 bytes now");
        too_long(1400);
        goes_on();
        device.set_mtu(1280).unwrap();
        hosts.talk(1 << 20);
        let report = uplink.stop();
        assert_eq!(count(&report, "dropped.too_long"), 1, "{backend}: {report}");
    }
}
