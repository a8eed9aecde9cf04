//! The switches, each seen by its effect.

use std::net::UdpSocket;
use std::time::Duration;

use linerate_testkit::{
    Namespace, Random, print_skipped, root_or_skip, skip, test_name, uninterrupted,
};
use nix::sys::socket::{setsockopt, sockopt};

use super::support::{FAR, Hosts, NEAR, count, give_addresses, tcp, udp};

#[test]
fn without_offloads_nothing_is_split_or_joined() {
    root_or_skip!();
    let hosts = Hosts::new();
    let uplink = hosts.uplink("--no-offload");
    assert!(uplink.stderr().contains("no offload"), "{}", uplink.stderr());
    hosts.talk(1 << 20);
    let report = uplink.stop();
    for none in ["tx.super_packets", "tx.checksums", "rx.super_packets"] {
        assert_eq!(count(&report, none), 0, "{report}");
    }
    assert!(count(&report, "tx.packets") > 1000 && count(&report, "rx.packets") > 1000, "{report}");
}

#[test]
fn the_packet_back_end_splits_and_joins_too() {
    root_or_skip!();
    let hosts = Hosts::new();
    let uplink = hosts.uplink("--backend packet");
    hosts.talk(1 << 20);
    udp(&hosts.near, &hosts.far, FAR[0].0, &[30_000; 4], 1000);
    let report = uplink.stop();
    assert_eq!(report["backend"], "packet");
    for some in ["tx.super_packets", "rx.super_packets"] {
        assert!(count(&report, some) > 0, "{report}");
    }
}

#[test]
fn what_the_other_end_leaves_unfinished_arrives() {
    root_or_skip!();
    let hosts = Hosts::new();
    // As every veth is by default: checksums are open, and without XDP super-packets cross.
    hosts.veth.b.set_offloads(true).unwrap();
    let guest = Namespace::create("upl-guest").unwrap();
    for arguments in ["--backend xdp", "--backend packet", "--backend xdp --no-offload"] {
        let uplink = hosts.bare(&format!("{arguments} --netns {}", guest.name()));
        give_addresses(&guest);
        for (near, far) in NEAR.iter().zip(FAR) {
            tcp(&guest, &hosts.far, far.0, 1 << 20);
            tcp(&hosts.far, &guest, near.0, 1 << 20);
            udp(&hosts.far, &guest, near.0, &[1, 1000, 30_000], 0);
            udp(&hosts.far, &guest, near.0, &[30_000; 2], 1000);
        }
        uplink.stop();
    }
}

#[test]
fn a_protocol_that_is_off_is_left_to_the_stack() {
    root_or_skip!();
    let hosts = Hosts::new();
    let uplink = hosts.uplink("--policy udp=off");
    assert!(!uplink.stderr().contains("USO"), "{}", uplink.stderr());
    udp(&hosts.near, &hosts.far, FAR[0].0, &[30_000; 4], 1000);
    let report = uplink.stop();
    assert_eq!(count(&report, "tx.super_packets"), 0, "{report}");
    let uplink = hosts.uplink("--policy tcp=off");
    assert!(
        !uplink.stderr().contains("TSO") && uplink.stderr().contains("USO"),
        "{}",
        uplink.stderr()
    );
    tcp(&hosts.near, &hosts.far, FAR[0].0, 1 << 20);
    let report = uplink.stop();
    assert_eq!(count(&report, "tx.super_packets"), 0, "{report}");
}

#[test]
fn bursts_are_no_longer_than_asked_for() {
    root_or_skip!();
    let hosts = Hosts::new();
    let uplink = hosts.uplink("--max-burst 12000");
    tcp(&hosts.near, &hosts.far, FAR[0].0, 2 << 20);
    let report = uplink.stop();
    let (supers, segments) = (count(&report, "tx.super_packets"), count(&report, "tx.segments"));
    assert!(supers > 100 && segments <= supers * 8, "{report}");
    assert_eq!(report["unsplit"], serde_json::json!({}), "{report}");
}

#[test]
fn the_device_has_the_address_and_mtu_that_it_is_given() {
    root_or_skip!();
    let hosts = Hosts::new();
    let uplink = hosts.bare("");
    assert_eq!(hosts.near.interface("up0").unwrap().mac(), hosts.veth.a.mac());
    uplink.stop();
    let uplink = hosts.uplink("--mac 02:00:00:00:00:77 --mtu 1280");
    assert_eq!(hosts.near.interface("up0").unwrap().mac().to_string(), "02:00:00:00:00:77");
    hosts.talk(100_000);
    assert_eq!(count(&uplink.stop(), "mtu"), 1280);
}

#[test]
fn the_device_can_be_in_another_namespace() {
    root_or_skip!();
    let hosts = Hosts::new();
    let guest = Namespace::create("upl-guest").unwrap();
    let uplink = hosts.bare(&format!("--netns {}", guest.name()));
    assert!(hosts.near.interface("up0").is_err());
    give_addresses(&guest);
    tcp(&guest, &hosts.far, FAR[0].0, 1 << 20);
    uplink.stop();
    assert!(guest.interface("up0").is_err(), "it goes with the uplink");

    let uplink = hosts.bare("");
    assert!(ip(&hosts.near, &format!("link set up0 netns {}", guest.name())));
    guest.interface("up0").unwrap().up().unwrap();
    give_addresses(&guest);
    tcp(&guest, &hosts.far, FAR[1].0, 1 << 20);
    assert!(count(&uplink.stop(), "tx.super_packets") > 0);
}

/// Runs `ip` in a namespace.
fn ip(namespace: &Namespace, arguments: &str) -> bool {
    namespace.command("ip").args(arguments.split_whitespace()).status().unwrap().success()
}

/// Does `work` with the addresses of the far and the near end of each kind of tunnel that the kernel has. Returns
/// whether there was one.
fn through_tunnels(
    test: &str,
    hosts: &Hosts,
    kinds: &[&str],
    mut work: impl FnMut(&str, &str),
) -> bool {
    let mut crossed = false;
    'kinds: for (number, link) in kinds.iter().enumerate() {
        let name = format!("in{number}");
        let (kind, rest) = link.split_once(' ').unwrap_or((link, ""));
        for (host, local, own, remote) in
            [(&hosts.near, NEAR[0].0, 1, FAR[0].0), (&hosts.far, FAR[0].0, 2, NEAR[0].0)]
        {
            let ends = match kind {
                "vxlan" => format!("id 7 local {local} remote {remote}"),
                "geneve" => format!("id 7 remote {remote}"),
                _ => format!("local {local} remote {remote}"),
            };
            if !ip(host, &format!("link add {name} type {kind} {ends} {rest}")) {
                print_skipped(test, &format!("the kernel has no {link}"));
                continue 'kinds;
            }
            assert!(ip(host, &format!("addr add 10.9.{number}.{own}/24 dev {name}")));
            assert!(ip(host, &format!("link set {name} up")));
        }
        work(&format!("10.9.{number}.2"), &format!("10.9.{number}.1"));
        crossed = true;
        for host in [&hosts.near, &hosts.far] {
            assert!(ip(host, &format!("link del {name}")));
        }
    }
    crossed
}

/// Of a kind with a port that no list has, too.
const TUNNELS: [&str; 8] = [
    "vxlan dstport 4789",
    "vxlan dstport 8472 udpcsum",
    "vxlan dstport 9999",
    "geneve udpcsum",
    "geneve noudpcsum",
    "gretap",
    "gre",
    "ipip",
];

#[test]
fn streams_in_tunnels_arrive_from_a_peer_that_leaves_them_unfinished() {
    root_or_skip!();
    let hosts = Hosts::new();
    hosts.veth.b.set_offloads(true).unwrap();
    for arguments in ["--backend xdp", "--backend packet", "--backend packet --tunnels"] {
        let uplink = hosts.uplink(arguments);
        through_tunnels(test_name!(), &hosts, &TUNNELS, |far, near| {
            tcp(&hosts.far, &hosts.near, near, 4 << 20);
            tcp(&hosts.near, &hosts.far, far, 4 << 20);
            udp(&hosts.far, &hosts.near, near, &[1, 1000, 30_000], 0);
            udp(&hosts.far, &hosts.near, near, &[30_000; 2], 1000);
        });
        let report = uplink.stop();
        assert_eq!(report["unsplit"], serde_json::json!({}), "{arguments}: {report}");
        assert_eq!(report["dropped"]["device_refused"], 0, "{arguments}: {report}");
    }
}

#[test]
fn super_packets_in_tunnels_are_split_where_that_is_asked_for() {
    root_or_skip!();
    let hosts = Hosts::new();
    let uplink = hosts.uplink("--tunnels");
    if !uplink.stderr().contains("UDP tunnels") {
        uplink.stop();
        skip!("the kernel hands out no super-packets in tunnels (Linux 6.17)");
    }
    // With the outer checksum and without; VXLAN's is off by default.
    let kinds =
        ["vxlan dstport 4789", "vxlan dstport 4790 udpcsum", "geneve udpcsum", "geneve noudpcsum"];
    let crossed = through_tunnels(test_name!(), &hosts, &kinds, |address, _| {
        tcp(&hosts.near, &hosts.far, address, 2 << 20);
    });
    let report = uplink.stop();
    let (supers, segments) = (count(&report, "tx.super_packets"), count(&report, "tx.segments"));
    assert!(!crossed || (supers > 0 && segments > 4 * supers), "{report}");
    assert_eq!(report["unsplit"], serde_json::json!({}), "{report}");
}

#[test]
fn datagrams_for_the_port_of_a_tunnel_are_datagrams() {
    root_or_skip!();
    let hosts = Hosts::new();
    let uplink = hosts.uplink("");
    for port in [4789, 6081] {
        let receiver = hosts.far.run(|| UdpSocket::bind((FAR[0].0, port))).unwrap().unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let sender = hosts.near.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
        setsockopt(&sender, sockopt::UdpGsoSegment, &1000).unwrap();
        sender.connect((FAR[0].0, port)).unwrap();
        let message = Random::new(1).bytes(10_000);
        sender.send(&message).unwrap();
        let mut buffer = [0; 2000];
        for datagram in message.chunks(1000) {
            let got = uninterrupted(|| receiver.recv(&mut buffer)).unwrap();
            assert!(buffer[..got] == *datagram, "to port {port}");
        }
    }
    let report = uplink.stop();
    assert_eq!(count(&report, "tx.super_packets"), 2, "{report}");
}
