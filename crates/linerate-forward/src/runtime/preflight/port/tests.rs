use linerate_net::privilege::{self, CapabilitySet};
use linerate_testkit::{self as testkit, Veth, VethOptions, root_or_skip};

use super::*;

fn link(namespace: &testkit::Namespace, name: &str) -> Link {
    let links = namespace.run(linerate_net::link::all).unwrap().unwrap();
    links.into_iter().find(|link| link.name == name).unwrap()
}

/// The results of a check.
fn of(report: &Report, check: Check) -> Vec<&Outcome> {
    let found = report.findings.iter().filter(|finding| finding.check == check);
    found.map(|finding| &finding.outcome).collect()
}

/// A veth has the offload and can switch it, so it serves as a card here.
#[test]
fn tags_that_a_card_takes_out_of_frames_are_left_in_and_taken_out_again() {
    root_or_skip!();
    let namespace = testkit::Namespace::create("pfcard").unwrap();
    let cable = Veth::create(&namespace, "a", &namespace, "b", VethOptions::default()).unwrap();
    cable.a.set_features(&[("rx-vlan-hw-parse", true), ("rx-vlan-stag-hw-parse", true)]).unwrap();
    let card = Link { kind: String::new(), ..link(&namespace, "a") };
    let links = [card.clone()];
    let examine = |fix| {
        let mut report = Report::default();
        let options = Options { fix, ..Options::default() };
        let examine = || examine(&card, &links, &["a".to_owned()], &options, &mut report);
        namespace.run(examine).unwrap().unwrap();
        report
    };
    let is_on = || {
        let features = namespace.run(|| ethtool::features(card.index)).unwrap().unwrap();
        ["rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"].map(|name| features.is_active(name))
    };
    assert_eq!(is_on(), [true; 2]);

    let report = examine(false);
    let [Outcome::Refused { remedy, .. }, Outcome::Refused { .. }] = of(&report, Check::Tags)[..]
    else {
        panic!("{report:?}")
    };
    assert!(remedy.contains("`ethtool -K a rxvlan off`"), "{remedy}");
    assert_eq!((is_on(), report.fixes.len()), ([true; 2], 0));

    let report = examine(true);
    let fixed = of(&report, Check::Tags);
    assert!(fixed.iter().all(|one| matches!(one, Outcome::Fixed(_))), "{report:?}");
    assert_eq!((is_on(), report.fixes.len()), ([false; 2], 2));
    // Handled like frames that a card joins.
    let joined = of(&report, Check::Coalescing);
    assert!(joined.iter().all(|one| **one == Outcome::Fine), "{report:?}");
    assert!(of(&examine(true), Check::Tags).iter().all(|one| **one == Outcome::Fine));

    let restore = || crate::runtime::preflight::restore(&report.fixes);
    // As a service that may not enter the namespace.
    let without_privilege = || {
        privilege::keep_only(CapabilitySet::NET_ADMIN).unwrap();
        restore()
    };
    let errors = thread::scope(|scope| scope.spawn(without_privilege).join().unwrap());
    let told: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert!(told[0].contains("`ethtool -K a rx-vlan-hw-parse on`"), "{told:?}");
    assert_eq!((is_on(), told.len()), ([false; 2], 2));
    let errors = namespace.run(restore).unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(is_on(), [true; 2]);
}

#[test]
fn fewer_queues_than_cpus_are_told_with_what_helps() {
    let link = Link { name: "eth1".to_owned(), ..Link::default() };
    let cpus = thread::available_parallelism().unwrap().get() as u32;
    let channels = |used, most, combined| match combined {
        true => Channels { combined_count: used, combined_max: most, ..Channels::default() },
        false => Channels { tx_count: used, tx_max: most, ..Channels::default() },
    };
    let told = |used, most, combined| match queues(&link, Some(channels(used, most, combined))) {
        Outcome::Warning { remedy, .. } => remedy,
        Outcome::Fine => String::new(),
        other => panic!("{other:?}"),
    };
    assert_eq!(told(cpus, cpus, true), "");
    assert_eq!(told(0, cpus, true), format!("`ethtool -L eth1 combined {cpus}`"));
    assert_eq!(told(0, cpus, false), format!("`ethtool -L eth1 tx {cpus}`"));
    assert!(told(0, 0, true).contains("no more"), "{}", told(0, 0, true));
    assert_eq!(queues(&link, None), Outcome::Fine);
}

#[test]
fn the_queues_of_a_device_are_read() {
    root_or_skip!();
    let namespace = testkit::Namespace::create("pfqueue").unwrap();
    let _cable = Veth::create(&namespace, "a", &namespace, "b", VethOptions::default()).unwrap();
    let link = link(&namespace, "a");
    let found = namespace.run(|| ethtool::channels(link.index)).unwrap().unwrap();
    let found = found.expect("a veth tells its queues");
    let most = found.max_tx_queues();
    assert_eq!((most, found.combined_max), (link.num_tx_queues, 0), "{found:?}");
    assert!((1..=most).contains(&found.tx_queues()), "{found:?}");
}
