//! [`Table`]: flows by their keys, in memory that is allocated once, and that takes pages only as it is used.
//!
//! Entries are in one array, and an index of hashes points to them: open addressing with linear probing, two slots for
//! each entry, so that most look-ups touch one cache line of the index. A removal moves the slots behind it back. So
//! there are no tombstones, and nothing is ever rebuilt.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use super::details::{Details, FlowProcesses, OptionalFields};
use super::entry::Entry;
use super::initiators::{Hash, Initiators};
use super::packet::Key;
use crate::record::Processes;
use crate::schema::{Group, Groups};

/// Slots of the index for each entry.
const SLOTS_PER_ENTRY: usize = 2;

/// A slot of the index. A number, because an array of zeros comes from the kernel as it is: nothing clears it again.
#[derive(Clone, Copy)]
struct Slot {
    /// The hash of the key, which also says where its probe sequence begins.
    hash: u32,
    /// The number of the entry, plus one; 0 in an empty slot.
    entry: u32,
}

impl Slot {
    const EMPTY: u64 = 0;

    #[inline]
    fn from_word(word: u64) -> Self {
        Self { hash: (word >> 32) as u32, entry: word as u32 }
    }

    #[inline]
    fn word(self) -> u64 {
        u64::from(self.hash) << 32 | u64::from(self.entry)
    }
}

pub(super) struct Table {
    /// Each a [`Slot`].
    slots: Box<[u64]>,
    /// Those that were ever in use. It has its capacity from the start.
    entries: Vec<Entry>,
    /// Those of the entries, if the meter has them.
    details: Option<Vec<Details>>,
    processes: Option<Vec<Option<FlowProcesses>>>,
    groups: Groups,
    capacity: usize,
    /// Entries that are free again.
    free: Vec<u32>,
    /// SipHash-1-3 with a secret key: nobody can choose flows whose hashes collide. A hash without one, or with a key
    /// that its collisions do not depend on, is faster, but then a sender of such flows stops the meter.
    hasher: RandomState,
    /// Those of removed entries.
    initiators: Initiators,
    len: usize,
}

impl Table {
    /// A table for at most this many flows, `1..=2^31 - 1`, and these fields on request.
    pub(super) fn new(capacity: u32, groups: Groups) -> Self {
        let has_processes = groups.contains(Group::Process);
        let slots = capacity as usize * SLOTS_PER_ENTRY;
        Self {
            slots: vec![Slot::EMPTY; slots].into_boxed_slice(),
            entries: Vec::with_capacity(capacity as usize),
            details: groups.need_packets().then(|| Vec::with_capacity(capacity as usize)),
            processes: has_processes.then(|| Vec::with_capacity(capacity as usize)),
            groups,
            capacity: capacity as usize,
            free: Vec::with_capacity(capacity as usize),
            hasher: RandomState::new(),
            initiators: Initiators::new(capacity as usize),
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    /// Whether more than three quarters of the entries are in use.
    pub(super) fn is_nearly_full(&self) -> bool {
        self.len > self.capacity / 4 * 3
    }

    /// Entries up to this number may be in use.
    pub(super) fn high_water(&self) -> u32 {
        self.entries.len() as u32
    }

    #[inline]
    fn slot(&self, at: usize) -> Slot {
        Slot::from_word(self.slots[at])
    }

    #[inline]
    pub(super) fn entry(&self, number: u32) -> &Entry {
        &self.entries[number as usize]
    }

    #[inline]
    pub(super) fn entry_mut(&mut self, number: u32) -> &mut Entry {
        &mut self.entries[number as usize]
    }

    /// What an entry has on request.
    pub(super) fn optional_fields(&self, number: u32) -> Option<Box<OptionalFields>> {
        let details = self.details.as_ref().map(|details| details[number as usize]);
        let processes =
            self.processes.as_ref().and_then(|processes| processes[number as usize].clone());
        (details.is_some() || processes.is_some()).then(|| {
            let details = details.unwrap_or_default();
            Box::new(OptionalFields { groups: self.groups, details, processes })
        })
    }

    /// Notes the processes of a packet, which came from `a` or not, unless as much is known of the flow.
    pub(super) fn set_processes(&mut self, number: u32, processes: Arc<Processes>, from_a: bool) {
        let Some(all) = &mut self.processes else { return };
        let known = |one: &Processes| one.iter().flatten().count();
        let before = &mut all[number as usize];
        if before.as_ref().is_none_or(|(before, _)| known(before) < known(&processes)) {
            *before = Some((processes, from_a));
        }
    }

    #[inline]
    pub(super) fn details_mut(&mut self, number: u32) -> Option<&mut Details> {
        self.details.as_mut().map(|details| &mut details[number as usize])
    }

    /// Resets the counts of an entry whose flow continues.
    pub(super) fn restart(&mut self, number: u32) {
        self.entry_mut(number).restart();
        if let Some(details) = self.details_mut(number) {
            *details = Details::default();
        }
        if let Some(processes) = &mut self.processes {
            processes[number as usize] = None;
        }
    }

    /// The hash of a key, by which it is found.
    #[inline]
    pub(super) fn hash(&self, key: &Key) -> u32 {
        let mut hasher = self.hasher.build_hasher();
        // One call for all words is faster than a call for each.
        hasher.write(key.words().map(u64::to_ne_bytes).as_flattened());
        hasher.finish() as u32
    }

    /// Where the probe sequence of a hash begins.
    #[inline]
    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.slots.len() as u64) >> 32) as usize
    }

    #[inline]
    fn next(&self, slot: usize) -> usize {
        if slot + 1 == self.slots.len() { 0 } else { slot + 1 }
    }

    /// Reads the first slot of a probe sequence, so that it is in the cache. The value has no meaning.
    #[inline]
    pub(super) fn load_slot(&self, hash: u32) -> u32 {
        self.slot(self.home(hash)).hash
    }

    /// Reads the entry that probably has this hash, and its details, so that they are in the cache. The value has no meaning.
    #[inline]
    pub(super) fn load_entry(&self, hash: u32) -> u32 {
        let mut at = self.home(hash);
        loop {
            let slot = self.slot(at);
            match slot.entry.checked_sub(1) {
                None => return 0,
                Some(number) if slot.hash == hash => {
                    let details = self.details.as_ref();
                    let details = details.map_or(0, |all| all[number as usize].load());
                    return self.entries[number as usize].load() ^ details;
                }
                Some(_) => at = self.next(at),
            }
        }
    }

    /// The entry of this key, which has this hash.
    #[inline]
    pub(super) fn find(&self, hash: u32, key: &Key) -> Option<u32> {
        let mut at = self.home(hash);
        loop {
            let slot = self.slot(at);
            let number = slot.entry.checked_sub(1)?;
            if slot.hash == hash && self.entries[number as usize].key == *key {
                return Some(number);
            }
            at = self.next(at);
        }
    }

    /// Adds an entry. Its key has this hash and is not in the table, and the table is not full.
    pub(super) fn insert(&mut self, hash: u32, entry: Entry) -> u32 {
        let number = match self.free.pop() {
            Some(number) => {
                self.entries[number as usize] = entry;
                if let Some(details) = self.details_mut(number) {
                    *details = Details::default();
                }
                number
            }
            None => {
                self.entries.push(entry);
                if let Some(details) = &mut self.details {
                    details.push(Details::default());
                }
                if let Some(processes) = &mut self.processes {
                    processes.push(None);
                }
                self.entries.len() as u32 - 1
            }
        };
        let mut at = self.home(hash);
        while self.slots[at] != Slot::EMPTY {
            at = self.next(at);
        }
        self.slots[at] = Slot { hash, entry: number + 1 }.word();
        self.len += 1;
        number
    }

    /// Whether `a` began an earlier flow with this hash, if it is known.
    #[inline]
    pub(super) fn initiator_was_a(&self, hash: Hash, now: u64) -> Option<bool> {
        self.initiators.initiator_is_a(hash, now)
    }

    /// Removes an entry that is in use.
    pub(super) fn remove(&mut self, number: u32) {
        let entry = &self.entries[number as usize];
        let hash = self.hash(&entry.key);
        if let Some(initiator_is_a) = entry.certain_initiator_is_a() {
            self.initiators.remember(hash, initiator_is_a, entry.last);
        }
        let mut hole = self.home(hash);
        while self.slot(hole).entry != number + 1 {
            hole = self.next(hole);
        }
        // A later slot whose probe sequence includes the hole moves there, and leaves the next hole.
        let mut at = self.next(hole);
        while self.slots[at] != Slot::EMPTY {
            let home = self.home(self.slot(at).hash);
            let len = self.slots.len();
            let distance = |from: usize| (at + len - from) % len;
            if distance(home) >= distance(hole) {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = self.next(at);
        }
        self.slots[hole] = Slot::EMPTY;
        self.entries[number as usize] = Entry::default();
        if let Some(processes) = &mut self.processes {
            processes[number as usize] = None;
        }
        self.free.push(number);
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests;
