//! The engines get the same answers from the same files, by the queries of packaging/fleet.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{Fleet, definitions, figure, fleet_or_skip};
use crate::ship::Store;
use crate::support::{START, answer, meter, parquet, traffic, write};

/// Runs the queries of a file, and prints the rows of each as a JSON line.
const QUERY_PROGRAM: &str = include_str!("query.py");

/// Engines that read the files.
pub(super) const ENGINES: [&str; 3] = ["duckdb", "clickhouse", "spark"];

/// The answers of an engine by the name of the query.
pub(super) type Answers = Vec<(String, Vec<Value>)>;

/// A direction of a flow: source, destination, protocol and both ports.
pub(super) type Direction = (IpAddr, IpAddr, u64, u64, u64);
/// Packets and octets by direction.
pub(super) type Sums = HashMap<Direction, (u64, u64)>;
/// A connection whose source is translated: its direction before, its source address and port after.
pub(super) type Connection = (Direction, IpAddr, u64);
/// NAT events of creation and of deletion, packets and octets of the source, by connection.
pub(super) type Connections = HashMap<Connection, [u64; 4]>;

/// The program that runs queries, and its arguments.
pub(super) fn query_command(engine: &str, queries: &str, folder: &Path) -> (PathBuf, [PathBuf; 2]) {
    let (program, file) = (folder.join("query.py"), folder.join(format!("{engine}.sql")));
    std::fs::write(&program, QUERY_PROGRAM).unwrap();
    std::fs::write(&file, queries).unwrap();
    (program, [engine.into(), file])
}

/// The answers that an engine has printed.
pub(super) fn parse(text: &[u8]) -> Answers {
    let text = String::from_utf8_lossy(text);
    let json = text.lines().filter(|line| line.starts_with('['));
    json.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The queries of an engine about the files of a folder.
pub(super) fn folder_queries(engine: &str, folder: &str) -> String {
    definitions(&format!("{engine}.sql"), &[("@LOCATION@", folder)])
}

/// The queries of an engine about the objects below `s3://PATH`.
pub(super) fn store_queries(engine: &str, store: &Store, path: &str) -> String {
    let (endpoint, [key, secret]) = (store.endpoint(), Store::KEYS);
    match engine {
        "duckdb" => {
            let queries = folder_queries(engine, &format!("s3://{path}"));
            let secret = format!(
                "-- define\nCREATE SECRET (TYPE s3, KEY_ID '{key}', SECRET '{secret}', REGION 'us-east-1', \
                 ENDPOINT '{endpoint}', URL_STYLE 'path', USE_SSL false);\n"
            );
            queries.replacen("-- define\n", &secret, 1)
        }
        "clickhouse" => {
            let file = "file('@LOCATION@/**/*.parquet', Parquet)";
            let url = format!("http://{endpoint}/{path}/**/*.parquet");
            let s3 = format!("s3('{url}', '{key}', '{secret}', 'Parquet')");
            let queries = definitions("clickhouse.sql", &[(file, &s3)]);
            assert!(queries.contains(&s3), "{queries}");
            queries
        }
        _ => {
            let queries = folder_queries(engine, &format!("s3a://{path}"));
            let settings = [
                ("endpoint", &*format!("http://{endpoint}")),
                ("path.style.access", "true"),
                ("access.key", key),
                ("secret.key", secret),
            ];
            let set = |(name, value)| format!("SET fs.s3a.{name} = {value};\n");
            let define = format!("-- define\n{}", settings.map(set).concat());
            queries.replacen("-- define\n", &define, 1)
        }
    }
}

/// The answers of an engine to these queries.
fn query(fleet: &Fleet, engine: &str, queries: &str) -> Answers {
    let folder = tempfile::tempdir().unwrap();
    let (program, arguments) = query_command(engine, queries, folder.path());
    let mut command = Command::new(fleet.python());
    // Without a cluster, Spark runs in the process of the query.
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

fn number(row: &Value, name: &str) -> u64 {
    match &row[name] {
        Value::String(name) if name == "TCP" => 6,
        Value::String(name) if name == "UDP" => 17,
        other => other.as_u64().unwrap_or_else(|| panic!("{name}: {row}")),
    }
}

fn direction(row: &Value) -> Direction {
    let [protocol, source_port, destination_port] =
        ["protocol", "source_port", "destination_port"].map(|name| number(row, name));
    let (source, destination) = (address(&row["source"]), address(&row["destination"]));
    (source, destination, protocol, source_port, destination_port)
}

/// Packets and octets by direction, from the rows of the query `directions`.
pub(super) fn sums(rows: &[Value]) -> Sums {
    let mut sums = Sums::new();
    for row in rows {
        let sum = sums.entry(direction(row)).or_default();
        sum.0 += number(row, "packets");
        sum.1 += number(row, "octets");
    }
    sums
}

/// Translated connections, from the rows of the query `translations`. Counts that rows do not have are 0.
pub(super) fn connections(rows: &[Value]) -> Connections {
    let mut connections = Connections::new();
    for row in rows {
        let translated =
            (address(&row["translated_source"]), number(row, "translated_source_port"));
        let connection = connections.entry((direction(row), translated.0, translated.1));
        let counts = connection.or_default();
        for (count, name) in counts.iter_mut().zip(["created", "deleted", "packets", "octets"]) {
            *count += if row[name].is_null() { 0 } else { number(row, name) };
        }
    }
    connections
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

/// NAT events as `linerate flows` lists them, as rows of the query `translations`.
pub(super) fn own_nat_events(location: &str, filter: &str) -> Vec<Value> {
    let arguments = ["flows", "list", "--nat-events", "-n", "1000000", "-r", location, "--json"];
    let filter: Vec<_> = filter.split_whitespace().collect();
    let text = answer(&[&arguments[..], &filter].concat());
    let row = |line| {
        let mut row: Value = serde_json::from_str(line).unwrap();
        // RFC 8158, section 4.3: NAT44 and NAT64 sessions.
        let event = match row["event"].as_u64() {
            Some(4 | 6) => "created",
            Some(5 | 7) => "deleted",
            _ => panic!("{row}"),
        };
        row[event] = 1.into();
        row
    };
    text.lines().map(row).collect()
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
    let data = folder.path().join("store");
    std::fs::create_dir(&data).unwrap();
    let mut store = Store::new(&fleet, &data);
    store.start();
    store.json(&["flows", "ship", location, "s3://flows/site", "--json"]);
    let files = |engine| (engine, "files", folder_queries(engine, location));
    let objects = |engine| (engine, "objects", store_queries(engine, &store, "flows/site"));
    for (engine, kind, queries) in ENGINES.map(files).into_iter().chain(ENGINES.map(objects)) {
        let answers = query(&fleet, engine, &queries);
        let found = |name: &str| &answers.iter().find(|(found, _)| found == name).expect(name).1;
        for (name, expected) in &expected {
            assert_eq!(&normal(found(name).clone()), expected, "{engine}: {name}");
        }
        assert_eq!(sums(found("directions")), directions, "{engine}");
        assert!(found("translations").is_empty(), "{engine}");
        assert_eq!(answers.len(), expected.len() + 2, "{engine}: a query that is not compared");
        let rows: usize = answers.iter().map(|(_, rows)| rows.len()).sum();
        figure!(
            "{engine}, {kind}: {} queries, {rows} rows: those of linerate flows",
            answers.len()
        );
    }
}
