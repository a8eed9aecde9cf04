//! The rules one by one, on packets small enough to check by hand.

use linerate_segment::Error;
use linerate_segment::segment::{Checksums, IpId, Options, Segments, Split};
use linerate_wire::ip::Protocol;

use super::build::{Network, Packet, Transport, Tunnel};
use super::{options, split};

fn with_flags(flags: u16) -> Packet {
    let mut packet = Packet::tcp(250);
    packet.transport = Transport::Tcp { sequence: 0xffff_ffc0, flags, urgent: 7, options: vec![] };
    packet
}

fn pieces(packet: &Packet, split_into: Split) -> Vec<Vec<u8>> {
    split(&packet.build(), &options(packet, split_into)).unwrap()
}

fn field(piece: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([piece[at], piece[at + 1]])
}

#[test]
fn sequence_numbers_wrap_at_32_bits() {
    let numbers: Vec<_> = pieces(&with_flags(0x10), Split::Tcp { mss: 100 })
        .iter()
        .map(|piece| u32::from_be_bytes(piece[38..42].try_into().unwrap()))
        .collect();
    assert_eq!(numbers, [0xffff_ffc0, 0x24, 0x88]);
}

#[test]
fn push_and_fin_are_last_and_cwr_is_first() {
    // All flags but SYN: CWR ECE URG ACK PSH RST FIN.
    let flags = |accurate_ecn| {
        let packet = with_flags(0xfd);
        let options = Options { accurate_ecn, ..options(&packet, Split::Tcp { mss: 100 }) };
        let pieces = split(&packet.build(), &options).unwrap();
        pieces.iter().map(|piece| piece[47]).collect::<Vec<_>>()
    };
    assert_eq!(flags(false), [0xf4, 0x74, 0x7d]);
    assert_eq!(flags(true), [0xf4, 0xf4, 0xfd]);
}

#[test]
fn the_urgent_pointer_is_repeated() {
    let pieces = pieces(&with_flags(0x30), Split::Tcp { mss: 100 });
    assert_eq!(pieces.iter().map(|piece| field(piece, 52)).collect::<Vec<_>>(), [7, 7, 7]);
}

/// The packet without the length of its outermost IP header, and for IPv6 also with a jumbo payload option.
fn without_length(bytes: &[u8], v6: bool) -> Vec<Vec<u8>> {
    let mut untold = bytes.to_vec();
    let at = if v6 { 18 } else { 16 };
    untold[at..at + 2].fill(0);
    let mut all = vec![untold.clone()];
    if v6 {
        let len = (bytes.len() - 54 + 8) as u32;
        let option = [&[bytes[20], 0, 0xc2, 4], &len.to_be_bytes()[..]].concat();
        untold[20] = 0;
        untold.splice(54..54, option);
        all.push(untold);
    }
    all
}

#[test]
fn a_packet_without_its_length_makes_the_same_segments() {
    for v6 in [false, true] {
        let network = Network { v6, ..Network::default() };
        let inner = Packet { network: network.clone(), ..Packet::tcp(3000) };
        let tunnel = Tunnel::Vxlan { checksum: true, group: false };
        let tunnelled = Packet { outer: Some((network.clone(), tunnel)), ..inner.clone() };
        let gre = Tunnel::Gre { checksum: true, key: None, bridged: false };
        let in_gre = Packet { outer: Some((network, gre)), ..inner.clone() };
        for packet in [inner, tunnelled, in_gre] {
            let bytes = packet.build();
            for split_into in [Split::Tcp { mss: 1000 }, Split::Mtu(900), Split::Mtu(9000)] {
                let options = options(&packet, split_into);
                let expected = split(&bytes, &options).unwrap();
                for untold in without_length(&bytes, v6) {
                    let found = split(&untold, &options).unwrap();
                    assert!(found == expected, "{packet:?} {split_into:?}");
                }
            }
        }
    }
}

#[test]
fn packets_over_64_kib_are_split() {
    let payload = super::build::pattern(200_000);
    for v6 in [false, true] {
        let network = Network { v6, ..Network::default() };
        let packet = Packet { network, ..Packet::tcp(0) };
        let headers = 14 + packet.headers();
        let bytes = [packet.build(), payload.clone()].concat();
        for untold in without_length(&bytes, v6) {
            for split_into in
                [Split::Tcp { mss: 1448 }, Split::Mtu(1500), Split::Tcp { mss: u16::MAX }]
            {
                let segments = split(&untold, &options(&packet, split_into)).unwrap();
                let mut joined = Vec::new();
                for segment in &segments {
                    let len = usize::from(field(segment, if v6 { 18 } else { 16 }));
                    assert_eq!(len, segment.len() - if v6 { 54 } else { 14 });
                    joined.extend_from_slice(&segment[headers..]);
                }
                assert!(joined == payload, "{} segments", segments.len());
            }
            let fragments = options(&packet, Split::Fragments { mtu: 1500 });
            assert_eq!(split(&untold, &fragments).unwrap_err(), Error::Jumbo);
        }
    }
}

#[test]
fn identifications_go_on_per_header() {
    let mut packet = Packet::tcp(250);
    packet.network.id = 0xffff;
    let outer = Network { id: 5, dont_fragment: true, ..Network::default() };
    packet.outer = Some((outer, Tunnel::Ip));
    let found = |outer_id, inner_id| {
        let options = Options { outer_id, inner_id, ..options(&packet, Split::Tcp { mss: 100 }) };
        let pieces = split(&packet.build(), &options).unwrap();
        pieces.iter().map(|piece| (field(piece, 18), field(piece, 38))).collect::<Vec<_>>()
    };
    let increment = IpId::Increment;
    assert_eq!(found(increment, increment), [(5, 0xffff), (6, 0), (7, 1)]);
    assert_eq!(found(IpId::Fixed, increment), [(5, 0xffff), (5, 0), (5, 1)]);
}

#[test]
fn lengths_follow_the_last_segment() {
    let pieces = pieces(&Packet::udp(250), Split::Udp { size: 100 });
    let lengths: Vec<_> =
        pieces.iter().map(|piece| (piece.len(), field(piece, 16), field(piece, 38))).collect();
    assert_eq!(lengths, [(142, 128, 108), (142, 128, 108), (92, 78, 58)]);
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_ffff_and_none_stays_none() {
    // Two bytes that make the sum of a datagram come out as all ones.
    let mut packet = Packet::udp(4);
    packet.payload = vec![0; 4];
    let one = pieces(&packet, Split::Udp { size: 2 });
    let rest = field(&one[0], 40);
    packet.payload[..2].copy_from_slice(&rest.to_be_bytes());
    let pieces_now = pieces(&packet, Split::Udp { size: 2 });
    assert_eq!(field(&pieces_now[0], 40), 0xffff);

    packet.transport = Transport::Udp { checksum: false };
    for piece in pieces(&packet, Split::Udp { size: 2 }) {
        assert_eq!(field(&piece, 40), 0);
    }
}

#[test]
fn an_outer_checksum_covers_a_datagram_without_one() {
    let mut packet = Packet::udp(250);
    packet.transport = Transport::Udp { checksum: false };
    packet.outer = Some((Network::v6(), Tunnel::Vxlan { checksum: true, group: false }));
    for (index, piece) in pieces(&packet, Split::Udp { size: 100 }).iter().enumerate() {
        let mut expected = packet.clone();
        expected.network.id += index as u16;
        expected.payload = packet.payload.chunks(100).nth(index).unwrap().to_vec();
        assert_eq!(piece, &expected.build());
    }
}

#[test]
fn what_fits_comes_out_whole_with_its_checksums_done() {
    for packet in [with_flags(0xfd), with_flags(0x02), Packet::tcp(0), Packet::udp(0)] {
        let bytes = packet.build();
        let mut spoilt = bytes.clone();
        let checksum = if matches!(packet.transport, Transport::Tcp { .. }) { 50 } else { 40 };
        spoilt[checksum] ^= 0x55;
        spoilt.extend_from_slice(&[0; 9]);
        for split_into in [Split::Mtu(1500), Split::Fragments { mtu: 1500 }] {
            assert_eq!(split(&spoilt, &options(&packet, split_into)).unwrap(), [&bytes[..]]);
        }
    }
}

#[test]
fn a_routing_header_names_the_destination_of_the_checksum() {
    let mut packet = Packet::tcp(250);
    packet.network = Network::v6();
    // Segment routing: one segment left, the last of the path first in the list.
    let mut routing = vec![0, 4, 4, 1, 1, 0, 0, 0];
    routing.extend_from_slice(&[0xfd; 16]);
    routing.extend_from_slice(&super::build::DESTINATION6);
    packet.network.extensions = vec![(43, routing)];
    let bytes = packet.build();
    for piece in split(&bytes, &options(&packet, Split::Tcp { mss: 100 })).unwrap() {
        let mut pseudo = super::build::SOURCE6.to_vec();
        pseudo.extend_from_slice(&[0xfd; 16]);
        let tcp = &piece[14 + 40 + 40..];
        pseudo.extend_from_slice(&(tcp.len() as u32).to_be_bytes());
        pseudo.extend_from_slice(&[0, 0, 0, 6]);
        pseudo.extend_from_slice(tcp);
        assert_eq!(super::build::checksum(&pseudo), 0);
    }
}

#[test]
fn a_small_buffer_is_refused_and_the_segment_not_lost() {
    let packet = Packet::tcp(250).build();
    let mut segments = Segments::new(&packet, &Options::new(Split::Tcp { mss: 100 })).unwrap();
    let expected = split(&packet, &Options::new(Split::Tcp { mss: 100 })).unwrap();
    let mut out = [0; 154];
    for expected in expected {
        let small = expected.len() - 1;
        let error = segments.write_next(&mut out[..small]).unwrap_err();
        let need = expected.len();
        assert_eq!(error, linerate_segment::Error::BufferTooSmall { need, have: small });
        let len = segments.write_next(&mut out).unwrap().unwrap();
        assert_eq!(out[..len], expected);
    }
}

#[test]
fn the_longest_headers_fit() {
    let mut packet = Packet::tcp(2000);
    packet.ethernet = Some(2);
    packet.inner_tags = 2;
    packet.network = Network::v6();
    packet.transport = Transport::Tcp { sequence: 1, flags: 0x18, urgent: 0, options: vec![1; 40] };
    let tunnel = Tunnel::Geneve { checksum: true, options: vec![3; 252], bridged: true };
    packet.outer = Some((Network::v6(), tunnel));
    assert_eq!(pieces(&packet, Split::Tcp { mss: 1000 }).len(), 2);
}

#[test]
fn partial_checksums_hold_the_pseudo_header() {
    let packet = Packet::tcp(250);
    let options =
        Options { checksums: Checksums::Partial, ..options(&packet, Split::Tcp { mss: 100 }) };
    let pieces = split(&packet.build(), &options).unwrap();
    for piece in pieces {
        let mut pseudo = piece[26..34].to_vec();
        pseudo.extend_from_slice(&[0, 6]);
        pseudo.extend_from_slice(&((piece.len() - 34) as u16).to_be_bytes());
        assert_eq!(field(&piece, 50), !super::build::checksum(&pseudo));
    }
}

/// What stands between Ethernet and IP, and where the length of the rest of the frame is in it.
fn between() -> [(&'static [u8], Option<usize>); 4] {
    [
        // Two labels of MPLS.
        (&[0x88, 0x47, 0, 1, 0x20, 64, 0, 1, 0x31, 64], None),
        // A tag, and a session of PPPoE.
        (&[0x81, 0, 0, 7, 0x88, 0x64, 0x11, 0, 0, 9, 0, 0, 0, 0x21], Some(10)),
        (&[0x91, 0, 0, 7, 0x08, 0], None),
        (&[0x88, 0x64, 0x11, 0, 0, 9, 0, 0, 0, 0x21], Some(6)),
    ]
}

#[test]
fn headers_between_ethernet_and_ip_are_repeated_with_their_lengths() {
    for (header, len_at) in between() {
        let within = |frame: &[u8]| {
            let mut header = header.to_vec();
            if let Some(at) = len_at {
                let len = (frame.len() - 14 + 2) as u16;
                header[at..at + 2].copy_from_slice(&len.to_be_bytes());
            }
            [&frame[..12], &header, &frame[14..]].concat()
        };
        for (packet, split_into) in [
            (Packet::tcp(1000), Split::Tcp { mss: 300 }),
            (Packet::tcp(1000), Split::Mtu(500)),
            (Packet::udp(1000), Split::Udp { size: 300 }),
            (Packet::udp(1000), Split::Mtu(500)),
        ] {
            let (plain, options) = (packet.build(), Options::new(split_into));
            let expected = split(&plain, &options).unwrap();
            let expected: Vec<_> = expected.iter().map(|frame| within(frame)).collect();
            assert_eq!(split(&within(&plain), &options).unwrap(), expected, "{header:x?}");
        }
    }
}

#[test]
fn a_tunnel_header_with_a_number_of_its_packet_is_refused() {
    let gtp = Tunnel::Gtp { checksum: false, container: true };
    let packet = Packet { outer: Some((Network::default(), gtp)), ..Packet::tcp(1000) };
    let options = Options::new(Split::Tcp { mss: 300 });
    let bytes = packet.build();
    assert_eq!(split(&bytes, &options).unwrap().len(), 4);
    // A sequence number; one in the container; another kind of message; an unknown extension.
    for (at, value) in [(42, 0x36), (55, 0x14), (43, 254), (53, 0xc0)] {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        let error = split(&bytes, &options).unwrap_err();
        assert!(matches!(error, Error::Tunnel { tunnel: "GTP-U", .. }), "{at}: {error}");
    }
    // A length that is not the packet's: something else has this port.
    let mut bytes = bytes;
    bytes[45] += 1;
    let error = split(&bytes, &options).unwrap_err();
    assert!(matches!(error, Error::OtherProtocol { found: Protocol::UDP, .. }), "{error}");
    assert!(split(&bytes, &Options::new(Split::Udp { size: 300 })).unwrap().len() > 3);
}
