//! Fields that records have on request.

use std::sync::Arc;

use etherparse::{IpNumber, Ipv6FlowLabel, Ipv6Header, PacketBuilder, TcpHeader, VlanId};
use linerate_flow::meter::MeteredPacket;
use linerate_flow::schema::{FIELDS, Group, Groups};
use linerate_flow::{Details, DirectionDetails, FlowRecord, ProcessFields};
use linerate_wire::ethernet::Address;

use crate::frames::{A, ETHERNET, F, Metered, R, S, START, tcp, udp};

fn metered(groups: impl IntoIterator<Item = Group>) -> Metered {
    Metered::with_groups(10, 60, 15, groups.into_iter().collect())
}

/// The only record of a connection of a few segments.
fn connection(groups: impl IntoIterator<Item = Group>) -> FlowRecord {
    let mut metered = metered(groups);
    let (client, server) = ((9, 40000), (1, 80));
    metered
        .frame(0.0, &tcp(client, server, S, 0))
        .frame(0.000_02, &tcp(client, server, S, 0))
        .frame(0.000_25, &tcp(server, client, S | A, 0))
        .frame(0.000_4, &tcp(client, server, A, 0))
        .frame(0.1, &tcp(client, server, A, 100))
        .frame(0.2, &tcp(server, client, A, 0))
        .frame(0.3, &tcp(server, client, A, 1000))
        .frame(0.4, &tcp(server, client, A | F, 10))
        .frame(0.5, &tcp(client, server, A | F, 0))
        .frame(0.6, &tcp(server, client, A, 0))
        .frame(0.7, &tcp(client, server, R, 0));
    let records = metered.finish();
    let [record] = records else { panic!("{records:?}") };
    record.clone()
}

#[test]
fn a_connection_has_the_history_that_zeek_gives_it() {
    let details = connection(Group::ALL.iter().copied()).details;
    assert_eq!(details.history.as_deref(), Some("ShADadfFR"));
    assert_eq!((details.syn_ack, details.handshake), (Some(250), Some(400)));
    let (forward, reverse) = (details.forward, details.reverse);
    assert_eq!((forward.payload, reverse.payload), (Some(100), Some(1010)));
    assert_eq!((forward.first_flags, reverse.first_flags), (Some(S), Some(S | A)));
    assert_eq!((forward.tos, reverse.tos), (Some(0), Some(0)));
    assert_eq!(details.macs, Some((Address([2; 6]), Address([4; 6]))));
}

#[test]
fn each_group_has_its_fields_and_no_others() {
    assert_eq!(connection([]).details, Details::default());
    // The thread of the outputs adds Community IDs, IPv4 has no flow label, and nobody said whose packets these are.
    let others = [Group::CommunityId, Group::FlowLabel, Group::Process];
    for group in Group::ALL.iter().copied().filter(|one| !others.contains(one)) {
        let record = connection([group]);
        let present = FIELDS.iter().filter(|field| (field.value)(&record).is_some());
        let found: Vec<_> = present.filter_map(|field| field.group).collect();
        let all = FIELDS.iter().filter(|field| field.group == Some(group)).count();
        assert_eq!(found, vec![group; all], "{record:?}");
    }
    assert_eq!("tos,mac".parse(), Ok([Group::Mac, Group::Tos].into_iter().collect::<Groups>()));
    let in_packets = Group::ALL.iter().copied().filter(|group| *group != Group::Process);
    assert_eq!("all".parse(), Ok(in_packets.collect::<Groups>()));
    assert_eq!("all,process".parse(), Ok(Group::ALL.iter().copied().collect::<Groups>()));
    let error = "tos,mack".parse::<Groups>().unwrap_err();
    assert!(error.starts_with("\"mack\" is none of mac, tos, flowlabel, "), "{error}");
}

#[test]
fn a_late_syn_turns_the_details_with_the_direction() {
    let mut metered = metered(Group::ALL.iter().copied());
    let (client, server) = ((9, 40000), (1, 80));
    // The answer came first, by another queue.
    metered.frame(0.0, &tcp(server, client, A, 500)).frame(0.1, &tcp(client, server, S, 0));
    let records = metered.finish();
    let [FlowRecord { details, .. }] = records else { panic!("{records:?}") };
    assert_eq!(details.history.as_deref(), Some("dS"));
    assert_eq!((details.forward.payload, details.reverse.payload), (Some(0), Some(500)));
    // Both frames have these addresses, in this order; that of the flow's first packet counts.
    assert_eq!(details.macs, Some((Address([4; 6]), Address([2; 6]))));
    assert_eq!((details.syn_ack, details.handshake), (None, None));
}

#[test]
fn a_record_of_a_flow_that_continues_has_its_own_details() {
    let mut metered = metered(Group::ALL.iter().copied());
    let (client, server) = ((9, 40000), (1, 80));
    metered.frame(0.0, &tcp(client, server, S, 0));
    for second in 1..=70 {
        metered.frame(f64::from(second), &tcp(server, client, A, 10));
    }
    let records = metered.finish();
    let histories: Vec<_> = records.iter().map(|one| one.details.history.as_deref()).collect();
    assert_eq!(histories, [Some("Sd"), Some("d")]);
    assert_eq!(records[1].details.forward, DirectionDetails::default());
    let payload: u64 = records.iter().filter_map(|one| one.details.reverse.payload).sum();
    assert_eq!(payload, 700);
    // A flow that takes the place of one that ended begins with nothing.
    let mut metered = self::metered(Group::ALL.iter().copied());
    metered.frame(0.0, &tcp(client, server, S, 0)).frame(100.0, &tcp((8, 50000), server, A, 7));
    let history = metered.finish()[1].details.history.clone();
    assert_eq!(history.as_deref(), Some("D"));
}

#[test]
fn class_label_and_payload_of_ipv6_and_udp() {
    let mut metered = metered(Group::ALL.iter().copied());
    let ip = Ipv6Header {
        traffic_class: 0xb8,
        flow_label: Ipv6FlowLabel::try_new(0x5_4321).unwrap(),
        payload_length: 0,
        next_header: IpNumber::TCP,
        hop_limit: 64,
        source: [1; 16],
        destination: [2; 16],
    };
    let mut header = TcpHeader::new(50000, 80, 3, 4);
    header.psh = true;
    let mut frame = Vec::new();
    let ip = etherparse::IpHeaders::Ipv6(ip, Default::default());
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).single_vlan(VlanId::try_new(7).unwrap());
    builder.ip(ip).tcp_header(header).write(&mut frame, &[0; 33]).unwrap();
    metered.frame(0.0, &frame);
    let (a, b) = (([10, 0, 0, 1].into(), 1000), ([10, 0, 0, 2].into(), 53));
    // Only the beginning of the frame is known: the length is that of the header.
    metered.cut(1.0, &udp(a, b, 600)[..60], 642);
    let records = metered.finish();
    let [six, four] = records else { panic!("{records:?}") };
    let forward = six.details.forward;
    assert_eq!((forward.tos, forward.flow_label), (Some(0xb8), Some(0x5_4321)));
    assert_eq!((forward.payload, forward.first_flags), (Some(33), Some(8)));
    assert_eq!(six.details.history.as_deref(), Some("D"));
    let flow_label = FIELDS.iter().find(|field| field.name == "flowLabelIPv6").unwrap();
    assert_eq!((flow_label.value)(four), None, "IPv4 has none");
    assert_eq!(four.details.forward.payload, Some(600));
}

#[test]
fn a_flow_has_the_processes_of_the_packet_that_says_most() {
    let process = |id| Some(Arc::new(ProcessFields { id, ..ProcessFields::default() }));
    let (client, server) = ((9, 40000), (1, 80));
    let ids = |packets: &[(bool, [Option<u32>; 2])]| {
        let mut metered = metered([Group::Process]);
        for (at, (from_client, ids)) in packets.iter().enumerate() {
            let [from, to] = if *from_client { [client, server] } else { [server, client] };
            let flags = if at == 0 { S } else { A };
            let processes = Arc::new(ids.map(|id| id.and_then(process)));
            let frame = tcp(from, to, flags, 0);
            metered.meter.push(
                &MeteredPacket {
                    frame: &frame,
                    wire_len: frame.len() as u32,
                    linktype: ETHERNET,
                    interface: 0,
                    time: START + at as u64,
                    byte_range: None,
                    processes: Some(&processes),
                },
                |flow| panic!("{flow:?}"),
            );
        }
        let records = metered.finish();
        let [record] = records else { panic!("{records:?}") };
        record.details.processes.each_ref().map(|one| one.as_ref().map(|one| one.id))
    };
    assert_eq!(ids(&[(true, [None, None])]), [None, None]);
    assert_eq!(
        ids(&[(true, [Some(7), None]), (false, [None, Some(8)])]),
        [Some(7), None],
        "the first"
    );
    assert_eq!(ids(&[(true, [None, None]), (false, [Some(5), None])]), [None, Some(5)]);
    assert_eq!(ids(&[(true, [Some(7), None]), (false, [Some(5), Some(7)])]), [Some(7), Some(5)]);
}
