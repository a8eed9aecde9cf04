//! Ready queries, against sums by hand and against tcpdump.

use linerate_flow::FlowRecord;
use serde_json::Value;

use crate::support::{START, answer, meter, parquet, run, tcpdump, traffic, v4, write};

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn sums_of_a_filter_are_those_of_tcpdump() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.pcapng");
    write(&file, &traffic(5_000, false), START);
    let files = [file];
    let records = meter(&files);
    let (one, two) = records.split_at(records.len() / 2);
    let location = folder.path().join("flows");
    parquet(&location.join("date=2023-11-14/hour=22/sensor=a/1.parquet"), one);
    parquet(&location.join("date=2023-11-14/hour=23/sensor=b/1.parquet"), two);
    let location = location.to_str().unwrap();
    // The packets of a flow agree about these.
    for filter in [
        "ip",
        "ip6",
        "tcp",
        "udp or icmp",
        "host 10.0.0.3",
        "host 2001:db8::3",
        "net 10.0.0.0/29",
        "net 2001:db8::/125",
        "port 443",
        "tcp port 80 or 53",
        "portrange 1024-1025",
        "not host 10.0.0.3",
        "tcp and not (port 80 or net 10.0.0.0/29)",
        "src and dst net 10.0.0.0/24",
        "sctp",
    ] {
        let sum = &rows(&answer(&["flows", "sum", "-r", location, "--json", filter]))[0];
        let expected = tcpdump(&files, filter, folder.path());
        assert_eq!(sum["packets"], expected.len(), "{filter}: {sum}");
        let octets: usize = expected.iter().map(|(_, bytes)| bytes.len() - 14).sum();
        assert_eq!(sum["octets"], octets, "{filter}");
    }
}

#[test]
fn top_list_and_sum_give_what_the_records_have() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.pcapng");
    write(&file, &traffic(3_000, false), START);
    let records = meter(&[file]);
    let location = folder.path().join("flows/sensor=a/1.parquet");
    parquet(&location, &records);
    let location = folder.path().join("flows");
    let location = location.to_str().unwrap();
    let octets = |record: &&FlowRecord| record.forward.octets + record.reverse.octets;
    let top = rows(&answer(&["flows", "top", "-r", location, "--json", "-n", "3"]));
    assert_eq!(top.len(), 3);
    for row in &top {
        let of = |record: &&FlowRecord| {
            [record.key.source, record.key.destination]
                .iter()
                .any(|one| row["host"] == one.to_string())
        };
        assert_eq!(
            row["octets"],
            records.iter().filter(of).map(|one| octets(&one)).sum::<u64>(),
            "{row}"
        );
        assert_eq!(row["flows"], records.iter().filter(of).count());
    }
    assert!(top[0]["octets"].as_u64() >= top[1]["octets"].as_u64());
    for by in ["source", "destination", "pair", "port", "protocol", "vlan", "interface", "sensor"] {
        let rows =
            rows(&answer(&["flows", "top", "-r", location, "--json", "-n", "100000", "--by", by]));
        let total: u64 = rows.iter().map(|row| row["octets"].as_u64().unwrap()).sum();
        assert_eq!(total, records.iter().map(|one| octets(&one)).sum::<u64>(), "{by}");
    }

    let list = rows(&answer(&["flows", "list", "-r", location, "--json", "host", "10.0.0.3"]));
    let expected =
        |record: &&FlowRecord| [record.key.source, record.key.destination].contains(&v4(3));
    assert_eq!(list.len(), records.iter().filter(expected).count());
    let starts: Vec<_> = list.iter().map(|row| row["start"].as_str().unwrap()).collect();
    assert!(starts.is_sorted(), "{starts:?}");
    let cut = run(&["flows", "list", "-r", location, "-n", "1"]);
    assert!(
        String::from_utf8_lossy(&cut.stderr).contains("more records"),
        "what is left out is said"
    );

    // Flows of the second half of a second, in intervals of 100 ms.
    let (after, before) = ("1700000000.5", "1700000001");
    let range = ["--after", after, "--before", before];
    let every = ["flows", "sum", "-r", location, "--json", "--every", "100ms"];
    let sums = rows(&answer(&[&every[..], &range].concat()));
    let inside = records
        .iter()
        .filter(|one| one.end >= START + 500_000_000 && one.start < START + 1_000_000_000);
    let total: u64 = sums.iter().map(|row| row["flows"].as_u64().unwrap()).sum();
    assert_eq!(total, inside.count() as u64);

    let csv = answer(&[
        "flows",
        "query",
        "-r",
        location,
        "--csv",
        "SELECT count(*) AS n, ip(max(sourceIPv4Address), NULL) AS a FROM flows",
    ]);
    assert!(csv.starts_with(&format!("n,a\n{},10.0.0.", records.len())), "{csv}");
    let table = answer(&["flows", "top", "-r", location, "--by", "protocol"]);
    assert!(table.contains("| protocol |"), "{table}");
}

#[test]
fn what_cannot_be_asked_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let location = folder.path().to_str().unwrap();
    for (arguments, said) in [
        (vec!["flows", "top", "-r", location], "no flow records"),
        (vec!["flows", "top", "-r", "/nowhere"], "/nowhere"),
        (vec!["flows", "sum", "-r", location, "ether", "host", "1:2:3:4:5:6"], "ether"),
        (vec!["find", "-r", location, "-w", "-", "not", "tcp"], "no flow"),
    ] {
        let output = run(&arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(said), "{arguments:?}: {error}");
    }
}
