//! Hosts, scripts, and what files say of their packets.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use linerate_bpf::process::cgroup_root;
use linerate_pcapfile::Reader;
use linerate_testkit::{Namespace, Process};
use linerate_wire::flow::Key;
use linerate_wire::ip::Protocol;

use super::super::support::{folder, listening};
use crate::LINERATE;

pub(super) const PYTHON: &str = "/usr/bin/python3";

/// What all scripts begin with.
pub(super) const PRELUDE: &str = r#"
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
pub(super) struct Packet {
    pub(super) interface: u32,
    pub(super) source: u16,
    pub(super) destination: u16,
    pub(super) len: usize,
    /// It asks for a connection.
    pub(super) syn: bool,
    pub(super) comment: String,
}

impl Packet {
    /// The number of the process at one end.
    pub(super) fn pid(&self, end: &str) -> Option<u32> {
        let line = self.comment.lines().find(|line| line.starts_with(end))?;
        line.split_once('(')?.1.split_once(')')?.0.parse().ok()
    }
}

/// Those of TCP and UDP.
pub(super) fn packets(path: &Path) -> Vec<Packet> {
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
            syn: key.protocol == Protocol::TCP && frame.get(47).is_some_and(|flags| *flags == 2),
            comment: record.comment.unwrap_or_default().to_owned(),
        });
    }
    all
}

/// How many ends of packets have the process that they should have, another one, and none. Ports of no known process
/// are not counted.
pub(super) fn judge(packets: &[Packet], truth: &HashMap<u16, u32>) -> [usize; 3] {
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
pub(super) struct Host {
    pub(super) namespace: Namespace,
    folder: tempfile::TempDir,
}

impl Host {
    pub(super) fn new(name: &str) -> Self {
        let namespace = Namespace::create(name).unwrap();
        // A port is of one process during a test.
        namespace.sysctl("net.ipv4.tcp_tw_reuse", "0").unwrap();
        Self { namespace, folder: folder() }
    }

    pub(super) fn file(&self) -> PathBuf {
        self.folder.path().join("all.pcapng")
    }

    /// A capture on `lo` into the file.
    pub(super) fn capture(&self, options: &[&str]) -> Process {
        let mut command = self.namespace.command(LINERATE);
        command.args(["capture", "-i", "lo", "--json", "-w"]).arg(self.file());
        listening(command.args(options))
    }

    pub(super) fn start(&self, script: &str, arguments: &[&str]) -> Process {
        let mut command = self.namespace.command_killed_with_parent(PYTHON);
        command.arg("-c").arg(format!("{PRELUDE}{script}")).args(arguments);
        Process::start(&mut command)
    }

    /// Runs a script; the words of the lines that it prints.
    pub(super) fn run(&self, script: &str, arguments: &[&str]) -> Vec<Vec<String>> {
        words(&self.start(script, arguments).wait().1)
    }

    /// Tells scripts to go on.
    pub(super) fn go(&self) {
        fs::write(self.folder.path().join("go"), "").unwrap();
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }
}

pub(super) fn words(printed: &str) -> Vec<Vec<String>> {
    let lines: Vec<Vec<String>> =
        printed.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect();
    assert!(lines.iter().all(|line| line[0] != "failed"), "{lines:?}");
    lines
}

/// Lines such as `port 40000 1234` as ports of processes.
pub(super) fn ports(lines: &[Vec<String>]) -> HashMap<u16, u32> {
    let ports = lines.iter().filter(|line| line[0] == "port");
    ports.map(|line| (line[1].parse().unwrap(), line[2].parse().unwrap())).collect()
}

pub(super) fn is_ready() -> bool {
    Path::new(PYTHON).exists() && cgroup_root().is_some()
}

/// Skips a test that finds processes where that does not work.
macro_rules! ready_or_skip {
    () => {
        linerate_testkit::root_or_skip!();
        if !super::support::is_ready() {
            linerate_testkit::skip!("no python3, or no control groups of version 2");
        }
    };
}
pub(super) use ready_or_skip;

/// A control group that is removed again.
pub(super) struct Group(pub(super) PathBuf);

impl Group {
    pub(super) fn new(name: &str) -> Self {
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
