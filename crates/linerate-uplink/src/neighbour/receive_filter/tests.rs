use std::net::Ipv6Addr;

use linerate_wire::checksum::Sum;
use linerate_wire::ip::Protocol;
use linerate_wire::ipv6;

use super::*;

const MAC: Address = Address([2, 0, 0, 0, 0, 1]);
const PEER: Address = Address([2, 0, 0, 0, 0, 2]);

fn filter() -> ReceiveFilter {
    let cache = Arc::new(DestinationCache::new(MAC).unwrap());
    let mut own: Vec<IpAddr> =
        ["192.0.2.1", "2001:db8::1"].map(|address| address.parse().unwrap()).into();
    own.sort();
    cache.lock().addresses = own;
    let mut filter = ReceiveFilter::new(cache);
    filter.refresh();
    filter
}

fn frame(to: Address, kind: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; ETHERNET_HEADER];
    ethernet::Repr { destination: to, source: PEER, ether_type: kind }.emit(&mut frame).unwrap();
    frame.extend(payload);
    frame
}

fn question(target: &str) -> Vec<u8> {
    let mut packet = vec![0; arp::PACKET_LEN];
    arp::Repr {
        operation: Operation::Request,
        sender_mac: PEER,
        sender_ip: [192, 0, 2, 2].into(),
        target_mac: Address([0; 6]),
        target_ip: target.parse().unwrap(),
    }
    .emit(&mut packet)
    .unwrap();
    frame(Address::BROADCAST, EtherType::ARP, &packet)
}

fn solicit(source: &str, target: &str, hop_limit: u8) -> Vec<u8> {
    let target: Ipv6Addr = target.parse().unwrap();
    let destination = ipv6::solicited_node(target);
    let mut packet = vec![0; Solicitation::PACKET_LEN];
    Solicitation {
        source: source.parse().unwrap(),
        destination,
        target,
        source_link_layer_address: None,
    }
    .emit(&mut packet)
    .unwrap();
    packet[7] = hop_limit;
    let mac = Address::of_group(destination.into()).unwrap();
    frame(mac, EtherType::IPV6, &packet)
}

#[test]
fn only_packets_to_the_device_are_admitted() {
    let mut filter = filter();
    let packet = |to: [u8; 4]| [&[0x45; 16][..], &to, &[0; 8]].concat();
    let own = frame(MAC, EtherType::IPV4, &packet([192, 0, 2, 1]));
    assert!(filter.accepts(&own));
    for other in [
        frame(MAC, EtherType::IPV4, &packet([192, 0, 2, 9])),
        frame(PEER, EtherType::IPV4, &packet([192, 0, 2, 1])),
        frame(MAC, EtherType::VLAN, &packet([192, 0, 2, 1])),
        own[..30].to_vec(),
        own[..5].to_vec(),
    ] {
        assert!(!filter.accepts(&other), "{other:02x?}");
    }
    let mut six = vec![0x60; 48];
    six[24..40].copy_from_slice(&"2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
    assert!(filter.accepts(&frame(MAC, EtherType::IPV6, &six)));
    assert_eq!(filter.replies().count(), 0);
    // As a card that gets another address.
    filter.cache.set_mac(PEER);
    filter.refresh();
    assert!(!filter.accepts(&own));
    assert!(filter.accepts(&frame(PEER, EtherType::IPV4, &packet([192, 0, 2, 1]))));
}

#[test]
fn arp_is_answered_for_the_device_alone() {
    let mut filter = filter();
    assert!(!filter.accepts(&question("192.0.2.1")));
    assert!(!filter.accepts(&question("192.0.2.7")));
    let replies: Vec<_> = filter.replies().collect();
    let [answer] = &replies[..] else { panic!("{} replies", replies.len()) };
    assert_eq!(answer[..6], PEER.0);
    let said = arp::Repr::parse(&answer[ETHERNET_HEADER..]).unwrap();
    assert_eq!((said.operation, said.sender_ip), (Operation::Reply, [192, 0, 2, 1].into()));
    assert_eq!(said.sender_mac.to_string(), "02:00:00:00:00:01");
    for _ in 0..1000 {
        filter.accepts(&question("192.0.2.1"));
    }
    assert_eq!(filter.replies().count(), MAX_REPLIES, "a flood is answered in part");
}

#[test]
fn a_valid_solicitation_is_answered_with_a_valid_advertisement() {
    let mut filter = filter();
    for refused in [
        solicit("fe80::2", "2001:db8::1", 64),
        solicit("fe80::2", "2001:db8::7", 255),
        solicit("fe80::2", "ff02::1", 255),
    ] {
        assert!(!filter.accepts(&refused));
    }
    let mut damaged = solicit("fe80::2", "2001:db8::1", 255);
    damaged[ETHERNET_HEADER + 20] ^= 1;
    assert!(!filter.accepts(&damaged) && !filter.accepts(&damaged[..60]));
    assert_eq!(filter.replies().count(), 0);
    for (source, mac, to, flags) in
        [("fe80::2", PEER, "fe80::2", 0x60), ("::", ALL_NODES, "ff02::1", 0x20)]
    {
        assert!(!filter.accepts(&solicit(source, "2001:db8::1", 255)));
        let answer = filter.replies().next().unwrap();
        assert_eq!(answer[..6], mac.0);
        let ip = ipv6::Packet::new_checked(&answer[ETHERNET_HEADER..]).unwrap();
        assert_eq!((ip.destination(), ip.hop_limit()), (to.parse().unwrap(), 255));
        let len = ip.payload().len() as u32;
        let pseudo = Sum::pseudo_v6(ip.source(), ip.destination(), Protocol::ICMPV6, len);
        assert!(pseudo.bytes(ip.payload()).is_valid());
        // A neighbour advertisement.
        assert_eq!((ip.payload()[0], ip.payload()[4]), (136, flags));
        assert_eq!(ip.payload()[26..], MAC.0);
    }
}
