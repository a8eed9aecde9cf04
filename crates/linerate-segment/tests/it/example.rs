//! The example does what it says.

#[path = "../../examples/split.rs"]
mod split;

#[test]
fn what_was_split_is_joined() {
    split::main().unwrap();
}
