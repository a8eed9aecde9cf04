//! VLAN devices: what each kind of source sees on them and below them, and that the traffic still reaches its
//! device.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use crate::xdp_support::{Cable, Raw, copying, small, udp};
use linerate_ring::packet::{self, DirectionFilter, Ring};
use linerate_ring::tee::Tee;
use linerate_ring::xdp::{AttachMode, Sockets};
use linerate_ring::{Batch as _, Frame, Options, Ring as _};
use linerate_testkit::{VethOptions, print_skipped, root_or_skip, test_name, uninterrupted};

const TAG: [u8; 4] = [0x81, 0x00, 0x60, 0x07];
const FRAMES: u64 = 100;

/// A veth pair whose receiver has VLAN 7 on it as `rx7`, with an address; `None`, with a line that says so, if the kernel has no
/// VLAN devices.
fn cable(test: &str) -> Option<Cable> {
    let cable = Cable::new(VethOptions::default());
    // A tag is part of the frame, as it is on a wire.
    let tags = [("tx-vlan-hw-insert", false), ("tx-vlan-stag-hw-insert", false)];
    cable.veth.a.set_features(&tags).expect("offloads");
    let words = "link add link rx name rx7 type vlan id 7".split(' ');
    let made = cable.receiver.command("ip").args(words).output().expect("iproute2 is installed");
    if !made.status.success() {
        print_skipped(test, "the kernel has no VLAN devices");
        return None;
    }
    let device = cable.receiver.interface("rx7").expect("made");
    device.add_address("10.77.0.2".parse().unwrap(), 24).expect("an address");
    device.up().expect("up");
    Some(cable)
}

/// The frame as it goes on the wire, and as the device sees it.
fn frames(n: u64) -> [Vec<u8>; 2] {
    let plain = udp(7, n, 60 + (n % 900) as usize);
    [[&plain[..12], &TAG, &plain[12..]].concat(), plain]
}

fn send(cable: &Cable) {
    let raw = cable.raw();
    (0..FRAMES).for_each(|n| raw.send(&frames(n)[0]));
}

/// Holds every frame of VLAN 7 that a source hands over against what was sent.
struct Seen {
    tagged: bool,
    next: u64,
}

impl Seen {
    fn take(&mut self, frame: &Frame<'_>) {
        // The host announces itself on a new device now and then.
        let at = if frame.head()[12..14] == TAG[..2] { 16 } else { 12 };
        if frame.head()[at..at + 2] != [8, 0] {
            return;
        }
        assert_eq!(frame.head(), frames(self.next)[usize::from(!self.tagged)], "{}", self.next);
        self.next += 1;
    }
}

#[test]
fn a_packet_ring_sees_tags_below_a_vlan_device_and_none_on_it() {
    root_or_skip!();
    let Some(cable) = cable(test_name!()) else { return };
    let open = |name| {
        Ring::open(packet::Options {
            direction: DirectionFilter::In,
            buffer_size: 4 << 20,
            ..packet::Options::new(name)
        })
    };
    let open = || ["rx", "rx7"].map(|name| open(name).expect("a ring"));
    let rings = cable.receiver.run(open).expect("entered");
    send(&cable);
    for (mut ring, tagged) in rings.into_iter().zip([true, false]) {
        let mut seen = Seen { tagged, next: 0 };
        while ring.wait(Duration::from_millis(300)).expect("waited") {
            while let Some(mut batch) = ring.next_batch() {
                while let Some(frame) = batch.next() {
                    seen.take(&frame);
                }
            }
        }
        assert_eq!(seen.next, FRAMES, "tags: {tagged}");
    }
}

#[test]
fn a_tee_below_a_vlan_device_leaves_it_its_traffic() {
    root_or_skip!();
    let Some(cable) = cable(test_name!()) else { return };
    // What the frames are for; the address of the veth pair's own interface is that of the VLAN now.
    for words in ["addr del 10.9.0.2/24 dev rx", "addr add 10.9.0.2/24 dev rx7"] {
        let done = cable.receiver.command("ip").args(words.split(' ')).status();
        assert!(done.expect("run").success(), "{words}");
    }
    cable.receiver.sysctl("net/ipv4/conf/rx7/rp_filter", "0").expect("a sysctl");
    let listen = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 7)).expect("a socket");
    let stack = cable.receiver.run(listen).expect("entered");
    stack.set_read_timeout(Some(Duration::from_secs(5))).expect("a time-out");
    let open = |name| Tee::open(name, &Options { buffer: Some(1 << 20), ..copying() }, None);
    let open = || ["rx", "rx7"].map(|name| open(name).unwrap_or_else(|error| panic!("{error}")));
    let tees = cable.receiver.run(open).expect("entered");
    assert_eq!(
        tees[1].program().mode(),
        AttachMode::Generic,
        "a VLAN device has no driver of its own"
    );
    let raw = cable.sender.run(|| Raw::open("tx")).expect("entered").expect("a socket");
    let mut buffer = [0; 2048];
    for n in 0..FRAMES {
        // Padding of a short frame is no part of the message.
        raw.send(&frames(n)[0]);
        let len = uninterrupted(|| stack.recv(&mut buffer))
            .unwrap_or_else(|error| panic!("message {n}: {error}"));
        assert_eq!(buffer[..len], frames(n)[1][42..], "message {n}");
    }
    for (mut tee, tagged) in tees.into_iter().zip([true, false]) {
        let mut seen = Seen { tagged, next: 0 };
        while tee.wait(Duration::from_millis(300)).expect("waited") {
            while let Some(mut batch) = tee.next_batch() {
                while let Some(frame) = batch.next() {
                    seen.take(&frame);
                }
            }
        }
        assert_eq!(seen.next, FRAMES, "tags: {tagged}");
    }
}

#[test]
fn af_xdp_takes_what_a_vlan_device_receives() {
    root_or_skip!();
    let Some(cable) = cable(test_name!()) else { return };
    for (name, tagged) in [("rx7", false), ("rx", true)] {
        let open = || Sockets::open(name, &small(), None);
        let source = cable.receiver.run(open).expect("entered");
        let mut source = source.unwrap_or_else(|error| panic!("{error}"));
        send(&cable);
        let mut seen = Seen { tagged, next: 0 };
        while source.wait(Duration::from_millis(300)).expect("waited") {
            while let Some(mut batch) = source.next_batch() {
                while let Some(frame) = batch.next() {
                    seen.take(&frame);
                }
            }
        }
        assert_eq!(seen.next, FRAMES, "{name}");
    }
}
