//! Super-packets through packet sockets: what the virtio header says of a frame in a ring, and what
//! the kernel makes of one that was sent with a frame.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::packet_support::{Cable, quick};
use linerate_ring::packet::{Options, Ring, Sender};
use linerate_ring::{Batch as _, Direction, Error, Ring as _};
use linerate_testkit::root_or_skip;
use linerate_wire::virtio::{Flags, GsoType, Header};
use linerate_wire::{layers, tcp};

/// A frame of a TCP segment over IPv4, its checksum left open, and the header that says so.
fn unfinished(payload: usize, tag: Option<[u8; 4]>) -> (Header, Vec<u8>) {
    let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .tcp(1000, 2000, 0xffff_fc00, 1024);
    let bytes: Vec<u8> = (0..payload).map(|at| (at * 7) as u8).collect();
    let mut frame = Vec::new();
    builder.write(&mut frame, &bytes).expect("a packet");
    // The sum of the pseudo header alone.
    let pseudo = linerate_wire::checksum::Sum::pseudo_v4(
        [10, 0, 0, 1].into(),
        [10, 0, 0, 2].into(),
        linerate_wire::ip::Protocol::TCP,
        (20 + payload) as u16,
    );
    frame[50..52].copy_from_slice(&pseudo.folded().to_be_bytes());
    let added = tag.map_or(0, |tag| {
        frame.splice(12..12, tag);
        4
    });
    let header = Header {
        flags: Flags::NEEDS_CSUM,
        gso_type: GsoType::TCPV4,
        hdr_len: 54 + added,
        gso_size: 1000,
        csum_start: 34 + added,
        csum_offset: tcp::CHECKSUM_OFFSET as u16,
        ..Header::default()
    };
    (header, frame)
}

/// Everything in the ring, with the header of each frame.
fn drain(ring: &mut Ring) -> Vec<(Option<Header>, Vec<u8>, Direction)> {
    let mut kept = Vec::new();
    while ring.wait(Duration::from_millis(100)).expect("waited") {
        while let Some(mut batch) = ring.next_batch() {
            while let Some(frame) = batch.next() {
                kept.push((frame.virtio, frame.head().to_vec(), frame.direction));
            }
        }
    }
    kept
}

#[test]
fn a_super_packet_comes_with_its_header_where_the_far_end_takes_it_whole() {
    root_or_skip!();
    let cable = Cable::new();
    let sender = cable.sender.run(|| Sender::open("tx")).unwrap().unwrap();
    let mut ring = cable.receive(Options { vnet_hdr: true, ..quick("rx") }).unwrap();
    let mut plain = cable.receive(quick("rx")).unwrap();
    for tag in [None, Some([0x81, 0, 0x20, 7])] {
        let (header, frame) = unfinished(60_000, tag);
        sender.send(&header, &frame).unwrap();
        let kept = drain(&mut ring);
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].0, Some(header), "tag {tag:?}");
        assert_eq!(kept[0].1, frame);
        assert_eq!(drain(&mut plain)[0].0, None);
    }
}

#[test]
fn the_kernel_segments_where_the_interface_cannot() {
    root_or_skip!();
    let cable = Cable::new();
    cable.veth.a.set_offloads(false).unwrap();
    let sender = cable.sender.run(|| Sender::open("tx")).unwrap().unwrap();
    let mut ring = cable.receive(Options { vnet_hdr: true, ..quick("rx") }).unwrap();
    let (header, frame) = unfinished(2500, None);
    sender.send(&header, &frame).unwrap();
    let kept = drain(&mut ring);
    let mut sequence = 0xffff_fc00_u32;
    assert_eq!(kept.len(), 3);
    for (virtio, bytes, _) in &kept {
        let layers = layers::parse(bytes).unwrap();
        let segment = layers.tcp(bytes).unwrap();
        assert_eq!(segment.sequence(), sequence);
        assert!(!virtio.unwrap().is_gso());
        assert!(!virtio.unwrap().flags.contains(Flags::NEEDS_CSUM));
        sequence = sequence.wrapping_add(segment.payload().len() as u32);
    }
    assert_eq!(sequence, 0xffff_fc00_u32.wrapping_add(2500));
}

#[test]
fn the_kernels_own_super_packets_say_their_segment_size() {
    root_or_skip!();
    let cable = Cable::new();
    cable.veth.a.add_address("10.9.0.1".parse().unwrap(), 24).unwrap();
    cable.veth.b.add_address("10.9.0.2".parse().unwrap(), 24).unwrap();
    let mut ring = cable.receive(Options { vnet_hdr: true, ..quick("rx") }).unwrap();
    let listener = cable.receiver.run(|| TcpListener::bind("10.9.0.2:9000")).unwrap().unwrap();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        listener.accept().expect("a connection").0.read_to_end(&mut bytes).expect("read");
        bytes.len()
    });
    let mut stream = cable.sender.run(|| TcpStream::connect("10.9.0.2:9000")).unwrap().unwrap();
    stream.write_all(&vec![7; 400_000]).unwrap();
    drop(stream);
    assert_eq!(reader.join().unwrap(), 400_000);
    let kept = drain(&mut ring);
    let supers: Vec<_> = kept.iter().filter(|(virtio, ..)| virtio.unwrap().is_gso()).collect();
    assert!(!supers.is_empty());
    for (virtio, bytes, direction) in supers {
        let virtio = virtio.unwrap();
        assert_eq!((virtio.gso_type, virtio.gso_size), (GsoType::TCPV4, 1448));
        assert_eq!((virtio.csum_start, virtio.csum_offset), (34, 16));
        assert_eq!(*direction, Direction::Inbound);
        assert!(bytes.len() > 1514);
    }
}

#[test]
fn a_header_that_contradicts_the_frame_is_refused_with_its_reason() {
    root_or_skip!();
    let cable = Cable::new();
    let sender = cable.sender.run(|| Sender::open("tx")).unwrap().unwrap();
    let (header, frame) = unfinished(5000, None);
    let contradicting = Header { csum_start: 6000, ..header };
    let error = sender.send(&contradicting, &frame).unwrap_err().to_string();
    assert!(error.contains("interface tx") && error.contains("checksum from 6000"), "{error}");
    let error = sender.send(&Header::default(), &frame).unwrap_err().to_string();
    assert!(error.contains("too long") && error.contains("5054"), "{error}");
    cable.veth.a.down().unwrap();
    let error = sender.send(&header, &frame).unwrap_err();
    assert!(matches!(error, Error::InterfaceDown(_)), "{error}");
    cable.veth.a.clone().delete().unwrap();
    let error = sender.send(&header, &frame).unwrap_err();
    assert!(matches!(error, Error::InterfaceGone(_)), "{error}");
}
