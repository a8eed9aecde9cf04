use linerate_net::netlink::{put_attr, put_nested};

use super::*;

#[test]
fn rules_that_name_a_table_by_addresses_are_seen() {
    let seen = |body: &[u8]| {
        let mut routing = Routing::default();
        routing.add_rule(body);
        routing.is_seen_by_fib()
    };
    let table = [libc::AF_INET as u8, 0, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0];
    let (mut tos, mut blackhole) = (table, table);
    (tos[3], blackhole[7]) = (0x10, 6);
    assert!(seen(&table) && !seen(&tos) && !seen(&blackhole) && !seen(&[2, 0]));
}

#[test]
fn routes_whose_changes_a_look_shows_are_simple() {
    let mut routing = Routing::default();
    let mut body = vec![libc::AF_INET as u8, 24, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0];
    put_attr(&mut body, libc::RTA_GATEWAY, &[10, 0, 0, 1]);
    assert!(routing.add_route(&body) && routing.is_seen_by_fib());
    for kind in [libc::RTA_MULTIPATH, RTA_NH_ID] {
        let mut body = body.clone();
        put_attr(&mut body, kind, &[1, 0, 0, 0]);
        assert!(!routing.add_route(&body));
    }
    assert!(routing.is_seen_by_fib());
    let mut multipath6 = vec![libc::AF_INET6 as u8, 64, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0];
    put_attr(&mut multipath6, libc::RTA_MULTIPATH, &[0; 8]);
    let mut routing6 = Routing::default();
    assert!(!routing6.add_route(&multipath6) && !routing6.is_seen_by_fib());
    put_nested(&mut body, libc::RTA_METRICS, |metrics| {
        put_attr(metrics, RTAX_MTU, &1300u32.to_ne_bytes());
    });
    assert!(routing.add_route(&body) && !routing.is_seen_by_fib());
    assert!(!routing.add_route(&[2]));
}

#[test]
fn the_expiry_of_a_route_is_read() {
    let mut body = Vec::new();
    assert_eq!(expires(&body), 0);
    let mut times = [0u8; 32];
    times[8..12].copy_from_slice(&(-7i32).to_ne_bytes());
    put_attr(&mut body, libc::RTA_CACHEINFO, &times);
    assert_eq!(expires(&body), -7);
}
