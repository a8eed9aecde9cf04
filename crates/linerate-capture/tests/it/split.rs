//! Files made by hand: what changes, what does not, and what is said of it.

use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use etherparse::PacketBuilder;
use linerate_pcapfile::{
    BlockReader, Compression, Error as FileError, Format, Reader, Resolution, SectionHeader, Writer,
};
use linerate_segment::segment::{Checksums, IpId};
use linerate_wire::ip::Protocol;
use proptest::prelude::*;

use linerate_capture::engine::Outcome;
use linerate_capture::split::*;

/// A TCP/IPv4 frame with `payload` bytes, and valid checksums.
fn tcp(sequence: u32, payload: usize) -> Vec<u8> {
    let bytes: Vec<u8> = (0..payload).map(|at| (at as u32 ^ sequence) as u8).collect();
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .tcp(1000, 2000, sequence, 1024)
        .ack(1)
        .write(&mut frame, &bytes)
        .expect("a packet");
    frame
}

fn udp(payload: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv6([1; 16], [2; 16], 64)
        .udp(1000, 443)
        .write(&mut frame, &vec![7; payload])
        .expect("a packet");
    frame
}

/// A pcapng file in the making.
#[derive(Clone)]
struct Made {
    big: bool,
    bytes: Vec<u8>,
}

impl Made {
    fn word(&self, value: u32) -> [u8; 4] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn half(&self, value: u16) -> [u8; 2] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn block(mut self, kind: u32, body: &[u8]) -> Self {
        let length = self.word((body.len().next_multiple_of(4) + 12) as u32);
        let kind = self.word(kind);
        self.bytes.extend([&kind[..], &length, body].concat());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self.bytes.extend(length);
        self
    }

    fn option(&self, code: u16, value: &[u8]) -> Vec<u8> {
        let length = self.half(value.len() as u16);
        let mut bytes = [&self.half(code)[..], &length, value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// A section with a comment and a length, and an interface of this resolution with a name, a filter
    /// and an option that nobody knows.
    fn start(big: bool, resolution: u8) -> Self {
        let made = Self { big, bytes: Vec::new() };
        let (magic, one) = (made.word(0x1a2b_3c4d), made.half(1));
        let comment = made.option(1, b"of the section");
        let length = [0, 0, 0, 9, 0, 0, 0, 0];
        let section = [&magic[..], &one, &[0, 0], &length, &comment, &[0; 4]].concat();
        let interface = [
            &made.half(1)[..],
            &[0, 0],
            &made.word(100_000),
            &made.option(2, b"eth7"),
            &made.option(9, &[resolution]),
            &made.option(11, b"\0tcp"),
            &made.option(4711, b"mine"),
            &[0; 4],
        ];
        made.block(0x0a0d_0d0a, &section).block(1, &interface.concat())
    }

    fn enhanced(self, time: u64, frame: &[u8], wire_len: usize, options: &[&[u8]]) -> Self {
        let mut body = Vec::new();
        for word in [0, (time >> 32) as u32, time as u32, frame.len() as u32, wire_len as u32] {
            body.extend(self.word(word));
        }
        body.extend(frame);
        body.resize(body.len().next_multiple_of(4), 0);
        options.iter().for_each(|option| body.extend(*option));
        if !options.is_empty() {
            body.extend([0; 4]);
        }
        self.block(6, &body)
    }

    /// Names, statistics, and a block that nobody knows.
    fn others(self) -> Self {
        let names =
            [&self.half(1)[..], &self.half(4 + 5), b"\x0a\0\0\x01host\0\0\0\0", &[0; 4]].concat();
        let statistics = [self.word(0), self.word(0), self.word(9), self.word(0)].concat();
        self.block(4, &names).block(5, &statistics).block(0x0bad_cafe, b"what is this")
    }
}

/// A classic pcap file.
fn pcap(big: bool, magic: u32, frames: &[(u32, Vec<u8>, usize)]) -> Vec<u8> {
    let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
    let mut file = Vec::new();
    file.extend(word(magic));
    file.extend(if big { [0, 2, 0, 4] } else { [2, 0, 4, 0] });
    [0, 0, 70_000, 1].iter().for_each(|field| file.extend(word(*field)));
    for (fraction, frame, wire_len) in frames {
        for field in [5, *fraction, frame.len() as u32, *wire_len as u32] {
            file.extend(word(field));
        }
        file.extend(frame);
    }
    file
}

fn whole(frames: Vec<Vec<u8>>) -> Vec<(u32, Vec<u8>, usize)> {
    let number = |(number, frame): (usize, Vec<u8>)| {
        let len = frame.len();
        (number as u32 * 10, frame, len)
    };
    frames.into_iter().enumerate().map(number).collect()
}

struct Case {
    operation: Operation,
    pcapng: Option<bool>,
    filter: Option<String>,
    ports: TunnelPorts,
    fix: bool,
}

fn splitting(plan: SplitOptions) -> Case {
    Case {
        operation: Operation::Split(plan),
        pcapng: None,
        filter: None,
        ports: TunnelPorts::default(),
        fix: false,
    }
}

fn joining() -> Case {
    let joining = JoinOptions { tcp: true, udp: true, hold: 1_000_000, checksums: Checksums::Full };
    Case {
        operation: Operation::Join(joining),
        pcapng: None,
        filter: None,
        ports: TunnelPorts::default(),
        fix: false,
    }
}

fn run(file: &[u8], case: Case) -> (Outcome<Report>, Vec<u8>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out");
    let outcome = run_into(&path, file, case);
    (outcome, std::fs::read(path).expect("the file"))
}

fn run_into(path: &Path, file: &[u8], case: Case) -> Outcome<Report> {
    let stop = AtomicBool::new(false);
    let input =
        BlockReader::from_stream("made", Box::new(Cursor::new(file.to_vec()))).expect("a header");
    let pcapng = case.pcapng.unwrap_or(input.format() == Format::Pcapng);
    let output = Writer::create(path, Compression::None, &stop).expect("a file");
    let Case { operation, filter, ports, fix: fix_checksums, .. } = case;
    let filters = filters(filter.as_deref(), Arc::default());
    let section = SectionHeader::default();
    let job = Rewrite { input, output, pcapng, operation, ports, filters, fix_checksums, section };
    let progress = Progress::of(&job);
    rewrite(job, &stop, &progress)
}

/// Every packet of a file: bytes, time, comment.
fn packets(file: &[u8]) -> Vec<(Vec<u8>, u64, Option<String>)> {
    let mut reader =
        Reader::from_stream("out", Box::new(Cursor::new(file.to_vec()))).expect("a header");
    let mut all = Vec::new();
    while let Some(record) = reader.next().expect("a whole file") {
        let time = record.frame.timestamp.expect("a time").0;
        assert_eq!(record.frame.len(), record.frame.wire_len as usize);
        all.push((record.frame.head().to_vec(), time, record.comment.map(str::to_owned)));
    }
    all
}

fn frames(file: &[u8]) -> Vec<Vec<u8>> {
    packets(file).into_iter().map(|(frame, ..)| frame).collect()
}

/// Where the blocks of a little or big-endian pcapng file start and end.
fn blocks(file: &[u8], big: bool) -> Vec<&[u8]> {
    let mut rest = file;
    let mut all = Vec::new();
    while !rest.is_empty() {
        let field: [u8; 4] = rest[4..8].try_into().expect("a length");
        let len = if big { u32::from_be_bytes(field) } else { u32::from_le_bytes(field) };
        let (block, behind) = rest.split_at(len as usize);
        all.push(block);
        rest = behind;
    }
    all
}

#[test]
fn everything_but_the_super_packet_stays_byte_for_byte() {
    for big in [false, true] {
        let made = Made::start(big, 0x80 | 20);
        let flags = made.option(2, &made.word(2));
        let custom = made.option(2988, b"pen custom");
        let small = tcp(1, 100);
        let before = made.others().enhanced(77, &small, small.len(), &[&flags, &custom]);
        let large = tcp(101, 4000);
        let file = before.clone().enhanced(78, &large, large.len(), &[]).others().enhanced(
            79,
            &small,
            small.len(),
            &[],
        );
        let (outcome, out) = run(&file.bytes, splitting(SplitOptions::default()));
        assert!(outcome.failure.is_none());
        let report = &outcome.report;
        assert_eq!((report.read, report.written, report.unwritten), (3, 5, 0));
        assert_eq!((report.split.super_packets, report.split.segments), (1, 3));
        assert_eq!(report.split.refused.total(), 0);
        let (ins, outs) = (blocks(&file.bytes, big), blocks(&out, big));
        // The section leaves its length open; names, statistics and the unknown stay.
        let mut section = ins[0].to_vec();
        section[16..24].fill(0xff);
        assert_eq!(outs[0], section);
        assert_eq!(outs[1..6], ins[1..6], "interface, three others, the small packet");
        assert_eq!(outs[9..], ins[7..], "what stands behind");
        // The ticks of the interface are 2^-20 seconds: 78 of them.
        let time = Resolution::Binary(20).timestamp(78, 0).0;
        assert!(packets(&out)[1..4].iter().all(|(_, at, _)| *at == time));
    }
}

#[test]
fn options_go_where_they_belong() {
    let made = Made::start(false, 6);
    let large = tcp(1, 4000);
    let options = [
        made.option(2, &made.word(1)),
        made.option(3, &[2, 1, 2, 3, 4]),
        made.option(3, &[5, 9, 9, 9, 9]),
        made.option(1, b"why?"),
        made.option(4, &3_u64.to_le_bytes()),
        made.option(6, &made.word(4)),
        made.option(19372, b"secret"),
    ];
    let all: Vec<&[u8]> = options.iter().map(Vec::as_slice).collect();
    let file = made.enhanced(7, &large, large.len(), &all);
    let (_, out) = run(&file.bytes, splitting(SplitOptions::default()));
    let of = |block: &[u8]| {
        let captured = u32::from_le_bytes(block[20..24].try_into().expect("four")) as usize;
        block[28 + captured.next_multiple_of(4)..block.len() - 4].to_vec()
    };
    let pieces: Vec<_> = blocks(&out, false)[2..].iter().map(|block| of(block)).collect();
    let [flags, _, toeplitz, comment, dropped, queue, _] = &options;
    let end = vec![0; 4];
    let first = [flags, toeplitz, comment, dropped, queue, &end].map(Vec::as_slice).concat();
    let later = [flags, toeplitz, queue, &end].map(Vec::as_slice).concat();
    assert_eq!(pieces, [first, later.clone(), later]);

    // And back: comments of all, losses summed.
    let small: Vec<Vec<u8>> = frames(&out);
    let lost = |count: u64| file_option(4, &count.to_le_bytes());
    let comment = |text: &str| file_option(1, text.as_bytes());
    let mut file = Made::start(false, 6);
    for (number, frame) in small.iter().enumerate() {
        let text = format!("number {number}");
        let options: [&[u8]; 3] = [flags, &comment(&text), &lost(number as u64)];
        file = file.enhanced(7, frame, frame.len(), &options);
    }
    let (outcome, out) = run(&file.bytes, joining());
    assert_eq!(outcome.report.joined.expect("joined").super_packets, 1);
    let wanted =
        [flags, &comment("number 0"), &comment("number 1"), &comment("number 2"), &lost(3), &end];
    assert_eq!(of(blocks(&out, false)[2]), wanted.map(Vec::as_slice).concat());
}

fn file_option(code: u16, value: &[u8]) -> Vec<u8> {
    Made { big: false, bytes: Vec::new() }.option(code, value)
}

#[test]
fn pcap_files_keep_their_byte_order_and_precision() {
    for big in [false, true] {
        for magic in [0xa1b2_c3d4, 0xa1b2_3c4d] {
            let file = pcap(big, magic, &whole(vec![tcp(1, 10), tcp(11, 3000), udp(3000)]));
            let (outcome, out) = run(&file, splitting(SplitOptions::default()));
            assert_eq!(out[..24], file[..24]);
            let small = 16 + tcp(1, 10).len();
            assert_eq!(out[24..24 + small], file[24..24 + small]);
            let unsplit = 16 + udp(3000).len();
            assert_eq!(out[out.len() - unsplit..], file[file.len() - unsplit..]);
            assert_eq!(outcome.report.split.refused.count(UnsplitReason::UdpSize), 1);
            let unit = if magic == 0xa1b2_c3d4 { 1000 } else { 1 };
            let times: Vec<u64> =
                packets(&out).iter().map(|(_, time, _)| time % 1_000_000_000).collect();
            assert_eq!(times, [0, 10 * unit, 10 * unit, 10 * unit, 20 * unit]);
        }
    }
}

#[test]
fn the_other_format_has_the_same_packets_and_times() {
    let file = pcap(true, 0xa1b2_3c4d, &whole(vec![tcp(1, 10), tcp(11, 3000)]));
    let (_, same) = run(&file, splitting(SplitOptions::default()));
    let to = |file: &[u8], pcapng: bool| {
        run(file, Case { pcapng: Some(pcapng), ..splitting(SplitOptions::default()) }).1
    };
    let pcapng = to(&file, true);
    assert_eq!(pcapng[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    assert_eq!(packets(&pcapng), packets(&same));
    let back = to(&pcapng, false);
    assert_eq!(back[..4], [0x4d, 0x3c, 0xb2, 0xa1], "nanoseconds, little endian");
    assert_eq!(packets(&back), packets(&same));
}

#[test]
fn what_cannot_be_split_is_passed_on_and_counted() {
    let cut = tcp(1, 5000);
    let mut syn = tcp(1, 5000);
    syn[47] |= 2;
    let mut arp = vec![0; 3000];
    arp[12..14].copy_from_slice(&[8, 6]);
    let mut icmp = tcp(1, 3000);
    icmp[23] = 1;
    let mut list = whole(vec![syn, arp, udp(2000), icmp.clone()]);
    list.push((9, cut[..50].to_vec(), cut.len()));
    let file = pcap(false, 0xa1b2_c3d4, &list);
    let (outcome, out) = run(&file, splitting(SplitOptions::default()));
    assert_eq!(out, file);
    let refused = &outcome.report.split.refused;
    for reason in [
        UnsplitReason::Syn,
        UnsplitReason::NotIp,
        UnsplitReason::UdpSize,
        UnsplitReason::Protocol,
        UnsplitReason::Truncated,
    ] {
        assert_eq!(refused.count(reason), 1, "{reason:?}");
    }
    assert_eq!(refused.total(), 5);
    let said = outcome.report.split.to_string();
    assert!(said.contains("1 packet not split: headers cut by the snapshot length"), "{said}");

    // What options are for.
    let plan =
        SplitOptions { uso: Some(700), fragment: true, max_burst: 4000, ..SplitOptions::default() };
    let (outcome, _) = run(&file, splitting(plan));
    let refused = &outcome.report.split.refused;
    assert_eq!(refused.count(UnsplitReason::UdpSize) + refused.count(UnsplitReason::Protocol), 0);
    assert_eq!(refused.count(UnsplitReason::Burst), 2, "{refused:?}");
    // The builder sets DF.
    assert_eq!(refused.count(UnsplitReason::DontFragment), 1, "{refused:?}");
    icmp[20] = 0;
    let only = pcap(false, 0xa1b2_c3d4, &whole(vec![icmp, tcp(1, 3000)]));
    let fragmenting = SplitOptions { fragment: true, mtu: 1000, ..SplitOptions::default() };
    let (outcome, _) = run(&only, splitting(fragmenting));
    assert_eq!((outcome.report.split.super_packets, outcome.report.split.segments), (2, 8));
    let fixed = SplitOptions { ip_id: IpId::Fixed, ..SplitOptions::default() };
    let (_, out) = run(&only, splitting(fixed));
    let ids: Vec<_> = frames(&out)[1..].iter().map(|frame| [frame[18], frame[19]]).collect();
    assert_eq!(ids, [[0, 0]; 3]);
}

#[test]
fn frames_of_a_packet_that_was_cut_have_true_lengths_and_what_is_there() {
    let packet = tcp(1, 5000);
    let plan = SplitOptions { checksums: Checksums::None, ..SplitOptions::default() };
    let (_, out) = run(&pcap(false, 0xa1b2_c3d4, &whole(vec![packet.clone()])), splitting(plan));
    let pieces = frames(&out);
    // Headers, and no payload; some; a whole segment and more.
    for captured in [54, 154, 54 + 1460 + 7] {
        for format in ["pcap", "pcapng"] {
            let cut = &packet[..captured];
            let file = match format {
                "pcap" => pcap(true, 0xa1b2_c3d4, &[(9, cut.to_vec(), packet.len())]),
                _ => Made::start(false, 6).enhanced(9, cut, packet.len(), &[]).bytes,
            };
            let (outcome, out) = run(&file, splitting(SplitOptions::default()));
            let split = outcome.report.split;
            assert_eq!((split.cut, split.segments, split.refused.total()), (1, 4, 0));
            let said = "1 super-packet of those cut by the snapshot length";
            assert!(split.to_string().contains(said), "{split}");
            let mut left = captured - 54;
            let mut reader =
                Reader::from_stream("out", Box::new(Cursor::new(out))).expect("a header");
            for piece in &pieces {
                let record = reader.next().expect("a record").expect("one more");
                let kept = left.min(piece.len() - 54);
                left -= kept;
                assert_eq!(record.frame.wire_len as usize, piece.len());
                assert_eq!(record.frame.head(), &piece[..54 + kept], "{captured} {format}");
            }
        }
    }
}

#[test]
fn sizes_that_are_said_count_for_what_fits_too_and_a_filter_says_for_which() {
    let file = pcap(false, 0xa1b2_c3d4, &whole(vec![tcp(1, 1000), udp(1000)]));
    let plan = SplitOptions { mss: Some(400), uso: Some(300), ..SplitOptions::default() };
    let lengths = |filter: Option<&str>| {
        let filter = filter.map(str::to_owned);
        let (_, out) = run(&file, Case { filter, ..splitting(plan) });
        frames(&out).iter().map(Vec::len).collect::<Vec<_>>()
    };
    let (tcp, udp) = (14 + 20 + 20, 14 + 40 + 8);
    let split_tcp = [tcp + 400, tcp + 400, tcp + 200];
    let split_udp = [udp + 300, udp + 300, udp + 300, udp + 100];
    assert_eq!(lengths(None), [&split_tcp[..], &split_udp].concat());
    assert_eq!(lengths(Some("tcp port 2000")), [&split_tcp[..], &[udp + 1000]].concat());
    assert_eq!(lengths(Some("udp")), [&[tcp + 1000][..], &split_udp].concat());
}

#[test]
fn a_length_that_was_left_to_the_card_is_found() {
    let mut large = tcp(1, 3000);
    large[16..18].fill(0);
    let (_, out) =
        run(&pcap(false, 0xa1b2_c3d4, &whole(vec![large])), splitting(SplitOptions::default()));
    let (_, wanted) = run(
        &pcap(false, 0xa1b2_c3d4, &whole(vec![tcp(1, 3000)])),
        splitting(SplitOptions::default()),
    );
    assert_eq!(frames(&out), frames(&wanted));
}

#[test]
fn only_checksums_that_were_left_to_the_card_are_filled_in() {
    let (right, mut left, mut wrong) = (tcp(1, 100), tcp(1, 100), tcp(1, 100));
    let pseudo = linerate_wire::checksum::Sum::pseudo_v4(
        [10, 0, 0, 1].into(),
        [10, 0, 0, 2].into(),
        Protocol::TCP,
        120,
    );
    left[50..52].copy_from_slice(&pseudo.folded().to_be_bytes());
    wrong[50] ^= 1;
    // Padding behind the packet stays.
    left.extend([0xee; 3]);
    let list = whole(vec![right.clone(), left.clone(), wrong.clone()]);
    let file = pcap(false, 0xa1b2_c3d4, &list);
    let (outcome, out) = run(&file, Case { fix: true, ..splitting(SplitOptions::default()) });
    assert_eq!(outcome.report.split.checksums, 1);
    let padded = [&right[..], &[0xee; 3]].concat();
    assert_eq!(frames(&out), [right, padded, wrong]);
    assert_eq!(run(&file, splitting(SplitOptions::default())).1, file);
}

/// A VXLAN frame around `inner`, with a valid outer checksum.
fn vxlan(inner: &[u8]) -> Vec<u8> {
    let payload = [&[8, 0, 0, 0, 0, 0, 1, 0], inner].concat();
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv6([1; 16], [2; 16], 64)
        .udp(1000, 4789)
        .write(&mut frame, &payload)
        .expect("a packet");
    frame
}

/// The kernel leaves the sum of the outer datagram to the card where the packet inside leaves none, or has its own.
#[test]
fn the_outer_checksum_of_a_tunnel_is_filled_in_whatever_is_inside() {
    let mut arp = vec![0xff; 12];
    arp.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    arp.resize(42, 3);
    let mut mld = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 3], [0x33, 0x33, 0, 0, 0, 0x16])
        .ipv6([3; 16], [4; 16], 1)
        .icmpv6_raw(143, 0, [0; 4])
        .write(&mut mld, &[0; 4])
        .expect("a packet");
    for inner in [arp, mld, tcp(1, 100), udp(100)] {
        let right = vxlan(&inner);
        let (mut left, mut wrong) = (right.clone(), right.clone());
        let length = (right.len() - 54) as u32;
        let pseudo = linerate_wire::checksum::Sum::pseudo_v6(
            [1; 16].into(),
            [2; 16].into(),
            Protocol::UDP,
            length,
        );
        left[60..62].copy_from_slice(&pseudo.folded().to_be_bytes());
        wrong[60] ^= 1;
        let list = whole(vec![left, right.clone(), wrong.clone()]);
        let file = pcap(false, 0xa1b2_c3d4, &list);
        let (outcome, out) = run(&file, Case { fix: true, ..splitting(SplitOptions::default()) });
        assert_eq!(outcome.report.split.checksums, 1);
        assert_eq!(frames(&out), [right.clone(), right, wrong]);
    }
}

#[test]
fn link_types_of_any_and_of_tunnels_are_split_behind_their_headers() {
    let large = tcp(1, 3000);
    let ip = &large[14..];
    let mut cooked = [0; 16];
    cooked[14..].copy_from_slice(&[8, 0]);
    let mut cooked2 = [0; 20];
    cooked2[..2].copy_from_slice(&[8, 0]);
    for (linktype, header) in
        [(101, &[][..]), (228, &[]), (113, &cooked), (276, &cooked2), (0, &[2, 0, 0, 0])]
    {
        let mut file = pcap(false, 0xa1b2_c3d4, &whole(vec![[header, ip].concat()]));
        file[20..22].copy_from_slice(&u16::to_le_bytes(linktype));
        let (outcome, out) = run(&file, splitting(SplitOptions::default()));
        assert_eq!(outcome.report.split.segments, 3, "link type {linktype}");
        assert!(frames(&out).iter().all(|frame| frame.starts_with(header)));
        let (_, joined) = run(&out, joining());
        let frames = frames(&joined);
        assert_eq!(frames.len(), 1, "link type {linktype}");
        // All but the checksum of the IP header, which the builder counts from another identification.
        assert_eq!(frames[0], [header, ip].concat());
    }
    let mut file = pcap(false, 0xa1b2_c3d4, &whole(vec![large]));
    file[20] = 147;
    let (outcome, out) = run(&file, splitting(SplitOptions::default()));
    assert_eq!((out, outcome.report.split.refused.count(UnsplitReason::LinkType)), (file, 1));
}

/// `frame` in VXLAN or Geneve, to this port.
fn in_tunnel(frame: &[u8], header: [u8; 8], port: u16) -> Vec<u8> {
    let mut outer = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 3], [2, 0, 0, 0, 0, 4])
        .ipv4([10, 1, 0, 1], [10, 1, 0, 2], 64)
        .udp(50_000, port)
        .write(&mut outer, &[&header[..], frame].concat())
        .expect("a packet");
    outer
}

#[test]
fn tunnels_on_other_ports_are_split_joined_and_completed_if_these_are_named() {
    let (vxlan, geneve) = ([8, 0, 0, 0, 0, 0, 1, 0], [0, 0, 0x65, 0x58, 0, 0, 1, 0]);
    let named = TunnelPorts { vxlan: 8472, geneve: 7000, ..TunnelPorts::default() };
    for (header, port) in [(vxlan, 8472), (geneve, 7000)] {
        let large = in_tunnel(&tcp(1, 3000), header, port);
        let file = pcap(false, 0xa1b2_c3d4, &whole(vec![large.clone()]));
        let (outcome, out) = run(&file, splitting(SplitOptions::default()));
        let refused = &outcome.report.split.refused;
        assert_eq!((out, refused.count(UnsplitReason::UdpSize)), (file.clone(), 1), "{port}");
        let case = |case| Case { ports: named, ..case };
        let (outcome, out) = run(&file, case(splitting(SplitOptions::default())));
        assert_eq!(outcome.report.split.segments, 3, "{port}");
        let (outcome, _) = run(&out, case(joining()));
        assert_eq!(outcome.report.joined.expect("joined").super_packets, 1, "{port}");
        // A sender that left the inner checksum to its card.
        let mut partial = in_tunnel(&tcp(1, 100), header, port);
        let sum = 14 + 20 + 8 + 8 + 14 + 20 + 16;
        let pseudo: u32 = 0x0a00 + 0x0001 + 0x0a00 + 0x0002 + 6 + 120;
        partial[sum..sum + 2].copy_from_slice(&(pseudo as u16).to_be_bytes());
        let file = pcap(false, 0xa1b2_c3d4, &whole(vec![partial]));
        for (ports, completed) in [(named, 1), (TunnelPorts::default(), 0)] {
            let case = Case { ports, fix: true, ..splitting(SplitOptions::default()) };
            assert_eq!(run(&file, case).0.report.split.checksums, completed, "{port} {ports:?}");
        }
    }
}

#[test]
fn datagrams_of_gtp_u_are_split_and_not_joined() {
    // A tunnel without an Ethernet frame inside.
    let inner = &tcp(1, 3000)[14..];
    let len = (inner.len() as u16).to_be_bytes();
    let large = in_tunnel(inner, [0x30, 255, len[0], len[1], 0, 0, 1, 0], 2152);
    let file = pcap(false, 0xa1b2_c3d4, &whole(vec![large]));
    let (outcome, out) = run(&file, splitting(SplitOptions::default()));
    assert_eq!(outcome.report.split.segments, 3);
    let (outcome, again) = run(&out, joining());
    assert_eq!(outcome.report.joined.expect("joined").super_packets, 0);
    assert_eq!(frames(&again), frames(&out));
}

#[test]
fn joined_frames_stand_where_the_first_stood() {
    let (_, split) = run(
        &pcap(false, 0xa1b2_c3d4, &whole(vec![tcp(1, 3000)])),
        splitting(SplitOptions::default()),
    );
    let mut one = frames(&split);
    let other = udp(10);
    one.insert(1, other.clone());
    // 10 microseconds apart: 0, 10, 20, 30.
    let file = pcap(false, 0xa1b2_c3d4, &whole(one));
    let (outcome, out) = run(&file, joining());
    let out = packets(&out);
    let summary: Vec<_> =
        out.iter().map(|(frame, time, _)| (frame.len(), time % 1_000_000)).collect();
    assert_eq!(summary, [(54 + 3000, 0), (other.len(), 10_000)]);
    let joined = outcome.report.joined.expect("joined");
    assert_eq!((joined.super_packets, joined.frames, joined.alone.total()), (1, 3, 1));
    assert_eq!((outcome.report.written, outcome.report.unwritten), (2, 0));
    // The gap is longer than the hold: nothing grows.
    let mut case = joining();
    if let Operation::Join(joining) = &mut case.operation {
        joining.hold = 5000;
    }
    assert_eq!(run(&file, case).0.report.joined.expect("joined").super_packets, 0);
}

#[test]
fn joining_raises_the_snapshot_length_and_splitting_does_not() {
    let file = pcap(false, 0xa1b2_c3d4, &whole(vec![tcp(1, 100)]));
    let snaplen = |file: &[u8]| u32::from_le_bytes(file[16..20].try_into().expect("four"));
    assert_eq!(snaplen(&run(&file, splitting(SplitOptions::default())).1), 70_000);
    assert_eq!(snaplen(&run(&file, joining()).1), 262_144);
}

#[test]
fn a_damaged_file_gives_what_stands_before_the_damage() {
    let mut file = pcap(false, 0xa1b2_c3d4, &whole(vec![tcp(1, 3000), tcp(3001, 10)]));
    let len = file.len();
    file.truncate(len - 4);
    for case in [splitting(SplitOptions::default()), joining()] {
        let (outcome, out) = run(&file, case);
        let error = outcome.failure.expect("trouble");
        let truncated = matches!(
            error,
            linerate_capture::Error::File(FileError::Truncated { salvaged: 1, .. })
        );
        assert!(truncated, "{error}");
        assert_eq!(outcome.report.read, 1);
        assert!(!frames(&out).is_empty());
    }
}

#[test]
fn a_full_disk_leaves_whole_packets_and_is_counted() {
    let file = pcap(false, 0xa1b2_c3d4, &whole(vec![tcp(1, 3000)]));
    let outcome = run_into(Path::new("/dev/full"), &file, splitting(SplitOptions::default()));
    let error = outcome.failure.expect("trouble").to_string();
    assert!(error.contains("cannot write /dev/full"), "{error}");
    assert_eq!((outcome.report.written, outcome.report.unwritten), (0, 3));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_end_in_a_word_and_not_in_a_panic(
        noise in prop::collection::vec(any::<u8>(), 0..60),
        at in 0..700_usize,
        big in any::<bool>(),
        fix in any::<bool>(),
    ) {
        let made = Made::start(big, 9);
        let option = made.option(1, b"x");
        let large = tcp(1, 300);
        let files = [
            made.others().enhanced(1, &large, large.len(), &[&option]).enhanced(2, &large, 900, &[]).bytes,
            pcap(big, 0xa1b2_c3d4, &whole(vec![tcp(1, 200), tcp(201, 100)])),
        ];
        for mut file in files {
            let at = at.min(file.len());
            let end = (at + noise.len()).min(file.len());
            file[at..end].copy_from_slice(&noise[..end - at]);
            let plan = SplitOptions { mtu: 100, uso: Some(20), fragment: true, ..SplitOptions::default() };
            for case in [splitting(plan), joining()] {
                if BlockReader::from_stream("made", Box::new(Cursor::new(file.clone()))).is_ok() {
                    let (outcome, _) = run(&file, Case { fix, ..case });
                    prop_assert_eq!(outcome.report.unwritten, 0);
                }
            }
        }
    }
}
