//! [`Requester`]: when to ask a server for which missing messages.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::session::MAX_NAME_LEN;
use super::{Feed, Gap, Protocol};

/// How long a gap is open before the first request: the other line may bring the messages.
const HOLD_TIME: Duration = Duration::from_millis(5);
/// How long an answer may take before the request is repeated.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Requests for the same messages without an answer, after which the gap is given up.
const MAX_ATTEMPTS: u32 = 5;
/// The shortest time between two requests: at most 1000 a second.
const MIN_INTERVAL: Duration = Duration::from_millis(1);

/// Counts of a requester.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RequestStatistics {
    /// Requests made.
    pub requests: u64,
    /// Of these, requests made again because nothing was answered.
    pub repeated: u64,
    /// Gaps that are no longer asked for: nothing was answered to five requests.
    pub unanswered: u64,
}

/// Decides when to ask for the gaps of a [`Feed`], the lowest first and one at a time: at most 1000 requests a second,
/// and five without an answer.
#[derive(Debug, Default)]
pub struct Requester {
    session: [u8; MAX_NAME_LEN],
    session_len: usize,
    /// Gaps below are not asked for any more.
    from: u64,
    pending: Option<Pending>,
    last: Option<Instant>,
    statistics: RequestStatistics,
}

/// The gap whose turn it is.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// Its first missing message.
    from: u64,
    /// When it is asked for next.
    due: Instant,
    attempts: u32,
}

impl Requester {
    /// A requester that has not asked for anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// The gap of the current session to ask for now, if it is time; the answer may bring a part of it. Call it after
    /// each batch, and at least every 10 ms while the feed has gaps. No memory is allocated.
    pub fn next<L: Protocol>(&mut self, feed: &Feed<L>, now: Instant) -> Option<Gap> {
        if self.session[..self.session_len] != *feed.session() {
            self.begin(feed.session());
        }
        let gap = feed.gap_list().gaps().iter().find(|gap| gap.to > self.from);
        let Some(gap) = gap.map(|gap| Gap { from: gap.from.max(self.from), ..*gap }) else {
            self.pending = None;
            return None;
        };
        let pending = match self.pending {
            Some(pending) if pending.from == gap.from => pending,
            // An answer brought the beginning of it: ask for the rest at once.
            Some(before) if before.attempts > 0 && before.from < gap.from => {
                Pending { from: gap.from, due: now, attempts: 0 }
            }
            _ => Pending { from: gap.from, due: now + HOLD_TIME, attempts: 0 },
        };
        self.pending = Some(pending);
        let allowed = self.last.is_none_or(|last| now >= last + MIN_INTERVAL);
        if now < pending.due || !allowed {
            return None;
        }
        if pending.attempts == MAX_ATTEMPTS {
            self.statistics.unanswered += 1;
            (self.from, self.pending) = (gap.to, None);
            return None;
        }
        self.statistics.requests += 1;
        self.statistics.repeated += u64::from(pending.attempts > 0);
        self.last = Some(now);
        let (due, attempts) = (now + RETRY_INTERVAL, pending.attempts + 1);
        self.pending = Some(Pending { due, attempts, ..pending });
        Some(gap)
    }

    /// Whether no gap of the current session is left to ask for.
    pub fn is_done<L: Protocol>(&self, feed: &Feed<L>) -> bool {
        let is_new = self.session[..self.session_len] != *feed.session();
        feed.gap_list().gaps().last().is_none_or(|gap| !is_new && gap.to <= self.from)
    }

    /// Counts of the requests so far.
    pub fn statistics(&self) -> RequestStatistics {
        self.statistics
    }

    fn begin(&mut self, session: &[u8]) {
        self.session_len = session.len().min(MAX_NAME_LEN);
        self.session[..self.session_len].copy_from_slice(&session[..self.session_len]);
        (self.from, self.pending) = (0, None);
    }
}

#[cfg(test)]
mod tests;
