//! `linerate lab` as a user runs it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use linerate_netns::{root_or_skip, say_skipped};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn linerate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_linerate")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The namespaces that the process `pid` made and did not remove.
fn namespaces_of(pid: u32) -> Vec<String> {
    let Ok(entries) = fs::read_dir("/run/netns") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.contains(&format!("-{pid}-")))
        .collect()
}

#[test]
fn the_experiments_of_the_issue_are_listed() {
    let listed = text(&linerate(&["lab", "list"]).stdout);
    for name in ["capture-rate", "capture-loss", "capture-tlb", "capture-load"] {
        let line = listed.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("{name} is not in {listed}"));
        assert!(line.contains("; about ") && line.contains("(quick: about "), "no length: {line}");
    }
}

#[test]
fn wrong_names_and_empty_folders_say_what_to_do() {
    let output = linerate(&["lab", "run", "capture-everything"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("capture-rate"), "{}", text(&output.stderr));
    let output = linerate(&["lab", "run", "capture-stage", "--only", "xdp at 65"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("xdp at 64; "), "{}", text(&output.stderr));
    let folder = tempfile::tempdir().unwrap();
    let output = linerate(&["lab", "report", folder.path().to_str().unwrap()]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("linerate lab run"), "{}", text(&output.stderr));
}

#[test]
fn a_run_leaves_raw_data_a_summary_and_a_page_and_nothing_else() {
    root_or_skip!("a_run_leaves_raw_data_a_summary_and_a_page_and_nothing_else");
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().to_str().unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(["lab", "run", "capture-tlb", "--quick", "--repeats", "1", "--out", folder])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("huge pages against small pages"), "{said}");
    assert!(said.contains(") a frame"), "a figure with its spread: {said}");
    assert_eq!(namespaces_of(pid), Vec::<String>::new());

    let run = fs::read_dir(out.path()).unwrap().next().unwrap().unwrap().path();
    assert!(run.to_str().unwrap().ends_with("-capture-tlb"), "{}", run.display());
    let rows = fs::read_to_string(run.join("walks.csv")).unwrap();
    assert_eq!(rows.lines().count(), 1 + 3, "{rows}");
    let summary = fs::read_to_string(run.join("summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["void"], serde_json::json!([]), "{summary}");
    assert!(summary["facts"]["kernel"].as_str().unwrap().contains('.'));
    assert_eq!(summary["facts"]["driver"], "veth");
    let mode = summary["facts"]["xdp_mode"].as_str().unwrap();
    assert!(mode.contains("native XDP, AF_XDP sockets"), "as the consumers said: {mode}");

    let drawn = linerate(&["lab", "report", folder]);
    assert!(drawn.status.success(), "{}", text(&drawn.stderr));
    let page = fs::read_to_string(out.path().join("index.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("small pages"));
}

#[test]
fn an_interrupted_run_leaves_nothing_behind() {
    const NAME: &str = "an_interrupted_run_leaves_nothing_behind";
    root_or_skip!(NAME);
    if !Path::new("/usr/bin/tcpdump").exists() && !Path::new("/usr/sbin/tcpdump").exists() {
        say_skipped(NAME, "tcpdump is not installed");
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .args(["lab", "run", "capture-stage", "--out", out.path().to_str().unwrap()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    let deadline = Instant::now() + Duration::from_secs(30);
    while namespaces_of(pid).len() < 2 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(namespaces_of(pid).len(), 2, "the two hosts");
    std::thread::sleep(Duration::from_millis(1500));
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGINT).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "it goes on after SIGINT");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(!status.success());
    assert_eq!(namespaces_of(pid), Vec::<String>::new());
}
