//! [`Writer`]: puts sessions into the table, as the learner does, and reads what the maps store of one.

use std::mem::offset_of;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use libbpf_rs::{MapCore, MapFlags};
use linerate_bpf::map::MappedArray;
use linerate_bpf::seqlock::WriteGuard;
use linerate_forward::maps::Maps;
use linerate_forward::table::layout::{
    Addresses, Cold, Control, Counters, HOP_WORDS, Hop, NatAddress, Session, WAYS, hop_state, kind,
};
use zerocopy::{FromBytes, IntoBytes};

/// A session to put in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NewSession {
    pub(crate) session: Session,
    pub(crate) hop: Hop,
    pub(crate) cold: Cold,
    /// IPv6: as packets come in, and as they leave.
    pub(crate) addresses: [Addresses; 2],
}

/// The maps of a table.
#[derive(Debug)]
pub(crate) struct Writer {
    sessions: MappedArray,
    addresses: MappedArray,
    cold: MappedArray,
    hops: MappedArray,
    control: MappedArray,
}

impl Writer {
    pub(crate) fn open(maps: &Maps) -> Self {
        let map = |name| {
            MappedArray::new(maps.get(name).expect("a map").as_fd()).expect("one to be mapped")
        };
        let (sessions, addresses, cold) = (map("table"), map("table6"), map("cold"));
        Self { sessions, addresses, cold, hops: map("hops"), control: map("control") }
    }

    /// Puts a session of this hash ([`tuple_hash`]) into a free slot, which it returns; `None` if there is none in both
    /// buckets. It is valid while its generation is current.
    pub(crate) fn insert(&self, hash: u64, new: &NewSession) -> Option<usize> {
        let count = self.sessions.max_entries();
        let mut buckets = [(hash >> 32) as u32, hash as u32]
            .map(|half| ((u64::from(half) * count as u64) >> 32) as usize);
        let [first, second] = buckets
            .map(|bucket| (0..WAYS).filter(|way| self.is_taken(bucket * WAYS + way)).count());
        if first >= WAYS - 3 && second < first {
            buckets.reverse();
        }
        let mut slots = buckets.into_iter().flat_map(|bucket| {
            (0..WAYS).map(move |way| bucket * WAYS + (hash as usize + way) % WAYS)
        });
        slots.find(|slot| self.write(*slot, new))
    }

    fn word(&self, slot: usize, offset: usize) -> &AtomicU32 {
        self.sessions.atomic(slot / WAYS, slot % WAYS * size_of::<Session>() + offset)
    }

    fn is_taken(&self, slot: usize) -> bool {
        let [kind, ..] = self.word(slot, offset_of!(Session, kind)).load(Relaxed).to_ne_bytes();
        kind != 0
    }

    fn write(&self, slot: usize, new: &NewSession) -> bool {
        let version = self.word(slot, offset_of!(Session, version));
        let Some(_guard) = WriteGuard::try_lock_at_version(version, version.load(Acquire)) else {
            return false;
        };
        if self.is_taken(slot) {
            return false;
        }
        let Some(hop) = self.insert_hop(&new.hop) else { return false };
        let mut session = Session { hop, ..new.session };
        let [came, left] = &new.addresses;
        if session.kind & kind::FAMILY == kind::IPV6 {
            let nat = |before, after: &[u8; 16]| match before == after {
                true => Some(0),
                false => self.insert_nat_address(after),
            };
            let (source, destination) =
                (nat(&came.source, &left.source), nat(&came.destination, &left.destination));
            let (Some(source), Some(destination)) = (source, destination) else { return false };
            session.source = source.to_ne_bytes();
            session.destination = destination.to_ne_bytes();
            fill(self.part(&self.addresses, slot, size_of::<Addresses>()), came.as_bytes());
        }
        let taken: &AtomicU32 = self.control.atomic(0, offset_of!(Control, taken));
        let room: &AtomicU32 = self.control.atomic(0, offset_of!(Control, room));
        let more = |taken: u32| (taken < room.load(Relaxed)).then_some(taken + 1);
        if taken.fetch_update(Relaxed, Relaxed, more).is_err() {
            return false;
        }
        // Each field in the size in which user space accesses it.
        let bytes = session.as_bytes();
        for offset in [
            offset_of!(Session, in_source),
            offset_of!(Session, packets),
            offset_of!(Session, bytes),
            offset_of!(Session, source),
            offset_of!(Session, source_port),
        ] {
            let at = slot % WAYS * size_of::<Session>() + offset;
            fill(self.sessions.atomics(slot / WAYS, at, 1), &bytes[offset..offset + 8]);
        }
        for offset in [
            offset_of!(Session, ports),
            offset_of!(Session, kind),
            offset_of!(Session, deadline),
            offset_of!(Session, owner),
        ] {
            let value = bytes[offset..offset + 4].try_into().expect("four bytes");
            self.word(slot, offset).store(u32::from_ne_bytes(value), Relaxed);
        }
        let counters = slot % WAYS * size_of::<Cold>();
        let counters = self.cold.atomics(slot / WAYS, counters, size_of::<Counters>() / 8);
        fill(counters, new.cold.remote.as_bytes());
        for (offset, value) in
            [(offset_of!(Cold, created), new.cold.created), (offset_of!(Cold, used), new.cold.used)]
        {
            let at = slot % WAYS * size_of::<Cold>() + offset;
            self.cold.atomic::<AtomicU32>(slot / WAYS, at).store(value, Relaxed);
        }
        // The generation last: it makes the session valid.
        self.word(slot, offset_of!(Session, generation)).store(session.generation, Release);
        true
    }

    fn part<'a>(&self, map: &'a MappedArray, slot: usize, size: usize) -> &'a [AtomicU64] {
        map.atomics(slot / WAYS, slot % WAYS * size, size / 8)
    }

    fn hops(&self) -> usize {
        self.hops.value_size() / size_of::<Hop>()
    }

    fn hop(&self, index: usize) -> &[AtomicU64] {
        self.hops.atomics(0, index * size_of::<Hop>(), HOP_WORDS)
    }

    fn state(&self, index: usize) -> &AtomicU32 {
        self.hops.atomic(0, index * size_of::<Hop>() + offset_of!(Hop, state))
    }

    /// The index of a hop that equals `hop`, apart from its state; fills in a free one if there is none. `None` if all
    /// are in use.
    pub(crate) fn insert_hop(&self, hop: &Hop) -> Option<u16> {
        let words = &hop.as_bytes()[..8 * HOP_WORDS];
        let exchange = |index: usize, from: u32, to: u32| {
            self.state(index).compare_exchange(from, to, AcqRel, Relaxed).is_ok()
        };
        let is_same = |index: &usize| {
            let found = self.hop(*index).iter().map(|word| word.load(Relaxed).to_ne_bytes());
            self.state(*index).load(Acquire) & hop_state::MASK >= hop_state::USED
                && found.flatten().eq(words.iter().copied())
        };
        if let Some(index) = (0..self.hops()).find(is_same) {
            let state = self.state(index).load(Acquire);
            let used = state & !hop_state::MASK | hop_state::USED;
            if state == used || exchange(index, state, used) {
                return Some(index as u16);
            }
        }
        let claim = |index: &usize| {
            let state = self.state(*index).load(Acquire);
            let claimed = state.wrapping_add(hop_state::FILLED) | hop_state::CLAIMED;
            state & hop_state::MASK == hop_state::FREE && exchange(*index, state, claimed)
        };
        let index = (0..self.hops()).find(claim)?;
        fill(self.hop(index), words);
        self.state(index).fetch_add(hop_state::USED - hop_state::CLAIMED, Release);
        Some(index as u16)
    }

    /// The index, plus one, of the entry of `hops` that holds this address.
    fn insert_nat_address(&self, address: &[u8; 16]) -> Option<u32> {
        let entry = NatAddress { address: *address, ..NatAddress::default() };
        Some(u32::from(self.insert_hop(&zerocopy::transmute!(entry))?) + 1)
    }
}

fn fill(words: &[AtomicU64], bytes: &[u8]) {
    for (word, bytes) in words.iter().zip(bytes.chunks_exact(8)) {
        word.store(u64::from_ne_bytes(bytes.try_into().expect("eight bytes")), Relaxed);
    }
}

/// What the maps store of a session: its cache line and its hop.
pub(crate) fn stored(
    maps: &Maps,
    of: &linerate_forward::table::session::Session,
) -> (Session, Hop) {
    let read = |name, key: usize, offset: usize, size| {
        let value =
            maps.get(name).expect("a map").lookup(&(key as u32).to_ne_bytes(), MapFlags::ANY);
        let value = value.expect("looked up").expect("an array has all");
        value[offset..offset + size].to_vec()
    };
    let size = size_of::<Session>();
    let session = read("table", of.slot / WAYS, of.slot % WAYS * size, size);
    let session = Session::read_from_bytes(&session[..]).expect("a cache line");
    let hop = read("hops", 0, usize::from(session.hop) * size_of::<Hop>(), size_of::<Hop>());
    (session, Hop::read_from_bytes(&hop[..]).expect("a hop"))
}

/// `tuple_hash` of `bpf/session_access.h`: of addresses, ports and protocol.
pub(crate) fn tuple_hash(seeds: &[u64; 9], session: &Session) -> u64 {
    let word = |at: usize| word(session.as_bytes(), at);
    let kind = u64::from(session.kind & (kind::FAMILY | kind::TCP));
    let ports = word(1) & 0xffff_ffff | kind << 32;
    let sum = word(0).wrapping_mul(seeds[0]).wrapping_add(ports.wrapping_mul(seeds[1]));
    let mixed = (sum ^ sum >> 32).wrapping_mul(seeds[3]);
    mixed ^ mixed >> 32
}

/// `session_signature_of` of `bpf/session_access.h`.
pub(crate) fn signature(seeds: &[u64; 9], addresses: &Addresses) -> [u8; 8] {
    let sum = (0..4).fold(0_u64, |sum, at| {
        sum.wrapping_add(word(addresses.as_bytes(), at).wrapping_mul(seeds[4 + at]))
    });
    let mixed = (sum ^ sum >> 32).wrapping_mul(seeds[8]);
    (mixed ^ mixed >> 29).to_ne_bytes()
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes"))
}
