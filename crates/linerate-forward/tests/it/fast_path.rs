//! The XDP program alone (`BPF_PROG_TEST_RUN`), on frames made by hand, with sessions put into the table:
//! every reason to leave a frame to the kernel, and every way to rewrite one.

use std::net::IpAddr;
use std::os::fd::AsFd;

use etherparse::{IpNumber, Ipv4Header};
use libbpf_rs::{MapCore, MapFlags};
use linerate_bpf::test_run::{self, XdpOutput};
use linerate_forward::reason::Reason;
use linerate_forward::runtime::program::{
    Options, PortOptions, Programs, XDP_ONLY, enable_egress, register,
};
use linerate_forward::table::Table;
use linerate_forward::table::clock::Clock;
use linerate_forward::table::layout::{self, Addresses, Control, REFERENCED, flags, kind};
use linerate_testkit::{Mac, Namespace, Veth, VethOptions, root_or_skip};
use zerocopy::{FromBytes, IntoBytes};

use crate::common::writer::{NewSession, Writer, signature, stored, tuple_hash};
use crate::differential::packet::{Network, Segment, frame, packet};

const DROP: u32 = 1;
const PASS: u32 = 2;
const REDIRECT: u32 = 4;
const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const NEIGHBOUR: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// A frame, and by its fields what is to be different.
#[derive(Clone, Debug, PartialEq)]
struct Packet {
    to: [u8; 6],
    from: [u8; 6],
    tags: Vec<(u16, u16)>,
    ipv6: bool,
    tcp: bool,
    source: u8,
    destination: u8,
    ports: (u16, u16),
    tos: u8,
    ttl: u8,
    payload: usize,
    tcp_flags: u8,
}

const ACK: u8 = 0x10;

impl Packet {
    fn new(ipv6: bool, tcp: bool) -> Self {
        Self {
            to: OWN,
            from: [2, 0, 0, 0, 0, 7],
            tags: Vec::new(),
            ipv6,
            tcp,
            source: 1,
            destination: 2,
            ports: (1000, 2000),
            tos: 0x2a,
            ttl: 64,
            payload: 33,
            tcp_flags: ACK,
        }
    }

    fn addresses4(&self) -> ([u8; 4], [u8; 4]) {
        ([10, 0, 0, self.source], [10, 9, 0, self.destination])
    }

    fn addresses6(&self) -> ([u8; 16], [u8; 16]) {
        let address =
            |net: u8, host: u8| [0x20, 1, 0xd, 0xb8, 0, net, 1, 2, 3, 4, 5, 6, 7, 8, 9, host];
        (address(1, self.source), address(2, self.destination))
    }

    fn bytes(&self) -> Vec<u8> {
        let ((from4, to4), (from6, to6)) = (self.addresses4(), self.addresses6());
        let (from, to): (IpAddr, IpAddr) =
            if self.ipv6 { (from6.into(), to6.into()) } else { (from4.into(), to4.into()) };
        let Self { tos, ttl, ports, .. } = *self;
        let network = Network { tos, ttl, id: 0xbeef, dont_fragment: true, label: 0x000a_bcde };
        let flags = self.tcp_flags.into();
        let segment = self.tcp.then(|| Segment { seq: 0x0102_0304, flags, ..Segment::default() });
        let payload: Vec<u8> = (0..self.payload).map(|at| (at * 7) as u8).collect();
        let packet = packet(network, (from, ports.0), (to, ports.1), segment.as_ref(), &payload);
        let kind = if self.ipv6 { 0x86dd } else { 0x0800 };
        frame(Mac(self.to), Mac(self.from), &self.tags, kind, &packet)
    }

    /// What forwarding without further changes makes of it.
    fn forwarded(&self) -> Self {
        Self { to: NEIGHBOUR, from: [2, 0, 0, 0, 0, 2], ttl: self.ttl - 1, ..self.clone() }
    }
}

/// Programs between two interfaces, and what they counted last.
struct Bench {
    namespace: Namespace,
    cable: Veth,
    programs: Programs,
    table: Table,
}

impl Bench {
    fn new(options: &Options) -> Self {
        let namespace = Namespace::create("fast").unwrap();
        let cable =
            Veth::create(&namespace, "in", &namespace, "out", VethOptions::default()).unwrap();
        let programs = Programs::load(options).unwrap();
        for (port, interface) in [&cable.a, &cable.b].into_iter().enumerate() {
            let options = PortOptions {
                name: interface.name().into(),
                ifindex: interface.index(),
                mac: OWN,
                port: port as u32,
                attach: None,
                flags: XDP_ONLY,
            };
            let enter =
                || register(&programs, &options).and_then(|()| enable_egress(&programs, &options));
            namespace.run(enter).unwrap().unwrap();
        }
        let table = Table::open(&programs.maps).unwrap();
        let bench = Self { namespace, cable, programs, table };
        bench.change(|control| control.heartbeat_timeout = 1 << 40);
        bench.programs.heartbeat().unwrap();
        bench
    }

    fn plain() -> Self {
        Self::new(&Options { max_sessions: 1024, ..Options::default() })
    }

    fn control(&self) -> Control {
        let map = self.programs.maps.get("control").unwrap();
        let bytes = map.lookup(&[0; 4], MapFlags::ANY).unwrap().unwrap();
        Control::read_from_bytes(&bytes).unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut Control)) {
        let mut control = self.control();
        change(&mut control);
        let map = self.programs.maps.get("control").unwrap();
        map.update(&[0; 4], control.as_bytes(), MapFlags::ANY).unwrap();
    }

    /// Puts a session in that turns `before` into `after`, with a last touch by `touch`.
    fn learn(&self, before: &Packet, after: &Packet, touch: impl FnOnce(&mut NewSession)) -> usize {
        let seeds = self.control().seeds;
        let mut record = NewSession::default();
        let NewSession { session, hop, addresses, .. } = &mut record;
        let mut kinds = if before.ipv6 { kind::IPV6 } else { kind::IPV4 };
        if before.tcp {
            kinds |= kind::TCP;
        }
        for (at, (tag, tci)) in before.tags.iter().enumerate() {
            let tag = if *tag == 0x8100 { kind::VLAN_8021Q } else { kind::VLAN_8021AD };
            kinds |= tag << [kind::OUTER_VLAN_SHIFT, kind::INNER_VLAN_SHIFT][at];
            hop.tag[at] = tci.to_be_bytes();
        }
        session.ports = [before.ports.0, before.ports.1].map(u16::to_be_bytes);
        (session.kind, session.dscp) = (kinds, before.tos & 0xfc);
        session.generation = self.control().generation;
        (hop.ifindex, hop.dst_mac) = (self.cable.a.index(), OWN);
        let mut nat = before.ports != after.ports;
        let words = |bytes: &[u8]| -> Vec<u16> {
            bytes.chunks(2).map(|two| u16::from_ne_bytes([two[0], two[1]])).collect()
        };
        let delta = |before: &[u8], after: &[u8]| {
            let sum: u32 = words(before).into_iter().map(u32::from).sum::<u32>()
                + words(after).into_iter().map(|word| u32::from(!word)).sum::<u32>();
            let sum = (sum & 0xffff) + (sum >> 16);
            (((sum & 0xffff) + (sum >> 16)) % 0xffff) as u16
        };
        let address_delta;
        if before.ipv6 {
            let ((s, d), (out_s, out_d)) = (before.addresses6(), after.addresses6());
            *addresses = [(s, d), (out_s, out_d)]
                .map(|(source, destination)| Addresses { source, destination });
            let signature = signature(&seeds, &addresses[0]);
            session.in_source.copy_from_slice(&signature[..4]);
            session.in_destination.copy_from_slice(&signature[4..]);
            nat |= (s, d) != (out_s, out_d);
            address_delta = delta(&[s, d].concat(), &[out_s, out_d].concat());
        } else {
            let ((s, d), (out_s, out_d)) = (before.addresses4(), after.addresses4());
            (session.in_source, session.in_destination) = (s, d);
            (session.source, session.destination) = (out_s, out_d);
            nat |= (s, d) != (out_s, out_d);
            address_delta = delta(&[s, d].concat(), &[out_s, out_d].concat());
        }
        let tos = delta(&[0, before.tos & 0xfc, 1, 0], &[0, after.tos & 0xfc, 0, 0]);
        let ports = |of: &Packet| [of.ports.0.to_be_bytes(), of.ports.1.to_be_bytes()].concat();
        let add = |a: u16, b: u16| ((u32::from(a) + u32::from(b)) % 0xffff) as u16;
        session.network_delta = add(address_delta, tos).to_ne_bytes();
        session.transport_delta =
            add(address_delta, delta(&ports(before), &ports(after))).to_ne_bytes();
        session.source_port = after.ports.0.to_be_bytes();
        session.destination_port = after.ports.1.to_be_bytes();
        hop.flags = if nat { flags::NAT } else { 0 };
        (hop.destination_mac, hop.source_mac) = (after.to, after.from);
        hop.out_tags = after.tags.len() as u8;
        for (at, (tag, tci)) in after.tags.iter().enumerate() {
            hop.out_tag[at][..2].copy_from_slice(&tag.to_be_bytes());
            hop.out_tag[at][2..].copy_from_slice(&tci.to_be_bytes());
        }
        hop.mtu = 1500;
        hop.port = 1;
        hop.dscp = after.tos & 0xfc;
        session.deadline = (self.programs.heartbeat().unwrap() as u32).wrapping_add(1 << 20);
        touch(&mut record);
        Writer::open(&self.programs.maps)
            .insert(tuple_hash(&seeds, &record.session), &record)
            .unwrap()
    }

    fn run(&self, frame: &[u8]) -> XdpOutput {
        let (program, index) = (self.programs.xdp().unwrap(), self.cable.a.index());
        self.namespace.run(|| test_run::run_xdp(program.as_fd(), frame, index, 1)).unwrap().unwrap()
    }

    fn count(&self, reason: Reason) -> u64 {
        let map = self.programs.maps.get("reasons").unwrap();
        let counts = map.lookup_percpu(&(reason as u32).to_ne_bytes(), MapFlags::ANY).unwrap();
        counts.unwrap().iter().map(|one| u64::from_ne_bytes(one[..8].try_into().unwrap())).sum()
    }

    /// The frame is left to the kernel as it is, for this reason and no other.
    #[track_caller]
    fn leaves(&self, frame: &[u8], reason: Reason) {
        let counts = || Reason::ALL.iter().map(|reason| self.count(*reason)).collect::<Vec<_>>();
        let mut before = counts();
        let verdict = self.run(frame);
        before[reason as usize] += 1;
        let after = counts();
        let what: Vec<_> =
            Reason::ALL.iter().filter(|r| after[**r as usize] != before[**r as usize]).collect();
        assert_eq!(before, after, "{reason}: differs in {what:?}");
        assert_eq!((verdict.action, verdict.frame.as_slice()), (PASS, frame), "{reason}");
    }

    #[track_caller]
    fn forwards(&self, before: &[u8], after: &[u8]) {
        let verdict = self.run(before);
        let counted: Vec<_> = Reason::ALL.iter().filter(|r| self.count(**r) > 0).collect();
        assert_eq!(verdict.action, REDIRECT, "{counted:?}");
        assert_eq!(verdict.frame, after);
    }
}

fn kinds() -> impl Iterator<Item = Packet> {
    [(false, false), (false, true), (true, false), (true, true)]
        .into_iter()
        .map(|(ipv6, tcp)| Packet::new(ipv6, tcp))
}

#[test]
fn a_session_is_forwarded_as_it_says() {
    root_or_skip!();
    let tags: [&[(u16, u16)]; 4] =
        [&[], &[(0x8100, 0x6005)], &[(0x88a8, 7), (0x8100, 0x200a)], &[(0x8100, 1), (0x8100, 2)]];
    for base in kinds() {
        let bench = Bench::plain();
        for (number, (tags_in, tags_out)) in
            tags.iter().flat_map(|a| tags.iter().map(move |b| (a, b))).enumerate()
        {
            let before =
                Packet { tags: tags_in.to_vec(), ports: (1 + number as u16, 9), ..base.clone() };
            let plain = Packet { tags: tags_out.to_vec(), ..before.forwarded() };
            let marked = Packet { tos: 0xb8 | plain.tos & 3, ..plain.clone() };
            let translated =
                Packet { source: 77, destination: 88, ports: (40000, 53), ..plain.clone() };
            for (at, after) in [plain, marked, translated].into_iter().enumerate() {
                let before = Packet { source: 100 + at as u8, ..before.clone() };
                let after = if at < 2 { Packet { source: before.source, ..after } } else { after };
                let place = bench.learn(&before, &after, |_| ());
                bench.forwards(&before.bytes(), &after.bytes());
                let mut decoder = bench.table.decoder(Clock::from_boot_time());
                let session = bench.table.session(place, &mut decoder).unwrap();
                let ip = before.bytes().len() - 14 - 4 * before.tags.len();
                assert_eq!((session.packets, session.bytes), (1, ip as u64));
                let (line, _) = stored(&bench.programs.maps, &session);
                assert_ne!(line.owner & REFERENCED, 0);
            }
        }
    }
}

#[test]
fn padding_goes_and_other_ecn_bits_stay() {
    root_or_skip!();
    for base in kinds() {
        let bench = Bench::plain();
        let before = Packet { payload: 2, ..base };
        bench.learn(&before, &before.forwarded(), |_| ());
        let padded = [before.bytes(), vec![0xaa; 20]].concat();
        bench.forwards(&padded, &before.forwarded().bytes());
        for ecn in 0..4 {
            let before = Packet { tos: before.tos & 0xfc | ecn, ..before.clone() };
            bench.forwards(&before.bytes(), &before.forwarded().bytes());
        }
        for ttl in [2, 3, 255] {
            let before = Packet { ttl, ..before.clone() };
            bench.forwards(&before.bytes(), &before.forwarded().bytes());
        }
    }
}

#[test]
fn checksums_of_every_value_are_mended() {
    root_or_skip!();
    for base in kinds() {
        let bench = Bench::plain();
        let after = Packet { source: 200, ports: (0xfff0, 1), ..base.forwarded() };
        bench.learn(&base, &after, |_| ());
        let at = base.bytes().len() - base.payload - if base.tcp { 4 } else { 2 };
        for word in 0..=0xffff_u16 {
            // Each value of the first word gives another checksum, 0 and 0xffff among them.
            if word % 97 != 0 && (1..0xfff0).contains(&word) && word % 4099 != 3 {
                continue;
            }
            let mut before = base.bytes();
            before[at..at + 2].copy_from_slice(&word.to_be_bytes());
            let mut expected = after.bytes();
            let field = u16::from_be_bytes([after.bytes()[at], after.bytes()[at + 1]]);
            let was = u16::from_be_bytes([base.bytes()[at], base.bytes()[at + 1]]);
            // field - was, added to word, in ones' complement.
            let mut sum = (u32::from(word) + u32::from(field) + u32::from(!was)) % 0xffff;
            if !base.tcp {
                sum = if word == 0 {
                    0
                } else if sum == 0 {
                    0xffff
                } else {
                    sum
                };
            }
            expected[at..at + 2].copy_from_slice(&(sum as u16).to_be_bytes());
            bench.forwards(&before, &expected);
        }
    }
}

#[test]
fn what_is_no_plain_packet_is_left() {
    root_or_skip!();
    let bench = Bench::plain();
    for base in kinds() {
        bench.learn(&base, &base.forwarded(), |_| ());
        let whole = base.bytes();
        let change = |at: usize, to: &[u8]| {
            let mut frame = whole.clone();
            frame[at..at + to.len()].copy_from_slice(to);
            frame
        };
        bench.leaves(&whole[..14], Reason::Short);
        bench.leaves(&change(12, &[8, 6]), Reason::NotIp);
        let ttl = Packet { ttl: 1, ..base.clone() };
        bench.leaves(&ttl.bytes(), Reason::Ttl);
        let foreign = Packet { to: [2, 0, 0, 0, 0, 5], ..base.clone() };
        bench.leaves(&foreign.bytes(), Reason::Otherhost);
        let group = Packet { to: [0xff; 6], ..base.clone() };
        bench.leaves(&group.bytes(), Reason::Multicast);
        let three = [(0x8100, 1), (0x8100, 2), (0x8100, 3)];
        bench.leaves(&Packet { tags: three.to_vec(), ..base.clone() }.bytes(), Reason::Tags);
        let others = Packet { ports: (5, 5), ..base.clone() };
        bench.leaves(&others.bytes(), Reason::Unknown);
        let large = Packet { payload: 1500, ..base.clone() };
        bench.leaves(&large.bytes(), Reason::TooBig);
        // Truncated: the header says more than there is.
        bench.leaves(&whole[..whole.len() - 1], Reason::Malformed);
        if base.ipv6 {
            bench.leaves(&change(14, &[0x50]), Reason::Malformed);
            bench.leaves(&change(20, &[44]), Reason::Fragment);
            // Hop-by-hop, routing, ESP, authentication, destination options, mobility.
            for next in [0, 43, 50, 51, 60, 135] {
                bench.leaves(&change(20, &[next]), Reason::Extension);
            }
            // GRE, ICMPv6, SCTP.
            for next in [47, 58, 132] {
                bench.leaves(&change(20, &[next]), Reason::Protocol);
            }
        } else {
            bench.leaves(&change(14, &[0x55]), Reason::Malformed);
            bench.leaves(&change(14, &[0x44]), Reason::Malformed);
            bench.leaves(&change(14, &[0x46]), Reason::Options);
            bench.leaves(&change(20, &[0x20]), Reason::Fragment);
            bench.leaves(&change(20, &[0, 1]), Reason::Fragment);
            bench.leaves(&change(24, &[whole[24] ^ 1]), Reason::Checksum);
            // ICMP, GRE, ESP, AH, SCTP.
            for protocol in [1, 47, 50, 51, 132] {
                let mut ip4 = Ipv4Header::new(8, 64, IpNumber(protocol), [1; 4], [2; 4]).unwrap();
                ip4.header_checksum = ip4.calc_header_checksum();
                let frame = [&whole[..14], &ip4.to_bytes(), &[0; 8]].concat();
                bench.leaves(&frame, Reason::Protocol);
            }
        }
        let transport = whole.len() - base.payload - if base.tcp { 20 } else { 8 };
        if base.tcp {
            bench.leaves(&Packet { tcp_flags: 0, ..base.clone() }.bytes(), Reason::Flags);
            bench.leaves(&change(transport + 12, &[0x40]), Reason::Malformed);
            bench.leaves(&change(transport + 12, &[0xf0]), Reason::Malformed);
        } else {
            bench.leaves(&change(transport + 4, &[0, 7]), Reason::Malformed);
            bench.leaves(&change(transport + 4, &[1, 0]), Reason::Malformed);
        }
    }
}

#[test]
fn the_end_of_a_connection_ends_its_session() {
    root_or_skip!();
    let bench = Bench::plain();
    for ipv6 in [false, true] {
        for (number, (tcp_flags, reason)) in [
            (2, Reason::Syn),
            (ACK | 2, Reason::Syn),
            (ACK | 1, Reason::Fin),
            (4, Reason::Rst),
            (ACK | 4, Reason::Rst),
        ]
        .into_iter()
        .enumerate()
        {
            let data = Packet { source: number as u8, ..Packet::new(ipv6, true) };
            bench.learn(&data, &data.forwarded(), |_| ());
            bench.forwards(&data.bytes(), &data.forwarded().bytes());
            bench.leaves(&Packet { tcp_flags, ..data.clone() }.bytes(), reason);
            bench.leaves(&data.bytes(), Reason::Ended);
        }
    }
}

#[test]
fn a_session_that_is_not_in_force_is_not_used() {
    root_or_skip!();
    let bench = Bench::plain();
    for base in kinds() {
        bench.learn(&base, &base.forwarded(), |_| ());
        bench.change(|control| control.generation += 1);
        bench.leaves(&base.bytes(), Reason::Stale);

        let late = Packet { source: 11, ..base.clone() };
        bench.learn(&late, &late.forwarded(), |record| {
            record.session.deadline = record.session.deadline.wrapping_sub((1 << 20) + 1000);
        });
        bench.leaves(&late.bytes(), Reason::Revalidate);

        let nowhere = Packet { source: 12, ..base.clone() };
        bench.learn(&nowhere, &nowhere.forwarded(), |record| record.hop.port = 200);
        bench.leaves(&nowhere.bytes(), Reason::NoPort);

        let judged = Packet { source: 13, ..base.clone() };
        let checked = |record: &mut NewSession| record.hop.flags |= flags::VERIFY_CHECKSUM;
        bench.learn(&judged, &judged.forwarded(), checked);
        bench.forwards(&judged.bytes(), &judged.forwarded().bytes());
        let mut wrong = judged.bytes();
        *wrong.last_mut().unwrap() ^= 1;
        bench.leaves(&wrong, Reason::Checksum);

        let written = Packet { source: 14, ..base.clone() };
        bench.learn(&written, &written.forwarded(), |_| ());
        let Control { heartbeat, heartbeat_timeout, .. } = bench.control();
        bench.change(|control| (control.heartbeat, control.heartbeat_timeout) = (0, 10));
        bench.leaves(&written.bytes(), Reason::NoDaemon);
        bench.change(|control| {
            (control.heartbeat, control.heartbeat_timeout) = (heartbeat, heartbeat_timeout);
        });
        bench.forwards(&written.bytes(), &written.forwarded().bytes());
    }
}

#[test]
fn what_is_denied_is_dropped_and_counted() {
    root_or_skip!();
    let bench = Bench::plain();
    for base in kinds() {
        let frame = base.bytes();
        let (map, key, other) = if base.ipv6 {
            let (source, destination) = base.addresses6();
            let key = |address, prefix_len| layout::Denied6Key { prefix_len, address };
            (
                "denied6",
                key(source, 120).as_bytes().to_vec(),
                key(destination, 128).as_bytes().to_vec(),
            )
        } else {
            let (source, destination) = base.addresses4();
            let key = |address, prefix_len| layout::Denied4Key { prefix_len, address };
            (
                "denied4",
                key(source, 24).as_bytes().to_vec(),
                key(destination, 32).as_bytes().to_vec(),
            )
        };
        let map = bench.programs.maps.get(map).unwrap();
        bench.change(|control| control.denied = 1);
        for key in [key, other] {
            let entry = layout::Denied::default();
            map.update(&key, entry.as_bytes(), MapFlags::ANY).unwrap();
            let before = bench.count(Reason::Denied);
            assert_eq!(bench.run(&frame).action, DROP);
            assert_eq!(bench.count(Reason::Denied), before + 1);
            let bytes = map.lookup(&key, MapFlags::ANY).unwrap().unwrap();
            assert_eq!(layout::Denied::read_from_bytes(&bytes).unwrap().dropped, 1);
            // Its time is over.
            let entry = layout::Denied { expires: 1, dropped: 0 };
            map.update(&key, entry.as_bytes(), MapFlags::ANY).unwrap();
            assert_eq!(bench.run(&frame).action, PASS);
            map.delete(&key).unwrap();
        }
    }
}
