//! Any packet, any size: every segment must be, byte for byte, the packet that etherparse builds with
//! that segment's payload and numbers.

use linerate_segment::Error;
use linerate_segment::segment::{Checksums, IpId, MAX_HEADER_LEN, Options, Segments, Split};
use proptest::prelude::*;

use super::build::{self, Network, Packet, Transport, Tunnel};
use super::{options, split, strategies};

/// What segment `index` of `count` should be, the rules of the kernel applied to the description.
fn piece(packet: &Packet, size: usize, index: usize, options: &Options) -> Packet {
    let count = packet.payload.len().div_ceil(size).max(1);
    let mut piece = packet.clone();
    let end = packet.payload.len().min((index + 1) * size);
    piece.payload = packet.payload[index * size..end].to_vec();
    let step = |network: &mut Network, policy| {
        if policy == IpId::Increment {
            network.id = network.id.wrapping_add(index as u16);
        }
    };
    match &mut piece.outer {
        None => step(&mut piece.network, options.outer_id),
        Some((outer, _)) => {
            step(outer, options.outer_id);
            step(&mut piece.network, options.inner_id);
        }
    }
    if let Transport::Tcp { sequence, flags, .. } = &mut piece.transport {
        *sequence = sequence.wrapping_add((index * size) as u32);
        if index + 1 < count {
            *flags &= !0x09;
        }
        if index > 0 && !options.accurate_ecn {
            *flags &= !0x80;
        }
    }
    piece
}

fn ids() -> impl Strategy<Value = IpId> {
    prop_oneof![3 => Just(IpId::Increment), 1 => Just(IpId::Fixed)]
}

/// A fixed identification is refused without DF.
fn allow_fixed(packet: &mut Packet, options: &Options) {
    let (outer, inner) = match &mut packet.outer {
        None => (&mut packet.network, None),
        Some((outer, _)) => (outer, Some(&mut packet.network)),
    };
    outer.dont_fragment |= options.outer_id == IpId::Fixed;
    if let Some(inner) = inner {
        inner.dont_fragment |= options.inner_id == IpId::Fixed;
    }
}

/// What a card does with a partial checksum.
fn finish(frame: &mut [u8], start: usize, offset: usize, udp: bool) {
    let mut sum = build::checksum(&frame[start..]);
    if udp && sum == 0 {
        sum = 0xffff;
    }
    frame[start + offset..start + offset + 2].copy_from_slice(&sum.to_be_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn segments_are_what_etherparse_builds(
        mut packet in prop_oneof![strategies::packet(strategies::tcp()), strategies::packet(strategies::udp())],
        size in 1_u16..1600,
        ids in (ids(), ids()),
        accurate_ecn: bool,
        padding in 0_usize..30,
    ) {
        let is_tcp = matches!(packet.transport, Transport::Tcp { .. });
        let size = size.max((packet.payload.len() / 50) as u16).max(1);
        let kind = if is_tcp { Split::Tcp { mss: size } } else { Split::Udp { size } };
        let mut options = options(&packet, kind);
        (options.outer_id, options.inner_id) = ids;
        options.accurate_ecn = accurate_ecn;
        allow_fixed(&mut packet, &options);
        let mut bytes = packet.build();
        bytes.resize(bytes.len() + padding, 0xdd);

        let found = split(&bytes, &options);
        let headers = packet.ethernet.map_or(0, |tags| 14 + 4 * tags) + packet.headers();
        if headers > MAX_HEADER_LEN {
            prop_assert_eq!(found, Err(Error::HeadersTooLong { len: headers }));
            return Ok(());
        }
        let pieces = found.unwrap();
        prop_assert_eq!(pieces.len(), packet.payload.len().div_ceil(size.into()).max(1));
        for (index, found) in pieces.iter().enumerate() {
            let expected = piece(&packet, size.into(), index, &options).build();
            prop_assert_eq!(found, &expected, "segment {}", index);
        }

        // The same with what hardware finishes.
        options.checksums = Checksums::Partial;
        let partial = Segments::new(&bytes, &options).unwrap().partial_checksum();
        let absent = matches!(packet.transport, Transport::Udp { checksum: false });
        prop_assert_eq!(partial.is_none(), absent);
        for (mut unfinished, full) in split(&bytes, &options).unwrap().into_iter().zip(pieces) {
            if let Some(partial) = partial {
                finish(&mut unfinished, partial.start.into(), partial.offset.into(), !is_tcp);
            }
            prop_assert_eq!(unfinished, full);
        }
    }

    #[test]
    fn without_checksums_the_fields_are_zero_and_nothing_else_differs(
        packet in prop_oneof![strategies::packet(strategies::tcp()), strategies::packet(strategies::udp())],
        size in 1_u16..1600,
    ) {
        let is_tcp = matches!(packet.transport, Transport::Tcp { .. });
        let size = size.max((packet.payload.len() / 50) as u16).max(1);
        let kind = if is_tcp { Split::Tcp { mss: size } } else { Split::Udp { size } };
        let full = options(&packet, kind);
        let none = Options { checksums: Checksums::None, ..full };
        prop_assume!(packet.headers() + 22 <= MAX_HEADER_LEN);
        let bytes = packet.build();
        let link = packet.ethernet.map_or(0, |tags| 14 + 4 * tags);
        let payload = link + packet.headers();
        let transport = match &packet.transport {
            Transport::Tcp { options, .. } => payload - 20 - options.len() + 16,
            Transport::Udp { .. } => payload - 8 + 6,
        };
        let around = packet.outer.as_ref().and_then(|(outer, tunnel)| {
            let at = link + outer.header_len();
            match tunnel {
                Tunnel::Ip | Tunnel::Gre { checksum: false, .. } => None,
                Tunnel::Gre { checksum: true, .. } => Some(at + 4),
                _ => Some(at + 6),
            }
        });
        let (full, none) = (split(&bytes, &full).unwrap(), split(&bytes, &none).unwrap());
        for (mut full, none) in full.into_iter().zip(none) {
            for at in [Some(transport), around].into_iter().flatten() {
                full[at..at + 2].fill(0);
            }
            prop_assert_eq!(full, none);
        }
    }

    #[test]
    fn an_mtu_is_kept(packet in strategies::packet(strategies::tcp()), mtu in 200_u16..3000) {
        prop_assume!(packet.headers() + 22 <= MAX_HEADER_LEN);
        // Room for the headers and for 64 bytes, so that segments stay countable.
        let mtu = mtu.max(packet.headers() as u16 + 64);
        let pieces = split(&packet.build(), &options(&packet, Split::Mtu(mtu))).unwrap();
        let mss = usize::from(mtu) - packet.headers();
        let same = split(&packet.build(), &options(&packet, Split::Tcp { mss: mss as u16 })).unwrap();
        prop_assert_eq!(&pieces, &same);
        let link = packet.ethernet.map_or(0, |tags| 14 + 4 * tags);
        prop_assert!(pieces.iter().all(|piece| piece.len() - link <= usize::from(mtu)));
    }
}
