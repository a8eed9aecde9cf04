//! Changes under load: after a change of the router's configuration has returned and its bump of the
//! generation is there, not one packet that is sent goes where it no longer should.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::sleep;
use std::time::{Duration, Instant};

use linerate_forward::runtime::program::Options;
use linerate_forward::runtime::watch::{self, Causes, NetworkMonitor};
use linerate_generate::Sizes;
use linerate_ring::packet::Sender;
use linerate_testkit::{Mac, exclusive, root_or_skip, wait_for};
use linerate_wire::virtio::Header;

use crate::common::accelerator::Accelerator;
use crate::common::host::{DMZ, Host, LAN, PORTS, WAN, router_mac};
use crate::common::load::load;
use crate::common::router::Router;
use crate::common::sink::{Path, Sink, monotonic};
use linerate_testkit::tools::{ip, ip_batch, nft, run};

/// Where packets go, behind the gateway 10.2.0.254.
const FAR: &str = "10.102.0.9";
/// Sessions at once.
const FLOWS: u64 = 64;
/// More than anything here takes, also while others have the CPUs.
const TIMEOUT: Duration = Duration::from_secs(30);

fn gateway(number: u8) -> Mac {
    Host { port: WAN, number }.mac()
}

/// A change, and what it forbids.
struct Change {
    name: &'static str,
    to: &'static str,
    size: u16,
    prepare: fn(&Router),
    change: fn(&Router),
    forbidden: fn(&Path) -> bool,
    /// Where packets go afterwards, if anywhere.
    then: Option<fn(&Path) -> bool>,
}

const CHANGE: Change = Change {
    name: "",
    to: FAR,
    size: 64,
    prepare: |_| {},
    change: |_| {},
    forbidden: |path| path.port != LAN,
    then: None,
};

#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn changes() -> Vec<Change> {
    vec![
        Change {
            name: "a route changes",
            change: |router| {
                ip(&router.inside, "route replace 10.102.0.0/16 via 10.2.0.253 dev wan onlink");
            },
            forbidden: |path| path.to == gateway(254),
            then: Some(|path| path.to == gateway(253)),
            ..CHANGE
        },
        Change {
            name: "a route goes",
            change: |router| ip(&router.inside, "route del 10.102.0.0/16"),
            ..CHANGE
        },
        Change {
            name: "a route of IPv6 changes",
            to: "fd00:102::9",
            size: 84,
            change: |router| {
                ip(&router.inside, "-6 route replace fd00:102::/32 via fd00:2::fd dev wan");
            },
            forbidden: |path| path.to == gateway(254),
            then: Some(|path| path.to == gateway(253)),
            ..CHANGE
        },
        Change {
            name: "a black hole opens",
            change: |router| ip(&router.inside, "route add blackhole 10.102.0.9/32"),
            ..CHANGE
        },
        Change {
            name: "a neighbour moves",
            change: |router| {
                let words =
                    "neigh replace 10.2.0.254 dev wan lladdr 02:00:00:00:99:99 nud permanent";
                ip(&router.inside, words);
            },
            forbidden: |path| path.to == gateway(254),
            then: Some(|path| path.to == Mac([2, 0, 0, 0, 0x99, 0x99])),
            ..CHANGE
        },
        Change {
            name: "a neighbour goes",
            change: |router| ip(&router.inside, "neigh del 10.2.0.254 dev wan"),
            forbidden: |path| path.to == gateway(254),
            ..CHANGE
        },
        Change {
            name: "a link goes down",
            change: |router| ip(&router.inside, "link set wan down"),
            ..CHANGE
        },
        Change {
            name: "the MTU falls",
            size: 1000,
            change: |router| ip(&router.inside, "link set wan mtu 600"),
            forbidden: |path| path.port == WAN && path.length > 600,
            ..CHANGE
        },
        Change {
            name: "a rule comes",
            change: |router| ip(&router.inside, "rule add to 10.102.0.0/16 lookup 101"),
            forbidden: |path| path.to == gateway(254),
            then: Some(|path| path.to == gateway(253)),
            ..CHANGE
        },
        Change {
            name: "an address goes",
            to: "10.2.5.9",
            prepare: |router| {
                let lines = "addr add 10.2.5.1/24 dev wan\n\
                     neigh add 10.2.5.9 dev wan lladdr 02:00:00:00:05:09 nud permanent";
                ip_batch(&router.inside, lines);
            },
            change: |router| ip(&router.inside, "addr del 10.2.5.1/24 dev wan"),
            ..CHANGE
        },
        Change {
            name: "a firewall drops",
            change: |router| {
                let chain = "type filter hook forward priority 0; ip daddr 10.102.0.9 drop;";
                nft(&router.inside, &format!("table ip wall {{ chain wall {{ {chain} }}; }}"));
            },
            ..CHANGE
        },
        Change {
            name: "a translation changes",
            prepare: |router| translate(router, "10.2.0.201"),
            change: |router| {
                translate(router, "10.2.0.202");
                run(&router.inside, "conntrack", &["-F"], "");
            },
            forbidden: |path| path.source == [10, 2, 0, 201],
            then: Some(|path| path.source == [10, 2, 0, 202]),
            ..CHANGE
        },
        Change {
            name: "forwarding ends",
            change: |router| {
                router.inside.sysctl("net.ipv4.ip_forward", "0").expect("set");
            },
            ..CHANGE
        },
        Change {
            name: "the hardware address of the path out changes",
            change: |router| {
                // The kernel forgets the neighbours of an interface that gets another address.
                let lines = "link set wan address 02:00:00:00:77:77\n\
                     neigh replace 10.2.0.254 dev wan lladdr 02:00:00:00:11:fe nud permanent";
                ip_batch(&router.inside, lines);
            },
            forbidden: |path| path.from == router_mac(WAN),
            then: Some(|path| path.from == Mac([2, 0, 0, 0, 0x77, 0x77])),
            ..CHANGE
        },
        Change {
            name: "the hardware address of the path in changes",
            change: |router| ip(&router.inside, "link set lan address 02:00:00:00:77:77"),
            ..CHANGE
        },
        Change {
            name: "a host moves behind a bridge",
            to: "10.2.5.9",
            prepare: |router| {
                let lines = "link add name bridge0 type bridge stp_state 0 mcast_snooping 0\n\
                     link set wan master bridge0\nlink set dmz master bridge0\nlink set dev bridge0 up\n\
                     addr add 10.2.5.1/24 dev bridge0\n\
                     neigh add 10.2.5.9 dev bridge0 lladdr 02:00:00:00:05:09 nud permanent";
                ip_batch(&router.inside, lines);
                host_behind(router, "wan");
            },
            change: |router| host_behind(router, "dmz"),
            forbidden: |path| path.port == WAN,
            then: Some(|path| path.port == DMZ),
            ..CHANGE
        },
    ]
}

fn host_behind(router: &Router, port: &str) {
    let words = format!("fdb replace 02:00:00:00:05:09 dev {port} master static");
    run(&router.inside, "bridge", &words.split(' ').collect::<Vec<_>>(), "");
}

fn translate(router: &Router, address: &str) {
    let chain = "type nat hook postrouting priority srcnat";
    let rule = format!("ip daddr {FAR} snat to {address}");
    let table = format!("table ip t {{ chain c {{ {chain}; {rule}; }}; }}");
    nft(&router.inside, &format!("table ip t\ndelete table ip t\n{table}"));
}

/// Answers what was translated, so that connection tracking takes it for established.
fn answer(router: &Router, sink: &Sink) {
    let sender =
        router.outside.run(|| Sender::open(PORTS[WAN])).expect("entered").expect("a socket");
    for (path, _) in sink.arrived().iter().filter(|(path, _)| path.source == [10, 2, 0, 201]) {
        let mut frame = Vec::new();
        etherparse::PacketBuilder::ethernet2(gateway(254).0, router_mac(WAN).0)
            .ipv4([10, 102, 0, 9], path.source, 64)
            .udp(9, path.source_port)
            .write(&mut frame, &[0; 20])
            .expect("a frame");
        sender.send(&Header::default(), &frame).expect("sent");
    }
}

/// Frames that reached the router, and those of them that the fast path left to the kernel.
fn progress(router: &Router, accelerator: &Accelerator) -> (u64, u64) {
    let reached = router.cables[LAN].a.statistics().expect("counted").rx_packets;
    (reached, accelerator.reasons().values().sum())
}

/// Waits until the fast path forwards nine frames in ten.
fn wait_until_fast(router: &Router, accelerator: &Accelerator) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let before = progress(router, accelerator);
        sleep(Duration::from_millis(20));
        let after = progress(router, accelerator);
        let (reached, slow) = (after.0 - before.0, after.1 - before.1);
        if reached > 100 && slow * 10 < reached {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{slow} of {reached} frames go to the kernel: {:?}; {:?}",
            accelerator.reasons(),
            accelerator.refusals()
        );
    }
}

/// Waits until more than a thousand packets have arrived this way, and returns how many.
fn wait_for_many(sink: &Sink, what: &str, is_path: fn(&Path) -> bool) -> u64 {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let arrived = sink.arrived();
        let packets = arrived.iter().filter(|(path, _)| is_path(path)).map(|(_, one)| one.packets);
        let packets = packets.sum();
        if packets > 1000 {
            return packets;
        }
        assert!(Instant::now() < deadline, "{what}: {packets} packets: {arrived:?}");
        sleep(Duration::from_millis(5));
    }
}

/// Takes what `bpf_fib_lookup` does not see out of the routes: after a change of others it is asked about each session.
fn simplify(router: &Router) {
    let lines = "route del 10.102.7.0/24\n\
         rule del iif dmz to 10.102.0.0/16\n-6 rule del iif dmz to fd00:102::/32\n\
         rule del tos 0x10 to 10.102.0.0/16\n-6 rule del tos 0x10 to fd00:102::/32\n\
         rule del fwmark 203 to 10.102.0.0/16\n-6 rule del fwmark 203 to fd00:102::/32";
    ip_batch(&router.inside, lines);
}

/// Applies one change under load; returns what there is to tell.
fn apply(change: &Change, prepare: fn(&Router)) -> String {
    let router = Router::new("change");
    prepare(&router);
    (change.prepare)(&router);
    let sink = Sink::open(&router, "sink");
    let accelerator =
        Accelerator::start(&router, &Options { max_sessions: 4096, ..Options::default() });
    let bumped = Arc::new(AtomicU64::new(0));
    let ports: Vec<_> = router.cables.iter().map(|cable| cable.a.index()).collect();
    let options = watch::Options { ports, ..watch::Options::default() };
    let bump = {
        let (control, bumped) = (accelerator.control.clone(), bumped.clone());
        move |causes: Causes| {
            causes.invalidate(&control);
            bumped.store(monotonic(), SeqCst);
        }
    };
    let watch = router.inside.run(|| NetworkMonitor::start(&options, bump)).expect("entered");
    let watch = watch.unwrap_or_else(|error| panic!("{error}"));
    let traffic = linerate_generate::Options {
        sizes: Some(Sizes::Fixed(change.size)),
        flows: Some(FLOWS),
        source: Some(
            if change.to.contains(':') { "fd00:1::a" } else { "10.1.0.10" }.parse().unwrap(),
        ),
        destination: Some(change.to.parse().expect("an address")),
        ..linerate_generate::Options::default()
    };
    let generator = load(&router, traffic);
    if change.name == "a translation changes" {
        // All of them have to have come through once.
        let is_first = |(path, _): &(Path, _)| path.source == [10, 2, 0, 201];
        let first = || sink.arrived().iter().filter(|one| is_first(one)).count() as u64;
        wait_for("every session", || first() >= FLOWS);
        answer(&router, &sink);
    }
    wait_until_fast(&router, &accelerator);
    wait_for_many(&sink, &format!("{}, the old path", change.name), change.forbidden);
    let began = monotonic();
    (change.change)(&router);
    let returned = monotonic();
    // A change may be several, each with its bump.
    let deadline = Instant::now() + TIMEOUT;
    while bumped.load(SeqCst) < began || monotonic() < bumped.load(SeqCst) + 300_000_000 {
        assert!(Instant::now() < deadline, "{}: no bump came, or they never end", change.name);
        sleep(Duration::from_millis(1));
    }
    // The kernel tells of a change when it is made: before the command that made it returns.
    let in_force = bumped.load(SeqCst);
    if change.then.is_some() && change.name != "a translation changes" {
        wait_until_fast(&router, &accelerator);
    }
    if let Some(then) = change.then {
        wait_for_many(&sink, &format!("{}, the new path", change.name), then);
    }
    sleep(Duration::from_millis(150));
    generator.stop();
    let report = generator.wait().expect("a report");
    sleep(Duration::from_millis(20));
    let arrived = sink.arrived();
    drop(watch);
    let name = change.name;
    let old: Vec<_> = arrived.iter().filter(|(path, _)| (change.forbidden)(path)).collect();
    for (path, old) in &old {
        assert!(
            old.newest <= in_force,
            "{name}: {} us after the bump a packet was sent that came to {path:?}",
            (old.newest - in_force) / 1000
        );
    }
    let last = old.iter().map(|(_, old)| old.last).max().unwrap_or_default();
    let after = report.sent;
    let us = |from: u64, to: u64| (to as i64 - from as i64) / 1000;
    format!(
        "{name}: the command took {} us and its last bump came after {} us; the last packet that went \
         the old path arrived {} us after the bump; {after} sent",
        us(began, returned),
        us(began, in_force),
        us(in_force, last),
    )
}

#[test]
fn after_a_change_no_packet_goes_the_old_way() {
    root_or_skip!();
    // It loads both CPUs.
    let _exclusive = exclusive();
    let only = std::env::var("LINERATE_CHANGE").unwrap_or_default();
    for change in changes().iter().filter(|change| change.name.contains(&only)) {
        println!("{}", apply(change, |_| ()));
    }
    for change in changes().iter().filter(|change| change.name.contains(&only)).take(6) {
        println!("looked up: {}", apply(change, simplify));
    }
}
