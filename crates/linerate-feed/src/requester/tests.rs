use super::*;
use crate::Line;
use crate::moldudp64::{MoldUdp64, write};

const MS: Duration = Duration::from_millis(1);

fn bring(feed: &mut Feed<MoldUdp64>, session: &[u8; 10], first: u64, count: usize) {
    let mut packet = Vec::new();
    write(*session, first, &vec![&b"x"[..]; count], &mut packet);
    feed.process(Line::A, &packet, |_| {});
}

#[test]
fn gaps_are_asked_for_in_order_until_they_are_filled() {
    let (mut feed, mut requester) = (Feed::new(MoldUdp64), Requester::new());
    let start = Instant::now();
    bring(&mut feed, b"SESSION001", 1, 1);
    assert_eq!(requester.next(&feed, start), None);
    bring(&mut feed, b"SESSION001", 5, 1);
    bring(&mut feed, b"SESSION001", 8, 1);
    assert_eq!(requester.next(&feed, start), None, "the other line may bring it");
    let first = Gap { from: 2, to: 5 };
    assert_eq!(requester.next(&feed, start + 5 * MS), Some(first));
    assert_eq!(requester.next(&feed, start + 50 * MS), None, "an answer takes its time");
    assert_eq!(requester.next(&feed, start + 105 * MS), Some(first));
    // The answer has a part of it.
    bring(&mut feed, b"SESSION001", 2, 2);
    assert_eq!(requester.next(&feed, start + 105 * MS), None, "1000 a second at most");
    assert_eq!(requester.next(&feed, start + 106 * MS), Some(Gap { from: 4, to: 5 }));
    bring(&mut feed, b"SESSION001", 4, 1);
    assert_eq!(requester.next(&feed, start + 107 * MS), Some(Gap { from: 6, to: 8 }));
    bring(&mut feed, b"SESSION001", 6, 2);
    assert_eq!(requester.next(&feed, start + 300 * MS), None);
    let counts = RequestStatistics { requests: 4, repeated: 1, unanswered: 0 };
    assert_eq!((requester.statistics(), feed.statistics().missing), (counts, 0));
}

#[test]
fn what_nobody_answers_is_given_up_and_the_next_gap_is_not() {
    let (mut feed, mut requester) = (Feed::new(MoldUdp64), Requester::new());
    bring(&mut feed, b"SESSION001", 1, 1);
    bring(&mut feed, b"SESSION001", 5, 1);
    bring(&mut feed, b"SESSION001", 8, 1);
    let start = Instant::now();
    let asked: Vec<_> = (0..2000).filter_map(|at| requester.next(&feed, start + at * MS)).collect();
    let gaps = [Gap { from: 2, to: 5 }, Gap { from: 6, to: 8 }].map(|gap| [gap; 5]).concat();
    assert_eq!(asked, gaps);
    let counts = RequestStatistics { requests: 10, repeated: 8, unanswered: 2 };
    assert_eq!(requester.statistics(), counts);
    // A new session waits again before its first request.
    bring(&mut feed, b"SESSION002", 3, 1);
    let later = start + 3000 * MS;
    assert_eq!(requester.next(&feed, later), None);
    assert_eq!(requester.next(&feed, later + 5 * MS), Some(Gap { from: 1, to: 3 }));
}
