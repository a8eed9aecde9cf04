//! A host with an uplink on a cable to a plain host, and traffic between the two.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, ChildStderr, ExitStatus, Stdio};
use std::time::Duration;

use linerate_testkit::{Namespace, Veth, VethOptions};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;
use serde_json::Value;

pub(crate) const LINERATE: &str = env!("CARGO_BIN_EXE_linerate");

/// Addresses of the two hosts, with prefix lengths.
pub(crate) const NEAR: [(&str, u8); 2] = [("10.8.0.1", 24), ("fd08::1", 64)];
pub(crate) const FAR: [(&str, u8); 2] = [("10.8.0.2", 24), ("fd08::2", 64)];

/// How long anything may take that has to happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// Ports of tests: every host has a namespace of its own.
const PORT: u16 = 7000;

/// `near` has one end of a cable, `wire`, with an uplink on it; the device is `up0`. `far` has the other,
/// `plain`.
pub(crate) struct Hosts {
    pub(crate) near: Namespace,
    pub(crate) far: Namespace,
    pub(crate) veth: Veth,
}

impl Hosts {
    pub(crate) fn new() -> Self {
        Self::with(VethOptions::default())
    }

    pub(crate) fn with(options: VethOptions) -> Self {
        let near = Namespace::create("upl-near").unwrap();
        let far = Namespace::create("upl-far").unwrap();
        let veth = Veth::create(&near, "wire", &far, "plain", options).unwrap();
        // What a cable carries is finished: segments, checksums and tags are in the frames.
        veth.b.set_offloads(false).unwrap();
        veth.b.set_features(&[("tx-vlan-hw-insert", false)]).unwrap();
        for (address, prefix) in FAR {
            veth.b.add_address(address.parse().unwrap(), prefix).unwrap();
        }
        Self { near, far, veth }
    }

    /// Starts an uplink and gives its device addresses.
    pub(crate) fn uplink(&self, arguments: &str) -> Uplink {
        let uplink = self.bare(arguments);
        give_addresses(&self.near);
        uplink
    }

    /// Starts an uplink.
    pub(crate) fn bare(&self, arguments: &str) -> Uplink {
        self.start(&format!("--tap up0 {arguments}"))
    }

    /// Starts an uplink with a TUN device.
    pub(crate) fn tun(&self, arguments: &str) -> Uplink {
        self.start(&format!("--tun up0 {arguments}"))
    }

    /// Starts an uplink with these arguments, which name the device.
    pub(crate) fn start(&self, arguments: &str) -> Uplink {
        let mut command = self.near.command(LINERATE);
        command.args(["uplink", "-i", "wire", "--json"]);
        Uplink::start(command.args(arguments.split_whitespace()))
    }

    /// Sends `bytes` bytes by TCP both ways, over IPv4 and IPv6, and compares them.
    pub(crate) fn talk(&self, bytes: usize) {
        for (near, far) in NEAR.iter().zip(FAR) {
            tcp(&self.near, &self.far, far.0, bytes);
            tcp(&self.far, &self.near, near.0, bytes);
        }
    }
}

pub(crate) fn give_addresses(namespace: &Namespace) {
    let device = namespace.interface("up0").unwrap();
    for (address, prefix) in NEAR {
        device.add_address(address.parse().unwrap(), prefix).unwrap();
    }
}

pub(crate) struct Uplink {
    pub(crate) child: Child,
    errors: BufReader<ChildStderr>,
    pub(crate) said: String,
}

impl Uplink {
    fn start(command: &mut linerate_testkit::Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let mut uplink = Self { child, errors, said: String::new() };
        uplink.until("it leaves to the uplink");
        uplink
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Reads standard error until it says `word`.
    pub(crate) fn until(&mut self, word: &str) {
        while !self.said.contains(word) {
            let read = self.errors.read_line(&mut self.said).unwrap();
            assert_ne!(read, 0, "it never said {word:?}: {}", self.said);
        }
    }

    /// Ends it as Ctrl-C does; its JSON.
    pub(crate) fn interrupt(self) -> Value {
        self.signal(Signal::SIGINT);
        let (status, json, said) = self.wait();
        assert!(status.success(), "{said}");
        json
    }

    pub(crate) fn wait(mut self) -> (ExitStatus, Value, String) {
        let mut out = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.errors.read_to_string(&mut self.said).unwrap();
        let said = std::mem::take(&mut self.said);
        (self.child.wait().unwrap(), serde_json::from_str(&out).unwrap_or(Value::Null), said)
    }
}

impl Drop for Uplink {
    fn drop(&mut self) {
        // A test that failed; a child that was waited for is not touched.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A number in a report, as `down.segments`.
pub(crate) fn count(report: &Value, path: &str) -> u64 {
    let value = path.split('.').fold(report, |value, key| &value[key]);
    value.as_u64().unwrap_or_else(|| panic!("{path} in {report}"))
}

/// Bytes that look like no other part of themselves.
pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let step = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(step).collect()
}

fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), PORT)
}

/// Sends `bytes` bytes by TCP; what arrives must be the same.
pub(crate) fn tcp(from: &Namespace, to: &Namespace, address: &str, bytes: usize) {
    tcp_while(from, to, address, bytes, || {});
}

/// The same, with something to do in the middle of it.
pub(crate) fn tcp_while(
    from: &Namespace,
    to: &Namespace,
    address: &str,
    bytes: usize,
    meanwhile: impl FnOnce(),
) {
    let listener = to.run(|| TcpListener::bind(at(address))).unwrap().unwrap();
    let sent = pattern(bytes);
    // Before anybody waits to accept: who cannot be reached is said, and not waited for.
    let mut stream = from
        .run(|| TcpStream::connect_timeout(&at(address), PATIENCE))
        .unwrap()
        .unwrap_or_else(|error| panic!("connect to {address}: {error}"));
    let arrived = std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut arrived = Vec::new();
            stream.read_to_end(&mut arrived).unwrap();
            arrived
        });
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let (first, second) = sent.split_at(bytes / 2);
        stream.write_all(first).unwrap();
        meanwhile();
        stream.write_all(second).unwrap();
        drop(stream);
        reader.join().unwrap()
    });
    assert_eq!(arrived.len(), sent.len(), "bytes of {address}");
    assert!(arrived == sent, "other bytes than were sent to {address}");
}

/// Sends messages of these lengths by UDP, `segment` bytes a datagram (0: each as it is); what arrives must
/// be the same, in order.
pub(crate) fn udp(
    from: &Namespace,
    to: &Namespace,
    address: &str,
    messages: &[usize],
    segment: u16,
) {
    let receiver = to.run(|| UdpSocket::bind(at(address))).unwrap().unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    let any = if address.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let sender = from.run(|| UdpSocket::bind(any)).unwrap().unwrap();
    sender.connect(at(address)).unwrap();
    if segment > 0 {
        setsockopt(&sender, sockopt::UdpGsoSegment, &i32::from(segment)).unwrap();
    }
    let mut buffer = vec![0; 1 << 16];
    for (number, &len) in messages.iter().enumerate() {
        let mut message = pattern(len);
        message[0] = number as u8;
        assert_eq!(sender.send(&message).unwrap(), len);
        let size = if segment == 0 { len } else { segment.into() };
        for datagram in message.chunks(size) {
            let got = receiver.recv(&mut buffer).unwrap_or_else(|error| {
                panic!("message {number} of {len} bytes to {address}: {error}")
            });
            assert!(buffer[..got] == *datagram, "message {number} of {len} bytes to {address}");
        }
    }
}
