use std::time::Duration;

use super::*;

/// An IPv4 session from 10.0.0.1 to 10.0.1.`host`.
fn stored(host: u8) -> Stored {
    let mut stored = Stored::default();
    let (source, destination, ports) = ([10, 0, 0, 1], [10, 0, 1, host], [5000u16, 53]);
    let [source_port, destination_port] = ports.map(u16::to_be_bytes);
    stored.session = layout::Session {
        in_source: source,
        in_destination: destination,
        ports: [source_port, destination_port],
        kind: kind::IPV4,
        dscp: 46 << 2,
        generation: 7,
        deadline: u32::MAX / 2,
        source,
        destination,
        source_port,
        destination_port,
        ..layout::Session::default()
    };
    stored.hop = Hop {
        ifindex: 3,
        dst_mac: [2, 0, 0, 0, 0, 1],
        out_ifindex: 4,
        mtu: 1500,
        destination_mac: [0x02, 0xab, 0, 0, 0, 9],
        ..Hop::default()
    };
    stored
}

fn decoder() -> Decoder {
    let names = [(3, "lan"), (4, "wan")].map(|(index, name)| (index, name.into()));
    let decoder = Decoder::new(Clock::read(1000), 7);
    let decoder = Decoder { names: InterfaceNames(names.into()), ..decoder };
    decoder.with_reasons([HashMap::new(), [(4, "wan: qdisc tbf".into())].into()])
}

fn decode(stored: &Stored) -> Session {
    decoder().decode(1, stored)
}

#[test]
fn a_plain_session_is_told_as_it_is() {
    let mut plain = stored(7);
    (plain.session.packets, plain.session.bytes) = (10, 1000);
    plain.cold.remote = layout::Counters { packets: 1, bytes: 100 };
    let session = decode(&plain);
    assert_eq!(session.tuple.to_string(), "udp,10.0.0.1,5000,10.0.1.7,53");
    assert_eq!((&*session.ingress.name, &*session.egress.name), ("lan", "wan"));
    assert_eq!((session.dscp, session.out_dscp), (46, 0));
    assert_eq!((session.packets, session.bytes), (11, 1100));
    assert_eq!((session.nat, session.state), (None, State::Fast));
    assert!(session.vlan.is_empty() && session.out_vlan.is_empty());
    assert_eq!(session.next_hop.to_string(), "02:ab:00:00:00:09");
    let json = serde_json::to_value(&session).unwrap();
    assert_eq!(json["session"], "udp,10.0.0.1,5000,10.0.1.7,53");
    assert_eq!((&json["egress"], &json["state"]), (&"wan".into(), &"fast".into()));
    assert!(json.get("nat").is_none() && json.get("rate").is_none(), "{json}");
}

#[test]
fn a_session_of_tc_says_why_it_is_not_of_xdp() {
    let mut slow = stored(7);
    assert_eq!(decode(&slow).reason, None);
    slow.hop.flags = flags::TC;
    assert_eq!(decode(&slow).reason.as_deref(), Some("wan: qdisc tbf"));
    slow.hop.out_ifindex = 3;
    let reason = decode(&slow).reason;
    assert_eq!(reason.as_deref(), Some("partial checksums of a local sender"));
}

#[test]
fn nat_shows_what_changes_only() {
    let mut nat = stored(7);
    nat.hop.flags = flags::NAT;
    nat.session.source = [192, 0, 2, 1];
    nat.session.source_port = 40_000u16.to_be_bytes();
    let session = decode(&nat);
    let source = Some("192.0.2.1:40000".parse().unwrap());
    assert_eq!(session.nat, Some(Nat { source, destination: None }));
}

#[test]
fn ipv6_addresses_come_from_their_own_table() {
    let mut six = stored(7);
    six.session.kind = kind::IPV6 | kind::TCP;
    let end = |last| std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).octets();
    let addresses = |last| Addresses { source: end(1), destination: end(last) };
    six.addresses = [addresses(2), addresses(3)];
    six.hop.flags = flags::NAT;
    let session = decode(&six);
    assert_eq!(session.tuple.to_string(), "tcp,2001:db8::1,5000,2001:db8::2,53");
    let destination = Some("[2001:db8::3]:53".parse().unwrap());
    assert_eq!(session.nat, Some(Nat { source: None, destination }));
}

#[test]
fn tags_are_read_in_and_out() {
    let mut tagged = stored(7);
    tagged.session.kind |= kind::VLAN_8021AD << kind::OUTER_VLAN_SHIFT;
    tagged.session.kind |= kind::VLAN_8021Q << kind::INNER_VLAN_SHIFT;
    tagged.hop.tag = [[0x00, 0x64], [0xa0, 0x0a]];
    tagged.hop.out_tag = [[0x81, 0x00, 0x0f, 0xff], [0xff; 4]];
    tagged.hop.out_tags = 1;
    let session = decode(&tagged);
    let shown = |tags: &[Tag]| tags.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown(&session.vlan), ["s100", "10p5"]);
    assert_eq!(shown(&session.out_vlan), ["4095"]);
}

#[test]
fn the_state_says_who_gets_the_next_packet() {
    let mut one = stored(7);
    let state = |one: &Stored| decode(one).state;
    assert_eq!(state(&one), State::Fast);
    one.session.deadline = 999;
    assert_eq!(state(&one), State::Due);
    // The low half of the jiffies has come round since.
    one.session.deadline = u32::MAX - 5;
    assert_eq!(state(&one), State::Due);
    one.session.generation = 6;
    assert_eq!(state(&one), State::Stale);
    one.session.generation = layout::GENERATION_ENDED | 8;
    assert_eq!(state(&one), State::Ended);
}

#[test]
fn idleness_is_counted_from_when_the_bit_was_last_found() {
    let seen = LastUse::new(false, 0x1ff_fffe);
    assert_eq!(seen.idle(0x200_0006), Duration::from_millis(500));
    assert_eq!(LastUse { is_recent: true, ..seen }.idle(0x200_0006), Duration::ZERO);
}

/// Sessions with 0, 10, 20, ... packets.
fn sessions(count: u8) -> impl Iterator<Item = Session> {
    let mut decoder = decoder();
    (0..count).map(move |host| {
        let mut one = stored(host);
        one.session.packets = u64::from(host) * 10;
        one.session.bytes = 1000 - u64::from(host % 4);
        decoder.decode(host.into(), &one)
    })
}

const NONE: [u8; 0] = [];

fn hosts(filter: Filter, sort: Sort, limit: usize) -> Vec<u8> {
    let mut selection = Selection::new(filter, sort, limit);
    sessions(20).for_each(|session| selection.add(session));
    let last = |session: Session| match session.tuple.destination.ip() {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(_) => unreachable!(),
    };
    selection.into_sessions().into_iter().map(last).collect()
}

#[test]
fn the_first_of_an_order_are_kept() {
    assert_eq!(hosts(Filter::default(), Sort::Packets, 3), [19, 18, 17]);
    assert_eq!(hosts(Filter::default(), Sort::Destination, 3), [0, 1, 2]);
    // Equals in the order of the table.
    assert_eq!(hosts(Filter::default(), Sort::Bytes, 6), [0, 4, 8, 12, 16, 1]);
    assert_eq!(hosts(Filter::default(), Sort::Table, 4), [0, 1, 2, 3]);
    assert_eq!(hosts(Filter::default(), Sort::Age, 0), NONE);
    let all = hosts(Filter::default(), Sort::Packets, usize::MAX);
    assert_eq!(all, (0..20).rev().collect::<Vec<_>>());
}

#[test]
fn filters_take_what_has_all_that_is_asked_for() {
    let of = |filter| hosts(filter, Sort::Table, usize::MAX);
    let any = Filter::default;
    let prefix = |text: &str| vec![text.parse().unwrap()];
    assert_eq!(of(Filter { addresses: prefix("10.0.1.4/30"), ..any() }), [4, 5, 6, 7]);
    assert_eq!(of(Filter { addresses: prefix("10.0.0.1"), ..any() }).len(), 20);
    let tuple = "udp,10.0.0.1,5000,10.0.1.9,53".parse().ok();
    assert_eq!(of(Filter { tuple, ..any() }), [9]);
    assert_eq!(of(Filter { tuple, ports: vec![54], ..any() }), NONE);
    assert_eq!(of(Filter { ports: vec![54, 5000], ..any() }).len(), 20);
    assert_eq!(of(Filter { protocol: Some(Protocol::Tcp), ..any() }), NONE);
    assert_eq!(of(Filter { interfaces: vec!["wan".into()], ..any() }).len(), 20);
    assert_eq!(of(Filter { interfaces: vec!["wa".into()], ..any() }), NONE);
    assert_eq!(of(Filter { nat: Some(true), ..any() }), NONE);
    assert_eq!(of(Filter { vlans: vec![0], ..any() }), NONE);
    assert_eq!(of(Filter { dscps: vec![46], states: vec![State::Fast], ..any() }).len(), 20);
    assert_eq!(of(Filter { states: vec![State::Due], ..any() }), NONE);
    let mut ended = stored(1);
    ended.session.generation |= layout::GENERATION_ENDED;
    let ended = decode(&ended);
    assert!(!any().accepts(&ended));
    assert!(Filter { states: vec![State::Ended], ..any() }.accepts(&ended));
}

#[test]
fn orders_are_read_as_written() {
    for sort in Sort::ALL {
        assert_eq!(sort.to_string().parse(), Ok(*sort));
    }
    assert!("size".parse::<Sort>().unwrap_err().contains("packet-rate"));
}
