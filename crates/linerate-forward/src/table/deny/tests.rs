use linerate_testkit::root_or_skip;
use proptest::prelude::*;

use super::*;
use crate::runtime::program::{Options, Programs};

fn deny_list() -> (Programs, Arc<Control>, DenyList) {
    let programs = Programs::load(&Options { max_sessions: 1024, ..Options::default() }).unwrap();
    let control = Arc::new(Control::open(&programs.maps).unwrap());
    let clock = Clock::read(programs.heartbeat().unwrap());
    let list = DenyList::open(&programs.maps, Arc::clone(&control), clock).unwrap();
    (programs, control, list)
}

fn target(text: &str) -> Target {
    text.parse().expect(text)
}

fn listed(list: &DenyList) -> Vec<String> {
    list.list().unwrap().iter().map(|entry| entry.target.to_string()).collect()
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn entries_of_all_kinds_are_listed_as_they_were_given() {
    root_or_skip!();
    let (_programs, control, mut list) = deny_list();
    assert_eq!((listed(&list).len(), control.denied()), (0, 0));
    let kinds = [
        "0.0.0.0/0",
        "2001:db8::/32",
        "2001:db9::1",
        "tcp,192.0.2.1,80,198.51.100.2,50000",
        "udp,2001:db8::1,53,2001:db8::2,5353",
    ];
    for (number, text) in (1..).zip(kinds) {
        let generation = control.generation();
        assert_eq!(list.block(target(text), None).unwrap(), BlockOutcome::Added(vec![]));
        assert_eq!(control.denied(), number);
        assert_ne!(control.generation(), generation, "sessions meet the list");
    }
    assert_eq!(listed(&list), kinds);
    assert_eq!(list.block(target(kinds[4]), Some(HOUR)).unwrap(), BlockOutcome::Changed(vec![]));
    let left = list.list().unwrap()[4].left.unwrap();
    assert!(left <= HOUR && left > HOUR - Duration::from_secs(5), "{left:?}");
    for (number, text) in (0..5).rev().zip(kinds) {
        assert_eq!(list.unblock(target(text)).unwrap().target, target(text));
        assert_eq!(control.denied(), number);
    }
    let error = list.unblock(target("192.0.2.1")).unwrap_err().to_string();
    assert!(error.contains("192.0.2.1 is not blocked"), "{error}");
}

#[test]
fn an_entry_within_another_lasts_longer_or_is_part_of_it() {
    root_or_skip!();
    let (_programs, _control, mut list) = deny_list();
    let net: Prefix = "10.0.0.0/8".parse().unwrap();
    list.block(target("10.0.0.0/8"), Some(HOUR)).unwrap();
    assert_eq!(
        list.block(target("10.1.0.0/16"), Some(HOUR / 2)).unwrap(),
        BlockOutcome::Within(net)
    );
    assert_eq!(list.block(target("10.2.0.0/16"), None).unwrap(), BlockOutcome::Added(vec![]));
    assert_eq!(
        list.block(target("10.3.0.0/16"), Some(HOUR * 2)).unwrap(),
        BlockOutcome::Added(vec![])
    );
    assert_eq!(listed(&list), ["10.0.0.0/8", "10.2.0.0/16", "10.3.0.0/16"]);
    let error = list.unblock(target("10.9.0.1")).unwrap_err().to_string();
    assert!(error.contains("within 10.0.0.0/8: unblock that"), "{error}");
    // The counts of absorbed entries are kept.
    let (map, key) = list.place(target("10.3.0.0/16"));
    let counted = Denied { expires: 1 << 60, dropped: 7 };
    map.update(&key, counted.as_bytes(), MapFlags::ANY).unwrap();
    let parts = list.block(target("10.0.0.0/8"), None).unwrap();
    let BlockOutcome::Changed(mut parts) = parts else { panic!("{parts:?}") };
    parts.sort_unstable();
    assert_eq!(parts, [target("10.2.0.0/16"), target("10.3.0.0/16")]);
    assert_eq!(list.list().unwrap().len(), 1);
    assert_eq!(list.list().unwrap()[0].dropped, 7);
}

#[test]
fn what_has_expired_is_swept() {
    root_or_skip!();
    let (_programs, control, mut list) = deny_list();
    list.block(target("192.0.2.0/24"), None).unwrap();
    list.block(target("198.51.100.1"), Some(HOUR)).unwrap();
    assert!(list.sweep().unwrap().is_empty());
    list.unblock(target("198.51.100.1")).unwrap();
    list.block(target("198.51.100.1"), Some(Duration::from_millis(100))).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(listed(&list), ["192.0.2.0/24"], "not listed, though still there");
    assert_eq!((control.denied(), list.count().unwrap()), (2, 1));
    let error = list.unblock(target("198.51.100.1")).unwrap_err().to_string();
    assert!(error.contains("198.51.100.1 is not blocked"), "{error}");
    let swept = list.sweep().unwrap();
    assert_eq!(swept.len(), 1);
    assert_eq!(swept[0].target, target("198.51.100.1"));
    assert_eq!(control.denied(), 1);
}

#[test]
fn a_full_list_says_so() {
    root_or_skip!();
    let (_programs, _control, list) = deny_list();
    let room = list.denied4.max_entries();
    let value = Denied { expires: NEVER, dropped: 0 };
    for number in 0..room {
        let prefix = Prefix::from(IpAddr::from(number.to_be_bytes()));
        list.put(Target::Prefix(prefix), value).unwrap();
    }
    let error = list.put(target("255.0.0.1"), value).unwrap_err().to_string();
    assert!(error.contains("65536 entries"), "{error}");
}

/// The longest-prefix look-up of the programs finds an entry in force whenever any entry in force holds the
/// address.
#[test]
fn what_is_blocked_is_found_by_the_longest_prefix_alone() {
    root_or_skip!();
    let (_programs, _control, list) = deny_list();
    let list = std::cell::RefCell::new(list);
    // Few bits, so that prefixes contain each other. Hours 0: for ever.
    let wish = (0u8..16, 24u8..=32, 0u32..4);
    let config = ProptestConfig { cases: 40, failure_persistence: None, ..Default::default() };
    proptest!(config, |(wishes in proptest::collection::vec(wish, 1..8))| {
        let mut list = list.borrow_mut();
        for entry in list.list().unwrap() {
            list.unblock(entry.target).unwrap();
        }
        let mut wanted = Vec::new();
        for (last, length, hours) in wishes {
            let bits = u32::from_be_bytes([10, 0, 0, last]) & (u32::MAX << (32 - u32::from(length)));
            let prefix = Prefix::new(IpAddr::V4(bits.into()), length).unwrap();
            let period = (hours > 0).then(|| HOUR * hours);
            // An absorbed entry lasts as long as the one that absorbed it.
            if let BlockOutcome::Added(parts) | BlockOutcome::Changed(parts) =
                list.block(Target::Prefix(prefix), period).unwrap()
            {
                let is_part = |other| parts.contains(&Target::Prefix(other)) || other == prefix;
                wanted.retain(|(other, _)| !is_part(*other));
                wanted.push((prefix, period));
            }
        }
        for hours in [0, 1, 2, 3] {
            // Half an hour before: entries that last for `hours` or longer are in force.
            let now = list.clock.now() + list.clock.jiffies((HOUR * (hours + 1)).saturating_sub(HOUR / 2));
            for last in 0..16u8 {
                let address: IpAddr = [10, 0, 0, last].into();
                let key = Denied4Key { prefix_len: 32, address: [10, 0, 0, last] };
                let found = list.denied4.lookup(key.as_bytes(), MapFlags::ANY).unwrap();
                let found = found.map(|value| Denied::read_from_bytes(&value).unwrap());
                let drops = found.is_some_and(|value| !is_expired(&value, now));
                let asked = wanted.iter().any(|(prefix, period)| {
                    prefix.contains(address) && period.is_none_or(|period| period > HOUR * hours)
                });
                prop_assert!(drops || !asked, "{address} after {hours} h: {wanted:?}");
            }
        }
    });
}

#[test]
fn thousands_are_blocked_and_unblocked_at_once() {
    root_or_skip!();
    let (_programs, control, mut list) = deny_list();
    let host = |n: u32| Target::Prefix(IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n)).into());
    let generation = control.generation();
    let outcomes = list.block_all((0..4000).map(host), None).unwrap();
    assert!(outcomes.iter().all(|one| *one == BlockOutcome::Added(vec![])));
    assert_eq!((control.denied(), control.generation()), (4000, generation + 1));
    // The second of these is in the first, the third was there, and the last has all of them.
    let more = ["10.0.0.0/28", "10.0.0.3", "10.0.1.1", "10.0.0.0/16"].map(target);
    let outcomes = list.block_all(more, None).unwrap();
    assert_eq!(outcomes[0], BlockOutcome::Added((0..16).map(host).collect()));
    assert_eq!(outcomes[1], BlockOutcome::Within("10.0.0.0/28".parse().unwrap()));
    assert_eq!(outcomes[2], BlockOutcome::Changed(vec![]));
    let BlockOutcome::Added(all) = &outcomes[3] else { panic!("{outcomes:?}") };
    assert_eq!((all.len(), control.denied()), (4000 - 16 + 1, 1));
    list.block_all((0..4000).map(|n| host(n + 0x1_0000)), Some(HOUR)).unwrap();
    let unblocked = list.unblock_all().unwrap();
    assert_eq!((unblocked.len(), control.denied(), listed(&list).len()), (4001, 0, 0));
}
