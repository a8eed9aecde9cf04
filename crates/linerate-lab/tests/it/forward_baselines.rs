//! The forwarding baselines: each design with hash maps learns, counts, lists, flushes and ages as the table does,
//! and the stateless one forwards.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use linerate_forward::config::Lifetime;
use linerate_forward::reason::Reason;
use linerate_forward::runtime::program::unavailable;
use linerate_forward::table::ageing::TICK;
use linerate_forward::table::session::Record;
use linerate_lab::baseline::forward::{Accelerator, Baseline, Options};
use linerate_testkit::tools::run;
use linerate_testkit::{
    Namespace, TIMEOUT, Veth, VethOptions, probe_or_skip, root_or_skip, wait_for,
};

const DESIGNS: [Baseline; 3] = [Baseline::Shared, Baseline::PerCpu, Baseline::Split];

/// The addresses of the hosts, and of the router on their sides.
const LEFT: [&str; 2] = ["10.1.0.2", "fd01::2"];
const RIGHT: [&str; 2] = ["10.2.0.2", "fd02::2"];
const LAN: [&str; 2] = ["10.1.0.1", "fd01::1"];
const WAN: [&str; 2] = ["10.2.0.1", "fd02::1"];

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn at(text: &str, port: u16) -> SocketAddr {
    (address(text), port).into()
}

/// `left` - lan `router` wan - `right`.
struct Net {
    router: Namespace,
    left: Namespace,
    right: Namespace,
    _cables: [Veth; 2],
}

impl Net {
    /// Hosts that compute their checksums, as what comes from a wire has, and know their neighbours.
    fn new() -> Self {
        let make = |name: &str| Namespace::create(name).expect("a namespace");
        let (router, left, right) = (make("router"), make("left"), make("right"));
        router.set_forwarding(true).expect("forwarding");
        let connect = |port: &str, host: &Namespace| {
            Veth::create(&router, port, host, "eth", VethOptions::default()).expect("a cable")
        };
        let cables = [connect("lan", &left), connect("wan", &right)];
        let sides = [
            (&left, LAN, LEFT, ["10.2.0.0", "fd02::"]),
            (&right, WAN, RIGHT, ["10.1.0.0", "fd01::"]),
        ];
        for (cable, (host, near, far, beyond)) in cables.iter().zip(sides) {
            for end in [&cable.a, &cable.b] {
                end.set_offloads(false).expect("offloads");
                end.set_gro(true).expect("GRO");
            }
            for (family, length) in [(0, 24), (1, 64)] {
                cable.a.add_address(address(near[family]), length).expect("an address");
                cable.b.add_address(address(far[family]), length).expect("an address");
                cable.a.add_neighbour(address(far[family]), cable.b.mac()).expect("a neighbour");
                cable.b.add_neighbour(address(near[family]), cable.a.mac()).expect("a neighbour");
                let gateway = address(near[family]);
                host.add_route(address(beyond[family]), length, gateway).expect("a route");
            }
        }
        Self { router, left, right, _cables: cables }
    }

    /// The router translates what leaves by the wan port.
    fn masquerade(&self) {
        let rules = "table inet t {
            chain post { type nat hook postrouting priority srcnat
                oifname \"wan\" masquerade
            }
        }";
        run(&self.router, "nft", &["-f", "-"], rules);
    }

    fn start(&self, baseline: Baseline, options: &Options) -> Accelerator {
        let ports = ["lan".to_owned(), "wan".to_owned()];
        let started = self.router.run(|| Accelerator::start(baseline, &ports, options));
        started.expect("entered").unwrap_or_else(|error| panic!("{baseline}: {error:#}"))
    }

    /// The sockets of a client on the left and a server on the right.
    fn sockets(&self, family: usize) -> (UdpSocket, UdpSocket) {
        let socket = |host: &Namespace, text, port| {
            let socket = host.run(|| UdpSocket::bind(at(text, port))).expect("entered");
            let socket = socket.unwrap_or_else(|error| panic!("{text}, port {port}: {error}"));
            socket.set_read_timeout(Some(TIMEOUT)).expect("a time-out");
            socket
        };
        (socket(&self.left, LEFT[family], 4000), socket(&self.right, RIGHT[family], 5000))
    }
}

/// A question to the server and its answer.
fn ask((client, server): &(UdpSocket, UdpSocket)) {
    let to = server.local_addr().expect("an address");
    let from = deliver(client, to, server, "question");
    deliver(server, from, client, "answer");
}

fn deliver(from: &UdpSocket, to: SocketAddr, at: &UdpSocket, text: &str) -> SocketAddr {
    let mut buffer = [0; 2048];
    from.send_to(text.as_bytes(), to).expect("sent");
    let received = at.recv_from(&mut buffer);
    let (length, source) =
        received.unwrap_or_else(|error| panic!("{text} to {to} did not arrive: {error}"));
    assert_eq!(&buffer[..length], text.as_bytes());
    source
}

/// Every session, in the order of packets and bytes.
fn sessions(fast: &Accelerator) -> Vec<Record> {
    let mut all = Vec::new();
    fast.sessions().expect("hash maps").for_each(|record| all.push(record)).expect("listed");
    all.sort_unstable_by_key(|record| (record.packets(), record.bytes()));
    all
}

/// The thread stays on one CPU, and with it what its packets make the kernel do: a session in a per-CPU map
/// is learned for each CPU separately.
fn stay() {
    use linerate_net::cpu;
    cpu::pin(cpu::allowed().expect("CPUs")[0]).expect("pinned");
}

#[test]
fn each_design_learns_and_counts() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    stay();
    for design in DESIGNS {
        let net = Net::new();
        net.masquerade();
        let mut fast = net.start(design, &Options { max_sessions: 64, ..Options::default() });
        for family in [0, 1] {
            let sockets = net.sockets(family);
            for round in 0..10 {
                fast.tick().expect("a heartbeat");
                ask(&sockets);
                if round == 5 {
                    fast.control().bump();
                }
            }
        }
        let counted: Vec<_> =
            sessions(&fast).iter().map(|one| (one.packets(), one.bytes())).collect();
        assert_eq!(counted, [(10, 340), (10, 360), (10, 540), (10, 560)], "{design}");
        // Two of each session until it is learned, and one after the change.
        assert_eq!(fast.slow_path(Reason::Stale).unwrap(), 4, "{design}");
        assert_eq!(fast.slow_path(Reason::Unknown).unwrap(), 8, "{design}");
    }
}

#[test]
fn each_design_is_flushed_and_forgets() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    stay();
    for design in DESIGNS {
        let net = Net::new();
        let options =
            Options { max_sessions: 64, idle: Duration::from_secs(1), ..Options::default() };
        let mut fast = net.start(design, &options);
        let sockets = net.sockets(0);
        (0..5).for_each(|_| ask(&sockets));
        let is_valid = |record: &Record| !record.is_ended();
        assert_eq!(sessions(&fast).iter().filter(|one| is_valid(one)).count(), 2, "{design}");
        assert_eq!(fast.sessions().unwrap().end(|_| true).unwrap(), 2, "{design}");
        assert!(!sessions(&fast).iter().any(is_valid), "{design}");
        wait_for("sessions to be learned again", || {
            fast.tick().expect("a heartbeat");
            ask(&sockets);
            sessions(&fast).iter().filter(|one| is_valid(one)).count() == 2
        });
        wait_for("sessions to be forgotten", || {
            std::thread::sleep(TICK);
            fast.tick().expect("a heartbeat");
            sessions(&fast).is_empty()
        });
    }
}

#[test]
fn a_session_ends_at_its_age_and_is_learned_again() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    stay();
    let net = Net::new();
    let lifetime = Lifetime::For(Duration::from_secs(2));
    let options = Options { max_sessions: 64, lifetime, ..Options::default() };
    let mut fast = net.start(Baseline::Shared, &options);
    let sockets = net.sockets(0);
    let mut first = None;
    // It never pauses, so that it is never idle: only its age can make it start again.
    wait_for("a session to start again", || {
        fast.tick().expect("a heartbeat");
        ask(&sockets);
        let created = sessions(&fast).first().map(|one| one.session.created);
        first = first.or(created);
        created.is_some() && created != first
    });
}

#[test]
fn the_stateless_baseline_forwards_at_once() {
    root_or_skip!();
    let net = Net::new();
    let mut fast = net.start(Baseline::Fib, &Options::default());
    assert!(fast.sessions().is_none());
    for family in [0, 1] {
        let sockets = net.sockets(family);
        for _ in 0..10 {
            fast.tick().expect("a heartbeat");
            ask(&sockets);
        }
    }
    assert_eq!(fast.slow_path(Reason::Unknown).unwrap(), 0);
}
