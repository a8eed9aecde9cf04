//! What the tests of this crate share: a veth pair between two namespaces, and senders that wait for the
//! receiver.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use linerate_testkit::{Namespace, Veth, VethOptions};
use linerate_udp::{Backend, Delivery, Error, Options, Receiver, Sender, SenderOptions, Socket};

/// Long enough for anything on any machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// Frames that a veth holds for certain.
pub(crate) const WINDOW: u64 = 64;

pub(crate) const HERE: &str = "10.77.0.2";
pub(crate) const THERE: &str = "10.77.0.1";
pub(crate) const HERE6: &str = "fd77::2";
pub(crate) const THERE6: &str = "fd77::1";

/// Two hosts: `there` sends by interface `tx`, `here` receives by `rx`.
pub(crate) struct Cable {
    pub(crate) veth: Veth,
    pub(crate) there: Namespace,
    pub(crate) here: Namespace,
}

impl Cable {
    pub(crate) fn new() -> Self {
        let there = Namespace::create("lutx").expect("a namespace");
        let here = Namespace::create("lurx").expect("a namespace");
        for namespace in [&there, &here] {
            // No duplicate address detection: addresses are of use at once.
            namespace.sysctl("net/ipv6/conf/all/accept_dad", "0").expect("a sysctl");
            namespace.sysctl("net/ipv6/conf/default/accept_dad", "0").expect("a sysctl");
            namespace.sysctl("net/ipv6/conf/default/dad_transmits", "0").expect("a sysctl");
        }
        let options = VethOptions { up: false, ..VethOptions::default() };
        let veth = Veth::create(&there, "tx", &here, "rx", options).expect("a veth pair");
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        veth.a.add_address(ip(THERE), 24).expect("an address");
        veth.b.add_address(ip(HERE), 24).expect("an address");
        veth.a.add_address(ip(THERE6), 64).expect("an address");
        veth.b.add_address(ip(HERE6), 64).expect("an address");
        veth.b.set_gro(true).expect("GRO");
        veth.up().expect("both ends up");
        veth.a.add_neighbour(ip(HERE), veth.b.mac()).expect("a neighbour");
        veth.a.add_neighbour(ip(HERE6), veth.b.mac()).expect("a neighbour");
        veth.b.add_neighbour(ip(THERE), veth.a.mac()).expect("a neighbour");
        veth.b.add_neighbour(ip(THERE6), veth.a.mac()).expect("a neighbour");
        let cable = Self { veth, there, here };
        // Groups have to lead somewhere. No program is started for it: until it runs, a child that was
        // forked holds the sockets and XDP programs of all tests of this process.
        cable.there.add_route(ip("0.0.0.0"), 0, ip(HERE)).expect("a route");
        for to in [HERE, HERE6] {
            cable.wait_until_it_carries(to);
        }
        cable
    }

    /// The kernel starts the queue of a new interface from a work item, and drops what is sent before.
    fn wait_until_it_carries(&self, to: &str) {
        let address = SocketAddr::new(to.parse().unwrap(), 7);
        let receiver = self.receive(Options::new(address), Some(Backend::Recvmmsg));
        let mut receiver = receiver.expect("a receiver");
        let end = Instant::now() + TIMEOUT;
        while receiver.receive(soon(Duration::from_millis(5))).expect("messages").is_empty() {
            assert!(Instant::now() < end, "nothing comes through to {to}");
            let mut sender = self.send(SenderOptions::new(address));
            sender.message(1).expect("room").fill(0);
            sender.flush().expect("sent");
        }
    }

    /// A receiver of this host.
    pub(crate) fn receive(
        &self,
        options: Options,
        backend: Option<Backend>,
    ) -> linerate_udp::Result<Receiver> {
        let backend = backend.map(|backend| Kind { backend, delivery: Delivery::Auto });
        // Few messages are under way at a time, and many of these tests run at a time.
        self.open(Options { ring_size: 16 << 20, ..options }, backend)
    }

    /// The same by a backend and, for `xdp`, by one of its ways.
    pub(crate) fn receive_by(
        &self,
        options: Options,
        kind: Kind,
    ) -> linerate_udp::Result<Receiver> {
        self.open(Options { ring_size: 16 << 20, ..options }, Some(kind))
    }

    /// The same with rings as the options has them.
    pub(crate) fn open(
        &self,
        options: Options,
        kind: Option<Kind>,
    ) -> linerate_udp::Result<Receiver> {
        let delivery = kind.map_or(Delivery::Auto, |kind| kind.delivery);
        let options = Options { backend: kind.map(|kind| kind.backend), delivery, ..options };
        self.bind(|| Receiver::open(options.clone()))
    }

    /// A socket of this host.
    pub(crate) fn socket(&self, options: &Options) -> Socket {
        self.bind(|| Socket::open(options.clone())).expect("a socket")
    }

    /// Binds on this host, also to a port that the test has just given up: a program that another test starts
    /// has our descriptors until it runs, and the port is in use as long.
    pub(crate) fn bind<T: Send>(
        &self,
        bind: impl Fn() -> linerate_udp::Result<T> + Sync,
    ) -> linerate_udp::Result<T> {
        let end = Instant::now() + TIMEOUT;
        loop {
            match self.here.run(&bind).expect("the namespace") {
                Err(Error::AddressInUse(_)) if Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                done => return done,
            }
        }
    }

    /// Sends `count` messages of 64 bytes, a few at a time, each few through the receiver's stack before the
    /// next, so that none is lost on the veth pair.
    pub(crate) fn fill(&self, to: SocketAddr, count: u64) {
        let mut sender =
            self.send(SenderOptions { gso: false, batch: 16, ..SenderOptions::new(to) });
        let before = self.veth.b.statistics().expect("statistics").rx_packets;
        let end = Instant::now() + TIMEOUT;
        for sent in 1..=count {
            sender.message(64).expect("room").fill(1);
            if sent % 16 == 0 || sent == count {
                sender.flush().expect("sent");
                while self.veth.b.statistics().expect("statistics").rx_packets < before + sent {
                    assert!(Instant::now() < end, "the cable lost a frame");
                    std::thread::yield_now();
                }
            }
        }
    }

    /// A sender of the other host.
    pub(crate) fn send(&self, options: SenderOptions) -> Sender {
        self.there.run(|| Sender::open(options)).expect("the namespace").expect("a sender")
    }
}

pub(crate) fn address(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().expect("an address"), port)
}

pub(crate) fn soon(time: Duration) -> Option<Instant> {
    Some(Instant::now() + time)
}

/// Receives until there are `count` messages, handing each to `take`.
pub(crate) fn gather(
    receiver: &mut Receiver,
    count: u64,
    mut take: impl FnMut(&linerate_udp::Message<'_>),
) {
    let end = Instant::now() + TIMEOUT;
    let mut got = 0;
    while got < count {
        assert!(Instant::now() < end, "{got} of {count} messages came");
        let mut batch = receiver.receive(soon(Duration::from_millis(200))).expect("messages");
        while let Some(message) = batch.next() {
            got += 1;
            take(&message);
        }
    }
    assert_eq!(got, count, "more messages than were sent");
}

/// A backend and, for `xdp`, the way of its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) backend: Backend,
    pub(crate) delivery: Delivery,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.backend {
            Backend::Xdp => write!(f, "xdp through {}", self.delivery),
            other => other.fmt(f),
        }
    }
}

/// All of [`back_ends`], `xdp` both ways.
pub(crate) fn kinds(cable: &Cable, test: &str) -> Vec<Kind> {
    let ways = |backend| match backend {
        Backend::Xdp => &[Delivery::AfXdp, Delivery::RingBuffer][..],
        _ => &[Delivery::Auto],
    };
    let all = back_ends(cable, test).into_iter();
    all.flat_map(|backend| ways(backend).iter().map(move |&delivery| Kind { backend, delivery }))
        .collect()
}

/// The backends that this machine has for `interface`, those that it lacks said to be skipped.
pub(crate) fn back_ends(cable: &Cable, test: &str) -> Vec<Backend> {
    let all = [Backend::Recvmmsg, Backend::Gro, Backend::Uring, Backend::Xdp];
    all.into_iter()
        .filter(|&backend| {
            let probed = cable.here.run(|| linerate_udp::probe(backend, Some("rx")));
            match probed.expect("the namespace") {
                Ok(()) => true,
                Err(why) => {
                    linerate_testkit::print_skipped(&format!("{test} with {backend}"), &why);
                    false
                }
            }
        })
        .collect()
}
