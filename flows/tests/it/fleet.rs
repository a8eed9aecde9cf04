//! The engines that fleets have get the same answers from the same files, by the questions of packaging/fleet.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::process::Command;

use serde_json::Value;

use crate::support::{START, answer, meter, parquet, traffic, write};

/// A Python that has the engines; scripts/test-fleet sets it.
const PYTHON: &str = "LINERATE_FLEET_PYTHON";
const DEFINITIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/fleet");

/// Runs each question of a file (`-- name` before it) and prints its rows as a JSON line.
const RUN: &str = r#"
import json, sys
engine, path = sys.argv[1:]
questions = {}
for line in open(path):
    if line.startswith('-- '):
        name = line[3:].strip()
    questions.setdefault(name, []).append('' if line.startswith('--') else line)
questions = {name: ''.join(text).strip() for name, text in questions.items() if ''.join(text).strip()}
if engine == 'duckdb':
    import duckdb
    connection = duckdb.connect()
    def ask(text):
        cursor = connection.execute(text)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row)) for row in cursor.fetchall()]
    define = connection.execute
else:
    from chdb.session import Session
    session = Session()
    session.query('CREATE DATABASE IF NOT EXISTS fleet ENGINE = Atomic; USE fleet')
    settings = ' SETTINGS output_format_json_quote_64bit_integers = 0'
    def ask(text):
        return [json.loads(row) for row in str(session.query(text.rstrip(';') + settings, 'JSONEachRow')).splitlines()]
    define = session.query
for name, text in questions.items():
    if name == 'define':
        define(text)
    else:
        print(json.dumps([name, ask(text)], default=int))
"#;

/// The answers of an engine by the name of the question.
fn ask(python: &str, engine: &str, place: &str) -> Vec<(String, Vec<Value>)> {
    let text = fs::read_to_string(format!("{DEFINITIONS}/{engine}.sql")).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text.replace("@PLACE@", place)).unwrap();
    let output = Command::new(python).args(["-c", RUN, engine]).arg(file.path()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{engine}: {error}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Rows with addresses in one form, and without columns that are null.
fn normal(rows: Vec<Value>) -> Vec<Value> {
    let normal = |row: Value| {
        let Value::Object(mut row) = row else { panic!("{row}") };
        row.retain(|_, value| !value.is_null());
        if let Some(host) = row.get_mut("host") {
            let address: IpAddr = host.as_str().unwrap().parse().unwrap();
            *host = address.to_string().into();
        }
        Value::Object(row)
    };
    rows.into_iter().map(normal).collect()
}

#[test]
fn engines_of_fleets_give_the_same_answers() {
    let Ok(python) = std::env::var(PYTHON) else {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: engines_of_fleets_give_the_same_answers: {PYTHON} is not set"
        );
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.pcapng");
    write(&file, &traffic(6_000, false), START);
    let records = meter(&[file]);
    for (n, part) in records.chunks(records.len().div_ceil(3)).enumerate() {
        let folder = folder.path().join(format!("flows/date=2023-11-14/hour=22/sensor=s{n}"));
        parquet(&folder.join("flows-1.parquet"), part);
    }
    let place = folder.path().join("flows");
    let place = place.to_str().unwrap();
    let own = |arguments: &[&str]| {
        let text = answer(&[&["flows"], arguments, &["-r", place, "--json"]].concat());
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
    for engine in ["duckdb", "clickhouse"] {
        let answers = ask(&python, engine, place);
        for (name, expected) in &expected {
            let (_, found) = answers.iter().find(|(found, _)| found == name).expect(name);
            assert_eq!(&normal(found.clone()), expected, "{engine}: {name}");
        }
        assert_eq!(answers.len(), expected.len(), "{engine}: a question that is not compared");
    }
}
