//! Joining the frames of a file: which are held back, and where the super-packets stand.
//!
//! A super-packet stands in the file where its first frame stood, and has that frame's time: that is
//! what a host that joins shows a capture. So everything behind a frame that is held waits, in the order
//! of the file, until that frame is joined or alone.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use linerate_segment::coalesce::{Coalescer, Flow, Options, Output as Joinable, SuperPacket};
use linerate_segment::segment::{Checksums, Link};

use super::output::Output;
use super::record::Template;
use super::tally::Joined;
use super::{link, options};
use crate::Result;
use crate::read::Shape;

/// What is joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joining {
    /// TCP segments are.
    pub tcp: bool,
    /// UDP datagrams are, those of one length and flow.
    pub udp: bool,
    /// How long after its first frame a super-packet may still grow, in nanoseconds of the file's time.
    pub hold: u64,
    /// The checksums of super-packets.
    pub checksums: Checksums,
}

/// Flows of one interface and direction that are joined at a time.
const FLOWS: usize = 256;

/// Interfaces, directions and link headers that are told apart at a time.
const LANES: usize = 64;

/// Records that wait at most, and their bytes: a file without times must not fill the memory.
const MOST_WAITING: usize = 65_536;
const MOST_BYTES: usize = 64 << 20;

/// Frames of different lanes are never joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) interface: u32,
    pub(super) linktype: u16,
    pub(super) shape: Shape,
    pub(super) flags: [u8; 4],
    /// What stands before the packet, where that is no Ethernet header.
    pub(super) prefix: Vec<u8>,
}

struct Lane {
    origin: Origin,
    coalescer: Coalescer<Vec<Flow>>,
}

pub(super) struct Joiner {
    joining: Joining,
    lanes: Vec<Lane>,
    queue: Queue,
}

#[derive(Default)]
struct Queue {
    records: VecDeque<Waiting>,
    /// The number of the first of them.
    first: u64,
    bytes: usize,
    /// Buffers for records to come.
    spare: Vec<Vec<u8>>,
    tally: Joined,
}

/// A record on its way to the file.
struct Waiting {
    bytes: Vec<u8>,
    shape: Shape,
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
    Gone,
}

impl Joiner {
    pub(super) fn new(joining: Joining) -> Self {
        Self { joining, lanes: Vec::new(), queue: Queue::default() }
    }

    pub(super) fn tally(&self) -> Joined {
        self.queue.tally
    }

    /// Takes a record that is not to be joined.
    pub(super) fn pass(&mut self, record: &Template<'_>, packet: bool) {
        let number = self.queue.add(record, 0, packet);
        self.queue.get(number).state = State::Ready;
    }

    /// Takes the record of a packet that had `wire_len` bytes at `time`.
    pub(super) fn push(
        &mut self,
        record: &Template<'_>,
        wire_len: u32,
        origin: (u32, u16),
        time: u64,
    ) {
        if let Some(limit) = time.checked_sub(self.joining.hold + 1) {
            for lane in &mut self.lanes {
                lane.coalescer.flush_before(limit, &mut |output| self.queue.settle(output));
            }
        }
        let (interface, linktype) = origin;
        let packet = record.packet();
        let whole = packet.len() as u64 >= u64::from(wire_len);
        let known = link::packet(linktype, packet)
            .filter(|_| whole && matches!(record.shape, Shape::Pcap | Shape::Enhanced));
        let Some((prefix, link)) = known else {
            // Which flow it is of cannot be told, and the order of a flow must not change.
            self.flush();
            let number = self.queue.add(record, 0, true);
            return self.queue.settle(Joinable::Frame {
                token: number,
                reason: linerate_segment::coalesce::Reason::Protocol,
            });
        };
        let origin = Origin {
            interface,
            linktype,
            shape: record.shape,
            flags: options::flags(record.options()),
            prefix: packet[..prefix].to_vec(),
        };
        let number = self.queue.add(record, prefix, true);
        let lane = self.lane(origin, link);
        let coalescer = &mut self.lanes[lane].coalescer;
        coalescer.push(&packet[prefix..], number, time, &mut |output| self.queue.settle(output));
        if self.queue.records.len() > MOST_WAITING || self.queue.bytes > MOST_BYTES {
            self.flush();
        }
    }

    fn lane(&mut self, origin: Origin, link: Link) -> usize {
        if let Some(found) = self.lanes.iter().position(|lane| lane.origin == origin) {
            return found;
        }
        if self.lanes.len() == LANES {
            let mut oldest = self.lanes.remove(0);
            oldest.coalescer.flush_all(&mut |output| self.queue.settle(output));
        }
        let Joining { tcp, udp, checksums, .. } = self.joining;
        let options = Options { link, tcp, udp, checksums, ..Options::default() };
        // Nobody who sends can choose flows that meet in one place of the table.
        let key = RandomState::new().hash_one(0);
        let coalescer = Coalescer::with_key(vec![Flow::default(); FLOWS], &options, key);
        self.lanes.push(Lane { origin, coalescer });
        self.lanes.len() - 1
    }

    /// Nothing grows any more.
    pub(super) fn flush(&mut self) {
        for lane in &mut self.lanes {
            lane.coalescer.flush_all(&mut |output| self.queue.settle(output));
        }
    }

    /// Writes what nothing stands before that is held.
    pub(super) fn drain(&mut self, output: &mut Output) -> Result<()> {
        let queue = &mut self.queue;
        while let Some(next) = queue.records.front()
            && next.state != State::Held
        {
            let Some(mut next) = queue.records.pop_front() else { break };
            queue.first += 1;
            queue.bytes -= next.bytes.len();
            if next.state == State::Ready {
                output.put(next.packet, |out| out.extend_from_slice(&next.bytes))?;
            }
            next.bytes.clear();
            queue.spare.push(next.bytes);
        }
        Ok(())
    }
}

impl Queue {
    fn add(&mut self, record: &Template<'_>, prefix: usize, packet: bool) -> u64 {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.extend_from_slice(record.bytes);
        self.bytes += bytes.len();
        let Template { shape, big_endian, captured, .. } = *record;
        let state = State::Held;
        self.records.push_back(Waiting {
            bytes,
            shape,
            big_endian,
            captured,
            prefix,
            packet,
            state,
        });
        self.first + self.records.len() as u64 - 1
    }

    /// A record that is still here; the coalescer names no other.
    fn get(&mut self, number: u64) -> &mut Waiting {
        let at = (number - self.first) as usize;
        &mut self.records[at]
    }

    fn settle(&mut self, output: Joinable<'_>) {
        match output {
            Joinable::Frame { token, reason } => {
                self.tally.alone.add(reason);
                self.get(token).state = State::Ready;
            }
            Joinable::Super(packet) => self.join(&packet),
        }
    }

    fn join(&mut self, packet: &SuperPacket<'_>) {
        let mut out = self.spare.pop().unwrap_or_default();
        let at = |number: &u64| &self.records[(number - self.first) as usize];
        let tokens = packet.tokens();
        let first = at(&tokens[0]);
        let head = &first.template().packet()[..first.prefix];
        let payload = packet.payload().map(|(token, range)| {
            let one = at(&token);
            &one.template().packet()[one.prefix..][range]
        });
        let parts: Vec<&[u8]> = [head, packet.header()].into_iter().chain(payload).collect();
        first.template().put(&mut out, &parts, |out| {
            let each = tokens.iter().map(|token| at(token).template().options());
            options::of_joined(out, each, first.big_endian);
        });
        self.tally.super_packets += 1;
        self.tally.frames += tokens.len() as u64;
        for token in tokens {
            self.get(*token).state = State::Gone;
        }
        self.bytes += out.len();
        let first = self.get(tokens[0]);
        first.state = State::Ready;
        let before = std::mem::replace(&mut first.bytes, out);
        self.bytes -= before.len();
    }
}

impl Waiting {
    fn template(&self) -> Template<'_> {
        let Self { shape, big_endian, captured, .. } = *self;
        Template { bytes: &self.bytes, shape, big_endian, captured }
    }
}
