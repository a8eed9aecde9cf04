//! The tests of the crate.

mod details;
mod export;
mod files;
mod frames;
mod ipfix;
mod manual;
mod meter;
mod model;
mod sums;
mod traffic;
