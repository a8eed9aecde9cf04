//! [`Checkpoints`]: the checkpoints of all sessions, in a pinned array that outlives the daemon.
//!
//! The checkpoints of a batch are staged. Then one store of the batch number commits all of them. So a process that is
//! killed at any moment leaves either all checkpoints of a batch or none.

use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use linerate_bpf::map::{MappedArray, create_mappable_array};

use crate::runtime::pins::{Lock, Pins};
use crate::table::ageing::FreeListener;
use crate::table::flows::Checkpoint;
use crate::{Error, Result};

/// The name of the map and its pin.
const NAME: &str = "flow_checkpoint";
/// A committed checkpoint, a staged checkpoint, and the batch number of the staged one.
const ENTRY_WORDS: usize = 2 * CHECKPOINT_WORDS + 1;
const CHECKPOINT_WORDS: usize = 4;
const STAGED_WORD: usize = CHECKPOINT_WORDS;
const BATCH_WORD: usize = 2 * CHECKPOINT_WORDS;
/// No batch has this number.
const NO_BATCH: u64 = u64::MAX;

/// The checkpoints of all slots, and one more entry with the number of the last committed batch.
#[derive(Debug)]
pub(super) struct Checkpoints(MappedArray);

impl Checkpoints {
    /// Creates checkpoints for a table with this many slots.
    pub(super) fn create(pins: &Pins, lock: &Lock, slots: usize) -> Result<Self> {
        let map = create_mappable_array(NAME, 8 * ENTRY_WORDS as u32, slots as u32 + 1)
            .map_err(|error| Error::bpf("create the map of flow record checkpoints", &error))?;
        pins.pin_object(lock, NAME, map.as_fd())?;
        Ok(Self(MappedArray::new(map.as_fd())?))
    }

    /// Adopts the checkpoints of a previous daemon, if there are some that fit a table with this many slots.
    pub(super) fn adopt(pins: &Pins, slots: usize) -> Result<Option<Self>> {
        let Some(pinned) = pins.open_object(NAME)? else { return Ok(None) };
        let fits = |array: &MappedArray| {
            (array.max_entries(), array.value_size()) == (slots + 1, 8 * ENTRY_WORDS)
        };
        let checkpoints = MappedArray::new(pinned.as_fd()).ok().filter(fits).map(Self);
        checkpoints.iter().for_each(Self::discard_staged);
        Ok(checkpoints)
    }

    /// Discards what was staged for a batch that was not committed: the next batch has the same number.
    fn discard_staged(&self) {
        for words in (0..self.slots()).map(|slot| self.words(slot)) {
            if !self.is_committed(words) {
                words[BATCH_WORD].store(NO_BATCH, SeqCst);
            }
        }
    }

    /// Forgets all sessions, but not the number of the last batch.
    pub(super) fn clear(&self) {
        (0..self.slots()).for_each(|slot| self.freed(slot));
    }

    fn slots(&self) -> usize {
        self.0.max_entries() - 1
    }

    /// The kernel memory that they take.
    pub(super) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn words(&self, slot: usize) -> &[AtomicU64] {
        self.0.atomics(slot, 0, ENTRY_WORDS)
    }

    /// The number of the last committed batch.
    pub(super) fn committed(&self) -> u64 {
        self.words(self.slots())[0].load(SeqCst)
    }

    /// Commits the staged checkpoints of this batch, whose number is one more than that of the last batch.
    pub(super) fn commit(&self, batch: u64) {
        self.words(self.slots())[0].store(batch, SeqCst);
    }

    fn is_committed(&self, words: &[AtomicU64]) -> bool {
        let batch = words[BATCH_WORD].load(SeqCst);
        batch != NO_BATCH && batch <= self.committed()
    }

    /// Stages a checkpoint for this batch.
    pub(super) fn stage(&self, slot: usize, checkpoint: &Checkpoint, batch: u64) {
        let words = self.words(slot);
        if self.is_committed(words) {
            for at in 0..CHECKPOINT_WORDS {
                words[at].store(words[STAGED_WORD + at].load(SeqCst), SeqCst);
            }
        }
        words[BATCH_WORD].store(NO_BATCH, SeqCst);
        let Checkpoint { created, packets, bytes, since } = *checkpoint;
        let values = [created.into(), packets, bytes, since];
        words[STAGED_WORD..].iter().zip(values).for_each(|(word, value)| word.store(value, SeqCst));
        words[BATCH_WORD].store(batch, SeqCst);
    }

    /// The committed checkpoints of all slots.
    pub(super) fn load(&self) -> Vec<Checkpoint> {
        let load = |slot| {
            let words = self.words(slot);
            let at = if self.is_committed(words) { STAGED_WORD } else { 0 };
            let [created, packets, bytes, since] =
                [0, 1, 2, 3].map(|word| words[at + word].load(SeqCst));
            Checkpoint { created: created as u32, packets, bytes, since }
        };
        (0..self.slots()).map(load).collect()
    }
}

impl FreeListener for Checkpoints {
    fn freed(&self, slot: usize) {
        let words = self.words(slot);
        words[BATCH_WORD].store(NO_BATCH, SeqCst);
        words[..CHECKPOINT_WORDS].iter().for_each(|word| word.store(0, SeqCst));
    }
}

#[cfg(test)]
mod tests;
