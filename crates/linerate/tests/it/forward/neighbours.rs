//! A next hop that changes its MAC address and tells nobody, with plain Linux as the oracle.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use linerate_testkit::tools::run;
use linerate_testkit::{Mac, Namespace, TIMEOUT, bind_udp, root_or_skip, uninterrupted};

use super::support::{CLIENT, Net, SERVER, connect};

/// How often the client sends.
const EVERY: Duration = Duration::from_millis(5);
/// What the kernel needs at most until it asks everybody again: an address is confirmed for up to one and a half times
/// the base of 2 s; then it waits a second for packets to confirm it, and asks the neighbour three times.
const SLOWEST: Duration = Duration::from_millis(3000 + 1000 + 3 * 200);
/// What a busy machine may add.
const SLACK: Duration = Duration::from_millis(1500);

/// How long nothing arrives after the server's address has changed.
fn outage(net: &Net, family: usize, number: u8) -> Duration {
    let bind = |address: &str, port| bind_udp(SocketAddr::new(address.parse().unwrap(), port));
    let client = net.client.run(|| bind(CLIENT[family], 0)).unwrap();
    let server = net.server.run(|| bind(SERVER[family], 7001)).unwrap();
    server.set_read_timeout(Some(EVERY)).unwrap();
    let arrives = || {
        client.send_to(b"data", (SERVER[family], 7001)).unwrap();
        match uninterrupted(|| server.recv(&mut [0; 16])) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        }
    };
    // Long enough for a session, and shorter than an address stays confirmed.
    let start = Instant::now();
    let mut arrived = 0;
    while arrived < 50 {
        arrived += u32::from(arrives());
        assert!(start.elapsed() < TIMEOUT, "{arrived} arrived");
    }
    net.right.b.set_mac(Mac([2, 0, 0, 0, 0x99, number])).unwrap();
    while uninterrupted(|| server.recv(&mut [0; 16])).is_ok() {}
    let start = Instant::now();
    while !arrives() {
        assert!(start.elapsed() < 4 * TIMEOUT, "nothing arrives any more");
        sleep(EVERY);
    }
    start.elapsed()
}

#[test]
fn a_silent_change_of_address_is_noticed_as_fast_as_by_plain_linux() {
    root_or_skip!();
    let net = Net::new();
    for family in ["ipv4", "ipv6"] {
        for (key, value) in [
            ("base_reachable_time_ms", "2000"),
            ("delay_first_probe_time", "1"),
            ("ucast_solicit", "3"),
            ("retrans_time_ms", "200"),
        ] {
            net.router.sysctl(&format!("net.{family}.neigh.right.{key}"), value).unwrap();
        }
    }
    let plain = [0, 1].map(|family| outage(&net, family, 1 + family as u8));
    let _daemon = net.run("");
    let fast = [0, 1].map(|family| outage(&net, family, 3 + family as u8));
    println!("plain Linux {plain:?}, accelerated {fast:?}");
    assert!(net.sessions().len() >= 2, "there were sessions");
    for outage in plain.into_iter().chain(fast) {
        assert!(outage <= SLOWEST + SLACK, "plain Linux {plain:?}, accelerated {fast:?}");
    }
}

/// Hosts with the same address on several networks are common: routers of a VRRP group, machines on several VLANs.
#[test]
fn a_neighbour_with_the_same_address_on_another_interface_is_left_alone() {
    root_or_skip!();
    let net = Net::new();
    let other = Namespace::create("fwd-other").unwrap();
    let veth = connect(&net.router, "third", &other, 3);
    let shared = Mac([2, 0, 0, 0, 0x77, 1]);
    net.right.b.set_mac(shared).unwrap();
    veth.b.set_mac(shared).unwrap();
    net.router.sysctl("net.ipv4.neigh.right.base_reachable_time_ms", "1000").unwrap();
    let _daemon = net.run("");
    net.router_does(&format!("ip neigh replace 10.9.3.2 lladdr {shared} dev third nud stale"));
    let state = |interface, address| {
        run(&net.router, "ip", &["neigh", "show", address, "dev", interface], "")
    };
    let is_stale = || state("third", "10.9.3.2").contains("STALE");
    // The other is confirmed meanwhile, again and again.
    let start = Instant::now();
    let mut confirmed = 0;
    while start.elapsed() < Duration::from_secs(4) {
        assert_eq!(net.ask(0, 4000, 20), 20);
        assert!(is_stale(), "{}", state("third", "10.9.3.2"));
        confirmed += u32::from(!state("right", SERVER[0]).contains("STALE"));
    }
    assert!(confirmed > 0, "{}", state("right", SERVER[0]));
}
