//! TCP through the fast path: connection tracking must neither lose it nor call it invalid, and every
//! segment is counted once.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use linerate_forward::table::session::Record;
use linerate_testkit::{Interface, Namespace, wait_for};

use crate::common::accelerator::Accelerator;
use linerate_testkit::lab::{BOTH, LEFT, Lab, RIGHT, TIMEOUT, at};
use linerate_testkit::tools::run;

/// How long each direction is filled.
const LONG: Duration = Duration::from_millis(800);
/// The time from one learning to the next.
const REVALIDATE_AFTER: Duration = Duration::from_millis(40);

/// Frames that an interface takes in one turn (`NAPI_POLL_WEIGHT`).
const AT_ONCE: u64 = 64;

/// Rules of a host that count what is not TCP: reports of IPv6 groups now and then.
const COUNTED: &str = "table inet count {
    counter other { }
    chain out { type filter hook output priority 0
        meta l4proto != tcp counter name other
    }
}";

/// What a host has sent.
#[derive(Clone, Copy)]
struct Sent {
    /// TCP segments, and bytes of their IP packets. The kernel counts a frame in a veth with its Ethernet
    /// header or without, by the path that it takes: both.
    packets: u64,
    bytes: [u64; 2],
}

impl Sent {
    fn by(host: &Namespace, interface: &Interface) -> Self {
        let counters = interface.statistics().expect("statistics");
        let text = run(host, "nft", &["list", "counter", "inet", "count", "other"], "");
        let mut words = text.split_whitespace().skip_while(|word| *word != "packets");
        let mut number = || -> u64 { words.nth(1).expect("a number").parse().expect("a number") };
        let (packets, bytes) = (number(), number());
        let other = [bytes, bytes + 14 * counters.tx_packets];
        Self {
            packets: counters.tx_packets - packets,
            bytes: other.map(|other| counters.tx_bytes.wrapping_sub(other)),
        }
    }

    /// Whether a session that counted so many counted all that was sent since `before`.
    fn is(self, before: Self, packets: u64, bytes: u64) -> bool {
        let mut differences = self.bytes.into_iter().zip(before.bytes);
        self.packets - before.packets == packets
            && differences.any(|(now, then)| now.wrapping_sub(then) == bytes)
    }
}

/// A connection from left to right: both ends, the left one first.
fn connect(lab: &Lab, from: SocketAddr, to: SocketAddr) -> (TcpStream, TcpStream) {
    let listener = lab.right.run(|| TcpListener::bind(to)).expect("entered").expect("a listener");
    let connect = || {
        use rustix::net::{AddressFamily, SocketType, bind, connect, ipproto, socket};
        let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let stream = socket(family, SocketType::STREAM, Some(ipproto::TCP)).expect("a socket");
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
fn transfer(lab: &Lab, family: usize, fast: &Accelerator) {
    let (here, there) = (at(LEFT[family], 4000), at(RIGHT[family], 5000));
    let hosts = [(&lab.left, &lab.lan.b), (&lab.right, &lab.wan.b)];
    for (host, _) in hosts {
        run(host, "nft", &["-f", "-"], COUNTED);
    }
    let before = hosts.map(|(host, interface)| Sent::by(host, interface));
    let (client, server) = connect(lab, here, there);
    let record = |source: SocketAddr| -> Option<Record> {
        fast.sessions().into_iter().find(|record| record.tuple().source == source)
    };
    let is_learned_again =
        |source: SocketAddr| record(source).is_some_and(|record| record.session.revalidations >= 5);
    fill(&client, &server, || is_learned_again(here));
    fill(&server, &client, || is_learned_again(there));
    let out = fast.learned(here, there);
    let back = record(there).unwrap_or_else(|| panic!("no way back: {}", fast.describe()));
    for record in [&out, &back] {
        assert!(record.session.revalidations >= 5, "{record:?}: {}", fast.describe());
    }
    // Past the deadline packets go to the kernel until one of them has made it, which are no more than
    // what the port takes in at once; the rest was fast.
    let slow: u64 = fast.reasons().values().sum();
    let times = out.session.revalidations + back.session.revalidations + 4;
    assert!(slow <= AT_ONCE * u64::from(times), "{}", fast.describe());
    assert!(slow < out.packets() + back.packets(), "{}", fast.describe());
    drop((client, server));
    wait_for("the last segments", || {
        let ended = |source| record(source).is_some_and(|record| record.is_ended());
        ended(here) && ended(there)
    });
    // What the hosts sent, the sessions have: from the SYN to the last acknowledgement.
    for (((host, interface), before), source) in hosts.into_iter().zip(before).zip([here, there]) {
        let of = || {
            let record = record(source).expect("a session");
            (record.packets(), record.bytes())
        };
        let is_all = || {
            let (packets, bytes) = of();
            Sent::by(host, interface).is(before, packets, bytes)
        };
        let deadline = Instant::now() + TIMEOUT;
        while !is_all() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        let sent = Sent::by(host, interface);
        assert!(
            is_all(),
            "from {source}: {:?} counted, {} sent, {:?} bytes; {}",
            of(),
            sent.packets - before.packets,
            [0, 1].map(|at| sent.bytes[at].wrapping_sub(before.bytes[at])),
            fast.describe()
        );
        run(host, "nft", &["flush", "ruleset"], "");
    }
}

/// Both families, one after the other.
fn transfers(lab: &Lab, is_tracked: bool) {
    for family in BOTH {
        let fast = Accelerator::attach_with(lab, 2, REVALIDATE_AFTER);
        transfer(lab, family, &fast);
        assert!(!is_tracked || lab.invalid() == 0, "{}", fast.describe());
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
