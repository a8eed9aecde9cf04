//! The segmenter on any bytes with any options: an error, or segments that are packets of their own:
//! no longer than asked for, whole (splitting one again gives itself), and with right checksums.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_segment::segment::{Checksums, IpId, LinkType, Options, Segments, Split};
use linerate_wire::checksum::Sum;
use linerate_wire::ip::Protocol;
use linerate_wire::{ipv4, layers};

/// Bytes in front of the packet that choose the options.
const CHOICES: usize = 6;

fuzz_target!(|data: &[u8]| {
    let Some((choices, packet)) = data.split_first_chunk::<CHOICES>() else { return };
    let options = options(*choices);
    let Ok(segments) = Segments::new(packet, &options) else { return };
    let (count, max_len, partial) =
        (segments.len(), segments.max_len(), segments.partial_checksum());
    if count > 3000 {
        return;
    }
    let mut parts = segments.clone();
    let mut at_once = segments.clone();
    let mut segments = segments;
    let (mut out, mut other, mut last) = (vec![0; max_len], vec![0; max_len], vec![0; max_len]);
    let mut seen = 0;
    while let Some(len) = segments.write_next(&mut out).expect("max_len is enough") {
        let piece = &out[..len];
        // By two, so that each second segment is written with another place to come.
        if seen % 2 == 0 {
            let mut buffers = [&mut other[..], &mut last[..]].into_iter();
            let written = at_once.write_all(&mut buffers, |_, _| {});
            let left = buffers.len();
            drop(buffers);
            assert_eq!((written, left), (Ok(()), usize::from(seen + 1 == count)));
            assert_eq!(&other[..len], piece, "at once, another segment");
        } else {
            assert_eq!(&last[..len], piece, "at once, another segment");
        }
        let part = parts.next_view().expect("as many parts");
        assert_eq!(piece, [part.header, part.payload].concat(), "two ways, two segments");
        seen += 1;
        let fragmented =
            !matches!(options.split, Split::Tcp { .. } | Split::Udp { .. }) && count > 1;
        whole(piece, &options, fragmented);
        if let Some(partial) = partial {
            let end = usize::from(partial.start) + usize::from(partial.offset) + 2;
            assert!(end <= part.header.len(), "a checksum outside of the headers");
        }
    }
    assert_eq!(seen, count);
    assert!(parts.next_view().is_none());
});

fn options([kind, low, high, checksums, flags, id]: [u8; CHOICES]) -> Options {
    let size = u16::from_le_bytes([low, high]);
    let split = match kind & 3 {
        0 => Split::Tcp { mss: size },
        1 => Split::Udp { size },
        2 => Split::Fragments { mtu: size },
        _ => Split::Mtu(size),
    };
    let id_policy = |bit: u8| if flags & bit == 0 { IpId::Increment } else { IpId::Fixed };
    Options {
        link: if kind & 4 == 0 { LinkType::Ethernet } else { LinkType::Ip },
        checksums: match checksums % 3 {
            0 => Checksums::Full,
            1 => Checksums::Partial,
            _ => Checksums::None,
        },
        outer_id: id_policy(1),
        inner_id: id_policy(2),
        accurate_ecn: flags & 4 != 0,
        fragment_id: id.into(),
        ..Options::new(split)
    }
}

/// One segment must stand for itself.
fn whole(piece: &[u8], options: &Options, fragmented: bool) {
    if let Split::Mtu(mtu) | Split::Fragments { mtu } = options.split {
        let link = match options.link {
            LinkType::Ip => 0,
            LinkType::Ethernet => layers::parse(piece).expect("an Ethernet header").network_offset,
        };
        assert!(piece.len() - link <= mtu.into(), "longer than the MTU");
    }
    // A fragment is refused as input, so that only its header can be looked at.
    match Segments::new(piece, options) {
        Ok(mut again) => {
            assert_eq!(again.len(), 1, "a segment that must be split again");
            let mut copy = vec![0; piece.len()];
            assert_eq!(again.write_next(&mut copy), Ok(Some(piece.len())));
            assert_eq!(copy, piece, "a segment that is not finished");
        }
        Err(error) => assert!(fragmented, "a segment that is refused: {error}"),
    }
    if options.link == LinkType::Ethernet {
        right_checksums(piece, options);
    }
}

/// By the views, which do not share the segmenter's arithmetic of templates.
fn right_checksums(piece: &[u8], options: &Options) {
    let layers = layers::parse(piece).expect("an Ethernet header");
    if let Some(ip) = layers.ipv4(piece) {
        assert!(ip.verify_checksum(), "IPv4 header checksum");
        assert_eq!(ip.end(), piece.len() - layers.network_offset, "IPv4 total length");
    }
    let Some((source, destination)) = layers.addresses(piece) else { return };
    let routed = layers.ipv6(piece).is_some_and(|ip| ip.next_header().is_extension());
    if options.checksums != Checksums::Full || routed || fragment(piece, &layers) {
        return;
    }
    let len = (piece.len() - layers.transport_offset) as u16;
    let pseudo = |protocol| Sum::pseudo(source, destination, protocol, len).expect("one family");
    if let Some(segment) = layers.tcp(piece) {
        assert!(segment.verify_checksum(pseudo(Protocol::TCP)), "TCP checksum");
    }
    if let Some(datagram) = layers.udp(piece) {
        assert_eq!(datagram.length(), len, "UDP length");
        assert!(datagram.verify_checksum(pseudo(Protocol::UDP)), "UDP checksum");
    }
}

fn fragment(piece: &[u8], layers: &layers::Layers) -> bool {
    let at = layers.network_offset;
    match layers.network {
        layers::Network::Ipv4 { fragment } | layers::Network::Ipv6 { fragment } => {
            // A source route hides the destination; such packets are left whole or refused.
            fragment || ipv4::Packet::new_checked(&piece[at..]).is_ok_and(|ip| ip.header_len() > 20)
        }
        _ => true,
    }
}
