//! Frames to judge: built by etherparse or written out by hand, then wrapped, cut, bent and made up.

use etherparse::{
    IpFragOffset, IpHeaders, IpNumber, Ipv4Extensions, Ipv4Header, PacketBuilder, TcpOptionElement,
};

const LEFT: [u8; 6] = [2, 0, 0, 0, 0, 1];
const RIGHT: [u8; 6] = [2, 0, 0, 0, 0, 2];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 3];
const BROADCAST: [u8; 6] = [0xff; 6];
const A: [u8; 4] = [192, 0, 2, 1];
const B: [u8; 4] = [192, 0, 2, 2];
const C: [u8; 4] = [198, 51, 100, 7];

/// Numbers that look random and are the same in every run (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit
    }
}

/// Frames of all kinds that the expressions speak of, whole and well-formed. Of the frames with IP
/// inside, one in `thinning` comes in every wrapping too.
pub(crate) fn whole(thinning: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    ipv4(&mut frames);
    ipv6(&mut frames);
    let internet = frames.len();
    link(&mut frames);
    osi(&mut frames);
    for inner in (0..internet).step_by(thinning) {
        let inner = frames[inner].clone();
        wrap(&mut frames, &inner);
    }
    frames
}

/// Whole frames, then each of them cut at several lengths (one in 5 times `thinning` at every
/// length), bent at random places, and noise.
pub(crate) fn all(thinning: usize) -> Vec<Vec<u8>> {
    let mut random = Random::new(0x11ae_7a7e);
    let mut frames = whole(thinning);
    let whole = frames.len();
    for index in 0..whole {
        // The headers end within the first 90 bytes; past them a few lengths are as good as all.
        let step = if index % (5 * thinning) == 0 { 1 } else { 7 * thinning };
        let length = frames[index].len();
        for cut in (index % step..length.min(90)).step_by(step).chain([length - 1, length / 2]) {
            frames.push(frames[index][..cut].to_vec());
        }
        for _ in 0..6 / thinning + 1 {
            let mut bent = frames[index].clone();
            for _ in 0..1 + random.below(4) {
                let at = random.below(bent.len().min(80));
                bent[at] = match random.below(3) {
                    0 => random.next() as u8,
                    1 => bent[at] ^ (1 << random.below(8)),
                    _ => [0, 1, 0x7f, 0x80, 0xfe, 0xff][random.below(6)],
                };
            }
            frames.push(bent);
        }
    }
    for length in (0..64).chain([100, 127, 128, 255, 256, 999, 1000, 1001, 1500, 1514, 3000]) {
        frames.push((0..length).map(|_| random.next() as u8).collect());
        frames.push(vec![0; length]);
        frames.push(vec![0xff; length]);
    }
    frames
}

fn ipv4(frames: &mut Vec<Vec<u8>>) {
    let mut push = |frame| frames.push(frame);
    let eth = || PacketBuilder::ethernet2(LEFT, RIGHT);
    for (from, to, size) in
        [(53, 1024, 30), (1024, 53, 0), (53, 53, 8), (5000, 60, 300), (0, 65535, 1), (9, 6081, 4)]
    {
        push(build(|out| eth().ipv4(A, B, 64).udp(from, to).write(out, &vec![0; size])));
        push(build(|out| eth().ipv4(B, C, 255).udp(to, from).write(out, &vec![7; size])));
    }
    for (from, to) in [(80, 40_000), (40_000, 80), (443, 1), (22, 5001), (8080, 99)] {
        let tcp = || eth().ipv4(A, C, 9).tcp(from, to, 1000, 512);
        push(build(|out| tcp().syn().write(out, &[])));
        push(build(|out| tcp().syn().ack(1).write(out, &[])));
        push(build(|out| tcp().ack(77).psh().write(out, b"GET / HTTP/1.1\r\n\r\n")));
        push(build(|out| tcp().fin().ack(3).write(out, &[0; 9])));
        push(build(|out| tcp().rst().write(out, &[])));
        push(build(|out| tcp().urg(4).ece().cwr().ns().write(out, &[1; 5])));
        let options = [TcpOptionElement::MaximumSegmentSize(1460), TcpOptionElement::Noop];
        push(build(|out| tcp().ack(9).options(&options).unwrap().write(out, b"GET /x")));
    }
    for (kind, code) in [(8, 0), (0, 0), (3, 3), (3, 1), (11, 0), (5, 1)] {
        let rest = [0, 7, 0, 1];
        let icmp = |to, ttl| eth().ipv4(A, to, ttl).icmpv4_raw(kind, code, rest);
        push(build(|out| icmp(B, 64).write(out, &[0x45; 40])));
        push(build(|out| icmp(C, 3).write(out, &[])));
    }
    for (protocol, payload) in [
        (2, &[0x16, 0, 0, 0, 224, 0, 0, 9][..]),
        (9, &[0; 20]),
        (47, &[0, 0, 8, 0, 0x45, 0, 0, 20]),
        (50, &[0, 0, 0, 1, 0, 0, 0, 2, 9, 9, 9, 9]),
        (51, &[17, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 53, 0, 53, 0, 8, 0, 0]),
        (103, &[0x20, 0, 0, 0]),
        (112, &[0x21, 1, 100, 1, 0, 1, 0, 0]),
        (132, &[0, 9, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 20]),
        (255, &[1, 2, 3]),
    ] {
        push(ethernet(LEFT, RIGHT, 0x0800, &packet(A, B, protocol, 0, false, &[], payload)));
        let group = [224, 0, 0, 9];
        let multicast = [1, 0, 0x5e, 0, 0, 9];
        push(ethernet(
            LEFT,
            multicast,
            0x0800,
            &packet(C, group, protocol, 0, false, &[], payload),
        ));
    }
    let datagram = [0, 53, 0, 53, 0, 40, 0x12, 0x34, 9, 9, 9, 9, 9, 9, 9, 9];
    for (offset, more) in [(0, true), (1, true), (185, false), (0x1fff, false)] {
        push(ethernet(LEFT, RIGHT, 0x0800, &packet(A, B, 17, offset, more, &[], &datagram)));
        push(ethernet(LEFT, RIGHT, 0x0800, &packet(A, B, 6, offset, more, &[], &datagram)));
    }
    for options in [&[1; 4][..], &[1; 40]] {
        push(ethernet(LEFT, RIGHT, 0x0800, &packet(A, B, 17, 0, false, options, &datagram)));
        push(ethernet(LEFT, RIGHT, 0x0800, &packet(A, B, 6, 0, false, options, &[0x50; 24])));
    }
    let limited = [255; 4];
    push(ethernet(
        LEFT,
        BROADCAST,
        0x0800,
        &packet([10, 1, 2, 3], limited, 17, 0, false, &[], &datagram),
    ));
    push(ethernet(
        OTHER,
        LEFT,
        0x0800,
        &packet([203, 0, 113, 9], [10, 0, 0, 1], 17, 0, true, &[], &datagram),
    ));
    push(ethernet(OTHER, LEFT, 0x0800, &packet(A, A, 1, 0, false, &[], &datagram)));
    // Lengths that lie: total length, header length and version.
    for (at, value) in [(16, 0xff), (17, 0x14), (14, 0x4f), (14, 0x40), (14, 0x65), (38, 0xff)] {
        let mut lying = ethernet(LEFT, RIGHT, 0x0800, &packet(A, B, 17, 0, false, &[], &datagram));
        lying[at] = value;
        push(lying);
    }
    let mut unchecked = build(|out| eth().ipv4(A, B, 64).udp(4000, 9).write(out, &[0; 1000]));
    unchecked[40..42].fill(0);
    push(unchecked);
    push(build(|out| eth().ipv4(A, B, 64).udp(53, 9).write(out, &[0; 1472])));
}

fn ipv6(frames: &mut Vec<Vec<u8>>) {
    let address = |last: u8| [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let subnet = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9];
    let link_local = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let all_nodes = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let multicast = [0x33, 0x33, 0, 0, 0, 1];
    let mut push = |frame| frames.push(frame);
    for (source, destination) in [
        (address(1), address(2)),
        (address(2), subnet),
        (subnet, link_local),
        (link_local, all_nodes),
    ] {
        let to = if destination == all_nodes { multicast } else { RIGHT };
        let ip = || PacketBuilder::ethernet2(LEFT, to).ipv6(source, destination, 64);
        push(build(|out| ip().udp(53, 1024).write(out, &[0; 12])));
        push(build(|out| ip().udp(4000, 53).write(out, &[])));
        push(build(|out| ip().tcp(50_000, 443, 1000, 9).syn().write(out, &[])));
        push(build(|out| ip().tcp(80, 50_000, 1, 9).ack(1).psh().write(out, b"GET /")));
        push(build(|out| ip().icmpv6_echo_request(7, 1).write(out, &[0; 8])));
        push(build(|out| ip().icmpv6_echo_reply(7, 1).write(out, &[0; 8])));
        for kind in [134, 135, 1] {
            push(build(|out| ip().icmpv6_raw(kind, 0, [0; 4]).write(out, &[0; 20])));
        }
        for (next, payload) in [
            (0, &[17, 0, 5, 2, 0, 0, 1, 0, 0, 53, 0, 53, 0, 8, 0, 0][..]),
            (44, &[17, 0, 0, 1, 0, 0, 0, 5, 0, 53, 0, 53, 0, 8, 0, 0]),
            (44, &[6, 0, 5, 0x88, 0, 0, 0, 5, 0, 53, 0, 53, 0, 8, 0, 0]),
            (51, &[6, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 80, 0, 80]),
            (50, &[0, 0, 0, 1, 0, 0, 0, 1]),
            (103, &[0x20, 0, 0, 0]),
            (112, &[0x31, 1, 100, 1]),
            (132, &[0, 9, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 4]),
            (59, &[]),
        ] {
            let mut packet = vec![0x60, 0, 0, 0, 0, payload.len() as u8, next, 64];
            packet.extend(source.iter().chain(&destination).chain(payload));
            push(ethernet(LEFT, to, 0x86dd, &packet));
        }
    }
}

/// ARP and others with their own EtherType.
fn link(frames: &mut Vec<Vec<u8>>) {
    let mut push = |frame| frames.push(frame);
    for operation in 1..=4 {
        for (ethertype, to) in [(0x0806, BROADCAST), (0x8035, RIGHT)] {
            let mut body = vec![0, 1, 8, 0, 6, 4, 0, operation];
            body.extend(LEFT.iter().chain(&A).chain(&[0; 6]).chain(&B));
            push(ethernet(LEFT, to, ethertype, &body));
            push([&to[..], &LEFT, &[0x81, 0, 0, 5], &ethertype.to_be_bytes(), &body].concat());
            body[14..18].copy_from_slice(&C);
            body.resize(46, 0);
            push(ethernet(OTHER, to, ethertype, &body));
        }
    }
    for ethertype in [
        0x0600, 0x6001, 0x6002, 0x6004, 0x6007, 0x809b, 0x80f3, 0x8137, 0x8863, 0x88cc, 0x9000,
        0x8848, 0x8847, 0x05dc, 0x0000,
    ] {
        push(ethernet(LEFT, RIGHT, ethertype, &[0; 46]));
        push(ethernet(LEFT, [9, 0, 0x2b, 0, 0, 1], ethertype, &[0x81; 46]));
    }
    // DECnet phase IV: padded or not, short and long headers; node 1.1 to node 10.15.
    let (one, other) = ([0x01, 0x04], [0x0f, 0x28]);
    for flags in [&[0x02][..], &[0x81, 0x02]] {
        let mut short = vec![20, 0];
        short.extend(flags.iter().chain(&other).chain(&one).chain(&[0; 30]));
        push(ethernet(LEFT, RIGHT, 0x6003, &short));
    }
    for flags in [&[0x06][..], &[0x81, 0x06]] {
        let mut long = vec![40, 0];
        long.extend(flags.iter().chain(&[0, 0, 0xaa, 0, 4, 0]).chain(&other));
        long.extend([0, 0, 0xaa, 0, 4, 0].iter().chain(&one).chain(&[0; 30]));
        push(ethernet(LEFT, RIGHT, 0x6003, &long));
    }
}

/// IEEE 802.2 LLC and the protocols above it.
fn osi(frames: &mut Vec<Vec<u8>>) {
    let mut push = |body: &[u8]| {
        frames.push(ethernet(LEFT, RIGHT, body.len() as u16, body));
        frames.push(ethernet(LEFT, [1, 0x80, 0xc2, 0, 0, 0], body.len() as u16, body));
    };
    for saps in [[0x42, 0x42], [0xfe, 0xfe], [0xf0, 0xf0], [0xe0, 0xe0], [0xaa, 0xaa], [0, 0]] {
        for control in [
            0x00, 0x01, 0x05, 0x09, 0x03, 0x13, 0x63, 0x73, 0x43, 0x53, 0x6f, 0x7f, 0xe3, 0xf3,
            0xaf, 0xbf, 0x87, 0x97, 0x0f,
        ] {
            let mut body = vec![saps[0], saps[1], control];
            body.extend([0; 30]);
            push(&body);
        }
    }
    for discriminator in [0x81, 0x82, 0x83] {
        for kind in [1, 15, 16, 17, 18, 20, 24, 25, 26, 27] {
            let mut body = vec![0xfe, 0xfe, 3, discriminator, 27, 1, 0, kind, 1, 0, 0];
            body.extend([0; 20]);
            push(&body);
        }
    }
    for (organisation, kind) in [
        ([0, 0, 0], [0x81, 0x37]),
        ([8, 0, 7], [0x80, 0x9b]),
        ([0, 0, 0], [0x80, 0xf3]),
        ([0, 0, 0], [0x08, 0x00]),
        ([0, 0, 0x0c], [0x20, 0]),
    ] {
        let mut body = vec![0xaa, 0xaa, 3];
        body.extend(organisation.iter().chain(&kind).chain(&[0x45; 30]));
        push(&body);
    }
    push(&[0xff; 40]);
}

/// `inner` behind VLAN tags, MPLS labels, PPPoE and Geneve.
fn wrap(frames: &mut Vec<Vec<u8>>, inner: &[u8]) {
    let (addresses, typed) = inner.split_at(12);
    let payload = &inner[14..];
    let version = if inner[12] == 0x08 { 4 } else { 6 };
    let mut push = |between: &[u8], rest: &[u8]| frames.push([addresses, between, rest].concat());
    push(&[0x81, 0, 0, 5], typed);
    push(&[0x81, 0, 0xe0, 6], typed);
    push(&[0x81, 0, 0x0f, 0xff], typed);
    push(&[0x81, 0, 0x10, 0], typed);
    push(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6], typed);
    push(&[0x81, 0, 0, 5, 0x81, 0, 0, 6], typed);
    push(&[0x91, 0, 0, 5, 0x81, 0, 0, 5], typed);
    let label =
        |label: u32, bottom: bool| (label << 12 | u32::from(bottom) << 8 | 64).to_be_bytes();
    let mpls = [0x88, 0x47];
    push(&[&mpls[..], &label(100, true)].concat(), payload);
    push(&[&mpls[..], &label(0xf_ffff, true)].concat(), payload);
    push(&[&mpls[..], &label(100, false), &label(200, true)].concat(), payload);
    push(&[&[0x81, 0, 0, 5], &mpls[..], &label(7, true)].concat(), payload);
    let ppp: [u8; 2] = if version == 4 { [0, 0x21] } else { [0, 0x57] };
    for session in [7, 8] {
        let length = (payload.len() as u16 + 2).to_be_bytes();
        let pppoe = [&[0x88, 0x64, 0x11, 0, 0, session][..], &length, &ppp].concat();
        push(&pppoe, payload);
        push(&[&[0x81, 0, 0, 5][..], &pppoe].concat(), payload);
    }
    for (options, network, bare) in [(0_u8, 42, false), (2, 42, true), (0, 43, true)] {
        let mut geneve =
            vec![options, 0, if bare { 0x08 } else { 0x65 }, if bare { 0 } else { 0x58 }];
        if bare && version == 6 {
            (geneve[2], geneve[3]) = (0x86, 0xdd);
        }
        geneve.extend([0, 0, network, 0]);
        geneve.extend(vec![0; usize::from(options) * 4]);
        geneve.extend(if bare { payload } else { inner });
        let outer = PacketBuilder::ethernet2(LEFT, RIGHT);
        frames.push(build(|out| outer.ipv4(B, C, 64).udp(4000, 6081).write(out, &geneve)));
        let outer = PacketBuilder::ethernet2(LEFT, RIGHT);
        let (source, destination) = ([0x20; 16], [0xfd; 16]);
        frames.push(build(|out| {
            outer.ipv6(source, destination, 64).udp(4000, 6081).write(out, &geneve)
        }));
    }
    // VLAN inside Geneve.
    let tagged = [&[0, 0, 0x65, 0x58, 0, 0, 42, 0], addresses, &[0x81, 0, 0, 5], typed].concat();
    let outer = PacketBuilder::ethernet2(LEFT, RIGHT);
    frames.push(build(|out| outer.ipv4(B, C, 64).udp(4000, 6081).write(out, &tagged)));
}

fn build<E: std::fmt::Debug>(write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out).expect("etherparse writes what it built");
    out
}

fn ethernet(source: [u8; 6], destination: [u8; 6], kind: u16, payload: &[u8]) -> Vec<u8> {
    [&destination[..], &source, &kind.to_be_bytes(), payload].concat()
}

/// An IPv4 packet; `offset` in units of 8 bytes.
fn packet(
    source: [u8; 4],
    destination: [u8; 4],
    protocol: u8,
    offset: u16,
    more: bool,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let length = payload.len() as u16;
    let mut header =
        Ipv4Header::new(length, 64, IpNumber(protocol), source, destination).expect("it is short");
    header.fragment_offset = IpFragOffset::try_new(offset).expect("13 bits");
    header.more_fragments = more;
    header.options = options.try_into().expect("a multiple of 4, up to 40");
    header.set_payload_len(payload.len()).expect("it is short");
    let mut bytes = Vec::new();
    IpHeaders::Ipv4(header, Ipv4Extensions::default())
        .write(&mut bytes)
        .expect("the headers fit together");
    bytes.extend(payload);
    bytes
}
