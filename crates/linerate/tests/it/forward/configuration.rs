//! Error messages of configuration files, and command lines that are accepted.

use std::fs;
use std::process::{Command, Output};

use linerate_forward::runtime::pins::Pins;
use linerate_forward::table::control::Control;
use linerate_testkit::root_or_skip;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::support::Net;
use crate::LINERATE;

fn forward(arguments: &[&str]) -> Output {
    Command::new(LINERATE).arg("forward").args(arguments).output().unwrap()
}

/// What `check-config` says of `text`, and its exit status.
fn check(text: &str, arguments: &[&str]) -> (String, String, i32) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    let path = file.path().to_str().unwrap();
    let output = forward(&[&["check-config", path], arguments].concat());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().unwrap())
}

#[test]
fn a_good_file_is_printed_with_every_value() {
    let file = "interfaces = [\"eth1\", \"eth2\"]\nmax-sessions = \"2M\"\nudp-idle = \"90s\"\n";
    let (whole, errors, status) = check(file, &[]);
    assert_eq!((status, errors.as_str()), (0, ""));
    for line in [
        "interfaces = [\"eth1\", \"eth2\"]",
        "max-sessions = 2000000",
        "udp-idle = \"1m30s\"",
        "statistics = \"slot\"",
        "metrics = \"127.0.0.1:9818\"",
    ] {
        assert!(whole.lines().any(|one| one == line), "no {line} in\n{whole}");
    }
    // What it prints is a file again.
    assert_eq!(check(&whole, &[]), (whole.clone(), String::new(), 0));
    let (json, _, status) = check(file, &["--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((status, &json["max-sessions"]), (0, &Value::from(2_000_000)));
}

#[test]
fn a_bad_file_is_said_with_the_place() {
    for (file, words) in [
        ("interfaces = [\"eth1\"]\nudp-idle = \"30\"\n", &["line 2", "lacks its unit"][..]),
        ("interfaces = [\"eth1\"]\nudp-idel = \"30s\"\n", &["line 2", "udp-idel", "udp-idle"]),
        ("interfaces = [\"eth1\", \"eth1\"]\n", &["line 1", "named twice"]),
        ("interfaces = [\n", &["line 1"]),
        ("max-sessions = \"1G\"\n", &["line 1", "50000000"]),
        ("statistics = \"both\"\n", &["line 1", "both", "slot"]),
        ("block = [\"192.0.2.1/24\"]\n", &["line 1", "192.0.2.0/24"]),
        ("metrics = \"98180\"\n", &["line 1", "127.0.0.1:9818"]),
        ("\n", &["no interface is named"]),
    ] {
        let (whole, errors, status) = check(file, &[]);
        assert_eq!((status, whole.as_str()), (1, ""), "{file}: {errors}");
        for word in words {
            assert!(errors.contains(word), "{file}: no {word:?} in {errors}");
        }
    }
    let output = forward(&["check-config", "/nowhere/forward.toml"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("/nowhere/forward.toml"), "{errors}");
}

#[test]
fn a_wrong_command_line_is_refused_with_2() {
    for (arguments, word) in [
        (&["run"][..], "--interface"),
        (&["run", "-i", "eth1", "--udp-idle", "30"], "lacks its unit"),
        (&["run", "-i", "eth1", "--statistics", "both"], "none"),
        (&["run", "-i", "eth1", "--metrics", "98180"], "127.0.0.1:9818"),
        (&["block", "192.0.2.1/24"], "192.0.2.0/24"),
        (&["block", "tcp,192.0.2.1,1,2001:db8::1,2"], "two families"),
        (&["block", "192.0.2.1", "--for", "0s"], "longer than 0s"),
        (&["unblock"], "ADDRESS"),
        (&["sessions", "--sort", "luck"], "bytes"),
        (&["top", "--json"], "--once"),
        (&["top", "--interval", "1ms"], "100ms"),
    ] {
        let output = forward(arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(word), "{arguments:?}: {errors}");
    }
}

/// The unit is what systemd itself takes for one.
#[test]
fn systemd_takes_the_unit() {
    let unit =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd/linerate-forward.service.in");
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("prefix");
    fs::create_dir_all(prefix.join("bin")).unwrap();
    std::os::unix::fs::symlink(LINERATE, prefix.join("bin/linerate")).unwrap();
    let text = fs::read_to_string(unit)
        .unwrap()
        .replace("@PREFIX@", prefix.to_str().unwrap())
        .replace("@SYSCONFDIR@", "/etc");
    let made = folder.path().join("linerate-forward.service");
    fs::write(&made, text).unwrap();
    let Ok(verified) =
        Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&made).output()
    else {
        let reason = "systemd-analyze is not installed";
        linerate_testkit::skip!(reason);
    };
    let printed = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && printed.is_empty(), "{printed}");
}

/// The example is a configuration, and what it shows as defaults are those.
#[test]
fn the_example_shows_the_defaults() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/forward.toml");
    let example = fs::read_to_string(path).unwrap();
    let (whole, errors, status) = check(&example, &[]);
    assert_eq!(status, 0, "{errors}");
    let shown = example.replace("\n#", "\n");
    let shown: String =
        shown.lines().filter(|line| line.contains(" = ")).map(|line| format!("{line}\n")).collect();
    let (same, errors, status) = check(&shown, &[]);
    assert_eq!((status, same), (0, whole), "{errors}");
}

#[test]
fn checksums_are_verified_as_the_file_says() {
    root_or_skip!();
    let net = Net::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |verify: bool| {
        let text = format!(
            "interfaces = [\"left\", \"right\"]\nmax-sessions = 4096\nverify-checksums = {verify}\n"
        );
        fs::write(file.path(), text).unwrap();
    };
    let control = || Control::open(&Pins::of(net.router.name()).maps().unwrap()).unwrap();
    write(true);
    let mut daemon = net.begin(&format!("-c {}", file.path().display()), |_| {});
    daemon.until("ready: forwarding");
    assert!(control().verifies_checksums());
    let generation = control().generation();
    write(false);
    daemon.signal(Signal::SIGHUP);
    daemon.until("configuration reloaded");
    assert!(!control().verifies_checksums());
    assert_ne!(control().generation(), generation, "sessions keep what they were learned with");
    daemon.end(Signal::SIGTERM);
    let daemon = net.run("--verify-checksums");
    assert!(control().verifies_checksums());
    daemon.end(Signal::SIGTERM);
}
