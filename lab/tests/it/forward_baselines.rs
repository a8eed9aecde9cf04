//! The forwarding baselines: each design with hash maps learns, counts, lists, flushes and ages as the table
//! does, and the stateless one forwards.

use std::time::Duration;

use linerate_forward::config::Lifetime;
use linerate_forward::reason::Reason;
use linerate_forward::runtime::program::unavailable;
use linerate_forward::table::ageing::TICK_INTERVAL;
use linerate_forward::table::session::Record;
use linerate_lab::baseline::forward::{Accelerator, Baseline, Options};
use linerate_testkit::lab::{Flow, Lab, deliver};
use linerate_testkit::{probe_or_skip, root_or_skip, wait_for};

const DESIGNS: [Baseline; 3] = [Baseline::Shared, Baseline::PerCpu, Baseline::Split];

fn start(lab: &Lab, baseline: Baseline, options: &Options) -> Accelerator {
    let ports = ["lan".to_owned(), "wan".to_owned()];
    let started = lab.router.run(|| Accelerator::start(baseline, &ports, options));
    started.expect("entered").unwrap_or_else(|error| panic!("{baseline}: {error:#}"))
}

/// A question to the server and its answer.
fn ask(flow: &Flow) {
    deliver(&flow.server, flow.ask("question"), &flow.client, "answer");
}

/// Every session, in the order of packets and bytes.
fn sessions(fast: &Accelerator) -> Vec<Record> {
    let mut all = Vec::new();
    fast.sessions().expect("hash maps").for_each(|record| all.push(record)).expect("listed");
    all.sort_unstable_by_key(|record| (record.packets(), record.bytes()));
    all
}

/// The thread stays on one CPU, and with it what its packets make the kernel do: a session in a per-CPU map
/// is learned for each CPU separately.
fn stay() {
    use linerate_net::cpu;
    cpu::pin(cpu::allowed().expect("CPUs")[0]).expect("pinned");
}

#[test]
fn each_design_learns_and_counts() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    stay();
    for design in DESIGNS {
        let net = Lab::new("base");
        net.masquerade();
        let mut fast = start(&net, design, &Options { max_sessions: 64, ..Options::default() });
        for family in [0, 1] {
            let sockets = net.flow(family);
            for round in 0..10 {
                fast.tick().expect("a heartbeat");
                ask(&sockets);
                if round == 5 {
                    fast.control().bump_generation();
                }
            }
        }
        let counted: Vec<_> =
            sessions(&fast).iter().map(|one| (one.packets(), one.bytes())).collect();
        assert_eq!(counted, [(10, 340), (10, 360), (10, 540), (10, 560)], "{design}");
        // Two of each session until it is learned, and one after the change.
        assert_eq!(fast.slow_path(Reason::Stale).unwrap(), 4, "{design}");
        assert_eq!(fast.slow_path(Reason::Unknown).unwrap(), 8, "{design}");
    }
}

#[test]
fn each_design_is_flushed_and_forgets() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    stay();
    for design in DESIGNS {
        let net = Lab::new("base");
        let options =
            Options { max_sessions: 64, idle: Duration::from_secs(1), ..Options::default() };
        let mut fast = start(&net, design, &options);
        let sockets = net.flow(0);
        (0..5).for_each(|_| ask(&sockets));
        let is_valid = |record: &Record| !record.is_ended();
        assert_eq!(sessions(&fast).iter().filter(|one| is_valid(one)).count(), 2, "{design}");
        assert_eq!(fast.sessions().unwrap().end(|_| true).unwrap(), 2, "{design}");
        assert!(!sessions(&fast).iter().any(is_valid), "{design}");
        wait_for("sessions to be learned again", || {
            fast.tick().expect("a heartbeat");
            ask(&sockets);
            sessions(&fast).iter().filter(|one| is_valid(one)).count() == 2
        });
        wait_for("sessions to be forgotten", || {
            std::thread::sleep(TICK_INTERVAL);
            fast.tick().expect("a heartbeat");
            sessions(&fast).is_empty()
        });
    }
}

#[test]
fn a_session_ends_at_its_age_and_is_learned_again() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    stay();
    let net = Lab::new("base");
    let lifetime = Lifetime::For(Duration::from_secs(2));
    let options = Options { max_sessions: 64, lifetime, ..Options::default() };
    let mut fast = start(&net, Baseline::Shared, &options);
    let sockets = net.flow(0);
    let mut first = None;
    // It never pauses, so that it is never idle: only its age can make it start again.
    wait_for("a session to start again", || {
        fast.tick().expect("a heartbeat");
        ask(&sockets);
        let created = sessions(&fast).first().map(|one| one.session.created);
        first = first.or(created);
        created.is_some() && created != first
    });
}

#[test]
fn the_stateless_baseline_forwards_at_once() {
    root_or_skip!();
    let net = Lab::new("base");
    let mut fast = start(&net, Baseline::Fib, &Options::default());
    assert!(fast.sessions().is_none());
    for family in [0, 1] {
        let sockets = net.flow(family);
        for _ in 0..10 {
            fast.tick().expect("a heartbeat");
            ask(&sockets);
        }
    }
    assert_eq!(fast.slow_path(Reason::Unknown).unwrap(), 0);
}
