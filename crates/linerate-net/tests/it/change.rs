use std::time::{Duration, Instant};

use linerate_net::change::{Change, Changes, RtnlGroup};
use linerate_net::neighbour::State;
use linerate_testkit::root_or_skip;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::support::{Cable, cable, stdout_of};

/// Whether a change like this comes.
fn comes(changes: &mut Changes, wanted: impl Fn(&Change) -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        let mut found = false;
        changes.receive(|change| found |= wanted(&change)).unwrap();
        if found {
            return true;
        }
        let mut fds = [PollFd::new(changes, PollFlags::IN)];
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        poll(&mut fds, Some(&second)).unwrap();
    }
    false
}

#[test]
fn changes_are_heard_in_the_namespace_of_the_subscriber() {
    root_or_skip!();
    let Cable { near, far, veth } = cable();
    let index = veth.a.index();
    let groups =
        [RtnlGroup::Link, RtnlGroup::Neighbour, RtnlGroup::Ipv4Route, RtnlGroup::Ipv6Address];
    let mut changes = near.run(|| Changes::subscribe(&groups).unwrap()).unwrap();
    let mut elsewhere = far.run(|| Changes::subscribe(&[RtnlGroup::Ipv4Route]).unwrap()).unwrap();
    stdout_of(&near, "ip neighbour add 10.1.0.7 lladdr 02:00:00:00:00:07 dev a");
    let seven = |entry: &linerate_net::neighbour::Neighbour| {
        entry.destination == Some("10.1.0.7".parse().unwrap()) && entry.index == index
    };
    assert!(comes(&mut changes, |change| matches!(change, Change::Neighbour(entry)
        if seven(entry) && entry.state == State::Permanent && entry.address.is_some())));
    stdout_of(&near, "ip neighbour del 10.1.0.7 dev a");
    let deleted =
        |change: &Change| matches!(change, Change::NeighbourDeleted(entry) if seven(entry));
    assert!(comes(&mut changes, deleted));
    stdout_of(&near, "ip route add 10.2.0.0/16 via 10.1.0.2");
    assert!(comes(&mut changes, |change| *change == Change::Other));
    stdout_of(&near, "ip -6 address add fd09::1/64 dev a nodad");
    assert!(comes(&mut changes, |change| *change == Change::Other));
    stdout_of(&near, "ip link set dev a mtu 1400");
    assert!(comes(&mut changes, |change| *change == Change::Link { index, up: true }));
    stdout_of(&near, "ip link set dev a down");
    assert!(comes(&mut changes, |change| *change == Change::Link { index, up: false }));
    let mut heard = Vec::new();
    elsewhere.receive(|change| heard.push(change)).unwrap();
    assert_eq!(heard, [], "a route of another namespace");
}
