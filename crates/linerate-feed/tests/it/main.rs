//! Feeds of two lines.

use linerate_feed::moldudp64::{MoldUdp64, request, write};
use linerate_feed::*;
use proptest::prelude::*;

const SESSION_NAME: [u8; 10] = *b"SESSION001";

fn packet(first: u64, count: u64) -> Vec<u8> {
    let messages: Vec<Vec<u8>> =
        (first..first + count).map(|number| number.to_string().into_bytes()).collect();
    let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    let mut packet = Vec::new();
    write(SESSION_NAME, first, &messages, &mut packet);
    packet
}

fn numbers(feed: &mut Feed<MoldUdp64>, line: Line, packet: &[u8]) -> Vec<u64> {
    let mut numbers = Vec::new();
    feed.process(line, packet, |message| {
        assert_eq!(message.bytes, message.number.to_string().as_bytes());
        numbers.push(message.number);
    });
    numbers
}

#[test]
fn the_first_arrival_wins_and_the_other_is_a_duplicate() {
    let mut feed = Feed::new(MoldUdp64);
    assert_eq!(numbers(&mut feed, Line::A, &packet(5, 3)), [5, 6, 7]);
    assert_eq!(numbers(&mut feed, Line::B, &packet(5, 4)), [8]);
    assert_eq!(numbers(&mut feed, Line::A, &packet(8, 1)), []);
    let statistics = feed.statistics();
    assert_eq!((statistics.first_a, statistics.first_b, statistics.duplicates), (3, 1, 4));
    assert_eq!((statistics.gaps, statistics.missing, feed.next()), (0, 0, Some(9)));
}

#[test]
fn the_line_that_is_read_second_may_be_behind() {
    let mut feed = Feed::new(MoldUdp64);
    assert_eq!(numbers(&mut feed, Line::B, &packet(10, 2)), [10, 11]);
    assert_eq!(numbers(&mut feed, Line::B, &packet(14, 1)), [14]);
    assert_eq!(numbers(&mut feed, Line::A, &packet(5, 2)), [5, 6]);
    assert_eq!(numbers(&mut feed, Line::A, &packet(8, 4)), [8, 9]);
    // 7 is missing, as 12 and 13 are; what came before either line is not.
    let statistics = feed.statistics();
    assert_eq!((statistics.duplicates, statistics.messages, statistics.missing), (2, 7, 3));
    assert_eq!(feed.gap_list().gaps(), [Gap { from: 7, to: 8 }, Gap { from: 12, to: 14 }]);
    assert_eq!(numbers(&mut feed, Line::A, &packet(2, 1)), []);
    assert_eq!(numbers(&mut feed, Line::B, &packet(3, 1)), []);
    assert_eq!(feed.statistics().duplicates, 4);
}

#[test]
fn a_gap_is_opened_at_once_and_closed_by_the_other_line() {
    let mut feed = Feed::new(MoldUdp64).expect_from_first();
    assert_eq!(numbers(&mut feed, Line::A, &packet(4, 2)), [4, 5]);
    assert_eq!(feed.gap_list().gaps(), [Gap { from: 1, to: 4 }]);
    assert_eq!(numbers(&mut feed, Line::B, &packet(2, 1)), [2]);
    assert_eq!(feed.gap_list().gaps(), [Gap { from: 1, to: 2 }, Gap { from: 3, to: 4 }]);
    assert_eq!(numbers(&mut feed, Line::B, &packet(1, 5)), [1, 3]);
    let statistics = feed.statistics();
    assert_eq!(
        (statistics.gaps, statistics.missing, statistics.late, statistics.duplicates),
        (1, 0, 3, 3)
    );
}

#[test]
fn a_heartbeat_tells_of_a_loss_and_the_end_is_one() {
    let mut feed = Feed::new(MoldUdp64);
    numbers(&mut feed, Line::A, &packet(1, 1));
    numbers(&mut feed, Line::A, &packet(4, 0));
    assert_eq!(feed.gap_list().gaps(), [Gap { from: 2, to: 4 }]);
    let mut end = packet(4, 0);
    end[18..20].copy_from_slice(&[0xff, 0xff]);
    assert!(!feed.ended());
    numbers(&mut feed, Line::A, &end);
    assert!(feed.ended());
    let statistics = feed.statistics();
    assert_eq!((statistics.heartbeats, statistics.ends, statistics.missing), (1, 1, 2));
}

/// The packet, of another session.
fn of(session: u8, mut packet: Vec<u8>) -> Vec<u8> {
    packet[9] = b'0' + session;
    packet
}

#[test]
fn lines_change_sessions_one_after_the_other() {
    let mut feed = Feed::new(MoldUdp64);
    assert!(feed.previous().is_none());
    numbers(&mut feed, Line::A, &packet(1, 1));
    numbers(&mut feed, Line::A, &packet(4, 1));
    assert_eq!(numbers(&mut feed, Line::A, &of(2, packet(1, 1))), [1]);
    assert_eq!((feed.session(), feed.next()), (&b"SESSION002"[..], Some(2)));
    let (session, gap_list) = feed.previous().unwrap();
    assert_eq!((session, gap_list.gaps()), (&SESSION_NAME[..], &[Gap { from: 2, to: 4 }][..]));
    // The other line is behind: what it brings is of the session before, and what was missing there.
    let mut late = Vec::new();
    feed.process(Line::B, &packet(1, 3), |message| {
        assert_eq!(message.session, SESSION_NAME);
        late.push((message.number, message.late));
    });
    assert_eq!(late, [(2, true), (3, true)]);
    assert_eq!(numbers(&mut feed, Line::A, &of(2, packet(2, 1))), [2]);
    assert_eq!(numbers(&mut feed, Line::B, &of(2, packet(1, 2))), []);
    let statistics = feed.statistics();
    assert_eq!((statistics.sessions, statistics.duplicates, statistics.missing), (2, 3, 0));
}

#[test]
fn what_two_sessions_have_followed_is_given_up() {
    let mut feed = Feed::new(MoldUdp64);
    numbers(&mut feed, Line::A, &packet(1, 1));
    numbers(&mut feed, Line::A, &packet(3, 1));
    numbers(&mut feed, Line::A, &of(2, packet(1, 1)));
    assert_eq!((feed.statistics().abandoned, feed.statistics().missing), (0, 1));
    numbers(&mut feed, Line::A, &of(3, packet(1, 1)));
    let statistics = feed.statistics();
    assert_eq!((statistics.sessions, statistics.abandoned, statistics.missing), (3, 1, 0));
    assert_eq!(feed.session(), b"SESSION003");
}

#[test]
fn a_session_that_begins_later_is_missed_from_its_first_message() {
    let mut feed = Feed::new(MoldUdp64);
    numbers(&mut feed, Line::A, &packet(7, 1));
    assert_eq!(numbers(&mut feed, Line::A, &of(2, packet(3, 1))), [3]);
    assert_eq!(feed.gap_list().gaps(), [Gap { from: 1, to: 3 }]);
    assert_eq!(numbers(&mut feed, Line::B, &of(2, packet(1, 3))), [1, 2]);
    assert_eq!((feed.statistics().missing, feed.statistics().duplicates), (0, 1));
}

#[test]
fn stray_packets_begin_no_session() {
    let mut feed = Feed::new(MoldUdp64);
    numbers(&mut feed, Line::A, &packet(1, 2));
    let mut end = of(8, packet(9, 0));
    end[18..20].copy_from_slice(&[0xff, 0xff]);
    numbers(&mut feed, Line::A, &end);
    numbers(&mut feed, Line::A, &[b'x'; 40]);
    let statistics = feed.statistics();
    assert_eq!((statistics.sessions, statistics.ends, statistics.malformed), (1, 1, 1));
    assert!(!feed.ended());
    assert_eq!(numbers(&mut feed, Line::B, &packet(1, 3)), [3]);
    // Of the first session an end may be all that comes.
    let mut late = Feed::new(MoldUdp64);
    numbers(&mut late, Line::A, &end);
    assert!(late.ended());
}

#[test]
fn more_missing_messages_than_can_be_counted_are_as_many_as_can() {
    let mut feed = Feed::new(MoldUdp64);
    for session in 1..5 {
        for first in [1, u64::MAX] {
            numbers(&mut feed, Line::A, &of(session, packet(first, 0)));
        }
    }
    assert_eq!((feed.statistics().missing, feed.statistics().abandoned), (u64::MAX, u64::MAX));
}

#[test]
fn a_request_asks_for_no_more_than_it_can() {
    let bytes = request(&SESSION_NAME, Gap { from: 7, to: 10 });
    assert_eq!(&bytes[..10], b"SESSION001");
    assert_eq!(bytes[10..], [0, 0, 0, 0, 0, 0, 0, 7, 0, 3]);
    let bytes = request(b"S", Gap { from: 7, to: 1_000_000 });
    assert_eq!(&bytes[..10], b"S         ");
    assert_eq!(bytes[18..], 0xfffe_u16.to_be_bytes());
}

#[test]
fn cut_and_overflowing_packets_are_malformed() {
    let whole = packet(1, 3);
    for len in 0..whole.len() {
        let mut feed = Feed::new(MoldUdp64);
        numbers(&mut feed, Line::A, &whole[..len]);
        assert_eq!(feed.statistics().malformed, 1, "{len} bytes");
    }
    let mut feed = Feed::new(MoldUdp64);
    let mut last = packet(1, 2);
    last[10..18].fill(0xff);
    numbers(&mut feed, Line::A, &last);
    assert_eq!((feed.statistics().malformed, feed.statistics().messages), (1, 0));
}

/// What a line brings: packets of session 1, then of session 2, as session, first number and count.
fn cut() -> impl Strategy<Value = Vec<(u8, u64, u64)>> {
    let packets = || proptest::collection::vec((1u64..30, 1u64..4), 0..20);
    (packets(), packets()).prop_map(|(one, two)| {
        let of = |session: u8| move |(first, count): (u64, u64)| (session, first, count);
        one.into_iter().map(of(1)).chain(two.into_iter().map(of(2))).collect()
    })
}

proptest! {
    /// However two lines lose and reorder, each message comes once, and what neither brought is missing.
    #[test]
    fn every_message_comes_once(
        packets in proptest::collection::vec((0u64..40, 1u64..4, any::<bool>()), 1..60),
    ) {
        let mut feed = Feed::new(MoldUdp64).expect_from_first();
        let mut seen = std::collections::BTreeSet::new();
        let mut sent = std::collections::BTreeSet::new();
        for (at, count, b) in packets {
            let first = 1 + at;
            sent.extend(first..first + count);
            let line = if b { Line::B } else { Line::A };
            for number in numbers(&mut feed, line, &packet(first, count)) {
                prop_assert!(seen.insert(number), "{} came twice", number);
            }
        }
        prop_assert_eq!(&seen, &sent);
        let highest = *sent.last().unwrap();
        let missing = (1..=highest).filter(|number| !sent.contains(number)).count() as u64;
        prop_assert_eq!(feed.statistics().missing, missing);
    }

    /// The same of two sessions, one behind the other on each line but not on both at once.
    #[test]
    fn every_message_of_two_sessions_comes_once(
        lines in (cut(), cut()),
        order in proptest::collection::vec(any::<bool>(), 40),
    ) {
        let mut feed = Feed::new(MoldUdp64).expect_from_first();
        let mut seen = std::collections::BTreeSet::new();
        let mut sent = std::collections::BTreeSet::new();
        let mut lines = [lines.0.into_iter(), lines.1.into_iter()];
        // The first packet of all is of the first session.
        numbers(&mut feed, Line::A, &of(1, packet(1, 0)));
        for b in order {
            let Some((session, first, count)) = lines[usize::from(b)].next() else { continue };
            sent.extend((first..first + count).map(|number| (session, number)));
            let line = if b { Line::B } else { Line::A };
            feed.process(line, &of(session, packet(first, count)), |message| {
                let message = (message.session[9] - b'0', message.number);
                assert!(seen.insert(message), "{message:?} came twice");
            });
        }
        prop_assert_eq!(&seen, &sent);
        let of_session = |session: u8| sent.iter().filter(move |(of, _)| *of == session);
        let missing = |session| match of_session(session).map(|(_, number)| *number).max() {
            Some(highest) => highest - of_session(session).count() as u64,
            None => 0,
        };
        prop_assert_eq!(feed.statistics().missing, missing(1) + missing(2));
    }

    #[test]
    fn any_bytes_are_taken(packets in proptest::collection::vec(
        proptest::collection::vec(any::<u8>(), 0..60), 0..20)) {
        let mut feed = Feed::new(MoldUdp64);
        for packet in packets {
            feed.process(Line::A, &packet, |_| {});
        }
    }
}
