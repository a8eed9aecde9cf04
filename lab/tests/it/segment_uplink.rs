//! `linerate lab run segment-tcp` and `segment-udp`: what was sent arrived, the limit was kept, and
//! nothing stays.

use std::collections::HashMap;

use linerate_lab::measure::cgroup::CpuGroup;
use linerate_ring::xdp;
use linerate_testkit::{exclusive, probe_or_skip, root_or_skip};

use crate::Run;

type Row = HashMap<String, String>;

/// Measures these lines once at 30% of a core.
fn run(experiment: &str, lines: &[&str]) -> Vec<Row> {
    let only: Vec<_> = lines.iter().map(|line| format!("{line} at 30")).collect();
    let run = Run::new(experiment, &only.iter().map(String::as_str).collect::<Vec<_>>());
    let printed = &run.printed;
    // That other tests run on these cores is no defect; what was measured is held all the same.
    let defect = |line: &str| line.starts_with("void: ") && !line.contains("other programs had");
    assert!(!printed.lines().any(defect), "{printed}");
    let text = run.read("raw.csv");
    let mut lines_of_file = text.lines().map(cells);
    let names = lines_of_file.next().unwrap();
    let rows: Vec<Row> =
        lines_of_file.map(|row| names.iter().cloned().zip(row).collect()).collect();
    // In the order of the experiment, which is that of `lines`.
    let found: Vec<_> = rows.iter().map(|row| row["line"].as_str()).collect();
    assert_eq!(found, lines, "{printed}");
    rows
}

/// The cells of a row; those with a comma are in quotes.
fn cells(row: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    for letter in row.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            letter => cells.last_mut().unwrap().push(letter),
        }
    }
    cells
}

fn number(row: &Row, name: &str) -> f64 {
    row[name].parse().unwrap_or_else(|_| panic!("{name} in {row:?}"))
}

fn hold(rows: &[Row]) {
    for row in rows {
        assert!(number(row, "bytes") > 0.0 && number(row, "seconds") > 0.0, "{row:?}");
        let used = number(row, "cpu_used_percent");
        // The kernel hands out slices of its own, and charges the last one when it is used up.
        assert!(used > 0.0 && used < 40.0, "the limit of 30% was not kept: {row:?}");
    }
}

/// What keeps the lab from limiting CPU time here.
fn obstacle() -> Option<String> {
    let group = CpuGroup::create(0.5).err().map(|error| format!("{error:#}"));
    group.or_else(|| xdp::probe("lo").unavailable.map(|obstacle| obstacle.to_string()))
}

#[test]
fn a_stream_arrives_whole_whichever_way_it_goes() {
    root_or_skip!();
    // It measures, on both CPUs.
    let _exclusive = exclusive();
    probe_or_skip!(obstacle());
    let rows = run("segment-tcp", &["uplink", "none", "no offload", "kernel GSO", "kernel, none"]);
    hold(&rows);
    assert!(number(&rows[0], "super_packets") > 0.0, "the uplink split nothing: {rows:?}");
    assert!(number(&rows[1], "super_packets") == 0.0, "{rows:?}");
    assert!(number(&rows[1], "other_packets") * 1448.0 >= number(&rows[1], "bytes"), "{rows:?}");
}

#[test]
fn datagrams_arrive_or_are_counted() {
    root_or_skip!();
    // It measures, on both CPUs.
    let _exclusive = exclusive();
    probe_or_skip!(obstacle());
    let lines = ["uplink, USO", "none", "kernel GSO, USO", "uplink, fragments"];
    let rows = run("segment-udp", &lines);
    hold(&rows);
    for row in &rows {
        assert!(number(row, "datagrams_received") <= number(row, "datagrams_sent"), "{row:?}");
    }
    assert!(number(&rows[0], "super_packets") > 0.0, "the uplink split nothing: {rows:?}");
}
