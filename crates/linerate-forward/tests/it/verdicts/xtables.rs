//! Rules of x_tables, by both of their programs.

use std::fmt::Write;
use std::process::Stdio;

use linerate_testkit::Namespace;
use linerate_testkit::tools::run;

use super::Bench;

/// Chains of the user, with rules.
const CHAINS: &str = "-A one -s 10.9.0.0/16 -j LOG\n-A one -p udp -j RETURN\n-A one -p icmp -j LOG\n\
    -A two -p icmp -j LOG\n-A three -p udp -m length --length 100:300 -j DROP\n";

/// All tables, of which one has rules: parted by semicolons, perhaps behind a table and a chain.
fn tables(rules: &str) -> String {
    let (table, chain, rules) = match rules.split_once(": ") {
        Some((place, rules)) if !rules.is_empty() && place.split(' ').count() == 2 => {
            let (table, chain) = place.split_once(' ').unwrap_or_default();
            (table, chain, rules)
        }
        _ => ("filter", "FORWARD", rules),
    };
    let mut text = String::new();
    for each in ["filter", "mangle", "raw"] {
        let _ = writeln!(text, "*{each}");
        if each == table {
            let _ = write!(text, ":one - [0:0]\n:two - [0:0]\n:three - [0:0]\n{CHAINS}");
            rules.split(';').for_each(|rule| _ = writeln!(text, "-A {chain} {rule}"));
        }
        text.push_str("COMMIT\n");
    }
    text
}

fn load(router: &Namespace, program: &str, rules: &str) -> Result<(), String> {
    let mut restore = router.command(format!("{program}-restore"));
    let child = restore.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("iptables is installed");
    let mut input = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut input, tables(rules).as_bytes()).expect("written");
    drop(input);
    let output = child.wait_with_output().expect("ended");
    let error = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{program}: {}", error.trim())) }
}

/// What the rules have counted.
fn state(router: &Namespace, program: &str) -> String {
    let text = run(router, &format!("{program}-save"), &["-c"], "");
    text.lines().filter(|line| line.contains("-A ")).map(|line| format!("{line}\n")).collect()
}

/// The same for all packets of a session.
const CONSTANT: &[&str] = &[
    "-j ACCEPT",
    "-p tcp -j DROP",
    "-d 10.3.0.0/16 -j LOG",
    "-i eth+ -j LOG",
    "-f -j LOG",
    "-p udp --dport 7001 -j LOG",
    "-p udp -m multiport ! --ports 53,7000 -j LOG",
    "-m conntrack --ctstate NEW -j LOG",
    "-m conntrack --ctstate INVALID,UNTRACKED -j LOG",
    "-m conntrack --ctorigdst 10.2.0.10 -j ACCEPT",
    "-m state --state NEW -j LOG",
    "-m state --state RELATED,ESTABLISHED -j ACCEPT;-m length --length 100:200 -j DROP;-j LOG",
    "-m mark --mark 7 -j LOG",
    "-m connmark --mark 7 -j DROP",
    "-m dscp --dscp 8 -j LOG",
    "-m length --length 100:300",
    "-m pkttype --pkt-type multicast -j LOG",
    "-m addrtype --dst-type LOCAL -j DROP",
    "-m addrtype --dst-type UNICAST -j ACCEPT",
    "-m helper --helper ftp -j DROP",
    "raw PREROUTING: -m rpfilter --invert -j DROP",
    "-m policy --dir in --pol ipsec -j DROP",
    "-m realm --realm 3 -j DROP",
    "-m comment --comment x -j ACCEPT",
    "-p icmp -j LOG",
    "-p sctp --dport 7000 -j LOG",
    "-p dccp --dport 7000 -j LOG",
    "-p esp -m esp --espspi 1 -j LOG",
    "-j one",
    "-p udp -g two",
    "-g two;-j LOG",
    "-p udp --dport 7001 -j REJECT",
    "mangle FORWARD: -j MARK --set-mark 7",
    "mangle FORWARD: -j CLASSIFY --set-class 1:2",
    "mangle FORWARD: -j CONNMARK --set-mark 7",
    "mangle FORWARD: -j CONNMARK --restore-mark",
    "mangle FORWARD: -j DSCP --set-dscp 10",
    "mangle FORWARD: -j TOS --set-tos 0x20/0xfc",
    "mangle FORWARD: -p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu",
    "mangle FORWARD: -j HMARK --hmark-tuple src,dst --hmark-mod 5 --hmark-rnd 1",
    "raw PREROUTING: -p tcp -j CT --notrack",
    "raw PREROUTING: -p udp --dport 7001 -j NOTRACK",
    "raw PREROUTING: -p udp --dport 7001 -j TRACE",
    "-p tcp --syn -j LOG",
    "-p tcp --tcp-flags FIN,RST FIN -j LOG",
    "-p tcp -m tcpmss --mss 100:2000 --tcp-flags SYN SYN -j LOG",
    "-p tcp --dport 7000 -j DROP",
    "-p udp --dport 7000 -j DROP",
    "-s 10.1.0.0/24 -j DROP",
    "-i lan -o wan -j DROP",
    "-m conntrack --ctdir REPLY -j DROP",
    "-m conntrack --ctproto 17 -j DROP",
    "-m pkttype --pkt-type unicast -j DROP",
    "mangle POSTROUTING: -o wan -j DSCP --set-dscp 10",
    "mangle FORWARD: -m connmark --mark 0 -j CONNMARK --set-mark 7",
    "mangle FORWARD: -j MARK --set-xmark 0x5/0xff",
    "-p tcp -m multiport ! --ports 7000,7100:7200 -j LOG",
    "-m conntrack --ctstatus SEEN_REPLY -p udp -j DROP",
    "-m mark --mark 0x0/0xff -p udp --dport 7000 -j DROP",
    "-p tcp ! --syn -m conntrack --ctstate NEW -j LOG",
    "-m conntrack ! --ctstate NEW,INVALID -p tcp -j DROP",
];

/// They have to see each packet of some session.
const VARYING: &[&str] = &[
    "-j LOG",
    "-p udp -j LOG",
    "-s 10.1.0.10 -d 10.2.0.0/16 -j LOG",
    "-d 10.0.0.10/255.0.0.255 -j LOG",
    "-i lan -o wan -j LOG",
    "-i la+ ! -o lan -j LOG",
    "! -f -j LOG",
    "-p udp --sport 1024:6999 --dport 7000:7001 -j LOG",
    "-p udp ! --dport 7001 -j LOG",
    "-p udp -m multiport --dports 53,7000:7009 -j LOG",
    "-p udp -m multiport --ports 53,7000 -j LOG",
    "-m conntrack --ctstate ESTABLISHED -j LOG",
    "-m conntrack --ctdir ORIGINAL -j LOG",
    "-m conntrack --ctstatus SEEN_REPLY -j LOG",
    "-m conntrack --ctexpire 1000:9000 -j DROP",
    "-m iprange --src-range 10.1.0.1-10.1.0.19 -j LOG",
    "-m mark --mark 0 -j LOG",
    "-m dscp ! --dscp 8 -j LOG",
    "-m tos --tos 0x01/0x03 -j DROP",
    "-m ecn --ecn-ip-ect 1 -j DROP",
    "-m ttl --ttl-lt 42 -j DROP",
    "-m length --length 100:300 -j DROP",
    "-m string --string evil --algo bm -j DROP",
    "-m u32 --u32 0&0xffff=200:400 -j DROP",
    "-m bpf --bytecode \"4,48 0 0 8,21 0 1 41,6 0 0 1,6 0 0 0\" -j DROP",
    "-m limit --limit 1/hour --limit-burst 5 -j ACCEPT;-j DROP",
    "-m hashlimit --hashlimit-upto 1/hour --hashlimit-burst 4 --hashlimit-mode srcip --hashlimit-name a -j ACCEPT;-j DROP",
    "-m quota --quota 3000 -j ACCEPT;-j DROP",
    "-m statistic --mode nth --every 3 --packet 0 -j DROP",
    "-m connbytes --connbytes 10: --connbytes-dir both --connbytes-mode packets -j DROP",
    "-m connlimit --connlimit-upto 10 -j LOG",
    "-m recent --name r --update --seconds 600 --hitcount 9 -j DROP;-m recent --name r --set -j ACCEPT",
    "-m time --timestart 00:00 --timestop 23:59:59 -j LOG",
    "-m mac --mac-source 02:00:00:00:02:01 -j LOG",
    "-m pkttype --pkt-type unicast -j LOG",
    "-m devgroup --src-group 5 -j DROP",
    "-m physdev --physdev-is-bridged -j DROP",
    "-m cpu --cpu 77 -j DROP",
    "-m comment --comment x -j LOG",
    "-j one;-j LOG",
    "-p udp -j three",
    "-j NFLOG --nflog-group 9",
    "-j NFQUEUE --queue-num 9 --queue-bypass",
    "-j AUDIT --type accept",
    "mangle FORWARD: -m length --length 100:300 -j MARK --set-mark 7",
    "mangle FORWARD: -j CONNMARK --save-mark",
    "mangle FORWARD: -m length --length 100:300 -j DSCP --set-dscp 10",
    "mangle FORWARD: -j TOS --set-tos 0x21/0xff",
    "mangle FORWARD: -j TTL --ttl-set 33",
    "mangle FORWARD: -j TTL --ttl-inc 2",
    "mangle FORWARD: -j CHECKSUM --checksum-fill",
    "mangle FORWARD: -j TEE --gateway 10.2.0.77",
    "mangle FORWARD: -j IDLETIMER --timeout 600 --label linerate",
    "mangle FORWARD: -j RATEEST --rateest-name r --rateest-interval 250ms --rateest-ewmalog 0.5s",
    "raw PREROUTING: -m length --length 100:300 -j DROP",
    "-p tcp ! --syn -j LOG",
    "-p tcp --tcp-flags PSH PSH -j DROP",
    "-p tcp --tcp-flags ALL ACK -j LOG",
    "-p tcp --tcp-flags URG URG -j LOG",
    "-p tcp --tcp-option 8 -j LOG",
    "-p udp -m conntrack --ctstate ESTABLISHED -m limit --limit 1/hour --limit-burst 5 -j LOG",
    "mangle POSTROUTING: -j TTL --ttl-inc 2",
    "mangle PREROUTING: -m length --length 100:300 -j DROP",
    "-p tcp -m tcpmss --mss 100:2000 -j LOG",
    "-p tcp -j LOG",
    "! -s 10.1.0.10 -j LOG",
    "-m conntrack --ctdir REPLY -j LOG",
    "-m iprange ! --src-range 10.1.0.1-10.1.0.19 -j LOG",
    "-p tcp -m length --length 100:300 -j DROP",
    "mangle FORWARD: -p tcp -j TCPOPTSTRIP --strip-options 3",
    "mangle FORWARD: -p tcp -j ECN --ecn-tcp-remove",
    "mangle FORWARD: -m connmark --mark 1 -j CONNMARK --set-mark 2;-m connmark --mark 0 -j CONNMARK --set-mark 1",
    "-m conntrack --ctstatus ASSURED -p udp -j DROP",
    "-m u32 --u32 0>>22&0x3C@0&0xFF=1 -j LOG",
    "-m statistic --mode nth --every 3 --packet 0 -j DROP",
    "-m hashlimit --hashlimit-above 5/hour --hashlimit-burst 5 --hashlimit-name x -j DROP",
    "-m recent --set --name y",
    "-m time --timestart 00:00 --timestop 23:59 -j LOG",
    "-m connlimit --connlimit-above 9 -j DROP",
    "-m quota --quota 900 -j ACCEPT",
    "-p tcp -m string --algo bm --string first -j LOG",
    "-m cpu ! --cpu 9 -j LOG",
    "mangle FORWARD: -j TOS --set-tos 0x03/0x03",
    "-j NFLOG --nflog-group 7",
];

/// Compares each rule of so many.
fn compare(bench: &mut Bench, program: &str, step: usize) {
    let (mut wrong, mut refused) = (Vec::new(), Vec::new());
    for (rules, is_kept) in [(CONSTANT, false), (VARYING, true)] {
        for rule in rules.iter().step_by(step) {
            let load = |router: &Namespace| load(router, program, rule);
            match bench.compare(load, |router| state(router, program), is_kept) {
                Err(error) if error.starts_with(program) => {
                    refused.push(format!("{rule}: {error}"));
                }
                Err(error) => wrong.push(format!("{rule}: {error}")),
                Ok(()) => {}
            }
        }
    }
    let count = CONSTANT.len().div_ceil(step) + VARYING.len().div_ceil(step);
    println!("{program}: {count} rules; the kernel or iptables does not know {refused:#?}");
    assert!(wrong.is_empty(), "{program}: {} differ: {wrong:#?}", wrong.len());
    assert!(refused.len() < 15, "{refused:#?}");
    for router in bench.routers() {
        load(router, program, "-j ACCEPT").expect("loaded");
    }
}

#[test]
fn rules_of_x_tables_have_the_verdicts_that_they_have_without_acceleration() {
    learner_or_skip!();
    let mut bench = Bench::new();
    compare(&mut bench, "iptables-nft", 1);
    // Both have the same extensions.
    compare(&mut bench, "iptables-legacy", 3);
}
