//! Whose packets they are: real processes, in control groups and network namespaces.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use linerate_bpf::process::cgroup_root;
use linerate_pcapfile::Reader;
use linerate_testkit::{Namespace, Process, root_or_skip, skip, wait_for};
use linerate_wire::flow::Key;

use super::support::{Cable, folder, listening, read};
use crate::LINERATE;

const PYTHON: &str = "/usr/bin/python3";

/// What all scripts begin with.
const PRELUDE: &str = r#"
import os, signal, socket, sys, threading, time
def wait(name):
    while not os.path.exists(name): time.sleep(0.01)
def say(*words): os.write(1, (" ".join(map(str, words)) + "\n").encode())
def child(work, *arguments):
    pid = os.fork()
    if pid: return pid
    signal.alarm(60)
    try: work(*arguments)
    except BaseException as error: say("failed", repr(error))
    os._exit(0)
def echo(connection):
    while data := connection.recv(4096): connection.sendall(data)
    connection.close()
signal.alarm(60)
"#;

/// A packet of a file, with the processes in its comment.
#[derive(Debug)]
struct Packet {
    interface: u32,
    source: u16,
    destination: u16,
    len: usize,
    comment: String,
}

impl Packet {
    /// The number of the process at one end.
    fn pid(&self, end: &str) -> Option<u32> {
        let line = self.comment.lines().find(|line| line.starts_with(end))?;
        line.split_once('(')?.1.split_once(')')?.0.parse().ok()
    }
}

/// Those of TCP and UDP.
fn packets(path: &Path) -> Vec<Packet> {
    let mut reader = Reader::open(path).unwrap();
    let mut all = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        let frame = record.frame.head();
        let Some(key) = Key::of(frame).filter(|key| key.protocol.has_ports()) else { continue };
        all.push(Packet {
            interface: record.interface,
            source: key.source_port,
            destination: key.destination_port,
            len: frame.len(),
            comment: record.comment.unwrap_or_default().to_owned(),
        });
    }
    all
}

/// How many ends of packets have the process that they should have, another one, and none. Ports of no known process
/// are not counted.
fn judge(packets: &[Packet], truth: &HashMap<u16, u32>) -> [usize; 3] {
    let mut counts = [0; 3];
    for packet in packets {
        for (port, end) in [(packet.source, "sender"), (packet.destination, "receiver")] {
            let Some(expected) = truth.get(&port) else { continue };
            let found = packet.pid(end);
            let kind = match found {
                Some(found) if found == *expected => 0,
                Some(_) => 1,
                None => 2,
            };
            assert_ne!(kind, 1, "{end} is {expected}: {packet:?}");
            counts[kind] += 1;
        }
    }
    counts
}

/// A host of its own.
struct Host {
    namespace: Namespace,
    folder: tempfile::TempDir,
}

impl Host {
    fn new(name: &str) -> Self {
        Self { namespace: Namespace::create(name).unwrap(), folder: folder() }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("all.pcapng")
    }

    /// A capture on `lo` into the file.
    fn capture(&self, options: &[&str]) -> Process {
        let mut command = self.namespace.command(LINERATE);
        command.args(["capture", "-i", "lo", "--json", "-w"]).arg(self.file());
        listening(command.args(options))
    }

    fn start(&self, script: &str, arguments: &[&str]) -> Process {
        let mut command = self.namespace.command_killed_with_parent(PYTHON);
        command.arg("-c").arg(format!("{PRELUDE}{script}")).args(arguments);
        Process::start(&mut command)
    }

    /// Runs a script; the words of the lines that it prints.
    fn run(&self, script: &str, arguments: &[&str]) -> Vec<Vec<String>> {
        words(&self.start(script, arguments).wait().1)
    }

    /// Tells scripts to go on.
    fn go(&self) {
        fs::write(self.folder.path().join("go"), "").unwrap();
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }
}

fn words(printed: &str) -> Vec<Vec<String>> {
    let lines: Vec<Vec<String>> =
        printed.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect();
    assert!(lines.iter().all(|line| line[0] != "failed"), "{lines:?}");
    lines
}

/// Lines such as `port 40000 1234` as ports of processes.
fn ports(lines: &[Vec<String>]) -> HashMap<u16, u32> {
    let ports = lines.iter().filter(|line| line[0] == "port");
    ports.map(|line| (line[1].parse().unwrap(), line[2].parse().unwrap())).collect()
}

fn is_ready() -> bool {
    Path::new(PYTHON).exists() && cgroup_root().is_some()
}

/// A control group that is removed again.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> Self {
        let path = cgroup_root().unwrap().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                let _ = fs::remove_dir(entry.path());
            }
        }
        let _ = fs::remove_dir(&self.0);
    }
}

const CONNECTIONS: &str = r#"
groups = sys.argv[1:]
def serve(listener):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=echo, args=(connection,), daemon=True).start()
listener_port, ready = os.pipe()
def server():
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    port = listener.getsockname()[1]
    say("port", port, os.getpid())
    os.write(ready, str(port).encode())
    serve(listener)
server_pid = child(server)
port = int(os.read(listener_port, 9))
def client(group):
    with open(group + "/cgroup.procs", "w") as procs: procs.write(str(os.getpid()))
    say("group", os.getpid(), os.path.basename(group))
    for _ in range(20):
        s = socket.create_connection(("127.0.0.1", port))
        say("port", s.getsockname()[1], os.getpid())
        s.sendall(b"x" * 100); s.recv(200); s.close()
clients = [child(client, groups[i % len(groups)]) for i in range(50)]
for pid in clients: os.waitpid(pid, 0)
time.sleep(0.2)
os.kill(server_pid, 9)
"#;

#[test]
fn short_connections_of_many_processes_in_containers_have_their_processes() {
    root_or_skip!();
    if !is_ready() {
        skip!("no python3, or no control groups of version 2");
    }
    let host = Host::new("who");
    let parent = Group::new(&format!("lnr-who-{}", std::process::id()));
    let ids: Vec<String> = (0..10).map(|n| format!("{n:01x}0123456789abcde").repeat(4)).collect();
    let groups: Vec<_> = ids
        .iter()
        .map(|id| parent.0.join(format!("docker-{id}.scope")).to_str().unwrap().to_owned())
        .collect();
    groups.iter().for_each(|group| fs::create_dir_all(group).unwrap());
    let capture = host.capture(&["--process-info", "tcp"]);
    let lines = host.run(CONNECTIONS, &groups.iter().map(String::as_str).collect::<Vec<_>>());
    let (status, report, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    let truth = ports(&lines);
    let all = packets(&host.file());
    let [right, _, unknown] = judge(&all, &truth);
    println!("{right} right, {unknown} unknown, of {} packets", all.len());
    assert!(right > 10_000 && unknown * 100 <= right, "{right} right, {unknown} unknown");
    let container: HashMap<u32, &str> = lines
        .iter()
        .filter(|line| line[0] == "group")
        .map(|line| (line[1].parse().unwrap(), line[2].as_str()))
        .collect();
    for packet in &all {
        for line in packet.comment.lines() {
            let pid = line.split_once('(').unwrap().1.split_once(')').unwrap().0;
            let Some(group) = container.get(&pid.parse().unwrap()) else { continue };
            let id = group.trim_start_matches("docker-").trim_end_matches(".scope");
            assert!(line.contains(&format!("container docker {id}")), "{line}");
        }
    }
    let unattributed = report["dropped"]["unattributed"].as_u64().unwrap();
    let without = all.iter().filter(|packet| packet.comment.is_empty()).count();
    assert_eq!(unattributed, without as u64, "{report}");
}

const DATAGRAMS: &str = r#"
shared, ready = os.pipe()
def echo_datagrams(port, reuse):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if reuse: s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(("127.0.0.1", port))
    if not reuse: say("port", port, os.getpid())
    os.write(ready, b"r")
    while True:
        data, peer = s.recvfrom(2000)
        if reuse: say("served", peer[1], os.getpid())
        s.sendto(data, peer)
servers = [child(echo_datagrams, 7001, 0), child(echo_datagrams, 7002, 0)]
servers += [child(echo_datagrams, 7003, 1) for _ in range(2)]
for _ in servers: os.read(shared, 1)
def connected():
    for _ in range(20):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.connect(("127.0.0.1", 7001)); s.send(b"x" * 9)
        say("port", s.getsockname()[1], os.getpid()); s.recv(99)
def several_peers():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for i in range(60):
        s.sendto(b"y" * 9, ("127.0.0.1", 7001 + i % 3)); s.recv(99)
    say("port", s.getsockname()[1], os.getpid())
def to_one_of_two():
    for _ in range(40):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.sendto(b"z" * 9, ("127.0.0.1", 7003)); s.recv(99)
        say("port", s.getsockname()[1], os.getpid())
for pid in [child(connected), child(several_peers), child(to_one_of_two)]: os.waitpid(pid, 0)
time.sleep(0.1)
for pid in servers: os.kill(pid, 9)
"#;

#[test]
fn datagrams_have_the_processes_of_their_sockets() {
    root_or_skip!();
    if !is_ready() {
        skip!("no python3, or no control groups of version 2");
    }
    let host = Host::new("whu");
    let capture = host.capture(&["--process-info", "udp"]);
    let lines = host.run(DATAGRAMS, &[]);
    assert!(capture.interrupt().0.success());
    let all = packets(&host.file());
    assert!(all.len() >= 240, "{}", all.len());
    let [right, _, unknown] = judge(&all, &ports(&lines));
    assert!(right >= 360 && unknown * 100 <= right, "{right} right, {unknown} unknown");
    // Two processes have a socket on this port; each flow goes to one of them.
    let served = lines.iter().filter(|line| line[0] == "served");
    let served: HashMap<u16, u32> =
        served.map(|line| (line[1].parse().unwrap(), line[2].parse().unwrap())).collect();
    let mut known = 0;
    for packet in &all {
        let (peer, end) = match (packet.source, packet.destination) {
            (7003, peer) => (peer, "sender"),
            (peer, 7003) => (peer, "receiver"),
            _ => continue,
        };
        if let Some(pid) = packet.pid(end) {
            assert_eq!(served[&peer], pid, "{packet:?}");
            known += 1;
        }
    }
    assert!(known >= 100, "{known}");
}

const WORKERS: &str = r#"
listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
port = listener.getsockname()[1]
def worker():
    while True:
        connection, peer = listener.accept()
        say("served", peer[1], os.getpid())
        echo(connection)
workers = [child(worker) for _ in range(4)]
def client():
    for _ in range(100):
        s = socket.create_connection(("127.0.0.1", port))
        say("port", s.getsockname()[1], os.getpid())
        s.sendall(b"x" * 100); s.recv(200); s.close()
os.waitpid(child(client), 0)
time.sleep(0.1)
for pid in workers: os.kill(pid, 9)
"#;

#[test]
fn a_connection_is_of_the_worker_that_accepts_it() {
    root_or_skip!();
    if !is_ready() {
        skip!("no python3, or no control groups of version 2");
    }
    let host = Host::new("whw");
    let capture = host.capture(&["--process-info", "tcp"]);
    let lines = host.run(WORKERS, &[]);
    assert!(capture.interrupt().0.success());
    let clients = ports(&lines);
    let all = packets(&host.file());
    let [right, _, unknown] = judge(&all, &clients);
    assert!(right > 800 && unknown * 100 <= right, "{right} right, {unknown} unknown");
    let served = lines.iter().filter(|line| line[0] == "served");
    let served: HashMap<u16, u32> =
        served.map(|line| (line[1].parse().unwrap(), line[2].parse().unwrap())).collect();
    let (mut right, mut unknown) = (0, 0);
    for packet in &all {
        let (peer, end) = match clients.contains_key(&packet.source) {
            true => (packet.source, "receiver"),
            false => (packet.destination, "sender"),
        };
        match packet.pid(end) {
            Some(pid) => {
                assert_eq!(served[&peer], pid, "{packet:?}");
                right += 1;
            }
            None => unknown += 1,
        }
    }
    assert!(unknown * 100 <= right, "{right} right, {unknown} unknown");
}

/// Packets of 100 bytes are sent by the parent, those of 200 by its child, those of 300 by a process that got the
/// socket by SCM_RIGHTS.
const INHERITED: &str = r#"
one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
def stranger():
    _, fds, _, _ = socket.recv_fds(other, 1, 1)
    s = socket.socket(fileno=fds[0])
    for _ in range(40): s.sendall(b"x" * 300); time.sleep(0.02)
stranger_pid = child(stranger)
def server(ready):
    listener = socket.create_server(("127.0.0.1", 7000))
    os.write(ready, b"r")
    for _ in range(2):
        connection, _ = listener.accept()
        threading.Thread(target=lambda c: [None for _ in iter(lambda: c.recv(999), b"")], args=(connection,), daemon=True).start()
    time.sleep(60)
waiting, ready = os.pipe()
server_pid = child(server, ready)
os.read(waiting, 1)
first, second = [socket.create_connection(("127.0.0.1", 7000)) for _ in range(2)]
say("pids", os.getpid(), first.getsockname()[1], second.getsockname()[1])
for s in first, second:
    s.sendall(b"x" * 100); time.sleep(0.05)
socket.send_fds(one, [b"x"], [second.fileno()]); second.close()
def heir():
    for _ in range(40): first.sendall(b"x" * 200); time.sleep(0.02)
heir_pid = child(heir)
first.close()
say("others", heir_pid, stranger_pid)
os.waitpid(heir_pid, 0); os.waitpid(stranger_pid, 0)
os.kill(server_pid, 9)
"#;

#[test]
fn an_inherited_socket_is_of_the_process_that_has_it_or_of_none() {
    root_or_skip!();
    if !is_ready() {
        skip!("no python3, or no control groups of version 2");
    }
    let host = Host::new("whi");
    let capture = host.capture(&["--process-info", "tcp port 7000"]);
    let lines = host.run(INHERITED, &[]);
    assert!(capture.interrupt().0.success());
    let number = |line: usize, at: usize| lines[line][at].parse::<u32>().unwrap();
    let (parent, heir, stranger) = (number(0, 1), number(1, 1), number(1, 2));
    let mut known = HashMap::<u32, usize>::new();
    for packet in packets(&host.file()).iter().filter(|packet| packet.destination == 7000) {
        let expected = match packet.len.saturating_sub(66) {
            100 => parent,
            200 => heir,
            300 => stranger,
            _ => continue,
        };
        if let Some(pid) = packet.pid("sender") {
            assert_eq!(pid, expected, "{packet:?}");
            *known.entry(pid).or_default() += 1;
        }
    }
    for pid in [heir, stranger] {
        assert!(known.get(&pid).is_some_and(|count| *count >= 20), "{pid}: {known:?}");
    }
}

const EXISTING: &str = r#"
listener = socket.create_server(("127.0.0.1", 0))
def client():
    s = socket.create_connection(listener.getsockname())
    d = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); d.bind(("127.0.0.1", 0))
    for one in s, d: say("port", one.getsockname()[1], os.getpid())
    say("started"); wait(sys.argv[1])
    for _ in range(10):
        s.sendall(b"x"); s.recv(1)
        d.sendto(b"x", d.getsockname()); d.recv(9)
pid = child(client)
connection, _ = listener.accept()
say("port", listener.getsockname()[1], os.getpid()); listener.close()
echo(connection)
"#;

#[test]
fn sockets_that_are_older_than_the_capture_have_their_processes() {
    root_or_skip!();
    if !is_ready() {
        skip!("no python3, or no control groups of version 2");
    }
    let host = Host::new("whe");
    let mut script = host.start(EXISTING, &[&host.path("go")]);
    script.until("started");
    let capture = host.capture(&["--process-info"]);
    host.go();
    let lines = words(&script.wait().1);
    assert!(capture.interrupt().0.success());
    let [right, _, unknown] = judge(&packets(&host.file()), &ports(&lines));
    assert!(right >= 60 && unknown == 0, "{right} right, {unknown} unknown");
}

const SAME: &str = r#"
listener = socket.create_server(("127.0.0.1", 7000), reuse_port=True)
say("started"); wait(sys.argv[1])
def client():
    s = socket.create_connection(("127.0.0.1", 7000), source_address=("127.0.0.1", 6000))
    for _ in range(20): s.sendall(b"x"); s.recv(1)
pid = child(client)
say("port", 6000, pid); say("port", 7000, os.getpid())
connection, _ = listener.accept()
echo(connection)
"#;

#[test]
fn namespaces_with_the_same_addresses_and_ports_are_told_apart() {
    root_or_skip!();
    if !is_ready() {
        skip!("no python3, or no control groups of version 2");
    }
    let (one, other) = (Host::new("wha"), Host::new("whb"));
    let mut scripts = [&one, &other].map(|host| host.start(SAME, &[&one.path("go")]));
    scripts.iter_mut().for_each(|script| script.until("started"));
    let mut command = Command::new(LINERATE);
    let [first, second] = [&one, &other].map(|host| host.namespace.name());
    command.args(["capture", "--netns", first, "--netns", second, "-i", "lo", "--process-info"]);
    command.arg("-w").arg(one.file());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut capture = Process::from(child);
    capture.until(&format!("listening on {second}/lo"));
    one.go();
    let truths = scripts.map(|script| ports(&words(&script.wait().1)));
    let (status, _, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    let all = packets(&one.file());
    for (interface, truth) in (0..).zip(&truths) {
        let (own, _): (Vec<_>, Vec<_>) =
            all.iter().partition(|packet| packet.interface == interface);
        assert!(own.len() > 40);
        for packet in own {
            for (port, end) in [(packet.source, "sender"), (packet.destination, "receiver")] {
                assert_eq!(packet.pid(end), truth.get(&port).copied(), "{packet:?}");
            }
        }
    }
}

/// Two processes with the same number, one after the other.
const REUSED: &str = r#"
def send(name, pid, port):
    if os.getpid() != pid: os._exit(1)
    with open("/proc/self/comm", "w") as comm: comm.write(name)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("127.0.0.1", port))
    for _ in range(10): s.sendto(name.encode(), ("127.0.0.1", 9)); time.sleep(0.001)
def with_pid(pid, name, port):
    for _ in range(1000):
        with open("/proc/sys/kernel/ns_last_pid", "w") as last: last.write(str(pid - 1))
        if os.waitpid(child(send, name, pid, port), 0)[1] == 0: return
    say("failed", pid)
pid = child(time.sleep, 0); os.waitpid(pid, 0)
for name, port in ("first", 6001), ("second", 6002), ("third", 6001): with_pid(pid, name, port)
say("pid", pid)
"#;

#[test]
fn a_number_that_another_process_has_got_is_of_that_process() {
    root_or_skip!();
    if !is_ready() || !Path::new("/proc/sys/kernel/ns_last_pid").exists() {
        skip!("no python3, no control groups of version 2, or no ns_last_pid");
    }
    let host = Host::new("whr");
    let capture = host.capture(&["--process-info", "udp"]);
    let lines = host.run(REUSED, &[]);
    assert!(capture.interrupt().0.success());
    let mut counts = HashMap::<String, usize>::new();
    for packet in packets(&host.file()) {
        let name =
            ["first", "third", "second"].into_iter().find(|name| packet.len == 42 + name.len());
        let told = packet.comment.strip_prefix("sender: ").unwrap_or_default();
        let told = told.split_once(' ').map_or("", |(name, _)| name);
        if packet.source == 6002 {
            assert!(told == "second" || told.is_empty(), "{packet:?}");
        } else {
            assert!(name.is_some() && told != "second", "{packet:?}");
        }
        *counts.entry(told.to_owned()).or_default() += 1;
    }
    for name in ["first", "second", "third"] {
        assert_eq!(counts.get(name), Some(&10), "{counts:?} {lines:?}");
    }
}

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
    root_or_skip!();
    if !is_ready() {
        skip!("no python3, or no control groups of version 2");
    }
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
    root_or_skip!();
    if !is_ready() {
        skip!("no python3, or no control groups of version 2");
    }
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
    root_or_skip!();
    if !is_ready() {
        skip!("no python3, or no control groups of version 2");
    }
    let (cable, folder) = (Cable::new(), folder());
    let rules = "table ip nat { chain to { type nat hook prerouting priority dstnat; \
                 tcp dport 80 redirect to :8080; udp dport 53 redirect to :5353; } }";
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
    root_or_skip!();
    if !is_ready() {
        skip!("no python3, or no control groups of version 2");
    }
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
    root_or_skip!();
    if !is_ready() {
        skip!("no python3, or no control groups of version 2");
    }
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
fn a_printed_line_has_the_processes() {
    root_or_skip!();
    if !is_ready() {
        skip!("no python3, or no control groups of version 2");
    }
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
