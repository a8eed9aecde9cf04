//! What becomes of the ports when interfaces do.

use std::io::Write;
use std::net::UdpSocket;
use std::process::Stdio;

use linerate_ring::packet::Sender;
use linerate_ring::tun::{Device, Kind, MAX_PACKET, Queue};
use linerate_testkit::{Namespace, Process, Veth, root_or_skip, skip, wait_for};
use linerate_wire::virtio::Header;
use nix::sys::signal::Signal;

use super::support::{Net, configure, connect};

/// Whether packets from `port` take the fast path both ways.
fn is_fast(net: &Net, port: u16) -> bool {
    let fast = |one: &&serde_json::Value| one["state"] == "fast";
    net.ask(0, port, 10) == 10
        && net.json(&format!("sessions --port {port}")).iter().filter(fast).count() == 2
}

/// Runs lines of `ip -batch` in the router: within a moment.
fn at_once(net: &Net, lines: &str) -> bool {
    let mut command = net.router.command("ip");
    command.args(["-batch", "-"]).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    child.wait().unwrap().success()
}

#[test]
fn a_port_that_is_renamed_is_let_go_and_taken_up_again() {
    root_or_skip!();
    let net = Net::new();
    let mut daemon = net.run("");
    wait_for("the fast path", || is_fast(&net, 4000));
    // Since Linux 6.2 also while it is up.
    if !at_once(&net, "link set left name elsewhere\n") {
        skip!("this kernel renames no interface that is up");
    }
    daemon.until("interface gone; it becomes a port again");
    wait_for("the programs to be off", || !net.left.a.has_xdp().unwrap());
    assert_eq!(net.ask(0, 4000, 5), 5, "the kernel forwards between them");
    assert!(at_once(&net, "link set elsewhere name left\n"));
    wait_for("the port again", || net.left.a.has_xdp().unwrap());
    wait_for("the fast path again", || is_fast(&net, 4000));
    let (status, _, printed) = daemon.end(Signal::SIGTERM);
    assert!(status.success() && !net.is_attached(), "{printed}");
}

#[test]
fn two_ports_that_swap_their_names_stay_ports() {
    root_or_skip!();
    let net = Net::new();
    let mut daemon = net.run("");
    let names = "link set left name other\nlink set right name left\nlink set other name right\n";
    if !at_once(&net, names) {
        skip!("this kernel renames no interface that is up");
    }
    daemon.until("interface gone; it becomes a port again");
    wait_for("both to be ports again", || {
        net.left.a.has_xdp().unwrap() && net.right.a.has_xdp().unwrap()
    });
    wait_for("the fast path again", || is_fast(&net, 4000));
    let sessions = net.json("sessions --port 4000 --address 10.9.1.2 --sort source");
    assert_eq!(sessions[0]["ingress"], "right", "what was left: {sessions:?}");
}

#[test]
fn a_port_that_is_made_anew_is_taken_up() {
    root_or_skip!();
    let net = Net::new();
    let _daemon = net.run("");
    wait_for("the fast path", || is_fast(&net, 4000));
    // The daemon may see only that one of the same name, index and MAC address is there.
    let (index, mac) = (net.right.a.index(), net.right.a.mac());
    let peer = format!("peer name host netns {}", net.server.name());
    let add = format!("link add right index {index} address {mac} type veth {peer}");
    assert!(at_once(&net, &format!("link del right\n{add}\n")));
    let right = Veth {
        a: net.router.interface("right").unwrap(),
        b: net.server.interface("host").unwrap(),
    };
    assert_eq!((right.a.index(), right.a.mac()), (index, mac));
    right.up().unwrap();
    configure(&right, &net.server, 2);
    wait_for("the port again", || right.a.has_xdp().unwrap());
    wait_for("the fast path again", || is_fast(&net, 4000));
}

/// A configuration that SIGHUP reads again.
struct File(tempfile::NamedTempFile);

impl File {
    fn new() -> Self {
        Self(tempfile::NamedTempFile::new().unwrap())
    }

    fn write(&self, interfaces: &[&str]) {
        let text =
            format!("interfaces = {interfaces:?}\nmax-sessions = 4096\ndatapath = \"xdp\"\n");
        std::fs::write(self.0.path(), text).unwrap();
    }

    fn run(&self, net: &Net) -> Process {
        self.write(&["left", "right"]);
        let mut daemon = net.begin(&format!("-c {}", self.0.path().display()), |_| {});
        daemon.until("ready: forwarding");
        daemon
    }

    fn change(&self, interfaces: &[&str], daemon: &mut Process) {
        self.write(interfaces);
        daemon.signal(Signal::SIGHUP);
        daemon.until("configuration reloaded");
    }
}

/// What left by a port does not leave by the one that has its number now.
#[test]
fn a_port_gets_the_number_of_another_and_nothing_else_of_it() {
    root_or_skip!();
    let net = Net::new();
    let elsewhere = Namespace::create("fwd-else").unwrap();
    let third = connect(&net.router, "third", &elsewhere, 3);
    let file = File::new();
    let mut daemon = file.run(&net);
    wait_for("the fast path", || is_fast(&net, 4000));
    file.change(&["left", "third"], &mut daemon);
    assert!(third.a.has_xdp().unwrap() && !net.right.a.has_xdp().unwrap());
    assert_eq!(net.ask(0, 4000, 20), 20);
    let ports = net.json("status").remove(0);
    let names = ports["ports"].as_array().unwrap().iter().map(|port| &port["interface"]);
    assert_eq!(names.collect::<Vec<_>>(), ["left", "third"]);
}

/// Takes out all frames that wait; how many there were of IPv4.
fn drain(queue: &Queue) -> usize {
    let mut buffer = vec![0; MAX_PACKET];
    let frames = std::iter::from_fn(|| {
        let (_, len) = queue.receive(&mut buffer).unwrap()?;
        Some(buffer[12..len].starts_with(&[8, 0]))
    });
    frames.filter(|is_ipv4| *is_ipv4).count()
}

/// The ring of a TAP device without a reader is full: frames that are redirected to it are lost.
#[test]
fn nothing_is_redirected_to_a_port_before_it_is_proven() {
    root_or_skip!();
    let net = Net::new();
    let open = || Device::builder("tap0").kind(Kind::Tap).build();
    let device = net.router.run(open).unwrap().unwrap();
    let queue = &device.queues()[0];
    net.router_does("ip link set tap0 txqueuelen 32 up");
    net.router_does("ip addr add 10.9.3.1/24 dev tap0");
    net.router_does("ip neigh add 10.9.3.2 lladdr 02:00:00:00:03:02 nud permanent dev tap0");
    let fill = net.router.run(|| Sender::open("tap0")).unwrap().unwrap();
    for _ in 0..64 {
        // Those that do not fit are refused.
        let _ = fill.send(&Header::default(), &[0x88; 60]);
    }
    let file = File::new();
    let mut daemon = file.run(&net);
    let client = net.client.run(|| UdpSocket::bind("10.9.1.2:4000")).unwrap().unwrap();
    let send = || {
        for _ in 0..6 {
            client.send_to(b"through", "10.9.3.2:7000").unwrap();
        }
    };
    file.change(&["left", "right", "tap0"], &mut daemon);
    assert!(daemon.stderr().contains("none was sent"), "{}", daemon.stderr());
    wait_for("a session to be refused", || {
        send();
        net.refusals("datapath") > 0
    });
    wait_for("the others to be fast", || is_fast(&net, 4001));
    // Somebody reads, and the kernel tells of the interface: it is proven then.
    drain(queue);
    net.router_does("ip link set tap0 alias read");
    wait_for("egress to be enabled", || {
        drain(queue);
        let before = net.refusals("datapath");
        send();
        net.refusals("datapath") == before && drain(queue) == 6
    });
}
