//! A host with an uplink on a veth pair to a plain host, and traffic between the two.

use std::net::{SocketAddr, UdpSocket};

use linerate_testkit::{
    Namespace, Process, Random, TIMEOUT, Veth, VethOptions, bind_udp, send_tcp, uninterrupted,
};
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::Value;

use crate::LINERATE;

/// Addresses of the two hosts, with prefix lengths.
pub(crate) const NEAR: [(&str, u8); 2] = [("10.8.0.1", 24), ("fd08::1", 64)];
pub(crate) const FAR: [(&str, u8); 2] = [("10.8.0.2", 24), ("fd08::2", 64)];

/// The port of every test: every host has its own namespace.
const PORT: u16 = 7000;

/// `near` has one end of a veth pair, `wire`, with an uplink on it; the device is `up0`. `far` has the other,
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
        // What a veth pair carries is finished: segments, checksums and tags are in the frames.
        veth.b.set_offloads(false).unwrap();
        veth.b.set_features(&[("tx-vlan-hw-insert", false)]).unwrap();
        for (address, prefix) in FAR {
            veth.b.add_address(address.parse().unwrap(), prefix).unwrap();
        }
        Self { near, far, veth }
    }

    /// Starts an uplink and gives its device addresses.
    pub(crate) fn uplink(&self, arguments: &str) -> Process {
        let uplink = self.bare(arguments);
        give_addresses(&self.near);
        uplink
    }

    /// Starts an uplink.
    pub(crate) fn bare(&self, arguments: &str) -> Process {
        self.start(&format!("--tap up0 {arguments}"))
    }

    /// Starts an uplink with a TUN device.
    pub(crate) fn tun(&self, arguments: &str) -> Process {
        self.start(&format!("--tun up0 {arguments}"))
    }

    /// Starts an uplink with these arguments, which name the device.
    pub(crate) fn start(&self, arguments: &str) -> Process {
        let mut command = self.near.command(LINERATE);
        command.args(["uplink", "-i", "wire", "--json"]);
        let mut uplink = Process::start(command.args(arguments.split_whitespace()));
        uplink.until("it leaves to the uplink");
        uplink
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

/// A number in a report, as `tx.segments`.
pub(crate) fn count(report: &Value, path: &str) -> u64 {
    let value = path.split('.').fold(report, |value, key| &value[key]);
    value.as_u64().unwrap_or_else(|| panic!("{path} in {report}"))
}

fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), PORT)
}

/// Sends `bytes` bytes by TCP; what arrives must be the same.
#[track_caller]
pub(crate) fn tcp(from: &Namespace, to: &Namespace, address: &str, bytes: usize) {
    tcp_while(from, to, address, bytes, || {});
}

/// The same, with something to do in the middle of it.
#[track_caller]
pub(crate) fn tcp_while(
    from: &Namespace,
    to: &Namespace,
    address: &str,
    bytes: usize,
    meanwhile: impl FnOnce(),
) {
    send_tcp(from, to, at(address), bytes, meanwhile);
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
    let receiver = to.run(|| bind_udp(at(address))).unwrap();
    receiver.set_read_timeout(Some(TIMEOUT)).unwrap();
    let any = if address.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let sender = from.run(|| UdpSocket::bind(any)).unwrap().unwrap();
    sender.connect(at(address)).unwrap();
    if segment > 0 {
        setsockopt(&sender, sockopt::UdpGsoSegment, &i32::from(segment)).unwrap();
    }
    let mut buffer = vec![0; 1 << 16];
    for (number, &len) in messages.iter().enumerate() {
        let mut message = Random::new(len as u64).bytes(len);
        message[0] = number as u8;
        assert_eq!(sender.send(&message).unwrap(), len);
        let size = if segment == 0 { len } else { segment.into() };
        for datagram in message.chunks(size) {
            let got = uninterrupted(|| receiver.recv(&mut buffer)).unwrap_or_else(|error| {
                panic!("message {number} of {len} bytes to {address}: {error}")
            });
            assert!(buffer[..got] == *datagram, "message {number} of {len} bytes to {address}");
        }
    }
}
