//! The experiments on forwarding as a user runs them: frames cross, on the path that they should take.

use linerate_testkit::{Namespace, exclusive, root_or_skip};

use crate::{Run, lab};

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
    let routers = ["Linux", "fib mode", "Linerate", "plain redirect"];
    let kinds =
        ["Linerate, translated", "Linerate TC, translated", "Linerate, IPv6", "Linerate, tagged"];
    let only: Vec<_> = routers.iter().chain(&kinds).map(|line| format!("{line} at 64")).collect();
    let run = Run::new("forward-size", &only.iter().map(String::as_str).collect::<Vec<_>>());
    // No field before the last has a comma then.
    let (printed, raw) = (&run.printed, run.read("raw.csv").replace(", ", ": ").replace('"', ""));
    for line in routers.into_iter().chain(kinds) {
        let line = &line.replace(", ", ": ");
        let row = row(&raw, line);
        let [sent, arrived, dropped] = [5, 6, 7].map(|at| row[at].parse::<u64>().unwrap());
        assert_eq!(sent, 2_000_000, "{raw}");
        assert!(arrived > 0 && arrived + dropped >= sent, "{line} lost frames: {raw}{printed}");
        if !["Linux", "plain redirect"].contains(&line.as_str()) {
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
    let run = Run::new("forward-sessions", &["TCP, Linerate at 21000"]);
    let (printed, raw) = (&run.printed, run.read("connections.csv"));
    let row = row(&raw.replace("\"TCP, Linerate\"", "TCP"), "TCP").join(" ");
    let fields: Vec<u64> = row.split(' ').skip(3).map(|word| word.parse().unwrap()).collect();
    assert!(fields[0] == 21_000 && fields[1] >= 42_000, "{raw}{printed}");
}

/// `ip netns exec` mounts a /sys without the BPF file system: the lab mounts one for itself, and nothing remains.
#[test]
fn forward_runs_where_no_bpf_file_system_is_mounted() {
    root_or_skip!();
    let _exclusive = exclusive();
    let namespace = Namespace::create("lab-bpffs").unwrap();
    let mut command = std::process::Command::new("ip");
    command.args(["netns", "exec", namespace.name()]).arg(lab().get_program());
    let run = Run::of(command, "forward-size", &["Linerate at 64"]);
    let raw = run.read("raw.csv");
    let arrived: u64 = row(&raw, "Linerate")[6].parse().unwrap();
    assert!(arrived > 0, "{raw}{}", run.printed);
}
