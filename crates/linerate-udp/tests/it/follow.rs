//! A receiver follows its interface: down, gone, other addresses. The stack says what is to be delivered.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::support::{Cable, HERE, Kind, TIMEOUT, WINDOW, address, kinds, soon};
use linerate_testkit::{Mac, Namespace, exclusive, root_or_skip, test_name};
use linerate_udp::{Backend, Error, Message, Options, Receiver, SenderOptions};
use linerate_wire::ethernet;
use nix::poll::{PollFd, PollFlags, poll};

/// What a reader meets that polls and tries: an error, within the time.
fn error_of(receiver: &mut Receiver, kind: Kind) -> Error {
    let end = Instant::now() + TIMEOUT;
    loop {
        assert!(Instant::now() < end, "{kind} says nothing");
        let mut entry = [PollFd::new(receiver.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut entry, 1000u16);
        match receiver.try_receive() {
            Ok(mut batch) => while batch.next().is_some() {},
            Err(error) => return error,
        }
    }
}

/// A reader that polls and tries, until `is_done`. Nothing fails.
fn polls_until(receiver: &mut Receiver, kind: Kind, is_done: impl Fn(&Receiver) -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !is_done(receiver) {
        assert!(Instant::now() < end, "{kind} says nothing");
        let mut entry = [PollFd::new(receiver.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut entry, 1000u16);
        let mut batch = receiver.try_receive().unwrap();
        while batch.next().is_some() {}
    }
}

/// One that waits gets an empty batch. Not for ever: a test that hangs names no backend.
fn waits_until_down_again(receiver: &mut Receiver, kind: Kind) {
    let (before, end) = (receiver.times_down(), Instant::now() + TIMEOUT);
    while receiver.times_down() == before {
        let mut batch = receiver.receive(Some(end)).unwrap();
        while batch.next().is_some() {}
        drop(batch);
        assert!(Instant::now() < end, "{kind} says nothing to a reader that waits");
    }
}

#[test]
fn an_interface_that_goes_down_or_away_is_reported_on_every_back_end() {
    let _exclusive = exclusive();
    root_or_skip!();
    let all = kinds(&Cable::new(), test_name!());
    for kind in all {
        let cable = Cable::new();
        let to = address(HERE, 7000);
        let open = || {
            cable
                .receive_by(Options { interface: Some("rx".into()), ..Options::new(to) }, kind)
                .unwrap()
        };
        let mut receiver = open();
        assert!(receiver.try_receive().unwrap().is_empty());
        cable.veth.b.down().unwrap();
        polls_until(&mut receiver, kind, |receiver| receiver.times_down() == 1);
        assert!(receiver.receive(soon(Duration::from_millis(20))).unwrap().is_empty(), "{kind}");
        cable.veth.b.up().unwrap();
        // It goes on; and one that waits is told as well.
        let mut sender = cable.send(SenderOptions::new(to));
        let (mut came, end) = (false, Instant::now() + TIMEOUT);
        while !came {
            assert!(Instant::now() < end, "{kind} does not go on");
            sender.message(1).unwrap().fill(1);
            let _ = sender.flush();
            came = receiver.receive(soon(Duration::from_millis(20))).unwrap().next().is_some();
        }
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| waits_until_down_again(&mut receiver, kind));
            std::thread::sleep(Duration::from_millis(30));
            cable.veth.b.down().unwrap();
            waiting.join().unwrap();
        });
        cable.veth.b.up().unwrap();
        // Into another namespace, then nowhere.
        let other = Namespace::create("luel").unwrap();
        let moved =
            cable.here.command("ip").args(["link", "set", "rx", "netns", other.name()]).status();
        assert!(moved.unwrap().success());
        for _ in 0..2 {
            let error = error_of(&mut receiver, kind);
            assert!(
                matches!(&error, Error::InterfaceGone(name) if name == "rx"),
                "{kind}: {error}"
            );
        }
        // The other namespace has what is sent there.
        let rx = other.interface("rx").unwrap();
        rx.add_address(HERE.parse().unwrap(), 24).unwrap();
        rx.up().unwrap();
        let plain = other.run(|| std::net::UdpSocket::bind((HERE, 7000))).unwrap().unwrap();
        plain.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let end = Instant::now() + TIMEOUT;
        while plain.recv(&mut [0; 8]).is_err() {
            assert!(Instant::now() < end, "{kind} keeps the frames of another namespace");
            sender.message(1).unwrap().fill(1);
            let _ = sender.flush();
        }
        rx.delete().unwrap();
        let error = error_of(&mut receiver, kind);
        assert!(matches!(error, Error::InterfaceGone(_)), "{kind}: {error}");
    }
}

/// What the kernel told is in order, however late it is read.
#[test]
fn an_interface_that_was_down_for_a_moment_is_reported_on_every_back_end() {
    root_or_skip!();
    for kind in kinds(&Cable::new(), test_name!()) {
        let cable = Cable::new();
        let options = Options { interface: Some("rx".into()), ..Options::new(address(HERE, 7000)) };
        let mut receiver = cable.receive_by(options, kind).unwrap();
        for (times_down, in_all) in [(1, 1), (2, 4)] {
            for _ in 0..times_down {
                cable.veth.b.down().unwrap();
                cable.veth.b.up().unwrap();
            }
            // The second time it is down when this is read.
            if times_down == 2 {
                cable.veth.b.down().unwrap();
            }
            polls_until(&mut receiver, kind, |receiver| receiver.times_down() == in_all);
        }
        cable.veth.b.up().unwrap();
        cable.veth.b.down().unwrap();
        polls_until(&mut receiver, kind, |receiver| receiver.times_down() == 5);
    }
}

fn ip(namespace: &Namespace, arguments: &str) {
    let status = namespace.command("ip").args(arguments.split_whitespace()).status().expect("ip");
    assert!(status.success(), "ip {arguments}");
}

/// Sends frames to an address and a MAC address until one has come, or some did not for certain: a message to the
/// receiver's own address follows, which comes in any case.
fn delivered(
    cable: &Cable,
    receiver: &mut Receiver,
    mac: Mac,
    to: &str,
    sure: (Mac, &str),
) -> bool {
    let send = |mac: Mac, to: SocketAddr, byte: u8| {
        let next_hop = Some(ethernet::Address(mac.0));
        let options = SenderOptions {
            interface: Some("tx".into()),
            next_hop,
            message_size: 64,
            ..SenderOptions::new(to)
        };
        let mut sender = cable.send(options);
        sender.message(1).unwrap().fill(byte);
        sender.flush().unwrap();
    };
    send(mac, address(to, 7000), 1);
    send(sure.0, address(sure.1, 7000), 2);
    let (mut found, end) = (false, Instant::now() + TIMEOUT);
    let mut last = false;
    while !last {
        assert!(Instant::now() < end, "the last message did not come");
        let mut batch = receiver.receive(soon(Duration::from_millis(100))).unwrap();
        while let Some(Message { payload, .. }) = batch.next() {
            found |= payload == [1];
            last |= payload == [2];
        }
    }
    // By the companion, after the ring.
    let mut batch = receiver.receive(soon(Duration::from_millis(20))).unwrap();
    while let Some(message) = batch.next() {
        found |= message.payload == [1];
    }
    found
}

#[test]
fn what_the_stack_delivers_is_delivered_after_each_change() {
    let _exclusive = exclusive();
    root_or_skip!();
    let all = kinds(&Cable::new(), test_name!());
    for kind in all {
        for v6 in [false, true] {
            let cable = Cable::new();
            let Cable { here, veth, .. } = &cable;
            here.interface("lo").unwrap().up().unwrap();
            let (any, sure, service, more) = match v6 {
                false => ("0.0.0.0", HERE, "10.99.0.1", "10.77.0.77"),
                true => ("::", "fd77::2", "fd99::1", "fd77::77"),
            };
            let bits = if v6 { 128 } else { 32 };
            if v6 {
                let all = "fd99::".parse().unwrap();
                cable.there.add_route(all, 16, sure.parse().unwrap()).unwrap();
            }
            let mac = veth.b.mac();
            let options =
                Options { interface: Some("rx".into()), ..Options::new(address(any, 7000)) };
            let mut receiver = cable.receive_by(options, kind).unwrap();
            let by_ring = kind.backend == Backend::Xdp;
            // The kernel tells of IPv6 addresses from a work item.
            let mut check = |to: &str, mac, wanted: bool| {
                let end = Instant::now() + TIMEOUT;
                loop {
                    while receiver.try_receive().unwrap().next().is_some() {}
                    let slow = |receiver: &Receiver| receiver.messages() - receiver.ring_messages();
                    let before = slow(&receiver);
                    let came = delivered(&cable, &mut receiver, mac, to, (mac, sure));
                    let is_fast = !by_ring || slow(&receiver) == before;
                    if came == wanted && is_fast {
                        break;
                    }
                    assert!(
                        Instant::now() < end,
                        "{kind}: {to} came: {came}, by the ring: {is_fast}"
                    );
                }
            };
            check(more, mac, false);
            let nodad = if v6 { "nodad" } else { "" };
            ip(here, &format!("address add {more}/{bits} dev rx {nodad}"));
            check(more, mac, true);
            ip(here, &format!("address del {more}/{bits} dev rx"));
            check(more, mac, false);
            // Of another interface of the host.
            check(service, mac, false);
            ip(here, &format!("address add {service}/{bits} dev lo {nodad}"));
            check(service, mac, true);
            ip(here, &format!("address del {service}/{bits} dev lo"));
            check(service, mac, false);
            let other = Mac([2, 0, 0, 0, 7, 7]);
            ip(here, "link set rx address 02:00:00:00:07:07");
            // The sender's neighbour entry is of no use to a frame with its own next hop.
            check(sure, other, true);
            ip(here, "link set rx mtu 1400");
            check(sure, other, true);
        }
    }
}

#[test]
fn a_reader_that_never_waits_follows_too() {
    let _exclusive = exclusive();
    root_or_skip!();
    let cable = Cable::new();
    for kind in kinds(&cable, test_name!()) {
        let options = Options {
            interface: Some("rx".into()),
            spin: true,
            ..Options::new(address("0.0.0.0", 7000))
        };
        let mut receiver = cable.receive_by(options, kind).unwrap();
        ip(&cable.here, "address add 10.77.0.88/32 dev rx");
        let end = Instant::now() + TIMEOUT;
        let mut seen = false;
        while !seen {
            assert!(Instant::now() < end, "{kind}");
            let mut sender = cable.send(SenderOptions {
                interface: Some("tx".into()),
                next_hop: Some(ethernet::Address(cable.veth.b.mac().0)),
                message_size: 64,
                ..SenderOptions::new(address("10.77.0.88", 7000))
            });
            for _ in 0..WINDOW {
                sender.message(1).unwrap().fill(1);
            }
            sender.flush().unwrap();
            let mut batch = receiver.receive(soon(Duration::from_millis(100))).unwrap();
            while batch.next().is_some() {}
            drop(batch);
            seen = kind.backend != Backend::Xdp || receiver.ring_messages() > 0;
        }
        ip(&cable.here, "address del 10.77.0.88/32 dev rx");
    }
}
