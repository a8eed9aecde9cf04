//! The programs that Linerate is compared with: how each is built, started and read.

mod build;
pub(crate) mod capture;
pub(crate) mod quinn;
pub(crate) mod splitters;
