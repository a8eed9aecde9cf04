//! MoldUDP64 packets of two lines: no message comes twice, and the ledger adds up.
#![no_main]

use std::collections::HashSet;

use libfuzzer_sys::fuzz_target;
use linerate_udp::feed::moldudp64::{MoldUdp64, request};
use linerate_udp::feed::{Feed, Line};

fuzz_target!(|data: &[u8]| {
    let mut feed = Feed::new(MoldUdp64);
    let mut seen = HashSet::new();
    let mut rest = data;
    // A length and a packet, again and again; the length's highest bit says by which line.
    while let Some((&len, after)) = rest.split_first() {
        let line = if len & 0x80 == 0 { Line::A } else { Line::B };
        let (packet, after) = after.split_at(usize::from(len & 0x7f).min(after.len()));
        rest = after;
        let sessions = feed.counts().sessions;
        let mut numbers = Vec::new();
        feed.packet(line, packet, |message| numbers.push(message.number));
        if feed.counts().sessions != sessions {
            seen.clear();
        }
        for number in numbers {
            assert!(seen.insert(number), "{number} came twice");
        }
    }
    let gaps = feed.ledger().gaps();
    assert!(gaps.windows(2).all(|pair| pair[0].to <= pair[1].from), "gaps overlap: {gaps:?}");
    assert_eq!(gaps.iter().map(|gap| gap.len()).sum::<u64>(), feed.counts().missing);
    for gap in gaps {
        assert!(gap.from < gap.to && seen.is_disjoint(&(gap.from..gap.to).take(64).collect()));
        request(feed.session(), *gap);
    }
});
