//! Status, sessions, flush and the deny list, against what was sent.

use std::fs::File;
use std::process::Command;
use std::time::{Duration, Instant};

use linerate_testkit::{root_or_skip, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::support::Net;
use crate::LINERATE;

/// The client's datagrams from `port`, and the answers, as `sessions` names them.
fn both_ways(family: usize, port: u16) -> [String; 2] {
    let [client, server] = [["10.9.1.2", "10.9.2.2"], ["fd09:1::2", "fd09:2::2"]][family];
    [format!("udp,{client},{port},{server},7000"), format!("udp,{server},7000,{client},{port}")]
}

fn names(sessions: &[Value]) -> Vec<&str> {
    sessions.iter().map(|session| session["session"].as_str().unwrap()).collect()
}

#[test]
fn what_is_sent_is_learned_forwarded_and_counted() {
    root_or_skip!();
    let net = Net::new();
    let daemon = net.run("");
    for family in [0, 1] {
        assert_eq!(net.ask(family, 4000, 200), 200);
        let before = net.count("unknown");
        assert_eq!(net.ask(family, 4000, 100), 100);
        // 200 packets crossed, and not one of them was new to the programs.
        assert_eq!(net.count("unknown"), before);
    }
    let sessions = net.sessions();
    for name in both_ways(0, 4000).iter().chain(&both_ways(1, 4000)) {
        let session = sessions.iter().find(|one| one["session"] == name.as_str());
        let session = session.unwrap_or_else(|| panic!("no {name} in {sessions:?}"));
        assert_eq!(session["packets"], 300, "{session}");
        assert_eq!(session["state"], "fast", "{session}");
        // 8 bytes of payload behind a UDP and an IP header.
        let size = if name.contains("fd09") { 40 + 8 + 8 } else { 20 + 8 + 8 };
        assert_eq!(session["bytes"], 300 * size, "{session}");
        let there = name.starts_with("udp,10.9.1.2") || name.starts_with("udp,fd09:1::2");
        let (from, to) = if there { ("left", "right") } else { ("right", "left") };
        assert_eq!((&session["ingress"], &session["egress"]), (&from.into(), &to.into()));
    }
    let status = &net.json("status")[0];
    assert_eq!(status["state"], "running", "{status}");
    assert_eq!(status["sessions"]["active"], sessions.len(), "{status}");
    assert_eq!(status["ports"][0]["interface"], "left", "{status}");
    assert_eq!(status["ports"][1]["xdp_mode"], "native", "{status}");
    assert!(status["ports"][0]["rx_packets"].as_u64().unwrap() >= 600, "{status}");
    let text = net.stdout_of("status");
    for word in ["running", "left", "right", "unknown"] {
        assert!(text.contains(word), "no {word} in {text}");
    }
    // As the unit does: it may not look at programs, so it does not say that there are none.
    let mut command = net.router.command("setpriv");
    command.args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin", LINERATE]);
    let output = command.args(["forward", "status", "--json"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let port = &status["ports"][1];
    assert_eq!((&port["xdp_mode"], &port["ingress"]["reason"]), (&"unknown".into(), &Value::Null));
    daemon.end(Signal::SIGINT);
}

#[test]
fn sessions_are_filtered_and_sorted() {
    root_or_skip!();
    let net = Net::new();
    let _daemon = net.run("");
    for (port, packets) in [(4001, 10), (4002, 30), (4003, 20)] {
        assert_eq!(net.ask(0, port, packets), packets);
    }
    assert_eq!(net.ask(1, 4004, 40), 40);
    let found = |arguments: &str| {
        let sessions = net.json(&format!("sessions {arguments}"));
        names(&sessions).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let [out, back] = both_ways(0, 4002);
    assert_eq!(
        found("--address 10.9.0.0/16 --port 4002 --sort source"),
        [out.clone(), back.clone()]
    );
    assert_eq!(found("--sort packets --limit 1 --address 10.9.1.2").len(), 1);
    let by_packets = found("--sort packets --address 10.9.0.0/16");
    assert_eq!(by_packets.len(), 6);
    assert!(by_packets[..2].contains(&out) && by_packets[..2].contains(&back), "{by_packets:?}");
    assert_eq!(found("--address fd09::/16").len(), 2);
    assert_eq!(found(&format!("--session {out}")), [out]);
    assert_eq!(found("--protocol tcp"), [""; 0]);
    assert_eq!(found("--interface left --port 4004").len(), 2);
    assert_eq!(found("--nat"), [""; 0]);
    assert_eq!(found("--nat=no").len(), 8);
    let text = net.stdout_of("sessions --port 4004");
    assert!(text.contains("fd09:1::2") && text.contains("left"), "{text}");
    assert_eq!(text.lines().count(), 3, "a line for each below the names of the columns: {text}");
}

#[test]
fn what_is_flushed_is_learned_again() {
    root_or_skip!();
    let net = Net::new();
    let _daemon = net.run("");
    for port in [4001, 4002] {
        assert_eq!(net.ask(0, port, 20), 20);
    }
    assert_eq!(net.json("flush --port 4001")[0]["ended"], 2);
    assert_eq!(names(&net.json("sessions --port 4001")), [""; 0]);
    assert_eq!(net.json("sessions --port 4002").len(), 2);
    assert_eq!(net.json("flush")[0]["ended"], 2);
    assert_eq!(net.sessions(), [Value::Null; 0]);
    assert_eq!(net.ask(0, 4001, 20), 20);
    wait_for("a session again", || {
        net.ask(0, 4001, 5) == 5 && net.json("sessions --port 4001").len() == 2
    });
    assert!(net.stdout_of("flush --port 9").contains('0'));
}

#[test]
fn what_is_blocked_is_dropped_until_it_is_not() {
    root_or_skip!();
    let net = Net::new();
    let _daemon = net.run("");
    for family in [0, 1] {
        let (address, prefix) = [("10.9.1.2", "10.9.2.0/24"), ("fd09:1::2", "fd09:2::/64")][family];
        // An established session, too, at once.
        assert_eq!(net.ask(family, 4000, 20), 20);
        for target in [address, prefix] {
            let before = net.count("denied");
            // The networks are those of the router itself, too.
            if target == prefix {
                let printed = net.refused(&format!("block {target}"), 1);
                assert!(printed.contains("an address of this host") && printed.contains("--force"));
            }
            net.stdout_of(&format!("block --force {target}"));
            assert_eq!(net.ask_in_vain(family, 4000), 0, "{target} is blocked");
            assert!(net.count("denied") > before);
            let list = net.json("blocked");
            assert_eq!(list.len(), 1, "{list:?}");
            assert_eq!(list[0]["target"], target);
            assert!(list[0]["dropped"].as_u64().unwrap() > 0, "{list:?}");
            assert!(net.stdout_of("blocked").contains(target));
            net.stdout_of(&format!("unblock {target}"));
            assert_eq!(net.json("blocked").len(), 0);
            assert_eq!(net.ask(family, 4000, 5), 5);
        }
    }
    let [session, _] = both_ways(0, 4001);
    net.stdout_of(&format!("block {session}"));
    assert_eq!((net.ask_in_vain(0, 4001), net.ask(0, 4002, 5)), (0, 5));
    net.stdout_of("unblock --all");
    assert_eq!(net.ask(0, 4001, 5), 5);
    let printed = net.refused("unblock 192.0.2.1", 1);
    assert!(printed.contains("192.0.2.1"), "{printed}");
}

#[test]
fn a_block_ends_in_time() {
    root_or_skip!();
    let net = Net::new();
    let _daemon = net.run("");
    let before = Instant::now();
    net.stdout_of("block 10.9.1.0/24 --for 6s --force");
    assert_eq!(net.ask_in_vain(0, 4000), 0);
    let left = net.json("blocked")[0]["left"].as_f64().unwrap();
    assert!(left > 0.0 && left <= 6.0, "{left} seconds left");
    wait_for("the block to end", || net.ask_in_vain(0, 4000) == 2);
    assert!(before.elapsed() >= Duration::from_secs(6), "ended after {:?}", before.elapsed());
    assert_eq!(net.ask(0, 4000, 5), 5);
    wait_for("the list to be empty", || net.json("blocked").is_empty());
}

#[test]
fn a_command_that_stops_with_the_deny_list_stops_no_daemon() {
    root_or_skip!();
    let net = Net::new();
    let daemon = net.run("--fail-open-after 2s");
    let maps = format!("/sys/fs/bpf/linerate/forward/{}/maps", net.router.name());
    let list = File::open(maps).unwrap();
    list.lock().unwrap();
    // Longer than it takes to fail open.
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(net.json("status")[0]["state"], "running");
    drop(list);
    net.stdout_of("block 10.9.1.0/24 --force");
    assert_eq!(net.ask_in_vain(0, 4000), 0);
    assert!(daemon.interrupt().0.success());
}

#[test]
fn without_an_instance_it_is_said() {
    root_or_skip!();
    let net = Net::new();
    for verb in ["status", "sessions", "flush", "block 192.0.2.1", "unblock --all", "blocked"] {
        let printed = net.refused(verb, 1);
        assert!(printed.contains("linerate forward run"), "{verb}: {printed}");
    }
    // What is not there need not be taken away.
    net.stdout_of("detach");
    let printed = net.refused("status --instance nowhere", 1);
    assert!(printed.contains("nowhere"), "{printed}");
}

#[test]
fn processes_of_a_container_find_the_same_instance() {
    root_or_skip!();
    // The second cannot see the namespace of process 1, as a service.
    let script = r#""$0" forward status; setpriv --bounding-set=-sys_ptrace --inh-caps=-all "$0" forward status; exit"#;
    let mut command = Command::new("unshare");
    command.args(["--net", "--pid", "--fork", "--mount-proc", "sh", "-c", script, LINERATE]);
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines.len(), 2, "{printed}");
    assert!(lines[0].contains("no instance net-") && lines[0] == lines[1], "{printed}");
}

// By it the unit knows that another start is in vain.
#[test]
fn a_kernel_that_lacks_what_learning_needs_gives_a_status_of_its_own() {
    root_or_skip!();
    let script = r#"ip link add v0 type veth peer name v1 && mount --bind /dev/null /sys/kernel/btf/vmlinux
        exec "$0" forward run -i v0 -i v1"#;
    let mut command = Command::new("unshare");
    let output = command.args(["--net", "--mount", "sh", "-c", script, LINERATE]).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("use Linux 6.2 or newer"), "{printed}");
    assert_eq!(output.status.code(), Some(69), "{printed}");
}

#[test]
fn top_draws_one_view_or_on_a_terminal() {
    root_or_skip!();
    let net = Net::new();
    let _daemon = net.run("");
    assert_eq!(net.ask(0, 4000, 20), 20);
    let view = net.stdout_of("top --once --interval 200ms");
    for word in ["running", "left", "right", "pps", "cpu0"] {
        assert!(view.contains(word), "no {word} in\n{view}");
    }
    let view = &net.json("top --once --interval 200ms")[0];
    assert_eq!(view["sessions"]["active"], 2, "{view}");
    assert!(!view["cpus"].as_array().unwrap().is_empty(), "{view}");
    // The same into a pipe, without borders.
    let view = net.stdout_of("top --interval 200ms");
    assert!(view.contains("cpu0") && !view.contains('│'), "{view}");

    // No line is too long for a terminal, and nothing is left out.
    let on_terminal = |size: &str, arguments: &str| {
        let inner = format!("stty {size}; exec {} forward {arguments}", crate::LINERATE);
        let mut script = net.router.command("script");
        script.args(["--quiet", "--return", "--command", &inner, "/dev/null"]);
        script
    };
    let cases = [("status", "tx bytes"), ("sessions", "idle"), ("top --once --interval 1s", "pps")];
    for (verb, last) in cases {
        let output = on_terminal("rows 24 cols 80", verb).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && printed.contains("left"), "{verb}: {printed}");
        let mut lines = printed.lines().map(|line| line.trim_end_matches('\r'));
        assert!(lines.all(|line| line.chars().count() <= 80), "{verb}: {printed}");
        assert!(printed.contains(last), "{verb}: {printed}");
    }

    // A key on it.
    let mut script = on_terminal("rows 40 cols 120", "top --interval 100ms");
    script.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = script.spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    std::io::Write::write_all(&mut keys, b"pq").unwrap();
    let output = child.wait_with_output().unwrap();
    drop(keys);
    let drawn = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{drawn}");
    for word in ["linerate forward", "running", "left", "cpu0"] {
        assert!(drawn.contains(word), "no {word} in {drawn}");
    }
}
