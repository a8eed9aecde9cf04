//! The daemon dies of `kill -9` under load: nothing is lost, after the bound everything is the kernel's,
//! and a daemon that starts again continues with the pinned tables.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use linerate_forward::config::{Config, MaxSessions};
use linerate_forward::runtime::daemon::{Daemon, Event};
use linerate_forward::runtime::instance::Instance;
use linerate_forward::snapshot::State;
use linerate_generate::{Options, Rate};
use linerate_service::ListenAddress;
use linerate_testkit::{exclusive, only_this_test, root_or_skip, wait_for};

use crate::common::host::{LAN, PORTS};
use crate::common::load::load;
use crate::common::router::Router;
use crate::common::sink::Sink;

/// Tells the test program that it is the daemon of this instance.
const CHILD: &str = "LINERATE_TEST_INSTANCE";
const TEST: &str = "a_daemon_that_is_killed_loses_nothing";
/// Tells it for how many seconds the programs go on alone; with it interfaces are proved at the start.
const SECONDS: &str = "LINERATE_TEST_SECONDS";
/// For how long they do without.
const BOUND: Duration = Duration::from_secs(2);
const FLOWS: u64 = 64;

/// The daemon, in its own process. It detaches when its input ends.
fn daemon(instance: String) {
    let seconds = std::env::var(SECONDS).ok().and_then(|text| text.parse().ok());
    let config = Config {
        instance: Some(instance),
        interfaces: PORTS.map(str::to_owned).to_vec(),
        max_sessions: MaxSessions::Number(4096),
        fail_open_after: seconds.map_or(BOUND, Duration::from_secs),
        metrics: ListenAddress::Off,
        // Its frames would be counted.
        probe: seconds.is_some(),
        ..Config::default()
    };
    let (sender, events) = mpsc::channel();
    let daemon = Daemon::start(config.clone(), sender.clone());
    let daemon = daemon.unwrap_or_else(|error| panic!("{error}"));
    thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        let _ = sender.send(Event::Detach);
    });
    println!("ready");
    daemon.run(&events, || Ok(config.clone())).expect("ran");
}

fn start(router: &Router, instance: &str) -> Child {
    start_with(router, instance, None)
}

fn start_with(router: &Router, instance: &str, seconds: Option<u64>) -> Child {
    let mut child = router
        .inside
        .command_killed_with_parent(std::env::current_exe().expect("this program"))
        .args(only_this_test!(TEST))
        .env(CHILD, instance)
        .env(SECONDS, seconds.map_or_else(String::new, |seconds| seconds.to_string()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a daemon");
    let mut lines =
        BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.ends_with("ready")), "the daemon ended before it was ready");
    // It has more to say.
    thread::spawn(move || lines.for_each(drop));
    child
}

/// Frames that reached the router, and those that went to the kernel.
fn progress(router: &Router, instance: &Instance) -> (u64, u64) {
    let reached = router.cables[LAN].a.statistics().expect("counted").rx_packets;
    let reasons = instance.snapshot().expect("a snapshot").reasons;
    (reached, reasons.iter().map(|reason| reason.packets).sum())
}

/// The share of frames that went to the kernel within 100 ms, in percent.
fn slow(router: &Router, instance: &Instance) -> u64 {
    let before = progress(router, instance);
    sleep(Duration::from_millis(100));
    let after = progress(router, instance);
    (after.1 - before.1) * 100 / (after.0 - before.0).max(1)
}

/// Ends the daemon, also when the test panics, in such a way that nothing stays pinned.
struct Running<'a> {
    router: &'a Router,
    instance: String,
    child: Option<Child>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut child = self.child.take().unwrap_or_else(|| start(self.router, &self.instance));
        drop(child.stdin.take());
        let _ = child.wait();
    }
}

/// Less than the kernel forwards, so that a frame that is missing was lost by us.
fn options() -> Options {
    Options {
        rate: Rate::Packets(50_000.0),
        flows: Some(FLOWS),
        source: Some("10.1.0.10".parse().expect("an address")),
        destination: Some("10.102.0.9".parse().expect("an address")),
        ..Options::default()
    }
}

#[test]
fn a_daemon_that_starts_is_missed_by_no_packet() {
    root_or_skip!();
    let _exclusive = exclusive();
    let router = Router::new("failstart");
    let _sink = Sink::open(&router, "count");
    let name = format!("test-start-{}", std::process::id());
    let generator = load(&router, options());
    // However long it takes to prove interfaces on a busy machine.
    let child = start_with(&router, &name, Some(60));
    let _running = Running { router: &router, instance: name.clone(), child: Some(child) };
    let instance = Instance::open(Some(&name)).expect("an instance");
    wait_for("the fast path", || slow(&router, &instance) < 5);
    let snapshot = instance.snapshot().expect("a snapshot");
    let missed = snapshot.reasons.iter().find(|reason| reason.name == "no-daemon");
    assert_eq!(missed.map(|reason| reason.packets), Some(0), "{snapshot:?}");
    generator.stop();
    generator.wait().expect("a report");
}

#[test]
fn a_daemon_that_is_killed_loses_nothing() {
    if let Ok(instance) = std::env::var(CHILD) {
        return daemon(instance);
    }
    root_or_skip!();
    let _exclusive = exclusive();
    let router = Router::new("failopen");
    let sink = Sink::open(&router, "sink");
    let name = format!("test-{}", std::process::id());
    let child = start(&router, &name);
    let mut running = Running { router: &router, instance: name.clone(), child: Some(child) };
    let instance = Instance::open(Some(&name)).expect("an instance");

    let generator = load(&router, options());
    wait_for("the fast path", || slow(&router, &instance) < 5);
    let held = instance.snapshot().expect("a snapshot").sessions.active;
    assert!(held >= FLOWS, "{held} sessions");

    let mut child = running.child.take().expect("running");
    child.kill().expect("killed");
    child.wait().expect("ended");
    let killed = Instant::now();
    assert!(slow(&router, &instance) < 5, "the fast path does not go on");
    // When it was still seen to go on. However late this test looks, it cannot find it after the bound.
    let mut went_on = Duration::ZERO;
    wait_for("the hand-over", || {
        let looked = killed.elapsed();
        let slow = slow(&router, &instance);
        if slow < 95 {
            went_on = looked;
        }
        slow > 95
    });
    assert!(went_on < BOUND + Duration::from_millis(100), "it went on for {went_on:?}");
    let took = killed.elapsed();
    let snapshot = instance.snapshot().expect("a snapshot");
    assert_eq!(snapshot.state, State::FailOpen);
    let handed = snapshot.reasons.iter().find(|reason| reason.name == "no-daemon");
    assert!(handed.is_some_and(|reason| reason.packets > 0), "{snapshot:?}");
    println!("after {took:?} everything was the kernel's");

    running.child = Some(start(&router, &name));
    wait_for("the fast path again", || slow(&router, &instance) < 5);
    // The same programs and sessions: what they had counted is still there.
    let after = instance.snapshot().expect("a snapshot");
    let handed_then = after.reasons.iter().find(|reason| reason.name == "no-daemon");
    assert!(handed_then.map(|reason| reason.packets) >= handed.map(|reason| reason.packets));
    assert_eq!(after.sessions.active, held);
    assert!(after.generation > snapshot.generation, "whatever changed meanwhile was not asked for");

    generator.stop();
    let report = generator.wait().expect("a report");
    // The kernel sends IPv6 packets itself, which do not belong to the load.
    let arrived = || {
        let ours = sink.arrived().into_iter().filter(|(way, _)| way.source == [10, 1, 0, 10]);
        ours.map(|(_, arrived)| arrived.packets).sum::<u64>()
    };
    let deadline = Instant::now() + Duration::from_secs(5);
    while arrived() < report.sent && Instant::now() < deadline {
        sleep(Duration::from_millis(20));
    }
    let arrived = arrived();
    assert_eq!((report.refused, arrived), (0, report.sent), "{report:?}");
    println!("{arrived} of {} packets arrived", report.sent);
}
