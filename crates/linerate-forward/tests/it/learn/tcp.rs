//! TCP through the fast path: connection tracking must neither lose it nor call it invalid, and every
//! segment is counted once.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use linerate_forward::datapath::Datapath;
use linerate_forward::table::session::{Session, State};
use linerate_testkit::{Interface, wait_for};

use crate::common::accelerator::Accelerator;
use linerate_testkit::lab::{BOTH, LEFT, Lab, RIGHT, TIMEOUT, at};
use linerate_testkit::tools::run;

/// How long each direction is filled.
const LONG: Duration = Duration::from_millis(800);
/// The time from one learning to the next.
const REVALIDATE_AFTER: Duration = Duration::from_millis(40);

/// Frames that an interface takes in one turn (`NAPI_POLL_WEIGHT`).
const AT_ONCE: u64 = 64;

/// Rules of a host that sends nothing but TCP: without them it reports IPv6 groups now and then.
const ONLY_TCP: &str = "table inet only {
    chain out { type filter hook output priority 0
        meta l4proto != tcp drop
    }
}";

/// What a host has sent. The kernel counts a frame in a veth with its Ethernet header or without, by the path that it
/// takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    packets: u64,
    bytes: u64,
}

impl Sent {
    fn by(interface: &Interface) -> Self {
        let counters = interface.statistics().expect("statistics");
        Self { packets: counters.tx_packets, bytes: counters.tx_bytes }
    }

    /// The same of a host that sends nothing now. What it sent a moment ago is counted when the other end takes it.
    fn at_rest(interface: &Interface) -> Self {
        let mut last = Self::by(interface);
        wait_for("the host to be quiet", || {
            thread::sleep(Duration::from_millis(50));
            let before = std::mem::replace(&mut last, Self::by(interface));
            before == last
        });
        last
    }

    fn since(self, before: Self) -> Self {
        Self { packets: self.packets - before.packets, bytes: self.bytes - before.bytes }
    }

    /// Whether these are IP packets of so many bytes together.
    fn is(self, packets: u64, bytes: u64) -> bool {
        self.packets == packets && (self.bytes == bytes || self.bytes == bytes + 14 * packets)
    }
}

/// A connection from left to right: both ends, the left one first.
fn connect(lab: &Lab, from: SocketAddr, to: SocketAddr) -> (TcpStream, TcpStream) {
    let listener = lab.right.run(|| TcpListener::bind(to)).expect("entered").expect("a listener");
    let connect = || {
        use rustix::net::{AddressFamily, SocketFlags, SocketType};
        use rustix::net::{bind, connect, ipproto, socket_with};
        let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        // A program that another test starts must not keep the connection open.
        let flags = SocketFlags::CLOEXEC;
        let stream = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP));
        let stream = stream.expect("a socket");
        bind(&stream, &from).expect("bound");
        connect(&stream, &to).expect("connected");
        TcpStream::from(stream)
    };
    let client = lab.left.run(connect).expect("entered");
    let (server, _) = listener.accept().expect("accepted");
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(TIMEOUT)).expect("a time-out");
        stream.set_write_timeout(Some(TIMEOUT)).expect("a time-out");
    }
    (client, server)
}

/// Bytes that are written at once. The first says whether the block is the last one.
const BLOCK: usize = 1 << 16;

/// Sends for a while and until it is enough; what arrives is what was sent, and never stalls for [`TIMEOUT`].
fn fill(mut from: &TcpStream, mut to: &TcpStream, is_enough: impl Fn() -> bool + Send) {
    thread::scope(|scope| {
        scope.spawn(move || {
            let start = Instant::now();
            for number in 0_u64.. {
                let long = start.elapsed();
                let is_last = long > LONG && (is_enough() || long > TIMEOUT);
                from.write_all(&block(number, is_last)).expect("sent");
                if is_last {
                    break;
                }
            }
        });
        let mut taken = vec![0; BLOCK];
        for number in 0.. {
            to.read_exact(&mut taken).unwrap_or_else(|error| panic!("block {number}: {error}"));
            let is_last = taken[0] == 1;
            assert!(taken == block(number, is_last), "block {number} has other bytes");
            if is_last {
                break;
            }
        }
    });
}

fn block(number: u64, is_last: bool) -> Vec<u8> {
    let mut block = number.to_le_bytes().repeat(BLOCK / 8);
    block[0] = is_last.into();
    block
}

/// Fills a connection both ways, one after the other.
fn transfer(lab: &Lab, family: usize, port: u16, fast: &Accelerator) {
    let (here, there) = (at(LEFT[family], port), at(RIGHT[family], 5000));
    let hosts = [(&lab.left, &lab.lan.b), (&lab.right, &lab.wan.b)];
    for (host, _) in hosts {
        run(host, "nft", &["-f", "-"], ONLY_TCP);
    }
    let before = hosts.map(|(_, interface)| Sent::at_rest(interface));
    let (client, server) = connect(lab, here, there);
    let record = |source: SocketAddr| -> Option<Session> {
        fast.sessions().into_iter().find(|record| record.tuple.source == source)
    };
    let is_learned_again =
        |source: SocketAddr| record(source).is_some_and(|record| record.revalidations >= 5);
    fill(&client, &server, || is_learned_again(here));
    fill(&server, &client, || is_learned_again(there));
    let out = fast.learned(here, there);
    let back = record(there).unwrap_or_else(|| panic!("no way back: {}", fast.describe()));
    for record in [&out, &back] {
        assert!(record.revalidations >= 5, "{record:?}: {}", fast.describe());
    }
    // Past the deadline packets go to the kernel until one of them has made it, which are no more than
    // what the port takes in at once; the rest was fast.
    let slow: u64 = fast.reasons().values().sum();
    let times = out.revalidations + back.revalidations + 4;
    assert!(slow <= AT_ONCE * u64::from(times), "{}", fast.describe());
    assert!(slow < out.packets + back.packets, "{}", fast.describe());
    drop((client, server));
    wait_for("the last segments", || {
        let ended = |source| record(source).is_some_and(|record| record.state == State::Ended);
        ended(here) && ended(there)
    });
    // What the hosts sent, the sessions have: from the SYN to the last acknowledgement.
    for (((host, interface), before), source) in hosts.into_iter().zip(before).zip([here, there]) {
        let of = || {
            let record = record(source).expect("a session");
            (record.packets, record.bytes)
        };
        let is_all = || {
            let (packets, bytes) = of();
            Sent::by(interface).since(before).is(packets, bytes)
        };
        let deadline = Instant::now() + TIMEOUT;
        while !is_all() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        let sent = Sent::by(interface).since(before);
        assert!(is_all(), "from {source}: {:?} counted, {sent:?}; {}", of(), fast.describe());
        run(host, "nft", &["flush", "ruleset"], "");
    }
}

/// Both families by both datapaths, one after the other.
fn transfers(lab: &Lab, is_tracked: bool) {
    // The ports of the connection before are still in use.
    for (datapath, port) in [(Datapath::Xdp, 4000), (Datapath::Tc, 4001)] {
        for family in BOTH {
            let fast = Accelerator::attach_by(datapath, lab, 2, REVALIDATE_AFTER);
            transfer(lab, family, port, &fast);
            assert!(!is_tracked || lab.invalid() == 0, "{datapath}: {}", fast.describe());
        }
    }
}

#[test]
fn untracked_tcp() {
    learner_or_skip!();
    transfers(&Lab::new("tun"), false);
}

#[test]
fn tracked_tcp_is_never_invalid() {
    learner_or_skip!();
    let lab = Lab::new("ttr");
    lab.track();
    transfers(&lab, true);
}

#[test]
fn translated_tcp_is_never_invalid() {
    learner_or_skip!();
    let lab = Lab::new("tma");
    lab.masquerade();
    transfers(&lab, true);
}

#[test]
fn strict_window_tracking_would_call_it_invalid() {
    learner_or_skip!();
    let lab = Lab::new("tst");
    lab.track();
    let fast = Accelerator::attach_with(&lab, 2, REVALIDATE_AFTER);
    // The accelerator turned it off.
    lab.router.sysctl("net.netfilter.nf_conntrack_tcp_be_liberal", "0").expect("a sysctl");
    let (client, server) = connect(&lab, at(LEFT[0], 4000), at(RIGHT[0], 5000));
    fill(&client, &server, || lab.invalid() > 0);
    assert_ne!(lab.invalid(), 0, "{}", fast.describe());
}
