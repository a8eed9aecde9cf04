//! The experiments on forwarding as a user runs them: frames cross, on the path that they should take.

use std::fs;
use std::path::Path;

use linerate_testkit::{exclusive, root_or_skip};

use crate::lab;

/// Runs an experiment narrowed down, and returns what it said and its raw data.
fn run(out: &Path, experiment: &str, only: &[&str], sheet: &str) -> (String, String) {
    let mut command = lab();
    command.args(["run", experiment, "--quick", "--repeats", "1", "--out"]).arg(out);
    for only in only {
        command.args(["--only", only]);
    }
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("raw data and summary"), "{printed}{stderr}");
    let run = fs::read_dir(out).unwrap().flatten().map(|entry| entry.path());
    let run = run.into_iter().find(|path| path.to_string_lossy().ends_with(experiment)).unwrap();
    let raw =
        fs::read_to_string(run.join(sheet)).unwrap_or_else(|error| panic!("{error}: {printed}"));
    (printed, raw)
}

/// The fields of the row of a line. No field before the last has a comma.
fn row<'a>(raw: &'a str, line: &str) -> Vec<&'a str> {
    let start = format!("{line},");
    let row = raw.lines().find(|row| row.starts_with(&start));
    row.unwrap_or_else(|| panic!("{line} is missing: {raw}")).split(',').collect()
}

#[test]
fn frames_cross_the_road_with_each_router() {
    root_or_skip!();
    // It measures, on both CPUs.
    let _exclusive = exclusive();
    let out = tempfile::tempdir().unwrap();
    let only = ["Linux at 64", "fib mode at 64", "Linerate at 64", "plain redirect at 64"];
    let (printed, raw) = run(out.path(), "forward-size", &only, "raw.csv");
    for line in ["Linux", "fib mode", "Linerate", "plain redirect"] {
        let row = row(&raw, line);
        let [sent, arrived, dropped] = [5, 6, 7].map(|at| row[at].parse::<u64>().unwrap());
        assert_eq!(sent, 2_000_000, "{raw}");
        assert!(arrived > 0 && arrived + dropped >= sent, "{line} lost frames: {raw}{printed}");
        if ["fib mode", "Linerate"].contains(&line) {
            let kernel: f64 = row[11].parse().unwrap();
            assert!(kernel < 0.01, "{line}: the kernel forwarded: {raw}");
        }
    }
}

#[test]
fn connections_are_held_open_together() {
    root_or_skip!();
    // It measures, on both CPUs.
    let _exclusive = exclusive();
    let out = tempfile::tempdir().unwrap();
    let only = ["TCP, Linerate at 21000"];
    let (printed, raw) = run(out.path(), "forward-sessions", &only, "connections.csv");
    let row = row(&raw.replace("\"TCP, Linerate\"", "TCP"), "TCP").join(" ");
    let fields: Vec<u64> = row.split(' ').skip(2).map(|word| word.parse().unwrap()).collect();
    assert!(fields[0] == 21_000 && fields[1] >= 42_000, "{raw}{printed}");
}
