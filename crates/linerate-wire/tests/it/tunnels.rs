//! The headers of tunnels, against bytes written by hand from the RFCs.

use linerate_wire::ethernet::EtherType;
use linerate_wire::{Error, geneve, gre, vxlan};
use proptest::prelude::*;

#[test]
fn vxlan_header() {
    let plain = |flags: u32| {
        let bytes = [flags.to_be_bytes(), [0; 4]].concat();
        vxlan::Packet::new_checked(&bytes).map(|packet| packet.is_plain())
    };
    assert_eq!(plain(0x0800_0000), Ok(true));
    // A group policy; its bits without its flag; remote checksum offload; a next protocol.
    assert_eq!(plain(0x8848_0007), Ok(true));
    assert_eq!(plain(0x0800_0007), Ok(false));
    assert_eq!(plain(0x0820_0000), Ok(false));
    assert_eq!(plain(0x0c00_0000), Ok(false));
    assert!(matches!(plain(0), Err(Error::Malformed { .. })));
}

#[test]
fn geneve_header() {
    let bytes = [0x02, 0xc0, 0x65, 0x58, 0, 0, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0xaa];
    let packet = geneve::Packet::new_checked(&bytes).unwrap();
    assert_eq!((packet.header_len(), packet.protocol()), (16, EtherType::TEB));
    assert!(geneve::Packet::new_checked(&bytes[..15]).is_err());
    assert!(geneve::Packet::new_checked(&[0x42, 0, 0, 0, 0, 0, 0, 0]).is_err());
}

#[test]
fn gre_header() {
    let bytes = [0xb0, 0, 0x08, 0, 1, 2, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 0x45];
    let packet = gre::Packet::new_checked(&bytes).unwrap();
    assert!(packet.has_checksum() && packet.has_sequence());
    assert_eq!((packet.protocol(), packet.header_len()), (EtherType::IPV4, 16));
    for flags in [[0x40, 0], [0, 1], [0, 0x80]] {
        assert!(gre::Packet::new_checked(&[flags[0], flags[1], 8, 0, 0, 0, 0, 0]).is_err());
    }
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = vxlan::Packet::new_checked(&bytes).map(|packet| packet.is_plain());
        if let Ok(packet) = geneve::Packet::new_checked(&bytes) {
            prop_assert!(packet.header_len() <= bytes.len());
        }
        if let Ok(packet) = gre::Packet::new_checked(&bytes) {
            prop_assert!(packet.header_len() <= bytes.len());
        }
    }
}
