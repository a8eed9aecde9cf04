//! Changes that the kernel does not announce: a second later an accelerated router does what a plain one does.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use etherparse::PacketBuilder;
use linerate_forward::runtime::nexthops;
use linerate_forward::runtime::watch::{self, NetworkMonitor};
use linerate_ring::packet::Sender;
use linerate_testkit::lab::{LEFT, Lab, RIGHT, TIMEOUT, WAN, address, at};
use linerate_testkit::tools::{ip_batch, run};
use linerate_testkit::{root_or_skip, uninterrupted, wait_for};
use linerate_wire::virtio::Header;

use crate::common::accelerator::Accelerator;

/// Addresses of the host on the right that routes lead to.
const FAR: [&str; 2] = ["10.9.0.9", "fd09::9"];
/// Source ports of the flows, in both families.
const PORTS: std::ops::Range<u16> = 4000..4008;
const PAYLOAD: usize = 1300;
/// After a change, the kernel's verdict holds from here on.
const LIMIT: Duration = Duration::from_secs(1);

/// A change that is undone afterwards.
struct Change {
    name: &'static str,
    prepare: fn(&Side),
    change: fn(&Side),
    undo: fn(&Side),
}

/// One of two equal labs.
struct Side {
    lab: Lab,
    sender: Sender,
    /// From the right.
    answers: Sender,
    servers: [UdpSocket; 2],
}

impl Side {
    fn new(name: &str) -> Self {
        let lab = Lab::new(name);
        let [v4, v6] = FAR;
        for (number, far) in FAR.iter().enumerate() {
            lab.wan.b.add_address(address(far), [32, 128][number]).expect("an address");
        }
        let other = "lladdr 02:00:00:00:99:99 nud permanent";
        let mac = lab.wan.b.mac();
        let lines = format!(
            "neigh add 10.2.0.3 dev wan {other}\n-6 neigh add fd02::3 dev wan {other}\n\
             -6 neigh add fe80::2 dev wan lladdr {mac} nud permanent\n\
             route add {v4}/32 via {right4}\n-6 route add {v6}/128 via {right6}",
            right4 = RIGHT[0],
            right6 = RIGHT[1],
        );
        ip_batch(&lab.router, &lines);
        for setting in ["all.accept_redirects", "wan.accept_redirects"] {
            lab.router.sysctl(&format!("net.ipv4.conf.{setting}"), "1").expect("set");
        }
        // The labs choose alike.
        lab.router.sysctl("net.ipv4.fib_multipath_hash_seed", "7").expect("set");
        let open = |host: &linerate_testkit::Namespace| {
            host.run(|| Sender::open("eth")).expect("entered").expect("a socket")
        };
        let servers = FAR.map(|far| {
            let socket = lab.right.run(|| UdpSocket::bind(at(far, 5000))).expect("entered");
            socket.expect("bound")
        });
        Self { sender: open(&lab.left), answers: open(&lab.right), servers, lab }
    }

    fn send(&self, family: usize, port: u16) {
        let eth = PacketBuilder::ethernet2(self.lab.lan.b.mac().0, self.lab.lan.a.mac().0);
        let ip = match family {
            0 => eth.ipv4(octets(LEFT[0]), octets(FAR[0]), 64),
            _ => eth.ipv6(octets(LEFT[1]), octets(FAR[1]), 64),
        };
        let mut frame = Vec::new();
        ip.udp(port, 5000).write(&mut frame, &[0; PAYLOAD]).expect("a frame");
        self.sender.send(&Header::default(), &frame).expect("sent");
    }

    /// Sends two packets of each flow: which arrive.
    fn try_all(&self) -> Vec<(u16, usize)> {
        PORTS.flat_map(|port| [0, 1].map(|family| (port, family))).for_each(|(port, family)| {
            self.send(family, port);
            self.send(family, port);
        });
        let mut arrived = Vec::new();
        for (family, server) in self.servers.iter().enumerate() {
            server.set_read_timeout(Some(Duration::from_millis(200))).expect("set");
            let mut buffer = [0; 2048];
            for _ in 0..2 * PORTS.len() {
                match uninterrupted(|| server.recv_from(&mut buffer)) {
                    Ok((_, from)) => arrived.push((from.port(), family)),
                    Err(_) => break,
                }
            }
        }
        arrived.sort_unstable();
        arrived
    }

    fn run(&self, program: &str, words: &str) {
        let words: Vec<_> = words.split(' ').collect();
        run(&self.lab.router, program, &words, "");
    }

    fn set(&self, key: &str, value: &str) {
        self.lab.router.sysctl(&format!("net.{key}"), value).expect("set");
    }

    /// Tells the router what an ICMP message about its own echo reply to `FAR` says.
    fn icmp(&self, kind: u8, code: u8, rest: [u8; 4]) {
        let mut about = Vec::new();
        let echo = PacketBuilder::ipv4(octets(WAN[0]), octets(FAR[0]), 64);
        echo.icmpv4_raw(0, 0, [0; 4]).write(&mut about, &[0; 8]).expect("a packet");
        let eth = PacketBuilder::ethernet2(self.lab.wan.b.mac().0, self.lab.wan.a.mac().0);
        let ip = eth.ipv4(octets(RIGHT[0]), octets(WAN[0]), 64);
        let mut frame = Vec::new();
        ip.icmpv4_raw(kind, code, rest).write(&mut frame, &about).expect("a frame");
        self.answers.send(&Header::default(), &frame).expect("sent");
    }

    /// The same of IPv6: a packet was too big.
    fn too_big(&self, mtu: u32) {
        let mut about = Vec::new();
        let echo = PacketBuilder::ipv6(octets(WAN[1]), octets(FAR[1]), 64);
        echo.icmpv6_raw(129, 0, [0; 4]).write(&mut about, &[0; 8]).expect("a packet");
        let eth = PacketBuilder::ethernet2(self.lab.wan.b.mac().0, self.lab.wan.a.mac().0);
        let ip = eth.ipv6(octets(RIGHT[1]), octets(WAN[1]), 64);
        let mut frame = Vec::new();
        ip.icmpv6_raw(2, 0, mtu.to_be_bytes()).write(&mut frame, &about).expect("a frame");
        self.answers.send(&Header::default(), &frame).expect("sent");
    }

    /// A router advertisement from fe80::2 with this lifetime of the default route, and this MTU.
    fn advertise(&self, lifetime: u16, mtu: u32) {
        let mut body = vec![0; 8];
        body.extend([5, 1, 0, 0]);
        body.extend(mtu.to_be_bytes());
        let [high, low] = lifetime.to_be_bytes();
        let eth = PacketBuilder::ethernet2(self.lab.wan.b.mac().0, [0x33, 0x33, 0, 0, 0, 1]);
        let ip = eth.ipv6(octets("fe80::2"), octets("ff02::1"), 255);
        let mut frame = Vec::new();
        ip.icmpv6_raw(134, 0, [64, 0, high, low]).write(&mut frame, &body).expect("a frame");
        self.answers.send(&Header::default(), &frame).expect("sent");
    }

    /// Whether the router has a route to `FAR` in IPv6.
    fn has_route(&self) -> bool {
        let get = self.lab.router.command("ip").args(["-6", "route", "get", FAR[1]]).output();
        get.expect("run").status.success()
    }

    fn has_lost_its_route(&self) {
        wait_for("a route that expires", || !self.has_route());
    }
}

fn octets<const N: usize>(text: &str) -> [u8; N] {
    let octets = match address(text) {
        std::net::IpAddr::V4(address) => address.octets().to_vec(),
        std::net::IpAddr::V6(address) => address.octets().to_vec(),
    };
    octets.try_into().expect("of this family")
}

const REDIRECT: (u8, u8) = (5, 1);
const TOO_BIG: (u8, u8) = (3, 4);
const OTHER: [u8; 4] = [10, 2, 0, 3];
const SHORT: [u8; 4] = [0, 0, 3, 232];

/// Settings, routes and exceptions.
fn routing() -> Vec<Change> {
    let nothing: fn(&Side) = |_| {};
    vec![
        Change {
            name: "the IPv6 MTU, by sysctl",
            prepare: nothing,
            change: |side| side.set("ipv6.conf.wan.mtu", "1280"),
            undo: |side| side.set("ipv6.conf.wan.mtu", "1500"),
        },
        Change {
            name: "the IPv6 MTU, by router advertisement",
            prepare: |side| side.set("ipv6.conf.wan.accept_ra", "2"),
            change: |side| side.advertise(0, 1290),
            undo: |side| side.set("ipv6.conf.wan.mtu", "1500"),
        },
        Change {
            name: "a path MTU of IPv6",
            prepare: nothing,
            change: |side| side.too_big(1300),
            undo: |side| side.run("ip", "-6 route flush cache"),
        },
        Change {
            name: "a route that expires",
            prepare: |side| side.run("ip", "-6 route replace fd09::9/128 via fd02::2 expires 5"),
            change: Side::has_lost_its_route,
            undo: |side| side.run("ip", "-6 route replace fd09::9/128 via fd02::2"),
        },
        Change {
            name: "the lifetime of a router",
            prepare: |side| {
                side.run("ip", "-6 route del fd09::9/128");
                side.advertise(1800, 1500);
                wait_for("a default route", || side.has_route());
            },
            change: |side| {
                side.advertise(1, 1500);
                side.has_lost_its_route();
            },
            undo: |side| side.run("ip", "-6 route replace fd09::9/128 via fd02::2"),
        },
    ]
}

/// The same of IPv4, and of next hops.
fn routing4() -> Vec<Change> {
    let nothing: fn(&Side) = |_| {};
    vec![
        Change {
            name: "a redirect",
            prepare: nothing,
            change: |side| side.icmp(REDIRECT.0, REDIRECT.1, OTHER),
            undo: |side| side.run("ip", "route flush cache"),
        },
        Change {
            name: "a path MTU that forwarding uses",
            prepare: |side| side.set("ipv4.ip_forward_use_pmtu", "1"),
            change: |side| side.icmp(TOO_BIG.0, TOO_BIG.1, SHORT),
            undo: |side| {
                side.run("ip", "route flush cache");
                side.set("ipv4.ip_forward_use_pmtu", "0");
            },
        },
        Change {
            name: "the use of a path MTU",
            prepare: nothing,
            change: |side| {
                side.icmp(TOO_BIG.0, TOO_BIG.1, SHORT);
                side.set("ipv4.ip_forward_use_pmtu", "1");
            },
            undo: |side| {
                side.run("ip", "route flush cache");
                side.set("ipv4.ip_forward_use_pmtu", "0");
            },
        },
        Change {
            name: "the hash of next hops",
            prepare: multipath,
            change: |side| side.set("ipv4.fib_multipath_hash_policy", "1"),
            undo: |side| side.set("ipv4.fib_multipath_hash_policy", "0"),
        },
        Change {
            name: "the fields of that hash",
            prepare: |side| {
                multipath(side);
                side.set("ipv4.fib_multipath_hash_policy", "3");
            },
            change: |side| side.set("ipv4.fib_multipath_hash_fields", "16"),
            undo: |side| side.set("ipv4.fib_multipath_hash_policy", "0"),
        },
        Change {
            name: "the hash of next hops of IPv6",
            prepare: multipath,
            change: |side| side.set("ipv6.fib_multipath_hash_policy", "1"),
            undo: |side| {
                side.set("ipv6.fib_multipath_hash_policy", "0");
                side.run("ip", "route replace 10.9.0.9/32 via 10.2.0.2");
                side.run("ip", "-6 route del fd09::9/128");
                side.run("ip", "-6 route add fd09::9/128 via fd02::2");
            },
        },
    ]
}

/// Routes with two next hops, of which only one answers.
fn multipath(side: &Side) {
    side.run("ip", "route replace 10.9.0.9/32 nexthop via 10.2.0.2 nexthop via 10.2.0.3");
    side.run("ip", "-6 route replace fd09::9/128 nexthop via fd02::2 nexthop via fd02::3");
}

/// Rules of x_tables, as from a container: with a lock that nobody else sees.
fn rules() -> Vec<Change> {
    let nothing: fn(&Side) = |_| {};
    vec![
        Change {
            name: "a rule of iptables",
            prepare: nothing,
            change: |side| tables(side, 4, "-A FORWARD -p udp --dport 5000 -j DROP"),
            undo: |side| tables(side, 4, "-F FORWARD"),
        },
        Change {
            name: "another rule of the same size",
            prepare: |side| tables(side, 4, "-A FORWARD -p udp --sport 4001 -j DROP"),
            change: |side| tables(side, 4, "-R FORWARD 1 -p udp --sport 4002 -j DROP"),
            undo: |side| tables(side, 4, "-F FORWARD"),
        },
        Change {
            name: "the policy of a chain",
            prepare: nothing,
            change: |side| tables(side, 4, "-P FORWARD DROP"),
            undo: |side| tables(side, 4, "-P FORWARD ACCEPT"),
        },
        Change {
            name: "a rule of ip6tables",
            prepare: nothing,
            change: |side| tables(side, 6, "-A FORWARD -p udp --sport 4003 -j DROP"),
            undo: |side| tables(side, 6, "-F FORWARD"),
        },
    ]
}

fn tables(side: &Side, version: u8, words: &str) {
    let program = if version == 4 { "iptables-legacy" } else { "ip6tables-legacy" };
    let lock = std::env::temp_dir().join(format!("lock-{}", side.lab.router.name()));
    let words = words.split(' ');
    let status =
        side.lab.router.command(program).env("XTABLES_LOCKFILE", &lock).args(words).status();
    assert!(status.expect("run").success());
    let _ = std::fs::remove_file(lock);
}

/// Applies the changes to an accelerated and to a plain router, one after the other.
fn compare(name: &str, changes: &[Change]) {
    let (fast, plain) = (Side::new(&format!("{name}f")), Side::new(&format!("{name}p")));
    let accelerator = Accelerator::attach_with(&fast.lab, 2, Duration::from_secs(3600));
    let ports = fast.lab.ports().map(linerate_testkit::Interface::index).to_vec();
    let options = watch::Options { ports, xtables: false, ..watch::Options::default() };
    let control = accelerator.control.clone();
    let bump = move |causes: watch::Causes| {
        causes.invalidate(&control);
    };
    let monitor = fast.lab.router.run(|| NetworkMonitor::start(&options, bump));
    let mut monitor = monitor.expect("entered").expect("a monitor");
    for Change { name, prepare, change, undo } in changes {
        [&fast, &plain].into_iter().for_each(prepare);
        let before = wait_until_fast(name, &fast, &plain, &accelerator);
        let bumps = monitor.counts().bumps;
        let began = Instant::now();
        change(&plain);
        change(&fast);
        let changed = Instant::now();
        wait_for(name, || monitor.counts().bumps > bumps);
        let noticed = changed.elapsed();
        sleep(LIMIT.saturating_sub(changed.elapsed()));
        let (expected, got) = (plain.try_all(), fast.try_all());
        assert_ne!(expected, before, "{name}: nothing changes");
        assert_eq!(got, expected, "{name}: {:?} after the change", began.elapsed());
        println!("{name}: noticed after {noticed:?}");
        [&fast, &plain].into_iter().for_each(undo);
        monitor.check().expect("it watches");
    }
}

/// Waits until the fast path forwards every packet that arrives, and returns which.
fn wait_until_fast(
    name: &str,
    fast: &Side,
    plain: &Side,
    accelerator: &Accelerator,
) -> Vec<(u16, usize)> {
    let left = || accelerator.reasons().values().sum::<u64>();
    let deadline = Instant::now() + 2 * TIMEOUT;
    loop {
        let (before, expected) = (left(), plain.try_all());
        let got = fast.try_all();
        // Those that do not arrive may be the kernel's.
        let lost = 4 * PORTS.len() - got.len();
        if got == expected && left() - before <= lost as u64 {
            return got;
        }
        assert!(
            Instant::now() < deadline,
            "{name}: {got:?} of {expected:?}; {:?}; {:?}",
            accelerator.reasons(),
            accelerator.refusals()
        );
    }
}

#[test]
fn changes_that_nobody_announces_are_obeyed_within_a_second() {
    root_or_skip!();
    thread::scope(|scope| {
        let groups = [("una", routing()), ("unb", routing4()), ("unc", rules())];
        for (name, changes) in groups {
            scope.spawn(move || compare(name, &changes));
        }
    });
}

#[test]
fn a_bucket_of_a_resilient_group_stays_busy() {
    root_or_skip!();
    let side = Side::new("unr");
    // The flows are in all buckets.
    side.set("ipv4.fib_multipath_hash_policy", "1");
    for words in [
        "nexthop add id 1 via 10.2.0.2 dev wan",
        "nexthop add id 2 via 10.2.0.3 dev wan",
        "nexthop add id 3 via 10.2.0.2 dev wan",
        "nexthop add id 9 group 1/3 type resilient buckets 4 idle_timer 4",
        "route replace 10.9.0.9/32 nhid 9",
    ] {
        side.run("ip", words);
    }
    let idle = side.lab.router.run(nexthops::shortest_idle_timer).expect("entered").expect("read");
    assert_eq!(idle, Some(Duration::from_secs(4)));
    let within = nexthops::revalidate_within(idle, Duration::from_secs(3600));
    let accelerator = Accelerator::attach_with(&side.lab, 2, within);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                PORTS.for_each(|port| side.send(0, port));
                sleep(Duration::from_millis(50));
            }
        });
        let session = || accelerator.session(at(LEFT[0], PORTS.start), at(FAR[0], 5000));
        wait_for("a session", || session().is_some());
        // Half of the buckets are to change, as soon as they are idle.
        let group = "1,1/3,1/2,2 type resilient buckets 4 idle_timer 4";
        side.run("ip", &format!("nexthop replace id 9 group {group}"));
        (accelerator.bumper())();
        sleep(Duration::from_secs(9));
        is_over.store(true, SeqCst);
    });
    // What has arrived before.
    side.servers[0].set_nonblocking(true).expect("set");
    while side.servers[0].recv_from(&mut [0; 2048]).is_ok() {}
    side.servers[0].set_nonblocking(false).expect("set");
    // The kernel says where they go.
    (accelerator.bumper())();
    let arrived = side.try_all();
    let of_ipv4 = arrived.iter().filter(|(_, family)| *family == 0).count();
    assert_eq!(
        of_ipv4,
        2 * PORTS.len(),
        "{arrived:?}; {:?}; {:?}",
        accelerator.reasons(),
        accelerator.refusals()
    );
}
