//! Writes the committed inputs of all corpora: `cargo run --manifest-path fuzz/Cargo.toml --example corpus`.

#[allow(dead_code, reason = "shared with the filter tests, which use more of it")]
#[path = "../../crates/linerate-bpf/tests/it/filter/corpus.rs"]
mod corpus;

#[allow(dead_code, reason = "shared with the tests of the segmenter, which use more of it")]
#[path = "../../crates/linerate-segment/tests/it/segment/build.rs"]
mod build;

use std::fs;
use std::io::Write;
use std::path::Path;

use linerate_net::netlink::{put_attr, put_nested};

fn main() -> std::io::Result<()> {
    let frames: Vec<Vec<u8>> = corpus::whole(1000).into_iter().filter(|f| f.len() < 200).collect();
    // One frame of each kind is enough: the corpus has several in a row.
    let frames: Vec<&Vec<u8>> = frames.iter().step_by(11).collect();
    for (number, frame) in frames.iter().enumerate() {
        write("header_views", &format!("frame-{number:02}"), frame)?;
    }
    for (name, magic) in [
        ("little-micro", 0xa1b2_c3d4_u32.to_le_bytes()),
        ("big-micro", 0xa1b2_c3d4_u32.to_be_bytes()),
        ("little-nano", 0xa1b2_3c4d_u32.to_le_bytes()),
    ] {
        let word = |number: u32| {
            if name.starts_with("big") { number.to_be_bytes() } else { number.to_le_bytes() }
        };
        let version = if name.starts_with("big") { [0, 2, 0, 4] } else { [2, 0, 4, 0] };
        let mut file = [magic, version, word(0), word(0), word(65_535), word(1)].concat();
        for frame in &frames[..3] {
            let length = word(frame.len() as u32);
            file.extend([word(1_700_000_000), word(999_999), length, length].concat());
            file.extend(frame.iter());
        }
        write("pcap_reader", name, &file)?;
        write("pcap_reader", &format!("{name}-cut"), &file[..file.len() - 9])?;
        if name == "little-micro" {
            compressed("pcap_reader", "little-micro", &file)?;
        }
    }
    pcapng(&frames)?;
    filters(&frames)?;
    segments()?;
    datagrams()?;
    feeds()?;
    rules()?;
    for count in [1, 3] {
        write("block_walk", &format!("block-{count}"), &block(&frames[..count], 0))?;
        write("block_walk", &format!("tagged-{count}"), &block(&frames[..count], 0x50))?;
    }
    Ok(())
}

fn write(target: &str, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(name), bytes)
}

/// The same file as each of the readers' decompressors takes it, whole, cut, and in two streams one
/// after the other.
fn compressed(target: &str, name: &str, file: &[u8]) -> std::io::Result<()> {
    let gzip = |bytes: &[u8]| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(bytes)?;
        gzip.finish()
    };
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 3);
    let lz4 = |bytes: &[u8]| {
        let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
        lz4.write_all(bytes)?;
        Ok(lz4.finish()?)
    };
    let methods: [(&str, &dyn Fn(&[u8]) -> std::io::Result<Vec<u8>>); 3] =
        [("gzip", &gzip), ("zstd", &zstd), ("lz4", &lz4)];
    for (method, compress) in methods {
        let whole = compress(file)?;
        let (first, second) = file.split_at(file.len() / 2);
        let two = [compress(first)?, compress(second)?].concat();
        write(target, &format!("{name}-{method}"), &whole)?;
        write(target, &format!("{name}-{method}-cut"), &whole[..whole.len() * 2 / 3])?;
        write(target, &format!("{name}-{method}-two"), &two)?;
    }
    Ok(())
}

/// Writes pcapng blocks in one byte order.
#[derive(Clone, Copy)]
struct Order {
    big: bool,
}

impl Order {
    fn half(self, number: u16) -> [u8; 2] {
        if self.big { number.to_be_bytes() } else { number.to_le_bytes() }
    }

    fn word(self, number: u32) -> [u8; 4] {
        if self.big { number.to_be_bytes() } else { number.to_le_bytes() }
    }

    fn long(self, number: u64) -> [u8; 8] {
        if self.big { number.to_be_bytes() } else { number.to_le_bytes() }
    }

    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let length = self.word(body.len() as u32 + 12);
        [&self.word(kind)[..], &length, &body, &length].concat()
    }

    fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let head = [self.half(code), self.half(value.len() as u16)].concat();
        let mut option = [head, value.to_vec()].concat();
        option.resize(option.len().next_multiple_of(4), 0);
        option
    }

    /// `length` is that of the section, of which `u64::MAX` says nothing.
    fn section(self, length: u64, options: &[Vec<u8>]) -> Vec<u8> {
        let head = [&self.word(0x1a2b_3c4d)[..], &self.half(1), &self.half(0), &self.long(length)];
        self.block(0x0a0d_0d0a, &[head.concat(), options.concat()].concat())
    }

    fn interface(self, link: u16, options: &[Vec<u8>]) -> Vec<u8> {
        let head = [&self.half(link)[..], &self.half(0), &self.word(1024)];
        self.block(1, &[head.concat(), options.concat()].concat())
    }

    fn packet(self, interface: u32, stamp: u64, frame: &[u8], options: &[Vec<u8>]) -> Vec<u8> {
        let words = [interface, (stamp >> 32) as u32, stamp as u32, frame.len() as u32];
        let mut body = words.map(|number| self.word(number)).concat();
        body.extend(self.word(frame.len() as u32));
        body.extend(frame);
        body.resize(body.len().next_multiple_of(4), 0);
        self.block(6, &[body, options.concat()].concat())
    }

    /// A statistics block with every counter of the format.
    fn statistics(self, interface: u32) -> Vec<u8> {
        let mut body = [self.word(interface), self.word(0x0005_f5e1), self.word(0)].concat();
        for code in 2..=8 {
            body.extend(self.option(code, &self.long(u64::from(code) * 1000)));
        }
        body.extend(self.option(0, &[]));
        self.block(5, &body)
    }
}

fn pcapng(frames: &[&Vec<u8>]) -> std::io::Result<()> {
    for (name, big) in [("little", false), ("big", true)] {
        let order = Order { big };
        let end = order.option(0, &[]);
        let comment = |text: &str| order.option(1, text.as_bytes());
        let ethernet = order.interface(
            1,
            &[
                order.option(2, b"eth0"),
                order.option(9, &[9]),
                order.option(14, &order.long(7)),
                end.clone(),
            ],
        );
        let head = [order.section(u64::MAX, &[]), ethernet.clone()].concat();
        let mut file = head.clone();
        for (number, frame) in frames[..3].iter().enumerate() {
            let stamp = 1_700_000_000_000_000_000 + number as u64;
            file.extend(order.packet(0, stamp, frame, &[comment("hi"), end.clone()]));
        }
        file.extend(order.statistics(0));
        write("pcapng_reader", &format!("{name}-enhanced"), &file)?;
        write("pcapng_reader", &format!("{name}-cut"), &file[..file.len() - 5])?;
        write("pcapng_reader", &format!("{name}-blocks"), &file[head.len()..])?;
        let length = order.word(frames[0].len() as u32);
        let simple = order.block(3, &[&length[..], frames[0]].concat());
        write("pcapng_reader", &format!("{name}-simple"), &[head.clone(), simple].concat())?;

        // A comment wherever there can be one, two on one packet, and options that nobody knows.
        let described = [
            order
                .section(u64::MAX, &[comment("a section"), order.option(3, b"Linux"), end.clone()]),
            order.interface(1, &[comment("an interface"), order.option(6, b"mac!"), end.clone()]),
            order.packet(
                0,
                1,
                frames[1],
                &[
                    comment("one"),
                    order.option(2, &order.word(1)),
                    comment("two"),
                    order.option(0x8bad, b"x"),
                    end.clone(),
                ],
            ),
            order.statistics(0),
        ];
        write("pcapng_reader", &format!("{name}-comments"), &described.concat())?;

        // Sections in both byte orders, each with interfaces of its own, one of a known length.
        let other = Order { big: !big };
        let seconds = other.interface(101, &[other.option(9, &[0x80 | 20]), other.option(0, &[])]);
        let inner = [seconds, ethernet_of(other), other.packet(1, 5, frames[2], &[])].concat();
        let sections = [
            file.clone(),
            other.section(inner.len() as u64, &[]),
            inner,
            other.statistics(1),
            head,
            order.packet(0, 9, frames[0], &[]),
        ];
        write("pcapng_reader", &format!("{name}-sections"), &sections.concat())?;
        // Blocks that a reader passes over: name resolution, decryption secrets, one of its own.
        let passed = [
            file,
            order.block(4, &order.word(0)),
            order.block(10, &[order.word(0x544c_534b), order.word(4), *b"keys"].concat()),
            order.block(0x0000_0bad, &[order.word(32473), *b"mine"].concat()),
            order.packet(0, 11, frames[1], &[]),
        ];
        write("pcapng_reader", &format!("{name}-passed-over"), &passed.concat())?;
    }
    let order = Order { big: false };
    let file =
        [order.section(u64::MAX, &[]), ethernet_of(order), order.packet(0, 5, frames[0], &[])];
    compressed("pcapng_reader", "little", &file.concat())
}

/// An Ethernet interface without options.
fn ethernet_of(order: Order) -> Vec<u8> {
    order.interface(1, &[])
}

/// Programs as libpcap compiles them, and bytes that the target makes programs of.
fn filters(frames: &[&Vec<u8>]) -> std::io::Result<()> {
    let ethernet = pcap::Capture::dead(pcap::Linktype::ETHERNET).expect("it needs no device");
    for (name, expression) in [
        ("udp-port", "udp port 53"),
        ("vlan", "vlan 5 and tcp port 80"),
        ("bytes", "tcp[((tcp[12] & 0xf0) >> 2):4] = 0x47455420"),
        ("host6", "ip6 host 2001:db8::1"),
        ("arithmetic", "ether[12:2] / ether[6] * len % 7 << ether[5] > 3"),
    ] {
        let program = ethernet.compile(expression, false).expect("a sound expression");
        let mut bytes = Vec::new();
        for instruction in program.get_instructions() {
            let text = instruction.to_string();
            let numbers: Vec<u32> = text.split(' ').map(|n| n.parse().expect("digits")).collect();
            bytes.extend((numbers[0] as u16).to_le_bytes());
            bytes.extend([numbers[1] as u8, numbers[2] as u8]);
            bytes.extend(numbers[3].to_le_bytes());
        }
        let input = [&[1, (bytes.len() / 4) as u8], &bytes[..], frames[0]].concat();
        write("filter_translator", name, &input)?;
    }
    for seed in 1..9 {
        let mut random = corpus::Random::new(seed * 77);
        let program: Vec<u8> = (0..20 * seed).map(|_| random.next() as u8).collect();
        let frame = frames[seed as usize % frames.len()];
        let input = [&[0, program.len() as u8 / 4], &program[..], frame].concat();
        write("filter_translator", &format!("made-up-{seed}"), &input)?;
    }
    Ok(())
}

/// A TPACKET_V3 block with `frames`, whose headers have `status`.
fn block(frames: &[&Vec<u8>], status: u32) -> Vec<u8> {
    const BLOCK_HEADER: usize = 48;
    const FRAME_HEADER: usize = 68;
    const MAC: usize = 82;
    let mut block = vec![0; BLOCK_HEADER];
    block[0] = 1;
    block[8] = 1;
    block[12] = frames.len() as u8;
    block[16] = BLOCK_HEADER as u8;
    for (index, frame) in frames.iter().enumerate() {
        let length = (MAC + frame.len()).next_multiple_of(16);
        let next = if index + 1 == frames.len() { 0 } else { length as u32 };
        let captured = frame.len() as u32;
        let words = [next, 1_700_000_000, 5, captured, captured, status];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend([MAC as u8, 0, MAC as u8 + 14, 0]);
        bytes.extend([1, 2, 3, 4, 5, 0, 0, 0, 0, 0x81]);
        bytes.resize(FRAME_HEADER.max(MAC), 0);
        bytes.extend(frame.iter());
        bytes.resize(length, 0);
        block.extend(bytes);
    }
    [&[0][..], &block].concat()
}

/// Six bytes of options (kind, size, checksums, flags, fragment identification) and a packet; the same
/// packets for the way back.
fn segments() -> std::io::Result<()> {
    use build::{Network, Packet, Tunnel};

    let tunnels = [
        ("plain", None),
        ("vxlan", Some(Tunnel::Vxlan { checksum: true, group: false })),
        ("geneve", Some(Tunnel::Geneve { checksum: false, options: vec![1; 8], bridged: true })),
        ("gre", Some(Tunnel::Gre { checksum: true, key: Some(7), bridged: false })),
        ("ip", Some(Tunnel::Ip)),
    ];
    for (name, tunnel) in tunnels {
        for v6 in [false, true] {
            let network = if v6 { Network::v6() } else { Network::default() };
            for (kind, packet) in [(0_u8, Packet::tcp(150)), (1, Packet::udp(150))] {
                let outer = tunnel.clone().map(|tunnel| (network.clone(), tunnel));
                let packet = Packet { outer, network: network.clone(), ..packet };
                let version = if v6 { 6 } else { 4 };
                let protocol = if kind == 0 { "tcp" } else { "udp" };
                let name = format!("{name}-{protocol}{version}");
                let input = |kind, size| [&[kind, size, 0, 0, 0, 9], &packet.build()[..]].concat();
                write("segment", &name, &input(kind, 64))?;
                write("segment", &format!("{name}-mtu"), &input(3, 120))?;
                // Options, an edit of a byte and a swap, and the packet whose pieces are joined.
                let edits = [1, 40, 0, 0x40, 0, 2, 0, 0];
                let input = [&[0, 4, 128, 31, 2][..], &edits, &packet.build()].concat();
                write("coalesce", &name, &input)?;
            }
        }
    }
    Ok(())
}

/// UDP in frames: good ones, and each kind of what is refused or left to the stack.
fn datagrams() -> std::io::Result<()> {
    use etherparse::PacketBuilder;
    let ethernet = || PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let build = |builder: etherparse::PacketBuilderStep<etherparse::UdpHeader>, payload: &[u8]| {
        let mut frame = Vec::new();
        builder.write(&mut frame, payload).expect("a vector takes all bytes");
        frame
    };
    let v4 =
        build(ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(9, 7000), b"LNRT\0\0\0\x01");
    let v6 = build(ethernet().ipv6([1; 16], [2; 16], 64).udp(9, 7000), b"one more message");
    let edited = |frame: &[u8], edits: &[(usize, u8)]| {
        let mut frame = frame.to_vec();
        edits.iter().for_each(|&(at, byte)| frame[at] = byte);
        frame
    };
    // The sum of the pseudo header, which a sender leaves for hardware to finish: 0a00 twice, 0001,
    // 0002, the protocol and the length of 16.
    let unfinished = edited(&v4, &[(40, 0x14), (41, 0x24)]);
    for (name, frame) in [
        ("ipv4", v4.clone()),
        ("ipv6", v6.clone()),
        ("ipv4-empty", build(ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(9, 7000), b"")),
        ("ipv4-padded", [&v4[..], &[0; 10]].concat()),
        ("ipv4-cut", v4[..v4.len() - 3].to_vec()),
        ("ipv4-no-sum", edited(&v4, &[(40, 0), (41, 0)])),
        ("ipv4-unfinished", unfinished),
        ("ipv4-wrong-sum", edited(&v4, &[(40, 0x55)])),
        ("ipv4-options", edited(&v4, &[(14, 0x46)])),
        ("ipv4-fragment", edited(&v4, &[(20, 0x20)])),
        ("ipv4-length-too-long", edited(&v4, &[(39, 200)])),
        ("ipv4-length-too-short", edited(&v4, &[(39, 7)])),
        ("ipv6-no-sum", edited(&v6, &[(60, 0), (61, 0)])),
        ("ipv6-extension", edited(&v6, &[(20, 0)])),
        ("tagged", [&v4[..12], &[0x81, 0, 0, 7], &v4[12..]].concat()),
    ] {
        write("udp_frame", name, &frame)?;
    }
    Ok(())
}

/// MoldUDP64 packets as the target reads them: each behind its length, whose highest bit is the line.
fn feeds() -> std::io::Result<()> {
    let packet = |line: u8, session: &[u8; 10], first: u64, count: u16, messages: &[&[u8]]| {
        let mut packet = [&session[..], &first.to_be_bytes(), &count.to_be_bytes()].concat();
        for message in messages {
            packet.extend((message.len() as u16).to_be_bytes());
            packet.extend(*message);
        }
        packet.insert(0, line << 7 | packet.len() as u8);
        packet
    };
    let (one, two) = (b"SESSION001", b"SESSION002");
    let in_order = [packet(0, one, 1, 2, &[b"a", b"bc"]), packet(0, one, 3, 1, &[b"def"])].concat();
    let both_lines = [0, 1].map(|line| packet(line, one, 1, 2, &[b"a", b""])).concat();
    let gap_closed = [
        packet(0, one, 1, 1, &[b"a"]),
        packet(0, one, 4, 1, &[b"d"]),
        packet(1, one, 2, 1, &[b"b"]),
        packet(1, one, 3, 2, &[b"c", b"d"]),
    ];
    let heartbeat = [packet(0, one, 1, 1, &[b"a"]), packet(0, one, 9, 0, &[])].concat();
    let end = [packet(0, one, 1, 1, &[b"a"]), packet(0, one, 2, u16::MAX, &[])].concat();
    let sessions = [packet(0, one, 7, 1, &[b"a"]), packet(0, two, 1, 1, &[b"b"])].concat();
    for (name, bytes) in [
        ("in-order", in_order),
        ("both-lines", both_lines),
        ("gap-closed", gap_closed.concat()),
        ("heartbeat", heartbeat),
        ("end", end),
        ("sessions", sessions),
        ("fewer-than-said", packet(0, one, 1, 3, &[b"a"])),
        ("last-number", packet(0, one, u64::MAX, 1, &[b"a"])),
        ("short", packet(0, one, 1, 1, &[b"abc"])[..20].to_vec()),
    ] {
        write("moldudp64", name, &bytes)?;
    }
    Ok(())
}

/// Rules of both packet filters, in the form of the target `ruleset`.
fn rules() -> std::io::Result<()> {
    let input = |flags: u8, messages: &[u8], table: &[u8]| {
        [&[flags], &(messages.len() as u16).to_le_bytes()[..], messages, table].concat()
    };
    let messages = nftables();
    for (name, family) in [("ip", 2), ("bridge", 7)] {
        let messages = messages.iter().flat_map(|(kind, body)| message(family, *kind, body));
        write(
            "ruleset",
            &format!("nftables-{name}"),
            &input(0, &messages.collect::<Vec<_>>(), &[]),
        )?;
    }
    let udp = [0_u16, u16::MAX, 53, 53, 0].map(u16::to_ne_bytes).concat();
    // Seconds, hits, what to do.
    let recent = [&[0; 8][..], &[2], &[0; 227]].concat();
    for (name, info) in [("udp", &udp), ("recent", &recent)] {
        for (flags, version) in [(0, "4"), (1, "6")] {
            let table = table(flags == 1, name, info);
            write("ruleset", &format!("xtables-{name}-{version}"), &input(flags, &[], &table))?;
        }
    }
    Ok(())
}

/// A message of nftables.
fn message(family: u8, kind: u16, body: &[u8]) -> Vec<u8> {
    let length = (20 + body.len() as u32).to_ne_bytes();
    [&length[..], &(10 << 8 | kind).to_ne_bytes(), &[0; 10], &[family, 0, 0, 0], body].concat()
}

/// A chain that hooks forwarding, a set with an interval, and rules that look packets up in it, limit and log.
fn nftables() -> Vec<(u16, Vec<u8>)> {
    let number = |value: u32| value.to_be_bytes();
    let names = |buffer: &mut Vec<u8>, kinds: [u16; 2]| {
        put_attr(buffer, kinds[0], b"t\0");
        put_attr(buffer, kinds[1], b"c\0");
    };
    let mut chain = Vec::new();
    names(&mut chain, [1, 3]);
    put_nested(&mut chain, 4, |hook| {
        put_attr(hook, 1, &number(2));
        put_attr(hook, 2, &number(0));
    });
    put_attr(&mut chain, 7, b"filter\0");
    let mut set = Vec::new();
    names(&mut set, [1, 2]);
    for (kind, value) in [(3, 4), (5, 4)] {
        put_attr(&mut set, kind, &number(value));
    }
    let mut elements = Vec::new();
    names(&mut elements, [1, 2]);
    put_nested(&mut elements, 3, |list| {
        for (address, flags) in [([10, 0, 0, 0], 0), ([11, 0, 0, 0], 1)] {
            put_nested(list, 1, |element| {
                put_nested(element, 1, |key| put_attr(key, 1, &address));
                put_attr(element, 3, &number(flags));
            });
        }
    });
    let rule = |expressions: &[(&[u8], &[(u16, &[u8])])]| {
        let mut rule = Vec::new();
        names(&mut rule, [1, 2]);
        put_attr(&mut rule, 3, &7u64.to_be_bytes());
        put_nested(&mut rule, 4, |list| {
            for (name, fields) in expressions {
                put_nested(list, 1, |expression| {
                    put_attr(expression, 1, name);
                    put_nested(expression, 2, |data| {
                        fields.iter().for_each(|(kind, value)| put_attr(data, *kind, value));
                    });
                });
            }
        });
        (6, rule)
    };
    // The source address of IPv4 into the first register.
    let payload: &[(u16, &[u8])] =
        &[(1, &number(1)), (2, &number(1)), (3, &number(12)), (4, &number(4))];
    let looked_up = rule(&[
        (b"payload\0", payload),
        (b"lookup\0", &[(1, b"c\0"), (2, &number(1))]),
        (b"limit\0", &[]),
    ]);
    let mark: &[(u16, &[u8])] = &[(2, &number(3)), (1, &number(1))];
    let mut five = Vec::new();
    put_attr(&mut five, 1, &5u32.to_ne_bytes());
    let logged = rule(&[
        (b"meta\0", mark),
        (b"cmp\0", &[(1, &number(1)), (2, &number(0)), (3, &five)]),
        (b"log\0", &[]),
    ]);
    vec![(3, chain), (9, set), (12, elements), looked_up, logged]
}

/// `struct ipt_getinfo` and the entries of a table with one rule, which has one match, and the policy to accept.
fn table(is_ipv6: bool, name: &str, info: &[u8]) -> Vec<u8> {
    let matched = if is_ipv6 { 136_usize } else { 84 };
    let head = if is_ipv6 { 168_usize } else { 112 };
    let info = [info, &vec![0; info.len().next_multiple_of(8) - info.len()]].concat();
    let extension = |name: &str, info: &[u8]| {
        let mut bytes = ((32 + info.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend(name.bytes());
        bytes.resize(32, 0);
        bytes.extend(info);
        bytes
    };
    let verdict = |code: i32| extension("", &[code.to_ne_bytes(), [0; 4]].concat());
    let entry = |matches: &[u8], verdict: &[u8]| {
        let mut bytes = vec![0; head];
        let sizes = [head + matches.len(), head + matches.len() + verdict.len()];
        for (size, at) in sizes.into_iter().zip([matched + 4, matched + 6]) {
            bytes[at..at + 2].copy_from_slice(&(size as u16).to_ne_bytes());
        }
        [&bytes[..], matches, verdict].concat()
    };
    let rule = entry(&extension(name, &info), &verdict(-2));
    let mut bytes = vec![0; 84];
    // The hook `forward`, where it begins, and where its policy is.
    bytes[32..36].copy_from_slice(&(1u32 << 2).to_ne_bytes());
    bytes[36 + 8 + 20..][..4].copy_from_slice(&(rule.len() as u32).to_ne_bytes());
    [&bytes[..], &rule, &entry(&[], &verdict(-2))].concat()
}
