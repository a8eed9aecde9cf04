//! What is not as usual: wrong checksums, long messages, a kernel that does not segment, busy polling.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::support::{
    Cable, HERE, HERE6, THERE, THERE6, TIMEOUT, address, back_ends, gather, kinds, soon,
};
use linerate_ring::tun;
use linerate_ring::xdp::TxSocket;
use linerate_testkit::{Mac, Namespace, print_skipped, root_or_skip, test_name};
use linerate_udp::{Backend, Error, Group, Metadata, Options, Receiver, Sender, SenderOptions};
use linerate_wire::checksum::Sum;
use linerate_wire::ip::{self, Protocol};
use linerate_wire::virtio::{self, Flags, GsoType};
use linerate_wire::{ethernet, ipv4, udp};

/// A frame with `payload` for `there` from port 9 of `from`; its checksum is off by `wrong`.
fn frame(there: Mac, from: &str, to: SocketAddr, payload: &[u8], wrong: u8) -> Vec<u8> {
    let len = udp::HEADER_LEN + payload.len();
    let from: IpAddr = from.parse().expect("an address");
    let ip = ip::Repr::new(from, to.ip(), Protocol::UDP, len).expect("addresses of one version");
    let mut bytes = vec![0; ethernet::HEADER_LEN + ip.header_len() + len];
    let source = ethernet::Address([2, 0, 0, 0, 0, 9]);
    ethernet::Repr { destination: ethernet::Address(there.0), source, ether_type: ip.ether_type() }
        .emit(&mut bytes)
        .expect("room");
    let (packet, datagram) = bytes[ethernet::HEADER_LEN..].split_at_mut(ip.header_len());
    datagram[udp::HEADER_LEN..].copy_from_slice(payload);
    ip.emit(packet).expect("room");
    let ports = udp::Repr { source_port: 9, destination_port: to.port() };
    ports.emit(datagram, ip.pseudo()).expect("room");
    datagram[7] ^= wrong;
    bytes
}

#[test]
fn wrong_checksums_are_lost_and_counted_on_every_back_end() {
    root_or_skip!();
    let cable = Cable::new();
    for (from, ip) in [(THERE, HERE), (THERE6, HERE6)] {
        for kind in kinds(&cable, test_name!()) {
            let to = address(ip, 7000);
            let mut receiver = cable.receive_by(Options::new(to), kind).unwrap();
            let ring = cable.there.run(|| TxSocket::open("tx", 0, 64, 2048)).unwrap();
            let mut ring = ring.expect("a transmit ring");
            // What is behind each wrong one is right, so that when it has come they have been met.
            for (at, wrong) in [0, 1, 0, 0x80, 3, 0].into_iter().enumerate() {
                let bytes = frame(cable.veth.b.mac(), from, to, &[at as u8; 40], wrong);
                let mut frame = ring.frame().expect("room");
                ring.bytes(&mut frame)[..bytes.len()].copy_from_slice(&bytes);
                ring.send(frame, bytes.len());
            }
            ring.flush().unwrap();
            let mut came = Vec::new();
            gather(&mut receiver, 3, |message| {
                assert_eq!(message.payload, [message.payload[0]; 40], "{kind}");
                came.push(message.payload[0]);
            });
            assert_eq!(came, [0, 2, 5], "{kind} over {ip}");
            let losses = receiver.drops().unwrap();
            assert_eq!((losses.checksum, losses.total()), (3, 3), "{kind} over {ip}");
        }
    }
}

/// What the filter of a socket rejects has no wrong checksum.
#[test]
fn messages_that_a_filter_rejects_are_counted_as_such() {
    root_or_skip!();
    let cable = Cable::new();
    for (ip, backend) in [HERE, HERE6].into_iter().flat_map(|ip| {
        [Backend::Recvmmsg, Backend::Gro, Backend::Uring].map(|backend| (ip, backend))
    }) {
        let to = address(ip, 0);
        let given = cable.here.run(|| std::net::UdpSocket::bind(to)).unwrap().unwrap();
        let to = given.local_addr().unwrap();
        crate::consent::filter(&given).unwrap();
        let mut receiver = cable.receive(Options::from_socket(given).unwrap(), Some(backend));
        let receiver = receiver.as_mut().unwrap();
        let mut sender = cable.send(SenderOptions { gso: false, ..SenderOptions::new(to) });
        for payload in [b"A1", b"B1", b"B2", b"A2"] {
            sender.message(2).unwrap().copy_from_slice(payload);
            sender.flush().unwrap();
        }
        gather(receiver, 2, |message| assert_eq!(message.payload[0], b'A', "{backend}"));
        let lost = receiver.drops().unwrap();
        assert_eq!((lost.other, lost.total()), (2, 2), "{backend} over {ip}: {lost:?}");
    }
}

#[test]
fn what_the_kernel_does_not_segment_goes_one_by_one() {
    root_or_skip!();
    let cable = Cable::new();
    for kind in kinds(&cable, test_name!()) {
        let to = address(HERE, 7000);
        let options = Options { message_size: 4000, ..Options::new(to) };
        let mut receiver = cable.receive_by(options, kind).unwrap();
        let mut sender = cable.send(SenderOptions { message_size: 4000, ..SenderOptions::new(to) });
        let mut number = 0u8;
        let mut exchange = |sender: &mut Sender, len: usize| {
            for at in 0..10 {
                sender.message(len).unwrap().fill(number + at);
            }
            sender.flush().unwrap();
            let mut came = Vec::new();
            gather(&mut receiver, 10, |message| {
                assert_eq!(message.payload, vec![message.payload[0]; len], "{kind}");
                came.push(message.payload[0]);
            });
            // Fragments of several datagrams are put together in any order.
            came.sort_unstable();
            assert_eq!(came, (number..number + 10).collect::<Vec<_>>(), "{kind}");
            number += 10;
            (
                sender.statistics().messages,
                sender.statistics().unsegmented,
                sender.statistics().refused,
            )
        };
        // Segments longer than the MTU are refused (`udp_send_skb` in `net/ipv4/udp.c`).
        assert_eq!(exchange(&mut sender, 4000), (10, 10, 0), "{kind}");
        assert!(
            sender.fallback_reason().unwrap().contains("4000 bytes are longer than the MTU"),
            "{:?}",
            sender.fallback_reason()
        );
        // As long ones are known now; short ones are segmented as ever.
        let calls = sender.statistics().syscalls;
        assert_eq!(exchange(&mut sender, 4000), (20, 10, 0), "{kind}");
        assert_eq!(exchange(&mut sender, 64), (30, 10, 0), "{kind}");
        assert_eq!(sender.statistics().syscalls, calls + 2, "{kind}: not in one call each");
    }
}

/// The stack is asked: the same frames to a plain socket and to every backend.
#[test]
fn what_the_stack_drops_is_dropped_and_what_it_delivers_is_delivered() {
    root_or_skip!();
    let cable = Cable::new();
    let lo = cable.here.interface("lo").unwrap();
    lo.up().unwrap();
    lo.add_address("10.99.0.1".parse().unwrap(), 32).unwrap();
    lo.add_address("fd99::1".parse().unwrap(), 128).unwrap();
    let mac = cable.veth.b.mac();
    let groups = ["ff00::7", "ff01::7", "ff02::7:8", "ff0e::7"];
    // Source, destination, and whether the length field of UDP is 0.
    let v4 = [
        ("10.77.0.1", HERE, false),
        (HERE, HERE, false),
        ("10.99.0.1", HERE, false),
        ("10.77.0.1", "10.99.0.1", false),
        (HERE, "10.99.0.1", false),
        ("10.77.0.255", HERE, false),
        ("240.0.0.1", HERE, false),
        ("10.77.0.1", HERE, true),
        (HERE, "239.7.7.7", false),
        ("10.77.0.1", "239.7.7.7", false),
    ];
    let v6 = [
        (THERE6, HERE6, false),
        (HERE6, HERE6, false),
        ("fd99::1", HERE6, false),
        (THERE6, "fd99::1", false),
        ("::1", HERE6, false),
        ("ff02::1", HERE6, false),
        (THERE6, HERE6, true),
        (THERE6, groups[0], false),
        (THERE6, groups[1], false),
        (THERE6, groups[2], false),
        (THERE6, groups[3], false),
    ];
    for (bind, cases, sure) in
        [("0.0.0.0", &v4[..], (THERE, HERE)), ("::", &v6[..], (THERE6, HERE6))]
    {
        let mut oracle = None;
        for kind in kinds(&cable, test_name!()) {
            let mut options =
                Options { interface: Some("rx".into()), ..Options::new(address(bind, 7000)) };
            let joined = if bind == "::" { &groups[..] } else { &["239.7.7.7"][..] };
            for group in joined {
                options.groups.push(Group::any_source(group.parse().unwrap()).on("rx"));
            }
            let mut receiver = cable.receive_by(options, kind).unwrap();
            let ring = cable.there.run(|| TxSocket::open("tx", 0, 64, 2048)).unwrap();
            let mut ring = ring.expect("a transmit ring");
            let mut send = |from: &str, to: &str, byte: u8, no_length: bool| {
                let ip: IpAddr = to.parse().unwrap();
                let there = match ip {
                    IpAddr::V4(ip) if ip.is_multicast() => Mac([1, 0, 0x5e, 7, 7, 7]),
                    IpAddr::V6(ip) if ip.is_multicast() => {
                        let [.., a, b, c, d] = ip.octets();
                        Mac([0x33, 0x33, a, b, c, d])
                    }
                    _ => mac,
                };
                let mut bytes = frame(there, from, (ip, 7000).into(), &[byte; 40], 0);
                if no_length {
                    // The checksum has the length twice: in the pseudo header it stays.
                    let at = bytes.len() - 40 - udp::HEADER_LEN;
                    let checksum = u16::from_be_bytes([bytes[at + 6], bytes[at + 7]]);
                    let length = u16::from_be_bytes([bytes[at + 4], bytes[at + 5]]);
                    let sum = u32::from(checksum) + u32::from(length);
                    let sum = (sum & 0xffff) + (sum >> 16);
                    bytes[at + 4..at + 6].fill(0);
                    bytes[at + 6..at + 8].copy_from_slice(&(sum as u16).to_be_bytes());
                }
                let mut frame = ring.frame().expect("room");
                ring.bytes(&mut frame)[..bytes.len()].copy_from_slice(&bytes);
                ring.send(frame, bytes.len());
                ring.flush().unwrap();
            };
            let mut came = Vec::new();
            for (number, &(from, to, no_length)) in (0u8..).zip(cases) {
                send(from, to, number, no_length);
                send(sure.0, sure.1, 100, false);
                let (mut found, mut over, end) = (false, false, Instant::now() + TIMEOUT);
                while !over {
                    assert!(Instant::now() < end, "{kind}: nothing comes");
                    let mut batch = receiver.receive(soon(Duration::from_millis(100))).unwrap();
                    while let Some(message) = batch.next() {
                        found |= message.payload == [number; 40];
                        over |= message.payload == [100; 40];
                    }
                }
                // What came by the stack may be read after the ring.
                let mut batch = receiver.receive(soon(Duration::from_millis(10))).unwrap();
                while let Some(message) = batch.next() {
                    found |= message.payload == [number; 40];
                }
                came.push((from, to, no_length, found));
            }
            let wanted = oracle.get_or_insert_with(|| came.clone());
            assert_eq!(*wanted, came, "{kind}");
        }
        let delivered = oracle.unwrap().iter().filter(|case| case.3).count();
        assert!(delivered >= 3, "{delivered} of the cases are delivered");
    }
}

/// Link-local sources and groups have a scope, by number or by name the same on every backend.
#[test]
fn an_address_of_one_link_has_its_scope_on_every_back_end() {
    root_or_skip!();
    let cable = Cable::new();
    let (here, there) = ("fe80::2", "fe80::1");
    for (end, own) in [(&cable.veth.b, here), (&cable.veth.a, there)] {
        end.add_address(own.parse().unwrap(), 64).unwrap();
    }
    let index = cable.veth.b.index();
    let scoped = |ip: &str, port| -> SocketAddr {
        SocketAddrV6::new(ip.parse().unwrap(), port, 0, index).into()
    };
    let group: IpAddr = "ff02::7:7".parse().unwrap();
    for (bind, to) in [(scoped(here, 7000), here), (address("::", 7000), "ff02::7:7")] {
        for kind in kinds(&cable, test_name!()) {
            let mut options = Options {
                metadata: Metadata::ALL,
                interface: Some("rx".into()),
                ..Options::new(bind)
            };
            if bind.ip().is_unspecified() {
                options.groups.push(Group::any_source(group).on("rx"));
            }
            let mut receiver = cable.receive_by(options, kind).unwrap();
            let mut bytes = frame(cable.veth.b.mac(), there, address(to, 7000), b"hello", 0);
            if bind.ip().is_unspecified() {
                bytes[..6].copy_from_slice(&[0x33, 0x33, 0, 7, 0, 7]);
            }
            let ring = cable.there.run(|| TxSocket::open("tx", 0, 64, 2048)).unwrap();
            let mut ring = ring.expect("a transmit ring");
            let mut frame = ring.frame().expect("room");
            ring.bytes(&mut frame)[..bytes.len()].copy_from_slice(&bytes);
            ring.send(frame, bytes.len());
            ring.flush().unwrap();
            gather(&mut receiver, 1, |message| {
                assert_eq!(message.source, scoped(there, 9), "{kind}");
                assert_eq!(message.destination, scoped(to, 7000), "{kind}");
            });
            assert!(kind.backend != Backend::Xdp || receiver.ring_messages() == 1, "{kind}");
        }
    }
}

/// Ten messages of 64 bytes, together shorter than the MTU: joined they would fit into a frame.
const FEW: u8 = 10;

/// Whoever receives gets them one by one.
fn gather_few(receiver: &mut Receiver, kind: &str) {
    let mut came = Vec::new();
    gather(receiver, FEW.into(), |message| {
        assert_eq!(message.payload, [message.payload[0]; 64], "{kind}");
        came.push(message.payload[0]);
    });
    assert_eq!(came, (0..FEW).collect::<Vec<_>>(), "{kind}");
    assert_eq!(receiver.drops().unwrap().total(), 0, "{kind}");
}

fn send_few(sender: &mut Sender) {
    for number in 0..FEW {
        sender.message(64).unwrap().fill(number);
    }
    sender.flush().unwrap();
    assert_eq!(
        (sender.statistics().syscalls, sender.statistics().unsegmented),
        (1, 0),
        "not in one piece"
    );
}

#[test]
fn few_messages_that_leave_in_one_piece_come_one_by_one() {
    root_or_skip!();
    let cable = Cable::new();
    cable.veth.a.set_features(&[("tx-udp-segmentation", true)]).unwrap();
    cable.veth.b.set_features(&[("rx-udp-gro-forwarding", true)]).unwrap();
    for ip in [HERE, HERE6] {
        for kind in kinds(&cable, test_name!()) {
            let to = address(ip, 7000);
            let mut receiver = cable.receive_by(Options::new(to), kind).unwrap();
            send_few(&mut cable.send(SenderOptions::new(to)));
            gather_few(&mut receiver, &kind.to_string());
        }
    }
}

/// Where the kernel hands a program joined datagrams as one frame, there is no `xdp`.
fn no_xdp(namespace: &Namespace, to: SocketAddr, interface: &str, send: impl Fn()) {
    let build = |backend| {
        let options = Options {
            interface: Some(interface.into()),
            backend,
            take_over: true,
            ..Options::new(to)
        };
        namespace.run(|| Receiver::open(options)).expect("the namespace")
    };
    match build(Some(Backend::Xdp)) {
        Err(error) => assert!(error.to_string().contains("joined"), "{error}"),
        Ok(mut receiver) => {
            send();
            gather_few(&mut receiver, "xdp");
        }
    }
    let mut receiver = build(None).expect("a receiver");
    assert_ne!(receiver.backend(), Backend::Xdp, "{:?}", receiver.selection_reasons());
    send();
    let backend = receiver.backend().to_string();
    gather_few(&mut receiver, &backend);
}

#[test]
fn few_messages_in_one_piece_on_an_interface_without_native_xdp() {
    root_or_skip!();
    let host = Namespace::create("lulo").unwrap();
    let lo = host.interface("lo").unwrap();
    lo.up().unwrap();
    let to = address("10.79.0.2", 7000);
    lo.add_address(to.ip(), 32).unwrap();
    no_xdp(&host, to, "lo", || {
        let options = SenderOptions::new(to);
        send_few(
            &mut host.run(|| Sender::open(options)).expect("the namespace").expect("a sender"),
        );
    });
}

#[test]
fn few_messages_in_one_piece_from_a_virtual_machine() {
    root_or_skip!();
    let host = Namespace::create("lutap").unwrap();
    let device = host.run(|| tun::Device::builder("guest").build()).unwrap().expect("a device");
    let tap = host.interface("guest").unwrap();
    let to = address("10.79.0.2", 7000);
    tap.add_address(to.ip(), 24).unwrap();
    tap.up().unwrap();
    let payload: Vec<_> = (0..FEW).flat_map(|number| [number; 64]).collect();
    let mut bytes = frame(tap.mac(), "10.79.0.1", to, &payload, 0);
    // As a guest hands it over: the sum of the pseudo header alone, the rest for who splits it.
    let (start, offset) = (ethernet::HEADER_LEN + ipv4::HEADER_LEN, 6);
    let ips = [[10, 79, 0, 1], [10, 79, 0, 2]].map(std::net::Ipv4Addr::from);
    let len = (bytes.len() - start) as u16;
    let pseudo = Sum::pseudo_v4(ips[0], ips[1], Protocol::UDP, len).folded();
    bytes[start + offset..][..2].copy_from_slice(&pseudo.to_be_bytes());
    let header = virtio::Header {
        flags: Flags::NEEDS_CSUM,
        gso_type: GsoType::UDP_L4,
        hdr_len: (start + udp::HEADER_LEN) as u16,
        gso_size: 64,
        csum_start: start as u16,
        csum_offset: offset as u16,
        ..virtio::Header::default()
    };
    no_xdp(&host, to, "guest", || {
        assert!(device.queues()[0].send(&header, &bytes).expect("sent"));
    });
}

#[test]
fn messages_of_8192_bytes_are_the_same() {
    root_or_skip!();
    let cable = Cable::new();
    // In one frame each, which is longer than a chunk of AF_XDP, or in fragments.
    for mtu in [9000, 1500] {
        for end in [&cable.veth.a, &cable.veth.b] {
            end.set_mtu(mtu).unwrap();
        }
        for kind in kinds(&cable, test_name!()) {
            let to = address(HERE, 7000);
            let options = Options { message_size: 8192, ..Options::new(to) };
            let mut receiver = cable.receive_by(options, kind).unwrap();
            let mut sender =
                cable.send(SenderOptions { message_size: 8192, ..SenderOptions::new(to) });
            for window in 0..4u8 {
                for at in 0..16 {
                    let payload = sender.message(8192).unwrap();
                    payload.iter_mut().zip(0u32..).for_each(|(byte, place)| {
                        *byte = (place % 251) as u8 ^ (window * 16 + at);
                    });
                }
                sender.flush().unwrap();
                let mut came = 0u64;
                gather(&mut receiver, 16, |message| {
                    let number = message.payload[0];
                    let right = message.payload.iter().zip(0u32..);
                    assert!(message.payload.len() == 8192 && !message.truncated, "{kind}");
                    assert!(right.into_iter().all(|(b, place)| *b == (place % 251) as u8 ^ number));
                    came |= 1 << number;
                });
                assert_eq!(came, 0xffff << (16 * window), "{kind}, MTU {mtu}");
            }
            assert_eq!(receiver.drops().unwrap().total(), 0, "{kind}, MTU {mtu}");
        }
    }
}

#[test]
fn busy_polling_delivers_on_every_back_end() {
    root_or_skip!();
    let cable = Cable::new();
    for kind in kinds(&cable, test_name!()) {
        let to = address(HERE, 7000);
        let options = Options { busy_poll: Some(Duration::from_micros(50)), ..Options::new(to) };
        let mut receiver = match cable.receive_by(options, kind) {
            Err(Error::System { source, .. })
                if source.raw_os_error() == Some(nix::libc::ENOPROTOOPT) =>
            {
                print_skipped(
                    &format!("{} with {kind}", test_name!()),
                    "this kernel has no busy polling",
                );
                continue;
            }
            other => other.unwrap(),
        };
        let mut sender = cable.send(SenderOptions::new(to));
        for round in 0..20u8 {
            for _ in 0..8 {
                sender.message(64).unwrap().fill(round);
            }
            sender.flush().unwrap();
            gather(&mut receiver, 8, |message| assert_eq!(message.payload, [round; 64]));
        }
        assert_eq!(receiver.drops().unwrap().total(), 0, "{kind}");
    }
}

#[test]
fn a_back_end_is_chosen_by_measuring() {
    root_or_skip!();
    let cable = Cable::new();
    let able = back_ends(&cable, test_name!());
    let to = address(HERE, 7000);
    let (over, end) = (AtomicBool::new(false), Instant::now() + 4 * TIMEOUT);
    std::thread::scope(|scope| {
        let mut sender =
            cable.send(SenderOptions { rate: Some(5000.0), batch: 16, ..SenderOptions::new(to) });
        let over = &over;
        scope.spawn(move || {
            while !over.load(Relaxed) && Instant::now() < end {
                sender.message(64).unwrap().fill(9);
                // While no socket is bound, the kernel answers with ICMP errors; the sender continues.
                let _ = sender.flush();
            }
        });
        let options = Options {
            take_over: true,
            calibrate: Some(Duration::from_millis(200)),
            ..Options::new(to)
        };
        let mut receiver = cable.receive(options, None).unwrap();
        let runs = receiver.calibration_runs().to_vec();
        let chosen = runs.iter().find(|run| run.backend == receiver.backend());
        let heard = runs.iter().any(|run| run.messages > 0);
        let mut came = 0;
        while came < 100 && Instant::now() < end {
            let mut batch = receiver.receive(soon(Duration::from_millis(100))).unwrap();
            while let Some(message) = batch.next() {
                assert_eq!(message.payload, [9; 64]);
                came += 1;
            }
        }
        over.store(true, Relaxed);
        assert_eq!(runs.len(), able.len(), "{runs:?}, {:?}", receiver.selection_reasons());
        assert!(runs.iter().all(|run| able.contains(&run.backend)), "{runs:?}");
        // On a machine so busy that no run got a message, the choice is that without a measurement.
        assert!(!heard || chosen.is_some_and(|run| run.messages > 0), "{runs:?}");
        assert!(came >= 100, "{came} came by {}", receiver.backend());
    });
}

#[test]
fn where_nothing_comes_the_choice_is_as_without_measuring() {
    let to = address("127.0.0.1", 0);
    let options = || Options::new(to);
    let measured =
        Receiver::open(Options { calibrate: Some(Duration::from_millis(1)), ..options() }).unwrap();
    assert_eq!(measured.backend(), Receiver::open(options()).unwrap().backend());
    assert!(
        measured.calibration_runs().iter().all(|run| run.messages == 0),
        "{:?}",
        measured.calibration_runs()
    );
    assert!(
        measured.selection_reasons().iter().any(|why| why == "no message arrived to calibrate by")
    );
}
