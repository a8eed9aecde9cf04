//! Frames for what a router does, and for what it must not do: each kind aims at one rule.

use std::net::IpAddr;

use super::packet::{
    ACK, FIN, Network, PSH, RST, SYN, Segment, URG, fix_header, fragments, frame, insert, is_v6,
    other, transport_at,
};
use super::step::Step;
use crate::common::host::{Host, router_mac, router_v4, router_v6};
use linerate_testkit::Mac;
use linerate_wire::checksum;

pub(crate) type Make = fn(&mut Step<'_>) -> Vec<Vec<u8>>;

/// Name, weight, maker.
pub(crate) const KINDS: &[(&str, usize, Make)] = &[
    ("data", 60, data),
    ("another mark", 2, another_mark),
    ("few hops left", 4, few_hops),
    ("padding", 5, padding),
    ("no payload", 3, no_payload),
    ("no checksum", 3, no_checksum),
    ("wrong checksum", 3, wrong_checksum),
    ("wrong header checksum", 2, wrong_header_checksum),
    ("checksums that become zero", 4, zeros),
    ("fragments", 4, in_fragments),
    ("options and extensions", 5, options),
    ("too long", 4, too_long),
    ("flags", 4, flags),
    ("segments", 3, segments),
    ("hardware addresses", 3, hardware),
    ("truncated", 3, truncated),
    ("mutated", 9, mutated),
    ("lengths", 5, lengths),
    ("tags", 4, tags),
    ("to the router", 2, local),
    ("ICMP", 4, icmp),
    ("other protocols", 2, protocols),
    ("not IP", 2, not_ip),
    ("strange addresses", 3, strange),
    ("reserved bits", 2, reserved),
];

fn data(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let most = step.fitting() - step.headers();
    let len = match step.random.within(0..=9) {
        0 => most,
        1 => step.random.within(0..=most),
        _ => step.random.within(12..=300),
    };
    let network = step.network();
    let packet = step.packet(network, len);
    vec![step.frame(&packet)]
}

fn another_mark(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let any = step.random.within(0..=63) as u8;
    let dscp = step.random.pick(&[0, 4, 8, 10, 46, any, any]);
    let one = |_| {
        let mut network = step.network();
        network.tos = dscp << 2 | network.tos & 3;
        let packet = step.packet(network, 40);
        step.frame(&packet)
    };
    (0..4).map(one).collect()
}

fn few_hops(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let network = Network { ttl: step.random.pick(&[0, 1, 1, 2]), ..step.network() };
    let packet = step.packet(network, 30);
    vec![step.frame(&packet)]
}

fn padding(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let network = step.network();
    let len = step.random.within(0..=20);
    let packet = step.packet(network, len);
    let mut frame = step.frame(&packet);
    let len = if step.random.one_in(2) { 60 } else { frame.len() + step.random.within(1..=64) };
    let filling = if step.random.one_in(2) { 0 } else { step.random.next() as u8 };
    frame.resize(frame.len().max(len), filling);
    vec![frame]
}

fn no_payload(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let network = step.network();
    let packet = step.packet(network, 0);
    vec![step.frame(&packet)]
}

fn checksum_at(step: &Step<'_>, packet: &[u8]) -> usize {
    transport_at(packet) + if step.session.tcp { 16 } else { 6 }
}

fn no_checksum(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let mut packet = step.short();
    let at = checksum_at(step, &packet);
    packet[at..at + 2].fill(0);
    vec![step.frame(&packet)]
}

fn wrong_checksum(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let mut packet = step.short();
    let at = checksum_at(step, &packet);
    let chance = step.random.next() as u16;
    let value = step.random.pick(&[0xffff, 0x0001, 0xfffe, chance]);
    packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
    vec![step.frame(&packet)]
}

fn wrong_header_checksum(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let mut packet = step.short();
    if !step.is_v6() {
        // The other zero of ones' complement is right where zero is.
        let sum = u16::from_be_bytes([packet[10], packet[11]]);
        let chance = step.random.next() as u16;
        let value = step.random.pick(&[0, 0xffff, !sum, chance]);
        packet[10..12].copy_from_slice(&value.to_be_bytes());
    }
    vec![step.frame(&packet)]
}

/// Zero has two forms in ones' complement, and a UDP checksum of zero means none.
fn zeros(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let ttl = 64;
    let network = Network { ttl, id: 0, ..step.network() };
    let mut packet = step.packet(network, 60);
    // As it leaves, where nothing else is done to it.
    let mut left = packet.clone();
    let at = transport_at(&packet);
    let field = checksum_at(step, &packet);
    let (from, to) = (octets(step.peer().to.0), octets(step.peer().from.0));
    let addresses = if step.is_v6() { 8..40 } else { 12..20 };
    left[addresses.clone()].copy_from_slice(&[from, to].concat());
    left[at..at + 2].copy_from_slice(&step.peer().to.1.to_be_bytes());
    left[at + 2..at + 4].copy_from_slice(&step.peer().from.1.to_be_bytes());
    // What `word` has to be for the sum of all to be this one.
    let wanted = step.random.pick(&[0xffff, 0xfffe, 0x0001, 0xfeff, 0x00ff]);
    let fitting = |sum: u16| {
        // `sum` is the complement of the sum without the word.
        let rest = u32::from(!sum);
        let word = u32::from(wanted as u16) + 0xffff - rest;
        ((word & 0xffff) + (word >> 16)) as u16
    };
    if !step.is_v6() {
        left[8] = ttl - 1;
        left[10..12].fill(0);
        let id = fitting(checksum::of(&left[..20]));
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        fix_header(&mut packet);
    }
    let mut covered = left[addresses].to_vec();
    covered.extend([0, if step.session.tcp { 6 } else { 17 }]);
    covered.extend(((left.len() - at) as u16).to_be_bytes());
    left[field..field + 2].fill(0);
    // The last word of the payload is free.
    let free = left.len() - 2;
    left[free..].fill(0);
    covered.extend(&left[at..]);
    let word = fitting(checksum::of(&covered)).to_be_bytes();
    packet[free..].copy_from_slice(&word);
    // The same with the addresses and ports that it comes with.
    let mut covered = packet[if step.is_v6() { 8..40 } else { 12..20 }].to_vec();
    covered.extend([0, if step.session.tcp { 6 } else { 17 }]);
    covered.extend(((packet.len() - at) as u16).to_be_bytes());
    packet[field..field + 2].fill(0);
    covered.extend(&packet[at..]);
    let sum = match checksum::of(&covered) {
        0 if !step.session.tcp => 0xffff,
        sum => sum,
    };
    packet[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    vec![step.frame(&packet)]
}

fn in_fragments(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let network = Network { dont_fragment: false, ..step.network() };
    let len = step.random.within(40..=600);
    let packet = step.packet(network, len);
    let size = step.random.pick(&[8, 24, 64, 256, 2048]);
    let id = step.random.next() as u16;
    let mut pieces = fragments(&packet, size.max(len / 40 * 8), id);
    match step.random.within(0..=5) {
        0 => pieces.reverse(),
        // The others never come.
        1 => drop(pieces.split_off(1)),
        2 => drop(pieces.remove(0)),
        3 => {
            let last = pieces.len() - 1;
            pieces.swap(0, last);
        }
        _ => {}
    }
    pieces.iter().map(|piece| step.frame(piece)).collect()
}

fn options(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let packet = step.short();
    let v4: &[&[u8]] = &[
        &[1, 1, 1, 0],
        &[0; 4],
        &[0x94, 4, 0, 0],                           // router alert
        &[7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0],     // record route
        &[7, 7, 8, 0, 0, 0, 0, 0],                  // the same, full
        &[0x44, 12, 13, 0, 0, 0, 0, 0, 0, 0, 0, 0], // timestamp, full
        &[0x83, 7, 4, 10, 2, 0, 11, 0],             // loose source route
        &[0x89, 7, 4, 10, 2, 0, 11, 0],             // strict
        &[0x88, 4, 0, 7],                           // stream
        &[0xff, 9, 1, 1],                           // nonsense
        &[7, 0, 4, 0],
    ];
    // What follows, which is filled in, and the length in eights beyond the first.
    let v6: &[(u8, &[u8])] = &[
        (0, &[0, 0, 1, 4, 0, 0, 0, 0]),
        (0, &[0, 0, 5, 2, 0, 0, 1, 0]),    // router alert
        (0, &[0, 0, 0xc2, 4, 0, 1, 0, 0]), // jumbo, wrongly
        (0, &[0, 0, 0x9e, 4, 0, 0, 0, 0]), // unknown: drop and say so
        (0, &[0, 0, 0x1e, 4, 0, 0, 0, 0]), // unknown: skip
        (0, &[0, 9, 1, 4, 0, 0, 0, 0]),    // longer than the packet may be
        (60, &[0, 0, 1, 4, 0, 0, 0, 0]),
        (60, &[0, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (43, &[0, 0, 4, 0, 0, 0, 0, 0]), // routing, nothing left
        (43, &[0, 0, 4, 1, 0, 0, 0, 0]),
        (44, &[0, 0, 0, 0, 0, 0, 0, 7]), // a fragment that is whole
        (51, &[0, 1, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1]), // authentication
        (135, &[0, 0, 1, 4, 0, 0, 0, 0]), // mobility
    ];
    let packet = if step.is_v6() {
        let (kind, bytes) = step.random.pick(v6);
        insert(&packet, kind, bytes)
    } else {
        let bytes = step.random.pick(v4);
        insert(&packet, 0, bytes)
    };
    vec![step.frame(&packet)]
}

fn too_long(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    // A port takes in four bytes beyond its MTU, the room of a tag.
    let most = crate::common::router::MTU[step.side().host.port] as usize;
    let len = match step.random.within(0..=3) {
        0 => step.fitting() + 1,
        1 => step.fitting() + step.random.within(2..=5),
        2 => most,
        _ => step.random.within(step.fitting()..=most),
    };
    let network = step.network();
    let headers = step.headers();
    let packet = step.packet(network, len - headers);
    vec![step.frame(&packet)]
}

fn flags(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    if !step.session.tcp {
        return data(step);
    }
    let flags = step.random.pick(&[
        SYN,
        FIN | ACK,
        RST,
        RST | ACK,
        0,
        URG,
        PSH,
        SYN | FIN,
        SYN | ACK,
        FIN,
        FIN | PSH | URG,
        ACK | URG,
        SYN | RST,
    ]);
    let packet = step.flags(flags);
    let mut frames = vec![step.frame(&packet)];
    // What comes after the end, or the attempt at one.
    for _ in 0..step.random.within(0..=2) {
        let packet = step.short();
        frames.push(step.frame(&packet));
    }
    if flags & (RST | FIN | SYN) != 0 && step.random.one_in(2) {
        frames.clear();
        frames.push(step.frame(&packet));
    }
    frames
}

/// TCP as it is between hosts of today.
fn segments(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let Some(segment) = step.segment(60) else { return data(step) };
    let bits = step.random.pick(&[0x40, 0x80, 0xc0, 0x100, 0x1c0, 0]);
    let stamps = [&[1, 1, 8, 10][..], &step.random.bytes(8)].concat();
    let sack = [&[1, 1, 5, 10][..], &step.random.bytes(8)].concat();
    let long = [stamps.clone(), sack.clone(), vec![1; 16]].concat();
    let options = step.random.pick(&[&stamps[..], &sack, &long, &[], &[0xfd, 4, 0, 0]]).to_vec();
    let segment = Segment { flags: segment.flags | bits, options, ..segment };
    let network = step.network();
    let packet = step.packet_with(network, Some(&segment), 60);
    vec![step.frame(&packet)]
}

fn hardware(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let packet = step.short();
    let mut frame = step.frame(&packet);
    let own = router_mac(step.side().host.port).0;
    let other = router_mac((step.side().host.port + 1) % 3).0;
    let almost = [own[0], own[1], own[2], own[3], own[4], own[5] ^ 0x80];
    match step.random.within(0..=7) {
        0 => frame[..6].fill(0xff),
        1 => frame[..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, 1]),
        2 => frame[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]),
        3 => frame[..6].copy_from_slice(&other),
        4 => frame[..6].copy_from_slice(&almost),
        5 => frame[..6].copy_from_slice(&Host { number: 77, ..step.side().host }.mac().0),
        // What the frame comes from is nobody's business.
        6 => frame[6..12].fill(0),
        _ => frame[6..12].copy_from_slice(&[1, 2, 3, 4, 5, 6]),
    }
    vec![frame]
}

fn truncated(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let packet = step.short();
    let mut frame = step.frame(&packet);
    let headers = frame.len() - packet.len() + step.headers();
    let end = if step.random.one_in(3) { frame.len() - 1 } else { headers };
    frame.truncate(step.random.within(14..=end));
    vec![frame]
}

fn mutated(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let packet = step.short();
    let mut frame = step.frame(&packet);
    let link = frame.len() - packet.len();
    let headers = link + step.headers();
    // Another's source address would ask for another's port where that is translated.
    let source = if step.is_v6() { link + 8..link + 24 } else { link + 12..link + 16 };
    for _ in 0..step.random.within(1..=3) {
        let end = if step.random.one_in(6) { frame.len() } else { headers };
        let at = step.random.within(0..=end - 1);
        if source.contains(&at) {
            continue;
        }
        match step.random.within(0..=2) {
            0 => frame[at] ^= 1 << step.random.within(0..=7),
            1 => frame[at] = step.random.next() as u8,
            _ => frame[at] = step.random.pick(&[0, 0xff, 0x7f, 0x80, frame[at].wrapping_add(1)]),
        }
    }
    if step.random.one_in(2) && !step.is_v6() {
        fix_header(&mut frame[link..]);
    }
    vec![frame]
}

fn lengths(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let mut packet = step.short();
    let at = transport_at(&packet);
    let len = packet.len() as u16;
    let v6 = is_v6(&packet);
    match step.random.within(0..=5) {
        // In the network header: shorter, which trims, or longer than there is.
        0..=2 => {
            let new = match step.random.within(0..=3) {
                0 => step.random.within(0..=usize::from(len)) as u16,
                1 => len - step.random.within(1..=12) as u16,
                2 => len + step.random.within(1..=40) as u16,
                _ => step.random.pick(&[0, 1, 19, 20, 27, 28, 39, 40, 41, 48, 60, 0xffff]),
            };
            let field = if v6 { 4 } else { 2 };
            packet[field..field + 2].copy_from_slice(&new.to_be_bytes());
            fix_header(&mut packet);
        }
        // In the transport header.
        3 | 4 if step.session.tcp => {
            let offset = step.random.pick(&[0, 1, 4, 6, 10, 15]);
            packet[at + 12] = offset << 4 | packet[at + 12] & 15;
        }
        3 | 4 => {
            let real = len - at as u16;
            let new = step.random.pick(&[0, 7, 8, real - 1, real + 1, real - 9, 0xffff]);
            packet[at + 4..at + 6].copy_from_slice(&new.to_be_bytes());
        }
        // The first byte of all.
        _ => {
            packet[0] =
                step.random.pick(&[0x40, 0x44, 0x46, 0x4f, 0x55, 0x65, 0x05, 0x60, 0x45, 0x70]);
            if !v6 {
                fix_header(&mut packet);
            }
        }
    }
    vec![step.frame(&packet)]
}

fn tags(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let packet = step.short();
    let own = step.side().tags.clone();
    let vlan = step.random.within(1..=4095) as u16;
    let random = step.random.next() as u16;
    let (tags, times) = match step.random.within(0..=9) {
        // With a priority alone, which is no VLAN.
        0 => (vec![(0x8100, random & 0xe000)], 4),
        1 => ([&[(0x8100, random & 0xe000)], &own[..]].concat(), 4),
        2 => (own.iter().map(|(kind, control)| (*kind, control ^ 0x2000)).collect(), 4),
        3 => (own.iter().map(|(kind, control)| (*kind, control ^ 0x1000)).collect(), 4),
        4 => (vec![(0x8100, 999)], 1),
        5 => (vec![(0x8100, vlan)], 3),
        6 => (vec![(0x88a8, vlan)], 3),
        7 => (vec![(0x88a8, 100), (0x88a8, 200), (0x8100, vlan)], 2),
        8 => (vec![(0x8100, 100), (0x88a8, vlan)], 3),
        _ => (vec![(0x9100, vlan)], 1),
    };
    let mut frames = vec![step.tagged(&tags, &packet)];
    for _ in 1..times {
        let packet = step.short();
        frames.push(step.tagged(&tags, &packet));
    }
    frames
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn local(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let mut packet = step.short();
    let port = step.random.within(0..=2);
    let own = if step.is_v6() { router_v6(port) } else { router_v4(port) };
    step.readdress(&mut packet, false, &octets(own));
    vec![step.frame(&packet)]
}

fn strange(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let mut packet = step.short();
    let from = step.random.one_in(3);
    let all = match (step.is_v6(), from) {
        (false, true) => "0.0.0.0 127.0.0.1 224.0.0.5 255.255.255.255 10.2.0.1",
        (false, false) => {
            "127.0.0.1 224.0.0.5 239.1.2.3 255.255.255.255 0.0.0.0 10.9.1.1 10.9.2.1 10.200.0.1 \
             169.254.1.1 240.0.0.1"
        }
        (true, true) => ":: ::1 ff02::1 fe80::7",
        (true, false) => {
            "::1 ff02::1 ff05::5 fe80::7 :: fd00:91::1 fd00:92::1 fd00:200::1 ::ffff:10.2.0.11"
        }
    };
    let all: Vec<_> = all.split(' ').collect();
    let address: IpAddr = step.random.pick(&all).parse().expect("an address");
    step.readdress(&mut packet, from, &octets(address));
    if from {
        // A port of its own: in place of one that is taken the kernel translates to another by chance.
        let port = 0xf000 | (step.session.id as u16 & 0x7f) << 5 | step.session.count as u16 & 0x1f;
        let at = transport_at(&packet);
        step.rewrite(&mut packet, at, &port.to_be_bytes());
    }
    vec![step.frame(&packet)]
}

fn reserved(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let mut packet = step.short();
    if step.is_v6() {
        let bits = step.random.next() as u8;
        packet[1] = packet[1] & 0xf0 | bits & 0x0f;
    } else {
        packet[6] |= 0x80;
        fix_header(&mut packet);
    }
    if step.session.tcp {
        let at = transport_at(&packet) + 12;
        packet[at] |= step.random.pick(&[2, 4, 8, 14]);
    }
    vec![step.frame(&packet)]
}

/// Makes the checksum of an ICMP message right; that of ICMPv6 covers the addresses.
fn icmp_checksum(packet: &mut [u8]) {
    let at = transport_at(packet);
    packet[at + 2..at + 4].fill(0);
    let mut covered = Vec::new();
    if is_v6(packet) {
        covered.extend(&packet[8..40]);
        covered.extend(((packet.len() - at) as u32).to_be_bytes());
        covered.extend([0, 0, 0, 58]);
    }
    covered.extend(&packet[at..]);
    let sum = checksum::of(&covered);
    packet[at + 2..at + 4].copy_from_slice(&sum.to_be_bytes());
}

fn icmp(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let network = step.network();
    let (from, to) = (step.side().from.0, step.side().to.0);
    let protocol = if step.is_v6() { 58 } else { 1 };
    let id = (step.session.id as u16).to_be_bytes();
    let mut message = vec![if step.is_v6() { 128 } else { 8 }, 0, 0, 0, id[0], id[1], 0, 1];
    match step.random.within(0..=2) {
        0 => message.extend(step.payload(32)),
        1 => {
            message[0] = if step.is_v6() { 129 } else { 0 };
            message.extend(step.payload(32));
        }
        // About a packet of the other side, as this side got it.
        _ => {
            let (quoted_from, quoted_to) = (step.side().to, step.side().from);
            let segment = step.segment(0);
            let network = Network { ttl: 3, ..network };
            let quoted =
                super::packet::packet(network, quoted_from, quoted_to, segment.as_ref(), &[7; 40]);
            let kinds: &[[u8; 2]] =
                if step.is_v6() { &[[1, 4], [2, 0], [3, 0]] } else { &[[3, 3], [3, 4], [11, 0]] };
            let [kind, code] = step.random.pick(kinds);
            message = vec![kind, code, 0, 0, 0, 0, 5, 0];
            message.extend(&quoted[..quoted.len().min(step.random.within(28..=100))]);
        }
    }
    let mut packet = other(network, from, to, protocol, &message);
    icmp_checksum(&mut packet);
    vec![step.frame(&packet)]
}

fn protocols(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let network = step.network();
    let (from, to) = (step.side().from, step.side().to);
    let protocol = step.random.pick(&[4, 41, 47, 50, 89, 132, 136, 253, 59]);
    let mut payload = [&from.1.to_be_bytes()[..], &to.1.to_be_bytes()].concat();
    payload.extend(step.payload(60));
    let packet = other(network, from.0, to.0, protocol, &payload);
    vec![step.frame(&packet)]
}

fn not_ip(step: &mut Step<'_>) -> Vec<Vec<u8>> {
    let packet = step.short();
    let host = step.side().host;
    let (to, from) = (router_mac(host.port), host.mac());
    match step.random.within(0..=4) {
        0 => vec![frame(to, from, &[], 0x88b5, &packet)],
        // A length, as of old.
        1 => vec![frame(to, from, &[], packet.len() as u16, &packet)],
        // The packet of the one family under the name of the other.
        2 => vec![frame(to, from, &[], if step.is_v6() { 0x0800 } else { 0x86dd }, &packet)],
        3 => vec![frame(to, from, &[], 0x8864, &packet)],
        _ => {
            let host = Host { port: host.port, number: 10 };
            let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1];
            arp.extend(host.mac().0);
            arp.extend(octets(host.v4()));
            arp.extend([0; 6]);
            arp.extend(octets(router_v4(host.port)));
            vec![frame(Mac([0xff; 6]), host.mac(), &[], 0x0806, &arp)]
        }
    }
}

/// Opens a TCP connection; three packets each way where there is none to open.
pub(crate) fn open(step: &mut Step<'_>) -> Vec<(usize, Vec<u8>)> {
    let mut frames = Vec::new();
    let mut say = |step: &mut Step<'_>, side: usize, flags: u16| {
        step.side = side;
        let packet = step.flags(flags);
        frames.push((side, step.frame(&packet)));
    };
    if step.session.tcp {
        say(step, 0, SYN);
        say(step, 1, SYN | ACK);
        say(step, 0, ACK);
    }
    for round in 0..6 {
        step.side = round % 2;
        let packet = step.short();
        frames.push((step.side, step.frame(&packet)));
    }
    frames
}
