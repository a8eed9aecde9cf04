use linerate_wire::ip;
use proptest::prelude::*;

use super::*;

fn frame(payload: &[u8]) -> Vec<u8> {
    let addresses = [[10, 0, 0, 1], [10, 0, 0, 2]].map(Into::into);
    let len = UDP + payload.len();
    let mut bytes = vec![0; ETHERNET + IPV4 + len];
    bytes[12] = 8;
    bytes[ETHERNET + IPV4 + UDP..].copy_from_slice(payload);
    let ip = ip::Repr::new(addresses[0], addresses[1], Protocol::UDP, len).unwrap();
    let ip::Repr::V4(ip) = ip else { unreachable!("two IPv4 addresses") };
    let ip = ip::Repr::V4(ipv4::Repr { traffic_class: 0xb8, ..ip });
    ip.emit(&mut bytes[ETHERNET..]).unwrap();
    udp::Repr { source_port: 5, destination_port: 7000 }
        .emit(&mut bytes[ETHERNET + IPV4..], ip.pseudo())
        .unwrap();
    bytes
}

#[test]
fn a_good_frame_gives_its_message_and_padding_is_no_part_of_it() {
    let mut bytes = frame(b"hello");
    bytes.extend([0xff; 13]);
    let message = Parser::new(false).parse(&bytes).unwrap();
    assert_eq!((&bytes[message.payload], message.traffic_class), (&b"hello"[..], 0xb8));
    assert_eq!(message.source, "10.0.0.1:5".parse().unwrap());
    assert_eq!(message.destination, "10.0.0.2:7000".parse().unwrap());
}

#[test]
fn every_flipped_bit_of_the_packet_is_noticed() {
    let good = frame(b"payload of some bytes");
    for bit in ETHERNET * 8..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(Parser::new(false).parse(&bad).is_err(), "bit {bit}");
    }
}

#[test]
fn a_partial_checksum_is_good_only_where_it_can_be() {
    let mut bytes = frame(b"hello");
    let pseudo = Sum::pseudo_v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), Protocol::UDP, 13);
    bytes[40..42].copy_from_slice(&pseudo.folded().to_be_bytes());
    assert_eq!(Parser::new(false).parse(&bytes), Err(ParseError::Checksum));
    assert_eq!(bytes[Parser::new(true).parse(&bytes).unwrap().payload], *b"hello");
    bytes[40..42].copy_from_slice(&[0, 0]);
    assert_eq!(bytes[Parser::new(false).parse(&bytes).unwrap().payload], *b"hello");
}

#[test]
fn cut_frames_are_malformed() {
    let good = frame(b"hello");
    for len in 0..good.len() {
        assert_eq!(Parser::new(true).parse(&good[..len]), Err(ParseError::Malformed), "{len}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_without_a_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..120),
                                            v6: bool) {
        if bytes.len() > 14 {
            bytes[12..15].copy_from_slice(if v6 { &[0x86, 0xdd, 0x60] } else { &[8, 0, 0x45] });
        }
        if let Ok(datagram) = Parser::new(true).parse(&bytes) {
            prop_assert!(bytes.get(datagram.payload).is_some());
        }
    }
}
