use std::net::IpAddr;
use std::time::Duration;

use linerate_net::Connection;
use linerate_net::neighbour::State;
use linerate_testkit::{root_or_skip, skip};
use linerate_wire::ethernet;

use crate::support::{Cable, cable, stdout_of, try_stdout_of};

const TIMEOUT: Duration = Duration::from_secs(10);

#[test]
fn a_neighbour_of_either_family_is_resolved() {
    root_or_skip!();
    let Cable { near, veth, far: _far } = cable();
    let index = veth.a.index();
    let there = ethernet::Address(veth.b.mac().0);
    for text in ["10.1.0.2", "fd01::2"] {
        let address: IpAddr = text.parse().unwrap();
        near.run(|| {
            let connection = Connection::open().unwrap();
            assert_eq!(connection.neighbour(index, address).unwrap(), None);
            let found = connection.resolve(index, address, TIMEOUT).unwrap();
            assert_eq!(found, Some(there), "{text}");
            let entry = connection.neighbour(index, address).unwrap().unwrap();
            assert!(entry.state.is_valid() && !entry.proxy && !entry.own, "{entry:?}");
            assert_eq!((entry.index, entry.destination), (index, Some(address)));
            assert_eq!(entry.valid_address(), Some(there));
        })
        .unwrap();
        let shown = stdout_of(&near, &format!("ip neighbour show {text} dev a"));
        assert!(shown.contains(&format!("lladdr {there}")), "{shown}");
    }
}

#[test]
fn nobody_answers_for_an_address_that_nobody_has() {
    root_or_skip!();
    let Cable { near, veth, far: _far } = cable();
    // One question instead of three, a tenth of a second instead of one.
    for family in ["ipv4", "ipv6"] {
        for (key, value) in [("mcast_solicit", "1"), ("retrans_time_ms", "100")] {
            near.sysctl(&format!("net/{family}/neigh/a/{key}"), value).unwrap();
        }
    }
    let index = veth.a.index();
    near.run(|| {
        let connection = Connection::open().unwrap();
        for address in ["10.1.0.9", "fd01::9"] {
            let address = address.parse().unwrap();
            assert_eq!(connection.resolve(index, address, TIMEOUT).unwrap(), None);
            let entry = connection.neighbour(index, address).unwrap();
            assert!(entry.is_none_or(|entry| entry.valid_address().is_none()));
        }
    })
    .unwrap();
}

#[test]
fn an_entry_is_set_for_good() {
    root_or_skip!();
    let Cable { near, veth, far: _far } = cable();
    let index = veth.a.index();
    let address = ethernet::Address([2, 0, 0, 0, 0, 7]);
    near.run(|| {
        let connection = Connection::open().unwrap();
        for destination in ["10.1.0.7", "fd01::7"] {
            let destination = destination.parse().unwrap();
            connection.set_neighbour(index, destination, address).unwrap();
            let entry = connection.neighbour(index, destination).unwrap().unwrap();
            assert_eq!((entry.state, entry.valid_address()), (State::Permanent, Some(address)));
        }
    })
    .unwrap();
    let shown = stdout_of(&near, "ip neighbour show dev a nud permanent");
    assert_eq!(shown.matches("lladdr 02:00:00:00:00:07").count(), 2, "{shown}");
}

#[test]
fn the_forwarding_database_has_what_bridge_shows() {
    root_or_skip!();
    let Cable { near, veth, far: _far } = cable();
    let index = veth.a.index();
    if try_stdout_of(&near, "bridge fdb add 02:00:00:00:00:08 dev a self").is_err() {
        skip!("no fdb on a veth");
    }
    let entries = near.run(|| Connection::open().unwrap().fdb(index).unwrap()).unwrap();
    let address = Some(ethernet::Address([2, 0, 0, 0, 0, 8]));
    assert!(entries.iter().any(|entry| entry.own && entry.address == address), "{entries:?}");
    assert!(entries.iter().all(|entry| entry.index == index));
}
