//! The programs that Linerate is compared with: how each is built, started and read.

mod build;
pub mod capture;
pub mod quinn;
pub mod splitters;
