//! [`Marks`]: what the records of sessions have so far, in an array that outlives the daemon.
//!
//! The marks of a batch are staged, then one number commits all of them. A process that is killed at any moment leaves
//! either all marks of a batch or none.

use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use linerate_bpf::map::{MappedArray, create_mappable_array};

use crate::runtime::pins::{Lock, Pins};
use crate::table::flows::Mark;
use crate::{Error, Result};

/// The pin.
const NAME: &str = "flow_marks";
/// A settled mark, a staged mark, and the number of its batch.
const WORDS: usize = 2 * MARK_WORDS + 1;
const MARK_WORDS: usize = 4;
const STAGED: usize = MARK_WORDS;
const BATCH: usize = 2 * MARK_WORDS;
/// No batch has this number.
const NO_BATCH: u64 = u64::MAX;

/// The marks of all slots, and one more entry, which has the number of the last batch that was committed.
#[derive(Debug)]
pub(super) struct Marks(MappedArray);

impl Marks {
    /// Those of an instance whose table has so many slots: what the former daemon left, or new ones.
    pub(super) fn open(pins: &Pins, lock: &Lock, slots: usize) -> Result<Self> {
        if let Some(pinned) = pins.open_object(NAME)?
            && let Ok(array) = MappedArray::new(pinned.as_fd())
            && (array.max_entries(), array.value_size()) == (slots + 1, 8 * WORDS)
        {
            return Ok(Self(array));
        }
        let map = create_mappable_array(NAME, 8 * WORDS as u32, slots as u32 + 1)
            .map_err(|error| Error::bpf("make the marks of flow records", &error))?;
        pins.pin_object(lock, NAME, map.as_fd())?;
        Ok(Self(MappedArray::new(map.as_fd())?))
    }

    fn slots(&self) -> usize {
        self.0.max_entries() - 1
    }

    /// The kernel memory that they take.
    pub(super) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn words(&self, slot: usize) -> &[AtomicU64] {
        self.0.atomics(slot, 0, WORDS)
    }

    /// The number of the last batch.
    pub(super) fn committed(&self) -> u64 {
        self.words(self.slots())[0].load(SeqCst)
    }

    /// Makes the staged marks of this batch, whose number is the last one's plus one, those of their sessions.
    pub(super) fn commit(&self, batch: u64) {
        self.words(self.slots())[0].store(batch, SeqCst);
    }

    fn is_committed(&self, words: &[AtomicU64]) -> bool {
        let batch = words[BATCH].load(SeqCst);
        batch != NO_BATCH && batch <= self.committed()
    }

    /// Stages a mark for this batch.
    pub(super) fn stage(&self, slot: usize, mark: &Mark, batch: u64) {
        let words = self.words(slot);
        if self.is_committed(words) {
            for at in 0..MARK_WORDS {
                words[at].store(words[STAGED + at].load(SeqCst), SeqCst);
            }
        }
        words[BATCH].store(NO_BATCH, SeqCst);
        let values = [mark.created.into(), mark.packets, mark.bytes, mark.since];
        words[STAGED..].iter().zip(values).for_each(|(word, value)| word.store(value, SeqCst));
        words[BATCH].store(batch, SeqCst);
    }

    /// All marks.
    pub(super) fn load(&self) -> Vec<Mark> {
        let load = |slot| {
            let words = self.words(slot);
            let at = if self.is_committed(words) { STAGED } else { 0 };
            let [created, packets, bytes, since] =
                [0, 1, 2, 3].map(|word| words[at + word].load(SeqCst));
            Mark { created: created as u32, packets, bytes, since }
        };
        (0..self.slots()).map(load).collect()
    }
}

#[cfg(test)]
mod tests {
    use linerate_testkit::root_or_skip;

    use super::*;

    #[test]
    fn a_batch_is_there_once_it_is_committed() {
        root_or_skip!();
        let map = create_mappable_array("marks_test", 8 * WORDS as u32, 3).unwrap();
        let marks = Marks(MappedArray::new(map.as_fd()).unwrap());
        let mark = |packets| Mark { created: 7, packets, bytes: 100 * packets, since: 9 };
        marks.stage(0, &mark(1), 1);
        marks.stage(1, &mark(2), 1);
        assert_eq!(marks.load(), [Mark::default(); 2]);
        marks.commit(1);
        assert_eq!((marks.committed(), marks.load()), (1, vec![mark(1), mark(2)]));
        marks.stage(1, &mark(3), 2);
        // Staged again, because the first attempt to write the batch failed.
        marks.stage(1, &mark(4), 2);
        assert_eq!(marks.load(), [mark(1), mark(2)]);
        marks.commit(2);
        assert_eq!(marks.load(), [mark(1), mark(4)]);
    }
}
