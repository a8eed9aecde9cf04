//! What RFC 7011, 7012 and 5103 say of flows.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use etherparse::{PacketBuilder, VlanId};
use linerate_flow::meter::MeteredPacket;
use linerate_flow::{BiflowDirection, EndReason, FlowRecord};
use linerate_pcapfile::ByteRange;

use crate::frames::{A, ETHERNET, F, Metered, R, S, SECOND, START, tcp, udp};

fn host(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

fn counts(record: &FlowRecord) -> [u64; 4] {
    let (forward, reverse) = (record.forward, record.reverse);
    [forward.packets, forward.octets, reverse.packets, reverse.octets]
}

#[test]
fn both_directions_share_a_record_of_the_initiator() {
    let mut metered = Metered::new(10, 60, 15);
    let (client, server) = ((9, 40000), (1, 80));
    metered
        .frame(0.0, &tcp(client, server, S, 0))
        .frame(0.1, &tcp(server, client, S | A, 0))
        .frame(0.2, &tcp(client, server, A, 100))
        .frame(0.3, &tcp(server, client, A, 1000))
        .frame(0.4, &tcp(server, client, A | F, 0))
        .frame(0.5, &tcp(client, server, A | F, 0))
        .frame(0.6, &tcp(server, client, A, 0));
    let records = metered.finish();
    let [record] = records else { panic!("{records:?}") };
    assert_eq!((record.key.source, record.key.source_port), (host(9), Some(40000)));
    assert_eq!((record.key.destination, record.key.destination_port), (host(1), Some(80)));
    assert_eq!(counts(record), [3, 40 + 140 + 40, 4, 40 + 1040 + 40 + 40]);
    assert_eq!((record.start, record.end), (START, START + SECOND * 6 / 10));
    assert_eq!(record.reverse_start, Some(START + SECOND / 10));
    assert_eq!(record.forward.tcp_flags, u16::from(S | A | F));
    assert_eq!(record.reverse.length, Some((40, 1040)));
    assert_eq!(record.direction, BiflowDirection::Initiator);
    assert_eq!(record.end_reason, Some(EndReason::ForcedEnd), "the linger time has not passed");
}

#[test]
fn a_clock_that_begins_at_0_is_a_clock() {
    let mut metered = Metered::new(10, 60, 15);
    let mut frame = |time, frame: &[u8]| {
        metered.packet(&MeteredPacket {
            frame,
            wire_len: frame.len() as u32,
            linktype: ETHERNET,
            interface: 0,
            time,
            byte_range: None,
            processes: None,
        });
    };
    let (a, b) = ((host(1), 1000), (host(2), 53));
    frame(0, &udp(a, b, 10));
    frame(0, &udp(b, a, 10));
    // The first fragments of several packets, and then the others.
    let all: Vec<_> = (0..64).map(fragments).collect();
    all.iter().for_each(|[first, _]| frame(0, first));
    all.iter().for_each(|[_, later]| frame(0, later));
    assert_eq!(metered.meter.statistics().without_ports, 0);
    let records = metered.finish();
    let [record] = records else { panic!("{records:?}") };
    assert_eq!((record.start, record.reverse_start), (0, Some(0)));
    assert_eq!([record.forward.packets, record.reverse.packets], [129, 1]);
}

#[test]
fn a_clock_that_is_set_back_splits_records_and_then_goes_on() {
    let (client, server, old) = ((9, 40000), (1, 80), (8, 40000));
    let mut metered = Metered::new(10, 60, 15);
    metered
        .frame(3600.0, &tcp(client, server, S, 0))
        .frame(3601.0, &tcp(server, client, S | A, 0))
        .frame(3602.0, &tcp(old, server, S, 0));
    // An hour back, and on from there.
    for tenth in 0..100_u32 {
        metered.frame(f64::from(tenth) / 10.0, &tcp(server, client, A, 100));
    }
    let records = metered.finish();
    let of = |host_number| records.iter().filter(move |one| one.key.source == host(host_number));
    let spans: Vec<_> = of(9).map(|one| (one.start - START, one.end - START)).collect();
    assert_eq!(spans, [(3600 * SECOND, 3601 * SECOND), (0, 99 * SECOND / 10)], "{records:?}");
    let packets: Vec<_> = of(9).map(|one| (one.forward.packets, one.reverse.packets)).collect();
    assert_eq!(packets, [(1, 1), (0, 100)]);
    assert!(of(9).all(|one| one.direction == BiflowDirection::Initiator));
    let reasons: Vec<_> = of(9).chain(of(8)).map(|one| one.end_reason).collect();
    assert_eq!(reasons, [Some(EndReason::ForcedEnd); 3]);
    assert_eq!(metered.meter.time(), START + 99 * SECOND / 10);

    // One packet of another clock sets nothing back.
    let mut metered = Metered::new(10, 60, 15);
    metered
        .frame(3600.0, &tcp(client, server, S, 0))
        .frame(0.0, &tcp(old, server, S, 0))
        .frame(3601.0, &tcp(server, client, S | A, 0));
    assert_eq!(metered.meter.time(), START + 3601 * SECOND);
    let records = metered.finish();
    let client = records.iter().find(|one| one.key.source == host(9)).unwrap();
    assert_eq!((records.len(), counts(client)), (2, [1, 40, 1, 40]));
}

#[test]
fn packets_of_times_that_records_cannot_have_are_refused_by_name() {
    let frame = udp((host(1), 1000), (host(2), 53), 10);
    let mut metered = Metered::new(10, 60, 15);
    for time in [i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX, START] {
        metered.packet(&MeteredPacket {
            frame: &frame,
            wire_len: frame.len() as u32,
            linktype: ETHERNET,
            interface: 0,
            time,
            byte_range: None,
            processes: None,
        });
    }
    assert_eq!(metered.meter.statistics().time_range, 2);
    let times: Vec<_> = metered.finish().iter().map(|one| (one.start, one.end)).collect();
    assert_eq!(times, [(i64::MAX as u64, i64::MAX as u64), (START, START)]);
}

#[test]
fn an_answer_that_comes_first_does_not_make_the_server_the_initiator() {
    let (client, server) = ((9, 40000), (1, 80));
    let mut metered = Metered::new(10, 60, 15);
    let records = metered
        .frame(0.0, &tcp(server, client, S | A, 0))
        .frame(0.1, &tcp(client, server, A, 5))
        .finish();
    assert_eq!((records.len(), counts(&records[0])), (1, [1, 45, 1, 40]));
    assert_eq!(
        (records[0].key.source, records[0].direction),
        (host(9), BiflowDirection::Initiator)
    );

    // In the middle of a connection nobody knows, and the end with the lower port is probably the server.
    for frame in [tcp(server, client, A, 0), tcp(client, server, A, 0)] {
        let mut metered = Metered::new(10, 60, 15);
        let records = metered.frame(0.0, &frame).finish();
        assert_eq!(
            (records[0].key.source, records[0].direction),
            (host(9), BiflowDirection::Arbitrary)
        );
    }
    let answer = udp((host(1), 53), (host(9), 40000), 9);
    let mut metered = Metered::new(10, 60, 15);
    let records = metered.frame(0.0, &answer).finish();
    assert_eq!(
        (records[0].key.source, records[0].direction),
        (host(9), BiflowDirection::Arbitrary)
    );
}

#[test]
fn a_syn_corrects_the_direction_and_the_times() {
    // Packets of two queues, in the wrong order.
    let (client, server) = ((9, 80), (1, 40000));
    let mut metered = Metered::new(10, 60, 15);
    let records = metered
        .frame(0.0, &tcp(server, client, A, 7))
        .frame(0.1, &tcp(client, server, S, 0))
        .frame(0.2, &tcp(server, client, S | A, 0))
        .finish();
    let [record] = records else { panic!("{records:?}") };
    assert_eq!((record.key.source, record.direction), (host(9), BiflowDirection::Initiator));
    assert_eq!((counts(record), record.reverse_start), ([1, 40, 2, 87], Some(START)));
}

#[test]
fn after_an_idle_pause_the_initiator_is_the_same() {
    let client = (host(9), 51820);
    let server = (host(1), 51821);
    for (pause, source, direction) in [
        (3000.0, host(9), BiflowDirection::Initiator),
        // It is no longer known, and the first packet decides.
        (4000.0, host(1), BiflowDirection::Initiator),
    ] {
        let mut metered = Metered::new(10, 60, 15);
        metered.frame(0.0, &udp(client, server, 9)).frame(1.0, &udp(server, client, 9));
        let records = metered.frame(pause, &udp(server, client, 9)).finish();
        assert_eq!(records.len(), 2, "{records:?}");
        assert_eq!((records[1].key.source, records[1].direction), (source, direction), "{pause}");
    }
    // A connection without keep-alives.
    let (client, server) = ((9, 1000), (1, 8000));
    let mut metered = Metered::new(10, 60, 15);
    metered.frame(0.0, &tcp(client, server, S, 0)).frame(0.1, &tcp(server, client, S | A, 0));
    let records = metered.frame(600.0, &tcp(server, client, A, 9)).finish();
    assert_eq!(
        (records[1].key.source, records[1].direction),
        (host(9), BiflowDirection::Initiator)
    );
}

#[test]
fn a_neighbour_advertisement_answers_a_solicitation() {
    let address = |last: u8| [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let all_nodes = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let frame = |from, to, kind| {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6(from, to, 255);
        let mut frame = Vec::new();
        builder.icmpv6_raw(kind, 0, [0; 4]).write(&mut frame, &[0; 16]).unwrap();
        frame
    };
    let mut metered = Metered::new(10, 60, 15);
    let records = metered
        .frame(0.0, &frame(address(1), address(2), 135))
        .frame(0.1, &frame(address(2), address(1), 136))
        .frame(0.2, &frame(address(3), all_nodes, 136))
        .finish();
    let seen = |record: &FlowRecord| {
        (record.key.icmp_type_code, record.forward.packets, record.reverse.packets)
    };
    assert_eq!(
        records.iter().map(seen).collect::<Vec<_>>(),
        [(Some(135 << 8), 1, 1), (Some(136 << 8), 1, 0)]
    );
}

#[test]
fn fin_in_both_directions_and_rst_end_a_flow_and_a_syn_begins_the_next() {
    let (client, server) = ((9, 40000), (1, 80));
    for last in [vec![(client, server, A | F), (server, client, A | F)], vec![(server, client, R)]]
    {
        let mut metered = Metered::new(10, 60, 15);
        metered.frame(0.0, &tcp(client, server, S, 0));
        for (from, to, flags) in &last {
            metered.frame(0.1, &tcp(*from, *to, *flags, 0));
        }
        // The last acknowledgement still belongs to it. A SYN does not.
        metered.frame(0.2, &tcp(client, server, A, 0)).frame(0.3, &tcp(client, server, S, 0));
        let records = metered.finish();
        assert_eq!(records.len(), 2, "{records:?}");
        assert_eq!(records[0].end_reason, Some(EndReason::EndOfFlow));
        let packets = records[0].forward.packets + records[0].reverse.packets;
        assert_eq!(packets, last.len() as u64 + 2);
        assert_eq!(counts(&records[1]), [1, 40, 0, 0]);
    }
    // One FIN closes one direction only.
    let mut metered = Metered::new(10, 60, 15);
    metered.frame(0.0, &tcp(client, server, A | F, 0)).frame(5.0, &tcp(server, client, A, 9));
    assert_eq!(metered.finish().len(), 1);
}

#[test]
fn timeouts_end_records_at_the_same_packets_whoever_looks() {
    let (a, b) = ((host(1), 1000), (host(2), 53));
    // Once without anything else; once with other packets that drive the sweep.
    for others in [false, true] {
        let mut metered = Metered::new(1000, 60, 15);
        for at in [0, 10, 20, 30, 40, 50, 59, 61, 90, 91] {
            metered.frame(f64::from(at), &udp(a, b, 10));
            for step in 0..if others { 64 } else { 0 } {
                metered.frame(
                    f64::from(at) + 0.01 * f64::from(step),
                    &udp((host(7), 7), (host(8), 8), 1),
                );
            }
        }
        metered.finish();
        let of_a = metered.records.iter().filter(|record| record.key.source == host(1));
        let seen: Vec<_> = of_a
            .map(|record| {
                (
                    (record.start - START) / SECOND,
                    record.forward.packets,
                    record.end_reason.unwrap(),
                )
            })
            .collect();
        let expected = [
            (0, 7, EndReason::ActiveTimeout),
            (61, 1, EndReason::IdleTimeout),
            (90, 2, EndReason::ForcedEnd),
        ];
        assert_eq!(seen, expected, "{others}");
    }
}

#[test]
fn a_syn_after_the_active_timeout_of_a_closed_flow_finds_the_record_that_was_due() {
    let (client, server) = ((9, 40000), (1, 80));
    for looked in [false, true] {
        let mut metered = Metered::new(1000, 10, 15);
        metered.frame(0.0, &tcp(client, server, S, 0));
        // With many other flows, the sweep takes a second to come to this one.
        for port in 0..if looked { 0 } else { 300 } {
            metered.frame(0.1, &udp((host(1), 1000 + port), (host(2), 53), 10));
        }
        metered.frame(9.9, &tcp(server, client, R, 0)).frame(9.999, &[0; 60]);
        if looked {
            let Metered { meter, records } = &mut metered;
            meter.advance(START + SECOND * 101 / 10, |flow| records.push(flow.record()));
        }
        let records = metered.frame(10.001, &tcp(client, server, S, 0)).finish();
        let of_client = records.iter().filter(|record| record.key.protocol == 6);
        let reasons: Vec<_> = of_client.map(|record| record.end_reason).collect();
        let expected = [EndReason::ActiveTimeout, EndReason::ForcedEnd].map(Some);
        assert_eq!(reasons, expected, "{looked}");
    }
}

#[test]
fn flows_are_exported_a_second_after_their_end_at_any_pace_of_the_clock() {
    // A step of the sweep takes 3.9 ms: the clock may advance by a little less than two of them.
    for step in [1_000_000, 3_900_000, 5_000_000, 7_800_000, 300_000_000] {
        let mut metered = Metered::new(2000, 600, 2);
        for port in 0..1500 {
            metered.frame(0.0, &udp((host(1), 1000 + port), (host(2), 53), 10));
        }
        let Metered { meter, records } = &mut metered;
        let end = START + 3 * SECOND + step;
        let mut time = START;
        while time < end {
            time = end.min(time + step);
            meter.advance(time, |flow| records.push(flow.record()));
        }
        assert_eq!((records.len(), meter.statistics().active), (1500, 0), "{step} ns");
    }
}

#[test]
fn flows_wait_for_paused_sweeps_at_most_ten_seconds_and_not_in_a_table_that_is_nearly_full() {
    let frame = |port: u16| udp((host(1), port), (host(2), 53), 10);
    let sweep = |metered: &mut Metered, seconds: u64| {
        let Metered { meter, records } = metered;
        meter.advance(START + seconds * SECOND, |flow| records.push(flow.record()));
        (records.len(), meter.statistics().active)
    };
    let is_congested = Arc::new(AtomicBool::new(true));
    let metered = |max_flows: u32| {
        let mut metered = Metered::new(max_flows, 60, 2);
        let is_congested = Arc::clone(&is_congested);
        metered.meter.pause_sweeps_while(move || is_congested.load(Relaxed));
        (0..100).for_each(|port| _ = metered.frame(0.0, &frame(1000 + port)));
        metered
    };
    let mut waits = metered(1000);
    assert_eq!(sweep(&mut waits, 5), (0, 100));
    // A packet ends its flow without a sweep, at the time when it was due.
    waits.frame(6.0, &frame(1000));
    assert_eq!((waits.records.len(), waits.records[0].end), (1, START));
    is_congested.store(false, Relaxed);
    assert_eq!(sweep(&mut waits, 7), (100, 1));
    assert!(waits.records.iter().all(|one| one.end_reason == Some(EndReason::IdleTimeout)));

    is_congested.store(true, Relaxed);
    let mut late = metered(1000);
    assert_eq!(sweep(&mut late, 11), (0, 100));
    assert_eq!(sweep(&mut late, 12), (100, 0));
    // Until a quarter of the table is free.
    assert_eq!(sweep(&mut metered(120), 5), (10, 90));
}

#[test]
fn a_flow_that_goes_on_keeps_its_initiator() {
    let (client, server) = ((9, 40000), (1, 80));
    let mut metered = Metered::new(10, 2, 15);
    metered.frame(0.0, &tcp(client, server, S, 0));
    for at in 1..10 {
        metered.frame(f64::from(at), &tcp(server, client, A, 0));
    }
    let records = metered.finish();
    assert!(records.len() >= 4, "{records:?}");
    assert!(records.iter().all(|record| record.key.source == host(9)));
    assert!(
        records[1..]
            .iter()
            .all(|record| record.forward.packets == 0 && record.forward.ttl.is_none())
    );
    assert_eq!(records.iter().map(|record| record.reverse.packets).sum::<u64>(), 9);
}

#[test]
fn vlans_and_interfaces_divide_flows() {
    let tagged = |tags: &[u16]| {
        let id = |at: usize| VlanId::try_new(tags[at]).unwrap();
        let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let mut frame = Vec::new();
        let udp = match tags.len() {
            1 => ethernet.single_vlan(id(0)).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1, 2),
            _ => {
                ethernet.double_vlan(id(0), id(1)).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(1, 2)
            }
        };
        udp.write(&mut frame, &[0; 8]).unwrap();
        frame
    };
    let mut metered = Metered::new(10, 60, 15);
    let frames = [
        udp((host(1), 1), (host(2), 2), 8),
        tagged(&[5]),
        tagged(&[6]),
        tagged(&[5, 7]),
        tagged(&[5]),
    ];
    frames.iter().for_each(|frame| {
        metered.frame(0.0, frame);
    });
    let frame = &frames[0];
    metered.packet(&MeteredPacket {
        frame,
        wire_len: frame.len() as u32,
        linktype: ETHERNET,
        interface: 3,
        time: START,
        byte_range: None,
        processes: None,
    });
    let mut seen: Vec<_> = metered
        .finish()
        .iter()
        .map(|record| {
            (
                record.key.vlan,
                record.key.customer_vlan,
                record.forward.packets,
                record.forward.octets,
            )
        })
        .collect();
    seen.sort();
    let expected = [
        (None, None, 1, 36),
        (None, None, 1, 36),
        (Some(5), None, 2, 72),
        (Some(5), Some(7), 1, 36),
        (Some(6), None, 1, 36),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn what_stands_between_ethernet_and_ip_hides_no_packet() {
    let plain = udp((host(1), 1000), (host(2), 53), 10);
    let v6 = |last| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]);
    let plain6 = udp((v6(1), 1000), (v6(2), 53), 10);
    let (macs, packet, packet6) = (&plain[..12], &plain[14..], &plain6[14..]);
    let of = |headers: &[&[u8]], packet: &[u8]| [&[macs], headers, &[packet]].concat().concat();
    let tag = |id: u8| [0x81, 0, 0, id];
    let inner = [&[4; 12][..], &[0x81, 0, 0, 9, 8, 0]].concat();
    let labels = [0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64];
    let pppoe = |protocol: u8| [0x88, 0x64, 0x11, 0, 0, 7, 0, 60, 0, protocol];
    let snap = [0, 46, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
    let nsh = |next: u8| [&[0x89, 0x4f, 0x0f, 0xc2, 1, next][..], &[0; 4]].concat();
    let tags: Vec<_> = (1..=5).flat_map(tag).chain([8, 0]).collect();
    let frames = [
        (of(&[&labels], packet), [None; 2]),
        (of(&[&labels], packet6), [None; 2]),
        (of(&[&tag(3), &pppoe(0x21)], packet), [Some(3), None]),
        (of(&[&pppoe(0x57)], packet6), [None; 2]),
        (of(&[&[0x91, 0, 0, 3], &tag(4), &[8, 0]], packet), [Some(3), Some(4)]),
        (of(&[&tags], packet), [Some(1), Some(2)]),
        (of(&[&snap], packet), [None; 2]),
        (of(&[&[0x89, 3, 0, 1], &inner], packet), [Some(9), None]),
        (of(&[&nsh(1)], packet), [None; 2]),
        (of(&[&nsh(2)], packet6), [None; 2]),
        (of(&[&nsh(3), &inner], packet), [Some(9), None]),
    ];
    for (frame, vlans) in &frames {
        let mut metered = Metered::new(10, 60, 15);
        let records = metered.frame(0.0, frame).finish();
        let [record] = records else { panic!("{frame:02x?}: {records:?}") };
        assert_eq!((record.key.source_port, record.key.destination_port), (Some(1000), Some(53)));
        assert_eq!([record.key.vlan, record.key.customer_vlan], *vlans, "{frame:02x?}");
        let octets = 38 + if record.key.source.is_ipv6() { 20 } else { 0 };
        assert_eq!(counts(record), [1, octets, 0, 0], "{frame:02x?}");
        // A part of it is no packet, and harms nobody.
        for len in 0..frame.len() {
            Metered::new(10, 60, 15).cut(0.0, &frame[..len], frame.len() as u32);
        }
    }
    for (linktype, family, packet) in
        [(0, [2, 0, 0, 0], packet), (0, [0, 0, 0, 30], packet6), (108, [0, 0, 0, 2], packet)]
    {
        let frame = [&family, packet].concat();
        let mut metered = Metered::new(10, 60, 15);
        let (wire_len, interface, time) = (frame.len() as u32, 0, START);
        let frame = MeteredPacket {
            frame: &frame,
            wire_len,
            linktype,
            interface,
            time,
            byte_range: None,
            processes: None,
        };
        assert_eq!(metered.packet(&frame).finish().len(), 1, "{linktype} {family:?}");
    }
}

#[test]
fn icmp_has_type_and_code_and_an_answer_joins_its_request() {
    let echo = |from: u8, to: u8, reply: bool, v6: bool| {
        let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let mut frame = Vec::new();
        if v6 {
            let address = |last| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
            let ip = ethernet.ipv6(address(from), address(to), 64);
            let icmp =
                if reply { ip.icmpv6_echo_reply(1, 2) } else { ip.icmpv6_echo_request(1, 2) };
            icmp.write(&mut frame, &[0; 8]).unwrap();
        } else {
            let ip = ethernet.ipv4([10, 0, 0, from], [10, 0, 0, to], 64);
            let icmp =
                if reply { ip.icmpv4_echo_reply(1, 2) } else { ip.icmpv4_echo_request(1, 2) };
            icmp.write(&mut frame, &[0; 8]).unwrap();
        }
        frame
    };
    for (v6, type_code, octets) in [(false, 8 << 8, 36), (true, 128 << 8, 56)] {
        for order in [[false, true], [true, false]] {
            for (a, b) in [(1, 2), (2, 1), (3, 3)] {
                let mut metered = Metered::new(10, 60, 15);
                for reply in order {
                    let (from, to) = if reply { (b, a) } else { (a, b) };
                    metered.frame(0.0, &echo(from, to, reply, v6));
                }
                let records = metered.finish();
                assert_eq!(records.len(), 1, "{records:?}");
                assert_eq!(records[0].key.icmp_type_code, Some(type_code));
                assert_eq!(counts(&records[0]), [1, octets, 1, octets], "{v6} {order:?} {a} {b}");
                assert_eq!(records[0].key.source_port, None);
            }
        }
    }
}

/// The IPv4 fragments of a UDP datagram from port 1000 to 53.
fn fragments(identification: u16) -> [Vec<u8>; 2] {
    fragmented(&udp((host(1), 1000), (host(2), 53), 100), identification)
}

/// Two fragments of an IPv4 packet.
fn fragmented(whole: &[u8], identification: u16) -> [Vec<u8>; 2] {
    let (ethernet, header, payload) = (&whole[..14], &whole[14..34], &whole[34..]);
    let piece = |bytes: &[u8], offset: usize, more: bool| {
        let mut header = header.to_vec();
        header[2..4].copy_from_slice(&(20 + bytes.len() as u16).to_be_bytes());
        header[4..6].copy_from_slice(&identification.to_be_bytes());
        let flags = (offset as u16 / 8) | if more { 0x2000 } else { 0 };
        header[6..8].copy_from_slice(&flags.to_be_bytes());
        [ethernet, &header, bytes].concat()
    };
    [piece(&payload[..64], 0, true), piece(&payload[64..], 64, false)]
}

#[test]
fn later_fragments_have_the_ports_of_the_first() {
    let mut metered = Metered::new(10, 60, 15);
    for frame in fragments(7) {
        metered.frame(0.0, &frame);
    }
    let records = metered.finish();
    let [record] = records else { panic!("{records:?}") };
    assert_eq!((record.key.source_port, record.key.destination_port), (Some(1000), Some(53)));
    assert_eq!(counts(record), [2, 84 + 64, 0, 0]);
    assert_eq!(metered.meter.statistics().without_ports, 0);

    // Without the first one, long after it, and of another packet: no ports, and counted.
    let mut metered = Metered::new(10, 60, 15);
    let [first, later] = fragments(7);
    metered.frame(0.0, &later).frame(1.0, &first).frame(2.0, &fragments(8)[1]).frame(40.0, &later);
    let records = metered.finish();
    let without = records.iter().filter(|record| record.key.source_port.is_none());
    assert_eq!(without.map(|record| record.forward.packets).sum::<u64>(), 3, "{records:?}");
    assert_eq!(metered.meter.statistics().without_ports, 3);
}

#[test]
fn later_fragments_of_a_large_ping_are_in_its_flow() {
    let echo = |from: u8, to: u8, reply: bool| {
        let ip =
            PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, from], [10, 0, 0, to], 64);
        let icmp = if reply { ip.icmpv4_echo_reply(1, 2) } else { ip.icmpv4_echo_request(1, 2) };
        let mut whole = Vec::new();
        icmp.write(&mut whole, &[0; 100]).unwrap();
        fragmented(&whole, 7)
    };
    let (request, reply) = (echo(1, 2, false), echo(2, 1, true));
    for frames in [[&request, &reply], [&reply, &request]] {
        let mut metered = Metered::new(10, 60, 15);
        frames.into_iter().flatten().for_each(|frame| _ = metered.frame(0.0, frame));
        let records = metered.finish();
        let [record] = records else { panic!("{records:?}") };
        assert_eq!((record.key.source, record.key.icmp_type_code), (host(1), Some(8 << 8)));
        assert_eq!([record.forward.packets, record.reverse.packets], [2, 2]);
    }
}

#[test]
fn hundreds_of_packets_may_come_in_fragments_at_one_time() {
    let mut metered = Metered::new(100, 60, 15);
    for part in [0, 1] {
        for packet in 0..256 {
            let mut frame = fragments(packet % 16)[part].clone();
            // The source address.
            frame[28] = (packet / 16) as u8;
            metered.frame(0.0, &frame);
        }
    }
    assert_eq!(metered.meter.statistics().without_ports, 0);
    assert_eq!(metered.finish().len(), 16);
}

#[test]
fn a_cut_frame_counts_with_its_whole_length() {
    let frame = tcp((1, 2), (2, 1), S, 1400);
    for kept in [54, 48, 38, 36] {
        let mut metered = Metered::new(10, 60, 15);
        let records = metered.cut(0.0, &frame[..kept], frame.len() as u32).finish();
        assert_eq!(counts(&records[0]), [1, 1440, 0, 0], "{kept}");
        let ports = (kept >= 38).then_some(2);
        assert_eq!(records[0].key.source_port, ports, "{kept}");
        assert_eq!(
            records[0].forward.tcp_flags,
            if kept >= 48 { u16::from(S) } else { 0 },
            "{kept}"
        );
        assert_eq!(metered.meter.statistics().without_ports, u64::from(ports.is_none()));
    }
}

#[test]
fn padding_is_not_counted_and_super_packets_are_whole() {
    let mut frame = udp((host(1), 1), (host(2), 2), 1);
    frame.resize(60, 0);
    let mut metered = Metered::new(10, 60, 15);
    assert_eq!(counts(&metered.frame(0.0, &frame).finish()[0]), [1, 29, 0, 0]);

    // Nor in a frame whose header says no length, which may then be one of a card that segments.
    let mut frame = Vec::new();
    let ip = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [2; 16], 64);
    ip.tcp(2, 1, 1, 1000).write(&mut frame, &[]).unwrap();
    frame[18..20].fill(0);
    frame.truncate(54);
    frame.resize(60, 0);
    let mut metered = Metered::new(10, 60, 15);
    assert_eq!(counts(&metered.frame(0.0, &frame).finish()[0]), [1, 40, 0, 0]);

    // IPv4 super-packets over 64 KiB have a total length of 0.
    let mut frame = udp((host(1), 1), (host(2), 2), 1);
    frame[16..18].fill(0);
    let mut metered = Metered::new(10, 60, 15);
    let records = metered.cut(0.0, &frame, 100_014).finish();
    assert_eq!(
        (counts(&records[0]), records[0].forward.length),
        ([1, 100_000, 0, 0], Some((65535, 65535)))
    );

    // Senders of IPv6 leave the length to a card that segments.
    let ip = || PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [2; 16], 64);
    let mut frames = [Vec::new(), Vec::new()];
    ip().tcp(2, 1, 1, 1000).write(&mut frames[0], &[0; 9]).unwrap();
    ip().udp(2, 1).write(&mut frames[1], &[0; 9]).unwrap();
    for mut frame in frames {
        frame[18..20].fill(0);
        let mut metered = Metered::new(10, 60, 15);
        let records = metered.cut(0.0, &frame, 30_014).finish();
        assert_eq!(counts(&records[0]), [1, 30_000, 0, 0]);
        assert_eq!(
            (records[0].key.source_port, records[0].key.destination_port),
            (Some(2), Some(1))
        );
        assert_eq!(metered.meter.statistics().without_ports, 0);
    }
}

#[test]
fn what_is_in_no_flow_is_counted_by_its_cause() {
    let mut metered = Metered::new(10, 60, 15);
    let mut arp = vec![0; 60];
    arp[12..14].copy_from_slice(&[8, 6]);
    let ip = udp((host(1), 1), (host(2), 2), 1);
    metered.frame(0.0, &arp).frame(0.0, &ip[..20]).frame(0.0, &[1, 2, 3]).frame(0.0, &ip);
    metered.packet(&MeteredPacket {
        frame: &ip,
        wire_len: 43,
        linktype: 147,
        interface: 0,
        time: START,
        byte_range: None,
        processes: None,
    });
    let counted = metered.meter.statistics();
    assert_eq!(
        (counted.packets, counted.not_ip, counted.malformed, counted.link_type),
        (1, 1, 2, 1)
    );
}

#[test]
fn other_link_layers_give_the_same_flow() {
    let frame = udp((host(1), 1), (host(2), 2), 1);
    let cooked = [&[0; 14][..], &[8, 0], &frame[14..]].concat();
    let cooked2 = [&[8, 0][..], &[0; 18], &frame[14..]].concat();
    let mut metered = Metered::new(10, 60, 15);
    for (linktype, bytes) in
        [(ETHERNET, &frame[..]), (101, &frame[14..]), (113, &cooked), (276, &cooked2)]
    {
        let wire_len = bytes.len() as u32;
        metered.packet(&MeteredPacket {
            frame: bytes,
            wire_len,
            linktype,
            interface: 0,
            time: START,
            byte_range: None,
            processes: None,
        });
    }
    let records = metered.finish();
    assert_eq!((records.len(), counts(&records[0])), (1, [4, 4 * 29, 0, 0]));
}

#[test]
fn a_full_table_exports_early_and_loses_nothing() {
    let mut metered = Metered::new(16, 600, 600);
    for round in 0..10 {
        for port in 0..40 {
            metered.frame(f64::from(round), &udp((host(1), 1000 + port), (host(2), 53), 10));
        }
        assert!(metered.meter.statistics().active <= 16);
    }
    let records = metered.finish();
    assert_eq!(records.iter().map(|record| record.forward.packets).sum::<u64>(), 400);
    let early = records
        .iter()
        .filter(|record| record.end_reason == Some(EndReason::LackOfResources))
        .count();
    let counted = metered.meter.statistics();
    assert_eq!((counted.overflow, counted.active), (early as u64, 0));
    assert!(early > 0);
}

#[test]
fn a_flow_that_has_ended_gives_room_with_the_reason_of_its_end() {
    let mut metered = Metered::new(300, 600, 2);
    let frame = |port| udp((host(1), port), (host(2), 53), 10);
    (0..300).for_each(|port| _ = metered.frame(0.0, &frame(1000 + port)));
    // These find a full table: a step of the sweep has looked at two flows only.
    metered.frame(1.999, &frame(1000));
    (0..20).for_each(|port| _ = metered.frame(2.001, &frame(2000 + port)));
    metered.finish();
    let early = |record: &&FlowRecord| record.end_reason == Some(EndReason::LackOfResources);
    assert_eq!(metered.records.iter().filter(early).count(), 0);
    assert_eq!(metered.meter.statistics().overflow, 0);
}

#[test]
fn a_flow_has_the_positions_of_its_packets_that_are_output() {
    let mut meter = Metered::new(16, 600, 600).meter;
    let frame = udp((host(1), 1), (host(2), 2), 1);
    for byte_range in [None, Some((100, 140)), None, Some((200, 240)), Some((300, 340)), None] {
        let byte_range = byte_range.map(|(begin, end)| ByteRange { begin, end });
        let (frame, wire_len, linktype) = (&frame[..], frame.len() as u32, ETHERNET);
        let packet = MeteredPacket {
            frame,
            wire_len,
            linktype,
            interface: 4,
            time: START,
            byte_range,
            processes: None,
        };
        meter.packet(&packet, |_| panic!("no flow has ended"));
    }
    let mut seen = Vec::new();
    meter.finish(|flow| seen.push((flow.byte_range(), flow.interface())));
    assert_eq!(seen, [(Some(ByteRange { begin: 100, end: 340 }), 4)]);
}
