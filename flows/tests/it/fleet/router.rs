//! A router of the site that translates addresses, hosts on both of its sides, and what its records must have.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;

use linerate_testkit::lab::{LEFT, Lab, RIGHT, TIMEOUT, WAN, address, at};
use linerate_testkit::{
    Namespace, Process, Veth, VethOptions, bind_udp, tools, uninterrupted, wait_for,
};
use nix::sys::signal::Signal;

use super::engines::{Connection, Connections, Direction, Sums};
use super::figure;

/// The port of the server.
const PORT: u16 = 5000;
/// The first port of each host. The router translates it into another one.
const FIRST_PORT: u16 = 4000;
/// Connections of a host, which end at once. The buffer of conntrack's socket has room for about 160 events.
const CONNECTIONS: u16 = 100;
/// Datagrams each way of a connection that is answered.
const ROUNDS: u64 = 10;
const UDP: u64 = 17;

/// A direction of a connection, with the packets and bytes that the kernel has counted.
type Counted = (Direction, (u64, u64));

/// Packets and octets of a direction of a connection, which its original direction identifies. Another connection may
/// get its translated port later, and with it the same direction of answers.
type Talked = HashMap<(Direction, Direction), (u64, u64)>;

/// `linerate forward` with NAT between hosts and a server.
pub(super) struct Router {
    lab: Lab,
    linerate: PathBuf,
    /// conntrack's own log.
    log: PathBuf,
    _uplink: Veth,
    /// conntrack, which logs its events.
    events: Option<Process>,
}

/// What hosts have sent through the router.
pub(super) struct Sent {
    /// Directions of connections with a session: all that was sent, also what the kernel has forwarded before.
    pub(super) directions: Sums,
    /// Translated connections, with what their hosts have sent of that.
    pub(super) connections: Connections,
}

impl Router {
    /// A router whose uplink to the site has the addresses 10.99.99.1 (the site's) and 10.99.99.2.
    pub(super) fn new(site: &Namespace, linerate: PathBuf, log: PathBuf) -> Self {
        let lab = Lab::new("nat");
        let uplink = Veth::create(site, "router", &lab.router, "uplink", VethOptions::default());
        let uplink = uplink.unwrap();
        uplink.a.add_address(address("10.99.99.1"), 24).unwrap();
        uplink.b.add_address(address("10.99.99.2"), 24).unwrap();
        lab.nft(
            "table inet nat {
                chain out {
                    type nat hook postrouting priority srcnat
                    oifname \"wan\" meta l4proto udp masquerade to :20000-60000
                }
            }",
        );
        // The kernel counts what it forwards itself, and ends no connection during the test.
        for (name, value) in [("acct", "1"), ("udp_timeout", "600"), ("udp_timeout_stream", "600")]
        {
            lab.router.sysctl(&format!("net.netfilter.nf_conntrack_{name}"), value).unwrap();
        }
        let mut router = Self { lab, linerate, log, _uplink: uplink, events: None };
        router.events = Some(router.log_events());
        router
    }

    /// Starts conntrack's log.
    fn log_events(&self) -> Process {
        let mut command = self.lab.router.command_killed_with_parent("sh");
        // Real-time priority keeps the buffer of its socket from overrunning. It has the default size: `-b` of conntrack
        // 1.4.7 sets that of another socket.
        let line = format!(
            "exec chrt --fifo 1 stdbuf -oL conntrack -E -e NEW,DESTROY -p udp >{}",
            self.log.display()
        );
        let conntrack = Process::start(command.args(["-c", &line]));
        // It listens when it has logged a connection. What is sent meanwhile has another port.
        let probe = Lab::udp(&self.lab.left, LEFT[0], 999);
        wait_for("conntrack to listen", || {
            self.conntrack(&["-F"]);
            probe.send_to(&[0], at(RIGHT[0], PORT)).unwrap();
            !self.log().is_empty()
        });
        self.conntrack(&["-F"]);
        conntrack
    }

    fn conntrack(&self, arguments: &[&str]) {
        tools::run(&self.lab.router, "conntrack", arguments, "");
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Connections of hosts with an event of this kind: both directions, with the packets and bytes that the kernel has counted
    /// (at the end only).
    fn logged(&self, kind: &str) -> Vec<[Counted; 2]> {
        let text = self.log();
        // The last line may be incomplete.
        let text = &text[..text.rfind('\n').unwrap_or_default()];
        let connections = text.lines().filter(|line| line.contains(kind)).map(parse);
        // The probe's, and those of the router itself, have other ports.
        let is_of_host = |[((.., source_port, destination_port), _), _]: &[Counted; 2]| {
            *source_port >= FIRST_PORT.into() && *destination_port == u64::from(PORT)
        };
        connections.filter(is_of_host).collect()
    }

    /// Starts the router's records of flows, to this folder and these collectors.
    pub(super) fn forward(&self, flows: &str, collectors: &[String]) -> Process {
        let mut command = self.lab.router.command_killed_with_parent(&self.linerate);
        command.args(["forward", "run", "-i", "lan", "-i", "wan", "--metrics", "off"]);
        command.args(["--max-sessions", "65536", "--sensor", "router", "--flow-file-time", "1s"]);
        for destination in [flows].into_iter().chain(collectors.iter().map(|one| &**one)) {
            command.args(["--flows", destination]);
        }
        let mut forward = Process::start(&mut command);
        forward.until("ready: forwarding");
        forward
    }

    /// So many hosts, every other one with IPv6, each open [`CONNECTIONS`] to the server; every fourth is a single
    /// datagram without an answer. The router then forgets the connections, and ends its records.
    pub(super) fn run(mut self, forward: Process, hosts: u8) -> Sent {
        let mut sent = Talked::new();
        let mut translated = HashMap::<Direction, SocketAddr>::new();
        for number in 0..hosts {
            let family = usize::from(number % 2);
            let host = address(&format!("{}{}", ["10.1.0.", "fd01::"][family], 10 + number));
            self.lab.lan.b.add_address(host, [24, 64][family]).unwrap();
            self.lab.lan.a.add_neighbour(host, self.lab.lan.b.mac()).unwrap();
            self.talk(host, family, &mut sent, &mut translated);
            let log = usize::from(number + 1) * usize::from(CONNECTIONS);
            wait_for("connections in conntrack's log", || self.logged("[NEW]").len() == log);
            self.conntrack(&["-D", "-f", ["ipv4", "ipv6"][family], "-s", &host.to_string()]);
            wait_for("their end in conntrack's log", || self.logged("[DESTROY]").len() == log);
        }
        if let Some(events) = self.events.take() {
            events.end(Signal::SIGINT);
        }
        let (status, _, printed) = forward.end(Signal::SIGINT);
        assert!(status.success() && !printed.contains(" lost:"), "{printed}");
        self.expect(&sent, &translated)
    }

    /// Opens connections from one host. Adds what each side has sent, and whom the server has seen.
    fn talk(
        &self,
        host: IpAddr,
        family: usize,
        sent: &mut Talked,
        translated: &mut HashMap<Direction, SocketAddr>,
    ) {
        let open = || {
            let bind = |n| bind_udp(SocketAddr::new(host, FIRST_PORT + n));
            (0..CONNECTIONS).map(bind).collect::<Vec<UdpSocket>>()
        };
        let clients = self.lab.left.run(open).unwrap();
        let server = self.lab.right.run(|| bind_udp(at(RIGHT[family], PORT))).unwrap();
        server.set_read_timeout(Some(TIMEOUT)).unwrap();
        // The headers of IP and UDP.
        let headers = [28, 48][family];
        let mut buffer = [0; 2048];
        for (n, client) in clients.iter().enumerate() {
            client.set_read_timeout(Some(TIMEOUT)).unwrap();
            let port = u64::from(FIRST_PORT) + n as u64;
            let original = (host, address(RIGHT[family]), UDP, port, PORT.into());
            let (rounds, payload) = if n % 4 == 0 { (1, 20) } else { (ROUNDS, 20 + n % 400) };
            for _ in 0..rounds {
                client.send_to(&vec![0; payload], at(RIGHT[family], PORT)).unwrap();
                let (len, from) = uninterrupted(|| server.recv_from(&mut buffer)).unwrap();
                assert_eq!(len, payload);
                assert_eq!(from.ip(), address(WAN[family]), "the server sees the router");
                assert_eq!(*translated.entry(original).or_insert(from), from);
                add(sent, (original, original), headers + len as u64);
                if rounds > 1 {
                    server.send_to(&buffer[..len], from).unwrap();
                    let len = uninterrupted(|| client.recv(&mut buffer)).unwrap();
                    let source = (address(RIGHT[family]), PORT.into());
                    let answer = (source.0, from.ip(), UDP, source.1, from.port().into());
                    add(sent, (original, answer), headers + len as u64);
                }
            }
        }
    }

    /// What the records must have.
    fn expect(&self, sent: &Talked, translated: &HashMap<Direction, SocketAddr>) -> Sent {
        let (mut directions, mut connections, mut slow) = (sent.clone(), Connections::new(), 0);
        let key = |original: Direction, answer: Direction| -> Connection {
            let seen = translated[&original];
            let logged = (answer.1, answer.4);
            assert_eq!(logged, (seen.ip(), seen.port().into()), "the server and conntrack differ");
            (original, logged.0, logged.1)
        };
        for [original, answer] in self.logged("[NEW]") {
            connections.entry(key(original.0, answer.0)).or_default()[0] += 1;
        }
        for [original, answer] in self.logged("[DESTROY]") {
            for (direction, (packets, _)) in [original, answer] {
                slow += packets;
                // A connection that the kernel alone has forwarded has no session.
                let key = (original.0, direction);
                if directions.get(&key).is_some_and(|sent| sent.0 == packets) {
                    directions.remove(&key);
                }
            }
            let connection = connections.entry(key(original.0, answer.0)).or_default();
            let talked = directions.get(&(original.0, original.0)).copied();
            let (packets, octets) = talked.unwrap_or_default();
            *connection = [connection[0], connection[1] + 1, packets, octets];
        }
        let packets: u64 = sent.values().map(|sum| sum.0).sum();
        figure!(
            "router: {} translated connections; {packets} packets sent, {} of them forwarded by the fast path",
            connections.len(),
            packets - slow,
        );
        assert_eq!(connections.len(), translated.len());
        assert!(connections.keys().all(|(original, _, port)| original.3 != *port));
        assert!(slow < packets / 2, "{slow} of {packets} packets were forwarded by the kernel");
        let mut sums = Sums::new();
        for ((_, direction), (packets, octets)) in directions {
            let sum = sums.entry(direction).or_default();
            *sum = (sum.0 + packets, sum.1 + octets);
        }
        Sent { directions: sums, connections }
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        // The pins of an instance outlive its namespace.
        let mut detach = self.lab.router.command(&self.linerate);
        let _ = detach.args(["forward", "detach"]).output();
    }
}

fn add(talked: &mut Talked, key: (Direction, Direction), octets: u64) {
    let sum = talked.entry(key).or_default();
    *sum = (sum.0 + 1, sum.1 + octets);
}

/// A line of conntrack's log: both directions of a connection, each with packets and bytes, if the line has them.
fn parse(line: &str) -> [Counted; 2] {
    let words = |name: &str| -> Vec<&str> {
        line.split_whitespace().filter_map(|word| word.strip_prefix(name)).collect()
    };
    let addresses = |name| words(name).into_iter().map(address).collect::<Vec<_>>();
    let numbers = |name| -> Vec<u64> {
        words(name).into_iter().map(|number| number.parse().unwrap()).collect()
    };
    let (sources, destinations) = (addresses("src="), addresses("dst="));
    let (source_ports, destination_ports) = (numbers("sport="), numbers("dport="));
    let (packets, bytes) = (numbers("packets="), numbers("bytes="));
    [0, 1].map(|n| {
        let direction = (sources[n], destinations[n], UDP, source_ports[n], destination_ports[n]);
        let count = |counts: &[u64]| counts.get(n).copied().unwrap_or_default();
        (direction, (count(&packets), count(&bytes)))
    })
}
