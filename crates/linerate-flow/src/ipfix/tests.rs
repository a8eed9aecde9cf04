use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::time::Duration;

use super::*;
use crate::schema::{Group, Groups};
use crate::{Direction, DirectionDetails, FlowKey};

fn target(text: &str) -> Target {
    text.parse().unwrap()
}

/// A record whose numbers follow from `n`; every third has no reverse direction.
fn record(n: u64) -> FlowRecord {
    let address = |last: u64| IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + (last % 65_536) as u32));
    let count = |packets| Direction { packets, octets: packets * 100, ..Direction::default() };
    FlowRecord {
        start: 1_700_000_000_000_000_000 + n,
        end: 1_700_000_001_000_000_000 + n,
        key: FlowKey {
            source: address(n),
            destination: address(n + 1),
            source_port: Some(1000),
            destination_port: Some(53),
            protocol: 17,
            ..FlowKey::default()
        },
        forward: count(n + 1),
        reverse: count(if n.is_multiple_of(3) { 0 } else { n }),
        reverse_start: (!n.is_multiple_of(3)).then_some(1_700_000_000_500_000_000),
        ..FlowRecord::default()
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// The sets of a message: number and length.
fn sets(message: &[u8]) -> Vec<(u16, usize)> {
    let mut sets = Vec::new();
    let mut at = 16;
    while at < message.len() {
        let length = usize::from(u16_at(message, at + 2));
        sets.push((u16_at(message, at), length));
        at += length;
    }
    assert_eq!(at, message.len(), "sets fill the message");
    sets
}

#[test]
fn a_target_is_read_as_it_is_written() {
    for text in [
        "ipfix://collector:2055",
        "ipfix+tcp://10.0.0.1:4739",
        "ipfix://[::1]:9?uniflow",
        "ipfix://[::1]:9?domain=4294967295",
        "ipfix+tls://collector:4740",
        "ipfix+tls://collector:9?uniflow&domain=2&ca=/etc/ca.pem&certificate=/etc/a.pem&key=/etc/a.key",
    ] {
        assert_eq!(target(text).to_string(), text);
        assert!(Target::is_one(text));
    }
    assert_eq!(target("ipfix://collector").port, 4739);
    assert_eq!(target("ipfix+tls://collector").port, 4740);
    assert_eq!(target("ipfix://[fe80::1]").host, "[fe80::1]");
    assert_eq!(target("ipfix://[fe80::1%eth0]:9").host, "[fe80::1%eth0]");
    assert_eq!(target("ipfix://a/").host, "a");
    assert_eq!(target("IPFIX+TCP://a").to_string(), "ipfix+tcp://a:4739");
    let refused = [
        "ipfix://",
        "ipfix://a:70000",
        "ipfix://a:0",
        "ipfix://a:",
        "ipfix://[127.0.0.1",
        "ipfix://[127.0.0.1]",
        "ipfix://127.0.0.1]",
        "ipfix://[::1",
        "ipfix://[::1]a",
        "ipfix://::1",
        "ipfix://a/b",
        "ipfix://a@b",
        "ipfix://a b",
        "ipfix+sctp://a",
        "ipfix+dtls://a",
        "ipfix://a?x",
        "ipfix://a?domain=0",
        "ipfix://a?domain=4294967296",
        "ipfix://a?domain=",
        "ipfix+tcp://a?ca=/etc/ca.pem",
        "ipfix+tls://a?ca=",
        "ipfix+tls://a?certificate=/etc/a.pem",
        "/tmp",
    ];
    for text in refused {
        assert!(text.parse::<Target>().is_err(), "{text}");
    }
    assert!(!Target::is_one("/var/lib/flows"));
}

#[test]
fn messages_fit_and_count_their_data_records() {
    let mut encoder = Encoder::new(NonZeroU32::new(7).unwrap(), 1024);
    let mut messages = Vec::new();
    for n in 0..1000 {
        messages.extend(encoder.record(&record(n), 1_700_000_000_000_000_000));
        if n == 500 {
            messages.extend(encoder.refresh(1_700_000_000_000_000_000));
            // Statistics are of another observation domain, and leave the sequence of flows as it is.
            for before in [0, 2] {
                let of_process = encoder.statistics(&Statistics::default(), 0).unwrap().bytes;
                assert_eq!((u32_at(&of_process, 8), u32_at(&of_process, 12)), (before, 0));
                let ids: Vec<_> = sets(&of_process).iter().map(|(id, _)| *id).collect();
                assert_eq!(ids, [3, 256, 257]);
            }
        }
    }
    messages.extend(encoder.finish(1_700_000_000_000_000_000));
    assert!(encoder.finish(0).is_none(), "nothing is left");
    let mut records = 0;
    for message in &messages {
        let bytes = &message.bytes;
        assert!(bytes.len() <= 1024, "{}", bytes.len());
        assert_eq!((u16_at(bytes, 0), usize::from(u16_at(bytes, 2))), (10, bytes.len()));
        assert_eq!(u32_at(bytes, 4), 1_700_000_000);
        assert_eq!(u32_at(bytes, 8), records, "the sequence number counts the data records before");
        assert_eq!(u32_at(bytes, 12), 7);
        records += message.flows as u32;
    }
    assert_eq!(records, 1000);
    let total = |count: fn(&Message) -> u64| messages.iter().map(count).sum::<u64>();
    assert_eq!(total(|m| m.flows), 1000);
    let expected: u64 =
        (0..1000).map(|n| record(n).forward.packets + record(n).reverse.packets).sum();
    assert_eq!((total(|m| m.packets), total(|m| m.octets)), (expected, expected * 100));
    // Two kinds of record, each defined once and once more by the refresh.
    let templates: usize =
        messages.iter().flat_map(|m| sets(&m.bytes)).filter(|(id, _)| *id == 2).count();
    assert!((3..=4).contains(&templates), "{templates}");
}

#[test]
fn a_biflow_becomes_two_records() {
    let [forward, reverse] = directions(&record(1)).map(Option::unwrap);
    assert_eq!((forward.forward.packets, forward.reverse.packets), (2, 0));
    assert_eq!((reverse.forward.packets, reverse.reverse.packets), (1, 0));
    assert_eq!((reverse.key.source, reverse.key.source_port), (forward.key.destination, Some(53)));
    assert_eq!((reverse.start, reverse.end), (1_700_000_000_500_000_000, forward.end));
    assert!(directions(&record(0))[1].is_none());
}

#[test]
fn a_full_queue_counts_what_it_drops() {
    // Nobody accepts: what is more than the queue and one message's worth cannot be sent.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let options = Options { queue_records: 10, ..Options::default() };
    let exporter =
        Exporter::start(target(&format!("ipfix+tcp://127.0.0.1:{port}")), &options, || ()).unwrap();
    let count = 3 * MAX_UNSENT as u64;
    (0..count).for_each(|n| exporter.try_send(record(n)));
    let statistics = exporter.finish(Duration::from_millis(50));
    let packets: u64 =
        (0..count).map(|n| record(n).forward.packets + record(n).reverse.packets).sum();
    assert_eq!((statistics.flows, statistics.not_sent_flows), (0, count));
    assert_eq!((statistics.not_sent_packets, statistics.not_sent_octets), (packets, 100 * packets));
    assert!(statistics.error.is_some());
}

#[test]
fn the_templates_come_again_over_udp() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let address = socket.local_addr().unwrap();
    let options = Options { refresh: Duration::ZERO, ..Options::default() };
    let exporter = Exporter::start(target(&format!("ipfix://{address}")), &options, || ()).unwrap();
    let mut seen = 0;
    let mut buffer = [0; 65_536];
    while seen < 3 {
        exporter.send(record(1));
        let length = socket.recv(&mut buffer).unwrap();
        seen += sets(&buffer[..length]).iter().filter(|(id, _)| *id == 2).count();
    }
    let statistics = exporter.finish(Duration::from_secs(10));
    assert_eq!(statistics.not_sent_flows, 0);
}

/// The records of meters and of `forward`: each kind of packet, tag, direction, interface, and translation.
fn usual_records() -> Vec<FlowRecord> {
    let v4 = IpAddr::from([10, 0, 0, 1]);
    let v6 = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]);
    let seen = Direction {
        packets: 1,
        octets: 40,
        tcp_flags: 2,
        ttl: Some((64, 64)),
        length: Some((40, 40)),
    };
    let counted = Direction { packets: 1, octets: 40, ..Direction::default() };
    let none = Direction::default();
    let mut records = Vec::new();
    for n in 0..2 * 5 * 3 * 4 * 4 * 2 {
        let mut rest = n;
        let mut choose = |count: usize| {
            let choice = rest % count;
            rest /= count;
            choice
        };
        let address = [v4, v6][choose(2)];
        let (protocol, ports, icmp_type_code) = [
            (6, Some(1), None),
            (6, None, None),
            (17, Some(1), None),
            ([1, 58][usize::from(address.is_ipv6())], None, Some(0x800)),
            (47, None, None),
        ][choose(5)];
        let vlans = [(None, None), (Some(1), None), (Some(1), Some(2))][choose(3)];
        let directions = [(seen, seen), (seen, none), (none, seen), (counted, none)];
        let (forward, reverse) = directions[choose(4)];
        let interface = [(false, false), (true, false), (true, true), (false, true)][choose(4)];
        let translation = (choose(2) == 1).then_some(crate::Translation {
            source: address,
            destination: address,
            source_port: ports,
            destination_port: ports,
        });
        let record = FlowRecord {
            key: FlowKey {
                source: address,
                destination: address,
                source_port: ports,
                destination_port: ports,
                icmp_type_code,
                protocol,
                vlan: vlans.0,
                customer_vlan: vlans.1,
            },
            forward,
            reverse,
            reverse_start: (reverse.packets > 0).then_some(1),
            ingress_interface: interface.0.then_some(2),
            interface_name: interface.0.then(|| "eth0".into()),
            egress_interface: interface.1.then_some(3),
            translation,
            end_reason: Some(crate::EndReason::IdleTimeout),
            ..FlowRecord::default()
        };
        if forward.packets > 0 && reverse.packets == 0 && interface == (false, false) {
            // An event.
            let nat_event = Some(crate::NatEvent::Nat44Create);
            let (forward, end_reason) = (Direction::default(), None);
            records.push(FlowRecord { nat_event, forward, end_reason, ..record.clone() });
        }
        records.push(record);
    }
    records
}

/// Encodes records, and adds their templates; a number never has other fields than before.
fn add_templates(records: &[FlowRecord], by_number: &mut HashMap<u16, Vec<u8>>) {
    let mut encoder = Encoder::new(NonZeroU32::MIN, 1400);
    let mut messages = Vec::new();
    messages.extend(records.iter().filter_map(|record| encoder.record(record, 0)));
    messages.extend(encoder.finish(0));
    for (id, fields) in messages.iter().flat_map(|message| templates(&message.bytes)) {
        assert_eq!(by_number.entry(id).or_insert_with(|| fields.clone()), &fields, "{id}");
    }
}

/// The template sets of a message: each number with the octets of its fields.
fn templates(message: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let (mut templates, mut start) = (Vec::new(), 16);
    for (set, len) in sets(message) {
        let mut at = start + 4;
        start += len;
        while set == 2 && at < start {
            let (id, count) = (u16_at(message, at), u16_at(message, at + 2));
            let first = at + 4;
            at = first;
            for _ in 0..count {
                at += if u16_at(message, at) >> 15 == 1 { 8 } else { 4 };
            }
            templates.push((id, message[first..at].to_vec()));
        }
    }
    templates
}

#[test]
fn a_template_number_means_the_same_fields_in_each_session() {
    let mut records = usual_records();
    let mut by_number = HashMap::new();
    for _ in 0..3 {
        // The order of records decides nothing.
        records.rotate_left(333);
        records.reverse();
        add_templates(&records, &mut by_number);
    }
    assert!(by_number.len() > 400, "{}", by_number.len());
    // Collectors of today know it.
    let mut encoder = Encoder::new(NonZeroU32::MIN, 1400);
    encoder.record(&record(1), 0);
    assert_eq!(templates(&encoder.finish(0).unwrap().bytes)[0].0, 5539);
}

/// The records of a meter with these groups of fields.
fn records_with(groups: Groups) -> Vec<FlowRecord> {
    let of_meter = |record: &FlowRecord| {
        record.translation.is_none()
            && record.nat_event.is_none()
            && record.egress_interface.is_none()
            && (record.forward.ttl.is_some() || record.reverse.ttl.is_some())
    };
    let direction = |packets: u64| DirectionDetails {
        tos: (packets > 0 && groups.contains(Group::Tos)).then_some(0),
        flow_label: (packets > 0 && groups.contains(Group::FlowLabel)).then_some(0),
        payload: (packets > 0 && groups.contains(Group::Payload)).then_some(0),
        first_flags: (packets > 0 && groups.contains(Group::History)).then_some(0),
    };
    let mut records = usual_records();
    records.retain(of_meter);
    for record in &mut records {
        record.details.macs = groups.contains(Group::Mac).then(Default::default);
        record.details.forward = direction(record.forward.packets);
        record.details.reverse = direction(record.reverse.packets);
    }
    records
}

#[test]
fn a_template_number_means_the_same_fields_with_each_set_of_groups() {
    let sent = [Group::Mac, Group::Tos, Group::FlowLabel, Group::Payload, Group::History];
    for set in 1..1 << sent.len() {
        let chosen = sent.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1);
        let records = records_with(chosen.map(|(_, group)| *group).collect());
        let mut by_number = HashMap::new();
        for records in [records.clone(), records.into_iter().rev().collect()] {
            add_templates(&records, &mut by_number);
        }
        assert_eq!(by_number.len(), 180);
    }
}
