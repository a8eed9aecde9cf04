//! MoldUDP64 packets of two lines: no message comes twice, and the ledger adds up.
#![no_main]

use std::collections::HashSet;

use libfuzzer_sys::fuzz_target;
use linerate_feed::moldudp64::{MoldUdp64, request};
use linerate_feed::{Feed, Line};

fuzz_target!(|data: &[u8]| {
    let mut feed = Feed::new(MoldUdp64);
    let mut seen = HashSet::new();
    let mut rest = data;
    // A length and a packet, again and again; the length's highest bit says by which line.
    while let Some((&len, after)) = rest.split_first() {
        let line = if len & 0x80 == 0 { Line::A } else { Line::B };
        let (packet, after) = after.split_at(usize::from(len & 0x7f).min(after.len()));
        rest = after;
        let mut came = Vec::new();
        feed.process(line, packet, |message| came.push((message.session.to_vec(), message.number)));
        let previous = feed.previous().map(|(session, _)| session.to_vec());
        // What two sessions have followed is forgotten, and may come again.
        seen.retain(|(session, _): &(Vec<u8>, u64)| {
            session == feed.session() || Some(session) == previous.as_ref()
        });
        for message in came {
            assert!(!seen.contains(&message), "{message:?} came twice");
            seen.insert(message);
        }
    }
    let mut missing = 0u64;
    let ledgers = feed.previous().into_iter().chain([(feed.session(), feed.gap_list())]);
    for (session, ledger) in ledgers {
        let gaps = ledger.gaps();
        assert!(gaps.windows(2).all(|pair| pair[0].to <= pair[1].from), "gaps overlap: {gaps:?}");
        missing = missing.saturating_add(gaps.iter().map(|gap| gap.len()).sum());
        for gap in gaps {
            assert!(gap.from < gap.to);
            let lost = |number| !seen.contains(&(session.to_vec(), number));
            assert!((gap.from..gap.to).take(64).all(lost));
            request(session, *gap);
        }
    }
    assert_eq!(missing, feed.statistics().missing);
});
