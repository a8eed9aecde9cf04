//! [`Initiators`]: who began the flows that have left the table.

/// The hash of a key.
pub(super) type Hash = u32;

/// How long an initiator is remembered after the last packet, in seconds.
const LIFETIME: u32 = 3600;

/// A hash selects a set, in which each of some slots may have its flow.
const WAYS: usize = 8;
const MIN_SETS: usize = 1 << 10;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// One flow for each of the table, at least 8,192. A newer one overwrites the oldest of its set.
///
/// A slot has, from the highest bits: the hash of the key (32), the second of the last packet modulo 2^31 (31), and
/// whether `a` of the key is the initiator. It is 0 without a flow.
pub(super) struct Initiators(Box<[[u64; WAYS]]>);

impl Initiators {
    pub(super) fn new(capacity: usize) -> Self {
        let sets = capacity.div_ceil(WAYS).max(MIN_SETS);
        Self(vec![[0; WAYS]; sets].into_boxed_slice())
    }

    fn set(&self, hash: Hash) -> usize {
        ((u64::from(hash) * self.0.len() as u64) >> 32) as usize
    }

    /// Remembers the initiator of a flow whose last packet came at this time.
    pub(super) fn remember(&mut self, hash: Hash, initiator_is_a: bool, last: u64) {
        let set = self.set(hash);
        let order = |slot: &&mut u64| ((**slot >> 32) as Hash != hash, **slot as u32);
        let slot = self.0[set].iter_mut().min_by_key(order).expect("a set has slots");
        let time = ((last / NANOS_PER_SECOND) as u32) << 1 | u32::from(initiator_is_a);
        *slot = u64::from(hash) << 32 | u64::from(time);
    }

    /// Whether `a` began the flow with this hash; `None` if it is not remembered.
    pub(super) fn initiator_is_a(&self, hash: Hash, now: u64) -> Option<bool> {
        let mut slots = self.0[self.set(hash)].iter();
        let slot = *slots.find(|slot| **slot != 0 && (**slot >> 32) as Hash == hash)?;
        let passed = ((now / NANOS_PER_SECOND) as u32) << 1;
        let passed = passed.wrapping_sub(slot as u32 & !1) >> 1;
        (passed < LIFETIME).then_some(slot & 1 == 1)
    }
}
