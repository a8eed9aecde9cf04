//! `linerate lab` as a user runs it.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use linerate_ring::xdp;
use linerate_testkit::{
    browser, exclusive, print_skipped, probe_or_skip, root_or_skip, skip, wait_for,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::lab;

fn run(arguments: &[&str]) -> Output {
    lab().args(arguments).output().unwrap()
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
    let listed = text(&run(&["list"]).stdout);
    for name in ["capture-rate", "capture-pages"] {
        let line = listed.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("{name} is not in {listed}"));
        assert!(line.contains("; about ") && line.contains("(quick: about "), "no length: {line}");
    }
}

#[test]
fn wrong_names_and_empty_folders_say_what_to_do() {
    let output = run(&["run", "capture-everything"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("capture-rate"), "{}", text(&output.stderr));
    // Before anything is measured: the first of the two has such a measurement.
    for experiments in [&["capture-stage"][..], &["capture-rate", "capture-pages"]] {
        let only = ["--only", if experiments.len() == 1 { "xdp at 65" } else { "xdp at 64" }];
        let output = run(&[&["run"], experiments, &only].concat());
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        let last = experiments[experiments.len() - 1];
        let named = format!("no measurement of {last} is called {}; there are: ", only[1]);
        assert!(printed.contains(&named) && printed.contains(" at "), "{printed}");
        assert_eq!(printed.lines().count(), 1, "{printed}");
    }
    let folder = tempfile::tempdir().unwrap();
    let output = run(&["report", folder.path().to_str().unwrap()]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("linerate lab run"), "{}", text(&output.stderr));
}

#[test]
fn a_run_leaves_raw_data_a_summary_and_a_page_and_nothing_else() {
    root_or_skip!();
    probe_or_skip!(xdp::probe("lo").unavailable);
    let _exclusive = exclusive();
    let out = tempfile::tempdir().unwrap();
    let folder = out.path().to_str().unwrap();
    let child = lab()
        .args([
            "run",
            "capture-pages",
            "--quick",
            "--repeats",
            "1",
            "--only",
            "xdp*at 0",
            // A line has two points.
            "--only",
            "xdp*at 40",
            "--out",
            folder,
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(printed.contains("huge pages lost "), "{printed}");
    assert!(printed.contains("), small pages "), "a figure with its spread: {printed}");
    assert_eq!(namespaces_of(pid), Vec::<String>::new());

    let folder_of_run = fs::read_dir(out.path()).unwrap().next().unwrap().unwrap().path();
    assert!(
        folder_of_run.to_str().unwrap().ends_with("-capture-pages"),
        "{}",
        folder_of_run.display()
    );
    let rows = fs::read_to_string(folder_of_run.join("raw.csv")).unwrap();
    assert_eq!(rows.lines().count(), 1 + 6, "{rows}");
    let summary = fs::read_to_string(folder_of_run.join("summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["void"], serde_json::json!([]), "{summary}");
    assert!(summary["environment"]["kernel"].as_str().unwrap().contains('.'));
    assert_eq!(summary["environment"]["driver"], "veth");
    let mode = summary["environment"]["xdp_mode"].as_str().unwrap();
    assert!(mode.contains("native XDP, AF_XDP sockets"), "as the consumers said: {mode}");

    let drawn = run(&["report", folder]);
    assert!(drawn.status.success(), "{}", text(&drawn.stderr));
    let page = fs::read_to_string(out.path().join("index.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("small pages"));
    if !browser::is_installed() {
        return print_skipped("the_page_of_a_run_in_a_browser", "chromium is not installed");
    }
    for (width, dark) in [(1280, false), (390, true)] {
        browser::open(&page, width, dark).hold(dark);
    }
}

#[test]
fn an_interrupted_run_leaves_nothing_behind() {
    root_or_skip!();
    if !Path::new("/usr/bin/tcpdump").exists() && !Path::new("/usr/sbin/tcpdump").exists() {
        skip!("tcpdump is not installed");
    }
    let _exclusive = exclusive();
    let out = tempfile::tempdir().unwrap();
    let mut child = lab()
        .args(["run", "capture-stage", "--out", out.path().to_str().unwrap()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    wait_for("the two hosts", || namespaces_of(pid).len() == 2);
    std::thread::sleep(Duration::from_millis(1500));
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGINT).unwrap();
    wait_for("its end after SIGINT", || child.try_wait().unwrap().is_some());
    assert!(!child.wait().unwrap().success());
    assert_eq!(namespaces_of(pid), Vec::<String>::new());
}

/// The children of a process, by name.
fn children_of(pid: u32) -> Vec<(u32, String)> {
    let parent_of = |stat: &str| stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok();
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|child| {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).ok()?;
        (parent_of(&stat)? == pid).then_some(())?;
        Some((child, fs::read_to_string(format!("/proc/{child}/comm")).ok()?.trim().to_owned()))
    })
    .collect()
}

/// Whether a process is there and is not only waiting to be reaped.
fn lives(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z')))
}

fn notes() -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir("/run/linerate").into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

#[test]
fn a_killed_lab_takes_its_programs_along_and_the_next_gives_its_pages_back() {
    root_or_skip!();
    probe_or_skip!(xdp::probe("lo").unavailable);
    if !Path::new("/usr/bin/setpriv").exists() {
        skip!("setpriv is not installed");
    }
    let _exclusive = exclusive();
    let out = tempfile::tempdir().unwrap();
    let start = |repeats: &str| {
        lab()
            .args(["run", "capture-pages", "--quick", "--only", "xdp*small pages at 0"])
            .args(["--repeats", repeats, "--out", out.path().to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let pool = || fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap();
    let (before, known) = (pool(), notes());
    let mut lab = start("5");
    let pid = lab.id();
    let consumer = || children_of(pid).into_iter().find(|(_, name)| name == "linerate-lab");
    wait_for("a consumer", || consumer().is_some());
    let (raised, left) = (pool(), notes());
    let programs = children_of(pid);
    lab.kill().unwrap();
    lab.wait().unwrap();
    wait_for("its programs to end", || !programs.iter().any(|(pid, _)| lives(*pid)));

    // No room for huge pages, or enough of them before: nothing was added, and nothing is to be noted.
    let added = left.into_iter().find(|note| !known.contains(note));
    let written = added.as_ref().map(|note| fs::read_to_string(note).unwrap());
    assert_eq!(written.is_some_and(|pages| pages != "0"), raised != before, "{before} {raised}");
    assert!(start("1").wait().unwrap().success());
    assert!(added.is_none_or(|note| !note.exists()), "the next one has taken the note");
    assert_eq!(pool(), before);
    assert_eq!(namespaces_of(pid), Vec::<String>::new());
}
