use super::*;

#[test]
fn the_option_says_the_link_layer_address() {
    let address = [2, 3, 4, 5, 6, 7];
    let source = [&[1, 1][..], &address].concat();
    let nonce = [14, 1, 9, 9, 9, 9, 9, 9];
    for (options, expected) in [
        (source.clone(), Some(Address(address))),
        ([&nonce[..], &source].concat(), Some(Address(address))),
        (nonce.to_vec(), None),
        ([&[14, 0][..], &source].concat(), None),
        (source[..7].to_vec(), None),
        ([1].to_vec(), None),
    ] {
        assert_eq!(source_link_layer_address(&options), expected, "{options:?}");
    }
}

const TARGET: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0xab, 0xcdef);

fn solicitation(source: Ipv6Addr) -> Solicitation {
    Solicitation {
        source,
        destination: ipv6::solicited_node(TARGET),
        target: TARGET,
        source_link_layer_address: None,
    }
}

#[test]
fn a_solicitation_is_read_back() {
    let asked = solicitation(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2));
    let mut packet = [0; Solicitation::PACKET_LEN];
    asked.emit(&mut packet).unwrap();
    assert_eq!(Solicitation::parse(&packet), Some(asked));
    for at in [7, 20, 44, 48, 63] {
        let mut damaged = packet;
        damaged[at] ^= 1;
        assert_eq!(Solicitation::parse(&damaged), None, "byte {at}");
    }
    for len in 0..packet.len() {
        assert_eq!(Solicitation::parse(&packet[..len]), None, "{len} bytes");
        let mut copy = packet;
        assert!(asked.emit(&mut copy[..len]).is_err());
    }
}

#[test]
fn an_answer_has_the_flags_and_the_option_of_rfc_4861() {
    let mac = Address([2, 0, 0, 0, 0, 1]);
    let neighbour = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
    for (source, destination, flags) in
        [(neighbour, neighbour, 0x60), (Ipv6Addr::UNSPECIFIED, ipv6::ALL_NODES, 0x20)]
    {
        let mut packet = [0xff; Advertisement::PACKET_LEN];
        solicitation(source).advertisement(mac).emit(&mut packet).unwrap();
        let ip = ipv6::Packet::new_checked(&packet[..]).unwrap();
        assert_eq!((ip.source(), ip.destination()), (TARGET, destination));
        assert_eq!(ip.payload()[0], NEIGHBOUR_ADVERTISEMENT);
        let pseudo = Sum::pseudo_v6(TARGET, destination, Protocol::ICMPV6, 32);
        assert!(pseudo.bytes(ip.payload()).is_valid());
        assert_eq!(ip.payload()[4..8], [flags, 0, 0, 0]);
        assert_eq!(ip.payload()[8..24], TARGET.octets());
        assert_eq!(ip.payload()[24..], [2, 1, 2, 0, 0, 0, 0, 1]);
    }
}
