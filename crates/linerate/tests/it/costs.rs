//! The tables of instructions in docs/forward-costs.md and docs/figures.md are made from docs/costs.json, by
//! `scripts/test-costs NOW record`. Nobody edits them by hand.

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
fn the_tables_of_instructions_show_the_recorded_figures() {
    let mut shown = Vec::new();
    for page in ["docs/forward-costs.md", "docs/figures.md"] {
        let page = read(page);
        let (_, rest) =
            page.split_once("<!-- made by scripts/test-costs record -->\n").expect("a table");
        let (table, _) = rest.split_once("<!-- end of the generated table -->").expect("its end");
        for line in table.lines().skip(2) {
            // Behind the last bar there is nothing. The first number is the size of the frames.
            let mut numbers = line.split('|').filter_map(|cell| cell.trim().parse::<u64>().ok());
            let bytes = numbers.next().expect(line);
            shown.extend(numbers.map(|cost| (bytes, cost)));
        }
    }
    let recorded: Record = serde_json::from_str(&read("docs/costs.json")).expect("docs/costs.json");
    let mut recorded: Vec<_> =
        recorded.costs.iter().map(|cost| (cost.bytes, cost.instructions)).collect();
    shown.sort_unstable();
    recorded.sort_unstable();
    assert!(!recorded.is_empty());
    assert_eq!(shown, recorded);
}
