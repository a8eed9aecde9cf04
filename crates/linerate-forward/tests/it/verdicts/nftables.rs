use std::io::Write;
use std::process::Stdio;

use linerate_testkit::Namespace;
use linerate_testkit::tools::run;

use super::Bench;

/// A table with these chains: each is a hook and statements.
fn table(rules: &'static str) -> String {
    const SETS: &str = "
        set seen { type ipv4_addr; flags dynamic; size 100; }
        set timed { type ipv4_addr; flags timeout; timeout 1h; }
        set known { type ipv4_addr; flags interval; elements = { 10.1.0.0/24 }; }
        set ports { type inet_service; elements = { 7000, 7001 }; }
        map verdicts { type inet_service : verdict; elements = { 7000 : drop, 7001 : accept }; }
        counter passed { }
        quota some { over 900 bytes; }
        limit few { rate 5/hour burst 9 packets; }
        chain other { udp dport 7000 drop; }
        chain lengths { meta length > 100 drop; }";
    let base = |(hook, rule): (&str, &str)| {
        let (name, priority) = hook.split_once(' ').unwrap_or((hook, "0"));
        format!("chain {name} {{ type filter hook {name} priority {priority}; {rule};\n}}\n")
    };
    const HOOKS: [&str; 4] = ["prerouting", "postrouting", "input", "output"];
    let is_hook = |text: &str| HOOKS.iter().any(|hook| text.starts_with(hook));
    let chain = |rule: &'static str| {
        rule.split_once(": ").filter(|(hook, _)| is_hook(hook)).unwrap_or(("forward", rule))
    };
    let chains = rules.split(" || ").map(chain);
    let chains: String = chains.map(base).collect();
    format!("flush ruleset\ntable inet t {{{SETS}\n{chains}}}\n")
}

fn load(router: &Namespace, rules: &'static str) -> Result<(), String> {
    let mut nft = router.command("nft");
    let nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut nft = nft.map_err(|error| error.to_string())?;
    nft.stdin.take().expect("a pipe").write_all(table(rules).as_bytes()).expect("written");
    let output = nft.wait_with_output().expect("ended");
    match output.status.success() {
        true => Ok(()),
        false => {
            let error = String::from_utf8_lossy(&output.stderr);
            Err(format!("nft: {}", error.lines().next().unwrap_or_default()))
        }
    }
}

/// What counters, quotas and sets have, without times.
fn state(router: &Namespace) -> String {
    let text = run(router, "nft", &["list", "ruleset"], "");
    let mut words = text.split_whitespace();
    let mut state = Vec::new();
    while let Some(word) = words.next() {
        if word == "expires" {
            words.next();
        } else {
            state.push(word);
        }
    }
    state.join(" ")
}

/// The same for all packets of a session. A hook may stand before the rule; ` || ` is between chains.
const CONSTANT: &[&str] = &[
    "accept",
    "drop",
    "counter",
    "counter name passed",
    "udp dport 7000 drop",
    "tcp dport { 6999-7001 } drop",
    "tcp dport != 7000 drop",
    "tcp dport @ports drop",
    "tcp dport vmap @verdicts",
    "tcp sport 7000 drop",
    "ip saddr 10.1.0.0/24 drop",
    "ip saddr @known drop",
    "ip saddr != @known drop",
    "ip daddr . tcp dport { 10.2.0.10 . 7000 } drop",
    "ip daddr . tcp dport { 10.2.0.0/24 . 6000-8000 } drop",
    "ip6 daddr fd00:2::/64 drop",
    "ip6 saddr { fd00:1::a, fd00:1::b } drop",
    "iifname \"lan\" oifname \"wan\" drop",
    "iifname \"l*\" udp dport 7000 drop",
    "iif != \"lan\" drop",
    "iifname . oifname { \"lan\" . \"wan\" } drop",
    "meta nfproto ipv4 drop",
    "meta l4proto udp drop",
    "meta protocol ip6 drop",
    "meta iiftype ether tcp dport 7000 drop",
    "meta pkttype host drop",
    "meta mark 0 tcp dport 7000 drop",
    "ip dscp 0 drop",
    "ip dscp != 0 log",
    "ip6 dscp cs1 drop",
    "ip version 4 drop",
    "ip hdrlength 5 drop",
    "ip protocol tcp drop",
    "ip6 nexthdr udp drop",
    "ip frag-off & 0x1fff != 0 log drop",
    "exthdr frag exists log drop",
    "tcp flags syn log",
    "tcp flags & (fin | syn | rst | ack) == ack drop",
    "tcp flags & (syn | ack) == syn limit rate 1/hour burst 100 packets",
    "tcp flags syn tcp option maxseg size set 1200",
    "ct state established,related accept || postrouting: udp dport 7000 drop",
    "ct state established,related counter accept",
    "ct state new log",
    "ct state invalid log drop",
    "ct state vmap { established : accept, related : accept, new : continue, invalid : drop }",
    "ct state established drop",
    "ct direction reply drop",
    "ct direction original udp dport 7000 drop",
    "ct status seen-reply tcp dport 7000 drop",
    "ct mark 0 tcp dport 7000 drop",
    "ct original ip daddr 10.2.0.10 tcp dport 7000 drop",
    "meta l4proto udp ct original proto-dst 7000 drop",
    "ct l3proto ipv4 drop",
    "ct protocol udp drop",
    "ct zone 0 tcp dport 7000 drop",
    "ct mark set 7 || postrouting: ct mark 7 ip dscp set ef",
    "meta mark set 7 || postrouting: meta mark 7 ip dscp set ef",
    "meta mark set ct mark",
    "ct mark set meta mark",
    "meta priority set 0x10002",
    "ip dscp set cs1",
    "ip6 dscp set cs1",
    "udp dport 7000 ip dscp set af11 || postrouting 10: ip dscp af11 ip dscp set cs3",
    "prerouting -300: udp dport 7000 notrack || ct state untracked drop",
    "prerouting -300: tcp dport 7000 drop",
    "prerouting: iifname \"lan\" tcp dport 7000 drop",
    "postrouting: oifname \"wan\" udp dport 7000 drop",
    "postrouting 200: ip daddr 10.2.0.10 udp dport 7000 drop",
    "input: meta l4proto { tcp, udp } log drop",
    "output: meta l4proto { tcp, udp } log",
    "jump other",
    "goto other",
    "tcp dport 7001 jump lengths || postrouting: accept",
    "fib saddr type unicast tcp dport 7000 drop",
    "fib daddr type local drop",
    "fib saddr . iif oif missing drop",
    "rt ip nexthop 10.2.0.10 tcp dport 7000 drop",
    "jhash ip saddr mod 2 seed 0x11 0 tcp dport 7000 drop",
    "meta skuid 0 drop",
    "ether daddr 02:00:00:00:01:01 drop",
    "tcp dport 7000 reject with tcp reset",
    "ip saddr . ip daddr vmap { 10.1.0.10 . 10.2.0.10 : drop }",
    "meta mark set ip saddr map { 10.1.0.10 : 0x10 } || postrouting: meta mark 0x10 drop",
    "ct mark 0 ct mark set 7 || postrouting: ct mark 7 ip dscp set ef",
    "ct mark 0 tcp dport 7000 ct mark set 1; ct mark 0 udp dport 7000 ct mark set 2",
    "tcp dport 7000 ct mark set 1; udp dport 7000 ct mark set 2",
    "ip saddr . tcp dport vmap { 10.1.0.0/24 . 6000-7000 : drop, 10.9.0.0/16 . 1-9 : accept }",
    "tcp dport vmap { 6000-6999 : accept, 7000-7010 : drop, * : continue }",
    "meta nfproto . meta l4proto vmap { ipv4 . udp : drop, ipv6 . tcp : accept }",
    "ct state . ct direction { established . reply } drop",
    "ct label set 5",
    "meta mark set ip saddr & 0.0.0.255 map { 0.0.0.10 : 3 } || postrouting: meta mark 3 drop",
    "ip saddr & 255.0.0.255 == 10.0.0.10 tcp dport 7000 drop",
    "tcp dport & 0xff00 == 0x1b00 drop",
    "meta mark & 0xff == 0 udp dport 7000 drop",
    "symhash mod 1 0 log drop",
    "ip option ra exists log drop",
    "sctp dport 7000 log",
    "meta l4proto icmp log",
    "meta sdif 0 udp dport 7000 drop",
    "meta iifgroup 0 udp dport 7000 drop",
    "icmp type echo-request log drop",
    "meta skgid 0 log drop",
    "ct helper \"ftp\" log drop",
];

/// It may differ from packet to packet, or counts each.
const VARYING: &[&str] = &[
    "meta length > 100 drop",
    "ip length > 100 drop",
    "ip6 length > 100 drop",
    "udp length > 100 counter drop",
    "meta length 0-100 counter drop",
    "meta length vmap { 0-100 : drop, 101-65535 : accept }",
    "ip ttl 33 drop",
    "ip6 hoplimit 33 drop",
    "ip ecn ce drop",
    "ip6 ecn ect0 drop",
    "ip id < 30000 drop",
    "ip frag-off & 0x4000 != 0 drop",
    "ip checksum < 30000 drop",
    "ip6 flowlabel < 500000 drop",
    "udp checksum < 30000 drop",
    "tcp flags psh drop",
    "tcp flags & urg == urg drop",
    "tcp sequence < 1100 drop",
    "tcp ackseq < 5100 drop",
    "tcp checksum < 30000 drop",
    "@th,64,8 < 128 drop",
    "@nh,8,8 3 drop",
    "ether saddr 02:00:00:00:77:00 drop",
    "limit rate 5/hour burst 9 packets accept || postrouting: accept",
    "limit rate over 5/hour burst 9 packets drop",
    "limit name \"few\" drop",
    "quota over 900 bytes drop",
    "quota name \"some\" drop",
    "numgen inc mod 3 0 drop",
    "numgen inc mod 3 vmap { 0 : drop, 1 : accept }",
    "ct packets > 9 drop",
    "ct original packets > 5 drop",
    "ct bytes > 700 drop",
    "ct reply bytes > 700 drop",
    "ct avgpkt > 90 drop",
    "log counter",
    "log prefix \"x\" group 3 counter",
    "udp dport 7000 log counter",
    "iifname \"lan\" tcp dport 7000 log counter",
    "ip saddr @known log counter",
    "ct state established log counter",
    "ct state established,related counter limit rate 5/hour burst 9 packets drop",
    "ip ttl set 99",
    "ip6 hoplimit set 99",
    "ip id set 7",
    "ip ecn set ce",
    "ip6 ecn set ce",
    "ip frag-off set 0",
    "ip6 flowlabel set 5",
    "udp checksum set 0",
    "tcp option timestamp exists counter drop",
    "tcp flags set ack",
    "iifname lan ip daddr set 10.2.0.10 counter",
    "ip dscp set cs1 ip ecn set ce",
    "meta length > 100 ip dscp set ef",
    "meta length > 100 ip6 dscp set ef",
    "tcp flags & psh == psh ip dscp set ef",
    "meta length > 100 meta mark set 1 || postrouting: meta mark 1 drop",
    "meta length > 100 ct mark set 1 || postrouting: ct mark 1 drop",
    "prerouting -300: meta length > 100 notrack",
    "meta mark set meta length || postrouting: meta mark > 100 drop",
    "ct mark set meta length || postrouting: ct mark > 100 drop",
    "ct mark set ct mark xor 1 || postrouting: ct mark 1 drop",
    "meta priority set meta length",
    "meta nftrace set 1",
    "add @seen { ip saddr } counter",
    "update @seen { ip saddr limit rate over 5/hour burst 9 packets } drop",
    "update @seen { ip saddr counter }",
    "ip saddr @timed drop || prerouting: add @timed { ip saddr }",
    "jump lengths",
    "tcp dport 7000 goto lengths",
    "prerouting -300: meta length > 100 drop",
    "prerouting: meta length > 100 drop",
    "postrouting: meta length > 100 drop",
    "postrouting 200: ip daddr 10.2.0.10 meta length > 100 drop",
    "meta cpu >= 0 drop",
    "meta time > 0 drop",
    "ct original packets & 1 == 1 drop",
    "ct packets & 3 == 2 drop",
    "meta l4proto udp ct status assured counter drop",
    "ct mark 2 ct mark set 3; ct mark 1 ct mark set 2; ct mark 0 ct mark set 1 || postrouting: ct mark 3 drop",
    "ct mark 1 ct mark set 0 accept; ct mark 0 ct mark set 1 drop",
    "meta mark set ct mark; meta mark 1 ct mark set 0 accept; meta mark 0 ct mark set 1 drop",
    "ct mark set ct mark map { 0 : 1, 1 : 2, 2 : 3 } || postrouting: ct mark 3 drop",
    "ct count over 9 drop",
    "meta hour \"00:00\"-\"23:59\" counter drop",
    "meta day { 0, 1, 2, 3, 4, 5, 6 } counter drop",
    "ct expiration > 1d drop",
    "udp length . udp dport { 20-60 . 7000 } drop",
    "ip ttl . tcp dport vmap { 33 . 7000 : drop }",
    "tcp option timestamp tsval > 0 counter drop",
    "@ih,0,8 < 128 drop",
    "@th,96,4 > 5 counter drop",
    "ip protocol . ip length { tcp . 40-90 } drop",
    "tcp window < 5 counter drop",
    "jhash ip saddr . ip id mod 2 seed 0x11 0 drop",
    "limit rate over 900 bytes/hour burst 900 bytes drop",
    "tcp dport 7000 meta length vmap { 0-100 : drop, 101-65535 : jump other }",
    "reset tcp option timestamp",
    "ip saddr 10.1.0.10 tcp dport 7000 log group 4 snaplen 20 counter",
    "meta mark set numgen inc mod 2 || postrouting: meta mark 1 drop",
    "ip ecn ce ip dscp set cs3",
    "ct label 2 ct label set 3; ct label 1 ct label set 2; ct label set 1; ct label 3 drop",
    "numgen random mod 2 < 1 meta priority set 0x10001",
    "update @seen { ip saddr timeout 1h } counter",
    "ct mark 0 ct mark set 1; meta mark set ct mark; meta mark 1 ct mark set 2 || postrouting: ct mark 2 ip dscp set ef",
];

#[test]
fn rules_of_nftables_have_the_verdicts_that_they_have_without_acceleration() {
    learner_or_skip!();
    let mut bench = Bench::new();
    let (mut wrong, mut refused) = (Vec::new(), Vec::new());
    for (rules, is_kept) in [(CONSTANT, false), (VARYING, true)] {
        for rule in rules {
            match bench.compare(|router| load(router, rule), state, is_kept) {
                Err(error) if error.starts_with("nft: ") => {
                    refused.push(format!("{rule}: {error}"));
                }
                Err(error) => wrong.push(format!("{rule}: {error}")),
                Ok(()) => {}
            }
        }
    }
    let count = CONSTANT.len() + VARYING.len();
    println!("{count} rules; the kernel or nft does not know {refused:#?}");
    assert!(wrong.is_empty(), "{} differ: {wrong:#?}", wrong.len());
    assert!(refused.len() < 15, "{refused:#?}");
}
