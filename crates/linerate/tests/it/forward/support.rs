//! A router between two hosts, and traffic through it. The kernel of the router decides; what is said about
//! sessions is held against what was sent.

use std::net::{IpAddr, SocketAddr};
use std::process::Output;
use std::sync::Once;
use std::time::Duration;

use linerate_forward::runtime::daemon;
use linerate_forward::runtime::pins::{BPFFS, Pins};
use linerate_testkit::{
    Namespace, Process, Random, TIMEOUT, Veth, VethOptions, bind_udp, send_tcp, uninterrupted,
};
use serde_json::Value;

use crate::LINERATE;

/// Addresses of the hosts.
pub(crate) const CLIENT: [&str; 2] = ["10.9.1.2", "fd09:1::2"];
pub(crate) const SERVER: [&str; 2] = ["10.9.2.2", "fd09:2::2"];

/// The server's port. It is fixed, because every host has its own namespace.
const PORT: u16 = 7000;

/// Takes away what tests that were killed have left: pins outlive everything.
fn sweep() {
    static SWEPT: Once = Once::new();
    SWEPT.call_once(|| {
        for name in Pins::instances(BPFFS.as_ref()).unwrap_or_default() {
            let pins = Pins::of(&name);
            if Namespace::is_orphan(&name)
                && let Ok(lock) = pins.lock()
            {
                let _ = daemon::detach(&pins, lock);
            }
        }
    });
}

/// Connects a veth pair from interface `name` of the router to `host`, with addresses of network `net` at both ends.
pub(crate) fn connect(router: &Namespace, name: &str, host: &Namespace, net: u8) -> Veth {
    let veth = Veth::create(router, name, host, "host", VethOptions::default()).unwrap();
    configure(&veth, host, net);
    veth
}

/// Configures a veth pair as [`connect`] does.
pub(crate) fn configure(veth: &Veth, host: &Namespace, net: u8) {
    // What a veth pair carries is finished: segments and checksums.
    veth.b.set_offloads(false).unwrap();
    // A router asks for neighbours from its link-local address, and not without one.
    veth.a.add_address("fe80::1".parse().unwrap(), 64).unwrap();
    veth.b.add_address("fe80::2".parse().unwrap(), 64).unwrap();
    for (router_end, host_end, prefix, all) in [
        (format!("10.9.{net}.1"), format!("10.9.{net}.2"), 24, "0.0.0.0"),
        (format!("fd09:{net}::1"), format!("fd09:{net}::2"), 64, "::"),
    ] {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        veth.a.add_address(address(&router_end), prefix).unwrap();
        veth.b.add_address(address(&host_end), prefix).unwrap();
        host.add_route(address(all), 0, address(&router_end)).unwrap();
    }
}

/// A client and a server with the router in between, whose interfaces are `left` and `right`.
pub(crate) struct Net {
    pub(crate) client: Namespace,
    pub(crate) router: Namespace,
    pub(crate) server: Namespace,
    pub(crate) left: Veth,
    pub(crate) right: Veth,
}

impl Net {
    pub(crate) fn new() -> Self {
        sweep();
        let client = Namespace::create("fwd-client").unwrap();
        let router = Namespace::create("fwd-router").unwrap();
        let server = Namespace::create("fwd-server").unwrap();
        router.set_forwarding(true).unwrap();
        let left = connect(&router, "left", &client, 1);
        let right = connect(&router, "right", &server, 2);
        router.interface("lo").unwrap().up().unwrap();
        Self { client, router, server, left, right }
    }

    /// Runs `linerate forward` in the router to its end.
    pub(crate) fn forward(&self, arguments: &str) -> Output {
        let mut command = self.router.command(LINERATE);
        command.arg("forward").args(arguments.split_whitespace()).output().unwrap()
    }

    /// The same, which has to succeed; standard output.
    pub(crate) fn stdout_of(&self, arguments: &str) -> String {
        let output = self.forward(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same, as JSON: one object, or one a line.
    pub(crate) fn json(&self, arguments: &str) -> Vec<Value> {
        let printed = self.stdout_of(&format!("{arguments} --json"));
        let parse =
            |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        printed.lines().map(parse).collect()
    }

    /// The same, which has to fail; standard error.
    pub(crate) fn refused(&self, arguments: &str, status: i32) -> String {
        let output = self.forward(arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{arguments}: {errors}");
        errors
    }

    /// Starts an accelerator of both interfaces and waits until it forwards.
    pub(crate) fn run(&self, arguments: &str) -> Process {
        self.run_with(arguments, |_| {})
    }

    pub(crate) fn run_with(
        &self,
        arguments: &str,
        prepare: impl FnOnce(&mut linerate_testkit::Command),
    ) -> Process {
        let arguments = format!("-i left -i right --max-sessions 4096 {arguments}");
        let mut daemon = self.begin(&arguments, prepare);
        daemon.until("ready: forwarding");
        daemon
    }

    /// Starts an accelerator and waits for nothing.
    pub(crate) fn begin(
        &self,
        arguments: &str,
        prepare: impl FnOnce(&mut linerate_testkit::Command),
    ) -> Process {
        // It ends with the test, also where that is killed.
        let mut command = self.router.command_killed_with_parent(LINERATE);
        command.args(["forward", "run"]).args(arguments.split_whitespace());
        prepare(&mut command);
        Process::start(&mut command)
    }

    /// Runs a program in the router, which has to succeed.
    pub(crate) fn router_does(&self, line: &str) {
        let mut words = line.split_whitespace();
        let output = self.router.command(words.next().unwrap()).args(words).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {errors}");
    }

    /// Sessions that the router knows, as `sessions --json` prints them.
    pub(crate) fn sessions(&self) -> Vec<Value> {
        self.json("sessions --limit 0")
    }

    /// Packets that did not take the fast path for this reason.
    pub(crate) fn count(&self, reason: &str) -> u64 {
        self.counted("reasons", reason)
    }

    /// Packets that nothing was learned from, for this refusal.
    pub(crate) fn refusals(&self, refusal: &str) -> u64 {
        self.counted("refusals", refusal)
    }

    fn counted(&self, kind: &str, name: &str) -> u64 {
        let status = &self.json("status")[0];
        let found = status[kind].as_array().unwrap().iter().find(|one| one["name"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {status}"))["packets"].as_u64().unwrap()
    }

    /// Whether a program of the accelerator is on one of the interfaces.
    pub(crate) fn is_attached(&self) -> bool {
        self.left.a.has_xdp().unwrap() || self.right.a.has_xdp().unwrap()
    }

    /// Sends `count` datagrams to the server and back from one port, one after the other. How many came
    /// back until one did not.
    pub(crate) fn ask(&self, family: usize, port: u16, count: usize) -> usize {
        self.ask_for(family, port, count, 8, TIMEOUT)
    }

    /// Sends two, neither of which is to come back. How many did within a time that is more than enough.
    pub(crate) fn ask_in_vain(&self, family: usize, port: u16) -> usize {
        self.ask_for(family, port, 2, 8, Duration::from_millis(500))
    }

    /// As [`Net::ask`] with datagrams of `bytes` bytes, at least 8.
    pub(crate) fn ask_with(&self, family: usize, port: u16, count: usize, bytes: usize) -> usize {
        self.ask_for(family, port, count, bytes, TIMEOUT)
    }

    fn ask_for(
        &self,
        family: usize,
        port: u16,
        count: usize,
        bytes: usize,
        timeout: Duration,
    ) -> usize {
        let client = self
            .client
            .run(|| bind_udp(SocketAddr::new(CLIENT[family].parse().unwrap(), port)))
            .unwrap();
        let server = self.server.run(|| bind_udp(at(SERVER[family]))).unwrap();
        server.set_read_timeout(Some(timeout)).unwrap();
        client.set_read_timeout(Some(timeout)).unwrap();
        client.connect(at(SERVER[family])).unwrap();
        let mut buffer = [0; 1 << 16];
        let mut payload = Random::new(bytes as u64).bytes(bytes);
        let mut round = |number: usize| {
            payload[..8].copy_from_slice(&number.to_be_bytes());
            client.send(&payload).ok()?;
            let (len, from) = uninterrupted(|| server.recv_from(&mut buffer)).ok()?;
            server.send_to(&buffer[..len], from).ok()?;
            let len = uninterrupted(|| client.recv(&mut buffer)).ok()?;
            (buffer[..len] == payload).then_some(())
        };
        (0..count).map_while(&mut round).count()
    }

    /// Sends `bytes` bytes to the server by TCP; what arrives must be the same. `meanwhile` in the
    /// middle of it.
    pub(crate) fn tcp(&self, family: usize, bytes: usize, meanwhile: impl FnOnce()) {
        send_tcp(&self.client, &self.server, at(SERVER[family]), bytes, meanwhile);
    }

    /// The same from the server to the client.
    pub(crate) fn tcp_back(&self, family: usize, bytes: usize) {
        send_tcp(&self.server, &self.client, at(CLIENT[family]), bytes, || {});
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // Pins outlive namespaces: nothing stays behind, also after a test that failed.
        let _ = self.router.command(LINERATE).args(["forward", "detach"]).output();
    }
}

fn at(address: &str) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), PORT)
}
