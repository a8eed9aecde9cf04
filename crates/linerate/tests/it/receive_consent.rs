//! `linerate receive` takes messages from the host only with consent, and says what they bypass.

use std::process::Command;

use linerate_testkit::{Process, root_or_skip};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::LINERATE;
use crate::receive::{Hosts, back_ends};

/// What it prints, and its report after 20 messages.
fn run(hosts: &Hosts, arguments: &str) -> (String, Value) {
    let receiving = hosts.receive(&format!("{arguments} --count 20 --for 60s"));
    hosts.send("--count 20 --rate 20k");
    let (status, report, printed) = receiving.wait();
    assert!(status.success(), "{printed}");
    (printed, serde_json::from_str(&report).unwrap())
}

#[test]
fn auto_takes_nothing_and_take_over_takes_where_it_can() {
    root_or_skip!();
    let hosts = Hosts::new();
    let has_xdp = back_ends(&hosts, "auto_takes_nothing").contains(&"xdp");
    let (printed, report) = run(&hosts, "");
    assert_eq!((&report["backend"], &report["messages"]), (&"gro".into(), &20.into()), "{report}");
    assert_eq!(printed.contains("--take-over: about twice as fast"), has_xdp, "{printed}");
    // Consent is not what several readers lack.
    for arguments in ["--threads 2", "--reuseport flow", "--backend gro"] {
        let (printed, report) = run(&hosts, arguments);
        assert_eq!(report["backend"], "gro", "{arguments}: {report}");
        assert!(!printed.contains("--take-over"), "{arguments}: {printed}");
    }
    let (printed, report) = run(&hosts, "--take-over --threads 2");
    assert_eq!(report["backend"], "gro", "{report}");
    assert!(printed.contains("not xdp: its rings have one reader"), "{printed}");
    if !has_xdp {
        return;
    }
    let rule = "add table inet t { chain c { type filter hook input priority 0 ; udp dport 7000 drop ; } ; }";
    assert!(hosts.here.command("nft").args(rule.split(' ')).status().unwrap().success());
    for arguments in ["--take-over", "--backend xdp"] {
        let (printed, report) = run(&hosts, arguments);
        assert_eq!(report["backend"], "xdp", "{report}");
        assert_eq!(report["ring_messages"], 20, "{report}");
        let bypassed = "messages bypass what is here: nftables chain t c";
        assert!(printed.contains(bypassed), "{arguments}: {printed}");
        assert!(!printed.contains("--take-over: about"), "{printed}");
    }
    // Without consent the rule counts.
    let receiving: Process = hosts.receive("");
    hosts.send("--count 20 --rate 20k");
    let (_, report, _) = receiving.end(Signal::SIGINT);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["backend"], &report["messages"]), (&"gro".into(), &0.into()), "{report}");
}

#[test]
fn options_of_xdp_need_consent() {
    for (arguments, words) in [
        ("--take-over --backend gro", "--take-over is for --backend auto: gro was asked for"),
        ("--ring 1M", "--ring is for the backend xdp: add --take-over"),
        ("--xdp-delivery ringbuf", "--xdp-delivery is for the backend xdp: add --take-over"),
    ] {
        let mut command = Command::new(LINERATE);
        command.args(["receive", "--bind", "127.0.0.1:0", "--for", "1s"]);
        let output = command.args(arguments.split(' ')).output().unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {printed}");
        assert!(printed.contains(words), "{arguments}: {printed}");
    }
}
