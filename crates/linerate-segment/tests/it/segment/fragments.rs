//! Fragments: put together again they are the datagram.

use linerate_segment::Error;
use linerate_segment::segment::{Checksums, LinkType, Options, Split};
use linerate_wire::virtio;
use proptest::prelude::*;

use super::build::{self, Network, Packet, Transport};
use super::{options, split, strategies};

/// One fragment, read by etherparse.
struct Fragment {
    id: u32,
    offset: usize,
    more: bool,
    protocol: u8,
    /// The header that is repeated, without what differs between fragments.
    header: Vec<u8>,
    data: Vec<u8>,
}

fn read_v4(packet: &[u8]) -> Fragment {
    let (header, data) = etherparse::Ipv4Header::from_slice(packet).unwrap();
    assert_eq!(header.header_checksum, header.calc_header_checksum());
    assert_eq!(usize::from(header.total_len), packet.len());
    let mut fixed = packet[..header.header_len()].to_vec();
    for field in [2..4, 4..6, 6..8, 10..12] {
        fixed[field].fill(0);
    }
    Fragment {
        id: header.identification.into(),
        offset: usize::from(header.fragment_offset.value()) * 8,
        more: header.more_fragments,
        protocol: header.protocol.0,
        header: fixed,
        data: data.to_vec(),
    }
}

fn read_v6(packet: &[u8]) -> Fragment {
    let (header, rest) = etherparse::Ipv6Header::from_slice(packet).unwrap();
    assert_eq!(usize::from(header.payload_length), rest.len());
    let (mut next, mut rest) = (header.next_header.0, rest);
    while next != 44 {
        assert!(matches!(next, 0 | 43 | 60), "no fragment header");
        let len = (usize::from(rest[1]) + 1) * 8;
        next = rest[0];
        rest = &rest[len..];
    }
    let mut fixed = packet[..packet.len() - rest.len()].to_vec();
    fixed[4..6].fill(0);
    let (header, data) = etherparse::Ipv6FragmentHeader::from_slice(rest).unwrap();
    Fragment {
        id: header.identification,
        offset: usize::from(header.fragment_offset.value()) * 8,
        more: header.more_fragments,
        protocol: header.next_header.0,
        header: fixed,
        data: data.to_vec(),
    }
}

/// The data of all fragments, which must agree with each other, and what it is.
fn reassemble(fragments: &[Fragment]) -> (u8, Vec<u8>) {
    let first = &fragments[0];
    let mut data = Vec::new();
    for (index, fragment) in fragments.iter().enumerate() {
        let last = index + 1 == fragments.len();
        assert_eq!((fragment.id, fragment.protocol), (first.id, first.protocol));
        assert_eq!((fragment.offset, fragment.more), (data.len(), !last));
        assert!(last || fragment.data.len() % 8 == 0);
        data.extend_from_slice(&fragment.data);
    }
    (first.protocol, data)
}

fn transports() -> impl Strategy<Value = Packet> {
    prop_oneof![strategies::packet(strategies::udp()), strategies::packet(strategies::tcp())]
        .prop_map(|mut packet| {
            // What stands behind fragments is not of interest here.
            packet.outer = None;
            packet.network.dont_fragment = false;
            packet
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn fragments_are_the_datagram(packet in transports(), mtu in 150_u16..2000, spoil: bool, id: u32) {
        let link = packet.ethernet.map_or(0, |tags| 14 + 4 * tags);
        let bytes = packet.build();
        let mut given = bytes.clone();
        if spoil && !matches!(packet.transport, Transport::Udp { checksum: false }) {
            // As a sender leaves it that counts on the card.
            let transport = link + packet.network.header_len();
            let at = if matches!(packet.transport, Transport::Tcp { .. }) { 16 } else { 6 };
            given[transport + at..transport + at + 2].copy_from_slice(&[0xbe, 0xef]);
        }
        let options = Options { fragment_id: id, ..options(&packet, Split::Fragments { mtu }) };
        let pieces = split(&given, &options).unwrap();
        if bytes.len() - link <= mtu.into() {
            prop_assert_eq!(pieces, [bytes]);
            return Ok(());
        }
        for piece in &pieces {
            prop_assert_eq!(&piece[..link], &bytes[..link]);
            prop_assert!(piece.len() - link <= mtu.into());
        }
        let v6 = packet.network.v6;
        let read = if v6 { read_v6 } else { read_v4 };
        let fragments: Vec<_> = pieces.iter().map(|piece| read(&piece[link..])).collect();
        prop_assert_eq!(fragments[0].id, if v6 { id } else { packet.network.id.into() });
        let (_, data) = reassemble(&fragments);
        prop_assert_eq!(&data[..], &bytes[bytes.len() - data.len()..]);

        // What is repeated is the packet's own header; every fragment could hold no more.
        let header = &fragments[0].header;
        let next = if v6 { data_next_header(&bytes[link..], data.len()) } else { 17 };
        prop_assert!(!v6 || fragments[0].protocol == next);
        for (index, fragment) in fragments.iter().enumerate() {
            if v6 || index == 0 {
                prop_assert_eq!(&fragment.header, header);
            }
            if fragment.more {
                prop_assert!(pieces[index].len() - link + 8 > mtu.into());
            }
        }
    }
}

/// What the last header in front of the fragmented part of an IPv6 packet announced.
fn data_next_header(packet: &[u8], data: usize) -> u8 {
    let (mut next, mut at) = (packet[6], 40);
    while at < packet.len() - data {
        next = packet[at];
        at += (usize::from(packet[at + 1]) + 1) * 8;
    }
    next
}

#[test]
fn options_without_the_copied_flag_stay_in_the_first_fragment() {
    let mut packet = Packet::udp(400);
    // A timestamp (not copied), a router alert (copied), the end of the list.
    packet.network.options = vec![68, 8, 9, 0, 1, 2, 3, 4, 148, 4, 0, 0, 0, 0, 0, 0];
    let pieces = split(&packet.build(), &options(&packet, Split::Fragments { mtu: 236 })).unwrap();
    assert_eq!(pieces.len(), 3);
    assert_eq!(pieces[0][34..50], packet.network.options[..]);
    for piece in &pieces[1..] {
        assert_eq!(piece[34..50], [1, 1, 1, 1, 1, 1, 1, 1, 148, 4, 0, 0, 0, 0, 0, 0]);
    }
}

#[test]
fn destination_options_behind_a_routing_header_are_fragmented() {
    let mut packet = Packet::udp(3000);
    packet.network = Network::v6();
    let destination = vec![0, 0, 1, 4, 0, 0, 0, 0];
    let mut routing = vec![0, 2, 4, 0, 0, 0, 0, 0];
    routing.extend_from_slice(&[0xfd; 16]);
    packet.network.extensions =
        vec![(60, destination.clone()), (43, routing), (60, destination.clone())];
    let pieces = split(&packet.build(), &options(&packet, Split::Fragments { mtu: 1280 })).unwrap();
    for piece in &pieces {
        let (next_of_routing, fragment) = (piece[14 + 48], 14 + 48 + 24);
        assert_eq!((next_of_routing, piece[fragment]), (44, 60));
    }
    assert_eq!(pieces[0][14 + 48 + 24 + 8 + 1..][..7], destination[1..]);
}

#[test]
fn a_last_fragment_may_be_longer_than_a_multiple_of_eight() {
    // 20 + 8 + 8 + 11 bytes under an MTU of 47: 27 bytes of room, 24 of them in a first fragment.
    let packet = Packet::udp(24 + 27 - 8);
    let pieces = split(&packet.build(), &options(&packet, Split::Fragments { mtu: 47 })).unwrap();
    assert_eq!(pieces.iter().map(|piece| piece.len() - 14).collect::<Vec<_>>(), [44, 47]);
}

#[test]
fn other_protocols_are_fragmented_as_they_are() {
    let mut bytes = Packet::udp(900).build();
    bytes[23] = 1;
    let pieces = split(&bytes, &Options::new(Split::Mtu(500))).unwrap();
    let fragments: Vec<_> = pieces.iter().map(|piece| read_v4(&piece[14..])).collect();
    assert_eq!(reassemble(&fragments), (1, bytes[34..].to_vec()));
}

#[test]
fn without_checksums_fragments_keep_what_there_is() {
    let mut bytes = Packet::udp(900).build();
    bytes[40] ^= 0xff;
    let options =
        Options { checksums: Checksums::None, ..Options::new(Split::Fragments { mtu: 500 }) };
    assert_eq!(split(&bytes, &options).unwrap()[0][34..42], bytes[34..42]);
}

#[test]
fn a_tunnel_is_fragmented_on_the_outside() {
    let mut packet = Packet::udp(3000);
    let tunnel = build::Tunnel::Vxlan { checksum: true, group: false };
    packet.outer = Some((Network::default(), tunnel));
    let bytes = packet.build();
    let pieces = split(&bytes, &options(&packet, Split::Mtu(1500))).unwrap();
    let fragments: Vec<_> = pieces.iter().map(|piece| read_v4(&piece[14..])).collect();
    assert_eq!(reassemble(&fragments), (17, bytes[34..].to_vec()));
}

#[test]
fn dont_fragment_is_obeyed() {
    let mut packet = Packet::udp(3000);
    packet.network.dont_fragment = true;
    for split_into in [Split::Mtu(1500), Split::Fragments { mtu: 1500 }] {
        let error = split(&packet.build(), &options(&packet, split_into)).unwrap_err();
        assert_eq!(error, Error::DontFragment { len: 3028, mtu: 1500 });
    }
    // It does not keep TCP from being segmented, which is no fragmentation.
    let mut packet = Packet::tcp(3000);
    packet.network.dont_fragment = true;
    assert_eq!(split(&packet.build(), &options(&packet, Split::Mtu(1500))).unwrap().len(), 3);
}

#[test]
fn an_mtu_without_room_is_refused() {
    let packet = Packet::udp(300);
    let fragments = |mtu| split(&packet.build(), &options(&packet, Split::Fragments { mtu }));
    assert_eq!(fragments(27).unwrap_err(), Error::MtuTooSmall { mtu: 27, need: 28 });
    assert_eq!(fragments(28).unwrap().len(), 39);
    assert_eq!(fragments(0).unwrap_err(), Error::ZeroSize);
    // A first fragment must hold the checksum of TCP, which is completed in it.
    let packet = Packet::tcp(300);
    let fragments = |mtu| split(&packet.build(), &options(&packet, Split::Fragments { mtu }));
    assert_eq!(fragments(43).unwrap_err(), Error::MtuTooSmall { mtu: 43, need: 44 });
    assert_eq!(fragments(44).unwrap().len(), 14);
}

#[test]
fn fragmentation_offload_says_how_much_a_fragment_has() {
    let fragment = vec![(0, vec![0; 8]), (60, vec![0; 8])];
    for extensions in [None, Some(vec![]), Some(fragment)] {
        let mut packet = Packet::udp(5000);
        if let Some(extensions) = extensions {
            packet.network = Network { extensions, ..Network::v6() };
        }
        let bytes = packet.build();
        let header = virtio::Header {
            gso_type: virtio::GsoType::UDP,
            gso_size: 1000,
            flags: virtio::Flags::NEEDS_CSUM,
            csum_start: (14 + packet.network.header_len()) as u16,
            csum_offset: 6,
            ..virtio::Header::default()
        };
        let options = Options::from_virtio(&header, &bytes, LinkType::Ethernet).unwrap();
        let pieces = split(&bytes, &options).unwrap();
        let headers = packet.network.header_len() + if packet.network.v6 { 8 } else { 0 };
        assert_eq!(pieces.len(), 6);
        assert!(pieces[..5].iter().all(|piece| piece.len() == 14 + headers + 1000));
        // In a tunnel the fragments are inside.
        let inside = virtio::Header { csum_start: header.csum_start + 28, ..header };
        assert_eq!(Options::from_virtio(&inside, &bytes, LinkType::Ethernet), None);
    }
}
