//! Joining the frames of a file: which frames are held back, and where the super-packets go.
//!
//! A super-packet takes the place and the time of its first frame, as in a capture of a host that joins
//! frames. So all records behind a frame that is held wait, in the order of the file, until that frame is
//! joined or passed on.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use linerate_pcapfile::edit::{RawRecord, options};
use linerate_pcapfile::{BlockType, Writer};
use linerate_segment::coalesce::{Coalescer, Flow, Options, Output, SuperPacket};
use linerate_segment::segment::{Checksums, LinkType};
use linerate_wire::layers::{self, Transport};

use super::statistics::JoinStatistics;
use super::{TunnelPorts, link};
use crate::Result;

/// What is joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinOptions {
    /// TCP segments are.
    pub tcp: bool,
    /// UDP datagrams are, those of one length and flow.
    pub udp: bool,
    /// How long after its first frame a super-packet may still grow, in nanoseconds of the file's time.
    pub hold: u64,
    /// The checksums of super-packets.
    pub checksums: Checksums,
}

/// Flows of one stream that are joined at a time.
const MAX_FLOWS: usize = 256;

/// Streams at a time.
const MAX_STREAMS: usize = 64;

/// The most records in the queue, and their bytes: a file without times must not fill the memory.
const MAX_QUEUED: usize = 65_536;
const MAX_QUEUED_BYTES: usize = 64 << 20;

/// Frames are joined only within a stream: one interface, direction and link header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StreamKey {
    pub(super) interface: u32,
    pub(super) linktype: u16,
    pub(super) block_type: BlockType,
    pub(super) flags: [u8; 4],
    /// What stands before the packet, where that is no Ethernet header.
    pub(super) prefix: Vec<u8>,
}

struct Stream {
    key: StreamKey,
    coalescer: Coalescer<Vec<Flow>>,
}

pub(super) struct Joiner {
    options: JoinOptions,
    ports: TunnelPorts,
    streams: Vec<Stream>,
    queue: Queue,
}

#[derive(Default)]
struct Queue {
    records: VecDeque<QueuedRecord>,
    /// The number of the first of them.
    first: u64,
    bytes: usize,
    /// Buffers for records to come.
    spare: Vec<Vec<u8>>,
    statistics: JoinStatistics,
}

/// A record on its way to the file.
struct QueuedRecord {
    bytes: Vec<u8>,
    block_type: BlockType,
    big_endian: bool,
    captured: usize,
    /// Bytes of the link header before what the coalescer saw.
    prefix: usize,
    packet: bool,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Held,
    Ready,
    /// Its payload is in another record.
    Joined,
}

impl Joiner {
    pub(super) fn new(options: JoinOptions, ports: TunnelPorts) -> Self {
        Self { options, ports, streams: Vec::new(), queue: Queue::default() }
    }

    pub(super) fn statistics(&self) -> JoinStatistics {
        self.queue.statistics
    }

    /// Adds a record that is not to be joined.
    pub(super) fn pass(&mut self, record: &RawRecord<'_>, packet: bool) {
        let number = self.queue.add(record, 0, packet);
        self.queue.get(number).state = State::Ready;
    }

    /// Adds the record of a packet that had `wire_len` bytes at `time`.
    pub(super) fn push(
        &mut self,
        record: &RawRecord<'_>,
        wire_len: u32,
        interface: (u32, u16),
        time: u64,
    ) {
        if let Some(limit) = time.checked_sub(self.options.hold + 1) {
            for stream in &mut self.streams {
                stream.coalescer.flush_before(limit, &mut |output| self.queue.settle(output));
            }
        }
        let (interface, linktype) = interface;
        let packet = record.packet();
        let whole = packet.len() as u64 >= u64::from(wire_len);
        let is_other_tunnel = self.is_other_tunnel(linktype, packet);
        let known = link::packet(linktype, packet).filter(|_| {
            whole
                && !is_other_tunnel
                && matches!(record.block_type, BlockType::PcapRecord | BlockType::EnhancedPacket)
        });
        let Some((prefix, link)) = known else {
            // Its flow is unknown, and the order of packets in a flow must not change.
            if !is_other_tunnel {
                self.flush();
            }
            let number = self.queue.add(record, 0, true);
            return self.queue.settle(Output::Frame {
                token: number,
                reason: linerate_segment::coalesce::FlushReason::Protocol,
            });
        };
        let key = StreamKey {
            interface,
            linktype,
            block_type: record.block_type,
            flags: options::flags(record.options()),
            prefix: packet[..prefix].to_vec(),
        };
        let number = self.queue.add(record, prefix, true);
        let stream = self.stream(key, link);
        let coalescer = &mut self.streams[stream].coalescer;
        coalescer.push(&packet[prefix..], number, time, &mut |output| self.queue.settle(output));
        if self.queue.records.len() > MAX_QUEUED || self.queue.bytes > MAX_QUEUED_BYTES {
            self.flush();
        }
    }

    /// Whether it is of a tunnel whose header has a length, or an IP packet that would be one of several: joined like
    /// other datagrams it would be neither split nor read again.
    fn is_other_tunnel(&self, linktype: u16, packet: &[u8]) -> bool {
        let Some(Ok((ether_type, offset))) = layers::link_payload(packet, linktype) else {
            return false;
        };
        let layers = layers::parse_from(packet, ether_type, offset);
        layers.transport == Transport::Udp
            && layers.ports(packet).is_some_and(|(_, port)| {
                port != 0 && (port == self.ports.gtp || port == self.ports.gue)
            })
    }

    fn stream(&mut self, key: StreamKey, link: LinkType) -> usize {
        if let Some(found) = self.streams.iter().position(|stream| stream.key == key) {
            return found;
        }
        if self.streams.len() == MAX_STREAMS {
            let mut oldest = self.streams.remove(0);
            oldest.coalescer.flush_all(&mut |output| self.queue.settle(output));
        }
        let JoinOptions { tcp, udp, checksums, .. } = self.options;
        let TunnelPorts { vxlan: vxlan_port, geneve: geneve_port, .. } = self.ports;
        let options =
            Options { link, tcp, udp, checksums, vxlan_port, geneve_port, ..Options::default() };
        // A random key: a sender cannot choose flows that collide in the table.
        let hash_key = RandomState::new().hash_one(0);
        let flows = vec![Flow::default(); MAX_FLOWS];
        let coalescer = Coalescer::with_key(flows, &options, hash_key);
        self.streams.push(Stream { key, coalescer });
        self.streams.len() - 1
    }

    /// Ends all super-packets.
    pub(super) fn flush(&mut self) {
        for stream in &mut self.streams {
            stream.coalescer.flush_all(&mut |output| self.queue.settle(output));
        }
    }

    /// Writes the records before the first that is held.
    pub(super) fn drain(&mut self, writer: &mut Writer) -> Result<()> {
        let queue = &mut self.queue;
        while let Some(next) = queue.records.front()
            && next.state != State::Held
        {
            let Some(mut next) = queue.records.pop_front() else { break };
            queue.first += 1;
            queue.bytes -= next.bytes.len();
            if next.state == State::Ready {
                writer.write_record(next.packet, |out| out.extend_from_slice(&next.bytes))?;
            }
            next.bytes.clear();
            queue.spare.push(next.bytes);
        }
        Ok(())
    }
}

impl Queue {
    fn add(&mut self, record: &RawRecord<'_>, prefix: usize, packet: bool) -> u64 {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.extend_from_slice(record.bytes);
        self.bytes += bytes.len();
        let RawRecord { block_type, big_endian, captured, .. } = *record;
        let state = State::Held;
        self.records.push_back(QueuedRecord {
            bytes,
            block_type,
            big_endian,
            captured,
            prefix,
            packet,
            state,
        });
        self.first + self.records.len() as u64 - 1
    }

    /// A record in the queue; the coalescer refers only to such.
    fn get(&mut self, number: u64) -> &mut QueuedRecord {
        let at = (number - self.first) as usize;
        &mut self.records[at]
    }

    fn settle(&mut self, output: Output<'_>) {
        match output {
            Output::Frame { token, reason } => {
                self.statistics.alone.add(reason);
                self.get(token).state = State::Ready;
            }
            Output::Super(packet) => self.join(&packet),
        }
    }

    fn join(&mut self, packet: &SuperPacket<'_>) {
        let mut out = self.spare.pop().unwrap_or_default();
        let at = |number: &u64| &self.records[(number - self.first) as usize];
        let tokens = packet.tokens();
        let first = at(&tokens[0]);
        let head = &first.raw().packet()[..first.prefix];
        let payload = packet.payload().map(|(token, range)| {
            let one = at(&token);
            &one.raw().packet()[one.prefix..][range]
        });
        let parts: Vec<&[u8]> = [head, packet.header()].into_iter().chain(payload).collect();
        let wire_len = parts.iter().map(|part| part.len()).sum();
        first.raw().put(&mut out, &parts, wire_len, |out| {
            let each = tokens.iter().map(|token| at(token).raw().options());
            options::append_joined_options(out, each, first.big_endian);
        });
        self.statistics.super_packets += 1;
        self.statistics.frames += tokens.len() as u64;
        for token in tokens {
            self.get(*token).state = State::Joined;
        }
        self.bytes += out.len();
        let first = self.get(tokens[0]);
        first.state = State::Ready;
        let before = std::mem::replace(&mut first.bytes, out);
        self.bytes -= before.len();
    }
}

impl QueuedRecord {
    fn raw(&self) -> RawRecord<'_> {
        let Self { block_type, big_endian, captured, .. } = *self;
        RawRecord { bytes: &self.bytes, block_type, big_endian, captured }
    }
}
