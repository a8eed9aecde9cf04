//! The command line of Linerate, as a library so that man pages, completions and tests use the same
//! definitions as the program.
#![forbid(unsafe_code)]

mod cli;
mod say;
mod verbs;

pub use cli::{Cli, run};
