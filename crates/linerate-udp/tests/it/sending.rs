//! The send backends: answers are the same, and what went past the stack is counted.

use std::net::UdpSocket;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use linerate_testkit::{root_or_skip, test_name};
use linerate_udp::{
    Backend, Metadata, Options, Receiver, SendBackend, SendOptions, Socket, Transmit, TransmitClock,
};
use linerate_wire::ethernet;

use crate::support::{
    Cable, HERE, HERE6, Kind, THERE, THERE6, TIMEOUT, WINDOW, address, gather, kinds, soon,
};

fn open(cable: &Cable, bind: &str, kind: Kind, send: SendOptions) -> Socket {
    let options =
        Options { interface: Some("rx".into()), send, ..Options::new(address(bind, 7000)) };
    let options = Options {
        backend: Some(kind.backend),
        delivery: kind.delivery,
        ring_size: 16 << 20,
        ..options
    };
    cable.socket(&options)
}

fn by(backend: SendBackend) -> SendOptions {
    SendOptions { backend, ..SendOptions::default() }
}

/// A receiver of the other host, which says everything of a message.
fn peer(cable: &Cable, ip: &str, backend: Backend) -> Receiver {
    let options: Options = Options { metadata: Metadata::ALL, ..Options::new(address(ip, 0)) };
    let options = Options { backend: Some(backend), ring_size: 16 << 20, ..options };
    cable.there.run(|| Receiver::open(options)).unwrap().unwrap()
}

/// Asks with these payloads, and has the socket answer each with what it says, made by `change`.
fn ask(
    socket: &mut Socket,
    from: &Receiver,
    to: std::net::SocketAddr,
    payloads: &[Vec<u8>],
    change: impl Fn(&mut Transmit<'_>),
) {
    let asking = UdpSocket::from(from.socket().try_clone_to_owned().unwrap());
    for payload in payloads {
        asking.send_to(payload, to).unwrap();
    }
    let Socket { receiver, transmitter } = socket;
    let (mut answered, end) = (0, Instant::now() + TIMEOUT);
    while answered < payloads.len() {
        assert!(Instant::now() < end, "{answered} came");
        let mut batch = receiver.receive(soon(Duration::from_millis(100))).unwrap();
        while let Some(message) = batch.next() {
            let mut answer = message.reply(message.payload);
            change(&mut answer);
            transmitter.push(&answer).unwrap();
            answered += 1;
        }
        transmitter.flush().unwrap();
    }
}

#[test]
fn every_send_backend_answers_alike() {
    root_or_skip!();
    let cable = Cable::new();
    // No two neighbours of one size: what is joined takes the stack where the driver copies.
    let payloads: Vec<_> =
        (0..WINDOW as u8).map(|at| vec![at; [9, 700, 10, 1, 0][usize::from(at) % 5]]).collect();
    for kind in kinds(&cable, test_name!()) {
        for &backend in SendBackend::ALL {
            for (bind, asked, from) in [
                (HERE, HERE, THERE),
                (HERE6, HERE6, THERE6),
                ("::", HERE, THERE),
                ("::", HERE6, THERE6),
            ] {
                let mut socket = open(&cable, bind, kind, by(backend));
                let mut peer = peer(&cable, from, Backend::Recvmmsg);
                let to = address(asked, 7000);
                ask(&mut socket, &peer, to, &payloads, |answer| answer.traffic_class = Some(0xb9));
                let mut came = Vec::new();
                gather(&mut peer, WINDOW, |message| {
                    let class = message.traffic_class.unwrap();
                    came.push((message.payload.to_vec(), message.source, class));
                });
                let wanted: Vec<_> = payloads.iter().map(|one| (one.clone(), to, 0xb9)).collect();
                assert_eq!(came, wanted, "{kind} {backend} {bind}");
                let sent = socket.transmitter.statistics();
                let by_ring = backend == SendBackend::Xdp && kind.backend == Backend::Xdp;
                let ring = if by_ring { WINDOW } else { 0 };
                let bytes = payloads.iter().map(Vec::len).sum::<usize>() as u64;
                assert_eq!((sent.messages, sent.ring, sent.bytes), (WINDOW, ring, bytes), "{kind}");
                assert_eq!(peer.drops().unwrap().checksum, 0, "{kind} {backend}");
                let reason = socket.transmitter.fallback_reason();
                let no_ring = backend == SendBackend::Xdp && !by_ring;
                assert_eq!(reason.is_some(), no_ring, "{kind} {backend}: {reason:?}");
            }
        }
    }
}

#[test]
fn what_the_ring_cannot_send_takes_the_stack_and_is_counted() {
    root_or_skip!();
    let cable = Cable::new();
    for kind in kinds(&cable, test_name!()) {
        if kind.backend != Backend::Xdp {
            continue;
        }
        let mut socket = open(&cable, "::", kind, by(SendBackend::Xdp));
        let ring = |socket: &Socket| socket.transmitter.statistics().ring;
        let (mut v4, mut v6) =
            (peer(&cable, THERE, Backend::Recvmmsg), peer(&cable, THERE6, Backend::Recvmmsg));
        let (to, to6) = (address(HERE, 7000), address(HERE6, 7000));
        // IPv6 packets may be longer than the path takes, and IPv4 ones than the interface does: the first ring, the
        // others stack.
        ask(&mut socket, &v4, to, &[vec![1; 1472]], |_| {});
        assert_eq!(ring(&socket), 1, "{kind}");
        ask(&mut socket, &v4, to, &[vec![2; 1473]], |_| {});
        ask(&mut socket, &v6, to6, &[vec![3; 1233]], |_| {});
        assert_eq!(ring(&socket), 1, "{kind}");
        ask(&mut socket, &v6, to6, &[vec![4; 1232]], |_| {});
        assert_eq!(ring(&socket), 2, "{kind}");
        // Another interface, and no hardware address.
        ask(&mut socket, &v4, to, &[vec![5; 5]], |answer| answer.next_hop = None);
        ask(&mut socket, &v4, to, &[vec![6; 6]], |answer| {
            answer.next_hop = Some(ethernet::Address::BROADCAST);
        });
        assert_eq!(ring(&socket), 2, "{kind}");
        // One super-datagram costs the stack less than its messages cost a ring that copies.
        ask(&mut socket, &v4, to, &[[7; 7]; 16].map(Vec::from), |_| {});
        let joined = ring(&socket) - 2;
        assert!(joined < 16, "{kind}: {:?}", socket.transmitter.statistics());
        let mut lens = Vec::new();
        gather(&mut v4, 20, |message| lens.push(message.payload.len()));
        assert_eq!(lens, [&[1472, 1473, 5, 6][..], &[7; 16]].concat(), "{kind}");
        lens.clear();
        gather(&mut v6, 2, |message| lens.push(message.payload.len()));
        assert_eq!(lens, [1233, 1232], "{kind}");
        // There is one ring.
        let second = socket.receiver.transmitter();
        assert!(
            second.fallback_reason().is_some() || kind.delivery != linerate_udp::Delivery::AfXdp
        );
    }
}

#[test]
fn the_ring_follows_the_interface() {
    root_or_skip!();
    for kind in kinds(&Cable::new(), test_name!()) {
        if kind.backend != Backend::Xdp {
            continue;
        }
        let cable = Cable::new();
        let mut socket = open(&cable, HERE, kind, by(SendBackend::Xdp));
        let mut peer = peer(&cable, THERE, Backend::Xdp);
        let to = address(HERE, 7000);
        let mut frames = Vec::new();
        ask(&mut socket, &peer, to, &[vec![1]], |_| {});
        gather(&mut peer, 1, |message| frames.push(message.next_hop.unwrap()));
        assert_eq!(frames, [ethernet::Address(cable.veth.b.mac().0)], "{kind}");

        let mac = linerate_testkit::Mac([2, 0, 0, 0, 7, 7]);
        cable.veth.b.set_mac(mac).unwrap();
        cable.veth.a.add_neighbour(to.ip(), mac).unwrap();
        // It reads what has changed.
        assert!(socket.receiver.try_receive().unwrap().is_empty());
        ask(&mut socket, &peer, to, &[vec![2]], |_| {});
        gather(&mut peer, 1, |message| frames.push(message.next_hop.unwrap()));
        assert_eq!(frames[1], ethernet::Address(mac.0), "{kind}");
        assert_eq!(socket.transmitter.statistics().ring, 2, "{kind}");

        // A smaller MTU: the stack makes fragments.
        cable.veth.b.set_mtu(1400).unwrap();
        assert!(socket.receiver.try_receive().unwrap().is_empty());
        let next_hop = Some(ethernet::Address(cable.veth.a.mac().0));
        let long = Transmit { next_hop, ..Transmit::new(peer.address(), &[3; 1380]) };
        socket.transmitter.send(&[long]).unwrap();
        assert_eq!(socket.transmitter.statistics().ring, 2, "{kind}");
        gather(&mut peer, 1, |message| assert_eq!(message.payload.len(), 1380));
    }
}

#[test]
fn a_full_ring_takes_the_stack_and_loses_none() {
    root_or_skip!();
    let cable = Cable::new();
    for kind in kinds(&cable, test_name!()) {
        if kind.backend != Backend::Xdp {
            continue;
        }
        let mut socket = open(&cable, HERE, kind, by(SendBackend::Xdp));
        let to = address(THERE, 9);
        let next_hop = Some(ethernet::Address(cable.veth.a.mac().0));
        let one = Transmit { next_hop, ..Transmit::new(to, b"to the discard port") };
        let all = [one; 5000];
        let mut sent = 0;
        while sent < all.len() {
            sent += socket.transmitter.try_send(&all[sent..]).unwrap();
        }
        let by = socket.transmitter.statistics();
        // The other host answers that nobody is there.
        assert_eq!(by.messages + by.refused, 5000, "{kind}: {by:?}");
        assert!(by.ring > 0 && by.syscalls < 500, "{kind}: {by:?}");
    }
}

#[test]
fn transmit_timestamps_name_their_datagrams() {
    root_or_skip!();
    let cable = Cable::new();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    for kind in kinds(&cable, test_name!()) {
        for (bind, to) in [(HERE, THERE), ("::", THERE6)] {
            let options =
                Options { interface: Some("rx".into()), ..Options::new(address(bind, 7000)) };
            let send = SendOptions { timestamps: true, ..SendOptions::default() };
            let options = Options { send, metadata: Metadata::ALL, ..options };
            let options =
                Options { backend: Some(kind.backend), delivery: kind.delivery, ..options };
            let options = Options { ring_size: 16 << 20, ..options };
            let mut socket = cable.socket(&options);
            let peer = cable.there.run(|| UdpSocket::bind((to, 0))).unwrap().unwrap();
            let to = peer.local_addr().unwrap();
            let joined = Transmit { segment_size: Some(3), ..Transmit::new(to, b"in three") };
            let before = now();
            socket.transmitter.send(&[Transmit::new(to, b"first"), joined]).unwrap();
            socket.transmitter.send(&[Transmit::new(to, b"last")]).unwrap();
            let sent = socket.transmitter.statistics();
            assert_eq!((sent.messages, sent.datagrams), (5, 3), "{kind}");
            let (mut stamps, end) = (Vec::new(), Instant::now() + TIMEOUT);
            while stamps.len() < 3 {
                assert!(Instant::now() < end, "{kind}: {stamps:?}");
                assert!(
                    socket
                        .receiver
                        .receive(soon(Duration::from_millis(50)))
                        .unwrap()
                        .next()
                        .is_none()
                );
                stamps.extend(std::iter::from_fn(|| socket.receiver.next_transmit_timestamp()));
            }
            assert_eq!(
                stamps.iter().map(|stamp| stamp.id).collect::<Vec<_>>(),
                [0, 1, 2],
                "{kind}"
            );
            let times: Vec<_> = stamps.iter().map(|stamp| stamp.time).collect();
            assert!(
                before <= times[0] && times.is_sorted() && times[2] <= now(),
                "{kind}: {times:?}"
            );
            // What is received says as much as before.
            let asked = if to.is_ipv4() { HERE } else { HERE6 };
            peer.send_to(b"hello", (asked, 7000)).unwrap();
            let end = Instant::now() + TIMEOUT;
            loop {
                assert!(Instant::now() < end, "{kind}: nothing came");
                let mut batch = socket.receiver.receive(soon(Duration::from_millis(50))).unwrap();
                let Some(message) = batch.next() else { continue };
                assert_eq!(message.destination, address(asked, 7000), "{kind}");
                assert!(message.timestamp.is_some() && message.traffic_class == Some(0), "{kind}");
                assert!(message.interface_index.is_some(), "{kind}");
                break;
            }
        }
    }
}

/// A server that always has messages gets its timestamps, too: those that wait take the memory of messages.
#[test]
fn timestamps_come_while_messages_wait() {
    root_or_skip!();
    let cable = Cable::new();
    for kind in kinds(&cable, test_name!()) {
        let to = address(HERE, 7000);
        let send = SendOptions { timestamps: true, ..SendOptions::default() };
        let options = Options { batch: 1, send, ..Options::new(to) };
        let options = Options { backend: Some(kind.backend), delivery: kind.delivery, ..options };
        let options = Options { ring_size: 16 << 20, ..options };
        let mut socket = cable.socket(&options);
        let peer = peer(&cable, THERE, Backend::Recvmmsg);
        let mut stamps = 0;
        // Different destinations, so that GRO joins none.
        for _ in 0..20 {
            cable.fill(to, 16);
            for _ in 0..16 {
                socket.transmitter.send(&[Transmit::new(peer.address(), b"answer")]).unwrap();
                let mut batch = socket.receiver.receive(soon(TIMEOUT)).unwrap();
                assert!(batch.next().is_some() && batch.next().is_none(), "{kind}");
                drop(batch);
                stamps += std::iter::from_fn(|| socket.receiver.next_transmit_timestamp()).count();
            }
            cable.fill(to, 1);
            stamps += std::iter::from_fn(|| socket.receiver.next_transmit_timestamp()).count();
        }
        assert!(stamps > 200, "{kind}: {stamps} of 320 timestamps");
    }
}

/// Gives the receiving interface a qdisc; false where the kernel has none such.
fn has_qdisc(cable: &Cable, kind: &str) -> bool {
    let mut tc = cable.here.command("tc");
    tc.args(["qdisc", "replace", "dev", "rx", "root"]).args(kind.split(' '));
    tc.output().is_ok_and(|output| output.status.success())
}

/// With `IP_RECVERR` the kernel says what its qdisc drops: a message is refused, and nobody waits for ever.
#[test]
fn messages_that_the_qdisc_drops_are_refused() {
    root_or_skip!();
    let cable = Cable::new();
    let kind = Kind { backend: Backend::Recvmmsg, delivery: linerate_udp::Delivery::Auto };
    if !has_qdisc(&cable, "bfifo limit 1") {
        linerate_testkit::print_skipped(test_name!(), "the kernel has no bfifo");
        return;
    }
    let (to, plain) = (address(THERE, 9), cable.here.run(|| UdpSocket::bind((HERE, 0))).unwrap());
    let plain = plain.unwrap();
    nix::sys::socket::setsockopt(&plain, nix::sys::socket::sockopt::Ipv4RecvErr, &true).unwrap();
    let refused = plain.send_to(b"dropped", to).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ENOBUFS));
    for backend in [SendBackend::Sendmmsg, SendBackend::Uring] {
        let options = Options { send: by(backend), ..Options::new(address(HERE, 7000)) };
        let mut socket =
            cable.socket(&Options { icmp_errors: true, backend: Some(kind.backend), ..options });
        let joined = Transmit { segment_size: Some(3), ..Transmit::new(to, b"in three") };
        // What hangs ends the test.
        let (done, wait) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            socket.transmitter.send(&[Transmit::new(to, b"one"), joined]).unwrap();
            assert_eq!(
                socket.transmitter.try_send(&[joined, Transmit::new(to, b"one")]).unwrap(),
                2
            );
            let transmitter = &mut socket.transmitter;
            transmitter.push(&joined).unwrap();
            assert!(transmitter.try_flush().unwrap());
            let (at, why) = transmitter.last_refusal().unwrap();
            assert_eq!((at, why.raw_os_error()), (to, Some(libc::ENOBUFS)));
            let sent = transmitter.statistics();
            done.send((sent.messages, sent.refused, sent.unsegmented)).unwrap();
        });
        assert_eq!(wait.recv_timeout(TIMEOUT), Ok((0, 11, 0)), "{backend}");
    }
}

#[test]
fn transmit_times_are_kept_by_fq_and_said_to_be_ignored_elsewhere() {
    root_or_skip!();
    let cable = Cable::new();
    let send = SendOptions {
        transmit_clock: Some(TransmitClock::Monotonic),
        max_pacing_rate: Some(1 << 30),
        ..SendOptions::default()
    };
    let kind = Kind { backend: Backend::Recvmmsg, delivery: linerate_udp::Delivery::Auto };
    let mut socket = open(&cable, HERE, kind, send.clone());
    let reason = socket.transmitter.fallback_reason().unwrap().to_owned();
    assert!(reason.contains("noqueue") && reason.contains("fq"), "{reason}");
    let mut peer = peer(&cable, THERE, Backend::Recvmmsg);
    let to = peer.address();
    let late = |time| Transmit { time: Some(time), ..Transmit::new(to, b"late") };
    socket.transmitter.send(&[late(1)]).unwrap();
    gather(&mut peer, 1, |message| assert_eq!(message.payload, b"late"));
    // Without the option the kernel refuses it, which is counted.
    let mut other = open_at(&cable, 7001, SendOptions::default());
    other.transmitter.send(&[late(1)]).unwrap();
    assert_eq!(other.transmitter.statistics().refused, 1);
    drop(socket);

    if !has_qdisc(&cable, "fq") {
        linerate_testkit::print_skipped(test_name!(), "the kernel has no fq");
        return;
    }
    let mut socket = open(&cable, HERE, kind, send);
    assert_eq!(socket.transmitter.fallback_reason(), None);
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    let wait = Duration::from_millis(200);
    let (start, mut came) = (Instant::now(), Vec::new());
    socket
        .transmitter
        .send(&[late(now + wait.as_nanos() as u64), Transmit::new(to, b"early")])
        .unwrap();
    gather(&mut peer, 2, |message| came.push((message.payload.to_vec(), start.elapsed())));
    assert_eq!((&came[0].0[..], &came[1].0[..]), (&b"early"[..], &b"late"[..]));
    assert!(came[1].1 >= wait - Duration::from_millis(2), "{came:?}");
}

fn open_at(cable: &Cable, port: u16, send: SendOptions) -> Socket {
    let options = Options { send, ..Options::new(address(HERE, port)) };
    let options = Options { backend: Some(Backend::Recvmmsg), ..options };
    cable.socket(&options)
}
