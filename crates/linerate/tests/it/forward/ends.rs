//! How an accelerator starts and ends: by a signal, `kill -9`, a successor, or `detach`.

use std::time::Duration;

use linerate_forward::runtime::memory::Memory;
use linerate_forward::runtime::pins::Pins;
use linerate_forward::runtime::program::Options;
use linerate_testkit::tools::run;
use linerate_testkit::{Process, root_or_skip, skip, wait_for};
use nix::sys::signal::Signal;

use super::support::Net;
use crate::LINERATE;

/// Whether anything is pinned for instances with this name.
fn pins(net: &Net) -> Vec<String> {
    let name = net.router.name();
    let list = std::fs::read_dir("/sys/fs/bpf/linerate/forward").into_iter().flatten();
    let names = list.flatten().map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|one| one.contains(name)).collect()
}

#[test]
fn a_signal_ends_it_and_nothing_is_left() {
    root_or_skip!();
    let net = Net::new();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let daemon = net.run("");
        assert!(net.left.a.has_xdp().unwrap() && net.right.a.has_xdp().unwrap());
        // Without GRO it takes redirected frames by a program only.
        assert!(net.left.b.has_xdp().unwrap() && net.right.b.has_xdp().unwrap());
        assert_eq!(pins(&net).len(), 1, "an instance called as its namespace");
        assert_eq!(net.ask(0, 4000, 20), 20);
        let (status, _, printed) = daemon.end(signal);
        assert!(status.success(), "{printed}");
        assert!(!net.is_attached(), "a program after {signal}");
        assert!(!net.left.b.has_xdp().unwrap(), "a program on the other end after {signal}");
        assert_eq!(pins(&net), [""; 0]);
        assert_eq!(net.ask(0, 4000, 5), 5, "the kernel forwards again");
    }
}

#[test]
fn a_signal_during_the_start_leaves_nothing() {
    root_or_skip!();
    let net = Net::new();
    // What it says first, once there is something to take away, and between the two ports.
    for word in ["of the kernel's memory", "port added"] {
        let mut daemon = net.begin("-i left -i right --max-sessions 4096", |_| {});
        daemon.until(word);
        let (status, _, printed) = daemon.end(Signal::SIGTERM);
        assert!(status.success() && printed.contains("detached"), "{word}: {printed}");
        assert!(
            !net.is_attached() && pins(&net).is_empty(),
            "{word}: something is left: {printed}"
        );
        assert!(!net.left.b.has_xdp().unwrap() && !net.right.b.has_xdp().unwrap(), "{printed}");
        assert_eq!(net.ask(0, 4000, 5), 5, "the kernel forwards");
    }
}

#[test]
fn what_was_killed_at_the_start_is_taken_away() {
    root_or_skip!();
    let net = Net::new();
    for word in ["of the kernel's memory", "port added"] {
        let mut daemon = net.begin("-i left -i right --max-sessions 4096", |_| {});
        daemon.until(word);
        daemon.end(Signal::SIGKILL);
        // With or without a record, which is what is pinned last.
        net.stdout_of("detach");
        assert!(!net.is_attached() && pins(&net).is_empty(), "{word}: something is left");
        assert_eq!(net.ask(0, 4000, 5), 5, "the kernel forwards");
    }
}

#[test]
fn a_bpf_file_system_that_is_not_mounted_is_mounted() {
    root_or_skip!();
    let net = Net::new();
    // The first process of the mount namespace stays in it, as on a machine.
    let without = format!(
        "umount -l /sys/fs/bpf; {LINERATE} forward run -i left -i right --max-sessions 4096; exit"
    );
    let mut command = net.router.command_killed_with_parent("unshare");
    command.args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]);
    let mut daemon = Process::start(command.args(["sh", "-c", &without]));
    daemon.until("mounted a BPF file system");
    daemon.until("ready: forwarding");
    assert_eq!(net.ask(0, 4000, 20), 20);
    assert!(net.is_attached() && pins(&net).is_empty(), "it is pinned elsewhere");
    daemon.end(Signal::SIGKILL);
    wait_for("the end of the file system, and of what it kept", || !net.is_attached());
}

/// A process in a mount namespace of its own mounts none: it would end with the process.
#[test]
fn without_a_bpf_file_system_it_says_what_to_do() {
    root_or_skip!();
    let net = Net::new();
    let without = format!("umount -l /sys/fs/bpf; exec {LINERATE} forward run -i left -i right");
    let output = net.router.command("unshare").args(["--mount", "sh", "-c", &without]).output();
    let output = output.unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    for word in ["/sys/fs/bpf", "mount -t bpf -o mode=700 bpf /sys/fs/bpf", "nsenter --net"] {
        assert!(printed.contains(word), "no {word} in {printed}");
    }
    assert!(!net.is_attached());
}

#[test]
fn what_is_refused_leaves_nothing() {
    root_or_skip!();
    let net = Net::new();
    for (arguments, status, word) in [
        ("run -i nowhere -i left", 1, "nowhere"),
        ("run -i left -i lo", 1, "lo"),
        ("run -c /nowhere/forward.toml", 2, "/nowhere/forward.toml"),
        ("run -i left -i right --max-sessions 1", 2, "1024"),
        ("run -i left -i right --metrics 192.0.2.77:9818", 1, "192.0.2.77:9818"),
    ] {
        let printed = net.refused(arguments, status);
        assert!(printed.contains(word), "{arguments}: {printed}");
        assert!(!net.is_attached() && pins(&net).is_empty(), "{arguments}: something is left");
    }
}

#[test]
fn nobody_else_can_have_the_instance() {
    root_or_skip!();
    let net = Net::new();
    let daemon = net.run("");
    let printed = net.refused("run -i left -i right", 1);
    assert!(printed.contains(&daemon.id().to_string()), "who has it: {printed}");
    assert_eq!(net.ask(0, 4000, 20), 20);
    assert_eq!(net.json("status")[0]["state"], "running");
}

#[test]
fn after_a_death_it_goes_on_for_a_while_and_is_adopted() {
    root_or_skip!();
    let net = Net::new();
    let daemon = net.run("--fail-open-after 2s");
    assert_eq!(net.ask(0, 4000, 50), 50);
    let before = net.json("sessions --port 4000");
    daemon.end(Signal::SIGKILL);
    assert!(net.is_attached());
    assert_eq!(net.ask(0, 4000, 50), 50, "in the time that it goes on");
    // Two seconds from the last beat on, everything is the kernel's.
    wait_for("it to be handed back", || net.json("status")[0]["state"] == "fail-open");
    // Commands may tell the kernel's time up to a second early (`Clock::from_boot_time`).
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(net.ask(0, 4000, 5), 5);
    let status = &net.json("status")[0];
    let reasons = status["reasons"].as_array().unwrap();
    let silent = reasons.iter().find(|one| one["name"] == "no-daemon").unwrap();
    assert!(silent["packets"].as_u64().unwrap() >= 10, "{status}");
    // Commands work without a daemon.
    assert_eq!(net.json("sessions --port 4000").len(), before.len());

    let daemon = net.run("");
    assert!(daemon.stderr().contains("adopt"), "{}", daemon.stderr());
    assert_eq!(net.json("status")[0]["state"], "running");
    assert_eq!(net.ask(0, 4000, 10), 10);
    let packets = |sessions: &[serde_json::Value]| sessions[0]["packets"].as_u64().unwrap();
    let after = net.json("sessions --port 4000");
    assert!(packets(&after) >= packets(&before) + 60, "the counts go on: {before:?}, {after:?}");
    let (status, _, printed) = daemon.end(Signal::SIGINT);
    assert!(status.success() && !net.is_attached() && pins(&net).is_empty(), "{printed}");
}

#[test]
fn a_daemon_that_hangs_is_named_and_not_missed() {
    root_or_skip!();
    let net = Net::new();
    let daemon = net.run("--fail-open-after 5s");
    let process = daemon.id();
    assert_eq!(net.json("status")[0]["process"], process);
    daemon.signal(Signal::SIGSTOP);
    wait_for("it to be missed", || {
        net.stdout_of("status").contains(&format!("(process {process}) does not answer"))
    });
    wait_for("it to fail open", || net.json("status")[0]["state"] == "fail-open");
    assert_eq!(net.json("status")[0]["process"], process);
    for printed in [net.stdout_of("status"), net.stdout_of("top --once")] {
        let silent = format!("process {process}");
        assert!(
            printed.contains("failed open") && printed.contains("does not answer"),
            "{printed}"
        );
        assert!(printed.contains(&silent) && !printed.contains("no daemon"), "{printed}");
    }
    daemon.signal(Signal::SIGCONT);
    wait_for("it to go on", || net.json("status")[0]["state"] == "running");
    let (status, _, printed) = daemon.end(Signal::SIGTERM);
    assert!(status.success(), "{printed}");
}

#[test]
fn a_daemon_that_attaches_is_starting() {
    root_or_skip!();
    let net = Net::new();
    let mut daemon = net.begin("-i left -i right --max-sessions 4096", |_| {});
    daemon.until("port added");
    daemon.signal(Signal::SIGSTOP);
    let status = &net.json("status")[0];
    assert_eq!((&status["state"], &status["process"]), (&"starting".into(), &daemon.id().into()));
    assert!(net.stdout_of("status").contains("starting: the daemon"), "{status}");
    daemon.signal(Signal::SIGCONT);
    daemon.until("ready");
    assert_eq!(net.json("status")[0]["state"], "running");
    daemon.end(Signal::SIGTERM);
}

#[test]
fn what_is_left_is_adopted() {
    root_or_skip!();
    let net = Net::new();
    let daemon = net.run("--persist --fail-open-after 4s");
    assert_eq!(net.ask(1, 4000, 20), 20);
    let (status, _, printed) = daemon.end(Signal::SIGTERM);
    assert!(status.success(), "{printed}");
    assert!(net.is_attached());
    assert_eq!(net.json("sessions --port 4000").len(), 2);
    wait_for("the daemon to be missed", || net.json("status")[0]["state"] != "running");
    let daemon = net.run("");
    assert!(daemon.stderr().contains("adopt"), "{}", daemon.stderr());
    assert_eq!(net.json("sessions --port 4000").len(), 2);
    daemon.end(Signal::SIGTERM);
    assert!(!net.is_attached());
}

/// A map of another instance, or none, in the place of one of its own: commands say so, and the next daemon replaces the
/// instance.
#[test]
fn an_instance_without_its_maps_is_replaced() {
    root_or_skip!();
    let net = Net::new();
    net.run("--persist").end(Signal::SIGTERM);
    let maps = format!("/sys/fs/bpf/linerate/forward/{}/maps", net.router.name());
    let map = format!("{maps}/reasons");
    for change in [format!("rm {map}"), format!("mv {maps}/hops {map}")] {
        assert!(net.is_attached());
        run(&net.router, "sh", &["-c", &change], "");
        let printed = net.refused("status", 1);
        assert!(printed.contains(&maps) && printed.contains("`linerate forward run`"), "{printed}");
        let daemon = net.run("--persist");
        assert!(daemon.stderr().contains("it is replaced"), "{}", daemon.stderr());
        assert_eq!(net.ask(1, 4000, 20), 20);
        assert_eq!(net.json("sessions --port 4000").len(), 2);
        daemon.end(Signal::SIGTERM);
    }
    net.stdout_of("detach");
    assert!(!net.is_attached() && pins(&net).is_empty());
}

/// The network namespace has the inode of one that is gone, whose interfaces went with it.
#[test]
fn an_instance_of_a_namespace_that_is_gone_is_replaced() {
    root_or_skip!();
    let net = Net::new();
    net.run("--persist").end(Signal::SIGTERM);
    let pins = Pins::of(net.router.name());
    let lock = pins.lock().unwrap_or_else(|error| panic!("{error}"));
    let mut state = serde_json::to_value(pins.state().unwrap()).unwrap();
    let cookie = state["namespace_cookie"].as_u64().unwrap();
    state["namespace_cookie"] = (cookie - 1).into();
    pins.save_state(&lock, &serde_json::from_value(state).unwrap()).unwrap();
    drop(lock);
    std::fs::remove_dir_all(pins.directory().join("ports")).unwrap();
    let daemon = net.run("");
    let printed = daemon.stderr();
    assert!(printed.contains("it belongs to the network namespace"), "{printed}");
    assert!(printed.contains("it is replaced"), "{printed}");
    assert_eq!(net.ask(1, 4000, 20), 20);
    daemon.end(Signal::SIGTERM);
    assert!(!net.is_attached() && self::pins(&net).is_empty());
}

/// The former tables are there until the new ones are made.
#[test]
fn a_table_that_does_not_fit_is_not_begun() {
    root_or_skip!();
    let largest = Options { max_sessions: 50_000_000, ..Options::default() };
    if Memory::of(&largest).unwrap().check().is_ok() {
        skip!("this machine has room for the largest table");
    }
    let net = Net::new();
    net.run("--persist").end(Signal::SIGTERM);
    assert!(net.is_attached());
    let printed = net.refused("run -i left -i right --max-sessions 50M", 1);
    assert!(printed.contains("would fit"), "{printed}");
    // Nothing that cannot be adopted stays.
    assert!(!net.is_attached() && pins(&net).is_empty(), "{printed}");
    assert_eq!(net.ask(0, 4000, 5), 5, "the kernel forwards");
}

#[test]
fn detach_takes_away_what_is_there() {
    root_or_skip!();
    let net = Net::new();
    let daemon = net.run("--fail-open-after 10s");
    daemon.end(Signal::SIGKILL);
    // At once, though the last beat was a moment ago.
    assert_eq!(net.json("status")[0]["state"], "unattended");
    assert!(net.is_attached());
    net.stdout_of("detach");
    assert!(!net.is_attached() && pins(&net).is_empty());
    assert_eq!(net.ask(0, 4000, 5), 5);

    // Below a daemon that runs: it notices, and ends.
    let daemon = net.run("");
    let json = net.json("detach");
    assert_eq!(json.len(), 1, "{json:?}");
    assert!(!net.is_attached() && pins(&net).is_empty());
    let (status, _, printed) = daemon.wait();
    assert!(status.success() && printed.contains("detach"), "{printed}");
    assert!(!net.is_attached() && pins(&net).is_empty());
}

/// Whose it is, nobody knows: it is named, not passed over.
#[test]
fn detach_all_names_an_instance_whose_record_cannot_be_read() {
    root_or_skip!();
    // Others detach all, too.
    let _alone = linerate_testkit::exclusive();
    let net = Net::new();
    net.run("--persist").end(Signal::SIGTERM);
    let instance = pins(&net).remove(0);
    let record = Pins::of(&instance);
    let lock = record.lock().unwrap_or_else(|error| panic!("{error}"));
    let mut state = serde_json::to_value(record.state().unwrap()).unwrap();
    state["format"] = 1000.into();
    record.save_state(&lock, &serde_json::from_value(state).unwrap()).unwrap();
    drop(lock);
    let output = net.forward("detach --all --json");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    for word in [&instance, "the record is of format 1000", "detach --instance"] {
        assert!(printed.contains(word), "{printed}");
    }
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["unreadable"], serde_json::json!([instance]));
    assert!(net.is_attached());
    // What the message advises. It says what stays.
    let output = net.forward(&format!("detach --instance {instance}"));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    for word in ["window tracking stays", "fixes of the instance are not undone"] {
        assert!(printed.contains(word), "{printed}");
    }
    assert!(!net.is_attached() && pins(&net).is_empty());
}

#[test]
fn a_transfer_survives_the_beginning_and_the_end() {
    root_or_skip!();
    let net = Net::new();
    for family in [0, 1] {
        net.tcp(family, 4 << 20, || {
            let daemon = net.run("");
            std::thread::sleep(Duration::from_millis(200));
            daemon.end(Signal::SIGINT);
        });
        let daemon = net.run("");
        net.tcp(family, 4 << 20, || {
            daemon.end(Signal::SIGKILL);
            drop(net.run(""));
        });
        net.stdout_of("detach");
    }
}

/// Connection tracking saw nothing of the first half, so the second half is far outside of the window that it knows.
#[test]
fn a_translated_transfer_survives_the_end() {
    root_or_skip!();
    let net = Net::new();
    net.router_does("nft add table inet nat");
    net.router_does("nft add chain inet nat out { type nat hook postrouting priority srcnat; }");
    net.router_does("nft add rule inet nat out oifname right masquerade");
    for family in [0, 1] {
        for signal in [Signal::SIGTERM, Signal::SIGKILL] {
            let daemon = net.run("");
            net.tcp(family, 64 << 20, || {
                let sessions = net.sessions();
                assert_eq!(sessions.len(), 2, "learned: {sessions:?}");
                daemon.end(signal);
                if signal == Signal::SIGKILL {
                    net.stdout_of("detach");
                }
            });
            let counters = run(&net.router, "conntrack", &["-S"], "");
            let invalid =
                counters.split_whitespace().filter_map(|word| word.strip_prefix("invalid="));
            let invalid: Vec<_> = invalid.collect();
            let is_none = !invalid.is_empty() && invalid.iter().all(|count| *count == "0");
            assert!(is_none, "family {family}, {signal}: {counters}");
        }
    }
}

#[test]
fn ip_netns_exec_hides_the_instance_which_is_said() {
    root_or_skip!();
    let net = Net::new();
    let name = net.router.name();
    let daemon = net.run("");
    for arguments in ["status", "sessions", "flush", "detach", "detach --all"] {
        let mut command = std::process::Command::new("ip");
        command.args(["netns", "exec", name, LINERATE, "forward"]).args(arguments.split(' '));
        let output = command.output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments}: {printed}");
        for word in ["/sys/fs/bpf", "`ip netns exec`", "`nsenter --net=/run/netns/NAME`"] {
            assert!(printed.contains(word), "{arguments}: {printed}");
        }
        assert!(!printed.contains("there is no instance"), "{arguments}: {printed}");
    }
    // What the message advises.
    let net_file = format!("--net=/run/netns/{name}");
    let outside = [LINERATE, "forward", "status", "--instance", name];
    for words in [outside.as_slice(), &["nsenter", &net_file, LINERATE, "forward", "status"]] {
        let output = std::process::Command::new(words[0]).args(&words[1..]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("running"), "{output:?}");
    }
    let (status, _, printed) = daemon.end(Signal::SIGTERM);
    assert!(status.success(), "{printed}");
}
