use std::net::IpAddr;

use linerate_net::route::LocalRoute;
use linerate_net::route::{ConfiguredRoutes, Kind, through};
use linerate_net::{Address, Connection, Error, addresses};
use linerate_testkit::root_or_skip;

use crate::support::{Cable, cable, stdout_of};

#[test]
fn a_route_is_found_as_ip_route_get_finds_it() {
    root_or_skip!();
    let Cable { near, veth, far: _far } = cable();
    let index = veth.a.index();
    stdout_of(&near, "ip route add 10.2.0.0/16 via 10.1.0.2");
    stdout_of(&near, "ip route add fd02::/16 via fd01::2");
    stdout_of(&near, "ip route add 10.3.0.0/16 via inet6 fd01::2");
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    near.run(|| {
        let connection = Connection::open().unwrap();
        for (to, kind, gateway) in [
            ("10.1.0.2", Kind::Unicast, None),
            ("10.2.3.4", Kind::Unicast, Some("10.1.0.2")),
            ("10.3.3.4", Kind::Unicast, Some("fd01::2")),
            ("10.1.0.255", Kind::Broadcast, None),
            ("10.1.0.1", Kind::Local, None),
            ("fd01::2", Kind::Unicast, None),
            ("fd02::7", Kind::Unicast, Some("fd01::2")),
        ] {
            let route = connection.route_to(ip(to), None).unwrap();
            assert_eq!((route.kind, route.gateway), (kind, gateway.map(ip)), "{to}");
            if kind != Kind::Local {
                assert_eq!(route.interfaces, [index], "{to}");
            }
        }
        assert_eq!(connection.route_to(ip("10.2.3.4"), Some(index)).unwrap().interfaces, [index]);
        for nowhere in ["192.0.2.1", "2001:db8::1"] {
            let refused = connection.route_to(ip(nowhere), None);
            let other = |error: Error| std::io::Error::from(error).raw_os_error();
            match refused {
                Err(error) => assert_eq!(other(error), Some(libc::ENETUNREACH), "{nowhere}"),
                Ok(route) => assert!(matches!(route.kind, Kind::Other(_)), "{route:?}"),
            }
        }
    })
    .unwrap();
}

#[test]
fn the_default_route_of_either_family_is_seen() {
    root_or_skip!();
    let Cable { near, veth, far: _far } = cable();
    let index = veth.a.index();
    let now = || near.run(|| through(index).unwrap()).unwrap();
    assert_eq!(now(), ConfiguredRoutes::None, "its addresses bring routes that nobody set");
    for (family, gateway) in [("-4", "10.1.0.2"), ("-6", "fd01::2")] {
        stdout_of(&near, &format!("ip {family} route add default via {gateway}"));
        assert_eq!(now(), ConfiguredRoutes::Default, "{family}");
        stdout_of(&near, &format!("ip {family} route del default"));
        assert_eq!(now(), ConfiguredRoutes::None, "{family}");
    }
    stdout_of(
        &near,
        "ip route add 10.2.0.0/16 nexthop via 10.1.0.2 weight 1 nexthop dev lo weight 1",
    );
    assert_eq!(now(), ConfiguredRoutes::Some, "one of several next hops");
}

#[test]
fn addresses_are_added_and_listed() {
    root_or_skip!();
    let Cable { near, veth, far: _far } = cable();
    let index = veth.a.index();
    stdout_of(&near, "ip address add 10.7.0.1 peer 10.7.0.2/32 dev a");
    near.run(|| {
        let connection = Connection::open().unwrap();
        let new = |address: &str, prefix_len| Address {
            index,
            address: address.parse().unwrap(),
            prefix_len,
        };
        connection.add_address(&new("10.8.0.1", 30)).unwrap();
        connection.add_address(&new("fd08::1", 126)).unwrap();
        assert!(connection.add_address(&new("10.8.0.1", 30)).is_err(), "it has it already");
        let all = addresses().unwrap();
        for expected in [
            new("10.1.0.1", 24),
            new("fd01::1", 64),
            new("10.8.0.1", 30),
            new("fd08::1", 126),
            // The own one, not the peer's.
            new("10.7.0.1", 32),
        ] {
            assert!(all.contains(&expected), "{expected:?}: {all:?}");
        }
    })
    .unwrap();
    let shown = stdout_of(&near, "ip address show dev a");
    for word in ["inet 10.8.0.1/30", "inet6 fd08::1/126"] {
        assert!(shown.contains(word), "{shown}");
    }
    assert!(!shown.contains("tentative"), "{shown}");
}

#[test]
fn an_address_is_local_once_the_kernel_has_its_route() {
    root_or_skip!();
    let Cable { near, veth, far } = cable();
    let index = veth.a.index();
    let local = |table| {
        let all = near.run(|| Connection::open().unwrap().local_routes(table).unwrap()).unwrap();
        let addresses = all.into_iter().filter(LocalRoute::is_address);
        addresses.map(|one| (one.address.to_string(), one.interface)).collect::<Vec<_>>()
    };
    let has = |address: &str| local(libc::RT_TABLE_LOCAL).contains(&(address.to_owned(), index));
    // That of IPv6 comes a moment later than the address.
    linerate_testkit::wait_for("local routes", || has("10.1.0.1") && has("fd01::1"));
    // Neither prefixes nor other tables nor other types.
    stdout_of(&near, "ip route add local 10.5.0.0/24 dev a");
    stdout_of(&near, "ip route add blackhole 10.5.1.1 table local");
    stdout_of(&near, "ip route add local 10.5.2.1 dev a table 100");
    assert!(!local(libc::RT_TABLE_LOCAL).iter().any(|(one, _)| one.starts_with("10.5.")));
    assert!(local(libc::RT_TABLE_UNSPEC).contains(&("10.5.2.1".to_owned(), index)));
    // Somebody has the second one already.
    for host in [&near, &far] {
        host.sysctl("net/ipv6/conf/all/accept_dad", "1").unwrap();
    }
    stdout_of(&far, "ip address add fd01::78/64 dev b nodad");
    near.sysctl("net/ipv6/conf/a/accept_dad", "1").unwrap();
    near.sysctl("net/ipv6/conf/a/dad_transmits", "1").unwrap();
    for address in ["fd01::77", "fd01::78"] {
        stdout_of(&near, &format!("ip address add {address}/64 dev a"));
        assert!(!has(address), "{address} is tentative");
    }
    linerate_testkit::wait_for("the end of duplicate address detection", || {
        stdout_of(&near, "ip -6 address show dev a tentative").contains("dadfailed")
            && has("fd01::77")
    });
    assert!(!has("fd01::78"));
}
