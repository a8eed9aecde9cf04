//! The examples, each against a real client, on every backend.

#[path = "../../examples/dns.rs"]
#[allow(dead_code)]
mod dns;
#[path = "../../examples/echo.rs"]
#[allow(dead_code)]
mod echo;
#[path = "../../examples/feed.rs"]
#[allow(dead_code)]
mod feed;
#[path = "../../examples/statsd.rs"]
#[allow(dead_code)]
mod statsd;

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use cadence::prelude::*;
use cadence::{StatsdClient, UdpMetricSink};
use linerate_feed::{Message, moldudp64};
use linerate_testkit::{Command, print_skipped, root_or_skip, test_name, uninterrupted};
use linerate_udp::{Group, Options, Result, Socket};

use crate::support::{Cable, HERE, Kind, THERE, TIMEOUT, address, kinds};

fn options(kind: Kind) -> Options {
    let options = Options {
        interface: Some("rx".into()),
        ring_size: 16 << 20,
        ..Options::new(address(HERE, 7000))
    };
    Options { backend: Some(kind.backend), delivery: kind.delivery, ..options }
}

/// Runs `client` against a server, which ends with its interface.
fn with_server(
    kind: Kind,
    serve: impl FnOnce(&mut Socket) -> Result<()> + Send,
    client: impl FnOnce(&Cable),
) {
    let cable = Cable::new();
    let mut socket = cable.socket(&options(kind));
    std::thread::scope(|scope| {
        let server = scope.spawn(move || serve(&mut socket));
        // The server has to end whatever the client meets.
        let met = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client(&cable)));
        cable.veth.b.delete().unwrap();
        let end = server.join().unwrap();
        assert!(matches!(end, Err(linerate_udp::Error::InterfaceGone(_))), "{end:?}");
        if let Err(panic) = met {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn the_echo_server_answers() {
    root_or_skip!();
    for kind in kinds(&Cable::new(), test_name!()) {
        with_server(kind, echo::serve, |cable| {
            let peer = cable.there.run(|| UdpSocket::bind((THERE, 0))).unwrap().unwrap();
            peer.set_read_timeout(Some(TIMEOUT)).unwrap();
            for round in 0..100u8 {
                peer.send_to(&[round; 9], (HERE, 7000)).unwrap();
                let mut room = [0; 16];
                assert_eq!(uninterrupted(|| peer.recv(&mut room)).unwrap(), 9, "{kind}");
                assert_eq!(room[..9], [round; 9], "{kind}");
            }
            // A link flap ends no server.
            cable.veth.b.down().unwrap();
            cable.veth.b.up().unwrap();
            peer.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            let end = Instant::now() + TIMEOUT;
            while peer.recv(&mut [0; 16]).is_err() {
                assert!(Instant::now() < end, "{kind} answers no more");
                peer.send_to(b"up again?", (HERE, 7000)).unwrap();
            }
        });
    }
}

fn is_installed(program: &str) -> bool {
    let is_there = std::process::Command::new(program).arg("-h").output().is_ok();
    if !is_there {
        print_skipped(&format!("the DNS responder with {program}"), "it is not installed");
    }
    is_there
}

/// What a program says.
fn stdout_of(mut program: Command) -> String {
    let output = program.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn the_dns_responder_answers_dig_and_dnsperf() {
    root_or_skip!();
    let [has_dig, has_dnsperf] = ["dig", "dnsperf"].map(is_installed);
    for kind in kinds(&Cable::new(), test_name!()) {
        with_server(kind, dns::serve, |cable| {
            let dig = |words: &str| {
                let mut program = cable.there.command("dig");
                program.args(["@10.77.0.2", "-p", "7000", "+tries=1"]).args(words.split(' '));
                stdout_of(program)
            };
            if has_dig {
                assert_eq!(dig("www.example.org A +short"), "192.0.2.1\n", "{kind}");
                assert_eq!(dig("www.example.org AAAA +short"), "", "{kind}");
                let whole = dig("a.b.example A +noedns");
                assert!(
                    whole.contains("status: NOERROR") && whole.contains("flags: qr aa rd"),
                    "{whole}"
                );
                assert!(!whole.contains("WARNING: Message parser"), "{whole}");
            }
            if !has_dnsperf {
                return;
            }
            let queries = tempfile::NamedTempFile::new().unwrap();
            let lines: String = (0..1000).map(|at| format!("host{at}.example A\n")).collect();
            std::fs::write(queries.path(), lines).unwrap();
            let mut dnsperf = cable.there.command("dnsperf");
            dnsperf.args(["-s", HERE, "-p", "7000", "-n", "2", "-d"]).arg(queries.path());
            let report = stdout_of(dnsperf);
            let counted = |name: &str| {
                let line = report.lines().find_map(|line| line.trim().strip_prefix(name));
                line.and_then(|rest| rest.split_whitespace().next()).map(str::to_owned)
            };
            assert_eq!(counted("Queries completed:").as_deref(), Some("2000"), "{kind}: {report}");
            assert_eq!(counted("Queries lost:").as_deref(), Some("0"), "{kind}: {report}");
            assert!(report.contains("NOERROR 2000 (100.00%)"), "{kind}: {report}");
        });
    }
}

#[test]
fn the_statsd_sink_sums_what_a_client_counts() {
    root_or_skip!();
    for kind in kinds(&Cable::new(), test_name!()) {
        let (say, hear) = mpsc::channel();
        let sink = |socket: &mut Socket| {
            statsd::sink(&mut socket.receiver, |counters| say.send(counters.clone()).unwrap())
        };
        with_server(kind, sink, |cable| {
            let peer = cable.there.run(|| UdpSocket::bind((THERE, 0))).unwrap().unwrap();
            let client = UdpMetricSink::from((HERE, 7000), peer).unwrap();
            let client = StatsdClient::from_sink("test", client);
            for at in 0..300 {
                client.count(if at % 3 == 0 { "hits" } else { "misses" }, at).unwrap();
            }
            // Without its prefix: as a shell says it.
            let mut shell = cable.there.command("bash");
            let line = format!("echo -n 'print:1|c' > /dev/udp/{HERE}/7000");
            assert!(shell.args(["-c", &line]).status().unwrap().success());
            let counters = hear.recv_timeout(TIMEOUT).expect("counters");
            let sum = |part: fn(&i32) -> bool| f64::from((0..300).filter(part).sum::<i32>());
            let wanted =
                [("test.hits", sum(|at| at % 3 == 0)), ("test.misses", sum(|at| at % 3 != 0))];
            let wanted = wanted.map(|(name, sum)| (name.to_owned(), sum));
            assert_eq!(counters, wanted.into(), "{kind}");
        });
    }
}

/// A request server of MoldUDP64 (Nasdaq, "MoldUDP64 Protocol Specification", V 1.00): it answers a request with the
/// messages that it asks for, as many as fit into a packet of three. It does not hear the first request.
fn serve_requests(socket: &UdpSocket, messages: &[&[u8]], is_over: &AtomicBool) -> u64 {
    let (mut asked, mut packet, mut room) = (0, Vec::new(), [0; 64]);
    while !is_over.load(Relaxed) {
        let Ok((len, from)) = socket.recv_from(&mut room) else { continue };
        assert_eq!((len, &room[..10]), (20, &b"SESSION001"[..]));
        let number = u64::from_be_bytes(room[10..18].try_into().unwrap());
        let count = usize::from(u16::from_be_bytes(room[18..20].try_into().unwrap()));
        asked += 1;
        let first = number as usize - 1;
        let part = &messages[first..first + count.min(3)];
        moldudp64::write(*b"SESSION001", number, part, &mut packet);
        if asked > 1 {
            socket.send_to(&packet, from).unwrap();
        }
    }
    asked
}

#[test]
fn the_feed_reader_asks_for_what_it_missed() {
    root_or_skip!();
    let cable = Cable::new();
    let texts: Vec<_> = (1..=100).map(|number| format!("message {number}")).collect();
    let messages: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
    let group = Group::any_source("239.7.7.7".parse().unwrap()).on("rx");
    for kind in kinds(&cable, test_name!()) {
        let bind = address("239.7.7.7", 7000);
        let options = Options {
            interface: Some("rx".into()),
            groups: vec![group.clone()],
            ..Options::new(bind)
        };
        let mut receiver = cable.receive_by(options, kind).unwrap();
        let any = Options::new(address("0.0.0.0", 0));
        let mut requests = cable.socket(&any);
        let server = cable.there.run(|| UdpSocket::bind((THERE, 0))).unwrap().unwrap();
        server.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (is_over, mut came) = (AtomicBool::new(false), Vec::new());
        let asked = std::thread::scope(|scope| {
            let serving = scope.spawn(|| serve_requests(&server, &messages, &is_over));
            let mut packet = Vec::new();
            let mut say = |first: u64, messages: &[&[u8]]| {
                moldudp64::write(*b"SESSION001", first, messages, &mut packet);
                if first > 100 {
                    packet[18..20].copy_from_slice(&[0xff; 2]);
                }
                server.send_to(&packet, bind).unwrap();
            };
            // Two gaps: one of a message, and one that takes three answers.
            say(1, &messages[..10]);
            say(12, &messages[11..50]);
            say(58, &messages[57..]);
            say(101, &[]);
            let take = |message: Message<'_>| came.push((message.number, message.bytes.to_vec()));
            let to = server.local_addr().unwrap();
            feed::read(&mut receiver, &mut requests, to, take).unwrap();
            is_over.store(true, Relaxed);
            serving.join().unwrap()
        });
        came.sort();
        let wanted: Vec<_> = (1..).zip(messages.iter().map(|one| one.to_vec())).collect();
        assert_eq!(came, wanted, "{kind}");
        assert!((5..20).contains(&asked), "{kind}: {asked} requests");
    }
}
