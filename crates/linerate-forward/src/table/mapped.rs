//! [`Table`]: the session table, mapped into user space. Listing, ending or freeing a session needs no system
//! call.
//!
//! `bpf/layout.h` describes the protocol; this file is the user-space side. A slot is read under its sequence
//! lock. A session is ended by one compare-and-swap of the word that holds its generation, which succeeds
//! only while the session is the one that was read. Only the ager frees a slot, under the lock, and only if
//! its version has not changed since the session was ended, at least one grace period ago. User space
//! accesses each field of a session in one size, and never writes a counter that a program may be adding to.

use std::collections::HashSet;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use linerate_bpf::map::MappedArray;
use linerate_bpf::seqlock::{self, WriteGuard};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::maps::Maps;
use crate::table::clock::Clock;
use crate::table::layout::{
    self, Addresses, Counters, GENERATION_CLOSED, GENERATION_ENDED, SESSION_WORDS, SessionKey,
    WAYS, kind,
};
use crate::table::session::{LastUse, Record};
use crate::tuple::Protocol;
use crate::{Error, Result};

/// Retries for a slot that is being written: a learner finishes within a microsecond, but may have to wait
/// for its core.
const TRIES: u32 = 100;
/// Bytes of a session.
const SESSION: usize = size_of::<layout::Session>();
/// Bytes of line one.
const LINE: usize = 64;

/// Offsets of the fields that user space accesses individually, and of the key's word that ends with the
/// generation.
mod at {
    use std::mem::offset_of;

    use crate::table::layout::{Session, SessionKey};

    pub(super) const DST_MAC: usize = offset_of!(SessionKey, dst_mac);
    pub(super) const TAGS: usize = offset_of!(SessionKey, tag);
    pub(super) const VERSION: usize = offset_of!(Session, version);
    pub(super) const DEADLINE: usize = offset_of!(Session, deadline);
    pub(super) const OWNER: usize = offset_of!(Session, owner);
    pub(super) const CREATED: usize = offset_of!(Session, created);
    pub(super) const DESTINATION_MAC: usize = offset_of!(Session, destination_mac);
    pub(super) const OUT_IFINDEX: usize = offset_of!(Session, out_ifindex);
    pub(super) const REFERENCED: usize = offset_of!(Session, referenced);
    pub(super) const PACKETS: usize = offset_of!(Session, packets);
    pub(super) const BYTES: usize = offset_of!(Session, bytes);
}

/// The mapped arrays of sessions, IPv6 addresses and remote-CPU counters.
#[derive(Debug)]
pub struct Table {
    sessions: MappedArray,
    addresses: MappedArray,
    remote_counters: MappedArray,
    control: MappedArray,
}

impl Table {
    /// Maps the table of the programs that have these maps.
    ///
    /// # Errors
    /// [`Error::Bpf`] if they cannot be mapped, [`Error::Invalid`] if they have the layout of another
    /// version.
    pub fn open(maps: &Maps) -> Result<Self> {
        let map = |name| -> Result<_> { Ok(MappedArray::new(maps.get(name)?.as_fd())?) };
        let table = Self {
            sessions: map("table")?,
            addresses: map("table6")?,
            remote_counters: map("remote_counters")?,
            control: map("control")?,
        };
        let fits = |map: &MappedArray, size| {
            map.max_entries() == table.sessions.max_entries() && map.value_size() == size
        };
        if !fits(&table.sessions, size_of::<layout::Bucket>())
            || !fits(&table.addresses, size_of::<layout::Bucket6>())
            || !fits(&table.remote_counters, size_of::<layout::RemoteCounters>())
            || table.control.value_size() != size_of::<layout::Control>()
        {
            return Err(Error::Invalid(
                "the table of sessions is of another version of Linerate; detach with that one"
                    .into(),
            ));
        }
        Ok(table)
    }

    /// Slots, including free ones.
    pub fn slots(&self) -> usize {
        self.sessions.max_entries() * WAYS
    }

    /// Capacity in sessions: a table is at most half full.
    pub fn capacity(&self) -> usize {
        self.slots() / 2
    }

    /// Slots that are not free.
    fn taken(&self) -> &AtomicU32 {
        self.control.atomic(0, offset_of!(layout::Control, taken))
    }

    /// Bytes of kernel memory of the mapped arrays.
    pub fn bytes(&self) -> usize {
        self.sessions.bytes() + self.addresses.bytes() + self.remote_counters.bytes()
    }

    /// The session in slot `index`, ended or not; `None` if the slot is free, or if it stayed locked for too
    /// long to read.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn read(&self, index: usize) -> Option<Record> {
        self.slot(index).read()
    }

    /// All sessions, in the order of their slots. Sessions learned or ended during the scan may or may not
    /// appear. None appears twice.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        (0..self.slots()).filter_map(|index| self.read(index))
    }

    /// Output interfaces and MAC addresses that sessions have sent to within this time, as far as the ager knows; scans
    /// every slot.
    pub(crate) fn next_hops(&self, clock: &Clock, within: Duration) -> HashSet<(u32, [u8; 6])> {
        let seconds = clock.seconds();
        let is_used = |slot: &Slot<'_>| {
            slot.peek().is_some_and(|(_, stamp)| !stamp.is_ended())
                && slot.last_use().idle(seconds) <= within
        };
        let slots = (0..self.slots()).map(|index| self.slot(index)).filter(is_used);
        slots.map(Slot::next_hop).collect()
    }

    /// The number of sessions that have not ended; scans every slot.
    pub fn count(&self) -> u64 {
        let looks = (0..self.slots()).filter_map(|index| self.slot(index).peek());
        looks.filter(|(_, stamp)| !stamp.is_ended()).count() as u64
    }

    /// Ends the sessions that `accepts` selects; their next packets go to the kernel. Returns how many ended.
    pub fn end(&self, mut accepts: impl FnMut(&Record) -> bool) -> u64 {
        let end = |index: &usize| {
            let slot = self.slot(*index);
            // The stamp before the rest, so that only the session that was read can be ended.
            let Some((_, stamp)) = slot.peek().filter(|(_, stamp)| !stamp.is_ended()) else {
                return false;
            };
            slot.read().is_some_and(|record| accepts(&record)) && slot.end(stamp).is_some()
        };
        (0..self.slots()).filter(end).count() as u64
    }

    /// Writes `record`, whose key has this hash ([`crate::table::hash::tuple`]), into a free slot like the
    /// learner, for tests and measurements. Returns the slot; `None` if both buckets are full. The session is
    /// valid while its generation is current.
    pub fn insert(&self, hash: u64, record: &Record) -> Option<usize> {
        let mask = self.sessions.max_entries() - 1;
        let mut buckets = [(hash >> 32) as usize & mask, (hash as u32 as usize / WAYS) & mask];
        let load = |bucket: usize| {
            let taken = |way: &usize| self.slot(bucket * WAYS + way).peek().is_some();
            (0..WAYS).filter(taken).count()
        };
        let [first, second] = buckets.map(load);
        if first >= WAYS - 1 && second < first {
            buckets.reverse();
        }
        let mut slots = buckets.into_iter().flat_map(|bucket| {
            (0..WAYS).map(move |way| bucket * WAYS + (hash as usize + way) % WAYS)
        });
        slots.find(|index| self.slot(*index).insert(record))
    }

    #[inline]
    pub(crate) fn slot(&self, index: usize) -> Slot<'_> {
        Slot { table: self, index }
    }
}

/// A slot of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'t> {
    table: &'t Table,
    index: usize,
}

/// Identifies the session in a slot and its version, for [`Slot::end`] and [`Slot::free`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotVersion {
    pub(crate) version: u32,
    /// VLAN tags and generation, as in memory.
    tags: u64,
}

impl SlotVersion {
    /// The generation of the session, or that it has ended.
    #[inline]
    pub(crate) fn generation(self) -> u32 {
        generation_of(self.tags)
    }

    #[inline]
    pub(crate) fn is_ended(self) -> bool {
        self.generation() & GENERATION_ENDED != 0
    }
}

#[inline]
fn generation_of(tags: u64) -> u32 {
    let [.., a, b, c, d] = tags.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

fn with_generation(tags: u64, generation: u32) -> u64 {
    let mut bytes = tags.to_ne_bytes();
    bytes[4..].copy_from_slice(&generation.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

/// The protocol of the session with this third word of its key; `None` for a free slot.
#[inline]
fn protocol_of(dst_mac: u64) -> Option<Protocol> {
    let [.., kind, _] = dst_mac.to_ne_bytes();
    match kind {
        0 => None,
        _ if kind & kind::TCP == 0 => Some(Protocol::Udp),
        _ => Some(Protocol::Tcp),
    }
}

impl<'t> Slot<'t> {
    #[inline]
    fn bucket(self) -> usize {
        self.index / WAYS
    }

    #[inline]
    fn way(self) -> usize {
        self.index % WAYS
    }

    #[inline]
    fn half(self, offset: usize) -> &'t AtomicU32 {
        self.table.sessions.atomic(self.bucket(), self.way() * SESSION + offset)
    }

    #[inline]
    fn word(self, offset: usize) -> &'t AtomicU64 {
        self.table.sessions.atomic(self.bucket(), self.way() * SESSION + offset)
    }

    #[inline]
    fn version(self) -> &'t AtomicU32 {
        self.half(at::VERSION)
    }

    fn addresses(self) -> &'t [AtomicU64] {
        let size = size_of::<Addresses>();
        self.table.addresses.atomics(self.bucket(), self.way() * size, size / 8)
    }

    fn remote_counters(self) -> &'t [AtomicU64] {
        let size = size_of::<Counters>();
        self.table.remote_counters.atomics(self.bucket(), self.way() * size, size / 8)
    }

    pub(crate) fn read(self) -> Option<Record> {
        let (_, record) = seqlock::read(self.version(), TRIES, || self.copy())?;
        Some(record)
    }

    fn copy(self) -> Option<Record> {
        protocol_of(self.word(at::DST_MAC).load(Relaxed))?;
        let mut words = [0u64; SESSION_WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            // Words five and six are made of smaller fields.
            if !(at::VERSION / 8..at::PACKETS / 8).contains(&index) {
                *word = self.word(8 * index).load(Relaxed);
            }
        }
        let mut session: layout::Session = zerocopy::transmute!(words);
        session.version = self.version().load(Relaxed);
        session.deadline = self.half(at::DEADLINE).load(Relaxed);
        let owner = self.half(at::OWNER).load(Relaxed);
        (session.owner, session.route_generation) = (owner as u16, (owner >> 16) as u16);
        let [referenced, a, b, c] = self.half(at::REFERENCED).load(Relaxed).to_ne_bytes();
        (session.referenced, session.unused) = (referenced, [a, b, c]);
        let mut record =
            Record { slot: self.index as u64, session, remote: self.remote(), ..Record::default() };
        if session.key.kind & kind::FAMILY == kind::IPV6 {
            record.addresses = copied(self.addresses());
        }
        Some(record)
    }

    fn remote(self) -> Counters {
        copied(self.remote_counters())
    }

    /// The part of the session that the ager reads, three words of one cache line; `None` if the slot is
    /// free.
    #[inline]
    pub(crate) fn peek(self) -> Option<(Protocol, SlotVersion)> {
        // Acquire: the stamp is of this version, or of a later one, and then `end` fails.
        let version = self.version().load(Acquire);
        let protocol = protocol_of(self.word(at::DST_MAC).load(Relaxed))?;
        Some((protocol, SlotVersion { version, tags: self.word(at::TAGS).load(Relaxed) }))
    }

    /// The reference bit, and when it was last found set.
    #[inline]
    pub(crate) fn last_use(self) -> LastUse {
        LastUse::from_word(self.half(at::REFERENCED).load(Relaxed))
    }

    /// The interface that packets leave by, and the MAC address that they are sent to.
    fn next_hop(self) -> (u32, [u8; 6]) {
        let [a, b, c, d, e, f, ..] = self.word(at::DESTINATION_MAC).load(Relaxed).to_ne_bytes();
        (self.half(at::OUT_IFINDEX).load(Relaxed), [a, b, c, d, e, f])
    }

    /// When the session was first learned, low half of jiffies.
    #[inline]
    pub(crate) fn created(self) -> u32 {
        self.half(at::CREATED).load(Relaxed)
    }

    /// Clears the reference bit. A program that sets it at this moment found it set, and stores nothing.
    #[inline]
    pub(crate) fn clear_referenced(self, seconds: u64) {
        self.half(at::REFERENCED).store(LastUse::found(seconds).word(), Relaxed);
    }

    /// Ends the session, if it is still the one of `stamp`: it forwards no packet that arrives from now on.
    /// Returns the stamp for freeing the slot.
    ///
    /// Only the ager reuses slots, so an equal generation word means the same session. One that was learned
    /// again in the meantime is also the same; it is then learned once more.
    pub(crate) fn end(self, stamp: SlotVersion) -> Option<SlotVersion> {
        let ended = (stamp.generation().wrapping_add(1)) & !GENERATION_CLOSED | GENERATION_ENDED;
        let tags = with_generation(stamp.tags, ended);
        let word = self.word(at::TAGS);
        word.compare_exchange(stamp.tags, tags, AcqRel, Relaxed).ok()?;
        Some(SlotVersion { tags, ..stamp })
    }

    /// Frees the slot, if it has not changed since `end` returned `stamp`, and returns the session's total
    /// counts. A grace period must have passed since then.
    pub(crate) fn free(self, stamp: SlotVersion) -> Option<Counters> {
        let _guard = WriteGuard::try_lock_at_version(self.version(), stamp.version)?;
        if self.word(at::TAGS).load(Relaxed) != stamp.tags {
            return None;
        }
        let remote = self.remote();
        let total = Counters {
            packets: self.word(at::PACKETS).load(Relaxed).wrapping_add(remote.packets),
            bytes: self.word(at::BYTES).load(Relaxed).wrapping_add(remote.bytes),
        };
        self.clear();
        Some(total)
    }

    /// Frees a slot whose writer died and left the odd number `version`. Its content is discarded.
    pub(crate) fn free_abandoned(self, version: u32) -> bool {
        let guard = WriteGuard::take_over(self.version(), version);
        if guard.is_some() {
            self.clear();
        }
        guard.is_some()
    }

    /// The version number of the lock.
    pub(crate) fn version_now(self) -> u32 {
        self.version().load(Relaxed)
    }

    /// The lock is held.
    fn clear(self) {
        if protocol_of(self.word(at::DST_MAC).load(Relaxed)).is_some() {
            self.table.taken().fetch_sub(1, Relaxed);
        }
        for offset in (0..at::TAGS).step_by(8) {
            self.word(offset).store(0, Relaxed);
        }
        self.word(at::TAGS).store(with_generation(0, GENERATION_ENDED), Relaxed);
        self.half(at::OWNER).store(0, Relaxed);
        self.half(at::REFERENCED).store(0, Relaxed);
        self.word(at::PACKETS).store(0, Relaxed);
        self.word(at::BYTES).store(0, Relaxed);
        self.remote_counters().iter().for_each(|word| word.store(0, Relaxed));
    }

    fn insert(self, record: &Record) -> bool {
        let version = self.version().load(Acquire);
        let Some(_guard) = WriteGuard::try_lock_at_version(self.version(), version) else {
            return false;
        };
        if protocol_of(self.word(at::DST_MAC).load(Relaxed)).is_some() {
            return false;
        }
        let room = self.table.capacity() as u32;
        let more = |taken: u32| (taken < room).then_some(taken + 1);
        if self.table.taken().fetch_update(Relaxed, Relaxed, more).is_err() {
            return false;
        }
        let session = &record.session;
        let key = SessionKey { generation: GENERATION_ENDED, ..session.key };
        let bytes = layout::Session { key, ..*session };
        for (offset, word) in (0..SESSION).step_by(8).zip(bytes.as_bytes().chunks_exact(8)) {
            let is_word = !(at::VERSION..at::PACKETS).contains(&offset) || offset >= LINE;
            if is_word {
                let word = u64::from_ne_bytes(word.try_into().expect("eight bytes"));
                self.word(offset).store(word, Relaxed);
            }
        }
        self.half(at::DEADLINE).store(session.deadline, Relaxed);
        let owner = u32::from(session.owner) | u32::from(session.route_generation) << 16;
        self.half(at::OWNER).store(owner, Relaxed);
        let [a, b, c] = session.unused;
        let referenced = u32::from_ne_bytes([session.referenced, a, b, c]);
        self.half(at::REFERENCED).store(referenced, Relaxed);
        fill(self.addresses(), &record.addresses);
        fill(self.remote_counters(), &record.remote);
        // The generation last: it makes the session valid.
        let tags = self.word(at::TAGS);
        let valid = with_generation(tags.load(Relaxed), session.key.generation);
        tags.store(valid, Release);
        true
    }
}

#[cfg(test)]
impl<'t> Slot<'t> {
    pub(crate) fn version_for_tests(self) -> &'t AtomicU32 {
        self.version()
    }

    /// Publishes like the learner, from the value that it read before.
    pub(crate) fn republish_for_tests(self, before: SlotVersion, generation: u32) {
        let tags = with_generation(before.tags, generation);
        self.word(at::TAGS).compare_exchange(before.tags, tags, AcqRel, Relaxed).unwrap();
    }
}

/// The value in `words`; each word is read once.
fn copied<T: FromBytes + IntoBytes>(words: &[AtomicU64]) -> T {
    let mut value = T::new_zeroed();
    for (bytes, word) in value.as_mut_bytes().chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
    }
    value
}

/// Stores `value` into `words`.
fn fill(words: &[AtomicU64], value: &(impl IntoBytes + Immutable)) {
    for (bytes, word) in value.as_bytes().chunks_exact(8).zip(words) {
        word.store(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")), Relaxed);
    }
}

#[cfg(test)]
pub(crate) mod tests;
