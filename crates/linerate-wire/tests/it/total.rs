//! No bytes make a view panic.

use linerate_wire::checksum::Sum;
use linerate_wire::{Layers, arp, checksum, ethernet, flow, ipv4, ipv6, layers, tcp, udp, vlan};
use proptest::prelude::*;

/// Bytes that are often nearly a frame: a plausible start, then anything.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let types = prop_oneof![
        Just([0x08, 0x00]),
        Just([0x86, 0xdd]),
        Just([0x08, 0x06]),
        Just([0x81, 0x00]),
        any::<[u8; 2]>(),
    ];
    let first = prop_oneof![Just(0x45), Just(0x4f), Just(0x60), any::<u8>()];
    let next = prop_oneof![Just(0), Just(6), Just(17), Just(43), Just(44), Just(51), any::<u8>()];
    (types, first, next, prop::collection::vec(any::<u8>(), 0..120)).prop_map(
        |(ether_type, first, next, mut bytes)| {
            for (at, value) in
                [(12, ether_type[0]), (13, ether_type[1]), (14, first), (20, next), (23, next)]
            {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            bytes
        },
    )
}

/// Calls everything that can be called on a frame.
fn exercise(frame: &[u8]) -> Option<Layers> {
    let layers = layers::parse(frame).ok()?;
    let _ = layers.ipv4(frame).map(|view| (view.options(), view.payload(), view.verify_checksum()));
    let _ = layers.ipv6(frame).map(|view| (view.upper_layer(), view.payload()));
    let _ = layers.tcp(frame).map(|view| (view.payload(), view.verify_checksum(Sum::ZERO)));
    let _ = layers.udp(frame).map(|view| (view.payload(), view.verify_checksum(Sum::ZERO)));
    let _ = (layers.addresses(frame), flow::Key::of(frame), layers.fragment(frame));
    let _ = (layers.vlans(frame), layers.tcp_flags(frame), layers.icmp(frame));
    if let (Some(segment), None) = (layers.tcp(frame), layers.fragment(frame)) {
        assert_eq!(layers.ports(frame), Some((segment.source_port(), segment.destination_port())));
        assert_eq!(layers.tcp_flags(frame), Some(segment.flags()));
    }
    assert!(layers.end <= frame.len());
    Some(layers)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes(frame in frames()) {
        let layers = exercise(&frame);
        prop_assert_eq!(layers.is_some(), frame.len() >= ethernet::HEADER_LEN);
    }

    #[test]
    fn a_cut_frame_never_knows_more(frame in frames(), cut in 0_usize..120) {
        let cut = &frame[..cut.min(frame.len())];
        if let (Some(whole), Some(part)) = (exercise(&frame), exercise(cut)) {
            prop_assert!(part.tags <= whole.tags);
            if part.transport != layers::Transport::Other {
                prop_assert_eq!(part.transport, whole.transport);
                prop_assert_eq!(part.transport_offset, whole.transport_offset);
            }
        }
    }

    #[test]
    fn any_bytes_under_any_view(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = ethernet::Frame::new_checked(&bytes).map(|view| view.payload().len());
        let _ = vlan::Tag::new_checked(&bytes).map(|view| view.ether_type());
        let _ = arp::Repr::parse(&bytes);
        let _ = ipv4::Packet::new_checked(&bytes).map(|view| view.payload().len());
        let _ = ipv6::Packet::new_checked(&bytes).map(|view| (view.upper_layer(), view.payload().len()));
        let _ = tcp::Segment::new_checked(&bytes).map(|view| view.payload().len());
        let _ = udp::Datagram::new_checked(&bytes).map(|view| view.payload().len());
    }

    #[test]
    fn sums_agree_with_the_definition(bytes in prop::collection::vec(any::<u8>(), 0..300), at in 0_usize..300) {
        let by_words = bytes.chunks(2).fold(0_u32, |sum, pair| {
            let word = u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            let sum = sum + word;
            (sum & 0xffff) + (sum >> 16)
        });
        let right = !(by_words as u16);
        prop_assert_eq!(checksum::of(&bytes), right);
        let other = etherparse::checksum::Sum16BitWords::new().add_slice(&bytes).ones_complement();
        prop_assert_eq!(checksum::of(&bytes), u16::from_be(other));
        let (front, back) = bytes.split_at((at & !1).min(bytes.len()));
        prop_assert_eq!(Sum::ZERO.bytes(front).bytes(back).checksum(), right);
        prop_assert_eq!(Sum::ZERO.bytes(front).plus(Sum::ZERO.bytes(back)).checksum(), right);
    }
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_ones() {
    // Sums to 0xffff, so the checksum is 0.
    assert_eq!(Sum::ZERO.bytes(&[0xff, 0xff]).checksum(), 0);
    assert_eq!(Sum::ZERO.bytes(&[0xff, 0xff]).udp_checksum(), 0xffff);
    assert_eq!(Sum::ZERO.bytes(&[0x12, 0x34]).udp_checksum(), !0x1234);
}

#[test]
fn the_largest_sums_do_not_overflow() {
    let bytes = vec![0xff; 1 << 16];
    assert_eq!(checksum::of(&bytes), 0);
    let sum = (0..100).fold(Sum::ZERO, |sum, _| sum.bytes(&bytes));
    assert!(sum.is_valid());
}
