//! The tests of the crate.

mod manual;
