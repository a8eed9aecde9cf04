//! The kernel as oracle: the same frames go into two routers of the same configuration, one plain, one with
//! the accelerator, and everything that leaves them is compared byte for byte.
//!
//! LINERATE_THOROUGH makes the corpus ten times as large, LINERATE_SEED another.

mod corpus;
mod kinds;
mod oracle;
pub(crate) mod packet;
mod session;
mod setup;
mod step;

use linerate_forward::datapath::Datapath;
use linerate_forward::reason::Reason;
use linerate_forward::runtime::conntrack;
use linerate_forward::runtime::program::Options;
use linerate_testkit::{Interface, Veth, probe_or_skip, root_or_skip};

use crate::common::accelerator::Accelerator;
use crate::common::capture::{Monitor, stay};
use crate::common::host::{Host, LAN, PLAIN, WAN, router_mac, router_v4};
use crate::common::router::{Device, Router};
use corpus::{Corpus, ROUTED, TRANSLATED, Traffic};
use linerate_testkit::tools::{ip, nft};
use packet::{ACK, Network, RST, SYN, Segment, frame, packet, transport_at};

/// Sessions of a run.
const SESSIONS: u32 = 160;

fn times() -> u32 {
    if std::env::var_os("LINERATE_THOROUGH").is_some() { 10 } else { 1 }
}

fn seed(default: u64) -> u64 {
    std::env::var("LINERATE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(default)
}

#[test]
fn two_plain_routers_are_alike() {
    root_or_skip!();
    for (corpus, setup) in
        [(ROUTED, setup::routing as fn(&str) -> Router), (TRANSLATED, setup::translating)]
    {
        let (one, two) = (setup("one"), setup("two"));
        let report = Corpus::new(corpus, seed(1), SESSIONS * times()).run(&one, &two, || {});
        println!("{}: {report}", corpus.name);
        report.assert_none();
        assert!(report.distinct >= 5000, "{report}");
        assert!(report.left > report.sent / 2, "most frames do not get through: {report}");
    }
}

/// What the corpus aims at: every reason that needs neither a broken machine nor a command.
const AIMS: [Reason; 20] = [
    Reason::Short,
    Reason::NotIp,
    Reason::Tags,
    Reason::Multicast,
    Reason::Otherhost,
    Reason::Malformed,
    Reason::Checksum,
    Reason::Options,
    Reason::Extension,
    Reason::Fragment,
    Reason::Protocol,
    Reason::Ttl,
    Reason::Syn,
    Reason::Fin,
    Reason::Rst,
    Reason::Flags,
    Reason::Unknown,
    Reason::Stale,
    Reason::Ended,
    Reason::TooBig,
];

fn accelerated(
    datapath: Datapath,
    corpus: Traffic,
    setup: impl Fn(&str) -> Router,
    seed: u64,
    verify_checksums: bool,
) {
    let (plain, fast) = (setup("plain"), setup("fast"));
    // As the accelerated router has it, and has to: it follows no window.
    plain.inside.run(conntrack::relax_tcp_tracking).expect("entered").expect("set");
    let _headroom = (datapath == Datapath::Xdp).then(|| plain.with_headroom());
    let before = reached(&fast);
    let options = Options { max_sessions: 4096, ..Options::default() };
    let accelerator = Accelerator::start_by(datapath, &fast, &options);
    accelerator.control.set_verify_checksums(verify_checksums);
    let report =
        Corpus::new(corpus, seed, SESSIONS * times()).run(&plain, &fast, accelerator.bumper());
    let (reasons, refusals) = (accelerator.reasons(), accelerator.refusals());
    let forwarded = report.reached - before - reasons.values().sum::<u64>();
    println!("{}: {report}\n{forwarded} by {datapath}; the others: {reasons:?}", corpus.name);
    println!("not learned: {refusals:?}");
    report.assert_none();
    assert!(report.distinct >= 5000, "{report}");
    assert!(forwarded > report.sent as u64 / 5, "{datapath} forwarded {forwarded}: {report}");
    let missed = AIMS.iter().map(|reason| reason.name()).filter(|name| !reasons.contains_key(name));
    assert_eq!(missed.collect::<Vec<_>>(), [""; 0], "nothing of the corpus came to these");
}

fn reached(router: &Router) -> u64 {
    let counted = |port: &Interface| port.statistics().expect("counted").rx_packets;
    let first = |((port, device), cable): (&(Interface, Device), &Veth)| match device {
        // XDP takes packets before the VLAN device sees them.
        Device::Trunk => counted(&cable.a),
        _ => counted(port),
    };
    router.ports.iter().zip(&router.cables).map(first).sum()
}

#[test]
fn xdp_routes_as_the_kernel_does() {
    learner_or_skip!();
    accelerated(Datapath::Xdp, ROUTED, setup::routing, seed(2), false);
}

#[test]
fn tc_routes_as_the_kernel_does() {
    learner_or_skip!();
    accelerated(Datapath::Tc, ROUTED, setup::routing, seed(2), false);
}

#[test]
fn xdp_translates_as_the_kernel_does() {
    learner_or_skip!();
    accelerated(Datapath::Xdp, TRANSLATED, setup::translating, seed(3), false);
}

#[test]
fn tc_translates_as_the_kernel_does() {
    learner_or_skip!();
    accelerated(Datapath::Tc, TRANSLATED, setup::translating, seed(3), false);
}

/// With `nf_conntrack_checksum` as the kernel has it by default, and `--verify-checksums`.
#[test]
fn xdp_translates_what_the_kernel_finds_right() {
    learner_or_skip!();
    accelerated(Datapath::Xdp, TRANSLATED, setup::judging, seed(4), true);
}

#[test]
fn tc_translates_what_the_kernel_finds_right() {
    learner_or_skip!();
    accelerated(Datapath::Tc, TRANSLATED, setup::judging, seed(4), true);
}

/// Ports that XDP cannot serve, or by the one below, beside one that it can.
fn by_devices(wan: Device, dmz: Device) {
    let devices = [Device::Veth, wan, dmz];
    for (corpus, setup, seed) in [
        (ROUTED, setup::routing_by as fn(&str, [Device; 3]) -> Router, seed(5)),
        (TRANSLATED, setup::translating_by, seed(6)),
    ] {
        accelerated(Datapath::Xdp, corpus, |name| setup(name, devices), seed, false);
    }
}

#[test]
fn bridge_and_macvlan_forward_as_the_kernel_does() {
    learner_or_skip!();
    probe_or_skip!(Device::Bridge.missing().or_else(|| Device::Macvlan.missing()));
    by_devices(Device::Bridge, Device::Macvlan);
}

#[test]
fn bond_and_filtering_bridge_forward_as_the_kernel_does() {
    learner_or_skip!();
    probe_or_skip!(Device::Bond.missing().or_else(|| Device::FilteringBridge.missing()));
    by_devices(Device::Bond, Device::FilteringBridge);
}

#[test]
fn vlan_devices_forward_as_the_kernel_does() {
    learner_or_skip!();
    probe_or_skip!(Device::Vlan.missing());
    by_devices(Device::Vlan, Device::Trunk);
}

#[test]
fn what_tracking_refuses_teaches_nothing_from_the_first_packet_on() {
    root_or_skip!();
    stay();
    let router = setup::judging("first");
    let options = Options { max_sessions: 4096, ..Options::default() };
    let accelerator = Accelerator::start(&router, &options);
    let mut monitor = Monitor::open(&router);
    let (client, server) =
        (Host { port: LAN, number: PLAIN[0] }, Host { port: WAN, number: PLAIN[0] });
    for (v6, kind) in [(false, 0x0800), (true, 0x86dd)] {
        let network = Network { tos: 0, ttl: 64, id: 7, dont_fragment: true, label: 0 };
        let (from, to) = ((client.address(v6), 4000), (server.address(v6), 5000));
        let mut packet = packet(network, from, to, None, b"a dozen bytes");
        let checksum = transport_at(&packet) + 6;
        packet[checksum] ^= 0x55;
        for _ in 0..5 {
            monitor.send(LAN, &frame(router_mac(LAN), client.mac(), &[], kind, &packet));
        }
        // As it came, but for the hops.
        let ends_alike = |frame: &&Vec<u8>| frame.ends_with(&packet[checksum - 6..]);
        assert_eq!(monitor.seen()[WAN].iter().filter(ends_alike).count(), 5);
    }
    let (sessions, refusals) = (accelerator.sessions(), accelerator.refusals());
    assert!(sessions.is_empty(), "{sessions:?}");
    assert_eq!(refusals.get("conntrack-unknown"), Some(&10), "{refusals:?}");
}

/// The one difference that `--verify-checksums` makes: without it a wrong checksum is translated, and stays wrong by as
/// much, as with nftables' flowtable.
#[test]
fn a_wrong_checksum_stays_wrong_unless_it_is_verified() {
    root_or_skip!();
    stay();
    for (datapath, verify) in [Datapath::Xdp, Datapath::Tc]
        .into_iter()
        .flat_map(|datapath| [false, true].map(|verify| (datapath, verify)))
    {
        let router = setup::judging("verify");
        let options = Options { max_sessions: 4096, ..Options::default() };
        let accelerator = Accelerator::start_by(datapath, &router, &options);
        accelerator.control.set_verify_checksums(verify);
        let mut monitor = Monitor::open(&router);
        let [client, server] = [LAN, WAN].map(|port| Host { port, number: PLAIN[0] });
        let mut say = |host: Host, from, to, wrong: u8| {
            let network = Network { tos: 0, ttl: 64, id: 7, dont_fragment: true, label: 0 };
            let mut packet = packet(network, from, to, None, b"a dozen bytes");
            let checksum = transport_at(&packet) + 6;
            packet[checksum] ^= wrong;
            monitor
                .send(host.port, &frame(router_mac(host.port), host.mac(), &[], 0x0800, &packet));
            monitor.seen()[if host.port == LAN { WAN } else { LAN }].clone()
        };
        let (near, far) = ((client.v4(), 4000), (server.v4(), 5000));
        let own = (router_v4(WAN), 4000);
        for _ in 0..4 {
            say(client, near, far, 0);
            say(server, far, own, 0);
        }
        accelerator.learned((near.0, near.1).into(), (far.0, far.1).into());
        let right = say(client, near, far, 0);
        let wrong = say(client, near, far, 0x55);
        let [right, wrong] = [&right, &wrong].map(|seen| seen.first().expect("one left"));
        assert_eq!(right[26..30], [10, 2, 0, 1]);
        if verify {
            assert_eq!(wrong[26..30], [10, 1, 0, PLAIN[0]], "{datapath}");
            assert_eq!(accelerator.left(Reason::Checksum), 1, "{}", accelerator.describe());
        } else {
            let mut expected = right.clone();
            expected[40] ^= 0x55;
            assert_eq!(*wrong, expected, "{datapath}");
            assert_eq!(accelerator.left(Reason::Checksum), 0, "{}", accelerator.describe());
        }
    }
}

/// Tracking has not seen what the fast path took, and half of all sequence numbers lie before its last one.
#[test]
fn a_reset_from_far_beyond_the_window_is_translated() {
    root_or_skip!();
    stay();
    for accelerated in [false, true] {
        let router = setup::judging("reset");
        let options = Options { max_sessions: 4096, ..Options::default() };
        let _accelerator = accelerated.then(|| Accelerator::start(&router, &options));
        let mut monitor = Monitor::open(&router);
        let [client, server] = [LAN, WAN].map(|port| Host { port, number: PLAIN[0] });
        let (near, far) = ((client.v4(), 4000), (server.v4(), 5000));
        let mut say = |host: Host, from, to, seq, ack, flags| {
            let network = Network { tos: 0, ttl: 64, id: 7, dont_fragment: true, label: 0 };
            let segment = Segment { seq, ack, flags, options: Vec::new() };
            let packet = packet(network, from, to, Some(&segment), &[]);
            let to = router_mac(host.port);
            monitor.send(host.port, &frame(to, host.mac(), &[], 0x0800, &packet));
            monitor.seen()
        };
        let own = (router_v4(WAN), 4000);
        say(client, near, far, 1000, 0, SYN);
        say(server, far, own, 5000, 1001, SYN | ACK);
        say(client, near, far, 1001, 5001, ACK);
        say(server, far, own, 5001, 1001, ACK);
        let beyond = 1001u32.wrapping_add(3 << 30);
        let seen = say(client, near, far, beyond, 5001, RST | ACK);
        let from: Vec<_> = seen[WAN].iter().map(|frame| frame[26..30].to_vec()).collect();
        let translated = [10, 2, 0, 1].to_vec();
        let as_it_came = [10, 1, 0, PLAIN[0]].to_vec();
        // By default the kernel takes it for forged.
        assert_eq!(from, [if accelerated { translated } else { as_it_came }], "{accelerated}");
    }
}

#[test]
fn a_router_that_is_wrong_is_found_out() {
    root_or_skip!();
    let ip_in = |words: &'static str| move |router: &Router| ip(&router.inside, words);
    type Wrong = Box<dyn Fn(&Router)>;
    let wrongs: [(&str, Wrong); 5] = [
        (
            "another hardware address",
            Box::new(ip_in("neigh replace 10.2.0.254 dev wan lladdr 02:00:00:00:11:0c")),
        ),
        ("a route less", Box::new(ip_in("rule del tos 0x10 to 10.102.0.0/16"))),
        ("another MTU", Box::new(ip_in("link set dmz mtu 1399"))),
        (
            "a TTL that stays",
            Box::new(|router| {
                let chain = "type filter hook postrouting priority 0; ip ttl 62 ip ttl set 63;";
                nft(&router.inside, &format!("table ip wrong {{ chain wrong {{ {chain} }}; }}"));
            }),
        ),
        ("a mark less", Box::new(|router| nft(&router.inside, "flush chain inet rules between"))),
    ];
    for (name, wrong) in wrongs {
        let (one, two) = (setup::routing("one"), setup::routing("two"));
        wrong(&two);
        let report = Corpus::new(ROUTED, seed(1), SESSIONS).run(&one, &two, || {});
        println!("{name}: {report}");
        assert!(!report.differences.is_empty(), "{name}: nothing was found");
    }
}
