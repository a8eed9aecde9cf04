//! `linerate lab run segment-rate` as a user runs it: what it measures, it has compared.

use linerate_testkit::{exclusive, root_or_skip};

use crate::Run;

#[test]
fn segment_rate_measures_what_makes_the_right_segments() {
    root_or_skip!();
    // It measures, on both CPUs.
    let _exclusive = exclusive();
    let only = ["linerate* at 1448", "*memcpy* at 1448", "rte_gso*packaged* at 1448"];
    let run = Run::new("segment-rate", &only);
    let printed = &run.printed;
    assert!(!printed.contains("void:"), "{printed}");
    // Not every machine has DPDK; where it has not, the peer is named.
    let skipped = printed.contains("skipped: rte_gso, packaged flags: ");
    let raw = run.read("raw.csv");
    let lines = ["linerate", "\"linerate, header and slices\"", "memcpy", "\"memcpy, then sum of"];
    for name in lines {
        assert!(raw.lines().any(|row| row.starts_with(name)), "{name} is missing: {raw}");
    }
    assert_eq!(skipped, !raw.contains("rte_gso"), "{printed}{raw}");
    assert_eq!(raw.lines().count(), 9 + usize::from(!skipped), "{raw}");
}
