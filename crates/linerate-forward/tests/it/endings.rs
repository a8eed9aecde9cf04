//! Connections that end, with plain Linux as the oracle: a session lives no longer than the connection that the
//! kernel forwards it for.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use linerate_forward::reason::Reason;
use linerate_forward::refusal::Refusal;
use linerate_forward::runtime::program::{Options, XDP_ONLY, unavailable};
use linerate_forward::table::layout::flags;
use linerate_forward::table::session::State;
use linerate_testkit::{Namespace, probe_or_skip, root_or_skip, uninterrupted, wait_for};

use crate::common::accelerator::Accelerator;
use linerate_testkit::lab::{BOTH, LEFT, Lab, RIGHT, at, deliver};
use linerate_testkit::tools::run;

/// Whether packets between these ends take the fast path.
fn is_fast(fast: &Accelerator, from: SocketAddr, to: SocketAddr) -> bool {
    let session = fast.session(from, to);
    session.is_some_and(|session| matches!(session.state, State::Fast | State::Due))
}

/// A conversation between the hosts over UDP, long enough to be learned both ways.
fn talk(lab: &Lab, family: usize) -> (UdpSocket, UdpSocket) {
    let (here, there) = (at(LEFT[family], 4000), at(RIGHT[family], 5000));
    let client = Lab::udp(&lab.left, LEFT[family], here.port());
    let server = Lab::udp(&lab.right, RIGHT[family], there.port());
    for _ in 0..6 {
        let seen = deliver(&client, there, &server, "question");
        deliver(&server, seen, &client, "an answer");
    }
    (client, server)
}

/// Deletes a connection of the router as an administrator does.
fn delete(router: &Namespace, family: usize) {
    let family = ["ipv4", "ipv6"][family];
    run(router, "conntrack", &["-D", "-f", family, "-p", "udp"], "");
}

#[test]
fn a_deleted_connection_takes_its_sessions_with_it() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    let lab = Lab::new("enddel");
    lab.masquerade();
    // With 2, the kernel's default, this depends on who listens when a connection begins, in any namespace.
    lab.router.sysctl("net.netfilter.nf_conntrack_events", "0").expect("set");
    for family in BOTH {
        // Older than the programs.
        let (client, server) = talk(&lab, family);
        let fast = Accelerator::attach(&lab);
        let (here, there) = (at(LEFT[family], 4000), at(RIGHT[family], 5000));
        let mut from = there;
        for _ in 0..6 {
            from = deliver(&client, there, &server, "question");
            deliver(&server, from, &client, "an answer");
        }
        assert!(is_fast(&fast, here, there) && is_fast(&fast, there, from), "{}", fast.describe());
        delete(&lab.router, family);
        // As with plain Linux, an answer to a connection that is no more does not come through.
        client.set_read_timeout(Some(Duration::from_millis(100))).expect("a time-out");
        server.send_to(b"late", from).expect("sent");
        let late = uninterrupted(|| client.recv_from(&mut [0; 64]));
        assert!(late.is_err(), "a late answer came through: {}", fast.describe());
        assert!(!is_fast(&fast, there, from), "{}", fast.describe());
    }
}

#[test]
fn a_port_that_goes_to_another_client_takes_the_answers_with_it() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    let lab = Lab::new("endport");
    // One public port for all clients.
    lab.nft(
        "table ip t {
            chain post { type nat hook postrouting priority srcnat
                oifname \"wan\" meta l4proto udp snat to 10.2.0.1:6000
            }
        }",
    );
    let other = "10.1.0.3";
    lab.lan.b.add_address(other.parse().expect("an address"), 24).expect("added");
    let mac = lab.lan.b.mac();
    lab.lan.a.add_neighbour(other.parse().expect("an address"), mac).expect("a neighbour");
    let fast = Accelerator::attach(&lab);
    let (public, there) = (at("10.2.0.1", 6000), at(RIGHT[0], 5000));
    let (_first, server) = talk(&lab, 0);
    assert!(is_fast(&fast, there, public), "{}", fast.describe());
    delete(&lab.router, 0);
    let second = Lab::udp(&lab.left, other, 4001);
    for text in ["one", "two", "three"] {
        assert_eq!(deliver(&second, there, &server, text), public);
        deliver(&server, public, &second, text);
    }
}

/// A TCP connection from left to right, learned both ways: both ends, and where the server sees the client.
fn connected(lab: &Lab, family: usize) -> (TcpStream, TcpStream) {
    let there = at(RIGHT[family], 5000);
    let listener = lab.right.run(|| TcpListener::bind(there)).expect("entered").expect("bound");
    let client = lab.left.run(|| TcpStream::connect(there)).expect("entered").expect("connected");
    let (server, _) = listener.accept().expect("accepted");
    for _ in 0..6 {
        for (mut from, mut to) in [(&client, &server), (&server, &client)] {
            from.write_all(b"some text").expect("sent");
            to.read_exact(&mut [0; 9]).expect("received");
        }
    }
    (client, server)
}

#[test]
fn a_reset_or_a_fin_ends_both_directions() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    for (name, masked) in [("endrst", false), ("endrstm", true)] {
        let lab = Lab::new(name);
        if masked {
            lab.masquerade();
        } else {
            lab.track();
        }
        let fast = Accelerator::attach(&lab);
        for family in BOTH {
            for abort in [true, false] {
                let (client, server) = connected(&lab, family);
                let ways = [
                    (client.local_addr().expect("bound"), client.peer_addr().expect("connected")),
                    (server.local_addr().expect("bound"), server.peer_addr().expect("connected")),
                ];
                for (from, to) in ways {
                    assert!(is_fast(&fast, from, to), "{from} to {to}: {}", fast.describe());
                }
                let reason = if abort { Reason::Rst } else { Reason::Fin };
                let before = fast.left(reason);
                // With unread data an end is reset, and so it is with SO_LINGER of 0.
                if abort {
                    rustix::net::sockopt::set_socket_linger(&server, Some(Duration::ZERO))
                        .expect("set");
                }
                drop(server);
                wait_for("the end comes", || fast.left(reason) > before);
                thread::sleep(Duration::from_millis(50));
                for (from, to) in ways {
                    assert!(!is_fast(&fast, from, to), "{from} to {to}: {}", fast.describe());
                }
                drop(client);
            }
        }
    }
}

/// Without conntrack nothing else says that the connection is gone.
#[test]
fn data_behind_a_reset_begins_no_session() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    let lab = Lab::new("endhalf");
    let fast = Accelerator::attach(&lab);
    for family in BOTH {
        let (client, mut server) = connected(&lab, family);
        let (here, there) = (client.local_addr().expect("bound"), client.peer_addr().expect("one"));
        assert!(is_fast(&fast, here, there) && is_fast(&fast, there, here), "{}", fast.describe());
        // The server does not hear of the reset, and nobody answers what it sends.
        let before = fast.left(Reason::Rst);
        rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).expect("set");
        let iptables = ["iptables-nft", "ip6tables-nft"][family];
        let no_resets = |host, chain| {
            let rule = ["-I", chain, "-p", "tcp", "--tcp-flags", "RST", "RST", "-j", "DROP"];
            run(host, iptables, &rule, "");
        };
        no_resets(&lab.right, "INPUT");
        drop(client);
        wait_for("the reset comes", || fast.left(Reason::Rst) > before);
        no_resets(&lab.left, "OUTPUT");
        server.set_nodelay(true).expect("set");
        let refused = fast.refused(Refusal::NotEstablished);
        for _ in 0..5 {
            server.write_all(b"some text").expect("sent");
            thread::sleep(Duration::from_millis(20));
        }
        assert!(!is_fast(&fast, there, here), "{}", fast.describe());
        assert!(fast.refused(Refusal::NotEstablished) > refused, "{:?}", fast.refusals());
    }
}

#[test]
fn a_connection_whose_end_is_reported_is_not_looked_up() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    let lab = Lab::new("endrep");
    lab.track();
    lab.router.sysctl("net.netfilter.nf_conntrack_events", "1").expect("set");
    let fast = Accelerator::attach(&lab);
    let (here, there) = (at(LEFT[0], 4000), at(RIGHT[0], 5000));
    let (client, server) = talk(&lab, 0);
    // Conntrack may still drop it early.
    assert_ne!(fast.flags(&fast.learned(here, there)) & flags::UNREPORTED, 0);
    // After two seconds of packets it may not any more.
    wait_for("the session is learned again from a connection that is ASSURED", || {
        let seen = deliver(&client, there, &server, "question");
        deliver(&server, seen, &client, "an answer");
        thread::sleep(Duration::from_millis(50));
        fast.flags(&fast.learned(here, there)) & flags::UNREPORTED == 0
    });
}

#[test]
fn a_table_holds_as_many_sessions_as_it_has_room_for_and_no_more() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    let lab = Lab::new("endfull");
    let options = Options { admission: 1, max_sessions: 1024, ..Options::default() };
    let fast = Accelerator::on(&lab.router, &lab.ports().map(|port| (port, XDP_ONLY)), &options);
    let there = at(RIGHT[0], 5000);
    let server = Lab::udp(&lab.right, RIGHT[0], there.port());
    for port in 10_000..11_500 {
        deliver(&Lab::udp(&lab.left, LEFT[0], port), there, &server, "question");
    }
    assert_eq!(fast.sessions().len(), 1024, "{:?}", fast.refusals());
    assert_eq!(fast.refused(Refusal::Full), 1500 - 1024);
}
