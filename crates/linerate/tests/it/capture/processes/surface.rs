//! Options, sources, and the end of a capture that finds processes.

use std::fs;
use std::path::Path;
use std::process::Command;

use linerate_bpf::process::cgroup_root;
use linerate_testkit::{Namespace, Process, root_or_skip, skip, wait_for};
use parquet::record::{Field, Row};

use super::super::support::{Cable, folder, listening, read};
use super::support::{Group, Host, PRELUDE, PYTHON, judge, packets, ports, ready_or_skip, words};
use crate::LINERATE;
use crate::flow_records::{self, field, find_number, number};

const TWO_CLIENTS: &str = r#"
group = sys.argv[1]
listener = socket.create_server(("127.0.0.1", 7000))
def server():
    while True: echo(listener.accept()[0])
server_pid = child(server)
def client(group, name):
    if group:
        with open(group + "/cgroup.procs", "w") as procs: procs.write(str(os.getpid()))
    with open("/proc/self/comm", "w") as comm: comm.write(name)
    wait(sys.argv[2])
    for _ in range(10):
        s = socket.create_connection(("127.0.0.1", 7000))
        say("port", s.getsockname()[1], os.getpid())
        s.sendall(b"x"); s.recv(1); s.close()
wanted, other = child(client, group, "wanted"), child(client, "", "other")
say("pids", wanted, other, "started")
for pid in wanted, other: os.waitpid(pid, 0)
time.sleep(0.1)
os.kill(server_pid, 9)
"#;

#[test]
fn packets_of_the_selected_processes_alone_are_captured() {
    ready_or_skip!();
    let id = "fedcba9876543210".repeat(4);
    let group = Group::new(&format!("lnr-who-{}.service", std::process::id()));
    let inner = group.0.join(&id);
    fs::create_dir(&inner).unwrap();
    let unit = group.0.file_name().unwrap().to_str().unwrap();
    let cases: [&[&str]; 5] = [
        &["--pid", "PID"],
        &["--process", "wanted", "--process", "nobody"],
        &["--container", &id[..12]],
        &["--unit", unit.trim_end_matches(".service")],
        &["--pid", "PID", "--process", "wanted", "--unit", unit],
    ];
    for options in cases {
        let host = Host::new("whs");
        let mut script = host.start(TWO_CLIENTS, &[inner.to_str().unwrap(), &host.path("go")]);
        script.until("started");
        let pids = || fs::read_to_string(inner.join("cgroup.procs")).unwrap();
        wait_for("the process in the group", || !pids().is_empty());
        let pids = pids();
        let wanted = pids.trim();
        let options: Vec<&str> =
            options.iter().map(|one| if *one == "PID" { wanted } else { one }).collect();
        let capture = host.capture(&[&options[..], &["tcp"]].concat());
        host.go();
        let truth = ports(&words(&script.wait().1));
        let (status, report, printed) = capture.interrupt();
        assert!(status.success(), "{printed}");
        let all = packets(&host.file());
        let wanted: u32 = wanted.parse().unwrap();
        assert!(all.len() >= 80, "{options:?}: {}", all.len());
        for packet in &all {
            let client = truth.get(&packet.source).or(truth.get(&packet.destination));
            assert_eq!(client, Some(&wanted), "{options:?}: {packet:?}");
        }
        let left_out = report["dropped"]["not_selected"].as_u64().unwrap();
        assert!(left_out >= 80, "{options:?}: {report}");
        assert_eq!(report["dropped"]["total"], 0, "{report}");
        let received = report["received"].as_u64().unwrap();
        assert!(received >= left_out + all.len() as u64, "{report}");
    }
}

#[test]
fn flow_records_name_the_processes_of_both_ends() {
    ready_or_skip!();
    let id = "0123456789abcdef".repeat(4);
    let group = Group::new(&format!("lnr-flow-{}.service", std::process::id()));
    let inner = group.0.join(&id);
    fs::create_dir(&inner).unwrap();
    let unit = group.0.file_name().unwrap().to_str().unwrap();
    let host = Host::new("whr");
    let mut script = host.start(TWO_CLIENTS, &[inner.to_str().unwrap(), &host.path("go")]);
    script.until("started");
    wait_for("the process in the group", || {
        !fs::read_to_string(inner.join("cgroup.procs")).unwrap().is_empty()
    });
    let flows = host.path("flows");
    let capture = host.capture(&["--process-info", "--flows", &flows, "tcp"]);
    host.go();
    let truth = ports(&words(&script.wait().1));
    assert!(capture.interrupt().0.success());
    let records = flow_records::records(Path::new(&flows));
    assert_eq!(records.len(), 20, "{records:?}");
    let text = |row: &Row, name: &str| match field(row, name) {
        Field::Str(text) => Some(text.clone()),
        Field::Null => None,
        other => panic!("{name}: {other:?}"),
    };
    let mut contained = 0;
    for row in &records {
        let port = number(row, "sourceTransportPort") as u16;
        assert_eq!(find_number(row, "sourceProcessId"), Some(truth[&port].into()), "{row}");
        assert!(find_number(row, "destinationProcessId").is_some(), "{row}");
        assert_eq!(number(row, "sourceUserId"), 0);
        let command = text(row, "sourceProcessCommandLine").unwrap();
        assert!(command.starts_with(PYTHON), "{command}");
        let name = text(row, "sourceProcessName").unwrap();
        let is_wanted = name == "wanted";
        assert!(is_wanted || name == "other", "{name}");
        let [container, found] =
            ["sourceContainerId", "sourceUnitName"].map(|name| text(row, name));
        assert_eq!(container, is_wanted.then(|| id.clone()));
        assert_eq!(found.as_deref() == Some(unit), is_wanted, "{found:?}");
        contained += usize::from(is_wanted);
    }
    assert_eq!(contained, 10);
}

const ADDRESS: &str = "10.9.0.2";

/// Answers on these ports; each has a process of its own.
const SERVERS: &str = r#"
def serve(port, stream):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if stream else socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("0.0.0.0", port))
    if stream: s.listen()
    say("port", port, os.getpid())
    while True:
        if stream: echo(s.accept()[0])
        else: data, peer = s.recvfrom(999); s.sendto(data, peer)
pids = [child(serve, int(port[1:]), port[0] == "t") for port in sys.argv[2:]]
time.sleep(0.2); say("started"); wait(sys.argv[1])
for pid in pids: os.kill(pid, 9)
"#;

const ASK: &str = r#"
for kind, port in (socket.SOCK_STREAM, int(sys.argv[2])), (socket.SOCK_DGRAM, int(sys.argv[3])):
    for _ in range(5):
        s = socket.socket(socket.AF_INET, kind); s.settimeout(5)
        s.connect((sys.argv[1], port)); s.send(b"x"); s.recv(9); s.close()
"#;

fn run_in(namespace: &Namespace, script: &str, arguments: &[&str]) -> Process {
    let mut command = namespace.command_killed_with_parent(PYTHON);
    Process::start(command.arg("-c").arg(format!("{PRELUDE}{script}")).args(arguments))
}

#[test]
fn every_source_that_leaves_frames_to_the_host_has_processes() {
    ready_or_skip!();
    let cable = Cable::new();
    for source in ["packet", "tee"] {
        let folder = folder();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let mut servers = run_in(&cable.far, SERVERS, &[&path("go"), "t7000", "u7001"]);
        servers.until("started");
        let capture = cable.capture(&format!("--source {source} --process-info -w {}", path("a")));
        assert!(run_in(&cable.near, ASK, &[ADDRESS, "7000", "7001"]).wait().0.success());
        let (status, _, printed) = capture.interrupt();
        assert!(status.success(), "{printed}");
        fs::write(path("go"), "").unwrap();
        let truth = ports(&words(&servers.wait().1));
        let [right, _, unknown] = judge(&packets(Path::new(&path("a"))), &truth);
        assert!(right >= 20 && unknown * 20 <= right, "{source}: {right}, {unknown} unknown");
    }
    // A dropped packet has its sender, after the reason.
    let host = Host::new("whd");
    let mut command = host.namespace.command(LINERATE);
    command.args(["capture", "-i", "lo", "--source", "drops", "--process-info", "-w"]);
    let capture = listening(command.arg(host.file()).arg("udp"));
    let script = r#"
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("127.0.0.1", 6000))
s.sendto(b"x", ("127.0.0.1", 9)); say("port", 6000, os.getpid()); time.sleep(0.2)
"#;
    let truth = ports(&host.run(script, &[]));
    assert!(capture.interrupt().0.success());
    let dropped = packets(&host.file());
    let dropped = dropped.iter().find(|packet| packet.source == 6000).expect("the dropped one");
    assert!(dropped.comment.starts_with("dropped: "), "{dropped:?}");
    assert_eq!(dropped.pid("sender"), truth.get(&6000).copied());
}

#[test]
fn translated_ports_are_of_no_process_that_has_them() {
    ready_or_skip!();
    let (cable, folder) = (Cable::new(), folder());
    let rules = "table ip nat { chain to { type nat hook prerouting priority dstnat; \
                 tcp dport 80 redirect to :8080; udp dport 53 redirect to :5353; }; }";
    let mut nft = cable.far.command("nft");
    if !nft.arg(rules).output().is_ok_and(|output| output.status.success()) {
        skip!("no nftables");
    }
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let ports_of = ["t80", "t8080", "u53", "u5353"];
    let arguments: Vec<_> = [path("go")].into_iter().chain(ports_of.map(str::to_owned)).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut servers = run_in(&cable.far, SERVERS, &arguments);
    servers.until("started");
    let capture = cable.capture(&format!("--process-info -w {}", path("a")));
    assert!(run_in(&cable.near, ASK, &[ADDRESS, "80", "53"]).wait().0.success());
    assert!(capture.interrupt().0.success());
    fs::write(path("go"), "").unwrap();
    let truth = ports(&words(&servers.wait().1));
    let all = packets(Path::new(&path("a")));
    assert!(all.len() >= 40, "{}", all.len());
    for packet in &all {
        for (port, end) in [(packet.source, "sender"), (packet.destination, "receiver")] {
            if let (80 | 53, Some(pid)) = (port, packet.pid(end)) {
                assert_ne!(truth[&port], pid, "{packet:?}");
            }
        }
    }
}

const BUSY_PARENT: &str = r#"
import subprocess
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); one.bind(("127.0.0.1", 6000))
say("port", 6000, os.getpid())
for _ in range(20):
    subprocess.run(["true"])
    for _ in range(10): one.sendto(b"x", ("127.0.0.1", 9)); time.sleep(0.02)
"#;

#[test]
fn a_process_that_starts_programs_keeps_its_sockets() {
    ready_or_skip!();
    let host = Host::new("whf");
    let capture = host.capture(&["--process-info", "udp"]);
    let truth = ports(&host.run(BUSY_PARENT, &[]));
    assert!(capture.interrupt().0.success());
    let [right, _, unknown] = judge(&packets(&host.file()), &truth);
    println!("{right} right, {unknown} unknown");
    assert!(right + unknown == 200 && right >= 100, "{right} right, {unknown} unknown");
}

#[test]
fn nothing_stays_attached_after_a_kill() {
    ready_or_skip!();
    let host = Host::new("whk");
    let capture = host.capture(&["--process-info"]);
    let folder = format!("/proc/{}/fdinfo", capture.id());
    let links: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.path()).ok())
        .filter_map(|info| {
            Some(info.split_once("link_id:")?.1.split_whitespace().next()?.to_owned())
        })
        .collect();
    assert!(links.len() >= 9, "{links:?}");
    let exists = |id: &String| {
        let mut command = Command::new("bpftool");
        command
            .args(["link", "show", "id", id])
            .output()
            .is_ok_and(|output| output.status.success())
    };
    if !links.iter().all(exists) {
        skip!("no bpftool");
    }
    drop(capture);
    wait_for("the end of the links", || !links.iter().any(exists));
}

#[test]
fn another_user_finds_processes_too() {
    ready_or_skip!();
    let host = Host::new("whz");
    let mut command = host.namespace.command(LINERATE);
    command.args(["capture", "-i", "lo", "--process-info", "-Z", "nobody", "udp"]);
    let mut capture = listening(&mut command);
    // The inherited socket needs a look at all descriptors.
    let script = r#"
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("127.0.0.1", 6000))
def heir():
    for _ in range(100): s.sendto(b"x", ("127.0.0.1", 9)); time.sleep(0.02)
pid = child(heir); s.close(); say("pid", pid); os.waitpid(pid, 0)
"#;
    let pid = &host.run(script, &[])[0][1];
    capture.until(&format!("[sender: python3 ({pid})]"));
    let (status, _, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
}

#[test]
fn a_name_in_a_line_cannot_look_like_another_process() {
    ready_or_skip!();
    let host = Host::new("whn");
    let capture = host.capture(&["--process-info", "udp"]);
    let script = r#"
def liar():
    with open("/proc/self/comm", "w") as comm: comm.write("init (1), a")
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("127.0.0.1", 6000))
    s.sendto(b"x", ("127.0.0.1", 9)); say("port", 6000, os.getpid())
    # Only the program changes now.
    os.execvp("true", ["true"])
os.waitpid(child(liar), 0); time.sleep(0.2)
"#;
    let truth = ports(&host.run(script, &[]));
    assert!(capture.interrupt().0.success());
    let all = packets(&host.file());
    assert_eq!(judge(&all, &truth), [1, 0, 0], "{all:?}");
    assert!(all[0].comment.starts_with("sender: init ?1?? a ("), "{all:?}");
}

#[test]
fn a_printed_line_has_the_processes() {
    ready_or_skip!();
    let host = Host::new("whp");
    let mut command = host.namespace.command(LINERATE);
    command.args(["capture", "-i", "lo", "--process-info", "-c", "1", "udp"]);
    let mut capture = listening(&mut command);
    let script = r#"
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("127.0.0.1", 6000))
s.sendto(b"x", ("127.0.0.1", 6000)); say("pid", os.getpid()); time.sleep(0.5)
"#;
    let pid = &host.run(script, &[])[0][1];
    capture.until(&format!("[sender: python3 ({pid})] [receiver: python3 ({pid})]"));
    let (status, printed, _) = capture.wait();
    assert!(status.success() && printed.lines().count() == 1, "{printed}");
}

#[test]
fn what_cannot_have_processes_is_refused_with_the_reason() {
    let output = read(Path::new("x.pcapng"), "--pid 7");
    let refused = |output: std::process::Output, reason: &str| {
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert!(printed.contains(reason), "{printed}");
    };
    refused(output, "a file (-r) does not say which process");
    let run = |arguments: &str| {
        let arguments = arguments.split_whitespace();
        Command::new(LINERATE).arg("capture").args(arguments).output().unwrap()
    };
    refused(run("-i lo --process-info -j adapter"), "leave out -j");
    refused(run("-i lo --process-info -w x.pcap"), "--format pcapng");
    refused(run("-i lo --process-info -e"), "tcpdump, which does not show processes");
}

#[test]
fn a_missing_privilege_is_named() {
    root_or_skip!();
    if cgroup_root().is_none() {
        skip!("no control groups of version 2");
    }
    let host = Host::new("whq");
    let mut command = host.namespace.command("setpriv");
    command.args(["--bounding-set", "-all,+net_raw", "--inh-caps", "-all"]);
    command.args([LINERATE, "capture", "-i", "lo", "--process-info", "-c", "1"]);
    let Ok(output) = command.output() else {
        skip!("no setpriv");
    };
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{printed}");
    assert!(printed.contains("CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN"), "{printed}");
}
