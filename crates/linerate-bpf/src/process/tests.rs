use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;

use linerate_testkit::{probe_or_skip, root_or_skip, wait_for};

use super::*;

/// The number that the kernel gave a socket.
fn end(address: std::net::SocketAddr) -> End {
    let std::net::SocketAddr::V4(v4) = address else { panic!("IPv4") };
    End { address: u128::from(v4.ip().to_ipv6_mapped()), port: v4.port() }
}

#[test]
fn sockets_of_this_process_are_seen_from_their_making_to_their_end() {
    root_or_skip!();
    let before = TcpListener::bind("127.0.0.1:0").unwrap();
    let events = SocketEvents::open();
    probe_or_skip!(events.as_ref().err());
    let (mut events, holders) = events.unwrap();
    let id = std::process::id();
    assert!(holders.list().unwrap().iter().any(|one| one.process.id == id));
    let client = TcpStream::connect(before.local_addr().unwrap()).unwrap();
    let (server, _) = before.accept().unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.send_to(&[1], udp.local_addr().unwrap()).unwrap();
    Command::new("true").status().unwrap();
    let (here, there) = (end(client.local_addr().unwrap()), end(server.local_addr().unwrap()));
    let datagrams = end(udp.local_addr().unwrap());
    drop((client, server, udp));
    let mut all = Vec::new();
    wait_for("the end of the sockets", || {
        all.extend(events.take());
        all.iter().filter(|one| one.kind == EventKind::Release).count() >= 3
    });
    let own = all.iter().filter(|one| one.process.id == id);
    for kind in [EventKind::Process, EventKind::Socket, EventKind::Use, EventKind::Fork] {
        assert!(own.clone().any(|one| one.kind == kind), "{kind:?}");
    }
    let introduced = own.clone().find(|one| one.kind == EventKind::Process).unwrap();
    assert!(!introduced.arguments.is_empty() && !introduced.process.name.is_empty());
    let flow = |local: End, remote: End| {
        let is = |one: &&Event| {
            one.kind == EventKind::Flow && (one.local, one.remote) == (local, remote)
        };
        all.iter().rfind(is).unwrap_or_else(|| panic!("{local:?}: {all:#?}"))
    };
    let accepted = flow(there, here);
    assert_ne!(accepted.parent, 0);
    let user = own.clone().find(|one| one.socket == accepted.socket).unwrap();
    assert_eq!(user.kind, EventKind::Use);
    for socket in [flow(here, there).socket, flow(datagrams, datagrams).socket] {
        let kinds: Vec<_> =
            all.iter().filter(|one| one.socket == socket).map(|one| one.kind).collect();
        assert_eq!(kinds.first(), Some(&EventKind::Socket), "{kinds:?}");
        assert_eq!(kinds.last(), Some(&EventKind::Release), "{kinds:?}");
    }
    assert_eq!(events.lost(), 0);
    events.forget_flows().unwrap();
}
