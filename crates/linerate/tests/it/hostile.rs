//! An unprivileged user of the same host: what that user can read, hold and stop.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use linerate_forward::runtime::pins::Pins;
use linerate_testkit::{Process, TIMEOUT, root_or_skip, skip, wait_for};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::LINERATE;
use crate::capture::support::{Cable, write_mixed};
use crate::flow_records::files;
use crate::forward::support::Net;

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

/// What an unprivileged user is refused, as lines of shell: signals, files, pins, programs, interfaces.
const REFUSED: [&str; 44] = [
    "kill -TERM $CAPTURE",
    "kill -KILL $FORWARD",
    "kill -STOP $FORWARD",
    "kill -HUP $CAPTURE",
    "kill -USR1 $CAPTURE",
    "cat $FILES/x_00001*",
    "flock -n $FILES/x_00001* true",
    "flock -n $FILES/flows/.sensor=c true",
    "flock -n $FILES/flows/.sensor=r true",
    "ln $FILES/x_00001* $FILES/link",
    "ln -s $FILES/victim $FILES/x_00002.pcap",
    "ln -s $FILES/victim $FILES/state/doctor.new",
    "mkdir $FILES/flows/date=2026-01-01",
    "mkfifo $FILES/x_00003.pcap",
    "mv $FILES/flows $FILES/other",
    "rm -r $FILES/flows",
    "rm -f $FILES/x_00001*",
    "chmod 777 $FILES",
    "echo >>$FILES/victim",
    "touch $FILES/state/doctor.json",
    "mkdir $PINS.other",
    "mv $PINS $PINS.other",
    "rm -r $PINS",
    "cat $PINS/*",
    "flock -n $PINS true",
    "cat /proc/$FORWARD/mem",
    "ls /proc/$FORWARD/fd",
    "echo 1000 >/proc/$CAPTURE/oom_score_adj",
    "prlimit --pid $CAPTURE --nofile=3",
    "taskset -p 1 $CAPTURE",
    "renice -n 19 -p $CAPTURE",
    "nsenter --net=/run/netns/$ROUTER true",
    "umount /run/netns/$ROUTER",
    "rm /run/netns/$ROUTER",
    "sysctl -q -w net.ipv4.ip_forward=0",
    "ip link set far down",
    "ip link set far xdp off",
    "tc qdisc add dev far root pfifo",
    "$LINERATE forward detach --instance $ROUTER",
    "$LINERATE forward block 10.9.1.2 --force --instance $ROUTER",
    "$LINERATE capture -i far --source xdp -c 1 --discard",
    "$LINERATE capture -r $FILES/victim -w $FILES/victim",
    "$LINERATE doctor -i far --fix --state $FILES/state/doctor.json",
    "python3 -c 'import socket; s = socket.socket(); s.setsockopt(1, 15, 1); s.bind((\"127.0.0.1\", 9797))'",
];

/// What the user may do, and does until the end.
const HELD: [&str; 8] = [
    "flock $FILES sh -c 'echo held; sleep 60'",
    "flock $FILES/flows sh -c 'echo held; sleep 60'",
    "flock $FILES/state sh -c 'echo held; sleep 60'",
    "flock $FILES/victim sh -c 'echo held; sleep 60'",
    "flock /run/netns/$ROUTER sh -c 'echo held; sleep 60'",
    "flock $LINERATE sh -c 'echo held; sleep 60'",
    "tail -F $FILES/x_00001* 2>&1 & echo held; wait",
    "exec python3 -uc 'import socket, time\nopen = [socket.create_connection((\"127.0.0.1\", 9797)) for _ in range(60)]\nprint(\"held\"); time.sleep(60)'",
];

#[test]
fn attempts_of_an_unprivileged_user_stop_no_verb_and_change_no_file() {
    root_or_skip!();
    if nobody("true").output().is_err() {
        skip!("needs setpriv");
    }
    let (net, cable, folder) = (Net::new(), Cable::new(), tempfile::tempdir().unwrap());
    let open = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    let path = |name: &str| folder.path().join(name);
    let at = folder.path().display();
    for name in ["", "flows", "state"] {
        fs::create_dir_all(path(name)).unwrap();
        open(&path(name));
    }
    write_mixed(&path("victim"));
    fs::set_permissions(path("victim"), Permissions::from_mode(0o644)).unwrap();
    let victim = fs::read(path("victim")).unwrap();
    let flows = format!("--flows {at}/flows --flow-file-time 1s --sensor");
    let capture = cable
        .capture(&format!("-U --json --metrics 9797 -b packets:20 -w {at}/x.pcap {flows} c udp"));
    let forward = net.run(&format!("{flows} r"));
    cable.send(30, 100);
    wait_for("files", || fs::read_dir(folder.path()).unwrap().count() > 4);

    let attempt = |line: &&str| {
        let mut command = cable.far.command("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", line]);
        command.env("FILES", folder.path()).env("LINERATE", LINERATE);
        command.env("CAPTURE", capture.id().to_string()).env("FORWARD", forward.id().to_string());
        command.env("ROUTER", net.router.name());
        command.env("PINS", Pins::of(net.router.name()).directory());
        command
    };
    let hold = |line| {
        let mut holder = Process::start(attempt(line).own_group());
        holder.until("held");
        holder
    };
    let held: Vec<_> = HELD.iter().map(hold).collect();
    for line in &REFUSED {
        let output = attempt(line).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        let reasons =
            ["denied", "not permitted", "superuser", "already in use", "needs the capabilities"];
        let refused = reasons.iter().any(|reason| printed.contains(reason));
        assert!(!output.status.success() && refused, "{line}: {output:?}");
    }

    // The verbs go on, and others of them start.
    assert_eq!(net.ask(0, 4000, 20), 20);
    forward.signal(Signal::SIGHUP);
    net.stdout_of("status");
    assert_eq!(net.ask(1, 4001, 20), 20);
    cable.send(170, 100);
    linerate(&format!("capture -q -r {at}/victim --flows {at}/flows --sensor d"));
    for step in ["--fix", "--undo"] {
        let mut doctor = cable.far.command("ip");
        doctor.args(["netns", "exec", cable.far.name(), LINERATE, "doctor", step]);
        // There is something to fix: this host does not forward.
        doctor.args(if step == "--fix" { &["forward", "-i", "far"][..] } else { &[] });
        let output = doctor.arg("--state").arg(path("state/doctor.json")).output().unwrap();
        assert!(output.status.code().is_some_and(|status| status != 1), "{step}: {output:?}");
    }
    drop(held);
    let (status, report, printed) = capture.interrupt();
    assert!(status.success() && report["written"] == 200, "{report} {printed}");
    assert_eq!(report["interfaces"][0]["dropped"]["total"], 0, "{report}");
    let (status, _, printed) = forward.end(Signal::SIGTERM);
    assert!(status.success() && !net.is_attached(), "{printed}");
    assert_eq!(fs::read(path("victim")).unwrap(), victim);
    let mut folders = vec![folder.path().to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap().map(Result::unwrap) {
            let found = entry.metadata().unwrap();
            assert!(found.uid() == 0 && !found.is_symlink(), "{}", entry.path().display());
            if found.is_dir() {
                folders.push(entry.path());
            }
        }
    }
}

#[test]
fn what_others_put_into_a_shared_folder_is_not_written_and_ends_no_capture() {
    root_or_skip!();
    if nobody("true").output().is_err() {
        skip!("needs setpriv");
    }
    let (cable, folder) = (Cable::new(), tempfile::tempdir().unwrap());
    let at = folder.path().display();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
    let (victim, elsewhere) =
        (tempfile::NamedTempFile::new().unwrap(), tempfile::tempdir().unwrap());
    fs::write(&victim, "whole").unwrap();
    let theirs = format!(
        "cd {at}; ln -s {0} x.pcap1; echo >x.pcap2; chmod 666 x.pcap2; mkdir -p x.pcap3/y; mkfifo x.pcap4; \
         ln -s {0} link.pcap; ln -s {at}/none dangling.pcap; ln -s {0} .sensor=a; ln -s {0} list; \
         ln -s x.pcap4 pipe.pcap; ln -s {1} date=1970-01-01",
        victim.path().display(),
        elsewhere.path().display()
    );
    assert!(nobody(&theirs).status().unwrap().success());

    let capture = cable.capture(&format!("--json -w {at}/x.pcap -C 1 udp"));
    cable.send(5000, 1000);
    let (status, report, printed) = capture.interrupt();
    assert!(status.success() && report["written"] == 5000, "{report} {printed}");
    for number in 1..5 {
        let names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap()).collect();
        let start = format!("x.pcap{number}.");
        let found = names.iter().find(|one| one.file_name().to_str().unwrap().starts_with(&start));
        let found = found.unwrap_or_else(|| panic!("{start} {names:?}")).metadata().unwrap();
        assert!(found.is_file() && found.uid() == 0 && found.len() > 900_000, "{number}");
        let theirs = folder.path().join(format!("x.pcap{number}")).symlink_metadata().unwrap();
        assert_eq!(theirs.uid(), 65534);
        assert!(
            printed
                .contains(&format!("{at}/x.pcap{number}: another user has put something there;")),
            "{printed}"
        );
    }
    // A file that the user names is refused, and stays.
    write_mixed(&folder.path().join("in.pcap"));
    for output in [
        format!("-w {at}/link.pcap"),
        format!("-w {at}/dangling.pcap"),
        format!("-w {at}/x.pcap2"),
        format!("-w {at}/pipe.pcap"),
        format!("--flows {at} --sensor a"),
        format!("--flows {at} --sensor b"),
        format!("-w {at}/y.pcap -b packets:9 -b printname:{at}/list"),
    ] {
        let arguments = format!("capture -q -r {at}/in.pcap {output}");
        let refused = Command::new(LINERATE).args(arguments.split(' ')).output().unwrap();
        let printed = String::from_utf8_lossy(&refused.stderr);
        assert!(
            refused.status.code() == Some(1) && printed.contains("of user 65534"),
            "{output}: {printed}"
        );
    }
    assert!(!folder.path().join("none").exists());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "whole");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

/// Starts connections without waiting for them.
fn connect(count: usize) -> Vec<TcpStream> {
    let address: SocketAddr = "127.0.0.1:9797".parse().unwrap();
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let one = |_| {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).ok()?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => Some(socket.into()),
            Err(_) => None,
        }
    };
    (0..count).map_while(one).collect()
}

fn resident_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A third of the clients sends nothing, a third a header byte by byte, a third reads no answer. `make test-clients`
/// lets them do it for half an hour.
#[test]
fn ten_thousand_clients_of_the_metrics_cost_a_capture_nothing() {
    root_or_skip!();
    if Command::new("prlimit").arg("--version").output().is_err() {
        skip!("needs prlimit");
    }
    let seconds = std::env::var("LINERATE_TEST_CLIENTS_SECONDS");
    let lasts = Duration::from_secs(seconds.map_or(2, |text| text.parse().unwrap()));
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    if hard < 11_000 {
        let reason = format!("needs 11,000 open files: the hard limit (ulimit -Hn) is {hard}");
        skip!(&reason);
    }
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(20_000), hard).unwrap();
    let (cable, folder) = (Cable::new(), tempfile::tempdir().unwrap());
    let mut command = cable.far.command("prlimit");
    // The soft limit is too low even without clients: the capture raises it.
    command.args(["--nofile=12:56", LINERATE, "capture", "-i", "far", "-U", "--json"]);
    command.args(["--metrics", "9797", "--web", "9798", "-b", "packets:5", "-w"]);
    let mut capture = Process::start(command.arg(folder.path().join("x.pcap")).arg("udp"));
    capture.until("listening on");
    cable.send(5, 100);
    let before = resident_kib(capture.id());
    let mut clients = cable.far.run(|| connect(10_000)).unwrap();
    assert_eq!(clients.len(), 10_000);
    let (start, mut sent) = (Instant::now(), 5);
    while start.elapsed() < lasts {
        for (number, client) in clients.iter_mut().enumerate() {
            // It fails on connections that wait or were ended.
            let _ = match number % 3 {
                0 => Ok(0),
                1 => client.write(b"G"),
                _ => client.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            };
        }
        cable.send(50, 100);
        sent += 50;
        sleep(Duration::from_millis(500));
        clients.drain(..1000);
        clients.extend(cable.far.run(|| connect(1000)).unwrap());
    }
    let grown = resident_kib(capture.id()).saturating_sub(before);
    let (status, report, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    assert_eq!(report["written"], sent, "{report}");
    assert_eq!(report["interfaces"][0]["dropped"]["total"], 0, "{report}");
    let files = fs::read_dir(folder.path()).unwrap().count() as u64;
    assert!((sent / 5..=sent / 5 + 1).contains(&files), "{files} files for {sent} packets");
    assert!(grown < 16 << 10, "{grown} KiB");
}
