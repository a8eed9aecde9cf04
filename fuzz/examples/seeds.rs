//! Writes the seeds of all corpora: `cargo run --manifest-path fuzz/Cargo.toml --example seeds`.

#[allow(dead_code, reason = "shared with the filter tests, which use more of it")]
#[path = "../../crates/linerate-ring/tests/filter/corpus.rs"]
mod corpus;

#[allow(dead_code, reason = "shared with the tests of the segmenter, which use more of it")]
#[path = "../../crates/linerate-segment/tests/segment/build.rs"]
mod build;

use std::fs;
use std::path::Path;

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
    }
    pcapng(&frames)?;
    filters(&frames)?;
    segments()?;
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

fn pcapng(frames: &[&Vec<u8>]) -> std::io::Result<()> {
    let block = |kind: u32, body: &[u8]| {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let length = (body.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes()[..], &length, &body, &length].concat()
    };
    let mut section = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
    section.extend([1, 0, 0, 0]);
    section.extend([0xff; 8]);
    let mut interface = vec![1, 0, 0, 0, 0, 0, 4, 0];
    interface.extend([2, 0, 4, 0, b'e', b't', b'h', b'0', 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    let head = [block(0x0a0d_0d0a, &section), block(1, &interface)].concat();
    let mut file = head.clone();
    for frame in &frames[..3] {
        let length = (frame.len() as u32).to_le_bytes();
        let mut body = [[0; 4], [0x60, 0xdd, 0x97, 0x17], [0; 4], length, length].concat();
        body.extend(frame.iter());
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend([1, 0, 2, 0, b'h', b'i', 0, 0, 0, 0, 0, 0]);
        file.extend(block(6, &body));
    }
    let simple = [&(frames[0].len() as u32).to_le_bytes()[..], frames[0]].concat();
    let mut statistics = vec![0; 12];
    statistics.extend([4, 0, 8, 0, 7, 0, 0, 0, 0, 0, 0, 0, 5, 0, 8, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    statistics.extend([0; 4]);
    file.extend(block(5, &statistics));
    write("pcapng_reader", "enhanced", &file)?;
    write("pcapng_reader", "cut", &file[..file.len() - 5])?;
    write("pcapng_reader", "simple", &[head.clone(), block(3, &simple)].concat())?;
    write("pcapng_reader", "blocks", &file[head.len()..])
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
        for statement in program.get_instructions() {
            let text = statement.to_string();
            let numbers: Vec<u32> = text.split(' ').map(|n| n.parse().expect("digits")).collect();
            bytes.extend((numbers[0] as u16).to_le_bytes());
            bytes.extend([numbers[1] as u8, numbers[2] as u8]);
            bytes.extend(numbers[3].to_le_bytes());
        }
        let seed = [&[1, (bytes.len() / 4) as u8], &bytes[..], frames[0]].concat();
        write("filter_translator", name, &seed)?;
    }
    for seed in 1..9 {
        let mut random = corpus::Random::new(seed * 77);
        let program: Vec<u8> = (0..20 * seed).map(|_| random.next() as u8).collect();
        let frame = frames[seed as usize % frames.len()];
        let seed_bytes = [&[0, program.len() as u8 / 4], &program[..], frame].concat();
        write("filter_translator", &format!("made-up-{seed}"), &seed_bytes)?;
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
                let seed = |kind, size| [&[kind, size, 0, 0, 0, 9], &packet.build()[..]].concat();
                write("segment", &name, &seed(kind, 64))?;
                write("segment", &format!("{name}-mtu"), &seed(3, 120))?;
                // Options, an edit of a byte and a swap, and the packet whose pieces are joined.
                let edits = [1, 40, 0, 0x40, 0, 2, 0, 0];
                let seed = [&[0, 4, 128, 31, 2][..], &edits, &packet.build()].concat();
                write("coalesce", &name, &seed)?;
            }
        }
    }
    Ok(())
}
