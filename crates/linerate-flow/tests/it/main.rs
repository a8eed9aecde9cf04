//! The tests of the crate.

mod frames;
mod ipfix;
mod manual;
mod meter;
mod sums;
