//! `linerate lab run segment-rate` as a user runs it: what it measures, it has compared.

use std::fs;

use linerate_testkit::{exclusive, root_or_skip};

use crate::lab;

#[test]
fn segment_rate_measures_what_makes_the_right_segments() {
    root_or_skip!();
    // It measures, on both CPUs.
    let _exclusive = exclusive();
    let out = tempfile::tempdir().unwrap();
    let output = lab()
        .args(["run", "segment-rate", "--quick", "--repeats", "1", "--out"])
        .arg(out.path())
        .args(["--only", "linerate* at 1448", "--only", "*memcpy* at 1448"])
        .args(["--only", "rte_gso*packaged* at 1448"])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("raw data and summary"), "{printed}{stderr}");
    assert!(!printed.contains("void:"), "{printed}");
    // Not every machine has DPDK; where it has not, the peer is named.
    let skipped = printed.contains("skipped: rte_gso, packaged flags: ");
    let run = fs::read_dir(out.path()).unwrap().next().unwrap().unwrap().path();
    let raw = fs::read_to_string(run.join("raw.csv")).unwrap();
    let lines = ["linerate", "\"linerate, header and slices\"", "memcpy", "\"memcpy, then sum of"];
    for name in lines {
        assert!(raw.lines().any(|row| row.starts_with(name)), "{name} is missing: {raw}");
    }
    assert_eq!(skipped, !raw.contains("rte_gso"), "{printed}{raw}");
    assert_eq!(raw.lines().count(), 9 + usize::from(!skipped), "{raw}");
    assert!(run.join("summary.json").is_file());
}
