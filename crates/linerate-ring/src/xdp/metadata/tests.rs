use std::mem::offset_of;

use super::*;

#[test]
fn layout_is_that_of_the_header() {
    assert_eq!(size_of::<Metadata>(), 20);
    assert_eq!(offset_of!(Metadata, timestamp), 0);
    assert_eq!(offset_of!(Metadata, vlan_tci), 8);
    assert_eq!(offset_of!(Metadata, vlan_proto), 10);
    assert_eq!(offset_of!(Metadata, flags), 12);
    assert_eq!(offset_of!(Metadata, magic), 16);
    let header = include_str!("../../../../linerate-bpf/src/bpf/steer.h");
    assert!(header.contains("STEER_META_MAGIC 0x4c4e5254"));
}

#[test]
fn metadata_is_read_once_and_the_tag_goes_back_behind_the_addresses() {
    let mut chunk = [0u8; 64];
    let metadata = Metadata {
        timestamp: 37_000_000_005,
        vlan_tci: 0x0123,
        vlan_proto: [0x81, 0x00],
        flags: VLAN,
        magic: MAGIC,
    };
    let frame: Vec<u8> = (1..=20).collect();
    chunk[32..52].copy_from_slice(&frame);
    // SAFETY: within `chunk`, which nobody else touches.
    let (found, again, tagged) = unsafe {
        let at = chunk.as_mut_ptr().add(32);
        at.sub(20).cast::<Metadata>().write_unaligned(metadata);
        let found = Metadata::take(at).unwrap();
        let again = Metadata::take(at);
        let (start, len) = found.vlan().unwrap().insert(at, 20);
        (found, again, std::slice::from_raw_parts(start, len).to_vec())
    };
    assert!(again.is_none());
    assert_eq!(found.timestamp(37_000_000_000), Some(Timestamp(5)));
    assert_eq!(tagged[..12], frame[..12]);
    assert_eq!(tagged[12..16], [0x81, 0x00, 0x01, 0x23]);
    assert_eq!(tagged[16..], frame[12..]);
}
