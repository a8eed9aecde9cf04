//! The preflight against real interfaces: what it refuses does not work, and what it says to do, or does
//! itself, makes it work.

use std::time::Duration;

use linerate_forward::runtime::preflight::{
    Check, Fix, Options, Outcome, Report, prepare, restore, verify_transmit,
};
use linerate_net::privilege::{CapabilitySet, keep_only};
use linerate_testkit::wait_for;
use linerate_testkit::{
    Namespace, Veth, VethOptions, print_skipped, root_or_skip, skip, test_name, uninterrupted,
};

/// A host with a veth pair to another.
struct Pair {
    host: Namespace,
    far: Namespace,
    cable: Veth,
}

impl Pair {
    fn new(name: &str) -> Self {
        let host = Namespace::create(&format!("{name}host")).unwrap();
        let far = Namespace::create(&format!("{name}far")).unwrap();
        let cable = Veth::create(&host, "a", &far, "x", VethOptions::default()).unwrap();
        host.set_forwarding(true).unwrap();
        // As the kernel makes it, without the features that are on by default.
        cable.b.set_offloads(false).unwrap();
        cable
            .b
            .set_features(&[("tx-vlan-hw-insert", false), ("tx-vlan-stag-hw-insert", false)])
            .unwrap();
        Self { host, far, cable }
    }

    fn prepare(&self, names: &[&str], options: &Options) -> Report {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        self.host.run(|| prepare(&names, options)).unwrap().unwrap()
    }

    fn verify_transmit(&self) -> Outcome {
        let prove = || verify_transmit("a", true, &mut || Ok(()));
        let mut report = self.host.run(prove).unwrap().unwrap();
        assert_eq!(report.findings.len(), 1);
        report.findings.remove(0).outcome
    }

    fn run(&self, line: &str) {
        assert!(tried(&self.host, line), "{line}");
    }
}

fn tried(host: &Namespace, line: &str) -> bool {
    let mut words = line.split_whitespace();
    let output = host.command(words.next().unwrap()).args(words).output().unwrap();
    if !output.status.success() {
        eprintln!("{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}

/// How the checks of `check` on `interface` ended.
fn outcomes<'a>(report: &'a Report, interface: &str, check: Check) -> Vec<&'a Outcome> {
    let of = report
        .findings
        .iter()
        .filter(|one| one.interface.as_deref() == Some(interface) && one.check == check);
    of.map(|one| &one.outcome).collect()
}

/// The one of them.
fn outcome<'a>(report: &'a Report, interface: &str, check: Check) -> &'a Outcome {
    let all = outcomes(report, interface, check);
    assert_eq!(all.len(), 1, "{check:?} of {interface}: {all:?}");
    all[0]
}

/// The reason and the remedy of a refusal.
fn refusal(outcome: &Outcome) -> (&str, &str) {
    let Outcome::Refused { reason, remedy } = outcome else { panic!("{outcome:?}") };
    (reason, remedy)
}

/// What stands between the first two backquotes.
fn command(remedy: &str) -> &str {
    remedy.split('`').nth(1).unwrap_or_else(|| panic!("no command in {remedy:?}"))
}

const AS_IT_IS: Options =
    Options { fix: false, tc: true, probe: false, multi_buffer: false, adopted: Vec::new() };

#[test]
fn a_veth_whose_far_end_drops_is_refused_with_a_command_that_helps() {
    root_or_skip!();
    let pair = Pair::new("pfgro");
    let report = pair.prepare(&["a"], &AS_IT_IS);
    let (reason, remedy) = refusal(outcome(&report, "a", Check::Transmit));
    assert!(reason.contains("peer x"), "{reason}");
    assert_eq!(report.refusals().count(), 1, "{report:?}");
    // It is true.
    let proved = pair.verify_transmit();
    assert!(refusal(&proved).0.contains("redirected"), "{proved:?}");
    // And the remedy is one.
    assert!(tried(&pair.host, command(remedy)), "{remedy}");
    let report = pair.prepare(&["a"], &AS_IT_IS);
    assert_eq!(outcome(&report, "a", Check::Transmit), &Outcome::Fine);
    assert_eq!(report.refusals().count(), 0, "{report:?}");
    assert_eq!(pair.verify_transmit(), Outcome::Fine);
}

#[test]
fn a_far_end_is_given_a_program_that_goes_with_its_link() {
    root_or_skip!();
    let pair = Pair::new("pfstub");
    let report = pair.prepare(&["a"], &Options::default());
    assert!(matches!(outcome(&report, "a", Check::Transmit), Outcome::Fixed(_)), "{report:?}");
    let [program] = &report.peer_programs[..] else { panic!("{report:?}") };
    assert_eq!((program.interface.as_str(), program.peer.as_str()), ("a", "x"));
    assert!(pair.cable.b.has_xdp().unwrap());
    assert_eq!(pair.verify_transmit(), Outcome::Fine);
    // A daemon that finds it there is content.
    let again = pair.prepare(&["a"], &Options::default());
    assert_eq!(outcome(&again, "a", Check::Transmit), &Outcome::Fine);
    assert!(again.peer_programs.is_empty());
    // What it passes goes on to the stack.
    pair.cable.a.add_address("10.0.1.1".parse().unwrap(), 24).unwrap();
    pair.cable.b.add_address("10.0.1.2".parse().unwrap(), 24).unwrap();
    let there = pair.far.run(|| std::net::UdpSocket::bind("10.0.1.2:7000").unwrap()).unwrap();
    there.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let here = pair.host.run(|| std::net::UdpSocket::bind("10.0.1.1:0").unwrap()).unwrap();
    here.send_to(b"through", "10.0.1.2:7000").unwrap();
    assert_eq!(uninterrupted(|| there.recv(&mut [0; 16])).unwrap(), 7);
    drop(report);
    // The kernel takes it off a moment after the last descriptor closed.
    wait_for("the peer program to be gone", || !pair.cable.b.has_xdp().unwrap());
}

#[test]
fn three_capabilities_suffice_and_a_far_end_out_of_reach_is_said() {
    root_or_skip!();
    let pair = Pair::new("pfcaps");
    Veth::create(&pair.host, "m", &pair.host, "n", VethOptions::default()).unwrap();
    let restricted = |name: &str, options: &Options| {
        let work = || {
            keep_only(CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::NET_ADMIN)
                .unwrap();
            prepare(&[name.to_owned()], options)
        };
        pair.host.run(work).unwrap().unwrap()
    };
    // In another namespace: what is known of this end decides, and TC needs nothing of the other.
    let report = restricted("a", &Options { tc: false, ..Options::default() });
    let (reason, remedy) = refusal(outcome(&report, "a", Check::Peer));
    assert!(reason.contains("cannot be entered") && remedy.contains("CAP_SYS_ADMIN"), "{report:?}");
    let report = restricted("a", &Options::default());
    let warned = outcome(&report, "a", Check::Peer);
    assert!(
        matches!(warned, Outcome::Warning { what, .. } if what.contains("takes TC")),
        "{warned:?}"
    );
    assert_eq!(report.refusals().count(), 0, "{report:?}");
    pair.cable.b.set_features(&[("rx-gro", true)]).unwrap();
    let report = restricted("a", &Options::default());
    assert_eq!(outcome(&report, "a", Check::Transmit), &Outcome::Fine);
    let unknown = outcome(&report, "a", Check::Peer);
    assert!(
        matches!(unknown, Outcome::Warning { what, .. } if what.contains("not examined")),
        "{unknown:?}"
    );
    assert_eq!(report.refusals().count(), 0, "{report:?}");
    // In the same namespace, nothing is out of reach.
    let report = restricted("m", &Options::default());
    assert!(outcomes(&report, "m", Check::Tags).len() > 1, "{report:?}");
    assert_eq!(report.refusals().count(), 0, "{report:?}");
}

#[test]
fn both_ends_on_one_host_need_no_stub_and_a_far_end_here_is_found() {
    root_or_skip!();
    let pair = Pair::new("pfboth");
    let cable = Veth::create(&pair.host, "m", &pair.host, "n", VethOptions::default()).unwrap();
    cable.b.set_offloads(false).unwrap();
    let report = pair.prepare(&["m", "n"], &AS_IT_IS);
    for name in ["m", "n"] {
        assert_eq!(outcome(&report, name, Check::Transmit), &Outcome::Fine, "{report:?}");
    }
    let report = pair.prepare(&["m"], &AS_IT_IS);
    let (_, remedy) = refusal(outcome(&report, "m", Check::Transmit));
    assert_eq!(command(remedy), "ethtool -K n gro on");
    let report = pair.prepare(&["m"], &Options::default());
    assert_eq!(report.peer_programs.len(), 1, "{report:?}");
}

#[test]
fn offloads_of_the_far_end_are_turned_off_and_on_again() {
    root_or_skip!();
    let pair = Pair::new("pftags");
    pair.cable.b.set_gro(true).unwrap();
    let checksums = outcome(&pair.prepare(&["a"], &AS_IT_IS), "a", Check::Checksums).clone();
    assert_eq!(checksums, Outcome::Fine);
    pair.cable
        .b
        .set_features(&[("tx-vlan-hw-insert", true), ("tx-checksum-ip-generic", true)])
        .unwrap();
    let is_on = || {
        let shown = pair.far.command("ethtool").args(["-k", "x"]).output().unwrap();
        String::from_utf8_lossy(&shown.stdout).contains("tx-vlan-offload: on")
    };
    if !is_on() {
        skip!("this veth has no VLAN offload");
    }
    let report = pair.prepare(&["a"], &AS_IT_IS);
    let tags = outcomes(&report, "a", Check::Tags);
    let told = tags.iter().find_map(|outcome| match outcome {
        Outcome::Warning { remedy, .. } => Some(remedy),
        _ => None,
    });
    let told = command(told.expect("a warning"));
    assert_eq!(told, format!("ip netns exec {} ethtool -K x txvlan off", pair.far.name()));
    let Outcome::Warning { remedy, .. } = outcome(&report, "a", Check::Checksums) else {
        panic!("{report:?}")
    };
    assert!(command(remedy).ends_with("ethtool -K x tx off"), "{remedy}");
    assert_eq!(report.refusals().count(), 0, "{report:?}");

    let report = pair.prepare(&["a"], &Options::default());
    assert!(!is_on(), "{report:?}");
    assert!(outcomes(&report, "a", Check::Tags).iter().any(|one| matches!(one, Outcome::Fixed(_))));
    // The record survives the daemon.
    let text = serde_json::to_string(&report.fixes).unwrap();
    let fixes: Vec<Fix> = serde_json::from_str(&text).unwrap();
    assert_eq!(fixes, report.fixes);
    assert!(!fixes.is_empty());
    let errors = restore(&fixes);
    assert!(errors.is_empty(), "{errors:?}");
    assert!(is_on());
    // What is gone needs no undoing.
    pair.cable.delete().unwrap();
    assert!(restore(&fixes).is_empty());
    drop(pair.far);
    assert!(restore(&fixes).is_empty());
}

#[test]
fn devices_that_xdp_cannot_serve_are_refused_without_tc() {
    root_or_skip!();
    let pair = Pair::new("pfkind");
    let cases = [
        ("lo", "true", "interfaces that frames leave by"),
        ("br0", "ip link add name br0 type bridge", "name a instead"),
        ("mac0", "ip link add name mac0 link b type macvlan", "name b instead"),
        ("vx0", "ip link add name vx0 type vxlan id 7 dstport 4789 dev b", "leave it out"),
        ("vlan0", "ip link add name vlan0 link b type vlan id 7", "name b instead"),
        ("bond0", "ip link add name bond0 type bond", "it has none yet"),
        ("dummy0", "ip link add name dummy0 type dummy", "interfaces that frames leave by"),
        ("tun0", "ip tuntap add name tun0 mode tun", "leave it out"),
        ("gre0a", "ip link add name gre0a type gre local 10.9.9.1 remote 10.9.9.2", "leave it out"),
    ];
    let other = Veth::create(&pair.host, "b", &pair.far, "y", VethOptions::default()).unwrap();
    for (name, make, expected) in cases {
        if !tried(&pair.host, make) {
            print_skipped(test_name!(), &format!("the kernel cannot: {make}"));
            continue;
        }
        if name == "br0" {
            pair.run("ip link set dev a master br0");
        }
        let report = pair.prepare(&[name], &Options { tc: false, ..Options::default() });
        let (reason, remedy) = refusal(outcome(&report, name, Check::Kind));
        assert!(remedy.contains(expected), "{name}: {reason}; {remedy}");
        assert!(report.fixes.is_empty() && report.peer_programs.is_empty());
        let by_tc = ["br0", "mac0", "vlan0", "bond0", "tun0"].contains(&name);
        let report = pair.prepare(&[name], &Options::default());
        assert_eq!(report.refusals().count() == 0, by_tc, "{name}: {report:?}");
        assert!(report.fixes.is_empty() && report.peer_programs.is_empty());
    }
    drop(other);
    let report = pair.prepare(&["eth77"], &Options::default());
    let (reason, remedy) = refusal(outcome(&report, "eth77", Check::Kind));
    assert!(reason == "no interface named eth77" && remedy.contains("lo, a"), "{reason}; {remedy}");
    // A member of a bridge can be a port.
    let report = pair.prepare(&["a"], &Options::default());
    assert_eq!(outcome(&report, "a", Check::Kind), &Outcome::Fine);
}

#[test]
fn a_tap_device_can_be_a_port() {
    root_or_skip!();
    let pair = Pair::new("pftap");
    if !tried(&pair.host, "ip tuntap add name tap0 mode tap") {
        skip!("the kernel has no TAP devices");
    }
    let report = pair.prepare(&["tap0"], &Options::default());
    assert_eq!(report.refusals().count(), 0, "{report:?}");
    assert_eq!(outcome(&report, "tap0", Check::Native), &Outcome::Fine);
}

#[test]
fn a_large_mtu_is_for_tc_unless_programs_take_several_buffers() {
    root_or_skip!();
    let pair = Pair::new("pfmtu");
    pair.run("ip link set dev a mtu 9000");
    let report = pair.prepare(&["a"], &Options { tc: false, ..Options::default() });
    let (reason, remedy) = refusal(outcome(&report, "a", Check::Mtu));
    assert!(reason.contains("9000"), "{reason}");
    let by_tc = pair.prepare(&["a"], &Options::default());
    assert!(matches!(outcome(&by_tc, "a", Check::Mtu), Outcome::Warning { .. }), "{by_tc:?}");
    assert_eq!(by_tc.refusals().count(), 0, "{by_tc:?}");
    let report = pair.prepare(&["a"], &Options { multi_buffer: true, ..Options::default() });
    assert_eq!(outcome(&report, "a", Check::Mtu), &Outcome::Fine);
    pair.run(command(remedy));
    let report = pair.prepare(&["a"], &Options::default());
    assert_eq!(outcome(&report, "a", Check::Mtu), &Outcome::Fine);
}

#[test]
fn a_program_of_somebody_else_is_refused_and_ours_is_not() {
    root_or_skip!();
    let pair = Pair::new("pfforeign");
    // For this end, the peer program of the peer's preflight is a foreign program.
    pair.cable.a.set_offloads(false).unwrap();
    let names = ["x".to_owned()];
    let theirs = pair.far.run(|| prepare(&names, &Options::default())).unwrap().unwrap();
    assert_eq!(theirs.peer_programs.len(), 1, "{theirs:?}");
    let report = pair.prepare(&["a"], &Options::default());
    let (reason, remedy) = refusal(outcome(&report, "a", Check::Program));
    assert!(reason.contains("id "), "{reason}");
    assert!(remedy.contains("ip link set dev a xdp off"), "{remedy}");
    let adopted = vec![pair.cable.a.index()];
    let report = pair.prepare(&["a"], &Options { adopted, ..Options::default() });
    assert_eq!(outcome(&report, "a", Check::Program), &Outcome::Fine);
}

#[test]
fn a_host_that_does_not_forward_is_told() {
    root_or_skip!();
    let pair = Pair::new("pfforward");
    let warned = |report: &Report| -> Vec<String> {
        report
            .findings
            .iter()
            .filter(|one| one.check == Check::Forwarding && one.outcome != Outcome::Fine)
            .map(ToString::to_string)
            .collect()
    };
    assert_eq!(warned(&pair.prepare(&["a"], &AS_IT_IS)), [] as [String; 0]);
    pair.run("sysctl -qw net.ipv4.conf.a.forwarding=0");
    let [printed] = &warned(&pair.prepare(&["a"], &AS_IT_IS))[..] else { panic!() };
    assert!(printed.starts_with("a: "), "{printed}");
    assert!(tried(&pair.host, command(printed)), "{printed}");
    assert_eq!(warned(&pair.prepare(&["a"], &AS_IT_IS)), [] as [String; 0]);
    pair.host.set_forwarding(false).unwrap();
    let printed = warned(&pair.prepare(&["a"], &AS_IT_IS));
    assert!(printed[0].contains("IPv4"), "{printed:?}");
    for one in &printed {
        assert!(tried(&pair.host, command(one)), "{one}");
    }
    assert_eq!(warned(&pair.prepare(&["a"], &AS_IT_IS)), [] as [String; 0]);
    // This kernel has what the tests of NAT need; one that has not is only warned of.
    let report = pair.prepare(&["a"], &AS_IT_IS);
    let tracking = report.findings.iter().find(|one| one.check == Check::Tracking).unwrap();
    assert!(!matches!(tracking.outcome, Outcome::Refused { .. }), "{tracking:?}");
}
