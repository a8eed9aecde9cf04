use std::io::{Read, Write};
use std::net::TcpStream;

use linerate_service::{ListenAddress, Published};

use super::*;
use crate::datapath::Datapath;
use crate::snapshot::{Counter, Port, PortStatistics, Sessions, Side};
use crate::table::rules::Kept;

fn snapshot() -> Snapshot {
    Snapshot {
        instance: "default".to_owned(),
        statistics: "slot",
        state: State::Running,
        process: Some(7),
        heartbeat_age: 0.25,
        heartbeat_timeout: 10.0,
        generation: 7,
        sessions: Sessions { active: 3, capacity: 1_000_000, memory_bytes: 192 << 20 },
        reasons: vec![
            Counter { name: "no-session", description: "", packets: 5 },
            Counter { name: "denied", description: "", packets: 7 },
            Counter { name: "fragment", description: "", packets: 0 },
        ],
        refusals: vec![Counter { name: "ttl", description: "", packets: 1 }],
        rules: vec![Kept { rule: "nftables inet t c handle 3".to_owned(), packets: 4 }],
        blocked: 2,
        ports: vec![Port {
            interface: "eth\"1".to_owned(),
            index: 4,
            xdp_mode: "native",
            ingress: Default::default(),
            egress: Side { datapath: Some(Datapath::Tc), reason: Some("qdisc tbf".into()) },
            upper_devices: vec!["br0".to_owned()],
            traffic: PortStatistics { rx_packets: 10, rx_bytes: 640, tx_packets: 9, tx_bytes: 576 },
        }],
    }
}

fn scrape(counts: Option<Metrics>) -> String {
    let published = Published::default();
    counts.into_iter().for_each(|counts| published.publish(counts));
    let listener = ListenAddress::loopback(0).listen().unwrap().unwrap();
    let server = published.serve_metrics(listener, "forward", Metrics::encode).unwrap();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn a_scrape_has_the_snapshot_and_the_daemons_counts() {
    let of = |sessions, packets| DatapathStatistics { sessions, packets };
    let daemon = DaemonStatistics {
        invalidations: vec![("route", 2)],
        ended: vec![("idle", 3)],
        datapaths: vec![(Datapath::Xdp, of(2, 100)), (Datapath::Tc, of(1, 20))],
        flows: Some(FlowStatistics { nat_events: 7, nat_event_overruns: 1, ..Default::default() }),
        connections: vec![Connection {
            tuple: "udp,192.0.2.1,5000,198.51.100.7,53".parse().unwrap(),
            nat: None,
            original: Counters { packets: 9, bytes: 900 },
            reply: Counters { packets: 8, bytes: 800 },
        }],
    };
    let text =
        scrape(Some(Metrics { time: UNIX_EPOCH, snapshot: snapshot(), daemon: daemon.clone() }));
    for line in [
        "linerate_forward_sessions 3.0",
        "linerate_forward_session_capacity 1000000.0",
        "linerate_forward_table_size_bytes 201326592.0",
        "linerate_forward_heartbeat_age_seconds 0.25",
        "linerate_forward_fast_path_enabled 1.0",
        "linerate_forward_deny_list_entries 2.0",
        "linerate_forward_invalidations_total{cause=\"route\"} 2",
        "linerate_forward_sessions_ended_total{reason=\"idle\"} 3",
        "linerate_forward_slow_path_packets_total{reason=\"no-session\"} 5",
        "linerate_forward_slow_path_packets_total{reason=\"fragment\"} 0",
        "linerate_forward_learn_refusals_total{reason=\"ttl\"} 1",
        "linerate_forward_rule_packets_total{rule=\"nftables inet t c handle 3\"} 4",
        "linerate_forward_port_datapath{interface=\"eth\\\"1\",direction=\"rx\",datapath=\"kernel\",reason=\"\"} 1.0",
        "linerate_forward_port_datapath{interface=\"eth\\\"1\",direction=\"tx\",datapath=\"tc\",reason=\"qdisc tbf\"} 1.0",
        "linerate_forward_datapath_sessions{datapath=\"tc\"} 1.0",
        "linerate_forward_datapath_packets_total{datapath=\"xdp\"} 100",
        "linerate_forward_datapath_packets_total{datapath=\"tc\"} 20",
        "linerate_forward_datapath_packets_total{datapath=\"kernel\"} 5",
        "linerate_forward_flow_records_total{kind=\"nat_event\"} 7",
        "linerate_forward_nat_event_overruns_total 1",
        "linerate_forward_port_packets_total{interface=\"eth\\\"1\",direction=\"rx\"} 10",
        "linerate_forward_port_bytes_total{interface=\"eth\\\"1\",direction=\"tx\"} 576",
    ] {
        assert!(text.lines().any(|one| one == line), "no {line} in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"), "{text}");
    // Where sessions do not count, nothing says that they forwarded nothing.
    let snapshot = Snapshot { statistics: "none", ..snapshot() };
    let text = scrape(Some(Metrics { time: UNIX_EPOCH, snapshot, daemon }));
    let packets: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("linerate_forward_datapath_packets_"))
        .collect();
    assert_eq!(packets, ["linerate_forward_datapath_packets_total{datapath=\"kernel\"} 5"]);
}

#[test]
fn before_the_first_snapshot_a_scrape_is_whole_too() {
    let text = scrape(None);
    assert!(text.ends_with("# EOF\n") && !text.contains("linerate_forward_sessions "), "{text}");
}
