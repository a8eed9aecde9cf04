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
    let fields: Vec<u64> = row.split(' ').skip(2).map(|word| word.parse().unwrap()).collect();
    assert!(fields[0] == 21_000 && fields[1] >= 42_000, "{raw}{printed}");
}

/// `ip netns exec` mounts a /sys without the BPF file system.
#[test]
fn what_forward_lacks_is_said_before_the_run() {
    root_or_skip!();
    let namespace = Namespace::create("lab-bpffs").unwrap();
    let out = tempfile::tempdir().unwrap();
    let lab = lab();
    let mut command = std::process::Command::new("ip");
    command.args(["netns", "exec", namespace.name()]).arg(lab.get_program());
    command.args(["run", "forward-size", "--quick", "--repeats", "1", "--out"]).arg(out.path());
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    for word in ["forward-size cannot run", "/sys/fs/bpf", "mount -t bpf bpf", "nsenter --net="] {
        assert!(printed.contains(word), "no {word} in {printed}");
    }
    assert!(!printed.contains("measurements"), "nothing has begun: {printed}");
    assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0);
}
