//! Packets from which nothing is learned, each for its reason.

use std::time::{Duration, Instant};

use linerate_forward::datapath::Datapath;
use linerate_forward::reason::Reason;
use linerate_forward::refusal::Refusal;
use linerate_forward::runtime::upper_devices;
use linerate_forward::table::layout::flags;

use linerate_testkit::wait_for;

use crate::common::accelerator::Accelerator;
use linerate_testkit::lab::{BOTH, LAN, LEFT, Lab, RIGHT, at, deliver};
use linerate_testkit::tools::{ip, run};

/// Sends packets one way; every one is refused for `refusal`, and none makes a session.
#[track_caller]
fn refused(lab: &Lab, fast: &Accelerator, family: usize, refusal: Refusal) {
    let flow = lab.flow(family);
    // The first is refused for being the first, where that is asked earlier.
    flow.ask("first");
    let before = fast.refused(refusal);
    (0..20).for_each(|_| _ = flow.ask("again"));
    assert_eq!(fast.refused(refusal) - before, 20, "{}", fast.describe());
    assert_eq!(fast.sessions(), [], "{}", fast.describe());
}

#[test]
fn udp_without_an_answer_stays_with_conntrack() {
    learner_or_skip!();
    let lab = Lab::new("jow");
    lab.track();
    let fast = Accelerator::attach(&lab);
    for family in BOTH {
        refused(&lab, &fast, family, Refusal::NotEstablished);
    }
    // An answer, and both directions are learned.
    let flow = lab.flow(0);
    for _ in 0..3 {
        flow.answer("answer");
        flow.ask("question");
    }
    assert_eq!(fast.learned(flow.here, flow.there).packets, 24, "{}", fast.describe());
    assert_eq!(fast.learned(flow.there, flow.here).packets, 3, "{}", fast.describe());
}

#[test]
fn a_sender_that_leaves_checksums_to_the_hardware() {
    learner_or_skip!();
    let lab = Lab::new("jcs");
    let features = ["tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6"];
    lab.lan.b.set_features(&features.map(|name| (name, true))).expect("offloads");
    let fast = Accelerator::attach(&lab);
    for family in BOTH {
        refused(&lab, &fast, family, Refusal::PartialChecksum);
    }
}

/// One complete checksum in 65,536 is the sum of the pseudo-header, as a partial one. That must not keep a session of
/// XDP with the kernel for good. Here the one packet is really partial.
#[test]
fn one_partial_checksum_does_not_end_revalidation() {
    learner_or_skip!();
    let lab = Lab::new("jco");
    let features = ["tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6"];
    let set = |on| lab.lan.b.set_features(&features.map(|name| (name, on))).expect("offloads");
    let after = Duration::from_millis(40);
    let fast = Accelerator::attach_by(Datapath::Xdp, &lab, 2, after);
    for family in BOTH {
        let flow = lab.flow(family);
        let revalidations = || fast.learned(flow.here, flow.there).revalidations;
        (0..5).for_each(|_| _ = flow.ask("complete"));
        let learned = revalidations();
        std::thread::sleep(2 * after);
        set(true);
        flow.ask("partial");
        assert!(fast.refused(Refusal::PartialChecksum) > 0, "{}", fast.describe());
        assert_eq!(revalidations(), learned, "{}", fast.describe());
        set(false);
        let refused = fast.refused(Refusal::PartialChecksum);
        (0..5).for_each(|_| _ = flow.ask("complete"));
        assert_eq!(fast.refused(Refusal::PartialChecksum), refused, "{}", fast.describe());
        assert!(revalidations() > learned, "{}", fast.describe());
    }
}

#[test]
fn rules_that_change_ttl_or_ecn() {
    learner_or_skip!();
    let lab = Lab::new("jtt");
    lab.nft(
        "table inet t {
        chain forward { type filter hook forward priority 0
            ip ttl set 33
            ip6 ecn set ce
        }
        }",
    );
    let fast = Accelerator::attach(&lab);
    refused(&lab, &fast, 0, Refusal::Ttl);
    refused(&lab, &fast, 1, Refusal::Ecn);
}

#[test]
fn rewriting_that_conntrack_knows_nothing_of() {
    learner_or_skip!();
    let lab = Lab::new("jsl");
    lab.nft(
        "table ip t {
        chain forward { type filter hook forward priority 0
            udp dport 5000 ip saddr set 10.1.0.77
        }
        }
        table ip6 t {
        chain forward { type filter hook forward priority 0
            udp dport 5000 udp sport set 4444
        }
        }",
    );
    let fast = Accelerator::attach(&lab);
    for family in BOTH {
        refused(&lab, &fast, family, Refusal::Unseen);
    }
}

#[test]
fn what_the_router_says_itself() {
    learner_or_skip!();
    let lab = Lab::new("jlo");
    let fast = Accelerator::attach(&lab);
    for family in BOTH {
        let router = Lab::udp(&lab.router, LAN[family], 5000);
        let client = Lab::udp(&lab.left, LEFT[family], 4000);
        let before = fast.refused(Refusal::Local);
        for _ in 0..5 {
            deliver(&client, at(LAN[family], 5000), &router, "question");
            deliver(&router, at(LEFT[family], 4000), &client, "answer");
        }
        assert!(fast.refused(Refusal::Local) - before >= 5, "{}", fast.describe());
    }
    assert_eq!(fast.sessions(), [], "{}", fast.describe());
}

#[test]
fn what_leaves_where_it_came_in() {
    learner_or_skip!();
    let lab = Lab::new("jha");
    for family in BOTH {
        let beyond = ["10.7.0.1", "fd07::1"][family];
        run(&lab.router, "ip", &["route", "add", beyond, "via", LEFT[family]], "");
        let fast = Accelerator::attach(&lab);
        let client = Lab::udp(&lab.left, LEFT[family], 4000);
        for _ in 0..5 {
            client.send_to(b"there and back", at(beyond, 5000)).expect("sent");
        }
        wait_for("refused", || fast.refused(Refusal::Hairpin) >= 4);
        assert_eq!(fast.sessions(), [], "{}", fast.describe());
    }
}

/// A router that a client reaches by a second MAC address, as with VRRP: by a macvlan device above
/// the port. The programs know the port's own address only, and the kernel forwards.
#[test]
fn what_comes_to_a_second_address_of_a_port() {
    const MAC: &str = "00:00:5e:00:01:01";
    learner_or_skip!();
    let lab = Lab::new("jvr");
    let device = format!("link add link lan name vrrp address {MAC} type macvlan mode private");
    ip(&lab.router, &device);
    lab.router.sysctl("net.ipv6.conf.vrrp.disable_ipv6", "0").expect("set");
    ip(&lab.router, "link set dev vrrp up");
    for family in BOTH {
        let gateway = LAN[family];
        ip(&lab.left, &format!("neigh replace {gateway} dev eth lladdr {MAC} nud permanent"));
    }
    let fast = Accelerator::attach(&lab);
    for family in BOTH {
        let flow = lab.flow(family);
        let before = fast.left(Reason::Otherhost);
        (0..6).for_each(|_| _ = flow.ask("question"));
        assert!(fast.left(Reason::Otherhost) - before >= 6, "{}", fast.describe());
        assert_eq!(fast.sessions(), [], "{}", fast.describe());
    }
}

#[test]
fn a_helper_keeps_its_connection() {
    learner_or_skip!();
    let lab = Lab::new("jhe");
    lab.nft(
        "table ip t {
            ct helper amanda { type \"amanda\" protocol udp; }
            chain pre { type filter hook prerouting priority 0
                udp dport 5000 ct helper set \"amanda\"
            }
        }",
    );
    let fast = Accelerator::attach(&lab);
    lab.flow(0).talk(5);
    assert!(fast.refused(Refusal::Helper) >= 6, "{}", fast.describe());
    assert_eq!(fast.sessions(), [], "{}", fast.describe());
}

/// Seconds that the router's only UDP connection has left.
fn seconds_left(lab: &Lab, family: &str) -> u64 {
    let text = run(&lab.router, "conntrack", &["-L", "-p", "udp", "-f", family], "");
    text.split_whitespace().nth(2).expect("an entry").parse().expect("seconds")
}

#[test]
fn a_connection_lives_as_long_as_if_it_had_seen_every_packet() {
    learner_or_skip!();
    for family in BOTH {
        let lab = Lab::new("jct");
        lab.masquerade();
        for (name, value) in [("udp_timeout", "30"), ("udp_timeout_stream", "30"), ("events", "1")]
        {
            lab.router.sysctl(&format!("net.netfilter.nf_conntrack_{name}"), value).expect("set");
        }
        let fast = Accelerator::attach_with(&lab, 2, Duration::from_secs(10));
        let flow = lab.flow(family);
        let talk = || deliver(&flow.server, flow.ask("question"), &flow.client, "answer");
        talk();
        let name = ["ipv4", "ipv6"][family];
        assert!(seconds_left(&lab, name) <= 30);
        let mut learned = Instant::now();
        wait_for("the fast path may keep all from it", || {
            learned = Instant::now();
            talk();
            std::thread::sleep(Duration::from_millis(20));
            let session = fast.session(at(LEFT[family], 4000), at(RIGHT[family], 5000));
            session.is_some_and(|session| fast.flags(&session) & flags::UNREPORTED == 0)
        });
        (0..4).for_each(|_| _ = talk());
        // What the fast path may keep from it is on top: ten seconds. It runs out meanwhile.
        let left = seconds_left(&lab, name);
        let least = 38_u64.saturating_sub(learned.elapsed().as_secs());
        assert!(least > 30, "the machine is too slow to tell");
        assert!((least..=40).contains(&left), "{left} s; {}", fast.describe());
    }
}

#[test]
fn a_bridge_lies_on_its_ports_and_is_trusted_when_known() {
    learner_or_skip!();
    let lab = Lab::new("jbr");
    let mac = lab.lan.a.mac().to_string();
    for words in [
        "link add br0 type bridge mcast_snooping 0",
        "addr flush dev lan",
        "link set lan master br0",
        &format!("link set br0 address {mac} up"),
        &format!("addr add {}/24 dev br0", LAN[0]),
        &format!("neigh add {} dev br0 lladdr {} nud permanent", LEFT[0], lab.lan.b.mac()),
        "neigh flush dev lan",
    ] {
        ip(&lab.router, words);
    }
    let fast = Accelerator::attach(&lab);
    let flow = lab.flow(0);
    let (here, there) = (flow.here, flow.there);
    flow.talk(5);
    assert_eq!(fast.refused(Refusal::Indirect), 5, "{}", fast.describe());
    assert!(fast.session(here, there).is_none(), "{}", fast.describe());
    // The way out through the bridge is one port, since it has learned where the host is.
    assert_eq!(fast.learned(there, here).egress.index, lab.lan.a.index());

    let ports = [lab.lan.a.index(), lab.wan.a.index()];
    let refresh = || upper_devices::refresh(&fast.programs.maps, &ports);
    assert!(lab.router.run(refresh).expect("entered").expect("noted"));
    assert!(!lab.router.run(refresh).expect("entered").expect("noted"), "nothing is new");
    flow.talk(5);
    let record = fast.learned(here, there);
    assert_eq!((record.ingress.index, record.packets), (ports[0], 5), "{}", fast.describe());
    assert_eq!(fast.refused(Refusal::Indirect), 5, "{}", fast.describe());

    // The bridge gives the port up: what was noted goes.
    ip(&lab.router, "link set lan nomaster");
    assert!(lab.router.run(refresh).expect("entered").expect("noted"));
    use libbpf_rs::MapCore;
    assert_eq!(fast.programs.maps.get("upper_devices").expect("a map").keys().count(), 0);
}
