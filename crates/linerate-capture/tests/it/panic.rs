//! A reader that panics ends the capture for all.

use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;

use linerate_capture::Error;
use linerate_capture::engine::{Engine, EngineOptions, Outcome, counters, open_all};
use linerate_capture::sink::Sink;
use linerate_capture::source::{SourceKind, SourceOptions};
use linerate_ring::packet::Mode;
use linerate_testkit::{Namespace, Veth, VethOptions, root_or_skip, wait_for};

/// Captures `names` until the third packet, at which the reader panics.
fn capture(names: &[&str], request: &SourceOptions, send: impl FnOnce()) -> Outcome {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let opened = open_all(&names, request, &Arc::default()).unwrap();
    let mut seen = 0;
    let sink = Sink::call(move |_, _| {
        seen += 1;
        assert!(seen < 3, "three is too many");
        true
    });
    let counters = counters(&opened).unwrap();
    let engine = Engine::start(opened, counters, sink, None, &EngineOptions::default()).unwrap();
    send();
    wait_for("all readers to end", || engine.is_finished());
    engine.finish()
}

#[test]
fn a_panic_ends_every_reader_and_detaches_every_source() {
    root_or_skip!();
    let near = Namespace::create("cpan-near").unwrap();
    let far = Namespace::create("cpan-far").unwrap();
    let veth = Veth::create(&near, "near", &far, "far", VethOptions::default()).unwrap();
    let (a, b): (IpAddr, IpAddr) = ("10.9.0.1".parse().unwrap(), "10.9.0.2".parse().unwrap());
    veth.a.add_address(a, 24).unwrap();
    veth.b.add_address(b, 24).unwrap();
    veth.a.add_neighbour(b, veth.b.mac()).unwrap();
    far.interface("lo").unwrap().up().unwrap();
    let cases = [
        (SourceKind::Packet, 3, &["far"][..]),
        (SourceKind::Packet, 1, &["far", "lo"]),
        (SourceKind::Tee, 1, &["far"]),
        (SourceKind::Xdp, 1, &["far"]),
    ];
    for (source, threads, names) in cases {
        let request = SourceOptions {
            source: Some(source),
            take_over: true,
            threads,
            fanout: Mode::LoadBalance,
            filter: Some("udp".into()),
            ..SourceOptions::default()
        };
        let send = || {
            let send = || {
                let socket = UdpSocket::bind("10.9.0.1:4000").unwrap();
                for _ in 0..10 {
                    socket.send_to(&[0; 64], "10.9.0.2:5000").unwrap();
                }
            };
            near.run(send).unwrap();
        };
        let outcome = far.run(|| capture(names, &request, send)).unwrap();
        let failure = outcome.failure.expect("a failure");
        assert!(matches!(failure, Error::Panicked { .. }), "{source}: {failure}");
        assert!(failure.to_string().contains("three is too many"), "{source}: {failure}");
        assert_eq!(outcome.report.captured, 2, "{source}: {:?}", outcome.report);
        assert!(!veth.b.has_xdp().unwrap(), "{source} left its program behind");
    }
}
