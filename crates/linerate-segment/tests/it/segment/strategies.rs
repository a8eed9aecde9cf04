//! Packets of any shape.

use proptest::prelude::*;

use super::build::{Network, Packet, Transport, Tunnel};

fn words(most: usize) -> impl Strategy<Value = Vec<u8>> {
    (0..=most).prop_flat_map(|words| prop::collection::vec(any::<u8>(), words * 4))
}

/// Options that are not a source route: no-operations, a router alert, a timestamp.
fn v4_options() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => Just(vec![]),
        1 => Just(vec![1, 1, 1, 0]),
        1 => Just(vec![148, 4, 0, 0]),
        1 => Just(vec![68, 8, 9, 0, 1, 2, 3, 4, 148, 4, 0, 0]),
    ]
}

/// Extension headers behind which the kernel segments.
fn extensions() -> impl Strategy<Value = Vec<(u8, Vec<u8>)>> {
    let hop_by_hop = (0, vec![0, 0, 1, 4, 0, 0, 0, 0]);
    let destination = (60, vec![0, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut routing = vec![0, 2, 4, 0, 0, 0, 0, 0];
    routing.extend_from_slice(&[0xfd; 16]);
    let routing = (43, routing);
    prop_oneof![
        4 => Just(vec![]),
        1 => Just(vec![hop_by_hop.clone()]),
        1 => Just(vec![destination.clone()]),
        1 => Just(vec![hop_by_hop, destination.clone(), routing, destination]),
    ]
}

pub(crate) fn network() -> impl Strategy<Value = Network> {
    (any::<(bool, u16, bool, u8)>(), v4_options(), extensions()).prop_map(
        |((v6, id, dont_fragment, class), options, extensions)| Network {
            v6,
            id,
            dont_fragment,
            class,
            options: if v6 { vec![] } else { options },
            extensions: if v6 { extensions } else { vec![] },
            ..Network::default()
        },
    )
}

fn tunnel() -> impl Strategy<Value = Tunnel> {
    prop_oneof![
        any::<(bool, bool)>().prop_map(|(checksum, group)| Tunnel::Vxlan { checksum, group }),
        (any::<(bool, bool)>(), words(63)).prop_map(|((checksum, bridged), options)| {
            Tunnel::Geneve { checksum, options, bridged }
        }),
        any::<(bool, Option<u32>, bool)>().prop_map(|(checksum, key, bridged)| Tunnel::Gre {
            checksum,
            key,
            bridged
        }),
        any::<(bool, bool)>().prop_map(|(checksum, container)| Tunnel::Gtp { checksum, container }),
        any::<(bool, bool)>().prop_map(|(checksum, direct)| Tunnel::Gue { checksum, direct }),
        Just(Tunnel::Ip),
    ]
}

pub(crate) fn tcp() -> impl Strategy<Value = Transport> {
    // No SYN, which is refused.
    let flags = (0_u16..512).prop_map(|flags| flags & !0x02);
    let sequence = prop_oneof![any::<u32>(), u32::MAX - 5000..=u32::MAX];
    (sequence, flags, any::<u16>(), words(10)).prop_map(|(sequence, flags, urgent, options)| {
        Transport::Tcp { sequence, flags, urgent, options }
    })
}

pub(crate) fn udp() -> impl Strategy<Value = Transport> {
    any::<bool>().prop_map(|checksum| Transport::Udp { checksum })
}

/// Packets of any shape; where the packet is not tunnelled the inner network is the only one.
pub(crate) fn packet(transport: impl Strategy<Value = Transport>) -> impl Strategy<Value = Packet> {
    let payload = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        prop::collection::vec(any::<u8>(), 0..9000),
        Just(vec![0; 700]),
        Just(vec![0xff; 701]),
    ];
    let outer = prop::option::of((network(), tunnel()));
    let ports = (any::<u16>(), 10_000_u16..20_000);
    (prop::option::of(0_usize..3), outer, 0_usize..3, network(), transport, ports, payload)
        .prop_map(|(ethernet, outer, inner_tags, network, transport, ports, payload)| Packet {
            ethernet,
            outer,
            inner_tags,
            network,
            transport,
            ports,
            payload,
            ..Packet::tcp(0)
        })
}
