use super::*;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

fn spec() -> FilterSpec {
    let ip = |text: &str| text.parse().unwrap();
    FilterSpec {
        port: 7000,
        mac: ethernet::Address(MAC),
        unicast: vec![ip("10.0.0.2"), ip("10.0.0.3"), ip("fd00::2")],
        ipv6: true,
        own_sources: vec![
            (Ipv4Addr::new(10, 0, 0, 2), 32),
            (Ipv4Addr::new(10, 0, 9, 9), 32),
            (Ipv4Addr::new(10, 8, 0, 0), 16),
        ],
        groups: vec![
            (ip("239.1.1.1"), vec![]),
            (ip("232.1.1.1"), vec![ip("10.0.0.7"), ip("10.0.0.8")]),
            (ip("ff15::1"), vec![]),
            (ip("ff35::1"), vec![ip("fd00::7")]),
        ],
        max_frame: 1792,
    }
}

fn frame(mac: [u8; 6], source: &str, destination: &str, port: u16) -> Vec<u8> {
    let mut bytes = [mac, [4; 6]].concat();
    match (source.parse().unwrap(), destination.parse().unwrap()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            bytes.extend([8, 0, 0x45, 0, 0, 33, 0, 0, 0x40, 0, 64, 17, 0, 0]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 13, 17, 64]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
        }
        _ => panic!("one of each"),
    }
    bytes.extend(9u16.to_be_bytes());
    bytes.extend(port.to_be_bytes());
    bytes.extend([0, 13, 0, 0]);
    bytes.extend(b"hello");
    bytes
}

fn takes(bytes: &[u8]) -> bool {
    spec().compile().unwrap().accepts(bytes, bytes.len() as u32) != 0
}

#[test]
fn what_is_for_the_receiver_is_taken() {
    let group = [1, 0, 0x5e, 1, 1, 1];
    for (mac, source, destination) in [
        (MAC, "10.0.0.1", "10.0.0.2"),
        (MAC, "10.0.0.1", "10.0.0.3"),
        (MAC, "10.7.255.255", "10.0.0.3"),
        (MAC, "10.9.0.0", "10.0.0.3"),
        (MAC, "fd00::1", "fd00::2"),
        (group, "10.0.0.1", "239.1.1.1"),
        (group, "10.0.0.7", "232.1.1.1"),
        (group, "10.0.0.8", "232.1.1.1"),
        (group, "fd00::1", "ff15::1"),
        (group, "fd00::7", "ff35::1"),
    ] {
        assert!(takes(&frame(mac, source, destination, 7000)), "{source} {destination}");
    }
}

#[test]
fn everything_else_goes_to_the_stack() {
    let group = [1, 0, 0x5e, 1, 1, 1];
    for (mac, source, destination, port) in [
        (MAC, "10.0.0.1", "10.0.0.2", 7001),
        (MAC, "10.0.0.1", "10.0.0.4", 7000),
        ([2, 0, 0, 0, 0, 8], "10.0.0.1", "10.0.0.2", 7000),
        ([2, 1, 0, 0, 0, 9], "fd00::1", "fd00::2", 7000),
        (group, "10.0.0.1", "239.1.1.2", 7000),
        (MAC, "10.0.0.1", "239.1.1.1", 7000),
        (group, "10.0.0.9", "232.1.1.1", 7000),
        (group, "fd00::8", "ff35::1", 7000),
        (MAC, "fd00::1", "fd00::3", 7000),
        (MAC, "127.0.0.1", "10.0.0.2", 7000),
        (MAC, "0.0.0.0", "10.0.0.2", 7000),
        (MAC, "10.0.0.2", "10.0.0.3", 7000),
        (MAC, "10.8.0.0", "10.0.0.3", 7000),
        (MAC, "10.8.255.255", "10.0.0.3", 7000),
        (group, "10.0.9.9", "239.1.1.1", 7000),
        (MAC, "239.1.1.1", "10.0.0.2", 7000),
        (MAC, "255.255.255.255", "10.0.0.2", 7000),
        (group, "127.0.0.1", "239.1.1.1", 7000),
        (MAC, "::1", "fd00::2", 7000),
        (MAC, "::ffff:10.0.0.1", "fd00::2", 7000),
        (MAC, "ff02::1", "fd00::2", 7000),
    ] {
        assert!(!takes(&frame(mac, source, destination, port)), "{source} {destination} {port}");
    }
    let good = frame(MAC, "10.0.0.1", "10.0.0.2", 7000);
    // Another type, version or header length, more fragments, a later fragment, another protocol.
    for (at, value) in [(12, 9), (14, 0x55), (14, 0x46), (20, 0x20), (21, 1), (23, 6)] {
        let mut bytes = good.clone();
        bytes[at] = value;
        assert!(!takes(&bytes), "byte {at}");
    }
    for len in 0..38 {
        assert!(!takes(&good[..len]), "{len} bytes");
    }
    assert!(!takes(&[good, vec![0; 1800]].concat()), "longer than a chunk");
}
