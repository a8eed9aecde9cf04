//! Predefined queries, against sums by hand and against tcpdump.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use linerate_flow::community_id::community_id;
use linerate_flow::{FlowRecord, ProcessFields};
use serde_json::Value;

use crate::support::{START, answer, frame, meter, parquet, run, tcpdump, traffic, v4, write};

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
fn local_processes_have_the_flows_of_both_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut records = some_records(folder.path(), 2_000);
    let location = folder.path().join("1.parquet");
    let location = location.to_str().unwrap();
    let by = |by| ["flows", "top", "-r", location, "--json", "-n", "100", "--by", by];
    parquet(location.as_ref(), &records);
    let refused = run(&by("process"));
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("--process-info --flows"),
        "{refused:?}"
    );
    let process = |name: &str| {
        Some(Arc::new(ProcessFields {
            name: name.to_owned(),
            container: (name == "a").then(|| "f00".to_owned()),
            ..ProcessFields::default()
        }))
    };
    // Of each six: one between two, one of the same at both ends, two of one end, two of nobody.
    for (n, record) in records.iter_mut().enumerate() {
        let [source, destination] =
            [["a", "b"], ["a", "a"], ["a", ""], ["", "b"], ["", ""], ["", ""]][n % 6];
        let known = |name: &str| Some(name).filter(|name| !name.is_empty()).and_then(process);
        record.details.processes = [known(source), known(destination)];
    }
    parquet(location.as_ref(), &records);
    let count = |kinds: &[usize]| (0..records.len()).filter(|n| kinds.contains(&(n % 6))).count();
    let top = |kind: &'static str, key: &str| {
        let rows = rows(&answer(&by(kind)));
        let mut found: Vec<_> = rows
            .iter()
            .map(|row| {
                let name = row.get(key).map(|name| name.as_str().unwrap().to_owned());
                (name, row["flows"].as_u64().unwrap() as usize)
            })
            .collect();
        found.sort();
        found
    };
    let name = |name: &str| Some(name.to_owned());
    let expected =
        [(None, count(&[4, 5])), (name("a"), count(&[0, 1, 2])), (name("b"), count(&[0, 3]))];
    assert_eq!(top("process", "process"), expected);
    let expected = [(None, count(&[3, 4, 5])), (name("f00"), count(&[0, 1, 2]))];
    assert_eq!(top("container", "container"), expected);
}

#[test]
fn conditions_on_flows_select_what_the_records_have() {
    let folder = tempfile::tempdir().unwrap();
    let mut records = some_records(folder.path(), 2_000);
    for (n, record) in records.iter_mut().enumerate() {
        record.forward.tcp_flags = [0x02, 0x12, 0x18, 0x04][n % 4];
        record.reverse.tcp_flags = [0x12, 0x10, 0x00][n % 3];
        record.end = record.start + [0, 500_000, 2_000_000_000][n % 3];
    }
    let location = folder.path().join("1.parquet");
    parquet(&location, &records);
    let location = location.to_str().unwrap();
    let duration = |one: &FlowRecord| one.end - one.start;
    let octets = |one: &FlowRecord| one.forward.octets + one.reverse.octets;
    let flags = |one: &FlowRecord| match one.key.protocol {
        6 => [one.forward, one.reverse].map(|one| if one.packets > 0 { one.tcp_flags } else { 0 }),
        _ => [0, 0],
    };
    type Condition<'a> = &'a dyn Fn(&FlowRecord) -> bool;
    let cases: [(&str, Condition<'_>); 12] = [
        ("flags S", &|one| (flags(one)[0] | flags(one)[1]) & 2 != 0),
        ("src flags SA", &|one| flags(one)[0] & 0x12 == 0x12),
        ("dst flags A and not src flags R", &|one| {
            flags(one)[1] & 0x10 != 0 && flags(one)[0] & 4 == 0
        }),
        ("octets > 0.3k", &|one| octets(one) > 300),
        ("octets<=100 or tcp", &|one| octets(one) <= 100 || one.key.protocol == 6),
        ("dst packets = 0", &|one| one.reverse.packets == 0),
        ("packets != 2", &|one| one.forward.packets + one.reverse.packets != 2),
        ("duration >= 500us", &|one| duration(one) >= 500_000),
        ("bps > 3M", &|one| {
            duration(one) > 0 && octets(one) as f64 * 8e9 > 3e6 * duration(one) as f64
        }),
        ("src pps < 10 and udp", &|one| {
            one.key.protocol == 17
                && duration(one) > 0
                && (one.forward.packets as f64) * 1e9 < 10.0 * duration(one) as f64
        }),
        ("reason forced", &|one| one.end_reason.is_some_and(|reason| reason as u8 == 4)),
        ("(flags S or flags R) and octets > 150 and host 10.0.0.3", &|one| {
            (flags(one)[0] | flags(one)[1]) & 6 != 0
                && octets(one) > 150
                && [one.key.source, one.key.destination].contains(&v4(3))
        }),
    ];
    for (filter, condition) in cases {
        let sum = &rows(&answer(&["flows", "sum", "-r", location, "--json", filter]))[0];
        let expected = records.iter().filter(|one| condition(one)).count();
        assert_eq!(sum["flows"], expected, "{filter}");
        let is_rare = ["reason forced", "dst packets = 0"].contains(&filter);
        assert!(is_rare || (1..records.len()).contains(&expected), "{filter}: {expected}");
    }
    let list = |sort| {
        rows(&answer(&["flows", "list", "-r", location, "--json", "--sort", sort, "-n", "50"]))
    };
    let longest = list("duration");
    assert!(longest.iter().all(|row| row["duration"] == 2.0), "{longest:?}");
    let most = |row: &serde_json::Value| {
        row["octets"].as_u64().unwrap() + row["reverse_octets"].as_u64().unwrap()
    };
    let sorted: Vec<_> = list("octets").iter().map(most).collect();
    let mut all: Vec<_> = records.iter().map(octets).collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(sorted, all[..50]);
    assert!(list("time").iter().any(|row| row["flags"] == ".S......"));
    // The shares are those of all octets.
    let top = rows(&answer(&["flows", "top", "-r", location, "--json", "--by", "host"]));
    let percent =
        top[0]["octets"].as_u64().unwrap() as f64 * 100.0 / all.iter().sum::<u64>() as f64;
    assert!((top[0]["percent"].as_f64().unwrap() - percent).abs() < 0.01, "{:?}", top[0]);
    assert!(top[0]["bits_per_second"].as_f64().unwrap() > 0.0);
}

#[test]
fn nets_have_their_flows_once_and_samples_are_scaled() {
    let folder = tempfile::tempdir().unwrap();
    let mut records = some_records(folder.path(), 2_000);
    records.iter_mut().step_by(2).for_each(|one| one.sampling_probability = 0.25);
    let location = folder.path().join("1.parquet");
    parquet(&location, &records);
    let location = location.to_str().unwrap();
    let top = |options: &[&str]| {
        rows(&answer(&[&["flows", "top", "-r", location, "--json", "-n", "100"], options].concat()))
    };
    let net = |one: IpAddr| match one {
        IpAddr::V4(one) => format!("{}/28", Ipv4Addr::from(u32::from(one) & !15)),
        IpAddr::V6(one) => format!("{}/120", Ipv6Addr::from(u128::from(one) & !255)),
    };
    for (scale, name) in [(false, "octets"), (true, "octets"), (false, "flows"), (true, "packets")]
    {
        let mut expected: BTreeMap<String, f64> = BTreeMap::new();
        for one in &records {
            let (forward, reverse) = (one.forward, one.reverse);
            let amount = match name {
                "octets" => forward.octets + reverse.octets,
                "packets" => forward.packets + reverse.packets,
                _ => 1,
            };
            let share = if scale { one.sampling_probability } else { 1.0 };
            for net in BTreeSet::from([net(one.key.source), net(one.key.destination)]) {
                *expected.entry(net).or_default() += amount as f64 / share;
            }
        }
        let options = ["--by", "net/28/120", "--sort", name, "--scale"];
        let found = top(&options[..if scale { 5 } else { 4 }]);
        let found: BTreeMap<_, _> = found
            .iter()
            .map(|row| (row["net"].as_str().unwrap().to_owned(), row[name].as_f64().unwrap()))
            .collect();
        assert_eq!(found, expected, "{scale} {name}");
    }
    let sum = |options: &[&str]| {
        rows(&answer(&[&["flows", "sum", "-r", location, "--json"], options].concat())).remove(0)
    };
    let scaled: f64 = records.iter().map(|one| 1.0 / one.sampling_probability).sum();
    assert_eq!(sum(&["--scale"])["flows"].as_f64(), Some(scaled));
    assert_eq!(sum(&[])["flows"], records.len());
    assert!(top(&["--by", "net"]).iter().all(|row| {
        let net = row["net"].as_str().unwrap();
        net.ends_with(".0/24") || net.ends_with("::/64")
    }));
    for wrong in ["net/33", "net/8/129", "net/", "nets"] {
        let output = run(&["flows", "top", "-r", location, "--by", wrong]);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn records_have_the_names_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut records = some_records(folder.path(), 300);
    let location = folder.path().join("1.parquet");
    let location = location.to_str().unwrap();
    for has_details in [false, true] {
        if has_details {
            for record in &mut records {
                record.details.history = Some("ShADd".into());
                record.details.forward.payload = Some(7);
            }
        }
        parquet(Path::new(location), &records);
        let query = |sql| rows(&answer(&["flows", "query", "-r", location, "--json", sql]));
        let zeek = query("SELECT * FROM zeek ORDER BY ts LIMIT 1");
        let first = records.iter().min_by_key(|one| one.start);
        let (record, row) = (first.unwrap(), &zeek[0]);
        assert_eq!(row["id.orig_h"], record.key.source.to_string());
        assert_eq!(row["orig_pkts"], record.forward.packets);
        assert_eq!(row["community_id"], *community_id(&record.key).unwrap());
        let history = row.get("history").and_then(|history| history.as_str());
        assert_eq!(history, has_details.then_some("ShADd"));
        assert_eq!(row.get("orig_bytes").is_some(), has_details);
        let ecs = query("SELECT sum(\"network.bytes\") AS sum FROM ecs");
        let ocsf = query("SELECT sum(\"traffic.bytes\") AS sum, max(\"time\") AS t FROM ocsf");
        let octets: u64 = records.iter().map(|one| one.forward.octets + one.reverse.octets).sum();
        assert_eq!((&ecs[0]["sum"], &ocsf[0]["sum"]), (&octets.into(), &octets.into()));
        assert!(ocsf[0]["t"].as_u64() >= Some(START / 1_000_000));
    }
}

#[test]
fn a_table_fits_the_terminal_and_says_what_it_leaves_out() {
    let folder = tempfile::tempdir().unwrap();
    let location = folder.path().join("1.parquet");
    let mut records = some_records(folder.path(), 100);
    let ends = ["fe80::1234:5678:9abc:def0", "fe80::fedc:ba98:7654:3210"];
    for record in &mut records {
        let [source, destination] = ends.map(|end| end.parse().unwrap());
        (record.key.source, record.key.destination) = (source, destination);
        record.forward.octets = 123_456_789_012;
    }
    parquet(&location, &records);
    for (arguments, columns, last) in [
        ("top", 80, "percent"),
        ("top", 200, "bits_per_second"),
        ("top --by pair", 80, "packets"),
        ("list", 80, ""),
    ] {
        let inner = format!(
            "stty rows 24 cols {columns}; {} flows {arguments} -r {}",
            env!("CARGO_BIN_EXE_linerate-flows"),
            location.display()
        );
        let mut script = Command::new("script");
        script.args(["--quiet", "--command", &inner, "/dev/null"]).stdin(Stdio::null());
        let Ok(output) = script.output() else {
            return linerate_testkit::print_skipped(linerate_testkit::test_name!(), "needs script");
        };
        let said = String::from_utf8(output.stdout).unwrap();
        // The progress stands before the first line.
        let table: Vec<_> = said.lines().filter(|line| line.ends_with(['|', '+'])).collect();
        let header = table.iter().find(|line| line.starts_with('|')).unwrap();
        assert!(table[1..].iter().all(|line| line.len() <= columns), "{said}");
        assert!(header.trim_end_matches([' ', '|']).ends_with(last), "{said}");
        assert_eq!(said.contains("no room for"), columns == 80, "{said}");
    }
}

#[test]
fn without_a_command_the_commands_are_listed() {
    let output = run(&["flows"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    for command in ["top", "list", "sum", "query", "ship"] {
        assert!(said.contains(&format!("\n  {command} ")), "{said}");
    }
}

#[test]
fn what_cannot_be_asked_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let location = folder.path().to_str().unwrap();
    let records = folder.path().join("below/1.parquet");
    parquet(&records, &some_records(folder.path(), 100));
    let records = records.to_str().unwrap();
    for (arguments, said) in [
        (vec!["flows", "top", "-r", location], "flow records only in other folders"),
        (vec!["flows", "top", "-r", "/nowhere"], "/nowhere"),
        (vec!["flows", "sum", "-r", location, "ether", "host", "1:2:3:4:5:6"], "ether"),
        (vec!["find", "-r", records, "-w", "-", "not", "tcp"], "no flow"),
    ] {
        let output = run(&arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(said), "{arguments:?}: {error}");
    }
}

/// The records of this many packets.
fn some_records(folder: &Path, count: u64) -> Vec<FlowRecord> {
    let file = folder.join("some.pcapng");
    write(&file, &traffic(count, false), START);
    meter(&[file])
}

/// The status and standard error of a command that fails.
fn error(arguments: &[&str]) -> String {
    let output = run(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
    error
}

#[test]
fn a_flow_of_a_host_with_itself_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.pcapng");
    let frames: Vec<_> = [(1, 1), (1, 1), (1, 1), (1, 2)]
        .map(|(source, destination)| frame(v4(source), v4(destination), 17, (53, 53), None, 10))
        .into();
    write(&file, &frames, START);
    let records = folder.path().join("1.parquet");
    parquet(&records, &meter(&[file]));
    let records = records.to_str().unwrap();
    for (by, expected) in
        [("host", [("10.0.0.1", 4), ("10.0.0.2", 1)].as_slice()), ("port", &[("", 4)])]
    {
        let top = rows(&answer(&["flows", "top", "-r", records, "--json", "--by", by]));
        let found: Vec<_> = top
            .iter()
            .map(|row| (row["host"].as_str().unwrap_or_default(), row["packets"].as_u64().unwrap()))
            .collect();
        assert_eq!(found, expected, "{by}");
    }
}

#[test]
fn a_list_has_no_more_rows_than_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let records = some_records(folder.path(), 500);
    let location = folder.path().join("1.parquet");
    parquet(&location, &records);
    let location = location.to_str().unwrap();
    let all = records.len();
    for (count, expected) in
        [("0", 0), ("5", 5), (&*all.to_string(), all), ("18446744073709551615", all)]
    {
        for form in ["--json", "--csv", "--print-sql"] {
            let output = run(&["flows", "list", "-r", location, "-n", count, form]);
            let lines = String::from_utf8_lossy(&output.stdout).lines().count();
            let expected = match form {
                "--json" => expected,
                "--csv" => expected + 1,
                _ => 1,
            };
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{count}: {said}");
            assert_eq!(lines, expected, "-n {count} {form}");
            let cut = form != "--print-sql" && (count == "0" || count == "5");
            assert_eq!(said.contains("more records"), cut, "-n {count} {form}: {said}");
        }
        let top = answer(&["flows", "top", "-r", location, "-n", count, "--json"]);
        assert!(top.lines().count() <= expected, "{top}");
    }
    let table = answer(&["flows", "list", "-r", location, "-n", "5"]);
    assert_eq!(table.lines().count(), 5 + 4, "{table}");
    assert!(
        answer(&["flows", "list", "-r", location, "-n", "5", "--print-sql"]).contains("LIMIT 5\n")
    );
}

#[test]
fn a_folder_without_complete_files_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let location = folder.path().canonicalize().unwrap();
    let name = location.to_str().unwrap();
    for verb in [vec!["top"], vec!["list"], vec!["sum"], vec!["query", "SELECT 1 FROM flows"]] {
        let said = error(&[&["flows"], &verb[..], &["-r", name]].concat());
        assert!(said.contains(name) && said.contains("--flow-file-time"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    // A file of a capture that runs has a hidden name with another end.
    let hour = location.join("date=2026-11-24/hour=10/sensor=a");
    fs::create_dir_all(&hour).unwrap();
    fs::write(hour.join(".1.parquet.partial"), "PAR1").unwrap();
    assert!(error(&["flows", "sum", "-r", name]).contains("no complete *.parquet file"));
    // Another location has records.
    let records = some_records(folder.path(), 100);
    let full = location.join("full");
    parquet(&full.join("below/1.parquet"), &records);
    let below = full.join("below");
    let said = error(&["flows", "sum", "-r", full.to_str().unwrap()]);
    assert!(said.contains(below.to_str().unwrap()) && said.contains("-r"), "{said}");
    let output = run(&["flows", "sum", "--json", "-r", name, "-r", below.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(name), "{said}");
    let sum = rows(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(sum[0]["flows"], records.len());
    // What is no file of records.
    let said = error(&["flows", "sum", "-r", folder.path().join("some.pcapng").to_str().unwrap()]);
    assert!(said.contains("some.pcapng is not a file of flow records"), "{said}");
}

#[test]
fn a_file_that_is_not_parquet_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let records = some_records(folder.path(), 100);
    let location = folder.path().join("sensor=a");
    parquet(&location.join("1.parquet"), &records);
    let whole = fs::read(location.join("1.parquet")).unwrap();
    for junk in [b"junk".to_vec(), vec![0; 5_000], whole[..whole.len() - 100].to_vec()] {
        let file = location.join("jun k[2].parquet");
        fs::write(&file, junk).unwrap();
        for place in [folder.path(), &location, &file] {
            let said = error(&["flows", "sum", "-r", place.to_str().unwrap()]);
            let named = format!("{} is not a complete Parquet file", file.display());
            assert!(said.contains(&named), "{said}");
            assert_eq!(said.matches("Parquet error").count(), 1, "{said}");
        }
        fs::remove_file(file).unwrap();
    }
    // An empty file has no records.
    fs::write(location.join("2.parquet"), "").unwrap();
    let sum = rows(&answer(&["flows", "sum", "--json", "-r", folder.path().to_str().unwrap()]));
    assert_eq!(sum[0]["flows"], records.len());
}

#[test]
fn folders_above_a_location_are_columns() {
    let folder = tempfile::tempdir().unwrap();
    let records = some_records(folder.path(), 500);
    let (one, two) = records.split_at(records.len() / 3);
    let flows = folder.path().join("flows");
    parquet(&flows.join("date=2023-11-14/hour=22/sensor=a/1.parquet"), one);
    parquet(&flows.join("date=2023-11-14/hour=22/sensor=b b/1.parquet"), two);
    let place = |below: &str| flows.join(below).to_str().unwrap().to_owned();
    let by_sensor = |locations: &[&str]| {
        let mut words = vec!["flows", "top", "--json", "--by", "sensor", "--sort", "flows"];
        words.extend(locations.iter().flat_map(|location| ["-r", location]));
        let count = |row: &Value| (row["sensor"].to_string(), row["flows"].as_u64().unwrap());
        rows(&answer(&words)).iter().map(count).collect::<Vec<_>>()
    };
    let (a, b) = (("\"a\"".to_owned(), one.len() as u64), ("\"b b\"".to_owned(), two.len() as u64));
    let hour = "date=2023-11-14/hour=22";
    let (in_a, in_b) = (format!("{hour}/sensor=a"), format!("{hour}/sensor=b b/1.parquet"));
    assert_eq!(by_sensor(&[&place("")]), [b.clone(), a.clone()]);
    assert_eq!(by_sensor(&[&place(hour)]), [b.clone(), a.clone()]);
    assert_eq!(by_sensor(&[&place(&in_a)]), std::slice::from_ref(&a));
    assert_eq!(by_sensor(&[&place(&in_b)]), std::slice::from_ref(&b));
    assert_eq!(by_sensor(&[&place(&in_b), &place(&in_a)]), [b, a]);
    let sql = "SELECT DISTINCT date, hour, sensor FROM flows WHERE hour = '22' ORDER BY sensor";
    for location in ["", hour, &in_b] {
        let csv = answer(&["flows", "query", "--csv", "-r", &place(location), sql]);
        assert!(csv.ends_with("2023-11-14,22,b b\n"), "{csv}");
    }

    // Without such folders there is no sensor, and the error says so once.
    let flat = folder.path().join("1.parquet");
    parquet(&flat, one);
    let flat = flat.to_str().unwrap();
    let said = error(&["flows", "top", "-r", flat, "--by", "sensor"]);
    assert!(said.contains("sensor=NAME") && said.contains(flat), "{said}");
    let said = error(&["flows", "query", "-r", flat, "SELECT sensor FROM flows"]);
    assert_eq!(said.matches("No field named").count(), 1, "{said}");
    // Together with others, its records have none.
    assert_eq!(by_sensor(&[flat, &place(&in_a)])[0].1, one.len() as u64);
}

#[test]
fn characters_of_patterns_in_a_name_stand_for_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let records = some_records(folder.path(), 100);
    for name in ["a[1]", "what?", "*", "100%", "a#b c", "%41", "\\", "é", "[", "a=b"] {
        let location = folder.path().join(format!("in {name}")).join(name);
        let file = location.join(format!("sensor={name}")).join(format!("{name}.parquet"));
        parquet(&file, &records);
        for place in [&location, &file] {
            let place = place.to_str().unwrap();
            let sum = rows(&answer(&["flows", "sum", "--json", "-r", place]));
            assert_eq!(sum[0]["flows"], records.len(), "{place}");
            let top = rows(&answer(&["flows", "top", "--json", "-r", place, "--by", "sensor"]));
            assert_eq!(top[0]["sensor"], name, "{place}");
        }
    }
}

#[test]
fn an_empty_answer_is_a_line_on_standard_error() {
    let folder = tempfile::tempdir().unwrap();
    let location = folder.path().join("1.parquet");
    parquet(&location, &some_records(folder.path(), 100));
    let location = location.to_str().unwrap();
    for verb in [&["top"][..], &["list"], &["sum", "--every", "1h"]] {
        let words = [&["flows"], verb, &["-r", location, "host", "192.0.2.1"]].concat();
        let output = run(&words);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{words:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "linerate: no record matches\n");
        assert!(output.status.success());
        let output = run(&[&words[..], &["--json"]].concat());
        assert_eq!((output.stdout.len(), output.stderr.len()), (0, 0));
    }
    let sum = answer(&["flows", "sum", "-r", location, "host", "192.0.2.1"]);
    assert!(sum.contains("| 0     | 0       | 0 "), "{sum}");
    let query = run(&["flows", "query", "-r", location, "SELECT 1 FROM flows LIMIT 0"]);
    assert!(query.stdout.is_empty() && query.status.success());
    assert_eq!(String::from_utf8_lossy(&query.stderr), "linerate: the answer has no rows\n");
    let said = error(&["flows", "query", "-r", location, "DELETE FROM flows"]);
    assert_eq!(said.lines().count(), 1, "{said}");
    let none = run(&["flows", "list", "-n", "0", "-r", location]);
    assert!(!String::from_utf8_lossy(&none.stderr).contains("no record"));
}

#[test]
fn filters_with_lists_names_and_hexadecimal_numbers_are_those_of_tcpdump() {
    let folder = tempfile::tempdir().unwrap();
    let records = some_records(folder.path(), 2_000);
    let location = folder.path().join("1.parquet");
    parquet(&location, &records);
    let files = [folder.path().join("some.pcapng")];
    for filter in [
        "port (domain or https)",
        "port 0x35",
        "tcp portrange domain-http",
        "host (10.0.0.3 or 10.0.0.45)",
        "ip proto 0x11",
    ] {
        let sum =
            &rows(&answer(&["flows", "sum", "-r", location.to_str().unwrap(), "--json", filter]))
                [0];
        let expected = tcpdump(&files, filter, folder.path());
        assert!(!expected.is_empty(), "{filter}");
        assert_eq!(sum["packets"], expected.len(), "{filter}: {sum}");
    }
    let said = error(&["flows", "sum", "-r", location.to_str().unwrap(), "tcp", "prt", "80"]);
    assert!(said.contains("`prt` is not a known word"), "{said}");
}

/// docs/json.md has the fields of each command, in a row of a table.
#[test]
fn documents_name_each_field_of_a_row() {
    let folder = tempfile::tempdir().unwrap();
    let location = folder.path().join("sensor=a/1.parquet");
    let mut records = some_records(folder.path(), 300);
    let process = ProcessFields {
        container: Some("f00".to_owned()),
        unit: Some("a.service".to_owned()),
        ..ProcessFields::default()
    };
    records[0].details.processes = [(); 2].map(|()| Some(Arc::new(process.clone())));
    parquet(&location, &records);
    let location = location.to_str().unwrap();
    let page = include_str!("../../../docs/json.md");
    let documented = |command: &str| -> BTreeSet<&str> {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{command}` |")));
        let fields = row.unwrap_or_else(|| panic!("{command}")).split('|').nth(2).unwrap();
        fields.split('`').skip(1).step_by(2).filter(|word| !word.starts_with('-')).collect()
    };
    let mut groups = BTreeSet::new();
    let counts = documented("top");
    for by in [
        "host",
        "net",
        "source",
        "destination",
        "pair",
        "port",
        "protocol",
        "vlan",
        "interface",
        "sensor",
        "process",
        "container",
        "unit",
    ] {
        let csv = answer(&["flows", "top", "-r", location, "--csv", "--by", by]);
        let columns: BTreeSet<_> =
            csv.lines().next().unwrap().split(',').map(str::to_owned).collect();
        assert!(counts.iter().all(|count| columns.contains(*count)), "{by}: {csv}");
        groups.extend(columns.into_iter().filter(|column| !counts.contains(&**column)));
    }
    assert_eq!(groups, documented("top --by").into_iter().map(str::to_owned).collect());
    for (command, row) in [
        (vec!["list"], "list"),
        (vec!["list", "--nat-events"], "list --nat-events"),
        (vec!["sum", "--every", "1h"], "sum"),
    ] {
        let csv = answer(&[&["flows"], &command[..], &["-r", location, "--csv"]].concat());
        let columns: BTreeSet<_> = csv.lines().next().unwrap().split(',').collect();
        assert_eq!(columns, documented(row), "{command:?}");
    }
    let list = rows(&answer(&["flows", "list", "-r", location, "--json", "-n", "1"]));
    let row = list[0].as_object().unwrap();
    assert!(row.keys().all(|field| documented("list").contains(&**field)), "{row:?}");
    assert!(row["start"].as_str().unwrap().ends_with('Z') && row["packets"].is_number(), "{row:?}");
}

#[test]
fn files_that_wait_are_said_with_their_store() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("1.parquet");
    fs::write(&file, "x").unwrap();
    let ship = |options: &[&str]| {
        let folder = folder.path().to_str().unwrap();
        Command::new(env!("CARGO_BIN_EXE_linerate-flows"))
            .args(["flows", "ship", folder, "s3://flows/site-1", "--retry-for", "1s"])
            .args(options)
            // Nothing listens on the port of the discard service.
            .envs([("AWS_ENDPOINT_URL", "http://127.0.0.1:9"), ("AWS_ALLOW_HTTP", "true")])
            .envs([("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")])
            .env("AWS_REGION", "us-east-1")
            .output()
            .unwrap()
    };
    let why = format!("cannot ship {} to s3://flows/site-1: Connection refused", file.display());
    let output = ship(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&why), "{output:?}");
    let output = ship(&["--json"]);
    let object = &rows(&String::from_utf8(output.stdout).unwrap())[0];
    assert!(object["error"].as_str().unwrap().contains(&why), "{object}");
    let page = include_str!("../../../docs/json.md");
    let (_, table) = page.split_once("`ship --json`").unwrap();
    for field in object.as_object().unwrap().keys() {
        assert!(table.contains(&format!("\n| `{field}` | ")), "{field}");
    }
}

#[test]
fn names_do_not_control_the_terminal_and_closed_pipes_are_quiet() {
    let folder = tempfile::tempdir().unwrap();
    let interface_name = Some("eth\u{1b}[31m0".into());
    let record = FlowRecord { interface_name, start: START, end: START, ..FlowRecord::default() };
    parquet(&folder.path().join("1.parquet"), &[record]);
    let location = folder.path().to_str().unwrap();
    let table = answer(&["flows", "top", "-r", location, "--by", "interface"]);
    assert!(table.contains(r"eth\u{1b}[31m0") && !table.contains('\u{1b}'), "{table}");

    // Nobody reads the output or the messages.
    for arguments in [&["--csv"][..], &["--json"], &["port 1"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_linerate-flows"));
        command.args(["flows", "list", "-r", location]).args(arguments);
        let [out, error] = [(); 2].map(|()| std::io::pipe().unwrap().1);
        let status = command.stdout(out).stderr(error).status().unwrap();
        assert!(status.success(), "{arguments:?}: {status}");
    }
}

#[test]
fn times_are_those_of_the_time_zone() {
    let folder = tempfile::tempdir().unwrap();
    let location = folder.path().join("1.parquet");
    parquet(&location, &some_records(folder.path(), 100));
    let location = location.to_str().unwrap();
    let first = |more: &[&str]| {
        let words = [&["flows", "list", "-n", "1", "--json", "-r", location], more].concat();
        let row = rows(&answer(&words)).remove(0);
        row["start"].as_str().unwrap().to_owned()
    };
    let utc = first(&[]);
    for (zone, offset) in [("+05:30", "+05:30"), ("Asia/Kolkata", "+05:30"), ("-01:00", "-01:00")] {
        let there = first(&["--time-zone", zone]);
        assert!(there.ends_with(offset), "{zone}: {there}");
        // The same instant, and the time of the zone is read as such.
        let civil = there.strip_suffix(offset).unwrap();
        assert_eq!(first(&["--time-zone", zone, "--after", civil]), there);
        assert_eq!(first(&["--time-zone", zone, "--after", &utc]), there);
    }
    let query = ["flows", "query", "-r", location, "--time-zone", "+01:00"];
    let row = answer(&[&query[..], &["SELECT min(\"flowStartNanoseconds\") FROM flows"]].concat());
    assert!(row.contains("+01:00"), "{row}");
    let wrong = run(&["flows", "list", "-r", location, "--time-zone", "Europe/Nowhere"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("no such time zone"), "{wrong:?}");
}
