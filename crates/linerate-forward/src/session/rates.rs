//! [`Rates`]: how fast sessions are, from two readings of their counters.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Record;
use crate::layout::SessionKey;

/// How much a session forwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rate {
    /// Packets a second.
    pub packets: f64,
    /// Bytes of IP packets a second.
    pub bytes: f64,
}

/// What the counters of all sessions were at the reading before.
#[derive(Clone, Debug)]
pub struct Rates {
    before: Before,
    reading: u32,
    began: Instant,
    passed: Duration,
}

/// Which session it was and at which reading, its packets and bytes.
type Cell = [u64; 3];

#[derive(Clone, Debug)]
enum Before {
    /// 24 bytes for each place of the table, of which only those are touched that hold a session.
    Places(Vec<Cell>),
    /// For sessions in hash maps, which have no places.
    Keys(HashMap<SessionKey, Cell>),
}

impl Rates {
    /// Knows of no reading yet of a table of so many places.
    pub fn of_places(places: usize) -> Self {
        Self::new(Before::Places(vec![[0; 3]; places]))
    }

    /// Knows of no reading yet of hash maps.
    pub fn of_keys() -> Self {
        Self::new(Before::Keys(HashMap::new()))
    }

    fn new(before: Before) -> Self {
        Self { before, reading: 0, began: Instant::now(), passed: Duration::ZERO }
    }

    /// Begins a reading of the whole table: call [`Rates::rate`] once for each record from now on.
    pub fn begin(&mut self) {
        let now = Instant::now();
        self.begin_at(now);
    }

    fn begin_at(&mut self, now: Instant) {
        self.passed = now.saturating_duration_since(self.began);
        self.began = now;
        if let Before::Keys(cells) = &mut self.before {
            let last = u64::from(self.reading);
            cells.retain(|_, [mark, ..]| *mark & u64::from(u32::MAX) == last);
        }
        self.reading += 1;
    }

    /// The rate of this session since the reading before. A session that was not there then gives none:
    /// what it counted may be older.
    pub fn rate(&mut self, record: &Record) -> Option<Rate> {
        let (created, cell) = match &mut self.before {
            Before::Places(cells) => {
                (record.session.created, cells.get_mut(usize::try_from(record.place).ok()?)?)
            }
            // Each CPU may have made it at another time.
            Before::Keys(cells) => {
                let key = SessionKey { generation: 0, ..record.session.key };
                (0, cells.entry(key).or_default())
            }
        };
        // Which session it was, and at which reading: the place may have been given to another since.
        let mark = u64::from(created) << 32 | u64::from(self.reading);
        let now = [mark, record.packets(), record.bytes()];
        let [before, packets, bytes] = std::mem::replace(cell, now);
        let same = before + 1 == mark && packets <= now[1] && bytes <= now[2];
        if !same || self.reading == 1 || self.passed.is_zero() {
            return None;
        }
        let each = |now: u64, before: u64| (now - before) as f64 / self.passed.as_secs_f64();
        Some(Rate { packets: each(now[1], packets), bytes: each(now[2], bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(place: u64, created: u32, packets: u64, bytes: u64) -> Record {
        let mut record = Record { place, ..Record::default() };
        record.session.created = created;
        (record.session.packets, record.stray.packets) = (packets - packets / 3, packets / 3);
        (record.session.bytes, record.stray.bytes) = (bytes, 0);
        record
    }

    #[test]
    fn a_rate_is_what_came_between_two_readings() {
        let mut rates = Rates::of_places(4);
        let start = rates.began;
        rates.begin_at(start);
        assert_eq!(rates.rate(&record(1, 0, 100, 6400)), None);
        rates.begin_at(start + Duration::from_secs(2));
        let rate = rates.rate(&record(1, 0, 300, 20_400)).unwrap();
        assert_eq!(rate, Rate { packets: 100.0, bytes: 7000.0 });
        // First seen now; a place beyond the table.
        assert_eq!(rates.rate(&record(0, 9, 50, 50)), None);
        assert_eq!(rates.rate(&record(4, 0, 1, 1)), None);
        rates.begin_at(start + Duration::from_secs(3));
        assert_eq!(rates.rate(&record(0, 9, 60, 50)), Some(Rate { packets: 10.0, bytes: 0.0 }));
    }

    #[test]
    fn a_place_that_another_session_has_gives_no_rate() {
        let mut rates = Rates::of_places(1);
        let start = rates.began;
        for (second, created, packets, known) in
            [(0, 7, 10, false), (1, 8, 20, false), (2, 8, 10, false), (3, 8, 11, true)]
        {
            rates.begin_at(start + Duration::from_secs(second));
            let rate = rates.rate(&record(0, created, packets, 0));
            assert_eq!(rate.is_some(), known, "second {second}");
        }
        // Missing from a reading, as when it was being written.
        rates.begin_at(start + Duration::from_secs(4));
        rates.begin_at(start + Duration::from_secs(5));
        assert_eq!(rates.rate(&record(0, 8, 12, 0)), None);
    }

    #[test]
    fn sessions_without_places_are_told_apart_by_their_keys() {
        let mut rates = Rates::of_keys();
        let start = rates.began;
        let of = |port: u16, packets| {
            let mut record = record(0, 7, packets, 0);
            record.session.key.source_port = port.to_be_bytes();
            record
        };
        rates.begin_at(start);
        assert!(
            [(1, 10), (2, 20)].map(|(port, packets)| rates.rate(&of(port, packets))) == [None; 2]
        );
        rates.begin_at(start + Duration::from_secs(1));
        let rate = |packets| Some(Rate { packets, bytes: 0.0 });
        assert_eq!(rates.rate(&of(2, 25)), rate(5.0));
        assert_eq!(rates.rate(&of(3, 1)), None);
        // One that was missing once begins anew, and takes no memory meanwhile.
        rates.begin_at(start + Duration::from_secs(2));
        assert_eq!(rates.rate(&of(3, 3)), rate(2.0));
        assert_eq!(rates.rate(&of(1, 11)), None);
        rates.begin_at(start + Duration::from_secs(3));
        let Before::Keys(cells) = &rates.before else { panic!() };
        assert_eq!(cells.len(), 2);
    }
}
