//! Whichever backend: the same messages, byte for byte and count for count.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, SocketAddr};

use crate::support::{Cable, HERE, HERE6, Kind, WINDOW, address, back_ends, gather, kinds};
use linerate_testkit::{probe_or_skip, root_or_skip, test_name};
use linerate_udp::{Backend, Delivery, Metadata, Options, Receiver, Sender, SenderOptions};

/// Messages on each kind of traffic; `LINERATE_THOROUGH=1` sends a million.
fn messages() -> u64 {
    if std::env::var_os("LINERATE_THOROUGH").is_some() { 1_000_000 } else { 6_000 }
}

/// Lengths that go round.
#[derive(Clone, Copy, Debug)]
enum Sizes {
    Same,
    Mixed,
}

impl Sizes {
    fn len(self, number: u64) -> usize {
        match self {
            Self::Same => 64,
            // Runs of equal lengths, so that GRO joins some, and every length from none up.
            Self::Mixed => match number % 16 {
                0..=5 => 64,
                6..=8 => 300,
                9 => 0,
                10 => 1,
                // In a frame with IPv4, in two fragments with IPv6.
                11 => (LONGEST_OF_IPV6 as u64 + 1 + number / 16 % 20) as usize,
                _ => (number.wrapping_mul(2_654_435_761) % 1473) as usize,
            },
        }
    }
}

fn write(number: u64, payload: &mut [u8]) {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for byte in payload {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        *byte = state as u8;
    }
}

/// Bytes of the longest message that one frame with an MTU of 1500 has room for.
const LONGEST_OF_IPV6: usize = 1500 - 40 - 8;

/// Everything that was received, in a few words.
#[derive(Debug, Default, PartialEq, Eq)]
struct Digest {
    messages: u64,
    bytes: u64,
    hash: u64,
    /// Of long messages, in any order: as fragments they go another way than `xdp` takes.
    long: u64,
}

impl Digest {
    fn take(&mut self, payload: &[u8], source: SocketAddr, destination: SocketAddr) {
        let mut hasher = DefaultHasher::new();
        if payload.len() > LONGEST_OF_IPV6 {
            (payload, source, destination).hash(&mut hasher);
            self.long = self.long.wrapping_add(hasher.finish());
        } else {
            (self.hash, payload, source, destination).hash(&mut hasher);
            self.hash = hasher.finish();
        }
        self.messages += 1;
        self.bytes += payload.len() as u64;
    }
}

/// Sends `count` messages and receives them, in windows that a veth holds; what was sent and what came.
fn exchange(
    sender: &mut Sender,
    receiver: &mut Receiver,
    to: SocketAddr,
    sizes: Sizes,
    count: u64,
) -> (Digest, Digest) {
    let (mut sent, mut came) = (Digest::default(), Digest::default());
    let mut number = 0;
    while number < count {
        let window = WINDOW.min(count - number);
        for _ in 0..window {
            let payload = sender.message(sizes.len(number)).expect("room");
            write(number, payload);
            sent.take(payload, address("0.0.0.0", 0), to);
            number += 1;
        }
        sender.flush().expect("sent");
        gather(receiver, window, |message| {
            assert!(!message.truncated);
            came.take(message.payload, address("0.0.0.0", 0), message.destination);
        });
    }
    (sent, came)
}

fn all_the_same(name: &str, ip: &str, sizes: Sizes) {
    let cable = Cable::new();
    let count = messages();
    // All of them, and what the machine chooses.
    for kind in kinds(&cable, name).into_iter().map(Some).chain([None]) {
        for offload in [true, false] {
            let to = address(ip, 7000);
            let options =
                Options { metadata: Metadata::ALL, ring_size: 16 << 20, ..Options::new(to) };
            let mut receiver = cable.open(options, kind).expect("a receiver");
            let mut sender = cable.send(SenderOptions { gso: offload, ..SenderOptions::new(to) });
            let (sent, came) = exchange(&mut sender, &mut receiver, to, sizes, count);
            let by = kind
                .map_or_else(|| format!("auto: {}", receiver.backend()), |kind| kind.to_string());
            assert_eq!(sent, came, "{by}, segmented by the kernel: {offload}");
            assert_eq!(
                (receiver.drops().expect("losses").total(), receiver.messages()),
                (0, count),
                "{by}"
            );
            assert!(kind.is_none_or(|kind| kind.backend == receiver.backend()), "{by}");
        }
    }
}

/// One backend, so that a machine without it skips the test of that name.
fn delivers(name: &str, backend: Backend, delivery: Delivery) {
    let cable = Cable::new();
    let probed = cable.here.run(|| linerate_udp::probe(backend, Some("rx")));
    probe_or_skip!(name, probed.expect("the namespace").err());
    let to = address(HERE, 7000);
    let options = Options { metadata: Metadata::ALL, ..Options::new(to) };
    let mut receiver = cable.receive_by(options, Kind { backend, delivery }).expect("a receiver");
    let mut sender = cable.send(SenderOptions::new(to));
    let (sent, came) = exchange(&mut sender, &mut receiver, to, Sizes::Mixed, messages() / 3);
    assert_eq!(sent, came);
    assert_eq!(receiver.drops().expect("losses").total(), 0);
    assert_eq!(receiver.backend(), backend);
}

#[test]
fn recvmmsg_delivers() {
    root_or_skip!();
    delivers("recvmmsg_delivers", Backend::Recvmmsg, Delivery::Auto);
}

#[test]
fn gro_delivers() {
    root_or_skip!();
    delivers("gro_delivers", Backend::Gro, Delivery::Auto);
}

#[test]
fn uring_delivers() {
    root_or_skip!();
    delivers("uring_delivers", Backend::Uring, Delivery::Auto);
}

#[test]
fn xdp_delivers_through_a_ring_buffer() {
    root_or_skip!();
    delivers("xdp_delivers_through_a_ring_buffer", Backend::Xdp, Delivery::RingBuffer);
}

#[test]
fn xdp_delivers_through_a_socket() {
    root_or_skip!();
    delivers("xdp_delivers_through_a_socket", Backend::Xdp, Delivery::AfXdp);
}

#[test]
fn messages_of_one_size_are_the_same() {
    root_or_skip!();
    all_the_same("messages_of_one_size_are_the_same", HERE, Sizes::Same);
}

#[test]
fn messages_of_mixed_sizes_are_the_same() {
    root_or_skip!();
    all_the_same("messages_of_mixed_sizes_are_the_same", HERE, Sizes::Mixed);
}

#[test]
fn messages_over_ipv6_are_the_same() {
    root_or_skip!();
    all_the_same("messages_over_ipv6_are_the_same", HERE6, Sizes::Mixed);
}

#[test]
fn the_choice_of_the_machine_delivers_too_and_takes_only_with_consent() {
    root_or_skip!();
    let cable = Cable::new();
    let to = address(HERE, 7000);
    // Asked before there is a receiver, whose program is in the way of another.
    let has_xdp = back_ends(&cable, test_name!()).contains(&Backend::Xdp);
    for consent in [false, true] {
        let options = Options { take_over: consent, ..Options::new(to) };
        let mut receiver = cable.receive(options, None).expect("a receiver");
        let mut sender = cable.send(SenderOptions::new(to));
        let (sent, came) = exchange(&mut sender, &mut receiver, to, Sizes::Same, 1000);
        assert_eq!(sent, came, "{}", receiver.backend());
        let takes = receiver.backend() == Backend::Xdp;
        let reasons = receiver.selection_reasons();
        assert_eq!(has_xdp && consent, takes, "{reasons:?}");
        // Other traffic of a veth pays for the program.
        let slower =
            reasons.iter().any(|why| why.starts_with("other traffic through rx is slower"));
        assert_eq!(slower, takes, "{reasons:?}");
    }
}

#[test]
fn frames_find_their_next_hop_by_themselves() {
    root_or_skip!("frames_find_their_next_hop_by_themselves");
    let cable = Cable::new();
    let Cable { veth, there, .. } = &cable;
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    // The kernel solicits IPv6 neighbours from a link-local address.
    for (end, own) in [(&veth.a, "fe80::1"), (&veth.b, "fe80::2")] {
        end.add_address(ip(own), 64).expect("an address");
    }
    // Nobody is told of these neighbours; the last two are behind routers.
    let near = [("10.77.0.9", 24), ("fd77::9", 64)];
    let far = [("10.78.0.9", 32), ("fd78::9", 128)];
    for (own, prefix) in near.into_iter().chain(far) {
        veth.b.add_address(ip(own), prefix).expect("an address");
    }
    for ((to, prefix), (router, _)) in far.into_iter().zip(near) {
        there.add_route(ip(to), prefix, ip(router)).expect("a route");
    }
    for (to, _) in near.into_iter().chain(far) {
        let to = address(to, 7000);
        let mut receiver = cable.receive(Options::new(to), None).expect("a receiver");
        let mut sender = cable.send(SenderOptions {
            interface: Some("tx".into()),
            message_size: 64,
            ..SenderOptions::new(to)
        });
        for number in 0..10 {
            write(number, sender.message(64).expect("room"));
        }
        sender.flush().expect("sent");
        gather(&mut receiver, 10, |message| assert_eq!(message.payload.len(), 64));
    }
    for family in ["ipv4", "ipv6"] {
        for (key, value) in [("mcast_solicit", "1"), ("retrans_time_ms", "50")] {
            there.sysctl(&format!("net/{family}/neigh/tx/{key}"), value).expect("a sysctl");
        }
    }
    for nobody in ["10.77.0.66", "fd77::66"] {
        let options = SenderOptions {
            interface: Some("tx".into()),
            message_size: 64,
            ..SenderOptions::new(address(nobody, 7000))
        };
        let refused =
            there.run(|| Sender::open(options)).expect("the namespace").expect_err("refused");
        let said = refused.to_string();
        assert!(said.contains(&format!("no hardware address of {nobody} on tx")), "{said}");
        assert!(said.contains("nobody answers"), "{said}");
    }
}

#[test]
fn frames_of_this_library_are_messages_like_any_other() {
    root_or_skip!();
    let cable = Cable::new();
    for ip in [HERE, HERE6] {
        for kind in kinds(&cable, "frames_of_this_library_are_messages_like_any_other") {
            let to = address(ip, 7000);
            let options = Options { metadata: Metadata::ALL, ..Options::new(to) };
            let mut receiver = cable.receive_by(options, kind).expect("a receiver");
            let there = linerate_wire::ethernet::Address(cable.veth.b.mac().0);
            let options = SenderOptions {
                interface: Some("tx".into()),
                next_hop: Some(there),
                message_size: 1452,
                ..SenderOptions::new(to)
            };
            let mut sender = cable.send(options);
            // Every length there is, that fits into a frame.
            let (mut sent, mut came) = (Digest::default(), Digest::default());
            for window in 0..8u64 {
                for at in 0..WINDOW {
                    let number = window * WINDOW + at;
                    let len = if window < 4 { 64 } else { (number * 37 % 1453) as usize };
                    let payload = sender.message(len).expect("room");
                    write(number, payload);
                    sent.take(payload, to, to);
                }
                sender.flush().expect("sent");
                gather(&mut receiver, WINDOW, |message| {
                    came.take(message.payload, to, message.destination);
                });
            }
            assert_eq!(sent, came, "{kind}");
        }
    }
}
