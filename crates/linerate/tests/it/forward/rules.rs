//! Rules of the packet filter and policies of IPsec keep their effect, with plain Linux as the oracle.

use std::time::{Duration, Instant};

use linerate_forward::runtime::program::unavailable;
use linerate_testkit::tools::{ip, nft, run};
use linerate_testkit::{Namespace, probe_or_skip, root_or_skip, wait_for};
use nix::sys::signal::Signal;

use super::datapath::{datapaths, port, takes};
use super::support::Net;

/// Whether packets of the client's port are on the fast path after some more of them.
fn is_fast(net: &Net, family: usize, port: u16) -> bool {
    assert_eq!(net.ask(family, port, 5), 5);
    let before =
        net.count("unknown") + net.count("stale") + net.count("ended") + net.count("revalidate");
    assert_eq!(net.ask(family, port, 10), 10);
    let after =
        net.count("unknown") + net.count("stale") + net.count("ended") + net.count("revalidate");
    after == before
}

#[test]
fn a_rule_that_drops_works_a_second_after_a_death_at_the_latest() {
    root_or_skip!();
    let net = Net::new();
    let daemon = net.run("");
    assert_eq!(net.ask(0, 4000, 20), 20);
    daemon.end(Signal::SIGKILL);
    let killed = Instant::now();
    nft(
        &net.router,
        "table inet t { chain f { type filter hook forward priority 0; udp dport 7000 drop; }; }",
    );
    std::thread::sleep(Duration::from_millis(1500).saturating_sub(killed.elapsed()));
    assert_eq!(net.ask_in_vain(0, 4000), 0, "{:?} after the death", killed.elapsed());
}

#[test]
fn a_program_that_takes_packets_by_nfqueue_sees_every_one() {
    root_or_skip!();
    for iptables in ["iptables-nft", "iptables-legacy"] {
        let net = Net::new();
        let _daemon = net.run("");
        wait_for("both are fast", || is_fast(&net, 0, 4000) && is_fast(&net, 1, 4000));
        // Nobody takes from the queue: by this option the kernel goes on as if there were no rule.
        let rule = ["FORWARD", "-p", "udp", "-j", "NFQUEUE", "--queue-num", "7", "--queue-bypass"];
        let change = |what| run(&net.router, iptables, &[&[what], &rule[..]].concat(), "");
        change("-A");
        wait_for("the rule is known", || {
            net.stdout_of("status").contains("iptables") || !is_fast(&net, 0, 4000)
        });
        assert!(!is_fast(&net, 0, 4000), "{iptables}");
        // Changed tables are found twice: by the lock of iptables and by a look at them.
        wait_for("IPv6 is fast again: the rule is of IPv4", || is_fast(&net, 1, 4000));
        // Every packet met the rule, also of a session that begins now.
        let seen = || {
            let list = run(&net.router, iptables, &["-nvxL", "FORWARD"], "");
            let line =
                list.lines().find(|line| line.contains("NFQUEUE")).expect("the rule").to_owned();
            line.split_whitespace().next().expect("a number").parse::<u64>().expect("a number")
        };
        let before = seen();
        assert_eq!(net.ask(0, 4001, 20), 20);
        assert_eq!(seen() - before, 40, "{iptables}");
        change("-D");
        wait_for("the rule is gone", || is_fast(&net, 0, 4000));
    }
}

#[test]
fn a_rule_that_looks_at_the_source_mac_keeps_its_effect() {
    root_or_skip!();
    let net = Net::new();
    // Before the start, this time.
    nft(
        &net.router,
        "table inet t { chain f { type filter hook forward priority 0; ether saddr 02:00:00:00:00:99 counter drop; }; }",
    );
    let _daemon = net.run("");
    assert!(!is_fast(&net, 0, 4000));
    let rule = &net.json("status")[0]["rules"][0];
    assert_eq!(rule["rule"], "nftables inet t f handle 2");
    assert!(rule["packets"].as_u64() > Some(0));
    assert!(net.stdout_of("sessions").contains("nftables inet t f handle 2"));
    // The same addresses and ports from another MAC address meet the rule.
    run(&net.client, "ip", &["link", "set", "host", "address", "02:00:00:00:00:99"], "");
    run(&net.router, "ip", &["neigh", "flush", "dev", "left"], "");
    assert_eq!(net.ask_in_vain(0, 4000), 0);
    nft(&net.router, "flush ruleset");
    wait_for("the rule is gone", || net.ask_in_vain(0, 4000) == 2);
    wait_for("the fast path is back", || is_fast(&net, 0, 4000));
}

#[test]
fn the_configuration_chooses_which_sessions_are_accelerated() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    let net = Net::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |own: &str| {
        let text = format!("interfaces = [\"left\", \"right\"]\nmax-sessions = 4096\n{own}");
        std::fs::write(file.path(), text).unwrap();
    };
    write("accelerate = [\"left\"]\nexempt = [\"port 4001\"]\n");
    let mut daemon = net.begin(&format!("-c {}", file.path().display()), |_| {});
    daemon.until("ready: forwarding");
    wait_for("the fast path", || is_fast(&net, 0, 4000));
    assert!(!is_fast(&net, 0, 4001));
    let first = || net.json("status")[0]["rules"][0]["rule"].clone();
    assert_eq!(first(), "exempt port 4001");
    let mut reload = |own: &str, answer: &str| {
        write(own);
        daemon.signal(Signal::SIGHUP);
        daemon.until(answer);
    };

    reload("exempt = [\"port 4000\"]\n", "configuration reloaded");
    assert!(!is_fast(&net, 0, 4000));
    wait_for("the fast path", || is_fast(&net, 0, 4001));
    assert_eq!(first(), "exempt port 4000");
    // A file with a mistake changes nothing.
    reload("exempt = [\"port x\"]\n", "port 5000-5999");
    assert!(!is_fast(&net, 0, 4000) && is_fast(&net, 0, 4001));

    reload("strict = true\n", "configuration reloaded");
    wait_for("the fast path", || is_fast(&net, 0, 4000));
    nft(&net.router, "table inet t { chain f { type filter hook forward priority 0; counter; }; }");
    wait_for("the counter is known", || first() == "nftables inet t f handle 2");
    assert!(!is_fast(&net, 0, 4000));
    // A session that was learned after fewer packets is not learned again before it has had so many.
    reload("", "configuration reloaded");
    wait_for("the fast path", || is_fast(&net, 0, 4002));
    reload("after-packets = 60\n", "configuration reloaded");
    let before = net.refusals("admission");
    assert!(!is_fast(&net, 0, 4002) && net.refusals("admission") > before);
    net.ask(0, 4002, 60);
    wait_for("the fast path", || is_fast(&net, 0, 4002));
}

/// TC, too, passes them by: it runs before those at ingress, and the kernel spares redirected packets those at egress.
#[test]
fn a_chain_that_hooks_an_interface_sees_every_packet() {
    root_or_skip!();
    for datapath in ["xdp", "tc"] {
        let net = Net::new();
        let _daemon = net.run(&format!("--datapath {datapath}"));
        for (family, hook, interface) in [
            ("netdev", "ingress", "left"),
            ("inet", "ingress", "left"),
            ("netdev", "egress", "right"),
        ] {
            let what = format!("{datapath}, {family} {hook}");
            wait_for(&what, || takes(&net, 4000, datapath, datapath));
            let chain = |verdict| {
                format!(
                    "flush ruleset; table {family} t {{ chain c {{ type filter hook {hook} device {interface} \
                     priority 0; udp dport 7000 counter {verdict}; }}; }}"
                )
            };
            nft(&net.router, &chain("accept"));
            wait_for("the chain is told", || {
                let side = &port(&net, interface)[hook];
                side["reason"] == "nftables chain c of table t" && side["datapath"].is_null()
            });
            assert_eq!(net.ask(0, 4000, 20), 20, "{what}");
            let list = run(&net.router, "nft", &["list", "ruleset"], "");
            let seen = list.split_once("packets ").expect("a counter").1;
            let seen: u64 = seen.split(' ').next().expect("a number").parse().expect("a number");
            assert!(seen >= 20, "{what}: {list}");
            nft(&net.router, &chain("drop"));
            assert_eq!(net.ask_in_vain(0, 4000), 0, "{what}");
            nft(&net.router, "flush ruleset");
        }
    }
}

/// The ESP tunnel between router and server.
const TUNNEL: [&str; 2] = ["src 10.9.2.1 dst 10.9.2.2", "src 10.9.2.2 dst 10.9.2.1"];
/// What has to take it.
const INNER: [&str; 2] = ["src 10.9.1.0/24 dst 10.9.2.2/32", "src 10.9.2.2/32 dst 10.9.1.0/24"];

/// The lines that add a direction of the tunnel (0: to the server).
fn tunnel(direction: usize) -> String {
    let key = "0x4c696e65726174656c696e657261746520313234";
    format!(
        "xfrm state add {} proto esp spi 0x100{direction} mode tunnel aead rfc4106(gcm(aes)) {key} 128",
        TUNNEL[direction]
    )
}

/// The same for its policy, at an end where it is of the kind `kind`: `in`, `out` or `fwd`.
fn policy(direction: usize, kind: &str) -> String {
    let [inner, outer] = [INNER[direction], TUNNEL[direction]];
    format!("xfrm policy add {inner} dir {kind} tmpl {outer} proto esp mode tunnel")
}

fn missing_ipsec() -> Option<String> {
    let namespace = Namespace::create("ipsec").unwrap();
    let tried = namespace.command("ip").args(tunnel(0).split(' ')).output().unwrap();
    (!tried.status.success()).then(|| "the kernel has no IPsec".into())
}

/// What comes out of a tunnel passes the port again. In the clear its policy refuses it.
#[test]
fn what_ipsec_protects_stays_with_the_kernel() {
    root_or_skip!();
    probe_or_skip!(unavailable().map(str::to_owned).or_else(missing_ipsec));
    let net = Net::new();
    // XDP sees what comes in before IPsec does; TC sees both.
    let _daemon = net.run("--datapath tc");
    wait_for("TC", || takes(&net, 4000, "tc", "tc"));
    for (namespace, kinds) in [(&net.router, ["out", "fwd"]), (&net.server, ["in", "out"])] {
        for (direction, kind) in kinds.into_iter().enumerate() {
            ip(namespace, &tunnel(direction));
            ip(namespace, &policy(direction, kind));
        }
    }
    let before = net.refusals("tunnel");
    assert_eq!(net.ask(0, 4000, 20), 20);
    let refused = net.refusals("tunnel") - before;
    assert!(refused >= 20, "the way back, out of the tunnel: {refused}");
    assert_eq!(datapaths(&net, 4000), [] as [&str; 0]);
    net.tcp(0, 1_000_000, || {});
    // The server answers in the clear.
    ip(&net.server, &format!("xfrm policy delete {} dir out", INNER[1]));
    assert_eq!(net.ask_in_vain(0, 4000), 0);
    assert_eq!(net.ask(1, 4000, 20), 20, "the policy is of IPv4");
}
