//! [`Cache`]: the answers for the flows of one reader.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use linerate_bpf::process::End;
use linerate_wire::flow::Key;

use crate::attribution::Shared;
use crate::buckets::{self, Buckets, Used};
use crate::process::Process;
use crate::selection::Selection;
use crate::table::Flow;

/// Slots that a flow may be in.
const WAYS: usize = 4;

/// Sets of slots at the start.
const MIN_SETS: usize = 256;

/// The number of the answer without a process.
const UNKNOWN: u32 = 0;

/// The most different answers. Then the cache starts again.
const MAX_ANSWERS: usize = 1 << 16;

/// Who sends and who receives the packets of a flow, of the processes on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The sender, if it is known.
    pub source: Option<Arc<Process>>,
    /// The receiver, if it is known.
    pub destination: Option<Arc<Process>>,
    /// Both in words, a line each.
    pub text: String,
    /// Whether the [`Selection`] has one of them, or is empty.
    pub is_selected: bool,
    /// Those of the two processes.
    buckets: [u16; 2],
}

impl Answer {
    /// Whether at least one of them is known.
    pub fn is_known(&self) -> bool {
        self.source.is_some() || self.destination.is_some()
    }
}

/// A process, its program, user and control group.
type Id = (u32, u64, u32, u32, u64);

/// The answer for a flow, from a time until another: a cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Slot {
    addresses: [u128; 2],
    ports: [u16; 2],
    from: u64,
    until: u64,
    answer: u32,
    stamp: u32,
    protocol: u8,
}

impl Slot {
    #[inline]
    fn is_of(&self, ends: &[End; 2], protocol: u8) -> bool {
        let [one, other] = ends;
        self.addresses == [one.address, other.address]
            && self.ports == [one.port, other.port]
            && self.protocol == protocol
    }
}

/// Answers without a system call or a lock for flows that it knows.
pub struct Cache {
    shared: Arc<Shared>,
    buckets: Arc<Buckets>,
    netns: u64,
    selection: Selection,
    slots: Vec<[Slot; WAYS]>,
    /// A part of the hash of each slot's flow, 0 without one: those of many sets are in one cache line, so that a look-up
    /// waits for one slot.
    tags: Vec<[u8; WAYS]>,
    /// The most sets of slots, and how many slots have a flow.
    max_sets: usize,
    filled: usize,
    answers: Vec<Answer>,
    numbers: HashMap<[Option<Id>; 2], u32>,
    /// All events before this time are known.
    horizon: u64,
    /// The slot to take from the next full set.
    turn: usize,
    /// The number of the last answer.
    last: u32,
    /// How often the answers started again.
    generation: u64,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("netns", &self.netns).finish_non_exhaustive()
    }
}

impl Cache {
    pub(crate) fn new(
        shared: Arc<Shared>,
        buckets: Arc<Buckets>,
        netns: u64,
        selection: Selection,
        flows: usize,
    ) -> Self {
        // Half full, so that few sets are.
        let max_sets = (2 * flows / WAYS).next_power_of_two().max(MIN_SETS);
        let mut cache = Self {
            shared,
            buckets,
            netns,
            selection,
            slots: vec![[Slot::default(); WAYS]; MIN_SETS],
            tags: vec![[0; WAYS]; MIN_SETS],
            max_sets,
            filled: 0,
            answers: Vec::new(),
            numbers: HashMap::new(),
            horizon: 0,
            turn: 0,
            last: 0,
            generation: 0,
        };
        cache.number(None, None);
        cache
    }

    /// The answer for the last packet.
    #[inline]
    pub fn last(&self) -> &Answer {
        &self.answers[self.last as usize]
    }

    /// The number of this answer among those of a generation. A new generation has other answers.
    #[inline]
    pub fn last_number(&self) -> (u64, usize) {
        (self.generation, self.last as usize)
    }

    /// The answer for a packet without a flow: no process.
    pub fn attribute_none(&mut self) -> &Answer {
        self.last = UNKNOWN;
        self.last()
    }

    /// Who sends and receives a packet of this flow, captured at this time (UTC, in nanoseconds). Packets without ports
    /// are of no process.
    #[inline]
    pub fn attribute(&mut self, key: &Key, time: u64) -> &Answer {
        let ends = [end(key.source, key.source_port), end(key.destination, key.destination_port)];
        let hash = buckets::hash(ends[0], ends[1]);
        let set = hash as usize & (self.slots.len() - 1);
        if let Some(way) = self.way(set, hash, &ends, key.protocol.0)
            && let slot = &self.slots[set][way]
            && (slot.from..slot.until).contains(&time)
            && time < self.horizon
            && slot.stamp == self.buckets.stamp(self.used(slot.answer, hash))
        {
            self.last = slot.answer;
        } else {
            self.last = self.ask(ends, key.protocol.0, hash, time);
        }
        self.last()
    }

    /// The way of the flow in its set.
    #[inline]
    fn way(&self, set: usize, hash: u64, ends: &[End; 2], protocol: u8) -> Option<usize> {
        let (tags, slots) = (&self.tags[set], &self.slots[set]);
        ways(hash).find(|way| tags[*way] == tag(hash) && slots[*way].is_of(ends, protocol))
    }

    #[cold]
    fn ask(&mut self, ends: [End; 2], protocol: u8, hash: u64, time: u64) -> u32 {
        let [local, remote] = ends;
        let flow = Flow { netns: self.netns, protocol, local, remote };
        let mut state = self.shared.lock();
        self.horizon = state.refresh();
        let ([source, destination], used) = state.table.ends(&flow, time);
        let stamp = self.buckets.stamp(used);
        drop(state);
        debug_assert_eq!(used[0], buckets::bucket(hash));
        let (from, until) =
            (source.from.max(destination.from), source.until.min(destination.until));
        let answer = self.number(source.process, destination.process);
        let (addresses, ports) = (ends.map(|end| end.address), ends.map(|end| end.port));
        let slot = Slot { addresses, ports, from, until, answer, stamp, protocol };
        if self.filled > self.slots.len() * WAYS / 2 && self.slots.len() < self.max_sets {
            let sets = self.max_sets.min(self.slots.len() * 4);
            self.slots = vec![[Slot::default(); WAYS]; sets];
            self.tags = vec![[0; WAYS]; sets];
            self.filled = 0;
        }
        let set = hash as usize & (self.slots.len() - 1);
        let at = self.way(set, hash, &ends, protocol);
        let tags = &mut self.tags[set];
        let at = at.or_else(|| ways(hash).find(|way| tags[*way] == 0)).unwrap_or(self.turn);
        self.turn = (self.turn + 1) % WAYS;
        self.filled += usize::from(tags[at] == 0);
        tags[at] = tag(hash);
        self.slots[set][at] = slot;
        answer
    }

    /// The buckets of an answer for a flow.
    #[inline]
    fn used(&self, answer: u32, hash: u64) -> Used {
        let [source, destination] = self.answers[answer as usize].buckets;
        [buckets::bucket(hash), source, destination]
    }

    /// The number of an answer.
    fn number(&mut self, source: Option<Arc<Process>>, destination: Option<Arc<Process>>) -> u32 {
        let id = |one: &Option<Arc<Process>>| {
            one.as_ref().map(|one| (one.id, one.start, one.exec, one.uid, one.cgroup))
        };
        let ids = [id(&source), id(&destination)];
        if let Some(number) = self.numbers.get(&ids) {
            return *number;
        }
        if self.answers.len() == MAX_ANSWERS {
            self.generation += 1;
            self.answers.clear();
            self.numbers.clear();
            self.tags.fill([0; WAYS]);
            self.filled = 0;
            self.number(None, None);
        }
        let line = |one: &Option<Arc<Process>>, what: &str| {
            one.as_ref().map(|process| format!("{what}: {process}"))
        };
        let lines = [line(&source, "sender"), line(&destination, "receiver")];
        let has = |one: &Option<Arc<Process>>| {
            one.as_ref().is_some_and(|process| self.selection.has(process))
        };
        let answer = Answer {
            buckets: [&source, &destination]
                .map(|one| one.as_ref().map_or(0, |process| process.bucket)),
            text: lines.into_iter().flatten().collect::<Vec<_>>().join("\n"),
            is_selected: self.selection.is_empty() || has(&source) || has(&destination),
            source,
            destination,
        };
        self.answers.push(answer);
        let number = (self.answers.len() - 1) as u32;
        self.numbers.insert(ids, number);
        number
    }
}

/// The slots of a set, in the order for a flow: mostly the first has it.
#[inline]
fn ways(hash: u64) -> impl Iterator<Item = usize> {
    let first = (hash >> 32) as usize;
    (0..WAYS).map(move |way| (first + way) % WAYS)
}

/// The tag of a slot with a flow of this hash; its other parts say the set, the first way and the bucket.
#[inline]
fn tag(hash: u64) -> u8 {
    (hash >> 40) as u8 | 1
}

#[inline]
fn end(address: IpAddr, port: u16) -> End {
    let address = match address {
        IpAddr::V4(address) => 0xffff_0000_0000 | u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    };
    End { address, port }
}
