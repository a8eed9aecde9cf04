//! [`Rates`]: the packet rates of sessions, from two readings of their counters.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::Session;
use crate::table::layout::CREATED_NUMBER;

/// The rate of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rate {
    /// Packets a second.
    pub packets: f64,
    /// Bytes of IP packets a second.
    pub bytes: f64,
}

/// The counters of all sessions at the previous reading.
#[derive(Clone, Debug)]
pub struct Rates {
    /// 24 bytes for each slot of the table; only slots with a session are touched.
    before: Vec<Cell>,
    reading: u32,
    started: Instant,
    elapsed: Duration,
}

/// The session's identity, the number of the reading, packets and bytes.
type Cell = [u64; 3];

impl Rates {
    /// For a table with this many slots, before the first reading.
    pub fn of_slots(slots: usize) -> Self {
        Self {
            before: vec![[0; 3]; slots],
            reading: 0,
            started: Instant::now(),
            elapsed: Duration::ZERO,
        }
    }

    /// Starts a reading of the whole table: call [`Rates::rate`] once for each session from now on.
    pub fn start(&mut self) {
        let now = Instant::now();
        self.start_at(now);
    }

    fn start_at(&mut self, now: Instant) {
        self.elapsed = now.saturating_duration_since(self.started);
        self.started = now;
        self.reading += 1;
    }

    /// The rate of this session since the previous reading; none for a session that was missing there,
    /// because its counts may be older.
    pub fn rate(&mut self, session: &Session) -> Option<Rate> {
        let cell = self.before.get_mut(session.slot)?;
        let number = session.created & CREATED_NUMBER;
        // Compares session and reading, because another session may have the slot now.
        let mark = u64::from(number) << 32 | u64::from(self.reading);
        let now = [mark, session.packets, session.bytes];
        let [before, packets, bytes] = std::mem::replace(cell, now);
        let same = before + 1 == mark && packets <= now[1] && bytes <= now[2];
        if !same || self.reading == 1 || self.elapsed.is_zero() {
            return None;
        }
        let each = |now: u64, before: u64| (now - before) as f64 / self.elapsed.as_secs_f64();
        Some(Rate { packets: each(now[1], packets), bytes: each(now[2], bytes) })
    }
}

#[cfg(test)]
mod tests;
