//! Rules of x_tables, each in an accelerated router and in a plain one: the same packets come through, and the rules
//! count the same wherever they keep sessions with the kernel.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use linerate_forward::table::rules::Rules;
use linerate_net::ruleset::{Options, Ruleset};
use linerate_ring::packet::{DirectionFilter, Ring};
use linerate_testkit::lab::{LEFT, Lab, RIGHT, TIMEOUT, at, deliver};
use linerate_testkit::tools::{ip, run};
use linerate_testkit::{print_skipped, root_or_skip, test_name};

use crate::common::accelerator::Accelerator;

/// Packets of a session while a rule is loaded, none like the other.
const PACKETS: usize = 24;
/// A port that every rule lets pass: its packet comes behind all others.
const LAST: u16 = 9;

/// What becomes of the session to port 5000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Fast,
    Kept,
}
use Outcome::{Fast, Kept};

/// Rules of a chain of a table, parted by semicolons.
type Row = (&'static str, &'static str, &'static str, Outcome);

const FILTER: &[(&str, Outcome)] = &[
    ("-j ACCEPT", Fast),
    ("-p tcp -j DROP", Fast),
    ("-j LOG", Kept),
    ("-p udp -j LOG", Kept),
    ("-p tcp -j LOG", Fast),
    ("-s 10.1.0.2 -d 10.2.0.0/16 -j LOG", Kept),
    ("! -s 10.1.0.2 -j LOG", Fast),
    ("-d 10.3.0.0/16 -j LOG", Fast),
    ("-d 10.0.0.2/255.0.0.255 -j LOG", Kept),
    ("-i lan -o wan -j LOG", Kept),
    ("-i la+ ! -o lan -j LOG", Kept),
    ("-i eth+ -j LOG", Fast),
    ("-f -j LOG", Fast),
    ("! -f -j LOG", Kept),
    ("-p udp --sport 4000 --dport 5000:5001 -j LOG", Kept),
    ("-p udp --dport 5001 -j LOG", Fast),
    ("-p udp ! --dport 5001 -j LOG", Kept),
    ("-p udp -m multiport --dports 53,5000:5009 -j LOG", Kept),
    ("-p udp -m multiport --ports 53,4000 -j LOG", Kept),
    ("-p udp -m multiport ! --ports 53,4000 -j LOG", Fast),
    ("-m conntrack --ctstate NEW -j LOG", Fast),
    ("-m conntrack --ctstate ESTABLISHED -j LOG", Kept),
    ("-m conntrack --ctstate INVALID,UNTRACKED -j LOG", Fast),
    ("-m conntrack --ctdir REPLY -j LOG", Fast),
    ("-m conntrack --ctdir ORIGINAL -j LOG", Kept),
    ("-m conntrack --ctstatus SEEN_REPLY -j LOG", Kept),
    ("-m conntrack --ctexpire 1000:9000 -j DROP", Kept),
    ("-m conntrack --ctorigdst 10.2.0.2 -j ACCEPT", Fast),
    ("-m state --state NEW -j LOG", Fast),
    (
        "-m state --state RELATED,ESTABLISHED -j ACCEPT;-m length --length 100:200 -j DROP;-j LOG",
        Fast,
    ),
    ("-m iprange --src-range 10.1.0.1-10.1.0.9 -j LOG", Kept),
    ("-m iprange ! --src-range 10.1.0.1-10.1.0.9 -j LOG", Fast),
    ("-m mark --mark 0 -j LOG", Kept),
    ("-m mark --mark 7 -j LOG", Fast),
    ("-m connmark --mark 7 -j DROP", Fast),
    ("-m dscp --dscp 8 -j LOG", Fast),
    ("-m dscp ! --dscp 8 -j LOG", Kept),
    ("-m tos --tos 0x01/0x03 -j DROP", Kept),
    ("-m ecn --ecn-ip-ect 1 -j DROP", Kept),
    ("-m ttl --ttl-lt 42 -j DROP", Kept),
    ("-m length --length 100:300 -j DROP", Kept),
    ("-m length --length 100:300", Fast),
    ("-p tcp -m length --length 100:300 -j DROP", Fast),
    ("-m string --string evil --algo bm -j DROP", Kept),
    ("-m u32 --u32 0&0xffff=200:400 -j DROP", Kept),
    ("-m bpf --bytecode 4,48,0,0,8,21,0,1,41,6,0,0,1,6,0,0,0 -j DROP", Kept),
    ("-m limit --limit 1/hour --limit-burst 5 -j ACCEPT;-j DROP", Kept),
    (
        "-m hashlimit --hashlimit-upto 1/hour --hashlimit-burst 4 --hashlimit-mode srcip --hashlimit-name a -j ACCEPT;-j DROP",
        Kept,
    ),
    ("-m quota --quota 3000 -j ACCEPT;-j DROP", Kept),
    ("-m statistic --mode nth --every 3 --packet 0 -j DROP", Kept),
    ("-m connbytes --connbytes 10: --connbytes-dir both --connbytes-mode packets -j DROP", Kept),
    ("-m connlimit --connlimit-upto 10 -j LOG", Kept),
    (
        "-m recent --name r --update --seconds 600 --hitcount 9 -j DROP;-m recent --name r --set -j ACCEPT",
        Kept,
    ),
    ("-m time --timestart 00:00 --timestop 23:59:59 -j LOG", Kept),
    ("-m mac --mac-source 02:00:00:00:02:01 -j LOG", Kept),
    ("-m pkttype --pkt-type unicast -j LOG", Kept),
    ("-m pkttype --pkt-type multicast -j LOG", Fast),
    ("-m addrtype --dst-type LOCAL -j DROP", Fast),
    ("-m addrtype --dst-type UNICAST -j ACCEPT", Fast),
    ("-m helper --helper ftp -j DROP", Fast),
    ("-m rpfilter --invert -j DROP", Fast),
    ("-m policy --dir in --pol ipsec -j DROP", Fast),
    ("-m realm --realm 3 -j DROP", Fast),
    ("-m devgroup --src-group 5 -j DROP", Kept),
    ("-m physdev --physdev-is-bridged -j DROP", Kept),
    ("-m cpu --cpu 77 -j DROP", Kept),
    ("-m comment --comment x -j LOG", Kept),
    ("-m comment --comment x -j ACCEPT", Fast),
    ("-p icmp -j LOG", Fast),
    ("-p sctp --dport 5000 -j LOG", Fast),
    ("-p dccp --dport 5000 -j LOG", Fast),
    ("-p esp -m esp --espspi 1 -j LOG", Fast),
    ("-j one", Fast),
    ("-j one;-j LOG", Kept),
    ("-p udp -g two", Fast),
    ("-p udp -g two;-j LOG", Fast),
    ("-j three", Kept),
    ("-j NFLOG --nflog-group 9", Kept),
    ("-j NFQUEUE --queue-num 9 --queue-bypass", Kept),
    ("-j AUDIT --type accept", Kept),
    ("-p udp --dport 5001 -j REJECT", Fast),
];

const MANGLE: &[(&str, Outcome)] = &[
    ("-j MARK --set-mark 7", Fast),
    ("-m length --length 100:300 -j MARK --set-mark 7", Kept),
    ("-j CLASSIFY --set-class 1:2", Fast),
    ("-j CONNMARK --set-mark 7", Fast),
    ("-j CONNMARK --restore-mark", Fast),
    ("-j CONNMARK --save-mark", Kept),
    ("-j DSCP --set-dscp 10", Fast),
    ("-m length --length 100:300 -j DSCP --set-dscp 10", Kept),
    ("-j TOS --set-tos 0x20/0xfc", Fast),
    ("-j TOS --set-tos 0x21/0xff", Kept),
    ("-j TTL --ttl-set 33", Kept),
    ("-j TTL --ttl-inc 2", Kept),
    ("-p tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu", Fast),
    ("-p tcp -j TCPOPTSTRIP --strip-options 3", Fast),
    ("-p tcp -j ECN --ecn-tcp-remove", Fast),
    ("-j CHECKSUM --checksum-fill", Kept),
    ("-j TEE --gateway 10.2.0.77", Kept),
    ("-j IDLETIMER --timeout 600 --label linerate", Kept),
    ("-j RATEEST --rateest-name r --rateest-interval 250ms --rateest-ewmalog 0.5s", Kept),
    ("-j HMARK --hmark-tuple src,dst --hmark-mod 5 --hmark-rnd 1", Fast),
];

const RAW: &[(&str, Outcome)] = &[
    ("-p tcp -j CT --notrack", Fast),
    ("-p udp --dport 5001 -j NOTRACK", Fast),
    ("-p udp --dport 5001 -j TRACE", Fast),
    ("-m length --length 100:300 -j DROP", Kept),
];

fn rows() -> impl Iterator<Item = Row> {
    let of = |table, chain, rows: &'static [(&'static str, Outcome)]| {
        rows.iter().map(move |(rules, outcome)| (table, chain, *rules, *outcome))
    };
    of("filter", "FORWARD", FILTER)
        .chain(of("mangle", "FORWARD", MANGLE))
        .chain(of("mangle", "POSTROUTING", &MANGLE[6..9]))
        .chain(of("raw", "PREROUTING", RAW))
}

/// A router, and a session through it.
struct Router {
    lab: Lab,
    fast: Option<Accelerator>,
    client: UdpSocket,
    server: UdpSocket,
    last: UdpSocket,
}

impl Router {
    fn new(name: &str, accelerates: bool) -> Self {
        let lab = Lab::new(name);
        ip(&lab.router, "neigh add 10.2.0.77 dev wan lladdr 02:00:00:00:02:02");
        let fast = accelerates.then(|| Accelerator::attach(&lab));
        let client = Lab::udp(&lab.left, LEFT[0], 4000);
        let (server, last) =
            (Lab::udp(&lab.right, RIGHT[0], 5000), Lab::udp(&lab.right, RIGHT[0], LAST));
        Self { lab, fast, client, server, last }
    }

    /// Loads rules into a chain, and nothing else into that table. Whether the kernel has what they need.
    fn load(&self, program: &str, (table, chain, rules, _): Row) -> Result<(), String> {
        let mut text = format!("*{table}\n");
        for (chain, rules) in CHAINS {
            let _ = write!(text, ":{chain} - [0:0]\n{rules}");
        }
        let _ = writeln!(text, "-A {chain} -p udp --dport {LAST} -j ACCEPT");
        for rule in rules.split(';') {
            let _ = writeln!(text, "-A {chain} {rule}");
        }
        text.push_str("COMMIT\n");
        let mut command = self.lab.router.command(&format!("{program}-restore"));
        command.stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = command.spawn().expect("iptables is installed");
        let mut input = child.stdin.take().expect("piped");
        std::io::Write::write_all(&mut input, text.as_bytes()).expect("written");
        drop(input);
        let output = child.wait_with_output().expect("waited");
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        let Some(fast) = &self.fast else { return Ok(()) };
        let ruleset = self.lab.router.run(|| Ruleset::load(&Options::default())).expect("entered");
        let rules = Rules::new(&fast.programs.maps).expect("maps");
        rules.write(&ruleset.expect("read")).expect("written");
        fast.control.bump_generation();
        Ok(())
    }

    /// A table without rules; packets pass both ways.
    fn reset(&self, program: &str, table: &str) {
        run(&self.lab.router, &format!("{program}-restore"), &[], &format!("*{table}\nCOMMIT\n"));
        run(&self.lab.router, "conntrack", &["-F"], "");
        let (here, there) = (at(LEFT[0], 4000), at(RIGHT[0], 5000));
        for _ in 0..4 {
            deliver(&self.client, there, &self.server, "question");
            deliver(&self.server, here, &self.client, "answer");
        }
    }

    /// Sends packets that differ in length, TTL, ECN and payload; what arrives, at least so many.
    fn send(&self, least: usize) -> Vec<Vec<u8>> {
        let listen = || {
            let builder = Ring::builder("eth").direction(DirectionFilter::In).buffer_size(4 << 20);
            builder.retire_timeout(Duration::from_millis(20)).build().expect("a ring")
        };
        let mut ring = self.lab.right.run(listen).expect("entered");
        for number in 0..PACKETS {
            let mut payload = vec![number as u8; 20 + number * 41];
            if number % 3 == 0 {
                payload[4..8].copy_from_slice(b"evil");
            }
            self.client.set_ttl(40 + number as u32 % 5).expect("a TTL");
            rustix::net::sockopt::set_ip_tos(&self.client, number as u8 % 4).expect("ECN");
            self.client.send_to(&payload, at(RIGHT[0], 5000)).expect("sent");
        }
        deliver(&self.client, at(RIGHT[0], LAST), &self.last, "last");
        // On another path they may come later.
        self.server.set_nonblocking(true).expect("nonblocking");
        let (deadline, mut arrived) = (Instant::now() + TIMEOUT, 0);
        loop {
            while self.server.recv(&mut [0; 2048]).is_ok() {
                arrived += 1;
            }
            if arrived >= least || Instant::now() > deadline {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.server.set_nonblocking(false).expect("blocking");
        arrivals(&mut ring)
    }

    /// Packets that the rules of a chain have counted.
    fn counts(&self, program: &str, (table, chain, ..): Row) -> Vec<String> {
        let text = run(&self.lab.router, &format!("{program}-save"), &["-c", "-t", table], "");
        let is_own = |line: &&str| line.contains(&format!("-A {chain} "));
        text.lines().filter(is_own).skip(1).map(str::to_owned).collect()
    }
}

/// Chains of the user, with rules.
const CHAINS: [(&str, &str); 3] = [
    ("one", "-A one -s 10.9.0.0/16 -j LOG\n-A one -p udp -j RETURN\n-A one -j LOG\n"),
    ("two", "-A two -p tcp -j LOG\n"),
    ("three", "-A three -p udp -m length --length 100:300 -j DROP\n"),
];

/// The packets to port 5000 that came, by their contents and without their numbers, once nothing more comes.
fn arrivals(ring: &mut Ring) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    ring.stop().expect("stopped");
    while ring.wait(TIMEOUT).expect("waited") {
        while let Some(mut batch) = ring.next_batch() {
            while let Some(frame) = batch.next() {
                let bytes = frame.head();
                if bytes[12..14] == [8, 0]
                    && bytes[23] == 17
                    && bytes[36..38] == 5000u16.to_be_bytes()
                {
                    let mut packet = bytes[14..].to_vec();
                    packet[4..6].fill(0);
                    packet[10..12].fill(0);
                    packets.push(packet);
                }
            }
        }
    }
    packets.sort_unstable();
    packets
}

fn verdicts_are_the_same(program: &str, name: &str) {
    let (plain, fast) =
        (Router::new(&format!("{name}p"), false), Router::new(&format!("{name}a"), true));
    let accelerator = fast.fast.as_ref().expect("accelerated");
    let mut skipped = BTreeSet::new();
    for row in rows() {
        let (table, chain, rules, outcome) = row;
        let what = format!("{program} -t {table} {chain} {rules}");
        for router in [&plain, &fast] {
            router.reset(program, table);
        }
        let loaded = [&plain, &fast].map(|router| router.load(program, row));
        if let Some(error) = loaded.into_iter().find_map(Result::err) {
            skipped.insert(format!("{what}: {error}"));
            continue;
        }
        let expected = plain.send(0);
        let left = || accelerator.reasons().values().sum::<u64>();
        let before = left();
        let found = fast.send(expected.len());
        let left = left() - before;
        assert!(found == expected, "{what}: {} of {} arrive", found.len(), expected.len());
        let kept = Rules::new(&accelerator.programs.maps).expect("maps").kept().expect("read");
        // A session is learned again from one of the first packets.
        assert_eq!(
            if left <= PACKETS as u64 / 2 { Fast } else { Kept },
            outcome,
            "{what}: {kept:?}, {:?}, {:?}",
            accelerator.reasons(),
            accelerator.refusals()
        );
        if outcome == Kept {
            assert!(!kept.is_empty(), "{what}");
            assert_eq!(fast.counts(program, row), plain.counts(program, row), "{what}");
        }
        for router in [&plain, &fast] {
            router.reset(program, table);
        }
    }
    if !skipped.is_empty() {
        print_skipped(test_name!(), &skipped.into_iter().collect::<Vec<_>>().join("; "));
    }
}

#[test]
fn rules_of_iptables_legacy_give_the_same_verdicts() {
    root_or_skip!();
    verdicts_are_the_same("iptables-legacy", "xtl");
}

#[test]
fn rules_of_iptables_nft_give_the_same_verdicts() {
    root_or_skip!();
    verdicts_are_the_same("iptables-nft", "xtn");
}
