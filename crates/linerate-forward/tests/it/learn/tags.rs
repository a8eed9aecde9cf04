//! VLAN tags, as they come and as they leave: with programs in place of the kernel's VLANs (`vlan.bpf.c`), so that
//! every kernel can do it, and with VLAN devices where there are any. The programs take tags off behind `forward_tc` and
//! put them on before `learn`, which is where a VLAN device does it.

use linerate_bpf::link::Hook;
use linerate_forward::refusal::Refusal;
use linerate_forward::runtime::upper_devices;
use linerate_forward::table::layout::{self, Hop};
use linerate_ring::packet::Sender;
use linerate_ring::tee::{Action, Tee};
use linerate_ring::{Batch as _, Options, Ring as _, TimestampSource};
use linerate_testkit::{Mac, skip};
use linerate_wire::virtio::Header;

use crate::common::accelerator::Accelerator;
use crate::common::router::vlans;
use crate::differential::packet::{self, Network};
use linerate_testkit::lab::{Lab, RIGHT, TIMEOUT, address};
use linerate_testkit::tools::{ip, ip_batch};

/// EtherTypes of a tag.
const CUSTOMER: u16 = 0x8100;
const SERVICE: u16 = 0x88a8;

/// EtherType and control field of each tag of a frame, the outer one first.
type Tags = &'static [(u16, u16)];

/// A frame of 60 bytes of payload between the hosts 2 of these networks, with these tags, the outer one first.
fn frame(lab: &Lab, networks: [u8; 2], source_port: u16, tags: &[(u16, u16)]) -> Vec<u8> {
    let network = Network { tos: 0, ttl: 64, id: 0, dont_fragment: true, label: 0 };
    let [from, to] = networks.map(|network| [10, network, 0, 2].into());
    let packet = packet::packet(network, (from, source_port), (to, 5000), None, &[7; 60]);
    packet::frame(lab.lan.a.mac(), lab.lan.b.mac(), tags, 0x0800, &packet)
}

/// Tags of a frame, and the rest of it.
fn untagged(frame: &[u8]) -> (Vec<(u16, u16)>, Vec<u8>) {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let mut tags = Vec::new();
    while matches!(word(12 + 4 * tags.len()), CUSTOMER | SERVICE) {
        let at = 12 + 4 * tags.len();
        tags.push((word(at), word(at + 2)));
    }
    (tags.clone(), [&frame[..12], &frame[12 + 4 * tags.len()..]].concat())
}

/// Whether the frame holds IPv4, behind whatever tags: ours do, and nothing else here does.
fn is_ipv4(frame: &[u8]) -> bool {
    let (_, rest) = untagged(frame);
    rest[12..14] == [8, 0]
}

/// The tags that a session matches, and those that it puts on.
fn tags_of((session, hop): &(layout::Session, Hop)) -> [Vec<(u16, u16)>; 2] {
    let kinds = [session.kind >> 3 & 3, session.kind >> 5 & 3];
    let came = kinds.into_iter().zip(hop.tag).filter(|(kind, _)| *kind != 0);
    let came = came.map(|(kind, control)| {
        ([0, CUSTOMER, SERVICE][usize::from(kind)], u16::from_be_bytes(control))
    });
    let left = hop.out_tag.iter().take(hop.out_tags.into());
    let left =
        left.map(|[a, b, c, d]| (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])));
    [came.collect(), left.collect()]
}

#[test]
fn tags_are_part_of_a_session() {
    learner_or_skip!();
    let lab = Lab::new("vla");
    let _pops = vlans(&lab.router, &lab.ports(), "pop", Hook::TcxIngress);
    let fast = Accelerator::attach(&lab);
    // Whoever attaches last is first.
    let _pushes = vlans(&lab.router, &lab.ports(), "push", Hook::TcxEgress);
    let mut ends = Ends::open(&lab);

    let comes: [&[(u16, u16)]; 6] = [
        &[],
        &[(CUSTOMER, 100)],
        &[(CUSTOMER, 5 << 13 | 100)],
        &[(SERVICE, 100)],
        &[(SERVICE, 200), (CUSTOMER, 10)],
        &[(CUSTOMER, 200), (CUSTOMER, 1 << 12 | 10)],
    ];
    let leaves: [(Mac, &[(u16, u16)]); 3] = [
        (lab.wan.b.mac(), &[]),
        (Mac([2, 0x56, 1, 0x61, 0x2c, 1]), &[(CUSTOMER, 3 << 13 | 0x12c)]),
        (Mac([2, 0x56, 2, 30, 40, 1]), &[(SERVICE, 40), (CUSTOMER, 30)]),
    ];
    let mut port = 4000;
    for (mac, expected) in leaves {
        lab.wan.a.add_neighbour(address(RIGHT[0]), mac).expect("set");
        fast.control.bump_generation();
        for tags in comes {
            port += 1;
            ends.forwards(
                &lab,
                &fast,
                port,
                &frame(&lab, [1, 2], port, tags),
                [tags, expected],
                mac,
            );
        }
    }
}

/// Where a VLAN device of the router stands, its tag, and its network.
const DEVICES: [(&str, &str, &str, u8); 4] = [
    ("lan", "lan7", "type vlan id 7", 17),
    ("wan", "wan8", "type vlan protocol 802.1Q id 8", 18),
    ("wan", "wan9", "type vlan protocol 802.1ad id 9", 19),
    ("wan9", "wan10", "type vlan id 10", 20),
];

#[test]
fn what_vlan_devices_receive_is_learned_and_what_they_send_is_the_kernels() {
    learner_or_skip!();
    let lab = Lab::new("vld");
    let words = "link add link lan name lan7 type vlan id 7".split(' ');
    let tried = lab.router.command("ip").args(words).output().expect("iproute2 is installed");
    if !tried.status.success() {
        skip!("the kernel has no VLAN devices");
    }
    ip(&lab.router, "link del lan7");
    let mut lines = String::new();
    for (below, name, kind, network) in DEVICES {
        let far = if below == "lan" { lab.lan.b.mac() } else { lab.wan.b.mac() };
        lines += &format!(
            "link add link {below} name {name} {kind}\nlink set {name} up\n\
             addr add 10.{network}.0.1/24 dev {name}\n\
             neigh add 10.{network}.0.2 dev {name} lladdr {far} nud permanent\n"
        );
    }
    ip_batch(&lab.router, &lines);
    let fast = Accelerator::attach(&lab);
    let ports = [lab.lan.a.index(), lab.wan.a.index()];
    let refreshed = lab.router.run(|| upper_devices::refresh(&fast.programs.maps, &ports));
    assert!(refreshed.expect("entered").expect("written"), "no device was found");
    let mut ends = Ends::open(&lab);
    let mac = lab.wan.b.mac();
    let ways: [([u8; 2], [Tags; 2]); 5] = [
        ([17, 2], [&[(CUSTOMER, 7)], &[]]),
        ([1, 18], [&[], &[(CUSTOMER, 8)]]),
        ([17, 18], [&[(CUSTOMER, 7)], &[(CUSTOMER, 8)]]),
        ([17, 19], [&[(CUSTOMER, 7)], &[(SERVICE, 9)]]),
        ([17, 20], [&[(CUSTOMER, 7)], &[(SERVICE, 9), (CUSTOMER, 10)]]),
    ];
    for (port, (networks, tags)) in (4000..).zip(ways) {
        let sent = frame(&lab, networks, port, tags[0]);
        if tags[1].is_empty() {
            ends.forwards(&lab, &fast, port, &sent, tags, mac);
            continue;
        }
        // A VLAN device takes its route off a packet before the port sends it: nothing is learned of that.
        let before = fast.refused(Refusal::Tunnel);
        let seen = ends.pass(&fast, &sent);
        let (found, rest) = untagged(&seen[0]);
        assert_eq!((found.as_slice(), &rest[..6]), (tags[1], &mac.0[..]));
        assert_eq!(fast.refused(Refusal::Tunnel) - before, 4, "{}", fast.describe());
        assert!(fast.sessions().iter().all(|record| record.tuple.source.port() != port));
    }
}

/// The sockets with which the left host sends and the right one receives frames as they are on the wire.
struct Ends {
    sender: Sender,
    tee: Tee,
}

impl Ends {
    fn open(lab: &Lab) -> Self {
        let open = || {
            let (buffer, timestamps) = (Some(1 << 20), TimestampSource::None);
            let action = Action::Redirect;
            Tee::open("eth", &Options { action, buffer, timestamps, ..Options::default() }, None)
        };
        let tee = lab.right.run(open).expect("entered").expect("a tee");
        let sender = lab.left.run(|| Sender::open("eth")).expect("entered").expect("a socket");
        Self { sender, tee }
    }

    /// Sends a frame four times: the kernel forwards it twice, the programs do twice, and all four that come
    /// out are alike, with the tags that are expected and nothing else.
    fn forwards(
        &mut self,
        lab: &Lab,
        fast: &Accelerator,
        port: u16,
        sent: &[u8],
        tags: [&[(u16, u16)]; 2],
        mac: Mac,
    ) {
        let seen = self.pass(fast, sent);
        let record = fast.sessions().into_iter().find(|record| record.tuple.source.port() == port);
        let record = record.unwrap_or_else(|| panic!("{tags:x?}: {}", fast.describe()));
        let stored = fast.stored(&record);
        assert_eq!(tags_of(&stored), tags.map(<[_]>::to_vec));
        assert_eq!(stored.1.source_mac, lab.wan.a.mac().0);
        assert_eq!(record.packets, 4, "{record:?}");
        let (found, rest) = untagged(&seen[0]);
        assert_eq!((found.as_slice(), &rest[..6]), (tags[1], &mac.0[..]));
        assert_eq!(rest.len(), 14 + 20 + 8 + 60);
    }

    /// Sends a frame four times, and returns what came out, all four alike.
    fn pass(&mut self, fast: &Accelerator, sent: &[u8]) -> Vec<Vec<u8>> {
        for _ in 0..4 {
            self.sender.send(&Header::default(), sent).expect("sent");
        }
        let mut seen = Vec::new();
        while seen.len() < 4 {
            let came = self.tee.wait(TIMEOUT).expect("waited");
            assert!(came, "{} of 4; {}", seen.len(), fast.describe());
            while let Some(mut batch) = self.tee.next_batch() {
                while let Some(frame) = batch.next() {
                    // The router reports its IPv6 groups now and then.
                    if is_ipv4(frame.head()) {
                        seen.push(frame.head().to_vec());
                    }
                }
            }
        }
        assert!(seen.iter().all(|frame| *frame == seen[0]), "{seen:02x?}");
        seen
    }
}
