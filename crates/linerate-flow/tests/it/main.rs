//! The tests of the crate.

mod frames;
mod manual;
mod meter;
mod sums;
