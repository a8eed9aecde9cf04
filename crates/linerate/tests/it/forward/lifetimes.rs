//! Connections live as long as beside plain Linux, whatever conntrack does not see of them, and obey a mark that
//! somebody gives them.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::sleep;
use std::time::{Duration, Instant};

use linerate_forward::runtime::program::unavailable;
use linerate_testkit::tools::{nft, run};
use linerate_testkit::{
    Process, TIMEOUT, bind_udp, probe_or_skip, root_or_skip, uninterrupted, wait_for,
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::support::{CLIENT, Net, SERVER};

/// The timeouts in the routers, in seconds. Those that conntrack chooses if it misses an acknowledgement are far from
/// those of the states.
const TIMEOUTS: [(&str, u32); 12] = [
    ("tcp_timeout_established", 50),
    ("tcp_timeout_unacknowledged", 9),
    ("tcp_timeout_max_retrans", 9),
    ("tcp_timeout_close_wait", 40),
    ("tcp_timeout_fin_wait", 40),
    ("tcp_timeout_last_ack", 20),
    ("tcp_timeout_time_wait", 20),
    ("tcp_timeout_close", 12),
    ("tcp_timeout_syn_sent", 20),
    ("tcp_timeout_syn_recv", 20),
    ("udp_timeout", 25),
    ("udp_timeout_stream", 45),
];

/// Connections whose client's port is in the thousands of their way are translated, in a zone, or have a policy.
const RULES: &str = r#"table inet t {
    ct timeout slow { protocol tcp; l3proto ip; policy = { established : 90 }; }
    chain raw {
        type filter hook prerouting priority raw;
        meta l4proto { tcp, udp } th sport 30000-39999 ct zone set 5
        meta l4proto { tcp, udp } th dport 30000-39999 ct zone set 5
    }
    chain pre {
        type filter hook prerouting priority filter;
        ct state new tcp sport 40000-49999 ct timeout set "slow"
    }
    chain post {
        type nat hook postrouting priority srcnat;
        oifname "right" meta l4proto { tcp, udp } th sport 20000-29999 masquerade
    }
}"#;

/// Family and first port of a client.
const WAYS: [(usize, u16); 6] =
    [(0, 10_000), (1, 10_000), (0, 20_000), (1, 20_000), (0, 30_000), (0, 40_000)];
/// Connections of a way and a pattern: together with the ways thirty of each pattern.
const EACH: u16 = 5;
const SERVER_PORT: u16 = 7000;

/// What happens before a connection becomes idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    ClientFirst,
    ServerFirst,
    Both,
    OneWay,
    HalfClosed,
    /// The client fills the window, and the server opens it again.
    ZeroWindow,
    /// Nothing but the handshake before.
    IdleFirst,
    Reset,
    /// Two seconds after its last data.
    LateReset,
}

const PATTERNS: [Pattern; 9] = [
    Pattern::ClientFirst,
    Pattern::ServerFirst,
    Pattern::Both,
    Pattern::OneWay,
    Pattern::HalfClosed,
    Pattern::ZeroWindow,
    Pattern::IdleFirst,
    Pattern::Reset,
    Pattern::LateReset,
];

/// The same for UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Datagrams {
    /// No stream: all within two seconds.
    Short,
    Stream,
    /// A stream that the server does not answer.
    OneWay,
}

const DATAGRAMS: [Datagrams; 3] = [Datagrams::Short, Datagrams::Stream, Datagrams::OneWay];

fn address(of: &[&str; 2], family: usize, port: u16) -> SocketAddr {
    SocketAddr::new(of[family].parse().unwrap(), port)
}

/// The clients of patterns from the `kind`th on.
fn clients(kind: usize) -> impl Iterator<Item = (usize, u16)> {
    WAYS.into_iter().flat_map(move |(family, first)| {
        (0..EACH).map(move |number| (family, first + 100 * kind as u16 + number))
    })
}

struct Stream {
    pattern: Pattern,
    /// `None` after it was reset.
    client: Option<TcpStream>,
    server: TcpStream,
}

impl Stream {
    fn send(from: &mut TcpStream, to: &mut TcpStream, bytes: usize) {
        let mut arrived = vec![0; bytes];
        from.write_all(&vec![7; bytes]).unwrap();
        to.read_exact(&mut arrived).unwrap();
    }

    fn request(&mut self, bytes: usize) {
        Self::send(self.client.as_mut().unwrap(), &mut self.server, bytes);
    }

    fn answer(&mut self, bytes: usize) {
        Self::send(&mut self.server, self.client.as_mut().unwrap(), bytes);
    }

    fn talk(&mut self) {
        for _ in 0..8 {
            self.request(100);
            self.answer(100);
        }
    }

    /// The client sends until nothing goes any more, and then the server reads it all.
    fn fill_window(&mut self) {
        let client = self.client.as_mut().unwrap();
        client.set_nonblocking(true).unwrap();
        let (mut sent, mut full) = (0, 0);
        while full < 20 {
            match client.write(&[7; 4096]) {
                Ok(bytes) => (sent, full) = (sent + bytes, 0),
                Err(_) => {
                    full += 1;
                    sleep(Duration::from_millis(1));
                }
            }
        }
        client.set_nonblocking(false).unwrap();
        self.server.read_exact(&mut vec![0; sent]).unwrap();
    }

    /// The last packets of the pattern.
    fn end(&mut self) {
        match self.pattern {
            Pattern::ClientFirst => self.request(3000),
            Pattern::ServerFirst => self.answer(3000),
            Pattern::Both | Pattern::IdleFirst => self.talk(),
            Pattern::OneWay => (0..32).for_each(|_| self.request(4096)),
            Pattern::HalfClosed => {
                self.client.as_ref().unwrap().shutdown(Shutdown::Write).unwrap();
                assert_eq!(self.server.read(&mut [0]).unwrap(), 0);
                (0..4).for_each(|_| self.answer(2000));
            }
            Pattern::ZeroWindow => self.fill_window(),
            Pattern::Reset | Pattern::LateReset => {
                // Closed before it has read.
                self.server.write_all(&[7; 100]).unwrap();
                let client = self.client.take().unwrap();
                client.peek(&mut [0]).unwrap();
                if self.pattern == Pattern::LateReset {
                    std::thread::spawn(move || {
                        sleep(Duration::from_secs(2));
                        drop(client);
                    });
                }
            }
        }
    }

    /// Some more packets, if it is open.
    fn go_on(&mut self) {
        if self.client.is_none() {
            return;
        }
        if self.pattern != Pattern::HalfClosed {
            self.request(100);
        }
        self.answer(100);
    }
}

/// The earliest and the latest end of connections, in seconds since an epoch.
type Ends = BTreeMap<String, [f64; 2]>;

/// A router and the connections through it.
struct Side {
    net: Net,
    streams: Vec<Stream>,
    /// Each with its server's socket.
    sockets: Vec<(Datagrams, UdpSocket, usize)>,
    servers: [UdpSocket; 2],
}

impl Side {
    fn new(net: Net) -> Self {
        for (name, seconds) in TIMEOUTS {
            let key = format!("net/netfilter/nf_conntrack_{name}");
            net.router.sysctl(&key, &seconds.to_string()).unwrap();
        }
        nft(&net.router, RULES);
        let server = |family| {
            let bind = || bind_udp(address(&SERVER, family, SERVER_PORT));
            let socket = net.server.run(bind).unwrap();
            socket.set_read_timeout(Some(TIMEOUT)).unwrap();
            socket
        };
        let servers = [server(0), server(1)];
        Self { streams: Vec::new(), sockets: Vec::new(), servers, net }
    }

    fn connect(&mut self) {
        let listen = |family| {
            let listen = || TcpListener::bind(address(&SERVER, family, SERVER_PORT)).unwrap();
            let listener = self.net.server.run(listen).unwrap();
            // Small, so that a window is soon full.
            sockopt::set_socket_recv_buffer_size(&listener, 16 << 10).unwrap();
            listener
        };
        let listeners = [listen(0), listen(1)];
        let Self { net, streams, sockets, .. } = self;
        let connect = || {
            for (kind, pattern) in PATTERNS.into_iter().enumerate() {
                for (family, port) in clients(kind) {
                    let client = stream(family, port);
                    let (server, _) = listeners[family].accept().unwrap();
                    for end in [&client, &server] {
                        end.set_read_timeout(Some(TIMEOUT)).unwrap();
                        end.set_write_timeout(Some(TIMEOUT)).unwrap();
                        end.set_nodelay(true).unwrap();
                    }
                    streams.push(Stream { pattern, client: Some(client), server });
                }
            }
            for (kind, datagrams) in DATAGRAMS.into_iter().enumerate() {
                for (family, port) in clients(kind) {
                    let client = bind_udp(address(&CLIENT, family, port));
                    client.connect(address(&SERVER, family, SERVER_PORT)).unwrap();
                    client.set_read_timeout(Some(TIMEOUT)).unwrap();
                    sockets.push((datagrams, client, family));
                }
            }
        };
        net.client.run(connect).unwrap();
    }

    /// Sends a datagram of this socket to the server and, if `answered`, one back.
    fn ask(&self, socket: usize, answered: bool) {
        let (_, client, family) = &self.sockets[socket];
        client.send(b"request").unwrap();
        let server = &self.servers[*family];
        let (_, from) = uninterrupted(|| server.recv_from(&mut [0; 64])).unwrap();
        if answered {
            server.send_to(b"answer", from).unwrap();
            uninterrupted(|| client.recv(&mut [0; 64])).unwrap();
        }
    }

    /// Reads when the connections end, by protocol, client and port. Conntrack tells whole seconds: a reading leaves a
    /// second, and further ones narrow it.
    fn read_ends(&self, epoch: Instant, ends: &mut Ends) {
        for family in ["ipv4", "ipv6"] {
            let before = epoch.elapsed().as_secs_f64();
            let list = run(&self.net.router, "conntrack", &["-L", "-f", family], "");
            let after = epoch.elapsed().as_secs_f64();
            for line in list.lines().filter(|line| line.contains("dport=7000")) {
                let words: Vec<_> = line.split_whitespace().collect();
                let value = |name| {
                    words.iter().find_map(|word| word.strip_prefix(name)).unwrap_or_default()
                };
                let key = format!("{} {} {}", words[0], value("src="), value("sport="));
                let left: f64 = words[2].parse().unwrap();
                let read = [before + left, after + left + 1.0];
                let known = ends.entry(key).or_insert(read);
                let both = [known[0].max(read[0]), known[1].min(read[1])];
                // Without a common time it was changed.
                *known = if both[0] < both[1] { both } else { read };
            }
        }
    }
}

/// A TCP connection from this port.
fn stream(family: usize, port: u16) -> TcpStream {
    let domain = if family == 0 { AddressFamily::INET } else { AddressFamily::INET6 };
    // What another test starts meanwhile must not keep it open: the reset would come when that ends.
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(domain, SocketType::STREAM, flags, None).unwrap();
    sockopt::set_socket_send_buffer_size(&socket, 16 << 10).unwrap();
    rustix::net::bind(&socket, &address(&CLIENT, family, port)).unwrap();
    rustix::net::connect(&socket, &address(&SERVER, family, SERVER_PORT)).unwrap();
    socket.into()
}

/// Sleeps. Returns by how much the machine woke this thread too late, at most: the daemons' passes are so late, too.
fn pause(time: Duration) -> Duration {
    const STEP: Duration = Duration::from_millis(50);
    let lateness = |_| {
        let started = Instant::now();
        sleep(STEP);
        started.elapsed() - STEP
    };
    (0..time.as_millis() / STEP.as_millis()).map(lateness).max().unwrap_or_default()
}

/// A plain router, and accelerated ones.
struct Sides([Side; 3]);

impl Sides {
    /// Does the same through all routers, connection after connection. Returns by how much a connection of one router
    /// may have been later than that of another, at most.
    fn all(&mut self, count: usize, mut act: impl FnMut(&mut Side, usize)) -> Duration {
        let through_all = |index| {
            let started = Instant::now();
            self.0.iter_mut().for_each(|side| act(side, index));
            started.elapsed()
        };
        (0..count).map(through_all).max().unwrap_or_default()
    }

    /// Every connection that is open has some more packets.
    fn go_on(&mut self) -> Duration {
        let (streams, sockets) = (self.0[0].streams.len(), self.0[0].sockets.len());
        let time = self.all(streams, |side, index| side.streams[index].go_on());
        time + self.all(sockets, |side, index| {
            let datagrams = side.sockets[index].0;
            if datagrams != Datagrams::Short {
                side.ask(index, datagrams == Datagrams::Stream);
            }
        })
    }

    /// Compares the ends of connections behind the accelerated routers with those behind the plain one.
    fn compare(&self, when: &str, spread: Duration) {
        let epoch = Instant::now();
        let mut ends = [(); 3].map(|()| Ends::new());
        while epoch.elapsed() < Duration::from_millis(1100) {
            self.0.iter().zip(&mut ends).for_each(|(side, ends)| side.read_ends(epoch, ends));
            sleep(Duration::from_millis(50));
        }
        let slack = 1.0 + spread.as_secs_f64();
        let [plain, fast @ ..] = ends;
        assert!(plain.len() > 150, "{when}: {plain:?}");
        for (side, fast) in ["XDP", "TC"].into_iter().zip(fast) {
            // One that is gone ended before now.
            let gone = [0.0, 0.0];
            let apart = |client: &String| {
                let [one, other] = [&plain, &fast].map(|ends| *ends.get(client).unwrap_or(&gone));
                (one[0] - other[1]).max(other[0] - one[1])
            };
            let clients = || plain.keys().chain(fast.keys());
            let most = clients().map(apart).fold(0.0, f64::max);
            eprintln!("{when}, {side}: {most:.2} s of {slack:.2} s");
            let wrong: Vec<_> = clients().filter(|client| apart(client) > slack).collect();
            let shown = wrong.iter().map(|&client| (client, plain.get(client), fast.get(client)));
            assert!(
                wrong.is_empty(),
                "{when}, {side}: {} {:#?}",
                wrong.len(),
                shown.collect::<Vec<_>>()
            );
        }
    }
}

const ARGUMENTS: [&str; 2] = [
    "--udp-idle 2s --fail-open-after 1s --metrics off",
    "--udp-idle 2s --fail-open-after 1s --metrics off --datapath tc",
];

fn start(sides: &Sides) -> [Process; 2] {
    let [_, xdp, tc] = &sides.0;
    [xdp.net.run(ARGUMENTS[0]), tc.net.run(ARGUMENTS[1])]
}

/// Three hundred connections through each of three routers.
#[test]
fn connections_live_as_long_as_without_it() {
    root_or_skip!();
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(20_000), hard).unwrap();
    let mut sides = Sides([(); 3].map(|()| Side::new(Net::new())));
    let daemons = start(&sides);
    sides.0.iter_mut().for_each(Side::connect);
    let (streams, sockets) = (sides.0[0].streams.len(), sides.0[0].sockets.len());
    sides.all(streams, |side, index| {
        let stream = &mut side.streams[index];
        if stream.pattern != Pattern::IdleFirst {
            stream.talk();
        }
    });
    sides.all(sockets, |side, index| (0..8).for_each(|_| side.ask(index, true)));
    for side in &sides.0[1..] {
        let fast = side.net.sessions();
        assert!(fast.len() > streams + sockets, "learned: {}", fast.len());
    }
    // UDP is a stream from then on.
    sleep(Duration::from_millis(2100));
    let mut spread = sides.all(streams, |side, index| side.streams[index].end());
    spread += sides.all(sockets, |side, index| match side.sockets[index].0 {
        Datagrams::Short => {}
        Datagrams::Stream => (0..4).for_each(|_| side.ask(index, true)),
        Datagrams::OneWay => (0..4).for_each(|_| side.ask(index, false)),
    });
    spread += pause(Duration::from_secs(3));
    sides.compare("idle", spread);
    sleep(Duration::from_secs(6));
    sides.compare("idle for longer than an acknowledgement may take", spread);

    let spread = sides.go_on() + pause(Duration::from_secs(2));
    daemons.into_iter().for_each(|daemon| drop(daemon.end(Signal::SIGKILL)));
    sides.compare("after a death", spread);
    sleep(Duration::from_secs(1));
    let spread = sides.go_on();
    sides.compare("by the kernel, after a death", spread);

    let daemons = start(&sides);
    sleep(Duration::from_secs(2));
    sides.compare("adopted", spread);
    let spread = (0..5).map(|_| sides.go_on()).max().unwrap() + pause(Duration::from_secs(2));
    sides.compare("adopted, after more packets", spread);

    let spread = sides.go_on();
    for daemon in daemons {
        let (status, _, printed) = daemon.end(Signal::SIGTERM);
        assert!(status.success(), "{printed}");
    }
    sides.compare("after the end", spread);
    let spread = sides.go_on();
    sides.compare("by the kernel, after the end", spread);
    sleep(Duration::from_secs(10));
    sides.compare("long after the end", spread);
}

#[test]
fn a_mark_that_somebody_changes_is_obeyed() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    let net = Net::new();
    nft(
        &net.router,
        "table inet t { chain f { type filter hook forward priority 0; ct mark 0x80000007 drop; }; }",
    );
    let change = |port: &str| {
        let words = ["-U", "-p", "udp", "-s", CLIENT[0], "--sport", port, "--mark", "0x80000007"];
        run(&net.router, "conntrack", &words, "");
        sleep(Duration::from_secs(1));
    };
    // One that is older than the daemon has no events.
    assert_eq!(net.ask(0, 4001, 20), 20);
    let _daemon = net.run("");
    assert_eq!(net.ask(0, 4000, 20), 20);
    // Then they are ASSURED, and go through the kernel once a minute.
    sleep(Duration::from_millis(2100));
    for port in [4000, 4001] {
        assert_eq!(net.ask(0, port, 20), 20);
        sleep(Duration::from_millis(1100));
        assert_eq!(net.ask(0, port, 20), 20);
        wait_for("the sessions", || net.json(&format!("sessions --port {port}")).len() == 2);
        assert_eq!(net.ask(0, port, 20), 20);
        change(&port.to_string());
        assert_eq!(net.ask_in_vain(0, port), 0, "{port}");
    }
}
