//! Rules of iptables-legacy, evaluated for one connection.

use linerate_net::ruleset::{Field, Kind, Options, Ruleset, Tracking};
use linerate_testkit::tools::run;
use linerate_testkit::{Namespace, Veth, VethOptions, print_skipped, root_or_skip, test_name};

use crate::support;

/// Sessions from `lan` to `wan`: one of UDP in both directions, one of TCP, and one of UDP without conntrack.
const SESSIONS: [(char, Kind); 4] = [
    ('o', Kind { is_ipv6: false, is_tcp: false, tracking: Tracking::Original }),
    ('r', Kind { is_ipv6: false, is_tcp: false, tracking: Tracking::Reply }),
    ('t', Kind { is_ipv6: false, is_tcp: true, tracking: Tracking::Original }),
    ('n', Kind { is_ipv6: false, is_tcp: false, tracking: Tracking::Untracked }),
];

/// A router with the interfaces `lan` and `wan`.
struct Router {
    namespace: Namespace,
    cable: Veth,
}

impl Router {
    fn create() -> Self {
        let namespace = Namespace::create("xt-rules").unwrap();
        let options = VethOptions::default();
        let cable = Veth::create(&namespace, "lan", &namespace, "wan", options).unwrap();
        Self { namespace, cable }
    }

    /// The rule that keeps a session from 10.1.0.2, port 4000, to 10.2.0.2, port 5000.
    fn keeper(&self, kind: Kind) -> Option<String> {
        let options = Options { after_packets: 20, strict: false };
        let ruleset = self.namespace.run(|| Ruleset::load(&options).unwrap()).unwrap();
        let rule = support::keeper(&ruleset, kind, |field| match field {
            Field::Input => self.cable.a.index().into(),
            Field::Output => self.cable.b.index().into(),
            Field::Source => 0x0a01_0002,
            Field::Destination => 0x0a02_0002,
            Field::SourcePort => 4000,
            Field::DestinationPort => 5000,
            Field::Dscp | Field::Mark => 0,
        });
        rule.map(str::to_owned)
    }
}

/// Rules of `FORWARD`, and which sessions they keep.
const ROWS: &[(&str, &str)] = &[
    ("-j ACCEPT", ""),
    ("-j DROP", ""),
    ("-j REJECT", ""),
    ("-p udp", ""),
    ("-j LOG", "ortn"),
    ("-p udp -j LOG", "orn"),
    ("! -p udp -j LOG", "t"),
    ("-p icmp -j LOG", ""),
    ("-f -j LOG", ""),
    ("! -f -j LOG", "ortn"),
    ("-s 10.1.0.0/16 -j LOG", "ortn"),
    ("! -s 10.1.0.0/16 -j LOG", ""),
    ("-s 10.2.0.0/16 -j LOG", ""),
    ("-d 10.0.0.2/255.0.0.255 -j LOG", "ortn"),
    ("-i lan -o wan -j LOG", "ortn"),
    ("-i la+ -j LOG", "ortn"),
    ("-i wan -j LOG", ""),
    ("! -i wan -j LOG", "ortn"),
    ("-o eth0 -j LOG", ""),
    ("-p udp --dport 5000:5001 -j LOG", "orn"),
    ("-p udp ! --dport 5000 -j LOG", ""),
    ("-p tcp --sport 4000 -j LOG", "t"),
    ("-p tcp --syn -j LOG", ""),
    ("-p tcp ! --syn -j LOG", "t"),
    ("-p tcp --tcp-flags ALL ACK -j LOG", "t"),
    ("-p tcp --tcp-flags PSH PSH -j ACCEPT", "t"),
    ("-p tcp --tcp-flags FIN,PSH FIN,PSH -j LOG", ""),
    ("-p tcp --tcp-option 8 -j ACCEPT", "t"),
    ("-p udp -m multiport --ports 1:3,4000 -j LOG", "orn"),
    ("-p udp -m multiport --dports 1:3,4000 -j LOG", ""),
    ("-p udp -m multiport ! --ports 1:3,4000 -j LOG", ""),
    ("-p udp -m multiport ! --ports 1:3,4001 -j LOG", "orn"),
    ("-p udp -m multiport ! --sports 7,9 -j LOG", "orn"),
    ("-m conntrack --ctstate NEW -j LOG", ""),
    ("-m conntrack --ctstate ESTABLISHED -j LOG", "ort"),
    ("-m conntrack ! --ctstate ESTABLISHED -j LOG", "n"),
    ("-m conntrack --ctstate INVALID,UNTRACKED -j LOG", "n"),
    ("-m conntrack --ctdir REPLY -j LOG", "r"),
    ("-m conntrack --ctproto 6 -j LOG", "t"),
    ("-m conntrack --ctstatus SEEN_REPLY -j LOG", "ort"),
    ("-m conntrack --ctstatus ASSURED -j ACCEPT", "ort"),
    ("-m conntrack --ctexpire 1:10 -j ACCEPT", "ort"),
    ("-m conntrack --ctorigdstport 80 -j ACCEPT", ""),
    ("-m state --state NEW -j LOG", ""),
    ("-m state --state RELATED,ESTABLISHED -j LOG", "ort"),
    ("-m iprange --src-range 10.1.0.1-10.1.0.9 -j LOG", "ortn"),
    ("-m iprange ! --dst-range 10.2.0.1-10.2.0.9 -j LOG", ""),
    ("-m mark --mark 0 -j LOG", "ortn"),
    ("-m mark --mark 0x10/0xf0 -j LOG", "ortn"),
    ("-m mark --mark 1 -j LOG", ""),
    ("-m mark ! --mark 1 -j LOG", "ortn"),
    ("-m dscp --dscp 8 -j LOG", ""),
    ("-m dscp ! --dscp 8 -j LOG", "ortn"),
    ("-m tos --tos 0x20/0xe0 -j LOG", ""),
    ("-m tos --tos 0x01/0x03 -j ACCEPT", "ortn"),
    ("-m pkttype --pkt-type broadcast -j LOG", ""),
    ("-m pkttype ! --pkt-type broadcast -j LOG", "ortn"),
    ("-m connbytes --connbytes 0:10 --connbytes-dir both --connbytes-mode packets -j LOG", ""),
    ("-m connbytes --connbytes 0:90 --connbytes-dir both --connbytes-mode packets -j LOG", "ortn"),
    ("-m connbytes --connbytes 0:10 --connbytes-dir both --connbytes-mode bytes -j LOG", "ortn"),
    ("-m comment --comment x -j LOG", "ortn"),
    ("-m limit --limit 1/s -j ACCEPT", "ortn"),
    ("-m conntrack --ctstate NEW -m limit --limit 1/s -j ACCEPT", ""),
    ("-m limit --limit 1/s -m conntrack --ctstate NEW -j ACCEPT", "ortn"),
    ("-m quota --quota 1000", "ortn"),
    ("-m recent --name a --set", "ortn"),
    ("-m recent --name a --rcheck", ""),
    ("-m recent --name a --rcheck -j DROP", "ortn"),
    ("-m statistic --mode random --probability 0.5", ""),
    ("-m statistic --mode random --probability 0.5 -j DROP", "ortn"),
    ("-m length --length 100 -j DROP", "ortn"),
    ("-m length --length 100", ""),
    ("-m ttl --ttl-eq 1 -j DROP", "ortn"),
    ("-m addrtype --dst-type LOCAL -j ACCEPT", ""),
    ("-m helper --helper ftp -j ACCEPT", ""),
    ("-m connmark --mark 1 -j ACCEPT", ""),
    ("-p tcp -m tcpmss --mss 1:9 -j ACCEPT", "t"),
    ("-p tcp --syn -m tcpmss --mss 1:9 -j ACCEPT", ""),
    ("-j NFQUEUE", "ortn"),
    ("-j NFLOG", "ortn"),
    ("-j AUDIT --type accept", "ortn"),
];

/// The same of `FORWARD` in table mangle.
const MANGLE: &[(&str, &str)] = &[
    ("-j MARK --set-mark 1", ""),
    ("-m length --length 100 -j MARK --set-mark 1", "ortn"),
    ("-j CLASSIFY --set-class 1:2", ""),
    ("-j CONNMARK --set-mark 1", ""),
    ("-j CONNMARK --set-xmark 3/1", "ortn"),
    ("-j CONNMARK --restore-mark", ""),
    ("-j CONNMARK --save-mark", "ortn"),
    ("-j DSCP --set-dscp 8", ""),
    ("-j TOS --set-tos 0x20/0xfc", ""),
    ("-j TOS --set-tos 0x21/0xff", "ortn"),
    ("-p tcp -j ECN --ecn-tcp-remove", "t"),
    ("-j TTL --ttl-set 9", "ortn"),
    ("-p tcp --syn -j TCPMSS --clamp-mss-to-pmtu", ""),
    ("-p tcp -j TCPOPTSTRIP --strip-options 3", "t"),
    ("-j TEE --gateway 10.2.0.9", "ortn"),
    ("-j CHECKSUM --checksum-fill", "ortn"),
];

#[test]
fn rules_keep_the_sessions_that_their_constant_part_matches() {
    root_or_skip!();
    let router = Router::create();
    let mut skipped = Vec::new();
    let tables = [("filter", ROWS), ("mangle", MANGLE)];
    for (table, rule, expected) in
        tables.iter().flat_map(|(table, rows)| rows.iter().map(|row| (*table, row.0, row.1)))
    {
        let mut command = router.namespace.command("iptables-legacy");
        command.args(["-t", table, "-A", "FORWARD"]).args(rule.split(' '));
        let output = command.output().expect("iptables is installed");
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            skipped.push(format!("{rule}: {}", errors.trim()));
            continue;
        }
        let kept = SESSIONS.map(|(name, kind)| (name, router.keeper(kind)));
        let found = kept.iter().filter(|(_, rule)| rule.is_some()).map(|(name, _)| *name);
        assert_eq!(found.collect::<String>(), expected, "{rule}");
        if let Some(name) = kept.iter().find_map(|(_, rule)| rule.as_ref()) {
            assert_eq!(*name, format!("iptables-legacy {table} FORWARD 1"), "{rule}");
        }
        run(&router.namespace, "iptables-legacy", &["-t", table, "-F"], "");
    }
    if !skipped.is_empty() {
        print_skipped(test_name!(), &skipped.join("; "));
    }
}

#[test]
fn chains_are_followed() {
    root_or_skip!();
    let router = Router::create();
    let udp = SESSIONS[0].1;
    for (rules, expected) in [
        // Behind a certain verdict nothing counts.
        ("-A FORWARD -m state --state ESTABLISHED -j ACCEPT\n-A FORWARD -j LOG", None),
        ("-A FORWARD -s 10.1.0.0/16 -j ACCEPT\n-A FORWARD -j LOG", None),
        ("-A FORWARD -s 10.2.0.0/16 -j ACCEPT\n-A FORWARD -j LOG", Some("FORWARD 2")),
        ("-A FORWARD -m length --length 9 -j ACCEPT\n-A FORWARD -j LOG", Some("FORWARD 1")),
        ("-A FORWARD -j one\n-A one -p udp -j two\n-A two -j LOG", Some("two 1")),
        ("-A FORWARD -j one\n-A one -p tcp -j two\n-A two -j LOG", None),
        ("-A FORWARD -j one\n-A FORWARD -j LOG\n-A one -p udp -j RETURN", Some("FORWARD 2")),
        ("-A FORWARD -j one\n-A FORWARD -j LOG\n-A one -p udp -j ACCEPT", None),
        ("-A FORWARD -g one\n-A FORWARD -j LOG\n-A one -p tcp", None),
        ("-A FORWARD -j one\n-A FORWARD -j LOG\n-A one -g two\n-A two -p tcp", Some("FORWARD 2")),
        ("-A INPUT -j LOG\n-A OUTPUT -j LOG\n-A one -j LOG", None),
    ] {
        let text = format!("*filter\n:one - [0:0]\n:two - [0:0]\n{rules}\nCOMMIT\n");
        run(&router.namespace, "iptables-legacy-restore", &[], &text);
        let expected = expected.map(|place| format!("iptables-legacy filter {place}"));
        assert_eq!(router.keeper(udp), expected, "{rules}");
    }
}
