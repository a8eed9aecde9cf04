//! The table of docs/forward-costs.md is made from docs/costs.json, by `scripts/test-costs NOW record`. Nobody edits
//! either by hand.

use std::fs;
use std::path::Path;

use serde::Deserialize;

#[derive(Deserialize)]
struct Record {
    costs: Vec<Cost>,
}

#[derive(Deserialize)]
struct Cost {
    bytes: u64,
    instructions: u64,
}

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn the_table_of_instructions_shows_the_recorded_figures() {
    let page = read("docs/forward-costs.md");
    let (_, rest) =
        page.split_once("<!-- made by scripts/test-costs record -->\n").expect("a table");
    let (table, _) = rest.split_once("<!-- end of the generated table -->").expect("its end");
    let mut shown = Vec::new();
    for line in table.lines().skip(2) {
        // Behind the last bar there is nothing. The first number is the size of the frames.
        let mut numbers = line.split('|').filter_map(|cell| cell.trim().parse::<u64>().ok());
        let bytes = numbers.next().expect(line);
        shown.extend(numbers.map(|cost| (bytes, cost)));
    }
    let recorded: Record = serde_json::from_str(&read("docs/costs.json")).expect("docs/costs.json");
    let mut recorded: Vec<_> =
        recorded.costs.iter().map(|cost| (cost.bytes, cost.instructions)).collect();
    shown.sort_unstable();
    recorded.sort_unstable();
    assert!(!recorded.is_empty());
    assert_eq!(shown, recorded);
}
