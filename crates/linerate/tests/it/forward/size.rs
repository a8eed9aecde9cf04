//! The size of the table, and who decides it.

use linerate_testkit::{Process, root_or_skip};
use nix::sys::signal::Signal;

use super::support::Net;

/// Starts a daemon and waits until it forwards.
fn start(net: &Net, arguments: &str) -> Process {
    let mut daemon = net.begin(&format!("-i left -i right --metrics off {arguments}"), |_| {});
    daemon.until("ready: forwarding");
    daemon
}

fn capacity(net: &Net) -> u64 {
    net.json("status")[0]["sessions"]["capacity"].as_u64().unwrap()
}

#[test]
fn the_default_fits_the_machine() {
    root_or_skip!();
    let net = Net::new();
    let number = |path: &str, name: &str| -> Option<u64> {
        let text = std::fs::read_to_string(path).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    };
    let total = number("/proc/meminfo", "MemTotal:").unwrap() << 10;
    let daemon = start(&net, "");
    let said = daemon.stderr();
    assert!(said.contains("max-sessions auto"), "{said}");
    let room = capacity(&net);
    assert!(said.contains(&format!("room for {room} sessions takes")), "{room}: {said}");
    let status = &net.json("status")[0]["sessions"];
    assert!(status["memory_bytes"].as_u64().unwrap() <= total / 32, "{status}");
    assert!(net.stdout_of("status").contains(&format!(" sessions of {room}, ")));
    // Read where the daemon reads it; 0 is unlimited.
    let most = "/proc/sys/net/netfilter/nf_conntrack_max";
    let most = net.router.run(|| number(most, "")).unwrap();
    if let Some(most) = most.filter(|most| *most > 0) {
        assert!(room <= (2 * most).next_power_of_two().max(1024), "{room} for {most}");
    }
    daemon.end(Signal::SIGTERM);
}

#[test]
fn an_adopted_instance_keeps_its_size_and_its_sessions() {
    root_or_skip!();
    let net = Net::new();
    let daemon = start(&net, "--max-sessions 8192 --persist --fail-open-after 60s");
    assert_eq!(net.ask(0, 4000, 10), 10);
    assert_eq!(net.sessions().len(), 2);
    daemon.end(Signal::SIGTERM);
    let daemon = start(&net, "--max-sessions auto --persist --fail-open-after 60s");
    let said = daemon.stderr();
    assert!(said.contains("adopted programs and sessions") && said.contains("8192"), "{said}");
    assert_eq!((capacity(&net), net.sessions().len()), (8192, 2));
    daemon.end(Signal::SIGTERM);
    // A number that is asked for is obeyed.
    let daemon = start(&net, "--max-sessions 4096");
    assert_eq!((capacity(&net), net.sessions().len()), (4096, 0), "{}", daemon.stderr());
    daemon.end(Signal::SIGTERM);
}
