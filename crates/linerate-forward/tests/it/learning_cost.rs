//! What learning costs where a packet filter has many rules that treat packets of a session differently:
//! `cargo test -p linerate-forward --test it -- --ignored --nocapture learning_cost`
//!
//! New sessions of UDP, one packet each, come to a router without rules and to the same router with 1,000, of which 200
//! vary. The rules keep none of the sessions: `learn` compares each with all of them. The kernel measures the program
//! (`kernel.bpf_stats_enabled`), and its clock is part of the figure.

use std::fmt::Write;
use std::os::fd::AsRawFd;
use std::time::Instant;

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use linerate_forward::runtime::program::Options;
use linerate_forward::runtime::rules::{self, Policy};
use linerate_forward::table::rules::Rules;
use linerate_testkit::exclusive;
use linerate_testkit::lab::TIMEOUT;
use linerate_testkit::tools::run;

use crate::common::accelerator::Accelerator;
use crate::common::load::load;
use crate::common::router::Router;
use crate::common::sink::Sink;

const RULES: usize = 1000;
const VARYING: usize = 200;
/// Sessions of a turn, and turns with and without rules.
const SESSIONS: u64 = 4000;
const TURNS: usize = 10;

/// A chain as hosts with many customers have it: each has ports that are open, and one rule that limits it.
fn ruleset() -> String {
    let mut text =
        "table ip costs { chain forward { type filter hook forward priority 0;\n".to_owned();
    for number in 0..RULES {
        let (customer, service) = (number * VARYING / RULES, number % (RULES / VARYING));
        let source = format!("ip saddr 10.50.{customer}.0/24");
        let _ = match (service, customer % 4) {
            (0, 0) => writeln!(text, "{source} limit rate over 10000/second drop"),
            (0, 1) => writeln!(text, "{source} udp dport 53 meta length > 512 drop"),
            (0, 2) => writeln!(text, "ip daddr 10.102.{customer}.0/24 ip ttl < 5 drop"),
            (0, _) => writeln!(text, "udp dport {} @th,64,8 0x7f drop", 20_000 + customer),
            (service, _) => writeln!(text, "{source} udp dport {} accept", 8000 + service),
        };
    }
    text + "}\n}\n"
}

/// Switches the kernel's measurement of programs on, and back when the value is dropped.
struct Measured(String);

impl Measured {
    const PATH: &str = "/proc/sys/kernel/bpf_stats_enabled";

    fn start() -> Self {
        let before = std::fs::read_to_string(Self::PATH).expect("read");
        std::fs::write(Self::PATH, "1").expect("written");
        Self(before)
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        let _ = std::fs::write(Self::PATH, &self.0);
    }
}

/// Nanoseconds and runs of `learn` so far.
fn measured(accelerator: &Accelerator) -> (u64, u64) {
    let learn = accelerator.programs.get("learn").expect("a program");
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", learn.as_raw_fd()));
    let text = text.expect("a descriptor of this process");
    let id = text.lines().find_map(|line| line.strip_prefix("prog_id:")).expect("an id");
    let id: u32 = id.trim().parse().expect("a number");
    let info = ProgInfoIter::with_query_opts(ProgInfoQueryOptions::default())
        .find(|info| info.id == id)
        .expect("a loaded program");
    (info.run_time_ns, info.run_cnt)
}

/// Nanoseconds that `learn` takes to make a session of each packet of a turn.
fn turn(router: &Router, accelerator: &Accelerator, number: usize) -> u64 {
    let before = measured(accelerator);
    let sessions = accelerator.sessions().len();
    let traffic = linerate_generate::Options {
        count: Some(SESSIONS),
        flows: Some(SESSIONS),
        // The router takes in every frame.
        rate: "40kpps".parse().expect("a rate"),
        source: Some(format!("10.101.0.{}", number + 1).parse().expect("an address")),
        destination: Some("10.102.0.9".parse().expect("an address")),
        source_ports: Some("1024-8191".parse().expect("ports")),
        ..linerate_generate::Options::default()
    };
    let report = load(router, traffic).wait().expect("a report");
    assert!(report.error.is_none() && report.accepted == SESSIONS, "{report:?}");
    let deadline = Instant::now() + TIMEOUT;
    let done = || {
        let (time, runs) = measured(accelerator);
        (time - before.0, runs - before.1)
    };
    while done().1 < SESSIONS {
        assert!(Instant::now() < deadline, "{:?}, {:?}", done(), accelerator.reasons());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let learned = (accelerator.sessions().len() - sessions) as u64;
    assert!(learned > SESSIONS * 99 / 100, "{learned} learned, {:?}", accelerator.refusals());
    let (time, runs) = done();
    time / runs
}

#[test]
#[ignore = "it measures time"]
fn learning_cost() {
    learner_or_skip!();
    let _exclusive = exclusive();
    let router = Router::new("cost");
    let _sink = Sink::open(&router, "count");
    let options = Options { max_sessions: 200_000, admission: 1, ..Options::default() };
    let accelerator = Accelerator::start(&router, &options);
    let _measured = Measured::start();
    let maps = &accelerator.programs.maps;
    let mut times = [Vec::new(), Vec::new()];
    for number in 0..2 * TURNS {
        let has_rules = number % 2;
        let ruleset = if has_rules == 1 { ruleset() } else { String::new() };
        run(&router.inside, "nft", &["-f", "-"], &format!("flush ruleset\n{ruleset}"));
        let refresh = || rules::refresh(&accelerator.control, maps, &Policy::default());
        router.inside.run(refresh).expect("entered").expect("refreshed");
        let kept = Rules::new(maps).expect("maps").kept().expect("read");
        assert_eq!(kept.len(), has_rules * VARYING, "{kept:?}");
        times[has_rules].push(turn(&router, &accelerator, number));
    }
    for (what, times) in ["no rules", "1,000 rules, 200 vary"].iter().zip(&mut times) {
        times.sort_unstable();
        let (median, last) = (times[TURNS / 2], times[TURNS - 1]);
        println!("{what}: {median} ns a candidate ({} to {last}, {TURNS} turns)", times[0]);
    }
}
