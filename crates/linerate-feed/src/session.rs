//! [`Session`]: one run of numbers, what comes next in it and what is missing.

use super::{GapList, Statistics};

/// Bytes of the longest name.
pub(super) const MAX_NAME_LEN: usize = 32;
/// Gaps that are kept at once.
const GAPS: usize = 1024;

/// A session, or room for one.
#[derive(Debug)]
pub(super) struct Session {
    name: [u8; MAX_NAME_LEN],
    len: usize,
    /// None before it has begun.
    next: Option<u64>,
    /// The first sequence number.
    first: u64,
    pub(super) ended: bool,
    pub(super) gap_list: GapList,
}

impl Session {
    pub(super) fn new() -> Self {
        let gap_list = GapList::new(GAPS);
        Self { name: [0; MAX_NAME_LEN], len: 0, next: None, first: 0, ended: false, gap_list }
    }

    /// Takes the place of what was there; `name` is no longer than [`MAX_NAME_LEN`], and the gap list is
    /// empty.
    pub(super) fn begin(&mut self, name: &[u8], next: u64) {
        self.len = name.len();
        self.name[..self.len].copy_from_slice(name);
        self.next = Some(next);
        self.first = next;
        self.ended = false;
    }

    /// Expects messages from `first` on, if that is below the first number. Returns how many were abandoned.
    pub(super) fn begin_before(&mut self, first: u64) -> u64 {
        if first >= self.first {
            return 0;
        }
        let to = std::mem::replace(&mut self.first, first);
        self.gap_list.open_before(first, to)
    }

    #[inline]
    pub(super) fn is(&self, name: &[u8]) -> bool {
        self.next.is_some() && self.name() == name
    }

    pub(super) fn name(&self) -> &[u8] {
        &self.name[..self.len]
    }

    pub(super) fn next(&self) -> Option<u64> {
        self.next
    }

    /// Whether later messages have come.
    #[inline]
    pub(super) fn is_late(&self, number: u64) -> bool {
        self.next.is_some_and(|next| number < next)
    }

    /// Records the arrival of a message; true if it is the first. A packet whose numbers would overflow is
    /// refused before.
    #[inline]
    pub(super) fn take(&mut self, number: u64, statistics: &mut Statistics) -> bool {
        if self.is_late(number) {
            let filled = self.gap_list.fill(number);
            statistics.abandon(filled.unwrap_or(0));
            return filled.is_some();
        }
        self.skip_to(number, statistics);
        self.next = Some(number + 1);
        true
    }

    /// Opens a gap up to `number`, if that is beyond what has arrived.
    #[inline]
    pub(super) fn skip_to(&mut self, number: u64, statistics: &mut Statistics) {
        let expected = self.next.unwrap_or(number);
        if number > expected {
            statistics.gaps += 1;
            statistics.abandon(self.gap_list.open(expected, number));
            self.next = Some(number);
        }
    }
}
