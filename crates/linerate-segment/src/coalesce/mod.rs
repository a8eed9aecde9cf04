//! Joining: the segments of a flow in, the super-packet that they could have come from out.
//!
//! A [`Coalescer`] holds the headers of each flow's super-packet and the *names* of its frames (tokens of the
//! caller's choice: an index into a batch, a UMEM address, a slot of a pool). Payload is read once, for its
//! checksum, and never copied: the output is one complete header and the ranges of the payload, for one
//! gathering write. After its output a frame is the caller's again.
//!
//! ```
//! use linerate_segment::coalesce::{Coalescer, Flow, Options, Output};
//! # let frames: [Vec<u8>; 0] = [];
//! let mut coalescer = Coalescer::new(vec![Flow::default(); 64], &Options::default());
//! let mut write = |output: Output<'_>| match output {
//!     Output::Frame { token, .. } => { /* write frames[token] as it is */ }
//!     Output::Super(packet) => {
//!         let _header = (packet.virtio(), packet.header());
//!         for (token, payload) in packet.payload() { /* frames[token][payload] */ }
//!     }
//! };
//! for (token, frame) in frames.iter().enumerate() {
//!     coalescer.push(frame, token as u64, 0, &mut write);
//! }
//! coalescer.flush_all(&mut write); // the batch ends, and with it the loan of its frames
//! ```
//!
//! # Rules
//!
//! They are those of Linux (`dev_gro_receive`, `inet_gro_receive`, `ipv6_gro_receive`,
//! `tcp_gro_receive`, `udp_gro_receive_segment`, and those of the tunnels), a little stricter so that
//! [`segment`](mod@segment) gives back every byte:
//!
//! - Segments of a flow agree in all header bytes (link header, VLAN tags, type of service, hop limit,
//!   DF, acknowledgement, window, flags, TCP options and their timestamps, tunnel headers) but lengths,
//!   checksums, IPv4 identifications and sequence numbers, which follow each other, and PSH and FIN.
//! - Identifications of an IPv4 header count up by one a segment, or, with DF, all are the same.
//! - A segment that is shorter than the first, or has PSH or FIN, is the last. One that is longer starts
//!   a new super-packet. SYN, RST, URG, CWR, no payload, IPv4 options, fragments and bytes after the IP packet are
//!   passed through unchanged.
//! - Every checksum is checked first. A frame whose checksum is wrong is passed through unchanged, and so is
//!   UDP without a checksum, and a checksum of 0xffff in TCP, which no sender computes.
//! - A super-packet's outermost IP packet has at most 65,535 bytes, and it has at most
//!   [`MAX_SEGMENTS`] segments.
//!
//! A frame that cannot be joined comes out after what is held of its flow: the order of a flow never changes.
//! Flows may overtake each other.

mod flow;
mod hash;
mod headers;
mod links;
mod options;
mod output;
mod table;

pub use flow::Flow;
pub use options::{MAX_SEGMENTS, Options};
pub use output::{FlushReason, Output, Payload, SuperPacket};

use linerate_wire::checksum::Engine;

use crate::segment;
use crate::segment::layout::Layout;
use hash::Key;
use table::{HashTable, Table};

/// Joins the segments of many flows. `S` is the memory for the flows that it can hold at a time: a
/// vector, an array, a borrowed slice. At most 65,535 are used; where all are taken, the oldest makes
/// room.
///
/// The cost of a frame does not grow with the number of flows, for any traffic: a lookup compares eight flows
/// at most, and a ninth of one bucket replaces the oldest of the eight. Keep the [key](Self::with_key) secret
/// from senders that must not choose whose flow that is.
#[derive(Clone, Debug)]
pub struct Coalescer<S> {
    flows: S,
    table: Table,
    key: Key,
    engine: Engine,
    options: Options,
    /// Where the headers are looked for.
    parse: segment::Options,
}

impl<S: AsRef<[Flow]> + AsMut<[Flow]>> Coalescer<S> {
    /// A coalescer that holds nothing yet, for frames of senders who are trusted: it finds flows by a
    /// hash that everybody can compute.
    pub fn new(flows: S, options: &Options) -> Self {
        Self::with_key(flows, options, 0)
    }

    /// A coalescer that holds nothing yet. `key` is a random number that no sender knows; what comes out
    /// for frames of honest senders does not depend on it.
    pub fn with_key(mut flows: S, options: &Options, key: u64) -> Self {
        let table = Table::new(flows.as_mut());
        let (key, parse) = (Key::new(key), options.parse());
        Self { flows, table, key, engine: Engine::detect(), options: *options, parse }
    }

    /// Takes a frame, which `token` names from now on. It comes out of this call or of a later one,
    /// to `sink`; until then the caller keeps its bytes as they are. `time` is when it came, in a unit
    /// that [`flush_before`](Self::flush_before) shares.
    pub fn push(&mut self, frame: &[u8], token: u64, time: u64, sink: &mut impl FnMut(Output<'_>)) {
        let alone = |reason| Output::Frame { token, reason };
        let layout = match headers::parse(frame, &self.parse) {
            Ok(layout) => layout,
            Err(addresses) => {
                // Its flow is unknown: it may be any between these addresses.
                if let Some(addresses) = addresses {
                    self.flush_between(addresses, sink);
                }
                return sink(alone(FlushReason::Protocol));
            }
        };
        let segment = match self.options.joins(&layout) {
            true => headers::examine(frame, &layout, self.engine),
            false => Err(FlushReason::Protocol),
        };
        let hash = self.key.flow(frame, &layout);
        let flows = self.flows.as_mut();
        if let Some(index) = self.table.find(flows, hash, |flow| flow.is_of(frame, &layout)) {
            let joined = match &segment {
                Ok(segment) => flows[index].join(frame, token, &layout, segment, &self.options),
                Err(_) => Err(FlushReason::Unmergeable),
            };
            match joined {
                Ok(false) => return,
                Ok(true) => return self.flush(index, FlushReason::LastSegment, sink),
                Err(reason) => self.flush(index, reason, sink),
            }
        }
        match segment {
            Ok(segment) if segment.is_last() => sink(alone(FlushReason::LastSegment)),
            Ok(segment) => match self.room(hash, frame, &layout, sink) {
                Some(index) => {
                    self.flows.as_mut()[index].begin(frame, token, time, &layout, &segment);
                }
                None => sink(alone(FlushReason::Evicted)),
            },
            Err(reason) => sink(alone(reason)),
        }
    }

    /// Hands over every flow whose first frame came at `time` or before it, the oldest first.
    pub fn flush_before(&mut self, time: u64, sink: &mut impl FnMut(Output<'_>)) {
        // In the order of arrival, which is that of time unless the caller's clock went back; then a
        // flow waits for an older one, no longer.
        while let Some(index) = self.table.oldest() {
            if self.flows.as_ref()[index].first_timestamp() > time {
                break;
            }
            self.flush(index, FlushReason::Flushed, sink);
        }
    }

    /// Hands over everything, the flow that began first before the others.
    pub fn flush_all(&mut self, sink: &mut impl FnMut(Output<'_>)) {
        while let Some(index) = self.table.oldest() {
            self.flush(index, FlushReason::Flushed, sink);
        }
    }

    /// When the frame came that waits longest; `None` where none waits.
    pub fn oldest(&self) -> Option<u64> {
        self.table.oldest().map(|index| self.flows.as_ref()[index].first_timestamp())
    }

    /// A place for a new flow; an older one makes room where need be.
    fn room(
        &mut self,
        hash: u32,
        frame: &[u8],
        layout: &Layout,
        sink: &mut impl FnMut(Output<'_>),
    ) -> Option<usize> {
        if let Some(index) = self.table.eviction_candidate(self.flows.as_ref(), hash) {
            self.flush(index, FlushReason::Evicted, sink);
        }
        let outer = &layout.outer;
        let pair = self.key.pair(&frame[headers::addresses(outer.version, outer.at)]);
        self.table.insert(self.flows.as_mut(), [hash, pair])
    }

    fn flush(&mut self, index: usize, reason: FlushReason, sink: &mut impl FnMut(Output<'_>)) {
        let flows = self.flows.as_mut();
        self.table.remove(flows, index);
        flows[index].finish(reason, &self.options, sink);
    }

    /// Flushes the flows between two outermost IP addresses. Who is looked at goes, but for a few whose
    /// addresses have the same hash, so that this costs no more than the frames that began the flows.
    fn flush_between(&mut self, addresses: &[u8], sink: &mut impl FnMut(Output<'_>)) {
        let mut next =
            self.table.first(self.flows.as_ref(), HashTable::AddressPair, self.key.pair(addresses));
        while let Some(index) = next {
            let flows = self.flows.as_ref();
            next = self.table.next(flows, HashTable::AddressPair, index);
            if flows[index].is_between(addresses) {
                self.flush(index, FlushReason::Unmergeable, sink);
            }
        }
    }
}
