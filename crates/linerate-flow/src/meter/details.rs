//! [`Details`]: what a meter stores of a flow on request, beside its entry.

use std::sync::Arc;

use linerate_wire::ethernet::Address;
use linerate_wire::ip::Protocol;
use linerate_wire::layers::{Layers, Network};
use linerate_wire::tcp::Flags;

use super::packet::Packet;
use crate::record::{Details as RecordDetails, DirectionDetails, Processes};
use crate::schema::{Group, Groups};

/// The processes of a packet of a flow, and whether it came from `a`.
pub(super) type FlowProcesses = (Arc<Processes>, bool);

/// What a flow has on request.
#[derive(Clone, Debug)]
pub(super) struct OptionalFields {
    pub(super) groups: Groups,
    pub(super) details: Details,
    pub(super) processes: Option<FlowProcesses>,
}

impl OptionalFields {
    /// That of a record, in which each side has packets or not.
    pub(super) fn record(&self, initiator_is_a: bool, has_packets: [bool; 2]) -> RecordDetails {
        let mut record = self.details.record(self.groups, initiator_is_a, has_packets);
        if let Some((processes, from_a)) = &self.processes {
            record.processes = Processes::clone(processes);
            if *from_a != initiator_is_a {
                record.processes.reverse();
            }
        }
        record
    }
}

/// What a packet says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PacketDetails {
    /// Source and destination.
    macs: Option<[Address; 2]>,
    flow_label: u32,
    payload: u32,
    tos: u8,
}

impl PacketDetails {
    /// Of a packet in a frame of this link type.
    #[inline]
    pub(super) fn parse(frame: &[u8], layers: &Layers, linktype: u16, packet: &Packet) -> Self {
        let (tos, flow_label) = match layers.network {
            Network::Ipv6 { .. } => {
                let head = frame.get(layers.network_offset..).and_then(|ip| ip.first_chunk());
                let word = u32::from_be_bytes(head.copied().unwrap_or_default());
                ((word >> 20) as u8, word & 0xf_ffff)
            }
            _ => (frame.get(layers.network_offset + 1).copied().unwrap_or(0), 0),
        };
        let ethernet = frame.first_chunk::<12>().filter(|_| linktype == 1);
        let address = |bytes: &[u8]| Address(bytes.try_into().expect("six octets"));
        let headers =
            layers.transport_offset - layers.network_offset + transport_len(frame, layers);
        Self {
            macs: ethernet.map(|bytes| [address(&bytes[6..]), address(&bytes[..6])]),
            flow_label,
            payload: packet.octets.saturating_sub(headers as u32),
            tos,
        }
    }
}

/// The length of the transport header; the least one if it is cut off.
fn transport_len(frame: &[u8], layers: &Layers) -> usize {
    if layers.fragment(frame).is_some_and(|fragment| fragment.offset != 0) {
        return 0;
    }
    match layers.protocol {
        Some(Protocol::TCP) => {
            let offset = frame.get(layers.transport_offset + 12).map_or(5, |octet| octet >> 4);
            4 * usize::from(offset).max(5)
        }
        Some(Protocol::UDP | Protocol::ICMP | Protocol::ICMPV6) => 8,
        Some(Protocol::SCTP) => 12,
        _ => 0,
    }
}

/// A cache line. Packets of `a` are at index 0, those of `b` at 1.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Details {
    payload: [u64; 2],
    /// When the first SYN came, in nanoseconds since 1970; 0 without one.
    syn: u64,
    /// From the lowest bits: letters in the order of time, four bits each ([`letter`]); then, from bit
    /// [`SEEN`] on, which of them there are.
    history: u64,
    flow_label: [u32; 2],
    /// From the first SYN, in microseconds and plus one; 0 without one.
    syn_ack: u32,
    handshake: u32,
    macs: [Address; 2],
    tos: [u8; 2],
    first_flags: [u8; 2],
}

/// Letters of Zeek's history.
const LETTERS: [char; 6] = ['S', 'H', 'A', 'D', 'F', 'R'];
/// The bits of a letter's number, which is that in [`LETTERS`], doubled, plus the side, plus one.
const LETTER_BITS: u32 = 4;
/// Each letter of each side is there once.
const SEEN: u32 = LETTER_BITS * 2 * LETTERS.len() as u32;
/// The first packet had MAC addresses.
const HAS_MACS: u64 = 1 << 60;
/// The first SYN came from `b`.
const SYN_IS_B: u64 = 1 << 61;

impl Details {
    /// Reads its cache line, so that it is in the cache. The value has no meaning.
    #[inline]
    pub(super) fn load(&self) -> u32 {
        self.syn_ack
    }

    /// Counts a packet. `is_first` says whether it is the first one of its side, and of the flow.
    #[inline]
    pub(super) fn count(
        &mut self,
        packet: &Packet,
        details: &PacketDetails,
        now: u64,
        is_first: (bool, bool),
    ) {
        let side = usize::from(!packet.from_a);
        self.payload[side] += u64::from(details.payload);
        if is_first.0 {
            self.flow_label[side] = details.flow_label;
            self.tos[side] = details.tos;
            self.first_flags[side] = packet.flags.0 as u8;
        }
        if is_first.1
            && let Some([source, destination]) = details.macs
        {
            self.macs = if packet.from_a { [source, destination] } else { [destination, source] };
            self.history |= HAS_MACS;
        }
        let is_new = self.add_letters(packet.flags, details.payload > 0, side);
        let is_awaited = self.syn_ack != 0 && self.handshake == 0;
        if packet.flags.0 != 0 && (is_new || is_awaited) {
            self.add_times(packet.flags, side, now);
        }
    }

    /// Whether one of its letters is new.
    #[inline]
    fn add_letters(&mut self, flags: Flags, has_payload: bool, side: usize) -> bool {
        let has = |flag| flags.contains(flag);
        let is_tcp_control = flags.0 & (Flags::SYN.0 | Flags::FIN.0 | Flags::RST.0) != 0;
        let letters = [
            has(Flags::SYN) && !has(Flags::ACK),
            has(Flags::SYN.union(Flags::ACK)),
            has(Flags::ACK) && !is_tcp_control && !has_payload,
            has_payload,
            has(Flags::FIN),
            has(Flags::RST),
        ];
        let bits = letters.iter().rev().fold(0, |bits, is_set| bits << 2 | u64::from(*is_set));
        let mut new = (bits << side) & !(self.history >> SEEN);
        let is_new = new != 0;
        while new != 0 {
            let number = new.trailing_zeros();
            new &= new - 1;
            let count = (self.history >> SEEN & 0xfff).count_ones();
            self.history |= u64::from(number + 1) << (LETTER_BITS * count);
            self.history |= 1 << (SEEN + number);
        }
        is_new
    }

    fn add_times(&mut self, flags: Flags, side: usize, now: u64) {
        let is_from_syn = (self.history & SYN_IS_B != 0) == (side == 1);
        let passed = || {
            let micros = now.saturating_sub(self.syn) / 1000;
            u32::try_from(micros + 1).unwrap_or(u32::MAX)
        };
        match (flags.contains(Flags::SYN), flags.contains(Flags::ACK)) {
            (true, false) if self.syn == 0 => {
                self.syn = now;
                self.history |= if side == 1 { SYN_IS_B } else { 0 };
            }
            (true, true) if self.syn != 0 && self.syn_ack == 0 && !is_from_syn => {
                self.syn_ack = passed();
            }
            (false, true)
                if self.syn_ack != 0
                    && self.handshake == 0
                    && is_from_syn
                    && !flags.contains(Flags::RST) =>
            {
                self.handshake = passed();
            }
            _ => {}
        }
    }

    fn record(
        &self,
        groups: Groups,
        initiator_is_a: bool,
        has_packets: [bool; 2],
    ) -> RecordDetails {
        let direction = |side: usize| {
            let is = |group| groups.contains(group) && has_packets[side];
            DirectionDetails {
                tos: is(Group::Tos).then_some(self.tos[side]),
                flow_label: is(Group::FlowLabel).then_some(self.flow_label[side]),
                payload: is(Group::Payload).then_some(self.payload[side]),
                first_flags: is(Group::History).then_some(self.first_flags[side]),
            }
        };
        let initiator = usize::from(!initiator_is_a);
        let [source, destination] = [self.macs[initiator], self.macs[1 - initiator]];
        let has_macs = groups.contains(Group::Mac) && self.history & HAS_MACS != 0;
        let time = |time: u32| time.checked_sub(1).filter(|_| groups.contains(Group::Handshake));
        RecordDetails {
            macs: has_macs.then_some((source, destination)),
            forward: direction(initiator),
            reverse: direction(1 - initiator),
            history: groups.contains(Group::History).then(|| self.text(initiator)).flatten(),
            syn_ack: time(self.syn_ack),
            handshake: time(self.handshake),
            ..RecordDetails::default()
        }
    }

    fn text(&self, initiator: usize) -> Option<Box<str>> {
        let letters = self.history & ((1 << SEEN) - 1);
        let numbers = (0..SEEN / LETTER_BITS).map(|at| letters >> (at * LETTER_BITS) & 0xf);
        let letter = |number: u64| {
            let (kind, side) = ((number - 1) as usize / 2, (number - 1) as usize % 2);
            let letter = LETTERS[kind];
            if side == initiator { letter } else { letter.to_ascii_lowercase() }
        };
        let text: String = numbers.take_while(|number| *number != 0).map(letter).collect();
        (!text.is_empty()).then(|| text.into())
    }
}
