//! [`Hops`]: what sessions share (links, next hops, IPv6 addresses after NAT), and which of it sessions still have.
//!
//! `bpf/layout.h` describes the protocol. Learners fill hops in; only the ager frees them. It frees a hop if no session
//! used it in a whole pass that began a grace period after the hop was marked unused.

use std::collections::HashMap;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

use linerate_bpf::map::MappedArray;
use zerocopy::IntoBytes;

use crate::maps::Maps;
use crate::table::layout::{HOP_WORDS, Hop, NatAddress, hop_state};
use crate::{Error, Result};

/// The mapped hops.
#[derive(Debug)]
pub(crate) struct Hops(MappedArray);

impl Hops {
    /// # Errors
    /// [`Error::Bpf`] if they cannot be mapped, [`Error::Invalid`] if they have the layout of another version.
    pub(crate) fn open(maps: &Maps) -> Result<Self> {
        let map = MappedArray::new(maps.get("hops")?.as_fd())?;
        if map.max_entries() != 1 || !(map.value_size() / size_of::<Hop>()).is_power_of_two() {
            return Err(Error::Invalid("the map of hops is of another version of Linerate".into()));
        }
        Ok(Self(map))
    }

    /// The number of entries, free ones included.
    pub(crate) fn len(&self) -> usize {
        self.0.value_size() / size_of::<Hop>()
    }

    fn state(&self, index: usize) -> &AtomicU32 {
        self.0.atomic(0, index * size_of::<Hop>() + offset_of!(Hop, state))
    }

    fn words(&self, index: usize) -> &[AtomicU64] {
        self.0.atomics(0, index * size_of::<Hop>(), HOP_WORDS)
    }

    /// The hop of this index, without its state. It is whole if a session has it before and after.
    pub(crate) fn read(&self, index: u16) -> Hop {
        let index = usize::from(index) % self.len();
        let mut hop = Hop::default();
        for (bytes, word) in hop.as_mut_bytes().chunks_exact_mut(8).zip(self.words(index)) {
            bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
        }
        hop
    }

    /// Only its flags.
    #[inline]
    pub(crate) fn flags(&self, index: u16) -> u8 {
        let index = usize::from(index) % self.len();
        // Four fields of one byte, of which this is the third.
        let fields =
            self.0.atomic::<AtomicU32>(0, index * size_of::<Hop>() + offset_of!(Hop, dscp));
        fields.load(Relaxed).to_ne_bytes()[2]
    }

    /// The IPv6 address in the entry of this index, plus one; `None` for 0.
    pub(crate) fn nat_address(&self, index: u32) -> Option<[u8; 16]> {
        let entry: NatAddress = zerocopy::transmute!(self.read(index.checked_sub(1)? as u16));
        Some(entry.address)
    }

    fn exchange(&self, index: usize, from: u32, to: u32) -> bool {
        self.state(index).compare_exchange(from, to, AcqRel, Relaxed).is_ok()
    }
}

/// What the ager knows of hops: which ones sessions had in this pass, and which were unused at the end of the last.
#[derive(Debug)]
pub(crate) struct HopUse {
    used: Vec<bool>,
    /// The states of those that were marked before the last grace period.
    unused: HashMap<usize, u32>,
}

impl HopUse {
    pub(crate) fn new(hops: &Hops) -> Self {
        Self { used: vec![false; hops.len()], unused: HashMap::new() }
    }

    /// A session has this hop.
    #[inline]
    pub(crate) fn note(&mut self, hop: u16) {
        let index = usize::from(hop) % self.used.len();
        self.used[index] = true;
    }

    /// A session has the addresses after NAT of these indices plus one; 0 is none.
    #[inline]
    pub(crate) fn note_nat_addresses(&mut self, indices: [u32; 2]) {
        for index in indices.into_iter().filter_map(|index| index.checked_sub(1)) {
            self.note(index as u16);
        }
    }

    /// After a pass over all slots: frees the hops that no session used in this pass and the one before, and marks the
    /// others that no session used. If this returns true, a grace period must pass before the next pass begins.
    pub(crate) fn end_pass(&mut self, hops: &Hops) -> bool {
        let before = std::mem::take(&mut self.unused);
        for (index, is_used) in self.used.iter_mut().enumerate() {
            let state = hops.state(index).load(Acquire);
            let as_state = |phase| state & !hop_state::MASK | phase;
            match (state & hop_state::MASK, std::mem::take(is_used)) {
                (hop_state::UNUSED, true) => {
                    hops.exchange(index, state, as_state(hop_state::USED));
                }
                (hop_state::UNUSED, false) if before.get(&index) == Some(&state) => {
                    hops.exchange(index, state, as_state(hop_state::FREE));
                }
                // One that a former ager marked: its grace period may not have passed.
                (hop_state::UNUSED, false) => {
                    self.unused.insert(index, state);
                }
                (hop_state::USED, false) => {
                    let unused = as_state(hop_state::UNUSED);
                    if hops.exchange(index, state, unused) {
                        self.unused.insert(index, unused);
                    }
                }
                _ => {}
            }
        }
        !self.unused.is_empty()
    }
}

#[cfg(test)]
mod tests;
