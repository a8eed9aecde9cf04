use std::net::Ipv4Addr;

use linerate_testkit::{Namespace, Veth, VethOptions, root_or_skip};

use super::*;

#[test]
fn all_interfaces_of_a_multipath_route_count() {
    let mut body = vec![2, 24, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0];
    let mut hops = Vec::new();
    for interface in [3u32, 4] {
        hops.extend([16, 0, 0, 0]);
        hops.extend(interface.to_ne_bytes());
        put_attr(&mut hops, libc::RTA_GATEWAY, &[10, 0, 0, interface as u8]);
    }
    put_attr(&mut body, libc::RTA_MULTIPATH, &hops);
    put_attr(&mut body, libc::RTA_TABLE, &1000u32.to_ne_bytes());
    let route = Route::parse(&body).unwrap();
    assert_eq!((&route.interfaces[..], route.table), (&[3, 4][..], 1000));
    assert_eq!((route.kind, route.gateway), (Kind::Unicast, None));
    let mut via = body[..HEADER].to_vec();
    put_attr(&mut via, libc::RTA_VIA, &[&[10, 0][..], &[0xfe; 16]].concat());
    assert_eq!(Route::parse(&via).unwrap().gateway, Some([0xfe; 16].into()));
    assert_eq!(next_hops(&[0; 20]).count(), 2, "a length of nothing is walked over");
}

#[test]
fn only_the_routes_of_the_interface_are_read_and_not_all_of_them() {
    root_or_skip!();
    let near = Namespace::create("nroute-near").unwrap();
    let far = Namespace::create("nroute-far").unwrap();
    let busy = Veth::create(&near, "busy", &far, "busy", VethOptions::default()).unwrap();
    let idle = Veth::create(&near, "idle", &far, "idle", VethOptions::default()).unwrap();
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    busy.a.add_address(address("10.9.0.1"), 24).unwrap();
    idle.a.add_address(address("10.9.1.1"), 24).unwrap();
    for number in 0..1000_u32 {
        let network = Ipv4Addr::from(0x0b00_0000 + (number << 8));
        near.add_route(network.into(), 24, address("10.9.0.2")).unwrap();
    }
    let asked = |index| {
        let mut found = Found::default();
        ask(libc::AF_INET as u8, libc::RT_TABLE_MAIN, index, &mut found).unwrap();
        (found.through, found.answers)
    };
    let (routes, answers) = near.run(|| asked(busy.a.index())).unwrap();
    assert_eq!(routes, ConfiguredRoutes::Some);
    assert!(answers <= MAX_ANSWERS, "{answers} answers");
    // Only the route that its address created.
    assert_eq!(near.run(|| asked(idle.a.index())).unwrap(), (ConfiguredRoutes::None, 1));
    near.add_route(address("0.0.0.0"), 0, address("10.9.0.2")).unwrap();
    let through = |index| near.run(|| through(index).unwrap()).unwrap();
    assert_eq!(through(busy.a.index()), ConfiguredRoutes::Default);
    assert_eq!(through(idle.a.index()), ConfiguredRoutes::None);
    // Policy routing: a table with an own number, and one beyond eight bits.
    for table in ["100", "1000"] {
        let route = |what: &str| {
            let arguments = [what, "13.0.0.0/8", "dev", "idle", "table", table];
            let mut command = near.command("ip");
            assert!(command.arg("route").args(arguments).status().unwrap().success());
        };
        route("add");
        assert_eq!(through(idle.a.index()), ConfiguredRoutes::Some, "{table}");
        route("del");
    }
    near.add_route(address("12.0.0.0"), 8, address("10.9.1.2")).unwrap();
    assert_eq!(through(idle.a.index()), ConfiguredRoutes::Some);
}
