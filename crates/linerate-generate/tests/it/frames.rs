//! Frames of arbitrary plans, built in user space: needs no privilege.

use std::collections::HashSet;

use crate::common::verify::verify;
use linerate_generate::fields::{Addresses, Ports};
use linerate_generate::interface::OutputInterface;
use linerate_generate::{
    Config, FrameBuilder, Options, PayloadHeader, RandomFields, Sizes, Transport, UNUSED_MAC,
};
use linerate_wire::ethernet::Address;
use linerate_wire::flow::Key;
use linerate_wire::layers;
use linerate_wire::tcp::Flags;
use proptest::prelude::*;

fn interface() -> OutputInterface {
    OutputInterface {
        name: "test0".into(),
        index: 1,
        mac: Address([2, 0, 0, 0, 0, 1]),
        mtu: 1500,
        has_ethernet: true,
        up: true,
        peer_mac: None,
        carries_default_route: false,
    }
}

fn frames_of(options: Options, count: usize) -> Vec<Vec<u8>> {
    let config = Config::for_interface(interface(), options).unwrap();
    let mut frames = FrameBuilder::new(&config);
    (0..count)
        .map(|_| {
            let mut frame = vec![0xa5; frames.next_len()];
            frames.write(&mut frame);
            frame
        })
        .collect()
}

fn flows(options: Options, count: usize) -> Vec<Key> {
    frames_of(options, count).iter().map(|frame| Key::of(frame).unwrap()).collect()
}

fn addresses(v6: bool) -> BoxedStrategy<Addresses> {
    if v6 {
        let lower = any::<(u64, u32)>().prop_map(|(upper, lower)| {
            std::net::Ipv6Addr::from_bits(u128::from(upper) << 64 | u128::from(lower))
        });
        (lower, 1_u64..300).prop_map(|(a, n)| Addresses::new(a.into(), n).unwrap()).boxed()
    } else {
        let address = (0_u32..u32::MAX - 300).prop_map(std::net::Ipv4Addr::from_bits);
        (address, 1_u64..300).prop_map(|(a, n)| Addresses::new(a.into(), n).unwrap()).boxed()
    }
}

fn sizes() -> impl Strategy<Value = Sizes> {
    prop_oneof![
        (98_u16..1514).prop_map(Sizes::Fixed),
        (98_u16..1514, 98_u16..1514).prop_map(|(a, b)| Sizes::Range(a.min(b), a.max(b))),
        prop::collection::vec(98_u16..1514, 1..16).prop_map(Sizes::Mix),
    ]
}

prop_compose! {
    fn options()(v6 in any::<bool>())(
        source in prop::option::of(addresses(v6)),
        destination in addresses(v6),
        ports in (any::<u16>(), 0_u16..50),
        sizes in sizes(),
        tcp in any::<bool>(),
        (ttl, dscp, fragmentable) in (prop::option::of(any::<u8>()), 0_u8..64, any::<bool>()),
        flags in prop::option::of(0_u16..512),
        vlan in prop::option::of(1_u16..4095),
        random in any::<[bool; 7]>(),
        seed in any::<u64>(),
        stamp in prop_oneof![Just(None), Just(Some(PayloadHeader::Time)), Just(Some(PayloadHeader::None))],
    ) -> Options {
        let [source_random, destination_random, source_port, destination_port, source_mac, destination_mac, size] = random;
        Options {
            sizes: Some(sizes),
            source,
            destination: Some(destination),
            source_ports: Some(Ports::new(ports.0, ports.0.saturating_add(ports.1)).unwrap()),
            transport: if tcp { Transport::Tcp } else { Transport::Udp },
            tcp_flags: flags.filter(|_| tcp).map(Flags),
            ttl,
            dscp,
            fragmentable: fragmentable && !destination.is_ipv6(),
            vlan,
            random: RandomFields {
                source: source_random,
                destination: destination_random,
                source_port,
                destination_port,
                source_mac,
                destination_mac,
                size,
            },
            seed,
            stamp,
            ..Options::default()
        }
    }
}

proptest! {
    #[test]
    fn are_always_well_formed(options in options()) {
        let sizes = options.sizes.clone().unwrap();
        let (source, destination) = (options.source, options.destination.unwrap());
        for frame in frames_of(options.clone(), 20) {
            prop_assert_eq!(verify(&frame), options.vlan);
            let layers = layers::parse(&frame).unwrap();
            let ip = &frame[layers.network_offset..];
            let (class, ttl) = match layers.ipv4(&frame) {
                Some(packet) => {
                    prop_assert_eq!(packet.dont_fragment(), !options.fragmentable);
                    (ip[1], ip[8])
                }
                None => (ip[0] << 4 | ip[1] >> 4, ip[7]),
            };
            prop_assert_eq!((class, ttl), (options.dscp << 2, options.ttl.unwrap_or(64)));
            if let Some(segment) = layers.tcp(&frame) {
                let flags = options.tcp_flags.unwrap_or(Flags::ACK.union(Flags::PSH));
                prop_assert_eq!(segment.flags(), flags);
            }
            prop_assert!((sizes.min()..=sizes.max()).contains(&(frame.len() as u16)));
            let key = Key::of(&frame).unwrap();
            let among = |range: Addresses, address| {
                (0..range.count()).any(|index| range.nth(index) == address)
            };
            prop_assert!(source.is_none_or(|source| among(source, key.source)));
            prop_assert!(among(destination, key.destination));
            let [_, _, mac @ ..] = [frame[0], frame[6], frame[0] & 1, frame[6] & 1];
            prop_assert_eq!(mac, [0, 0], "unicast");
        }
    }
}

#[test]
fn walked_sizes_visit_every_length_in_turn() {
    let options = Options { sizes: Some(Sizes::Range(60, 69)), ..Options::default() };
    let lengths: Vec<usize> = frames_of(options, 20).iter().map(Vec::len).collect();
    assert_eq!(lengths, (60..70).chain(60..70).collect::<Vec<_>>());
}

#[test]
fn internet_mix_keeps_its_proportions() {
    let options = Options { sizes: Some(Sizes::internet_mix()), ..Options::default() };
    let frames = frames_of(options.clone(), 1200);
    let count = |size| frames.iter().filter(|frame| frame.len() == size).count();
    assert_eq!((count(64), count(590), count(1514)), (700, 400, 100));
    let random =
        Options { random: RandomFields { size: true, ..RandomFields::default() }, ..options };
    let frames = frames_of(random, 12_000);
    let count = |size| frames.iter().filter(|frame| frame.len() == size).count() as f64;
    for (size, share) in [(64, 7000.0), (590, 4000.0), (1514, 1000.0)] {
        let off: f64 = count(size) - share;
        assert!(off.abs() < 300.0, "{size}: {}", count(size));
    }
}

#[test]
fn random_fields_cover_their_range() {
    let options = Options {
        source: Some("10.0.0.0/28".parse().unwrap()),
        random: RandomFields { source: true, source_port: true, ..RandomFields::default() },
        ..Options::default()
    };
    let flows = flows(options, 2000);
    let sources: HashSet<_> = flows.iter().map(|key| key.source).collect();
    assert_eq!(sources.len(), 16);
    let ports: HashSet<_> = flows.iter().map(|key| key.source_port).collect();
    assert!(ports.len() > 1800 && ports.iter().all(|port| *port >= 1024), "{}", ports.len());
}

#[test]
fn many_flows_spread_over_ports_then_addresses() {
    let options = |flows| Options { flows: Some(flows), ..Options::default() };
    let few = flows(options(3), 6);
    assert_eq!(few[..3], few[3..]);
    assert_eq!(
        few.iter().map(|key| key.source_port).collect::<Vec<_>>(),
        [1024, 1025, 1026, 1024, 1025, 1026]
    );
    let many = flows(options(100_000), 200_000);
    assert_eq!(many[..100_000].iter().collect::<HashSet<_>>().len(), 100_000);
    assert_eq!(many[..100_000], many[100_000..]);
}

#[test]
fn flows_by_zipf_are_those_that_come_one_after_the_other() {
    let options = Options {
        flows: Some(60),
        source: Some("10.0.0.0-10.0.0.2".parse().unwrap()),
        source_ports: Some(Ports::new(1000, 1019).unwrap()),
        ..Options::default()
    };
    let all = flows(options.clone(), 60);
    let zipf = flows(Options { zipf: Some(1.1), ..options }, 4000);
    let count = |key: &Key| zipf.iter().filter(|other| *other == key).count();
    let counts: Vec<_> = all.iter().map(count).collect();
    assert_eq!(counts.iter().sum::<usize>(), zipf.len());
    assert!(counts[0] > counts[3] && counts[3] > counts[59] && counts[59] > 0, "{counts:?}");
}

#[test]
fn nobody_gets_frames_that_were_not_addressed() {
    let frame = &frames_of(Options::default(), 1)[0];
    assert_eq!(frame[..6], UNUSED_MAC.0);
    assert_eq!(frame[6..12], [2, 0, 0, 0, 0, 1]);
    assert_eq!(frame.len(), 64);
    assert!(UNUSED_MAC.is_local() && !UNUSED_MAC.is_multicast());
}
