//! Random filters on random packets: records answer as libpcap does.
//!
//! `LINERATE_TEST_FILTERS` is the number of filters, `LINERATE_TEST_SEED` another seed.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use datafusion::common::cast::as_uint64_array;
use datafusion::prelude::SessionContext;
use linerate_flow::file::{Files, FilesOptions, Retention};
use linerate_flow::schema::Groups;
use linerate_flow::{Direction, FlowKey, FlowRecord};
use linerate_pcapfile::PacketLocation;
use pcap::{BpfProgram, Capture, Linktype};

use super::*;

const PACKETS: u64 = 600;
const HOSTS: [&str; 6] =
    ["10.0.0.1", "10.1.2.3", "192.168.1.1", "2001:db8::1", "2001:db8:1::2", "fe80::3"];
const PORTS: [u16; 6] = [22, 53, 80, 443, 1024, 8080];
const PROTOCOLS: [u8; 8] = [6, 6, 6, 17, 17, 132, 1, 47];

/// Numbers that look random (SplitMix64).
struct Random {
    state: u64,
    /// Filters ask for what records do not have, too.
    of_packets: bool,
}

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.state;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((value ^ (value >> 31)) % limit as u64) as usize
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn word(&mut self, of: &[&str]) -> String {
        self.one(of).to_owned()
    }
}

/// A frame, and the key of its flow. `odd` ones have a tag, or are later fragments.
fn packet(random: &mut Random, odd: bool) -> (Vec<u8>, FlowKey) {
    let version = 3 * random.below(2);
    let mut host = || -> IpAddr { HOSTS[version + random.below(3)].parse().unwrap() };
    let (source, destination) = (host(), host());
    let protocol = match random.one(&PROTOCOLS) {
        1 if source.is_ipv6() => 58,
        protocol => protocol,
    };
    let ports = (random.one(&PORTS), random.one(&PORTS));
    let mut payload = [0; 20];
    payload[..2].copy_from_slice(&ports.0.to_be_bytes());
    payload[2..4].copy_from_slice(&ports.1.to_be_bytes());
    let mut frame = vec![2; 12];
    let vlan = (odd && random.below(4) == 0).then_some(7_u16);
    frame.extend(vlan.into_iter().flat_map(|vlan| [[0x81, 0], vlan.to_be_bytes()]).flatten());
    let is_fragment = odd && source.is_ipv4() && random.below(4) == 0;
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let offset = u8::from(is_fragment);
            frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, offset, 64, protocol, 0, 0]);
            frame.extend([source.octets(), destination.octets()].concat());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, protocol, 64]);
            frame.extend([source.octets(), destination.octets()].concat());
        }
        _ => unreachable!("one version"),
    }
    frame.extend(payload);
    let has_ports = [6, 17, 132].contains(&protocol) && !is_fragment;
    let [source_port, destination_port] = [ports.0, ports.1].map(|port| has_ports.then_some(port));
    let key = FlowKey {
        source,
        destination,
        source_port,
        destination_port,
        protocol,
        vlan,
        ..FlowKey::default()
    };
    (frame, key)
}

/// Records of one packet each, whose offset is the number of the packet. Of `odd` ones, some have it in the reverse
/// direction.
async fn table(random: &mut Random, odd: bool) -> (Vec<Vec<u8>>, SessionContext) {
    let folder = tempfile::tempdir().unwrap();
    let options = FilesOptions {
        folder: folder.path().into(),
        sensor: "a".into(),
        group: None,
        max_age: Duration::MAX,
        max_records: 1 << 20,
        retention: Retention::default(),
        groups: Groups::default(),
        sealed: None,
    };
    let mut files = Files::new(options).unwrap();
    let mut frames = Vec::new();
    for number in 0..PACKETS {
        let (frame, mut key) = packet(random, odd);
        frames.push(frame);
        let one = Direction { packets: 1, octets: 40, ..Direction::default() };
        let mut record =
            FlowRecord { start: number, end: number, forward: one, ..FlowRecord::default() };
        if odd && random.below(2) == 0 {
            std::mem::swap(&mut key.source, &mut key.destination);
            std::mem::swap(&mut key.source_port, &mut key.destination_port);
            std::mem::swap(&mut record.forward, &mut record.reverse);
        }
        let packets = Some(PacketLocation { file: "a".into(), first: number, end: None });
        files.push(FlowRecord { key, packets, ..record }).unwrap();
    }
    files.finish().unwrap();
    let records = crate::source::open(&[folder.path().to_str().unwrap().to_owned()]).await.unwrap();
    let all = records.table(crate::source::TABLE).await.unwrap().cache().await.unwrap();
    let context = SessionContext::new_with_config(records.copied_config());
    context.register_table(crate::source::TABLE, all.into_view()).unwrap();
    (frames, context)
}

fn expression(random: &mut Random, depth: u32) -> String {
    let mut text = term(random, depth);
    for _ in 0..random.below(4) {
        let operator = random.word(&["and", "or", "&&", "||"]);
        // A value alone takes over the qualifiers before it.
        let next = match random.below(3) {
            0 => value(random),
            _ => term(random, depth),
        };
        text = format!("{text} {operator} {next}");
    }
    text
}

fn term(random: &mut Random, depth: u32) -> String {
    match random.below(8) {
        0 => format!("{}{}", random.word(&["not ", "!", "! "]), term(random, depth)),
        1 | 2 if depth > 0 => format!("({})", expression(random, depth - 1)),
        _ => primitive(random),
    }
}

fn value(random: &mut Random) -> String {
    match random.below(2) {
        0 => random.one(&PORTS).to_string(),
        _ => random.word(&HOSTS),
    }
}

/// What only a search can ask for.
const OF_PACKETS: [&str; 16] = [
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0",
    "tcp[0:2] > 100",
    "udp[2:2] = 53",
    "icmp[0] == 3",
    "ip[8] >= 64",
    "(ip[0] & 0xf) = 5",
    "ip6[7] > 10",
    "greater 55",
    "less 60",
    "len <= 58",
    "ether host 02:02:02:02:02:02",
    "ether src 02:02:02:02:02:03",
    "ether proto \\ip",
    "ip multicast",
    "ether broadcast",
    "ip[6:2] & 0x1fff != 0",
];

fn primitive(random: &mut Random) -> String {
    if random.of_packets && random.below(3) == 0 {
        return random.word(&OF_PACKETS);
    }
    let direction = random.word(&["", "", "", "src ", "dst ", "src or dst ", "src and dst "]);
    let list = |random: &mut Random, values: &mut dyn FnMut(&mut Random) -> String| {
        let (a, b) = (values(random), values(random));
        let not = random.word(&["", "", "", "not "]);
        format!("({not}{a} {} {b})", random.word(&["or", "and"]))
    };
    let mut host = |random: &mut Random| random.word(&HOSTS);
    let mut port = |random: &mut Random| {
        let port = random.one(&PORTS);
        match random.below(8) {
            0 => format!("{port:#x}"),
            1 if port == 53 => "domain".to_owned(),
            _ => port.to_string(),
        }
    };
    match random.below(12) {
        0 | 1 => {
            let protocol = random.word(&["", "", "tcp ", "udp ", "sctp "]);
            let port = if random.below(4) == 0 { list(random, &mut port) } else { port(random) };
            format!("{protocol}{direction}port {port}")
        }
        2 => {
            let (a, b) = (random.one(&PORTS), random.one(&PORTS));
            format!("{}{direction}portrange {a}-{b}", random.word(&["", "tcp ", "udp "]))
        }
        3 | 4 => {
            let host = if random.below(4) == 0 { list(random, &mut host) } else { host(random) };
            format!("{}{direction}host {host}", random.word(&["", "", "ip ", "ip6 "]))
        }
        5 => format!("{direction}{}", random.word(&HOSTS)),
        6 => {
            let nets = [
                "10.0.0.0/8",
                "10",
                "192.168",
                "10.0.0.0 mask 255.255.0.0",
                "2001:db8::/32",
                "2001:db8::/47",
                "192.168.1",
                "fe80::/10",
                "10.1.2.3",
                "0.0.0.0/0",
            ];
            format!(
                "{}{direction}net {}",
                random.word(&["", "", "ip ", "ip6 "]),
                random.word(&nets)
            )
        }
        7 => {
            let version = random.word(&["", "ip ", "ip6 "]);
            let protocol =
                random.word(&["\\tcp", "\\udp", "6", "17", "47", "58", "1", "132", "\\icmp"]);
            format!("{version}proto {protocol}")
        }
        _ => random.word(&[
            "tcp", "udp", "sctp", "icmp", "icmp6", "ip", "ip6", "esp", "ah", "pim", "igmp",
        ]),
    }
}

fn matching(program: &BpfProgram, frames: &[Vec<u8>]) -> HashSet<u64> {
    let numbered = (0..).zip(frames);
    numbered.filter(|(_, frame)| program.filter(frame)).map(|(number, _)| number).collect()
}

async fn selected(context: &SessionContext, filter: &Filter, meaning: Meaning) -> HashSet<u64> {
    let condition = filter.sql(meaning);
    let sql = format!("SELECT \"packetOffset\" FROM flows WHERE {condition}");
    let batches = context.sql(&sql).await.unwrap().collect().await.unwrap();
    let numbers = |batch| as_uint64_array(batch).unwrap().values().to_vec();
    batches.iter().flat_map(|batch| numbers(batch.column(0))).collect()
}

/// A number of the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[tokio::test]
async fn random_filters_of_packets_find_those_of_libpcap() {
    let mut random = Random { state: number("LINERATE_TEST_SEED", 37), of_packets: true };
    let (odd, flows) = table(&mut random, true).await;
    let (mut compared, mut bounded, mut faults) = (0, 0, Vec::new());
    for _ in 0..number("LINERATE_TEST_FILTERS", 300) {
        let text = expression(&mut random, 2);
        let dead = Capture::dead(Linktype::ETHERNET).unwrap();
        let Ok(program) = dead.compile(&text, false) else { continue };
        let bound = match parse_for_search(&text) {
            Ok(bound) => bound.unwrap(),
            Err(error) => {
                faults.push(format!("{text}: refused: {error}"));
                continue;
            }
        };
        compared += 1;
        let found = selected(&flows, &bound, Meaning::MayHavePackets).await;
        bounded += usize::from(found.len() < odd.len());
        let lost = matching(&program, &odd).difference(&found).count();
        if lost > 0 {
            faults.push(format!("{text}: a search loses {lost} packets"));
        }
    }
    println!("{compared} filters compared, {bounded} bounded");
    assert!(compared > 100 && bounded > 20, "{compared}, {bounded}");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn random_filters_select_the_packets_of_libpcap() {
    let mut random = Random { state: number("LINERATE_TEST_SEED", 36), of_packets: false };
    let (plain, flows) = table(&mut random, false).await;
    let (odd, odd_flows) = table(&mut random, true).await;
    let (mut compared, mut refused, mut faults) = (0, 0, Vec::new());
    for _ in 0..number("LINERATE_TEST_FILTERS", 300) {
        let text = expression(&mut random, 2);
        let dead = Capture::dead(Linktype::ETHERNET).unwrap();
        let (program, ours) = match (dead.compile(&text, false), parse(&text)) {
            (Ok(program), Ok(ours)) => (program, ours.unwrap()),
            // It is larger than any, and said to be so.
            (Ok(_), Err(error)) if error.to_string().contains("is not a protocol of IP") => {
                continue;
            }
            (Ok(_), Err(error)) => {
                faults.push(format!("{text}: refused: {error}"));
                continue;
            }
            // An address alone stands for a host here, also where libpcap does not allow it.
            (Err(_), _) => {
                refused += 1;
                continue;
            }
        };
        compared += 1;
        let (expected, found) =
            (matching(&program, &plain), selected(&flows, &ours, Meaning::Flow).await);
        if expected != found {
            let (expected, found) = (expected.len(), found.len());
            faults.push(format!("{text}: {found} records, {expected} packets"));
        }
        if ours.matches_other_packets() == Some(true) {
            continue;
        }
        let found = selected(&odd_flows, &ours, Meaning::MayHavePackets).await;
        let lost = matching(&program, &odd).difference(&found).count();
        if lost > 0 {
            faults.push(format!("{text}: a search loses {lost} packets"));
        }
    }
    println!("{compared} filters compared, {refused} refused by libpcap");
    assert!(faults.is_empty(), "{} of {compared} differ:\n{}", faults.len(), faults.join("\n"));
}
