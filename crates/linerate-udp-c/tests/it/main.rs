//! The library as C programs meet it.

#[path = "../../../linerate-segment-c/tests/it/building.rs"]
mod building;
mod c;
mod consent;
mod header;
