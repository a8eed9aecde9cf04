//! The kernel's GRO as oracle: bursts of one flow cross a veth pair whose peer joins them, and what a
//! packet socket sees behind that is compared, byte for byte, with what the coalescer makes of the burst.
//!
//! The kernel holds a flow for as long as `gro_flush_timeout` says, but no longer than to the next tick of
//! its clock at which something else comes. A burst that a tick has cut is sent again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::coalesce::build::{ACK, CWR, ECE, FIN, PSH, RST, Spec, URG};
use crate::kernel::wire::{receive, silence};
use linerate_ring::packet::{Ring, Sender};
use linerate_ring::{Batch as _, Ring as _};
use linerate_segment::coalesce::Options;
use linerate_segment::segment::Checksums;
use linerate_testkit::{Namespace, Veth, VethOptions, root_or_skip};
use linerate_testkit::{Random, skip};
use linerate_wire::virtio::Header;

const CASES: u32 = 500;

/// Where the cases begin. `LINERATE_SEED` is for other cases.
const SEED: u64 = 9;

/// A burst, and what is odd about which of its frames.
struct Burst {
    frames: Vec<Vec<u8>>,
    odd: &'static str,
    at: usize,
}

/// What is odd, and how a packet becomes so.
type Edit = (&'static str, fn(&mut Spec));

/// What the coalescer makes of a burst.
fn ours(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let options = Options { checksums: Checksums::Partial, ..Options::default() };
    crate::coalesce::build::coalesce(frames, &options, 8).into_iter().map(|out| out.bytes).collect()
}

/// What may differ, how exactly, and why.
fn listed(burst: &Burst, kernel: &[Vec<u8>]) -> Option<&'static str> {
    let (before, rest) = burst.frames.split_at(burst.at);
    let (frame, after) = rest.split_first().expect("the odd frame");
    match burst.odd {
        // Accurate ECN (RFC 9768) made the flag a part of a number, so that `tcp_gro_receive` compares it as it does
        // the others. Before, a super-packet could begin with it.
        "CWR" => (kernel.len() == ours(before).len() + ours(after).len().max(1)
            && kernel.len() < ours(&burst.frames).len())
        .then_some("CWR on one segment: kernels before 6.17 join others to it"),
        // `tcp4_gro_receive`, `tcp6_gro_receive` and the UDP functions give up a frame with a wrong checksum
        // before they have looked for its flow, and `udp_gro_receive_segment` one whose length is not that
        // of its packet, or 0: what is held of the flow stays held. A frame that overtakes its flow is no
        // gain; ours keeps the order. A padded or empty TCP segment finds its flow and ends it,
        // as with us.
        "checksum" | "padding" | "empty datagram" => {
            let overtaken = [vec![frame.clone()], ours(&[before, after].concat())].concat();
            (kernel == overtaken).then_some(match burst.odd {
                "checksum" => "a wrong checksum: the frame overtakes what is held",
                "padding" => "bytes behind the packet: the frame overtakes what is held",
                _ => "a datagram of no bytes: it overtakes what is held",
            })
        }
        _ => None,
    }
}

fn burst(random: &mut Random) -> Burst {
    let mut spec = match random.within(0..=2) {
        0 => Spec::v6(),
        1 => Spec { udp: true, v6: random.within(0..=1) == 1, ..Spec::default() },
        _ => Spec { df: random.within(0..=3) > 0, ..Spec::default() },
    };
    spec.sequence = random.within(0..=u32::MAX as usize) as u32;
    spec.id = random.within(0..=65_535) as u16;
    spec.tos = random.within(0..=255) as u8 & 0xfc;
    let size = random.within(1..=1400);
    let count = random.within(2..=9);
    let last = random.within(1..=size);
    let step = u16::from(!spec.df || random.within(0..=1) == 1);
    let payload = random.bytes((count - 1) * size + last);
    let mut frames = spec.stream(&payload, size, step);
    let at = random.within(0..=count - 1);
    let piece = payload[at * size..].chunks(size).next().expect("a piece");
    let mut there = spec.after(at * size, at as u16 * step);
    let edits: &[Edit] = &[
        ("nothing", |_| ()),
        ("PSH", |spec| spec.flags |= PSH),
        ("FIN", |spec| spec.flags |= FIN),
        ("CWR", |spec| spec.flags |= CWR),
        ("ECE", |spec| spec.flags |= ECE),
        ("URG", |spec| spec.flags |= URG),
        ("RST", |spec| spec.flags |= RST),
        ("no ACK", |spec| spec.flags &= !ACK),
        ("window", |spec| spec.window += 1),
        ("acknowledgement", |spec| spec.acknowledgement += 1),
        ("timestamp", |spec| spec.options[11] += 1),
        ("type of service", |spec| spec.tos ^= 4),
        ("hop limit", |spec| spec.ttl -= 1),
        ("identification", |spec| spec.id = spec.id.wrapping_add(7)),
        ("DF", |spec| spec.df = !spec.df),
        ("sequence", |spec| spec.sequence = spec.sequence.wrapping_add(1)),
        ("port", |spec| spec.ports[0] += 1),
    ];
    let (odd, edit) = edits[random.within(0..=edits.len() - 1)];
    edit(&mut there);
    frames[at] = there.build(piece);
    let extra = random.within(0..=9);
    let odd = match (odd, extra) {
        ("nothing", 0) => {
            frames.swap(0, at);
            "order"
        }
        ("nothing", 1) => {
            let end = frames[at].len() - 1;
            frames[at][end] ^= 1;
            "checksum"
        }
        ("nothing", 2) => {
            frames[at].push(0);
            "padding"
        }
        ("nothing", 3) => {
            frames[at] = there.build(&[]);
            if there.udp { "empty datagram" } else { "empty segment" }
        }
        (odd, _) => odd,
    };
    Burst { frames, odd, at }
}

struct Host {
    socket: Sender,
    ring: Ring,
    _cable: Veth,
    _sender: Namespace,
    _receiver: Namespace,
}

impl Host {
    fn new() -> Option<Self> {
        let sender = Namespace::create("grotx").expect("a namespace");
        let receiver = Namespace::create("grorx").expect("a namespace");
        let options = VethOptions { mtu: 65_535, ..VethOptions::default() };
        let cable = Veth::create(&sender, "tx", &receiver, "rx", options).expect("a veth pair");
        silence(&cable.a);
        let on = [("rx-gro", true), ("rx-udp-gro-forwarding", true)];
        cable.b.set_features(&on).expect("features");
        // Only sysfs has the words for it.
        let words = "mount -t sysfs sysfs /sys && cd /sys/class/net/rx && \
                     echo 30000000 >gro_flush_timeout";
        let output = receiver.command("unshare").args(["-m", "sh", "-c", words]).output();
        if !output.is_ok_and(|output| output.status.success()) {
            return None;
        }
        let socket = sender.run(|| Sender::open("tx")).expect("entered").expect("a socket");
        let ring = receive(&receiver, "rx");
        let host = Self { socket, ring, _cable: cable, _sender: sender, _receiver: receiver };
        let deadline = Instant::now() + Duration::from_secs(5);
        while host._cable.b.statistics().expect("statistics").rx_packets == 0 {
            assert!(Instant::now() < deadline, "nothing comes through");
            host.socket.send(&Header::default(), &[0x88; 60]).expect("sent");
            std::thread::sleep(Duration::from_millis(1));
        }
        Some(host)
    }

    /// What becomes of a burst.
    fn receive(&mut self, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
        for frame in frames {
            self.socket.send(&Header::default(), frame).expect("sent");
        }
        let mut seen = Vec::new();
        // Twice the time for which a flow is held, in which nothing comes.
        while self.ring.wait(Duration::from_millis(60)).expect("waited") {
            while let Some(mut batch) = self.ring.next_batch() {
                while let Some(frame) = batch.next() {
                    if matches!(frame.head().get(12..14), Some([0x08, 0x00] | [0x86, 0xdd])) {
                        seen.push(frame.head().to_vec());
                    }
                }
            }
        }
        seen
    }
}

#[test]
fn bursts_are_joined_as_by_the_kernel() {
    root_or_skip!();
    let Some(mut host) = Host::new() else {
        skip!("sysfs cannot be mounted, or knows no gro_flush_timeout");
    };
    let seed = std::env::var("LINERATE_SEED");
    let seed = seed.map_or(SEED, |seed| seed.parse().expect("LINERATE_SEED is a number"));
    let mut random = Random::new(seed);
    let (mut same, mut joined) = (0, 0);
    let mut different: BTreeMap<&str, u32> = BTreeMap::new();
    for case in 0..CASES {
        let burst = burst(&mut random);
        let ours = ours(&burst.frames);
        // A tick of the clock may cut a burst.
        let mut kernel = host.receive(&burst.frames);
        for _ in 0..3 {
            if kernel == ours || listed(&burst, &kernel).is_some() {
                break;
            }
            kernel = host.receive(&burst.frames);
        }
        if kernel == ours {
            same += 1;
            joined += u32::from(ours.len() < burst.frames.len());
        } else if let Some(name) = listed(&burst, &kernel) {
            *different.entry(name).or_default() += 1;
        } else {
            let lens = |all: &[Vec<u8>]| all.iter().map(Vec::len).collect::<Vec<_>>();
            let (frames, kernel, ours) = (lens(&burst.frames), lens(&kernel), lens(&ours));
            panic!(
                "seed {seed}, case {case}, {}: {frames:?}: kernel {kernel:?}, ours {ours:?}",
                burst.odd
            );
        }
    }
    println!("GRO: {same} bursts the same, {joined} of them joined; different: {different:#?}");
    assert!(joined > CASES / 3, "hardly anything was joined");
}
