//! The ports of packets that came in fragments: only the first fragment has them.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;

/// Packets whose fragments are under way at one time.
const CAPACITY: usize = SETS * WAYS;

/// An identity selects a set, in which each of some slots may have it.
const SETS: usize = 128;
const WAYS: usize = 8;

/// How long the fragments of a packet may take in nanoseconds: as long as Linux waits (`ipfrag_time`).
const LIFETIME: u64 = 30_000_000_000;

/// What the fragments of a packet have in common, as a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(u64);

impl Identity {
    pub(super) fn of(
        addresses: [u128; 2],
        identification: u32,
        rest: u32,
        vlans: [u16; 2],
    ) -> Self {
        let mut hasher = FixedState::with_seed(0).build_hasher();
        addresses.iter().for_each(|address| hasher.write_u128(*address));
        hasher.write_u64(u64::from(identification) << 32 | u64::from(rest));
        hasher.write_u32(u32::from(vlans[0]) << 16 | u32::from(vlans[1]));
        Self(hasher.finish())
    }
}

#[derive(Clone, Copy, Default)]
struct Slot {
    identity: u64,
    ports: (u16, u16),
    is_used: bool,
    since: u64,
}

/// The ports of the latest packets in fragments. A newer packet overwrites the oldest one of its set.
pub(super) struct Fragments(Box<[[Slot; WAYS]]>);

impl Fragments {
    /// Bytes that it takes.
    pub(super) const LEN: usize = CAPACITY * size_of::<Slot>();

    pub(super) fn new() -> Self {
        Self(vec![[Slot::default(); WAYS]; SETS].into_boxed_slice())
    }

    #[cold]
    pub(super) fn remember(&mut self, identity: Identity, ports: (u16, u16), now: u64) {
        let set = &mut self.0[identity.0 as usize % SETS];
        // The same packet first, then slots without a packet, then the oldest packet.
        let order = |slot: &&mut Slot| {
            let is_other = !slot.is_used || slot.identity != identity.0;
            (is_other, slot.is_used, slot.since)
        };
        let slot = set.iter_mut().min_by_key(order).expect("a set has slots");
        *slot = Slot { identity: identity.0, ports, is_used: true, since: now };
    }

    #[cold]
    pub(super) fn ports(&self, identity: Identity, now: u64) -> Option<(u16, u16)> {
        let set = &self.0[identity.0 as usize % SETS];
        let slot = set.iter().find(|slot| slot.is_used && slot.identity == identity.0)?;
        (now.abs_diff(slot.since) < LIFETIME).then_some(slot.ports)
    }
}
