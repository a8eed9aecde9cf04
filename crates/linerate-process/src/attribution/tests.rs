use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use linerate_wire::flow::Key;
use linerate_wire::ip::Protocol;

use super::*;

/// The clock of the host cannot be set for a test: what was read of it before is.
#[test]
fn after_a_step_of_the_clock_processes_are_found_again() {
    linerate_testkit::root_or_skip!();
    let Ok(attached) = Attribution::attach() else {
        linerate_testkit::skip!("the kernel reports no sockets");
    };
    let shared = Arc::clone(&attached.shared);
    let attribution = attached.start().unwrap();
    let netns = linerate_net::namespace::cookie().expect("a cookie of the namespace");
    let mut cache = attribution.cache(netns, Selection::default(), 16);
    let [one, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    one.connect(other.local_addr().unwrap()).unwrap();
    let [source_port, destination_port] =
        [&one, &other].map(|socket| socket.local_addr().unwrap().port());
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let (source, destination, protocol) = (local, local, Protocol::UDP);
    let key = Key { source, destination, source_port, destination_port, protocol };
    let mut is_own = || {
        one.send(b"x").unwrap();
        let answer = cache.attribute(&key, now());
        let found = answer.source.as_ref().map(|process| process.id);
        found.map(|id| assert_eq!(id, std::process::id())).is_some()
    };
    linerate_testkit::wait_for("the process", &mut is_own);
    for step in [-3_600_000_000_000_i64, 10_000_000] {
        let resets = {
            let mut state = shared.lock();
            let resets = state.resets;
            state.clocks[1] = state.clocks[1].wrapping_add_signed(step);
            state.refresh();
            assert_eq!(state.resets, resets + 1);
            resets
        };
        linerate_testkit::wait_for("the process after a step", &mut is_own);
        assert_eq!(shared.lock().resets, resets + 1);
    }
}
