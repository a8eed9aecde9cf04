//! What is sent past the programs: a session of TCP, datagrams with and without a VLAN tag, ARP.

use std::path::Path;

use etherparse::PacketBuilder;

const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SERVER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const A: [u8; 4] = [10, 1, 0, 1];
const B: [u8; 4] = [10, 1, 0, 2];

fn finish(frames: &mut Vec<Vec<u8>>, step: impl FnOnce(&mut Vec<u8>)) {
    let mut frame = Vec::new();
    step(&mut frame);
    frames.push(frame);
}

/// A whole session: handshake, a request, an answer of two segments, the end.
pub(crate) fn session(port: u16) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let request = b"GET /linerate HTTP/1.1\r\nHost: example.org\r\nUser-Agent: test/1.0\r\n\r\n";
    let answer = [
        &b"HTTP/1.1 200 OK\r\nServer: test/1.0\r\nContent-Length: 2000\r\n\r\n"[..],
        &vec![b'x'; 2000][..],
    ]
    .concat();
    let (mut mine, mut yours) = (1000_u32, 9000_u32);
    // From the client or not, flags, payload.
    let (first, second) = answer.split_at(1400);
    let steps: [(bool, &str, &[u8]); 10] = [
        (true, "S", b""),
        (false, "SA", b""),
        (true, "A", b""),
        (true, "PA", request),
        (false, "A", first),
        (false, "PA", second),
        (true, "A", b""),
        (true, "FA", b""),
        (false, "FA", b""),
        (true, "A", b""),
    ];
    for (from_client, flags, payload) in steps {
        let (macs, addresses, ports) = match from_client {
            true => ((CLIENT, SERVER), (A, B), (port, 80)),
            false => ((SERVER, CLIENT), (B, A), (80, port)),
        };
        let (own, other) =
            if from_client { (&mut mine, &mut yours) } else { (&mut yours, &mut mine) };
        let mut tcp = PacketBuilder::ethernet2(macs.0, macs.1)
            .ipv4(addresses.0, addresses.1, 64)
            .tcp(ports.0, ports.1, *own, 29_200);
        if flags.contains('S') {
            tcp = tcp.syn();
        }
        if flags.contains('A') {
            tcp = tcp.ack(*other);
        }
        if flags.contains('P') {
            tcp = tcp.psh();
        }
        if flags.contains('F') {
            tcp = tcp.fin();
        }
        finish(&mut frames, |frame| tcp.write(frame, payload).unwrap());
        *own += payload.len() as u32 + u32::from(flags.contains(['S', 'F']));
    }
    frames
}

/// All of it.
pub(crate) fn frames() -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    // Who has 10.1.0.2? Tell 10.1.0.1.
    let mut arp = [&[0xff; 6][..], &CLIENT, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &CLIENT, &A].concat();
    arp.extend([&[0; 6][..], &B].concat());
    arp.resize(60, 0);
    frames.push(arp);
    for port in [40_000, 40_001] {
        frames.extend(session(port));
    }
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07example\x03org\0\0\x01\0\x01";
    for vlan in [None, Some(7_u16), Some(8)] {
        let ethernet = PacketBuilder::ethernet2(CLIENT, SERVER);
        let ip = match vlan {
            None => ethernet.ipv4(A, B, 64),
            Some(id) => ethernet.single_vlan(id.try_into().unwrap()).ipv4(A, B, 64),
        };
        finish(&mut frames, |frame| ip.udp(5353, 53).write(frame, query).unwrap());
    }
    let large = PacketBuilder::ethernet2(CLIENT, SERVER).ipv4(A, B, 64).udp(7000, 7001);
    finish(&mut frames, |frame| large.write(frame, &[7; 1400]).unwrap());
    frames
}

/// As a classic file.
pub(crate) fn write(path: &Path) {
    write_frames(path, &frames());
}

/// Writes frames as a classic file.
pub(crate) fn write_frames(path: &Path, frames: &[Vec<u8>]) {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    for (number, frame) in frames.iter().enumerate() {
        let len = frame.len() as u32;
        for word in [1_700_000_000, number as u32, len, len] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    std::fs::write(path, file).unwrap();
}
