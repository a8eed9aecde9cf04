//! [`Session`]: one run of numbers, what comes next in it and what is missing.

use super::{Counts, Ledger};

/// Bytes of the longest name.
pub(super) const LONGEST_NAME: usize = 32;
/// Gaps that are kept at once.
const GAPS: usize = 1024;

/// A session, or room for one.
#[derive(Debug)]
pub(super) struct Session {
    name: [u8; LONGEST_NAME],
    len: usize,
    /// None before it has begun.
    next: Option<u64>,
    pub(super) ended: bool,
    pub(super) ledger: Ledger,
}

impl Session {
    pub(super) fn new() -> Self {
        let ledger = Ledger::new(GAPS);
        Self { name: [0; LONGEST_NAME], len: 0, next: None, ended: false, ledger }
    }

    /// Takes the place of what was there; `name` is no longer than [`LONGEST_NAME`], and the ledger is empty.
    pub(super) fn begin(&mut self, name: &[u8], next: u64) {
        self.len = name.len();
        self.name[..self.len].copy_from_slice(name);
        self.next = Some(next);
        self.ended = false;
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

    /// Notes that a message came; true when it is the first time. A packet whose numbers would overflow is
    /// refused before.
    #[inline]
    pub(super) fn take(&mut self, number: u64, counts: &mut Counts) -> bool {
        if self.is_late(number) {
            let filled = self.ledger.fill(number);
            counts.abandon(filled.unwrap_or(0));
            return filled.is_some();
        }
        self.skip_to(number, counts);
        self.next = Some(number + 1);
        true
    }

    /// Opens a gap up to `number`, where that is further than what has come.
    #[inline]
    pub(super) fn skip_to(&mut self, number: u64, counts: &mut Counts) {
        let expected = self.next.unwrap_or(number);
        if number > expected {
            counts.gaps += 1;
            counts.abandon(self.ledger.open(expected, number));
            self.next = Some(number);
        }
    }
}
