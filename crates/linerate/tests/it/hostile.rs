//! An unprivileged user of the same host: what that user can read, hold and stop.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use linerate_testkit::{Process, TIMEOUT, root_or_skip, skip};

use crate::LINERATE;
use crate::capture::support::{Cable, write_mixed};
use crate::flow_records::files;

/// A group that every host has.
const GROUP: &str = "daemon";

fn mode_and_group(path: &Path) -> (u32, u32) {
    let found = fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    (found.mode() & 0o7777, found.gid())
}

/// Runs a verb with the umask that most hosts have.
fn linerate(arguments: &str) -> Output {
    let command = format!("umask 022; exec {LINERATE} {arguments}");
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    assert!(output.status.success(), "{arguments}: {output:?}");
    output
}

#[test]
fn packets_and_flow_records_are_for_their_owner_or_a_named_group() {
    root_or_skip!();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write_mixed(&path("in.pcap"));
    let at = |name: &str| path(name).display().to_string();
    let input = at("in.pcap");
    linerate(&format!("capture -q -r {input} -w {}", at("own.pcapng")));
    linerate(&format!("capture -q -r {input} -w {} -b packets:60", at("ring.pcapng.zst")));
    linerate(&format!("segment {input} -w {}", at("split.pcap")));
    linerate(&format!("capture -q -r {input} --flows {} --sensor a", at("flows")));
    let rings = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let rings: Vec<_> =
        rings.filter(|path| path.to_str().is_some_and(|path| path.contains("ring_"))).collect();
    let records = files(&path("flows"));
    assert!(rings.len() == 2 && !records.is_empty(), "{rings:?} {records:?}");
    for path in [path("own.pcapng"), path("split.pcap")].iter().chain(&rings).chain(&records) {
        assert_eq!(mode_and_group(path), (0o600, 0), "{}", path.display());
    }
    // A file that was there keeps what its owner gave it, as with dumpcap.
    fs::set_permissions(path("own.pcapng"), Permissions::from_mode(0o664)).unwrap();
    linerate(&format!("capture -q -r {input} -w {}", at("own.pcapng")));
    assert_eq!(mode_and_group(&path("own.pcapng")), (0o664, 0));

    let group = Command::new("getent").args(["group", GROUP]).output().unwrap();
    let Some(number) = String::from_utf8_lossy(&group.stdout).split(':').nth(2).map(str::to_owned)
    else {
        skip!("there is no group {GROUP}");
    };
    let number = number.trim().parse().unwrap();
    let both = format!("-w {} --flows {} --sensor b", at("shared.pcap"), at("more/flows"));
    linerate(&format!("capture -q -r {input} {both} --group {GROUP}"));
    assert_eq!(mode_and_group(&path("shared.pcap")), (0o640, number));
    let records = files(&path("more"));
    assert_eq!(records.len(), 1);
    assert_eq!(mode_and_group(&records[0]), (0o640, number));
    for folder in records[0].ancestors().skip(1).take_while(|above| *above != folder.path()) {
        assert_eq!(mode_and_group(folder), (0o750, number), "{}", folder.display());
    }
    let wrong = ["capture", "-r", &input, "-w", &at("x.pcap"), "--group", "nosuchgroup"];
    let output = Command::new(LINERATE).args(wrong).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2) && printed.contains("no group nosuchgroup"),
        "{printed}"
    );
}

/// Runs a shell command as nobody.
fn nobody(command: &str) -> Command {
    let mut run = Command::new("setpriv");
    run.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", command]);
    run
}

#[test]
fn nobody_cannot_lock_the_files_of_a_capture() {
    root_or_skip!();
    if nobody("true").output().is_err() {
        skip!("needs setpriv");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let input = folder.path().join("in.pcap");
    write_mixed(&input);
    // What an interrupted meter of an earlier version left, readable by all.
    let state = folder.path().join(".sensor=a");
    File::create(&state).unwrap().set_permissions(Permissions::from_mode(0o644)).unwrap();
    let at = folder.path().display();
    linerate(&format!("capture -q -r {} --flows {at} --sensor a", input.display()));
    // The state file of a running one.
    let mut meter = Command::new(LINERATE);
    meter.args(["capture", "-q", "-r", "-", "--sensor", "b", "--flows"]).arg(folder.path());
    let mut running = meter.stdin(Stdio::piped()).spawn().unwrap();
    let mut packets = running.stdin.take().unwrap();
    packets.write_all(&fs::read(&input).unwrap()).unwrap();
    let state = folder.path().join(".sensor=b");
    let deadline = Instant::now() + TIMEOUT;
    while !state.exists() && Instant::now() < deadline {
        sleep(Duration::from_millis(5));
    }
    assert_eq!(mode_and_group(&state).0, 0o600);
    // A packet file that is locked stays when --keep-free needs room.
    linerate(&format!("capture -q -r {} -w {at}/own.pcap", input.display()));
    for file in [&state, &folder.path().join("own.pcap")] {
        let locked = nobody(&format!("flock -n '{}' true", file.display())).output().unwrap();
        assert!(!locked.status.success(), "{}: {locked:?}", file.display());
    }
    drop(packets);
    running.wait().unwrap();
}

#[test]
fn clients_of_the_metrics_leave_descriptors_for_files() {
    root_or_skip!();
    if Command::new("prlimit").arg("--version").output().is_err() {
        skip!("needs prlimit");
    }
    let (cable, folder) = (Cable::new(), tempfile::tempdir().unwrap());
    let mut command = cable.far.command("prlimit");
    command.args(["--nofile=80:80", LINERATE, "capture", "-i", "far", "-c", "50", "-U"]);
    command.args(["--metrics", "9797", "-b", "packets:5", "-w"]).arg(folder.path().join("x.pcap"));
    let mut capture = Process::start(command.arg("udp"));
    capture.until("listening on");
    let connect = || {
        let address = "127.0.0.1:9797".parse().unwrap();
        TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok()
    };
    let clients = || (0..1100).map_while(|_| connect()).collect::<Vec<_>>();
    let clients = cable.far.run(clients).unwrap();
    assert!(clients.len() > 80, "{}", clients.len());
    cable.send(50, 100);
    let (status, _, printed) = capture.wait();
    assert!(status.success(), "{printed}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 10, "{printed}");
}
