use super::*;
use crate::Error;

const SUPER: Header = Header {
    flags: Flags::NEEDS_CSUM,
    gso_type: GsoType(0x81),
    hdr_len: 66,
    gso_size: 1448,
    csum_start: 34,
    csum_offset: 16,
    outer_th_offset: 0,
    inner_nh_offset: 0,
};

#[test]
fn the_fields_lie_where_the_kernel_has_them() {
    let mut bytes = [0xff; MERGEABLE_HEADER_LEN];
    SUPER.emit(&mut bytes).unwrap();
    assert_eq!(bytes[..2], [1, 0x81]);
    let words: [u16; 5] =
        core::array::from_fn(|word| u16::from_ne_bytes([bytes[2 + 2 * word], bytes[3 + 2 * word]]));
    assert_eq!(words, [66, 1448, 34, 16, 0]);
}

#[test]
fn what_was_written_is_read_back() {
    for len in [HEADER_LEN, MERGEABLE_HEADER_LEN, TUNNEL_HEADER_LEN] {
        for header in [SUPER, Header::default()] {
            let mut bytes = [0xff; TUNNEL_HEADER_LEN];
            header.emit(&mut bytes[..len]).unwrap();
            assert_eq!(Header::parse(&bytes[..len]), Ok(header));
            assert!(bytes[HEADER_LEN..len].iter().all(|byte| *byte == 0));
        }
    }
}

#[test]
fn the_offsets_of_a_tunnel_are_in_a_long_header_only() {
    let tunnel = Header { outer_th_offset: 34, inner_nh_offset: 0x0140, ..SUPER };
    let mut bytes = [0xff; TUNNEL_HEADER_LEN];
    tunnel.emit(&mut bytes).unwrap();
    assert_eq!(bytes[20..], [34, 0, 0x40, 1]);
    assert_eq!(Header::parse(&bytes), Ok(tunnel));
    assert_eq!(Header::parse(&bytes[..MERGEABLE_HEADER_LEN]), Ok(SUPER));
    tunnel.emit(&mut bytes[..MERGEABLE_HEADER_LEN]).unwrap();
    assert_eq!(Header::parse(&bytes[..MERGEABLE_HEADER_LEN]), Ok(SUPER));
}

#[test]
fn too_few_bytes_are_refused() {
    let cut = Error::Truncated { what: WHAT, need: 10, have: 9 };
    assert_eq!(Header::parse(&[0; 9]), Err(cut));
    assert_eq!(SUPER.emit(&mut [0; 9]), Err(cut));
}

#[test]
fn kinds_and_bits_are_told_apart() {
    assert_eq!(SUPER.gso_type.kind(), GsoType::TCPV4);
    assert!(SUPER.gso_type.contains(GsoType::ECN) && SUPER.is_gso());
    assert!(!Header { gso_type: GsoType::ECN, ..SUPER }.is_gso());
}

#[test]
fn offsets_follow_the_start_of_the_frame() {
    let ip = Header { hdr_len: 52, csum_start: 20, ..SUPER };
    assert_eq!(ip.push(14), SUPER);
    assert_eq!(SUPER.pull(14), ip);
    assert_eq!(SUPER.partial_checksum(), Some(PartialChecksum { start: 34, offset: 16 }));
    assert_eq!(Header::default().push(14), Header::default());
    assert_eq!(Header::default().partial_checksum(), None);
    let tunnel = Header { outer_th_offset: 20, inner_nh_offset: 50, ..ip };
    let frame = tunnel.push(18);
    assert_eq!((frame.outer_th_offset, frame.inner_nh_offset), (38, 68));
    assert_eq!(frame.pull(18), tunnel);
}

#[test]
fn it_prints_in_one_line() {
    let mut line = Line { bytes: [0; 64], len: 0 };
    fmt::write(&mut line, format_args!("{SUPER}")).unwrap();
    assert_eq!(&line.bytes[..line.len], b"gso TCPv4+ECN of 1448, checksum from 34 at 16");
}

/// A place to print to without the standard library.
struct Line {
    bytes: [u8; 64],
    len: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        self.bytes[self.len..end].copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}
