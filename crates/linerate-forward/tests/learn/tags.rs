//! VLAN tags, as they come and as they leave. The kernel's VLANs are programs here (`vlan.bpf.c`): tags come
//! off behind `mark` and go on before `learn`, which is where a VLAN interface takes and puts them.

use std::os::fd::{AsFd, OwnedFd};

use etherparse::PacketBuilder;
use libbpf_rs::ObjectBuilder;
use linerate_forward::session::Record;
use linerate_netns::{Mac, Veth, root_or_skip};
use linerate_ring::hook::{Hook, Link};
use linerate_ring::packet::Sender;
use linerate_ring::tee::Tee;
use linerate_wire::virtio::Header;

use crate::lab::shell::compiled;
use crate::lab::{Accelerator, Lab, PATIENCE};

/// EtherTypes of a tag.
const CUSTOMER: u16 = 0x8100;
const SERVICE: u16 = 0x88a8;

/// A frame of 60 bytes of payload from left to right, with these tags, the outer one first.
fn frame(lab: &Lab, source_port: u16, tags: &[(u16, u16)]) -> Vec<u8> {
    let mut plain = Vec::new();
    PacketBuilder::ethernet2(lab.lan.b.mac().0, lab.lan.a.mac().0)
        .ipv4([10, 1, 0, 2], [10, 2, 0, 2], 64)
        .udp(source_port, 5000)
        .write(&mut plain, &[7; 60])
        .expect("a frame");
    let mut frame = plain[..12].to_vec();
    for (kind, control) in tags {
        frame.extend(kind.to_be_bytes());
        frame.extend(control.to_be_bytes());
    }
    frame.extend(&plain[12..]);
    frame
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
fn tags_of(record: &Record) -> [Vec<(u16, u16)>; 2] {
    let session = &record.session;
    let kinds = [session.key.kind >> 3 & 3, session.key.kind >> 5 & 3];
    let came = kinds.into_iter().zip(session.key.tag).filter(|(kind, _)| *kind != 0);
    let came = came.map(|(kind, control)| {
        ([0, CUSTOMER, SERVICE][usize::from(kind)], u16::from_be_bytes(control))
    });
    let left = session.out_tag.iter().take(session.out_tags.into());
    let left =
        left.map(|[a, b, c, d]| (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])));
    [came.collect(), left.collect()]
}

#[test]
fn tags_are_part_of_a_session() {
    root_or_skip!("tags_are_part_of_a_session");
    let lab = Lab::new("vla");
    let object = ObjectBuilder::default().open_file(compiled("vlan")).expect("an object");
    let object = object.load().expect("loaded");
    let program = |name: &str| {
        let program = object.progs().find(|program| program.name() == name).expect("a program");
        program.as_fd().try_clone_to_owned().expect("cloned")
    };
    let (pop, push) = (program("pop"), program("push"));
    let on = |cable: &Veth, program: &OwnedFd, hook| {
        Link::attach(program.as_fd(), cable.a.name(), cable.a.index(), hook).expect("attached")
    };
    let attach = || [on(&lab.lan, &pop, Hook::Ingress), on(&lab.wan, &push, Hook::Egress)];
    let _links = lab.router.run(attach).expect("entered");
    let fast = Accelerator::attach(&lab);
    let open = || Tee::builder("eth").buffer(1 << 20).stamps(false).take(true).build();
    let mut tee = lab.right.run(open).expect("entered").expect("a tee");
    let sender = lab.left.run(|| Sender::open("eth")).expect("entered").expect("a socket");

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
        lab.wan.a.add_neighbour(crate::lab::address(crate::lab::RIGHT[0]), mac).expect("set");
        fast.bump();
        for tags in comes {
            port += 1;
            let sent = frame(&lab, port, tags);
            for _ in 0..4 {
                sender.send(&Header::default(), &sent).expect("sent");
            }
            let mut seen = Vec::new();
            while seen.len() < 4 {
                assert!(
                    tee.wait(PATIENCE).expect("waited"),
                    "{} of 4; {}",
                    seen.len(),
                    fast.told()
                );
                while let Some(mut batch) = tee.batch() {
                    while let Some(frame) = batch.next() {
                        // The router reports its IPv6 groups now and then.
                        if is_ipv4(frame.head()) {
                            seen.push(frame.head().to_vec());
                        }
                    }
                }
            }
            let record =
                fast.records().into_iter().find(|record| record.tuple().source.port() == port);
            let record = record.unwrap_or_else(|| panic!("{tags:x?}: {}", fast.told()));
            assert_eq!(tags_of(&record), [tags.to_vec(), expected.to_vec()]);
            assert_eq!(record.packets(), 4, "{record:?}");
            // Two by the kernel, two by the programs.
            assert!(seen.iter().all(|frame| *frame == seen[0]), "{seen:02x?}");
            let (tags, rest) = untagged(&seen[0]);
            assert_eq!((tags.as_slice(), &rest[..6]), (expected, &mac.0[..]));
            assert_eq!(rest.len(), 14 + 20 + 8 + 60);
        }
    }
}
