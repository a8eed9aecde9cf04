//! Files made by hand: byte orders, precisions, damage.

use linerate_wire::frame::{Direction, Timestamp};

use super::*;
use crate::Error;

/// Bytes in either byte order.
struct Bytes {
    big: bool,
    bytes: Vec<u8>,
}

impl Bytes {
    fn new(big: bool) -> Self {
        Self { big, bytes: Vec::new() }
    }

    fn u16(mut self, value: u16) -> Self {
        let bytes = if self.big { value.to_be_bytes() } else { value.to_le_bytes() };
        self.bytes.extend(bytes);
        self
    }

    fn u32(mut self, value: u32) -> Self {
        let bytes = if self.big { value.to_be_bytes() } else { value.to_le_bytes() };
        self.bytes.extend(bytes);
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend(bytes);
        self
    }

    /// A pcapng block around `body`.
    fn block(self, kind: u32, body: &[u8]) -> Self {
        let length = body.len() as u32 + 12;
        self.u32(kind).u32(length).raw(body).u32(length)
    }
}

fn reader(bytes: Vec<u8>) -> Result<Reader> {
    Reader::from_stream("test", Box::new(std::io::Cursor::new(bytes)))
}

fn pcap(big: bool, magic: u32) -> Bytes {
    let header = Bytes::new(big).u32(magic).u16(2).u16(4).u32(0).u32(0).u32(65_535).u32(1);
    header.u32(10).u32(500_000).u32(4).u32(60).raw(b"abcd")
}

fn section(big: bool) -> Bytes {
    let body = Bytes::new(big).u32(0x1a2b_3c4d).u16(1).u16(0).u32(u32::MAX).u32(u32::MAX).bytes;
    Bytes::new(big).block(0x0a0d_0d0a, &body)
}

fn interface(bytes: Bytes, resolution: Option<u8>) -> Bytes {
    let mut body = Bytes::new(bytes.big).u16(1).u16(0).u32(100);
    if let Some(resolution) = resolution {
        body = body.u16(9).u16(1).raw(&[resolution, 0, 0, 0]).u16(0).u16(0);
    }
    let body = body.bytes;
    bytes.block(1, &body)
}

fn enhanced(bytes: Bytes, interface: u32, ticks: u64, options: &[u8]) -> Bytes {
    let body = Bytes::new(bytes.big)
        .u32(interface)
        .u32((ticks >> 32) as u32)
        .u32(ticks as u32)
        .u32(3)
        .u32(64)
        .raw(b"xyz\0")
        .raw(options)
        .bytes;
    bytes.block(6, &body)
}

#[test]
fn pcap_in_both_orders_and_precisions() {
    for big in [false, true] {
        for (magic, nanos) in [(0xa1b2_c3d4, 10_500_000_000), (0xa1b2_3c4d, 10_000_500_000)] {
            let mut reader = reader(pcap(big, magic).bytes).expect("a header");
            let record = reader.next().expect("a whole file").expect("a packet");
            assert_eq!(record.frame.head(), b"abcd");
            assert_eq!(record.frame.wire_len, 60);
            assert_eq!(record.frame.timestamp, Some(Timestamp(nanos)));
            assert!(reader.next().expect("a whole file").is_none());
            assert_eq!(reader.interfaces()[0].linktype, 1);
        }
    }
}

#[test]
fn pcapng_in_both_orders_with_every_packet_block() {
    for big in [false, true] {
        let comment = Bytes::new(big).u16(1).u16(2).raw(b"hi\0\0");
        let options = comment.u16(2).u16(4).u32(2).u16(0).u16(0).bytes;
        let file = interface(interface(section(big), None), Some(9));
        let file = file.block(0x7777, b"what nobody knows...");
        let file = enhanced(file, 0, 1_000_001, &[]);
        let file = enhanced(file, 1, 2_000_000_003, &options);
        let simple = Bytes::new(big).u32(5).raw(b"hello\0\0\0").bytes;
        let file = file.block(3, &simple);
        let old = Bytes::new(big).u16(1).u16(0).u32(0).u32(7).u32(2).u32(2).raw(b"ok\0\0").bytes;
        let mut reader = reader(file.block(2, &old).bytes).expect("a header");
        let seen = |reader: &mut Reader| {
            let record = reader.next().expect("a whole file").expect("a packet");
            let stamp = record.frame.timestamp.map(|stamp| stamp.0);
            (record.frame.head().to_vec(), record.interface, stamp)
        };
        assert_eq!(seen(&mut reader), (b"xyz".to_vec(), 0, Some(1_000_001_000)));
        let record = reader.next().expect("a whole file").expect("a packet");
        assert_eq!(record.comment, Some("hi"));
        assert_eq!(record.frame.direction, Direction::Outbound);
        assert_eq!(record.frame.timestamp, Some(Timestamp(2_000_000_003)));
        assert_eq!(seen(&mut reader), (b"hello".to_vec(), 0, None));
        assert_eq!(seen(&mut reader), (b"ok".to_vec(), 1, Some(7)));
        assert!(reader.next().expect("a whole file").is_none());
    }
}

#[test]
fn a_new_section_numbers_its_interfaces_anew() {
    let first = enhanced(interface(section(false), None), 0, 1, &[]).bytes;
    let second = enhanced(interface(section(true), Some(0x80 | 10)), 0, 1024, &[]).bytes;
    let mut reader = reader([first, second].concat()).expect("a header");
    assert_eq!(reader.next().expect("whole").expect("a packet").interface, 0);
    let record = reader.next().expect("whole").expect("a packet");
    assert_eq!((record.interface, record.frame.timestamp), (1, Some(Timestamp(1_000_000_000))));
}

#[test]
fn damage_is_told_with_its_offset_and_what_was_saved() {
    let mut file = pcap(false, 0xa1b2_c3d4).bytes;
    let whole = file.len() as u64;
    file.extend([1, 2, 3]);
    let mut cut = reader(file.clone()).expect("a header");
    assert!(cut.next().expect("the first").is_some());
    let error = cut.next().expect_err("three bytes are no header");
    assert!(
        matches!(error, Error::Truncated { offset, salvaged: 1, .. } if offset == whole),
        "{error}"
    );
    assert!(cut.next().expect("nothing more").is_none());

    let file = enhanced(interface(section(false), None), 5, 1, &[]);
    let offset = 28 + 20;
    let error = reader(file.bytes).expect("a header").next().expect_err("no interface 5");
    assert!(
        matches!(&error, Error::Malformed { offset: at, salvaged: 0, .. } if *at == offset),
        "{error}"
    );
}

#[test]
fn an_invented_length_costs_no_memory() {
    let huge = section(false).u32(6).u32(60 << 20).bytes;
    assert!(matches!(reader(huge), Err(Error::Truncated { .. })));
    let absurd = section(false).u32(6).u32(0xffff_fff0).raw(&[0; 8]).bytes;
    assert!(matches!(reader(absurd), Err(Error::Malformed { .. })));
}

#[test]
fn what_is_no_capture_is_said_so() {
    for bytes in [&b""[..], b"GIF89a", b"\0"] {
        let error = reader(bytes.to_vec()).err().expect("an error");
        assert!(matches!(error, Error::NotACapture { .. }), "{error}");
    }
}

#[test]
fn any_bytes_end_in_a_word_and_not_in_a_panic() {
    use proptest::prelude::*;
    proptest!(ProptestConfig::with_cases(200), |(
        noise in prop::collection::vec(any::<u8>(), 0..200),
        at in 0..160_usize,
        big in any::<bool>(),
    )| {
        for mut file in [enhanced(interface(section(big), Some(9)), 0, 9, &[0; 8]).bytes,
                         pcap(big, 0xa1b2_c3d4).bytes] {
            let at = at.min(file.len());
            let end = (at + noise.len()).min(file.len());
            file[at..end].copy_from_slice(&noise[..end - at]);
            if let Ok(mut reader) = reader(file) {
                while let Ok(Some(_)) = reader.next() {}
            }
        }
    });
}

#[test]
fn compressed_streams_are_seen_through() {
    use std::io::Write;
    let plain = pcap(false, 0xa1b2_c3d4).bytes;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).expect("memory");
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    lz4.write_all(&plain[..30]).expect("memory");
    let mut lz4 = lz4.finish().expect("memory");
    let mut rest = lz4_flex::frame::FrameEncoder::new(Vec::new());
    rest.write_all(&plain[30..]).expect("memory");
    lz4.extend(rest.finish().expect("memory"));
    let zstd = zstd::encode_all(&plain[..], 1).expect("memory");
    for stream in [gzip.finish().expect("memory"), lz4, zstd] {
        let mut reader = reader(stream).expect("a header");
        assert_eq!(reader.next().expect("whole").expect("a packet").frame.head(), b"abcd");
        assert!(reader.next().expect("whole").is_none());
    }
}
