//! The engines get the same answers from the same files, by the queries of packaging/fleet.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{Fleet, definitions, figure, fleet_or_skip};
use crate::support::{START, answer, meter, parquet, traffic, write};

/// Runs the queries of a file, and prints the rows of each as a JSON line.
const ASK: &str = include_str!("ask.py");

/// The answers of an engine by the name of the query.
pub(super) type Answers = Vec<(String, Vec<Value>)>;

/// A direction of a flow: source, destination, protocol and both ports.
pub(super) type Direction = (IpAddr, IpAddr, u64, u64, u64);
/// Packets and octets by direction.
pub(super) type Sums = HashMap<Direction, (u64, u64)>;

/// The program that runs queries, and its arguments.
pub(super) fn asking(engine: &str, queries: &str, folder: &Path) -> (PathBuf, [PathBuf; 2]) {
    let (program, file) = (folder.join("ask.py"), folder.join(format!("{engine}.sql")));
    std::fs::write(&program, ASK).unwrap();
    std::fs::write(&file, queries).unwrap();
    (program, [engine.into(), file])
}

/// The answers that an engine has printed.
pub(super) fn parse(text: &[u8]) -> Answers {
    let text = String::from_utf8_lossy(text);
    let json = text.lines().filter(|line| line.starts_with('['));
    json.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The answers of an engine about the files of a folder.
fn ask(fleet: &Fleet, engine: &str, location: &str) -> Answers {
    let folder = tempfile::tempdir().unwrap();
    let queries = definitions(&format!("{engine}.sql"), &[("@LOCATION@", location)]);
    let (program, arguments) = asking(engine, &queries, folder.path());
    let mut command = Command::new(fleet.python());
    // Without a cluster, Spark runs in the process that asks.
    command
        .arg(program)
        .args(arguments)
        .envs([("LINERATE_SPARK", "local[2]"), ("SPARK_LOCAL_IP", "127.0.0.1")]);
    let output = command.current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{engine}: {}", String::from_utf8_lossy(&output.stderr));
    parse(&output.stdout)
}

/// Rows with addresses in one form, and without columns that are null.
fn normal(rows: Vec<Value>) -> Vec<Value> {
    let normal = |row: Value| {
        let Value::Object(mut row) = row else { panic!("{row}") };
        row.retain(|_, value| !value.is_null());
        for name in ["host", "source", "destination"] {
            if let Some(host) = row.get_mut(name) {
                *host = address(host).to_string().into();
            }
        }
        Value::Object(row)
    };
    rows.into_iter().map(normal).collect()
}

fn address(text: &Value) -> IpAddr {
    let text = text.as_str().unwrap().trim_start_matches("::ffff:");
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Packets and octets by direction, from the rows of the query `directions`.
pub(super) fn sums(rows: &[Value]) -> Sums {
    let mut sums = Sums::new();
    for row in rows {
        let number = |name: &str| match &row[name] {
            Value::String(name) if name == "TCP" => 6,
            Value::String(name) if name == "UDP" => 17,
            other => other.as_u64().unwrap_or_else(|| panic!("{name}: {row}")),
        };
        let direction = (
            address(&row["source"]),
            address(&row["destination"]),
            number("protocol"),
            number("source_port"),
            number("destination_port"),
        );
        let sum = sums.entry(direction).or_default();
        sum.0 += number("packets");
        sum.1 += number("octets");
    }
    sums
}

/// The query `directions` for the engine of `linerate flows`.
pub(super) fn own_directions(location: &str) -> Vec<Value> {
    let side = |source: &str, destination: &str, reverse: &str| {
        let counts = match reverse {
            "" => "packetDeltaCount AS packets, octetDeltaCount AS octets".to_owned(),
            reverse => {
                format!("{reverse}PacketDeltaCount AS packets, {reverse}OctetDeltaCount AS octets")
            }
        };
        format!(
            "SELECT {source}IPv4Address AS s4, {source}IPv6Address AS s6, {destination}IPv4Address AS d4, \
             {destination}IPv6Address AS d6, protocolIdentifier AS protocol, {source}TransportPort AS source_port, \
             {destination}TransportPort AS destination_port, {counts} FROM flows WHERE natEvent IS NULL"
        )
    };
    let (there, back) =
        (side("source", "destination", ""), side("destination", "source", "reverse"));
    let query = format!(
        "SELECT ip(s4, s6) AS source, ip(d4, d6) AS destination, protocol, source_port, destination_port, \
         sum(packets) AS packets, sum(octets) AS octets FROM ({there} UNION ALL {back} AND reversePacketDeltaCount > 0) \
         GROUP BY s4, s6, d4, d6, protocol, source_port, destination_port"
    );
    let text = answer(&["flows", "query", "-r", location, "--json", &query]);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn engines_of_fleets_give_the_same_answers() {
    let fleet = fleet_or_skip!();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.pcapng");
    write(&file, &traffic(6_000, false), START);
    let records = meter(&[file]);
    for (n, part) in records.chunks(records.len().div_ceil(3)).enumerate() {
        let folder = folder.path().join(format!("flows/date=2023-11-14/hour=22/sensor=s{n}"));
        parquet(&folder.join("flows-1.parquet"), part);
    }
    let location = folder.path().join("flows");
    let location = location.to_str().unwrap();
    let own = |arguments: &[&str]| {
        let text = answer(&[&["flows"], arguments, &["-r", location, "--json"]].concat());
        normal(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    };
    let mut sum = own(&["sum"]);
    sum[0]
        .as_object_mut()
        .unwrap()
        .retain(|name, _| ["flows", "packets", "octets"].contains(&&**name));
    let expected = [
        ("sum", sum),
        ("top hosts", own(&["top"])),
        ("top ports", own(&["top", "--by", "port"])),
        ("top sensors", own(&["top", "--by", "sensor"])),
    ];
    let directions = sums(&own_directions(location));
    for engine in ["duckdb", "clickhouse", "spark"] {
        let answers = ask(&fleet, engine, location);
        let found = |name: &str| &answers.iter().find(|(found, _)| found == name).expect(name).1;
        for (name, expected) in &expected {
            assert_eq!(&normal(found(name).clone()), expected, "{engine}: {name}");
        }
        assert_eq!(sums(found("directions")), directions, "{engine}");
        assert_eq!(answers.len(), expected.len() + 1, "{engine}: a query that is not compared");
        let rows: usize = answers.iter().map(|(_, rows)| rows.len()).sum();
        figure!("{engine}: {} queries, {rows} rows: those of linerate flows", answers.len());
    }
}
