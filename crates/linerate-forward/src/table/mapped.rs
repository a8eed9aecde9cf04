//! [`Table`]: the session table, mapped into user space. Listing, ending or freeing a session needs no system
//! call.
//!
//! `bpf/layout.h` describes the protocol; this file is the user-space side. A slot is read under its sequence
//! lock. A session is ended by one compare-and-swap of its generation, which succeeds
//! only while the session is the one that was read. Only the ager frees a slot, under the lock, and only if
//! its version has not changed since the session was ended, at least one grace period ago. User space
//! accesses each field of a session in one size, and never writes a counter that a program may be adding to.

use std::collections::HashSet;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use linerate_bpf::map::MappedArray;
use linerate_bpf::seqlock::{self, WriteGuard};
use zerocopy::{FromBytes, IntoBytes};

use crate::datapath::Datapath;
use crate::maps::Maps;
use crate::table::clock::Clock;
use crate::table::hops::Hops;
use crate::table::layout::{
    self, Addresses, Cold, Counters, GENERATION_CLOSED, GENERATION_ENDED, REFERENCED, WAYS, kind,
};
use crate::table::session::{Decoder, LastUse, Session, Stored};
use crate::tuple::Protocol;
use crate::{Error, Result};

/// Retries for a slot that is being written: a learner finishes within a microsecond, but may have to wait
/// for its core.
const TRIES: u32 = 100;
/// Bytes of a session.
const SESSION: usize = size_of::<layout::Session>();

/// Offsets of the fields that user space accesses, each in one size.
mod at {
    use std::mem::offset_of;

    use crate::table::layout::{Cold, Session};

    pub(super) const ADDRESSES: usize = offset_of!(Session, in_source);
    pub(super) const PORTS: usize = offset_of!(Session, ports);
    /// With DSCP and hop.
    pub(super) const KIND: usize = offset_of!(Session, kind);
    pub(super) const GENERATION: usize = offset_of!(Session, generation);
    pub(super) const VERSION: usize = offset_of!(Session, version);
    pub(super) const DEADLINE: usize = offset_of!(Session, deadline);
    /// With the reference bit and the route generation.
    pub(super) const OWNER: usize = offset_of!(Session, owner);
    pub(super) const PACKETS: usize = offset_of!(Session, packets);
    pub(super) const BYTES: usize = offset_of!(Session, bytes);
    /// Both addresses, and then ports and deltas.
    pub(super) const SOURCE: usize = offset_of!(Session, source);
    pub(super) const SOURCE_PORT: usize = offset_of!(Session, source_port);
    pub(super) const CREATED: usize = offset_of!(Cold, created);
    pub(super) const USED: usize = offset_of!(Cold, used);
}

/// The mapped arrays of sessions, of what belongs to each, and of what they share.
#[derive(Debug)]
pub struct Table {
    sessions: MappedArray,
    addresses: MappedArray,
    cold: MappedArray,
    hops: Hops,
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
            cold: map("cold")?,
            hops: Hops::open(maps)?,
            control: map("control")?,
        };
        let fits = |map: &MappedArray, size| {
            map.max_entries() == table.sessions.max_entries() && map.value_size() == WAYS * size
        };
        if !fits(&table.sessions, SESSION)
            || !fits(&table.addresses, size_of::<Addresses>())
            || !fits(&table.cold, size_of::<Cold>())
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

    /// Capacity in sessions: so many of the slots at most are taken.
    pub fn capacity(&self) -> usize {
        let room: &AtomicU32 = self.control.atomic(0, offset_of!(layout::Control, room));
        room.load(Relaxed) as usize
    }

    /// What sessions share.
    pub(crate) fn hops(&self) -> &Hops {
        &self.hops
    }

    /// Slots that are not free.
    fn taken(&self) -> &AtomicU32 {
        self.control.atomic(0, offset_of!(layout::Control, taken))
    }

    /// Decodes sessions of this table. Those of the generation of now are valid.
    pub fn decoder(&self, clock: Clock) -> Decoder {
        let generation: &AtomicU32 =
            self.control.atomic(0, offset_of!(layout::Control, generation));
        Decoder::new(clock, generation.load(Relaxed))
    }

    /// The session in slot `index`, ended or not; `None` if the slot is free, or if it stayed locked for too
    /// long to read.
    ///
    /// # Panics
    /// When there is no such slot.
    pub fn session(&self, index: usize, decoder: &mut Decoder) -> Option<Session> {
        self.slot(index).session(decoder)
    }

    /// All sessions, in the order of their slots. Sessions learned or ended during the scan may or may not
    /// appear. None appears twice.
    pub fn sessions(&self, decoder: &mut Decoder) -> impl Iterator<Item = Session> {
        (0..self.slots()).filter_map(|index| self.session(index, decoder))
    }

    /// Output interfaces and MAC addresses that sessions have sent to within this time, as far as the ager knows; scans
    /// every slot.
    pub(crate) fn next_hops(&self, clock: &Clock, within: Duration) -> HashSet<(u32, [u8; 6])> {
        let now = clock.sixteenths();
        let is_used = |slot: &Slot<'_>| {
            slot.peek().is_some_and(|(_, stamp)| !stamp.is_ended())
                && slot.last_use().idle(now) <= within
        };
        let slots = (0..self.slots()).map(|index| self.slot(index)).filter(is_used);
        slots.map(Slot::next_hop).collect()
    }

    /// The number of sessions that have not ended; scans every slot.
    pub fn count(&self) -> u64 {
        let looks = (0..self.slots()).filter_map(|index| self.slot(index).peek());
        looks.filter(|(_, stamp)| !stamp.is_ended()).count() as u64
    }

    /// Ends the sessions in the slots that `accepts` selects; their next packets go to the kernel. Returns how many
    /// ended.
    pub fn end(&self, mut accepts: impl FnMut(usize) -> bool) -> u64 {
        let end = |index: &usize| {
            let slot = self.slot(*index);
            // The stamp before the rest, so that only the session that was read can be ended.
            let Some((_, stamp)) = slot.peek().filter(|(_, stamp)| !stamp.is_ended()) else {
                return false;
            };
            accepts(*index) && slot.end(stamp).is_some()
        };
        (0..self.slots()).filter(end).count() as u64
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
    /// The generation of the session, or that it has ended.
    pub(crate) generation: u32,
}

impl SlotVersion {
    #[inline]
    pub(crate) fn is_ended(self) -> bool {
        self.generation & GENERATION_ENDED != 0
    }
}

/// The protocol of the session with this word at `kind`; `None` for a free slot.
#[inline]
fn protocol_of(word: u32) -> Option<Protocol> {
    let [kind, ..] = word.to_ne_bytes();
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
    fn atomic_u32(self, offset: usize) -> &'t AtomicU32 {
        self.table.sessions.atomic(self.bucket(), self.way() * SESSION + offset)
    }

    #[inline]
    fn atomic_u64(self, offset: usize) -> &'t AtomicU64 {
        self.table.sessions.atomic(self.bucket(), self.way() * SESSION + offset)
    }

    #[inline]
    fn version(self) -> &'t AtomicU32 {
        self.atomic_u32(at::VERSION)
    }

    fn addresses(self) -> &'t [AtomicU64] {
        let size = size_of::<Addresses>();
        self.table.addresses.atomics(self.bucket(), self.way() * size, size / 8)
    }

    fn cold_offset(self) -> usize {
        self.way() * size_of::<Cold>()
    }

    fn cold_u32(self, offset: usize) -> &'t AtomicU32 {
        self.table.cold.atomic(self.bucket(), self.cold_offset() + offset)
    }

    fn remote_counters(self) -> &'t [AtomicU64] {
        self.table.cold.atomics(self.bucket(), self.cold_offset(), size_of::<Counters>() / 8)
    }

    pub(crate) fn session(self, decoder: &mut Decoder) -> Option<Session> {
        Some(decoder.decode(self.index, &self.stored()?))
    }

    /// What the maps store of its session; `None` if it is free, or stayed locked for too long.
    pub(crate) fn stored(self) -> Option<Stored> {
        let (_, stored) = seqlock::read(self.version(), TRIES, || self.copy())?;
        Some(stored)
    }

    fn copy(self) -> Option<Stored> {
        protocol_of(self.atomic_u32(at::KIND).load(Relaxed))?;
        let load_u32 = |offset| self.atomic_u32(offset).load(Relaxed).to_ne_bytes();
        let load_u64 = |offset| self.atomic_u64(offset).load(Relaxed).to_ne_bytes();
        let words: [[u8; 8]; 8] = [
            load_u64(at::ADDRESSES),
            zerocopy::transmute!([load_u32(at::PORTS), load_u32(at::KIND)]),
            zerocopy::transmute!([load_u32(at::GENERATION), load_u32(at::VERSION)]),
            zerocopy::transmute!([load_u32(at::DEADLINE), load_u32(at::OWNER)]),
            load_u64(at::PACKETS),
            load_u64(at::BYTES),
            load_u64(at::SOURCE),
            load_u64(at::SOURCE_PORT),
        ];
        let session: layout::Session = zerocopy::transmute!(words);
        let cold = Cold {
            remote: self.remote(),
            created: self.created_word(),
            used: self.cold_u32(at::USED).load(Relaxed),
        };
        let hops = &self.table.hops;
        let mut addresses = [Addresses::default(); 2];
        if session.kind & kind::FAMILY == kind::IPV6 {
            let came: Addresses = copied(self.addresses());
            let out =
                |index, address| hops.nat_address(u32::from_ne_bytes(index)).unwrap_or(address);
            let left = Addresses {
                source: out(session.source, came.source),
                destination: out(session.destination, came.destination),
            };
            addresses = [came, left];
        }
        Some(Stored { session, hop: hops.read(session.hop), cold, addresses })
    }

    fn remote(self) -> Counters {
        copied(self.remote_counters())
    }

    /// The part of the session that the ager reads, of one cache line; `None` if the slot is free.
    #[inline]
    pub(crate) fn peek(self) -> Option<(Protocol, SlotVersion)> {
        // Acquire: the stamp is of this version, or of a later one, and then `end` fails.
        let version = self.version().load(Acquire);
        let protocol = protocol_of(self.atomic_u32(at::KIND).load(Relaxed))?;
        let generation = self.atomic_u32(at::GENERATION).load(Relaxed);
        Some((protocol, SlotVersion { version, generation }))
    }

    /// The index of its hop.
    #[inline]
    pub(crate) fn hop(self) -> u16 {
        (self.atomic_u32(at::KIND).load(Relaxed) >> 16) as u16
    }

    /// The indices plus one of the addresses after NAT, if it is an IPv6 session; 0 for none.
    #[inline]
    pub(crate) fn nat_addresses(self) -> [u32; 2] {
        let [kind, ..] = self.atomic_u32(at::KIND).load(Relaxed).to_ne_bytes();
        if kind & kind::FAMILY != kind::IPV6 {
            return [0; 2];
        }
        zerocopy::transmute!(self.atomic_u64(at::SOURCE).load(Relaxed))
    }

    /// Whether the reference bit is set.
    #[inline]
    pub(crate) fn is_referenced(self) -> bool {
        self.atomic_u32(at::OWNER).load(Relaxed) & u32::from(REFERENCED) != 0
    }

    /// The reference bit, and when it was last found set.
    #[inline]
    pub(crate) fn last_use(self) -> LastUse {
        LastUse::new(self.is_referenced(), self.cold_u32(at::USED).load(Relaxed))
    }

    /// The interface that packets leave by, and the MAC address that they are sent to.
    fn next_hop(self) -> (u32, [u8; 6]) {
        let hop = self.table.hops.read(self.hop());
        (hop.out_ifindex, hop.destination_mac)
    }

    /// Whether conntrack tracks its connection.
    #[inline]
    pub(crate) fn is_tracked(self) -> bool {
        self.table.hops.flags(self.hop()) & layout::flags::TRACKED != 0
    }

    /// What forwards the session.
    #[inline]
    pub(crate) fn datapath(self) -> Datapath {
        let flags = self.table.hops.flags(self.hop());
        if flags & layout::flags::TC != 0 { Datapath::Tc } else { Datapath::Xdp }
    }

    /// Its counters, summed over all CPUs.
    #[inline]
    pub(crate) fn counters(self) -> Counters {
        let remote = self.remote();
        Counters {
            packets: self.atomic_u64(at::PACKETS).load(Relaxed).wrapping_add(remote.packets),
            bytes: self.atomic_u64(at::BYTES).load(Relaxed).wrapping_add(remote.bytes),
        }
    }

    /// When the session began, low half of jiffies, and the number of the session among those of its slot.
    #[inline]
    pub(crate) fn created_word(self) -> u32 {
        self.cold_u32(at::CREATED).load(Relaxed)
    }

    /// When the session began, low half of jiffies.
    #[inline]
    pub(crate) fn created(self) -> u32 {
        layout::created(self.created_word())
    }

    /// Whether another connection waits for the slot, whose session has ended.
    #[inline]
    pub(crate) fn is_wanted(self) -> bool {
        self.created_word() & layout::CREATED_WANTED != 0
    }

    /// Clears the reference bit, and notes the time. A program that sets the bit at this moment may have found it set,
    /// and changes nothing.
    #[inline]
    pub(crate) fn clear_referenced(self, now: u64) {
        let at = LastUse::new(false, now as u32).at();
        // A learner adds to the upper bits.
        let noted = |used: u32| Some(used & !0xff_ffff | at);
        let _ = self.cold_u32(at::USED).fetch_update(Relaxed, Relaxed, noted);
        self.atomic_u32(at::OWNER).fetch_and(!u32::from(REFERENCED), Relaxed);
    }

    /// Ends the session, if it is still the one of `stamp`: it forwards no packet that arrives from now on.
    /// Returns the stamp for freeing the slot.
    ///
    /// Only the ager reuses slots, so an equal generation word means the same session. One that was learned
    /// again in the meantime is also the same; it is then learned once more.
    pub(crate) fn end(self, stamp: SlotVersion) -> Option<SlotVersion> {
        let ended = stamp.generation.wrapping_add(1) & !GENERATION_CLOSED | GENERATION_ENDED;
        let generation = self.atomic_u32(at::GENERATION);
        generation.compare_exchange(stamp.generation, ended, AcqRel, Relaxed).ok()?;
        Some(SlotVersion { generation: ended, ..stamp })
    }

    /// Frees the slot, if it has not changed since `end` returned `stamp`, and returns the session's total
    /// counts. A grace period must have passed since then.
    pub(crate) fn free(self, stamp: SlotVersion) -> Option<Counters> {
        let _guard = WriteGuard::try_lock_at_version(self.version(), stamp.version)?;
        if self.atomic_u32(at::GENERATION).load(Relaxed) != stamp.generation {
            return None;
        }
        let total = self.counters();
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
        if protocol_of(self.atomic_u32(at::KIND).load(Relaxed)).is_some() {
            self.table.taken().fetch_sub(1, Relaxed);
        }
        for offset in [at::ADDRESSES, at::PACKETS, at::BYTES] {
            self.atomic_u64(offset).store(0, Relaxed);
        }
        for offset in [at::PORTS, at::KIND, at::OWNER] {
            self.atomic_u32(offset).store(0, Relaxed);
        }
        self.atomic_u32(at::GENERATION).store(GENERATION_ENDED, Relaxed);
        self.remote_counters().iter().for_each(|word| word.store(0, Relaxed));
        self.cold_u32(at::USED).store(0, Relaxed);
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

#[cfg(test)]
pub(crate) mod tests;
