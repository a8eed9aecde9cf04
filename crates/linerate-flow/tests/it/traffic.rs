//! Any traffic of a few hosts: whole packets and fragments, output or not, other frames, and times without packets.

use std::net::IpAddr;

use linerate_flow::meter::MeteredPacket;
use linerate_pcapfile::ByteRange;
use proptest::prelude::*;

use crate::frames::{A, ETHERNET, F, R, S, START};

/// What a packet carries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload {
    Udp,
    /// With these flags.
    Tcp(u8),
    /// An echo request or its reply.
    Echo {
        reply: bool,
    },
    /// A protocol without ports.
    Gre,
}

/// Which part of a packet a frame has. Both fragments have their identification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    First(u8),
    Later(u8),
}

#[derive(Clone, Debug)]
pub(crate) struct Packet {
    /// The last octet of the sender's address, and of the receiver's.
    pub(crate) hosts: (u8, u8),
    /// Of UDP and TCP.
    pub(crate) ports: (u16, u16),
    pub(crate) v6: bool,
    pub(crate) payload: Payload,
    pub(crate) part: Part,
    pub(crate) vlan: Option<u16>,
    pub(crate) interface: u16,
    pub(crate) ttl: u8,
    /// Bytes behind the transport header.
    pub(crate) len: u8,
    /// It is written to a file.
    pub(crate) output: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Packet(Packet),
    /// A frame without IP.
    Other,
    /// The clock advances without a packet.
    Advance,
    /// The packets of a batch are counted.
    Flush,
}

/// Octets of the transport layer in the first fragment.
const FIRST_LEN: usize = 24;

pub(crate) fn address(host: u8, v6: bool) -> IpAddr {
    match v6 {
        true => IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]),
        false => IpAddr::from([10, 0, 0, host]),
    }
}

impl Packet {
    /// IANA's protocol number.
    pub(crate) fn protocol(&self) -> u8 {
        match self.payload {
            Payload::Udp => 17,
            Payload::Tcp(_) => 6,
            Payload::Echo { .. } if self.v6 => 58,
            Payload::Echo { .. } => 1,
            Payload::Gre => 47,
        }
    }

    fn transport(&self) -> Vec<u8> {
        let ((source, destination), len) = (self.ports, FIRST_LEN + 1 + usize::from(self.len));
        let ports = [source.to_be_bytes(), destination.to_be_bytes()].concat();
        let mut header = match self.payload {
            Payload::Udp => [&ports[..], &(8 + len as u16).to_be_bytes(), &[0; 2]].concat(),
            Payload::Tcp(flags) => [&ports[..], &[0; 8], &[0x50, flags, 0, 0, 0, 0, 0, 0]].concat(),
            Payload::Echo { reply } => {
                let kind = match (self.v6, reply) {
                    (false, false) => 8,
                    (false, true) => 0,
                    (true, reply) => 128 + u8::from(reply),
                };
                vec![kind, 0, 0, 0, 0, 1, 0, 1]
            }
            Payload::Gre => vec![0, 0, 8, 0],
        };
        header.resize(header.len() + len, 0);
        header
    }

    /// The Ethernet frame.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let transport = self.transport();
        let (bytes, offset, fragment) = match self.part {
            Part::Whole => (&transport[..], 0, None),
            Part::First(identification) => (&transport[..FIRST_LEN], 0, Some(identification)),
            Part::Later(identification) => {
                (&transport[FIRST_LEN..], FIRST_LEN as u16, Some(identification))
            }
        };
        let more = u16::from(matches!(self.part, Part::First(_)));
        let mut frame = vec![2; 12];
        if let Some(vlan) = self.vlan {
            frame.extend([0x81, 0]);
            frame.extend(vlan.to_be_bytes());
        }
        let id = fragment.unwrap_or(0);
        if self.v6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            let header = fragment.map_or(0, |_| 8);
            frame.extend((header + bytes.len() as u16).to_be_bytes());
            frame.extend([if fragment.is_some() { 44 } else { self.protocol() }, self.ttl]);
        } else {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + bytes.len() as u16).to_be_bytes());
            frame.extend([0, id]);
            frame.extend(((more << 13) | (offset / 8)).to_be_bytes());
            frame.extend([self.ttl, self.protocol(), 0, 0]);
        }
        for host in [self.hosts.0, self.hosts.1] {
            match address(host, self.v6) {
                IpAddr::V4(address) => frame.extend(address.octets()),
                IpAddr::V6(address) => frame.extend(address.octets()),
            }
        }
        if self.v6 && fragment.is_some() {
            frame.extend([self.protocol(), 0]);
            frame.extend((offset | more).to_be_bytes());
            frame.extend([0, 0, 0, id]);
        }
        frame.extend(bytes);
        frame
    }

    /// Octets of the IP packet in this frame.
    pub(crate) fn octets(&self) -> u64 {
        let link = if self.vlan.is_some() { 18 } else { 14 };
        self.frame().len() as u64 - link
    }
}

/// A packet as the meter gets it.
pub(crate) fn metered(
    frame: &[u8],
    interface: u16,
    time: u64,
    byte_range: Option<ByteRange>,
) -> MeteredPacket<'_> {
    let wire_len = frame.len() as u32;
    MeteredPacket {
        frame,
        wire_len,
        linktype: ETHERNET,
        interface,
        time,
        byte_range,
        processes: None,
    }
}

fn payload() -> impl Strategy<Value = Payload> {
    let flags = prop::sample::select(vec![S, S | A, A, A, A | F, A | F, R, 0]);
    prop_oneof![
        3 => Just(Payload::Udp),
        6 => flags.prop_map(Payload::Tcp),
        1 => any::<bool>().prop_map(|reply| Payload::Echo { reply }),
        1 => Just(Payload::Gre),
    ]
}

fn packet() -> impl Strategy<Value = Packet> {
    let part = prop_oneof![
        3 => Just(Part::Whole),
        1 => (0_u8..2).prop_map(Part::First),
        1 => (0_u8..2).prop_map(Part::Later),
    ];
    let ports = prop::sample::select(vec![(7, 7), (7, 9), (9, 7)]);
    let place = (prop::option::weighted(0.2, Just(5)), 0_u16..2);
    let ends = (0_u8..3, 1_u8..3, ports, any::<bool>());
    (ends, payload(), part, place, any::<bool>(), any::<u8>(), any::<bool>()).prop_map(
        |((from, other, ports, v6), payload, part, (vlan, interface), far, len, output)| {
            // The meter remembers as many packets in fragments as it has room for. These are few enough.
            let (hosts, vlan, interface) = match part {
                Part::Whole => ((from, (from + other) % 3), vlan, interface),
                _ => ((from % 2, 1 - from % 2), None, 0),
            };
            let ttl = if far { 60 } else { 64 };
            Packet { hosts, ports, v6, payload, part, vlan, interface, ttl, len, output }
        },
    )
}

/// Events, each with the milliseconds that pass before it.
pub(crate) fn events(len: usize) -> impl Strategy<Value = Vec<(u64, Event)>> {
    let wait = prop_oneof![2 => Just(0), 4 => 0_u64..50, 4 => 0_u64..2000, 1 => 0_u64..40_000];
    let event = prop_oneof![
        20 => packet().prop_map(Event::Packet),
        1 => Just(Event::Other),
        4 => Just(Event::Advance),
        1 => Just(Event::Flush),
    ];
    prop::collection::vec((wait, event), 1..len)
}

/// The events with their times, in nanoseconds since 1970.
pub(crate) fn timed(events: &[(u64, Event)]) -> impl Iterator<Item = (u64, &Event)> {
    events.iter().scan(START, |time, (wait, event)| {
        *time += wait * 1_000_000;
        Some((*time, event))
    })
}

/// Where packets of 100 bytes are that are output one after the other.
#[derive(Default)]
pub(crate) struct Output(u64);

impl Output {
    pub(crate) fn push(&mut self, packet: &Packet) -> Option<ByteRange> {
        let begin = self.0;
        self.0 += if packet.output { 100 } else { 0 };
        packet.output.then_some(ByteRange { begin, end: self.0 })
    }
}
