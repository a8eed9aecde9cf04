//! [`Table`]: the sessions that the programs forward by, referenced from user space through mapped memory. No
//! system call for a session that is listed, ended or freed.
//!
//! The protocol is told in `bpf/layout.h`; this is its other side. A slot is read under its sequence
//! lock. A session is ended by one exchange of the word that holds its generation, which succeeds only
//! while the session is the one that was looked at. A slot is freed under the lock, by the ageing alone,
//! and only if it is in the very version that it was to_free in, a grace period before. User space
//! touches each field of a session in one size, and never a counter that a program may be adding to.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use linerate_bpf::map::MappedArray;
use linerate_bpf::seqlock::{self, WriteGuard};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::maps::Maps;
use crate::table::layout::{
    self, Addresses, Counters, GENERATION_ENDED, SESSION_WORDS, SessionKey, WAYS, kind,
};
use crate::table::session::{LastUse, Record};
use crate::tuple::Protocol;
use crate::{Error, Result};

/// How often a slot that is being written is tried again: a learner is done within a microsecond, but
/// may have to wait for its core.
const TRIES: u32 = 100;
/// Bytes of a session.
const SESSION: usize = size_of::<layout::Session>();
/// Bytes of line one.
const LINE: usize = 64;

/// Where the fields of a session are that user space touches by themselves, and the word of its key that
/// ends with the generation.
mod at {
    use std::mem::offset_of;

    use crate::table::layout::{Session, SessionKey};

    pub(super) const DST_MAC: usize = offset_of!(SessionKey, dst_mac);
    pub(super) const TAGS: usize = offset_of!(SessionKey, tag);
    pub(super) const VERSION: usize = offset_of!(Session, version);
    pub(super) const DEADLINE: usize = offset_of!(Session, deadline);
    pub(super) const OWNER: usize = offset_of!(Session, owner);
    pub(super) const CREATED: usize = offset_of!(Session, created);
    pub(super) const REFERENCED: usize = offset_of!(Session, referenced);
    pub(super) const PACKETS: usize = offset_of!(Session, packets);
    pub(super) const BYTES: usize = offset_of!(Session, bytes);
}

/// The mapped arrays of sessions, of IPv6 addresses and of stray counts.
#[derive(Debug)]
pub struct Table {
    sessions: MappedArray,
    addresses: MappedArray,
    remote_counters: MappedArray,
}

impl Table {
    /// Maps the table of the programs that have these maps.
    ///
    /// # Errors
    /// [`Error::Ring`] where they cannot be mapped, [`Error::Invalid`] where they are not what this version
    /// makes.
    pub fn open(maps: &Maps) -> Result<Self> {
        let map = |name| -> Result<_> { Ok(MappedArray::new(maps.get(name)?.as_fd())?) };
        let table = Self {
            sessions: map("table")?,
            addresses: map("table6")?,
            remote_counters: map("remote_counters")?,
        };
        let fits = |map: &MappedArray, size| {
            map.entries() == table.sessions.entries() && map.value_size() == size
        };
        if !fits(&table.sessions, size_of::<layout::Bucket>())
            || !fits(&table.addresses, size_of::<layout::Bucket6>())
            || !fits(&table.remote_counters, size_of::<layout::RemoteCounters>())
        {
            return Err(Error::Invalid(
                "the table of sessions is of another version of Linerate; detach with that one"
                    .into(),
            ));
        }
        Ok(table)
    }

    /// Places for sessions, free ones included.
    pub fn slots(&self) -> usize {
        self.sessions.entries() * WAYS
    }

    /// Sessions that there is room for: a table is at most half full.
    pub fn capacity(&self) -> usize {
        self.slots() / 2
    }

    /// Bytes of kernel memory that the mapped arrays take.
    pub fn bytes(&self) -> usize {
        self.sessions.bytes() + self.addresses.bytes() + self.remote_counters.bytes()
    }

    /// What is in slot `index`, ended or not; `None` when it is free, or was being written for so long
    /// that there is no telling.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn read(&self, index: usize) -> Option<Record> {
        self.slot(index).read()
    }

    /// All sessions, in the order of their slots. One that is learned meanwhile may be missed, and one
    /// that ends may be there; none is there twice.
    pub fn records(&self) -> impl Iterator<Item = Record> {
        (0..self.slots()).filter_map(|index| self.read(index))
    }

    /// Sessions that have not ended, by looking at every slot.
    pub fn count(&self) -> u64 {
        let looks = (0..self.slots()).filter_map(|index| self.slot(index).look());
        looks.filter(|(_, stamp)| !stamp.is_ended()).count() as u64
    }

    /// Ends the sessions that `accepts` says: the kernel has their next packets. How many there were.
    pub fn end(&self, mut accepts: impl FnMut(&Record) -> bool) -> u64 {
        let end = |index: &usize| {
            let slot = self.slot(*index);
            // The stamp before the rest: what is ended is what was looked at, or nothing.
            let Some((_, stamp)) = slot.look().filter(|(_, stamp)| !stamp.is_ended()) else {
                return false;
            };
            slot.read().is_some_and(|record| accepts(&record)) && slot.end(stamp).is_some()
        };
        (0..self.slots()).filter(end).count() as u64
    }

    /// Writes `record`, whose key has this hash ([`crate::table::hash::session`]), into a free slot as the learner
    /// would, for tests and measurements, and returns the slot; `None` when both its buckets are full. It is
    /// valid while its generation is in force.
    pub fn insert(&self, hash: u64, record: &Record) -> Option<usize> {
        let mask = self.sessions.entries() - 1;
        let mut buckets = [(hash >> 32) as usize & mask, (hash as u32 as usize / WAYS) & mask];
        let load = |bucket: usize| {
            let taken = |way: &usize| self.slot(bucket * WAYS + way).look().is_some();
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

/// Which session is in a slot, in which version: what [`Slot::end`] and [`Slot::free`] go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) version: u32,
    /// VLAN tags and generation, as they lie there.
    tags: u64,
}

impl Stamp {
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
        self.table.sessions.cell(self.bucket(), self.way() * SESSION + offset)
    }

    #[inline]
    fn word(self, offset: usize) -> &'t AtomicU64 {
        self.table.sessions.cell(self.bucket(), self.way() * SESSION + offset)
    }

    #[inline]
    fn version(self) -> &'t AtomicU32 {
        self.half(at::VERSION)
    }

    fn addresses(self) -> &'t [AtomicU64] {
        let size = size_of::<Addresses>();
        self.table.addresses.cells(self.bucket(), self.way() * size, size / 8)
    }

    fn remote_counters(self) -> &'t [AtomicU64] {
        let size = size_of::<Counters>();
        self.table.remote_counters.cells(self.bucket(), self.way() * size, size / 8)
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
        session.owner = self.half(at::OWNER).load(Relaxed);
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

    /// The session of this slot as the ageing looks at it, three words of one cache line; `None` when the
    /// slot is free.
    #[inline]
    pub(crate) fn look(self) -> Option<(Protocol, Stamp)> {
        // Acquire: the stamp is of this version, or of a later one, and then `end` fails.
        let version = self.version().load(Acquire);
        let protocol = protocol_of(self.word(at::DST_MAC).load(Relaxed))?;
        Some((protocol, Stamp { version, tags: self.word(at::TAGS).load(Relaxed) }))
    }

    /// The reference bit, and when it was last found.
    #[inline]
    pub(crate) fn last_use(self) -> LastUse {
        LastUse::from_word(self.half(at::REFERENCED).load(Relaxed))
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

    /// Ends the session, if it is still the one of `stamp`: no packet that comes from now on is forwarded by
    /// it. Returns the stamp to free the slot by.
    ///
    /// Places change hands only through the ageing, so the same word here is the same session. One that was
    /// learned again meanwhile is the same one too; it is then learned once more.
    pub(crate) fn end(self, stamp: Stamp) -> Option<Stamp> {
        let ended = (stamp.generation().wrapping_add(1)) | GENERATION_ENDED;
        let tags = with_generation(stamp.tags, ended);
        let word = self.word(at::TAGS);
        word.compare_exchange(stamp.tags, tags, AcqRel, Relaxed).ok()?;
        Some(Stamp { tags, ..stamp })
    }

    /// Frees the slot, if nothing has happened to it since it was to_free with `stamp`, and returns what
    /// the session has counted in all. A grace period must have passed since then.
    pub(crate) fn free(self, stamp: Stamp) -> Option<Counters> {
        let _guard = WriteGuard::try_lock(self.version(), stamp.version)?;
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

    /// Frees a slot whose writer died and left the odd number `version`. What was in it is forgotten.
    pub(crate) fn free_abandoned(self, version: u32) -> bool {
        let guard = WriteGuard::take_over(self.version(), version);
        if guard.is_some() {
            self.clear();
        }
        guard.is_some()
    }

    /// The number in the lock.
    pub(crate) fn version_now(self) -> u32 {
        self.version().load(Relaxed)
    }

    /// The lock is held.
    fn clear(self) {
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
        let Some(_guard) = WriteGuard::try_lock(self.version(), version) else { return false };
        if protocol_of(self.word(at::DST_MAC).load(Relaxed)).is_some() {
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
        self.half(at::OWNER).store(session.owner, Relaxed);
        let [a, b, c] = session.unused;
        let referenced = u32::from_ne_bytes([session.referenced, a, b, c]);
        self.half(at::REFERENCED).store(referenced, Relaxed);
        fill(self.addresses(), &record.addresses);
        fill(self.remote_counters(), &record.remote);
        // The generation last: with it the session is valid.
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

    /// Publishes as the learner does, from what it saw before.
    pub(crate) fn republish_for_tests(self, before: Stamp, generation: u32) {
        let tags = with_generation(before.tags, generation);
        self.word(at::TAGS).compare_exchange(before.tags, tags, AcqRel, Relaxed).unwrap();
    }
}

/// What lies in `words`, each read once.
fn copied<T: FromBytes + IntoBytes>(words: &[AtomicU64]) -> T {
    let mut value = T::new_zeroed();
    for (bytes, word) in value.as_mut_bytes().chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
    }
    value
}

/// Puts `value` into `words`.
fn fill(words: &[AtomicU64], value: &(impl IntoBytes + Immutable)) {
    for (bytes, word) in value.as_bytes().chunks_exact(8).zip(words) {
        word.store(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")), Relaxed);
    }
}

#[cfg(test)]
pub(crate) mod tests;
