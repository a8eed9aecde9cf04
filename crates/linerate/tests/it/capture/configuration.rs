//! `--config`, and the service that uses it.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};

use linerate_testkit::{Process, root_or_skip, skip};
use nix::sys::signal::Signal;

use super::support::Cable;
use crate::LINERATE;
use crate::service_manager::ServiceManager;

const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");

fn run(folder: &Path, text: &str, arguments: &[&str]) -> Output {
    let file = folder.join("test.toml");
    fs::write(&file, text).unwrap();
    Command::new(LINERATE).args(["capture", "--config"]).arg(file).args(arguments).output().unwrap()
}

#[test]
fn a_file_says_what_the_command_line_says_and_the_command_line_wins() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = tempfile::tempdir().unwrap();
    let mut manager = ServiceManager::new(folder.path());
    let file = folder.path().join("test.toml");
    let text = format!(
        "interface = [\"far\"]\nwrite = \"{}/all.pcapng\"\nrotate-size = \"1M\"\ncount = 1000\n\
         json = true\nquiet = false\nno-promiscuous-mode = true\nexpression = \"udp port 5000\"\n",
        folder.path().display()
    );
    fs::write(&file, text).unwrap();
    let mut command = cable.far.command(LINERATE);
    command.args(["capture", "--config", file.to_str().unwrap(), "-c", "10", "-U"]);
    command.env("NOTIFY_SOCKET", &manager.path).env("WATCHDOG_USEC", "400000");
    let capture = Process::start(&mut command);
    manager.until("READY=1");
    manager.until("WATCHDOG=1");
    manager.until("STATUS=0 packets captured, 0 lost");
    cable.send(20, 100);
    manager.until("STOPPING=1");
    let report = capture.report();
    assert_eq!(report["captured"], 10, "{report}");
    assert_eq!(report["filter"]["expression"], "udp port 5000");
    // With -C the first file has the name as it is given.
    assert!(folder.path().join("all.pcapng").exists(), "{report}");
}

#[test]
fn what_a_file_has_wrong_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for (text, words) in [
        ("interfaces = [\"x\"]", &["test.toml", "interfaces", "rotate-size"][..]),
        ("interface = [", &["test.toml", "line 1"]),
        ("threads = 4000", &["test.toml", "--threads", "4000"]),
        ("quiet = \"very\"", &["test.toml", "quiet", "true or false"]),
        ("time-format = \"iso\"", &["test.toml", "time-format", "\"tt\" for -tt"]),
        ("time-format = 2", &["test.toml", "time-format", "\"tt\" for -tt"]),
        ("link-header = \"ee\"", &["test.toml", "link-header", "true or false"]),
        ("count = 1.5", &["test.toml", "count", "float"]),
        ("keep = \"7d\"", &["test.toml", "--write"]),
        ("read = \"x.pcap\"", &["test.toml", "read"]),
    ] {
        let output = run(folder.path(), text, &[]);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}: {printed}");
        assert!(words.iter().all(|word| printed.contains(word)), "{text}: {printed}");
    }
    let none = Command::new(LINERATE).args(["capture", "--config", "/nowhere.toml"]).output();
    let none = none.unwrap();
    assert_eq!(none.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&none.stderr).contains("/nowhere.toml"));
}

#[test]
fn a_file_says_the_time_format_of_the_command_line() {
    root_or_skip!();
    if Command::new("tcpdump").arg("--version").output().is_err() {
        skip!("needs tcpdump");
    }
    let cable = Cable::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("test.toml");
    // The first character of a line: a date, seconds since 1970, or the protocol.
    for (format, first) in [("\"tttt\"", "20"), ("\"tt\"", "1"), ("true", "IP"), ("\"t\"", "IP")] {
        fs::write(&file, format!("interface = \"far\"\ncount = 1\ntime-format = {format}\n"))
            .unwrap();
        let mut command = cable.far.command(LINERATE);
        command.args(["capture", "--config", file.to_str().unwrap(), "udp"]);
        let mut capture = Process::start(&mut command);
        capture.until("listening on");
        cable.send(3, 64);
        let (status, out, printed) = capture.wait();
        assert!(status.success() && out.starts_with(first), "{format}: {out} {printed}");
        let digits = out.split([' ', '.']).next().unwrap().len();
        assert!(format != "\"tt\"" || digits == 10, "{out}");
    }
}

#[test]
fn check_prints_the_command_line_and_opens_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.pcap");
    let text = format!(
        "interface = [\"nowhere0\"]\nwrite = \"{}\"\nwait = true\njson = true\nmetrics = \"127.0.0.1:9\"\n\
         expression = \"inbound and udp port 53\"",
        file.display()
    );
    let output = run(folder.path(), &text, &["--check", "-c", "7"]);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for word in ["nowhere0", "--wait", "-c 7", "-- 'inbound and udp port 53'"] {
        assert!(printed.contains(word), "{word}: {printed}");
    }
    assert!(!printed.contains("--check") && !printed.contains("--config"), "{printed}");
    assert!(!file.exists());
    // It is a command line.
    let again = printed.trim_end().replacen("linerate capture", "exec \"$0\" capture --check", 1);
    let again = Command::new("sh").args(["-c", &again, LINERATE]).output().unwrap();
    assert_eq!(again.stdout, output.stdout, "{again:?}");

    for (text, word) in [
        ("interfaces = [\"x\"]", "interfaces"),
        ("check = true", "check"),
        ("expression = \"udp prt 5\"", "prt"),
        ("relinquish-privileges = \"nosuchuser\"", "nosuchuser"),
        ("write = \"/nowhere/x\"\nkeep = \"1d\"", "--keep"),
        ("filter-file = \"/nowhere/filter\"", "/nowhere/filter"),
    ] {
        let output = run(folder.path(), text, &["--check"]);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}: {printed}");
        assert!(printed.contains(word), "{text}: {printed}");
    }
}

#[test]
fn wait_starts_when_the_interface_is_there() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = tempfile::tempdir().unwrap();
    let mut manager = ServiceManager::new(folder.path());
    let socket = manager.path.clone();
    let start = || {
        let mut command = cable.far.command(LINERATE);
        command.args(["capture", "--wait", "--json", "-c", "1", "-U", "-i", "far", "-i", "late"]);
        command.args(["--metrics", "9819"]).arg("-w").arg(folder.path().join("x.pcapng"));
        Process::start(command.env("NOTIFY_SOCKET", &socket))
    };
    let mut capture = start();
    capture.until("waiting for the interface late");
    manager.until("READY=1");
    let told = &manager.heard;
    assert!(told.contains("READY=1") && told.contains("waiting for the interface late"), "{told}");
    // Who asks for metrics meanwhile is told, too.
    linerate_testkit::tools::ip(&cable.far, "link set lo up");
    let ask = || -> std::io::Result<String> {
        let mut connection = TcpStream::connect(("127.0.0.1", 9819))?;
        connection.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        std::io::read_to_string(connection)
    };
    let answer = cable.far.run(ask).unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("\r\n\r\nwaiting for the interface late"), "{answer}");
    let add = ["ip link add late type veth peer name other", "ip link set late up"];
    for command in add {
        let output = cable.far.command("sh").args(["-c", command]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    capture.until("metrics at");
    let answer = cable.far.run(ask).unwrap().unwrap();
    assert!(answer.contains("verb=\"capture\""), "{answer}");
    cable.send(1, 100);
    let (status, report, printed) = capture.interrupt();
    assert!(status.success() && report["captured"] == 1, "{report} {printed}");
    assert_eq!(printed.matches("waiting").count(), 1, "{printed}");

    let delete = cable.far.command("ip").args(["link", "delete", "late"]).output().unwrap();
    assert!(delete.status.success());
    let mut capture = start();
    capture.until("waiting for the interface late");
    capture.signal(Signal::SIGTERM);
    let (status, _, printed) = capture.wait();
    assert!(status.success(), "{printed}");
}

/// The example is accepted as it is and with every comment taken away; only the interface is missing here.
#[test]
fn the_example_is_a_configuration() {
    let example = fs::read_to_string(format!("{PACKAGING}/capture.toml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let shown = example.replace("\n#", "\n");
    let shown: String =
        shown.lines().filter(|line| line.contains(" = ")).map(|line| format!("{line}\n")).collect();
    for text in [example, shown] {
        let output = run(folder.path(), &text.replace("eth1", "nowhere0"), &["--metrics", "off"]);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains("nowhere0"), "{printed}");
    }
}

/// systemd takes the unit, and finds it confined as that of forward is.
#[test]
fn systemd_takes_the_unit_of_a_capture() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("prefix");
    fs::create_dir_all(prefix.join("bin")).unwrap();
    std::os::unix::fs::symlink(LINERATE, prefix.join("bin/linerate")).unwrap();
    let make = |unit: &str, instance: &str| {
        let text = fs::read_to_string(format!("{PACKAGING}/systemd/{unit}.service.in")).unwrap();
        let text =
            text.replace("@PREFIX@", prefix.to_str().unwrap()).replace("@SYSCONFDIR@", "/etc");
        let made = folder.path().join(format!("{unit}{instance}.service"));
        fs::write(&made, text).unwrap();
        made
    };
    let (capture, forward) = (make("linerate-capture@", "eth1"), make("linerate-forward", ""));
    let analyze = |arguments: &[&str], unit: &Path| {
        Command::new("systemd-analyze").args(arguments).arg(unit).output()
    };
    let Ok(verified) = analyze(&["verify", "--man=no"], &capture) else {
        let reason = "systemd-analyze is not installed";
        skip!(reason);
    };
    let printed = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && printed.is_empty(), "{printed}");
    // What is left open beyond what forward's leaves open is what a capture is made of.
    let open = |unit: &Path| -> BTreeSet<String> {
        let output = analyze(&["security", "--offline=true", "--no-pager"], unit).unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("Overall exposure level"), "{text}{output:?}");
        let open = text.lines().filter_map(|line| line.strip_prefix("✗ ")?.split(' ').next());
        open.map(str::to_owned).collect()
    };
    let more: Vec<_> = open(&capture).difference(&open(&forward)).cloned().collect();
    let needed = [
        "CapabilityBoundingSet=~CAP_NET_(BIND_SERVICE|BROADCAST|RAW)",
        "RestrictAddressFamilies=~AF_PACKET",
        // AF_XDP.
        "RestrictAddressFamilies=~…",
    ];
    assert!(more.iter().all(|one| needed.contains(&one.as_str())), "{more:?}");
}
