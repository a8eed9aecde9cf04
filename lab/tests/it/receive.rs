//! The experiments on receiving as a user runs them: what was sent is received or counted as lost.

use linerate_testkit::{exclusive, root_or_skip, test_name};

use crate::Run;

#[test]
fn every_message_of_an_experiment_is_accounted_for() {
    root_or_skip!();
    // It measures, on both CPUs.
    let _exclusive = exclusive();
    let run = Run::new("receive-latency", &["recvmmsg at 10000", "gro at 10000"]);
    let (printed, raw) = (&run.printed, run.read("raw.csv"));
    let rows: Vec<Vec<&str>> = raw.lines().skip(1).map(|row| row.split(',').collect()).collect();
    assert_eq!(rows.len(), 4, "two readers, asleep and spinning: {raw}{printed}");
    for row in rows {
        let [sent, received, lost] = [3, 4, 5].map(|at| row[at].parse::<u64>().unwrap());
        assert_eq!((sent, received + lost), (10_000, 10_000), "{raw}{printed}");
    }
}

#[test]
fn every_answer_of_a_server_is_accounted_for() {
    root_or_skip!();
    let _exclusive = exclusive();
    let run = Run::new("receive-echo", &["recvmmsg/sendmmsg at 1", "xdp both ways at 1"]);
    let (printed, raw) = (&run.printed, run.read("raw.csv"));
    let rows: Vec<Vec<&str>> = raw.lines().skip(1).map(|row| row.split(',').collect()).collect();
    assert_eq!(rows.len(), 2, "{raw}{printed}");
    for row in rows {
        let [sent, answers, ring] = [3, 4, 5].map(|at| row[at].parse::<u64>().unwrap());
        assert!(answers > 0 && answers <= sent && ring <= answers, "{raw}{printed}");
        assert_eq!(ring > 0, row[0] == "xdp both ways", "{raw}{printed}");
    }
}

#[test]
fn bytes_of_a_quic_connection_arrive_on_each_socket() {
    root_or_skip!();
    let _exclusive = exclusive();
    let sockets = ["quinn-udp", "recvmmsg", "uring", "xdp"];
    let names = sockets.map(|name| format!("{name} at 1"));
    let run = Run::new("receive-quic", &names.each_ref().map(String::as_str));
    let (printed, raw) = (&run.printed, run.read("raw.csv"));
    let rows: Vec<Vec<&str>> = raw.lines().skip(1).map(|row| row.split(',').collect()).collect();
    assert_eq!(rows.iter().map(|row| row[0]).collect::<Vec<_>>(), sockets, "{raw}{printed}");
    assert!(rows.iter().all(|row| row[3].parse::<u64>().unwrap() > 0), "{raw}{printed}");
}

#[test]
fn dnsperf_gets_the_right_answer_to_every_question() {
    root_or_skip!();
    let _exclusive = exclusive();
    if std::process::Command::new("dnsperf").arg("-h").output().is_err() {
        linerate_testkit::print_skipped(test_name!(), "dnsperf is not installed");
        return;
    }
    let run = Run::new("receive-dns", &["plain sockets at 1", "gro at 1", "xdp both ways at 1"]);
    let (printed, raw) = (&run.printed, run.read("raw.csv"));
    let rows: Vec<Vec<&str>> = raw.lines().skip(1).map(|row| row.split(',').collect()).collect();
    assert_eq!(rows.len(), 3, "{raw}{printed}");
    for row in rows {
        assert!(row[3].parse::<u64>().unwrap() > 0, "{raw}{printed}");
        assert_eq!(row[4], "0", "{raw}{printed}");
    }
}
