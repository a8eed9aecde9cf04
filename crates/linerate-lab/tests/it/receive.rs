//! The experiments on receiving as a user runs them: what was sent is received or counted as lost.

use linerate_testkit::{exclusive, root_or_skip};

use crate::Run;

#[test]
fn every_message_of_an_experiment_is_accounted_for() {
    root_or_skip!();
    // It measures, on both CPUs.
    let _exclusive = exclusive();
    let run = Run::new("receive-latency", &["recvmmsg at 10000", "gro at 10000"]);
    let (printed, raw) = (&run.printed, run.read("raw.csv"));
    let rows: Vec<Vec<&str>> = raw.lines().skip(1).map(|row| row.split(',').collect()).collect();
    assert_eq!(rows.len(), 4, "two readers, asleep and spinning: {raw}{printed}");
    for row in rows {
        let [sent, received, lost] = [3, 4, 5].map(|at| row[at].parse::<u64>().unwrap());
        assert_eq!((sent, received + lost), (10_000, 10_000), "{raw}{printed}");
    }
}
