//! Changes of routes and neighbours: sessions that they do not concern stay on the fast path, and the others do what
//! plain Linux does. (`changes.rs` has them under load.)

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use linerate_forward::datapath::Datapath;
use linerate_forward::reason::Reason;
use linerate_forward::runtime::watch::{Causes, NetworkMonitor, Options};
use linerate_forward::table::layout::flags;
use linerate_testkit::lab::{BOTH, Flow, LEFT, Lab, deliver};
use linerate_testkit::tools::{ip, ip_batch};
use linerate_testkit::{uninterrupted, wait_for};

use crate::common::accelerator::Accelerator;

/// A lab under acceleration, whose kernel is watched as the daemon does it.
struct Watched {
    lab: Lab,
    fast: Accelerator,
    told: Arc<AtomicU64>,
    _watch: NetworkMonitor,
}

impl Watched {
    fn new(name: &str, prepare: impl FnOnce(&Lab)) -> Self {
        Self::by(Datapath::Xdp, name, prepare)
    }

    fn by(datapath: Datapath, name: &str, prepare: impl FnOnce(&Lab)) -> Self {
        let lab = Lab::new(name);
        prepare(&lab);
        let fast = Accelerator::attach_by(datapath, &lab, 2, Duration::from_secs(60));
        let told = Arc::new(AtomicU64::new(0));
        let ports = lab.ports().iter().map(|port| port.index()).collect();
        // The lock of iptables is the machine's, and tests beside this one take it.
        let options = Options { ports, xtables: false, ..Options::default() };
        let (control, count) = (fast.control.clone(), told.clone());
        let invalidate = move |causes: Causes| {
            causes.invalidate(&control);
            count.fetch_add(1, SeqCst);
        };
        let watch =
            lab.router.run(|| NetworkMonitor::start(&options, invalidate)).expect("entered");
        Self { lab, fast, told, _watch: watch.unwrap_or_else(|error| panic!("{error}")) }
    }

    /// Changes something in the router, and waits until the programs were told.
    fn change(&self, lines: &str) {
        let before = self.told.load(SeqCst);
        ip_batch(&self.lab.router, lines);
        wait_for("the notification", || self.told.load(SeqCst) > before);
    }

    /// Packets that the fast path left to the kernel though it might have a session for them. A session whose time is
    /// over is none of them: until its connection is ASSURED that is each second, however long a test takes.
    fn slow(&self) -> u64 {
        [Reason::Unknown, Reason::Stale, Reason::Ended, Reason::Busy]
            .into_iter()
            .map(|reason| self.fast.left(reason))
            .sum()
    }

    /// Packets each way, from which both sessions are learned.
    fn learn(&self, flow: &Flow) {
        talk(flow, 4);
        let slow = self.slow();
        talk(flow, 4);
        assert_eq!(self.slow(), slow, "{}", self.fast.describe());
    }

    /// Whether `bpf_fib_lookup` is asked about all sessions.
    fn are_asked(&self) -> bool {
        self.fast.sessions().iter().all(|one| self.fast.flags(one) & flags::FIB != 0)
    }
}

/// A packet each way, so many times, translated or not.
fn talk(flow: &Flow, times: usize) {
    for _ in 0..times {
        let seen = flow.ask("question");
        assert_eq!(deliver(&flow.server, seen, &flow.client, "answer"), flow.there);
    }
}

/// Whether a packet from the client gets to the server.
fn arrives(flow: &Flow) -> bool {
    flow.server.set_read_timeout(Some(Duration::from_millis(300))).expect("set");
    flow.client.send_to(b"a question", flow.there).expect("sent");
    match uninterrupted(|| flow.server.recv(&mut [0; 100])) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
            false
        }
    }
}

/// What forwards, and whether it translates.
const CASES: [(Datapath, bool); 4] =
    [(Datapath::Xdp, false), (Datapath::Xdp, true), (Datapath::Tc, false), (Datapath::Tc, true)];

const UNRELATED: [&str; 6] = [
    "route add 192.0.2.0/24 via 10.2.0.2",
    "-6 route add 2001:db8::/64 via fd02::2",
    "route del 192.0.2.0/24",
    "-6 route del 2001:db8::/64",
    // A host that is now here and now there.
    "neigh replace 10.1.0.77 dev lan lladdr 02:00:00:00:07:01 nud permanent",
    "neigh replace 10.1.0.77 dev lan lladdr 02:00:00:00:07:02 nud permanent",
];

#[test]
fn unrelated_changes_leave_sessions_on_the_fast_path() {
    learner_or_skip!();
    for (datapath, translated) in CASES {
        let net = Watched::by(datapath, "rtu", |lab| {
            ip(&lab.router, UNRELATED[5]);
            // On a busy machine all this takes longer than half of the usual timeout, after which a session is renewed.
            for key in ["udp_timeout", "udp_timeout_stream"] {
                lab.router.sysctl(&format!("net.netfilter.nf_conntrack_{key}"), "3600").unwrap();
            }
            if translated { lab.masquerade() } else { lab.track() }
        });
        for family in BOTH {
            let flow = net.lab.flow(family);
            net.learn(&flow);
            assert!(net.are_asked(), "{}", net.fast.describe());
            let (generation, slow) = (net.fast.control.generation(), net.slow());
            for change in UNRELATED.into_iter().cycle().take(3 * UNRELATED.len()) {
                net.change(change);
                talk(&flow, 1);
            }
            assert_eq!(
                net.slow(),
                slow,
                "{datapath}, {translated}, {family}: {}",
                net.fast.describe()
            );
            assert_eq!(net.fast.control.generation(), generation);
        }
    }
}

#[test]
fn thousands_of_changes_leave_sessions_on_the_fast_path() {
    learner_or_skip!();
    let net = Watched::new("rtt", |_| ());
    let flow = net.lab.flow(0);
    net.learn(&flow);
    let (generation, slow) = (net.fast.control.generation(), net.slow());
    // Fewer than the kernel queues for one who does not read.
    let route =
        |number: u32| format!("route add 192.{}.{}.1/32 via 10.2.0.2", number / 256, number % 256);
    let lines: Vec<_> = (0..4000).map(route).collect();
    let mut talks = 0;
    thread::scope(|scope| {
        let changes = scope.spawn(|| ip_batch(&net.lab.router, &lines.join("\n")));
        while !changes.is_finished() {
            talk(&flow, 1);
            talks += 1;
        }
    });
    assert!(net.told.load(SeqCst) > 10, "many notifications");
    // Routes may have changed once more between the look at them and the packet.
    let slow = net.slow() - slow;
    assert!(slow <= 1 + talks / 100, "{slow} of {talks}: {}", net.fast.describe());
    assert_eq!(net.fast.control.generation(), generation);
}

#[test]
fn a_route_that_leads_nowhere_stops_the_next_packet() {
    learner_or_skip!();
    for (datapath, translated) in CASES {
        let net =
            Watched::by(
                datapath,
                "rtn",
                |lab| if translated { lab.masquerade() } else { lab.track() },
            );
        for (family, route) in
            ["route %s blackhole 10.2.0.2/32", "-6 route %s blackhole fd02::2/128"]
                .into_iter()
                .enumerate()
        {
            let flow = net.lab.flow(family);
            net.learn(&flow);
            let generation = net.fast.control.generation();
            net.change(&route.replace("%s", "add"));
            assert!(!arrives(&flow), "{}", net.fast.describe());
            net.change(&route.replace("%s", "del"));
            assert!(arrives(&flow), "{}", net.fast.describe());
            net.learn(&flow);
            assert_eq!(net.fast.control.generation(), generation, "routes alone");
        }
    }
}

/// The kernel drops packets whose source it would not reach through the interface that they came by.
#[test]
fn a_route_back_through_another_interface_counts() {
    learner_or_skip!();
    let net = Watched::new("rtb", |lab| {
        for interface in ["all", "lan"] {
            lab.router.sysctl(&format!("net.ipv4.conf.{interface}.rp_filter"), "1").expect("set");
        }
    });
    let flow = net.lab.flow(0);
    net.learn(&flow);
    assert!(net.are_asked(), "{}", net.fast.describe());
    net.change(&format!("route add {}/32 via 10.2.0.2", LEFT[0]));
    assert!(!arrives(&flow), "{}", net.fast.describe());
    net.change(&format!("route del {}/32 via 10.2.0.2", LEFT[0]));
    assert!(arrives(&flow), "{}", net.fast.describe());
}

/// What `bpf_fib_lookup` does not see has everything learned again.
#[test]
fn what_the_lookup_does_not_see_makes_all_sessions_stale() {
    learner_or_skip!();
    let net = Watched::new("rts", |_| ());
    let flow = net.lab.flow(0);
    net.learn(&flow);
    let generation = || net.fast.control.generation();
    let mut number = 0;
    let mut route = || {
        number += 1;
        net.change(&format!("route add 192.0.2.{number}/32 via 10.2.0.2"));
    };
    for (prepare, undo) in [
        ("rule add fwmark 7 lookup 100", "rule del fwmark 7 lookup 100"),
        ("route add 198.51.100.0/24 via 10.2.0.2 mtu 1300", ""),
    ] {
        let before = generation();
        route();
        assert_eq!(generation(), before, "before {prepare}");
        net.change(prepare);
        let before = generation();
        // The rules are read behind the notification.
        thread::sleep(Duration::from_millis(100));
        route();
        assert!(generation() > before, "after {prepare}");
        net.learn(&flow);
        if !undo.is_empty() {
            net.change(undo);
            thread::sleep(Duration::from_millis(100));
        }
    }
    drop(net);
    let net = Watched::new("rtm", |_| ());
    let before = net.fast.control.generation();
    net.change("route add 192.0.2.0/24 nexthop via 10.2.0.2 nexthop via 10.1.0.2");
    assert!(net.fast.control.generation() > before, "a route with two paths");
}

/// A session that it does not answer for is learned again after each change, and from no packet of before.
#[test]
fn a_session_whose_way_back_is_another_is_learned_again() {
    learner_or_skip!();
    let net = Watched::new("rta", |lab| {
        // The client's packets come by lan, and what is sent to it would leave by wan.
        for interface in ["all", "lan"] {
            lab.router.sysctl(&format!("net.ipv4.conf.{interface}.rp_filter"), "0").expect("set");
        }
        ip(&lab.router, &format!("route add {}/32 via 10.2.0.2", LEFT[0]));
    });
    let flow = net.lab.flow(0);
    let ask = |times| (0..times).for_each(|_| _ = flow.ask("a question"));
    ask(4);
    let slow = net.slow();
    ask(4);
    assert_eq!(net.slow(), slow, "{}", net.fast.describe());
    assert!(!net.are_asked());
    thread::sleep(Duration::from_millis(50));
    net.change(UNRELATED[0]);
    ask(1);
    assert_eq!(net.slow(), slow + 1, "{}", net.fast.describe());
    ask(4);
    assert_eq!(net.slow(), slow + 1, "{}", net.fast.describe());
}
