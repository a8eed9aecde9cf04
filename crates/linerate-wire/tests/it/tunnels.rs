//! The headers of tunnels, against bytes written by hand from the RFCs.

use linerate_wire::ethernet::EtherType;
use linerate_wire::{Error, geneve, gre, vxlan};
use proptest::prelude::*;

#[test]
fn vxlan_header() {
    let bytes = [0x08, 0, 0, 0, 0x12, 0x34, 0x56, 0, 0xaa, 0xbb];
    let packet = vxlan::Packet::new_checked(&bytes[..]).unwrap();
    assert_eq!((packet.identifier(), packet.is_plain()), (0x12_3456, true));
    assert_eq!(packet.payload(), [0xaa, 0xbb]);
    assert_eq!(packet.to_string(), "VXLAN vni 1193046");
    let mut again = [0xff; 8];
    vxlan::Repr::parse(&packet).emit(&mut again).unwrap();
    assert_eq!(again, bytes[..8]);

    let plain = |flags: u32| {
        let bytes = [flags.to_be_bytes(), [0; 4]].concat();
        vxlan::Packet::new_checked(&bytes[..]).map(|packet| packet.is_plain())
    };
    // A group policy; its bits without its flag; remote checksum offload; a next protocol.
    assert_eq!(plain(0x8848_0007), Ok(true));
    assert_eq!(plain(0x0800_0007), Ok(false));
    assert_eq!(plain(0x0820_0000), Ok(false));
    assert_eq!(plain(0x0c00_0000), Ok(false));
    assert!(matches!(plain(0), Err(Error::Malformed { .. })));
    assert!(vxlan::Repr { identifier: 1 << 24 }.emit(&mut again).is_err());
}

#[test]
fn geneve_header() {
    let bytes = [0x02, 0xc0, 0x65, 0x58, 0, 0, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0xaa];
    let packet = geneve::Packet::new_checked(&bytes[..]).unwrap();
    assert_eq!((packet.header_len(), packet.identifier()), (16, 9));
    assert_eq!(packet.protocol(), EtherType::TEB);
    assert!(packet.is_control() && packet.is_critical());
    assert_eq!((packet.options(), packet.payload()), (&bytes[8..16], &bytes[16..]));
    assert!(geneve::Packet::new_checked(&bytes[..15]).is_err());
    assert!(geneve::Packet::new_checked([0x42_u8, 0, 0, 0, 0, 0, 0, 0]).is_err());
    let mut again = [0xff; 8];
    geneve::Repr::parse(&packet).emit(&mut again).unwrap();
    assert_eq!(again, [0, 0, 0x65, 0x58, 0, 0, 9, 0]);
}

#[test]
fn gre_header() {
    let bytes = [0xb0, 0, 0x08, 0, 1, 2, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 0x45];
    let packet = gre::Packet::new_checked(&bytes[..]).unwrap();
    assert!(packet.has_checksum() && packet.has_sequence());
    assert_eq!((packet.key(), packet.header_len()), (Some(7), 16));
    assert_eq!((packet.protocol(), packet.payload()), (EtherType::IPV4, &[0x45][..]));
    assert_eq!(packet.to_string(), "GRE IPv4 key 7");
    for flags in [[0x40, 0], [0, 1], [0, 0x80]] {
        let bytes = [flags[0], flags[1], 8, 0, 0, 0, 0, 0];
        assert!(gre::Packet::new_checked(bytes).is_err());
    }
    let mut again = [0xff; 8];
    gre::Repr::parse(&packet).emit(&mut again).unwrap();
    assert_eq!(again, [0x20, 0, 0x08, 0, 0, 0, 0, 7]);
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(packet) = vxlan::Packet::new_checked(&bytes[..]) {
            prop_assert_eq!(packet.payload().len(), bytes.len() - vxlan::HEADER_LEN);
        }
        if let Ok(packet) = geneve::Packet::new_checked(&bytes[..]) {
            prop_assert!(packet.header_len() <= geneve::MAX_HEADER_LEN);
            prop_assert_eq!(packet.payload().len() + packet.header_len(), bytes.len());
        }
        if let Ok(packet) = gre::Packet::new_checked(&bytes[..]) {
            let _ = packet.key();
            prop_assert_eq!(packet.payload().len() + packet.header_len(), bytes.len());
        }
    }
}
