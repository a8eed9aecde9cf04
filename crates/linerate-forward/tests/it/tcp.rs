//! TCP through an accelerated router that tracks connections and masquerades: bulk both ways at once.
//!
//! LINERATE_SECONDS is the duration; default: 5.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use linerate_testkit::tools::{nft, run};
use linerate_testkit::{Interface, Namespace, exclusive, root_or_skip};

use crate::common::accelerator::Accelerator;
use crate::common::sink::Sink;
use linerate_testkit::lab::{Lab, RIGHT, at};

/// Longest time without a byte on a connection: above that it has stalled. A busy machine may do
/// without one for a second.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Frames that an interface takes in two turns (`NAPI_POLL_WEIGHT`): one may be under way at a change.
const AT_ONCE: u64 = 128;
const PORT: u16 = 5001;

/// A router that masquerades, and hosts that count what they receive of a connection.
struct Hosts {
    lab: Lab,
    _ends: [Sink; 2],
}

impl Hosts {
    fn new() -> Self {
        let lab = Lab::new("bulk");
        lab.masquerade();
        for host in [&lab.left, &lab.right] {
            // So that connections are tracked.
            nft(
                host,
                "table inet t { chain c { type filter hook input priority 0; ct state new accept; }; }",
            );
            host.sysctl("net.netfilter.nf_conntrack_acct", "1").expect("set");
            // No more than a veth's ring holds, so that nothing is lost on the veth pairs.
            for key in ["tcp_rmem", "tcp_wmem"] {
                host.sysctl(&format!("net.ipv4.{key}"), "4096 65536 131072").expect("set");
            }
        }
        // A veth takes redirected frames when its peer has a program, too. What is joined is not counted right.
        let pass = |host: &Namespace, end: &Interface| {
            let sink = Sink::on(host, &[end], "pass");
            end.set_gro(false).expect("GRO");
            sink
        };
        let ends = [pass(&lab.left, &lab.lan.b), pass(&lab.right, &lab.wan.b)];
        lab.ports().into_iter().for_each(|port| port.set_gro(false).expect("GRO"));
        Self { lab, _ends: ends }
    }
}

/// Packets and bytes, by source and destination port of a direction as a host sees it.
type Counts = BTreeMap<(IpAddr, u16, IpAddr, u16), (u64, u64)>;

/// What connection tracking of a host has counted.
fn accounted(host: &Namespace) -> Counts {
    let text = host.run(|| std::fs::read_to_string("/proc/thread-self/net/nf_conntrack"));
    let text = text.expect("entered");
    let text = text.unwrap_or_else(|_| run(host, "conntrack", &["-L"], ""));
    let mut counts = Counts::new();
    for line in text.lines().filter(|line| line.contains("tcp")) {
        let all = |key: &str| {
            let key = format!("{key}=");
            line.split(' ')
                .filter_map(|word| word.strip_prefix(&key))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let [src, dst, sport, dport, packets, bytes] =
            ["src", "dst", "sport", "dport", "packets", "bytes"].map(all);
        for way in 0..src.len().min(packets.len()) {
            let number = |list: &[String]| list[way].parse::<u64>().expect("a number");
            let address = |list: &[String]| list[way].parse::<IpAddr>().expect("an address");
            let key = (address(&src), number(&sport) as u16, address(&dst), number(&dport) as u16);
            counts.insert(key, (number(&packets), number(&bytes)));
        }
    }
    counts
}

/// Sends and receives on a connection until `stop`; counts what came.
struct End<'a> {
    stream: TcpStream,
    received: &'a AtomicU64,
    stop: &'a AtomicBool,
}

impl End<'_> {
    fn receive(&self) {
        let mut bytes = vec![0; 1 << 16];
        let mut stream = &self.stream;
        while let Ok(len) = stream.read(&mut bytes) {
            if len == 0 {
                return;
            }
            // What was sent is a pattern that goes by the position.
            let at = self.received.fetch_add(len as u64, SeqCst);
            let is_right = |(index, byte): (usize, &u8)| *byte == ((at + index as u64) % 251) as u8;
            assert!(bytes[..len].iter().enumerate().all(is_right), "another byte at {at}");
        }
    }

    fn send(&self) {
        let pattern: Vec<u8> = (0..251 * 64).map(|index| (index % 251) as u8).collect();
        let mut stream = &self.stream;
        while !self.stop.load(SeqCst) {
            if let Err(error) = stream.write_all(&pattern) {
                assert!(self.stop.load(SeqCst), "sending: {error}");
                return;
            }
        }
    }
}

/// Ends the threads of all connections, also when this one panics.
struct Ended<'a>(&'a [(TcpStream, TcpStream)], &'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.1.store(true, SeqCst);
        for stream in self.0.iter().flat_map(|(client, server)| [client, server]) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn bulk_tcp_neither_stalls_nor_turns_invalid_and_is_counted_right() {
    root_or_skip!();
    // It loads both CPUs.
    let _exclusive = exclusive();
    let seconds = std::env::var("LINERATE_SECONDS").ok().and_then(|text| text.parse().ok());
    let duration = Duration::from_secs(seconds.unwrap_or(5));
    let Hosts { lab, _ends } = &Hosts::new();
    // Every session passes through the stack again and again, by its time and by the generation.
    let accelerator = Accelerator::attach_with(lab, 2, Duration::from_millis(700));
    let bump = accelerator.bumper();

    let mut pairs = Vec::new();
    for there in RIGHT.map(|host| at(host, PORT)) {
        let listener = lab.right.run(|| TcpListener::bind(there)).expect("entered");
        let listener = listener.expect("a listener");
        let stream = lab.left.run(|| TcpStream::connect(there)).expect("entered");
        pairs.push((stream.expect("connected"), listener.accept().expect("accepted").0));
    }
    let counters: Vec<_> = (0..4).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let began = Instant::now();
    thread::scope(|scope| {
        let _ended = Ended(&pairs, &stop);
        let mut numbers = counters.iter();
        for (client, server) in &pairs {
            for stream in [client, server] {
                let stream = stream.try_clone().expect("cloned");
                let received = numbers.next().expect("as many");
                let end = std::sync::Arc::new(End { stream, received, stop: &stop });
                let sending = end.clone();
                scope.spawn(move || sending.send());
                scope.spawn(move || end.receive());
            }
        }
        let mut last = vec![(0, Instant::now()); counters.len()];
        let mut bumped = Instant::now();
        let mut longest = Duration::ZERO;
        let mut trouble = None;
        while began.elapsed() < duration && trouble.is_none() {
            thread::sleep(Duration::from_millis(20));
            for (counter, last) in counters.iter().zip(&mut last) {
                let received = counter.load(SeqCst);
                longest = longest.max(last.1.elapsed());
                if received > last.0 {
                    *last = (received, Instant::now());
                } else if last.1.elapsed() > TIMEOUT {
                    trouble = Some(format!("nothing came for {TIMEOUT:?} after {} bytes", last.0));
                }
            }
            if bumped.elapsed() > Duration::from_millis(450) {
                bump();
                bumped = Instant::now();
            }
        }
        stop.store(true, SeqCst);
        println!("longest time without a byte: {longest:?}");
        rest(lab, &accelerator);
        if trouble.is_none() {
            compare(lab, &accelerator, &pairs);
        }
        assert!(trouble.is_none(), "{trouble:?}: {:?}", accelerator.reasons());
    });
    assert_eq!(lab.invalid(), 0);
    let bytes = counters.iter().map(|counter| counter.load(SeqCst)).sum::<u64>();
    println!("{bytes} bytes in {duration:?}, both ways of an IPv4 and an IPv6 connection");
    println!(
        "to the kernel: {:?}; not learned: {:?}",
        accelerator.reasons(),
        accelerator.refusals()
    );
}

/// Waits until nothing is under way any more: neither host nor the sessions have counted for a while.
fn rest(lab: &Lab, accelerator: &Accelerator) {
    let deadline = Instant::now() + 3 * TIMEOUT;
    let counted = || {
        let sessions: u64 = accelerator.sessions().iter().map(|one| one.packets).sum();
        (accounted(&lab.left), accounted(&lab.right), sessions)
    };
    let mut before = counted();
    loop {
        thread::sleep(Duration::from_millis(700));
        let now = counted();
        if now == before {
            return;
        }
        assert!(Instant::now() < deadline, "it does not come to rest: {now:?}");
        before = now;
    }
}

/// Holds what the sessions have counted against what both hosts have: within a packet each way.
fn compare(lab: &Lab, accelerator: &Accelerator, pairs: &[(TcpStream, TcpStream)]) {
    let (client, server) = (accounted(&lab.left), accounted(&lab.right));
    let mut sessions = Counts::new();
    for session in accelerator.sessions() {
        let tuple = session.tuple;
        let (from, to) = (tuple.source, tuple.destination);
        let count = sessions.entry((from.ip(), from.port(), to.ip(), to.port())).or_default();
        *count = (count.0 + session.packets, count.1 + session.bytes);
    }
    let slow: u64 = accelerator.reasons().values().sum();
    let all: u64 = sessions.values().map(|count| count.0).sum();
    for (here, there) in pairs {
        let key = |from: SocketAddr, to: SocketAddr| (from.ip(), from.port(), to.ip(), to.port());
        let (near, far) = (here.local_addr().expect("bound"), here.peer_addr().expect("connected"));
        let masked = there.peer_addr().expect("connected");
        let known = |counts: &Counts, key| {
            let found = counts.get(&key);
            *found.unwrap_or_else(|| panic!("{key:?} is not in {counts:?}"))
        };
        // By the host that received: one that sends counts what it gives to its interface, super-packets.
        // The way there as it comes in is the client's own; the way back is what the server sees.
        let ways = [
            [(&sessions, near, far), (&server, masked, far)],
            [(&sessions, far, masked), (&client, far, near)],
        ];
        for way in ways {
            let [counted, received] = way.map(|(counts, from, to)| known(counts, key(from, to)));
            println!("counted {counted:?}, received {received:?} (packets, bytes)");
            assert!(received.0 > 1000, "hardly anything was sent");
            let apart = received.0.abs_diff(counted.0);
            assert!(apart <= 1, "{} received, {} counted", received.0, counted.0);
        }
    }
    // What is out of date or out of time goes to the kernel until one packet has made it, which is no more
    // than what the port takes in at once; so do the first ones.
    let times: u64 =
        accelerator.sessions().iter().map(|one| u64::from(one.revalidations) + 2).sum();
    println!("{slow} of {all} packets went to the kernel, {times} times");
    assert!(slow < all && slow <= AT_ONCE * times, "{:?}", accelerator.reasons());
}
