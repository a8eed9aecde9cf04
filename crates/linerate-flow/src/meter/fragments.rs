//! The ports of packets that came in fragments: only the first fragment has them.

use std::hash::{BuildHasher, RandomState};

/// An identity selects a set, in which each of some slots may have it. Each slot has a packet whose fragments are under
/// way.
const SETS: usize = 128;
const WAYS: usize = 8;

/// How long the fragments of a packet may take in nanoseconds: as long as Linux waits (`ipfrag_time`).
const LIFETIME: u64 = 30_000_000_000;

/// What the fragments of a packet have in common, as a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(u64);

#[derive(Clone, Copy, Default)]
struct Slot {
    identity: u64,
    ports: (u16, u16),
    is_used: bool,
    since: u64,
}

/// The ports of the latest packets in fragments. A newer packet overwrites the oldest one of its set.
pub(super) struct Fragments {
    sets: Box<[[Slot; WAYS]]>,
    /// With a secret key, as that of the table of flows.
    hasher: RandomState,
}

impl Fragments {
    pub(super) fn new() -> Self {
        let sets = vec![[Slot::default(); WAYS]; SETS].into_boxed_slice();
        Self { sets, hasher: RandomState::new() }
    }

    #[cold]
    pub(super) fn identity(
        &self,
        addresses: [u128; 2],
        identification: u32,
        rest: u32,
        vlans: [u16; 2],
    ) -> Identity {
        Identity(self.hasher.hash_one((addresses, identification, rest, vlans)))
    }

    #[cold]
    pub(super) fn remember(&mut self, identity: Identity, ports: (u16, u16), now: u64) {
        let set = &mut self.sets[identity.0 as usize % SETS];
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
        let set = &self.sets[identity.0 as usize % SETS];
        let slot = set.iter().find(|slot| slot.is_used && slot.identity == identity.0)?;
        (now.abs_diff(slot.since) < LIFETIME).then_some(slot.ports)
    }
}
