use super::super::{Decoder, Stored};
use super::*;
use crate::table::clock::Clock;

fn session(slot: usize, created: u32, packets: u64, bytes: u64) -> Session {
    let mut stored = Stored::default();
    stored.cold.created = created;
    (stored.session.packets, stored.session.bytes) = (packets, bytes);
    Decoder::new(Clock::from_boot_time(), 1).decode(slot, &stored)
}

#[test]
fn a_rate_is_what_came_between_two_readings() {
    let mut rates = Rates::of_slots(4);
    let start = rates.started;
    rates.start_at(start);
    assert_eq!(rates.rate(&session(1, 0, 100, 6400)), None);
    rates.start_at(start + Duration::from_secs(2));
    let rate = rates.rate(&session(1, 0, 300, 20_400)).unwrap();
    assert_eq!(rate, Rate { packets: 100.0, bytes: 7000.0 });
    // First seen now; a place beyond the table.
    assert_eq!(rates.rate(&session(0, 9, 50, 50)), None);
    assert_eq!(rates.rate(&session(4, 0, 1, 1)), None);
    rates.start_at(start + Duration::from_secs(3));
    assert_eq!(rates.rate(&session(0, 9, 60, 50)), Some(Rate { packets: 10.0, bytes: 0.0 }));
}

#[test]
fn a_slot_that_another_session_has_gives_no_rate() {
    let mut rates = Rates::of_slots(1);
    let start = rates.started;
    for (second, created, packets, known) in
        [(0, 7, 10, false), (1, 8, 20, false), (2, 8, 10, false), (3, 8, 11, true)]
    {
        rates.start_at(start + Duration::from_secs(second));
        let rate = rates.rate(&session(0, created, packets, 0));
        assert_eq!(rate.is_some(), known, "second {second}");
    }
    // Missing from a reading, as when it was being written.
    rates.start_at(start + Duration::from_secs(4));
    rates.start_at(start + Duration::from_secs(5));
    assert_eq!(rates.rate(&session(0, 8, 12, 0)), None);
}
