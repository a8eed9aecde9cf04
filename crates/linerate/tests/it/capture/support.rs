//! Two hosts on a veth pair, a capture that runs on one of them, and judges of what it wrote.

use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use linerate_pcapfile::{InterfaceStatistics, Reader, Record};
use linerate_testkit::{Namespace, Process, Veth, VethOptions, wait_for};
use serde_json::Value;

use crate::LINERATE;

/// Two hosts on a veth pair; captures run on `far`.
pub(crate) struct Cable {
    pub(crate) near: Namespace,
    pub(crate) far: Namespace,
    pub(crate) veth: Option<Veth>,
}

impl Cable {
    pub(crate) fn new() -> Self {
        Self::with_queues(1)
    }

    /// A veth pair whose ends have this many queues.
    pub(crate) fn with_queues(queues: u32) -> Self {
        let near = Namespace::create("vcap-near").unwrap();
        let far = Namespace::create("vcap-far").unwrap();
        for namespace in [&near, &far] {
            namespace.sysctl("net.ipv6.conf.default.disable_ipv6", "1").unwrap();
        }
        let options = VethOptions { queues, ..VethOptions::default() };
        let veth = Veth::create(&near, "near", &far, "far", options).unwrap();
        let (a, b): (IpAddr, IpAddr) = ("10.9.0.1".parse().unwrap(), "10.9.0.2".parse().unwrap());
        veth.a.add_address(a, 24).unwrap();
        veth.b.add_address(b, 24).unwrap();
        veth.a.add_neighbour(b, veth.b.mac()).unwrap();
        Self { near, far, veth: Some(veth) }
    }

    pub(crate) fn veth(&self) -> &Veth {
        self.veth.as_ref().unwrap()
    }

    /// Frames that have come to the peer.
    pub(crate) fn received(&self) -> u64 {
        self.veth().b.statistics().unwrap().rx_packets
    }

    /// Waits until frames come through again after the peer was down: the kernel starts the queue of a
    /// veth from a work item, and silently drops what is sent before. Asks for the addresses of
    /// hosts that are not there, so that ARP comes through and no UDP.
    pub(crate) fn wait_until_it_carries(&self) {
        let before = self.received();
        for host in 50..250 {
            let ask = || UdpSocket::bind("10.9.0.1:0")?.send_to(&[0], format!("10.9.0.{host}:9"));
            // No route yet is a reason to ask again, too.
            let _ = self.near.run(ask).unwrap();
            std::thread::sleep(Duration::from_millis(10));
            if self.received() > before {
                return;
            }
        }
        panic!("nothing comes through");
    }

    /// Sends `count` datagrams of `size` bytes from the near host, slowly enough for a busy machine.
    pub(crate) fn send(&self, count: u32, size: usize) {
        let send = || {
            // A process that another test is starting holds the socket of the last call until its exec.
            let mut socket = None;
            wait_for("the port", || {
                socket = UdpSocket::bind("10.9.0.1:4000").ok();
                socket.is_some()
            });
            let socket = socket.unwrap();
            let mut payload = vec![0; size];
            for number in 0..count {
                payload[..4].copy_from_slice(&number.to_be_bytes());
                socket.send_to(&payload, "10.9.0.2:5000").unwrap();
                if number % 64 == 63 {
                    std::thread::sleep(Duration::from_micros(500));
                }
            }
        };
        self.near.run(send).unwrap();
    }

    /// Starts a capture on `far` and waits until it listens.
    pub(crate) fn capture(&self, arguments: &str) -> Process {
        let mut command = self.far.command(LINERATE);
        command.args(["capture", "-i", "far"]).args(arguments.split_whitespace());
        listening(&mut command)
    }

    /// Runs a capture that ends without a signal.
    pub(crate) fn run(&self, arguments: &str) -> Output {
        let mut command = self.far.command(LINERATE);
        command.arg("capture").args(arguments.split_whitespace()).output().unwrap()
    }
}

/// Runs `linerate capture -r INPUT` with these arguments.
pub(crate) fn read(input: &Path, arguments: &str) -> Output {
    let mut command = std::process::Command::new(LINERATE);
    command.args(["capture", "-r"]).arg(input).args(arguments.split_whitespace()).output().unwrap()
}

/// Starts a capture and waits until it listens.
pub(crate) fn listening(command: &mut linerate_testkit::Command) -> Process {
    let mut capture = Process::start(command);
    capture.until("listening on");
    capture
}

/// The numbers that [`Cable::send`] put into the datagrams of a file.
pub(crate) fn numbers(path: &Path) -> Vec<u32> {
    let mut reader = Reader::open(path).unwrap();
    let mut numbers = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        numbers.push(number(&record));
    }
    numbers
}

/// The number that [`Cable::send`] put into a datagram.
pub(crate) fn number(record: &Record<'_>) -> u32 {
    u32::from_be_bytes(record.frame.head()[42..46].try_into().unwrap())
}

/// Another program's opinion of a file; skipped by name where it is not installed.
pub(crate) fn accepts(program: &str, arguments: &[&str], path: &Path) {
    match std::process::Command::new(program).args(arguments).arg(path).output() {
        Ok(output) => {
            let printed = String::from_utf8_lossy(&output.stderr).to_lowercase();
            let complains = ["damaged", "truncated", "cut short", "corrupt", "malformed"]
                .iter()
                .any(|word| printed.contains(word));
            assert!(output.status.success() && !complains, "{program}: {printed}");
        }
        Err(_) => println!("skipped: {program} on {}: not installed", path.display()),
    }
}

/// Holds that a file whose disk was full has the first packets and is valid, and that the rest was counted;
/// the report, and how many packets there are.
pub(crate) fn holds_the_first(path: &Path, report: &str) -> (Value, usize) {
    let json: Value = serde_json::from_str(report).unwrap();
    let kept = numbers(path);
    assert_eq!(kept, (0..kept.len() as u32).collect::<Vec<_>>());
    assert!(!kept.is_empty());
    assert_eq!(json["written"], kept.len(), "{json}");
    assert!(json["dropped"]["disk"].as_u64().unwrap() > 0, "{json}");
    everybody_accepts(path);
    (json, kept.len())
}

pub(crate) fn everybody_accepts(path: &Path) {
    accepts("capinfos", &["-c"], path);
    accepts("tcpdump", &["-nqr"], path);
    accepts("tshark", &["-nr"], path);
}

pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

pub(crate) fn statistics(path: &Path) -> InterfaceStatistics {
    let mut reader = Reader::open(path).unwrap();
    while reader.next().unwrap().is_some() {}
    *reader.interfaces()[0].statistics.clone().unwrap()
}

/// A hundred IPv4 packets, every other one UDP, of several lengths and TTLs.
pub(crate) fn write_mixed(path: &Path) {
    let mut file = Vec::new();
    file.extend(0xa1b2_c3d4_u32.to_le_bytes());
    file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    file.extend(262_144_u32.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    for number in 0..100_u32 {
        let length = 42 + number % 30;
        let mut frame = vec![0; length as usize];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[22] = (number % 5) as u8;
        frame[23] = if number % 2 == 0 { 17 } else { 6 };
        for field in [number, number * 7, length, length] {
            file.extend(field.to_le_bytes());
        }
        file.extend(frame);
    }
    std::fs::write(path, file).unwrap();
}
