//! [`GapList`]: which numbers are missing.

use serde::Serialize;

/// Consecutive missing numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The first that is missing.
    pub from: u64,
    /// The first that is not.
    pub to: u64,
}

impl Gap {
    /// Messages in it, at least 1.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> u64 {
        self.to - self.from
    }
}

/// The open gaps, in order, as many as there is room for.
#[derive(Clone, Debug)]
pub struct GapList {
    gaps: Vec<Gap>,
    room: usize,
    missing: u64,
}

impl GapList {
    /// Room for `gaps` at once, 1 or more.
    pub(super) fn new(gaps: usize) -> Self {
        // One more, which the splitting of a gap needs for a moment.
        Self { gaps: Vec::with_capacity(gaps + 1), room: gaps, missing: 0 }
    }

    /// The gaps, lowest first.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Messages in all of them.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// Records that `from..to`, which is beyond all other gaps, is missing. Without room the oldest gap is
    /// abandoned. Returns how many messages were abandoned.
    pub(super) fn open(&mut self, from: u64, to: u64) -> u64 {
        self.gaps.push(Gap { from, to });
        self.missing += to - from;
        self.shrink()
    }

    /// The same for one that is below all other gaps.
    pub(super) fn open_before(&mut self, from: u64, to: u64) -> u64 {
        self.gaps.insert(0, Gap { from, to });
        self.missing += to - from;
        self.shrink()
    }

    /// Records the arrival of a message: `None` if it was not missing, otherwise how many messages were
    /// abandoned to make room.
    pub(super) fn fill(&mut self, number: u64) -> Option<u64> {
        let at = self.gaps.partition_point(|gap| gap.to <= number);
        let gap = self.gaps.get_mut(at).filter(|gap| gap.from <= number)?;
        self.missing -= 1;
        let after = Gap { from: number + 1, to: gap.to };
        gap.to = number;
        match (gap.from == gap.to, after.from == after.to) {
            (true, true) => drop(self.gaps.remove(at)),
            (true, false) => *gap = after,
            (false, true) => {}
            (false, false) => {
                self.gaps.insert(at + 1, after);
                return Some(self.shrink());
            }
        }
        Some(0)
    }

    /// Abandons all gaps. Returns how many messages were missing.
    pub(super) fn clear(&mut self) -> u64 {
        self.gaps.clear();
        std::mem::take(&mut self.missing)
    }

    /// Abandons the oldest gap if there are too many.
    fn shrink(&mut self) -> u64 {
        if self.gaps.len() <= self.room {
            return 0;
        }
        let gone = self.gaps.remove(0).len();
        self.missing -= gone;
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_gives_up_the_oldest_gap_and_counts_it() {
        let mut gap_list = GapList::new(2);
        assert_eq!(gap_list.open(1, 3) + gap_list.open(5, 6), 0);
        assert_eq!(gap_list.open(8, 20), 2);
        assert_eq!(gap_list.fill(10), Some(1));
        assert_eq!(gap_list.gaps(), [Gap { from: 8, to: 10 }, Gap { from: 11, to: 20 }]);
        assert_eq!(gap_list.missing(), 11);
    }
}
