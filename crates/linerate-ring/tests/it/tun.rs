//! TUN and TAP devices, with the kernel's own stack as the other side.

use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use linerate_ring::tun::{Device, Kind, MAX_IOVECS, MAX_PACKET, Offloads, Queue};
use linerate_ring::{Error, Result};
use linerate_testkit::{Namespace, root_or_skip, uninterrupted};
use linerate_wire::virtio::{Flags, GsoType, Header};
use linerate_wire::{ipv4, layers};

/// A namespace with one end of a network, the other end of which is the test.
struct Host {
    namespace: Namespace,
    device: Device,
}

impl Host {
    fn new(build: impl FnOnce() -> Result<Device> + Send, address: &str) -> Self {
        let namespace = Namespace::create("tun").expect("a namespace");
        let device = namespace.run(build).expect("the namespace").expect("a device");
        let interface = namespace.interface(device.name()).expect("the interface");
        interface.up().expect("up");
        interface.add_address(address.parse().expect("an address"), 24).expect("an address");
        Self { namespace, device }
    }

    fn queue(&self) -> &Queue {
        &self.device.queues()[0]
    }
}

/// The next packet that is not the kernel's chatter, within five seconds.
fn next(queue: &Queue, wanted: impl Fn(&Header, &[u8]) -> bool) -> (Header, Vec<u8>) {
    let mut buffer = vec![0; MAX_PACKET];
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        match queue.receive(&mut buffer).expect("received") {
            Some((header, len)) if wanted(&header, &buffer[..len]) => {
                return (header, buffer[..len].to_vec());
            }
            Some(_) => {}
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    panic!("no such packet came");
}

fn is_udp(_: &Header, packet: &[u8]) -> bool {
    packet[0] >> 4 == 4 && packet[9] == 17
}

#[test]
fn a_datagram_goes_out_and_its_answer_comes_in() {
    root_or_skip!();
    let host = Host::new(|| Device::builder("u%d").kind(Kind::Tun).build(), "10.1.0.1");
    assert_eq!((host.device.name(), host.device.kind()), ("u0", Kind::Tun));
    let socket = host.namespace.run(|| UdpSocket::bind("10.1.0.1:5000")).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket.send_to(b"ping", "10.1.0.2:6000").unwrap();
    let (header, packet) = next(host.queue(), is_udp);
    assert_eq!(header.flags, Flags::NEEDS_CSUM);
    assert_eq!((header.csum_start, header.csum_offset), (20, 6));
    assert_eq!(&packet[28..], b"ping");

    let answer = datagram(b"pong");
    let pieces: Vec<_> = answer.chunks(3).map(IoSlice::new).collect();
    assert!(host.queue().send_vectored(&Header::default(), &pieces).unwrap());
    let mut bytes = [0; 16];
    let (len, from) = uninterrupted(|| socket.recv_from(&mut bytes)).unwrap();
    assert_eq!((&bytes[..len], from), (&b"pong"[..], "10.1.0.2:6000".parse().unwrap()));
}

/// An IP packet from 10.1.0.2:6000 to 10.1.0.1:5000.
fn datagram(message: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    etherparse::PacketBuilder::ipv4([10, 1, 0, 2], [10, 1, 0, 1], 64)
        .udp(6000, 5000)
        .write(&mut packet, message)
        .expect("a packet");
    packet
}

#[test]
fn the_stack_hands_over_super_packets_and_takes_them() {
    root_or_skip!();
    // What one host sends, the other receives, as it is.
    let a = Host::new(|| Device::builder("a0").kind(Kind::Tun).build(), "10.2.0.1");
    let b = Host::new(|| Device::builder("b0").kind(Kind::Tun).build(), "10.2.0.2");
    let listener = b.namespace.run(|| TcpListener::bind("10.2.0.2:7000")).unwrap().unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        listener.accept().expect("a connection").0.read_to_end(&mut bytes).expect("read");
        bytes
    });
    let sent: Vec<u8> = (0..2_000_000_u32).map(|at| (at.wrapping_mul(at) >> 5) as u8).collect();
    let copy = sent.clone();
    let to: SocketAddr = "10.2.0.2:7000".parse().unwrap();
    let a_namespace = &a.namespace;
    let largest = std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let mut stream = a_namespace.run(|| TcpStream::connect(to)).unwrap().unwrap();
            stream.write_all(&copy).unwrap();
        });
        let mut buffer = vec![0; MAX_PACKET];
        let mut largest = (Header::default(), 0);
        let deadline = Instant::now() + Duration::from_secs(20);
        while !(reader.is_finished() && writer.is_finished()) && Instant::now() < deadline {
            let mut moved = false;
            for (from, to) in [(a.queue(), b.queue()), (b.queue(), a.queue())] {
                while let Some((header, len)) = from.receive(&mut buffer).unwrap() {
                    moved = true;
                    if len > largest.1 {
                        largest = (header, len);
                    }
                    // IPv6's chatter is not for a device that has none.
                    assert!(to.send(&header, &buffer[..len]).unwrap());
                }
            }
            if !moved {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        writer.join().unwrap();
        largest
    });
    assert!(reader.join().unwrap() == sent);
    assert_eq!(largest.0.gso_type, GsoType::TCPV4);
    assert!(largest.1 > 20_000, "{largest:?}");
    assert_eq!(largest.0.gso_size, 1448);
}

#[test]
fn without_offloads_packets_are_finished() {
    root_or_skip!();
    let build = || Device::builder("n0").kind(Kind::Tun).offloads(Offloads::NONE).build();
    let host = Host::new(build, "10.1.0.1");
    assert_eq!(host.device.offloads(), Offloads::NONE);
    let socket = host.namespace.run(|| UdpSocket::bind("10.1.0.1:5000")).unwrap().unwrap();
    socket.send_to(&[7; 3000], "10.1.0.2:6000").unwrap();
    for more in [true, true, false] {
        let (header, packet) = next(host.queue(), is_udp);
        assert_eq!(header, Header::default());
        assert_eq!(ipv4::Packet::new_checked(&packet[..]).unwrap().more_fragments(), more);
        assert!(packet.len() <= 1500);
    }
}

#[test]
fn a_tap_hands_over_datagrams_to_segment() {
    root_or_skip!();
    let host = Host::new(|| Device::builder("t0").build(), "10.1.0.1");
    if !host.device.offloads().contains(Offloads::USO) {
        return linerate_testkit::print_skipped(
            "a_tap_hands_over_datagrams",
            "no USO in this kernel",
        );
    }
    let interface = host.namespace.interface("t0").unwrap();
    interface
        .add_neighbour("10.1.0.2".parse().unwrap(), "02:00:00:00:00:02".parse().unwrap())
        .unwrap();
    let socket = host.namespace.run(|| UdpSocket::bind("10.1.0.1:5000")).unwrap().unwrap();
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::UdpGsoSegment, &1000).unwrap();
    socket.send_to(&[9; 4500], "10.1.0.2:6000").unwrap();
    let (header, frame) = next(host.queue(), |header, _| header.is_gso());
    assert_eq!((header.gso_type, header.gso_size), (GsoType::UDP_L4, 1000));
    let layers = layers::parse(&frame).unwrap();
    assert_eq!(layers.udp(&frame).unwrap().payload(), [9; 4500]);
    assert_eq!(usize::from(header.csum_start), layers.transport_offset);
}

#[test]
fn flows_are_spread_over_queues_and_the_last_one_takes_the_device_along() {
    root_or_skip!();
    let build = || Device::builder("q0").kind(Kind::Tun).queues(4).build();
    let Host { namespace, device } = Host::new(build, "10.1.0.1");
    let socket = namespace.run(|| UdpSocket::bind("10.1.0.1:5000")).unwrap().unwrap();
    for port in 6000..6064 {
        socket.send_to(b"spread", ("10.1.0.2", port)).unwrap();
    }
    let mut buffer = vec![0; MAX_PACKET];
    let mut queues = device.into_queues();
    let counts: Vec<usize> = queues
        .iter()
        .map(|queue| std::iter::from_fn(|| queue.receive(&mut buffer).unwrap()).count())
        .collect();
    assert_eq!(counts.iter().sum::<usize>(), 64, "{counts:?}");
    assert!(counts.iter().filter(|count| **count > 0).count() > 1, "{counts:?}");
    let last = queues.pop().unwrap();
    drop(queues);
    assert!(namespace.interface("q0").is_ok());
    drop(last);
    assert!(namespace.interface("q0").is_err());
}

#[test]
fn trouble_is_named() {
    root_or_skip!();
    let host = Host::new(|| Device::builder("e0").kind(Kind::Tun).build(), "10.1.0.1");
    let build = |name: &'static str| {
        host.namespace.run(|| Device::builder(name).build()).unwrap().unwrap_err().to_string()
    };
    assert!(build("e0").contains("ip link delete e0"), "{}", build("e0"));
    assert!(build("").contains("not a valid interface name"));
    assert!(build("sixteen-bytes-is").contains("1 to 15 bytes"));
    let many = Device::builder("m0").queues(257).build().unwrap_err().to_string();
    assert!(many.contains("257"), "{many}");

    let queue = host.queue();
    let header = Header { gso_type: GsoType::TCPV4, gso_size: 100, ..Header::default() };
    let header = Header { flags: Flags::NEEDS_CSUM, csum_start: 9000, ..header };
    let error = queue.send(&header, &datagram(b"x")).unwrap_err().to_string();
    assert!(error.contains("e0") && error.contains("from 9000"), "{error}");
    let error = queue.send(&Header::default(), &[0xff; 40]).unwrap_err().to_string();
    assert!(error.contains("no packet"), "{error}");
    let pieces = [IoSlice::new(b"x"); MAX_IOVECS + 1];
    let error = queue.send_vectored(&Header::default(), &pieces).unwrap_err().to_string();
    assert!(error.contains("129"), "{error}");

    let socket = host.namespace.run(|| UdpSocket::bind("10.1.0.1:5000")).unwrap().unwrap();
    while queue.receive(&mut [0; 2000]).unwrap().is_some() {}
    socket.send_to(&[1; 100], "10.1.0.2:6000").unwrap();
    let error = queue.receive(&mut [0; 127]).unwrap_err().to_string();
    assert!(error.contains("longer than the buffer of 127"), "{error}");
    socket.send_to(&[1; 100], "10.1.0.2:6000").unwrap();
    assert_eq!(queue.receive(&mut [0; 128]).unwrap().unwrap().1, 128);

    let interface = host.namespace.interface("e0").unwrap();
    interface.down().unwrap();
    let error = queue.send(&Header::default(), &datagram(b"x")).unwrap_err();
    assert!(matches!(error, Error::InterfaceDown(_)), "{error}");
    assert!(queue.receive(&mut [0; 128]).unwrap().is_none());
    interface.delete().unwrap();
    let error = queue.send(&Header::default(), &datagram(b"x")).unwrap_err();
    assert!(matches!(error, Error::InterfaceGone(_)), "{error}");
    let error = queue.receive(&mut [0; 128]).unwrap_err();
    assert!(matches!(error, Error::InterfaceGone(_)), "{error}");
}

#[test]
fn the_descriptor_wakes_a_poll() {
    root_or_skip!();
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let host = Host::new(|| Device::builder("p0").kind(Kind::Tun).build(), "10.1.0.1");
    let socket = host.namespace.run(|| UdpSocket::bind("10.1.0.1:5000")).unwrap().unwrap();
    let ready = |timeout: u16| {
        let mut fds = [PollFd::new(host.queue().as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::from(timeout)).unwrap()
    };
    while host.queue().receive(&mut [0; 2000]).unwrap().is_some() {}
    assert_eq!(ready(10), 0);
    socket.send_to(b"wake", "10.1.0.2:6000").unwrap();
    assert_eq!(ready(5000), 1);
}

#[test]
fn a_descriptor_of_a_device_is_one_queue_of_it() {
    root_or_skip!();
    let name = "given0";
    let host = Host::new(|| Device::builder(name).kind(Kind::Tap).build(), "10.9.0.1");
    let copy = host.queue().as_fd().try_clone_to_owned().expect("a copy");
    let device = Device::builder("descriptor 7").kind(Kind::Tap).from_fd(copy).expect("a device");
    assert_eq!((device.name(), device.offloads()), (name, host.device.offloads()));
    let other = std::fs::File::open("/dev/null").expect("open").into();
    let error =
        Device::builder("descriptor 7").kind(Kind::Tap).from_fd(other).expect_err("no device");
    assert!(error.to_string().contains("descriptor 7 is neither"), "{error}");
    assert!(linerate_ring::tun::dup_inherited_fd(1_000_000).is_err());
}
