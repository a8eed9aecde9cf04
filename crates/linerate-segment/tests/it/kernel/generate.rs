//! Shapes of super-packets: every protocol, flag, option and size that the kernel can be asked for.

use super::packet::{Hint, How, Ip, Shape, Transport};
use linerate_testkit::Random;

/// Most segments of a case: what the peer's backlog holds at once (`net.core.netdev_max_backlog`
/// is 1000), with room for others.
const MAX_SEGMENTS: usize = 400;

/// The kinds of cases to generate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kinds {
    /// Most VLAN tags.
    pub(crate) tags: usize,
    pub(crate) fragments: bool,
    /// Longest packet without the link header.
    pub(crate) longest: usize,
    /// Longest segment without the link header.
    pub(crate) mtu: usize,
    /// Finished IPv4 packets of any length, which a router with this MTU is to fragment.
    pub(crate) routed_through: Option<u16>,
}

pub(crate) fn shape(random: &mut Random, kinds: Kinds) -> Shape {
    if let Some(mtu) = kinds.routed_through {
        return routed(random, kinds, mtu);
    }
    let how = match random.within(1..=if kinds.fragments { 8 } else { 6 }) {
        1..=4 => How::Tcp,
        5..=6 => How::Datagrams,
        _ => How::Fragments,
    };
    let mut shape = Shape {
        tags: tags(random, kinds.tags),
        ip: if random.one_in(2) { v4(random, how) } else { v6(random, how) },
        transport: if how == How::Tcp { tcp(random) } else { Transport::Udp },
        how,
        size: 0,
        payload: 0,
        ecn_bit: false,
        hint: random.pick(&[Hint::Right, Hint::Right, Hint::Zero, Hint::LinkAndNetwork]),
    };
    if let Transport::Tcp { flags, .. } = shape.transport {
        shape.ecn_bit = flags & 0x80 != 0 && random.one_in(2);
    }
    shape.size = size(random, &shape, kinds);
    shape.payload = payload(random, &shape, kinds);
    shape
}

fn routed(random: &mut Random, kinds: Kinds, mtu: u16) -> Shape {
    let mut shape = Shape {
        tags: Vec::new(),
        ip: v4(random, How::Fragments),
        transport: if random.one_in(3) { tcp(random) } else { Transport::Udp },
        how: How::Fragments,
        size: 0,
        payload: 0,
        ecn_bit: false,
        hint: Hint::Zero,
    };
    if let Ip::V4 { df, .. } = &mut shape.ip {
        *df = random.one_in(8);
    }
    shape.size = (mtu - shape.network_len() as u16) / 8 * 8;
    let room = kinds.longest - shape.network_len() - shape.transport_len();
    let most = room.min(usize::from(shape.size) * MAX_SEGMENTS);
    shape.payload = if random.one_in(2) {
        random.within(0..=most)
    } else {
        random.within(0..=4 * usize::from(shape.size)).min(most)
    };
    shape
}

fn tags(random: &mut Random, most: usize) -> Vec<[u8; 4]> {
    let mut tag = |protocol: [u8; 2]| {
        let control = random.next() as u16 & 0xefff | 1;
        [protocol[0], protocol[1], (control >> 8) as u8, control as u8]
    };
    let (q, ad) = ([0x81, 0x00], [0x88, 0xa8]);
    let both = [tag(ad), tag(q)];
    let same = [tag(q), tag(q)];
    let mut tags = match random.within(1..=8) {
        1 => vec![both[1]],
        2 => vec![both[0]],
        3 => both.to_vec(),
        4 => same.to_vec(),
        _ => Vec::new(),
    };
    tags.truncate(most);
    tags
}

fn v4(random: &mut Random, how: How) -> Ip {
    let mut options = Vec::new();
    if random.one_in(4) {
        // Experimental numbers (RFC 4727) and no-operations, which no router acts upon. Those with
        // the high bit are for every fragment.
        while options.len() < 36 && !random.one_in(3) {
            match random.within(1..=3) {
                1 => options.push(1),
                2 => options.extend([0x9e, 4, random.next() as u8, 7]),
                _ if how == How::Fragments && !random.one_in(4) => options.extend([0xde, 2]),
                _ => options.extend([0x5e, 3, random.next() as u8]),
            }
        }
        let padding = if random.one_in(2) { 0 } else { 1 };
        options.resize(options.len().next_multiple_of(4), padding);
    }
    Ip::V4 {
        tos: random.next() as u8,
        id: if random.one_in(4) {
            random.within(0xffe0..=0xffff) as u16
        } else {
            random.next() as u16
        },
        df: how != How::Fragments && random.one_in(2),
        ttl: random.within(2..=255) as u8,
        options,
    }
}

fn v6(random: &mut Random, how: How) -> Ip {
    let mut extensions = Vec::new();
    if random.one_in(4) {
        // In the order of RFC 8200 §4.1; behind a fragment header the second destination options
        // would be a part of what is fragmented.
        let present = random.within(1..=15);
        if present & 1 != 0 {
            extensions.push((0, options(random)));
        }
        if present & 2 != 0 && how != How::Fragments {
            extensions.push((60, options(random)));
        }
        if present & 4 != 0 {
            // Nothing left to visit, so that the destination is final.
            let mut routing = vec![0, 2, 4, 0, 0, 0, 0, 0];
            routing.extend(random.bytes(16));
            extensions.push((43, routing));
        }
        if present & 8 != 0 && how != How::Fragments {
            extensions.push((60, options(random)));
        }
    }
    Ip::V6 {
        class: random.next() as u8,
        flow: random.next() as u32,
        hops: random.within(2..=255) as u8,
        extensions,
    }
}

/// Options of an IPv6 extension header: padding, of which a router takes no more than 7 bytes, or an
/// experimental one (RFC 4727) that is to be skipped.
fn options(random: &mut Random) -> Vec<u8> {
    let units = random.within(0..=3);
    let kind = if units == 0 && random.one_in(2) { 1 } else { 0x1e };
    let rest = units * 8 + 4;
    let mut bytes = vec![0, units as u8, kind, rest as u8];
    bytes.extend(if kind == 1 { vec![0; rest] } else { random.bytes(rest) });
    bytes
}

fn tcp(random: &mut Random) -> Transport {
    let mut flags = 0x010;
    // FIN, RST, PSH, URG, ECE, CWR and now and then a SYN.
    for (flag, rarely) in [(0x001, 4), (0x004, 16), (0x008, 2), (0x020, 6), (0x040, 3), (0x080, 3)]
    {
        if random.one_in(rarely) {
            flags |= flag;
        }
    }
    if random.one_in(64) {
        flags |= 0x002;
    }
    if random.one_in(16) {
        flags &= !0x010;
    }
    let mut options = Vec::new();
    if random.one_in(2) {
        options.extend([1, 1, 8, 10]);
        options.extend(random.bytes(8));
    }
    while options.len() <= 32 && random.one_in(5) {
        match random.within(1..=3) {
            1 => options.extend([1, 1, 1, 1]),
            2 => {
                options.extend([254, 8]);
                options.extend(random.bytes(6));
            }
            _ => options.extend([30, 4, 0x20, 1]),
        }
    }
    Transport::Tcp {
        flags,
        sequence: if random.one_in(3) {
            u32::MAX - random.within(0..=70_000) as u32
        } else {
            random.next() as u32
        },
        urgent: if flags & 0x020 != 0 { random.next() as u16 } else { 0 },
        options,
    }
}

fn size(random: &mut Random, shape: &Shape, kinds: Kinds) -> u16 {
    let fragment_header = if shape.how == How::Fragments && !shape.is_v4() { 8 } else { 0 };
    let transport = if shape.how == How::Fragments { 0 } else { shape.transport_len() };
    let most = kinds.mtu - shape.network_len() - transport - fragment_header;
    let size = match random.within(1..=10) {
        1..=4 => random.pick(&[536, 1220, 1440, 1448, 1460, 4096, 8960]),
        5..=8 => random.within(64..=1500),
        9 => random.within(1..=64),
        _ => random.within(1500..=16_000),
    };
    let size = size.min(most);
    if shape.how == How::Fragments { (size / 8 * 8).max(8) as u16 } else { size as u16 }
}

fn payload(random: &mut Random, shape: &Shape, kinds: Kinds) -> usize {
    let size = usize::from(shape.size);
    let most_segments = if shape.how == How::Datagrams { 160 } else { MAX_SEGMENTS };
    let room = kinds.longest - shape.network_len() - shape.transport_len();
    let most = room.min(size * most_segments);
    let len = match random.within(1..=10) {
        1 => random.within(0..=size),
        2 => size * random.within(1..=8),
        3..=6 => random.within(0..=5 * size),
        7..=9 => random.within(0..=24 * size),
        _ => most,
    };
    len.min(most)
}
