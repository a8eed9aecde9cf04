//! The switches, each seen by its effect.

use linerate_netns::{Namespace, root_or_skip};

use crate::support::{FAR, Hosts, NEAR, count, give_addresses, tcp, udp};

#[test]
fn without_offloads_nothing_is_split_or_joined() {
    root_or_skip!("without_offloads_nothing_is_split_or_joined");
    let hosts = Hosts::new();
    let uplink = hosts.uplink("--no-offload");
    assert!(uplink.said.contains("no offload"), "{}", uplink.said);
    hosts.talk(1 << 20);
    let report = uplink.interrupt();
    for none in ["down.super_packets", "down.checksums", "up.super_packets"] {
        assert_eq!(count(&report, none), 0, "{report}");
    }
    assert!(
        count(&report, "down.packets") > 1000 && count(&report, "up.packets") > 1000,
        "{report}"
    );
}

#[test]
fn the_packet_back_end_splits_and_joins_too() {
    root_or_skip!("the_packet_back_end_splits_and_joins_too");
    let hosts = Hosts::new();
    let uplink = hosts.uplink("--backend packet");
    hosts.talk(1 << 20);
    udp(&hosts.near, &hosts.far, FAR[0].0, &[30_000; 4], 1000);
    let report = uplink.interrupt();
    assert_eq!(report["backend"], "packet");
    for some in ["down.super_packets", "up.super_packets"] {
        assert!(count(&report, some) > 0, "{report}");
    }
}

#[test]
fn what_the_other_end_leaves_unfinished_arrives() {
    root_or_skip!("what_the_other_end_leaves_unfinished_arrives");
    let hosts = Hosts::new();
    // As every veth is by default: checksums are open, and without XDP super-packets cross.
    hosts.veth.b.set_offloads(true).unwrap();
    // Elsewhere than the interface, whose own host hears what packet sockets do, and would take a datagram
    // for its address a second time.
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
        uplink.interrupt();
    }
}

#[test]
fn a_protocol_that_is_off_is_left_to_the_stack() {
    root_or_skip!("a_protocol_that_is_off_is_left_to_the_stack");
    let hosts = Hosts::new();
    let uplink = hosts.uplink("--policy udp=off");
    assert!(!uplink.said.contains("USO"), "{}", uplink.said);
    udp(&hosts.near, &hosts.far, FAR[0].0, &[30_000; 4], 1000);
    let report = uplink.interrupt();
    assert_eq!(count(&report, "down.super_packets"), 0, "{report}");
    let uplink = hosts.uplink("--policy tcp=off");
    assert!(!uplink.said.contains("TSO") && uplink.said.contains("USO"), "{}", uplink.said);
    tcp(&hosts.near, &hosts.far, FAR[0].0, 1 << 20);
    let report = uplink.interrupt();
    assert_eq!(count(&report, "down.super_packets"), 0, "{report}");
}

#[test]
fn bursts_are_no_longer_than_asked_for() {
    root_or_skip!("bursts_are_no_longer_than_asked_for");
    let hosts = Hosts::new();
    let uplink = hosts.uplink("--max-burst 12000");
    tcp(&hosts.near, &hosts.far, FAR[0].0, 2 << 20);
    let report = uplink.interrupt();
    let (supers, segments) =
        (count(&report, "down.super_packets"), count(&report, "down.segments"));
    assert!(supers > 100 && segments <= supers * 8, "{report}");
    assert_eq!(report["unsplit"], serde_json::json!({}), "{report}");
}

#[test]
fn the_device_has_the_address_and_mtu_that_it_is_given() {
    root_or_skip!("the_device_has_the_address_and_mtu_that_it_is_given");
    let hosts = Hosts::new();
    let uplink = hosts.bare("");
    assert_eq!(hosts.near.interface("up0").unwrap().mac(), hosts.veth.a.mac());
    uplink.interrupt();
    let uplink = hosts.uplink("--mac 02:00:00:00:00:77 --mtu 1280");
    assert_eq!(hosts.near.interface("up0").unwrap().mac().to_string(), "02:00:00:00:00:77");
    hosts.talk(100_000);
    assert_eq!(count(&uplink.interrupt(), "mtu"), 1280);
}

#[test]
fn the_device_can_be_in_another_namespace() {
    root_or_skip!("the_device_can_be_in_another_namespace");
    let hosts = Hosts::new();
    let guest = Namespace::create("upl-guest").unwrap();
    let uplink = hosts.bare(&format!("--netns {}", guest.name()));
    assert!(hosts.near.interface("up0").is_err());
    give_addresses(&guest);
    tcp(&guest, &hosts.far, FAR[0].0, 1 << 20);
    uplink.interrupt();
    assert!(guest.interface("up0").is_err(), "it goes with the uplink");

    let uplink = hosts.bare("");
    let moved =
        hosts.near.command("ip").args(["link", "set", "up0", "netns", guest.name()]).status();
    assert!(moved.unwrap().success());
    guest.interface("up0").unwrap().up().unwrap();
    give_addresses(&guest);
    tcp(&guest, &hosts.far, FAR[1].0, 1 << 20);
    assert!(count(&uplink.interrupt(), "down.super_packets") > 0);
}
