//! Rules of nftables, evaluated as the kernel has them.

use std::io::Write;
use std::process::Stdio;

use linerate_net::ruleset::{Field, Kind, Options, Ruleset, Tracking};
use linerate_testkit::{Namespace, root_or_skip, skip};

use crate::support::{Cable, cable, keeper};

/// Loads rules in place of those before.
fn load(host: &Namespace, rules: &str) -> Result<(), String> {
    let mut nft = host.command("nft");
    let mut nft = nft
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    // A rule ends with its line.
    let text = format!("flush ruleset\n{}\n", rules.replace("; }", ";\n}").replace("} }", "}\n}"));
    nft.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = nft.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).lines().take(1).collect();
    if output.status.success() { Ok(()) } else { Err(error) }
}

fn evaluated(host: &Namespace, options: &Options) -> Ruleset {
    host.run(|| Ruleset::load(options).unwrap()).unwrap()
}

/// A session from 10.1.0.1:1000 to 10.2.0.2:2000, from the first interface to the other, or its IPv6 likeness.
fn value(field: Field, kind: Kind) -> u128 {
    match (field, kind.is_ipv6) {
        (Field::Input, _) => 1,
        (Field::Output, _) => 2,
        (Field::Source, false) => 0x0a01_0001,
        (Field::Destination, false) => 0x0a02_0002,
        (Field::Source, true) => 0xfd01 << 112 | 1,
        (Field::Destination, true) => 0xfd02 << 112 | 2,
        (Field::SourcePort, _) => 1000,
        (Field::DestinationPort, _) => 2000,
        (Field::Dscp | Field::Mark, _) => 0,
    }
}

/// The rule that keeps this session.
fn keeps(ruleset: &Ruleset, kind: Kind) -> Option<&str> {
    keeper(ruleset, kind, |field| value(field, kind))
}

const TCP: Kind = Kind { is_ipv6: false, is_tcp: true, tracking: Tracking::Original };

#[test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn a_rule_keeps_sessions_if_it_varies_or_acts_on_each_packet() {
    root_or_skip!();
    let Cable { near, veth: _veth, far: _far } = cable();
    if load(&near, "table inet t { }").is_err() {
        skip!("the kernel has no nftables");
    }
    let stays = [
        "accept",
        "counter",
        "ip saddr 10.1.0.0/16 drop",
        "meta length > 100 counter",
        "tcp flags syn limit rate 1/second accept",
        "tcp flags & (syn | rst) != 0 log",
        "tcp flags & (fin | syn | rst) == syn tcp option maxseg size set 1200",
        "ct state new limit rate 1/second accept",
        "ct state { new, related, invalid } log",
        "ct state new,related log",
        "udp dport 2000 log",
        "ip6 saddr fd00::/8 log",
        "ip protocol icmp log",
        "meta l4proto { icmp, ipv6-icmp } log",
        "tcp dport != 2000 log",
        "tcp dport { 1, 2, 3 } log",
        "tcp dport != { 1000-3000 } log",
        "ip saddr . tcp dport { 10.1.0.1 . 1, 10.1.0.2 . 2000 } log",
        "ip saddr 10.1.0.2 log",
        "ip saddr 10.1.2.0/23 log",
        "iifname \"other*\" log",
        "ip frag-off & 0x1fff != 0 log",
        "ip6 nexthdr 0 log",
        "exthdr frag exists log",
        "ct direction reply log",
        "meta mark set 7",
        "meta priority set 1:1",
        "ct mark set 7",
        "ip dscp set cs1",
        "ip6 dscp set cs1",
        "tcp dport vmap { 2000 : accept, 3000 : drop }",
        "ct state established,related accept",
        "ip dscp 0 accept",
        "ct mark 7 drop",
        "meta mark 7 drop",
        "pkttype broadcast drop",
        "fib saddr type local drop",
        "reject",
        "meta mark 7 log",
        "ip saddr map { 10.1.0.1 : 7 } vmap { 7 : drop }",
    ];
    let varies = [
        "meta length > 100 drop",
        "limit rate 1/second accept",
        "limit rate over 10 kbytes/second drop",
        "quota over 1 mbytes drop",
        "log",
        "log group 1",
        "queue num 1",
        "ip ttl 64 drop",
        "ip id 7 drop",
        "ip ecn ce drop",
        "ip length > 100 drop",
        "ip id set 0",
        "ip ecn set ce",
        "ip ttl set 7",
        "ip dscp set cs1 ip ecn set ce",
        "tcp flags & psh != 0 drop",
        "tcp window 0 drop",
        "tcp option timestamp exists drop",
        "@th,160,32 0 drop",
        "numgen random mod 2 0 drop",
        "meta random 1 drop",
        "meta cpu 0 drop",
        "meta hour \"10:00\" drop",
        "ether saddr 02:00:00:00:00:01 drop",
        "ct packets > 10 drop",
        "ct bytes > 1000 drop",
        "ct avgpkt > 100 drop",
        "ct expiration < 10s drop",
        "ct mark set meta random",
        "ct mark set ct mark xor 1",
        "meta mark set meta length",
        "meta length vmap { 0-100 : drop, 101-65535 : accept }",
        "meta length map { 0-100 : 1, 101-65535 : 2 } vmap { 1 : drop }",
        "meta nftrace set 1",
        "dup to 10.1.0.9",
        "ip saddr @seen drop",
        "ip saddr @timed drop",
        "add @seen { ip saddr }",
        "update @timed { ip saddr timeout 10s }",
        "iif \"a\" tcp dport 2000 log",
        "tcp dport { 1000-3000 } log",
        "ip saddr . tcp dport { 10.1.0.0/24 . 1-3000 } log",
        "ip daddr & 255.0.0.0 == 10.0.0.0 log",
        "iifname != \"other\" log",
        "last",
        "synproxy",
        "jhash ip saddr mod 2 0 log",
        "ip saddr @known log",
        "ip saddr != @empty log",
    ];
    let sets = "set seen { type ipv4_addr; flags dynamic; size 100; };
        set timed { type ipv4_addr; flags timeout; };
        set empty { type ipv4_addr; flags interval; };
        set known { type ipv4_addr; flags interval; elements = { 10.1.0.0/24 }; };";
    let (mut refused, mut wrong) = (Vec::new(), Vec::new());
    for (rules, is_kept) in [(&stays[..], false), (&varies[..], true)] {
        for rule in rules {
            // The index of a test's session is that of the first interface.
            let rule = rule.replace("\"a\"", "\"lo\"");
            let text = format!(
                "table inet t {{ {sets}\n chain c {{ type filter hook forward priority 0; {rule}; }}; }}"
            );
            if let Err(error) = load(&near, &text) {
                refused.push(format!("{rule}: {error}"));
                continue;
            }
            let ruleset = evaluated(&near, &Options::default());
            let kept = keeps(&ruleset, TCP);
            let has_name = kept.is_none_or(|name| name.starts_with("nftables inet t c handle "));
            if kept.is_some() != is_kept || !has_name {
                wrong.push(format!("{rule}: {kept:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}\n{refused:#?}");
    // What neither kernel nor nft of some host knows.
    assert!(refused.len() < 12, "{refused:#?}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn chains_are_followed_with_what_is_constant() {
    root_or_skip!();
    let Cable { near, veth: _veth, far: _far } = cable();
    if load(&near, "table inet t { }").is_err() {
        skip!("the kernel has no nftables");
    }
    let untracked = Kind { tracking: Tracking::Untracked, ..TCP };
    let base = "type filter hook forward priority 0;";
    let cases = [
        // A certain verdict is before what varies.
        (
            format!(
                "chain c {{ {base} ct state established,related accept; limit rate 1/second log; }}"
            ),
            TCP,
            false,
        ),
        (
            format!(
                "chain c {{ {base} ct state established,related accept; limit rate 1/second log; }}"
            ),
            untracked,
            true,
        ),
        (format!("chain c {{ {base} ip saddr 10.1.0.1 accept; log; }};"), TCP, false),
        (format!("chain c {{ {base} ip saddr 10.1.0.2 accept; log; }};"), TCP, true),
        (
            format!(
                "chain c {{ {base} ct state vmap {{ established : accept, related : accept, invalid : drop }}; log; }}"
            ),
            TCP,
            false,
        ),
        // Not for another base chain.
        (
            format!(
                "chain b {{ type filter hook forward priority -1; accept; }}\nchain c {{ {base} log; }}"
            ),
            TCP,
            true,
        ),
        // Jumps.
        (format!("chain d {{ log; }}\nchain c {{ {base} tcp dport 2000 jump d; }}"), TCP, true),
        (format!("chain d {{ log; }}\nchain c {{ {base} tcp dport 2001 jump d; }}"), TCP, false),
        (
            format!("chain d {{ tcp sport 1000 return; log; }}\nchain c {{ {base} jump d; }}"),
            TCP,
            false,
        ),
        (format!("chain d {{ return; }}\nchain c {{ {base} jump d; log; }};"), TCP, true),
        (format!("chain d {{ accept; }}\nchain c {{ {base} jump d; log; }};"), TCP, false),
        (format!("chain d {{ counter; }}\nchain c {{ {base} jump d; log; }};"), TCP, true),
        (format!("chain d {{ counter; }}\nchain c {{ {base} goto d; log; }};"), TCP, false),
        (
            format!("chain d {{ counter; }}\nchain c {{ {base} tcp dport 2001 goto d; log; }};"),
            TCP,
            true,
        ),
        // A condition that is not known: whoever enters the chain leaves it.
        (format!("chain d {{ accept; log; }}\nchain c {{ {base} ct mark 7 jump d; }}"), TCP, false),
        (format!("chain d {{ accept; }}\nchain c {{ {base} ct mark 7 jump d; log; }};"), TCP, true),
        (
            format!(
                "chain d {{ tcp dport vmap {{ 2000 : jump e }}; }}\nchain e {{ log; }}\nchain c {{ {base} tcp sport != 1 goto d; }}"
            ),
            TCP,
            true,
        ),
        // What is before a limit in its rule narrows it; what is behind does not.
        (format!("chain c {{ {base} tcp dport 2001 limit rate 1/second accept; }}"), TCP, false),
        (format!("chain c {{ {base} limit rate 1/second tcp dport 2001 accept; }}"), TCP, true),
        // Chains that a forwarded packet does not meet.
        ("chain c { type filter hook input priority 0; log; }".to_owned(), TCP, false),
        ("chain c { type filter hook output priority 0; log; }".to_owned(), TCP, false),
        ("chain c { type nat hook prerouting priority -100; log; }".to_owned(), TCP, false),
        (
            "chain c { type filter hook prerouting priority -300; tcp dport 2000 log; }".to_owned(),
            TCP,
            true,
        ),
        (
            "chain c { type filter hook prerouting priority -300; tcp dport 2001 log; }".to_owned(),
            TCP,
            false,
        ),
        ("chain c { type filter hook postrouting priority 200; log; }".to_owned(), TCP, true),
        (
            "chain c { type filter hook prerouting priority 0; oifname \"a\" log; }".to_owned(),
            TCP,
            false,
        ),
    ];
    let mut wrong = Vec::new();
    for (rules, kind, is_kept) in cases {
        load(&near, &format!("table inet t {{ {rules} }}"))
            .unwrap_or_else(|error| panic!("{rules}: {error}"));
        let ruleset = evaluated(&near, &Options::default());
        if keeps(&ruleset, kind).is_some() != is_kept {
            wrong.push(format!("{rules}: {:?}", ruleset.rules()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // What the user wants.
    let text = format!("table inet t {{ chain c {{ {base} ct packets < 10 log; }} }}");
    load(&near, &text).unwrap();
    assert!(keeps(&evaluated(&near, &Options::default()), TCP).is_some());
    let options = Options { after_packets: 10, ..Options::default() };
    assert_eq!(keeps(&evaluated(&near, &options), TCP), None);
    load(&near, &format!("table inet t {{ chain c {{ {base} counter; }} }}")).unwrap();
    let options = Options { strict: true, ..Options::default() };
    assert_eq!(keeps(&evaluated(&near, &options), TCP), Some("nftables inet t c handle 2"));
}

#[test]
fn a_thousand_rules_are_evaluated_into_a_list_of_those_that_vary() {
    root_or_skip!();
    let Cable { near, veth: _veth, far: _far } = cable();
    let rule = |at: u32| {
        let what = if at.is_multiple_of(5) { "limit rate 1/second accept" } else { "accept" };
        format!("ip saddr 10.9.{}.{} {what};", at / 256, at % 256)
    };
    let rules: String = (0..1000).map(rule).collect();
    let text = format!(
        "table inet t {{ chain c {{ type filter hook forward priority 0; {rules} log; }} }}"
    );
    if load(&near, &text).is_err() {
        skip!("the kernel has no nftables");
    }
    let mut ruleset = evaluated(&near, &Options::default());
    assert_eq!(ruleset.rules().len(), 201);
    assert!(keeps(&ruleset, TCP).is_some());
    for program in &mut ruleset.programs {
        program.limit(256);
        assert!(program.entries.len() <= 256);
    }
    assert!(keeps(&ruleset, TCP).is_some());
    // Of two chains that see sessions differently, other sessions stay fast.
    let text = format!(
        "table inet t {{ chain c {{ type filter hook forward priority 0; {rules} }}\nchain d {{ type filter hook postrouting priority 200; {rules} }} }}"
    );
    load(&near, &text).unwrap();
    let mut ruleset = evaluated(&near, &Options::default());
    for program in &mut ruleset.programs {
        program.limit(256);
        assert!(program.entries.len() <= 256);
    }
    assert_eq!(keeps(&ruleset, TCP), None);
}

#[test]
fn large_sets_and_maps_are_evaluated_at_once() {
    root_or_skip!();
    let Cable { near, veth: _veth, far: _far } = cable();
    let keys = |value: &str| {
        let key = |at: u32| format!("10.{}.{}.{}{value}", at >> 16, at >> 8 & 0xff, at & 0xff);
        (0..30_000).map(key).collect::<Vec<_>>().join(", ")
    };
    let text = format!(
        "table ip t {{ set s {{ type ipv4_addr; elements = {{ {} }}; }}\nmap m {{ type ipv4_addr : verdict; elements = {{ {} }}; }}\nchain lengths {{ meta length > 100 drop; }}\nchain c {{ type filter hook forward priority 0; ip saddr @s drop; ip daddr vmap @m; }} }}",
        keys(""),
        keys(" : jump lengths")
    );
    if load(&near, &text).is_err() {
        skip!("the kernel has no nftables");
    }
    let ruleset = evaluated(&near, &Options::default());
    // Which sessions are in them is not looked at.
    assert_eq!(ruleset.rules().len(), 1, "{:?}", ruleset.rules());
    assert!(ruleset.programs.iter().all(|program| program.entries.len() < 16));
}
