//! What is on the veth pair: no frame over the MTU, no wrong checksum, every byte where the kernel has it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use linerate_ring::packet::{DirectionFilter, Options, Ring, Sender};
use linerate_ring::{Batch as _, Ring as _};
use linerate_testkit::{Namespace, Random, VethOptions, root_or_skip};
use linerate_wire::checksum::Sum;
use linerate_wire::ip::Protocol;
use linerate_wire::layers::{self, Network};
use linerate_wire::virtio::{Flags, GsoType, Header};

use super::support::{FAR, Hosts, NEAR, count, tcp, udp};

/// Frames that `interface` received while `work` ran.
fn received(namespace: &Namespace, interface: &str, work: impl FnOnce()) -> Vec<Vec<u8>> {
    let build =
        || Ring::open(Options { direction: DirectionFilter::In, ..Options::new(interface) });
    let mut ring = namespace.run(build).unwrap().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let collect = || {
            let mut frames = Vec::new();
            loop {
                // What was asked for before the look has come when the look finds nothing.
                let last = done.load(Relaxed);
                if !ring.wait(Duration::from_millis(100)).unwrap() && last {
                    return (frames, ring.statistics().unwrap().drops);
                }
                while let Some(mut batch) = ring.next_batch() {
                    while let Some(frame) = batch.next() {
                        frames.push(frame.contiguous(&mut Vec::new()).to_vec());
                    }
                }
            }
        };
        let collector = scope.spawn(collect);
        work();
        done.store(true, Relaxed);
        let (frames, drops) = collector.join().unwrap();
        assert_eq!(drops, 0, "frames that were not looked at");
        frames
    })
}

/// Complains about a frame that a card would not have sent.
fn judge(frame: &[u8], mtu: usize) {
    let layers = layers::parse(frame).unwrap();
    assert!(frame.len() - layers.network_offset <= mtu, "{} bytes", frame.len());
    if let Some(ip) = layers.ipv4(frame) {
        assert!(ip.verify_checksum(), "IPv4 header of {frame:02x?}");
    }
    let fragment = matches!(
        layers.network,
        Network::Ipv4 { fragment: true } | Network::Ipv6 { fragment: true }
    );
    let (Some((source, destination)), Some(protocol), false) =
        (layers.addresses(frame), layers.protocol, fragment)
    else {
        return;
    };
    let bytes = &frame[layers.transport_offset..layers.end];
    let right = match protocol {
        Protocol::TCP | Protocol::UDP | Protocol::ICMPV6 => {
            let pseudo = Sum::pseudo(source, destination, protocol, bytes.len() as u16);
            pseudo.unwrap().bytes(bytes).is_valid()
        }
        _ => true,
    };
    assert!(right, "checksum of {protocol} in {frame:02x?}");
}

#[test]
fn every_frame_on_the_cable_is_finished() {
    root_or_skip!();
    for arguments in ["--backend xdp", "--backend packet", "--no-offload"] {
        let hosts = Hosts::new();
        let uplink = hosts.uplink(arguments);
        let frames = received(&hosts.far, "plain", || {
            for (_, far) in NEAR.iter().zip(FAR) {
                tcp(&hosts.near, &hosts.far, far.0, 1 << 20);
                udp(&hosts.near, &hosts.far, far.0, &[30_001, 12, 5000], 700);
                udp(&hosts.near, &hosts.far, far.0, &[9000, 30_000], 0);
            }
        });
        frames.iter().for_each(|frame| judge(frame, 1500));
        let full = frames.iter().filter(|frame| frame.len() == 1514).count();
        assert!(full > 1000, "{full} full frames with {arguments}");
        uplink.stop();
    }
}

/// A TCP super-packet over IPv4, as a stack hands it over: checksum open, two VLAN tags or none.
fn super_packet(payload: &[u8], tags: &[u16]) -> (Header, Vec<u8>) {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    for tag in tags {
        frame.extend([0x81, 0]);
        frame.extend(tag.to_be_bytes());
    }
    frame.extend([8, 0]);
    let ip = frame.len();
    let (source, destination) = ([10, 8, 0, 1], [10, 8, 0, 2]);
    let len = 20 + payload.len() as u16;
    frame.extend([0x45, 0]);
    frame.extend((20 + len).to_be_bytes());
    frame.extend([0x12, 0x34, 0x40, 0, 64, 6, 0, 0]);
    frame.extend(source);
    frame.extend(destination);
    let sum = Sum::ZERO.bytes(&frame[ip..]).checksum();
    frame[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    let pseudo = Sum::pseudo(source.into(), destination.into(), Protocol::TCP, len).unwrap();
    frame.extend([0x1b, 0x58, 0x1b, 0x59, 0xff, 0xff, 0xf0, 0, 0, 0, 0, 1, 0x50, 0x18, 1, 0]);
    frame.extend(pseudo.folded().to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    let header = Header {
        flags: Flags::NEEDS_CSUM,
        gso_type: GsoType::TCPV4,
        hdr_len: (ip + 40) as u16,
        gso_size: 1000,
        csum_start: (ip + 20) as u16,
        csum_offset: 16,
        ..Header::default()
    };
    (header, frame)
}

#[test]
fn frames_with_vlan_tags_are_split_and_cross() {
    root_or_skip!();
    let hosts = Hosts::new();
    let payload = Random::new(1).bytes(10_500);
    for backend in ["xdp", "packet"] {
        let uplink = hosts.bare(&format!("--backend {backend}"));
        let sender = hosts.near.run(|| Sender::open("up0")).unwrap().unwrap();
        for tags in [&[][..], &[7], &[7, 9]] {
            let (header, frame) = super_packet(&payload, tags);
            let frames = received(&hosts.far, "plain", || sender.send(&header, &frame).unwrap());
            let start = 14 + 4 * tags.len();
            let segments: Vec<_> = frames
                .iter()
                .filter(|frame| frame[..12] == [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1])
                .collect();
            assert_eq!(segments.len(), 11, "{backend}, {} tags", tags.len());
            let mut arrived = Vec::new();
            for segment in segments {
                judge(segment, 1500);
                assert_eq!(segment[12..start], frame[12..start], "the tags");
                arrived.extend_from_slice(&segment[start + 40..]);
            }
            assert!(arrived == payload, "{backend}, {} tags", tags.len());
        }
        // Up, byte for byte: one that is not joined.
        let (_, frame) = super_packet(&payload[..500], &[7]);
        let plain = hosts.far.run(|| Sender::open("plain")).unwrap().unwrap();
        let frames =
            received(&hosts.near, "up0", || plain.send(&Header::default(), &frame).unwrap());
        assert!(frames.contains(&frame), "{backend}: {} frames", frames.len());
        uplink.stop();
    }
}

#[test]
fn the_kernel_splits_what_the_uplink_cannot() {
    root_or_skip!();
    for backend in ["xdp", "packet"] {
        let hosts = Hosts::new();
        hosts.veth.a.set_offloads(false).unwrap();
        let mut uplink = hosts.uplink(&format!("--backend {backend}"));
        let sender = hosts.near.run(|| Sender::open("up0")).unwrap().unwrap();
        let payload = Random::new(1).bytes(9500);
        let (header, mut frame) = super_packet(&payload, &[]);
        // A source route hides the destination, which the checksum needs; the kernel's sender has summed it.
        let route = [131, 11, 4, 10, 8, 0, 3, 10, 8, 0, 4, 0];
        frame.splice(34..34, route);
        frame[14] = 0x48;
        let total = u16::from_be_bytes([frame[16], frame[17]]) + route.len() as u16;
        frame[16..18].copy_from_slice(&total.to_be_bytes());
        frame[24..26].fill(0);
        let sum = Sum::ZERO.bytes(&frame[14..46]).checksum();
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        let header = Header { csum_start: 46, hdr_len: 66, ..header };
        let sent = || sender.send(&header, &frame).unwrap();
        let frames = received(&hosts.far, "plain", sent);
        let of_tcp = frames.iter().filter(|frame| frame.len() > 100);
        let got: Vec<u8> = of_tcp.flat_map(|frame| frame[66..].to_vec()).collect();
        assert!(got == payload, "{backend}: {} bytes", got.len());
        uplink.until("the kernel splits a super-packet");
        let report = uplink.stop();
        assert_eq!(count(&report, "tx.by_kernel"), 1, "{report}");
        assert_eq!(report["unsplit"], serde_json::json!({}), "{report}");
    }
}

#[test]
fn jumbo_frames_go_through_what_has_room_for_them() {
    root_or_skip!();
    for (mtu, backend) in [(3818, "xdp"), (9000, "packet")] {
        let hosts = Hosts::with(VethOptions { mtu, ..VethOptions::default() });
        let uplink = hosts.uplink("");
        let frames = received(&hosts.far, "plain", || hosts.talk(1 << 20));
        frames.iter().for_each(|frame| judge(frame, mtu as usize));
        assert!(frames.iter().any(|frame| frame.len() == mtu as usize + 14), "none is full");
        let report = uplink.stop();
        assert_eq!(report["backend"], backend, "{report}");
        assert_eq!(count(&report, "mtu"), u64::from(mtu));
        let reason = report["reason"].as_str().unwrap();
        assert_eq!(reason.contains("9000 bytes, is too large for AF_XDP"), mtu == 9000, "{reason}");
    }
}
