//! The kernel as oracle: generated super-packets are segmented by it and by us, and every byte is
//! compared.
//!
//! What the kernel cannot be asked for by these ways: a fixed identification (it comes from GRO
//! alone), Accurate ECN (from its own TCP alone), and GRE (its segmentation is in a module of its own).
//! A kernel before 6.2 does not know UDP super-packets from outside.

mod compare;
mod differences;
mod generate;
mod packet;
mod tunnel;
pub(crate) mod wire;

use std::collections::BTreeMap;
use std::net::UdpSocket;

use compare::{Case, Comparison, Ours, Totals, describe, is_same, split};
use differences::{DIFFERENCES, ROUTED, TUNNELS};
use generate::Kinds;
use linerate_ring::tun::{Device, Offloads};
use linerate_segment::segment::{Checksums, LinkType, Options, Split};
use linerate_testkit::tools::ip;
use linerate_testkit::{Namespace, Random, probe_or_skip, root_or_skip, skip};
use linerate_wire::checksum;
use linerate_wire::virtio::Header;
use packet::{Shape, TCP, TO};
use tunnel::Tunnel;
use wire::{Seen, Wire, encapsulate, has_vxlan, spy};

/// Cases of each way in, or a number of times as many where time does not matter.
const CASES: u32 = 6000;

/// Whole frames, known by their source address.
fn number(frame: &[u8]) -> Option<u32> {
    let bytes = frame.get(6..12).filter(|bytes| bytes[..2] == [0x02, 0x10])?;
    Some(u32::from_be_bytes([bytes[2], bytes[3], bytes[4], bytes[5]])).filter(|n| *n != u32::MAX)
}

fn ours(case: &Case, kernel: &Seen, checksums: Checksums) -> Ours {
    let mut options = Options { checksums, ..Options::new(case.shape.split()) };
    // What the header asks for is what was meant.
    let told = Options::from_virtio(&case.shape.header(), &case.packet, LinkType::Ethernet);
    assert_eq!(told.map(|told| told.split), Some(options.split), "{:?}", case.shape);
    options.fragment_id = case.shape.fragment_id(kernel);
    split(&case.packet, &options)
}

const FRAMES: Kinds =
    Kinds { tags: 2, fragments: true, longest: 65_535, mtu: 65_000, routed_through: None };

fn times() -> u32 {
    if std::env::var_os("LINERATE_THOROUGH").is_some() { 20 } else { 1 }
}

/// What the kernel lacks for these tests.
fn missing() -> Option<String> {
    let namespace = Namespace::create("able").expect("a namespace");
    match namespace.run(|| Device::builder("able").build()).expect("entered") {
        Err(error) => Some(error.to_string()),
        Ok(device) if device.offloads().contains(Offloads::USO) => None,
        Ok(_) => Some("this kernel does not know UDP super-packets".to_owned()),
    }
}

/// Frames through this wire, whole, with all checksums.
fn frames(wire: &mut Wire) -> Comparison<'_> {
    Comparison {
        wire,
        kinds: FRAMES,
        packet: &Shape::frame,
        header: &Shape::header,
        number,
        ours: &|case, kernel| ours(case, kernel, Checksums::Full),
        differences: &DIFFERENCES,
        spy: None,
    }
}

/// Pins the thread, and with it the work that it causes in the kernel, to one CPU.
fn stay() {
    use linerate_net::cpu;
    cpu::pin(cpu::allowed().expect("CPUs")[0]).expect("stayed");
}

/// Compares, prints the result, and asserts that each listed difference was met.
fn compare(way: &str, mut comparison: Comparison<'_>, seed: u64, count: u32) -> Totals {
    stay();
    let totals = comparison.run(seed, count * times());
    let Totals { same, segments, again, zeros: _, different } = &totals;
    println!(
        "{way}: {same} cases the same, {segments} frames, {again} sent again; different: {different:#?}"
    );
    let listed: BTreeMap<_, usize> =
        comparison.differences.iter().map(|listed| (listed.name, 0)).collect();
    assert_eq!(
        different.keys().collect::<Vec<_>>(),
        listed.keys().collect::<Vec<_>>(),
        "{way}: a difference is listed that there is not"
    );
    assert_eq!(same + different.values().sum::<usize>(), (count * times()) as usize);
    totals
}

#[test]
fn frames_through_a_packet_socket() {
    root_or_skip!();
    probe_or_skip!(missing());
    let mut wire = Wire::packet_socket();
    let comparison = frames(&mut wire);
    compare("packet socket", comparison, 1, CASES);
}

#[test]
fn frames_whose_checksums_are_left_open() {
    root_or_skip!();
    probe_or_skip!(missing());
    let mut wire = Wire::packet_socket_and_checksums();
    let comparison = Comparison {
        kinds: Kinds { fragments: false, ..FRAMES },
        ours: &|case, kernel| ours(case, kernel, Checksums::Partial),
        differences: &DIFFERENCES[..3],
        ..frames(&mut wire)
    };
    compare("packet socket, checksums open", comparison, 2, CASES / 2);
}

#[test]
fn checksums_that_are_zero() {
    root_or_skip!();
    probe_or_skip!(missing());
    let mut wire = Wire::packet_socket();
    let comparison = Comparison {
        kinds: Kinds { fragments: false, ..FRAMES },
        packet: &|shape, number, random| {
            let mut frame = shape.frame(number, random);
            let at = shape.headers_len();
            let size = usize::from(shape.size);
            for segment in frame[at..].chunks_mut(size).filter(|segment| segment.len() > 1) {
                segment[..2].fill(0);
            }
            // A word that is the checksum makes the checksum zero.
            let split = split(&frame, &Options::new(shape.split())).unwrap_or_default();
            for (index, segment) in split.iter().enumerate().filter(|(_, s)| s.len() > at + 1) {
                let offset = if shape.protocol() == TCP { 16 } else { 6 };
                let checksum = at - shape.transport_len() + offset;
                let word = at + index * size;
                frame[word..word + 2].copy_from_slice(&segment[checksum..checksum + 2]);
            }
            frame
        },
        ours: &|case, kernel| {
            let ours = ours(case, kernel, Checksums::Full)?;
            let at = case.shape.headers_len();
            let (checksum, zero) = match case.shape.protocol() {
                TCP => (at - case.shape.transport_len() + 16, [0, 0]),
                _ => (at - 2, [0xff, 0xff]),
            };
            for frame in ours.iter().filter(|frame| frame.len() > at + 1) {
                assert_eq!(frame[checksum..checksum + 2], zero);
            }
            Ok(ours)
        },
        differences: &DIFFERENCES[..3],
        ..frames(&mut wire)
    };
    let totals = compare("checksums of zero", comparison, 7, CASES / 4);
    assert!(totals.zeros > 0, "no single TCP segment");
}

#[test]
fn frames_through_a_tap() {
    root_or_skip!();
    probe_or_skip!(missing());
    let mut wire = Wire::tap();
    let comparison = frames(&mut wire);
    compare("TAP", comparison, 3, CASES);
}

/// Routed packets, known by the end of their source address.
fn routed_number(frame: &[u8]) -> Option<u32> {
    let source = match frame.get(12..14)? {
        [0x08, 0x00] => frame.get(26..30).filter(|source| source[0] == 10)?,
        [0x86, 0xdd] => frame.get(34..38).filter(|_| frame[22..24] == [0xfd, 0x10])?,
        _ => return None,
    };
    u32::from_be_bytes([0, source[1], source[2], source[3]]).checked_sub(256)
}

/// What a router makes of a packet before it segments it.
fn hop(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 6 {
        packet[7] -= 1;
        return packet;
    }
    packet[8] -= 1;
    packet[10..12].fill(0);
    let header_len = usize::from(packet[0] & 15) * 4;
    let sum = checksum::of(&packet[..header_len]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Our packets with the link header that the kernel gave its own.
fn linked(ours: Ours, kernel: &Seen) -> Ours {
    let link = kernel.first().map_or(&[][..], |frame| &frame[..14]);
    assert!(link.is_empty() || link[..6] == TO, "a routed frame goes to the neighbour");
    ours.map(|ours| ours.iter().map(|packet| [link, packet].concat()).collect())
}

#[test]
fn packets_routed_from_a_tun() {
    root_or_skip!();
    probe_or_skip!(missing());
    let mut wire = Wire::tun(65_535);
    let comparison = Comparison {
        kinds: Kinds { tags: 0, ..FRAMES },
        packet: &Shape::packet,
        header: &Shape::header_without_link,
        number: routed_number,
        ours: &|case, kernel| {
            let mut options = Options { link: LinkType::Ip, ..Options::new(case.shape.split()) };
            options.fragment_id = case.shape.fragment_id(kernel);
            linked(split(&hop(&case.packet), &options), kernel)
        },
        ..frames(&mut wire)
    };
    compare("TUN", comparison, 4, CASES);
}

#[test]
fn fragments_of_routed_packets() {
    root_or_skip!();
    probe_or_skip!(missing());
    for mtu in [68, 576, 1006, 1500, 9000] {
        let mut wire = Wire::tun(mtu.into());
        let comparison = Comparison {
            kinds: Kinds { routed_through: Some(mtu), tags: 0, ..FRAMES },
            packet: &|shape, number, random| {
                let mut packet = shape.packet(number, random);
                shape.finish(&mut packet);
                packet
            },
            header: &|_| Header::default(),
            number: routed_number,
            ours: &|case, kernel| {
                let options = Options::new(Split::Fragments { mtu });
                let options = Options { link: LinkType::Ip, ..options };
                linked(split(&hop(&case.packet), &options), kernel)
            },
            differences: if mtu == 68 { &ROUTED } else { &[] },
            ..frames(&mut wire)
        };
        compare(&format!("routed, MTU {mtu}"), comparison, mtu.into(), CASES / 12);
    }
}

#[test]
fn fragments_of_datagrams_from_a_socket() {
    root_or_skip!();
    probe_or_skip!(missing());
    stay();
    let mut random = Random::new(6);
    let mut wire = Wire::packet_socket();
    let near = &wire.cable.a;
    for (here, there, prefix) in [("10.7.0.1", "10.7.0.2", 24), ("fd07::1", "fd07::2", 64)] {
        near.add_address(here.parse().unwrap(), prefix).unwrap();
        near.add_neighbour(there.parse().unwrap(), linerate_testkit::Mac(TO)).unwrap();
    }
    let (mut datagrams, mut halved) = (0, 0);
    for mtu in [1280, 1500, 2304, 9000] {
        wire.cable.a.set_mtu(mtu.into()).unwrap();
        for (here, there) in [("10.7.0.1:7", "10.7.0.2:9"), ("[fd07::1]:7", "[fd07::2]:9")] {
            let socket = wire.sender.run(|| UdpSocket::bind(here)).unwrap().unwrap();
            for _ in 0..100 * times() {
                let len = match random.within(1..=8) {
                    1..=2 => 65_400,
                    // Sizes near whole fragments.
                    3 => 1448 * random.within(2..=20) - 8 + random.within(0..=5),
                    _ => random.within(1..=20_000),
                };
                let message = random.bytes(len);
                socket.send_to(&message, there).unwrap();
                let seen = wire.seen(|frame| {
                    let ip = matches!(frame.get(12..14), Some([0x08, 0x00] | [0x86, 0xdd]));
                    (ip && frame[..6] == TO).then_some(0)
                });
                let kernel = &seen[&0];
                let (whole, id) = datagram(&kernel[0], &message);
                let split_as = Split::Fragments { mtu };
                let options = Options { fragment_id: id, ..Options::new(split_as) };
                let ours = split(&whole, &options);
                if last_is_halved(mtu, &kernel[0], len) {
                    let ours = ours.expect("fragments");
                    let (whole, [first, last]) = kernel.split_at(kernel.len() - 2) else {
                        panic!("MTU {mtu}, {len}: {} frames", kernel.len());
                    };
                    assert_eq!(ours[..ours.len() - 1], *whole, "MTU {mtu}, {len}");
                    let data = [&first[62..], &last[62..]].concat();
                    assert_eq!(ours[ours.len() - 1][62..], data, "MTU {mtu}, {len}");
                    halved += 1;
                    continue;
                }
                assert!(is_same(kernel, &ours), "MTU {mtu}, {len}: {}", describe(kernel, &ours));
                datagrams += 1;
            }
        }
    }
    println!("sockets: {datagrams} datagrams the same, {halved} with one fragment more");
    assert_eq!(datagrams + halved, 800 * times());
    assert!(halved > 0, "a listed difference was not met");
}

/// Whether the kernel makes two fragments of what could be the last one. A socket over IPv6
/// (`__ip6_append_data`) never fills a fragment beyond a multiple of 8 bytes, as a router and we do.
fn last_is_halved(mtu: u16, first: &[u8], message: usize) -> bool {
    let (data, room) = (8 + message, usize::from(mtu) - 48);
    let size = room / 8 * 8;
    first[12] == 0x86 && data > room + 8 && (1..=room - size).contains(&(data % size))
}

/// The datagram of which `first` is the first fragment, or all, and its identification for IPv6.
fn datagram(first: &[u8], message: &[u8]) -> (Vec<u8>, u32) {
    let len = (8 + message.len()) as u16;
    let (mut whole, id) = if first[12] == 0x08 {
        let mut whole = first[..42].to_vec();
        whole[16..18].copy_from_slice(&(20 + len).to_be_bytes());
        whole[20] &= 0x40;
        whole[21] = 0;
        whole[24..26].fill(0);
        let sum = checksum::of(&whole[14..34]);
        whole[24..26].copy_from_slice(&sum.to_be_bytes());
        (whole, 0)
    } else {
        let mut whole = first[..54].to_vec();
        let mut id = 0;
        let udp = if whole[20] == 44 {
            whole[20] = first[54];
            id = u32::from_be_bytes(first[58..62].try_into().unwrap());
            62
        } else {
            54
        };
        whole[18..20].copy_from_slice(&len.to_be_bytes());
        whole.extend(&first[udp..udp + 8]);
        (whole, id)
    };
    whole.extend(message);
    (whole, id)
}

/// Inner frames of a tunnel, known by their source address.
fn tunnelled_number(frame: &[u8]) -> Option<u32> {
    let udp = match frame.get(12..14)? {
        [0x08, 0x00] => 34,
        [0x86, 0xdd] => 54,
        _ => return None,
    };
    let port = u16::from_be_bytes(frame.get(udp + 2..udp + 4)?.try_into().ok()?);
    let options = match port {
        4789 => 0,
        6081 => usize::from(frame.get(udp + 8)? & 0x3f) * 4,
        _ => return None,
    };
    number(frame.get(udp + 16 + options..)?)
}

/// With two tags, a VXLAN device has the kernel segment before the tunnel.
const INNER: Kinds = Kinds { tags: 1, fragments: false, longest: 65_200, mtu: 60_000, ..FRAMES };

#[test]
fn frames_through_a_vxlan_device() {
    root_or_skip!();
    probe_or_skip!(missing());
    if !has_vxlan() {
        skip!("no VXLAN devices in this kernel");
    }
    let kinds = [
        ("local 10.8.0.1 remote 10.8.0.2", "noudpcsum"),
        ("local 10.8.0.1 remote 10.8.0.2", "udpcsum"),
        ("local fd08::1 remote fd08::2", "noudp6zerocsumtx"),
        ("local fd08::1 remote fd08::2", "udp6zerocsumtx udp6zerocsumrx"),
    ];
    for (seed, (ends, checksum)) in kinds.into_iter().enumerate() {
        let mut wire = Wire::through("vx", |sender, cable| {
            for (here, there, prefix) in [("10.8.0.1", "10.8.0.2", 24), ("fd08::1", "fd08::2", 64)]
            {
                cable.a.add_address(here.parse().unwrap(), prefix).unwrap();
                cable.a.add_neighbour(there.parse().unwrap(), linerate_testkit::Mac(TO)).unwrap();
            }
            ip(
                sender,
                &format!(
                    "link add vx mtu 65000 type vxlan id 5 dstport 4789 dev tx {ends} {checksum}"
                ),
            );
            sender.interface("vx").unwrap().up().unwrap();
        });
        let mut spy = spy(&wire);
        let comparison = Comparison {
            kinds: INNER,
            number: tunnelled_number,
            ours: &|case, _| split(&case.packet, &Options::new(case.shape.split())),
            differences: &DIFFERENCES[..3],
            spy: Some(&mut spy),
            ..frames(&mut wire)
        };
        compare(&format!("VXLAN {checksum}"), comparison, seed as u64 + 20, CASES / 6);
    }
}

#[test]
fn packets_in_ip() {
    root_or_skip!();
    probe_or_skip!(missing());
    for (seed, how) in ["tc/ipv4", "tc/ipv6"].into_iter().enumerate() {
        let mut wire = Wire::packet_socket();
        let mut spy = spy(&wire);
        encapsulate(&wire, how);
        let comparison = Comparison {
            // The kernel's helper does not look behind tags.
            kinds: Kinds { tags: 0, ..INNER },
            ours: &|case, _| split(&case.packet, &Options::new(case.shape.split())),
            differences: &DIFFERENCES[..3],
            spy: Some(&mut spy),
            ..frames(&mut wire)
        };
        compare(&format!("IP in IP, {how}"), comparison, seed as u64 + 50, CASES / 4);
    }
}

#[test]
fn tunnels_through_a_tap() {
    root_or_skip!();
    probe_or_skip!(missing());
    let mut wire = Wire::tap();
    if !wire.takes_tunnels() {
        skip!("TUN devices of this kernel know no tunnels");
    }
    let tunnels = [
        (true, None, false),
        (true, None, true),
        (false, None, true),
        (false, None, false),
        (true, Some(0), true),
        (true, Some(32), false),
        (false, Some(16), true),
    ];
    for (seed, (v4, geneve, checksum)) in tunnels.into_iter().enumerate() {
        let tunnel = Tunnel { v4, geneve, checksum };
        let comparison = Comparison {
            kinds: INNER,
            packet: &|shape, number, random| tunnel.frame(shape, number, random),
            header: &|shape| tunnel.header(shape),
            number: tunnelled_number,
            ours: &|case, _| split(&case.packet, &Options::new(case.shape.split())),
            differences: if checksum { &TUNNELS } else { &TUNNELS[..3] },
            ..frames(&mut wire)
        };
        compare(&format!("{tunnel:?}"), comparison, 30 + seed as u64, CASES / 12);
    }
}
