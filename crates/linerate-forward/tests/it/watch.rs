//! The watch, with the kernel as the one that changes: each kind of change is followed by a bump, and
//! what is no change by none.

use std::net::{IpAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use linerate_forward::runtime::watch::{BATCH, Cause, Causes, NetworkMonitor, Options};
use linerate_testkit::{Namespace, TIMEOUT, Veth, VethOptions, print_skipped, root_or_skip, skip};
use linerate_testkit::{test_name, tools, wait_for};

/// Without iptables' lock, which other tests take, and without what is polled: it has tests of its own.
fn options() -> Options {
    Options { xtables: false, poll: false, ..Options::default() }
}

/// Less would not show a bump that should not come.
const QUIET: Duration = Duration::from_millis(300);

/// A router with two veth pairs, watched.
struct Router {
    host: Namespace,
    left: Namespace,
    a: Veth,
    _b: Veth,
    right: Namespace,
    bumps: Bumps,
    watch: NetworkMonitor,
}

#[derive(Clone, Default)]
struct Bumps(Arc<Mutex<Vec<(Instant, Causes)>>>);

impl Bumps {
    fn all(&self) -> Vec<(Instant, Causes)> {
        self.0.lock().unwrap().clone()
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Starts a watch of `host` that adds to these; `then` follows each.
    fn watch(
        &self,
        host: &Namespace,
        options: Options,
        then: impl Fn(Causes) + Send + 'static,
    ) -> NetworkMonitor {
        let told = self.clone();
        let bump = move |causes| {
            told.0.lock().unwrap().push((Instant::now(), causes));
            then(causes);
        };
        host.run(|| NetworkMonitor::start(&options, bump)).unwrap().unwrap()
    }

    /// Waits until no more come, and returns their number.
    fn rest(&self) -> usize {
        loop {
            let before = self.count();
            thread::sleep(QUIET);
            if self.count() == before {
                return before;
            }
        }
    }

    /// The causes since the bump number `from`.
    fn since(&self, from: usize) -> Causes {
        self.all()[from..].iter().flat_map(|(_, causes)| causes.iter()).collect()
    }
}

impl Router {
    fn new(name: &str) -> Self {
        Self::with(name, options())
    }

    fn with(name: &str, options: Options) -> Self {
        let make = |end: &str| Namespace::create(&format!("{name}{end}")).unwrap();
        let (host, left, right) = (make("host"), make("left"), make("right"));
        let a = Veth::create(&host, "a", &left, "x", VethOptions::default()).unwrap();
        let b = Veth::create(&host, "b", &right, "y", VethOptions::default()).unwrap();
        a.a.add_address("10.0.1.1".parse().unwrap(), 24).unwrap();
        a.b.add_address("10.0.1.2".parse().unwrap(), 24).unwrap();
        b.a.add_address("10.0.2.1".parse().unwrap(), 24).unwrap();
        b.b.add_address("10.0.2.2".parse().unwrap(), 24).unwrap();
        host.set_forwarding(true).unwrap();
        settle(&host, &["a", "b"]);
        let bumps = Bumps::default();
        let watch = bumps.watch(&host, options, |_| {});
        assert_eq!(bumps.since(0).to_string(), "start");
        let router = Self { host, left, right, a, _b: b, bumps, watch };
        router.rest();
        router
    }

    /// Waits until nothing bumps any more: the next step starts from there.
    fn rest(&self) -> usize {
        self.bumps.rest()
    }

    /// Runs a command line in the router, which must be carried out.
    fn run(&self, line: &str) {
        assert!(self.tried(line), "{line}");
    }

    fn tried(&self, line: &str) -> bool {
        tried(&self.host, line)
    }

    /// Holds that `step` is followed by a bump for `cause`.
    fn bumps_for(&mut self, cause: Cause, what: &str, step: impl FnOnce(&Self)) {
        let from = self.rest();
        step(self);
        wait_for(what, || self.bumps.since(from).contains(cause));
        self.watch.check().unwrap();
    }

    /// The same for a command line in the router.
    fn line_bumps(&mut self, cause: Cause, line: &str) {
        self.bumps_for(cause, line, |router| router.run(line));
    }

    /// Holds that `step` is a message of the kernel, or several, and no bump.
    fn bumps_not(&mut self, what: &str, step: impl FnOnce(&Self)) {
        let from = self.rest();
        let ignored = self.watch.counts().ignored;
        step(self);
        wait_for(what, || self.watch.counts().ignored != ignored);
        thread::sleep(QUIET);
        assert_eq!(self.bumps.count(), from, "{what}: {}", self.bumps.since(from));
        self.watch.check().unwrap();
    }
}

/// Waits until these have a carrier, and until the kernel has reported it: it does so once a second, whatever
/// it answers to those who ask (`net/core/link_watch.c`).
fn settle(host: &Namespace, names: &[&str]) {
    let up = |name: &&str| {
        tools::run(host, "ip", &["-o", "link", "show", "dev", name], "").contains("state UP")
    };
    wait_for("interfaces that are up", || names.iter().all(up));
    thread::sleep(Duration::from_millis(2100));
}

/// Has `host` look for the hardware address of `address`, by a datagram.
fn look_for(host: &Namespace, address: &str) {
    let target = (address.parse::<IpAddr>().unwrap(), 9);
    let send = || UdpSocket::bind("0.0.0.0:0").unwrap().send_to(b"?", target);
    let _ = host.run(send).unwrap();
}

/// A host with a veth pair to another.
fn host(name: &str) -> (Namespace, Namespace, Veth) {
    let host = Namespace::create(name).unwrap();
    let far = Namespace::create(&format!("{name}far")).unwrap();
    let cable = Veth::create(&host, "a", &far, "x", VethOptions::default()).unwrap();
    cable.a.add_address("10.0.1.1".parse().unwrap(), 24).unwrap();
    (host, far, cable)
}

/// So many routes below this network, and what else there is to do, by one command.
fn add_routes(host: &Namespace, network: usize, count: usize, line: &str) {
    let route = |n: usize| format!("route add {network}.64.{}.{}/32 dev a\n", n >> 8, n & 255);
    tools::ip_batch(host, &((0..count).map(route).collect::<String>() + line));
}

fn tried(host: &Namespace, line: &str) -> bool {
    let mut words = shell_words(line).into_iter();
    let mut command = host.command(words.next().unwrap());
    match command.args(words).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            eprintln!("{line}: {}", String::from_utf8_lossy(&output.stderr));
            false
        }
        Err(error) => {
            eprintln!("{line}: {error}");
            false
        }
    }
}

/// Words between spaces; what stands in single quotes is one.
fn shell_words(line: &str) -> Vec<&str> {
    line.split('\'')
        .enumerate()
        .flat_map(
            |(at, part)| if at % 2 == 1 { vec![part] } else { part.split_whitespace().collect() },
        )
        .collect()
}

#[test]
fn changes_of_routing_bump() {
    root_or_skip!();
    let mut router = Router::new("wroute");
    for line in [
        "ip route add 192.0.2.0/24 via 10.0.2.2",
        "ip route change 192.0.2.0/24 via 10.0.1.2",
        "ip route replace 192.0.2.0/24 via 10.0.2.2 mtu 1400",
        "ip route del 192.0.2.0/24",
        "ip route add blackhole 198.51.100.0/24 table 7",
    ] {
        router.line_bumps(Cause::Route, line);
    }
    for line in ["ip rule add from 192.0.2.1 table 7", "ip rule del from 192.0.2.1 table 7"] {
        router.line_bumps(Cause::Rule, line);
    }
    router.line_bumps(Cause::Nexthop, "ip nexthop add id 5 via 10.0.2.2 dev b");
    router.line_bumps(Cause::Nexthop, "ip nexthop replace id 5 via 10.0.1.2 dev a");
    router.line_bumps(Cause::Nexthop, "ip nexthop del id 5");
    if std::path::Path::new("/proc/sys/net/ipv6").exists() {
        router.run("sysctl -qw net.ipv6.conf.b.disable_ipv6=0");
        router.line_bumps(Cause::Address, "ip addr add 2001:db8::1/64 dev b nodad");
        router.line_bumps(Cause::Route, "ip -6 route add 2001:db8:1::/48 via 2001:db8::2");
        router.line_bumps(Cause::Rule, "ip -6 rule add from 2001:db8::/64 table 7");
    }
}

#[test]
fn changes_of_links_and_addresses_bump() {
    root_or_skip!();
    let mut router = Router::new("wlink");
    router.line_bumps(Cause::Link, "ip link set dev b mtu 1400");
    router.line_bumps(Cause::Link, "ip link set dev b address 02:00:00:00:00:77");
    router.line_bumps(Cause::Link, "ip link set dev b down");
    router.line_bumps(Cause::Link, "ip link set dev b up");
    router.bumps_for(Cause::Link, "the carrier goes", |router| {
        assert!(tried(&router.right, "ip link set dev y down"));
    });
    router.bumps_for(Cause::Link, "the carrier comes", |router| {
        assert!(tried(&router.right, "ip link set dev y up"));
    });
    router.line_bumps(Cause::Link, "ip link set dev b name c");
    router.line_bumps(Cause::Address, "ip addr add 10.0.9.1/24 dev c");
    router.line_bumps(Cause::Address, "ip addr del 10.0.9.1/24 dev c");
    router.line_bumps(Cause::Forwarding, "sysctl -qw net.ipv4.conf.c.forwarding=0");
    router.line_bumps(Cause::Forwarding, "sysctl -qw net.ipv4.ip_forward=0");
    router.line_bumps(Cause::Forwarding, "sysctl -qw net.ipv4.conf.c.rp_filter=1");
    router.line_bumps(Cause::Link, "ip link add vd type veth peer name ve");
    router.line_bumps(Cause::Link, "ip link del vd");
    if std::path::Path::new("/proc/sys/net/ipv6").exists() {
        router.line_bumps(Cause::Forwarding, "sysctl -qw net.ipv6.conf.all.forwarding=0");
    }
    router.bumps_for(Cause::Link, "a port is gone", |router| {
        assert!(tried(&router.left, "ip link del x"));
    });
}

#[test]
fn neighbours_bump_only_when_they_are_elsewhere() {
    root_or_skip!();
    let mut router = Router::new("wneigh");
    let mac = router.a.b.mac();
    // By ARP: it is looked for, and answers.
    router.bumps_not("a neighbour that is new", |router| {
        look_for(&router.host, "10.0.1.2");
    });
    for state in ["stale", "reachable", "delay", "probe", "stale", "permanent", "reachable"] {
        let line = format!("ip neigh change 10.0.1.2 dev a lladdr {mac} nud {state}");
        router.bumps_not(&line, |router| router.run(&line));
    }
    let moved = "ip neigh change 10.0.1.2 dev a lladdr 02:00:00:00:00:99 nud reachable";
    router.line_bumps(Cause::Neighbour, moved);
    router.line_bumps(Cause::Neighbour, "ip neigh del 10.0.1.2 dev a");
    // Whether its answer bumps is the kernel's: an entry that it has forgotten is a new one.
    let back = format!("ip neigh change 10.0.1.2 dev a lladdr {mac} nud reachable");
    wait_for("it answers again", || {
        look_for(&router.host, "10.0.1.2");
        tried(&router.host, &back)
    });
    // Nobody answers, so that nothing was ever sent there.
    router.bumps_not("a scan", |router| {
        for host in 3..6 {
            look_for(&router.host, &format!("10.0.1.{host}"));
        }
    });
    // One that stops answering: its address goes while probing.
    router.bumps_for(Cause::Neighbour, "it answers no more", |router| {
        router.run("sysctl -qw net.ipv4.neigh.a.ucast_solicit=1 net.ipv4.neigh.a.mcast_solicit=0");
        router.run("sysctl -qw net.ipv4.neigh.a.retrans_time_ms=100");
        assert!(tried(&router.left, "ip link set dev x arp off"));
        router.run(&format!("ip neigh change 10.0.1.2 dev a lladdr {mac} nud probe"));
    });
}

#[test]
fn a_neighbour_that_decides_a_route_bumps_when_it_comes() {
    root_or_skip!();
    let mut router = Router::new("wheed");
    router.run("sysctl -qw net.ipv4.fib_multipath_use_neigh=1");
    let line = "ip neigh add 10.0.1.9 dev a lladdr 02:00:00:00:00:09 nud reachable";
    router.line_bumps(Cause::Neighbour, line);
}

#[test]
fn what_renews_or_looks_on_does_not_bump() {
    root_or_skip!();
    let mut router = Router::new("wquiet");
    let lifetime = |time: u32| {
        format!("ip addr change 10.0.3.1/24 dev b valid_lft {time} preferred_lft {time}")
    };
    router.line_bumps(Cause::Address, &lifetime(600));
    let renewed = lifetime(900);
    router.bumps_not(&renewed, |router| router.run(&renewed));
    router.bumps_not("a capture", |router| router.run("ip link set dev b promisc on"));
    router.bumps_not("its end", |router| router.run("ip link set dev b promisc off"));
    router.bumps_not("multicast", |router| router.run("ip link set dev b allmulticast on"));
    router.bumps_not("a longer queue", |router| router.run("ip link set dev b txqueuelen 77"));
    // The dump at the start and the notification of a bridge say the same.
    router.run("ip link add br0 type bridge");
    router.run("ip link set dev b master br0");
    router.run("ip link set dev br0 up");
    settle(&router.host, &["br0"]);
    router
        .bumps_not("a capture on a bridge", |router| router.run("ip link set dev br0 promisc on"));
}

#[test]
fn what_was_before_the_start_is_known() {
    root_or_skip!();
    let (host, _far, _cable) = host("wbefore");
    for line in [
        "ip neigh add 10.0.1.2 dev a lladdr 02:00:00:00:00:02 nud reachable",
        "ip addr add 10.0.3.1/24 dev a valid_lft 600 preferred_lft 600",
        "ip link add br0 type bridge",
        "ip link set dev br0 up",
        "ip link add vm type veth peer name vn",
        "ip link set dev vm master br0",
        "bridge fdb add 02:00:00:00:00:33 dev vm master static",
    ] {
        assert!(tried(&host, line), "{line}");
    }
    settle(&host, &["a"]);
    let bumps = Bumps::default();
    let watch = bumps.watch(&host, options(), |_| {});
    bumps.rest();
    for line in [
        "ip neigh change 10.0.1.2 dev a lladdr 02:00:00:00:00:02 nud stale",
        "ip addr change 10.0.3.1/24 dev a valid_lft 900 preferred_lft 900",
        "ip link set dev a promisc on",
        "ip link set dev br0 promisc on",
        "ip link set dev vm promisc on",
    ] {
        let (before, ignored) = (bumps.count(), watch.counts().ignored);
        assert!(tried(&host, line), "{line}");
        wait_for(line, || watch.counts().ignored > ignored);
        thread::sleep(QUIET);
        assert_eq!(bumps.count(), before, "{line}: {}", bumps.since(before));
    }
    let before = bumps.count();
    assert!(tried(&host, "bridge fdb del 02:00:00:00:00:33 dev vm master static"));
    wait_for("a bump", || bumps.since(before).contains(Cause::Bridge));
}

#[test]
fn bridges_bump_when_a_port_is_in_them() {
    root_or_skip!();
    let mut router = Router::new("wbridge");
    if !router.tried("ip link add br0 type bridge") {
        skip!("the kernel has no bridges");
    }
    for line in [
        "ip link add br1 type bridge",
        "ip link add vm type veth peer name vn",
        "ip link set dev vm master br1",
        "ip link set dev br1 up",
        "ip link set dev br0 up",
        "ip link set dev a master br0",
        "ip link set dev b master br0",
    ] {
        router.run(line);
    }
    let ports = vec![router.a.a.index()];
    settle(&router.host, &["br0"]);
    router.watch = router.bumps.watch(&router.host, Options { ports, ..options() }, |_| {});
    let entry = "02:00:00:00:00:33";
    router.line_bumps(Cause::Bridge, &format!("bridge fdb add {entry} dev a master static"));
    router.line_bumps(Cause::Bridge, &format!("bridge fdb replace {entry} dev b master static"));
    router.line_bumps(Cause::Bridge, &format!("bridge fdb del {entry} dev b master static"));
    let other = format!("bridge fdb add {entry} dev vm master static");
    router.bumps_not(&other, |router| router.run(&other));
    // Learned from a frame, and elsewhere from the next.
    router.bumps_for(Cause::Bridge, "a host that moves", |router| {
        assert!(tried(&router.left, "ip link set dev x address 02:00:00:00:00:55"));
        look_for(&router.left, "10.0.1.99");
    });
    router.line_bumps(Cause::Link, "bridge link set dev b state 0");
    if router.tried("ip link set dev br0 type bridge vlan_filtering 1") {
        router.line_bumps(Cause::Bridge, "bridge vlan add dev b vid 7");
    }
}

#[test]
fn changes_of_the_ruleset_bump_once_a_commit() {
    root_or_skip!();
    let mut router = Router::new("wnft");
    if !router.tried("nft list ruleset") {
        skip!("there is no nft");
    }
    for line in [
        "nft add table inet t",
        "nft 'add chain inet t f { type filter hook forward priority 0; }'",
        "nft add rule inet t f ip daddr 192.0.2.1 drop",
        "nft 'add set inet t s { type ipv4_addr; flags timeout; }'",
        "nft 'add element inet t s { 192.0.2.7 }'",
        "nft 'delete element inet t s { 192.0.2.7 }'",
        "nft 'add chain inet t n { type nat hook postrouting priority 100; }'",
        "nft add rule inet t n oif b masquerade",
    ] {
        let from = router.rest();
        router.line_bumps(Cause::Nftables, line);
        router.rest();
        assert_eq!(router.bumps.count(), from + 1, "{line}");
    }
    // A commit of many is one.
    let mut rules = String::from("nft '");
    for host in 0..250 {
        rules.push_str(&format!("add rule inet t f ip daddr 198.51.100.{host} drop; "));
    }
    rules.push('\'');
    let from = router.rest();
    router.line_bumps(Cause::Nftables, &rules);
    router.rest();
    assert_eq!(router.bumps.count(), from + 1, "{:?}", &router.bumps.all()[from..]);
    router.line_bumps(Cause::Nftables, "nft flush ruleset");
}

#[test]
fn iptables_bumps_in_both_its_forms() {
    root_or_skip!();
    let mut router = Router::with("wipt", Options::default());
    let rule = "-w -A FORWARD -d 192.0.2.1 -j DROP";
    for (program, cause) in [("iptables-nft", Cause::Nftables), ("iptables-legacy", Cause::Xtables)]
    {
        if router.tried(&format!("{program} -w -L -n")) {
            router.line_bumps(cause, &format!("{program} {rule}"));
        } else {
            print_skipped(test_name!(), &format!("there is no {program}"));
        }
    }
}

#[test]
fn changes_of_ipsec_and_traffic_control_bump() {
    root_or_skip!();
    let mut router = Router::new("wxfrm");
    let policy = "src 10.0.1.0/24 dst 10.0.2.0/24 dir fwd";
    if router.tried("ip xfrm policy") {
        router.line_bumps(Cause::Ipsec, &format!("ip xfrm policy add {policy}"));
        router.line_bumps(Cause::Ipsec, &format!("ip xfrm policy update {policy} action block"));
        router.line_bumps(Cause::Ipsec, &format!("ip xfrm policy delete {policy}"));
        let short = format!("ip xfrm policy add {policy} limit time-hard 1");
        router.bumps_for(Cause::Ipsec, "a policy that expires", |router| {
            router.run(&short);
            // The bump for its being added is not the one for its end.
            let from = router.rest();
            wait_for("it expires", || router.bumps.count() > from);
        });
    } else {
        print_skipped(test_name!(), "the kernel has no IPsec");
    }
    router.line_bumps(Cause::TrafficControl, "tc qdisc add dev b clsact");
    router.line_bumps(
        Cause::TrafficControl,
        "tc filter add dev b egress protocol ip prio 5 u32 match u32 0 0 classid 1:1",
    );
    router.line_bumps(Cause::TrafficControl, "tc qdisc del dev b clsact");
    router.line_bumps(
        Cause::TrafficControl,
        "tc qdisc replace dev b root tbf rate 1mbit burst 10k limit 10k",
    );
}

fn tracked(host: &Namespace) -> bool {
    let output = host.command("conntrack").arg("-L").output().unwrap();
    String::from_utf8_lossy(&output.stdout).contains("10.0.2.2")
}

#[test]
fn only_connections_that_somebody_deletes_or_changes_bump() {
    root_or_skip!();
    let mut router = Router::new("wct");
    let track = "nft 'add table inet t; add chain inet t f { type filter hook forward priority 0; }; \
                 add rule inet t f ct state invalid drop'";
    if !router.tried(track) || !router.tried("conntrack -L") {
        skip!("there is no nft or no conntrack");
    }
    router.run("sysctl -qw net.netfilter.nf_conntrack_udp_timeout=3");
    for (host, gateway) in [(&router.left, "10.0.1.1"), (&router.right, "10.0.2.1")] {
        assert!(tried(host, &format!("ip route add default via {gateway}")));
    }
    let track = |router: &Router| {
        wait_for("the connection is tracked", || {
            look_for(&router.left, "10.0.2.2");
            tracked(&router.host)
        });
    };
    track(&router);
    let from = router.rest();
    // It ends without a signal: a message that is dropped before it is queued.
    wait_for("the connection ends", || !tracked(&router.host));
    thread::sleep(QUIET);
    assert_eq!(router.bumps.count(), from, "{}", router.bumps.since(from));
    router.run("sysctl -qw net.netfilter.nf_conntrack_udp_timeout=30");
    track(&router);
    router.line_bumps(Cause::Conntrack, "conntrack -U -p udp -d 10.0.2.2 --mark 0x80000007");
    router.line_bumps(Cause::Conntrack, "conntrack -D -p udp");
    track(&router);
    router.line_bumps(Cause::Conntrack, "conntrack -F");
}

#[test]
fn what_waits_is_answered_by_one_bump_a_batch() {
    root_or_skip!();
    let (host, _far, _cable) = host("wstorm");
    settle(&host, &["a"]);
    let bumps = Bumps::default();
    // While the gate is shut the caller is held up, and messages gather.
    let gate = Arc::new(Mutex::new(()));
    let passes = gate.clone();
    let watch = bumps.watch(&host, options(), move |_| drop(passes.lock().unwrap()));
    for (round, routes) in [2, BATCH, BATCH + 1, 5 * BATCH - 1].into_iter().enumerate() {
        let shut = gate.lock().unwrap();
        let from = bumps.count();
        assert!(tried(&host, &format!("ip route add 192.0.2.{round}/32 dev a")));
        wait_for("the first bump", || bumps.count() > from);
        // The first did not wait for these.
        add_routes(&host, 100 + round, routes, "");
        let messages = watch.counts().messages;
        drop(shut);
        wait_for("all messages", || watch.counts().messages >= messages + routes as u64);
        bumps.rest();
        assert_eq!(bumps.count() - from - 1, routes.div_ceil(BATCH), "{routes} routes");
    }
}

#[test]
fn what_is_lost_bumps_and_is_read_anew() {
    root_or_skip!();
    // Room for a handful of messages, and a caller that is slow.
    let options = Options { buffer: 4096, ..options() };
    let (host, _far, _cable) = host("wlost");
    settle(&host, &["a"]);
    let bumps = Bumps::default();
    let slow = |_| thread::sleep(Duration::from_millis(100));
    let mut watch = bumps.watch(&host, options, slow);
    // Among what is lost is that this neighbour is there.
    let neighbour = "neigh add 10.0.1.2 dev a lladdr 02:00:00:00:00:02 nud reachable";
    add_routes(&host, 100, 2000, neighbour);
    wait_for("an overrun", || {
        watch.counts().overruns > 0 && bumps.since(0).contains(Cause::Overrun)
    });
    let before = bumps.rest();
    watch.check().unwrap();
    let ignored = watch.counts().ignored;
    assert!(tried(&host, "ip neigh change 10.0.1.2 dev a lladdr 02:00:00:00:00:02 nud stale"));
    wait_for("it is known", || watch.counts().ignored > ignored);
    assert_eq!(bumps.rest(), before, "{}", bumps.since(before));
    assert!(tried(&host, "ip neigh change 10.0.1.2 dev a lladdr 02:00:00:00:00:03 nud stale"));
    wait_for("it has moved", || bumps.since(before).contains(Cause::Neighbour));
}

#[test]
fn the_watch_ends_when_it_is_dropped_and_says_when_it_failed() {
    root_or_skip!();
    let host = Namespace::create("wend").unwrap();
    let held = Arc::new(());
    let kept = held.clone();
    let start = || NetworkMonitor::start(&Options::default(), move |_| _ = &kept);
    let mut watch = host.run(start).unwrap().unwrap();
    watch.check().unwrap();
    drop(watch);
    assert_eq!(Arc::strong_count(&held), 1, "the thread is gone");
    // A caller that panics takes the thread with it, and the daemon learns of it.
    let start = || {
        NetworkMonitor::start(&Options::default(), |causes| {
            assert!(causes.contains(Cause::Start), "expected by this test");
        })
    };
    let mut watch = host.run(start).unwrap().unwrap();
    assert!(tried(&host, "ip rule add from 192.0.2.1 table 7"));
    wait_for("the thread to end", || watch.check().is_err());
    let error = watch.check().unwrap_err().to_string();
    assert!(error.contains("its thread has ended"), "{error}");
}

/// From before the request to the kernel until the bump, so the time of the request itself is in it.
#[test]
fn latency_is_printed() {
    use std::io::Write;
    root_or_skip!();
    let router = Router::new("wtime");
    let mut child = router
        .host
        .command("ip")
        .args(["-force", "-batch", "-"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut to = child.stdin.take().unwrap();
    let mut times = Vec::new();
    for round in 0..500 {
        let from = router.bumps.count();
        let verb = if round % 2 == 0 { "add" } else { "del" };
        let before = Instant::now();
        writeln!(to, "route {verb} 192.0.2.0/24 via 10.0.2.2").unwrap();
        while router.bumps.count() == from {
            assert!(before.elapsed() < TIMEOUT, "round {round}");
            thread::sleep(Duration::from_micros(50));
        }
        times.push(router.bumps.all()[from].0 - before);
        thread::sleep(Duration::from_millis(1));
    }
    drop(to);
    assert!(child.wait().unwrap().success());
    times.sort();
    let at = |share: usize| times[times.len() * share / 100];
    println!(
        "from a request to change a route to the bump, {} times: p50 {:?}, p99 {:?}, longest {:?}",
        times.len(),
        at(50),
        at(99),
        times.last().unwrap()
    );
}
