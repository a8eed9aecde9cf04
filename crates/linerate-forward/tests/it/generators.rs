//! Rule sets that people have leave every session on the fast path. `scripts/rule-sets` captures those in `rule_sets`
//! from the programs that make them; kube-proxy's and fw4's are written by their published structure.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use linerate_forward::runtime::rules::{self, Policy};
use linerate_forward::table::rules::Rules;
use linerate_testkit::Namespace;
use linerate_testkit::lab::{LEFT, Lab, RIGHT, TIMEOUT, WAN, at, deliver};
use linerate_testkit::tools::run;

use crate::common::accelerator::Accelerator;

/// Messages of each side of a conversation.
const MESSAGES: u64 = 12;

/// A rule set, and what it allows.
#[derive(Default)]
struct RuleSet {
    name: &'static str,
    /// Files: of iptables-save, of ip6tables-save, of nft.
    iptables: Option<&'static str>,
    ip6tables: Option<&'static str>,
    nft: Option<&'static str>,
    /// Families that may be forwarded.
    families: &'static [usize],
    /// A port of TCP and one of UDP of the router that lead to ports of the host on the left.
    tcp: Option<(u16, u16)>,
    udp: Option<(u16, u16)>,
    /// An address and port of UDP that lead to port 5000 of either host by chance.
    service: Option<&'static str>,
}

macro_rules! file {
    ($name:literal) => {
        Some(include_str!(concat!("rule_sets/", $name)))
    };
}

fn rule_sets() -> Vec<RuleSet> {
    let none = RuleSet::default;
    vec![
        RuleSet {
            name: "firewalld",
            nft: file!("firewalld.nft"),
            families: &[0, 1],
            tcp: Some((8080, 80)),
            ..none()
        },
        RuleSet {
            name: "ufw",
            iptables: file!("ufw.iptables"),
            ip6tables: file!("ufw.ip6tables"),
            families: &[0, 1],
            ..none()
        },
        RuleSet {
            name: "docker",
            iptables: file!("docker.iptables"),
            families: &[0],
            tcp: Some((8080, 80)),
            udp: Some((5353, 53)),
            ..none()
        },
        RuleSet {
            name: "kube-proxy, iptables",
            iptables: file!("kube-proxy.iptables"),
            families: &[0],
            service: Some("10.96.0.10:53"),
            ..none()
        },
        RuleSet {
            name: "kube-proxy, nftables",
            nft: file!("kube-proxy.nft"),
            families: &[0],
            service: Some("10.96.0.10:53"),
            ..none()
        },
        RuleSet {
            name: "fw4",
            nft: file!("fw4.nft"),
            families: &[0, 1],
            tcp: Some((8080, 80)),
            ..none()
        },
        RuleSet {
            name: "shorewall",
            iptables: file!("shorewall.iptables"),
            families: &[0],
            tcp: Some((8080, 80)),
            ..none()
        },
        RuleSet {
            name: "ferm",
            iptables: file!("ferm.iptables"),
            ip6tables: file!("ferm.ip6tables"),
            families: &[0, 1],
            ..none()
        },
        RuleSet {
            name: "miniupnpd",
            nft: file!("miniupnpd.nft"),
            families: &[0, 1],
            tcp: Some((5000, 5000)),
            udp: Some((5000, 5000)),
            ..none()
        },
    ]
}

impl RuleSet {
    /// Loads it into a router that has no rules; rules of iptables by this program.
    fn load(&self, router: &Namespace, kind: &str) {
        if let Some(rules) = self.nft {
            run(router, "nft", &["-f", "-"], rules);
        }
        for (program, rules) in [("iptables", self.iptables), ("ip6tables", self.ip6tables)] {
            if let Some(rules) = rules {
                run(router, &format!("{program}-{kind}-restore"), &[], rules);
            }
        }
    }

    /// Conversations of clients at this port and the next ones, and what the servers saw of the clients.
    fn converse(&self, lab: &Lab, fast: Option<&Accelerator>, port: u16) -> Vec<SocketAddr> {
        let mut seen = Vec::new();
        let (left, right) = (&lab.left, &lab.right);
        let what = |kind: &str| format!("{}, {kind}", self.name);
        for family in self.families {
            let (here, there) = (at(LEFT[*family], port), at(RIGHT[*family], 5000));
            seen.push(udp(fast, &what("udp"), (left, here), there, (right, there)));
            seen.push(tcp(fast, &what("tcp"), (left, here), there, (right, there)));
        }
        let client = (right, at(RIGHT[0], port));
        if let Some((outside, inside)) = self.tcp {
            let server = (left, at(LEFT[0], inside));
            seen.push(tcp(fast, &what("published tcp"), client, at(WAN[0], outside), server));
        }
        if let Some((outside, inside)) = self.udp {
            let server = (left, at(LEFT[0], inside));
            seen.push(udp(fast, &what("published udp"), client, at(WAN[0], outside), server));
        }
        if let Some(service) = self.service {
            let server = (right, at(RIGHT[0], 5000));
            let service = service.parse().expect("an address");
            // Which host is chosen is chance: each client asks until it is the other one.
            let chosen = (port + 1..port + 65).find(|port| {
                let client = Lab::udp(left, LEFT[0], *port);
                let server = Lab::udp(right, RIGHT[0], 5000);
                client.send_to(b"which", service).expect("sent");
                server.set_read_timeout(Some(TIMEOUT / 50)).expect("a time-out");
                server.recv_from(&mut [0; 16]).is_ok()
            });
            let client = (left, at(LEFT[0], chosen.expect("one of both is chosen")));
            seen.push(udp(fast, &what("service"), client, service, server));
        }
        seen
    }
}

/// A host and an address of it.
type End<'a> = (&'a Namespace, SocketAddr);

/// A conversation of UDP. Returns whom the server saw.
fn udp(
    fast: Option<&Accelerator>,
    what: &str,
    client: End<'_>,
    asked: SocketAddr,
    server: End<'_>,
) -> SocketAddr {
    let open =
        |end: End<'_>| -> UdpSocket { Lab::udp(end.0, &end.1.ip().to_string(), end.1.port()) };
    let (here, there) = (open(client), open(server));
    let mut seen = deliver(&here, asked, &there, what);
    for _ in 0..MESSAGES {
        assert_eq!(deliver(&there, seen, &here, what), asked, "{what}");
        seen = deliver(&here, asked, &there, what);
    }
    check(fast, what, [(client.1, asked), (server.1, seen)]);
    seen
}

/// A conversation of TCP. Returns whom the server saw.
fn tcp(
    fast: Option<&Accelerator>,
    what: &str,
    client: End<'_>,
    asked: SocketAddr,
    server: End<'_>,
) -> SocketAddr {
    let listener = server.0.run(|| TcpListener::bind(server.1)).expect("entered").expect("bound");
    let connect = || TcpStream::connect_timeout(&asked, TIMEOUT);
    let here = client.0.run(connect).expect("entered").expect(what);
    let (there, seen) = listener.accept().expect("accepted");
    for stream in [&here, &there] {
        stream.set_read_timeout(Some(TIMEOUT)).expect("a time-out");
        stream.set_nodelay(true).expect("no delay");
    }
    for _ in 0..=MESSAGES {
        for (mut from, mut to) in [(&here, &there), (&there, &here)] {
            from.write_all(what.as_bytes()).expect("sent");
            let mut buffer = vec![0; what.len()];
            to.read_exact(&mut buffer).expect(what);
            assert_eq!(buffer, what.as_bytes());
        }
    }
    let source = here.local_addr().expect("an address");
    check(fast, what, [(source, asked), (server.1, seen)]);
    seen
}

/// Holds that both directions are on the fast path.
fn check(fast: Option<&Accelerator>, what: &str, ways: [(SocketAddr, SocketAddr); 2]) {
    for (source, destination) in ways {
        let Some(fast) = fast else { return };
        let session = fast.session(source, destination);
        let rules = Rules::new(&fast.programs.maps).expect("maps").kept().expect("read");
        let session = session.unwrap_or_else(|| {
            panic!("{what}: no session {source} to {destination}; {rules:?}; {:?}", fast.refusals())
        });
        assert!(session.packets + 4 >= MESSAGES, "{what}: {session:?}");
    }
}

/// The router evaluates its rules, as the daemon does.
fn evaluate(lab: &Lab, fast: &Accelerator) {
    let refresh = || rules::refresh(&fast.control, &fast.programs.maps, &Policy::default());
    lab.router.run(refresh).expect("entered").expect("evaluated");
    fast.control.bump_generation();
}

/// Takes all rules out of a router.
fn flush(router: &Namespace) {
    run(router, "nft", &["flush", "ruleset"], "");
    // Policies stay otherwise.
    let none = "*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\nCOMMIT\n\
        *nat\nCOMMIT\n*mangle\nCOMMIT\n*raw\nCOMMIT\n";
    for program in ["iptables-legacy-restore", "ip6tables-legacy-restore"] {
        run(router, program, &[], none);
    }
}

#[test]
fn rule_sets_that_people_have_leave_all_sessions_on_the_fast_path() {
    learner_or_skip!();
    let (plain, router) = (Lab::new("genp"), Lab::new("gena"));
    let fast = Accelerator::attach(&router);
    let mut port = 10_000;
    for set in rule_sets() {
        let kinds: &[&str] = if set.nft.is_some() { &["nft"] } else { &["nft", "legacy"] };
        for kind in kinds {
            for lab in [&plain, &router] {
                set.load(&lab.router, kind);
            }
            evaluate(&router, &fast);
            port += 100;
            let expected = set.converse(&plain, None, port);
            let found = set.converse(&router, Some(&fast), port);
            // Ports of TCP clients are chance.
            let addresses =
                |seen: &[SocketAddr]| seen.iter().map(SocketAddr::ip).collect::<Vec<_>>();
            assert_eq!(addresses(&found), addresses(&expected), "{}, {kind}", set.name);
            for lab in [&plain, &router] {
                flush(&lab.router);
            }
        }
    }
}
