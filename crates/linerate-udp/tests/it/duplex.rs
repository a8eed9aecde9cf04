//! A socket receives and sends on one port, on every backend. Plain sockets of the other host are its peers.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use linerate_testkit::{exclusive, root_or_skip, test_name, uninterrupted};
use linerate_udp::{
    Group, Metadata, MtuDiscovery, Options, Receiver, SendOptions, Socket, Transmit,
};

use crate::support::{
    Cable, HERE, HERE6, Kind, THERE, THERE6, TIMEOUT, WINDOW, address, kinds, soon,
};

fn open(cable: &Cable, options: Options, kind: Kind) -> Socket {
    let (backend, delivery) = (Some(kind.backend), kind.delivery);
    let options = Options { backend, delivery, ring_size: 16 << 20, ..options };
    cable.socket(&options)
}

/// A plain socket of the other host.
fn peer(cable: &Cable, ip: &str) -> UdpSocket {
    let socket = cable.there.run(|| UdpSocket::bind((ip, 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket
}

/// Answers messages with what they say, until there were `count`.
fn echo(socket: &mut Socket, count: usize) {
    let Socket { receiver, transmitter } = socket;
    let (mut answered, end) = (0, Instant::now() + TIMEOUT);
    while answered < count {
        assert!(Instant::now() < end, "{answered} of {count} came");
        let mut batch = receiver.receive(soon(Duration::from_millis(100))).unwrap();
        while let Some(message) = batch.next() {
            transmitter.push(&message.reply(message.payload)).unwrap();
            answered += 1;
        }
        transmitter.flush().unwrap();
    }
}

#[test]
fn answers_come_from_the_address_that_was_asked() {
    root_or_skip!();
    let cable = Cable::new();
    let more = ["10.77.0.5", "fd77::5"];
    for (ip, bits) in more.into_iter().zip([24, 64]) {
        cable.veth.b.add_address(ip.parse().unwrap(), bits).unwrap();
        cable.veth.a.add_neighbour(ip.parse().unwrap(), cable.veth.b.mac()).unwrap();
    }
    for kind in kinds(&cable, test_name!()) {
        for (bind, asked) in [
            (HERE, &[(HERE, THERE)][..]),
            ("0.0.0.0", &[(HERE, THERE), (more[0], THERE)]),
            (HERE6, &[(HERE6, THERE6)]),
            ("::", &[(HERE, THERE), (HERE6, THERE6), (more[0], THERE), (more[1], THERE6)]),
        ] {
            let options =
                Options { interface: Some("rx".into()), ..Options::new(address(bind, 7000)) };
            let mut socket = open(&cable, options, kind);
            for &(to, from) in asked {
                let (peer, to) = (peer(&cable, from), address(to, 7000));
                // Runs of one size, which are joined, and others.
                let said: Vec<_> = (0..WINDOW as u8)
                    .map(|at| vec![at; [9, 9, 9, 700, 0][usize::from(at) % 5]])
                    .collect();
                for bytes in &said {
                    peer.send_to(bytes, to).unwrap();
                }
                echo(&mut socket, said.len());
                let mut room = [0; 2048];
                for bytes in &said {
                    let (len, source) = uninterrupted(|| peer.recv_from(&mut room)).unwrap();
                    assert_eq!((&room[..len], source), (&bytes[..], to), "{kind}, bound to {bind}");
                }
            }
            let statistics = socket.transmitter.statistics();
            assert_eq!(statistics.messages, asked.len() as u64 * WINDOW, "{kind}");
            assert_eq!(statistics.refused, 0, "{kind}: {:?}", socket.transmitter.last_refusal());
            assert!(statistics.syscalls <= 4 * WINDOW, "{kind}: {statistics:?}");
        }
    }
}

/// A broadcast address or a group is nobody's: answers have the source that a plain socket's have.
#[test]
fn answers_to_broadcasts_and_groups_come_from_an_address_of_the_host() {
    root_or_skip!();
    let cable = Cable::new();
    for (ip, bits) in [("10.77.0.5", 24), ("10.78.0.1", 24), ("fd77::5", 64)] {
        cable.veth.b.add_address(ip.parse().unwrap(), bits).unwrap();
    }
    let asked =
        ["10.77.0.255", "255.255.255.255", "10.78.0.255", "239.7.7.7", "10.77.0.5", "ff15::7"];
    let peers = [peer(&cable, THERE), peer(&cable, THERE6)];
    peers[0].set_broadcast(true).unwrap();
    let peer_of = |to: &str| &peers[usize::from(to.contains(':'))];
    let answer_from = |to: &str| {
        let mut room = [0; 8];
        let (len, source) = uninterrupted(|| peer_of(to).recv_from(&mut room)).unwrap();
        assert_eq!(&room[..len], b"hello", "{to}");
        source
    };
    let plain = cable.here.run(|| UdpSocket::bind("[::]:7001")).unwrap().unwrap();
    plain.set_read_timeout(Some(TIMEOUT)).unwrap();
    for kind in kinds(&cable, test_name!()) {
        let mut options = Options { metadata: Metadata::ALL, ..Options::new(address("::", 7000)) };
        for group in ["239.7.7.7", "ff15::7"] {
            options.groups.push(Group::any_source(group.parse().unwrap()).on("rx"));
        }
        let mut socket = open(&cable, Options { interface: Some("rx".into()), ..options }, kind);
        for to in asked {
            peer_of(to).send_to(b"hello", (to, 7000)).unwrap();
            echo(&mut socket, 1);
            let refusal = socket.transmitter.last_refusal();
            assert_eq!(socket.transmitter.statistics().refused, 0, "{kind}, {to}: {refusal:?}");
            let source = answer_from(to).ip();
            if to == "10.77.0.5" {
                assert_eq!(source, address(to, 0).ip(), "{kind}");
                continue;
            }
            plain.send_to(b"hello", mapped(peer_of(to).local_addr().unwrap())).unwrap();
            assert_eq!(source, answer_from(to).ip(), "{kind}, {to}");
        }
    }
}

/// An address as an IPv6 socket takes it.
fn mapped(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
        v6 => v6,
    }
}

#[test]
fn answering_allocates_nothing() {
    root_or_skip!();
    let cable = Cable::new();
    for kind in kinds(&cable, test_name!()) {
        let to = address(HERE, 7000);
        let mut socket = open(&cable, Options::new(to), kind);
        let peer = peer(&cable, THERE);
        let (allocations, ()) = crate::counting::allocations(|| {
            let mut room = [0; 64];
            for _ in 0..20 {
                for _ in 0..16 {
                    peer.send_to(&[7; 32], to).unwrap();
                }
                echo(&mut socket, 16);
                for _ in 0..16 {
                    assert_eq!(uninterrupted(|| peer.recv(&mut room)).unwrap(), 32);
                }
            }
        });
        assert_eq!(allocations, 0, "{kind}");
    }
}

#[test]
fn one_address_hears_both_versions_on_every_back_end() {
    root_or_skip!();
    let cable = Cable::new();
    let groups = ["239.7.7.7", "ff15::7"];
    for kind in kinds(&cable, test_name!()) {
        let mut options = Options {
            metadata: Metadata::ALL,
            interface: Some("rx".into()),
            ..Options::new(address("::", 7000))
        };
        for group in groups {
            options.groups.push(Group::any_source(group.parse().unwrap()).on("rx"));
        }
        let mut receiver = cable.receive_by(options, kind).unwrap();
        let mut wanted = Vec::new();
        for (to, from) in
            [(HERE, THERE), (HERE6, THERE6), (groups[0], THERE), (groups[1], THERE6), (HERE, THERE)]
        {
            let (to, from) = (address(to, 7000), peer(&cable, from));
            from.send_to(b"hello", to).unwrap();
            wanted.push((from.local_addr().unwrap(), to));
        }
        let (mut came, end) = (Vec::new(), Instant::now() + TIMEOUT);
        while came.len() < wanted.len() {
            assert!(Instant::now() < end, "{kind}: {came:?}");
            let mut batch = receiver.receive(soon(Duration::from_millis(100))).unwrap();
            while let Some(message) = batch.next() {
                assert_eq!(message.payload, b"hello", "{kind}");
                came.push((message.source, message.destination));
                assert!(message.traffic_class.is_some() && message.interface_index.is_some());
            }
        }
        assert_eq!(came, wanted, "{kind}");
        let by_ring = if kind.backend == linerate_udp::Backend::Xdp { 5 } else { 0 };
        assert_eq!(receiver.ring_messages(), by_ring, "{kind}");
        assert_eq!(receiver.drops().unwrap().total(), 0);
    }
    let only = Options { only_v6: true, ..Options::new(address("::", 7000)) };
    let first = cable.here.run(|| Receiver::open(only)).unwrap().unwrap();
    // Then IPv4 is for others.
    let other = cable.here.run(|| UdpSocket::bind(("0.0.0.0", 7000))).unwrap();
    assert!(other.is_ok());
    drop(first);
}

#[test]
fn a_transmit_goes_as_it_says() {
    root_or_skip!();
    let cable = Cable::new();
    let more = "10.77.0.5".parse().unwrap();
    cable.veth.b.add_address(more, 24).unwrap();
    for kind in kinds(&cable, test_name!()) {
        let options =
            Options { interface: Some("rx".into()), ..Options::new(address("0.0.0.0", 7000)) };
        let mut socket = open(&cable, options, kind);
        let there = Options { metadata: Metadata::ALL, ..Options::new(address(THERE, 0)) };
        let there = Options { backend: Some(linerate_udp::Backend::Recvmmsg), ..there };
        let mut there = cable.there.run(|| Receiver::open(there)).unwrap().unwrap();
        let index = Some(cable.veth.b.index());
        let to = there.address();
        let contents: Vec<u8> = (0..100).collect();
        let plain = Transmit::new(to, &contents[..7]);
        // The second goes nowhere, which is no matter of the others.
        let nowhere =
            Transmit { destination: address("203.0.113.1", 7), interface_index: index, ..plain };
        let all = [
            Transmit {
                segment_size: Some(30),
                traffic_class: Some(0xb9),
                source: Some(more),
                ..Transmit::new(to, &contents)
            },
            Transmit { source: Some("10.99.99.99".parse().unwrap()), ..nowhere },
            Transmit { interface_index: index, segment_size: Some(500), ..plain },
            plain,
        ];
        let by = cable.here.run(|| {
            socket.transmitter.send(&all[..2]).unwrap();
            assert_eq!(socket.transmitter.try_send(&all[2..]).unwrap(), 2);
            socket.transmitter.statistics()
        });
        let by = by.unwrap();
        assert_eq!((by.messages, by.refused, by.bytes), (6, 1, 114), "{kind}");
        let refusal = socket.transmitter.last_refusal().unwrap();
        assert_eq!(refusal.0, nowhere.destination, "{kind}: {}", refusal.1);
        let mut came = Vec::new();
        crate::support::gather(&mut there, 6, |message| {
            came.push((message.payload.to_vec(), message.source, message.traffic_class.unwrap()));
        });
        let own = address(HERE, 7000);
        let wanted: Vec<_> = contents
            .chunks(30)
            .map(|chunk| (chunk.to_vec(), (more, 7000).into(), 0xb9))
            .chain([(contents[..7].to_vec(), own, 0), (contents[..7].to_vec(), own, 0)])
            .collect();
        assert_eq!(came, wanted, "{kind}");
    }
}

#[test]
fn options_of_the_socket_are_set() {
    root_or_skip!();
    let cable = Cable::new();
    let options = |mtu_discovery| SendOptions {
        mtu_discovery: Some(mtu_discovery),
        ttl: Some(7),
        broadcast: Some(true),
        multicast_ttl: Some(3),
        multicast_loop: Some(false),
        multicast_interface: Some("rx".to_owned()),
        buffer_size: Some(1 << 20),
        ..SendOptions::default()
    };
    for (bind, to) in [(HERE, THERE), (HERE6, THERE6), ("::", THERE), ("::", THERE6)] {
        for (discovery, refused) in [
            (MtuDiscovery::Refuse, 1),
            (MtuDiscovery::Probe, 1),
            (MtuDiscovery::Fragment, 0),
            (MtuDiscovery::Off, 0),
        ] {
            let options = Options { send: options(discovery), ..Options::new(address(bind, 7000)) };
            let mut socket = cable.socket(&options);
            let plain = UdpSocket::from(socket.receiver.socket().try_clone_to_owned().unwrap());
            assert_eq!(
                plain.ttl().unwrap(),
                if bind == HERE || bind == "::" { 7 } else { plain.ttl().unwrap() }
            );
            assert!(plain.broadcast().unwrap());
            let peer = peer(&cable, to);
            let long = [1; 3000];
            socket.transmitter.send(&[Transmit::new(peer.local_addr().unwrap(), &long)]).unwrap();
            let by = socket.transmitter.statistics();
            assert_eq!((by.refused, by.messages), (refused, 1 - refused), "{bind} {discovery:?}");
            if refused == 0 {
                assert_eq!(uninterrupted(|| peer.recv(&mut [0; 4000])).unwrap(), 3000);
            }
        }
    }
}

#[test]
fn icmp_errors_name_the_peer_on_every_back_end() {
    let _exclusive = exclusive();
    root_or_skip!();
    let cable = Cable::new();
    // The kernel limits how many it sends.
    cable.there.sysctl("net/ipv4/icmp_ratelimit", "0").unwrap();
    cable.there.sysctl("net/ipv6/icmp/ratelimit", "0").unwrap();
    for kind in kinds(&cable, test_name!()) {
        for (bind, to) in [(HERE, THERE), (HERE6, THERE6), ("::", THERE)] {
            let options = Options {
                interface: Some("rx".into()),
                icmp_errors: true,
                ..Options::new(address(bind, 7000))
            };
            let mut socket = open(&cable, options, kind);
            let closed = address(to, 9);
            let peer = peer(&cable, to);
            for round in 0..3u8 {
                socket.transmitter.send(&[Transmit::new(closed, b"anybody")]).unwrap();
                let end = Instant::now() + TIMEOUT;
                let error = loop {
                    assert!(Instant::now() < end, "{kind}: no error");
                    // An empty batch before the deadline says that there is one.
                    assert!(
                        socket
                            .receiver
                            .receive(soon(Duration::from_millis(100)))
                            .unwrap()
                            .next()
                            .is_none()
                    );
                    if let Some(error) = socket.receiver.next_error() {
                        break error;
                    }
                };
                assert_eq!(error.destination, closed, "{kind}");
                assert_eq!(error.reporter, Some(closed.ip()), "{kind}");
                assert_eq!(error.error().kind(), std::io::ErrorKind::ConnectionRefused, "{kind}");
                // Others are served as before.
                peer.send_to(&[round], (if bind == "::" { HERE } else { bind }, 7000)).unwrap();
                echo(&mut socket, 1);
                let mut room = [9; 8];
                assert_eq!(uninterrupted(|| peer.recv(&mut room)).unwrap(), 1);
                assert_eq!(room[0], round);
            }
        }
    }
}

#[test]
fn a_socket_that_is_bound_already_is_taken() {
    root_or_skip!();
    let cable = Cable::new();
    for kind in kinds(&cable, test_name!()) {
        for (bind, asked, from) in
            [(HERE, HERE, THERE), ("0.0.0.0", HERE, THERE), ("::", HERE6, THERE6)]
        {
            let bound = cable.here.run(|| UdpSocket::bind((bind, 0))).unwrap().unwrap();
            let port = bound.local_addr().unwrap().port();
            let options =
                Options { interface: Some("rx".into()), ..Options::from_socket(bound).unwrap() };
            let mut socket = open(&cable, options, kind);
            assert_eq!(socket.receiver.address(), address(bind, port));
            let peer = peer(&cable, from);
            peer.send_to(b"hello", (asked, port)).unwrap();
            echo(&mut socket, 1);
            assert_eq!(
                uninterrupted(|| peer.recv_from(&mut [0; 8])).unwrap(),
                (5, address(asked, port)),
                "{kind}"
            );
        }
    }
    let stream = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(Options::from_socket(stream).is_err());
    let connected = UdpSocket::bind("127.0.0.1:0").unwrap();
    connected.connect("127.0.0.1:9").unwrap();
    let error = Options::from_socket(connected).unwrap_err().to_string();
    assert!(error.contains("connected"), "{error}");
}
