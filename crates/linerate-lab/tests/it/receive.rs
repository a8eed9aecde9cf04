//! The experiments on receiving as a user runs them: what was sent is received or counted as lost.

use std::fs;

use linerate_testkit::{exclusive, root_or_skip};

use crate::lab;

#[test]
fn every_message_of_an_experiment_is_accounted_for() {
    root_or_skip!();
    // It measures, on both CPUs.
    let _exclusive = exclusive();
    let out = tempfile::tempdir().unwrap();
    let output = lab()
        .args(["run", "receive-latency", "--quick", "--repeats", "1", "--out"])
        .arg(out.path())
        .args(["--only", "recvmmsg at 10000", "--only", "gro at 10000"])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("raw data and summary"), "{printed}{stderr}");
    let run = fs::read_dir(out.path()).unwrap().next().unwrap().unwrap().path();
    let raw = fs::read_to_string(run.join("raw.csv")).unwrap();
    let rows: Vec<Vec<&str>> = raw.lines().skip(1).map(|row| row.split(',').collect()).collect();
    assert_eq!(rows.len(), 4, "two readers, asleep and spinning: {raw}{printed}");
    for row in rows {
        let [sent, received, lost] = [3, 4, 5].map(|at| row[at].parse::<u64>().unwrap());
        assert_eq!((sent, received + lost), (10_000, 10_000), "{raw}{printed}");
    }
    assert!(run.join("summary.json").is_file());
}
