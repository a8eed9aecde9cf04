use super::*;

/// A UDP datagram over IPv4 with this checksum.
fn datagram(checksum: u16) -> [u8; 46] {
    let mut frame = [0; 46];
    frame[12] = 8;
    frame[14..34]
        .copy_from_slice(&[0x45, 0, 0, 32, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame[34..40].copy_from_slice(&[0, 7, 0, 9, 0, 12]);
    frame[40..42].copy_from_slice(&checksum.to_be_bytes());
    frame[42..].copy_from_slice(b"what");
    frame
}

// 0a00 + 0001 + 0a00 + 0002 + 17 + 12
const PSEUDO: u16 = 0x1400 + 3 + 17 + 12;

#[test]
fn a_partial_checksum_is_the_sum_of_the_pseudo_header() {
    let partial = PartialChecksum::detect(&datagram(PSEUDO));
    assert_eq!(partial, Some(PartialChecksum { start: 34, offset: 6 }));
    assert_eq!(PartialChecksum::detect(&datagram(PSEUDO + 1)), None);
    assert_eq!(PartialChecksum::detect(&datagram(PSEUDO)[..30]), None);
}

#[test]
fn a_partial_checksum_is_found_in_tunnels() {
    let inner = datagram(PSEUDO);
    let ipv4 = |protocol: u8, payload: &[u8]| {
        let total = (20 + payload.len()) as u16;
        let mut header = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0, 9, 0, 0, 1, 9, 0, 0, 2];
        header[2..4].copy_from_slice(&total.to_be_bytes());
        [&inner[..14], &header, payload].concat()
    };
    // A complete checksum, or none: the port is of no tunnel that is known.
    let udp = |payload: &[u8]| {
        let len = (8 + payload.len()) as u16;
        ipv4(17, &[&[0, 7, 0, 9], &len.to_be_bytes()[..], &[0, 0], payload].concat())
    };
    let cases = [
        (ipv4(4, &inner[14..]), 20),
        (ipv4(47, &[&[0, 0, 8, 0], &inner[14..]].concat()), 24),
        (ipv4(47, &[&[0x20, 0, 0x65, 0x58, 0, 0, 0, 1], &inner[..]].concat()), 42),
        (udp(&[&[8, 0, 0, 0, 0, 0, 1, 0], &inner[..]].concat()), 50),
        (udp(&[&[1, 0, 0x65, 0x58, 0, 0, 1, 0, 1, 2, 3, 0], &inner[..]].concat()), 54),
        (udp(&[&[0x30, 255, 0, 32, 0, 0, 1, 0], &inner[14..]].concat()), 36),
        (udp(&[&[0, 4, 0, 0], &inner[14..]].concat()), 32),
        (udp(&inner[14..]), 28),
    ];
    for (number, (frame, deeper)) in cases.iter().enumerate() {
        let partial = PartialChecksum { start: 34 + deeper, offset: 6 };
        assert_eq!(PartialChecksum::detect(frame), Some(partial), "{number}");
        // In a tunnel in a tunnel.
        let nested = ipv4(4, &frame[14..]);
        let partial = PartialChecksum { start: 54 + deeper, offset: 6 };
        assert_eq!(PartialChecksum::detect(&nested), Some(partial), "{number}");
        for len in 0..frame.len() {
            assert_eq!(PartialChecksum::detect(&frame[..len]), None, "{number}, {len}");
        }
    }
}

#[test]
fn a_finished_checksum_is_right() {
    let frame = datagram(PSEUDO);
    let partial = PartialChecksum { start: 34, offset: 6 };
    assert!(partial.fits(42) && !partial.fits(41));
    let mut out = [0; 46];
    partial.copy(Engine::detect(), &frame, &mut out);
    let checksum = partial.compute(Engine::PORTABLE, &frame);
    assert_eq!(out, datagram(checksum));
    assert!(Sum::ZERO.word(PSEUDO).bytes(&out[34..]).is_valid());
}
