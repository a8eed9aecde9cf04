//! [`Entry`]: a flow in the table.

use linerate_pcapfile::ByteRange;
use linerate_wire::tcp::Flags;

use super::details::OptionalFields;
use super::packet::{Key, Packet};
use crate::{BiflowDirection, Direction, EndReason, FlowRecord};

/// Two cache lines. Packets of `a` are counted at index 0, those of `b` at 1.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Entry {
    pub(super) key: Key,
    state: u16,
    /// When the first and the last packet came, in nanoseconds since 1970.
    pub(super) first: u64,
    pub(super) last: u64,
    /// When the first packet came of the end that did not send the first one, if one is counted.
    other_first: u64,
    /// Where the first output packet begins, and where the last one ends; 0 without one.
    position_begin: u64,
    position_end: u64,
    octets: [u64; 2],
    packets: [u32; 2],
    /// The smallest and largest IP packet in octets; 65,535 stands for it and more.
    len: [(u16, u16); 2],
    flags: [u16; 2],
    ttl: [(u8, u8); 2],
}

/// The entry is in use.
const USED: u16 = 1;
/// `a` is the initiator.
const INITIATOR_IS_A: u16 = 2;
/// It is the initiator for certain.
const CERTAIN: u16 = 4;
/// A FIN came from `a`, and from `b`.
const FIN: [u16; 2] = [8, 16];
/// An RST came.
const RST: u16 = 32;
/// A SYN came, and said who is the initiator.
const SYN: u16 = 64;
/// Since the last record, the first packet came from `a`.
const FIRST_IS_A: u16 = 128;

/// How long a TCP connection that has ended keeps its entry, for the last acknowledgements, in nanoseconds.
pub(super) const CLOSED_TIMEOUT: u64 = 1_000_000_000;

impl Entry {
    /// For the flow that this packet begins. `initiator_was_a` is what is known of an earlier flow with this key.
    pub(super) fn begin(packet: &Packet, initiator_was_a: Option<bool>) -> Self {
        let mut entry = Self { key: packet.key, state: USED, ..Self::default() };
        match initiator_was_a.filter(|_| !packet.tells_initiator()) {
            Some(initiator_is_a) => entry.set_initiator(initiator_is_a, true),
            None => entry.set_initiator(packet.initiator_is_a(), packet.initiator.is_certain()),
        }
        entry
    }

    fn set_initiator(&mut self, initiator_is_a: bool, is_certain: bool) {
        self.state &= !(INITIATOR_IS_A | CERTAIN);
        self.state |= if initiator_is_a { INITIATOR_IS_A } else { 0 };
        self.state |= if is_certain { CERTAIN } else { 0 };
    }

    /// Whether `a` is the initiator; `None` if that is not certain.
    pub(super) fn certain_initiator_is_a(&self) -> Option<bool> {
        (self.state & CERTAIN != 0).then_some(self.state & INITIATOR_IS_A != 0)
    }

    #[cfg(test)]
    pub(super) fn of_key(key: Key) -> Self {
        Self { key, ..Self::default() }
    }

    pub(super) fn is_used(&self) -> bool {
        self.state & USED != 0
    }

    /// Whether packets were counted that are in no record yet.
    #[inline]
    pub(super) fn has_packets(&self) -> bool {
        self.packets != [0; 2]
    }

    /// Whether the last packet, which came from `a` or not, is the first of its end, and of both.
    #[inline]
    pub(super) fn is_first(&self, from_a: bool) -> (bool, bool) {
        let [own, other] = [usize::from(!from_a), usize::from(from_a)].map(|at| self.packets[at]);
        (own == 1, own == 1 && other == 0)
    }

    /// Whether one more packet could overflow a count.
    #[inline]
    pub(super) fn is_exhausted(&self) -> bool {
        self.packets[0].max(self.packets[1]) == u32::MAX
    }

    /// TCP has ended the connection.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.state & RST != 0 || self.state & (FIN[0] | FIN[1]) == FIN[0] | FIN[1]
    }

    /// Reads both cache lines, so that they are in the cache. The value has no meaning.
    #[inline]
    pub(super) fn load(&self) -> u32 {
        u32::from(self.state) ^ self.packets[0]
    }

    /// The octets of both directions.
    #[inline]
    pub(super) fn octets(&self) -> u64 {
        self.octets[0] + self.octets[1]
    }

    /// Counts a packet.
    #[inline]
    pub(super) fn count(&mut self, packet: &Packet, now: u64, byte_range: Option<ByteRange>) {
        let side = usize::from(!packet.from_a);
        if !self.has_packets() {
            (self.first, self.last) = (now, now);
            self.state = self.state & !FIRST_IS_A | if packet.from_a { FIRST_IS_A } else { 0 };
        }
        if let Some(ByteRange { begin, end }) = byte_range {
            if self.position_end == 0 {
                self.position_begin = begin;
            }
            self.position_end = end;
        }
        // Packets of several queues need not be in time order.
        self.first = self.first.min(now);
        self.last = self.last.max(now);
        let len = packet.octets.min(u16::MAX.into()) as u16;
        if self.packets[side] == 0 {
            (self.len[side], self.ttl[side]) = ((len, len), (packet.ttl, packet.ttl));
            if packet.from_a != (self.state & FIRST_IS_A != 0) {
                self.other_first = now;
            }
        }
        self.len[side] = (self.len[side].0.min(len), self.len[side].1.max(len));
        self.ttl[side] = (self.ttl[side].0.min(packet.ttl), self.ttl[side].1.max(packet.ttl));
        self.packets[side] += 1;
        self.octets[side] += u64::from(packet.octets);
        self.flags[side] |= packet.flags.0;
        if packet.flags.0 & (Flags::FIN.0 | Flags::RST.0 | Flags::SYN.0) != 0 {
            self.change_state(packet);
        }
    }

    fn change_state(&mut self, packet: &Packet) {
        if packet.flags.contains(Flags::RST) {
            self.state |= RST;
        } else if packet.flags.contains(Flags::FIN) {
            self.state |= FIN[usize::from(!packet.from_a)];
        }
        // It corrects what the packets before it seemed to say.
        if packet.flags.contains(Flags::SYN) && self.state & SYN == 0 {
            self.set_initiator(packet.initiator_is_a(), true);
            self.state |= SYN;
        }
    }

    /// Resets the counts. The flow continues, with the same initiator.
    pub(super) fn restart(&mut self) {
        let Self { key, last, state, .. } = *self;
        *self = Self { key, last, state, ..Self::default() };
    }

    /// The counts for a record.
    pub(super) fn flow(
        &self,
        reason: EndReason,
        optional_fields: Option<Box<OptionalFields>>,
    ) -> Flow {
        Flow { entry: *self, reason, optional_fields }
    }
}

/// A flow that ended, or a part of one that continues. [`Flow::record`] makes a record of it.
#[derive(Clone, Debug)]
pub struct Flow {
    entry: Entry,
    reason: EndReason,
    /// What the meter stores on request. The default flow is not made larger by it.
    optional_fields: Option<Box<OptionalFields>>,
}

impl Flow {
    /// The number of the interface that the meter was given.
    pub fn interface(&self) -> u16 {
        self.entry.key.interface()
    }

    /// From the first to the last packet that was output; `None` without one.
    pub fn byte_range(&self) -> Option<ByteRange> {
        let Entry { position_begin: begin, position_end: end, .. } = self.entry;
        (end != 0).then_some(ByteRange { begin, end })
    }

    /// Its record, without what the meter does not know: the name and index of the interface, and the packet file.
    pub fn record(&self) -> FlowRecord {
        let entry = &self.entry;
        let initiator_is_a = entry.state & INITIATOR_IS_A != 0;
        let direction = |from_a: bool| {
            let side = usize::from(!from_a);
            let seen = entry.packets[side] > 0;
            let (shortest, longest) = entry.len[side];
            Direction {
                packets: entry.packets[side].into(),
                octets: entry.octets[side],
                tcp_flags: entry.flags[side],
                ttl: seen.then_some(entry.ttl[side]),
                length: seen.then_some((shortest.into(), longest.into())),
            }
        };
        let reverse = direction(!initiator_is_a);
        let has_packets = entry.packets.map(|packets| packets > 0);
        let details =
            self.optional_fields.as_ref().map(|one| one.record(initiator_is_a, has_packets));
        let first_is_reverse = (entry.state & FIRST_IS_A != 0) != initiator_is_a;
        let reverse_start = if first_is_reverse { entry.first } else { entry.other_first };
        FlowRecord {
            start: entry.first,
            end: entry.last,
            reverse_start: (reverse.packets > 0).then_some(reverse_start),
            key: entry.key.flow_key(initiator_is_a),
            forward: direction(initiator_is_a),
            reverse,
            direction: match entry.state & CERTAIN {
                0 => BiflowDirection::Arbitrary,
                _ => BiflowDirection::Initiator,
            },
            end_reason: Some(self.reason),
            details: details.unwrap_or_default(),
            ..FlowRecord::default()
        }
    }
}
