//! Each kind of socket, and the ways by which a process comes to have one.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use linerate_testkit::{Process, skip};
use nix::sys::signal::Signal;

use super::support::{Group, Host, judge, packets, ports, ready_or_skip, words};
use crate::LINERATE;

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
    ready_or_skip!();
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
    ready_or_skip!();
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
    ready_or_skip!();
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
    ready_or_skip!();
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
    ready_or_skip!();
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
    ready_or_skip!();
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
    ready_or_skip!();
    if !Path::new("/proc/sys/kernel/ns_last_pid").exists() {
        skip!("no ns_last_pid");
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

/// The second connection sends its data in the SYN: the first one has got the cookie for it.
const FAST_OPEN: &str = r#"
listener = socket.socket(); listener.setsockopt(socket.IPPROTO_TCP, 23, 16)
listener.bind(("127.0.0.1", 7000)); listener.listen()
say("port", 7000, os.getpid())
def client():
    for _ in range(20):
        s = socket.socket(); s.sendto(b"x" * 100, 0x20000000, ("127.0.0.1", 7000))
        say("port", s.getsockname()[1], os.getpid()); s.recv(200); s.close()
pid = child(client)
for _ in range(20): echo(listener.accept()[0])
os.waitpid(pid, 0)
"#;

#[test]
fn connections_by_fast_open_have_their_processes() {
    ready_or_skip!();
    let host = Host::new("who");
    host.namespace.sysctl("net.ipv4.tcp_fastopen", "3").unwrap();
    let capture = host.capture(&["--process-info", "tcp"]);
    let lines = host.run(FAST_OPEN, &[]);
    assert!(capture.interrupt().0.success());
    let all = packets(&host.file());
    // A SYN without data has up to 94 bytes.
    let fast = all.iter().filter(|packet| packet.syn && packet.len > 150).count();
    assert!(fast >= 15, "{fast}");
    let [right, _, unknown] = judge(&all, &ports(&lines));
    assert!(right >= 200 && unknown * 20 <= right, "{right} right, {unknown} unknown");
}

/// One process sends datagrams to another; a third has a raw socket, which gets a copy of them and of all others, and
/// sends from a port of nobody.
const RAW: &str = r#"
def receive(ready):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("127.0.0.1", 7000))
    say("port", 7000, os.getpid()); os.write(ready, b"r")
    while True: s.recv(99)
def listen(ready):
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP); os.write(ready, b"r")
    for _ in range(50): raw.recv(99)
    header = b"".join(n.to_bytes(2, "big") for n in (6001, 7000, 9, 0))
    for _ in range(20): raw.sendto(header + b"y", ("127.0.0.1", 7000)); time.sleep(0.005)
    say("raw", os.getpid())
waiting, ready = os.pipe()
pids = [child(receive, ready), child(listen, ready)]
for _ in pids: os.read(waiting, 1)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("127.0.0.1", 6000))
say("port", 6000, os.getpid())
for _ in range(50): s.sendto(b"x", ("127.0.0.1", 7000)); time.sleep(0.005)
os.waitpid(pids[1], 0); os.kill(pids[0], 9)
"#;

#[test]
fn a_raw_socket_has_no_packets_of_others() {
    ready_or_skip!();
    let host = Host::new("whx");
    let capture = host.capture(&["--process-info", "udp"]);
    let lines = host.run(RAW, &[]);
    assert!(capture.interrupt().0.success());
    let all = packets(&host.file());
    let [right, _, unknown] = judge(&all, &ports(&lines));
    assert!(right >= 110 && unknown <= 10, "{right} right, {unknown} unknown");
    let raw: u32 = lines.iter().find(|line| line[0] == "raw").unwrap()[1].parse().unwrap();
    let sent: Vec<_> = all.iter().filter(|packet| packet.source == 6001).collect();
    assert_eq!(sent.len(), 20);
    for packet in sent {
        assert!(packet.pid("sender").is_none_or(|pid| pid == raw), "{packet:?}");
    }
}

/// More events than there is room for, while nobody reads them.
const FLOOD: &str = r#"
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("127.0.0.1", 6000))
say("port", 6000, os.getpid())
def send():
    for _ in range(20): s.sendto(b"x", ("127.0.0.1", 9)); time.sleep(0.005)
send(); say("started"); wait(sys.argv[1])
for _ in range(60000): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
say("flooded"); wait(sys.argv[2])
for _ in range(10): send(); time.sleep(0.1)
"#;

#[test]
fn lost_events_are_counted_and_processes_are_found_again() {
    ready_or_skip!();
    // Other captures would lose them, too.
    let _exclusive = linerate_testkit::exclusive();
    let host = Host::new("whl");
    let capture = host.capture(&["--process-info", "udp"]);
    let mut script = host.start(FLOOD, &[&host.path("go"), &host.path("on")]);
    script.until("started");
    capture.signal(Signal::SIGSTOP);
    host.go();
    script.until("flooded");
    capture.signal(Signal::SIGCONT);
    fs::write(host.path("on"), "").unwrap();
    let lines = words(&script.wait().1);
    let (status, report, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    assert!(report["processes"]["lost_events"].as_u64() > Some(0), "{report}");
    assert!(printed.contains("events of sockets lost"), "{printed}");
    let all = packets(&host.file());
    let [right, _, unknown] = judge(&all, &ports(&lines));
    assert_eq!(right + unknown, 220);
    assert!(right >= 100, "{right} right, {unknown} unknown");
    assert_eq!(all.last().unwrap().pid("sender"), ports(&lines).get(&6000).copied());
}
