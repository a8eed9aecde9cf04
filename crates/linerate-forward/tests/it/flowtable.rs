//! The accelerator beside nftables' flow table, with the kernel's plain forwarding as the measure of both: three routers
//! that masquerade, the same conversations through each, and the frames that leave them compared byte for byte.

use std::io::Write;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use linerate_forward::config::{Config, Selector};
use linerate_forward::runtime::program::unavailable;
use linerate_forward::runtime::rules::{self, Policy};
use linerate_forward::table::rules::Rules;
use linerate_ring::packet::{DirectionFilter, Options, Ring};
use linerate_ring::{Batch as _, Ring as _};
use linerate_testkit::tools::run;
use linerate_testkit::{Namespace, probe_or_skip, root_or_skip, skip, uninterrupted};

use crate::common::accelerator::Accelerator;
use linerate_testkit::lab::{BOTH, LEFT, Lab, RIGHT, TIMEOUT, WAN, address};

const FLOWS: u16 = 4;
/// Packets each way of a flow: the first few are the kernel's on every router.
const PACKETS: usize = 50;

const FLOWTABLE: &str = "\
table inet flows {
    flowtable fast { hook ingress priority filter; devices = { lan, wan };
    }
    chain between { type filter hook forward priority filter; meta l4proto udp flow add @fast
    }
}
";

/// Connections are put into a flowtable whose hook no packet passes.
const FLOWTABLE_WITHOUT_DEVICES: &str = "\
table inet flows {
    flowtable fast { hook ingress priority filter;
    }
    chain between { type filter hook forward priority filter; udp dport { 5000, 5001 } flow add @fast
    }
}
";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Plain,
    Flowtable,
    Accelerated,
}

/// A router that masquerades, between a client and a server.
fn lab() -> Lab {
    let lab = Lab::new("flow");
    for host in [&lab.left, &lab.right] {
        // A label is chance.
        host.sysctl("net.ipv6.auto_flowlabels", "0").expect("a sysctl");
    }
    lab.masquerade();
    lab
}

/// Whether the kernel has flow tables; if so, there is this one.
fn offload(router: &Namespace, table: &str) -> bool {
    let mut command = router.command("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("nftables is installed");
    let rules = child.stdin.take().expect("piped").write_all(table.as_bytes());
    rules.expect("written");
    let output = child.wait_with_output().expect("waited");
    let trouble = String::from_utf8_lossy(&output.stderr);
    let lacks = ["Operation not supported", "No such file or directory"];
    assert!(
        output.status.success() || lacks.iter().any(|answer| trouble.contains(answer)),
        "{trouble}"
    );
    output.status.success()
}

/// What left a router, in order.
#[derive(Clone)]
struct Seen {
    to_server: Vec<Vec<u8>>,
    to_client: Vec<Vec<u8>>,
}

impl Seen {
    /// Holds what another router made of the same packets against this.
    fn compare(&self, other: &Self, kind: Kind) {
        for (way, here, there) in [
            ("to the server", &self.to_server, &other.to_server),
            ("to the client", &self.to_client, &other.to_client),
        ] {
            for (at, (here, there)) in here.iter().zip(there).enumerate() {
                assert!(here == there, "{kind:?}, {way}, {at}: {there:02x?}\nplain: {here:02x?}");
            }
        }
    }
}

/// The sender numbers its IPv4 packets by chance: the number is taken out, with the checksum that covers it, which
/// has to be right.
fn without_number(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if frame[12..14] == [8, 0] {
        let words = frame[14..34].chunks(2);
        let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the checksum of {frame:02x?}");
        frame[18..20].fill(0);
        frame[24..26].fill(0);
    }
    frame
}

/// All UDP packets that came, once nothing more comes.
fn frames(ring: &mut Ring) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    ring.stop().expect("stopped");
    while ring.wait(TIMEOUT).expect("waited") {
        while let Some(mut batch) = ring.next_batch() {
            while let Some(frame) = batch.next() {
                let bytes = frame.head();
                let protocol = match bytes[12..14] {
                    [8, 0] => bytes[23],
                    [0x86, 0xdd] => bytes[20],
                    _ => 0,
                };
                if protocol == 17 {
                    frames.push(without_number(bytes));
                }
            }
        }
    }
    frames
}

/// Questions and answers of all flows in turn, and what both hosts got of them. Returns the time that the
/// last of them took, each way a packet at a time.
fn converse(lab: &Lab) -> (Seen, Duration) {
    // Nobody reads until the end, however long that takes: no block is to be handed over half empty.
    let listen = || {
        let options = Options {
            direction: DirectionFilter::In,
            buffer_size: 4 << 20,
            retire_timeout: Duration::from_secs(1),
            ..Options::new("eth")
        };
        Ring::open(options).expect("a ring")
    };
    let mut at_server = lab.right.run(listen).expect("entered");
    let mut at_client = lab.left.run(listen).expect("entered");
    let mut pairs = Vec::new();
    for family in BOTH {
        for flow in 0..FLOWS {
            let server = Lab::udp(&lab.right, RIGHT[family], 5000 + flow);
            pairs.push((Lab::udp(&lab.left, LEFT[family], 4000 + flow), server));
        }
    }
    let mut buffer = [0; 2048];
    let mut began = Instant::now();
    for round in 0..PACKETS {
        if round == PACKETS / 2 {
            began = Instant::now();
        }
        for (client, server) in &pairs {
            let to: SocketAddr = server.local_addr().expect("bound");
            let question = vec![round as u8; 18 + round * 25];
            client.send_to(&question, to).expect("sent");
            let (length, from) =
                uninterrupted(|| server.recv_from(&mut buffer)).expect("a question");
            assert_eq!(buffer[..length], question);
            assert_eq!(from.ip(), address(WAN[usize::from(from.is_ipv6())]), "not translated");
            server.send_to(&question, from).expect("sent");
            let (length, from) =
                uninterrupted(|| client.recv_from(&mut buffer)).expect("an answer");
            assert_eq!((&buffer[..length], from), (&question[..], to));
        }
    }
    let took = began.elapsed();
    (Seen { to_server: frames(&mut at_server), to_client: frames(&mut at_client) }, took)
}

#[test]
fn what_leaves_is_the_same_with_a_flowtable_and_with_the_accelerator() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    let mut plain = None;
    for kind in [Kind::Plain, Kind::Accelerated, Kind::Flowtable] {
        let lab = lab();
        if kind == Kind::Flowtable && !offload(&lab.router, FLOWTABLE) {
            skip!("the kernel has no flow tables of nftables");
        }
        let accelerator = (kind == Kind::Accelerated).then(|| Accelerator::attach(&lab));
        let (seen, took) = converse(&lab);
        let packets = 2 * usize::from(FLOWS) * PACKETS;
        assert_eq!((seen.to_server.len(), seen.to_client.len()), (packets, packets), "{kind:?}");
        let each = took / (packets / 2) as u32;
        println!("{kind:?}: {each:?} for a question and its answer");
        if kind == Kind::Flowtable {
            let listed = |family| run(&lab.router, "conntrack", &["-L", "-f", family], "");
            let tracked = listed("ipv4") + &listed("ipv6");
            let offloaded = tracked.matches("[OFFLOAD]").count();
            assert_eq!(offloaded, 2 * usize::from(FLOWS), "flows in the table: {tracked}");
        }
        if let Some(accelerator) = &accelerator {
            let sessions = accelerator.sessions();
            assert_eq!(sessions.len(), 4 * usize::from(FLOWS), "{:?}", accelerator.refusals());
            let known: u64 = sessions.iter().map(|one| one.packets).sum();
            let left: u64 = accelerator.reasons().values().sum();
            println!("{left} of {known} packets went to the kernel: {:?}", accelerator.reasons());
            // A session is learned from its second packet, and of a connection that has been answered.
            assert!(known == 2 * packets as u64 && left <= known / 10, "{left} of {known}");
        }
        let plain = plain.get_or_insert_with(|| seen.clone());
        plain.compare(&seen, kind);
    }
}

/// A rule decides which connections are accelerated. Without that, those in a flowtable are left to it.
#[test]
fn connections_in_a_flowtable_are_accelerated_where_that_is_asked_for() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    let lab_plain = lab();
    let (plain, _) = converse(&lab_plain);
    drop(lab_plain);
    for (accelerate, table, expected) in [
        // The kernel's fast path takes the packets that would be learned from.
        (vec![Selector::Offloaded], FLOWTABLE, None),
        (vec![Selector::Offloaded], FLOWTABLE_WITHOUT_DEVICES, Some(2)),
        (vec![], FLOWTABLE_WITHOUT_DEVICES, Some(FLOWS - 2)),
    ] {
        let lab = lab();
        if !offload(&lab.router, table) {
            skip!("the kernel has no flow tables of nftables");
        }
        let accelerator = Accelerator::attach(&lab);
        let maps = &accelerator.programs.maps;
        let is_chosen = !accelerate.is_empty();
        let policy = Policy::from(&Config { accelerate, ..Config::default() });
        let refresh = || rules::refresh(&accelerator.control, maps, &policy);
        lab.router.run(refresh).expect("entered").expect("the rules");
        let (seen, _) = converse(&lab);
        plain.compare(&seen, Kind::Accelerated);
        let Some(flows) = expected else { continue };
        if !run(&lab.router, "conntrack", &["-L"], "").contains("[OFFLOAD]") {
            skip!("the kernel puts connections of a flow table's own devices into it alone");
        }
        let sessions = accelerator.sessions();
        assert_eq!(sessions.len(), 4 * usize::from(flows), "{}", accelerator.describe());
        let ports = if is_chosen { 5000..5002 } else { 5002..5000 + FLOWS };
        for session in sessions.iter().map(|one| one.tuple) {
            let server = session.destination.port().max(session.source.port());
            assert!(ports.contains(&server), "{session:?}");
        }
        let kept = Rules::new(maps).and_then(|rules| rules.kept()).expect("the rules");
        let names: Vec<_> = kept.iter().map(|kept| kept.rule.as_str()).collect();
        assert_eq!(names, if is_chosen { vec!["not in accelerate"] } else { vec![] });
        assert!(kept.iter().all(|kept| kept.packets > 0));
    }
}
