//! `linerate run`: what it sets up, and what it says where it cannot.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use linerate_netns::{Namespace, Veth, VethOptions, root_or_skip, say_skipped};

const LINERATE: &str = env!("CARGO_BIN_EXE_linerate");

/// Whether the library that it preloads stands beside it. A build of the tests leaves it among the
/// dependencies; from there it is put where a build of the workspace has it.
static LIBRARY: LazyLock<bool> = LazyLock::new(|| {
    let beside = Path::new(LINERATE).with_file_name("liblinerate_pcap.so");
    let built = Path::new(LINERATE).with_file_name("deps").join("liblinerate_pcap.so");
    if built.is_file() {
        let _ = std::fs::remove_file(&beside);
        std::fs::hard_link(&built, &beside).expect("a link beside the program");
    }
    beside.is_file()
});

fn has_library(test: &str) -> bool {
    if !*LIBRARY {
        say_skipped(test, "the library is not built: cargo build -p linerate-pcap");
    }
    *LIBRARY
}

fn run(arguments: &[&str]) -> Output {
    Command::new(LINERATE).arg("run").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_program_gets_the_library_and_the_options() {
    if !has_library("a_program_gets_the_library_and_the_options") {
        return;
    }
    let options = ["--source", "xdp", "--take-over", "--pages", "small", "-B", "4096", "-q"];
    let output = run(&[&options[..], &["--", "sh", "-c", "env; exit 7"]].concat());
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let variables = text(&output.stdout);
    for wanted in [
        "LINERATE_SOURCE=xdp",
        "LINERATE_TAKE_OVER=1",
        "LINERATE_PAGES=small",
        "LINERATE_BUFFER=4096",
        "LINERATE_QUIET=1",
    ] {
        assert!(variables.lines().any(|line| line == wanted), "{wanted}: {variables}");
    }
    let preload = variables.lines().find_map(|line| line.strip_prefix("LD_PRELOAD=")).unwrap();
    assert!(preload.contains("liblinerate_pcap.so:/"), "{preload}");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    if !has_library("a_program_that_is_not_there_is_named") {
        return;
    }
    let output = run(&["--", "/nowhere/program"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output.stderr).contains("/nowhere/program"), "{}", text(&output.stderr));
    let output = run(&["--config", "/nowhere/pcap.toml", "--", "true"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/nowhere/pcap.toml"), "{}", text(&output.stderr));
}

/// tcpdump for half a second on an interface with an address, under a source that would cut the host off.
fn refused(quiet: bool) -> String {
    let namespace = Namespace::create("run").unwrap();
    let veth =
        Veth::create(&namespace, "run-a", &namespace, "run-b", VethOptions::default()).unwrap();
    veth.b.add_address("10.2.0.1".parse().unwrap(), 24).unwrap();
    let mut command = namespace.tied(LINERATE);
    command.args(["run", "--source", "xdp"]);
    if quiet {
        command.arg("--quiet");
    }
    command.args(["--", "tcpdump", "-i", "run-b", "-n", "-c", "1", "arp"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Asks for an address that nobody has, until tcpdump has seen one question.
    let deadline = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "tcpdump sees nothing");
        let ask = || std::net::UdpSocket::bind("10.2.0.1:0")?.send_to(&[0], "10.2.0.9:9");
        let _ = namespace.run(ask).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && !output.stdout.is_empty(), "{}", text(&output.stderr));
    text(&output.stderr)
}

#[test]
fn a_source_that_is_refused_is_replaced_and_said_once() {
    root_or_skip!("a_source_that_is_refused_is_replaced_and_said_once");
    if !has_library("a_source_that_is_refused_is_replaced_and_said_once") {
        return;
    }
    let said = refused(false);
    let ours: Vec<_> = said.lines().filter(|line| line.starts_with("linerate: ")).collect();
    assert_eq!(ours.len(), 1, "{said}");
    assert!(ours[0].contains("run-b: going on with source packet"), "{said}");
    assert!(ours[0].contains("10.2.0.1"), "it says what would be cut off: {said}");
    assert!(!refused(true).contains("linerate: "));
}
