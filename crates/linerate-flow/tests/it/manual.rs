//! The manual has what the code has.

use linerate_flow::schema;

#[test]
fn it_has_the_table_of_fields() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/flow-fields.md");
    let manual = std::fs::read_to_string(path).unwrap();
    let table = schema::markdown();
    assert!(manual.contains(&table), "docs/flow-fields.md must have this table:\n{table}");
}
