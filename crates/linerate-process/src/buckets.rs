//! [`Buckets`]: counters that tell a cached answer that it may be wrong now.

use std::hash::BuildHasher;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use foldhash::quality::FixedState;
use linerate_bpf::process::End;

/// How many there are. Flows that share one only ask again more often.
const BUCKETS: usize = 1 << 14;

/// Each counts the changes of some flows or processes; an answer remembers their sum.
#[derive(Debug)]
pub(crate) struct Buckets(Box<[AtomicU32]>);

/// The buckets of an answer: of the flow, and of the processes at its ends.
pub(crate) type Used = [u16; 3];

/// That of everything.
const ALL: u16 = 0;

impl Default for Buckets {
    fn default() -> Self {
        Self((0..BUCKETS).map(|_| AtomicU32::new(0)).collect())
    }
}

impl Buckets {
    /// What an answer remembers.
    #[inline]
    pub(crate) fn stamp(&self, used: Used) -> u32 {
        let count = |bucket: u16| self.0[usize::from(bucket) % BUCKETS].load(Relaxed);
        used.into_iter().fold(count(ALL), |sum, bucket| sum.wrapping_add(count(bucket)))
    }

    /// Makes answers that use the bucket outdated.
    pub(crate) fn change(&self, bucket: u16) {
        self.0[usize::from(bucket) % BUCKETS].fetch_add(1, Relaxed);
    }

    /// The same for all answers.
    pub(crate) fn change_all(&self) {
        self.change(ALL);
    }
}

/// A number for both directions of a flow.
#[inline]
pub(crate) fn hash(one: End, other: End) -> u64 {
    let hash = |end: End| FixedState::with_seed(0).hash_one((end.address, end.port));
    hash(one).wrapping_add(hash(other))
}

/// The bucket for a number of this hash.
#[inline]
pub(crate) fn bucket(hash: u64) -> u16 {
    (hash >> 48) as u16 % (BUCKETS - 1) as u16 + 1
}

/// The bucket of a process.
pub(crate) fn of_process(id: u32) -> u16 {
    bucket(FixedState::with_seed(0).hash_one(id))
}
